"""One session, the way people and tools use it: frames, files, parameters, caps, errors, Stop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from nbtools.errors import (
    CallTimeout,
    Cancelled,
    ConfigMissing,
    FileMissing,
    InvalidArguments,
    LimitExceeded,
    NbtoolsError,
    SqlFailed,
    SqlInvalid,
    SqlNotAllowed,
)
from nbtools.ground import aio
from nbtools.sql import SqlSession
from tests.conftest import wait_until

ENDLESS = "select count(*) from range(100000000) a, range(100000000) b where a.range + b.range < 5"
FRAME = pd.DataFrame({"x": [1, 2, 3], "city": ["a", "b", None]})


def _data(place: Path) -> Path:
    folder = place / "data"
    folder.mkdir()
    (folder / "sales.csv").write_text("id,amount\n1,10.5\n2,20\n")
    (folder / "more.json").write_text('[{"id": 3, "amount": 30}]')
    (place / "secret.csv").write_text("secret\n1\n")
    return folder


def _session(folder: Path) -> SqlSession:
    tables = {"nbtools.notes": lambda: [{"key": "a", "value": 1}]}
    return SqlSession(allowed_paths=[folder], frames={"df": FRAME, "number": 5}.get, tables=tables)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return _data(tmp_path)


@pytest.fixture
def session(folder: Path) -> Iterator[SqlSession]:
    with _session(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSession]:
    """Yield a session whose worker many queries ask: one of its own takes each of them a fifth of a second."""
    with _session(_data(tmp_path_factory.mktemp("shared"))) as opened:
        yield opened


def test_a_query_returns_rows_and_facts(session: SqlSession) -> None:
    result = session.query("select x, city from df order by x")
    assert result.columns == ("x", "city")
    assert result.types == ("BIGINT", "VARCHAR")
    assert result.to_rows() == [[1, "a"], [2, "b"], [3, None]]
    assert (result.row_count, result.truncated, result.cut_by) == (3, False, None)
    assert result.sources == ("frame df",)
    assert result.engine.startswith("DuckDB")
    assert "3 rows" in result.footer()
    assert "read frame df" in result.footer()


def test_exactly_the_named_frames_are_visible(session: SqlSession) -> None:
    with pytest.raises(SqlInvalid):
        session.query("select * from FRAME")
    with pytest.raises(SqlInvalid):
        session.query("select * from number")


def test_a_name_is_found_whatever_its_case(session: SqlSession) -> None:
    assert session.query("from DF select count(*)").to_rows() == [[3]]


def test_a_frame_that_changed_is_read_anew() -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    with SqlSession(frames={"frame": frame}.get) as session:
        assert session.query("select sum(a) from frame").to_rows() == [[3]]
        frame.loc[0, "a"] = 100
        assert session.query("select sum(a) from frame").to_rows() == [[102]]
        frame["b"] = 7
        assert session.query("select sum(b) from frame").to_rows() == [[14]]


@pytest.mark.processes
def test_polars_arrow_and_earlier_results_are_frames() -> None:
    import polars as pl
    import pyarrow as pa

    with SqlSession() as session:
        result = session.query("select 5 as a union all select 6")
        frames = {
            "p": pl.DataFrame({"a": [1]}),
            "lazy": pl.LazyFrame({"a": [2]}),
            "t": pa.table({"a": [3]}),
            "batch": pa.record_batch({"a": [4]}),
            "result": result,
            "series": pd.Series([7, 8], name="a"),
        }
        sql = "select sum(a) from (from p union all from lazy union all from t union all from batch union all"
        found = session.query(f"{sql} from result union all from series)", frames=frames)
        assert found.to_rows() == [[36]]
        assert session.query(f"{sql} from result union all from series)", frames=frames, isolated=True).to_rows() == [
            [36]
        ]


def test_odd_column_names_are_made_into_text() -> None:
    frame = pd.DataFrame([[1, 2, 3]], columns=[0, ("a", "b"), 0])
    with SqlSession() as session:
        found = session.query("from frame", frames={"frame": frame})
        assert found.columns == ("0", "a_b", "0_1")


def test_records_of_the_toolkit_are_snapshots(session: SqlSession) -> None:
    for _ in range(2):
        result = session.query("select key, value from nbtools.notes")
        assert result.to_rows() == [["a", 1]]
        assert result.sources == ("record nbtools.notes",)


def test_files_below_the_roots_are_read(session: SqlSession, folder: Path) -> None:
    result = session.query(f"select sum(amount) from '{folder}/sales.csv'")
    assert result.to_rows() == [[30.5]]
    assert result.sources == (f"file {folder}/sales.csv",)
    assert session.query(f"select id from read_json('{folder}/more.json')").to_rows() == [[3]]


def test_files_outside_the_roots_are_refused(session: SqlSession, folder: Path) -> None:
    for path in (folder.parent / "secret.csv", "/etc/passwd", f"{folder}/../secret.csv"):
        with pytest.raises(SqlNotAllowed) as caught:
            session.query(f"select * from '{path}'")
        assert caught.value.data["line"] == 1


@pytest.mark.processes
def test_workbooks_are_read_through_pandas(session: SqlSession, folder: Path) -> None:
    pytest.importorskip("openpyxl")
    pd.DataFrame({"a": [1, 2]}).to_excel(folder / "book.xlsx", index=False)
    for isolated in (False, True):
        assert session.query(f"select sum(a) from '{folder}/book.xlsx'", isolated=isolated).to_rows() == [[3]]


def test_a_session_without_roots_reads_no_files(folder: Path) -> None:
    with SqlSession() as session, pytest.raises(SqlNotAllowed):
        session.query(f"from '{folder}/sales.csv'")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("sql", "params"),
    [
        ("select x from df where x > :low", {"low": 2}),
        ("select x from df where x > $low", {"low": 2}),
        ("select x from df where x > ?", [2]),
        ("select x from df where x > $1", [2]),
    ],
)
@pytest.mark.parametrize("isolated", [False, True])
def test_parameters_are_bound_in_every_spelling(shared: SqlSession, sql: str, params: Any, isolated: bool) -> None:
    assert shared.query(sql, params=params, isolated=isolated).to_rows() == [[3]]


def test_parameters_that_do_not_match_are_named(session: SqlSession) -> None:
    with pytest.raises(InvalidArguments, match=r"\$lowe"):
        session.query("select $lowe, :low", params={"low": 1})
    with pytest.raises(InvalidArguments, match=":extra"):
        session.query("select 1", params={"extra": 1})


@pytest.mark.processes
def test_the_row_cap_cuts_and_says_so(shared: SqlSession) -> None:
    for isolated in (False, True):
        result = shared.query("select * from range(1000000000)", limit=7, isolated=isolated)
        assert result.row_count == 7
        assert result.truncated
        assert result.cut_by == "rows"
        assert "cut at the row limit" in result.footer()
    assert shared.query("select * from range(7)", limit=7).truncated is False
    assert shared.query("select * from range(7)", limit=0).row_count == 0


@pytest.mark.processes
def test_the_byte_cap_cuts_and_says_so(shared: SqlSession) -> None:
    for isolated in (False, True):
        result = shared.query(
            "select repeat('x', 1000) from range(100000)", whole=False, max_bytes=50_000, isolated=isolated
        )
        assert 10 < result.row_count <= 50
        assert result.cut_by == "bytes"
        with pytest.raises(LimitExceeded):
            shared.query("select repeat('x', 100000)", whole=False, max_bytes=50_000, isolated=isolated)


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("columns", ["range, range::varchar as s", "timetz '10:00:00+01' as t"])
def test_a_result_is_whole(shared: SqlSession, isolated: bool, columns: str) -> None:
    result = shared.query(f"select {columns} from range(70_000)", isolated=isolated)
    assert (result.row_count, result.truncated, len(result.to_pandas())) == (70_000, False, 70_000)


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_a_result_that_is_too_large_fails_and_says_how_to_go_on(shared: SqlSession, isolated: bool) -> None:
    for more in ({}, {"limit": 900_000_000}):
        with pytest.raises(LimitExceeded, match="larger than 1,000,000 bytes") as caught:
            shared.query("from range(1_000_000_000)", max_bytes=1_000_000, isolated=isolated, **more)
        assert caught.value.hint is not None
        assert "a limit" in caught.value.hint
        assert "a file" in caught.value.hint
    assert shared.query("select 1", isolated=isolated).to_rows() == [[1]]


@pytest.mark.processes
def test_a_billion_rows_end_soon_within_bounds() -> None:
    import psutil

    with SqlSession(max_bytes=64_000_000) as session:
        for isolated in (False, True):
            session.query("select 1", isolated=isolated)
            before, begun = psutil.Process().memory_info().rss, time.monotonic()
            with pytest.raises(LimitExceeded):
                session.query("from range(1_000_000_000)", isolated=isolated)
            assert time.monotonic() - begun < 20
            assert psutil.Process().memory_info().rss - before < 200_000_000


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_a_check_judges_as_the_query_does(folder: Path, isolated: bool) -> None:
    import duckdb

    with duckdb.connect(str(folder / "shop.duckdb")) as own:
        own.execute(f"create view inside as from read_csv('{folder}/sales.csv')")
        own.execute(f"create view outside as from read_csv('{folder.parent}/secret.csv')")
    with SqlSession(allowed_paths=[folder], connections={"shop": f"duckdb:///{folder}/shop.duckdb"}) as session:
        for sql, params, allowed in (
            ("from inside", None, True),
            ("from outside", None, False),
            ("select :low::int", {"low": 3}, True),
            ("delete from inside", None, False),
        ):
            options = {"connection": "shop", "params": params, "isolated": isolated}
            assert session.check(sql, **options).allowed is allowed
            try:
                session.query(sql, **options)
            except SqlNotAllowed:
                assert not allowed
            else:
                assert allowed


@pytest.mark.processes
@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("selec 1", SqlInvalid),
        ("select nowhere from df", SqlInvalid),
        ("select * from nowhere", SqlInvalid),
        ("drop table df", SqlNotAllowed),
        ("select 1; select 2", SqlNotAllowed),
        ("with a as (copy (select 1) to 'x.csv') select 1", SqlNotAllowed),
        ("from json_execute_serialized_sql(json_serialize_sql('select 1'))", SqlNotAllowed),
        ("select error('boom')", SqlFailed),
        ("select 'x'::int", NbtoolsError),
        ("", NbtoolsError),
    ],
)
@pytest.mark.parametrize("isolated", [False, True])
def test_mistakes_have_their_class_and_three_lines(
    shared: SqlSession, sql: str, kind: type[NbtoolsError], isolated: bool
) -> None:
    with pytest.raises(kind) as caught:
        shared.query(sql, isolated=isolated)
    lines = caught.value.three_lines()
    assert 2 <= len(lines) <= 4
    assert lines[0].startswith("line 1: ") or "Sql" in lines[0]
    assert "Traceback" not in caught.value.message


def test_an_error_points_at_its_place(session: SqlSession) -> None:
    with pytest.raises(SqlInvalid) as caught:
        session.query("select x,\n       nowhere\nfrom df")
    assert (caught.value.data["line"], caught.value.data["column"]) == (2, 8)
    assert caught.value.message.endswith("\n           nowhere\n           ^")
    assert caught.value.hint is not None
    assert "Candidate" in caught.value.hint
    with pytest.raises(SqlInvalid) as caught:
        session.query("select x from df\nwhere :low < nowhere", params={"low": 1})
    assert caught.value.message.endswith("\n    where :low < nowhere\n                 ^")


@pytest.mark.processes
def test_time_that_runs_out_ends_the_query(shared: SqlSession) -> None:
    for isolated in (False, True):
        begun = time.monotonic()
        with pytest.raises(CallTimeout):
            shared.query(ENDLESS, timeout=0.3, isolated=isolated)
        assert time.monotonic() - begun < 30
        assert shared.query("select 1", isolated=isolated).to_rows() == [[1]]


@pytest.mark.processes
def test_cancelling_interrupts_the_engine(shared: SqlSession) -> None:
    async def story(isolated: bool) -> float:
        task = asyncio.ensure_future(shared.aquery(ENDLESS, isolated=isolated, timeout=60))
        while not shared.is_running:  # noqa: ASYNC110 - the engine runs in a thread, which sets no event
            await asyncio.sleep(0.01)
        begun = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - begun

    for isolated in (False, True):
        assert asyncio.run(story(isolated)) < 30
        assert shared.query("select 1", isolated=isolated).to_rows() == [[1]]


def test_interrupting_the_session_is_told_to_who_waits(session: SqlSession) -> None:
    raised: list[BaseException] = []

    def work() -> None:
        try:
            session.query(ENDLESS, timeout=60)
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: session.is_running)
    session.interrupt()
    thread.join(20)
    assert isinstance(raised[0], Cancelled)


def test_queries_run_on_any_loop_and_at_the_same_time(session: SqlSession) -> None:
    async def story() -> list[Any]:
        results = await asyncio.gather(*(session.aquery(f"select {n} + x from df where x = 1") for n in range(8)))
        return [result.to_rows() for result in results]

    expected = [[[n + 1]] for n in range(8)]
    assert asyncio.run(story()) == expected
    assert aio.run(story()) == expected


@pytest.mark.processes
def test_progress_is_reported_while_a_query_runs(shared: SqlSession) -> None:
    for isolated in (False, True):
        shares: list[float] = []

        def seen(share: float, shares: list[float] = shares) -> None:
            shares.append(share)
            shared.interrupt()

        with pytest.raises(Cancelled):
            shared.query(ENDLESS, timeout=60, on_progress=seen, isolated=isolated)
        assert all(0 <= share <= 1 for share in shares)


def test_connections_by_name_and_by_url(tmp_path: Path) -> None:
    import duckdb

    file = tmp_path / "shop.duckdb"
    with duckdb.connect(file) as connection:
        connection.execute("create table sales as select 1 as id")
        connection.execute("create macro twice(a) as a * 2")
        connection.execute("create view doubled as select twice(id) as id from sales")
    url = f"duckdb:///{file}"
    with SqlSession(connections={"shop": url}) as session:
        for connection_name in ("shop", url):
            assert session.query("from sales", connection=connection_name).to_rows() == [[1]]
        assert session.query("select twice(id) from doubled", connection="shop").to_rows() == [[4]]
        both = session.query(
            "select s.id, f.b from sales s, f", connection="shop", frames={"f": pd.DataFrame({"b": [5]})}
        )
        assert both.to_rows() == [[1, 5]]
        with pytest.raises(InvalidArguments) as caught:
            session.query("from sales", connection="shpo")
        assert caught.value.hint == "Did you mean 'shop'?"
        assert [table["name"] for table in session.catalog("shop")] == ["doubled", "sales"]


@pytest.mark.processes
def test_an_isolated_query_opens_only_what_is_configured_or_allowed(folder: Path) -> None:
    import duckdb

    for place in (folder, folder.parent):
        with duckdb.connect(place / "x.duckdb") as connection:
            connection.execute("create table t as select 1 as a")
    with SqlSession(allowed_paths=[folder]) as session:
        assert session.query("from t", connection=f"duckdb:///{folder}/x.duckdb", isolated=True).to_rows() == [[1]]
        with pytest.raises(NbtoolsError):
            session.query("from t", connection=f"duckdb:///{folder.parent}/x.duckdb", isolated=True)
        with pytest.raises(SqlNotAllowed):
            session.query("select 1", connection="postgresql://me:secret@127.0.0.1/db", isolated=True)
        with pytest.raises(SqlNotAllowed, match="names an environment variable"):
            session.query("select 1", connection=f"sqlite:///{folder}/${{HOME}}.db", isolated=True)


def test_the_tables_of_a_database_win_over_frames(tmp_path: Path) -> None:
    import duckdb

    with duckdb.connect(tmp_path / "a.duckdb") as connection:
        connection.execute("create table sales as select 1 as id")
    with SqlSession(connections={"a": f"duckdb:///{tmp_path}/a.duckdb"}) as session:
        frames = {"sales": pd.DataFrame({"id": [2]})}
        assert session.query("from sales", connection="a", frames=frames).to_rows() == [[1]]


def test_a_missing_variable_of_a_url_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NBTOOLS_TEST_PASSWORD", raising=False)
    url = "duckdb:///${NBTOOLS_TEST_PASSWORD}/x.duckdb"
    with SqlSession(connections={"a": url}) as session, pytest.raises(ConfigMissing, match="NBTOOLS_TEST_PASSWORD"):
        session.query("select 1", connection="a")


@pytest.mark.processes
def test_explaining_shows_a_plan_and_runs_nothing(shared: SqlSession) -> None:
    assert "Scan" in shared.explain("select sum(x) from df")
    assert "Scan" in shared.explain("select sum(x) from df", isolated=True)
    with pytest.raises(SqlNotAllowed):
        shared.explain("drop table df")


def test_a_profile_counts_and_draws(session: SqlSession, folder: Path) -> None:
    profile = session.profile("df")
    x, city = profile.columns
    assert profile.rows == 3
    assert (x.nulls, x.distinct, x.least, x.greatest) == (0, 3, 1, 3)
    assert sum(count for _, count in x.histogram) == 3
    assert (city.nulls, city.distinct) == (1, 2)
    assert dict(city.histogram) == {"a": 1, "b": 1}
    assert "3 rows" in str(profile)
    assert "<table>" in profile._repr_html_()
    assert session.profile(f"{folder}/sales.csv").rows == 2


def test_records_are_in_the_catalog(session: SqlSession) -> None:
    assert session.catalog() == [{"name": "nbtools.notes", "kind": "record", "schema": None, "columns": []}]


def test_a_closed_session_opens_again_when_asked(session: SqlSession) -> None:
    session.query("select 1")
    session.close()
    assert session.query("select 2").to_rows() == [[2]]


def test_a_session_is_closed_under_a_query(session: SqlSession) -> None:
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            session.query("select sum(a.range * b.range) from range(1000000) a, range(1000000) b")
        except BaseException as exc:  # the thread's own end is what is looked at
            ended.append(exc)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: session.is_running or not asking.is_alive())
    session.close()
    asking.join(30)
    assert [type(one) for one in ended] == [Cancelled]
    assert session.query("select 2").to_rows() == [[2]]


def test_negative_limits_are_refused(session: SqlSession) -> None:
    with pytest.raises(InvalidArguments):
        session.query("select 1", limit=-1)


def test_a_parameter_without_a_value_is_told(session: SqlSession) -> None:
    with pytest.raises(SqlInvalid, match="syntax error") as caught:
        session.query("select :low + 1")
    assert caught.value.hint == "If :low is a parameter, give it a value: a variable low of the notebook, or params=."
    with pytest.raises(SqlInvalid, match="syntax error") as caught:
        session.query("select :low + :high", params={"low": 1})
    assert caught.value.hint == "If :high is a parameter, give it a value: a variable high of the notebook, or params=."


def test_a_text_without_a_statement_points_nowhere(session: SqlSession) -> None:
    with pytest.raises(SqlInvalid) as caught:
        session.query("  ")
    assert "^" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "kind", "what", "hint"),
    [
        (None, FileMissing, "No files found", "Relative paths start at"),
        (bytes(range(256)) * 12, SqlFailed, "Error when sniffing file", "options delim"),
        (b"a,b\n1,caf\xe9\n", SqlFailed, "CSV Error on Line: 2: the file is not UTF-8.", "encoding = 'cp1252'"),
    ],
    ids=["absent", "binary", "latin-1"],
)
def test_a_file_that_cannot_be_read_is_told_in_a_line(
    session: SqlSession, folder: Path, content: bytes | None, kind: type[NbtoolsError], what: str, hint: str
) -> None:
    path = folder / "odd.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(kind, match=what) as caught:
        session.query(f"select * from '{path}'")
    assert hint in str(caught.value.hint)
    assert len(caught.value.message) < 300


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_explain_runs_in_all_its_forms_or_is_refused_by_the_verdict(isolated: bool) -> None:
    with SqlSession() as session:
        for sql in (
            "explain (select 1)",
            "EXPLAIN/**/SELECT 1",
            "/* a */ explain -- b\n select 1",
            "explain analyze (format json) select 1",
            "explain (analyze, format json) select 1",
            "explain (format 'json') select 1",
            "explain analyze from range(2)",
            "explain pivot (select 1 as i, 2 as j) on i using sum(j)",
            "explain describe select 1",
        ):
            assert len(session.query(sql, isolated=isolated).to_rows()) >= 1, sql
        with pytest.raises(SqlInvalid, match='"nope" not found') as wrong:
            session.query("explain analyze\nselect 1,\n nope from range(1)", isolated=isolated)
        assert (wrong.value.data["line"], wrong.value.data["column"]) == (3, 2)
        for sql in ("explain create table x (i int)", "explain analyze copy (select 1) to 'x.csv'"):
            assert not session.check(sql).allowed


def test_a_database_with_the_name_of_the_records_has_its_own_tables(tmp_path: Path) -> None:
    path = tmp_path / "NBTools.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE notes AS SELECT 7 AS own")
    tables = {"nbtools.notes": lambda: [{"key": "a"}]}
    with SqlSession(connections={"db": f"duckdb:///{path}"}, tables=tables) as session:
        assert session.query("select * from nbtools.notes", connection="db").to_rows() == [[7]]
        assert session.query("select * from nbtools.notes").to_rows() == [["a"]]
