"""Proving a run: its notebook is run once in a copy of the folders and of the notes, so that it changes nothing.

In the copy the paths of calls lead to the copy, and in results they are those of the folders again, so that a result
is the same where the call did the same. Calls that destroy or reach out are not made again, see `once_only`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.agent.exports.notebook import made_again, start_of
from nbtools.contract.execute import LocalExecutor
from nbtools.contract.prepared import prepare
from nbtools.contract.tool import Context, ToolCall
from nbtools.contract.wire.json_values import replace_nested
from nbtools.errors import ExecutionFailed, LimitExceeded, NbtoolsError
from nbtools.ground.aio import in_thread
from nbtools.ground.lazy import need
from nbtools.ground.paths import Roots
from nbtools.memory import AgentMemory
from nbtools.texts.visible import counted
from nbtools.toolbox.scripts.execution import is_loose

_SCRIPTS = "nbtools.toolbox.scripts."
_SECONDS = 600
_NEEDED = ("nbclient", "nbformat")
_MOST_BYTES, _MOST_FILES = 2 * 2**30, 50_000
_COPIED = frozenset({stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK})
_START = Path(__file__).with_name("copy_cell.py.txt").read_text(encoding="utf-8").rstrip()


async def once_only(executor: LocalExecutor, name: str, arguments: Mapping[str, Any]) -> str:
    """Return why a call is not made again unasked, nothing where its effects stay in a copy of files and notes."""
    tools = executor.tools()
    # The tool may have been removed since the run.
    if name not in tools:
        return ""  # it fails, which is told
    tool, services = tools[name], executor.door.for_models
    call = ToolCall(tool=name, arguments=dict(arguments), caller="model")
    effects = tool.effects  # what it may do at the most, for example where a file of it is gone
    with contextlib.suppress(NbtoolsError):
        effects = (await prepare(tool, call, services, reads=False)).effects
    # No copy of the world can be made.
    if effects.open_world:
        return "it reaches out"
    if not tool.trusted and not effects.read_only:
        return "it is a tool of an outside server, which may change anything"
    module = str(getattr(tool.function, "__module__", ""))
    if module.startswith(_SCRIPTS) and await is_loose(Context(call=call, services=services)):
        return "what it runs is not confined here"  # also where its effects are not known, for a file of it is gone
    is_kept = module.startswith("nbtools.toolbox.")
    return "it destroys" if effects.destructive and not is_kept else ""


async def prove(
    book: Mapping[str, Any], log: Iterable[Mapping[str, Any]], roots: Roots, memory: AgentMemory
) -> tuple[dict[str, Any], str]:
    """Run a notebook of a run once in a clean kernel; return it with its outputs, and what its last cell says.

    Parameters
    ----------
    book
        The notebook.
    log
        The events of the run.
    roots
        The allowed folders; the calls use copies of the files in them.
    memory
        The memory whose notes are copied for the calls.

    Raises
    ------
    MissingExtra
        What runs notebooks is not installed (extra ``lab``).
    ExecutionFailed
        The notebook itself failed, or its kernel did.
    LimitExceeded
        There is no room for the copies.
    """
    nbclient, nbformat = [await in_thread(need, name, extra="lab", why="Proving a run") for name in _NEEDED]
    executed = nbformat.from_dict(dict(book))
    with tempfile.TemporaryDirectory(prefix="nbtools-") as copy_folder:
        try:
            places, caution = await in_thread(_copies, roots, log, Path(copy_folder))
        except OSError as exc:
            raise LimitExceeded(f"the folders cannot be copied: {exc.strerror}.") from exc
        # A file, since the kernel of the proof is another process and must not open the memory itself.
        notes = Path(copy_folder) / "notes.jsonl"
        await in_thread(lambda: memory.export_to(notes, all_scopes=True))
        start = _moved(str(roots.start()), places)
        environment = {
            "NBTOOLS_ALLOWED_PATHS": os.pathsep.join(_moved(str(root), places) for root in roots.roots),
            "NBTOOLS_MEMORY_URL": ":memory:",
            "NBTOOLS_MEMORY_FILES_URL": (Path(copy_folder) / "memories").as_uri(),
        }
        cell = next(cell for cell in executed.cells if cell.cell_type == "code")
        source, start_cell = cell.source, start_of(".")
        cell.source = _START.format(
            environment=environment,
            folder=str(roots.start()),
            start=start,
            notes=str(notes),
            places=places,
            plain=start_cell,
        )
        # On a busy machine outputs come long after the reply; nbclient gives up after four seconds.
        waits = {"timeout": _SECONDS, "iopub_timeout": 60}
        client = nbclient.NotebookClient(executed, **waits, resources={"metadata": {"path": start}})
        try:
            await client.async_execute(stderr=subprocess.DEVNULL)  # what the kernel's own process has to say
        except Exception as exc:  # a cell that fails, a kernel that dies, a time that runs out
            problem = str(exc).strip().splitlines()
            why = f"the notebook did not run to its end: {problem[-1] if problem else type(exc).__name__}"
            raise ExecutionFailed(why, hint="Export it without proving, and run its cells.") from exc
        # The proof began in another way; what is written is the notebook that anyone can run.
        cell.source = source
    return dict(executed), "\n".join(filter(None, [str(executed.cells[-1]["outputs"][-1]["text"]).strip(), caution]))


class InCopy:
    """Makes calls in a copy of folders, and tells their results as if they were made in the folders.

    Parameters
    ----------
    wb
        The workbench, whose folders are the copies.
    places
        Folder to its copy.
    """

    def __init__(self, wb: Any, places: Mapping[str, str]) -> None:
        self._wb = wb
        self._places = places

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Make a call, and return its result."""
        result = self._wb.call(tool, _moved(dict(arguments), self._places))
        self._wb.door.recorder.flush()
        back = {copy: original for original, copy in self._places.items()}
        return result.but(text=_moved(result.text, back))


