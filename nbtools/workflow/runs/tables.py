"""Files that results refer to: tables, which are kept beside the log, and artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def is_table(value: Any) -> bool:
    """Tell whether a value stands for a table that is kept as a file."""
    return isinstance(value, Mapping) and "parquet" in value and "row_count" in value


def table_files(value: Any) -> Iterator[str]:
    """Yield the files of all tables in a value."""
    if is_table(value):
        yield str(value["parquet"])
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from table_files(item)


def result_files(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files that a result refers to."""
    for artifact in result.get("artifacts", ()):
        yield artifact["path"]
    yield from table_files(result.get("data"))
