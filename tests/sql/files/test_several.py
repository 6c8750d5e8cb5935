"""Several files in one call: columns that some of them lack are told; and what is wrong in a text is said plainly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from nbtools.errors import SqlFailed, SqlInvalid
from nbtools.sql import SqlSession
from nbtools.sql.pages.shape import Shape


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSession]:
    folder = tmp_path_factory.mktemp("several")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with SqlSession(allowed_paths=[folder]) as opened:
            yield opened


def _notes(session: SqlSession, sql: str) -> str:
    return " ".join(str(note) for note in session.query(sql).notes)


def test_columns_of_later_files_that_are_left_out_are_told_and_read_by_name(session: SqlSession) -> None:
    for at, text in enumerate(("a,b\n1,2", "b,a\n20,10", "a,b,c\n5,6,7"), 1):
        Path(f"named{at}.csv").write_text(text + "\n")
    result = session.query("FROM 'named*.csv'")
    assert result.rows.to_lists() == [[1, 2], [10, 20], [5, 6]]
    assert "named3.csv has c too; union_by_name = true reads it" in _notes(session, "FROM 'named*.csv'")
    assert not _notes(session, "FROM 'named[12].csv'")
    for sql in ("SELECT c FROM 'named*.csv'", "SELECT n.c FROM 'named*.csv' n"):
        with pytest.raises(SqlInvalid) as unknown:
            session.query(sql)
        assert unknown.value.hint == "named3.csv has c; read_csv('named*.csv', union_by_name = true) reads it."
    with pytest.raises(SqlFailed, match=re.escape("named1.csv has no column c, which named3.csv has.")) as lacking:
        session.query("FROM read_csv(['named3.csv', 'named1.csv'])")
    assert "union_by_name = true" in str(lacking.value.hint)


def test_columns_of_later_parquet_files_that_are_left_out_are_told(session: SqlSession) -> None:
    for year, columns in ((2022, "1 AS id"), (2023, "2 AS id, {'x': {'y': 1}, 'z': 2} AS extra, 3 AS more")):
        Path(f"pq/year={year}").mkdir(parents=True)
        duckdb.sql(f"COPY (SELECT {columns}) TO 'pq/year={year}/part.parquet'")
    note = "pq/year=2023/part.parquet has extra, more too; union_by_name = true reads them"
    for source in ("'pq/**/*.parquet'", "read_parquet('pq/*/part.parquet')"):
        result = session.query(f"SELECT * FROM {source} ORDER BY id")
        assert result.rows.to_lists() == [[1, 2022], [2, 2023]]
        assert note in str(result.notes)
    with session.open_pages("'pq/**/*.parquet'") as rows:
        assert note in str(rows.source.notes)
    with pytest.raises(SqlInvalid) as unknown:
        session.query("SELECT more FROM 'pq/**/*.parquet'")
    way = "read_parquet('pq/**/*.parquet', union_by_name = true)"
    assert unknown.value.hint == f"pq/year=2023/part.parquet has more; {way} reads it."
    assert session.query(f"SELECT more FROM {way} ORDER BY id").rows.to_lists() == [[None], [3]]
    assert not session.query("FROM 'pq/year=2022/*.parquet'").notes


def test_how_many_of_the_files_were_compared_is_told(session: SqlSession) -> None:
    for at in range(70):
        Path(f"seventy{at:02}.csv").write_text("a\n1\n")
    assert "the columns of 64 of 70 files were compared" in _notes(session, "FROM 'seventy*.csv'")
    assert not _notes(session, "FROM 'seventy0*.csv'")


def test_a_sign_between_a_text_and_a_number_says_what_to_write(session: SqlSession) -> None:
    with pytest.raises(SqlInvalid) as wrong:
        session.query("SELECT 'a' + 1")
    assert "CAST('2' AS INTEGER) + 1" in str(wrong.value.hint)


def test_what_is_missing_is_told_without_the_parser_s_own_names(session: SqlSession) -> None:
    with pytest.raises(SqlInvalid, match="something is missing") as wrong:
        Shape.from_text("select * from sales where")
    assert "sqlglot" not in str(wrong.value)
    assert "^" in str(wrong.value)
