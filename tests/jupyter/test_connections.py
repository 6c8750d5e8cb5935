"""Connections that stay, what there is to ask, and folders that a person allows."""

from __future__ import annotations

import contextlib
import gzip
import re
import sqlite3
import types
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from nbtools.assembly.workbench import Workbench
from nbtools.errors import FileMissing, InvalidArguments, SqlInvalid, SqlNotAllowed
from nbtools.jupyter.connections import NotebookConnections
from nbtools.jupyter.magics.connections import listing
from nbtools.memory.rules.marks import _key, _text_of
from tests.jupyter.conftest import Notebook, open_shell


@pytest.fixture(scope="module")
def module_notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """One notebook for all tests here, with a shop and a DataFrame."""
    place = tmp_path_factory.mktemp("connections")
    with pytest.MonkeyPatch.context() as patch, open_shell(place, patch) as opened:
        patch.setenv("NBTOOLS_MEMORY_URL", ":memory:")
        (place / "work" / "nbtools.toml").write_text('[connections]\ndemo = "sqlite:///shop.db"\n', encoding="utf-8")
        with contextlib.closing(sqlite3.connect("shop.db")) as shop, shop:
            shop.execute('create table orders (id integer primary key, amount real not null, "Order by" text)')
            shop.execute("insert into orders values (1, 2.5, 'x'), (2, 4, 'y'), (3, 1.5, 'x')")
        for folder, city in (("elsewhere", "Thun"), ("work/below", "Bern")):
            (place / folder).mkdir()
            (place / folder / "far.csv").write_text(f"city\n{city}\n", encoding="utf-8")
        opened.run("%load_ext nbtools")
        yield opened


@pytest.fixture
def notebook(module_notebook: Notebook) -> Notebook:
    """The notebook with no connection open."""
    module_notebook.shell.user_ns["df"] = pd.DataFrame({"a": [1, 2]})
    for row in module_notebook.run("%nbsql --connections").value.rows:
        module_notebook.run(f"%nbsql --close {row[0]}")
    for name in ("top", "recent"):
        module_notebook.run(f"%nbsql --forget {name}")
    return module_notebook


def states(notebook: Notebook) -> dict[str, str]:
    return {row[0]: row[1] for row in notebook.run("%nbsql --connections").value.rows}


def test_a_connection_that_is_opened_stays_and_is_told_in_each_footer(notebook: Notebook) -> None:
    said = notebook.run("%sql sqlite:///shop.db").value.to_text()
    assert said == "queries now go to sqlite:///shop.db; it has 1 table (listed by %nbsql --tables)"
    found = notebook.run("%%nbsql\nselect sum(amount) as s from orders").value
    assert found["s"].tolist() == [8.0]
    assert "on sqlite:///shop.db" in found.attrs["footer"]
    assert notebook.run("rows << %sql select * from orders where id > 1").error is None
    assert len(notebook["rows"]) == 2
    assert states(notebook) == {"demo": "", "sqlite:///shop.db": "current"}
    assert "back to DataFrames and files" in notebook.run("%nbsql --close sqlite:///shop.db").value.to_text()
    assert states(notebook) == {"demo": ""}
    assert isinstance(notebook.run("%nbsql select * from orders").error, SqlInvalid)
    notebook.run("%nbsql --connect shop sqlite:///shop.db")
    notebook.run("%nbsql --close shop")
    for line in ("%nbsql shop", "%nbsql shop select * from orders"):
        told = "".join(notebook.run(line).lines)
        assert "It was closed; %nbsql --connect shop sqlite:///shop.db opens it again." in told


