from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import decimal
import functools
import gc
import math
import sqlite3
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest

from nbtools.errors import Cancelled, NbtoolsError, SqlFailed, SqlInvalid, SqlNotAllowed, WorkbenchClosed
from nbtools.sql.engines.protocol import QueryControl
from nbtools.sql.files.reading import TextFiles
from nbtools.sql.pages.conditions import condition_for
from nbtools.sql.pages.header_profile import ColumnFacts
from nbtools.sql.pages.opening import open_frame
from nbtools.sql.pages.pager import Arrangement
from nbtools.sql.pages.shape import Shape
from nbtools.sql.pages.source import CopiedSource
from nbtools.sql.session import SqlSession

pytestmark = pytest.mark.broad

ROWS = 130_000  # more than one group of rows of a Parquet file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("pages")
    made = f"select range as id, (range * 7919) % 1009 as k, 'n' || (range % 7) as name from range({ROWS})"
    for form in ("parquet", "csv"):
        duckdb.sql(f"copy ({made}) to '{place / 'rows'}.{form}'")
    return place


KINDS = ["parquet", "csv", "pandas", "polars", "arrow"]


@contextlib.contextmanager
def pages_of(kind: str, folder: Any) -> Iterator[Any]:
    """The same rows from everywhere."""
    if kind in {"parquet", "csv"}:
        with SqlSession(allowed_paths=[folder]) as session, session.open_pages(f"'{folder}/rows.{kind}'") as p:
            p.finish()
            yield p
        return
    rows = duckdb.sql(f"from '{folder}/rows.parquet'")
    frame = {"pandas": rows.df, "polars": rows.pl, "arrow": rows.to_arrow_table}[kind]()
    with open_frame(frame) as p:
        yield p


@pytest.fixture(scope="module", params=KINDS)
def opened(request: pytest.FixtureRequest, folder: Any) -> Any:
    with pages_of(request.param, folder) as p:
        yield p


@pytest.fixture
def pager(opened: Any) -> Any:
    """Pages that no test has sorted or filtered."""
    opened.arrange(Arrangement())
    return opened


