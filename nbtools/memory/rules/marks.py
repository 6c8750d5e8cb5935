"""Files and notes that came of strangers' texts: they keep that mark, no matter who reads them later.

A caller that has read what strangers may have written may have it in all that it saves. So what it saves is marked
before it is saved: a note by its name and by the hash of its value, which its copies and restored versions have too, a
file by its path and, once it is there, by its content (of a large one by parts of it), which a renamed or copied one
has too. Files that no argument names, those of commands and code, are seen by what changed in the folders while the
call ran; files that no argument names and that a script reads, by what was opened there meanwhile. A session of a
kernel keeps what it took. A person who has read one takes its mark away.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import itertools
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from nbtools.confine.opened_files import OpenedFiles
from nbtools.contract.approval.label_rules import Marks, is_contained, texts_of
from nbtools.contract.label import LABEL_NOW, SEEN_NOW, Label
from nbtools.contract.prepared import PreparedCall
from nbtools.contract.result import ToolResult
from nbtools.errors import LimitExceeded, NbtoolsError
from nbtools.ground.folder_state import MOST_FILES, FolderState
from nbtools.ground.paths import open_plain, real_path
from nbtools.memory.records import MemoryRecord, Scope
from nbtools.memory.repository import AppliedChange, CallQuery, Change, Query, QueryAnswer, Repository
from nbtools.texts.visible import visible

_SCOPE = "nbtools.agent"
_TOOLS = "nbtools.toolbox."
_RUN_PROGRAMS = ("nbtools.toolbox.scripts.", "nbtools.toolbox.commands.")
_ANY = "strangers/any"
_PATHS = ("path", "old_path", "key")
_NAMES = ("path", "name", "named")
# A larger file is known by as many bytes of it in even steps, whatever its size: it may be copied or renamed.
_WHOLE_BYTES = 256 * 2**10
_STEPS = 16
_MOST_SHOWN = 200  # characters of a path
_MOST_NAMES = 10_000  # of one folder that are looked up
_MOST_LIFTED = 10_000  # files of a folder
_WRITES = frozenset({"write", "incr", "restore"})
_QUOTED = re.compile(r"""(["'])(.{1,1000}?)\1""")


class StoredMarks(Marks):
    """Marks in a repository; see `nbtools.contract.approval.label_rules.Marks`.

    Parameters
    ----------
    repository
        Where they lie.
    agent_id
        Whose they are.
    folders
        Returns the folders in which calls may write.
    home
        The home of nbtools, whose own files are not calls'.
    left
        Returns the folder of what scripts left, which later ones read; `None` while there is none.
    kernels
        Returns what keeps the sessions of a model, or of a person (`nbtools.kernels.Kernels`), and which of them took
        strangers' texts; `None` where there are none.
    """

    def __init__(
        self,
        repository: Repository,
        agent_id: str,
        folders: Callable[[], Iterable[Path]] = tuple,
        home: Path | None = None,
        left: Callable[[], Path | None] = lambda: None,
        kernels: Callable[[bool], Any] | None = None,
    ) -> None:
        self._repository: Any = (
            repository if hasattr(repository, "has_marks") else MarkingRepository(repository, agent_id)
        )
        self._scope = Scope(agent_id=agent_id, workflow_id=_SCOPE)
        self._folders, self._home, self._left = folders, home, left
        self._lock = threading.Lock()
        self._opened: OpenedFiles | None = None
        # By the call that may read: what sees that, and since when.
        self._reading: dict[str, tuple[OpenedFiles, int, int, bool]] = {}
        # By the session of a kernel: since when it is looked at, also between its calls.
        self._since: dict[str, tuple[OpenedFiles, int]] = {}
        self._kernels = kernels
        # By the call that may write, until it ends.
        self._before: dict[str, list[FolderState]] = {}
        # Of what goes on behind its call.
        self._followed: list[tuple[list[FolderState], Callable[[], bool]]] = []

    def before(self, prepared: PreparedCall) -> Label:
        """Return the label of what a call names; what it is about to write of strangers' texts is marked."""
        self._catch_up()
        if _writes_files(prepared) and not _names_all(prepared):
            self._before[prepared.call.call_id] = self._listed()
        named = self._names(prepared) if self.has_any() else Label()
        if prepared.call.label.strangers and not prepared.effects.read_only:
            paths = tuple(_paths(prepared)) if _writes_files(prepared) else ()
            new = (folder for path in paths for folder in path.parents if not folder.exists())
            names = (*(_key("path", str(path)) for path in paths), *(_key("name", str(folder)) for folder in new))
            self._put({*_saved(prepared), *names})
        if self.has_any() or prepared.values.get("session"):
            self._begin_reading(prepared)
        return named or Label(strangers=self._is_session_theirs(prepared))

    def after(self, result: ToolResult, label: Label, made_of: Label) -> Label:
        """Return the label of a result that may show notes or files of the memory; mark the files that the call made.

        Files are marked also where the call's arguments said where to write them.
        """
        if not label.strangers and self.has_any():
            hinted = map(real_path, _hinted(result))
            is_theirs = self.knows_names(hinted)
            label |= self.so_far(result.call_id) or Label(strangers=is_theirs)
        self._reading.pop(result.call_id, None)
        if result.artifacts and (label | made_of).strangers:
            for artifact in result.artifacts:
                self.mark_file(Path(artifact.path))
        return label

    def ended(self, prepared: PreparedCall, label: Label) -> None:
        """Mark what a call wrote since `before`, however it ended, by the label of all that it read."""
        states = self._before.pop(prepared.call.call_id, ())
        if label.strangers or self.so_far(prepared.call.call_id).strangers:
            self._mark_written(states)
            paths = _paths(prepared) if _writes_files(prepared) and _names_all(prepared) else ()
            saved = () if prepared.effects.read_only else _saved(prepared)
            self._put({*saved, *(key for path in paths for key in _keys_of(path))})
            self._is_session_theirs(prepared, from_now=True)

    def _is_session_theirs(self, prepared: PreparedCall, *, from_now: bool = False) -> bool:
        session = prepared.values.get("session")
        if self._kernels is None or not isinstance(session, str):
            return False
        return bool(self._kernels(prepared.call.by_model).is_theirs(session, from_now=from_now))

    def follow(self, is_running: Callable[[], bool]) -> None:
        """Mark whatever is written from now on, as long as something runs that a call has left behind."""
        self._followed.append((self._listed(), is_running))

    def close(self) -> None:
        """Mark what was written since the last call."""
        self._catch_up()
        if self._opened is not None:
            self._opened.close()

    def _begin_reading(self, prepared: PreparedCall) -> None:
        """Look from now on at what is opened."""
        if _names_all(prepared):
            return
        session = prepared.values.get("session")
        folders = filter(None, (*self._folders(), self._left()))
        with self._lock:
            if self._opened is None or self._opened.has_lost:
                self._opened = OpenedFiles(folders, self._home)  # calls that began before keep theirs
            else:
                self._opened.add(folders)
            opened = self._opened
        # Our own imports look into folders on Python's path that have changed, such as this one: now rather than later.
        importlib.util.find_spec("nbtools_looks_now")
        now = opened.moment()
        first = self._since.setdefault(session, (opened, now)) if isinstance(session, str) else (opened, now)
        self._reading[prepared.call.call_id] = *first, now, not prepared.effects.read_only

    def so_far(self, call_id: str) -> Label:
        """Return the label of the files, and of the names, that a call has read since it began."""
        opened, first, begun, runs_code = self._reading.get(call_id, (None, 0, 0, False))
        if opened is None or not self.has_any():
            return Label()
        if (paths := opened.since(first)) is None:
            return Label(strangers=runs_code)  # others read what their arguments name
        # Between the calls of a session many programs look into folders, such as Jupyter.
        folders = [path for path in opened.since(begun) or () if runs_code and path.is_dir()]
        names = [one for folder in folders for one in _listed(folder)]
        if (file := next(filter(self.knows_file, paths), None)) is not None:
            return Label(
                strangers=True, source=f"{_visible_path(file)} was opened while its script ran, by it or by others"
            )
        return Label(strangers=self.knows_names(names))

    def _listed(self) -> list[FolderState]:
        return [FolderState(folder, None, self._home, hidden=True) for folder in dict.fromkeys(self._folders())]

    def _catch_up(self) -> None:
        followed, self._followed = self._followed, []
        for states, is_running in followed:
            if is_running():  # before the look, behind which it may end
                self.follow(is_running)
            self._mark_written(states)

    def _mark_written(self, states: Iterable[FolderState]) -> None:
        """Mark files that changed; where they are too many to be told, the folder that they share."""
        keys = set[str]()
        for state in states:
            paths, new_folders = state.changes()
            keys |= {_key("name", str(folder)) for folder in new_folders}
            if len(paths) >= MOST_FILES:
                keys.add(_key("path", os.path.commonpath(paths)))
            keys |= {key for path in paths for key in _keys_of(path)}
        self._put(keys)

    def mark_file(self, path: Path) -> None:
        """Mark a file that shows what came of strangers' texts, and each copy of it."""
        self._put({*_keys_of(path)})

    def lift(self, path: Path | None, key: str = "", value: Any = None) -> int:
        """Take the marks from a file, from all below a folder, or from a note, since a person has read it."""
        keys = {_key("note", _text_of(value)), _key("named", _path(key))}
        if path is not None:
            paths = [path, *itertools.islice(path.rglob("*") if path.is_dir() else (), _MOST_LIFTED)]
            if len(paths) > _MOST_LIFTED:
                what = f"{path} has {_MOST_LIFTED:,} files and folders, or more: none of their marks was removed."
                raise LimitExceeded(what, hint="Name folders below it, one after the other.")
            keys = {one for part in paths for one in (*_keys_of(part), _key("name", str(part)))}
        stored = self._stored_of(keys)
        self._repository.apply([Change(kind="delete", scope=self._scope, key=one) for one in sorted(stored)])
        return len(stored)

    def has_any(self) -> bool:
        """Tell whether anything may have come of strangers' texts."""
        return bool(self._repository.has_marks())

    def knows_file(self, path: Path) -> bool:
        """Tell whether a file came of strangers' texts, by where it lies or what it holds."""
        # It is opened, which others that look see, where its place does not tell.
        by_place = {_key("path", str(path)), *_above(path)}
        return self.has_any() and bool(self._stored_of(by_place) or self._stored_of({*_keys_of(path)}))

    def knows_value(self, value: Any) -> bool:
        """Tell whether a value is a note, or the text of a file, that came of strangers' texts."""
        if not self.has_any():
            return False
        texts = itertools.islice(texts_of(value), _MOST_NAMES)
        keys = {_content_key(io.BytesIO(text.encode("utf-8", "surrogatepass"))) for text in texts}
        return bool(self._stored_of({_key("note", _text_of(value)), *keys}))

    def knows_names(self, paths: Iterable[Path]) -> bool:
        """Tell whether strangers' texts may have named one of these files, folders and notes."""
        if not self.has_any():
            return False
        all_paths = {one for path in paths for one in (path, *path.parents)}
        return bool(self._stored_of({_key(kind, str(path)) for path in all_paths for kind in _NAMES}))

    def _names(self, prepared: PreparedCall) -> Label:
        files = (path for name in _PATHS if (path := _path(prepared.call.arguments.get(name))).startswith("/"))
        keys = {_key("named", part) for path in files for part in (path, *map(str, PurePosixPath(path).parents))}
        places = tuple(_paths(prepared))
        file = next((path for path in places if self._stored_of({*_keys_of(path), *_above(path)})), None)
        source = "" if file is None else f"the file {_visible_path(file)}"
        return Label(strangers=file is not None or bool(self._stored_of(keys)), source=source)

    def _stored_of(self, keys: set[str]) -> set[str]:
        if not keys:
            return set()
        return {record.key for record in self._repository.query(Query(scope=self._scope, keys=tuple(keys))).records}

    def _put(self, keys: set[str]) -> None:
        if keys:
            self._repository.apply(_writes(self._scope, keys))


class MarkingRepository:
    """Marks each note that a call writes which has read strangers' texts, in whatever way, and tells it what it reads.

    Parameters
    ----------
    repository
        Where notes and marks lie.
    agent_id
        Whose they are.
    """

    def __init__(self, repository: Repository, agent_id: str) -> None:
        self._repository, self._ask = repository, repository.query
        self._scope = Scope(agent_id=agent_id, workflow_id=_SCOPE)
        self._any = Query(scope=self._scope, keys=(_ANY,), values=False)  # made once, for it is asked in every call
        self._is_any = False

    def has_marks(self) -> bool:
        """Tell whether anything may be marked, by whatever process."""
        if not self._is_any:  # marks stay: what was marked once is not asked again
            self._is_any = bool(self._repository.query(self._any).records)
        return self._is_any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy is asked for such names before it has a repository
            raise AttributeError(name)
        return getattr(self._repository, name)

    def query(self, query: Query) -> QueryAnswer:
        """Return what the repository finds."""
        if SEEN_NOW.get() is None:  # nobody asks what is read
            return self._ask(query)
        answer = self._ask(query)
        if query.scope != self._scope:
            # Who asks for notes by other things than their names learns these.
            self._see(answer.records, names=query.keys is None)
        return answer

    def history(self, scope: Scope, key: str, *, limit: int | None = None) -> list[MemoryRecord]:
        """Return the versions of a key."""
        records = self._repository.history(scope, key, limit=limit)
        self._see(records)
        return records

    def calls(self, query: CallQuery) -> list[dict[str, Any]]:
        """Return records of calls, which hold what calls were given and failed by: strangers may have written that."""
        records: list[dict[str, Any]] = self._repository.calls(query)
        if (seen := SEEN_NOW.get()) is not None and records:
            seen.append(Label(strangers=True))
        return records

    def _see(self, records: Sequence[MemoryRecord], *, names: bool = False) -> None:
        """Let what the call that runs here gives be strangers', where one of the records is."""
        if (seen := SEEN_NOW.get()) is None or not records or not self.has_marks():
            return
        keys = {_key("note", _text_of(record.value)) for record in records if record.value is not None}
        keys |= {_key("named", _path(record.key)) for record in records if names or record.key.startswith("/")}
        if keys and self._of(*keys):
            seen.append(Label(strangers=True))

    def _of(self, *keys: str) -> bool:
        return bool(self._repository.query(Query(scope=self._scope, keys=keys, values=False)).records)

    def apply(self, changes: Sequence[Change], *, request_id: str | None = None) -> list[AppliedChange]:
        """Apply a batch, and the marks with it."""
        notes = [change for change in changes if change.kind in _WRITES and change.scope != self._scope]
        if not notes or not LABEL_NOW.get()().strangers:
            return self._repository.apply(changes, request_id=request_id)
        marks = _writes(self._scope, {one for note in notes for one in _keys_of_note(note)})
        return self._repository.apply([*marks, *changes], request_id=request_id)[len(marks) :]


def _writes(scope: Scope, keys: set[str]) -> list[Change]:
    every = sorted({*keys, _ANY}) if keys else ()
    return [Change(kind="write", scope=scope, key=key, value="true") for key in every]


def _keys_of_note(change: Change) -> Iterator[str]:
    # A file of the memory is shown by parts of it, and known by its name; that of a note may be another's later.
    yield _key("named", _path(change.key))
    if change.value is not None:
        yield _key("note", _text_of(json.loads(change.value)))


def _paths(prepared: PreparedCall) -> Iterator[Path]:
    return (path for name in prepared.values if (path := prepared.path_of(name)) is not None)


def _names_all(prepared: PreparedCall) -> bool:
    """Tell whether a call reads and writes what its arguments name alone, and says which names it lists.

    Only what else runs has to be watched, and what it wrote to be found by comparing folders.
    """
    module = getattr(prepared.tool.function, "__module__", None) or ""
    return module.startswith(_TOOLS) and not module.startswith(_RUN_PROGRAMS)


def _writes_files(prepared: PreparedCall) -> bool:
    return not prepared.effects.read_only and not is_contained(prepared)


def _saved(prepared: PreparedCall) -> Iterable[str]:
    """Yield the keys of the files of the memory tool that a call may save, wherever these lie."""
    names, arguments = {prepared.tool.name, *prepared.tool.origins}, prepared.call.arguments
    if "memory" in names and arguments.get("command") not in {"view", "delete"}:
        yield from (_key("named", _path(arguments[name])) for name in ("path", "new_path") if arguments.get(name))


def _hinted(result: ToolResult) -> Iterator[Path]:
    """Yield what may be a file that an error proposes: nobody has asked for it by its name."""
    hint = result.error.hint if result.error is not None else None
    yield from (Path(match[2]) for match in _QUOTED.finditer(hint or ""))


def _keys_of(path: Path) -> Iterator[str]:
    """Yield what a file is marked by: its path and its content."""
    yield _key("path", str(path))
    with contextlib.suppress(NbtoolsError, OSError), os.fdopen(open_plain(path), "rb") as file:
        yield _content_key(file)


def _content_key(file: BinaryIO) -> str:
    size = file.seek(0, os.SEEK_END)
    digest = hashlib.sha256()
    starts = [0]
    if size > _WHOLE_BYTES:
        digest.update(f"{size}:".encode())
        starts = [(size - _WHOLE_BYTES // _STEPS) * step // (_STEPS - 1) for step in range(_STEPS)]
    for start in starts:
        file.seek(start)
        digest.update(file.read(_WHOLE_BYTES // len(starts)))
    return f"strangers/content/{digest.hexdigest()}"


def _above(path: Path) -> Iterator[str]:
    """Yield what a file is known by where too many were written in a folder to mark each."""
    return (_key("path", str(folder)) for folder in path.parents)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(itertools.islice(folder.iterdir(), _MOST_NAMES))
    except OSError:
        return []


def _visible_path(path: Path) -> str:
    return visible(str(path))[:_MOST_SHOWN]


def _path(path: Any) -> str:
    return str(path).rstrip("/")


def _text_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def _key(kind: str, text: str) -> str:
    return f"strangers/{kind}/{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
