"""Questions of our own run nothing that someone planted in the database that is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from nbtools.errors import NbtoolsError, SqlNotAllowed
from nbtools.sql import SqlSession

pytestmark = pytest.mark.processes

MACROS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "attacks" / "duckdb_macros.jsonl").read_text().splitlines()
]
# A function that runs SQL in a text, so that what looks like a SELECT writes a file.
HIDDEN_COPY = (
    "json_execute_serialized_sql(json_serialize_sql('with a as (copy (select ''planted'' s) to ''{file}'' "
    "(header false)) select 1 x'))"
)


def make_database(folder: Path, *statements: str) -> str:
    with duckdb.connect(str(folder / "shop.duckdb")) as connection:
        connection.execute("create table t as select 1 as i, 'A' as name")
        for statement in statements:
            connection.execute(statement)
    return f"duckdb:///{folder}/shop.duckdb"


# What judges in a worker is what judges here, and each worker is a process: the quick part has every sixth there, and
# every second here.
@pytest.mark.parametrize(
    ("case", "isolated"),
    [
        pytest.param(case, isolated, marks=[pytest.mark.slow] if number % (6 if isolated else 2) else [])
        for number, case in enumerate(MACROS)
        for isolated in (False, True)
    ],
    ids=lambda value: value["macro"] if isinstance(value, dict) else f"{value}",
)
def test_macros_of_a_database_file_write_nothing(tmp_path: Path, case: dict[str, Any], isolated: bool) -> None:
    target = tmp_path / "mine.txt"
    target.write_text("mine")
    copy = HIDDEN_COPY.format(file=target)
    planted, *more = (text.replace("{COPY}", copy) for text in (case["macro"], *case.get("more", ())))
    url = make_database(tmp_path, f"create macro {planted}", *more)
    with SqlSession(allowed_paths=[tmp_path], connections={"shop": url}) as session:
        session.catalog("shop")
        for sql in case["queries"]:
            with pytest.raises(SqlNotAllowed, match=r"refused|read-only|reviewed"):
                session.query(sql.replace("{COPY}", copy), connection="shop", isolated=isolated)
            assert target.read_text() == "mine", sql


def test_harmless_macros_with_names_of_functions_are_used(tmp_path: Path) -> None:
    url = make_database(
        tmp_path, "create macro lower(a) as a || '!'", "create view v as select lower(name) as n from t"
    )
    with SqlSession(connections={"shop": url}) as session:
        assert session.query("from v", connection="shop").to_rows() == [["A!"]]
        assert [table["name"] for table in session.catalog("shop")] == ["t", "v"]


def test_tables_named_as_frames_are_told_without_macros_of_the_file(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    url = make_database(tmp_path, "create macro duckdb_columns() as table select 'x' as database_name where false")
    frame = pandas.DataFrame({"i": [2]})
    with SqlSession(connections={"shop": url}, frames={"T": frame, "u": frame}) as session:
        assert session.query("select i from T", connection="shop").to_rows() == [[1]]
        assert session.query("select i from u", connection="shop").to_rows() == [[2]]


@pytest.fixture
def planted(postgres_database: str) -> str:
    """A database in which an ordinary role planted operators and functions that write, where everybody finds them."""
    import psycopg

    operators = [
        ("!~", "name", "name"),
        ("!~", "name", "text"),
        ("=", "oid", "oid"),
        ("=", "name", "text"),
        ("<>", "regproc", "integer"),
        ("<>", '"char"', '"char"'),
        ("=", "information_schema.sql_identifier", "information_schema.sql_identifier"),
        ("<>", "information_schema.sql_identifier", "text"),
    ]
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        run = connection.execute
        run("create table public.written(what text)")
        run("create table public.goods as select 1 as id, 'a' as name")
        run("grant all on public.written to public")
        for number, (operator, left, right) in enumerate(operators):
            body = f"begin insert into public.written values ('{operator}'); return true; end"
            run(f"create function public.f{number}({left}, {right}) returns bool language plpgsql as $${body}$$")
            run(f"create operator public.{operator} (leftarg={left}, rightarg={right}, function=public.f{number})")
        body = "begin insert into public.written values ('function'); return true; end"
        run(f"create function public.has_table_privilege(oid, text) returns boolean language plpgsql as $${body}$$")
        # Such a path finds what is planted before the server's own.
        database = connection.info.dbname
        run(f"alter database {database} set search_path = public, pg_catalog")
    return postgres_database


@pytest.mark.parametrize("driver", ["postgresql", "postgresql+psycopg"])
def test_operators_planted_on_postgres_are_not_run(planted: str, driver: str) -> None:
    import psycopg

    url = planted.replace("postgresql", driver, 1)
    with SqlSession(connections={"pg": url}) as session:
        with pytest.warns(UserWarning, match="superuser"):
            assert session.query("select id from goods", connection="pg").to_rows() == [[1]]
        assert session.query("select count(*) from goods", connection="pg").to_rows() == [[1]]
        assert {table["name"] for table in session.catalog("pg")} == {"goods", "written"}
        assert session.query("show search_path", connection="pg").to_rows() == [["public, pg_catalog"]]
        with pytest.raises(NbtoolsError):
            session.query("select nothing from goods", connection="pg")
    with psycopg.connect(planted) as connection:
        assert connection.execute("select pg_catalog.count(*) from public.written").fetchall() == [(0,)]


@pytest.mark.filterwarnings("ignore:connection 'pg'")
def test_functions_of_rows_are_not_called_as_columns(postgres_database: str) -> None:
    import psycopg

    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("create table goods as select 1 as id")
        connection.execute("create function wrow(goods) returns text language sql as $$ select 'called' $$")
        body = "begin return 'called'; end"
        connection.execute(f"create function any_row(record) returns text language plpgsql as $${body}$$")
    with SqlSession(connections={"pg": postgres_database}) as session:
        for sql in ("select g.wrow from goods g", "select (g).wrow from goods g", 'select g."wrow" from goods g'):
            with pytest.raises(SqlNotAllowed, match="calls a database function, wrow,"):
                session.query(sql, connection="pg")
        with pytest.raises(SqlNotAllowed, match="any_row"):
            session.query("select g.any_row from goods g", connection="pg")
        assert session.query("select g.id, (g).id from goods g", connection="pg").to_rows() == [[1, 1]]


@pytest.mark.filterwarnings("ignore:connection 'pg'")
def test_a_value_calls_no_function_by_a_dot(postgres_database: str) -> None:
    import psycopg

    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("create type pair as (x int, name text)")
        connection.execute(
            "create table goods as select 1 as id, row(1, 'b')::pair as p, array[row(2, 'c')::pair] as ps"
        )
        connection.execute("create function total(int) returns int language sql as 'select 42'")
        connection.execute("create function total(text) returns int language sql as 'select 43'")
    with SqlSession(connections={"pg": postgres_database}) as session:
        for isolated in (False, True):
            for sql in (
                "select ('/etc/hostname'::text).pg_read_file",
                "select x.a[1].pg_read_file from (select array['/etc/hostname'] as a) as x",
                "select (7).total",
                "select (goods.id).total from goods",
                "select ('x'::text).total",
                "select f.total from unnest(array[7]) as f",
                "select f.pg_read_file from unnest(array['/etc/hostname']) as f",
            ):
                with pytest.raises(SqlNotAllowed, match="calls a database function"):
                    session.query(sql, connection="pg", isolated=isolated)
            fields = (
                "select (p).x, (g.p).name, (ps)[1].name as n, (g).id, g.total from (select *, 5 as total from goods) g"
            )
            assert session.query(fields, connection="pg", isolated=isolated).to_rows() == [[1, "b", "c", 1, 5]]


@pytest.mark.filterwarnings("ignore:connection 'pg'")
def test_backslashes_mean_the_same_to_the_server_and_the_verdict(postgres_database: str) -> None:
    import psycopg

    with psycopg.connect(postgres_database, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set standard_conforming_strings = off")
    for driver in ("postgresql", "postgresql+psycopg"):
        with SqlSession(connections={"pg": postgres_database.replace("postgresql", driver, 1)}) as session:
            sql = "select 'C:\\', '50%' like '50\\%' escape '\\'"
            assert session.query(sql, connection="pg").to_rows() == [["C:\\", True]]
