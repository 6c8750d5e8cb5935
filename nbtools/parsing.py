"""Texts to JSON values: JSON and YAML, with the place of a mistake, and with bounds that a hostile text cannot pass.

Both parsers can be bombed: by nesting (their recursion is C code in part), by numbers with a million digits, and YAML
by aliases, each of which stands for all that its anchor holds. So nesting and size are measured before anything is
built: by a scan for JSON, by the event stream for YAML, where an alias counts for what it stands for.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from nbtools.errors import LimitExceeded, NbtoolsError, ParseError

__all__ = ["from_json", "from_yaml"]

# Line and column, counted from 1.
_Place = tuple[int, int]

_MAX_DEPTH = 100
_MAX_JSON, _MAX_YAML = 10_000_000, 1_000_000
_MAX_NODES = 200_000
_MAX_DIGITS = 4_000
_DEEP = f"nested more than {_MAX_DEPTH} levels deep"
# Strings are skipped whole, so that brackets inside them do not count.
_COLON = re.compile(r"\s*:")
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def from_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    ParseError
        It is no JSON; message and ``data`` tell line and column.
    LimitExceeded
        It has more than 10,000,000 characters, 100 levels or 4,000 digits in a number.
    """
    _check_length(text, _MAX_JSON, "JSON")
    text = text.removeprefix("\ufeff")
    depth = 0
    for found in _TOKENS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > _MAX_DEPTH:
            raise _limit_error(_DEEP, _position(text, found.start()))

    def constant(token: str) -> NoReturn:
        raise _parse_error(f"{token} is no JSON value", _outside_strings(text, token))

    def decimal(token: str) -> float:
        value = float(token)
        if math.isinf(value):
            raise _parse_error(f"the number {token[:40]} is too large", _outside_strings(text, token))
        return value

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            key, at = _repeated_key(text)
            raise _parse_error(f"the key {key[:60]!r} stands twice", _position(text, at))
        return made

    try:
        made = json.loads(
            text, parse_constant=constant, parse_float=decimal, parse_int=_parse_int, object_pairs_hook=unique
        )
    except json.JSONDecodeError as exc:
        raise _parse_error(exc.msg.removesuffix(" at"), (exc.lineno, exc.colno)) from None
    return _check_encodable(made, text)


def _repeated_key(text: str) -> tuple[str, int]:
    """Return the first key that its object has already, and where it stands; there is one."""
    open_objects: list[set[str]] = []
    for found in _TOKENS.finditer(text):
        part = found[0]
        if part in {"[", "{"}:
            open_objects.append(set())
        elif part in {"]", "}"}:
            open_objects.pop()
        elif _COLON.match(text, found.end()):
            key = json.loads(part)
            if key in open_objects[-1]:
                return key, found.start()
            open_objects[-1].add(key)
    return "", 0


def _parse_int(token: str) -> int:
    if len(token) > _MAX_DIGITS:
        raise LimitExceeded(f"a number has {len(token):,} digits; {_MAX_DIGITS:,} are allowed.")
    return int(token)


def _outside_strings(text: str, token: str) -> _Place:
    """Return where a token stands, strings passed over."""
    plain = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<token>' + re.escape(token) + ")", re.DOTALL)
    return _position(text, next((found.start() for found in plain.finditer(text) if found["token"]), 0))