def test_any_row_is_read_by_where_it_stands(pager: Any) -> None:
    assert (pager.row_count, pager.source.columns) == (ROWS, ("id", "k", "name"))
    for start in (0, ROWS // 2, ROWS - 2):
        assert [row[0] for row in pager.cells(start, start + 2, [0])] == [str(start), str(start + 1)]
    assert pager.cells(ROWS - 1, ROWS + 50, [2, 0]) == [[f"n{(ROWS - 1) % 7}", str(ROWS - 1)]]
    assert pager.cells(ROWS + 5, ROWS + 9, [0]) == []


@functools.cache
def _numbers_by_k() -> list[int]:
    return sorted(range(ROWS), key=lambda n: (-((n * 7919) % 1009), n))


def test_rows_are_sorted_and_filtered_by_their_numbers(pager: Any) -> None:
    keys = _numbers_by_k()
    pager.arrange(Arrangement(order=(("k", True),)))
    assert [row[0] for row in pager.cells(1_000, 1_050, [0])] == [str(n) for n in keys[1_000:1_050]]
    pager.arrange(Arrangement(conditions=("k = 5", "name = 'n3'"), order=(("id", True),)))
    kept = [n for n in range(ROWS) if (n * 7919) % 1009 == 5 and n % 7 == 3]
    assert pager.row_count == len(kept)
    assert [row[0] for row in pager.cells(0, 9_999, [0])] == [str(n) for n in reversed(kept)]
    assert pager.record(0, [0]) == [kept[-1]]
    pager.arrange(Arrangement())
    assert pager.row_count == ROWS


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("kind", KINDS)
def test_closed_pages_let_go_of_the_rows_and_still_say_what_they_were(kind: str, folder: Any) -> None:
    with pages_of(kind, folder) as pager:
        rows = weakref.ref(pager.source)
        pager.close()
        gc.collect()
        assert rows() is None
        assert (pager.row_count, pager.source.columns) == (ROWS, ("id", "k", "name"))
        with pytest.raises(WorkbenchClosed, match="these rows are closed"):
            pager.cells(0, 10, [0])


def test_a_condition_that_does_not_fit_leaves_the_rows_as_they_are(pager: Any) -> None:
    pager.arrange(Arrangement(conditions=("id < 10",)))
    with pytest.raises(SqlInvalid, match="nowhere"):
        pager.arrange(Arrangement(conditions=("nowhere = 1",)))
    assert pager.row_count == 10


def test_a_profile_counts_what_the_conditions_let_through(pager: Any) -> None:
    pager.arrange(Arrangement(conditions=("k < 500",)))
    kept = [n for n in range(ROWS) if (n * 7919) % 1009 < 500]
    numbers, names = pager.profile(1), pager.profile(2)
    assert (numbers.rows, numbers.of, numbers.missing) == (len(kept), len(kept), 0)
    assert sum(count for _, _, count, _ in numbers.bins) == len(kept)
    assert numbers.least == "0"
    assert names.bins == ()
    assert sum(count for _, count in names.top) == pytest.approx(len(kept) * 6 / 7, rel=0.01)
    low, high, count, _ = numbers.bins[3]
    pager.arrange(Arrangement(conditions=("k < 500", condition_for("k", "number", low=low, high=high, last=False))))
    assert pager.row_count == count


def test_a_column_of_one_value_leaves_the_next_profile_of_a_frame_possible() -> None:
    frame = pd.DataFrame(
        {"year": [2024] * 3, "day": [pd.Timestamp("2024-01-01")] * 3, "n": [1, 2, 3], "t": ["a", "b", "a"]}
    )
    with open_frame(frame) as pager:
        for _ in range(2):
            found = [pager.profile(place) for place in range(4)]
            assert [len(facts.bins) for facts in found] == [1, 1, 3, 0]
            assert found[0].bins[0][:3] == (2024.0, 2024.0, 3)
            assert found[3].top == (("a", 2), ("b", 1))
            pager.arrange(Arrangement(order=(("n", True),)))


# What each fact is of the texts b, nothing, a, b and of the numbers 2, nothing, nothing, 5, as a person counts them.
FACTS: dict[str, tuple[Any, Any]] = {
    "rows": (4, 4),
    "of": (4, 4),
    "missing": (1, 2),
    "distinct": (2, 2),
    "least": ("a", "2.0"),
    "greatest": ("b", "5.0"),
    "bins": (0, 2),
    "top": ((("b", 2), ("a", 1)), ()),
}


@pytest.mark.parametrize("fact", [field.name for field in dataclasses.fields(ColumnFacts)])
def test_each_fact_of_a_profile_is_what_a_person_counts(fact: str) -> None:
    assert fact in FACTS, f"say in FACTS what {fact} is"
    frame = pd.DataFrame({"t": ["b", None, "a", "b"], "n": [2.0, None, None, 5.0]})
    with open_frame(frame) as pager:
        values = tuple(getattr(pager.profile(place), fact) for place in range(2))
    if fact == "bins":
        values = tuple(sum(count for _, _, count, _ in bins) for bins in values)
    assert values == FACTS[fact], f"{fact} is wrong"


@pytest.mark.parametrize("count", [2, 15, 20, 24, 25, 48, 100, 500])
def test_bars_of_whole_numbers_hold_as_many_of_them_each(count: int) -> None:
    frame = pd.DataFrame({"n": range(3, 3 + count), "t": [f"t{n}" for n in range(count)]})
    with open_frame(frame) as pager:
        numbers, texts = pager.profile(0), pager.profile(1)
    *most, last = [size for _, _, size, _ in numbers.bins]
    assert len(set(most)) == 1
    assert 0 < last <= most[0]
    assert sum(most) + last == count
    assert len(most) < 24
    assert (numbers.bins[0][0], numbers.bins[-1][1]) == (3, 2 + count)
    assert (numbers.distinct, texts.distinct) == (count, count)


def test_a_sample_is_drawn_the_same_again(tmp_path: Any) -> None:
    duckdb.sql(f"copy (select range as id from range(3_000_000)) to '{tmp_path}/many.parquet'")
    found = []
    for _ in range(2):
        with SqlSession(allowed_paths=[tmp_path]) as session, session.open_pages(f"'{tmp_path}/many.parquet'") as pager:
            found.append(pager.profile(0))
    assert found[0] == found[1]
    assert 0 < found[0].rows < 300_000


def test_a_parquet_file_is_not_copied_however_its_name_is_written(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for name in ("rows.parquet", "'rows.parquet'", '"rows.parquet"'):
        with SqlSession(allowed_paths=[folder]) as session, session.open_pages(name) as pager:
            assert not isinstance(pager.source, CopiedSource), name
            assert pager.row_count == ROWS


def test_the_first_rows_of_a_text_file_are_there_before_all_are(folder: Any) -> None:
    with SqlSession(allowed_paths=[folder]) as session, session.open_pages(f"'{folder}/rows.csv'") as pager:
        assert not pager.source.is_whole
        assert pager.cells(0, 2, [0, 2]) == [["0", "n0"], ["1", "n1"]]
        shares: list[float] = []
        pager.finish(on_progress=shares.append)
        assert (pager.source.is_whole, pager.row_count) == (True, ROWS)
        assert all(0 <= share <= 1 for share in shares)


@pytest.mark.parametrize("name", ["rowid", "ROWID"])
@pytest.mark.parametrize("value", ["'a'", "1000000", "range"])
def test_a_column_may_have_the_name_of_the_numbers_of_rows(name: str, value: str) -> None:
    query = f'(select {value} as "{name}", range as n from range(300))'
    with SqlSession() as session, session.open_pages(query) as pager:
        expected = [[value.strip("'") if value != "range" else str(at), str(at)] for at in (0, 1)]
        assert pager.cells(0, 2, [0, 1]) == expected


@pytest.mark.parametrize("source", ["'small.csv'", "read_csv('small.csv', all_varchar = true)", "(from 'small.csv')"])
def test_all_rows_of_a_small_file_are_there_at_once(
    source: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.csv").write_text("id,v\n" + "".join(f"{at},x\n" for at in range(900)))
    with SqlSession(allowed_paths=[tmp_path]) as session:
        with session.open_pages(source) as pages:
            assert (pages.source.is_whole, pages.row_count) == (True, 900)
            assert pages.cells(899, 900, [0, 1]) == [["899", "x"]]
        with session.open_pages("(select a.id from 'small.csv' as a, 'small.csv' as b)") as pages:
            assert (pages.source.is_whole, pages.row_count) == (False, 200)


def test_what_a_sample_of_a_large_file_does_not_hold_for_is_read_by_all_of_its_lines(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbtools.sql.files.reading.WHOLE_BYTES", 1000)
    monkeypatch.setitem(TextFiles.read.__kwdefaults__ or {}, "most_bytes", 1000)
    monkeypatch.setattr("nbtools.sql.session.SMALL_BYTES", 1000)
    monkeypatch.setattr("nbtools.sql.pages.opening.SMALL_BYTES", 1000)
    large = tmp_path / "large.csv"
    large.write_text("id,v,w\n" + "".join(f"{at},{at},{at}\n" for at in range(21_000)) + "x,19.5,7\n")
    with SqlSession(allowed_paths=[tmp_path]) as session, session.open_pages(f"'{large}'") as pages:
        assert pages.row_count == 200
        pages.finish()
        assert pages.cells(21_000, 21_001, [0, 1, 2]) == [["x", "19.5", "7"]]
        assert [note.text for note in pages.source.notes] == [
            "id: text, because 1 cell is not a number, such as 'x'; TRY_CAST(\"id\" AS DOUBLE) reads the others",
            "v: double by all rows, bigint by the first ones",
        ]


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("n;amount", "1.234;1,50"),
        ("n,code,yes", "N/A,007,yes"),
        ("a,b", "13/02/2024,02/13/2024"),
        ("day,at", "-,02/13/2024 10:00"),
    ],
)
def test_first_rows_are_read_by_the_rules_of_all_rows(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, header: str, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    first = {"day,at": "2024-02-13,02/01/2024 10:00", "n,code,yes": "1.5,100,no"}.get(header, line)
    (tmp_path / "large.csv").write_text(f"{header}\n" + f"{first}\n{line}\n" * 5_000)
    with SqlSession(allowed_paths=[tmp_path]) as session, session.open_pages("'large.csv'") as pages:
        columns = range(len(pages.source.columns))
        seen = (pages.source.is_whole, pages.source.types, pages.cells(0, 9, columns))
        pages.finish()
        assert seen == (False, pages.source.types, pages.cells(0, 9, columns))
        assert not any("by the first ones" in note.text for note in pages.source.notes)


def test_a_small_file_beside_a_pattern_does_not_make_all_of_a_query_small(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.csv").write_text("id\n25000\n5\n")
    codes = ((at, "025000" if at == 25_000 else at) for at in range(1000, 99_000))
    (tmp_path / "large1.csv").write_text("id,code\n" + "".join(f"{at},{code}\n" for at, code in codes))
    (tmp_path / "large2.csv").write_text("id,code\n7,7\n")
    query = "(select code from 'large*.csv' join 'small.csv' using (id))"
    with SqlSession(allowed_paths=[tmp_path]) as session, session.open_pages(query) as pages:
        assert not pages.source.is_whole
        pages.finish()
        assert pages.cells(0, 1, [0]) == [[session.query(f"from {query}").to_rows()[0][0]]] == [["025000"]]


def test_a_text_file_is_looked_at_once_for_its_first_rows(folder: Any, tmp_path: Any) -> None:
    statements: list[str] = []

    class Cursor:
        def execute(self, sql: str) -> Any:
            statements.append(sql)
            return duckdb.execute(sql)

    source = CopiedSource(f"SELECT * FROM '{folder}/rows.csv'", {}, Cursor(), tmp_path / "rows.parquet")
    assert (source.columns, source.types) == (("id", "k", "name"), ("BIGINT", "BIGINT", "VARCHAR"))
    assert source.cells(None, range(2), [0, 2]) == [["0", "n0"], ["1", "n1"]]
    assert len([sql for sql in statements if "rows.csv" in sql]) == 1, "each guesses again what the file looks like"


def test_pages_of_another_file_under_the_name_are_its_own(tmp_path: Any) -> None:
    """What a cursor keeps of a Parquet file's footer holds as long as the file is the same."""
    path = tmp_path / "a.parquet"
    with SqlSession(allowed_paths=[tmp_path]) as session:
        duckdb.sql(f"copy (select range as n from range(50_000)) to '{path}'")
        with session.open_pages(f"'{path}'") as pager:
            assert pager.cells(45_000, 45_001, [0]) == [["45000"]]
            duckdb.sql(f"copy (select 'new ' || range as n from range(50_000)) to '{path}' (row_group_size 10_000)")
            assert pager.cells(45_000, 45_001, [0]) == [["new 45000"]]


def test_pages_of_a_query_keep_sums_whole_and_see_frames(folder: Any) -> None:
    sales = pd.DataFrame({"city": ["Bern", "Chur", "Bern"], "n": [2**62, 1, 2**62]})
    with SqlSession(frames={"sales": sales}) as session:
        query = "(select city, sum(n) as total, sum(n) as total from sales group by city order by city) as q"
        with session.open_pages(query) as pager:
            pager.finish()
            assert pager.source.columns == ("city", "total", "total_1")
            assert pager.cells(0, 9, [0, 1, 2]) == [["Bern", str(2**63), str(2**63)], ["Chur", "1", "1"]]


def test_only_allowed_files_and_queries_have_pages(folder: Any, tmp_path: Any) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with SqlSession(allowed_paths=[folder]) as session:
        for source in (f"'{tmp_path}/secret.csv'", "(delete from x returning *) as q", "'a'; drop table x"):
            with pytest.raises((SqlNotAllowed, SqlInvalid)):
                session.open_pages(source)


def test_a_change_behind_the_pages_is_noticed(tmp_path: Any) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    frames = {"f": pd.DataFrame({"a": [1]})}
    with (
        SqlSession(allowed_paths=[tmp_path], frames=frames) as session,
        session.open_pages(f"'{tmp_path}/a.csv'") as file,
        session.open_pages("f") as frame,
    ):
        assert not file.is_changed()
        assert not frame.is_changed()
        (tmp_path / "a.csv").write_text("a\n1\n2\n")
        frames["f"] = pd.DataFrame({"a": [2]})
        assert file.is_changed()
        assert frame.is_changed()


@pytest.mark.parametrize("other", ["f", "'{}/a.csv'", "(SELECT 1 AS a)"])
@pytest.mark.parametrize("changes", ["f", "a.csv", "a.sqlite"])
def test_a_change_of_what_is_joined_with_a_connection_is_noticed(tmp_path: Any, other: str, changes: str) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1);")
    (tmp_path / "a.csv").write_text("a\n1\n")
    frames = {"f": pd.DataFrame({"a": [1]})}
    source = f"(SELECT o.a FROM {other.format(tmp_path)} o JOIN crm.t t ON t.a = o.a) AS q"
    urls = {"crm": f"sqlite:///{tmp_path}/a.sqlite"}
    with (
        SqlSession(allowed_paths=[tmp_path], frames=frames, connections=urls) as session,
        session.open_pages(source) as pages,
    ):
        assert not pages.is_changed()
        if changes == "f":
            frames["f"] = pd.DataFrame({"a": [2]})
        else:
            (tmp_path / changes).write_bytes((tmp_path / changes).read_bytes() + b"2\n")
        assert pages.is_changed() == (changes == "a.sqlite" or changes in other)


@pytest.mark.parametrize(("source", "connection"), [("v", "own"), ("(FROM v) AS q", "own"), ("own.v", None)])
def test_a_change_of_a_file_behind_a_view_is_noticed(tmp_path: Any, source: str, connection: str | None) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a\n1\n")
    with duckdb.connect(tmp_path / "own.duckdb") as database:
        database.execute(f"CREATE VIEW v AS FROM read_csv('{file}')")
    urls = {"own": f"duckdb:///{tmp_path}/own.duckdb"}
    with (
        SqlSession(allowed_paths=[tmp_path], connections=urls) as session,
        session.open_pages(source, connection=connection) as pages,
    ):
        assert not pages.is_changed()
        file.write_text("a\n1\n2\n")
        assert pages.is_changed()


@pytest.mark.parametrize(
    "value", ["1 + 1e-13 * i", "1e-12 * i", "'2024-01-01'::timestamp + to_microseconds(i)", "1e9 + i", "i"]
)
def test_the_edges_of_bins_differ_where_their_values_do(value: str) -> None:
    with SqlSession() as session, session.open_pages(f"(SELECT {value} AS x FROM range(1, 20) AS t(i))") as pages:
        pages.finish()
        edges = [text for *_, text in pages.profile(0, exact=True).bins]
        assert len({*edges}) == len(edges) > 9


@pytest.mark.parametrize("cell", ["1", "2024-01-31", "true"])
def test_why_a_column_has_its_type_is_told_once(tmp_path: Any, cell: str) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + f"{cell},x\n" * 60_000 + "odd,x\n")
    with SqlSession(allowed_paths=[tmp_path]) as session, session.open_pages(f"'{tmp_path}/a.csv'") as pages:
        pages.finish()
        (note,) = pages.source.notes
        assert note.text.startswith("a: text, because 1 cell is not ")


@pytest.mark.parametrize("pattern", ["*.csv", "?.csv", "**/*.csv"])
@pytest.mark.parametrize("source", ["view", "(FROM view)", "(FROM '{}')"])
def test_a_change_of_files_behind_a_pattern_is_noticed(tmp_path: Any, pattern: str, source: str) -> None:
    file, files = tmp_path / "a.csv", tmp_path / pattern
    file.write_text("a\n1\n")
    with duckdb.connect(tmp_path / "own.duckdb") as database:
        database.execute(f"CREATE VIEW view AS FROM read_csv('{files}')")
    url = f"duckdb:///{tmp_path}/own.duckdb" if "view" in source else None
    with (
        SqlSession(allowed_paths=[tmp_path]) as session,
        session.open_pages(source.format(files), connection=url) as pages,
    ):
        assert not pages.is_changed()
        file.write_text("a\n1\n2\n")
        assert pages.is_changed()
        with session.open_pages(source.format(files), connection=url) as again:
            (tmp_path / "other.txt").write_text("not one of them")
            assert not again.is_changed()
            (tmp_path / "b.csv").write_text("a\n1\n")
            assert again.is_changed()


def test_a_file_in_a_new_folder_below_others_that_have_none_is_noticed(tmp_path: Any) -> None:
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "a.csv").write_text("a\n1\n")
    with SqlSession(allowed_paths=[tmp_path]) as session, session.open_pages(f"'{tmp_path}/**/*.csv'") as pages:
        (new := tmp_path / "empty" / "deep" / "new").mkdir()
        assert not pages.is_changed()
        (new / "b.csv").write_text("a\n1\n")
        assert pages.is_changed()


def test_a_table_of_a_connection_is_read_once_for_its_first_rows_and_all(tmp_path: Any) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.executescript("CREATE VIEW t AS SELECT random() AS a;")
    urls = {"crm": f"sqlite:///{tmp_path}/a.sqlite"}
    with SqlSession(connections=urls) as session, session.open_pages("(SELECT a, 1 AS b FROM crm.t) AS q") as pages:
        first = pages.cells(0, 1, range(2))
        pages.finish()
        assert pages.cells(0, 1, range(2)) == first


@pytest.mark.races
def test_a_sort_that_is_stopped_leaves_the_rows_and_says_so() -> None:
    frame = pl.DataFrame({"a": pl.int_range(3_000_000, eager=True).hash()})
    control = QueryControl()
    with open_frame(frame) as pager:
        threading.Timer(0.05, control.stop, ["stop"]).start()
        with pytest.raises(Cancelled):
            pager.arrange(Arrangement(order=(("a", False), ("a", True))), control)
        assert pager.cells(0, 1, [0]) == [[str(frame["a"][0])]]


ODD = {
    "big": [2**63 - 1, None, -(2**63)],
    "float": [1.5, math.nan, math.inf],
    "mixed": [1, "a", None],
    "nested": [[1, 2], {"a": 1}, None],
    "bytes": [b"\x00\xff", b"", None],
    "decimal": [decimal.Decimal("1.10"), None, decimal.Decimal("-3.00")],
    "date": [dt.date(2020, 1, 2), None, dt.date(1, 1, 1)],
    "markup": ["<b>x</b>", "a\x1b[2Kb", "\u202eabc"],
    "right to left": ["שלום", "مرحبا", None],
    'a "quoted" name': ["x" * 1_000, "", None],
    "select": [True, None, False],
}


def test_odd_frames_are_shown_sorted_and_profiled() -> None:
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in ODD.items()})
    frame["zoned"] = pd.to_datetime(["2020-01-01", None, "2021-06-01"]).tz_localize("Europe/Zurich")
    frame["period"] = pd.period_range("2020-01", periods=3, freq="M")
    frame.index = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["index", "index"])
    twice = pd.concat([frame, frame[["float"]]], axis="columns")
    with open_frame(twice) as pager:
        names = pager.source.columns
        assert (names[0], names[1], names[-1]) == ("index", "index_1", "float_1")
        rows = pager.cells(0, 3, range(len(names)))
        cells = dict(zip(names, rows[0], strict=True))
        assert cells["big"] == str(2**63 - 1)
        assert cells["bytes"] == r"\x00\xFF"
        assert cells["markup"] == "<b>x</b>"
        assert cells["zoned"] == "2020-01-01 00:00:00+01:00"
        assert len(cells['a "quoted" name']) == 301
        assert len(pager.cells(0, 1, [names.index('a "quoted" name')], None)[0][0]) == 1_000
        assert rows[1][names.index("float")] is None
        assert rows[1][names.index("markup")] == "a<U+001B>[2Kb"
        assert rows[1][names.index("mixed")] == "a"
        for place, name in enumerate(names):
            pager.arrange(Arrangement(order=((name, True),)))
            assert pager.row_count == 3
            assert pager.profile(place).rows == 3
    with open_frame(pd.DataFrame({"long": ["x" * 1_000_000, "", None]})) as pager:
        assert (len(pager.cells(0, 1, [0])[0][0]), len(pager.cells(0, 1, [0], None)[0][0])) == (301, 1_000_000)
        assert pager.profile(0).rows == 3


