"""LangGraph's store over a memory, so that a graph of LangGraph reads and writes the same records.

An item's place is one key: ``store/`` + its namespace, a part a level + ``=`` + its own key. ``/``, ``=`` and ``%`` in
them are escaped, and all that no key may hold; so no two items collide, and a namespace prefix is a key prefix.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import quote, unquote

from nbtools.errors import InvalidArguments
from nbtools.ground.aio import in_thread
from nbtools.ground.lazy import need
from nbtools.memory.records import MemoryRecord, check_key, check_ttl, encode_value
from nbtools.memory.repository import Change, Query
from nbtools.memory.store import AgentMemory
from nbtools.texts.visible import kind_of_value

_base = need("langgraph.store.base", extra="langgraph", why="Keeping a graph's store in the memory")
_START = "store/"
_ESCAPES = str.maketrans({"%": "%25", "/": "%2F", "=": "%3D"})
_SAFE = "".join(character for character in map(chr, range(32, 127)) if ord(character) not in _ESCAPES)
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda actual, expected: bool(actual == expected),
    "$ne": lambda actual, expected: bool(actual != expected),
    "$gt": lambda actual, expected: bool(actual > expected),
    "$gte": lambda actual, expected: bool(actual >= expected),
    "$lt": lambda actual, expected: bool(actual < expected),
    "$lte": lambda actual, expected: bool(actual <= expected),
}
_Namespace = tuple[str, ...]


class NbtoolsStore(_base.BaseStore):  # type: ignore[name-defined]  # an optional package's class
    """A ``BaseStore`` of LangGraph over an `AgentMemory`.

    Reads of a batch see the store as it was before the batch, its writes are applied together. Where there is an
    embedder, a search with a query ranks by the nearness of vectors: the score is the cosine, and items without a
    vector follow without a score. Where there is none it finds by words, and the score is a part of the best one's.
    Without a query items come in the order of their keys.

    Two things differ from LangGraph's own stores: what has expired is never returned, and reading an item that has a
    time to live makes a version of it, of the time of that reading.

    Parameters
    ----------
    memory
        The memory, in the scope whose records the graph is to see. It stays its owner's to close.
    index
        What is embedded and by what, as LangGraph's stores take it; ``embed`` may be left out when the memory was
        opened with one. `None` embeds whole values by that, if there is one.
    ttl
        LangGraph's defaults for times to live: ``default_ttl`` in minutes and ``refresh_on_read``.

    Examples
    --------
    >>> from nbtools.memory import open_memory
    >>> store = NbtoolsStore(open_memory(":memory:"))
    >>> store.put(("users", "1"), "likes", {"drink": "coffee"})
    >>> store.search(("users",), query="coffee")[0].key
    'likes'
    """

    supports_ttl = True

    def __init__(
        self, memory: AgentMemory, *, index: Mapping[str, Any] | None = None, ttl: Mapping[str, Any] | None = None
    ) -> None:
        self._memory = memory
        self.index_config = dict(index) if index is not None else None
        self.ttl_config = dict(ttl) if ttl is not None else None
        embed = (index or {}).get("embed")
        mine = memory.embed
        self.embeddings: Any = None
        if embed is not None:
            self.embeddings = _base.ensure_embeddings(embed)
        elif mine is not None:
            self.embeddings = _base.ensure_embeddings(lambda texts: [list(mine(text)) for text in texts])
        self._paths = _paths((index or {}).get("fields") or ("$",))

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Perform operations and return their results in order.

        Raises
        ------
        langgraph.store.base.InvalidNamespaceError
            A label of a namespace is not one that LangGraph allows.
        """
        # Walked through several times, and an iterator can be walked through once.
        operations = list(ops)
        for op in operations:
            _base.validate_op_namespace(op)
        read: dict[str, MemoryRecord] = {}
        answers = [None if isinstance(op, _base.PutOp) else self._read(op, read) for op in operations]
        # Of several writes to one place the last one counts.
        puts = {_path(op.namespace, op.key): op for op in operations if isinstance(op, _base.PutOp)}
        changes = [*self._changes(puts), *self._refresh_changes(read[key] for key in read.keys() - puts.keys())]
        if changes:
            self._memory.repository.apply(changes)
        return answers

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """Perform operations in a thread, so that the running event loop goes on."""
        return await in_thread(self.batch, list(ops))

    def _read(self, op: Any, records_read: dict[str, MemoryRecord]) -> Any:
        """Return the result of a reading operation, and add the records whose end it moves to `records_read`."""
        if isinstance(op, _base.ListNamespacesOp):
            return self._namespaces(op)
        if isinstance(op, _base.GetOp):
            query = Query(scope=self._memory.scope, keys=(_path(op.namespace, op.key),))
            records = [*self._memory.repository.query(query).records]
        elif isinstance(op, _base.SearchOp):
            records = self._find(op)
        else:
            raise InvalidArguments(f"{type(op).__name__} is not an operation of a store.")
        if op.refresh_ttl:
            records_read |= {record.key: record for record in records}
        if isinstance(op, _base.SearchOp):
            return [_base.SearchItem(**_fields(record), score=record.score) for record in records]
        return _base.Item(**_fields(records[0])) if records else None

    def _changes(self, puts: Mapping[str, Any]) -> list[Change]:
        vectors = self._vectors(puts)
        changes = []
        for slot, op in puts.items():
            key = check_key(slot, self._memory.limits)
            if op.value is None:
                changes.append(Change(kind="delete", scope=self._memory.scope, key=key))
                continue
            if not isinstance(op.value, Mapping):
                raise InvalidArguments(f"The value of {op.key!r} is {kind_of_value(op.value)}, expected a dict.")
            ttl = check_ttl(None if op.ttl is None else op.ttl * 60)
            value = encode_value(dict(op.value), self._memory.limits)
            vector = vectors.get(slot) or None
            changes.append(Change(kind="write", scope=self._memory.scope, key=key, value=value, ttl=ttl, vector=vector))
        return changes

    def _vectors(self, puts: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
        """Return the vectors of all values that are written, with one call of the embedder."""
        texts: dict[str, list[str]] = {}
        for slot, op in puts.items():
            if op.value is not None and op.index is not False and self.embeddings is not None:
                paths = self._paths if op.index is None else _paths(op.index)
                texts[slot] = [text for path in paths for text in _base.get_text_at_path(op.value, path)]
        unique = [*dict.fromkeys(text for some in texts.values() for text in some)]
        embedded = self.embeddings.embed_documents(unique) if unique else []
        vectors = dict(zip(unique, embedded, strict=True))
        # The vectors of several texts stand one after the other.
        return {slot: tuple(float(x) for text in some for x in vectors[text]) for slot, some in texts.items()}

    def _refresh_changes(self, records: Iterable[MemoryRecord]) -> list[Change]:
        """Return the changes that move the end of records that were read."""
        return [
            Change(kind="touch", scope=record.scope, key=record.key, ttl=life.total_seconds())
            for record in records
            if record.expires_at is not None and (life := record.expires_at - record.updated_at)
        ]

    def _find(self, op: Any) -> list[MemoryRecord]:
        # A filter looks into values, which the store cannot do: then all are read, and cut afterwards.
        end = op.offset + op.limit
        among = Query(scope=self._memory.scope, prefix=_prefix(op.namespace_prefix))
        records: dict[str, MemoryRecord] = {}
        if op.query:
            if self.embeddings is not None:
                ranked = replace(among, vector=tuple(map(float, self.embeddings.embed_query(op.query))))
            else:
                ranked = replace(among, text=op.query)
            self._collect(records, replace(ranked, limit=None if op.filter else end), op.filter)
        if len(records) < end and (not op.query or self.embeddings is not None):
            self._collect(records, replace(among, limit=None if op.filter else end), op.filter)
        return [*records.values()][op.offset : end]

    def _collect(self, records: dict[str, MemoryRecord], query: Query, condition: Mapping[str, Any] | None) -> None:
        for record in self._memory.repository.query(query).records:
            if isinstance(record.value, dict) and _matches_filter(record.value, condition):
                records.setdefault(record.key, record)

    def _namespaces(self, op: Any) -> list[_Namespace]:
        query = Query(scope=self._memory.scope, prefix=_START, values=False)
        names = {_split(record.key)[0] for record in self._memory.repository.query(query).records}
        namespaces = [
            name for name in names if all(_matches(c.match_type, c.path, name) for c in op.match_conditions or ())
        ]
        cut = sorted({name[: op.max_depth] for name in namespaces} if op.max_depth is not None else namespaces)
        return cut[op.offset : op.offset + op.limit]


def _paths(paths: Iterable[str]) -> list[Any]:
    # The whole value has no parts.
    return [path if path == "$" else _base.tokenize_path(path) for path in paths]


def _escape(part: str) -> str:
    if part.isprintable() and unicodedata.is_normalized("NFC", part):
        return part.translate(_ESCAPES)
    # What no key may hold, such as a new line, is written as bytes.
    return quote(part, safe=_SAFE)


def _prefix(namespace: _Namespace) -> str:
    return _START + "".join(f"{_escape(part)}/" for part in namespace)


def _path(namespace: _Namespace, key: str) -> str:
    return f"{_prefix(namespace)}={_escape(key)}"


def _split(address: str) -> tuple[_Namespace, str]:
    parts, _, key = address.removeprefix(_START).partition("=")
    return tuple(unquote(part) for part in parts.split("/")[:-1]), unquote(key)


def _fields(record: MemoryRecord) -> dict[str, Any]:
    namespace, key = _split(record.key)
    return {
        "value": record.value,
        "key": key,
        "namespace": namespace,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
    }


def _matches_filter(value: Mapping[str, Any], conditions: Mapping[str, Any] | None) -> bool:
    return all(_matches_condition(_at(value, name), condition) for name, condition in (conditions or {}).items())


def _at(value: Any, name: str) -> Any:
    """Return what has a name, or what a path such as ``user.name`` leads to, `None` for nothing."""
    if not isinstance(value, Mapping) or name in value:
        return value.get(name) if isinstance(value, Mapping) else None
    first, _, rest = name.partition(".")
    return _at(value.get(first), rest) if rest else None


def _matches_condition(value: Any, condition: Any) -> bool:
    """Compare a value with a plain value, or with operators such as ``{"$gt": 3}``."""
    if not isinstance(condition, Mapping):
        return bool(value == condition)
    if not any(str(name).startswith("$") for name in condition):
        return isinstance(value, Mapping) and _matches_filter(value, condition)
    for name, operand in condition.items():
        if name not in _COMPARE:
            raise InvalidArguments(f"{name!r} is not an operator of a filter.", hint=f"Use {', '.join(_COMPARE)}.")
        try:
            if not _COMPARE[name](value, operand):
                return False
        except TypeError:  # Such values have no order.
            return False
    return True


def _matches(kind: Literal["prefix", "suffix"], path: _Namespace, namespace: _Namespace) -> bool:
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if kind == "prefix" else namespace[len(namespace) - len(path) :]
    return all(pattern in ("*", step) for pattern, step in zip(path, part, strict=True))
