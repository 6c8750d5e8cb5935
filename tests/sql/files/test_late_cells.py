"""Columns of CSV files have the types of all lines, however late a cell is, in one column, all of them, many files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.sql import SqlSession

pytestmark = pytest.mark.broad

_MANY = 21_000  # more lines than DuckDB looks at


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("late")
    with contextlib.chdir(made):
        yield made


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[SqlSession]:
    with SqlSession(allowed_paths=[folder]) as opened:
        yield opened


_LATE = {
    "19.99": ("1", "DOUBLE", 19.99),
    "007": ("1", "VARCHAR", "007"),
    "12345678901234567890123": ("1", "HUGEINT", 12345678901234567890123),
    "2024-01-02 12:30:45": ("2024-01-01", "TIMESTAMP", "2024-01-02 12:30:45"),
    "2024-01-01 10:00:00": ("12:30:00", "VARCHAR", "2024-01-01 10:00:00"),
    "2024-01-01 00:00:00.123456789": ("2024-01-01 00:00:00", "VARCHAR", "2024-01-01 00:00:00.123456789"),
    "2024-01-01 00:00:00+02": ("2024-01-01 00:00:00", "VARCHAR", "2024-01-01 00:00:00+02"),
    "9007199254740993": ("1.5", "VARCHAR", "9007199254740993"),
    "7": ("true", "VARCHAR", "7"),
    "n/a": ("1", "BIGINT", None),
}


def test_values_behind_the_sample_stay_as_the_csv_file_has_them(session: SqlSession) -> None:
    heads, firsts = zip(*((f"c{at}", first) for at, (first, *_) in enumerate(_LATE.values())), strict=True)
    lines = [",".join(heads), *[",".join(firsts)] * _MANY, ",".join(_LATE)]
    Path("late.csv").write_text("\n".join(lines) + "\n")
    found = session.query(f"select * from 'late.csv' offset {_MANY}")
    assert dict(zip(_LATE, zip(found.types, found.to_rows()[0], strict=True), strict=True)) == {
        last: (kind, value) for last, (_, kind, value) in _LATE.items()
    }
    assert "c9: 1 \u00d7 'n/a' read as missing" in found.footer()


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("last", _LATE)
def test_values_behind_the_sample_stay_where_no_column_fits(session: SqlSession, last: str, columns: int) -> None:
    first, kind, value = _LATE[last]
    rows = [[f"c{at}" for at in range(columns)], *[[first] * columns] * _MANY, [last] * columns]
    Path("unfit.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    for call in ("'unfit.csv'", "read_csv('unfit.csv', filename = true)", "read_csv(['unfit.csv'] , filename = true)"):
        found = session.query(f"select * from {call} offset {_MANY}")
        assert (found.types[:columns], found.to_rows()[0][:columns]) == ((kind,) * columns, [value] * columns)


@pytest.mark.parametrize(
    "options", ["delim = ','", "filename = true", "union_by_name = true, filename = 'at'", "hive_types = {'k': INT}"]
)
@pytest.mark.parametrize(("last", "kind", "value"), [("N/A", "BIGINT", None), ("1.5", "DOUBLE", 1.5)])
def test_columns_of_many_files_are_their_own_and_those_of_their_paths(
    session: SqlSession, folder: Path, options: str, last: str, kind: str, value: Any
) -> None:
    is_union = "union" in options
    behind = "x,y\n" + "1,2\n" * _MANY + f"{last},{last}\n" if is_union else f"x\n1\n{last}\n"
    for at, text in enumerate(("x\n5\n", behind)):
        (folder / f"many/k={at}").mkdir(parents=True, exist_ok=True)
        (folder / f"many/k={at}/a.csv").write_text(text)
    found = session.query(f"select * from read_csv('many/*/a.csv', {options}) order by k, x = 1 desc")
    assert (found.types[0], found.to_rows()[0][0], found.to_rows()[-1][0]) == (kind, 5, value)
    assert found.columns[-1] == "k"
    if is_union:
        assert (found.columns, found.types[1], found.to_rows()[-1][1]) == (("x", "y", "at", "k"), kind, value)
