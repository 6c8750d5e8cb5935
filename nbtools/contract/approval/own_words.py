"""What of a prompt its person has said: what stands in the code that asks, for a prompt that comes by Python.

A prompt may be built from a file, and the file may name a host as well as its person does. Faces into which someone
types say so; of a prompt that comes by Python it is known what was typed: the texts in the code of the frames that
lead here, in the cells of the notebook, and in the command. Whatever else is in it is a value.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import linecache
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

from nbtools.contract.label import SEEN_NOW, UNLABELLED, Label

_MOST_CELLS = 500
_SMALL_NUMBER = dis.opmap.get("LOAD_SMALL_INT")
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


def typed_in(prompt: str, words: str | None = None) -> tuple[str, Label]:
    """Return what of a prompt was typed, and the label of the rest: where something was filled in, values may be.

    Parameters
    ----------
    prompt
        What a model is asked.
    words
        What a person has said of it; `None` looks at the code that asks.
    """
    own = {text for text in (_texts() if words is None else _lines([words])) if text in prompt}
    is_whole = prompt in own or all(line.strip() in own for line in prompt.splitlines() if line.strip())
    return "\n".join(sorted(own)), UNLABELLED if is_whole else Label(private=True)


def label_of_values(values: Any) -> Label:
    """Return the label of values that code hands on, such as inputs of a workflow: what was typed whole has none."""
    if SEEN_NOW.get() is not None:
        return UNLABELLED  # the words of a model, whose call has a label
    typed = "\0".join(_texts())
    return UNLABELLED if all(_stands_in(typed, text) for text in _leaves(values)) else Label(private=True)


def _stands_in(typed: str, text: str) -> bool:
    """Tell whether a text stands in what was typed as whole words: 23 is no part of 1,234."""
    return re.search(rf"(?<!\w)(?<!\d[.,]){re.escape(text)}(?!\w|[.,]\d)", typed) is not None


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping | list | tuple):
        for item in [*value.keys(), *value.values()] if isinstance(value, Mapping) else value:
            yield from _leaves(item)
    elif text := "" if value is None else str(value):
        yield text


def _texts() -> Iterator[str]:
    yield from sys.argv[1:]
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - only frames know the code that asks
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith("nbtools."):
            yield from _in_code(frame.f_code)
            yield from _in_file(frame.f_code.co_filename)
        frame = frame.f_back
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    for cell in getattr(shell, "user_ns", {}).get("In", ())[-_MOST_CELLS:]:
        yield from _in_cell(str(cell))


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts, and their lines: a text may have been dedented on the way."""
    for text in texts:
        yield text
        yield from (line.strip() for line in text.splitlines())


def _constants(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str | int | float):
            yield str(value)
        elif isinstance(value, tuple | frozenset):
            yield from _constants(value)
        elif isinstance(value, CodeType):
            yield from _constants(value.co_consts)
            # From Python 3.14 on small numbers stand in the instructions, which are pairs of bytes.
            pairs = () if _SMALL_NUMBER is None else zip(*[iter(value.co_code)] * 2, strict=True)
            yield from (str(number) for operation, number in pairs if operation == _SMALL_NUMBER)


def _in_file(name: str) -> tuple[str, ...]:
    """Return the texts in a file of the person's own: packages ask nothing in their name."""
    is_installed = any(name.startswith(prefix) for prefix in _INSTALLED)
    return () if is_installed else _in_cell("".join(linecache.getlines(name)))


@functools.lru_cache(maxsize=2 * _MOST_CELLS)
def _in_cell(source: str) -> tuple[str, ...]:
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        return _in_code(compile(source, "<typed>", "exec", dont_inherit=True))
    return ()


@functools.lru_cache(maxsize=2 * _MOST_CELLS)
def _in_code(code: CodeType) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_lines(_constants([code]))))
