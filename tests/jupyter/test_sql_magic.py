"""``%nbsql`` and ``%%nbsql``."""

from __future__ import annotations

import re
import sys

import pandas as pd
import pytest

from nbtools.errors import InvalidArguments, LimitExceeded, MissingExtra, PathNotAllowed, SqlInvalid, SqlNotAllowed


@pytest.fixture
def asking(notebook):
    """A notebook that has a frame."""
    notebook.shell.user_ns["sales"] = pd.DataFrame({"city": ["Bern", "Chur", "Bern"], "amount": [1, 2, 3]})
    return notebook


def test_a_query_over_a_frame_answers_with_a_frame(asking) -> None:
    found = asking.run("%sql select city, sum(amount) as total from sales group by city order by city").value
    assert isinstance(found, pd.DataFrame)
    assert found.to_numpy().tolist() == [["Bern", 4], ["Chur", 2]]
    assert type(found.head(1)) is pd.DataFrame


def test_whole_numbers_are_shown_as_such_where_one_is_missing(asking) -> None:
    found = asking.run("%sql select * from (values (1, 0.5), (null, 2.0)) t(n, x)").value
    # Its cells alone: what it took, and the version of DuckDB, are numbers too.
    assert re.findall("<td>(.*?)</td>", found._repr_html_()) == ["1", "0.5", "&lt;NA&gt;", "2.0"]
    assert repr(found).split() == ["n", "x", "0", "1", "0.5", "1", "<NA>", "2.0"]
    assert found["n"].dtype == "float64", "as DuckDB's own frames have it"
    found["n"] = found["n"] / 2
    assert "0.5" in repr(found["n"])
    assert "0.5" in repr(found)


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("selct 1", "select for selct"),
        ("SELECT city FRM sales", "FROM for FRM"),
        ("select city from sales gruop by city", "group for gruop"),
        ("select city from sales oder by city", "order for oder"),
    ],
)
def test_a_slip_in_a_word_of_sql_is_told_with_what_is_meant(asking, query: str, meant: str) -> None:
    for line in (f"%sql {query}", f"%sql --save slip {query}"):
        assert f"Did you mean {meant}?" in "".join(asking.run(line).lines)


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ("select city from sales where", "After where a condition"),
        ("select city from sales group", "After group BY with a column"),
        ("select city from sales order by;", "After by a column"),
        ("select city from sales WHERE amount > 1 AND ", "After AND a condition"),
        ("select city from", "After from a table"),
    ],
)
def test_a_query_that_ends_too_early_is_told_what_is_missing(asking, query: str, missing: str) -> None:
    assert asking.run(f"%sql {query}").error.hint == f"{missing} is missing."


@pytest.mark.parametrize(
    "line",
    [
        "select amount - 1 as o from sales limit 1 -o seen",
        "select amount - 1 as o from sales -- no -o other\n limit 1",
        "--out seen select amount -o as o from (select 3 as amount, 3 as o) limit 1",
        "select amount - 1 as o from sales limit 1 --out=seen",
        "select amount - 1 as o from sales limit 1 --limit 5 -o seen",
    ],
)
def test_options_may_stand_behind_a_query(asking, line: str) -> None:
    assert "'--connection shop' is a comment" in asking.run("%sql select 1 --connection shop").stdout
    found = asking.run(f"%%sql\n{line}" if "\n" in line else f"%sql {line}")
    assert found.error is None
    assert "other" not in asking.shell.user_ns
    if "seen" in line:
        assert asking.shell.user_ns["seen"]["o"].tolist() == [0]


def test_a_folder_that_is_made_for_a_file_is_told(asking) -> None:
    written = asking.run("%sql --out-file made/here.csv select 1 as a").value.to_text()
    assert written == "1 row written to made/here.csv; its folder is new"
    assert "is new" not in asking.run("%sql --out-file made/too.csv select 1 as a").value.to_text()


@pytest.mark.parametrize("name", ["made/one.csv", "made/o*.csv"])
def test_a_file_that_is_replaced_by_what_is_read_of_it_is_told(asking, name: str) -> None:
    asking.run("%sql --out-file made/one.csv from range(3) as t(a)")
    written = asking.run(f"%sql --out-file made/one.csv --overwrite select * from '{name}' limit 1").value.to_text()
    assert "it has replaced a file that the query reads" in written


def test_the_answer_shows_where_it_came_from(asking) -> None:
    found = asking.run("%%nbsql\nfrom sales\n").value
    assert "frame sales" in found._repr_html_()
    assert "3 rows" in found.attrs["footer"]


def test_a_file_below_the_folder_is_a_table(asking) -> None:
    assert asking.run("%nbsql select max(amount) as m from 'sales.csv'").value["m"].tolist() == [32]