@pytest.mark.parametrize("frame", [pd.DataFrame(), pd.DataFrame({"a": []}), pd.DataFrame(index=range(3))])
def test_frames_without_rows_or_columns_have_pages(frame: Any) -> None:
    with open_frame(frame) as pager:
        assert len(pager.cells(0, 10, range(len(pager.source.columns)))) == len(frame)


def test_ten_thousand_columns_are_read_where_they_are_looked_at() -> None:
    frame = pl.DataFrame({f"c{n}": [n, n + 1] for n in range(10_000)})
    with open_frame(frame) as pager:
        assert pager.cells(1, 2, [0, 9_999]) == [["1", "10000"]]


@pytest.mark.parametrize("text", ["select " + "! " * 45_000 + "1", "select " + "(" * 90_000])
def test_a_text_that_nests_too_deep_is_taken_apart_by_no_parser(text: str) -> None:
    with pytest.raises(SqlInvalid, match=r"operators in a row|brackets nest deeper"):
        Shape.from_text(text)


def test_a_name_of_thousands_of_parts_is_refused_where_the_parser_cannot_take_it_apart() -> None:
    # From Python 3.13 on compiled code may nest deeper, and takes it apart.
    refused = pytest.raises(SqlInvalid, match="nests too deep")
    with contextlib.nullcontext() if sys.version_info >= (3, 13) else refused:
        Shape.from_text("select a" + ".b" * 9_000)


