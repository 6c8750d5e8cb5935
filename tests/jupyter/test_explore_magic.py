"""What stands behind the source of ``%explore``."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest

from nbtools.texts.sql_quotes import quote_text
from tests.conftest import wait_until
from tests.jupyter.conftest import Notebook

pytestmark = pytest.mark.broad


@pytest.fixture
def notebook(shared_notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """The notebook of all, in a folder of each test's own."""
    monkeypatch.chdir(tempfile.mkdtemp(dir=Path.cwd()))
    return shared_notebook


@pytest.mark.parametrize(
    "line",
    [
        "%explore a.csv --compare b.csv --key id",
        "%explore 'a.csv' --compare \"b.csv\" --key 'id'",
        "%explore --compare b.csv --key id a.csv",
        "%explore --key id a.csv --compare b.csv",
        "%explore a.csv --key id --compare b.csv",
        "%explore select * from 'a.csv' where id > 0 --compare b.csv --key id",
    ],
)
def test_two_sources_are_compared_by_a_line(notebook: Any, line: str) -> None:
    folder = Path.cwd()
    (folder / "a.csv").write_text("id,n\n1,1\n2,2\n")
    (folder / "b.csv").write_text("id,n\n1,1\n2,3\n")
    explorer = notebook.run(line).value
    assert explorer.data()[["difference", "id", "changed"]].to_numpy().tolist() == [["changed", 2, "n"]]
    explorer.close()


@pytest.mark.parametrize(
    ("line", "name"),
    [
        *(("%explore -a.csv", "-a.csv"), ("%explore --compare -a.csv b.csv", "-a.csv"), ("%nbsql -a.csv", "-a.csv")),
        *(("%nbsql --profile -a.csv", "-a.csv"), ("%explore -o.csv", "-o.csv"), ("%nbsql -x.csv", "-x.csv")),
    ],
)
def test_a_file_that_looks_like_an_option_is_told_how_it_is_named(notebook: Any, line: str, name: str) -> None:
    Path(name).write_text("n\n1\n")
    hint = f"→ A file whose name begins with a dash is written ./{name}, in SQL FROM './{name}'."
    assert notebook.run(line).lines[-1] == hint


@pytest.mark.parametrize("name", ['it\'s a [file] "x".csv', "-o.csv", "./-x.csv", "plain.csv"])
def test_a_hint_that_names_a_file_works_when_it_is_typed(notebook: Any, name: str) -> None:
    Path(name).write_text("n\n1\n")
    wrong = quote_text(name.replace("'", "").replace(".csv", "s.csv"))
    lines = [f"%explore {wrong}", f"%nbsql from {wrong}", f"%explore FROM {wrong}", f"%nbsql {Path(name)}"]
    for line in lines if " " not in name else lines[:-1]:
        hint = str(notebook.run(line).lines[-1])
        [typed] = re.findall(r"'(?:[^']|'')*'", hint)
        for start in ("%explore ", "%explore FROM ", "%nbsql FROM "):
            value = notebook.run(start + typed).value
            rows = value.data() if start.startswith("%explore") else value
            assert rows.to_numpy().tolist() == [[1]], (line, hint)


@pytest.mark.parametrize("name", ["./-a.csv", "'-a.csv'", "FROM './-a.csv'"])
def test_a_file_whose_name_begins_with_a_dash_is_explored(notebook: Any, name: str) -> None:
    Path("-a.csv").write_text("n\n1\n")
    explorer = notebook.run(f"%explore {name}").value
    assert explorer.data().to_numpy().tolist() == [[1]]
    explorer.close()


@pytest.mark.parametrize("start", ["%explore ", "%%explore\n"])
def test_a_query_longer_than_the_name_of_a_file_is_explored(notebook: Any, start: str) -> None:
    explorer = notebook.run(f"{start}select {', '.join(f'{at} as c{at}' for at in range(600))}").value
    assert explorer.data().shape == (1, 600)
    explorer.close()