def test_the_result_is_bound_and_its_footer_told(asking) -> None:
    cell = asking.run("rows << %nbsql select amount from sales where city = 'Bern'")
    assert cell.value is None
    assert cell.stdout.startswith("rows: 2 rows")
    assert asking["rows"]["amount"].tolist() == [1, 3]
    asking.run("%%nbsql -o other --limit 1\nselect *\nfrom sales\n")
    assert len(asking["other"]) == 1
    asking.run("%%nbsql third <<\nselect 1 as x\n")
    assert asking["third"]["x"].tolist() == [1]


@pytest.mark.parametrize("line", ["duckdb:// fourth <<", "fourth << duckdb://"])
def test_connection_and_target_may_stand_in_either_order(asking, line) -> None:
    asking.run("%%nbsql " + line + "\nselect 4 as x\n")
    assert asking["fourth"]["x"].tolist() == [4]


def test_a_semicolon_ends_a_query_and_is_no_part_of_it(asking) -> None:
    assert asking.run("%nbsql select 1 as x;").value["x"].tolist() == [1]


def test_variables_are_bound_and_never_pasted(asking) -> None:
    asking.shell.user_ns |= {"city": "Bern' or 'a' = 'a", "least": 2}
    assert len(asking.run("%nbsql select * from sales where city = :city").value) == 0
    assert len(asking.run("%nbsql select * from sales where amount >= $least").value) == 2
    assert len(asking.run("%nbsql --param least=3 select * from sales where amount >= :least").value) == 1
    assert len(asking.run("%nbsql --param city=Bern select * from sales where city = :city").value) == 2


def test_braces_in_sql_stay_sql(asking) -> None:
    asking.shell.user_ns["amount"] = "1; drop table sales"
    assert asking.run("%nbsql select {'a': 1} as s").value["s"].tolist() == [{"a": 1}]