@pytest.mark.parametrize("dtype", ["float64", "float32", "Float64", "object"])
def test_a_missing_number_of_pandas_is_missing_in_the_grid_as_in_sql(dtype: str) -> None:
    frame = pd.DataFrame({"x": pd.Series([1.5, None], dtype=dtype)})
    with open_frame(frame) as pager, SqlSession(frames={"f": frame}) as session:
        shown = [row[0] for row in pager.cells(0, 2, [0])]
        assert shown == ["1.5", None]
        assert [row[0] for row in session.query("select x::varchar from f").to_rows()] == shown


def test_a_file_that_changes_while_its_rows_are_copied_is_told(tmp_path: Any) -> None:
    file = tmp_path / "grows.csv"
    file.write_text("id,name\n" + "".join(f"{at},n\n" for at in range(200_000)))
    with SqlSession(allowed_paths=[tmp_path]) as session, session.open_pages(f"'{file}'") as pages:
        pages.source.settle(QueryControl())
        with file.open("a") as more:
            more.write("7,late\n")
        with pages._cursor("order") as cursor:
            pages.source.finish(cursor)
        assert [str(note) for note in pages.source.notes] == ["grows.csv: grew while it was read"]
        with file.open("a") as more:
            more.write("8,late,too,many\n")
        error = SqlFailed("some line is wrong.")
        pages.source.reading.explain(error)
        assert error.message == "grows.csv grew while it was read. some line is wrong."


