"""LangGraph's store over a memory: people who have a graph keep their notes here.

An item's place is one key: ``store/`` + its namespace, a part a level + ``=`` + its own key. ``/``, ``=`` and ``%`` in
parts are escaped, so no two items collide, and a namespace prefix is a key prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from nbtools.aio import in_thread
from nbtools.errors import InvalidArguments
from nbtools.lazy import need
from nbtools.memory.records import MemoryRecord, check_key, check_ttl, encode_value
from nbtools.memory.repository import Change, Query
from nbtools.memory.store import AgentMemory

__all__ = ["NbtoolsStore"]

_base = need("langgraph.store.base", extra="langgraph", why="Keeping a graph's store in the memory")
_START = "store/"
_ESCAPES = str.maketrans({"%": "%25", "/": "%2F", "=": "%3D"})
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda found, wanted: bool(found == wanted),
    "$ne": lambda found, wanted: bool(found != wanted),
    "$gt": lambda found, wanted: float(found) > float(wanted),
    "$gte": lambda found, wanted: float(found) >= float(wanted),
    "$lt": lambda found, wanted: float(found) < float(wanted),
    "$lte": lambda found, wanted: float(found) <= float(wanted),
}
_Namespace = tuple[str, ...]


class NbtoolsStore(_base.BaseStore):  # type: ignore[name-defined]  # an optional package's class
    """A ``BaseStore`` of LangGraph over an `AgentMemory`.

    Reads of a batch see the store as it was before the batch, its writes are applied together. Searches with a query
    rank by BM25 (and by nearness, when the memory was opened with ``embed``). A time to live is counted from the last
    write; reading does not prolong it.

    Parameters
    ----------
    memory
        The memory, in the scope whose records the graph is to see. It stays its owner's to close.

    Examples
    --------
    >>> from nbtools.memory import open_memory
    >>> store = NbtoolsStore(open_memory(":memory:"))
    >>> store.put(("users", "1"), "likes", {"drink": "coffee"})
    >>> store.search(("users",), query="coffee")[0].key
    'likes'
    """

    supports_ttl = True

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Perform operations and return their results in order."""
        asked = list(ops)
        answers = [None if isinstance(op, _base.PutOp) else self._read(op) for op in asked]
        # Of several writes to one place the last one counts.
        puts = {(op.namespace, op.key): self._change(op) for op in asked if isinstance(op, _base.PutOp)}
        if puts:
            self._memory.repository.apply(list(puts.values()))
        return answers

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """Perform operations beside the running loop."""
        return await in_thread(self.batch, list(ops))

    def _read(self, op: Any) -> Any:
        if isinstance(op, _base.GetOp):
            record = self._memory.record(_place(op.namespace, op.key))
            return None if record is None else _base.Item(**_fields(record))
        if isinstance(op, _base.SearchOp):
            return self._found(op)
        if isinstance(op, _base.ListNamespacesOp):
            return self._namespaces(op)
        raise InvalidArguments(f"{type(op).__name__} is no operation of a store.")

    def _change(self, op: Any) -> Change:
        key = check_key(_place(op.namespace, op.key), self._memory.limits)
        if op.value is None:
            return Change(kind="delete", scope=self._memory.scope, key=key)
        ttl = op.ttl * 60 if isinstance(op.ttl, int | float) else None
        value = encode_value(dict(op.value), self._memory.limits)
        return Change(kind="write", scope=self._memory.scope, key=key, value=value, ttl=check_ttl(ttl))

    def _found(self, op: Any) -> list[Any]:
        # A filter looks into values, which the store cannot do: then all are read, and cut afterwards.
        enough = None if op.filter else op.offset + op.limit
        query = Query(scope=self._memory.scope, prefix=_prefix(op.namespace_prefix), text=op.query, limit=enough)
        records = [
            record
            for record in self._memory.repository.query(query).records
            if isinstance(record.value, dict) and _fits(record.value, op.filter)
        ]
        page = records[op.offset : op.offset + op.limit]
        return [_base.SearchItem(**_fields(record), score=record.score) for record in page]

    def _namespaces(self, op: Any) -> list[_Namespace]:
        query = Query(scope=self._memory.scope, prefix=_START, values=False)
        names = {_split(record.key)[0] for record in self._memory.repository.query(query).records}
        wanted = [
            name for name in names if all(_matches(c.match_type, c.path, name) for c in op.match_conditions or ())
        ]
        cut = sorted({name[: op.max_depth] for name in wanted} if op.max_depth is not None else wanted)
        return cut[op.offset : op.offset + op.limit]


def _prefix(namespace: _Namespace) -> str:
    return _START + "".join(f"{part.translate(_ESCAPES)}/" for part in namespace)


def _place(namespace: _Namespace, key: str) -> str:
    return f"{_prefix(namespace)}={key}"


def _split(place: str) -> tuple[_Namespace, str]:
    parts, _, key = place.removeprefix(_START).partition("=")
    unescaped = (part.replace("%2F", "/").replace("%3D", "=").replace("%25", "%") for part in parts.split("/")[:-1])
    return tuple(unescaped), key


def _fields(record: MemoryRecord) -> dict[str, Any]:
    namespace, key = _split(record.key)
    return {
        "value": record.value,
        "key": key,
        "namespace": namespace,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
    }


def _fits(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    return all(_fits_one(value.get(name), condition) for name, condition in (wanted or {}).items())


def _fits_one(found: Any, condition: Any) -> bool:
    """Compare a value with a plain value, or with operators such as ``{"$gt": 3}``."""
    if not isinstance(condition, Mapping):
        return bool(found == condition)
    if not any(str(name).startswith("$") for name in condition):
        return isinstance(found, Mapping) and _fits(found, condition)
    for name, wanted in condition.items():
        if name not in _COMPARE:
            raise InvalidArguments(f"{name!r} is no operator of a filter.", hint=f"Use {', '.join(_COMPARE)}.")
        try:
            if not _COMPARE[name](found, wanted):
                return False
        except (TypeError, ValueError):
            return False
    return True


def _matches(kind: Literal["prefix", "suffix"], path: _Namespace, namespace: _Namespace) -> bool:
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if kind == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", found) for wanted, found in zip(path, part, strict=True))