def _moved(value: Any, places: Mapping[str, str]) -> Any:
    """Return a value in whose texts paths below some folders lead below others."""
    values = "|".join(re.escape(old_path) for old_path in sorted(places, key=len, reverse=True))
    # Not in the middle of a name: /data is not a part of /my/data, nor of /data2.
    pattern = re.compile(rf"(?<![\w.~/-])(?:{values})(?![\w-])")
    return replace_nested(
        value, lambda one: pattern.sub(lambda match: places[match[0]], one) if isinstance(one, str) else one
    )


def _copies(roots: Roots, log: Iterable[Mapping[str, Any]], target: Path) -> tuple[dict[str, str], str]:
    """Copy the folders; return folder to copy, and what the copy lacks."""
    folders = _outermost(roots.roots)
    # Of a working folder that is not allowed the place is copied, not what lies there.
    tops = _outermost((*roots.roots, roots.start()))
    places = {str(top): str(target / f"{number}-{top.name}") for number, top in enumerate(tops)}
    for folder in (*folders, roots.start()):
        Path(_moved(str(folder), places)).mkdir(parents=True, exist_ok=True)
    entries: list[Path] = []
    size, caution = 0, ""
    for entry in itertools.chain.from_iterable(map(_entries, folders)):
        entries.append(entry)
        size += 0 if entry.is_dir() else entry.lstat().st_size
        # Counted while they are found: a folder of a million files is never listed to its end.
        if size > _MOST_BYTES or len(entries) > _MOST_FILES:
            entries = list(_named(log, roots))
            caution = f"proved with {counted(len(entries), 'file')} that its calls name: there are too many to copy all"
            break
    for entry in entries:
        copy = Path(_moved(str(entry), places))
        if entry.is_dir() and not entry.is_symlink():
            copy.mkdir(parents=True, exist_ok=True)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(PermissionError):  # what may not be read no call can read either
                # A link stays one: what it leads to outside of the folders is not copied, nor reached from the copy.
                shutil.copy2(entry, copy, follow_symlinks=False)
    return places, caution


def _outermost(folders: tuple[Path, ...]) -> list[Path]:
    return [folder for folder in dict.fromkeys(folders) if not set(folder.parents) & set(folders)]


def _entries(root: Path) -> Iterator[Path]:
    """Yield the folders, files and links below a folder."""
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(folder, name)
            if stat.S_IFMT(path.lstat().st_mode) in _COPIED:
                yield path


def _named(log: Iterable[Mapping[str, Any]], roots: Roots) -> Iterator[Path]:
    """Yield the files that the calls name which are made again."""
    values = {value for _, _, arguments in made_again(log) for value in arguments.values() if isinstance(value, str)}
    for name in values:
        with contextlib.suppress(NbtoolsError, OSError, ValueError):
            path = Path(roots.resolve(name))
            if path.is_file():
                yield path
