"""Records: what a memory item is, whose it is, and what may be stored.

A record lies in a scope: an agent's own, one workflow's of that agent, or one node's of that workflow. The namespaced
id ``agent:workflow:node:key`` is the record's one identity in every store; absent parts are ``*``, and ``%``, ``:`` and
``*`` inside a part are percent-escaped, so that no choice of names makes two records collide.

Everything is checked here, before it reaches a store: a store may trust a key, a value, tags and a time to live that
passed these functions.
"""

from __future__ import annotations

import contextlib
import enum
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

from nbtools.errors import InvalidArguments, LimitExceeded
from nbtools.texts import html_parts
from nbtools.texts.visible import brief, visible

ScopeName = Literal["agent", "workflow", "node"]
ChangeKind = Literal["write", "incr", "restore", "delete", "expire"]

# The percent sign is escaped as well, or a part that holds %3A would become another one when it is read back.
_ESCAPES = str.maketrans({"%": "%25", ":": "%3A", "*": "%2A"})
# Python's JSON decoder recurses, and fails at about a thousand levels; this leaves room for the reader's own stack.
_MAX_DEPTH = 200


def _of_numpy(part: Any) -> Any:
    """Return what JSON has for a number or an array of NumPy, which says all of it."""
    kind = getattr(part, "dtype", None) if type(part).__module__ == "numpy" else None
    if kind is not None and kind.kind in "biufU" and kind.char != "g":  # whose numbers stay NumPy's own
        return part.tolist()
    raise TypeError


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_of_numpy).encode
# What to do with a value that JSON has no form for, by the name of its type.
_WAYS = {
    **dict.fromkeys(("DataFrame", "Series", "Table", "LazyFrame"), "%memory save KEY {name} keeps a table"),
    **dict.fromkeys(("date", "datetime", "time", "Timestamp"), ".isoformat() turns it into text"),
    **dict.fromkeys(("Decimal", "UUID", "PosixPath", "timedelta", "Timedelta", "complex"), "str() turns it into text"),
    **dict.fromkeys(("set", "frozenset", "range"), "list() turns it into a list"),
    "bytes": ".hex() turns it into text",
}
OWN = "nbtools."
_IDS = ("agent_id", "workflow_id", "node_id")
STORED = (*_IDS, "key", "value", "tags", "created_at", "updated_at", "expires_at", "version")
"""The fields of a record that leave the store, in the order in which files of an export have them."""
_ABSENT: dict[str, Any] = dict.fromkeys(("workflow_id", "node_id", "tags", "expires_at"))
_SHOWN, _SHOWN_HTML = 200, 10_000  # characters of a value in the two forms
# A longer one is nearly always a mistake of the unit: milliseconds for seconds.
_MAX_TTL = 100 * 366 * 86400.0


class Keep(enum.Enum):
    """What stands for "not given" where a record is written: what the record has stays."""

    KEEP = "keep"

    def __repr__(self) -> str:
        return self.name


KEEP = Keep.KEEP


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a store accepts; every number is a count of bytes except `tags`."""

    key_bytes: int = 1024
    value_bytes: int = 1 << 20
    tags: int = 64


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose memory: an agent, one of its workflows, or one node of that workflow."""

    agent_id: str
    workflow_id: str | None = None
    node_id: str | None = None

    @cached_property
    def prefix(self) -> str:
        """The start of every record id of this scope, with the last colon."""
        return "".join(("*" if part is None else escape_part(part)) + ":" for part in self.parts)

    @cached_property
    def parts(self) -> tuple[str, str | None, str | None]:
        """The ids of agent, workflow and node."""
        return self.agent_id, self.workflow_id, self.node_id

    def __str__(self) -> str:
        """Return the scope in words: ``node 'n' of workflow 'w' of agent 'a'``."""
        parts = (("node", self.node_id), ("workflow", self.workflow_id), ("agent", self.agent_id))
        return " of ".join(f"{level} {name!r}" for level, name in parts if name is not None)

    def record_id(self, key: str) -> str:
        """Return the namespaced id of a key in this scope."""
        return self.prefix + escape_part(key)

    @property
    def name(self) -> ScopeName:
        """Which of the three levels this is."""
        if self.node_id is not None:
            return "node"
        return "agent" if self.workflow_id is None else "workflow"


