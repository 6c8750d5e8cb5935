"""Workbooks, read in a worker: a small file can unpack to more memory than the machine has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nbtools.errors import LimitExceeded
from nbtools.ground.lazy import has, pa
from nbtools.sql.engines.protocol import CatalogTable, EngineAnswer, QueriesAlone, QueryControl, QueryRequest
from nbtools.sql.frames import NOTES
from nbtools.sql.results.rows import ArrowRows, PythonRows, ResultRows
from nbtools.sql.worker.sheets import SheetOptions, read_workbook
from nbtools.texts.values import text_of


class WorkbookReader(QueriesAlone):
    """What answers a worker's requests with rows of workbooks; a request is a path and what is read of it, as JSON."""

    name = "pandas"
    dialect = "duckdb"

    def run(self, request: QueryRequest, control: QueryControl) -> EngineAnswer:
        """Return the rows of a sheet."""
        options = json.loads(request.sql)
        path = Path(options.pop("path"))
        frame = read_workbook(path, SheetOptions(**options))
        size = int(frame.memory_usage(deep=True).sum())
        if request.max_bytes is not None and size > request.max_bytes:
            raise LimitExceeded(
                f"{path.name} holds {size:,} bytes; at most {request.max_bytes:,} are allowed.",
                hint="Save the sheet as CSV or Parquet.",
                tried="reading a workbook",
            )
        columns = tuple(frame.columns)
        rows: ResultRows = PythonRows(columns, _tuples(frame)) if not has("pyarrow") else ArrowRows(_table(frame))
        return EngineAnswer(columns=columns, types=("",) * len(columns), rows=rows)

    def catalog(self) -> list[CatalogTable]:
        """Return no tables."""
        return []


def _tuples(frame: Any) -> list[tuple[Any, ...]]:
    return list(frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None))


def _table(frame: Any) -> Any:
    table = pa.table([_array(frame.iloc[:, index]) for index in range(frame.shape[1])], names=list(frame.columns))
    return table.replace_schema_metadata({NOTES: json.dumps(frame.attrs[NOTES])})


def _array(column: Any) -> Any:
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # Cells of several kinds: text holds them all.
        return pa.array([None if gone else text_of(value) for value, gone in zip(column, column.isna(), strict=True)])
