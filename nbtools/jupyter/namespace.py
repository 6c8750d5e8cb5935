"""What a notebook holds: each variable with its type, its shape, its memory and the cell that made it."""

from __future__ import annotations

import ast
import re
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nbtools.jupyter.display.blocks import size
from nbtools.texts.python_tree import parse_python
from nbtools.texts.redaction import conceal, redact
from nbtools.texts.visible import brief, counted

if TYPE_CHECKING:
    from nbtools.agent.sharing import Sharing

# A token is about four characters: 15,000 of them, less the last line.
_MOST = 4 * 15_000 - 2_000
_COLUMNS = 30
_PLAIN = (str, bytes, bytearray, list, tuple, dict, set, frozenset, range)
_SCALARS = (bool, int, float, complex, str, type(None))


class NotebookLook:
    """Looks at the variables of a notebook for one conversation: the first time at all, later at what has changed.

    Parameters
    ----------
    shell
        The IPython shell.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._seen: dict[str, str] | None = None
        self._names_set: dict[int, frozenset[str]] = {}

    def __call__(self, sharing: Sharing, names: Sequence[str] | None = None) -> str:
        """Return a line for each variable, those of the newest cells first, as far as the level of sharing allows.

        Parameters
        ----------
        sharing
            What the model may see.
        names
            The variables to report, with all their columns; `None` is those that are new or have changed since the
            last look.
        """
        cells = self._cells()
        own = {name: value for name, value in list(self._shell.user_ns.items()) if self._is_shown(name, value)}
        if names is not None:
            absent = [f"{name}: there is no such variable" for name in names if name not in own]
            return _within([*(_line(n, own[n], cells.get(n), sharing, None) for n in names if n in own), *absent])
        # The newest first, because the end is what is cut where there are many.
        order = sorted(own, key=lambda name: -cells.get(name, 0))
        lines = {name: _line(name, own[name], cells.get(name), sharing, _COLUMNS) for name in order}
        before, self._seen = self._seen, lines
        if before is None:
            return _within(lines.values()) or "The notebook has no variables yet."
        gone = [f"{name}: is gone" for name in before if name not in lines]
        news = [line for name, line in lines.items() if before.get(name) != line]
        return _within([*news, *gone]) or "Nothing has changed since you looked last."

    def _is_shown(self, name: str, value: Any) -> bool:
        hidden = getattr(self._shell, "user_ns_hidden", {})
        return not name.startswith("_") and hidden.get(name, self) is not value and name not in {"In", "Out"}

    def _cells(self) -> dict[str, int]:
        """Return the number of the last cell that made each name."""
        cells: dict[str, int] = {}
        for number, source in enumerate(self._shell.user_ns.get("In", ())):
            if number not in self._names_set:
                self._names_set[number] = frozenset(names_made(source))
            cells.update(dict.fromkeys(self._names_set[number], number))
        return cells


def _line(name: str, value: Any, cell: int | None, sharing: Sharing, columns: int | None) -> str:
    where = [f"made in cell {cell}"] if cell else []
    return ", ".join([f"{name}: {_description_of(name, value, sharing, columns)}", *where])


def _description_of(name: str, value: Any, sharing: Sharing, columns: int | None) -> str:
    """Return type, shape and memory of a value; of a small one what it is, where the level allows that."""
    kind = type(value).__name__
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, type) or callable(value):
        return f"{kind} {getattr(value, '__name__', '')}".rstrip()
    try:
        shape, memory = _shape(value, columns), _memory(value)
    except Exception as exc:  # whatever an object of the notebook does when it is looked at
        return f"{kind}, which cannot be shown ({type(exc).__name__})"
    parts = [f"{kind}{shape}", *([size(memory)] if memory is not None else [])]
    if isinstance(value, _SCALARS) and sharing.level != "schema":
        parts[0] += f" {brief(conceal(redact({name: value})[name]))}"
    return ", ".join(parts)


def _shape(value: Any, columns: int | None) -> str:
    if isinstance(value, _PLAIN):
        return f" of {len(value):,}"
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or not all(isinstance(length, int) for length in shape):
        return ""
    names = getattr(value, "columns", None)
    if names is None or len(shape) != 2:
        return f" of {' x '.join(map(str, shape))} {_kind(getattr(value, 'dtype', ''))}".rstrip()
    kinds = map(_kind, getattr(value, "dtypes", ()))
    pairs = [f"{column}: {kind}" for column, kind in zip(names, kinds, strict=False)][:columns]
    more = [f"and {len(names) - len(pairs):,} more"] if len(names) > len(pairs) else []
    return f" of {counted(shape[0], 'row')} with {counted(len(names), 'column')} ({', '.join([*pairs, *more])})"


def _kind(dtype: Any) -> str:
    """Return the name of a type alone: some name values of theirs, such as an Enum of polars."""
    return re.sub(r"\W.*", "", str(dtype), flags=re.DOTALL)


def _memory(value: Any) -> int | None:
    """Return the bytes of a value, for frames without what their texts take; `None` where its type does not say."""
    usage = getattr(value, "memory_usage", None)
    if callable(usage):
        used = usage()
        return int(used.sum() if hasattr(used, "sum") else used)
    estimated = getattr(value, "estimated_size", None)
    if callable(estimated):
        return int(estimated())
    counted = getattr(value, "nbytes", None)
    return counted if isinstance(counted, int) else sys.getsizeof(value) if isinstance(value, _PLAIN) else None


def _within(lines: Iterable[str]) -> str:
    """Return lines up to the budget, and the names of those that are left out."""
    fitting: list[str] = []
    left: list[str] = []
    room = _MOST
    for line in lines:
        room -= len(line) + 1
        (fitting if room >= 0 else left).append(line)
    if left:
        names = ", ".join(line.partition(":")[0] for line in left)
        fitting.append(f"[{len(left):,} more variables are not shown: {brief(names, 1_000)}; names=[…] shows them]")
    return "\n".join(fitting)


def names_made(source: str) -> Iterator[str]:
    """Yield the names that a cell gives a value, as IPython keeps it: magics are calls there."""
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
                continue  # what it makes inside is its own
            case ast.Lambda():
                continue
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.alias():
                yield (node.asname or node.name).partition(".")[0]
            case ast.Call(func=ast.Attribute(attr="run_line_magic" | "run_cell_magic")):
                yield from _names_of_a_magic(node.args)
        waiting += ast.iter_child_nodes(node)


def _names_of_a_magic(arguments: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the names in the line of a magic, among which are those that it gives a value."""
    line = arguments[1] if len(arguments) > 1 else None
    if isinstance(line, ast.Constant) and isinstance(line.value, str):
        yield from re.findall(r"[A-Za-z_]\w*", line.value)
