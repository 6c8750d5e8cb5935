"""Sessions over databases that are not DuckDB: dialects, translation, warnings, rights."""

from __future__ import annotations

import contextlib
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbtools.errors import CallTimeout, NbtoolsError, SqlInvalid, SqlNotAllowed
from nbtools.sql import SqlSession
from nbtools.sql.engines.sqlalchemy import mode_order


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[SqlSession]:
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("create table sales (id integer, city text, amount real)")
        connection.executemany("insert into sales values (?, ?, ?)", [(1, "a", 1.5), (2, "b", 2.5), (3, "a", None)])
        connection.commit()
    with SqlSession(connections={"shop": f"sqlite:///{tmp_path}/shop.db"}) as session:
        yield session


@pytest.fixture
def server(postgres_url: str) -> Iterator[SqlSession]:
    import psycopg

    with psycopg.connect(postgres_url) as connection:
        connection.execute("drop table if exists goods")
        connection.execute("create table goods as select i as id, 'g' || i as name from generate_series(1, 100) i")
        if not connection.execute("select 1 from pg_roles where rolname = 'reader'").fetchall():
            connection.execute("create role reader login")
        connection.execute("grant select on goods to reader")
    reader = postgres_url.replace("postgres@", "reader@")
    with SqlSession(connections={"pg": postgres_url, "ro": reader}) as session:
        yield session


def test_a_text_is_translated_on_request_and_shown(shop: SqlSession) -> None:
    sql = "select city, count(*) as n from sales where id > :low group by city order by city"
    with pytest.raises(NbtoolsError):
        shop.query("select list(city) from sales", connection="shop", dialect="duckdb")
    result = shop.query(
        sql.replace("group by all", "group by city"), params={"low": 1}, connection="shop", dialect="duckdb"
    )
    assert result.to_rows() == [["a", 1], ["b", 1]]
    assert ":low" in result.sql


def test_values_are_bound_by_name_in_sqlite(shop: SqlSession) -> None:
    for sql, params in (
        ("select id from sales where city = :c", {"c": "b"}),
        ("select id from sales where city = ?", ["b"]),
    ):
        assert shop.query(sql, params=params, connection="shop").to_rows() == [[2]]


def test_writes_to_other_databases_are_refused(shop: SqlSession) -> None:
    for sql in ("delete from sales", "attach 'x' as y", "select load_extension('x')", "pragma writable_schema = 1"):
        with pytest.raises((SqlNotAllowed, SqlInvalid)):
            shop.query(sql, connection="shop")


def test_profiles_and_plans_of_other_databases(shop: SqlSession) -> None:
    profile = shop.profile("sales", connection="shop")
    assert profile.rows == 3
    assert [column.nulls for column in profile.columns] == [0, 0, 1]
    assert "sales" in shop.explain("select * from sales where id = 1", connection="shop")
    assert shop.catalog("shop")[0]["columns"] == [("id", "INTEGER"), ("city", "TEXT"), ("amount", "REAL")]


@pytest.mark.processes
def test_postgres_answers_with_its_own_types(server: SqlSession) -> None:
    result = server.query(
        "select id, name, now() - now() as nothing, array[1, 2] as list from goods where id = :n",
        params={"n": 7},
        connection="ro",
    )
    assert result.types == ("int4", "text", "interval", "int4[]")
    assert result.to_rows() == [[7, "g7", "00:00:00", [1, 2]]]
    assert result.engine.startswith("PostgreSQL ")
    assert result.sources == ("table goods",)


@pytest.mark.processes
def test_a_role_that_could_write_is_warned_of_once(server: SqlSession) -> None:
    with pytest.warns(UserWarning, match="superuser"):
        server.query("select 1", connection="pg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        server.query("select 1", connection="pg")
        server.query("select 1", connection="ro")


@pytest.mark.processes
def test_an_error_of_postgres_points_at_its_place(server: SqlSession) -> None:
    with pytest.raises(SqlInvalid) as caught:
        server.query("select id,\n  nowhere from goods", connection="ro")
    assert (caught.value.data["line"], caught.value.data["column"]) == (2, 3)


@pytest.mark.processes
def test_postgres_ends_what_takes_too_long(server: SqlSession) -> None:
    sql = "select count(*) from generate_series(1, 100000000) a, generate_series(1, 1000000) b"
    with pytest.raises(CallTimeout):
        server.query(sql, connection="ro", timeout=0.5)
    assert server.query("select 1", connection="ro").to_rows() == [[1]]


@pytest.mark.processes
def test_a_connection_that_the_server_ended_is_opened_anew(server: SqlSession, postgres_url: str) -> None:
    import psycopg

    assert server.query("select count(*) from goods", connection="ro").to_rows() == [[100]]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        ended = connection.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity where usename = 'reader'"
        ).fetchall()
    assert ended
    assert server.query("select count(*) from goods", connection="ro").to_rows() == [[100]]


@pytest.mark.processes
def test_nothing_stays_behind_in_a_postgres_session(server: SqlSession) -> None:
    engine = server._engines.engine("ro", isolated=False)
    with engine._connection() as connection:  # type: ignore[attr-defined]  # PostgreSQL's
        connection.execute("set search_path to pg_catalog")
        connection.execute("create temporary table left_over as select 1")
    assert server.query("select count(*) from goods", connection="ro").to_rows() == [[100]]
    with pytest.raises(SqlInvalid):
        server.query("select * from left_over", connection="ro")


@pytest.mark.processes
def test_a_misspelt_table_of_postgres_is_answered_with_the_nearest(server: SqlSession) -> None:
    with pytest.raises(SqlInvalid) as caught:
        server.query("select * from gods", connection="ro")
    assert caught.value.hint == "Did you mean 'goods'?"


@pytest.mark.parametrize(
    ("modes", "order"),
    [
        ("STRICT_TRANS_TABLES", None),
        ("", None),
        ("NO_BACKSLASH_ESCAPES", "SET SESSION sql_mode = ''"),
        ("PIPES_AS_CONCAT,ANSI_QUOTES,ORACLE", "SET SESSION sql_mode = 'PIPES_AS_CONCAT,ANSI_QUOTES'"),
        (
            "MSSQL,NO_BACKSLASH_ESCAPES,ERROR_FOR_DIVISION_BY_ZERO",
            "SET SESSION sql_mode = 'ERROR_FOR_DIVISION_BY_ZERO'",
        ),
    ],
)
def test_mysql_reads_texts_as_the_verdict_does(modes: str, order: str | None) -> None:
    assert mode_order(modes, r"select 'a\', load_file('/etc/passwd') -- '") == order


def test_mysql_with_double_quotes_for_names_reads_no_backslash_between_them() -> None:
    assert mode_order("ANSI_QUOTES", 'select "name" from t') is None
    with pytest.raises(SqlNotAllowed, match="ANSI_QUOTES"):
        mode_order("ANSI,ANSI_QUOTES", r'''select "\", load_file('/etc/passwd') as y -- "''')
