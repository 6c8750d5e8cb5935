"""The value of a script, and the variables that it is given: JSON, and objects that JSON has no form for.

A value goes to its owner in a report. Where the owner is a program that wants JSON, a table becomes a Parquet file and
its first rows (`json_report`). Where it is a person's notebook, tables, arrays and figures come as themselves, as files
of `nbtools.kernels.inside.stored`; they may stand in mappings and lists.

Like `nbtools.kernels.inside.hooks`, this module uses only the standard library.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

# Where nbtools may not be installed, its text was sent before.
_stored: Any = sys.modules.get("nbtools_stored") or importlib.import_module("nbtools.kernels.inside.stored")
LAST = "the last expression"
_TOO_LARGE, _NOT_JSON = " is too large: ", " cannot be kept: "
VALUE_CHANGED = " is not the same as JSON: "
# Of the value of a last expression: bytes as JSON, rows of a table that are shown, levels.
_MOST_VALUE = 8 * 2**20
_MOST_ROWS = 1_000
_DEEPEST = 100


def loaded(variables: Mapping[str, Any], *, tables: bool = False) -> dict[str, Any]:
    """Return variables with the objects that their values stand for.

    Parameters
    ----------
    variables
        JSON by name; stored objects in it are loaded.
    tables
        Whether a mapping ``{"__parquet__": PATH}`` becomes the DataFrame of that file too.
    """
    values = {name: stored_value(value) for name, value in variables.items()}
    return {name: _with_tables(value) for name, value in values.items()} if tables else values


def stored_value(value: Any, folder: str | None = None, *, trusted: bool = True) -> Any:
    """Return JSON in which each stored object is loaded; the parameters are those of `nbtools…stored.load`."""
    if isinstance(value, dict):
        if _stored.STORED in value:
            return _stored.load(value, folder, trusted=trusted)
        return {key: stored_value(one, folder, trusted=trusted) for key, one in value.items()}
    return [stored_value(one, folder, trusted=trusted) for one in value] if isinstance(value, list) else value


def is_lost(note: str) -> bool:
    """Tell whether a note says that there is no value, though the script had one."""
    return note.startswith("the value of ") and (_TOO_LARGE in note or _NOT_JSON in note)


def report(value: Any, folder: str | None, of: str = LAST) -> dict[str, Any]:
    """Return what a report says of a value: ``data``, or why there is none.

    Parameters
    ----------
    value
        Of the script.
    folder
        Where tables, arrays and figures are stored; `None` makes JSON of them.
    of
        Whose value it is: that of a name, or of the last expression.
    """
    if folder is None:
        return json_report(value, of=of)
    notes: list[str] = []
    changes: dict[str, None] = {}

    def store(one: Any) -> Any:
        """Return what stands for a table, an array or a figure; `None` for all else."""
        if not isinstance(one, tuple) and (
            _stored.is_storable(one) or any(hasattr(one, name) for name in ("savefig", "to_json", "figure", "save"))
        ):
            return _stored.store(one, folder, "the value", notes)
        return None

    return _reported(lambda: _as_json(value, changes, store), of, notes, changes)


def _reported(
    make: Callable[[], Any], of: str, notes: list[str], changes: Mapping[str, None], unkept: str = _NOT_JSON
) -> dict[str, Any]:
    """Return the report on a value that is made JSON now; `unkept` says what it means that it cannot be."""
    try:
        jsonable = make()
        size = len(json.dumps(jsonable, allow_nan=False))
    except Exception as exc:
        return {"value_note": f"the value of {of}{unkept}{exc}"}
    if size > _MOST_VALUE:
        return {
            "value_note": f"the value of {of}{_TOO_LARGE}it has {size:,} bytes as JSON, and {_MOST_VALUE:,} are allowed"
        }
    notes += [f"the value of {of}{VALUE_CHANGED}{'; '.join(changes)}"] if changes else []
    return {"data": jsonable, **({"value_note": "; ".join(notes)} if notes else {})}


def _with_tables(value: Any) -> Any:
    if isinstance(value, dict):
        if [*value] == ["__parquet__"]:
            return importlib.import_module("duckdb").read_parquet(value["__parquet__"]).df()
        return {key: _with_tables(one) for key, one in value.items()}
    return [_with_tables(one) for one in value] if isinstance(value, list) else value


def json_report(value: Any, folder: str = "", of: str = LAST) -> dict[str, Any]:
    """Return what a report says of the value of the last expression, or of a name: ``data``, or why there is none."""
    changes: dict[str, None] = {}
    # A figure or an axis as the last line of a cell is not a result; what holds other values is meant as one.
    is_meant = isinstance(value, Mapping | list | tuple | set | frozenset) or _is_table(value)
    return _reported(
        lambda: _table(value, folder) if _is_table(value) else _as_json(value, changes),
        of,
        [],
        changes,
        unkept=_NOT_JSON if is_meant else " is not kept: ",
    )


def _is_table(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "to_frame") or (hasattr(kind, "columns") and hasattr(kind, "__len__"))


def _table(value: Any, folder: str) -> dict[str, Any]:
    """Write a table of pandas, polars or Arrow as a Parquet file, and return what stands for it."""
    duckdb: Any = importlib.import_module("duckdb")
    frame = value
    if hasattr(type(frame), "to_frame"):
        frame = frame.to_frame()
    if hasattr(frame, "reset_index"):
        # Numbers without a name say where a row stood; names of rows are data.
        is_count = getattr(frame.index, "inferred_type", "integer") in ("integer", "empty")
        frame = frame.reset_index(drop=is_count and all(name is None for name in frame.index.names))
        frame.columns = [str(name) for name in frame.columns]
    path, count = pathlib.Path(folder, "value.parquet"), 1
    while path.exists():
        count += 1
        path = pathlib.Path(folder, f"value-{count}.parquet")
    relation = duckdb.sql("select * from frame")
    relation.write_parquet(str(path))
    stored_table = duckdb.read_parquet(str(path))
    rows = [[_as_json(cell, {}) for cell in row] for row in stored_table.limit(_MOST_ROWS).fetchall()]
    facts = {"parquet": str(path.absolute()), "columns": list(stored_table.columns), "row_count": len(frame)}
    return {**facts, "rows": rows, "truncated": len(frame) > len(rows)}


def _as_json(value: Any, changes: dict[str, None], store: Callable[[Any], Any] | None = None, depth: int = 0) -> Any:
    """Return a value as JSON: arrays and sets as lists, times as text, numbers that it lacks as null or stored.

    A reader of such a value gets another one; that is added to `changes`, in words. Where objects can be
    stored, what comes is the value itself, so that each other class is such a change; else it is JSON that was wanted.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else _beyond_json(value, changes, is_json=store is None)
    if depth > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
    if isinstance(value, Mapping):
        named = {str(key): _as_json(one, changes, store, depth + 1) for key, one in value.items()}
        if not all(isinstance(key, str) for key in value):
            changes["keys that are not text are text"] = None
        if len(named) < len(value):
            raise ValueError("two keys of a mapping are the same as text")
        return named
    if isinstance(value, list):
        return [_as_json(one, changes, store, depth + 1) for one in value]
    if store and (node := store(value)):
        return node
    simpler = _simpler(value, "holds" if depth else "is")
    _tell(value, simpler, changes, is_json=store is None)
    return _as_json(simpler, changes, store, depth + 1)


