"""Where a run is kept: a folder with the files as they were at its start, and a log of its events.

::

    runs/RUN_ID/
      run.json       what was asked for: workflow, inputs, files with their hashes
      files/         the workflow, sub-workflows and scripts as they were; nothing else is read later
      files-2/       the same as they were when a run that had ended went on, and so forth
      log.jsonl      an event a line, appended
      results/       results that are too large for a line of the log
      artifacts/     files that steps made
      answers/       what other processes answered and asked, each in a file that was renamed into place
      lease          locked by the one driver; says who it is

A line of the log is on the disk before anything is done that relies on it: `RunLog.sync` waits for that, and whoever
waits at the same time shares one write. The last line may be half written when a machine was switched off; it is left
out, and told.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.errors import ConfigInvalid, FileMissing, PermissionDenied
from nbtools.ground.aio import in_thread
from nbtools.ground.folder import draft_in
from nbtools.ground.home import make_private
from nbtools.workflow.runs.events import NodeEnded, RunEnded, RunEvent, RunStarted, event_from

ENDED_RUN = frozenset({"ok", "failed", "cancelled", "declined"})
"""States of a run that nobody drives and that waits for nothing."""
_FORMAT = 2
_MOST_IN_LINE = 64_000
_ABSOLUTE = re.compile(rb"""(\b(?:file|notebook|workflow|agent):\s*["']?)(/[^"'\n,}]*[^"'\n,}\s])""")


def fresh_run_id(name: str) -> str:
    """Return an id that sorts by time and begins with the name of the workflow."""
    return f"{name[:40]}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


class FrozenRun:
    """A run's folder as it was laid down: what was asked for, and the files of that moment.

    Parameters
    ----------
    folder
        The run's folder.

    Raises
    ------
    FileMissing
        There is no such run.
    ConfigInvalid
        A newer version has made it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.facts: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            near = [run.name for run in list_runs(folder.parent)][:5]
            hint = f"Runs are {', '.join(near)}." if near else "There are no runs yet."
            raise FileMissing(f"there is no run {folder.name!r}.", hint=hint) from None
        if self.facts.get("format", 1) > _FORMAT:
            raise ConfigInvalid(
                f"the run {folder.name!r} was made by a newer nbtools (its folder has format {self.facts['format']}).",
                hint="Use that version, or start a new run.",
            )

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        workflow: str,
        source: str,
        files: Iterable[Path],
        inputs: Mapping[str, Any],
        defaults: Iterable[str] = (),
        text: str = "",
        main: str = "",
    ) -> FrozenRun:
        """Lay down a run's folder.

        Parameters
        ----------
        folder
            Where; it must not exist.
        workflow
            Name of the workflow.
        source
            The path of the file as it was named; ``<text>`` for a text.
        files
            Every file that the workflow consists of, its own first; none for a text.
        inputs
            Values of the inputs.
        defaults
            Those of them that nobody gave: when the run goes on, they are what the file says then.
        text
            The YAML, where it is not a file.
        main
            Of a run inside of another: its workflow among the files of that one, relative to its own.
        """
        make_private(folder.parent)
        folder.mkdir(mode=0o700)
        for name in ("results", "artifacts", "answers"):
            (folder / name).mkdir(mode=0o700)
        facts = {"format": _FORMAT, "run_id": folder.name, "workflow": workflow, "source": source}
        facts |= _freeze(folder, "files", files, text, main)
        facts |= {
            "inputs": dict(inputs),
            "defaults": [*defaults],
            "working_folder": os.path.realpath("."),
            "created": time.time(),
        }
        write_file(folder / "run.json", json.dumps(facts, indent=2, ensure_ascii=False).encode())
        return cls(folder)

    def freeze_again(
        self,
        *,
        files: Iterable[Path],
        inputs: Mapping[str, Any],
        defaults: Iterable[str] = (),
        source: str = "",
        text: str = "",
        main: str = "",
    ) -> None:
        """Take over the files and the inputs of now, for a run that goes on after its end.

        The parameters are those of `create`. What was frozen before stays beside it.
        """
        count = 2
        while (self.folder / f"files-{count}").exists():
            count += 1
        facts = self.facts | _freeze(self.folder, f"files-{count}", files, text, main)
        facts |= {"inputs": dict(inputs), "defaults": [*defaults]}
        if source:
            facts["source"] = source
        write_file(self.folder / "run.json", json.dumps(facts, indent=2, ensure_ascii=False).encode())
        self.facts = facts

    @property
    def main(self) -> Path:
        """The workflow as it was at the start."""
        return self.folder / str(self.facts.get("frozen", "files")) / str(self.facts["main"])

    @property
    def has_ended(self) -> bool:
        """Whether it came to an end after which nothing happens any more."""
        last = None
        for event in self.events():
            last = event if isinstance(event, RunEnded | RunStarted) else last
        return isinstance(last, RunEnded) and last.state in ENDED_RUN

    def source_now(self) -> str:
        """Return the file as it is named now, or the text that the run began with.

        Raises
        ------
        FileMissing
            The file is gone.
        """
        if self.facts["source"] == "<text>":
            return self.main.read_text(encoding="utf-8")
        path = Path(str(self.facts["root"])) / str(self.facts["main"])
        if not path.is_file():
            hint = f"Name another: nbtools run --resume {self.folder.name} FILE"
            raise FileMissing(f"the file of the run is gone: {path}", hint=hint)
        return str(path)

    def drift(self) -> list[str]:
        """Return what is different from the files as they are now, in words; they are not used."""
        if self.facts["root"] is None:
            return []
        changes = []
        for name, digest in self.facts["files"].items():
            if not digest:
                continue  # it was a text
            path = Path(self.facts["root"]) / name
            try:
                if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                    changes.append(f"{name} was changed since the run began")
            except OSError:
                changes.append(f"{name} is gone since the run began")
        return changes

    def events(self) -> Iterator[RunEvent]:
        """Yield the events of the log, oldest first, with results in full; a half-written end is left out."""
        try:
            lines = (self.folder / "log.jsonl").read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        for line in lines:
            try:
                fields = json.loads(line)
            except ValueError:
                continue
            if isinstance(stored := fields.get("result"), dict) and "file" in stored:
                fields["result"] = json.loads((self.folder / "results" / stored["file"]).read_bytes())
            event = event_from(fields)
            if event is not None:
                yield event

    def post(self, what: str, **facts: Any) -> None:
        """Leave a message for the driver, of now or later: ``answer`` or ``cancel``."""
        name = f"{time.time_ns():020d}-{secrets.token_hex(2)}.json"
        write_file(self.folder / "answers" / name, json.dumps({"what": what, "at": time.time(), **facts}).encode())

    def messages(self) -> list[dict[str, Any]]:
        """Return what others left and was not taken yet, oldest first."""
        messages = []
        for path in sorted((self.folder / "answers").glob("*.json")):
            with contextlib.suppress(OSError, ValueError):
                messages.append({**json.loads(path.read_bytes()), "file": path.name})
        return messages

    def holder(self) -> dict[str, Any] | None:
        """Return who drives the run now: machine, process, and since when; `None` when nobody does."""
        lease = _DriverLock(self.folder / "lease")
        if lease.take():
            lease.release()
            return None
        return lease.facts()


