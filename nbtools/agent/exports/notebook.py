"""A run as a notebook that runs by itself: each call that succeeded is a cell, the last one counts what came again.

What is written are the arguments with which a call ran, after whoever approved it had changed them, and the SHA-256 of
the text of its result. No model is needed to run the notebook, and none is asked. A result that differs stops nothing:
the last cell tells which did.
"""

from __future__ import annotations

import contextlib
import dataclasses
import filecmp
import hashlib
import pprint
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

from nbtools.agent.own_tools import OWN_TOOLS
from nbtools.agent.records.lines import RunLines
from nbtools.aio import in_thread
from nbtools.errors import ExecutionFailed, InvalidArguments, NbtoolsError
from nbtools.lazy import need
from nbtools.paths import Roots
from nbtools.redaction import conceal
from nbtools.tool import tool_of
from nbtools.visible import counted

__all__ = ["RunExport", "check_place", "headline", "notebook_of", "prove"]

_START = """\
import hashlib
import os

from nbtools.config import Config
from nbtools.shared import shared

# The scripts are a model's: they run as confined as they ran then, whoever runs them now.
os.environ["NBTOOLS_SANDBOX"] = Config.load().model_sandbox
wb = shared()
differs = []
calls = 0


def reproduce(tool, arguments, sha256):
    global calls
    calls += 1
    result = wb.call(tool, arguments)
    found = hashlib.sha256(result.text.encode("utf-8", "surrogatepass")).hexdigest()
    if not result.ok:
        differs.append(f"call {calls}, {tool}: {result.error.code}: {result.error.message}")
    elif found != sha256:
        differs.append(f"call {calls}, {tool}: the result was {sha256[:12]}, now it is {found[:12]}")
    return result"""
