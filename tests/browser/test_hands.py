"""The grid under the hand: what wheel, mouse and scale of a page do to a table that stands in a notebook."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nbtools.sql.pages.opening import open_frame
from nbtools.sql.session import SqlSession
from nbtools.widgets.table import TableView
from tests.browser.bare import becomes, comes_true, open_bare, settled

pytestmark = [pytest.mark.races, pytest.mark.slow]


@pytest.fixture
def grid(page: Any, tmp_path: Path) -> Iterator[Any]:
    """Open a table of 300 rows on a page that is longer than the window; return the box that scrolls its rows."""
    lines = [f"{n},{'x' * (n % 40)},{n * 2}" for n in range(300)]
    (tmp_path / "some.csv").write_text("\n".join(["n,text,twice", *lines]), encoding="utf-8")
    with SqlSession(allowed_paths=[tmp_path]) as session:
        table = TableView(session.open_pages(f"'{tmp_path / 'some.csv'}'"), title="some")
        bridge = open_bare(page, table, "state", "view")
        page.evaluate("document.body.style.height = '3000px'")
        settled(page)
        found = page.locator("[role=grid]")
        found.asked = bridge.asked
        yield found
        table.close()


def _box(page: Any, selector: str) -> Any:
    """Return where an element is, in one step: drawing replaces it at any time."""
    return page.evaluate("(selector) => document.querySelector(selector).getBoundingClientRect().toJSON()", selector)


def _wheel(page: Any) -> None:
    for _ in range(3):
        page.mouse.wheel(0, 200)
        page.wait_for_timeout(40)


def test_the_page_scrolls_on_where_the_rows_end(page: Any, grid: Any) -> None:
    box = grid.bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    _wheel(page)
    assert page.evaluate("window.scrollY") == 0
    grid.focus()
    page.keyboard.press("Control+End")
    settled(page)
    _wheel(page)
    page.wait_for_function("window.scrollY > 300")


def test_a_header_acts_where_the_button_is_let_go_and_not_after_the_hand_moved_away(page: Any, grid: Any) -> None:
    name = _box(page, ".head [data-place='0'] .name")
    page.mouse.move(name["x"] + 10, name["y"] + 5)
    page.mouse.down()
    page.mouse.move(name["x"] + 10, name["y"] + 150, steps=3)
    page.mouse.up()
    page.wait_for_timeout(100)
    assert "sort" not in grid.asked
    page.mouse.click(name["x"] + 10, name["y"] + 5)
    page.locator(".head [aria-sort=ascending]").wait_for()


def test_cells_are_chosen_upwards_too_and_beyond_the_edge_the_rows_go_on(page: Any, grid: Any) -> None:
    grid.focus()
    for _ in range(12):
        page.keyboard.press("PageDown")
    settled(page)
    box = grid.bounding_box()
    before = page.evaluate("Number(document.querySelector('.body .row').getAttribute('aria-rowindex'))")
    page.mouse.move(box["x"] + 80, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 80, box["y"] - 20, steps=4)
    page.wait_for_function(f"Number(document.querySelector('.body .row').getAttribute('aria-rowindex')) < {before} - 5")
    page.mouse.up()
    now = page.evaluate("document.querySelector('.cell.active').closest('.row').getAttribute('aria-rowindex')")
    page.wait_for_timeout(200)
    settled(page)
    assert page.evaluate("document.querySelector('.cell.active').closest('.row').getAttribute('aria-rowindex')") == now
    assert page.locator(".body .cell.chosen").count() > 10


@pytest.mark.parametrize("zoom", ["0.67", "2"])
def test_a_click_meets_its_cell_on_a_page_that_is_scaled(page: Any, grid: Any, zoom: str) -> None:
    page.evaluate("(zoom) => { document.body.style.zoom = zoom; }", zoom)
    settled(page)
    at = _box(page, "[aria-rowindex='5'] [aria-colindex='3']")
    page.mouse.click(at["x"] + 15, at["y"] + 10)
    page.locator("[aria-rowindex='5'] [aria-colindex='3'].active").wait_for()


def test_two_clicks_on_the_edge_of_a_column_fit_its_width(page: Any, grid: Any) -> None:
    before = _box(page, ".head [data-place='1']")["width"]
    grip = _box(page, ".head [data-place='0'] .grip")
    page.mouse.dblclick(grip["x"] + 3, grip["y"] + 30)
    page.wait_for_function("document.querySelector('.head [data-place=\"0\"]').getBoundingClientRect().width < 75")
    assert _box(page, ".head [data-place='1']")["width"] == before


def test_two_tables_in_a_row_of_widgets_share_its_width(page: Any, grid: Any) -> None:
    widths = page.evaluate(
        """() => {
            const box = document.createElement('div');
            Object.assign(box, { className: 'widget-hbox', style: 'display: flex; width: 1000px' });
            const place = document.getElementById('place');
            place.replaceWith(box);
            box.append(place, place.cloneNode(true));
            return [...box.children].map((each) => each.querySelector('.nbt').getBoundingClientRect().width);
        }"""
    )
    assert widths == [500, 500]


def test_a_column_is_filtered_by_three_clicks_below_its_header(page: Any, grid: Any) -> None:
    head = "[role=columnheader][title^=twice]"
    name = _box(page, f"{head} .funnel")
    page.mouse.click(name["x"] + 8, name["y"] + 12)
    form = page.get_by_role("form", name="Filter twice")
    ticks = form.locator(".values label")
    ticks.first.wait_for()

    # Below its column, and whole in the window.
    def stands_below() -> None:
        header, box = _box(page, head), form.bounding_box()
        assert abs(box["x"] - header["x"]) < 2
        assert box["y"] >= header["y"] + header["height"] - 2
        assert box["y"] + box["height"] <= 760

    comes_true(page, stands_below)
    if shots := os.environ.get("NBTOOLS_SHOTS"):
        page.screenshot(path=Path(shots) / "filter-form.png")
    ticks.nth(2).click()
    form.get_by_role("button", name="Filter").click()
    page.locator(".chip", has_text='"twice" = ').wait_for()
    becomes(page, page.locator(".body .row").count, 1)
    # A press beside a menu closes it; a right click opens one, with a button of the mouse alone.
    page.locator(".chip").click()
    page.wait_for_function("document.querySelectorAll('.body .row').length > 5")
    cell = _box(page, "[aria-rowindex='4'] [aria-colindex='3']")
    page.mouse.click(cell["x"] + 5, cell["y"] + 5, button="right")
    page.get_by_role("menu", name="Column text").wait_for()
    page.mouse.click(600, 700)
    page.get_by_role("menu").wait_for(state="detached")
    dots = _box(page, "[role=columnheader][title^=text] .dots")
    page.mouse.click(dots["x"] + 8, dots["y"] + 12)
    page.get_by_role("menuitem", name="Filter…").click()
    form = page.get_by_role("form", name="Filter text")
    form.get_by_label("Value", exact=True).fill("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")
    page.wait_for_function("document.querySelectorAll('.values label').length === 3")
    form.get_by_role("button", name="Filter").click()
    page.wait_for_function("document.querySelectorAll('.body .row').length === 12")


@pytest.mark.parametrize("way", ["mouse", "?", "Escape"])
def test_the_keys_are_listed_and_the_list_is_taken_away(page: Any, grid: Any, way: str) -> None:
    if way == "mouse":
        page.get_by_role("button", name="Keys").click()
    else:
        grid.focus()
        page.keyboard.press("?")
    keys = page.locator(".keys")
    keys.locator("dt", has_text="Shift+F10").wait_for()
    keys.locator("dd", has_text="copy as Markdown").wait_for()
    if way == "mouse":
        keys.get_by_role("button", name="Close").click()
    else:
        page.keyboard.press(way)
    keys.wait_for(state="detached")


def test_a_row_is_chosen_by_its_number_and_two_quick_clicks_sort_twice(page: Any, grid: Any) -> None:
    number = _box(page, "[aria-rowindex='5'] [role=rowheader]")
    page.mouse.click(number["x"] + 10, number["y"] + 10)
    page.wait_for_function("document.querySelectorAll('[aria-rowindex=\"5\"] .chosen').length === 3")
    name = _box(page, ".head [data-place='0'] .name")
    page.mouse.click(name["x"] + 5, name["y"] + 5)
    page.mouse.click(name["x"] + 5, name["y"] + 5)
    page.locator(".head [aria-sort=descending]").wait_for()


def test_a_finger_scrolls_taps_and_holds(browser: Any, tmp_path: Path) -> None:
    context = browser.new_context(has_touch=True)
    page = context.new_page()
    table = TableView(open_frame(pd.DataFrame({"n": range(300), "text": ["a", "b", "c"] * 100})), title="frame")
    bridge = open_bare(page, table, "state", "view")
    settled(page)
    touch = context.new_cdp_session(page)

    def finger(kind: str, *points: tuple[float, float]) -> None:
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y} for x, y in points]})

    page.locator("[data-top=b]").wait_for()
    top = _box(page, "[data-top=b]")
    at = (top["x"] + 5, top["y"] + 5)
    finger("touchStart", at)
    for by in range(10, 120, 10):
        finger("touchMove", (at[0], at[1] - by))
    finger("touchEnd")
    page.wait_for_timeout(150)
    assert not {"filter", "sort"} & set(bridge.asked)
    name = _box(page, "[role=columnheader][title^=text] .name")
    finger("touchStart", (name["x"] + 5, name["y"] + 5))
    page.get_by_role("menu", name="Column text").wait_for()
    finger("touchEnd")
    page.wait_for_timeout(100)
    assert "sort" not in bridge.asked
    page.get_by_role("menuitem", name="Sort descending").tap()
    page.locator(".head [aria-sort=descending]").wait_for()
    context.close()
    table.close()


def test_a_table_without_a_kernel_says_so_and_keeps_its_rows(page: Any, grid: Any) -> None:
    page.evaluate("() => { window.send = model.send; model.send = () => { throw new Error('disposed') } }")
    grid.focus()
    page.keyboard.press("Control+End")
    page.get_by_text("No kernel runs").wait_for()
    page.keyboard.press("Control+Home")
    page.wait_for_function("document.querySelector('.body [aria-colindex=\"2\"]').textContent === '0'")
    page.evaluate("() => { model.send = window.send }")
    page.keyboard.press("Control+End")
    page.get_by_text("No kernel runs").wait_for(state="detached")
    settled(page)