def _check_encodable(made: Any, text: str) -> Any:
    """Return a value that can be written as UTF-8: an escape such as ``ud800`` may stand for half a character."""
    found = re.search(r"\\u[dD][89a-fA-F]", text)
    if found is None:
        return made
    try:
        json.dumps(made, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _parse_error(
            "an escape stands for half a character (a lone surrogate)", _position(text, found.start())
        ) from None
    return made


def _position(text: str, position: int) -> _Place:
    return text.count("\n", 0, position) + 1, position - (text.rfind("\n", 0, position) + 1) + 1


def _mark_position(mark: Any) -> _Place:
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


def _parse_error(problem: str, place: _Place, hint: str | None = None) -> ParseError:
    line, column = place
    return ParseError(f"line {line}, column {column}: {problem}.", hint=hint, data={"line": line, "column": column})


def _limit_error(problem: str, place: _Place) -> LimitExceeded:
    line, column = place
    return LimitExceeded(f"line {line}, column {column}: {problem}.", data={"line": line, "column": column})


def _check_length(text: str, most: int, what: str) -> None:
    if len(text) > most:
        raise LimitExceeded(f"the text has {len(text):,} characters; {most:,} are allowed for {what}.")


def from_yaml(text: str) -> Any:
    """Return the value of a YAML text as JSON values: dates become ISO text, binary becomes Base64, keys become text.

    YAML 1.1 is read, by the safe loader: no tag makes anything but plain values.

    Raises
    ------
    ParseError
        It is no YAML, has a tag of its own, or several documents; message and ``data`` tell line and column.
    LimitExceeded
        It has more than 1,000,000 characters, 100 levels, 200,000 values (aliases counted for what they stand for) or
        4,000 digits in a number.
    """
    import yaml

    _check_length(text, _MAX_YAML, "YAML")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_size(yaml.parse(text, Loader=loader))
        made = yaml.load(text, Loader=_limited_loader(loader))  # noqa: S506 - a subclass of the safe loader
    except yaml.MarkedYAMLError as exc:
        # The scanner reads ahead, and gives up on depth before the events of it were seen; it has no class for that.
        if exc.problem == "exceeded maximum nesting depth":
            raise _limit_error(_DEEP, _mark_position(exc.problem_mark)) from None
        raise _parse_error(
            _yaml_problem(exc), _mark_position(exc.problem_mark or exc.context_mark), _hint(exc)
        ) from None
    except yaml.reader.ReaderError as exc:
        character = chr(exc.character) if isinstance(exc.character, int) else exc.character
        raise _parse_error(f"the character {character!r} is not allowed", _position(text, exc.position)) from None
    except UnicodeEncodeError as exc:
        raise _parse_error("half a character (a lone surrogate)", _position(text, exc.start)) from None
    return _as_json(made)


def _yaml_problem(exc: Any) -> str:
    return ", ".join(part for part in (exc.context, exc.problem) if part) or "this is no YAML"


def _hint(exc: Any) -> str | None:
    problem = f"{exc.context} {exc.problem}"
    if "could not determine a constructor" in problem:
        return "Only plain values are read: remove the tag (!…)."
    if "expected a single document" in problem:
        return "Give one document at a time: --- starts another."
    return None


@dataclasses.dataclass(kw_only=True)
class _Open:
    """A list or mapping whose end has not been seen yet."""

    anchor: str | None
    before: int
    keys: set[str] | None
    nodes: int = 0

    def take(self, event: Any) -> None:
        """Note a node that stands in it.

        Raises
        ------
        ParseError
            It is a key that stands twice: the loader would silently drop the first.
        """
        self.nodes += 1
        key = getattr(event, "value", None)
        if self.keys is None or self.nodes % 2 == 0 or key is None or key == "<<":
            return
        if key in self.keys:
            raise _parse_error(f"the key {key[:60]!r} stands twice", _mark_position(event.start_mark))
        self.keys.add(key)


def _check_size(events: Iterator[Any]) -> None:
    """Count the nodes of an event stream, and its depth, before anything is built of it."""
    sizes: dict[str | None, int | None] = {}
    stack: list[_Open] = []
    total = 0
    for event in events:
        kind = type(event).__name__
        if kind in {"SequenceEndEvent", "MappingEndEvent"}:
            ended = stack.pop()
            sizes[ended.anchor] = total - ended.before
            continue
        if not kind.startswith(("Alias", "Scalar", "Sequence", "Mapping")):
            continue
        if stack:
            stack[-1].take(event)
        if kind == "AliasEvent":
            size = sizes.get(event.anchor, 1)
            if size is None:
                raise _parse_error(f"*{event.anchor} contains itself", _mark_position(event.start_mark))
            total += size
        else:
            total += 1
            sizes[event.anchor] = 1 if kind == "ScalarEvent" else None
        if kind in {"SequenceStartEvent", "MappingStartEvent"}:
            keys = set[str]() if kind.startswith("Mapping") else None
            stack.append(_Open(anchor=event.anchor, before=total - 1, keys=keys))
        if len(stack) > _MAX_DEPTH:
            raise _limit_error(_DEEP, _mark_position(event.start_mark))
        if total > _MAX_NODES:
            many = f"more than {_MAX_NODES:,} values, aliases counted for what they stand for"
            raise _limit_error(many, _mark_position(event.start_mark))


def _limited_loader(loader: Any) -> Any:
    """Return a safe loader that places every mistake, makes text of keys, and computes no endless numbers.

    YAML 1.1 has numbers to the base 60 (``1:1:1:…``), whose cost grows with the square of their length. Keys become
    text at once, because to a dict ``1`` and ``true`` are the same key.
    """
    import yaml

    class Bounded(loader):  # type: ignore[misc]  # the base is chosen at run time
        def construct_object(self, node: Any, deep: bool = False) -> Any:
            if isinstance(node.value, str) and len(node.value) > _MAX_DIGITS and node.tag.endswith((":int", ":float")):
                raise _limit_error(f"a number has more than {_MAX_DIGITS:,} digits", _mark_position(node.start_mark))
            try:
                return super().construct_object(node, deep=deep)
            except (ValueError, LookupError, AttributeError, OverflowError) as exc:
                if isinstance(exc, NbtoolsError):
                    raise
                kind = node.tag.rpartition(":")[2]
                told = f"{str(node.value)[:40]!r} is no {kind}"
                raise yaml.constructor.ConstructorError(None, None, told, node.start_mark) from None

        def flatten_mapping(self, node: Any) -> None:
            node.value = _with_merged(node)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
            if not isinstance(node, yaml.MappingNode):
                raise yaml.constructor.ConstructorError(None, None, "this is no mapping", node.start_mark)
            self.flatten_mapping(node)
            return {
                _as_key(self.construct_object(key, deep=True)): self.construct_object(value, deep=deep)
                for key, value in node.value
            }

    return Bounded


def _with_merged(node: Any) -> list[tuple[Any, Any]]:
    """Return the pairs of a mapping's node behind those that ``<<`` merges: of equal keys the last one holds.

    PyYAML 6.0.4 itself drops a pair when a mapping that was merged earlier has the same key of one character: all such
    texts are one object, and it compares identities.
    """
    import yaml

    merged: list[tuple[Any, Any]] = []
    own = []
    for key, value in node.value:
        if key.tag != "tag:yaml.org,2002:merge":
            own.append((key, value))
            continue
        for source in reversed(value.value if isinstance(value, yaml.SequenceNode) else [value]):
            if not isinstance(source, yaml.MappingNode):
                told = f"expected a mapping or list of mappings for merging, but found {source.id}"
                raise yaml.constructor.ConstructorError(None, None, told, source.start_mark)
            merged += _with_merged(source)
    return merged + own


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_as_json(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return value


def _as_key(key: Any) -> str:
    if isinstance(key, str):
        return key
    plain = _as_json(key)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
