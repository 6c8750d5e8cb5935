"""Where a run of a workflow is kept: the files as they were at its start, and a log of its events.

::

    runs/RUN_ID/
      run.json       what was asked for: workflow, inputs, files with their hashes
      files/         the workflow, sub-workflows and scripts as they were; nothing else is read later
      files-2/       the same as they were when a run that had ended went on, and so forth
      results/       results that are too large for a line of the log
      artifacts/     files that steps made
      answers/       what other processes answered and asked, each in a file that was renamed into place

The log, and who drives a run, are those of `nbtools.conduct.run_folder`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.conduct.run_folder import DrivenRun, RunFolder, write_file
from nbtools.errors import FileMissing
from nbtools.ground.paths import working_folder
from nbtools.workflow.runs.events import NodeEnded, RunEnded, RunEvent, RunStarted, event_from

ENDED_RUN = frozenset({"ok", "failed", "cancelled", "declined"})
"""States of a run that nobody drives and that waits for nothing."""
_MOST_IN_LINE = 64_000
_ABSOLUTE = re.compile(rb"""(\b(?:file|notebook|workflow|agent):\s*["']?)(/[^"'\n,}]*[^"'\n,}\s])""")


def fresh_run_id(name: str) -> str:
    """Return an id that sorts by time and begins with the name of the workflow."""
    return f"{name[:40]}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOrder:
    """What a run is to do.

    Attributes
    ----------
    workflow
        Name of the workflow.
    source
        The path of the file as it was named; ``<text>`` for a text.
    inputs
        Values of the inputs.
    defaults
        Those of them that were not given: when the run goes on, they are what the file says then.
    files
        Every file that the workflow consists of, its own first; none for a text.
    text
        The YAML, where it is not a file.
    main
        Of a run inside of another: its workflow among the files of that one, relative to its own.
    """

    workflow: str
    source: str
    inputs: Mapping[str, Any]
    defaults: Collection[str] = ()
    files: tuple[Path, ...] = ()
    text: str = ""
    main: str = ""

    def freeze(self, folder: Path, frozen: str) -> dict[str, Any]:
        """Copy the files into a folder of a run; return what the run's facts say of the order."""
        paths = [path.resolve() for path in self.files]
        if self.text:
            paths = [Path(os.path.realpath("workflow.yaml")), *paths]  # beside the files that it names
        root = Path(os.path.commonpath([path.parent for path in paths])) if paths else working_folder()
        hashes: dict[str, str] = {}
        (folder / frozen).mkdir(mode=0o700)
        for path in paths:
            is_text = bool(self.text) and not hashes
            content = self.text.encode() if is_text else path.read_bytes()
            copy = folder / frozen / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(_with_own_files(content, path, paths))
            hashes[str(path.relative_to(root))] = "" if is_text else hashlib.sha256(content).hexdigest()
        if self.main:
            hashes[self.main] = ""
        facts: dict[str, Any] = {"workflow": self.workflow, "source": self.source, "frozen": frozen, "files": hashes}
        facts |= {"root": str(root) if paths else None, "main": next(iter(hashes))}
        return {**facts, "inputs": dict(self.inputs), "defaults": [*self.defaults]}


class FrozenRun(RunFolder):
    """A run's folder as it was laid down: what was asked for, and the files of that moment; see `RunFolder`."""

    @classmethod
    def create(cls, folder: Path, order: RunOrder) -> FrozenRun:
        """Lay down a run's folder, which must not exist."""
        cls.lay_down(folder, "results", "artifacts", "answers")
        facts: dict[str, Any] = {"run_id": folder.name, **order.freeze(folder, "files")}
        facts |= {"working_folder": os.path.realpath("."), "created": time.time()}
        cls.write_facts(folder, facts)
        return cls(folder)

    def freeze_again(self, order: RunOrder) -> None:
        """Take over the files and the inputs of now, for a run that goes on after its end.

        What was frozen before stays beside it.
        """
        count = 2
        while (self.folder / f"files-{count}").exists():
            count += 1
        self.facts = self.facts | order.freeze(self.folder, f"files-{count}")
        self.write_facts(self.folder, self.facts)

    @property
    def main(self) -> Path:
        """The workflow as it was at the start."""
        return self.folder / str(self.facts["frozen"]) / str(self.facts["main"])

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
        for fields in self.lines():
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


class RunLog(DrivenRun, FrozenRun):
    """The log of a run, for the one driver that holds its lease; see `DrivenRun`."""

    def append(self, event: RunEvent) -> None:
        """Write an event; it is on the disk after the next `sync`."""
        fields = event.to_dict()
        line = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=repr)
        # Every resume, report and list reads the whole log, and few of them look at the results.
        if len(line) > _MOST_IN_LINE and isinstance(event, NodeEnded):
            item = "" if event.item is None else f".{event.item}"
            name = f"{event.node.replace('/', '_')}{item}.{event.attempt}.{event.fence}.json"
            write_file(self.folder / "results" / name, json.dumps(fields["result"], ensure_ascii=False).encode())
            fields["result"] = {"file": name}
            line = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=repr)
        self.append_line(line)

    def remove(self, message: Mapping[str, Any]) -> None:
        """Remove a message whose event is in the log."""
        with contextlib.suppress(OSError):
            (self.folder / "answers" / str(message["file"])).unlink()


def _with_own_files(content: bytes, path: Path, paths: list[Path]) -> bytes:
    """Return a workflow that names its files beside it, where they are kept too, instead of by absolute paths."""
    if path.suffix not in {".yaml", ".yml"}:
        return content

    def beside(match: re.Match[bytes]) -> bytes:
        named = Path(os.fsdecode(match[2])).resolve()
        return match[1] + os.fsencode(os.path.relpath(named, path.parent)) if named in paths else match[0]

    return _ABSOLUTE.sub(beside, content)
