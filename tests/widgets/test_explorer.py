from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from nbtools.assembly.workbench import Workbench
from nbtools.errors import NbtoolsError, SqlInvalid, SqlNotAllowed, WorkbenchClosed
from nbtools.sql.pages.pager import Arrangement
from nbtools.sql.pages.spelling import quoted
from nbtools.widgets.explorer import Explorer
from tests.conftest import wait_until

pytestmark = pytest.mark.broad


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rows of all, which each test copies."""
    folder = tmp_path_factory.mktemp("files")
    frame = pd.DataFrame({"n": range(100), "city": ["Bern", "Chur"] * 50})
    frame.to_csv(folder / "sales.csv", index=False)
    frame.to_parquet(folder / "sales.parquet")
    with contextlib.closing(sqlite3.connect(folder / "shop.db")) as shop:
        frame.to_sql("orders", shop, index=False)
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture
def tmp_path(files: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of each test's own, which the workbench may read."""
    folder = Path(tempfile.mkdtemp(dir=root))
    shutil.copytree(files, folder, dirs_exist_ok=True)
    monkeypatch.chdir(folder)
    return folder


def _open(files: Path, root: Path, database: Path, home: Path) -> Workbench:
    frames = {"sales": pd.read_parquet(files / "sales.parquet")}
    connections = {"shop": f"sqlite:///{database}"}
    return Workbench(home=home, memory_url=":memory:", allowed_paths=[root], frames=frames, connections=connections)


