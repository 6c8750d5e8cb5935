"""The data explorer: on a bare page by keys and mouse, light and dark, wide and narrow; and once in JupyterLab."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest

from nbtools.assembly.workbench import Workbench
from tests.browser.bare import axe_findings, becomes, comes_true, open_bare, press, settled

pytestmark = [pytest.mark.races, pytest.mark.slow]

TRAITS = ("state", "view", "sql", "connection", "connections", "pinned", "problem", "undo")


def _sales() -> pd.DataFrame:
    days = pd.date_range("2024-01-01", periods=600, freq="D")
    return pd.DataFrame(
        {
            "day": days,
            "city": [("Bern", "Chur", "Genève")[n % 3] for n in range(600)],
            "team": [None if n % 31 == 0 else ("north", "south")[n % 2] for n in range(600)],
            "amount": [None if n % 8 == 0 else round(n * 1.37 % 97, 2) for n in range(600)],
            "note": [f"order {n}: שלום" if n % 50 == 0 else f"order {n}" for n in range(600)],
        }
    )


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    _sales().to_csv(tmp_path / "sales.csv", index=False)
    monkeypatch.chdir(tmp_path)
    with Workbench(home=tmp_path / "home", memory_url=":memory:", allowed_paths=[tmp_path]) as made:
        yield made


def _to_header(page: Any, column: str) -> None:
    """Go to a header by keys alone."""
    page.locator("[role=grid]").first.focus()
    page.keyboard.press("Control+Home")
    page.keyboard.press("ArrowUp")
    for _ in range(list(_sales()).index(column)):
        page.keyboard.press("ArrowRight")


def _open_summary(page: Any, way: str) -> None:
    if way == "mouse":
        page.locator("[role=columnheader][title^=amount] .dots").click()
    else:
        page.locator("[role=grid]").focus()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Shift+F10")
    press(page.get_by_role("menuitem", name="Summary"), way)


@pytest.mark.parametrize("way", ["mouse", "keys"])
def test_the_text_and_the_clicks_are_one_state(page: Any, workbench: Workbench, tmp_path: Path, way: str) -> None:
    explorer = workbench.explore("sales.csv")
    open_bare(page, explorer, *TRAITS)
    text = page.get_by_label("SQL of what is shown")
    page.wait_for_function("document.querySelector('.count').textContent.startsWith('600 rows')")
    press(page.get_by_role("button", name="SQL", exact=True), way)
    settled(page)
    if way == "mouse":
        page.locator("[role=columnheader][title^=city] .name").click()
    else:
        _to_header(page, "city")
        page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.sql').value.includes('ORDER BY \"city\"')")
    text.fill("select day, amount from 'sales.csv' where amount > 90 order by amount desc")
    page.get_by_role("button", name="Discard the change").wait_for()
    if way == "mouse":
        page.get_by_role("button", name="Run", exact=True).click()
    else:
        text.press("Control+Enter")
    page.locator(".chip").wait_for()
    page.locator(".count", has_text=f"{(_sales()['amount'] > 90).sum()} of 600 rows").wait_for()
    page.wait_for_function("document.querySelectorAll('[role=columnheader]').length === 3")
    press(page.locator(".chip"), way)
    page.wait_for_function("!document.querySelector('.sql').value.includes('WHERE')")
    # A wrong text says what is wrong, and leaves what was shown.
    text.fill("select nowhere from 'sales.csv'")
    press(page.get_by_role("button", name="Run", exact=True), way)
    page.get_by_role("alert").filter(has_text="nowhere").wait_for()
    press(page.get_by_role("button", name="Discard the change"), way)
    page.wait_for_function("!document.querySelector('.sql').value.includes('nowhere')")
    _open_summary(page, way)
    page.locator(".summary", has_text="75 (12.5 %)").wait_for()
    # Outside of JupyterLab the code is copied.
    page.evaluate(
        "() => { document.execCommand = () => { window.copied = document.querySelector('body > textarea').value } }"
    )
    page.get_by_label("Language of the cell").select_option("polars")
    press(page.get_by_role("button", name="Insert as cell"), way)
    page.wait_for_function("window.copied?.startsWith('import polars as pl')")
    page.locator(".paste", has_text="import polars as pl").get_by_role("button", name="Close").click()
    _chart_script_and_reload(page, tmp_path, way)
    explorer.close()


def _chart_script_and_reload(page: Any, tmp_path: Path, way: str) -> None:
    text = page.get_by_label("SQL of what is shown")
    # A chart follows what is shown, and stays as it is when it is pinned.
    press(page.get_by_role("button", name="Chart"), way)
    page.get_by_label("Kind of chart").select_option("hist")
    page.locator(".panel figure img").wait_for()
    press(page.get_by_role("button", name="Pin", exact=True), way)
    page.locator(".pins figcaption").wait_for()
    if way == "mouse":
        page.locator("[role=columnheader][title^=amount] .bars rect").nth(3).click()
    else:
        _to_header(page, "amount")
        page.keyboard.press("Shift+F10")
        page.get_by_role("menuitem", name="Filter…").press("Enter")
        page.get_by_role("form").get_by_label("Value", exact=True).fill("50")
        page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.panel figcaption').textContent.includes('amount')")
    page.locator(".pins figcaption", has_text="600 rows").wait_for()
    press(page.locator(".chip"), way)
    press(page.get_by_role("button", name="Script"), way)
    page.get_by_label("Script", exact=True).locator("textarea").fill("print(len(df), df['amount'].max())")
    if way == "mouse":
        page.get_by_role("button", name="Run the script").click()
    else:
        page.keyboard.press("Control+Enter")
    page.wait_for_function("document.querySelector('.panel pre')?.textContent.startsWith('600 ')")
    (tmp_path / "sales.csv").write_text("day,city,amount\n2024-01-01,Bern,1\n")
    text.focus()
    page.locator(".stale").wait_for()
    press(page.get_by_role("button", name="Reload"), way)
    page.wait_for_function("document.querySelector('.count').textContent.startsWith('1 row')")
    page.locator(".stale").wait_for(state="hidden")


@pytest.mark.parametrize(("form", "then"), [("csv", "finish"), ("parquet", "profile")])
def test_the_first_rows_are_seen_before_anything_is_asked_for(
    page: Any, workbench: Workbench, form: str, then: str
) -> None:
    _sales().to_parquet("sales.parquet")
    _sales().assign(padding="x" * 2_000).to_csv("sales.csv", index=False)  # more than is read whole at once
    # What was seen when the view asked for the first time, by what it asked for.
    page.evaluate(
        """() => {
            let ask; window.seen = {};
            Object.defineProperty(window, "toKernel", { set: (given) => { ask = given; }, get: () => (message) => {
                if (message.t === "ask") window.seen[message.name] ??= document.querySelector(".body")?.innerText ?? "";
                return ask(message); } }); }"""
    )
    explorer = workbench.explore(f"sales.{form}")
    bridge = open_bare(page, explorer, *TRAITS)
    page.wait_for_function("(name) => window.seen[name] !== undefined", arg=then)
    assert "order 9" in page.evaluate("(name) => window.seen[name]", then)
    page.wait_for_function("document.querySelector('.count').textContent.startsWith('600 rows')")
    settled(page)
    assert "cells" not in bridge.asked
    # A page that is far comes when it is asked for.
    page.get_by_label("Go to row").fill("600")
    page.get_by_label("Go to row").press("Enter")
    page.wait_for_function("document.querySelector('.cell.active')?.textContent")
    settled(page)
    assert "cells" in bridge.asked
    explorer.close()


def test_a_narrow_column_tells_its_type_and_what_is_missing_below(page: Any, workbench: Workbench) -> None:
    explorer = workbench.explore("sales.csv")
    open_bare(page, explorer, *TRAITS)
    head = page.locator("[role=columnheader][title^=team]")
    head.locator(".note").wait_for()
    becomes(
        page, lambda: [head.locator(part).inner_text() for part in (".facts", ".note")], ["varchar", "3.3 % missing"]
    )
    becomes(page, lambda: head.locator(".note").get_attribute("title"), "3.3 % missing, from all 600 rows")
    look = """(head) => ["b", ".facts", ".top", ".top + .top", ".note"].map((part) => {
        const each = head.querySelector(part), box = each.getBoundingClientRect(), cell = head.getBoundingClientRect();
        return [box.top - cell.top, box.bottom - cell.top, cell.height - 1, each.scrollWidth > each.clientWidth]; })"""

    def lines(*, are_whole: bool) -> None:
        found = head.evaluate(look)
        assert all(upper[1] <= lower[0] for upper, lower in itertools.pairwise(found)), found
        assert found[-1][1] <= found[-1][2], "the last line is inside of the header"
        assert not are_whole or not any(each[3] for each in found[1:]), found

    comes_true(page, lambda: lines(are_whole=True))
    # In one step: the header is drawn again with each profile, and the element may be gone a moment later.
    grip = page.evaluate(
        "document.querySelector('[role=columnheader][title^=team] .grip').getBoundingClientRect().toJSON()"
    )
    page.mouse.move(grip["x"] + 3, grip["y"] + 9)
    page.mouse.down()
    page.mouse.move(grip["x"] - 400, grip["y"] + 9, steps=4)
    page.mouse.up()
    settled(page)
    if shots := os.environ.get("NBTOOLS_SHOTS"):
        page.screenshot(path=Path(shots) / "explorer-narrow.png", full_page=True)
    becomes(page, lambda: head.evaluate("(head) => head.getBoundingClientRect().width"), 56)
    comes_true(page, lambda: lines(are_whole=False))
    assert head.locator(".note").evaluate("(note) => getComputedStyle(note).textOverflow") == "ellipsis"
    explorer.close()


def test_another_text_file_is_read_to_its_end_as_the_first_was(page: Any, workbench: Workbench, tmp_path: Path) -> None:
    pd.concat([_sales(), _sales()]).to_csv(tmp_path / "more.csv", index=False)
    explorer = workbench.explore("sales.csv")
    open_bare(page, explorer, *TRAITS)
    page.wait_for_function("document.querySelector('.count').textContent.startsWith('600 rows')")
    page.get_by_role("button", name="Source").click()
    picker = page.get_by_label("File or frame")
    picker.fill("'more.csv'")
    picker.press("Enter")
    page.wait_for_function("document.querySelector('.count').textContent.startsWith('1,200 rows')")
    assert page.locator(".is-error").count() == 0
    explorer.close()


def _choose(field: Any, value: str, way: str) -> None:
    """Choose from a list, which the browser shows: what a mouse chooses in it is set, keys write the words."""
    if way == "mouse":
        field.select_option(value)
    else:
        field.focus()
        field.press_sequentially(field.locator(f"option[value={json.dumps(value)}]").inner_text())


def _write_odd_files(folder: Path) -> None:
    (folder / "tokyo.csv").write_bytes("都市,数\n東京,1\n大阪,2\n".encode("shift_jis") * 9)
    (folder / "wide.csv").write_text("n,city\n1,Bern\n2,Chur\n", encoding="utf-16")
    (folder / "report.csv").write_text("A report\nof this year\n\ncity;sum\nBern;1\nChur;2\n", encoding="utf-8")
    (folder / "spaces.csv").write_text("n m note\n1 2 a,b,c\n3 4 d,e,f\n", encoding="utf-8")
    (folder / "years.csv").write_text("year\n" + "2001\nN/A\n" * 20, encoding="utf-8")
    with pd.ExcelWriter(folder / "book.xlsx") as book:
        _sales().head(30).to_excel(book, sheet_name="Sales", index=False)
        _sales().head(20).to_excel(book, sheet_name="Managers", index=False)
        _sales().head(5).to_excel(book, sheet_name="Titled", index=False, startrow=2)
        book.sheets["Titled"]["A1"] = "Sales of this year"


@pytest.mark.parametrize("way", ["mouse", "keys"])
def test_files_that_are_odd_are_opened_by_clicks_and_words_are_kept(
    page: Any, workbench: Workbench, tmp_path: Path, way: str
) -> None:
    """The SQL that is shown then opens each again."""
    _write_odd_files(tmp_path)
    explorer = workbench.explore("tokyo.csv", caller="magic")
    open_bare(page, explorer, *TRAITS)

    def counted(text: str) -> None:
        page.locator(".count", has_text=text).wait_for()

    _choose(page.get_by_label("Encoding"), "shift_jis", way)
    counted("26 rows")
    page.locator(".body .cell", has_text="東京").first.wait_for()
    assert len(workbench.sql(explorer.sql)) == 26

    def opened(name: str) -> None:
        if way == "mouse":
            leaf = page.locator(".sources .leaf", has_text=name)
            leaf.locator("summary").click()
            leaf.get_by_role("button", name=f"Open '{name}'").click()
        else:
            page.get_by_label("File or frame").fill(f"'{name}'")
            page.keyboard.press("Enter")
        page.get_by_role("group", name=f"Options of {name}").wait_for()

    opened("wide.csv")
    counted("2 rows")
    opened("report.csv")
    page.get_by_label("Lines to skip").fill("3")
    if way == "mouse":
        page.locator(".count").click()
    else:
        page.keyboard.press("Enter")
    _choose(page.get_by_label("Delimiter"), ";", way)
    counted("2 rows")
    assert workbench.sql(explorer.sql)["sum"].tolist() == [1, 2]
    opened("spaces.csv")
    _choose(page.get_by_label("Delimiter"), " ", way)
    page.locator(".count", has_text="3 columns").wait_for()
    assert workbench.sql(explorer.sql)["m"].tolist() == [2, 4]
    opened("book.xlsx")
    _choose(page.get_by_label("Sheet"), "Managers", way)
    counted("20 rows")
    assert len(workbench.sql(explorer.sql)) == 20
    _choose(page.get_by_label("Sheet"), "Titled", way)
    counted("7 rows")
    _choose(page.get_by_label("Header"), "3", way)
    counted("5 rows")
    assert [*workbench.sql(explorer.sql)] == [*_sales()]
    opened("years.csv")
    page.get_by_text("'N/A' read as missing").wait_for()
    press(page.get_by_role("button", name="Keep them as text"), way)
    page.locator("[aria-rowindex='3'] [aria-colindex='2']", has_text="N/A").wait_for()
    assert "nullstr" in explorer.sql
    press(page.get_by_role("button", name="Source"), way)
    page.get_by_label("File or frame").wait_for(state="hidden")
    explorer.close()


@pytest.mark.parametrize("way", ["mouse", "keys"])
def test_the_comment_quote_and_thousands_of_a_file_are_chosen(
    page: Any, workbench: Workbench, tmp_path: Path, way: str
) -> None:
    text = "% one; two; three\nsum;item\n1'234.5;a\n2'000.0;b\n"
    (tmp_path / "swiss.csv").write_text(text, encoding="utf-8")
    (tmp_path / f"{'long_name_' * 12}.csv").write_text(text, encoding="utf-8")
    explorer = workbench.explore("swiss.csv", caller="magic")
    open_bare(page, explorer, *TRAITS)
    press(page.get_by_role("button", name="Source"), way)
    long = page.locator(".leaf > button", has_text="long_name").first
    assert long.evaluate("each => each.scrollWidth > each.clientWidth && getComputedStyle(each).overflow") == "hidden"
    page.get_by_label("Comment").fill("%")
    page.get_by_label("Comment").press("Enter")
    page.locator(".count", has_text="2 columns").wait_for()
    _choose(page.get_by_label("Quote"), '"', way)
    _choose(page.get_by_label("Thousands"), "'", way)
    page.locator(".body .cell", has_text="1234.5").first.wait_for()
    assert workbench.sql(explorer.sql)["sum"].tolist() == [1234.5, 2000.0]
    explorer.close()


def test_a_reload_leaves_out_what_is_gone_and_says_so(page: Any, workbench: Workbench, tmp_path: Path) -> None:
    explorer = workbench.explore("from 'sales.csv' where team = 'north' and amount > 1 order by team")
    open_bare(page, explorer, *TRAITS)
    page.locator(".chip").nth(1).wait_for()
    _sales().drop(columns="team").to_csv(tmp_path / "sales.csv", index=False)
    page.locator("[role=grid]").focus()
    page.get_by_role("button", name="Reload").click()
    page.get_by_text("Gone from the source: team.").wait_for()
    becomes(page, lambda: explorer.sql, "SELECT *\nFROM 'sales.csv'\nWHERE amount > 1")
    assert (explorer.data()["amount"] > 1).all()
    assert len(explorer.relation().columns) == 4
    explorer.close()


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 700)])
def test_the_explorer_is_found_good_by_axe_and_keeps_its_pictures(
    page: Any, workbench: Workbench, theme: str, width: int
) -> None:
    explorer = workbench.explore("from 'sales.csv' where amount > 10 and city <> 'Chur' order by amount desc")
    open_bare(page, explorer, *TRAITS, theme=theme, width=width)
    page.locator(".sketch .bars").first.wait_for()
    settled(page)
    page.locator("[role=grid]").focus()
    page.keyboard.press("Shift+F10")
    page.get_by_role("menuitem", name="Summary").press("Enter")
    page.locator(".summary table").wait_for()
    page.get_by_role("button", name="Chart").click()
    page.get_by_role("button", name="Draw").click()
    page.locator(".panel figure img").wait_for()
    page.get_by_role("button", name="Pin", exact=True).click()
    page.locator(".pins img").wait_for()
    page.get_by_role("button", name="Script").click()
    page.get_by_role("button", name="SQL", exact=True).click()
    page.get_by_role("button", name="Source").click()
    page.locator(".options select").first.wait_for()
    if shots := os.environ.get("NBTOOLS_SHOTS"):
        page.screenshot(path=Path(shots) / f"explorer-{theme}-{width}.png", full_page=True)
    assert axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing hangs over"
    explorer.close()


def _set_windowing(page: Any, mode: str) -> None:
    page.evaluate(
        "(windowingMode) => { const { content } = window.tested;"
        " content.notebookConfig = { ...content.notebookConfig, windowingMode }; }",
        mode,
    )


def _stop_a_query(page: Any, explorer: Any, way: str) -> None:
    # The kernel's interrupt stops a query, says so, and leaves what was shown.
    explorer.locator(".sql").fill("select count(*) as n from range(9000000000) a(x) where x * 3 % 7 = 1")
    press(explorer.get_by_role("button", name="Run", exact=True), way)
    explorer.get_by_text("Running…").wait_for()
    page.evaluate("() => window.tested.sessionContext.session.kernel.interrupt()")
    explorer.get_by_text("stopped by the interrupt of the kernel").wait_for()
    explorer.locator(".count", has_text="600 rows").wait_for()
    # So does its own Stop: by a click, or by Tab and Enter.
    press(explorer.get_by_role("button", name="Run", exact=True), way)
    explorer.get_by_text("Running…").wait_for()
    stop = explorer.locator(".work").get_by_role("button", name="Stop")
    if way == "mouse":
        stop.click()
    else:
        for _ in range(12):  # behind the buttons of the text
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Stop":
                break
        page.keyboard.press("Enter")
    stop.wait_for(state="hidden")
    explorer.locator(".count", has_text="600 rows").wait_for()


@pytest.mark.parametrize("way", ["mouse", "keys"])
def test_a_date_is_typed_as_the_table_shows_it(page: Any, workbench: Workbench, way: str) -> None:
    explorer = workbench.explore("sales.csv")
    open_bare(page, explorer, *TRAITS)
    page.locator(".count", has_text="600 rows").wait_for()
    if way == "mouse":
        page.locator("[role=columnheader][title^=day] .dots").click()
        page.get_by_role("menuitem", name="Filter…").click()
        page.get_by_label("Value from a calendar", exact=True).fill("2024-04-10")
    else:
        _to_header(page, "day")
        page.keyboard.press("Shift+F10")
        page.get_by_role("menuitem", name="Filter…").press("Enter")
        page.get_by_label("Value", exact=True).wait_for()
        page.keyboard.type("40410-02-02")
        page.keyboard.press("Enter")
        # The browser says what such a value looks like, and nothing is asked.
        assert not page.get_by_label("Value", exact=True).evaluate("(field) => field.validity.valid")
        page.keyboard.press("Control+A")
        page.keyboard.type("2024-04-10")
    assert page.get_by_label("Value", exact=True).input_value() == "2024-04-10"
    press(page.get_by_role("form").get_by_role("button", name="Filter"), way)
    page.locator(".count", has_text="1 of 600 rows").wait_for()
    page.locator("[role=gridcell]", has_text="2024-04-10").wait_for()
    explorer.close()


def test_carets_stand_below_their_word(page: Any, workbench: Workbench) -> None:
    explorer = workbench.explore("sales.csv")
    open_bare(page, explorer, *TRAITS)
    page.get_by_role("button", name="SQL", exact=True).click()
    page.get_by_label("SQL of what is shown").fill("select city from 'sales.csv' where")
    page.get_by_role("button", name="Run", exact=True).click()
    pointed = page.locator(".is-error .pointed")
    assert pointed.inner_text().rstrip().endswith(f"where\n{' ' * 33}^^^^^")
    widths = "(all) => all.map((each) => getComputedStyle(each).fontFamily.includes('mono'))"
    assert page.locator(".is-error .pointed").evaluate_all(widths) == [True]
    explorer.close()


@pytest.mark.parametrize(("lab", "way"), [("light", "mouse"), ("notebook", "keys")], indirect=["lab"])
def test_a_cell_is_inserted_and_a_restart_is_told_in_jupyterlab(lab: Any, open_notebook: Any, way: str) -> None:
    _sales().to_csv(lab.root / "sales.csv", index=False)
    boxed = "import ipywidgets, nbtools\nboxed = nbtools.workbench().explore('sales.csv')\nipywidgets.HBox([boxed])"
    cells = [nbformat.v4.new_code_cell(cell) for cell in ("%load_ext nbtools", "%explore sales.csv", boxed)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), lab.root / "explore.ipynb")
    notebook = open_notebook("explore.ipynb")
    page = notebook.page
    notebook.run_all()
    explorer = page.locator(".nbt").first
    explorer.locator(".count", has_text="600 rows").wait_for()
    if way == "mouse":
        explorer.locator("[role=columnheader][title^=amount] .name").click()
    else:
        _to_header(page, "amount")
        page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.nbt .sql').value.includes('ORDER BY')")
    press(explorer.get_by_role("button", name="SQL", exact=True), way)
    # As in a notebook from elsewhere, of which a cell was not run: there Lab asks before each of its own commands.
    page.evaluate("() => { window.tested.content.widgets[0].model.trusted = false; }")
    # By default Lab gives a new cell no editor at once.
    _set_windowing(page, "contentVisibility")
    press(explorer.get_by_role("button", name="Insert as cell"), way)
    page.wait_for_function(
        "() => { const cells = window.tested.content.widgets.map((cell) => cell.model.sharedModel.getSource());"
        " return cells.length >= 3 && cells[2].startsWith('%%nbsql\\nSELECT *') }"
    )
    _set_windowing(page, "none")
    # The next one comes below the first: they stand in the order in which they were inserted.
    explorer.get_by_label("Language of the cell").select_option("pandas")
    press(explorer.get_by_role("button", name="Insert as cell"), way)
    page.wait_for_function(
        "() => { const cells = window.tested.content.widgets.map((cell) => cell.model.sharedModel.getSource());"
        " return cells[2].startsWith('%%nbsql\\nSELECT *') && cells[3].includes('pd.read_csv') }"
    )
    _stop_a_query(page, explorer, way)
    notebook.run_all()
    page.locator(".nbt .count", has_text="600 rows").nth(2).wait_for()
    assert page.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.error"]').count() == 0
    page.evaluate("() => { window.tested.sessionContext.session.kernel.restart(); }")
    page.get_by_role("button", name="Run the cell again").first.wait_for()
    # What was saved says as much as can be said without a kernel, and gives way to a view.
    saved = page.locator("[data-nbt-saved]")
    becomes(page, lambda: [each.is_visible() for each in saved.all()], [False] * 3)
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("() => !window.tested.context.model.dirty")
    session = page.evaluate("window.tested.sessionContext.session.id")
    page.request.delete(f"{lab.url}/api/sessions/{session}?token={lab.token}")
    page = open_notebook("explore.ipynb").page
    page.wait_for_function("() => document.querySelectorAll('.jp-OutputArea [data-nbt-saved] table').length === 3")
    assert page.evaluate("window.tested.content.model.cells.get(1).trusted")
    page.locator("[data-nbt-saved]", has_text="SELECT *").first.wait_for()
    page.wait_for_function("() => document.body.textContent.includes('model not found')")
    becomes(page, page.locator("text=model not found >> visible=true").count, 0)
    assert notebook.abroad == []