@pytest.mark.parametrize("line", ["--connect shop sqlite:///shop.db", "sqlite:///shop.db --alias shop"])
def test_a_connection_gets_a_name_and_others_are_switched_to(notebook: Notebook, line: str) -> None:
    assert "queries now go to shop (sqlite:///shop.db)" in notebook.run(f"%nbsql {line}").value.to_text()
    assert notebook.run("%%sql demo\nselect count(*) as n from orders").value["n"].tolist() == [3]
    assert states(notebook) == {"demo": "current", "shop": "open"}
    notebook.run("%sql shop")
    assert states(notebook)["shop"] == "current"
    assert notebook.shell.user_ns["get_ipython"] is not None
    notebook.run("%nbsql duckdb://")
    assert "current" not in states(notebook).values()
    assert notebook.run("%nbsql select 7 as x").value.attrs["footer"].count("on ") == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sqlite:///gone.db", "does not exist"),
        ("--connect demo sqlite:///shop.db", "'demo' is a connection of the settings"),
        ("--connect 1x sqlite:///shop.db", "'1x' is not a name"),
        ("--connect shop shop.db", "'shop.db' is not a URL"),
        ("--close gone", "there is no connection 'gone'"),
        ("postgresql://me:sesame@127.0.0.1:1/shop", "me:***@127.0.0.1:1/shop cannot be reached"),
    ],
)
def test_what_cannot_be_opened_leaves_the_current_one(notebook: Notebook, line: str, said: str) -> None:
    notebook.run("%nbsql demo")
    cell = notebook.run(f"%nbsql {line}")
    assert said in cell.lines[1]
    assert "sesame" not in "".join(cell.lines) + cell.stdout
    assert states(notebook) == {"demo": "current"}


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%nbsql begin", "BEGIN steers transactions"),
        ("%nbsql ROLLBACK;", "ROLLBACK steers transactions"),
        ("%nbsql checkpoint", "CHECKPOINT writes to the database file"),
        ("%%nbsql delete\nfrom orders", "DELETE writes"),
        ("%nbsql nowhere", "there is no connection 'nowhere'"),
    ],
)
def test_a_word_that_begins_a_statement_is_judged_and_no_connection(notebook: Notebook, cell: str, said: str) -> None:
    assert said in "".join(notebook.run(cell).lines)


def test_an_option_without_its_values_and_a_connection_without_a_table_say_what_is_missing(notebook: Notebook) -> None:
    assert notebook.run("%nbsql --connect sqlite:///shop.db").lines[2] == "→ Write --connect NAME URL."
    assert (
        "%nbsql sqlite:///shop.db --tables lists them"
        in notebook.run("%explore --connection sqlite:///shop.db").lines[2]
    )


def test_a_query_in_the_place_of_a_connection_is_told_its_way(notebook: Notebook) -> None:
    notebook.shell.user_ns["held_query"] = "select 1 as one"
    try:
        assert "wb.sql(NAME) runs the query of a variable" in "".join(notebook.run("%nbsql {held_query}").lines)
    finally:
        del notebook.shell.user_ns["held_query"]


def test_frames_and_files_are_read_whatever_connection_is_current(notebook: Notebook) -> None:
    notebook.run("%nbsql demo")
    assert notebook.run("%nbsql select sum(a) as s from df").value["s"].tolist() == [3]
    assert notebook.run("%nbsql select count(*) as n from 'sales.csv'").value["n"].tolist() == [2]
    assert notebook.run("%nbsql select count(*) as n from nbtools.calls").error is None
    notebook.shell.user_ns["orders"] = pd.DataFrame({"amount": [100]})
    try:
        both = notebook.run("%nbsql select sum(amount) as s from orders")
        assert both.value["s"].tolist() == [8.0]
        assert "orders is both a DataFrame and a table of demo" in both.stdout
        assert notebook.run("%%nbsql duckdb://\nselect sum(amount) as s from orders").value["s"].tolist() == [100]
    finally:
        del notebook.shell.user_ns["orders"]


def test_tables_lists_all_that_can_be_asked_with_rows_and_columns(notebook: Notebook) -> None:
    Path("data").mkdir(exist_ok=True)
    Path("data/deep.csv").write_text("a\n1\n")
    Path("data/packed.csv.gz").write_bytes(gzip.compress(b"a\n1\n2\n"))
    notebook.run("%nbsql demo")
    notebook.run("%nbsql --save recent select * from orders where id > 1")
    rows = {row[0]: row[1:] for row in notebook.run("%nbsql --tables").value.rows}
    assert rows["orders"] == ("table", "3", "id INTEGER, amount REAL, Order by TEXT")
    assert rows["df"] == ("frame", "2", "a int64")
    assert rows["recent"] == ("saved query", None, "reads orders")
    assert rows["'sales.csv'"] == ("file", "2", "city VARCHAR, amount BIGINT")
    assert rows["'data/packed.csv.gz'"] == ("file", "2", "a BIGINT")
    assert "nbtools.memory" in rows
    assert notebook.run("%nbsql show tables").value["name"].tolist() == ["orders"]
    assert notebook.run("%nbsql describe orders").value["name"].tolist() == ["id", "amount", "Order by"]
    assert "no such table" in notebook.run("%nbsql describe oders").lines[1]
    notebook.run("%nbsql duckdb://")
    page = notebook.run("%nbsql --tables").value.to_html()
    places = re.findall(r"<b>([^<]*)</b> \(", page)
    assert {"tables of demo", "DataFrames", "saved queries", "files here", "files in data"} <= set(places)
    assert "id INTEGER<br>amount REAL<br>Order by TEXT" in page
    listed = notebook.run("%nbsql -o seen show tables")
    assert listed.error is None
    assert {"df", "'sales.csv'"} <= set(notebook["seen"]["table"])
    assert "orders" not in set(notebook["seen"]["table"])
    seen = notebook["seen"].set_index("table")
    assert seen.loc["demo.orders", "columns"] == "id INTEGER, amount REAL, Order by TEXT"
    assert seen.loc["'data/deep.csv'", "columns"] == "a BIGINT"
    notebook.run("%nbsql sqlite:///shop.db")
    notebook.run("%nbsql duckdb://")
    page = notebook.run("%nbsql --tables").value.to_html()
    assert "<b>tables of sqlite:///shop.db</b> (" in page