@pytest.fixture(scope="module")
def shared(files: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    with _open(files, root, files / "shop.db", tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture
def workbench(shared: Workbench, tmp_path: Path) -> Workbench:
    """The workbench of all, in a folder of each test's own."""
    return shared


@pytest.fixture
def own(files: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """A workbench of the test's own, whose connection it may change."""
    with _open(files, tmp_path, tmp_path / "shop.db", tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.mark.parametrize(
    ("source", "begin"),
    [
        ("sales.csv", "SELECT *\nFROM 'sales.csv'"),
        (Path("sales.parquet"), "SELECT *\nFROM 'sales.parquet'"),
        ("sales", 'SELECT *\nFROM "sales"'),
        (pd.DataFrame({"n": [1], "city": ["Bern"]}), 'SELECT *\nFROM "frame"'),
        ("from sales.parquet where n > 5", None),
    ],
)
def test_whatever_is_explored_has_its_sql(workbench: Any, source: Any, begin: str | None) -> None:
    if begin is None:
        source = "from 'sales.parquet' where n > 95 order by n desc"
        begin = "SELECT *\nFROM 'sales.parquet'\nWHERE n > 95\nORDER BY \"n\" DESC"
    explorer = workbench.explore(source)
    assert isinstance(explorer, Explorer)
    assert explorer.sql == begin
    assert "city" in explorer.plain_text()
    assert "FROM" in explorer.plain_html()
    explorer.close()


def test_what_the_name_of_a_file_does_not_tell_its_bytes_do(workbench: Any, tmp_path: Path) -> None:
    (tmp_path / "airports.dat").write_text('1,"Goroka",\\N\n2,"Madang",7\n3,"Lae",8\n', encoding="utf-8")
    (tmp_path / "sales.parquet").rename(tmp_path / "sales.bin")
    text, packed = workbench.explore("airports.dat"), workbench.explore("sales.bin")
    assert text.sql == "SELECT *\nFROM READ_CSV('airports.dat')"
    assert text.data().iloc[:, 2].dropna().tolist() == [7, 8]
    assert packed.data()["n"].tolist() == list(range(100))
    for explorer in (text, packed):
        explorer.close()


def test_clicks_change_the_text_and_the_text_changes_the_rows(workbench: Any, front_end: Any) -> None:
    explorer = workbench.explore("sales.csv")
    view = front_end(explorer)
    view.ask("finish")
    view.ask("filter", add={"column": 1, "op": "=", "value": "Chur"})
    view.ask("sort", order=[["n", True]])
    assert explorer.sql == ("SELECT *\nFROM 'sales.csv'\nWHERE \"city\" = 'Chur'\nORDER BY \"n\" DESC")
    rev = explorer.state["rev"]
    assert view.ask("cells", start=0, stop=1, columns=[0, 1], rev=rev) == [["99", "Chur"]]
    view.ask("query", text="select city from 'sales.csv' where n < 3 or n = 50")
    assert (explorer.state["rows"], explorer.state["shown"]) == (4, [1])
    assert explorer.state["first"] == {"columns": [1], "rows": [["Bern"], ["Chur"], ["Bern"], ["Bern"]]}
    assert explorer.state["rev"] > rev
    view.ask("query", text="select city, count(*) as c from sales group by city order by city limit 1")
    assert [column["name"] for column in explorer.state["columns"]] == ["city", "c"]
    assert explorer.state["whole"], "groups are read once: their first row is there when all are"
    assert view.ask("cells", start=0, stop=9, columns=[0, 1], rev=explorer.state["rev"]) == [["Bern", "50"]]


@pytest.mark.parametrize(
    "text", ["delete from x", "select", "select nowhere from sales", "select * from sales where nowhere > 1", "x; y"]
)
def test_a_wrong_text_leaves_what_was_shown(workbench: Any, front_end: Any, text: str) -> None:
    view = front_end(workbench.explore("sales"))
    view.ask("filter", add={"column": 0, "op": "<", "value": "7"})
    before = dict(view.widget.state), view.widget.sql
    assert view.reply(view.start("query", text=text))["error"]["message"]
    assert (dict(view.widget.state), view.widget.sql) == before
    assert view.ask("cells", start=0, stop=1, columns=[0], rev=view.widget.state["rev"]) == [["0"]]


def test_a_text_that_is_set_is_shown_as_if_it_were_typed(workbench: Any, tmp_path_factory: Any) -> None:
    explorer = workbench.explore("sales.csv")
    explorer.sql = "select 1 as a"
    assert (explorer.data().to_dict("list"), explorer.undo) == ({"a": [1]}, "the query")
    secret = tmp_path_factory.mktemp("secret") / "s.csv"
    secret.write_text("a\n1\n")
    before = explorer.sql
    for text in (f"from '{secret}'", "delete from x", "select nowhere from sales"):
        with pytest.raises(NbtoolsError):
            explorer.sql = text
    with pytest.raises(NbtoolsError, match="connection='shop'"):
        explorer.connection = "shop"
    assert (explorer.sql, explorer.connection, len(explorer.data())) == (before, "", 1)
    explorer.close()


def test_what_may_not_be_read_is_refused_first_and_later(
    workbench: Any, front_end: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("secret") / "s.csv"
    secret.write_text("a\n1\n")
    for source in (str(secret), f"from '{secret}'", "missing.csv", "select 1; select 2"):
        with pytest.raises(NbtoolsError):
            workbench.explore(source)
    with pytest.raises((SqlNotAllowed, SqlInvalid)):
        workbench.explore("with x as (delete from y returning *) from x")
    view = front_end(workbench.explore("sales"))
    told = view.reply(view.start("query", text=f"from sales where n in (select a from '{secret}')"))["error"]
    assert "allowed" in told["message"]


def test_code_makes_the_same_rows_in_every_language(workbench: Any, front_end: Any, tmp_path: Path) -> None:
    view = front_end(workbench.explore("sales.csv"))
    for text in (
        "select n from 'sales.csv' where n >= 10 and city <> 'Bern' order by n desc",
        "from 'sales.csv' where n % 10 = 3",
    ):
        view.ask("query", text=text)
        expected = workbench.sql(text).astype(str).to_numpy().tolist()
        assert view.ask("code", language="sql").startswith("%%nbsql\nSELECT")
        plain = view.ask("code", language="sql", magics=False).replace("nbtools.workbench()", "workbench")
        assert eval(plain, {"workbench": workbench}).astype(str).to_numpy().tolist() == expected
        for language in ("pandas", "polars"):
            code = view.ask("code", language=language).replace("nbtools.workbench()", "workbench")
            names: dict[str, Any] = {"workbench": workbench}
            exec(code, names)
            rows = names["df"].to_numpy().astype(str).tolist()
            assert rows == expected, code


def test_a_changed_source_is_told_and_read_again(workbench: Any, front_end: Any, tmp_path: Path) -> None:
    view = front_end(workbench.explore("sales.csv"))
    view.ask("finish")
    assert view.ask("check") is False
    (tmp_path / "sales.csv").write_text("n,city\n1,Chur\n")
    assert view.ask("check") is True
    view.ask("reload")
    view.ask("finish")
    assert (view.widget.state["rows"], view.ask("check")) == (1, False)


def test_what_can_be_chosen_is_offered_as_sql_writes_it(workbench: Any, front_end: Any) -> None:
    view = front_end(workbench.explore("sales.csv"))
    Path("deep/er/yet").mkdir(parents=True)
    for folder in ("deep", "deep/er", "deep/er/yet"):
        Path(folder, "x.csv").write_text("day\n2024-01-02\n")
    files = ["sales.csv", "sales.parquet", "deep/x.csv", "deep/er/x.csv"]
    assert view.ask("sources") == [{"name": f"'{file}'", "columns": None} for file in files]
    assert view.ask("described", source="'deep/x.csv'") == [("day", "date", "")]
    Path("deep/datapackage.yaml").write_text(
        "resources: [{path: x.csv, schema: {fields: [{name: day, description: Of sale}]}}]"
    )
    assert view.ask("described", source="'deep/x.csv'") == [("day", "date", "Of sale")]
    explorer = workbench.explore(pd.DataFrame({"n": [1]}))
    assert explorer.title == "frame"
    frame = front_end(explorer).ask("sources")[0]
    assert frame == {"name": '"frame"', "columns": [("n", "bigint")]}


def test_exploring_is_recorded_like_any_query(own: Any) -> None:
    own.explore("sales.csv").close()
    assert [call["tool"] for call in own.call_records()] == ["sql_query"]


@pytest.mark.parametrize(
    "text", [r"select 'C:\new' as a", 'select 1 as """"x"""', "select 'a' as b", 'select 1 as "q"']
)
def test_sql_in_code_is_what_it_was(text: str) -> None:
    assert eval(quoted(text)).strip() == text


def test_a_connection_is_explored_in_its_own_dialect(own: Any, front_end: Any, tmp_path: Path) -> None:
    explorer = own.explore("orders", connection="shop")
    view = front_end(explorer)
    assert (explorer.sql, explorer.connections) == ("SELECT *\nFROM orders", ["shop"])
    assert "Bern" in explorer.plain_text()
    view.ask("finish")
    view.ask("filter", add={"column": 1, "op": "contains", "value": "chu"})
    view.ask("sort", order=[["n", True]])
    assert view.ask("cells", start=0, stop=1, columns=[0, 1], rev=explorer.state["rev"]) == [["99", "Chur"]]
    expected = own.sql(explorer.sql, connection="shop")
    assert (len(expected), int(expected["n"].iloc[0])) == (explorer.state["rows"], 99) == (50, 99)
    assert view.ask("code", language="sql") == f"%%nbsql shop\n{explorer.sql}"
    plain = view.ask("code", language="sql", magics=False).replace("nbtools.workbench()", "own")
    assert eval(plain, {"own": own}).equals(expected)
    names: dict[str, Any] = {"own": own}
    exec(view.ask("code", language="pandas").replace("nbtools.workbench()", "own"), names)
    assert names["df"].equals(pd.DataFrame(expected))
    # What the database filters stays one query of its own; what is clicked then is done here.
    view.ask("query", text="select n, city from orders as o where n >= 90 and city glob 'B*'")
    assert explorer.sql == "SELECT *\nFROM (SELECT n, city FROM orders AS o WHERE n >= 90 AND city GLOB 'B*') AS \"q\""
    view.ask("finish")
    assert explorer.state["rows"] == 5
    assert view.reply(view.start("query", text="delete from orders"))["error"]
    assert view.reply(view.start("query", text="select * from nowhere"))["error"]
    (orders,) = view.ask("sources", connection="shop")
    assert (orders["name"], [name for name, _ in orders["columns"]]) == ("orders", ["n", "city"])
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("delete from orders where n > 91")
    shop.close()
    assert view.ask("check") is True
    view.ask("query", text=explorer.sql)
    view.ask("finish")
    assert explorer.state["rows"] == 1
    view.ask("query", text="from sales", connection="")
    assert (explorer.connection, explorer.state["rows"]) == ("", 100)


def test_a_join_of_a_connection_with_other_sources_is_explored(own: Any, front_end: Any, tmp_path: Path) -> None:
    own.memory.write("limit", 90)
    text = """select o.n, f.city, m.key from shop.orders as o join 'sales.csv' as f using (n) cross join sales as s
              join nbtools.memory as m on o.n >= m.value::INT"""
    explorer = own.explore(text)
    view = front_end(explorer)
    view.ask("finish")
    assert (explorer.state["rows"], {*explorer.data()["key"]}) == (10 * 100, {"limit"})
    view.ask("filter", add={"column": 1, "op": "contains", "value": "chu"})
    assert (explorer.state["rows"], len(own.sql(explorer.sql))) == (500, 500)
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("delete from orders where n > 91")
    shop.close()
    assert view.ask("check") is True


def test_a_password_is_not_kept_and_an_unknown_connection_is_told(own: Any) -> None:
    with pytest.raises(NbtoolsError, match="password") as refused:
        own.explore("orders", connection="postgresql://me:secret@localhost/shop")
    assert "secret" not in str(refused.value)
    with pytest.raises(NbtoolsError, match="no connection"):
        own.explore("orders", connection="shp")
    with pytest.raises(SqlNotAllowed):
        own.explore("select load_extension('x')", connection="shop")


def test_a_chart_shows_the_rows_there_are_and_stays_when_pinned(workbench: Any, front_end: Any) -> None:
    explorer = workbench.explore("from 'sales.csv' where n < 10")
    view = front_end(explorer)
    for kind, x, y in (
        ("bar", "city", ""),
        ("line", "n", "n"),
        ("hist", "", ""),
        ("box", "", ""),
        ("scatter", "n", "n"),
    ):
        drawn = view.ask("chart", kind=kind, x=x, y=y, dark=kind == "box")
        assert drawn["uri"].startswith("data:image/png;base64,iVBOR")
    assert "10 rows" in drawn["caption"]
    assert "n < 10" in drawn["caption"]
    view.ask("pin")
    view.ask("filter", clear=True)
    assert explorer.pinned == [drawn]
    assert drawn["uri"] in explorer.plain_html()
    told = view.reply(view.start("chart", kind="hist", x="city", y=""))["error"]
    assert "numbers" in told["message"]
    assert "--plot" not in told["hint"]
    view.ask("unpin", place=0)
    assert explorer.pinned == []


@pytest.mark.processes
def test_a_script_gets_the_rows_that_are_shown(own: Any, front_end: Any) -> None:
    view = front_end(own.explore("select city, n from 'sales.csv' where n > 96 order by n desc"))
    result = view.ask("script", code="print(list(df.columns), df['n'].tolist())")
    assert (result["ok"], result["text"].strip()) == (True, "['city', 'n'] [99, 98, 97]")
    assert "[99, 98, 97]" in str(view.widget.text("script-1"))
    failed = view.ask("script", code="df['nowhere']")
    assert not failed["ok"]
    assert "nowhere" in failed["text"]
    drawn = view.ask("script", code="df.plot.bar(x='city')\nimport matplotlib.pyplot as plt\nplt.savefig('bars.png')")
    assert [each["name"] for each in drawn["pictures"]][-1:] == ["bars.png"]
    call = next(call for call in own.call_records() if call["tool"] == "data_analyze")
    assert call["arguments"]["inputs"] == {"df": view.widget.sql}


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted by Linux")
def test_many_explorers_take_the_threads_and_memory_of_a_few(own: Any) -> None:
    def explore(files: Sequence[str]) -> list[Any]:
        made = [own.explore(file) for file in files]
        for each in made:
            each._pager.finish()
            each._pager.profile(0)
        return made

    explore(["sales.csv"])[0].close()
    before = _threads()  # the loop and its workers run
    first = explore(["sales.csv", "sales.parquet"] * 3)
    threads, memory = _threads(), psutil.Process().memory_info().rss
    assert threads > before
    more = explore(["sales.csv", "sales.parquet"] * 5)
    wait_until(lambda: _threads() <= threads + 2)
    assert psutil.Process().memory_info().rss - memory < 25 * 2**20  # where each took 7 MB, ten took 70
    # One that rests opens again, sorted as it was.
    first[0]._pager.arrange(Arrangement(order=(("n", True),)))
    explore(["sales.csv"] * 5)
    assert not first[0]._pager.is_open
    assert first[0]._pager.cells(0, 1, [0, 1]) == [["99", "Chur"]]
    own.close()
    wait_until(lambda: _threads() <= before + 3)
    with pytest.raises(WorkbenchClosed):
        first[0]._pager.cells(0, 1, [0])
    for each in (*first, *more):
        each.close()


def test_a_pager_in_use_does_not_rest(own: Any) -> None:
    pager = own.explore("sales.csv")._pager
    with pager._cursor("pages") as cursor:
        assert not pager.rest()
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]
    assert pager.rest()
    assert not pager.is_open


def test_a_request_says_that_there_are_no_more_threads(own: Any, front_end: Any) -> None:
    explorer = own.explore("sales.csv")
    view = front_end(explorer)
    before = threading.stack_size(1 << 46)  # more than any system has
    try:
        told = view.reply(view.start("check"))["error"]
    finally:
        threading.stack_size(before)
    assert told["message"] == "the system gives this process no more processes and threads."
    assert view.ask("check") is False


def test_a_column_is_cleaned_in_the_sql_and_each_step_is_taken_back(workbench: Any, front_end: Any) -> None:
    Path("odd.csv").write_text("n,amount,day\n" + "1,2.5,31.12.2024\n2,n.a.,2025-01-02\n3,4,\n" * 3)
    explorer = workbench.explore("odd.csv")
    view = front_end(explorer)
    view.ask("filter", add={"column": 0, "op": "<", "value": "3"})
    assert view.ask("offer", column=2)["dates"] == [("%Y-%m-%d", 3), ("%d.%m.%Y", 3)]
    step = {"op": "number", "form": "1234.5"}
    effect = view.ask("effect", column=1, step=step)
    assert (effect["there"], effect["lost"], effect["examples"]) == (6, 3, '3 \u00d7 "n.a."')
    texts = [explorer.sql]
    assert view.ask("clean", column=1, step=step)["lost"] == 3
    texts.append(explorer.sql)
    view.ask("clean", column=2, step={"op": "date", "forms": ["%Y-%m-%d", "%d.%m.%Y"]})
    view.ask("clean", column=0, step={"op": "rename", "name": "number"})
    assert explorer.sql.endswith("FROM 'odd.csv') WHERE (\"n\" < 3))")
    assert explorer.title == "odd.csv"
    assert [kind.kind for kind in explorer.data().dtypes] == ["i", "f", "M"]
    assert explorer.data()["amount"].tolist()[0] == 2.5
    code = view.ask("code", language="pandas")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["df"].astype(str).to_numpy().tolist() == explorer.data().astype(str).to_numpy().tolist()
    assert explorer.undo == "rename: n"
    view.ask("undo")
    assert view.ask("undo") == "date: day"
    assert explorer.sql == texts[1]
    view.ask("undo")
    assert explorer.sql == texts[0]
    assert view.ask("undo") == "the filter"
    assert (explorer.undo, explorer.state["rows"]) == ("", 9)
    assert "nothing to undo" in view.reply(view.start("undo"))["error"]["message"]
    wrong = view.reply(view.start("clean", column=1, step={"op": "fill", "value": "x", "nothing": 1}))
    assert "error" not in wrong


def test_numbers_of_a_text_file_are_read_where_words_stand_between_them(workbench: Any, front_end: Any) -> None:
    """DuckDB hands a bare try_cast on to its reader of CSV, which refuses what does not fit."""
    Path("words.csv").write_text("n,amount\n" + "1,2.5\n2,n.a.\n" * 3)
    for step in ({"op": "number"}, {"op": "cast", "type": "DOUBLE"}, {"op": "cast", "type": "BIGINT"}):
        view = front_end(workbench.explore("words.csv"))
        assert view.ask("clean", column=1, step=step)["lost"] == 3
        view.ask("finish")
        assert view.widget.state["rows"] == len(view.widget.data()) == 6


def test_columns_are_hidden_and_put_in_order_in_the_sql(workbench: Any, front_end: Any) -> None:
    explorer = workbench.explore("sales.csv")
    view = front_end(explorer)
    view.ask("finish")
    view.ask("columns", names=["city", "n"])
    assert (explorer.sql, explorer.state["shown"]) == ('SELECT "city", "n"\nFROM \'sales.csv\'', [1, 0])
    view.ask("columns", names=["n"])
    assert list(explorer.data().columns) == ["n"]
    for names in ([], ["nowhere"]):
        assert view.reply(view.start("columns", names=names))["error"]
    view.ask("undo")
    view.ask("columns", names=["n", "city"])
    assert (explorer.sql, explorer.state["shown"]) == ("SELECT *\nFROM 'sales.csv'", None)


def test_groups_are_shown_and_undone(workbench: Any, front_end: Any) -> None:
    explorer = workbench.explore("from 'sales.csv' where n < 9")
    view = front_end(explorer)
    view.ask("group", keys=["city"], measures=[["count", ""], ["mean", "n"]], across="")
    assert explorer.data().to_numpy().tolist() == [["Bern", 5, 4.0], ["Chur", 4, 4.0]]
    assert explorer.sql.startswith('SELECT *\nFROM (SELECT "city", count(*) AS "rows", avg("n") AS "mean of n" FROM')
    assert view.ask("undo") == "the groups"
    view.ask("group", keys=["n"], measures=[["count", ""]], across="city")
    assert list(explorer.data().columns) == ["n", "Bern", "Chur"]
    assert explorer.data().iloc[1].tolist() == [1, 0, 1]
    view.ask("undo")
    view.ask("query", text="from sales")
    told = view.reply(view.start("group", keys=["city"], measures=[["count", ""]], across="n"))["error"]
    assert "more than 50 different values" in told["message"]


def test_a_row_is_seen_in_full_with_trees_and_pictures(workbench: Any, front_end: Any) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + b"x" * 9
    text = (
        "select 7 as n, 'x' as text, {'type': 'click', 'ms': [1, 2]} as event, '{\"a\": null}' as json, null as gone, "
        f"'{''.join(f'{chr(92)}x{byte:02x}' for byte in picture)}'::blob as picture, "
        "map {'k': 1.50} as m, map {[1, 2]: 0.1::float} as by_lists, '[NaN]' as no_json"
    )
    view = front_end(workbench.explore(text))
    row = {each["name"]: each for each in view.ask("row", row=0)}
    assert row["n"] == {"name": "n", "type": "integer", "text": "7", "means": ""}
    assert row["gone"]["text"] is None
    assert row["event"]["tree"] == '{"type": "click", "ms": [1, 2]}'
    assert row["json"]["tree"] == '{"a": null}'
    assert row["m"]["tree"] == '{"k": 1.50}'
    assert row["by_lists"]["tree"] == '{"[1, 2]": 0.1}'
    assert "tree" not in row["no_json"]
    assert row["picture"]["picture"].startswith("data:image/png;base64,iVBORw0KGgp4")


def test_a_value_is_the_same_in_page_panel_row_and_copy(workbench: Any, front_end: Any) -> None:
    form = '{"doc": {"b": 2}, "t": "2024-01-02", "l": ["it\'s", null]}'
    sql = "select {'doc': '{\"b\": 2}'::json, 't': date '2024-01-02', 'l': ['it''s', null]} as s"
    view = front_end(explorer := workbench.explore(sql))
    view.ask("finish")
    rev = explorer.state["rev"]
    faces = [view.ask("cells", start=0, stop=1, columns=[0], rev=rev)[0][0], view.ask("row", row=0)[0]["tree"]]
    faces += [view.ask("whole", row=0, column=0, rev=rev)]
    faces += [view.ask("copy", start=0, stop=1, columns=[0], heads=False, form="markdown")["text"].split("\n")[2][2:-2]]
    assert faces == [form] * 4


def test_cells_are_copied_as_markdown(workbench: Any, front_end: Any) -> None:
    frame = pd.DataFrame({"n": [1, 2], "a|b": ["x|y", "two\nlines"]})
    view = front_end(workbench.explore(frame))
    box = {"start": 0, "stop": 2, "columns": [0, 1], "heads": False, "form": "markdown"}
    assert view.ask("copy", **box)["text"] == ("| n | a\\|b |\n| ---: | --- |\n| 1 | x\\|y |\n| 2 | two<br>lines |")


@pytest.mark.parametrize("name", ["copy", "whole", "code"])
def test_what_leaves_a_page_waits_until_all_lines_were_looked_at(
    workbench: Any, front_end: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("nbtools.sql.session.SMALL_BYTES", 1)
    monkeypatch.setattr("nbtools.sql.pages.opening.SMALL_BYTES", 1)
    Path("gaps.csv").write_text("n,city\n" + "1,Bern\n" * 21_000 + "N/A,Chur\n2.5,Chur\n")
    explorer = workbench.explore("gaps.csv")
    view, rev = front_end(explorer), explorer.state["rev"]
    assert explorer.state["first"]["rows"][0] == ["1", "Bern"]  # by a sample
    if name == "copy":
        assert view.ask("copy", start=0, stop=2, columns=[0, 1], heads=False)["text"] == "1.0\tBern\n1.0\tBern"
    elif name == "whole":
        assert view.ask("whole", row=0, column=0, rev=rev) == "1.0"
    else:
        assert "na_values" in view.ask("code", language="pandas")
    assert explorer.state["first"]["rows"][0] == ["1.0", "Bern"]
    notes = [note["text"] for note in explorer.state["notes"]]
    assert notes == ["n: 1 \u00d7 'N/A' read as missing", "n: double by all rows, bigint by the first ones"]


@pytest.mark.parametrize("language", ["pandas", "polars"])
@pytest.mark.parametrize("is_grouped", [False, True])
def test_code_of_a_cleaned_file_with_missing_words_makes_the_same_rows(
    workbench: Any, front_end: Any, language: str, is_grouped: bool
) -> None:
    prices, channels, ratings = ("tbd", "529,81"), ("web", "agency"), ("-", "4")
    rows = [f"{at};{prices[at % 7 > 0]};{channels[at % 2]};{ratings[at % 5 > 0]}" for at in range(60)]
    Path("stays.csv").write_text("\n".join(["id;price;channel;rating", *rows]))
    explorer = workbench.explore("stays.csv")
    view = front_end(explorer)
    view.ask("clean", column=1, step={"op": "number", "form": "1234,5"})
    if is_grouped:
        view.ask("group", keys=["channel"], measures=[["mean", "rating"], ["sum", "price"]], across="")
    names: dict[str, Any] = {}
    exec(view.ask("code", language=language), names)  # the cell that a person would run
    made = names["df"] if language == "pandas" else names["df"].to_pandas()
    expected = explorer.data()
    first = expected.columns[0]
    pd.testing.assert_frame_equal(
        made.sort_values(first, ignore_index=True),
        expected.sort_values(first, ignore_index=True),
        check_dtype=False,
    )


def test_a_chart_says_what_it_aggregates_and_is_a_cell(workbench: Any, front_end: Any) -> None:
    view = front_end(workbench.explore("sales.csv"))
    captions = [view.ask("chart", kind="bar", x=x, y=y)["caption"] for x, y in (("", ""), ("city", ""), ("city", "n"))]
    assert captions == ["rows by city · 100 rows", "rows by city · 100 rows", "sum of n by city · 100 rows"]
    assert view.ask("chart", kind="bar:mean", x="city", y="n")["caption"] == "mean of n by city · 100 rows"
    assert view.ask("chart_code", kind="bar:mean", x="city", y="n").startswith("%%nbsql --plot bar:mean city n\n")
    cell = view.ask("chart_code", kind="bar", x="city", y="n")
    assert cell == "%%nbsql --plot bar city n\nSELECT *\nFROM 'sales.csv'"
    assert view.ask("chart_code", kind="bar", x="", y="").startswith("%%nbsql --plot bar city\n")  # as it is drawn
    view.ask("group", keys=["city"], measures=[["mean", "n"]], across="")
    assert "mean of n by city" in view.ask("chart", kind="bar", x="city", y="")["caption"]
    view = front_end(workbench.explore("select nullif(n, 3) as n from 'sales.csv'"))
    assert "1 row is not drawn: n is null or out of range" in view.ask("chart", kind="hist", x="n", y="")["caption"]


def test_two_files_are_compared_cell_by_cell(workbench: Any, front_end: Any, tmp_path: Path) -> None:
    frame = pd.read_csv("sales.csv").iloc[1:]
    frame.loc[frame["n"] == 7, "city"] = "Zug"
    frame.to_csv("later.csv", index=False)
    explorer = workbench.explore("sales.csv", compare="later.csv", key="n")
    front_end(explorer).ask("finish")
    rows = explorer.data().set_index("difference")
    assert rows.loc["changed"].tolist() == [7, "city", "Chur", "Zug"]
    assert rows.loc["only in sales.csv", "n"] == 0
    assert explorer.state["note"] == "1 changed, 1 only in sales.csv; changed: city 1"
    assert explorer.title == "sales.csv and later.csv"
    options = front_end(explorer)
    assert [file["file"] for file in options.ask("options")] == ["sales.csv", "later.csv"]
    options.ask("rewrite", at=0, changes={"nullstr": ["Bern"]})
    assert explorer.sql.count("nullstr") == 2, "a file that is read twice is read alike"
    assert explorer.state["rows"] > 2
    options.ask("undo")
    assert len(workbench.sql(explorer.sql)) == 2
    twice = front_end(workbench.explore("SELECT count(*) FROM 'sales.csv' JOIN 'sales.csv' AS s USING (n)"))
    twice.ask("options")
    twice.ask("rewrite", at=0, changes={"nullstr": ["Bern"]})
    assert workbench.sql(twice.widget.sql).iloc[0, 0] == 100, "each place keeps its own name"
    other = front_end(workbench.explore(pd.read_csv("sales.csv"), compare=frame, key=["n"]))
    other.ask("finish")
    assert other.widget.state["rows"] == 2
    first = pd.DataFrame({"k": [1, 2]})
    wider = workbench.explore(first, compare=first.assign(extra=[5, 6]), key="k")
    assert wider.state["note"] == "no row differs; column only in b: extra"
    with pytest.raises(NbtoolsError, match="k is bigint in a and varchar in b") as raised:
        workbench.explore(first, compare=first.astype({"k": str}), key="k")
    assert raised.value.hint == "Cast one of them."
    with pytest.raises(NbtoolsError, match=r"sales\.csv has no column 'place'"):
        workbench.explore("sales.csv", compare="later.csv", key="place")
    with pytest.raises(NbtoolsError, match="another database"):
        workbench.explore("orders", connection="shop", compare="later.csv", key="n")
