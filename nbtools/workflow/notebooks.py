"""Notebooks as steps: their code cells one after the other in a session, and what they show beside them.

The notebook as it ran is written after each cell. If a cell fails, its kernel stays, and that file names the kernel:
the next attempt finds both, and continues at the first cell that did not succeed, as long as all cells before it are
unchanged. Anything else begins with a new kernel.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.errors import InvalidArguments
from nbtools.ground.aio import in_thread
from nbtools.ground.home import make_private
from nbtools.ground.lazy import need
from nbtools.texts.python_tree import parse_python, python_literal

if TYPE_CHECKING:
    from nbtools.kernels import Kernels
    from nbtools.kernels.interface import Execution

_TAG, _INJECTED = "parameters", "injected-parameters"  # as papermill names them
_MADE_OF = "# Made of the notebook "
TAG_IT = "Give the cell that sets them the tag parameters: in JupyterLab under Property Inspector."
_KINDS = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}


class Notebook:
    """A notebook with values for its cell of parameters, that can be run.

    Parameters
    ----------
    text
        The file's.
    values
        By name; they stand in a new cell behind the one with the tag ``parameters``.

    Raises
    ------
    InvalidArguments
        It is not a notebook, or has no cell that sets values.
    MissingExtra
        The extra ``lab`` is not installed.
    """

    def __init__(self, text: str, values: Mapping[str, Any] | None = None) -> None:
        nbformat = need("nbformat", extra="lab", why="Running a notebook")
        try:
            self.book: Any = nbformat.reads(text, as_version=4)
            nbformat.validate(self.book)
        except (nbformat.ValidationError, nbformat.reader.NotJSONError, AttributeError, KeyError) as exc:
            raise InvalidArguments(f"it is not a notebook: {str(exc).splitlines()[0]:.80}") from None
        if not self.cells:
            raise InvalidArguments("it has no cell of code")
        self._set(values or {})

    @property
    def cells(self) -> list[Any]:
        """The cells of code."""
        return [cell for cell in self.book.cells if cell.cell_type == "code"]

    @property
    def language(self) -> str:
        """What a kernel for it is asked for."""
        spec = self.book.metadata.get("kernelspec", {})
        word = self.book.metadata.get("language_info", {}).get("name", spec.get("language", "python"))
        return "python" if word in {"python", "ipython"} else f"kernel:{spec.get('name', word)}"

    def bare_text(self) -> str:
        """Return the notebook without what earlier runs left in it, as text."""
        self.book.metadata.pop("nbtools", None)
        self.book.cells = [cell for cell in self.book.cells if _INJECTED not in cell.metadata.get("tags", ())]
        for cell in self.cells:
            cell.outputs, cell.execution_count = [], None
        return json.dumps(self.book, ensure_ascii=False)

    def parameters(self) -> dict[str, dict[str, Any]]:
        """Return the names that the cell with the tag ``parameters`` sets, each with a JSON Schema of its value."""
        tagged = self._tagged()
        return {} if tagged is None else dict(_assigned(self.book.cells[tagged].source))

    def _set(self, values: Mapping[str, Any]) -> None:
        """Put a cell with values behind the cell of parameters."""
        if not values:
            return
        if (tagged := self._tagged()) is None or self.language != "python":
            raise InvalidArguments("no cell of Python has the tag parameters, so nothing can be set.", hint=TAG_IT)
        nbformat = need("nbformat", extra="lab", why="Running a notebook")
        lines = "\n".join(f"{name} = {python_literal(value)}" for name, value in values.items())
        self.book.cells.insert(
            tagged + 1, nbformat.v4.new_code_cell(lines, metadata={"tags": [_INJECTED]}, id=_INJECTED)
        )

    def _tagged(self) -> int | None:
        cells = self.book.cells
        return next((i for i, cell in enumerate(cells) if _TAG in cell.metadata.get("tags", ())), None)

    async def arun(
        self,
        kernels: Kernels,
        session: str,
        to: Path,
        *,
        keeps_kernel: bool = False,
        timeout: float | None = None,
        show: Callable[[str], None] = lambda _: None,
        **options: Any,
    ) -> Execution:
        """Run the cells and return what became of them, as if they were one piece of code.

        Parameters
        ----------
        kernels
            The managed kernels.
        session
            Name of the session whose kernel runs the cells; it stays where a cell fails.
        to
            The file of the notebook as it ran.
        keeps_kernel
            Whether the session stays in any case.
        timeout
            Seconds for all cells together; `None` gives each what the setting allows.
        show
            Gets a line for each cell that begins.
        **options
            Of `nbtools.kernels.Kernels.arun`, for each cell.
        """
        handle, cells = kernels.session(session, language=self.language), self.cells
        count, note = await in_thread(self._take_over, to, kernels, session)
        # Nothing can be taken over, so variables of the attempt before would only hide mistakes.
        if count == 0 and handle.state != "not started":
            await handle.arestart()
        begun, outcomes = time.monotonic(), list["Execution"]()
        if note:
            show(note)
        for i, cell in enumerate(cells[count:], count + 1):
            show(f"[{i:>2}/{len(cells)}] {(cell.source.strip().splitlines() or [''])[0][:70]}")
            left = "setting" if timeout is None else max(0.01, timeout - (time.monotonic() - begun))
            wants_value = i == len(cells) and self.language == "python"
            outcome = await handle.arun(cell.source, timeout=left, wants_value=wants_value, **options)
            cell.execution_count, cell.outputs = i, [*_outputs(outcome)]
            outcomes.append(outcome)
            kernel = await in_thread(_kernel_of, kernels, session)
            # Before the file is written, so that a process that ends here leaves what the next attempt needs to go on.
            self.book.metadata["nbtools"] = {"kernel": kernel, "ran": i - (not outcome.ok)}
            await in_thread(self._write, to)
            if not outcome.ok:
                stays = (
                    f"its kernel stays as session {session!r} while this process lives; resumed in it, it continues at "
                    f"cell {i}; from another process all cells run again"
                )
                return _joined(outcomes, to, begun, stays if kernel is not None else note, cell=i)
        del self.book.metadata["nbtools"]
        await in_thread(self._write, to)
        if not keeps_kernel:
            await handle.aclose()
        return _joined(outcomes, to, begun, f"its kernel is session {session!r}" if keeps_kernel else note)

    def _take_over(self, earlier: Path, kernels: Kernels, session: str) -> tuple[int, str]:
        """Take the outputs of cells that ran in a kernel that still is there; return how many, and where it begins."""
        kernel = _kernel_of(kernels, session)
        with contextlib.suppress(OSError, InvalidArguments):
            before = Notebook(earlier.read_text(encoding="utf-8"))
            facts = before.book.metadata.get("nbtools", {})
            ran = before.cells[: facts.get("ran", 0)]
            same = [cell.source for cell in ran] == [cell.source for cell in self.cells[: len(ran)]]
            if kernel is None or facts.get("kernel") != kernel:
                return 0, "begins at cell 1: the kernel of the attempt before has ended" if ran else ""
            if not same:
                return 0, f"begins at cell 1: of the {len(ran)} cells that ran some have changed"
            if ran:
                for cell, old in zip(self.cells, ran, strict=False):
                    cell.outputs, cell.execution_count = old.outputs, old.execution_count
                # One cell is left in any case: its value is the value of the notebook, and is kept in no file.
                count = min(len(ran), len(self.cells) - 1)
                return count, f"continues at cell {count + 1}"
        return 0, ""

    def _write(self, to: Path) -> None:
        if not to.parent.is_dir():
            make_private(to.parent)
        to.write_text(json.dumps(self.book, indent=1, ensure_ascii=False), encoding="utf-8")


def as_workflow(source: str | os.PathLike[str], values: Iterable[str] | None = None) -> str | os.PathLike[str]:
    """Return a workflow whose one step runs a notebook, whose inputs are the names of its cell of parameters.

    Parameters
    ----------
    source
        The notebook; anything else is returned as it is.
    values
        The inputs that are given: only these are set, so that the notebook's own values hold for the others.

    Raises
    ------
    InvalidArguments
        It cannot be read, or is not a notebook.
    """
    path = os.fspath(source)
    if not path.endswith(".ipynb") or text_of(path):
        return source
    inputs = read_notebook(Path(path)).parameters()
    name = re.sub(r"\W+", "_", Path(path).stem)
    head = {"version": 1, "name": (name if name[:1].isalpha() else f"n_{name}")[:64], "inputs": inputs}
    step = {"id": head["name"], "parameters": {one: f"${{inputs.{one}}}" for one in inputs if one in set(values or ())}}
    lines = [_MADE_OF + path, *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "nodes:"]
    lines += [f"- notebook: {json.dumps(path)}", *(f"  {key}: {json.dumps(value)}" for key, value in step.items())]
    return "\n".join([*lines, ""])


def made_of(text: str) -> str:
    """Return the path of the notebook that `as_workflow` made a workflow of; any other workflow as it is."""
    return text.removeprefix(_MADE_OF).partition("\n")[0] if text.startswith(_MADE_OF) else text


def text_of(source: str | os.PathLike[str]) -> str:
    """Return a workflow that is given as text, which has a line break; the empty text for one in a file."""
    return source if isinstance(source, str) and "\n" in source else ""


def read_notebook(path: Path) -> Notebook:
    """Return the notebook of a file.

    Raises
    ------
    InvalidArguments
        It cannot be read, or is not a notebook.
    """
    try:
        return Notebook(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else getattr(exc, "message", "it is not UTF-8 text")
        raise InvalidArguments(f"the notebook {str(path)!r} cannot be read: {why}.") from None


def _assigned(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names that code sets at its top, each with a schema and a default, null where it is computed."""
    with contextlib.suppress(SyntaxError):
        for line in parse_python(source).body:
            if isinstance(line, ast.Assign | ast.AnnAssign):
                targets = line.targets if isinstance(line, ast.Assign) else [line.target]
                yield from ((target.id, _schema_of(line.value)) for target in targets if isinstance(target, ast.Name))


