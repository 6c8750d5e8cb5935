"""Files that results refer to: tables, which are kept beside the log, and artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nbtools.contract.wire.json_values import find_nested


def is_table(value: Any) -> bool:
    """Tell whether a value stands for a table that is kept as a file."""
    return isinstance(value, Mapping) and "parquet" in value and "row_count" in value


def table_files(value: Any) -> Iterator[str]:
    """Yield the files of all tables in a value."""
    return (str(table["parquet"]) for _, table in find_nested(value, is_table))


def result_files(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files that a result refers to."""
    for artifact in result.get("artifacts", ()):
        yield artifact["path"]
    yield from table_files(result.get("data"))
