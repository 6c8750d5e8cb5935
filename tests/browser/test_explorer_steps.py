"""What changes columns of an explorer by keys and mouse: the SQL follows, and each step can be taken back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nbtools.assembly.workbench import Workbench
from tests.browser.bare import axe_findings, becomes, open_bare, press, settled

pytestmark = [pytest.mark.races, pytest.mark.slow]

TRAITS = ("state", "view", "sql", "connection", "connections", "pinned", "problem", "undo")
LOOKS = [("light", 1280), ("dark", 700)]
WAYS = {"light": "mouse", "dark": "keys"}


def _orders() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "id": range(1, 601),
            "day": [("2024-03-%02d", "%02d.04.2024")[n % 4 == 0] % (n % 28 + 1) for n in range(600)],
            "city": [("Bern", " Chur", "Genève", "N/A")[n % 4] for n in range(600)],
            "amount": [("n.a.", "?")[n % 2] if n % 50 < 2 else f"{n * 1.37 % 97:.2f}" for n in range(600)],
        }
    )


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    _orders().to_csv(tmp_path / "orders.csv", index=False)
    monkeypatch.chdir(tmp_path)
    with Workbench(home=tmp_path / "home", memory_url=":memory:", allowed_paths=[tmp_path]) as made:
        yield made


def _opened(page: Any, workbench: Workbench, source: str, count: str, *, theme: str, width: int) -> Any:
    """Return an explorer that a page shows, once it tells how many rows there are and has come to rest."""
    explorer = workbench.explore(source)
    open_bare(page, explorer, *TRAITS, theme=theme, width=width)
    page.locator(".count", has_text=count).wait_for()
    settled(page)
    return explorer


def _keep(page: Any, name: str, theme: str, width: int) -> None:
    if shots := os.environ.get("NBTOOLS_SHOTS"):
        page.screenshot(path=Path(shots) / f"{name}-{theme}-{width}.png", full_page=True)


def _open_item(page: Any, column: str, item: str, way: str) -> None:
    """Open an item of a column's menu."""
    if way == "mouse":
        page.locator(f"[role=columnheader][title^={column}] .dots").click()
        page.get_by_role("menuitem", name=item).click()
        return
    page.locator("[role=grid]").focus()
    page.keyboard.press("Control+Home")
    page.keyboard.press("ArrowUp")
    for _ in range(list(_orders()).index(column)):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+F10")
    page.get_by_role("menuitem", name=item).press("Enter")


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_a_column_is_cleaned_by_mouse_and_by_keys(page: Any, workbench: Workbench, theme: str, width: int) -> None:
    way = WAYS[theme]
    explorer = _opened(page, workbench, "orders.csv", "600 rows", theme=theme, width=width)
    page.get_by_role("button", name="Undo").wait_for(state="hidden")
    _open_item(page, "amount", "Clean…", way)
    form = page.get_by_role("form", name="Clean amount")
    # What most values look like is chosen, and what becomes of the others is said first.
    form.get_by_text("24 of 600 values become missing: ").wait_for()
    becomes(page, form.get_by_label("What to do").input_value, "number")
    _keep(page, "clean-number", theme, width)
    assert axe_findings(page) == []
    press(form.get_by_role("button", name="Apply"), way)
    page.locator("[role=columnheader][title='amount · double']").wait_for()
    sql = 'SELECT *\nFROM (SELECT * REPLACE (TRY_CAST(TRIM("amount") AS DOUBLE) AS "amount") FROM \'orders.csv\')'
    becomes(page, lambda: explorer.sql, sql)
    _open_item(page, "day", "Clean…", way)
    form = page.get_by_role("form", name="Clean day")
    form.get_by_text("All 600 values are read; none becomes missing.").wait_for()
    _keep(page, "clean-date", theme, width)
    press(form.get_by_role("button", name="Apply"), way)
    page.locator("[role=columnheader][title='day · date']").wait_for()
    press(page.get_by_role("button", name="Undo"), way)
    page.locator("[role=columnheader][title='day · varchar']").wait_for()
    press(page.get_by_role("button", name="Undo"), way)
    page.locator("[role=columnheader][title='amount · varchar']").wait_for()
    page.get_by_role("button", name="Undo").wait_for(state="hidden")
    becomes(page, lambda: explorer.sql, "SELECT *\nFROM 'orders.csv'")
    explorer.close()


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_columns_are_found_hidden_and_moved(page: Any, workbench: Workbench, theme: str, width: int) -> None:
    way = WAYS[theme]
    explorer = _opened(page, workbench, "orders.csv", "600 rows", theme=theme, width=width)
    _open_item(page, "day", "Hide", way)
    page.locator("[role=columnheader][title^=day]").wait_for(state="detached")
    _open_item(page, "id", "Columns…", way)
    form = page.get_by_role("form", name="Columns")
    form.get_by_label("Find a column").fill("am")
    press(form.get_by_role("button", name="Move amount to the left"), way)
    becomes(page, lambda: page.evaluate("document.activeElement.ariaLabel"), "Move amount to the left")
    form.get_by_label("Find a column").fill("")
    _keep(page, "columns", theme, width)
    assert axe_findings(page) == []
    press(form.get_by_role("button", name="Apply"), way)
    page.locator("[role=columnheader][aria-colindex='3'][title^=amount]").wait_for()
    becomes(page, lambda: explorer.sql, 'SELECT "id", "amount", "city"\nFROM \'orders.csv\'')
    press(page.get_by_role("button", name="Undo"), way)
    press(page.get_by_role("button", name="Undo"), way)
    page.locator("[role=columnheader][title^=day]").wait_for()
    explorer.close()


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_a_row_is_read_in_full_and_cells_are_copied_as_markdown(
    page: Any, workbench: Workbench, theme: str, width: int
) -> None:
    red = "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415478da63f8cfc0000003010100"
    red += "c9fe92ef0000000049454e44ae426082"
    text = (
        "select n, {'type': 'click', 'where': {'x': n, 'y': [1.50, 2, 3]}} as event, repeat('long ', 200) as note, "
        f"from_hex('{red}') as photo from range(40) as t(n)"
    )
    way = WAYS[theme]
    explorer = _opened(page, workbench, text, "40 rows", theme=theme, width=width)
    if way == "keys":
        page.locator("[role=grid]").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Space")
    else:
        page.locator("[aria-rowindex='3'] [role=rowheader]").dblclick()
    full = page.get_by_role("region", name="In full")
    full.get_by_text("Row 2 of 40").wait_for()
    full.locator("img").wait_for()
    full.locator(".tree", has_text='"click"').wait_for()
    full.locator(".leaf", has_text="1.50").wait_for()
    _keep(page, "row", theme, width)
    assert axe_findings(page) == []
    press(full.get_by_role("button", name="Next"), way)
    full.get_by_text("Row 3 of 40").wait_for()
    page.evaluate(
        "() => { document.execCommand = () => { window.copied = document.querySelector('body > textarea').value } }"
    )
    if way == "keys":
        full.get_by_role("button", name="Close").press("Escape")
        for key in ("Home", "Shift+ArrowDown", "Shift+F10"):
            page.keyboard.press(key)
    else:
        full.get_by_role("button", name="Close").click()
        page.locator("[aria-rowindex='4'] [aria-colindex='2']").click()
        page.locator("[aria-rowindex='5'] [aria-colindex='2']").click(modifiers=["Shift"])
        page.locator("[aria-rowindex='5'] [aria-colindex='2']").click(button="right")
        page.get_by_role("menuitem", name="Copy", exact=True).click()
        page.wait_for_function("window.copied === 'n\\n2\\n3'")
        page.locator("[aria-rowindex='4'] [aria-colindex='2']").click(button="right")
        page.get_by_role("menuitem", name="Row in full").wait_for()
    press(page.get_by_role("menuitem", name="Copy as Markdown"), way)
    page.wait_for_function("window.copied?.startsWith('|')")
    assert page.evaluate("window.copied") == "| n |\n| ---: |\n| 2 |\n| 3 |"
    explorer.close()


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_groups_and_a_chart_begin_at_a_column(page: Any, workbench: Workbench, theme: str, width: int) -> None:
    way = WAYS[theme]
    explorer = _opened(page, workbench, "orders.csv", "600 rows", theme=theme, width=width)
    _open_item(page, "city", "Chart", way)
    page.locator(".panel figcaption", has_text="rows by city · 600 rows").wait_for()
    press(page.get_by_role("button", name="Chart", exact=True), way)
    _open_item(page, "city", "Group rows", way)
    panel = page.get_by_role("region", name="Group")
    press(panel.get_by_role("button", name="Compute more"), way)
    panel.get_by_label("What is computed").nth(1).select_option("max")
    panel.get_by_label("Of the column").nth(1).select_option("id")
    press(panel.get_by_role("button", name="Group", exact=True), way)
    page.locator(".count", has_text="4 rows").wait_for()
    page.locator("[aria-rowindex='2'] [aria-colindex='3']", has_text="150").wait_for()
    assert explorer.sql.startswith('SELECT *\nFROM (SELECT "city", count(*) AS "rows", max("id") AS "max of id" FROM')
    _keep(page, "group", theme, width)
    assert axe_findings(page) == []
    press(page.get_by_role("button", name="Undo"), way)
    page.locator(".count", has_text="600 rows").wait_for()
    # Its choices are there again with their columns, also after it was closed.
    for _ in range(2):
        press(page.get_by_role("button", name="Group", exact=True).first, way)
    choices = panel.get_by_role("combobox")
    values = lambda: choices.evaluate_all("(all) => all.map((each) => each.value)")  # noqa: E731
    becomes(page, values, ["city", "", "", "", "count", "", "max", "id"])
    explorer.close()


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_two_tables_are_compared_and_another_source_is_found_in_the_tree(
    page: Any, workbench: Workbench, tmp_path: Path, theme: str, width: int
) -> None:
    way = WAYS[theme]
    later = _orders().iloc[1:]
    later.loc[later["id"] == 7, "city"] = "Zug"
    (tmp_path / "more").mkdir()
    later.to_csv(tmp_path / "more" / "later.csv", index=False)
    explorer = workbench.explore("orders.csv", compare="more/later.csv", key="id")
    open_bare(page, explorer, *TRAITS, theme=theme, width=width)
    page.locator(".count", has_text="1 changed, 1 only in orders.csv; changed: city 1").wait_for()
    assert explorer.data().set_index("difference").loc["changed", "city (later.csv)"] == "Zug"
    _keep(page, "compare", theme, width)
    assert axe_findings(page) == []
    source = page.get_by_role("button", name="Source", exact=True)
    leaf = page.locator(".sources .leaf", has_text="later.csv")
    press(source, way)
    press(leaf.locator("summary"), way)
    leaf.get_by_text("amount varchar").wait_for()
    _keep(page, "sources", theme, width)
    assert axe_findings(page) == []
    press(leaf.get_by_role("button", name="Open 'more/later.csv'"), way)
    page.locator(".count", has_text="599 rows").wait_for()
    becomes(page, lambda: explorer.sql, "SELECT *\nFROM 'more/later.csv'")
    explorer.close()
