"""Lines at the beginning of a CSV file that DuckDB skips in silence, because they have other columns than the rest.

It takes them for a title. Where the line that follows is no header either, they may as well be the header and rows; the
columns then have the names that DuckDB makes up.
"""

from __future__ import annotations

from collections.abc import Collection

from nbtools.errors import NbtoolsError
from nbtools.sql.engines.protocol import QueryControl, QueryRequest, SqlEngine

__all__ = ["told_gaps"]

_MADE_UP = "column0"
_FILE = "file "
_ENDS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
_SNIFF = "SELECT max(SkipRows) FROM sniff_csv($name)"


def told_gaps(
    engine: SqlEngine, sources: tuple[str, ...], columns: Collection[str], control: QueryControl
) -> tuple[str, ...]:
    """Return the phrases for what was read, and in those for files without a header how many lines were skipped."""
    if _MADE_UP not in columns or engine.dialect != "duckdb":
        return sources
    told = []
    for source in sources:
        skipped = 0
        if source.startswith(_FILE) and source.lower().endswith(_ENDS):
            asked = QueryRequest(sql=_SNIFF, parameters={"name": source.removeprefix(_FILE)})
            try:
                skipped = engine.run(asked, control).rows.to_lists()[0][0] or 0
            except NbtoolsError:
                skipped = 0  # A pattern of names, or a file that is gone: the rows have been read.
        lines = "its first line" if skipped == 1 else f"its first {skipped:,} lines"
        told.append(f"{source} without {lines}, whose columns differ" if skipped else source)
    return tuple(told)
