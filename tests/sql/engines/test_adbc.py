"""PostgreSQL through ADBC: the same answers and the same walls as through psycopg."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from nbtools.errors import CallTimeout, Cancelled, NbtoolsError, SqlFailed, SqlInvalid, SqlNotAllowed
from nbtools.sql import SqlSession
from nbtools.sql.engines.adbc import AdbcPostgresEngine
from nbtools.sql.engines.postgres import PostgresEngine
from nbtools.sql.engines.protocol import Fetched, QueryControl, QueryRequest
from nbtools.sql.results.rows import ArrowRows

pytestmark = pytest.mark.processes

PLAIN = (
    "select 1::int2 as a, 2::int4 as b, 3::int8 as c, 1.5::float4 as d, 'nan'::float8 as e, true as f, 'x'::text as g,"
    " 'y'::varchar as h, date '2024-02-29' as i, timestamp '2024-01-01 10:00:00.5' as j, 'ab'::bytea as k,"
    " 'b'::char(3) as l, null::text as m"
)
BY_PSYCOPG = """
select 1.5::numeric as n
select timestamptz '2024-01-01 00:00:00+00' as t
select '{"a": 1}'::jsonb as j
select array[1, 2] as a
select gen_random_uuid() is not null as u, interval '1 day' as i
explain select 1
/* a comment */ explain select 1
""".strip().splitlines()


@pytest.fixture
def engine(postgres_url: str) -> Iterator[AdbcPostgresEngine]:
    with contextlib.closing(AdbcPostgresEngine(postgres_url)) as opened:
        yield opened


def run(engine: PostgresEngine, sql: str, **more: Any) -> Fetched:
    return engine.run(QueryRequest(sql=sql, **more), QueryControl())


def test_plain_columns_come_as_arrow_and_read_the_same(engine: AdbcPostgresEngine, postgres_url: str) -> None:
    by_adbc = run(engine, PLAIN)
    assert isinstance(by_adbc.rows, ArrowRows)
    with contextlib.closing(PostgresEngine(postgres_url)) as other:
        by_psycopg = run(other, PLAIN)
    assert not isinstance(by_psycopg.rows, ArrowRows)
    assert by_adbc.columns == by_psycopg.columns
    assert by_adbc.types == by_psycopg.types
    assert by_adbc.rows.to_lists() == by_psycopg.rows.to_lists()


@pytest.mark.parametrize("sql", BY_PSYCOPG)
def test_what_adbc_reads_in_another_way_goes_by_psycopg(engine: AdbcPostgresEngine, sql: str) -> None:
    found = run(engine, sql)
    assert len(found.rows) >= 1
    assert not isinstance(found.rows, ArrowRows)


def test_comments_and_semicolons_at_the_end_are_no_obstacle(engine: AdbcPostgresEngine) -> None:
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
def test_the_engine_alone_writes_nothing(engine: AdbcPostgresEngine, postgres_url: str, sql: str) -> None:
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


def test_a_session_is_wiped_before_it_is_used_again(engine: AdbcPostgresEngine) -> None:
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


def test_the_caps_stop_the_reader(engine: AdbcPostgresEngine) -> None:
    found = run(engine, "select i, 'text' as t from generate_series(1, 1000000) i", max_rows=5_000)
    assert (len(found.rows), found.cut_by) == (5_000, "rows")
    found = run(engine, "select i from generate_series(1, 1000000) i", max_rows=10**9, max_bytes=1_000_000)
    assert found.cut_by == "bytes"
    assert run(engine, "select 1 as a").rows.to_lists() == [[1]]


def test_time_and_stop_end_a_query(engine: AdbcPostgresEngine) -> None:
    forever = "select count(*) from generate_series(1, 100000000000) i"
    with pytest.raises(CallTimeout):
        run(engine, forever, timeout=0.3)
    control = QueryControl()
    control.stop("stop")
    with pytest.raises(Cancelled):
        engine.run(QueryRequest(sql=forever), control)
    assert run(engine, "select 1 as a").rows.to_lists() == [[1]]


def test_errors_are_those_of_psycopg(engine: AdbcPostgresEngine) -> None:
    with pytest.raises(SqlInvalid) as caught:
        run(engine, "select 1,\n  nothing from pg_class")
    assert "^" in str(caught.value)
    with pytest.raises((SqlFailed, SqlNotAllowed)):
        run(engine, "select 1 / (i - 300) as x from generate_series(1, 100000) i")


def test_a_session_picks_adbc_by_itself(postgres_url: str) -> None:
    with SqlSession(connections={"pg": postgres_url, "by": postgres_url.replace("://", "+psycopg://", 1)}) as session:
        with pytest.warns(UserWarning, match="superuser"):
            fast = session.query("select i from generate_series(1, 3) i", connection="pg")
        with pytest.warns(UserWarning, match="superuser"):
            slow = session.query("select i from generate_series(1, 3) i", connection="by")
        assert isinstance(fast.rows, ArrowRows)
        assert not isinstance(slow.rows, ArrowRows)
        assert fast.to_rows() == slow.to_rows() == [[1], [2], [3]]
        assert session.query("select :a + 1 as b", params={"a": 1}, connection="pg").to_rows() == [[2]]


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
    urls = {"a": postgres_database.replace("postgres@", "odd@")}
    urls["p"] = urls["a"].replace("postgresql", "postgresql+psycopg", 1)
    try:
        with SqlSession(connections=urls) as session:
            for name in urls:
                assert session.query(sql, connection=name).to_rows() == [expected]
                found = session.query("select 0.1::float8 + 0.2::float8 as f, '\\x00ff'::bytea as b", connection=name)
                assert found.to_rows() == [[0.1 + 0.2, "0x00ff"]]
    finally:
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute("drop role odd")