def test_the_name_of_a_table_in_double_quotes_is_one_of_its_database(notebook: Any) -> None:
    with contextlib.closing(sqlite3.connect("shop.sqlite")) as connection:
        connection.execute('create table "orders 2026" as select 7 as n')
        connection.commit()
    explorer = notebook.run('%explore --connection sqlite:///shop.sqlite "orders 2026"').value
    assert explorer.data().to_numpy().tolist() == [[7]]
    explorer.close()


def test_a_file_that_is_not_read_says_why_in_every_form(notebook: Any) -> None:
    Path("western.csv").write_bytes("Liste\n\nname;n\nM\u00fcller;1\nGr\u00f6\u00dfe;2\n".encode("cp1252"))
    explorer = notebook.run("%explore western.csv").value
    for form in (repr(explorer), explorer.plain_html()):
        assert "the file is not UTF-8" in form
        assert "encoding = " in form
        assert "0 rows" not in form
    explorer.close()


def test_a_clause_or_an_unknown_option_behind_the_source_is_told_its_place(notebook: Any) -> None:
    Path("a.csv").write_text("id\n1\n")
    assert "%explore FROM a.csv where id = 1" in "".join(notebook.run("%explore a.csv where id = 1").lines)
    for line in (
        "%explore a.csv --encoding latin-1",
        "%explore --encoding=latin-1 a.csv",
        "%explore a.csv --sheet 'A b'",
    ):
        assert "read_csv('FILE', encoding = 'latin-1'" in "".join(notebook.run(line).lines)


@pytest.mark.parametrize(
    "line",
    [
        "%explore -o seen a.csv",
        "%explore a.csv -o seen",
        "%explore 'a.csv' --out=seen",
        "%explore from 'a.csv' where id < 2 -o seen",
        "%explore \"from 'a.csv'\" -o seen",
        "seen << %explore a.csv",
    ],
)
def test_options_stand_before_the_source_or_behind_it(notebook: Any, line: str) -> None:
    Path("a.csv").write_text("id\n1\n")
    explorer = notebook.run(line).value
    assert notebook.shell.user_ns["seen"] is explorer
    assert explorer.data()["id"].tolist() == [1]
    explorer.close()


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("%explore a.csv --key id", "--key"),
        ("%explore --key id a.csv", "--key"),
        ("%nbsql --tables --limit 3", "--limit"),
        ("%nbsql --overwrite select 1", "--overwrite"),
        ("kept << %explore a.csv -o other", "-o"),
        ("%explore a.csv --key id --compare a.csv", None),
        ("%nbsql --limit 3 --as polars select 1", None),
        ("%explore a.csv -o x --traceback", None),
    ],
)
def test_an_option_that_has_no_effect_is_told(notebook: Any, line: str, option: str | None) -> None:
    Path("a.csv").write_text("id\n1\n")
    text = notebook.run(line).stdout
    assert ("has no effect here" in text) == (option is not None)
    assert option is None or f"{option} has no effect here (" in text


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("select * from 'a.csv' where", "where"),
        ("select id\nfrom 'a.csv' where id =", "="),
        ("select idd from 'a.csv'", "idd from"),
        ("select * from 'a.csv' where idd = 1", "idd = 1"),
    ],
)
def test_an_error_points_into_a_query_that_a_person_wrote(notebook: Any, query: str, rest: str) -> None:
    Path("a.csv").write_text("id\n1\n")
    text = "\n".join(notebook.run(f"%%explore\n{query}").lines)
    last = query.rsplit("\n", maxsplit=1)[-1]
    assert f"line {query.count(chr(10)) + 1}: " in text
    assert f"    {last}\n    {' ' * last.index(rest)}^" in text


def test_what_may_be_sql_is_no_option(notebook: Any) -> None:
    explorer = notebook.run("%explore select a -o as d from (select 3 as a, 1 as o)").value
    assert explorer.data()["d"].tolist() == [2]
    explorer.close()


