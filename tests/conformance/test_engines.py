"""One suite for every engine: what a request asks for is what each of them does."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import Cancelled, LimitExceeded, NbtoolsError
from nbtools.sql.connections import open_engine
from nbtools.sql.engines.protocol import EngineAnswer, EngineOptions, QueryControl, QueryRequest, SqlEngine
from nbtools.sql.results.rows import PythonRows

pytestmark = pytest.mark.processes

ROWS = 5_000
LINES = "create table sales (id integer, city varchar(20), amount double precision)"
FILL = {
    "duckdb": f"insert into sales select range, 'city ' || (range % 7), range / 2.0 from range({ROWS})",
    "sqlite": "with recursive n(i) as (select 0 union all select i + 1 from n where i < 4999) "
    "insert into sales select i, 'city ' || (i % 7), i / 2.0 from n",
    "postgres": f"insert into sales select i, 'city ' || (i % 7), i / 2.0 from generate_series(0, {ROWS - 1}) i",
}
# A statement that takes for ever in small steps.
ENDLESS = "select count(*) from sales a, sales b, sales c where a.amount + b.amount < c.amount"
# Sail computes such a join to its end, whoever stops it, and answers nobody meanwhile.
ENDLESS_ON_SPARK = "select sum(hash(id)) from range(1000000000000)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """An engine over a database with the table sales, and how its parameters are written."""

    engine: SqlEngine
    marker: Callable[[str, int], str]
    values: Callable[[dict[str, Any]], Any]


def _duckdb_file(folder: Path) -> str:
    import duckdb

    with duckdb.connect(folder / "shop.duckdb") as connection:
        connection.execute(LINES)
        connection.execute(FILL["duckdb"])
        connection.execute("create view big as select * from sales where amount > 100")
    return f"duckdb:///{folder}/shop.duckdb"


def _sqlite_file(folder: Path, scheme: str = "sqlite") -> str:
    with contextlib.closing(sqlite3.connect(folder / "shop.sqlite")) as connection:
        connection.execute(LINES)
        connection.execute(FILL["sqlite"])
        connection.execute("create view big as select * from sales where amount > 100")
        connection.commit()
    return f"{scheme}:///{folder}/shop.sqlite"


def _postgres(request: pytest.FixtureRequest) -> str:
    import psycopg

    url: str = request.getfixturevalue("postgres_url")
    with psycopg.connect(url) as connection:
        connection.execute("drop table if exists sales cascade")
        connection.execute(LINES)
        connection.execute(FILL["postgres"])
        connection.execute("create view big as select * from sales where amount > 100")
    return url


def _spark(request: pytest.FixtureRequest, folder: Path) -> str:
    # Tables belong to a session there: the engine joins the one that made them.
    url = f"{request.getfixturevalue('spark_url')}/;session_id={uuid.uuid4()}"

    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.plan import SQL

    columns = "cast(id as int) as id, concat('city ', cast(id % 7 as string)) as city, cast(id / 2 as double) as amount"
    orders = [
        "drop view if exists big",
        "drop table if exists sales",
        f"create table sales using parquet location '{folder}/sales' as select {columns} from range({ROWS})",
        "create view big as select * from sales where amount > 100",
    ]
    with contextlib.closing(SparkConnectClient(url)) as client:
        for order in orders:
            client.execute_command(SQL(order).command(client))
    return url


def _colon(name: str, position: int) -> str:
    return f":{name}"


def _dollar(name: str, position: int) -> str:
    return f"${name}"


def _numbered(name: str, position: int) -> str:
    return f"${position}"


# What is opened, and the engine that it is.
ENGINES = {
    "duckdb": "DuckDBEngine",
    "duckdb-isolated": "IsolatedEngine",
    "sqlite": "SQLiteEngine",
    "sqlite-isolated": "IsolatedEngine",
    "postgres": "PostgresEngine",
    "sqlalchemy": "AlchemyEngine",
    "spark": "SparkEngine",
}


@pytest.fixture(scope="module", params=list(ENGINES))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """One engine of a kind for all: whatever is asked, the table stays as it was, and the next is answered."""
    kind: str = request.param
    tmp_path = tmp_path_factory.mktemp(kind)
    marker, values = _colon, dict
    isolated = kind.endswith("-isolated")
    if kind.startswith("duckdb"):
        url, marker = _duckdb_file(tmp_path), _dollar
    elif kind in {"sqlite", "sqlite-isolated"}:
        url = _sqlite_file(tmp_path)
    elif kind == "postgres":
        url, marker, values = _postgres(request), _numbered, lambda given: list(given.values())
    elif kind == "spark":
        url = _spark(request, tmp_path)
    else:
        url = _sqlite_file(tmp_path, "sqlite+pysqlite")
    with contextlib.closing(open_engine(url, EngineOptions(), isolated=isolated)) as engine:
        assert type(engine).__name__ == ENGINES[kind]
        yield Case(engine=engine, marker=marker, values=values)


def run(case: Case, sql: str, **more: Any) -> EngineAnswer:
    return case.engine.run(QueryRequest(sql=sql, **more), QueryControl())


def test_a_select_returns_its_columns_and_rows(case: Case) -> None:
    found = run(case, "select id, city, amount from sales where id < 2 order by id")
    assert found.columns == ("id", "city", "amount")
    assert len(found.types) == 3
    assert found.rows.to_lists() == [[0, "city 0", 0], [1, "city 1", 0.5]]
    assert found.cut_by is None


def test_the_reader_stops_at_the_row_cap(case: Case) -> None:
    found = run(case, "select id from sales order by id", max_rows=10)
    assert [row[0] for row in found.rows.to_lists()] == list(range(10))
    assert found.cut_by == "rows"


def test_a_result_of_exactly_the_cap_is_not_cut(case: Case) -> None:
    found = run(case, "select id from sales", max_rows=ROWS)
    assert len(found.rows) == ROWS
    assert found.cut_by is None


def test_the_reader_stops_at_the_byte_cap(case: Case) -> None:
    found = run(case, "select id, city from sales", max_bytes=2_000)
    assert 0 < len(found.rows) < 500
    assert found.cut_by == "bytes"


def test_a_result_that_must_be_whole_is_whole_or_an_error(case: Case) -> None:
    assert len(run(case, "select id, city from sales", whole=True).rows) == ROWS
    for rows in (None, ROWS):
        with pytest.raises(LimitExceeded, match="there are more"):
            run(case, "select id, city from sales", max_bytes=2_000, max_rows=rows, whole=True)
    assert run(case, "select id from sales", max_bytes=2_000, max_rows=5, whole=True).cut_by == "rows"


def test_rows_are_handed_on_as_they_come(case: Case) -> None:
    parts: list[tuple[tuple[str, ...], list[list[Any]]]] = []
    sql = "select id, city, amount from sales order by id"
    found = run(case, sql, on_rows=lambda names, rows: parts.append((names, rows.to_lists())), max_bytes=None)
    assert {names for names, _ in parts} == {("id", "city", "amount")}
    assert [row for _, rows in parts for row in rows] == run(case, sql).rows.to_lists()
    assert (len(found.rows), found.columns, found.cut_by) == (0, ("id", "city", "amount"), None)


def test_who_takes_the_rows_may_end_the_statement(case: Case) -> None:
    def full(names: tuple[str, ...], rows: Any) -> None:
        raise Cancelled("that is enough")

    with pytest.raises(Cancelled, match="that is enough"):
        run(case, "select id, city from sales", on_rows=full, max_bytes=None)
    assert run(case, "select count(*) from sales").rows.to_lists() == [[ROWS]]


def test_one_row_beyond_the_byte_cap_is_an_error(case: Case) -> None:
    with pytest.raises(LimitExceeded):
        run(case, "select city || city || city from sales", max_bytes=4)


def test_an_empty_result_keeps_its_columns(case: Case) -> None:
    found = run(case, "select id, city from sales where id < 0")
    assert found.columns == ("id", "city")
    assert list(found.rows.to_pandas().columns) == ["id", "city"]
    assert found.rows.to_lists() == []


def test_values_are_bound_by_name(case: Case) -> None:
    sql = f"select id from sales where city = {case.marker('city', 1)} and id < {case.marker('top', 2)} order by id"
    found = run(case, sql, parameters=case.values({"city": "city 3", "top": 20}))
    assert found.rows.to_lists() == [[3], [10], [17]]


def test_a_bound_value_is_never_read_as_sql(case: Case) -> None:
    hostile = "x'; drop table sales; --"
    sql = f"select count(*) from sales where city = {case.marker('city', 1)}"
    assert run(case, sql, parameters=case.values({"city": hostile})).rows.to_lists() == [[0]]
    assert run(case, "select count(*) from sales").rows.to_lists() == [[ROWS]]


@pytest.mark.parametrize(
    "sql",
    [
        "delete from sales",
        "insert into sales values (1, 'x', 2)",
        "update sales set amount = 0",
        "create table other (i integer)",
        "drop table sales",
    ],
)
def test_the_second_wall_alone_stops_a_write(case: Case, sql: str) -> None:
    with pytest.raises(NbtoolsError):
        run(case, sql)
    assert run(case, "select count(*), sum(amount) > 0 from sales").rows.to_lists()[0][0] == ROWS


def test_nothing_of_one_statement_reaches_the_next(case: Case) -> None:
    for sql in ("begin", "create temporary table left_over (i integer)", "set search_path to pg_catalog"):
        with contextlib.suppress(NbtoolsError):
            run(case, sql)
    assert run(case, "select count(*) from sales").rows.to_lists() == [[ROWS]]
    with pytest.raises(NbtoolsError):
        run(case, "select * from left_over")


def test_two_statements_are_refused(case: Case) -> None:
    with pytest.raises(NbtoolsError):
        run(case, "select 1; select 2")


def test_an_unknown_column_is_the_callers_mistake(case: Case) -> None:
    with pytest.raises(NbtoolsError) as caught:
        run(case, "select nowhere from sales")
    assert "nowhere" in caught.value.message


def test_a_running_statement_can_be_stopped(case: Case) -> None:
    control = QueryControl()
    begun = threading.Event()
    raised: list[BaseException] = []
    endless = ENDLESS_ON_SPARK if case.engine.dialect == "spark" else ENDLESS

    def work() -> None:
        begun.set()
        try:
            case.engine.run(QueryRequest(sql=endless, timeout=None), control)
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(60)
    control.stop("stop")
    deadline = time.monotonic() + 60
    while thread.is_alive():
        assert time.monotonic() < deadline, "the engine ignores interrupts"
        control.interrupt()
        thread.join(0.02)
    assert isinstance(raised[0], Cancelled)
    assert run(case, "select count(*) from sales").rows.to_lists() == [[ROWS]]


def test_queries_of_several_threads_do_not_meet(case: Case) -> None:
    answers: dict[int, Any] = {}

    def ask(number: int) -> None:
        answers[number] = run(case, f"select {number} + count(*) from sales").rows.to_lists()[0][0]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == {number: number + ROWS for number in range(6)}


def test_the_catalog_lists_tables_and_views_with_columns(case: Case) -> None:
    tables = {table.name: table for table in case.engine.catalog()}
    assert [column.name for column in tables["sales"].columns] == ["id", "city", "amount"]
    assert tables["sales"].kind == "table"
    assert tables["big"].kind == "view"


def test_a_plan_is_text_that_names_the_table(case: Case) -> None:
    plan = case.engine.explain(QueryRequest(sql="select count(*) from sales where amount > 10"), QueryControl())
    assert "sales" in plan


def test_discarding_leaves_the_engine_usable(case: Case) -> None:
    case.engine.discard(QueryControl())
    assert run(case, "select count(*) from sales").rows.to_lists() == [[ROWS]]


def test_every_form_of_the_rows_agrees(case: Case) -> None:
    rows = run(case, "select id, city, amount from sales where id in (1, 2) order by id").rows
    lists = rows.to_lists()
    assert [list(row) for row in rows.to_pandas().itertuples(index=False)] == lists
    assert [list(row.values()) for row in rows.to_arrow().to_pylist()] == lists
    assert [list(row) for row in rows.to_polars().rows()] == lists


def test_a_database_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    for scheme in ("duckdb", "sqlite"):
        engine = open_engine(f"{scheme}:///{tmp_path}/nowhere.db", EngineOptions(), isolated=False)
        with contextlib.closing(engine), pytest.raises(FileNotFoundError):
            engine.run(QueryRequest(sql="select 1"), QueryControl())


def test_a_file_that_is_no_database_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, and long enough to look at: " * 40)
    for scheme in ("duckdb", "sqlite"):
        engine = open_engine(f"{scheme}:///{tmp_path}/text.db", EngineOptions(), isolated=False)
        with contextlib.closing(engine), pytest.raises(NbtoolsError) as caught:
            engine.run(QueryRequest(sql="select * from sales"), QueryControl())
        assert "text.db" in caught.value.message


def test_no_other_database_is_attached(case: Case, tmp_path: Path) -> None:
    if "SQLAlchemy" in case.engine.name:
        pytest.skip("the verdict is the wall of databases that only SQLAlchemy knows")
    with pytest.raises(NbtoolsError):
        run(case, f"attach '{tmp_path}/other.db' as other")
    assert not (tmp_path / "other.db").exists()


def test_rows_of_python_values_convert_like_arrow_ones() -> None:
    rows = PythonRows(["a", "a"], [(1, "x"), (None, "y")])
    assert rows.to_lists() == [[1, "x"], [None, "y"]]
    assert list(rows.to_pandas().columns) == ["a", "a"]
    assert rows.to_polars().columns == ["a", "a_1"]
    assert rows.to_arrow().column(0).to_pylist() == [1, None]
