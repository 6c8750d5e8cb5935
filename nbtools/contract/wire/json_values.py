"""JSON values: what a tool returned, counted while it is copied and never guessed at, and what is nested in values."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from nbtools.errors import InternalError, LimitExceeded

# Python writes no integer of more than 4,300 digits unless it is told to.
_MAX_INT_BITS = 14_000
_MAX_DEPTH = 200
_SHOWN_STEPS = 8
# Where in a result something is: the place around it, and the step from there; `None` is the result itself.
_Place: TypeAlias = "tuple[_Place, str] | None"


_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})


def find_nested(
    value: Any, is_wanted: Callable[[Any], bool], loc: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield what is wanted of a value and of all that is nested in it, with the keys and indices that lead there.

    Parameters
    ----------
    value
        Mappings, lists, tuples and sets of values at any depth.
    is_wanted
        Tells what is yielded; nothing is looked for inside of that.
    loc
        The keys and indices that lead to `value`.
    """
    todo = [(loc, value)]
    while todo:
        steps, one = todo.pop()
        if is_wanted(one):
            yield steps, one
        # Most values are texts and numbers, and the question for a mapping is slow where the answer is no.
        elif type(one) not in _PLAIN and isinstance(one, dict | list | tuple | set | frozenset | Mapping):
            items = one.items() if isinstance(one, Mapping) else enumerate(one)
            todo += reversed([((*steps, step), item) for step, item in items])


def is_text(value: Any) -> bool:
    """Tell whether a value is a text."""
    return isinstance(value, str)


def replace_nested(value: Any, change: Callable[[Any], Any], *, names: bool = False) -> Any:
    """Return a value in which what is nested in it was replaced.

    Parameters
    ----------
    value
        Mappings, lists and tuples of values at any depth; the last two come back as lists.
    change
        Takes the value, and then what is nested in it; where it returns just what it took, the search goes on inside.
    names
        Whether the names of mappings are changed too.
    """
    output = change(value)
    if output is not value:
        return output
    if isinstance(value, Mapping):
        return {
            change(name) if names else name: replace_nested(item, change, names=names) for name, item in value.items()
        }
    return [replace_nested(item, change, names=names) for item in value] if isinstance(value, list | tuple) else value


@dataclasses.dataclass(slots=True)
class JsonValues:
    """Makes JSON of what a tool returned: containers copied, frames, arrays, dates and records made plain.

    Parameters
    ----------
    limit
        Characters that it may have as JSON, escapes not counted; counted while it is copied, because what is a hundred
        times too large must not be copied first.

    Attributes
    ----------
    used
        Characters so far.
    note
        What a reader of the JSON has to know: that numbers became null; empty where all are as they were.
    """

    limit: int
    used: int = 0
    note: str = ""

    def of(self, value: Any, path: _Place = None, depth: int = 0) -> Any:
        """Return a value as JSON.

        Raises
        ------
        InternalError
            Some part of it is not JSON; the message says which.
        LimitExceeded
            It is too large.
        """
        self.used += 2 + (len(value) if isinstance(value, str) else 0)
        if self.used > self.limit:
            raise too_large(f"more than {self.limit:,}", self.limit)
        if value is None or isinstance(value, str | bool):
            return value
        if isinstance(value, int | float):
            if isinstance(value, int) and value.bit_length() > _MAX_INT_BITS:
                raise _no_json(path, f"an integer of {value.bit_length():,} bits")
            self.used += len(str(value))
            if isinstance(value, int) or math.isfinite(value):
                return value
            # JSON has neither; null is how frames write a missing number.
            self.note = "NaN and infinity are null"
            return None
        if depth > _MAX_DEPTH:
            raise _no_json(path, f"nested more than {_MAX_DEPTH} levels deep")
        if isinstance(value, Mapping):
            names = [str(key) for key in value]
            self.used += sum(map(len, names))
            items = zip(names, value.values(), strict=True)
            return {name: self.of(item, (path, f".{name}"), depth + 1) for name, item in items}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.of(item, (path, f"[{i}]"), depth + 1) for i, item in enumerate(value)]
        simple = _as_plain(value)
        if simple is value:
            raise _no_json(path, f"a {type(value).__name__}")
        return self.of(simple, path, depth + 1)


def _no_json(path: _Place, what: str) -> InternalError:
    steps: list[str] = []
    while path is not None and len(steps) < _SHOWN_STEPS:
        path, step = path
        steps.append(step)
    whole = f"result{''.join(reversed(steps))}" if path is None else f"result…{''.join(reversed(steps))}"
    return InternalError(
        f"{whole} is {what}, which is not JSON.", hint="Return dicts, lists, text, numbers, booleans or None."
    )


def too_large(size: str, allowed: int, text: str = "") -> LimitExceeded:
    """Return the error for an output of more bytes than are allowed."""
    return LimitExceeded(
        f"the output has {size} bytes; {allowed:,} are allowed.",
        hint="Return less: a summary, fewer rows, or a file.",
        data={"text": text[:2_000]},
    )


def _as_plain(value: Any) -> Any:
    """Return a well-known object in plain values, or the object itself when it is not known."""
    module = type(value).__module__.partition(".")[0]
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, enum.Enum):
        return value.value
    if module == "decimal":
        return float(value)
    # Looked up on the class: the columns of a frame and the labels of a series look like their own attributes.
    kind = type(value)
    if hasattr(kind, "iloc"):
        return kind.to_dict(value, "records") if hasattr(kind, "columns") else kind.to_dict(value)
    for method in ("model_dump", "to_dicts", "tolist", "isoformat"):  # pydantic, polars, numpy, dates
        if hasattr(kind, method):
            return getattr(kind, method)(value)
    return value
