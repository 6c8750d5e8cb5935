"""What a model asks of any database is judged and run in processes of their own, few of them, that end when idle."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbtools.errors import LimitExceeded, SqlFailed, SqlInvalid, SqlNotAllowed
from nbtools.sql import SqlSession
from nbtools.sql.connections import SessionEngines
from nbtools.sql.engines.protocol import EngineOptions, QueryControl, QueryRequest
from nbtools.sql.worker.client import IsolatedEngine
from nbtools.sql.worker.sheets import SheetOptions
from tests.conftest import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore:connection 'pg'")]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.sqlite"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("create table b (n text, i integer)")
        rows = ((f"{i * 2654435761 % 2**32:08x}" * 4, i) for i in range(60_000))
        connection.executemany("insert into b values (?, ?)", rows)
        connection.commit()
    return file


@pytest.fixture
def session(tmp_path: Path, shop: Path) -> Iterator[SqlSession]:
    with SqlSession(allowed_paths=[tmp_path], connections={"shop": f"sqlite:///{shop}"}) as opened:
        yield opened


def workers() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it may end meanwhile
            if "nbtools.sql.worker" in " ".join(child.cmdline()):
                found.append(child)
    return found


def test_sqlite_sorts_and_joins_more_than_memory_holds_for_a_model(session: SqlSession) -> None:
    for sql in (
        "select n from b order by n desc limit 1",
        "select n, count(*) as c from b group by n order by c, n desc limit 1",
        "select x.n from b x join b y on x.n = y.n order by y.n desc limit 1",
    ):
        found = session.query(sql, connection="shop", isolated=True)
        assert len(found.to_rows()[0][0]) == 32
        assert found.isolated


@pytest.mark.races
def test_a_text_that_breaks_the_parser_costs_a_worker_and_nothing_else(session: SqlSession) -> None:
    assert session.query("select 1", isolated=True).to_rows() == [[1]]
    engine = session._engines.engine(None, isolated=True)
    assert isinstance(engine, IsolatedEngine)
    # Stopped, so that the signal comes while it judges: releases of parsers differ in what breaks them.
    (victim,) = (worker.process.pid for worker in engine._idle)
    os.kill(victim, signal.SIGSTOP)
    threading.Timer(0.2, os.kill, (victim, signal.SIGSEGV)).start()
    threading.Timer(0.3, os.kill, (victim, signal.SIGCONT)).start()
    with pytest.raises(SqlFailed, match="signal 11"):
        session.query("select 2", isolated=True)
    assert session.query("select 3", isolated=True).to_rows() == [[3]]


@pytest.mark.races
def test_so_many_queries_of_one_database_run_at_one_time_and_no_more(session: SqlSession) -> None:
    asked = "select count(*) as n from range(8000000) t(a) where a % 7 = 1"
    found: list[Any] = []
    before = set(workers())

    def ask() -> None:
        found.append(session.query(asked, isolated=True).to_rows())

    threads = [threading.Thread(target=ask) for _ in range(7)]
    for thread in threads:
        thread.start()
    most = 0
    while any(thread.is_alive() for thread in threads):
        most = max(most, len(set(workers()) - before))
        threads[-1].join(0.05)
    assert found == [[[1142857]]] * 7
    assert 1 < most <= 4


def test_runs_of_operators_are_bounded_like_brackets(session: SqlSession) -> None:
    for operator in ("! ", "- ", "~ ", "-/* */", "+\n", "not ", "Not/**/"):
        for isolated in (False, True):
            with pytest.raises(SqlNotAllowed, match="operators in a row"):
                session.query(f"select {operator * 12_000} 1", isolated=isolated)
    assert session.query("select - - 1, 1 - -1, '!!!' || ?", params=["-" * 100]).to_rows()[0][:2] == [1, 2]
    assert session.query(f"select {'1 - ' * 200} 1").to_rows() == [[-199]]
    assert session.query(f"select not not {'true and not ' * 100} true").to_rows() == [[False]]


def test_a_verdict_of_the_worker_is_that_of_the_owner(session: SqlSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    for sql in (
        "select 1",
        "from t join u using (a)",
        "from 'a.csv'",
        "drop table t",
        "select (",
        "from '/etc/passwd.csv'",
    ):
        assert session.check(sql, isolated=True) == session.check(sql)
    assert session.check("select load_extension('x')", connection="shop", isolated=True).allowed is False


def test_a_model_s_text_is_translated_in_the_worker(session: SqlSession) -> None:
    found = session.query("from b select i::int as i where i < 2", connection="shop", dialect="duckdb", isolated=True)
    assert found.to_rows() == [[0], [1]]
    with pytest.raises(SqlInvalid, match="no exact counterpart"):
        session.query("from b positional join b", connection="shop", dialect="duckdb", isolated=True)


def test_every_spelling_of_a_url_shares_one_worker(session: SqlSession, shop: Path) -> None:
    before = set(workers())
    for url in (*(f"sqlite:///{shop}?{number}" for number in range(12)), f"SQLITE:///{shop.parent}/./{shop.name}"):
        assert session.query("select count(*) from b", connection=url, isolated=True).to_rows() == [[60_000]]
    assert len(set(workers()) - before) == 1


@pytest.mark.slow
@pytest.mark.races
def test_workers_of_many_files_are_bounded(tmp_path: Path) -> None:
    for number in range(10):
        with contextlib.closing(sqlite3.connect(tmp_path / f"{number}.sqlite")) as connection:
            connection.execute("create table t (i)")
    before = set(workers())  # some of an earlier test may be about to end
    with SqlSession(allowed_paths=[tmp_path]) as session:
        for number in range(10):
            url = f"sqlite:///{tmp_path}/{number}.sqlite"
            assert session.query("select * from t", connection=url, isolated=True).to_rows() == []
        wait_until(lambda: len(set(workers()) - before) == 8)
    wait_until(lambda: not set(workers()) - before)


@pytest.mark.races
def test_idle_workers_end(tmp_path: Path) -> None:
    with contextlib.closing(IsolatedEngine(None, EngineOptions(), idle_s=0.2)) as engine:
        engine.warm()
        process = psutil.Process(engine._idle[0].process.pid)
        wait_until(lambda: not engine._idle and not process.is_running())
        assert engine.run(QueryRequest(sql="select 1"), QueryControl()).rows.to_lists() == [[1]]


def test_a_workbook_is_read_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl")
    frame = pandas.DataFrame({"a": [1, 2, None], "b": ["x", None, "z"], "c": ["x", 1, 2.5], 4: [True, False, True]})
    frame.to_excel(tmp_path / "book.xlsx", index=False)
    monkeypatch.chdir(tmp_path)
    with SqlSession(allowed_paths=[tmp_path]) as session:
        mine = session.query("from 'book.xlsx'")
        monkeypatch.setattr(pandas, "read_excel", None)
        found = session.query("from 'book.xlsx'", isolated=True)
        assert found.to_rows() == mine.to_rows()
        assert found.columns == mine.columns
        (tmp_path / "bad.xlsx").write_bytes(b"is not a workbook")
        with pytest.raises(SqlInvalid, match="is not a workbook"):
            session.query("from 'bad.xlsx'", isolated=True)


@pytest.mark.slow
@pytest.mark.races
def test_a_workbook_that_unpacks_to_too_much_ends_in_its_process(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    for _ in range(2_000):
        sheet.append(["x" * 30_000])
    book.save(tmp_path / "bomb.xlsx")
    mine = psutil.Process().memory_info().rss
    with SqlSession(allowed_paths=[tmp_path], memory_bytes=20_000_000) as session, pytest.raises(LimitExceeded):
        session._engines.read_workbook(tmp_path / "bomb.xlsx", SheetOptions(), QueryControl())
    assert psutil.Process().memory_info().rss - mine < 100_000_000
    assert (tmp_path / "bomb.xlsx").stat().st_size < 1_000_000


@pytest.mark.races
@pytest.mark.slow
@pytest.mark.parametrize("driver", ["postgresql", "postgresql+psycopg"])
def test_postgres_runs_in_the_worker_for_a_model(postgres_url: str, driver: str) -> None:
    url = postgres_url.replace("postgresql", driver, 1)
    with SqlSession(connections={"pg": url}, memory_bytes=100_000_000) as session:
        ask: Any = lambda sql, isolated: session.query(sql, connection="pg", isolated=isolated)  # noqa: E731
        for sql in (
            "select 1 as a, 2.5::float4 as b, 'x' as c, true as d, date '2024-02-29' as e, null::int as f",
            "select 1.5::numeric as a, '10.0.0.1'::inet as b, array[1, 2] as c",
            "select '{\"a\": 1}'::jsonb as a, timestamptz '2024-01-01 10:00:00+00' as b, interval '1 day' as c",
            "select 1 as a where false",
        ):
            mine, theirs = ask(sql, False), ask(sql, True)
            assert theirs.isolated
            assert (theirs.columns, theirs.types) == (mine.columns, mine.types)
            assert theirs.to_rows() == mine.to_rows()
            assert list(theirs.to_pandas().dtypes) == list(mine.to_pandas().dtypes)
        before = psutil.Process().memory_info().rss
        with pytest.raises(LimitExceeded):
            ask("select repeat('x', 250000000)", True)
        assert psutil.Process().memory_info().rss - before < 200_000_000
        with pytest.raises(SqlNotAllowed):
            ask("delete from pg_class", True)
        with pytest.raises(SqlInvalid, match="line 1"):
            ask("select nope", True)


def test_places_of_urls_are_told_apart(tmp_path: Path) -> None:
    with contextlib.closing(SessionEngines({}, EngineOptions(), None)) as engines:
        first = engines.engine(f"sqlite:///{tmp_path}/a.sqlite", isolated=False)
        assert engines.engine(f"sqlite:///{tmp_path}/b/../a.sqlite", isolated=False) is first
        assert engines.engine(f"duckdb:///{tmp_path}/a.sqlite", isolated=False) is not first
        assert engines.engine("sqlite:///:memory:", isolated=False) is engines.engine("sqlite://", isolated=False)
