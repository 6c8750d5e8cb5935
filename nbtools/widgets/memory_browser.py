"""The memory browser: notes by words, tags and scope; edited with conflicts shown, restored from their history."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import traitlets

from nbtools.contract.consequence import as_lines, difference
from nbtools.errors import InvalidArguments, MemoryNotFound, NbtoolsError, VersionConflict
from nbtools.memory.records import Scope
from nbtools.memory.repository import Query
from nbtools.memory.tables import in_words
from nbtools.sql.pages.source import FrameSource
from nbtools.texts import html_parts
from nbtools.texts.visible import aligned, brief, counted
from nbtools.toolbox.memory_tools import ACTS
from nbtools.widgets.forms.fields import problems_of
from nbtools.widgets.live.live_widget import LiveWidget, Perform, ViewRequest
from nbtools.widgets.live.sources import module_text, style_text

if TYPE_CHECKING:
    from nbtools.memory import AgentMemory, MemoryRecord

_MOST, _MOST_TAGS, _MOST_SCOPES, _MOST_VERSIONS = 200, 40, 50, 50
_PREVIEW_ROWS, _PREVIEW_COLUMNS, _PREVIEW_CELL = 10, 12, 60
_COLUMNS = ("key", "value", "tags", "version", "updated")


class MemoryBrowser(LiveWidget):
    """Shows the notes of a memory, finds them while one types, and changes them through the door.

    Parameters
    ----------
    memory
        Whose notes are shown first; other scopes of the same store can be chosen.
    perform
        See `nbtools.widgets.live.live_widget.Perform`.
    """

    _esm = module_text("memory_browser")
    _css = style_text("cards", "workflow", "browser")
    lanes: ClassVar[Mapping[str, str]] = {"find": "reading", "open": "reading"}
    looks: ClassVar[frozenset[str]] = frozenset({"find", "open"})
    scopes: Any = traitlets.List().tag(sync=True)
    scope = traitlets.Unicode("").tag(sync=True)
    matches: Any = traitlets.Dict().tag(sync=True)

    def __init__(self, memory: AgentMemory, perform: Perform) -> None:
        self._memory = memory
        self._perform = perform
        self._scopes = {str(scope): scope for scope in (memory.scope, *_scopes_in(memory))}
        super().__init__(title="Memory", scopes=[*self._scopes], scope=str(memory.scope))
        self.matches = self._find("", (), self.scope)

    def _of(self, scope: str) -> AgentMemory:
        memory = self._scopes[scope]
        ids = {"agent_id": memory.agent_id, "workflow_id": memory.workflow_id, "node_id": memory.node_id}
        return self._memory.scoped(**ids, scope=memory.name)

    # -- reading -------------------------------------------------------------------------------------------------------

    def answer_find(self, request: ViewRequest) -> dict[str, Any]:
        """Return the notes that fit words and tags, and the tags that can be chosen."""
        args = request.args
        self.scope = args["scope"]
        self.matches = self._find(args["words"], tuple(args["tags"]), self.scope)
        return self.matches  # type: ignore[no-any-return]  # what `_find` gave

    def _find(self, words: str, tags: tuple[str, ...], scope: str) -> dict[str, Any]:
        memory = self._of(scope)
        records = memory.search(words, limit=_MOST, tags=tags) if words.strip() else memory.find(tags, limit=_MOST)
        rows = [_row(record) for record in records]
        return {"rows": rows, "total": len(memory), "tags": [*memory.tags().items()][:_MOST_TAGS]}

    def answer_open(self, request: ViewRequest) -> dict[str, Any]:
        """Return a note whole, and its versions, the newest first."""
        return self._whole(self._of(request.args["scope"]), request.args["key"])

    def _whole(self, memory: AgentMemory, key: str) -> dict[str, Any]:
        record = memory.record(key)
        if record is None:
            raise MemoryNotFound(f"{key!r} no longer exists.", hint="It has been deleted.")
        versions = memory.history(key, limit=_MOST_VERSIONS)
        before = ""
        rows = []
        for version in versions:
            text = "" if version.value is None and version.change != "write" else as_lines(in_words(version.value))
            rows.append(
                {
                    "version": version.version,
                    "change": version.change,
                    "when": _when(version),
                    "difference": difference(before, text),
                }
            )
            before = text
        return {**_edited(record), **_preview(memory, record), "versions": rows[::-1]}

    # -- changing ------------------------------------------------------------------------------------------------------

    def answer_save(self, request: ViewRequest) -> dict[str, Any]:
        """Write a note if it is still the version that was edited; else return what is there now."""
        args = request.args
        memory, key, version = self._of(args["scope"]), args["key"].strip(), int(args["version"])
        tags = tuple(dict.fromkeys(args["tags"].replace(",", " ").split()))
        try:
            value = _value(args["text"], is_json=args["is_json"])
            self._perform(
                "memory_save",
                lambda: memory.write(key, value, tags=tags, if_version=version),
                arguments={"key": key, "value": value, "tags": list(tags)},
                **ACTS["memory_save"],
            )
        except VersionConflict:
            record = memory.record(key)
            theirs: dict[str, Any] = {"text": "", "version": 0} if record is None else _edited(record)
            return {"conflict": {**theirs, "difference": difference(theirs["text"], args["text"])}}
        except NbtoolsError as exc:
            return {"problems": problems_of(exc, ("key", "value", "tags"))}
        return self._whole(memory, key)

    def answer_delete(self, request: ViewRequest) -> None:
        """Delete a note if it is still the version that was seen; its history stays."""
        memory, key, version = (self._of(request.args["scope"]), request.args["key"], request.args["version"])
        work = lambda: memory.delete(key, if_version=version)  # noqa: E731 - the door calls it
        self._perform("memory_delete", work, arguments={"key": key}, **ACTS["memory_delete"])

    def answer_restore(self, request: ViewRequest) -> dict[str, Any]:
        """Give a note one of its versions back; without a version the last one."""
        memory, key, version = (self._of(request.args["scope"]), request.args["key"], request.args.get("version"))
        fields = {"key": key, "version": version}
        self._perform(
            "memory_restore", lambda: memory.restore(key, version), arguments=fields, **ACTS["memory_restore"]
        )
        return self._whole(memory, key)

    # -- without a front end -------------------------------------------------------------------------------------------

    def _cells(self) -> list[list[str]]:
        return [[str(row[name]) for name in _COLUMNS] for row in self.matches["rows"]]

    def plain_text(self) -> str:
        """Return the notes as lines."""
        return "\n".join([f"memory of {self.scope}", *aligned([_COLUMNS, *self._cells()])])

    def plain_html(self) -> str:
        """Return them as a table."""
        below = f"{len(self.matches['rows']):,} of {counted(self.matches['total'], 'note')}"
        return html_parts.table(_COLUMNS, self._cells(), title=f"memory of {self.scope}", below=below, empty="no notes")


def _scopes_in(memory: AgentMemory) -> Iterator[Scope]:
    """Yield the scopes that have notes: each question skips all notes of the one before."""
    after = None
    for _ in range(_MOST_SCOPES):
        records = memory.repository.query(Query(scope=None, values=False, limit=1, after=after)).records
        if not records:
            return
        yield records[0].scope
        after = f"{records[0].scope.prefix}\U0010ffff"


def _row(record: MemoryRecord) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": brief(in_words(record.value), 120),
        "tags": " ".join(record.tags),
        "version": record.version,
        "updated": _when(record),
    }


def _edited(record: MemoryRecord) -> dict[str, Any]:
    """Return a note as it is edited: a text as it is, anything else as JSON."""
    return {
        "key": record.key,
        "text": as_lines(in_words(record.value)),
        "is_json": not isinstance(record.value, str),
        "tags": " ".join(record.tags),
        "version": record.version,
        "updated": _when(record),
        "expires": "" if record.expires_at is None else record.expires_at.astimezone().strftime("%Y-%m-%d %H:%M"),
    }


def _preview(memory: AgentMemory, record: MemoryRecord) -> dict[str, Any]:
    """Return a value that JSON has no form for, of a table the first rows; nothing for a note that can be edited."""
    words = in_words(record.value)
    if words is record.value:
        return {}
    preview: dict[str, Any] = {"title": words, "columns": [], "rows": [], "problem": ""}
    if "rows" not in record.value:
        return {"preview": preview}
    try:
        source = FrameSource(memory.read(record.key))
        columns = range(min(len(source.columns), _PREVIEW_COLUMNS))
        preview["columns"] = [source.columns[index] for index in columns]
        preview["rows"] = source.cells(None, range(min(source.row_count, _PREVIEW_ROWS)), columns, _PREVIEW_CELL)
    except NbtoolsError as exc:
        preview["problem"] = exc.message
    return {"preview": preview}


def _when(record: MemoryRecord) -> str:
    return record.updated_at.astimezone().strftime("%Y-%m-%d %H:%M")


def _value(text: str, *, is_json: bool) -> Any:
    if not is_json:
        return text
    try:
        return json.loads(text)
    except ValueError as exc:
        problem = f"value: it is not JSON ({exc})"
        raise InvalidArguments(f"{problem}.", data={"problems": [problem]}) from None
