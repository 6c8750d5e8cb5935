"""A run as a notebook that runs by itself: each call that succeeded is a cell, the last one counts what came again.

What is written are the arguments with which a call ran, after the approver had changed them, and the SHA-256 of
the text of its result. No model is needed to run the notebook, and none is asked. A result that differs stops nothing:
the last cell tells which did.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import pprint
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nbtools.agent.records.lines import RunLines
from nbtools.agent.tools.own_tools import OWN_NAMES
from nbtools.conduct.notebook_file import code_cell, markdown_cell, notebook_file
from nbtools.errors import InvalidArguments
from nbtools.texts.redaction import conceal
from nbtools.texts.visible import counted

_START = Path(__file__).with_name("start_cell.py.txt").read_text(encoding="utf-8").rstrip()
_MOVE = """\
import os

os.chdir({place!r})  # where the run was at work
"""
_END = """\
some = f", {len(left)} not repeated" if left else ""
print(f"reproduced {calls - len(differs) - len(left)} of {calls}{some}", *differs, *left, sep="\\n")"""
_MARK = "The calls of run "


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class RunExport:
    """What was written of a run.

    Attributes
    ----------
    path
        The file.
    calls
        The calls in it.
    proof
        What came of running it, such as ``reproduced 4 of 5, 1 not repeated``, with a line for each call that gave
        something else or was not made again; for a workflow what is wrong with it. Empty where nothing was run or
        found.
    not_repeated
        How many calls the notebook does not make again, because they destroy or reach out.
    is_workflow
        Whether it is a workflow.
    """

    path: str
    calls: int
    proof: str = ""
    not_repeated: int = 0
    is_workflow: bool = False

    @property
    def is_good(self) -> bool:
        """Whether every call that was repeated gave its result, and the workflow is valid, as far as that was tried."""
        is_whole = self.proof.startswith(f"reproduced {self.calls - self.not_repeated} of ")
        return not self.proof or (is_whole and not self.is_workflow)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        kind = "workflow" if self.is_workflow else "notebook"
        summary = f"{self.path} is a {kind} of {counted(self.calls, 'call')}, which runs without a model"
        return "\n".join(filter(None, (summary, self.proof)))

    __repr__ = __str__


def headline(run_id: str, label: str) -> str:
    """Return the line at the head of each export, by which `check_place` knows one."""
    return f"{_MARK}{run_id} ({label}), as they ran."


def notebook_of(
    run_id: str,
    prompt: str,
    label: str,
    log: Iterable[Mapping[str, Any]],
    *,
    folder: str = ".",
    left: Mapping[str, str] = MappingProxyType({}),
) -> tuple[dict[str, Any], int]:
    """Return the notebook of a run, as the JSON of a notebook file, and how many calls are in it.

    Parameters
    ----------
    run_id
        Id of the run.
    prompt
        The prompt of the run.
    label
        Name of the model, or of what played it.
    log
        Its events, as `AgentService.log` has them.
    folder
        The folder in which the calls are made, seen from that of the notebook.
    left
        Id of each call that is not made again, to why.
    """
    cells = [_text(f"# {prompt}\n\n{headline(run_id, label)}"), code_cell(start_of(folder))]
    lines = RunLines()
    changed: set[str] = set()
    for event in log:
        line = lines.line(event)
        if event["kind"] == "text" and event["text"].strip():
            cells.append(_text(event["text"].strip()))
        elif event["kind"] == "approval_answered" and event.get("arguments") is not None:
            changed.add(event["call_id"])
            cells.append(_text(line))
        elif event["kind"] == "call_ended" and event["tool"] not in OWN_NAMES:
            if event["result"].get("ok"):
                arguments, why = lines.arguments.get(event["call_id"], {}), left.get(event["call_id"], "")
                cells.append(_call(event, arguments, event["call_id"] in changed, why))
            else:
                cells.append(_text(f"Not made again, because it did not succeed: {line}"))
    calls = sum(cell["source"].startswith("reproduce(") for cell in cells)
    cells.append(code_cell(_END))
    return notebook_file(cells), calls


def made_again(log: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the id, tool and arguments of each call that a notebook has, in its order."""
    lines = RunLines()
    for event in log:
        lines.line(event)
        if event["kind"] == "call_ended" and event["tool"] not in OWN_NAMES and event["result"].get("ok"):
            yield event["call_id"], event["tool"], lines.arguments.get(event["call_id"], {})


def start_of(folder: str) -> str:
    """Return the first code of a notebook, whose calls are made in a folder."""
    return _START if folder == "." else f"{_MOVE.format(place=folder)}{_START}"


def _call(event: Mapping[str, Any], arguments: Mapping[str, Any], is_changed: bool, why: str) -> dict[str, Any]:
    text = str(event["result"].get("text") or "")
    if is_changed:  # the first line tells the model of the change, which the call itself does not say
        text = text.partition("\n")[2]
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    arguments_text = pprint.pformat(conceal(dict(arguments)), width=100, sort_dicts=False)
    parts = [repr(event["tool"]), arguments_text, repr(digest), *([f"not_repeated={why!r}"] if why else [])]
    inside = textwrap.indent("".join(f"{part},\n" for part in parts), "    ")
    return code_cell(f"reproduce(\n{inside})")


def _text(source: str) -> dict[str, Any]:
    """Return a cell of Markdown in which no HTML and no picture stands: opening it must load nothing from elsewhere."""
    return markdown_cell(source.replace("<", "&lt;").replace("![", "!&#91;"))


def check_place(target: Path, *, as_workflow: bool) -> None:
    """Check that a run may be written to a file: there is none, or one that was written of a run before.

    Raises
    ------
    InvalidArguments
        Its ending says another kind of file, or it holds something else.
    """
    endings = (".yaml", ".yml") if as_workflow else (".ipynb",)
    kind = "workflow" if as_workflow else "notebook"
    if target.suffix not in endings:
        raise InvalidArguments(
            f"{target.name} does not have the ending of a {kind}.", hint=f"Use a name with {endings[0]}."
        )
    with contextlib.suppress(FileNotFoundError), target.open("rb") as file:
        if _MARK.encode() not in file.read(1 << 16):
            hint = "Choose another name, or remove it."
            raise InvalidArguments(f"{target.name} exists, and was not exported from a run.", hint=hint)
