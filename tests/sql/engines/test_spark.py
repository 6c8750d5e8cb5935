"""Spark Connect through a session: the same verdict, the same answers as DuckDB, faults that say what to do."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import Cancelled, ConfigInvalid, NetworkError, SqlFailed, SqlInvalid, SqlNotAllowed
from nbtools.sql import SqlSession
from nbtools.sql.engines.arrow_servers.spark import SparkEngine, load_client
from nbtools.sql.engines.protocol import QueryControl, QueryRequest

AGGREGATE = "select city, count(*) as n, sum(amount) as total, max(day) as last from {} group by city order by city"


def _make_table(url: str, name: str, path: Path) -> None:
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.plan import SQL

    with contextlib.closing(SparkConnectClient(url)) as client:
        for order in (f"drop table if exists {name}", f"create table {name} using parquet location '{path}'"):
            client.execute_command(SQL(order).command(client))


@pytest.fixture(scope="module")
def shop(spark_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSession]:
    import pandas as pd

    folder = tmp_path_factory.mktemp("shop")
    days = pd.date_range("2024-01-01", periods=1_000).date
    frame = pd.DataFrame(
        {"city": [f"city {i % 7}" for i in range(1_000)], "amount": [i / 4 for i in range(1_000)], "day": days}
    )
    frame.to_parquet(folder / "sales.parquet")
    url = f"{spark_url}/;session_id={uuid.uuid4()}"
    _make_table(url, "shop_sales", folder / "sales.parquet")
    with SqlSession(connections={"spark": url}, allowed_paths=[folder]) as session:
        session._engines._warned.add("spark")  # the rights of its user cannot be told
        session.file = folder / "sales.parquet"  # type: ignore[attr-defined]  # for the tests that compare
        yield session


def test_one_aggregate_over_one_file_is_equal_by_duckdb_and_by_spark(shop: SqlSession) -> None:
    by_spark = shop.query(AGGREGATE.format("shop_sales"), connection="spark")
    by_duckdb = shop.query(AGGREGATE.format(f"'{shop.file}'"))  # type: ignore[attr-defined]
    assert by_spark.to_rows() == by_duckdb.to_rows()
    assert by_spark.columns == by_duckdb.columns
    assert len(by_spark.to_rows()) == 7
    assert (by_spark.engine, by_spark.sources) == ("Spark (Connect)", ("table shop_sales",))


def test_a_text_in_the_dialect_of_duckdb_is_translated(shop: SqlSession) -> None:
    sql = "select city from shop_sales where amount < $top order by amount desc limit 1"
    found = shop.query(sql, params={"top": 1.25}, connection="spark", dialect="duckdb")
    assert found.to_rows() == [["city 4"]]


@pytest.mark.processes
@pytest.mark.parametrize(
    "sql",
    [
        "delete from shop_sales",
        "insert into shop_sales select * from shop_sales",
        "create table other as select 1 as a",
        "cache table shop_sales",
        "set spark.sql.shuffle.partitions = 1",
        "add jar '/tmp/x.jar'",
        "refresh table shop_sales",
        "select java_method('java.lang.System', 'exit', 1)",
        "select reflect('java.util.UUID', 'randomUUID')",
        "select * from csv.`/etc/passwd`",
        "select * from read_files('/etc')",
        "select 1; select 2",
    ],
)
@pytest.mark.parametrize("isolated", [False, True])
def test_the_verdict_refuses_what_is_no_query(shop: SqlSession, sql: str, isolated: bool) -> None:
    with pytest.raises((SqlNotAllowed, SqlInvalid)):
        shop.query(sql, connection="spark", isolated=isolated)


@pytest.mark.parametrize(
    "sql", ["create table other (a int)", "cache table shop_sales", "set a.b = c", "drop table shop_sales"]
)
def test_the_analyzer_of_the_server_is_a_second_wall(shop: SqlSession, sql: str) -> None:
    engine: Any = shop._engines.engine("spark", isolated=False)
    with pytest.raises((SqlInvalid, SqlFailed)):
        engine.run(QueryRequest(sql=sql), QueryControl())
    assert shop.query("select count(*) from shop_sales", connection="spark").to_rows() == [[1_000]]


@pytest.mark.processes
def test_what_a_model_sends_runs_in_a_process_of_its_own_and_reaches_configured_servers_only(
    shop: SqlSession, spark_url: str
) -> None:
    found = shop.query("select count(*) as n from shop_sales", connection="spark", isolated=True)
    assert (found.to_rows(), found.isolated) == ([[1_000]], True)
    with pytest.raises(SqlNotAllowed, match="not a configured connection"):
        shop.query("select 1", connection=spark_url, isolated=True)
    with pytest.warns(UserWarning, match="may be able to write"):
        assert shop.query("select 1", connection=spark_url).to_rows() == [[1]]


def test_a_text_with_a_backslash_runs_only_where_the_server_reads_it_as_the_verdict_does(shop: SqlSession) -> None:
    sql = r"select 'a\'b' as a"
    assert shop.query(sql, connection="spark").to_rows() == [["a'b"]]
    engine: Any = shop._engines.engine("spark", isolated=False)
    engine.backslash_probe = "SELECT 2 AS n"  # what spark.sql.parser.escapedStringLiterals makes of the length
    try:
        with pytest.raises(SqlNotAllowed, match="escapedStringLiterals"):
            shop.query(sql, connection="spark")
        assert shop.query("select 'a' as a", connection="spark").to_rows() == [["a"]]
    finally:
        del engine.backslash_probe


def test_values_of_all_kinds_come_back_as_they_are(shop: SqlSession) -> None:
    sql = "select array(1, 2) as l, named_struct('a', 1) as s, 1.50BD as d, date'2024-02-29' as t, null as v, 1 as l"
    found = shop.query(sql, connection="spark")
    assert [str(value) for value in found.to_rows()[0]] == ["[1, 2]", "{'a': 1}", "1.5", "2024-02-29", "None", "1"]
    assert found.columns[0] == "l"
    assert found.types[:3] == ("array<int>", "struct<a:int>", "decimal(3,2)")


def test_an_answer_is_cut_and_written_to_files_like_any_other(shop: SqlSession, tmp_path: Path) -> None:
    found = shop.query("select * from range(3000)", connection="spark", limit=5)
    assert (len(found.to_rows()), found.cut_by) == (5, "rows")
    with (tmp_path / "rows.csv").open("wb") as file:
        assert shop.export("select * from range(3000)", file, connection="spark") == 3_000
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 3_001


def test_faults_say_what_was_wrong(shop: SqlSession, spark_url: str) -> None:
    with pytest.raises(SqlInvalid, match="nowhere"):
        shop.query("select * from nowhere", connection="spark")
    with pytest.raises((SqlFailed, SqlInvalid), match="too much"):
        shop.query("select raise_error('too much')", connection="spark")
    for url, kind, what in (
        (f"{spark_url}/shop", ConfigInvalid, "not an address of Spark Connect"),
        ("sc://127.0.0.1:1/;token=hidden", NetworkError, "cannot be reached"),
    ):
        with contextlib.closing(SparkEngine(url)) as engine, pytest.raises(kind, match=what) as caught:
            engine.run(QueryRequest(sql="select 1"), QueryControl())
        assert "hidden" not in str(caught.value.to_dict())


@pytest.mark.slow
def test_a_program_without_a_file_of_its_own_asks_spark_too(spark_url: str) -> None:
    ask = f"SqlSession().query('select 1 as a', connection='{spark_url}').to_rows()"
    program = f"from nbtools.sql import SqlSession; print({ask})"
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "[[1]]\n"), ended.stderr


def test_a_channel_that_nobody_has_closed_is_closed_before_its_thread_ends(spark_url: str) -> None:
    engine = SparkEngine(spark_url)
    assert engine.run(QueryRequest(sql="select 1"), QueryControl()).rows.to_lists() == [[1]]
    client, ending = engine._client, engine._end
    assert (ending.alive, client.is_closed) == (True, False)
    del engine
    gc.collect()
    assert client.is_closed


def test_a_server_that_was_restarted_is_asked_again() -> None:
    load_client()
    from pysail.spark import SparkConnectServer

    first = SparkConnectServer(ip="127.0.0.1", port=0)
    first.start(background=True)
    host, port = first.listening_address
    with contextlib.closing(SparkEngine(f"sc://{host}:{port}")) as engine:
        assert engine.run(QueryRequest(sql="select 1"), QueryControl()).rows.to_lists() == [[1]]
        first.stop()
        with pytest.raises(NetworkError):
            engine.run(QueryRequest(sql="select 1"), QueryControl())
        second = SparkConnectServer(ip="127.0.0.1", port=port)
        second.start(background=True)
        with contextlib.suppress(NetworkError):  # it tells, once, that the session is another one
            engine.run(QueryRequest(sql="select 1"), QueryControl())
        assert engine.run(QueryRequest(sql="select 2"), QueryControl()).rows.to_lists() == [[2]]
        second.stop()


def test_a_server_that_does_not_answer_an_interrupt_is_not_waited_for(
    spark_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next query opens a session of its own."""
    from pyspark.sql.connect.client import SparkConnectClient

    silent: list[SparkConnectClient] = []

    def interrupt_tag(client: SparkConnectClient, _tag: str) -> None:
        silent.append(client)
        threading.Event().wait()

    monkeypatch.setattr(SparkConnectClient, "interrupt_tag", interrupt_tag)
    engine = SparkEngine(spark_url)
    engine.interrupt_s = 0.2
    request = QueryRequest(sql="select sum(hash(id)) from range(1000000000000)", timeout=None)
    control = QueryControl()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            engine.run(request, control)
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    while not control.is_running_statement:
        thread.join(0.02)
    while thread.is_alive():
        control.stop("stop")
        thread.join(0.02)
    assert isinstance(raised[0], Cancelled)
    assert engine.run(QueryRequest(sql="select 1"), QueryControl()).rows.to_lists() == [[1]]
    engine.close()
    # Else the query would keep all processors busy for the rest of the tests.
    with contextlib.closing(SparkConnectClient(f"{spark_url}/;session_id={silent[0]._session_id}")) as client:
        assert client.interrupt_all()
