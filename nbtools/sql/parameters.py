"""Parameters: values are bound, never pasted.

People write ``:name``, ``$name``, ``?`` or ``$1``; each engine knows one or two of these. `bind` finds the
placeholders outside quotes and comments, checks that values and placeholders agree, and writes the engine's own form.
Whatever else the text holds stays as it is: ``a::int``, ``list[1:n]`` and ``{'key':value}`` are not placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from nbtools.errors import InvalidArguments, nearest
from nbtools.texts.visible import counted

Style = Literal["dollar", "numbered", "colon"]

# What must be skipped whole. A quote that is never closed swallows the rest: the engine will say so.
_SKIP = (
    r"--[^\n]*",
    r"/\*.*?(?:\*/|\Z)",
    r"\b[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)",
    r"'(?:[^']|'')*(?:'|\Z)",
    r'"(?:[^"]|"")*(?:"|\Z)',
    r"`[^`]*(?:`|\Z)",
    r"\$(?P<tag>[A-Za-z_]\w*)?\$.*?(?:\$(?P=tag)\$|\Z)",
    r"\$\$.*?(?:\$\$|\Z)",
)
# A colon counts only where a value could stand: not after a name, a number, a bracket, a quote or another colon.
_NAMED = r"(?<![\w:\]\)'\"])(?P<mark>[:$])(?P<name>[A-Za-z_]\w*)"
# SQLite writes ?1 where others write $1.
_COUNTED = r"(?:\?|(?<![\w$])\$)(?P<number>\d+)|(?P<question>\?)"
# The tagged dollar quote comes last: its pattern would take $$ for the empty tag.
_SKIPPED = "|".join(f"(?:{part})" for part in (_SKIP[0], _SKIP[1], *_SKIP[2:6], _SKIP[7], _SKIP[6]))
_NAMES = re.compile(f"(?P<skip>{_SKIPPED})|{_NAMED}", re.DOTALL)
_POSITIONS = re.compile(f"(?P<skip>{_SKIPPED})|{_COUNTED}", re.DOTALL)


def bind(
    sql: str, values: Mapping[str, Any] | Sequence[Any] | None, style: Style
) -> tuple[str, dict[str, Any] | list[Any] | None]:
    """Return the text with the engine's placeholders, and the values in the form the engine takes.

    Parameters
    ----------
    sql
        The text as it was written.
    values
        By name (``:name``, ``$name``), or by position (``?``, ``$1``); `None` for no parameters.
    style
        ``"dollar"`` keeps names as ``$name`` and positions as ``$1``; ``"numbered"`` turns all into ``$1`` and a
        list; ``"colon"`` turns all into ``:name`` and a dictionary.

    Raises
    ------
    InvalidArguments
        A placeholder has no value, or a value no placeholder.

    Examples
    --------
    >>> bind("select :day::date, ':day'", {"day": "2024-01-01"}, "dollar")
    ("select $day::date, ':day'", {'day': '2024-01-01'})
    """
    if values is None:
        return sql, None
    if isinstance(values, Mapping):
        return _by_name(sql, {str(name): _unwrap_numpy(value) for name, value in values.items()}, style)
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidArguments(
            f"parameters are {type(values).__name__}, neither a dictionary nor a list.",
            hint="Pass params={'name': value} for :name, or params=[value, …] for ?.",
        )
    return _by_position(sql, [_unwrap_numpy(value) for value in values], style)


def placeholders(sql: str) -> tuple[str, ...]:
    """Return the names after ``:`` or ``$`` that may be placeholders, in order of appearance.

    Examples
    --------
    >>> placeholders("select :day::date, ':no', $limit -- :nor this")
    ('day', 'limit')
    """
    matches = (match for match in _NAMES.finditer(sql) if match["name"] is not None)
    names_kept = (match for match in matches if not (match["mark"] == ":" and _is_slice(sql, match.start())))
    return tuple(dict.fromkeys(match["name"] for match in names_kept))


def name_without_value(sql: str, values: Mapping[str, Any] | Sequence[Any] | None) -> str | None:
    """Return the first name that may be a placeholder and has no value, `None` where values go by position.

    Examples
    --------
    >>> name_without_value("select :day, :month", {"day": 1})
    'month'
    """
    if values is not None and not isinstance(values, Mapping):
        return None
    return next((name for name in placeholders(sql) if name not in (values or {})), None)


def _unwrap_numpy(value: Any) -> Any:
    """Turn a numpy scalar into the Python one: drivers know only these."""
    return value.item() if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () else value


def _is_slice(sql: str, at: int) -> bool:
    """Tell whether the colon at `at` opens the slice of a list, as in ``items[:n]``."""
    before = sql[:at].rstrip()
    if not before.endswith("["):
        return False
    return re.search(r"[\w\]\)\"']\s*\[\Z", before) is not None


def _by_name(sql: str, values: dict[str, Any], style: Style) -> tuple[str, dict[str, Any] | list[Any]]:
    order: dict[str, int] = {}
    unknown: list[str] = []

    def write(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None or (match["mark"] == ":" and (name not in values or _is_slice(sql, match.start()))):
            # An unknown :name may be something else; if it was meant as a parameter, the engine's parser points at it.
            return match[0]
        if name not in values:
            unknown.append(name)
            return match[0]
        position = order.setdefault(name, len(order) + 1)
        return {"dollar": f"${name}", "numbered": f"${position}", "colon": f":{name}"}[style]

    text = _NAMES.sub(write, sql)
    unused = [name for name in values if name not in order]
    if unknown or unused:
        raise _disagreement(unknown, unused, values)
    if style == "numbered":
        return text, [values[name] for name in order]
    return text, values


def _disagreement(unknown: list[str], unused: list[str], values: Mapping[str, Any]) -> InvalidArguments:
    parts = []
    if unknown:
        parts.append(f"no value is given for {', '.join('$' + name for name in dict.fromkeys(unknown))}")
    if unused:
        parts.append(f"the text does not use {', '.join(':' + name for name in unused)}")
    close = nearest(unknown[0], values) if unknown else None
    hint = f"Did you mean :{close}?" if close else "Every placeholder needs a value, and every value a placeholder."
    return InvalidArguments("; ".join(parts) + ".", hint=hint)


def _by_position(sql: str, values: list[Any], style: Style) -> tuple[str, dict[str, Any] | list[Any]]:
    used: set[int] = set()
    count = 0

    def write(match: re.Match[str]) -> str:
        nonlocal count
        if match["skip"] is not None:
            return match[0]
        if match["question"]:
            count += 1
        position = count if match["question"] else int(match["number"])
        used.add(position)
        return f":p{position}" if style == "colon" else f"${position}"

    text = _POSITIONS.sub(write, sql)
    if used != set(range(1, len(values) + 1)):
        raise InvalidArguments(
            f"the text has {counted(len(used), 'placeholder')}, and was given {counted(len(values), 'value')}.",
            hint="Give one value for each ? (or for $1, $2, …), in order.",
        )
    if style == "colon":
        return text, {f"p{index}": value for index, value in enumerate(values, 1)}
    return text, values