def test_what_is_bound_is_whole_whatever_its_size(asking) -> None:
    asking.run("rows << %nbsql select range as n from range(200_000)")
    asking.run("%nbsql -o total select sum(n) as s, count(*) as c from rows")
    assert asking["total"].to_numpy().tolist() == [[200_000 * 199_999 // 2, 200_000]]
    shown = asking.run("%nbsql from rows").value
    assert len(shown) == 200_000
    assert len(shown._repr_html_()) < 20_000


def test_a_limit_is_obeyed_and_taken_back(asking) -> None:
    asking.run("%config NBTools.limit = 5")
    cell = asking.run("%nbsql -o few from range(9)")
    assert len(asking["few"]) == 5
    assert "cut at the row limit" in cell.stdout
    for limit, rows in (("0", 0), ("3", 3), ("none", 9)):
        assert len(asking.run(f"%nbsql --limit {limit} from range(9)").value) == rows
    assert isinstance(asking.run("%nbsql --limit some from range(9)").error, InvalidArguments)


def test_what_is_too_large_fails_and_goes_into_a_file(bare, folder, monkeypatch) -> None:
    monkeypatch.setenv("NBTOOLS_SQL_MAX_BYTES", "100kB")
    monkeypatch.setenv("NBTOOLS_MEMORY_URL", ":memory:")
    bare.run("%load_ext nbtools")
    bare.run("import pandas as pd; big = pd.DataFrame({'n': range(200_000)})")
    cell = bare.run("%%nbsql -o all\nselect n\nfrom big\n")
    assert isinstance(cell.error, LimitExceeded)
    assert "--out-file" in cell.lines[-1]
    assert "all" not in {name for name, value in bare.shell.user_ns.items() if isinstance(value, pd.DataFrame)}
    said = bare.run("%%nbsql --out-file big.csv\nselect n\nfrom big\n").value
    assert "200,000 rows written to big.csv" in said.to_text()
    refused = bare.run("%nbsql --out-file big.csv select 1 as n")
    assert "exists already" in refused.lines[1]
    assert "--overwrite" in refused.lines[2]
    assert pd.read_csv(folder / "big.csv")["n"].sum() == 200_000 * 199_999 // 2
    assert bare.run("%nbsql --out-file big.csv --overwrite select 1 as n").error is None
    assert (folder / "big.csv").read_text() == "n\n1\n"


def test_no_name_of_a_column_means_anything(asking) -> None:
    asking.run("%memory save goal 5")
    for query in ("select * from nbtools.calls", "select 1 as artifacts, 2 as ok, 3 as data, 4 as error"):
        cell = asking.run(f"%nbsql {query}")
        assert (cell.error, cell.value.empty) == (None, False)
    names = ["collect_schema", "schema", "iloc", "columns", "shape", "_mgr", "to_dict", "isoformat", "tolist", "name"]
    asking.shell.user_ns["odd"] = pd.DataFrame([range(len(names))], columns=names)
    asking.shell.user_ns["series"] = pd.Series([1, 2], index=["columns", "iloc"], name="n")
    assert asking.run("%nbsql from odd").value.columns.tolist() == names
    assert asking.run("%nbsql select sum(n) as n from series").value["n"].tolist() == [3]
    listed = {row[0]: row[3] for row in asking.run("%nbsql --tables").value.rows}
    assert listed["odd"].startswith("collect_schema int64, schema int64")
    assert listed["series"] == "n int64"


def test_braces_around_a_variable_are_told(asking) -> None:
    asking.shell.user_ns["town"] = "Bern"
    cell = asking.run("%nbsql -o found select * from sales where city = '{town}'")
    assert "write :town, without quotes" in cell.stdout
    assert "write :town, without quotes" in asking.run("%nbsql select * from sales where city = {town}").lines[-1]
    assert len(asking.run("%nbsql select * from sales where city = :town").value) == 2
    for query in ("select '{other}' as x", "select {town: 1} as x", "select {'town': 1} as x"):
        assert "is not substituted" not in asking.run(f"%nbsql -o found {query}").stdout


def test_a_form_that_needs_a_missing_package_binds_and_claims_nothing(asking, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    cell = asking.run("rows << %nbsql --as polars select 1 as x")
    assert isinstance(cell.error, MissingExtra)
    assert "rows" not in cell.stdout
    assert "rows" not in asking.shell.user_ns
    assert "nbtools-kit[engines]" in cell.lines[-1]


def test_arrow_and_polars_come_on_request(asking) -> None:
    pytest.importorskip("pyarrow")
    assert asking.run("%nbsql --as arrow select 1 as x").value.column_names == ["x"]
    pytest.importorskip("polars")
    assert asking.run("%nbsql --as polars select 1 as x").value.columns == ["x"]
    assert asking.run("%nbsql --as relation select 1 as x").value.fetchall() == [(1,)]


def test_the_plan_is_shown_and_nothing_runs(asking) -> None:
    plan = asking.run("%nbsql --explain select * from sales").value
    assert "sales" in plan.to_text().lower() or "scan" in plan.to_text().lower()
    assert "<pre" in plan.to_html()


def test_a_file_database_is_a_connection(asking, folder) -> None:
    import sqlite3

    with sqlite3.connect(folder / "shop.db") as shop:
        shop.execute("create table items as select 7 as price")
    shop.close()
    url = f"sqlite:///{folder / 'shop.db'}"
    assert asking.run(f"%nbsql {url} select price from items").value["price"].tolist() == [7]
    assert asking.run(f"%%nbsql {url}\nselect price from items\n").value["price"].tolist() == [7]


def test_what_can_be_asked_is_listed(asking, folder) -> None:
    listed = {row[0]: row for row in asking.run("%nbsql --tables").value.rows}
    assert listed["sales"][1] == "frame"
    assert listed["sales"][2] == "3"
    assert "amount" in listed["sales"][3]
    assert "nbtools.memory" in listed


def test_a_table_is_profiled(asking) -> None:
    profile = asking.run("%nbsql --profile sales").value
    assert profile.rows == 3
    assert {column.name: column.distinct for column in profile.columns} == {"city": 2, "amount": 3}
    assert "3 rows" in profile._repr_html_()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("%nbsql drop table sales", SqlNotAllowed),
        ("%nbsql select 1; select 2", SqlNotAllowed),
        ("%nbsql select * from '/etc/passwd'", SqlNotAllowed),
        ("%nbsql selec 1", SqlInvalid),
        ("%nbsql", InvalidArguments),
        ("%%nbsql nowhere\nselect 1\n", InvalidArguments),
        ("%nbsql --limt 3 select 1", InvalidArguments),
        ("%nbsql --out-file rows.txt select 1", InvalidArguments),
        ("rows << %nbsql --out-file rows.csv select 1", InvalidArguments),
        ("%nbsql --out-file /rows.csv select 1", PathNotAllowed),
        ("%nbsql --out-file gone/ select 1", InvalidArguments),
    ],
)
def test_refusals_show_no_traceback(asking, line: str, error: type[Exception]) -> None:
    cell = asking.run(line)
    assert isinstance(cell.error, error)
    assert not any("Traceback" in shown for shown in cell.lines)


def test_the_toolkits_own_records_can_be_asked(asking) -> None:
    asking.run("%memory save goal 5")
    assert asking.run("%nbsql select key from nbtools.memory").value["key"].tolist() == ["goal"]
    assert "memory_save" in asking.run("%nbsql select tool from nbtools.calls").value["tool"].tolist()


def test_one_row_is_no_rows_and_a_database_file_is_told_how_to_be_asked(asking) -> None:
    assert asking.run("%nbsql --out-file one.csv select 1 as x").value.to_text() == "1 row written to one.csv"
    assert "sqlite:///FILE" in "\n".join(asking.run("%nbsql from 'shop.db'").lines)


def test_braces_of_other_magics_are_answered_with_values_by_name(notebook) -> None:
    assert "$NAME in SQL" in notebook.run("%nbsql select * from {{name}}").stdout
