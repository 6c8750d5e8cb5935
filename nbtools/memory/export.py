"""Export: write records to files and DataFrames, and import them from files.

A JSON Lines file has one `MemoryRecord.to_dict` a line. A Parquet file has the same columns with the value as JSON
text; DuckDB writes and reads it, so no other package is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nbtools.errors import FileMissing, InvalidArguments, ParseError, PathNotAllowed
from nbtools.ground.folder import Folder
from nbtools.ground.lazy import duckdb, pd
from nbtools.memory.records import STORED, Limits, MemoryRecord, Scope, check_key, check_tags, encode_value, make_scope
from nbtools.memory.repository import Change, Query, Repository
from nbtools.texts.sql_quotes import quote_text

# A batch is one request: large enough to avoid a disk wait per record, small enough for one frame.
_BATCH = 500
# At most this many replaced keys are named.
_NAMED = 5
_CALL_COLUMNS = ["call_id", "run_id", "parent_id", "tool", "caller", "arguments", "ok", "code", "started_at"]
_CALL_COLUMNS += ["duration_s", "artifacts"]


def export_records(
    repository: Repository, scope: Scope | None, path: str | os.PathLike[str], *, overwrite: bool = False
) -> int:
    """Write records to a ``.jsonl`` or ``.parquet`` file, whole or not at all; make its folder; return how many.

    Parameters
    ----------
    repository
        Where the records are.
    scope
        Whose records; `None` for those of all scopes.
    path
        The file; its extension gives the format.
    overwrite
        Whether an existing file is replaced.

    Raises
    ------
    FileAlreadyExists, PathNotAllowed, LimitExceeded
        The file exists; it cannot be written; the disk is full.
    """
    target = Path(path).expanduser()
    kind = _kind(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        hint = "Check the permissions there, or choose another place."
        raise PathNotAllowed(f"{target} cannot be written: {exc.strerror or exc}.", hint=hint) from exc
    with Folder(target.parent, None).draft(target.name, overwrite=overwrite) as file:
        if kind == "jsonl":
            records = repository.query(Query(scope=scope)).records
            file.writelines(f"{json.dumps(r.to_dict(), ensure_ascii=False)}\n".encode() for r in records)
            return len(records)
        file.write(repository.query(Query(scope=scope, give="table")).table)
    return _count_parquet(target)


class ImportCount(int):
    """How many records an import wrote.

    Attributes
    ----------
    replaced
        The keys whose live record had another value, in the order of the file; the histories keep those values.
    """

    replaced: tuple[str, ...] = ()

    def note(self, history: str) -> str:
        """Describe what was replaced and how to see a history; empty if nothing was."""
        if not self.replaced:
            return ""
        names = ", ".join(self.replaced[:_NAMED]) + (", …" if len(self.replaced) > _NAMED else "")
        have = "item has" if len(self.replaced) == 1 else "items have"
        return f"{len(self.replaced):,} {have} another value than before ({names}); {history} shows the earlier ones"


def import_records(
    repository: Repository, scope: Scope | None, path: str | os.PathLike[str], limits: Limits
) -> ImportCount:
    """Write the records of such a file to a scope, or to their own if it is `None`; return how many.

    What has expired since is left out; what would expire keeps its moment. Records are checked like any other write.

    Raises
    ------
    FileMissing
        There is no such file.
    ParseError
        A line or column is not from an export; earlier lines stay written.
    """
    source = Path(path).expanduser()
    kind = _kind(source)
    if not source.is_file():
        raise FileMissing(f"There is no file {source}.")
    rows = _read_jsonl(source) if kind == "jsonl" else _read_parquet(source)
    count, batch, replaced = 0, list[Change](), dict[tuple[Scope | None, str], None]()
    for index, row in rows:
        change = _change(row, index, scope, limits)
        # What has expired since is not a record any more.
        if change is not None:
            batch.append(change)
            count += 1
        if len(batch) >= _BATCH:
            replaced |= _apply(repository, batch)
            batch = []
    replaced |= _apply(repository, batch)
    total = ImportCount(count)
    total.replaced = tuple(name for _, name in replaced)
    return total


def _apply(repository: Repository, batch: Sequence[Change]) -> dict[tuple[Scope | None, str], None]:
    """Write a batch, and return the keys, with their scopes, that had another value before."""
    before: dict[tuple[Scope | None, str], str] = {}
    for scope in dict.fromkeys(change.scope for change in batch):
        keys = tuple(dict.fromkeys(change.key for change in batch if change.scope == scope))
        records = repository.query(Query(scope=scope, keys=keys)).records
        before |= {(scope, record.key): _in_order(record.value) for record in records}
    if batch:
        repository.apply(batch)
    ids = {(change.scope, change.key): _in_order(json.loads(change.value or "null")) for change in batch}
    return {each: None for each, value in ids.items() if before.get(each, value) != value}


def _in_order(value: Any) -> str:
    """Return a value as JSON that is the same for equal values: 1 is not true, and the order of keys does not count."""
    return json.dumps(value, sort_keys=True)


def frame_of_calls(calls: Sequence[Mapping[str, Any]], *, nested: bool = False) -> Any:
    """Return records of tool calls as a pandas DataFrame with the usual columns first; `started_at` is a moment.

    Parameters
    ----------
    calls
        The records of the calls.
    nested
        Leave dicts and lists as they are; otherwise they become JSON text.
    """
    # Records may have their own fields, and older ones lack some: every field becomes a column.
    more = [name for name in dict.fromkeys(name for call in calls for name in call) if name not in _CALL_COLUMNS]
    names = [*_CALL_COLUMNS, *more]
    rows = [[call.get(name) if nested else _cell(call.get(name)) for name in names] for call in calls]
    frame = pd.DataFrame(rows, columns=names)
    began = pd.to_datetime(pd.to_numeric(frame["started_at"]), unit="s", utc=True)
    return frame.assign(started_at=began.dt.as_unit("us"))


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


def _kind(path: Path) -> str:
    kind = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}.get(path.suffix.lower())
    if kind is None:
        raise InvalidArguments(
            f"{path.name!r} does not end in .jsonl or .parquet.", hint="use .jsonl (JSON Lines) or .parquet"
        )
    return kind


def _change(row: Mapping[str, Any], position: str, scope: Scope | None, limits: Limits) -> Change | None:
    try:
        record = MemoryRecord.from_dict(row)
        if scope is None:
            scope = make_scope(record.agent_id, record.workflow_id, record.node_id, scope=None)
        # The moment of the end is kept, not the length: an import a week later must not give a week more.
        ttl = 0.0
        if record.expires_at is not None:
            ttl = (record.expires_at - datetime.now(UTC)).total_seconds()
            if ttl <= 0:
                return None
        return Change(
            kind="write",
            scope=scope,
            key=check_key(record.key, limits),
            value=encode_value(record.value, limits),
            tags=check_tags(record.tags, limits),
            ttl=ttl,
        )
    except (KeyError, TypeError, ValueError) as exc:
        why = f"it has no {exc}" if isinstance(exc, KeyError) else exc
        raise ParseError(
            f"{position} is not a memory record: {why}.", hint="Only files that memory exported are imported."
        ) from exc


def _read_jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as exc:
                raise ParseError(f"line {number} of {path.name} is not JSON: {exc}") from None
            if not isinstance(row, dict):
                raise ParseError(f"line {number} of {path.name} is not a JSON object")
            yield f"line {number} of {path.name}", row


def _count_parquet(path: Path) -> int:
    with duckdb.connect(":memory:") as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM read_parquet({quote_text(str(path))})").fetchone() or (0,)
    return int(count)


def _read_parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with duckdb.connect(":memory:") as connection:
        try:
            # Times travel as text: DuckDB would want another package for aware datetimes.
            chosen = ", ".join(f"strftime({n}, '%Y-%m-%dT%H:%M:%S.%f')" if n.endswith("_at") else n for n in STORED)
            connection.execute("SET timezone = 'UTC'")
            rows = connection.execute(f"SELECT {chosen} FROM read_parquet({quote_text(str(path))})").fetchall()
        except duckdb.Error as exc:
            raise ParseError(f"{path.name} is not an export of a memory: {exc}") from None
    for number, row in enumerate(rows, 1):
        record = dict(zip(STORED, row, strict=True))
        yield f"row {number} of {path.name}", record | {"value": json.loads(record["value"])}