def test_completion_knows_the_current_connection(notebook: Notebook) -> None:
    notebook.run("%nbsql demo")
    notebook.run("%nbsql --save recent select id, amount from orders")
    assert "orders" in notebook.complete("%nbsql select * from o")
    assert notebook.complete("%%nbsql\nselect o.O| from orders o") == ['o."Order by"']
    assert notebook.complete("%%nbsql\nselect d.a| from df d") == ["d.a"]
    assert "r.amount" in notebook.complete("%%nbsql\nselect r.am| from recent r")
    assert notebook.complete("%nbsql --close de") == ["demo"]
    assert notebook.complete("%nbsql --forget re") == ["recent"]


def test_saved_queries_are_forgotten_unless_others_use_them(notebook: Notebook) -> None:
    notebook.run("%nbsql --save recent select * from df where a > 1")
    notebook.run("%nbsql --save top select * from recent")
    replaced = notebook.run("%nbsql --save top select a from recent").value.to_text()
    assert replaced == "top is saved and replaces select * from recent; it reads recent"
    assert "top uses 'recent'" in notebook.run("%nbsql --forget recent").lines[1]
    assert notebook.run("%nbsql --forget top").value.to_text() == "top is forgotten"
    assert notebook.run("%nbsql --forget RECENT").error is None
    assert notebook.run("%nbsql --saved").value.rows == ()
    assert isinstance(notebook.run("%nbsql --forget recent").error, InvalidArguments)


def test_saved_queries_are_the_agents_own_and_none_that_strangers_may_have_written(notebook: Notebook) -> None:
    session = notebook.shell.meta["nbtools"].dispatcher.session
    notes = [{"name": name, "sql": "select 1 as n", "tables": [], "files": []} for name in ("mine", "theirs")]
    for note in notes:
        session.workbench.memory.write(f"queries/{note['name']}", note)
    session.workbench._marks._put({_key("note", _text_of(notes[1]))})
    session.choose_scope(agent_id="other")
    session.__dict__.pop("saved_queries", None)  # as in a new kernel
    assert [row[0] for row in notebook.run("%nbsql --saved").value.rows] == ["mine"]
    session.choose_scope()
    notebook.run("%nbsql --forget mine")


@pytest.mark.parametrize("kind", ["bar id amount", "bar Order\\ by", "hist amount", "scatter id amount", "box amount"])
def test_what_another_engine_answers_is_drawn(notebook: Notebook, kind: str) -> None:
    pytest.importorskip("matplotlib")
    kind = kind.replace("Order\\ by", '"Order by"')
    cell = notebook.run(f"%%nbsql demo --plot {kind}\nselect * from orders")
    assert cell.error is None
    assert cell.forms["image/png"].startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("query", "hint"),
    [("create temp table x as select 1", "--save NAME"), ("begin", "its own read-only transaction")],
)
@pytest.mark.parametrize("where", ["demo", "duckdb://"])
def test_what_a_session_that_writes_would_keep_has_another_way(
    notebook: Notebook, where: str, query: str, hint: str
) -> None:
    cell = notebook.run(f"%%nbsql {where}\n{query}")
    assert isinstance(cell.error, SqlNotAllowed)
    assert hint in cell.lines[-1]