def _schema_of(code: Any) -> dict[str, Any]:
    value = None
    with contextlib.suppress(ValueError, TypeError):
        json.dumps(constant := ast.literal_eval(code), allow_nan=False)  # YAML has other words for infinity
        value = constant
    kind = _KINDS.get(type(value))
    if kind is None or "${" in repr(value):
        # What is computed has no value before the notebook runs; null stands for leaving it to the notebook.
        return {"type": [*dict.fromkeys(_KINDS.values()), "null"], "default": None}
    return {"type": kind, "default": value}


def _kernel_of(kernels: Kernels, session: str) -> str | None:
    """Return which kernel a session has; `None` where none lives."""
    return next((row["kernel"] for row in kernels.list() if row["name"] == session), None)


def _outputs(outcome: Execution) -> Iterator[dict[str, Any]]:
    """Yield what a cell has shown, in the form of notebooks."""
    nbformat = need("nbformat", extra="lab", why="Running a notebook")
    for kind, what in outcome.outputs:
        if kind == "display":
            yield nbformat.v4.new_output("display_data", {name: what[name] for name in what if "/" in name})
        else:
            yield nbformat.v4.new_output("stream", name=kind, text=what)
    if (error := outcome.to_error()) is not None:
        of = outcome.error
        name, value = (type(error).__name__, error.message) if of is None else (of.name, of.value)
        lines = [] if of is None else of.traceback.splitlines()
        yield nbformat.v4.new_output("error", ename=name, evalue=value, traceback=lines)


def _joined(outcomes: Sequence[Execution], to: Path, begun: float, note: str, cell: int | None = None) -> Execution:
    """Return what became of all cells: as of the last one, with what all have shown and written."""
    last = outcomes[-1]
    return dataclasses.replace(
        last,
        stdout="",
        stderr="",
        displays=(),
        outputs=tuple(output for each in outcomes for output in each.outputs),
        error=None if last.error is None else dataclasses.replace(last.error, cell=cell),
        duration_s=time.monotonic() - begun,
        artifacts=(to, *dict.fromkeys(path for each in outcomes for path in each.artifacts)),
        notes=tuple(dict.fromkeys(filter(None, [note, *(one for each in outcomes for one in each.notes)]))),
    )
