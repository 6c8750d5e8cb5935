"""PostgreSQL by itself: its walls, its caps, and how values are read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from nbtools.errors import CallTimeout, Cancelled, NbtoolsError, SqlFailed, SqlInvalid, SqlNotAllowed
from nbtools.sql import SqlSession
from nbtools.sql.engines.postgres import PostgresEngine
from nbtools.sql.engines.protocol import EngineAnswer, QueryControl, QueryRequest

pytestmark = pytest.mark.processes


@pytest.fixture
def engine(postgres_url: str) -> Iterator[PostgresEngine]:
    with contextlib.closing(PostgresEngine(postgres_url)) as opened:
        yield opened


def run(engine: PostgresEngine, sql: str, **more: Any) -> EngineAnswer:
    return engine.run(QueryRequest(sql=sql, **more), QueryControl())


def test_comments_and_semicolons_at_the_end_are_no_obstacle(engine: PostgresEngine) -> None:
    for sql in ("select 1 as a -- one", "select 1 as a; -- one", "select 1 as a /* one */;;", "values (1) "):
        assert run(engine, sql).rows.to_lists() == [[1]]


@pytest.mark.parametrize(
    "sql",
    [
        "create table x (i int)",
        "create temp table x (i int)",
        "with a as (insert into kept values (2) returning i) select i from a",
        "select 1; select 2",
        "select 1 as a) to program 'false'; --",
        "select nextval('numbers')",
        "delete from kept returning i",
        "set default_transaction_read_only = off",
    ],
)
def test_the_engine_alone_writes_nothing(engine: PostgresEngine, postgres_url: str, sql: str) -> None:
    import psycopg

    with psycopg.connect(postgres_url) as connection:
        connection.execute("drop table if exists kept; drop sequence if exists numbers; drop table if exists x")
        connection.execute("create table kept as select 1 as i; create sequence numbers")
    with pytest.raises(NbtoolsError):
        run(engine, sql)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("select * from kept").fetchall() == [(1,)]
        assert connection.execute("select to_regclass('x'), (select is_called from numbers)").fetchone() == (
            None,
            False,
        )


def test_a_session_is_wiped_before_it_is_used_again(engine: PostgresEngine) -> None:
    asked = "select set_config('search_path', 'pg_catalog', false)::text as s"
    seen = (
        "select pg_backend_pid() as pid, current_setting('search_path')::text as s,"
        " current_setting('transaction_read_only')::text as r"
    )
    run(engine, asked)
    first, second = run(engine, seen).rows.to_lists(), run(engine, seen).rows.to_lists()
    assert first == second
    assert "public" in first[0][1]
    assert first[0][2] == "on"


def test_the_caps_stop_the_reader(engine: PostgresEngine) -> None:
    found = run(engine, "select i, 'text' as t from generate_series(1, 1000000) i", max_rows=5_000)
    assert (len(found.rows), found.cut_by) == (5_000, "rows")
    found = run(engine, "select i from generate_series(1, 1000000) i", max_rows=10**9, max_bytes=1_000_000)
    assert found.cut_by == "bytes"
    assert run(engine, "select 1 as a").rows.to_lists() == [[1]]


def test_time_and_stop_end_a_query(engine: PostgresEngine) -> None:
    forever = "select count(*) from generate_series(1, 100000000000) i"
    with pytest.raises(CallTimeout):
        run(engine, forever, timeout=0.3)
    control = QueryControl()
    control.stop("stop")
    with pytest.raises(Cancelled):
        engine.run(QueryRequest(sql=forever), control)
    assert run(engine, "select 1 as a").rows.to_lists() == [[1]]


def test_errors_tell_the_place(engine: PostgresEngine) -> None:
    with pytest.raises(SqlInvalid) as caught:
        run(engine, "select 1,\n  nothing from pg_class")
    assert "^" in str(caught.value)
    with pytest.raises((SqlFailed, SqlNotAllowed)):
        run(engine, "select 1 / (i - 300) as x from generate_series(1, 100000) i")


def test_what_a_role_has_set_about_the_text_of_values_changes_none(postgres_database: str) -> None:
    import psycopg

    odd = ("intervalstyle='iso_8601'", "datestyle='German'", "extra_float_digits=-5", "bytea_output='escape'")
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("create role odd login")
        for setting in odd:
            connection.execute(f"alter role odd set {setting}")
    sql = (
        "select interval '1 day 02:00:00' as i, date '2024-02-29' as d, timestamp '2024-02-03 04:05:06.7' as t,"
        " timestamptz '2024-02-03 04:05:06+00' as z, 0.1::float8 + 0.2::float8 as f, '\\x00ff'::bytea as b,"
        " daterange('2024-01-01', '2024-02-01') as r, array[interval '3 hours'] as a, date '2024-02-29'::text as s"
    )
    expected = [
        "1 day 02:00:00",
        "2024-02-29",
        "2024-02-03 04:05:06.7",
        "2024-02-03 04:05:06+00:00",
        0.1 + 0.2,
        "0x00ff",
    ]
    expected += ["[2024-01-01,2024-02-01)", ["03:00:00"], "2024-02-29"]
    try:
        with SqlSession(connections={"odd": postgres_database.replace("postgres@", "odd@")}) as session:
            assert session.query(sql, connection="odd").to_rows() == [expected]
    finally:
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute("drop role odd")
