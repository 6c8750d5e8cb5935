"""What ``@name`` in a prompt stands for: a variable, the last error, the cells before, or what a cell gave."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sized
from typing import TYPE_CHECKING, Any

from nbtools.errors import InvalidArguments, NbtoolsError, did_you_mean
from nbtools.texts.redaction import conceal

if TYPE_CHECKING:
    from nbtools.agent.sharing import Sharing

_MENTION = re.compile(r"(?<![\w@.])@([A-Za-z_]\w*)(?:\[(\d+)\])?")
_MOST = 8_000
_CELLS = 20
_OURS = ("error", "cell", "history", "out")
_PLAIN = (str, bool, int, float, list, tuple, dict)


def mentioned(prompt: str, shell: Any, sharing: Sharing, see: Callable[[Any], object] = id) -> str:
    """Return what a prompt mentions by ``@``, as far as the level of sharing allows; nothing when it mentions nothing.

    Parameters
    ----------
    prompt
        The prompt, as it was written.
    shell
        The IPython shell in which it was written.
    sharing
        What the model may see.
    see
        Gets each value that is mentioned.

    Raises
    ------
    InvalidArguments
        There is no such name in the notebook.
    """

    def text_of(name: str, number: str | None) -> str:
        is_variable = name in shell.user_ns and (number is None or name not in _OURS)
        if not is_variable and name in {"cell", "history"}:  # the person's own words, whatever the level
            return _code(shell, 1 if name == "cell" else int(number or _CELLS))
        value = shell.user_ns[name] if is_variable else _value_of(name, number, shell)
        see(value)
        return _error(value, sharing) if name == "error" and not is_variable else _described(value, sharing)

    mentions = dict.fromkeys((match[0], match[1], match[2]) for match in _MENTION.finditer(prompt))
    return "\n\n".join(f"{whole} is {text_of(name, number)}" for whole, name, number in mentions)


def _value_of(name: str, number: str | None, shell: Any) -> Any:
    """Return what a name stands for that is not a variable."""
    namespace = shell.user_ns
    if name == "error":
        return getattr(sys, "last_value", None)
    if name == "out":
        return _output(namespace.get("Out", {}), number)
    names = [*_OURS, *(key for key in namespace if not key.startswith("_"))]
    hint = did_you_mean(name, names, "@error, @cell, @history and @out[3] work too; @@name is plain text.")
    raise InvalidArguments(f"there is no {name!r} in the notebook.", hint=hint)


def _code(shell: Any, most: int) -> str:
    """Return the code of the last cells before this one, the oldest first; the newest stay where it is too long."""
    # As they were typed: a magic stands in `In` as the call that it becomes.
    typed = shell.history_manager.input_hist_raw if shell.history_manager is not None else ()
    cells = list(enumerate(typed))[1:-1][-most:] if most else []
    source_text = "\n\n".join(f"# cell {number}\n{source}" for number, source in cells)
    whole = conceal(source_text)
    cut = f"[… {len(whole) - _MOST:,} characters before are left out]\n" if len(whole) > _MOST else ""
    return f"this code:\n{cut}{whole[-_MOST:]}" if cells else "no code: this is the first cell"


def _output(outputs: Mapping[int, Any], number: str | None) -> Any:
    if number is not None and int(number) in outputs:
        return outputs[int(number)]
    message = "@out is the output of a cell." if number is None else f"cell {number} has no output."
    outputs_there = ", ".join(f"@out[{n}]" for n in list(outputs)[-10:])
    raise InvalidArguments(message, hint=f"Use {outputs_there or 'a name'}.")


def _error(error: BaseException | None, sharing: Sharing) -> str:
    if error is None:
        return "no error: none has happened yet"
    if sharing.level == "values":
        # How ours came about is of no use to their readers.
        lines = error.three_lines() if isinstance(error, NbtoolsError) else traceback.format_exception(error)
        return "this error:\n" + str(conceal("\n".join(line.rstrip("\n") for line in lines)))[-_MOST:]
    places = [f"line {frame.lineno} in {frame.name}" for frame in traceback.extract_tb(error.__traceback__)[-5:]]
    return f"a {type(error).__name__}, raised at {', '.join(places)}; its message may hold values and is not shared"


def _described(value: Any, sharing: Sharing) -> str:
    """Return kind and shape of a value and, where the level allows, its beginning or all of it."""
    kind = type(value).__name__
    columns = getattr(value, "columns", None)
    dtypes = getattr(value, "dtypes", None)
    if columns is not None and dtypes is not None and hasattr(value, "shape"):
        kinds = (re.sub(r"\W.*", "", str(dtype), flags=re.DOTALL) for dtype in dtypes)  # some name values of theirs
        named = ", ".join(f"{column}: {dtype}" for column, dtype in zip(columns, kinds, strict=False))
        text, rows = f"a {kind} of {value.shape[0]:,} rows with the columns {named}", value.head(sharing.rows)
    else:
        shape = getattr(value, "shape", None)
        size = f" of shape {shape}" if shape is not None else f" of {len(value):,}" if isinstance(value, Sized) else ""
        text, rows = f"a {kind}{size}", sharing.shape(value if isinstance(value, _PLAIN) else str(value))
    if sharing.level == "schema":
        return text
    return f"{text}:\n{str(rows if sharing.level == 'sample' else value)[:_MOST]}"