@dataclass(frozen=True, kw_only=True, repr=False)
class MemoryRecord:
    """One item as it was at one version; it unpacks as ``key, value``.

    A record that comes from a history may be a deletion: its `change` is ``delete`` or ``expire`` and its value `None`.
    `score` is set only by searches: a part of the best one's, between 0.01 and 1; only the order means something.
    """

    agent_id: str
    key: str
    value: Any
    created_at: datetime
    updated_at: datetime
    version: int
    workflow_id: str | None = None
    node_id: str | None = None
    tags: tuple[str, ...] = ()
    expires_at: datetime | None = None
    change: ChangeKind = "write"
    score: float | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.key, self.value))

    @property
    def scope(self) -> Scope:
        """Whose record it is."""
        return Scope(agent_id=self.agent_id, workflow_id=self.workflow_id, node_id=self.node_id)

    @property
    def id(self) -> str:
        """The namespaced id ``agent:workflow:node:key``."""
        return self.scope.record_id(self.key)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values; times are ISO 8601 in UTC."""
        fields = {name: getattr(self, name) for name in STORED}
        moments = {name: value.isoformat() for name, value in fields.items() if isinstance(value, datetime)}
        return {"id": self.id, **fields, "tags": list(self.tags), **moments}

    def __repr__(self) -> str:
        text = repr(self.value) if isinstance(self.value, str | int | float | None) else brief(self.value, _SHOWN)
        value = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
        tags = f", tags={self.tags}" if self.tags else ""
        return f"MemoryRecord({self.key!r}, value={value}, version={self.version}{tags})"

    def _repr_html_(self) -> str:
        """Render for a notebook: the value, cut where it is long, and what is known of it."""
        text = self.value if isinstance(self.value, str) else json.dumps(self.value, ensure_ascii=False, indent=1)
        more = len(text) - _SHOWN_HTML
        body = visible(text[:_SHOWN_HTML], lines=True) + (f"\n… {more:,} more characters" if more > 0 else "")
        facts = (self.key, f"version {self.version}", " ".join(self.tags), f"{self.updated_at:%Y-%m-%d %H:%M:%S %Z}")
        foot = html_parts.footer(visible(" · ".join(filter(None, facts))))
        return f"<div>{html_parts.preformatted(body)}{foot}</div>"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MemoryRecord:
        """Build a record from what `to_dict` returned."""
        values = {**_ABSENT, **data}
        fields = {name: values[name] for name in STORED} | {"tags": tuple(values["tags"] or ())}
        moments = {name: _moment(values[name]) for name in ("created_at", "updated_at")}
        expires = _moment(values["expires_at"]) if values["expires_at"] else None
        return cls(**{**fields, **moments, "expires_at": expires, "version": int(values["version"])})


def escape_part(part: str) -> str:
    """Return a part of a namespaced id with ``%``, ``:`` and ``*`` escaped."""
    return part.translate(_ESCAPES)


def make_scope(
    agent_id: str, workflow_id: str | None = None, node_id: str | None = None, *, scope: str | None = "agent"
) -> Scope:
    """Return the scope of that name, made of the ids that it needs; `None` takes the narrowest level among the ids.

    Raises
    ------
    InvalidArguments
        The name is unknown, or the id that the level is about is missing or has odd characters.
    """
    for name, part in (("agent_id", agent_id), ("workflow_id", workflow_id), ("node_id", node_id)):
        if part is not None or name == "agent_id":
            check_key(part, Limits(), what=name)
    # A node's id means the node, so that the level need not be said a second time.
    scope = scope or ("node" if node_id else "workflow" if workflow_id else "agent")
    if scope == "agent":
        return Scope(agent_id=agent_id)
    if scope == "workflow":
        if workflow_id is None:
            raise InvalidArguments("The scope 'workflow' needs a workflow_id.", hint="pass workflow_id=…")
        return Scope(agent_id=agent_id, workflow_id=workflow_id)
    if scope == "node":
        if node_id is None:
            raise InvalidArguments("The scope 'node' needs a node_id.", hint="pass node_id=…")
        return Scope(agent_id=agent_id, workflow_id=workflow_id, node_id=node_id)
    raise InvalidArguments(f"There is no scope {scope!r}.", hint="use 'agent', 'workflow' or 'node'")


def check_count(number: Any, what: str) -> int | None:
    """Return a count of 0 or more, or `None`, if it is one of these."""
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidArguments(f"{what} is {number!r}, expected a whole number of 0 or more.")
    return number


def check_key(key: object, limits: Limits, *, what: str = "key") -> str:
    """Return the key, or another name, if it may be stored.

    Parameters
    ----------
    key
        The key.
    limits
        How long it may be.
    what
        What the name is called in errors.

    Raises
    ------
    InvalidArguments
        It is not a string, empty, not in Unicode's NFC form, or has control characters.
    LimitExceeded
        It is longer than the limit.
    """
    if not isinstance(key, str):
        raise InvalidArguments(f"The {what} is {key!r}, expected a string.", hint=f"pass {what} as a string")
    if not key:
        raise InvalidArguments(f"The {what} is empty.", hint="use at least one character")
    # Nearly every name is plain ASCII, and each read and write checks one: this answers in an eighth of the time.
    if not (key.isascii() and key.isprintable() and len(key) <= limits.key_bytes):
        _check_characters(key, what, limits.key_bytes)
    return key


def check_tags(tags: Iterable[str] | Keep | None, limits: Limits) -> tuple[str, ...] | None:
    """Return the tags without repetitions, in their order; `None` where the record's own are kept.

    Raises
    ------
    InvalidArguments
        A tag is not a proper name, or a bare string was given instead of a list.
    LimitExceeded
        There are too many, or one is too long.
    """
    if tags is None or tags is KEEP:
        return None
    # A text is iterable too, and would become a tag for each letter.
    if isinstance(tags, (str, bytes)) or not isinstance(tags, Iterable):
        raise InvalidArguments(f"The tags are {tags!r}, expected a list of strings.", hint=f"pass tags=[{tags!r}]")
    unique = tuple(dict.fromkeys(check_key(tag, limits, what="tag") for tag in tags))
    if len(unique) > limits.tags:
        raise LimitExceeded(f"There are {len(unique)} tags, at most {limits.tags} are allowed.", hint="use fewer tags")
    return unique


def check_ttl(ttl: object) -> float | None:
    """Return the time to live in seconds, 0 for ever, `None` where the record's own end is kept.

    Raises
    ------
    InvalidArguments
        It is not a number above zero, or longer than a hundred years.
    """
    if ttl is None:
        return 0.0
    if ttl is KEEP:
        return None
    # In Python `True` is a number, and would be a second.
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)):
        raise InvalidArguments(
            f"The ttl is {ttl!r}, expected a number of seconds.", hint="pass ttl=60 for a minute, or None for no end"
        )
    if not 0 < ttl <= _MAX_TTL:
        raise InvalidArguments(
            f"The ttl is {ttl!r} seconds, expected more than 0 and at most {_MAX_TTL:.0f}.",
            hint="pass ttl=None for a record without an end",
        )
    return float(ttl)


def ttl_of(word: float | Literal["never"] | None) -> float | Keep | None:
    """Return the time to live that `AgentMemory.write` takes for what a command, a magic or a tool was given.

    `None` is "not given" there, so that no end is said by a word.
    """
    if word is None:
        return KEEP
    return None if word == "never" else word


def tags_of(words: Iterable[str] | None) -> list[str] | None:
    """Return the tags that words of a line name, a comma between two or a space; `None` when none is given."""
    return None if words is None else [tag for word in words for tag in word.split(",") if tag]


class JsonText(str):
    """The JSON text of a value, as `encode_value` returns it; `AgentMemory.write` takes it in place of the value."""

    __slots__ = ()


def encode_value(value: Any, limits: Limits) -> JsonText:
    """Return the value as JSON text; such a text is returned as it is.

    Raises
    ------
    InvalidArguments
        Some part is not JSON; the message says which, as a path such as ``value.rows[3].when``.
    LimitExceeded
        The text is longer than the limit.
    """
    if isinstance(value, JsonText):
        return value
    # Encoded first and judged afterwards: nearly every value is JSON, and the walk that names a fault takes five times
    # as long as the encoder.
    try:
        text = _encode(value)
        size = len(text.encode())
    except (ValueError, TypeError, RecursionError) as exc:
        # Last what the walk cannot foresee: an integer of more digits than Python converts.
        raise _not_json_error(_find_fault(value) or str(exc)) from None
    # The encoder lets two things pass: names that are not strings, and any depth. A text has neither, and the count of
    # brackets is never less than the depth, so that only what might be too deep is walked through.
    if not isinstance(value, str) and (text.count("[") + text.count("{") > _MAX_DEPTH or not _has_plain_names(value)):
        fault = _find_fault(value)
        if fault:
            raise _not_json_error(fault)
    if size > limits.value_bytes:
        raise LimitExceeded(
            f"The value is {size:,} bytes as JSON, at most {limits.value_bytes:,} are allowed.",
            hint="write a file and keep its path, or split the value over several keys",
        )
    return JsonText(text)


def _moment(text: str | datetime) -> datetime:
    moment = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _check_characters(text: str, what: str, limit: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidArguments(
            f"The {what} {text!r} has a lone surrogate, which no text can hold.", hint="use whole characters"
        ) from None
    if size > limit:
        raise LimitExceeded(
            f"The {what} is {size:,} bytes long, at most {limit:,} are allowed.", hint="use a shorter name"
        )
    # A line break in a name would forge a line in listings and logs.
    for character in text:
        if unicodedata.category(character) in {"Cc", "Zl", "Zp"}:
            raise InvalidArguments(
                f"The {what} {text!r} has the control character U+{ord(character):04X}.", hint="leave it out"
            )
    # Two names that look the same would be two keys; which form was meant is not guessed.
    if not unicodedata.is_normalized("NFC", text):
        composed = unicodedata.normalize("NFC", text)
        raise InvalidArguments(
            f"The {what} {text!r} is not in Unicode's NFC form.", hint=f"use unicodedata.normalize: {composed!r}"
        )


def _not_json_error(fault: str) -> InvalidArguments:
    return InvalidArguments(f"The value is not JSON: {fault}.", hint="store numbers, strings, lists and dicts")


def _has_plain_names(value: Any) -> bool:
    """Return whether every name in a value is a `str`; the recursion is only for values of a limited depth."""
    # Not called for numbers and texts, which are nearly all of a large value: that call took most of the time.
    if isinstance(value, dict) and not all(type(name) is str for name in value):
        return False
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return all(_has_plain_names(item) for item in items if isinstance(item, (dict, list, tuple)))


def _find_fault(value: Any) -> str | None:
    """Return what is wrong with the first part that JSON cannot hold, walking without recursion."""
    # A separate stack, because what is nested too deeply is one of the faults that are looked for.
    todo: list[tuple[Any, str, int]] = [(value, "value", 0)]
    above: set[int] = set()
    while todo:
        part, path, depth = todo.pop()
        if depth == -1:  # The mark left behind a container: all of it was seen.
            above.discard(id(part))
            continue
        fault = _leaf_fault(part, path)
        if fault:
            return fault
        if not isinstance(part, (dict, list, tuple)) or not part:
            continue
        if id(part) in above:
            return f"{path} contains itself"
        if depth >= _MAX_DEPTH:
            return f"{path} is nested more than {_MAX_DEPTH} levels deep"
        above.add(id(part))
        todo.append((part, path, -1))
        if isinstance(part, dict):
            fault = _name_fault(part, path)
            if fault:
                return fault
            todo += [(item, f"{path}.{key}", depth + 1) for key, item in reversed(part.items())]
        else:
            todo += [(part[i], f"{path}[{i}]", depth + 1) for i in range(len(part) - 1, -1, -1)]
    return None


def _name_fault(part: Mapping[Any, Any], path: str) -> str | None:
    for key in part:
        if not isinstance(key, str):
            return f"a key of {path} is {key!r}, a {type(key).__name__}, not a string"
        if not _has_no_surrogate(key):
            return f"the key {key!r} of {path} has a lone surrogate"
    return None


def _leaf_fault(part: Any, path: str) -> str | None:
    if part is None or isinstance(part, (bool, int, dict, list, tuple)):
        return None
    if isinstance(part, float):
        return None if math.isfinite(part) else f"{path} is {part!r}"
    if isinstance(part, str):
        return None if _has_no_surrogate(part) else f"{path} has a lone surrogate"
    with contextlib.suppress(TypeError):
        return _find_fault(_of_numpy(part))
    name = type(part).__name__
    return f"{path} is a {name}{f': {_WAYS[name]}' if name in _WAYS else ''}"


def _has_no_surrogate(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