def _beyond_json(value: float, changes: dict[str, None], *, is_json: bool) -> Any:
    """Return what stands for NaN or infinity."""
    if not is_json:
        return {_stored.STORED: repr(float(value)), "kind": "float"}
    changes["NaN and infinity are null"] = None
    return None


def _tell(value: Any, simpler: Any, changes: dict[str, None], *, is_json: bool) -> None:
    """Add what a value of another class becomes; where JSON was wanted, only what is no longer as exact."""
    if type(value).__name__ in {"Decimal", "Fraction"}:
        changes[f"a {type(value).__name__} is a plain number, or a text where that is not exact"] = None
    elif not is_json and not _is_same(value, simpler):
        changes[f"a {type(value).__name__} is a {type(simpler).__name__}"] = None


def _is_same(value: Any, simpler: Any) -> bool:
    """Tell whether a number of another class, such as those of numpy, is the same plain one."""
    return isinstance(simpler, int | float) and (bool(value == simpler) or simpler != simpler)  # noqa: PLR0124  # NaN


def _simpler(value: Any, verb: str) -> Any:
    """Return a value of a well-known class in values that are nearer to JSON."""
    if isinstance(value, tuple | set | frozenset):
        return [*value]
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return None if str(value) == "NaT" else str(value.isoformat())
    if fields := getattr(type(value), "__dataclass_fields__", None):
        return {name: getattr(value, name) for name in fields}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    form = _FORMS.get(type(value).__name__)
    if form is None:
        name = type(value).__name__
        raise TypeError(f"it {verb} {'an' if name[:1].lower() in 'aeiou' else 'a'} {name}, which JSON has no form for")
    return form(value)


def _number(value: Any) -> Any:
    """Return a decimal or a fraction as a float, or as text if a float is another number."""
    short = float(value)
    is_exact = value != value or type(value)(repr(short)) == value  # noqa: PLR0124  # NaN is not itself
    return short if is_exact else str(value)


_FORMS: Mapping[str, Callable[[Any], Any]] = {"Decimal": _number, "Fraction": _number, "UUID": str, "timedelta": str}
