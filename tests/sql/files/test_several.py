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


@pytest.mark.parametrize(
    ("first", "second", "types", "rows"),
    [
        ("b,a\n2,9", "a,b\n10,x", ("VARCHAR", "BIGINT"), [["2", 9], ["x", 10]]),
        ("d,n\n2020-01-02,5", "n,D\n6,2020-01-03", ("DATE", "BIGINT"), [["2020-01-02", 5], ["2020-01-03", 6]]),
        ("d,n\n2020-01-02,N/A", "n,d\n6,2020-01-03", ("DATE", "BIGINT"), [["2020-01-02", None], ["2020-01-03", 6]]),
    ],
)
def test_columns_in_another_order_have_the_type_that_they_have_in_all_files(
    session: SqlSession, first: str, second: str, types: tuple[str, ...], rows: list[list[object]]
) -> None:
    Path("order1.csv").write_text(first + "\n")
    Path("order2.csv").write_text(second + "\n")
    for source in ("'order*.csv'", "read_csv(['order1.csv', 'order2.csv'])"):
        result = session.query(f"FROM {source}")
        assert (result.types, result.rows.to_lists()) == (types, rows)
        with session.open_pages(source) as pages:
            pages.finish()
            assert pages.source.types == types
    if types[0] == "VARCHAR":
        own = session.query("SELECT max(a) FROM read_csv('order*.csv', types = {'a': 'BIGINT'})")
        assert (own.types, own.rows.to_lists()) == (("BIGINT",), [[10]])


def test_the_file_that_lacks_a_column_is_named_not_one_whose_type_differs(session: SqlSession) -> None:
    for at, text in enumerate(("a,b\n1,2", "b,a\nq,3", "a,c\n1,2"), 1):
        Path(f"blame{at}.csv").write_text(text + "\n")
    for source in ("'blame*.csv'", "read_csv(['blame1.csv', 'blame2.csv', 'blame3.csv'])"):
        with pytest.raises(SqlFailed, match=re.escape("blame3.csv has no column b, which blame1.csv has.")) as lacking:
            session.query(f"FROM {source}")
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
