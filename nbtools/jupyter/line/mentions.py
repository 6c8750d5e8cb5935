"""What ``@name`` in a prompt stands for: a variable, the last error, the cell before, or what a cell gave."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Sized
from typing import TYPE_CHECKING, Any

from nbtools.errors import InvalidArguments, did_you_mean

if TYPE_CHECKING:
    from nbtools.agent.sharing import Sharing

__all__ = ["mentioned"]

_MENTION = re.compile(r"(?<![\w@.])@([A-Za-z_]\w*)(?:\[(\d+)\])?")
_MOST = 8_000


def mentioned(prompt: str, shell: Any, sharing: Sharing) -> str:
    """Return what a prompt mentions by ``@``, as far as the level of sharing allows; nothing when it mentions nothing.

    Raises
    ------
    InvalidArguments
        There is no such name in the notebook.
    """
    found = dict.fromkeys((match[0], match[1], match[2]) for match in _MENTION.finditer(prompt))
    return "\n\n".join(f"{whole} is {_told(name, number, shell, sharing)}" for whole, name, number in found)


def _told(name: str, number: str | None, shell: Any, sharing: Sharing) -> str:
    namespace = shell.user_ns
    if name == "error" and name not in namespace:
        return _error(sharing)
    if name == "cell" and name not in namespace:  # the person's own words, whatever the level
        return f"this code:\n{namespace.get('In', ['', ''])[-2:][0]}"
    if name == "out" and number is not None and int(number) in namespace.get("Out", {}):
        return _described(namespace["Out"][int(number)], sharing)
    if name not in namespace:
        known = [key for key in namespace if not key.startswith("_")]
        told = did_you_mean(name, known, "@error, @cell and @out[3] are there too; @@ means nothing.")
        raise InvalidArguments(f"there is no {name!r} in the notebook.", hint=told, tried="reading the prompt")
    return _described(namespace[name], sharing)


def _error(sharing: Sharing) -> str:
    error = getattr(sys, "last_value", None)
    if error is None:
        return "no error: none has happened yet"
    if sharing.level == "values":
        return "this error:\n" + "".join(traceback.format_exception(error))[-_MOST:]
    places = [f"line {frame.lineno} in {frame.name}" for frame in traceback.extract_tb(error.__traceback__)[-5:]]
    return f"a {type(error).__name__}, raised at {', '.join(places)}; its message may hold values and is not shared"


def _described(value: Any, sharing: Sharing) -> str:
    """Return kind and shape of a value and, where the level allows, its beginning or all of it."""
    kind = type(value).__name__
    columns = getattr(value, "columns", None)
    dtypes = getattr(value, "dtypes", None)
    if columns is not None and dtypes is not None and hasattr(value, "shape"):
        named = ", ".join(f"{column}: {dtype}" for column, dtype in zip(columns, dtypes, strict=False))
        told, rows = f"a {kind} of {value.shape[0]:,} rows with the columns {named}", value.head(sharing.rows)
    else:
        shape = getattr(value, "shape", None)
        size = f" of shape {shape}" if shape is not None else f" of {len(value):,}" if isinstance(value, Sized) else ""
        told, rows = f"a {kind}{size}", "\n".join(str(value).splitlines()[: sharing.rows])[:_MOST]
    if sharing.level == "schema":
        return told
    return f"{told}:\n{str(rows if sharing.level == 'sample' else value)[:_MOST]}"
