"""Connections that the notebook has open itself, tables of other connections, and what a query sees of the notebook."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from nbtools.errors import InvalidArguments, SqlFailed, SqlInvalid, SqlNotAllowed
from nbtools.sql import SqlSession, frames
from nbtools.sql.engines.lent import LentConnection
from tests.jupyter.conftest import Notebook, open_shell

pytestmark = pytest.mark.broad


@pytest.fixture(scope="module")
def module_notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    place = tmp_path_factory.mktemp("lent")
    with pytest.MonkeyPatch.context() as patch, open_shell(place, patch) as opened:
        patch.setenv("NBTOOLS_MEMORY_URL", ":memory:")
        settings = '[connections]\ncrm = "sqlite:///crm.db"\nshop = "duckdb:///shop.duckdb"\n'
        (place / "work" / "nbtools.toml").write_text(settings, encoding="utf-8")
        with contextlib.closing(sqlite3.connect("crm.db")) as crm, crm:
            crm.execute("create table contracts (id, plan)")
            crm.execute("insert into contracts values (1, 'basic'), (2, 'large')")
        with duckdb.connect("shop.duckdb") as shop:
            shop.execute("create table orders as select 1 as id, 9.5 as amount")
        opened.run("%load_ext nbtools")
        yield opened


@pytest.fixture
def notebook(module_notebook: Notebook) -> Iterator[Notebook]:
    module_notebook.run("%sql duckdb://")
    with duckdb.connect() as con:
        con.execute("create table t as select 1 as a")
        module_notebook.shell.user_ns["con"] = con
        yield module_notebook


def rows(notebook: Notebook, text: str) -> Any:
    cell = notebook.run(text)
    if cell.error is not None:
        raise cell.error
    return cell.value.to_numpy().tolist()


def test_a_duckdb_connection_is_asked_by_its_name_with_what_only_it_sees(notebook: Notebook) -> None:
    con = notebook["con"]
    con.execute("create temp table own as select 2 as b; create schema s; create table s.u as select 3 as c; use s")
    con.register("registered", pd.DataFrame({"d": [4]}))
    notebook.shell.user_ns["df"] = pd.DataFrame({"e": [5]})
    found = notebook.run("%sql con select * from memory.main.t, own, u, registered, df").value
    assert found.to_numpy().tolist() == [[1, 2, 3, 4, 5]]
    assert "on con" in found.attrs["footer"]
    assert rows(notebook, "%sql select c + 1 as c from u") == [[4]]  # it is the current one now
    assert (
        notebook.run("%sql con").value.to_text().startswith("queries now go to con (the notebook's DuckDBPyConnection)")
    )


def test_a_duckdb_connection_is_left_as_it_was(notebook: Notebook) -> None:
    con = notebook["con"]
    con.execute("select * from range(3)")
    assert con.fetchone() == (0,)
    assert "con is in use" in notebook.run("%sql con select * from t").value.attrs["footer"]
    assert con.fetchall() == [(1,), (2,)]
    con.execute("begin; insert into t values (100)")
    found = notebook.run("%sql con select * from t").value
    assert found["a"].tolist() == [1]
    assert "uncommitted changes are not visible" in found.attrs["footer"]
    con.execute("commit")
    assert rows(notebook, "%sql con select max(a) from t") == [[100]]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("insert into t values (2)", SqlNotAllowed),
        ("select * from read_text('/etc/passwd')", SqlNotAllowed),
        ("select * from os", SqlInvalid),  # no variable of ours, nor of the notebook
        ("--isolated con select 1", InvalidArguments),
    ],
)
def test_the_verdict_holds_for_a_lent_connection(notebook: Notebook, query: str, error: type[Exception]) -> None:
    line = query if query.startswith("--") else f"con {query}"
    assert isinstance(notebook.run(f"%sql {line}").error, error)


def test_a_macro_made_meanwhile_is_judged(notebook: Notebook) -> None:
    assert rows(notebook, "%sql con select avg(a) from t") == [[1.0]]
    notebook["con"].execute("create macro avg(x) as (select content from read_text('/etc/passwd'))")
    assert isinstance(notebook.run("%sql con select avg(a) from t").error, SqlNotAllowed)


def test_a_connection_that_is_closed_or_gone_says_so_and_one_made_anew_is_taken(notebook: Notebook) -> None:
    notebook["con"].close()
    assert "con is closed" in str(notebook.run("%sql con select 1").error)
    notebook.shell.user_ns["con"] = duckdb.connect()
    assert rows(notebook, "%sql con select 6 as x") == [[6]]
    del notebook.shell.user_ns["con"]
    assert "'con' is gone" in str(notebook.run("%sql select 1").error)
    assert rows(notebook, "%sql select 7 as x") == [[7]]


def test_a_file_is_let_go_when_nothing_runs(notebook: Notebook) -> None:
    assert rows(notebook, "%sql shop select amount from orders") == [[9.5]]
    with duckdb.connect("shop.duckdb") as writer:
        writer.execute("update orders set amount = 8.5")
        assert "ask that one: %sql NAME" in str(notebook.run("%sql shop select 1").error.hint)
    assert rows(notebook, "%sql shop select amount from orders") == [[8.5]]


def test_sqlite_connections_are_asked_and_those_of_other_threads_refused(notebook: Notebook) -> None:
    names = notebook.shell.user_ns
    with contextlib.closing(sqlite3.connect(":memory:")) as memory:
        memory.execute("create table k as select 1 as a")
        names["memory"] = memory
        assert rows(notebook, "%sql memory select * from k") == [[1]]
        memory.execute("insert into k values (2)")
        memory.commit()
        assert rows(notebook, "%sql select count(*) from k") == [[2]]
    assert "memory is closed" in str(notebook.run("%sql memory select 1").error)
    with contextlib.closing(sqlite3.connect("crm.db")) as names["file"]:
        names["file"].execute("insert into contracts values (3, 'free')")
        assert "uncommitted changes" in notebook.run("%sql file select * from contracts").value.attrs["footer"]
        names["file"].rollback()
    thread = threading.Thread(target=lambda: names.update(other=sqlite3.connect("crm.db")))
    thread.start()
    thread.join()
    assert "belongs to another thread" in str(notebook.run("%sql other select 1").error)


@pytest.mark.parametrize(
    "line", ["%sql {} select * from k", "%explore {}.k", "%explore {} select * from k", "%explore --connection {} k"]
)
@pytest.mark.parametrize("driver", [duckdb, sqlite3])
def test_a_connection_is_asked_refused_or_told_alike_in_every_face(notebook: Notebook, driver: Any, line: str) -> None:
    file = f"faces-{driver.__name__}"
    with contextlib.closing(driver.connect(file)) as made:
        made.execute("drop table if exists k")
        made.execute("create table k as select 6 as a")
        made.commit()
    names = notebook.shell.user_ns
    names["usable"], names["closed"], names["busy"] = (driver.connect(file) for _ in range(3))
    names["closed"].close()
    names["busy"].execute("begin")
    names["busy"].execute("insert into k values (7)")
    thread = threading.Thread(target=lambda: names.update(foreign=driver.connect(file)))
    thread.start()
    thread.join()

    def shown(name: str) -> tuple[Any, str]:
        cell = notebook.run(line.format(name))
        assert cell.error is None, cell.error
        if line.startswith("%sql"):
            return cell.value.to_numpy().tolist(), cell.value.attrs["footer"]
        with contextlib.closing(cell.value) as explorer:
            return explorer.data().to_numpy().tolist(), str(explorer)

    try:
        assert shown("usable")[0] == [[6]]
        found, told = shown("busy")
        assert (found, "busy is in a transaction: uncommitted changes are not visible" in told) == ([[6]], True)
        assert "the connection closed is closed" in str(notebook.run(line.format("closed")).error)
        if driver is duckdb:
            assert shown("foreign")[0] == [[6]]
        else:
            assert "belongs to another thread" in str(notebook.run(line.format("foreign")).error)
    finally:
        names["busy"].rollback()
        for name in ("usable", "busy"):
            names[name].close()


def test_an_empty_database_in_memory_is_asked(notebook: Notebook) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as notebook.shell.user_ns["empty"]:
        assert rows(notebook, "%sql empty select 1 as a") == [[1]]


def test_a_closed_connection_of_sqlalchemy_says_so(notebook: Notebook) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    with sqlalchemy.create_engine("sqlite:///crm.db").connect() as connection:
        notebook.shell.user_ns["link"] = connection
        assert rows(notebook, "%sql link select count(*) from contracts") == [[2]]
    assert "link is closed" in str(notebook.run("%sql link select 1").error)


def test_sqlalchemy_engines_are_asked(notebook: Notebook) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.begin() as connection:
        connection.exec_driver_sql("create table q as select 4 as a")
    notebook.shell.user_ns["engine"] = engine
    assert rows(notebook, "%sql engine select * from q") == [[4]]


def test_a_connection_of_an_unknown_driver_names_the_way(notebook: Notebook) -> None:
    class Strange:
        def cursor(self) -> None: ...

        def rollback(self) -> None: ...

    notebook.shell.user_ns["strange"] = Strange()
    assert "by its URL" in str(notebook.run("%sql strange select 1").error.hint)


@pytest.mark.processes
@pytest.mark.parametrize("autocommit", [False, True])
def test_a_psycopg_connection_keeps_its_transaction(postgres_database: str, autocommit: bool) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_database, autocommit=autocommit) as connection, SqlSession() as session:
        connection.execute("create table kept as select 1 as a")
        connection.commit()
        session.connect("pg", LentConnection("pg", connection))
        assert session.query("select a from kept", connection="pg").to_rows() == [[1]]
        assert connection.info.transaction_status == 0
        connection.execute("begin") if autocommit else None
        connection.execute("insert into kept values (2)")
        assert session.query("select count(*) from kept", connection="pg").to_rows() == [[2]]
        with pytest.raises(SqlFailed, match="division by zero"):
            session.query("select 1 / (a - 1) from kept", connection="pg")
        connection.commit()
        assert connection.execute("select count(*) from kept").fetchone() == (2,)
        assert "kept" in {table["name"] for table in session.catalog("pg")}


def test_a_query_names_tables_of_other_connections(notebook: Notebook) -> None:
    notebook.shell.user_ns["df"] = pd.DataFrame({"a": [1], "id": [2]})
    query = "select plan, df.id from crm.contracts join df using (id) join con.t using (a)"
    assert rows(notebook, f"%sql {query}") == [["large", 2]]
    assert rows(notebook, "%sql crm select plan from contracts where id = 1") == [["basic"]]
    assert rows(notebook, "%sql select count(*) from crm.contracts, df") == [[2]]  # the current one has no frames
    assert rows(notebook, "%sql shop select plan from orders join crm.contracts using (id)") == [["basic"]]
    with pytest.raises(SqlInvalid, match="crm: no such table: contract") as caught:
        rows(notebook, "%sql duckdb:// select * from crm.contract")
    assert caught.value.hint == "Did you mean 'contracts'?"


@pytest.mark.processes
def test_an_isolated_query_names_tables_of_other_connections(tmp_path: Path) -> None:
    path = tmp_path / "crm.db"
    with contextlib.closing(sqlite3.connect(path)) as crm, crm:
        crm.execute("create table contracts as select 1 as id")
    with SqlSession(allowed_paths=[tmp_path], connections={"crm": f"sqlite:///{path}"}) as session:
        assert session.query("select * from crm.contracts", isolated=True).to_rows() == [[1]]
        with pytest.raises(SqlNotAllowed):
            session.query("delete from crm.contracts", isolated=True)
        with pytest.raises(SqlInvalid, match="no such table: df") as missing:
            session.query("select * from contracts join df using (id)", connection="crm")
        assert "for DataFrames and files use duckdb://, where its tables are crm.TABLE." in str(missing.value.hint)


def test_relations_are_tables_by_name(notebook: Notebook) -> None:
    notebook.shell.user_ns["rel"] = notebook["con"].sql("select a + 1 as b from t")
    assert rows(notebook, "%sql select * from rel as x join rel as y using (b)") == [[2]]
    assert "rel" in notebook.run("%sql --tables").value.to_text()
    notebook["con"].close()
    assert "rel cannot be read" in str(notebook.run("%sql select * from rel").error)


def test_sql_shows_the_levels_of_an_index_as_the_explorer_does(notebook: Notebook) -> None:
    frame = pd.DataFrame({"k": ["a", "b", "a"], "v": [1, 2, 3]})
    notebook.shell.user_ns.update(grouped=frame.groupby("k").sum(), filtered=frame[frame["v"] > 1])
    assert rows(notebook, "%sql select k, v from grouped order by k") == [["a", 4], ["b", 2]]
    assert notebook.run("%sql select * from filtered").value.columns.tolist() == ["k", "v"]
    assert frames.frame_columns(notebook["grouped"]) == [("k", "str"), ("v", "int64")]
    for name in ("grouped", "filtered"):
        explored = list(frames.plain_frame(notebook[name])[0].columns)
        assert explored == notebook.run(f"%sql select * from {name}").value.columns.tolist()


def test_a_function_sees_its_own_frames_and_values(notebook: Notebook) -> None:
    cell = notebook.run(
        "import pandas as pd\n"
        "def ask():\n"
        "    local, more = pd.DataFrame({'q': [41]}), 1\n"
        "    return get_ipython().run_line_magic('sql', 'select q + :more as w from local')\n"
        "ask()"
    )
    assert cell.value["w"].tolist() == [42]
    assert isinstance(notebook.run("%sql select * from local").error, SqlInvalid)


def test_a_semicolon_ends_sql_and_mutes_elsewhere(notebook: Notebook) -> None:
    assert rows(notebook, "%sql select 5 * -1 as a;") == [[-5]]
    assert notebook.run("%tool calculator 1 + 1;").value is None