def test_an_error_of_what_was_named_points_into_no_text(notebook: Any) -> None:
    import sqlite3

    connection = sqlite3.connect("city.db")
    connection.execute("create table districts (name text)")
    connection.close()
    assert notebook.run("%explore city.db").lines[1:] == [
        "'city.db' is a database file.",
        "\u2192 %explore --connection sqlite:///city.db districts; its tables: districts.",
    ]
    for name in ("odd name", "order"):
        connection = sqlite3.connect("a b.db")
        connection.executescript(f'drop table if exists "odd name"; create table "{name}" (n text)')
        connection.close()
        line = notebook.run("%explore 'a b.db'").lines[-1].removeprefix("\u2192 ").partition(";")[0]
        notebook.run(line).value.close()
    Path("a.csv").write_text("id\n1\n")
    lines = notebook.run("%explore a.csv --compare nothing --key id").lines
    assert "line" not in lines[1]
    assert "Did you mean 'id'?" in "".join(notebook.run("%explore select idd from 'a.csv'").lines)
    assert "Explorer; SQL reads frames: rows = ex.data() makes one" in "".join(
        notebook.run("%explore a.csv -o ex\n%sql select * from ex").lines
    )


def test_the_rows_that_are_shown_become_a_variable(notebook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("IPython.get_ipython", lambda: notebook.shell)  # as it is in a kernel
    Path("c.csv").write_text("id,n\n1,1\n2,2\n3,3\n")
    explorer = notebook.run("%explore select * from 'c.csv' where id > 1").value
    sent: list[Any] = []
    explorer.send = lambda content, **_: sent.append(content)

    def assign(name: str) -> dict[str, Any]:
        sent.clear()
        explorer._handle_custom_msg({"t": "ask", "id": "x", "name": "assign", "given": {"name": name}}, [])
        wait_until(lambda: any(each["t"] == "reply" for each in sent))
        return next(each for each in sent if each["t"] == "reply")

    assert assign("rows").get("value") == "rows is a DataFrame of 2 rows and 2 columns."
    assert notebook.shell.user_ns["rows"]["id"].tolist() == [2, 3]
    for name in ("1x", "class", "a b"):
        assert "not the name" in assign(name)["error"]["message"]
    explorer.close()


def test_a_dictionary_is_drafted_and_read_by_explorer_and_completion(notebook: Any) -> None:
    Path("orders.csv").write_text("id,amount\n1,2.5\n2,2.5\n")
    assert "describes the 2 columns of orders.csv" in notebook.run("%explore --describe orders.csv").value.to_text()
    package = Path("datapackage.yaml")
    package.write_text(package.read_text().replace("description: ''", "description: Net price"))
    explorer = notebook.run("%explore orders.csv").value
    assert [column["means"] for column in explorer.state["columns"]] == ["Net price, key", "Net price"]
    explorer.close()
    session = notebook.shell.meta["nbtools"].dispatcher.session
    notebook.complete("%%nbsql\nselect am| from 'orders.csv'")
    assert session.column_meanings["amount"] == "Net price"
    assert "describes orders.csv already" in notebook.run("%explore --describe orders.csv").lines[1]
    Path("new.csv").write_text("a\n1\n")
    package = package.rename("datapackage.yml")
    listed = notebook.run("%explore --describe new.csv").value.to_text()
    assert "datapackage.yml exists; add to its resources:" in listed
    package.write_text("resources: [")
    told = notebook.run("%explore orders.csv").value
    assert "datapackage.yml cannot be read" in told.state["notes"][0]["text"]
    columns = told._place_of_rows.columns
    assert columns("'orders.csv'", None) == [("id", "bigint", ""), ("amount", "double", "")]
    Path("it's.csv").write_text("a\n1\n")
    package.write_text("resources: [{path: it's.csv, schema: {fields: [{name: a, title: its}]}}]")
    assert columns("'it''s.csv'", None) == [("a", "bigint", "its")]
    told.close()