class RunLog(FrozenRun):
    """The log of a run, for the one driver that holds its lease.

    Parameters
    ----------
    folder
        The run's folder.

    Raises
    ------
    PermissionDenied
        Another driver holds the lease; the message says which.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._lease = _DriverLock(folder / "lease")
        if not self._lease.take():
            facts = self._lease.facts()
            raise PermissionDenied(
                f"the run {folder.name!r} is driven by process {facts.get('pid')} on {facts.get('host')}.",
                hint="Wait for it, or end that process; then resume.",
            )
        descriptor = os.open(folder / "log.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # Without a buffer: what a killed process has written is there, and only a machine that stops needs a sync.
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        if self._file.tell() and not _ends_in_newline(folder / "log.jsonl"):
            self._file.write(b"\n")  # what follows a half-written line must not be lost with it
        self._appended = self._synced = 0
        self._syncing: asyncio.Future[None] | None = None

    def append(self, event: RunEvent) -> None:
        """Write an event; it is on the disk after the next `sync`."""
        fields = event.to_dict()
        line = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=repr)
        if len(line) > _MOST_IN_LINE and isinstance(event, NodeEnded):
            item = "" if event.item is None else f".{event.item}"
            name = f"{event.node.replace('/', '_')}{item}.{event.attempt}.{event.fence}.json"
            write_file(self.folder / "results" / name, json.dumps(fields["result"], ensure_ascii=False).encode())
            fields["result"] = {"file": name}
            line = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=repr)
        self._file.write(line.encode("utf-8", "replace") + b"\n")
        self._appended += 1

    async def sync(self) -> None:
        """Wait until every event so far is on the disk."""
        target = self._appended
        while self._synced < target:
            if self._syncing is None:
                self._syncing = asyncio.ensure_future(self._sync(self._appended))
            await asyncio.shield(self._syncing)

    async def _sync(self, upto: int) -> None:
        try:
            await in_thread(os.fsync, self._file.fileno())
            self._synced = max(self._synced, upto)
        finally:
            self._syncing = None

    def remove(self, message: Mapping[str, Any]) -> None:
        """Remove a message whose event is in the log."""
        with contextlib.suppress(OSError):
            (self.folder / "answers" / str(message["file"])).unlink()

    def close(self) -> None:
        """Write what is left and give the lease back; harmless when repeated."""
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()
        self._lease.release()


def _freeze(folder: Path, frozen: str, files: Iterable[Path], text: str, main: str) -> dict[str, Any]:
    """Copy the files of a run into a folder of it; return what its facts say of them."""
    paths = [path.resolve() for path in files]
    if text:
        paths = [Path(os.path.realpath("workflow.yaml")), *paths]  # beside the files that it names
    root = Path(os.path.commonpath([path.parent for path in paths])) if paths else Path.cwd()
    hashes: dict[str, str] = {}
    (folder / frozen).mkdir(mode=0o700)
    for path in paths:
        is_text = bool(text) and not hashes
        content = text.encode() if is_text else path.read_bytes()
        copy = folder / frozen / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(_with_own_files(content, path, paths))
        hashes[str(path.relative_to(root))] = "" if is_text else hashlib.sha256(content).hexdigest()
    if main:
        hashes[main] = ""
    return {"frozen": frozen, "root": str(root) if paths else None, "main": next(iter(hashes)), "files": hashes}


class _DriverLock:
    """A file that one process locks; the lock goes with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(descriptor)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(facts).encode(), 0)
        return True

    def facts(self) -> dict[str, Any]:
        try:
            facts = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _lock(descriptor: int) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]  # there on Windows alone
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _with_own_files(content: bytes, path: Path, paths: list[Path]) -> bytes:
    """Return a workflow that names its files beside it, where they are kept too, instead of by absolute paths."""
    if path.suffix not in {".yaml", ".yml"}:
        return content

    def beside(match: re.Match[bytes]) -> bytes:
        named = Path(os.fsdecode(match[2])).resolve()
        return match[1] + os.fsencode(os.path.relpath(named, path.parent)) if named in paths else match[0]

    return _ABSOLUTE.sub(beside, content)


def _ends_in_newline(path: Path) -> bool:
    with path.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"


def write_file(path: Path, content: bytes, *, is_kept: bool = True) -> None:
    """Put a file in place once it is whole, and on the disk unless it can be made again."""
    with draft_in(path.parent) as draft:
        with draft.open("wb") as handle:
            handle.write(content)
            if is_kept:
                handle.flush()
                os.fsync(handle.fileno())
        draft.replace(path)


def list_runs(folder: Path) -> list[Path]:
    """Return the folders of all runs, the newest first."""
    try:
        runs = [entry for entry in folder.iterdir() if (entry / "run.json").is_file()]
    except OSError:
        return []
    return sorted(runs, key=lambda entry: (entry / "run.json").stat().st_mtime, reverse=True)
