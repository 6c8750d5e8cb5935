"""The grid under the hand: what wheel, mouse and scale of a page do to a table that stands in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.sql.session import SqlSession
from nbtools.widgets.table import TableView
from tests.browser.bare import open_bare, settled

pytestmark = pytest.mark.slow


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


def _wheel(page: Any, by: int, times: int = 1) -> None:
    for _ in range(times):
        page.mouse.wheel(0, by)
        page.wait_for_timeout(40)


def test_the_page_scrolls_on_where_the_rows_end(page: Any, grid: Any) -> None:
    box = grid.bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    _wheel(page, 200, 3)
    assert page.evaluate("window.scrollY") == 0
    grid.focus()
    page.keyboard.press("Control+End")
    settled(page)
    _wheel(page, 200, 3)
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
    page.wait_for_function(
        f"Number(document.querySelector('.body .row').getAttribute('aria-rowindex')) < {before} - 5", timeout=5_000
    )
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
