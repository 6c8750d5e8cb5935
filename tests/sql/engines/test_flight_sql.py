"""Flight SQL by a real server of the protocol, and other ADBC drivers by PostgreSQL."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import (
    ConfigInvalid,
    MissingExtra,
    NetworkError,
    PermissionDenied,
    SqlInvalid,
    SqlNotAllowed,
)
from nbtools.sql import SqlSession
from nbtools.sql.engines.arrow_servers.flight_sql import ArrowServerEngine
from nbtools.sql.engines.protocol import QueryControl, QueryRequest
from tests.conftest import stop_query


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("flight_stand_in", Path(__file__).with_name("flight_stand_in.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["flight_stand_in"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.serving("only-for-tests") as served:
        served.database.execute(
            "create table sales as select range as id, 'city ' || (range % 7) as city from range(5000)"
        )
        served.database.execute("create view big as from sales where id > 100")
        yield served


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that is allowed, with a file."""
    made = tmp_path_factory.mktemp("allowed")
    (made / "here.csv").write_text("a\n1\n")
    return made


@pytest.fixture(scope="module")
def shop(server: Any, folder: Path) -> Iterator[SqlSession]:
    url = f"flightsql://127.0.0.1:{server.port}/?dialect=duckdb&token=${{SHOP_TOKEN}}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_TOKEN", "only-for-tests")
        with SqlSession(connections={"shop": url}, allowed_paths=[folder]) as session:
            session._engines._warned.add("shop")  # the rights of its user cannot be told
            yield session


@pytest.mark.processes
def test_rows_come_as_arrow_and_stop_at_the_caps(shop: SqlSession) -> None:
    sql = "select city, count(*) as n from sales group by all order by city limit 2"
    for isolated in (False, True):
        found = shop.query(sql, connection="shop", isolated=isolated)
        assert found.to_rows() == [["city 0", 715], ["city 1", 715]]
        assert found.columns == ("city", "n")
    assert found.engine == "Flight SQL (ADBC, duckdb)"
    cut = shop.query("select id from sales", connection="shop", limit=10)
    assert (len(cut.to_rows()), cut.cut_by) == (10, "rows")
    assert shop.query("select id from sales where id < 0", connection="shop").to_rows() == []


def test_values_are_bound_and_never_pasted(shop: SqlSession, server: Any) -> None:
    sql = "select id from sales where city = $city and id < $top order by id"
    params: dict[str, Any] = {"city": "city 3", "top": 20}
    assert shop.query(sql, params=params, connection="shop").to_rows() == [[3], [10], [17]]
    hostile = "x'; drop table sales; --"
    assert shop.query("select count(*) from sales where city = ?", params=[hostile], connection="shop").to_rows() == [
        [0]
    ]
    assert not any(hostile in text for text in server.texts)


@pytest.mark.processes
@pytest.mark.parametrize(
    "sql",
    [
        "delete from sales",
        "create table other as select 1",
        "copy sales to '/tmp/x.csv'",
        "with a as (delete from sales returning *) from a",
        "select * from read_csv('/etc/passwd')",
        "from 'here.csv'",
        "from quack_query('localhost', 'select 1')",
        "attach 'quack:localhost' as q",
        "select getenv('HOME')",
        "select 1; select 2",
    ],
)
@pytest.mark.parametrize("isolated", [False, True])
def test_the_verdict_decides_before_the_server_hears_of_it(
    shop: SqlSession, server: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, sql: str, isolated: bool
) -> None:
    monkeypatch.chdir(folder)  # a file that is allowed here is another one there
    heard = len(server.texts)
    with pytest.raises((SqlNotAllowed, SqlInvalid)):
        shop.query(sql, connection="shop", isolated=isolated)
    assert len(server.texts) == heard


def test_tables_plans_and_files_as_of_any_connection(shop: SqlSession, tmp_path: Path) -> None:
    tables = {table["name"]: table for table in shop.catalog("shop")}
    assert tables["sales"]["columns"] == [("id", "BIGINT"), ("city", "VARCHAR")]
    assert tables["big"]["kind"] == "view"
    assert "sales" in shop.explain("select city from sales where id > 7", connection="shop")
    with (tmp_path / "rows.parquet").open("wb") as file:
        assert shop.export("from sales", file, form="parquet", connection="shop") == 5_000


def test_stop_cancels_the_statement_and_the_next_one_runs(shop: SqlSession) -> None:
    stop_query(shop, "select 1 as endless", connection="shop")
    assert shop.query("select 1", connection="shop").to_rows() == [[1]]


def test_faults_say_what_was_wrong(shop: SqlSession, server: Any) -> None:
    with pytest.raises(SqlInvalid, match="nowhere"):
        shop.query("select * from nowhere", connection="shop")
    there = f"127.0.0.1:{server.port}"
    for url, kind, what in (
        (f"flightsql://{there}", ConfigInvalid, "does not name the SQL dialect"),
        (f"flightsql://{there}/?dialect=klingon", ConfigInvalid, "does not name the SQL dialect"),
        (f"flightsql://{there}/?dialect=duckdb&token=expired", PermissionDenied, "expired"),
        ("flightsql://127.0.0.1:1/?dialect=duckdb&token=hidden", NetworkError, "cannot be reached"),
        ("adbc+nothing://x/?dialect=duckdb", MissingExtra, "adbc_driver_nothing"),
    ):
        with pytest.raises(kind, match=what) as caught, contextlib.closing(ArrowServerEngine(url)) as engine:
            engine.run(QueryRequest(sql="select 1"), QueryControl())
        assert "hidden" not in str(caught.value.to_dict())


def test_a_model_reaches_configured_servers_only(shop: SqlSession, server: Any) -> None:
    with pytest.raises(SqlNotAllowed, match="not a configured connection"):
        shop.query("select 1", connection=f"flightsql://127.0.0.1:{server.port}/?dialect=duckdb", isolated=True)


@pytest.mark.processes
def test_another_driver_of_adbc_is_named_by_its_package(postgres_url: str) -> None:
    url = f"adbc+{postgres_url}&dialect=postgres"
    with contextlib.closing(ArrowServerEngine(url)) as engine:
        found = engine.run(QueryRequest(sql="select $1::int4 + 1 as a", parameters=[41]), QueryControl())
    assert (found.rows.to_lists(), engine.name) == ([[42]], "postgresql (ADBC, postgres)")
