"""What a notebook that repeats a run keeps: the results of its steps, as expressions and code see them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nbtools.contract.result import Artifact, ToolResult
from nbtools.errors import InvalidArguments, NbtoolsError
from nbtools.workflow.driver.files import named_files
from nbtools.workflow.expressions import fill, truth
from nbtools.workflow.runs.keys import MaskedEnvironment
from nbtools.workflow.runs.state import NEVER_AGAIN, NodeState, failure_result

if TYPE_CHECKING:
    from nbtools.kernels.interface import Execution


class RepeatedSteps(Mapping[str, Mapping[str, Any]]):
    """The results of steps by node: ok, state, text, data, error, artifacts, duration_s.

    Parameters
    ----------
    inputs
        Values of the workflow's inputs.
    answers
        What people and models answered in the run, by step: ``agree``, ``each[2]``, ``each[2]/agree``.
    env
        What ``${env.NAME}`` stands for, usually `os.environ`.
    label
        Of a run inside of another: the step that it is, such as ``each[2]``.

    Examples
    --------
    >>> steps = RepeatedSteps({"n": 2})
    >>> steps.gave("a", [1, 2, 3])
    [1, 2, 3]
    >>> steps.fill("${nodes.a.data | len} of ${inputs.n}")
    '3 of 2'
    """

    def __init__(
        self,
        inputs: Mapping[str, Any],
        answers: Mapping[str, Any] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        label: str = "",
    ) -> None:
        self.inputs = inputs
        self._answers = answers or {}
        self._env = MaskedEnvironment() if env is None else env
        self._prefix = f"{label}/" if label else ""
        self._results: dict[str, dict[str, Any]] = {}
        self._values: dict[str, Any] = {}
        self._items: dict[str, list[dict[str, Any]]] = {}

    def __getitem__(self, node: str) -> Mapping[str, Any]:
        return self._results[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    # -- what a step starts from

    def fill(self, value: Any, item: Any = None) -> Any:
        """Return a value with the expressions in its texts filled in."""
        return fill(value, {"inputs": self.inputs, "nodes": self._results, "item": item, "env": self._env})

    def goes(self, node: str, *, when: Any = None, needs: tuple[str, ...] = ()) -> bool:
        """Tell whether a node runs; where it does not, it counts as skipped.

        Parameters
        ----------
        node
            The node.
        when
            Its condition.
        needs
            The nodes with which it is skipped.
        """
        lost = any(self._results[name]["state"] in {"skipped", "declined"} for name in needs)
        scope = {"inputs": self.inputs, "nodes": self._results, "env": self._env}
        if not lost and truth(when, scope):
            return True
        self._results[node] = NodeState(state="skipped").view()
        return False

    def seen(self, *needs: str) -> dict[str, Any]:
        """Return what code sees as ``nodes``: the data of the nodes that it needs."""
        return {name: self._values[name] for name in needs if name in self._values}

    def files(self, *needs: str) -> dict[str, dict[str, str]]:
        """Return what code sees as ``files``: the files of the nodes that it needs."""
        return {name: named_files(self._results[name]["artifacts"]) for name in needs if name in self._results}

    def tries(self, attempts: int, *, backoff_s: float = 0.0) -> Iterator[_Attempt]:
        """Yield what each attempt of a step stands in, until one is good; the error of the last one goes on.

        Parameters
        ----------
        attempts
            How many there are at the most.
        backoff_s
            Seconds before the second one; each further wait is twice as long.
        """
        for number in range(1, attempts + 1):
            attempt = _Attempt(is_last=number == attempts)
            yield attempt
            if attempt.is_good:
                return
            time.sleep(backoff_s * 2 ** (number - 1))

    def each(self, node: str, for_each: Any) -> Iterator[Any]:
        """Yield the items of a node; what they give becomes one result at the end."""
        self._items[node] = []
        yield from self.fill(for_each)
        # Taken off first: what is kept under the node from here on is its own result, and not one more item.
        results = self._items.pop(node)
        values = [result["data"] if result["ok"] else None for result in results]
        self._keep(
            node, {**_GOOD, "text": f"{sum(result['ok'] for result in results)} of {len(results)} items"}, values
        )

    def label(self, node: str) -> str:
        """Return the name of the step that runs now: the node, with the number of the item."""
        items = self._items.get(node)
        return self._prefix + (node if items is None else f"{node}[{len(items)}]")

    # -- what a step gives

    def gave(self, node: str, value: Any, text: str = "") -> Any:
        """Keep the value of a step, and return it."""
        self._keep(node, {**_GOOD, "text": text or (value if isinstance(value, str) else "")}, value)
        return value

    def called(self, node: str, done: ToolResult) -> ToolResult:
        """Keep the result of a call, and return it."""
        state = "ok" if done.ok else "failed"
        self._keep(node, {**done.to_dict(), "state": state}, done.data)
        return done

    def ran(self, node: str, done: Execution, *, is_json: bool = False, has_value: bool = False) -> Any:
        """Keep what code in a kernel gave, and return it.

        Raises
        ------
        ExecutionFailed
            The code failed.
        """
        if (error := done.to_error()) is not None:
            raise error
        value = done.value if has_value else json.loads(done.stdout) if is_json else done.stdout
        files = [Artifact.from_path(Path(path), hashed=0).to_dict() for path in done.artifacts]
        self._keep(node, {**_GOOD, "text": done.stdout, "artifacts": files}, value)
        return value

    def answered(self, node: str) -> Any:
        """Keep the answer that the run got, and return it; after a no the node is declined.

        Raises
        ------
        InvalidArguments
            The run was not asked this.
        """
        label = self.label(node)
        if label not in self._answers:
            raise InvalidArguments(f"the run has no answer to {label}.", hint=f"Write one: answers[{label!r}] = …")
        answer = self._answers[label]
        # An item that was declined is an item with the value false; only a node skips those that need it.
        if answer is False and node not in self._items:
            self._results[node] = NodeState(state="declined", result={"text": "no", "data": False}).view()
            return answer
        return self.gave(
            node, answer, json.dumps(answer, ensure_ascii=False) if isinstance(answer, dict | list) else ""
        )

    @contextlib.contextmanager
    def may_fail(self, node: str) -> Iterator[None]:
        """Keep the error of a step in place of raising it."""
        try:
            yield
        except Exception as exc:
            code, hint = (exc.code, exc.hint) if isinstance(exc, NbtoolsError) else ("EXECUTION_FAILED", None)
            self._keep(node, {**failure_result(code, str(exc), hint), "state": "failed"}, None)

    def _keep(self, node: str, result: dict[str, Any], value: Any) -> None:
        data, seen = _as_data(value)
        result = {**result, "data": data}
        if node in self._items:
            self._items[node].append(result)
        else:
            self._results[node] = result
            self._values[node] = seen


class _Attempt:
    """Keeps the error of an attempt that another one follows."""

    def __init__(self, *, is_last: bool) -> None:
        self._is_last = is_last
        self.is_good = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> bool:
        self.is_good = exc is None
        return isinstance(exc, Exception) and not self._is_last and getattr(exc, "code", "") not in NEVER_AGAIN


_GOOD = NodeState(state="ok").view()


def _as_data(value: Any) -> tuple[Any, Any]:
    """Return a value as expressions and as code see it: as JSON, and a DataFrame as columns and rows, or itself."""
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        split = value.to_dict(orient="split")
        return {"columns": split["columns"], "rows": split["data"], "row_count": len(value)}, value
    # There and back, so that expressions see what they saw in the run: texts as keys, lists for tuples.
    data = json.loads(json.dumps(value, default=_jsonable))
    return data, data


def _jsonable(value: Any) -> Any:
    """Return arrays and numbers of NumPy, and sets, as JSON has them; anything else by its ``repr``."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return sorted(value) if isinstance(value, set | frozenset) else repr(value)