@pytest.mark.parametrize(("added", "what"), [("1,2,3,4\n", "g.csv grew while it was read."), ("", "It changed after")])
def test_an_error_behind_the_first_page_says_that_the_file_changed_since(tmp_path: Any, added: str, what: str) -> None:
    file = tmp_path / "g.csv"
    file.write_text("id,name\n" + "1,n\n" * 30_000)
    with SqlSession(allowed_paths=[tmp_path]) as session, session.open_pages(f"'{file}'") as pages:
        content = file.read_bytes() + added.encode() if added else b"PK\3\4" + bytes(1_000)
        file.write_bytes(content)
        with pytest.raises(NbtoolsError) as caught:
            pages.finish()
    assert caught.value.message.startswith(what)
    assert not added or "Line: 30002" in caught.value.message


def test_an_error_behind_the_first_page_names_the_file_and_the_way_on(tmp_path: Any) -> None:
    file = tmp_path / "late.csv"
    file.write_text("id,name\n" + "".join(f"{at},n\n" for at in range(200_000)) + "1,2,3,4\n")
    with SqlSession(allowed_paths=[tmp_path]) as session, session.open_pages(f"'{file}'") as pages:
        assert pages.row_count == 200
        with pytest.raises(SqlFailed, match="Line: 200002") as caught:
            pages.finish()
        way = f"FROM read_csv('{file}', ignore_errors = true)"
        assert way in str(caught.value.hint)
        assert session.query(f"SELECT count(*) {way}").to_rows() == [[200_000]]