@pytest.mark.processes
def test_a_model_knows_neither_what_a_person_opened_nor_what_they_allowed(notebook: Notebook) -> None:
    from nbtools.assembly.shared import shared

    def ask(**arguments: str) -> str:
        found = shared().call("sql_query", arguments, caller="model")
        return "" if found.ok else str(found.error)

    notebook.run("%nbsql --connect shop sqlite:///shop.db")
    far = str(Path("../elsewhere/far.csv").resolve())
    refused = notebook.run("%nbsql select * from '../elsewhere/far.csv'")
    assert "%nbtools allow ../elsewhere" in refused.lines[-1]
    assert "%" not in shared().call("file_read", {"path": far}, caller="model").error.hint
    said = notebook.run("%nbtools allow ../elsewhere").value.to_text()
    assert "a model may not" in said
    assert notebook.run("%nbsql select city from '../elsewhere/far.csv'").value["city"].tolist() == ["Thun"]
    assert notebook.run(f"%tool file_read --path {far}").error is None
    assert notebook.run("%nbsql select count(*) as n from orders").value["n"].tolist() == [3]
    assert far.rpartition("/")[0] in notebook.run("%nbtools allow").value.to_text().splitlines()
    assert "no connection 'shop'" in ask(query="select * from orders", connection="shop")
    assert "outside the allowed folders" in ask(query=f"select * from '{far}'")
    assert "Table with name orders does not exist" in ask(query="select * from orders")
    assert ask(query="select * from orders", connection="demo") == ""
    reading = shared().call("file_read", {"path": far}, caller="model")
    assert reading.error is not None
    assert reading.error.code == "PATH_NOT_ALLOWED"
    script = {"code": "print(open(" + repr(far) + ").read())", "language": "python"}
    assert "Thun" not in shared().call("code_execute", script, caller="model").text


@pytest.mark.processes
def test_postgres_is_opened_by_its_url_and_worked_with(
    notebook: Notebook, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute('drop table if exists bills; create table bills (id int, "Due on" date)')
        connection.execute("insert into bills select i, date '2024-01-01' + i from generate_series(1, 20_000) i")
        if not connection.execute("select 1 from pg_roles where rolname = 'reader'").fetchall():
            connection.execute("create role reader login")
        connection.execute("grant select on bills to reader")
    monkeypatch.setenv("READER_PASSWORD", "sesame")
    url = postgres_url.replace("postgres@", "reader:${READER_PASSWORD}@")
    opened = notebook.run(f"%nbsql {url}")
    assert "queries now go to postgresql://reader:***@" in opened.value.to_text()
    assert "the password is in this cell" not in opened.stdout
    rows = {row[0]: row[1:] for row in notebook.run("%nbsql --tables").value.rows}
    assert rows["bills"] == ("table", "20,000", "id integer, Due on date")
    assert "bills" in notebook.run("%nbsql show tables").value["name"].tolist()
    assert notebook.run("%nbsql describe bills").value["name"].tolist() == ["id", "Due on"]
    assert notebook.complete("%%nbsql\nselect b.D| from bills b") == ['b."Due on"']
    notebook.run("%nbsql --save late select * from bills where id > 19990")
    assert notebook.run("%nbsql select count(*) as n from late").value["n"].tolist() == [10]
    notebook.run("%nbsql -o found select id from bills")
    assert len(notebook["found"]) == 20_000
    assert notebook.run("%nbsql --out-file bills.parquet --overwrite select * from bills").error is None
    assert notebook.run("%nbsql select count(*) as n from 'bills.parquet'").value["n"].tolist() == [20_000]
    assert isinstance(notebook.run("%nbsql delete from bills").error, SqlNotAllowed)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(pid, 10000) from pg_stat_activity where usename = 'reader'")
    assert notebook.run("%nbsql select count(*) as n from bills").value["n"].tolist() == [20_000]
    notebook.run("%nbsql --forget late")


def test_a_folder_that_is_none_is_not_allowed(notebook: Notebook) -> None:
    assert isinstance(notebook.run("%nbtools allow ../gone").error, FileMissing)
    assert "is a file; allow its folder" in notebook.run("%nbtools allow sales.csv").lines[1]


def test_a_path_from_home_is_read_where_home_is_allowed(notebook: Notebook, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(Path("below").resolve()))
    assert notebook.run("%nbsql select city from '~/far.csv'").value["city"].tolist() == ["Bern"]
    monkeypatch.setenv("HOME", "/etc")
    cell = notebook.run("%nbsql select * from '~/hosts.csv'")
    assert "%nbtools allow ~ (" in cell.lines[-1]
    assert "%nbtools allow /etc (" in notebook.run("%tool file_read --path /etc/hostname").lines[-1], "not the file"


def test_a_connection_of_a_file_that_is_not_trusted_is_said_to_wait(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("nbtools.toml").write_text("[connections]\nshop = 'postgresql://shop.example/shop'\n")
    with Workbench(home=tmp_path / "home", memory_url=":memory:") as bench:
        connections = NotebookConnections(lambda: bench, {})
        waits = "shop waits until you trust nbtools.toml: nbtools trust"
        for ask in (connections.name_of, lambda name: bench.sql("SELECT 1", connection=name)):
            with pytest.raises(InvalidArguments) as refused:
                ask("shop")
            assert refused.value.hint == f"{waits}."
        session = types.SimpleNamespace(connections=connections, workbench=bench)
        assert "shop waits until you trust" in listing(types.SimpleNamespace(session=session)).to_text()
