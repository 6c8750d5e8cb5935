"""AgentMemory: one scope of a repository, with the reading methods of a dict and its own methods for writing.

The store checks and encodes what it is given, adds whose it is, and asks the repository; it keeps no records itself, so
two stores over one repository, or two processes over one file, always see the same.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import json
import math
import os
import warnings
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from nbtools.errors import InvalidArguments, LimitExceeded, MemoryNotFound, MemoryWriteFailed, nearest
from nbtools.ground.lazy import ClosedAtEnd
from nbtools.memory.records import (
    KEEP,
    Keep,
    Limits,
    MemoryRecord,
    Scope,
    check_count,
    check_key,
    check_tags,
    check_ttl,
    encode_value,
    make_scope,
)
from nbtools.memory.repository import CallQuery, Change, Query, QueryAnswer, Repository
from nbtools.memory.rules.erasure import Erasure
from nbtools.texts.other_words import KnowsOtherWords, explains_arguments, knows_other_arguments
from nbtools.texts.visible import visible

if TYPE_CHECKING:
    from nbtools.memory.export import ImportCount

# Inside the class `list` is the method.
_Records: TypeAlias = builtins.list[MemoryRecord]
Embed: TypeAlias = Callable[[str], Sequence[float]]
_MOST_CALLS = 10_000  # whose files are looked at
_GONE = ("delete", "expire")
_NO_CONDITION = vars(Query())


@knows_other_arguments
class AgentMemory(KnowsOtherWords, ClosedAtEnd, Mapping[str, Any]):
    """The memory of one scope.

    Reading is that of a mapping from keys to JSON values, in the order of the keys; writing is explicit. All methods
    block, and may be called from any thread.

    Parameters
    ----------
    repository
        Where the records lie.
    agent_id
        The agent whose memory it is.
    workflow_id
        The workflow whose memory it is; ignored for the scope ``agent``.
    node_id
        The node whose memory it is; counts only for the scope ``node``.
    scope
        ``agent`` (shared by all its workflows), ``workflow`` (shared by its nodes) or ``node``; `None` takes the
        narrowest level among the ids.
    limits
        What may be stored.
    embed
        Turns a text into a vector; when given, records are found by nearness as well as by words.
    owns_repository
        Whether `close` closes the repository too.
    holders
        Returns folders with files that may hold values too: logs, results, pictures. `forget` overwrites them there.
    tables
        Returns the `TableFolder` that keeps values JSON has no form for, such as frames and dates; `None` refuses them.

    Examples
    --------
    >>> from nbtools.memory import AgentMemory, InMemoryRepository
    >>> memory = AgentMemory(InMemoryRepository(), agent_id="a")
    >>> memory.write("goal", {"kpi": "churn"}, tags=["plan"]).version
    1
    >>> memory["goal"], [record.key for record in memory.find(tags=["plan"])]
    ({'kpi': 'churn'}, ['goal'])
    """

    def __init__(
        self,
        repository: Repository,
        *,
        agent_id: str = "default",
        workflow_id: str | None = None,
        node_id: str | None = None,
        scope: str | None = "agent",
        limits: Limits | None = None,
        embed: Embed | None = None,
        owns_repository: bool = False,
        holders: Callable[[], Iterable[Path]] = tuple,
        tables: Callable[[], Any] | None = None,
    ) -> None:
        self.scope = make_scope(agent_id, workflow_id, node_id, scope=scope)
        self.repository = repository
        self.limits = limits or Limits()
        self._ids = (agent_id, workflow_id, node_id)
        self.embed = embed
        self.holders = holders
        self.tables = tables
        self._owns = owns_repository

    def __repr__(self) -> str:
        return f"AgentMemory({self.scope.prefix + '…'!r})"

    # Two stores are the same memory when they are the same object; a dict with equal items is merely equal.
    __hash__ = object.__hash__

    # -- reading as a mapping

    def __getitem__(self, key: str) -> Any:
        return self._restored(self.need(key))

    get = explains_arguments(Mapping.get)

    def __contains__(self, key: object) -> bool:
        return self._can_be_key(key) and bool(self._query(keys=(key,), values=False).records)

    def __len__(self) -> int:
        return self._query(give="count").total

    def __iter__(self) -> Iterator[str]:
        return iter([record.key for record in self._query(values=False).records])

    def items(self) -> _RecordItems:
        """Return a view of the pairs of key and value, fetched in one go."""
        return _RecordItems(self)

    def values(self) -> _RecordValues:
        """Return a view of the values, fetched in one go."""
        return _RecordValues(self)

    def __setitem__(self, key: str, value: Any) -> NoReturn:
        raise TypeError(f"memory is written by name, not by [] =: use memory.write({key!r}, value)")

    def __delitem__(self, key: str) -> NoReturn:
        raise TypeError(f"memory is written by name, not by del []: use memory.delete({key!r})")

    # -- reading

    def read(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or `default` when it is not there.

        Raises
        ------
        InvalidArguments
            No key can look like this.
        """
        record = self.record(key)
        return default if record is None else self._restored(record)

    def record(self, key: str) -> MemoryRecord | None:
        """Return the whole record of a key, or `None`."""
        records = self._query(keys=(check_key(key, self.limits),)).records
        return records[0] if records else None

    def need(self, key: str) -> MemoryRecord:
        """Return the whole record of a key.

        Raises
        ------
        MemoryNotFound
            There is none; the hint names the nearest key.
        """
        record = self.record(key) if self._can_be_key(key) else None
        if record is None:
            raise self._missing(key)
        return record

    @explains_arguments
    def list(self, prefix: str = "", *, limit: int | None = None, after: str | None = None) -> _Records:
        """Return the records whose keys start with `prefix`, by key; `after` continues behind a key.

        Each unpacks as ``(key, value)``, so that ``dict(memory.list("p/"))`` and a loop over pairs are what they seem.
        """
        return [*self._query(prefix=prefix, limit=limit, after=after).records]

    def find(
        self,
        tags: Iterable[str] = (),
        *,
        match: Literal["all", "any"] = "all",
        prefix: str = "",
        limit: int | None = None,
    ) -> _Records:
        """Return the records that have all, or any, of the tags, by key."""
        if match not in ("all", "any"):
            raise InvalidArguments(f"match is {match!r}.", hint="use 'all' or 'any'")
        # `any` of no tags holds for nothing, `all` of no tags for everything.
        labels = check_tags(tags, self.limits) or ()
        if not labels and match == "any":
            return []
        return [*self._query(tags=labels, match=match, prefix=prefix, limit=limit).records]

    @explains_arguments
    def search(self, query: str, *, limit: int = 10, tags: Iterable[str] = (), prefix: str = "") -> _Records:
        """Return the records that fit the words of `query` best, best first, with `score` set.

        Words are looked for in keys, tags, and the names and scalars of the values, in any of their English forms, and
        by their beginnings; a word that no record has stands for the nearest that some record has. Ranking is BM25,
        fused with the nearness of vectors when the store has an `embed`; the best record's score is 1.
        """
        if not isinstance(query, str):
            raise InvalidArguments(f"The query is {query!r}, expected a string.")
        if not query.strip() or limit < 1:
            return []
        vector = tuple(map(float, self.embed(query))) if self.embed else None
        labels = check_tags(tags, self.limits) or ()
        return [*self._query(text=query, vector=vector, limit=limit, tags=labels, prefix=prefix).records]

    def tags(self) -> dict[str, int]:
        """Return the tags in use and how many records have each, the most used first."""
        return dict(sorted(self._query(give="tags").tags.items(), key=lambda pair: (-pair[1], pair[0])))

    @explains_arguments
    def history(self, key: str, *, limit: int | None = None) -> _Records:
        """Return the kept versions of a key, oldest first; deletions are versions too (see `MemoryRecord.change`)."""
        return self.repository.history(self.scope, check_key(key, self.limits), limit=limit)

    def info(self) -> dict[str, Any]:
        """Return facts about the store, for a status card."""
        return self.repository.info()

    # -- writing

    @explains_arguments
    def write(
        self,
        key: str,
        value: Any,
        ttl: float | Keep | None = KEEP,
        *,
        tags: Iterable[str] | Keep | None = KEEP,
        if_version: int | None = None,
    ) -> MemoryRecord:
        """Store a value: JSON, and what `tables` keeps of others.

        Parameters
        ----------
        key
            The key.
        value
            The value.
        ttl
            Seconds until it vanishes; not given keeps the end it has, `None` takes that away.
        tags
            Names to find it by; not given, or `None`, keeps the tags it has, an empty list takes them away.
        if_version
            Write only if the record is at this version; 0 means only if there is none.

        Raises
        ------
        InvalidArguments, LimitExceeded
            The key, value, tags or ttl may not be stored.
        VersionConflict
            The record is at another version.
        """
        checked = check_tags(tags, self.limits)
        try:
            text = encode_value(value, self.limits)
        except InvalidArguments:
            if self.tables is None:
                raise
            text = encode_value(self.tables().pack(value, self.scope.record_id(key)), self.limits)
        (applied,) = self.repository.apply(
            [
                Change(
                    kind="write",
                    scope=self.scope,
                    key=check_key(key, self.limits),
                    value=text,
                    tags=checked,
                    ttl=check_ttl(ttl),
                    if_version=None if if_version is None else check_count(if_version, "if_version"),
                    vector=self._vector(key, checked or (), text) if self.embed else None,
                )
            ]
        )
        assert applied.record is not None
        return applied.record

    def incr(self, key: str, by: float = 1, *, if_version: int | None = None) -> int | float:
        """Add to a number, atomically, and return the sum; a missing key counts as 0.

        Raises
        ------
        InvalidArguments
            What is there, or `by`, is not a finite number.
        """
        if not _is_finite(by):
            raise InvalidArguments(f"by is {by!r}, expected a finite number.", hint="pass by=1")
        version = check_count(if_version, "if_version")
        key = check_key(key, self.limits)
        (applied,) = self.repository.apply([Change(kind="incr", scope=self.scope, key=key, by=by, if_version=version)])
        assert applied.record is not None
        total: int | float = applied.record.value
        return total

    def restore(self, key: str, version: int | None = None, *, if_version: int | None = None) -> MemoryRecord:
        """Write the value and tags of an earlier version of a key as its new version.

        Parameters
        ----------
        key
            The key.
        version
            Which one; `None` takes the one before the present, and the last one of a key that is gone.
        if_version
            Restore only if the record is at this version; 0 means only if there is none.

        Raises
        ------
        MemoryNotFound
            That version is not kept, or is a deletion.
        VersionConflict
            The record is at another version.
        """
        key = check_key(key, self.limits)
        if version is None:
            version = self._last_version(key)
        if not check_count(version, "version"):
            raise InvalidArguments(f"version is {version!r}, expected 1 or more.")
        # The text of the version that comes back is embedded again: vectors are kept of the newest version alone.
        vector = None
        if self.embed:
            old = [r for r in self.repository.history(self.scope, key) if r.version == version]
            vector = self._vector(key, old[0].tags, json.dumps(old[0].value)) if old else None
        expected = check_count(if_version, "if_version")
        change = Change(kind="restore", scope=self.scope, key=key, version=version, if_version=expected, vector=vector)
        (applied,) = self.repository.apply([change])
        assert applied.record is not None
        return applied.record

    @explains_arguments
    def delete(self, key: str, *, if_version: int | None = None) -> bool:
        """Remove a key; return whether it was there."""
        key = check_key(key, self.limits)
        version = check_count(if_version, "if_version")
        return bool(self._remove(Change(kind="delete", scope=self.scope, key=key, if_version=version)))

    def forget(self, key: str) -> int:
        """Erase a key and everything stored about it, for ever; return how many versions it had.

        `delete` keeps the history, so that a key can be restored; this is for what should never have been saved. It
        covers this key in this scope, a file of the memory tool by its path as well: the record and its tags, its
        history, the index of words, the journal, snapshots and logs beside the file, and in records of tool calls the
        value wherever it stands and all that memory tools were given with the key. In the runs of agents, in the logs,
        results and files of workflows, in artifacts and in what undo keeps, each text of the value from six characters
        on is overwritten. A file of yours that one of the newest 10,000 calls has left is named in a warning where it
        holds the value, and stays as it is. Not covered are other keys and scopes that hold the same value,
        what was renamed or copied (forget it by that name too), exports, files that were set aside because of
        damage (a notice names them), what other programs keep (notebooks, traces, backups) and the disk's own
        leftovers. A PostgreSQL server removes its old pages and logs by its own rules.

        Raises
        ------
        MemoryWriteFailed
            No question finds it any more, but there was no room to write the files again; forget it again then.
        """
        key = check_key(key, self.limits)
        # Looked at before: afterwards nobody knows what is to be looked for.
        values = [json.dumps(record.value) for record in self.repository.history(self.scope, key)]
        count = self._remove(Change(kind="forget", scope=self.scope, key=key))
        erasure = Erasure(key, values)
        try:
            for folder in self.holders():
                erasure.blot_files(folder)
        except OSError as exc:
            raise MemoryWriteFailed(
                f"The value is forgotten, but {exc.filename} still holds it: {exc.strerror or exc}.",
                hint="Remove that file.",
                tried="erasing what was forgotten",
            ) from exc
        calls = self.repository.calls(CallQuery(limit=_MOST_CALLS)) if values else ()
        paths = {str(artifact["path"]) for call in calls for artifact in call.get("artifacts", ())}
        if left := ", ".join(path for path in sorted(paths) if erasure.is_in(Path(path))):
            warnings.warn(f"a file of yours still holds what was forgotten: {visible(left)}", stacklevel=2)
        return count

    def clear(self) -> int:
        """Remove every key in this scope only; return how many there were."""
        return self._remove(Change(kind="clear", scope=self.scope))

    def clear_by_workflow(self, agent_id: str, workflow_id: str) -> int:
        """Remove every record of a workflow and of its nodes; return how many there were."""
        scope = make_scope(agent_id, workflow_id, scope="workflow")
        return self._remove(Change(kind="clear", scope=scope, nodes=True))

    # -- beyond this scope

    def scoped(
        self,
        *,
        agent_id: str | None = None,
        workflow_id: str | None = None,
        node_id: str | None = None,
        scope: str | None = None,
    ) -> AgentMemory:
        """Return the memory of another scope over the same repository, which stays this store's to close.

        Ids that are not given are this store's. `scope` of `None` takes the narrowest level among the ids given here,
        or this store's own level.
        """
        # Of the ids given here alone: this store's own may be those of a narrower level.
        if scope is None:
            scope = "node" if node_id else "workflow" if workflow_id else self.scope.name
        agent, workflow, node = self._ids
        agent = agent if agent_id is None else agent_id
        ids = agent, workflow if workflow_id is None else workflow_id, node if node_id is None else node_id
        other = self.over(self.repository)
        other.__dict__.update(scope=make_scope(*ids, scope=scope), _ids=ids)
        return other

    def over(self, repository: Repository) -> AgentMemory:
        """Return the same memory over a repository that stands before this one's, which stays its owner's to close."""
        copied = copy.copy(self)
        copied.__dict__.update(repository=repository, _owns=False)
        return copied

    def export_to(self, path: str | os.PathLike[str], *, all_scopes: bool = False, overwrite: bool = False) -> int:
        """Write the records of this scope, or of all, to a ``.jsonl`` or ``.parquet`` file; return how many."""
        from nbtools.memory.export import export_records
        from nbtools.memory.rules.marks import StoredMarks

        count = export_records(self.repository, None if all_scopes else self.scope, path, overwrite=overwrite)
        marks = StoredMarks(self.repository, self.scope.agent_id)
        if marks.has_any():  # it may hold every note
            marks.mark_file(Path(path).expanduser().resolve())
        return count

    def import_from(self, path: str | os.PathLike[str], *, all_scopes: bool = False) -> ImportCount:
        """Write the records of such a file to this scope, or to the scopes they came from.

        Returns
        -------
        ImportCount
            How many; its ``replaced`` has the keys that had another value.
        """
        from nbtools.memory.export import import_records

        return import_records(self.repository, None if all_scopes else self.scope, path, self.limits)

    def snapshot(
        self, what: Literal["memory", "calls"] = "memory", *, own: bool = False, run_id: str | None = None
    ) -> Any:
        """Return the records of the store, or those of tool calls, at one moment, as a pandas DataFrame.

        Parameters
        ----------
        what
            Which records.
        own
            Of the memory, only the scopes that this store's ids lead to; otherwise everybody's.
        run_id
            Of the calls, only those of that run; `None` for all.
        """
        from nbtools.memory.export import frame_of_calls

        if what == "memory":
            return self.table(own=own, is_pandas=True)
        if what == "calls":
            return frame_of_calls(self.repository.calls(CallQuery(limit=None, run_id=run_id)))
        raise InvalidArguments(f"There is no table {what!r}.", hint="use 'memory' or 'calls'")

    def table(self, *, own: bool = False, is_pandas: bool = False) -> Any:
        """Return the records of the store at one moment as a table: of Arrow where that is installed, else of pandas.

        Parameters
        ----------
        own
            Only the scopes that this store's ids lead to; otherwise everybody's.
        is_pandas
            A DataFrame in any case.
        """
        from nbtools.memory.rules.record_table import table_of

        scopes = tuple(self._reach()) if own else (None,)
        tables = [self.repository.query(Query(scope=scope, give="table")).table for scope in scopes]
        return table_of(tables, is_pandas=is_pandas)

    def close(self) -> None:
        """Close the repository if this store opened it."""
        if self._owns:
            self.repository.close()

    # -- inside

    def _query(self, **conditions: Any) -> QueryAnswer:
        query = object.__new__(Query)  # As in `make_record`: its own way takes a third of a read that asks nobody.
        query.__dict__.update(_NO_CONDITION, scope=self.scope, **conditions)
        return self.repository.query(query)

    def _reach(self) -> Iterator[Scope]:
        """Return the scopes that the ids of this store lead to, from the agent's own inwards."""
        agent, workflow, node = self._ids
        yield Scope(agent_id=agent)
        if workflow is not None:
            yield Scope(agent_id=agent, workflow_id=workflow)
        if node is not None:
            yield Scope(agent_id=agent, workflow_id=workflow, node_id=node)

    def _restored(self, record: MemoryRecord) -> Any:
        """Return the value that was written, which that of the record may only stand for."""
        if self.tables is None or not isinstance(record.value, dict):
            return record.value
        return self.tables().unpack(record.value)

    def _remove(self, change: Change) -> int:
        return self.repository.apply([change])[0].count

    def _vector(self, key: str, tags: Iterable[str], text: str) -> tuple[float, ...]:
        # Its patterns take milliseconds to make, and few memories have vectors.
        from nbtools.memory.rules.text_search import record_text

        assert self.embed is not None
        return tuple(map(float, self.embed(record_text(key, tags, text))))

    def _can_be_key(self, key: object) -> bool:
        """Return whether a store may be asked for it; what may not be stored is simply not there."""
        # `key in memory` is asked with anything, and a mapping answers that with `False`.
        try:
            check_key(key, self.limits)
        except (InvalidArguments, LimitExceeded):
            return False
        return True

    def _last_version(self, key: str) -> int:
        """Return the version of a key before the one that it has; of a key that is gone, its last."""
        versions = self.repository.history(self.scope, key)
        # The last version is the present one, unless the key was deleted or has expired.
        if versions and self.record(key) is not None:
            versions.pop()
        alive = [record.version for record in versions if record.change not in _GONE]
        if not versions and key not in self:
            raise self._missing(key)
        if not alive:
            raise MemoryNotFound(f"There is no earlier version of {key!r}.", hint="it has only this version")
        return alive[-1]

    def _missing(self, key: object) -> MemoryNotFound:
        close = None
        if isinstance(key, str) and key:
            with contextlib.suppress(Exception):  # A hint is not worth a second error.
                last = self.repository.history(self.scope, key, limit=1)
                if last:
                    how = "was deleted" if last[0].change == "delete" else "expired"
                    return MemoryNotFound(
                        f"There is no memory {key!r} for {self.scope}: it {how}.",
                        hint=f"%memory restore {key!r} brings it back",
                    )
                # Keys without values, and not all of a large memory: this is for a hint.
                some = self._query(values=False, limit=1_000).records
                close = nearest(key, [record.key for record in some])
        more: dict[str, Any] = {"hint": f"did you mean {close!r}?", "data": {"near": close}} if close else {}
        return MemoryNotFound(f"There is no memory {key!r} for {self.scope}.", **more)


class _RecordItems(ItemsView[str, Any]):
    """The pairs of key and value of a memory, fetched in one go."""

    _mapping: AgentMemory

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        own = self._mapping
        return iter([(record.key, own._restored(record)) for record in own.list()])  # noqa: SLF001 - its own view


class _RecordValues(ValuesView[Any]):
    """The values of a memory in the order of their keys, fetched in one go."""

    _mapping: AgentMemory

    def __iter__(self) -> Iterator[Any]:
        own = self._mapping
        return iter([own._restored(record) for record in own.list()])  # noqa: SLF001 - its own view

    def __contains__(self, value: object) -> bool:
        return any(item is value or item == value for item in self)


def _is_finite(number: Any) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number)