_MOVE = """\
import os

os.chdir({place!r})  # where the run was at work
"""
_END = """\
print(f"reproduced {calls - len(differs)} of {calls}", *differs, sep="\\n")"""
_SECONDS = 600
_MARK = "The calls of run "
_NEEDED = ("nbclient", "nbformat")


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
        What came of running it, such as ``reproduced 5 of 5``, with a line for each call that gave something else; for
        a workflow what is wrong with it. Empty where nothing was run or found.
    is_workflow
        Whether it is a workflow.
    """

    path: str
    calls: int
    proof: str = ""
    is_workflow: bool = False

    @property
    def is_good(self) -> bool:
        """Whether every result came again, and the workflow is valid, as far as that was tried."""
        is_whole = self.proof.startswith(f"reproduced {self.calls} of ")
        return not self.proof or (is_whole and not self.is_workflow)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        kind = "workflow" if self.is_workflow else "notebook"
        told = f"{self.path} is a {kind} of {counted(self.calls, 'call')}, which runs without a model"
        return "\n".join(filter(None, (told, self.proof)))

    __repr__ = __str__


def headline(run_id: str, label: str) -> str:
    """Return the line at the head of each export, by which `check_place` knows one."""
    return f"{_MARK}{run_id} ({label}), as they ran."


def notebook_of(
    run_id: str, prompt: str, label: str, log: Iterable[Mapping[str, Any]], *, place: str = "."
) -> tuple[dict[str, Any], int]:
    """Return the notebook of a run, as the JSON of a notebook file, and how many calls are in it.

    Parameters
    ----------
    run_id, prompt, label
        Which run, what was asked, and the model or what stood in its place.
    log
        Its events, as `AgentService.log` has them.
    place
        The folder in which the calls are made, seen from that of the notebook.
    """
    start = _START if place == "." else f"{_MOVE.format(place=place)}{_START}"
    cells = [_text(f"# {prompt}\n\n{headline(run_id, label)}"), _code(start)]
    own = {tool_of(function).name for function in OWN_TOOLS}
    lines = RunLines()
    changed: set[str] = set()
    for event in log:
        line = lines.line(event)
        if event["kind"] == "text" and event["text"].strip():
            cells.append(_text(event["text"].strip()))
        elif event["kind"] == "approval_answered" and event.get("arguments") is not None:
            changed.add(event["call_id"])
            cells.append(_text(line))
        elif event["kind"] == "call_ended" and event["tool"] not in own:
            if event["result"].get("ok"):
                cells.append(_call(event, lines.arguments.get(event["call_id"], {}), event["call_id"] in changed))
            else:
                cells.append(_text(f"Not made again, because it did not succeed: {line}"))
    calls = sum(cell["source"].startswith("reproduce(") for cell in cells)
    cells.append(_code(_END))
    numbered = [{"id": f"c{number:03d}", **cell} for number, cell in enumerate(cells)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": numbered, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}, calls


def _call(event: Mapping[str, Any], arguments: Mapping[str, Any], is_changed: bool) -> dict[str, Any]:
    text = str(event["result"].get("text") or "")
    if is_changed:  # the first line tells the model of the change, which the call itself does not say
        text = text.partition("\n")[2]
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    given = pprint.pformat(conceal(dict(arguments)), width=100, sort_dicts=False)
    inside = textwrap.indent("".join(f"{part},\n" for part in (repr(event["tool"]), given, repr(digest))), "    ")
    return _code(f"reproduce(\n{inside})")


def _text(source: str) -> dict[str, Any]:
    """Return a cell of Markdown in which no HTML and no picture stands: opening it must load nothing from elsewhere."""
    return {"cell_type": "markdown", "metadata": {}, "source": source.replace("<", "&lt;").replace("![", "!&#91;")}


def _code(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source}


async def prove(
    book: Mapping[str, Any], folder: str, log: Iterable[Mapping[str, Any]], roots: Roots
) -> tuple[dict[str, Any], str]:
    """Run a notebook of a run once in a clean kernel; return it with its outputs, and what its last cell says.

    Parameters
    ----------
    book
        The notebook.
    folder
        Where its kernel starts.
    log, roots
        The events of the run, whose files are put back as they were, and the folders in which they may lie.

    Raises
    ------
    MissingExtra
        What runs notebooks is not installed (extra ``lab``).
    ExecutionFailed
        The notebook itself failed, or its kernel did.
    """
    nbclient, nbformat = [await in_thread(need, name, extra="lab", why="Proving a run") for name in _NEEDED]
    made = nbformat.from_dict(dict(book))
    client = nbclient.NotebookClient(made, timeout=_SECONDS, resources={"metadata": {"path": folder}})
    try:
        async with _kept_files(log, roots):
            await client.async_execute(stderr=subprocess.DEVNULL)  # what the kernel's own process has to say
    except Exception as exc:  # a cell that fails, a kernel that dies, a time that runs out
        told = str(exc).strip().splitlines()
        problem = f"the notebook did not run to its end: {told[-1] if told else type(exc).__name__}"
        raise ExecutionFailed(problem, hint="Export it without proving, and run its cells.") from exc
    return dict(made), str(made.cells[-1]["outputs"][-1]["text"]).strip()


def check_place(place: Path, *, as_workflow: bool) -> None:
    """Check that a run may be written to a file: there is none, or one that was written of a run before.

    Raises
    ------
    InvalidArguments
        Its ending says another kind of file, or it holds something else.
    """
    endings = (".yaml", ".yml") if as_workflow else (".ipynb",)
    kind = "workflow" if as_workflow else "notebook"
    if place.suffix not in endings:
        raise InvalidArguments(f"{place.name} does not end as a {kind} does.", hint=f"Use a name with {endings[0]}.")
    with contextlib.suppress(FileNotFoundError), place.open("rb") as file:
        if _MARK.encode() not in file.read(1 << 16):
            hint = "Choose another name, or remove it."
            raise InvalidArguments(f"{place.name} is there, and was not written of a run.", hint=hint)


@contextlib.asynccontextmanager
async def _kept_files(log: Iterable[Mapping[str, Any]], roots: Roots) -> AsyncIterator[None]:
    """Put the files that calls of a run name back as they were before, whatever is done to them meanwhile."""
    lines = RunLines()
    for event in log:
        lines.line(event)
    named = {value for given in lines.arguments.values() for value in given.values() if isinstance(value, str)}
    with tempfile.TemporaryDirectory(prefix="nbtools-") as folder:
        kept = await in_thread(_copy, named, roots, Path(folder))
        try:
            yield
        finally:
            await in_thread(_put_back, kept, roots)


def _copy(named: Iterable[str], roots: Roots, folder: Path) -> dict[Path, Path | None]:
    """Copy the files; return the place of each copy, `None` where there is no file yet."""
    kept: dict[Path, Path | None] = {}
    for number, name in enumerate(named):
        with contextlib.suppress(NbtoolsError, OSError, ValueError):
            place = Path(roots.resolve(name, must_exist=False))
            if place.is_file():
                kept[place] = Path(shutil.copy2(place, folder / str(number)))
            elif not place.exists():
                kept[place] = None
    return kept


def _put_back(kept: Mapping[Path, Path | None], roots: Roots) -> None:
    for place, copy in kept.items():
        if copy is None:
            if place.is_file():
                with roots.folder(place.parent) as folder:
                    folder.remove(place.name)
        elif not place.is_file() or not filecmp.cmp(place, copy, shallow=False):
            with copy.open("rb") as file:
                roots.write_file(place, file)
