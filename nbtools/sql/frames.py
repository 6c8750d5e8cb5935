"""Frames: the tables of a notebook that a query may name.

Exactly the frames that a query names are handed to the engine; nothing else of Python is visible to it. What counts
as a frame is told by its class, so that no library is imported just to look.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbtools.errors import LimitExceeded, SqlFailed, SqlInvalid
from nbtools.ground.lazy import class_among, duckdb, pa, pd
from nbtools.sql.results.result import FileNote, QueryResult
from nbtools.sql.results.rows import ArrowRows, fold_name, name_notes, unique_names
from nbtools.texts.visible import kind_of_value

Frames = Mapping[str, Any] | Callable[[str], Any]
"""Frames by name, or a function that returns the frame of a name, or `None`."""

EXCEL = (".xlsx", ".xlsm", ".xls", ".ods")
_TEXTS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
FILES = (*_TEXTS, *(f"{each}.{packed}" for each in _TEXTS for packed in ("gz", "zst")), ".parquet", *EXCEL)
"""Endings of the files that are offered to a person; a query may read others too."""
_CLASSES = {
    "pandas": {"DataFrame", "Series"},
    "geopandas": {"GeoDataFrame"},
    "polars": {"DataFrame", "LazyFrame"},
    "pyarrow": {"Table", "RecordBatch"},
    "duckdb": {"DuckDBPyRelation"},
}
# A relation is read whole, for its connection may not be asked beside it.
_RELATION_BYTES = 1_000_000_000
NOTES = "nbtools"
"""The attribute of a frame, and of an Arrow schema, that says what is to be told of how it was read."""


def is_frame(value: object) -> bool:
    """Tell whether a query can read `value` as a table: pandas, polars, Arrow, or a `QueryResult`."""
    return isinstance(value, QueryResult) or class_among(value, _CLASSES) != ""


def as_lookup(frames: Frames | None) -> Callable[[str], Any] | None:
    """Return the function that returns the frame of a name, or `None`."""
    return frames.get if isinstance(frames, Mapping) else frames


def find_frames(
    names: Sequence[str],
    *,
    named_frames: Frames | None,
    tables: Mapping[str, Callable[[], Any]],
    lookups: Sequence[Callable[[str], Any]] = (),
) -> tuple[dict[str, Any], tuple[str, ...], list[FileNote]]:
    """Return the frames behind the names of a query, a phrase for each that says what it is, and what is to be told.

    Parameters
    ----------
    names
        Tables the query names, as it writes them.
    named_frames
        Frames passed with this very query, or functions that return them, by name, or a function of the name; they win.
    tables
        Records of the toolkit, such as ``nbtools.memory``: each call returns a snapshot.
    lookups
        Return what a name means elsewhere, such as the notebook's variable, or `None`; the first wins.
    """
    frames: dict[str, Any] = {}
    phrases, notes = list[str](), list[FileNote]()
    if named_frames is not None and not isinstance(named_frames, Mapping):
        named_frames = {name: frame for name in names if (frame := named_frames(name)) is not None}
    records = {name.casefold(): name for name in tables}
    own = {name.casefold(): value for name, value in (named_frames or {}).items()}
    for name in names:
        record = records.get(name.casefold())
        frame = (named_frames or {}).get(name, own.get(name.casefold()))
        frame = tables.get(record or "") if frame is None else frame
        if frame is None and "." not in name:
            # SQL does not care about case, Python does: the name as written wins.
            values = (look(each) for look in lookups for each in (name, name.lower()))
            frame = next((value for value in values if is_frame(value)), None)
        if frame is not None:
            frames[record or name], renames = _as_frame(name, frame() if callable(frame) else frame)
            phrases.append(f"frame {name}" if record is None else f"record {record}")
            notes += [FileNote(name, text) for text in renames]
    return frames, tuple(phrases), notes


def _as_frame(name: str, value: Any) -> tuple[Any, list[str]]:
    """Return a frame that the engine can read as it is, and what is to be told of its names; or say why not."""
    if isinstance(value, QueryResult):
        value = value.rows.table if isinstance(value.rows, ArrowRows) else value.to_pandas()
    if isinstance(value, list | tuple):
        value = _frame_of_records(name, value)
    if type(value).__name__ == "DuckDBPyRelation":
        value = _rows_of_relation(name, value)
    if not is_frame(value):
        raise SqlInvalid(
            f"{name!r} is {kind_of_value(value)}, which is not a table.",
            hint="SQL reads pandas, polars and Arrow tables, and earlier results.",
        )
    if _is_pandas(value) and not hasattr(type(value), "columns"):
        value = value.to_frame(value.name if value.name is not None else name)
    return as_query_sees(value)


def _rows_of_relation(name: str, relation: Any) -> Any:
    """Return the rows of a DuckDB relation as an Arrow table.

    Raises
    ------
    LimitExceeded
        They need more memory than a frame may.
    SqlFailed
        Its connection does not answer.
    """
    batches, size = [], 0
    try:
        with relation.to_arrow_reader() as reader:
            for batch in reader:
                batches.append(batch)
                size += batch.nbytes
                if size > _RELATION_BYTES:
                    raise LimitExceeded(
                        f"the relation {name} has more than {_RELATION_BYTES:,} bytes.",
                        hint="Query its connection: %sql CONNECTION select …, or filter the relation first.",
                    )
            return pa.Table.from_batches(batches, reader.schema)
    except duckdb.Error as exc:
        what = " ".join(str(exc).split())[:200]
        hint = "Fetch or abort() the rows that its connection still has, or open the connection again."
        raise SqlFailed(f"the relation {name} cannot be read: {what}", hint=hint) from exc


def plain_frame(value: Any) -> tuple[Any, list[str]]:
    """Return a frame with all of its rows, as a query sees it, and what is to be told of its names.

    Raises
    ------
    SqlInvalid
        The value is not a table.
    """
    if hasattr(value, "collect_schema") and hasattr(value, "collect"):  # a lazy frame of polars
        value = value.collect()
    frame, renames = _as_frame("the value", value)
    # A view of ours, which a later assignment to a cell does not reach.
    return frame.copy(deep=False) if _is_pandas(frame) else frame, renames


def _is_pandas(value: Any) -> bool:
    # Told by the class: the columns of a frame look like their own attributes.
    return hasattr(type(value), "iloc")


def _frame_of_records(name: str, rows: Any) -> Any:
    """Turn a list of dictionaries into a DataFrame; an empty one cannot say what its columns are."""
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise SqlInvalid(f"{name!r} has no rows that SQL can read.", hint="A table is a list of dictionaries.")
    return pd.DataFrame(list(rows))


def as_query_sees(frame: Any) -> tuple[Any, list[str]]:
    """Return a frame with names that are text and occur once in SQL, and phrases on those that were changed for it.

    An index of pandas that says something becomes columns.
    """
    levels = _levels(frame.index) if _is_pandas(frame) else []
    own = [*levels, *(name for name, _ in _described(frame))]
    names = _names_in_sql(own)
    renames = name_notes([*map(_label, own)], names)
    if levels:
        index = frame.index
        columns = [index.get_level_values(level).to_frame(index=False) for level in range(index.nlevels)]
        frame = pd.concat([*columns, frame.reset_index(drop=True)], axis="columns")
    elif names == own:
        return frame, renames
    if _is_pandas(frame):
        return frame.set_axis(names, axis="columns"), renames
    if hasattr(frame, "collect_schema"):
        return frame.rename(dict(zip(own, names, strict=True))), renames
    return frame.rename_columns(names).replace_schema_metadata(frame.schema.metadata), renames  # which new names lose


def _names_in_sql(own: Sequence[Any]) -> list[str]:
    # DuckDB would give numbers too, but by them hide a column whose own name is such a one. And it knows no empty name.
    return unique_names((_label(name) or "unnamed" for name in own), fold_name)


def _described(frame: Any) -> list[tuple[Any, Any]]:
    """Return names and types of a frame's columns as they are; none of what cannot be looked at cheaply, or at all."""
    if _is_pandas(frame):
        return [*zip(frame.columns, frame.dtypes, strict=True)]
    if hasattr(frame, "collect_schema"):
        with contextlib.suppress(Exception):  # the reading itself says best what is wrong
            return [*frame.collect_schema().items()]
        return []
    if hasattr(frame, "types"):
        return [*zip(frame.columns, frame.types, strict=True)]
    return [(field.name, field.type) for field in getattr(frame, "schema", ())]


def _levels(index: Any) -> list[Any]:
    """Return what the levels of an index are called; nothing of one that only counts rows, as a filter leaves it."""
    if index.nlevels == 1 and index.name is None and (index.dtype.kind in "iu" or not len(index)):
        return []
    return ["index" if name is None else name for name in index.names]


def _label(name: object) -> str:
    return "_".join(map(str, name)) if isinstance(name, tuple) else str(name)


def frame_columns(value: Any) -> list[tuple[str, str]]:
    """Return names and types of a frame's columns, for completion; empty for what cannot be looked at cheaply."""
    if _is_pandas(value):
        if not hasattr(type(value), "columns"):
            return [(str(value.name), str(value.dtype))]
        value, _ = as_query_sees(value.iloc[:1])
    described = _described(value)
    names = _names_in_sql([name for name, _ in described])
    return [(name, str(kind)) for name, (_, kind) in zip(names, described, strict=True)]
