"""The grid on a bare page: every row and column within reach of mouse and keys, at a hundred million rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from nbtools.sql.session import SqlSession
from nbtools.widgets.table import TableView
from tests.browser.bare import axe_findings, becomes, comes_true, milliseconds, open_bare, settled

pytestmark = [pytest.mark.races, pytest.mark.slow]

LONG = int(os.environ.get("TEST_ROWS", "100_000_000"))
SORTED = LONG // 5  # more than a scroll bar has places for and than a profile takes whole, in a fifth of the time
TRAITS = ("state", "view")


def _long_file(folder: Path, rows: int) -> Path:
    path = folder / "long.parquet"
    duckdb.sql(f"copy (select range::bigint as id, (range * 7919) % 1009 as k from range({rows})) to '{path}'")
    return path


def _opened(path: Path) -> TableView:
    with SqlSession(allowed_paths=[path.parent]) as session:
        return TableView(session.open_pages(f"'{path}'"), title=path.name)


def _ids(page: Any) -> list[int]:
    """Return the first column of the rows that are seen whole."""
    settled(page)
    texts = page.evaluate(
        """() => {
            const view = document.querySelector('.viewport'), top = view.getBoundingClientRect().top;
            return [...document.querySelectorAll('.body .row')].filter((row) => {
                const at = row.getBoundingClientRect();
                return at.top >= top + 75 && at.bottom <= top + view.clientHeight + 1;
            }).map((row) => row.querySelector('[aria-colindex="2"]').textContent);
        }"""
    )
    return [int(text) for text in texts]


def _begins_with(page: Any, row: int) -> None:
    becomes(page, lambda: _ids(page)[:1], [row])


def _ends_with(page: Any, row: int) -> None:
    becomes(page, lambda: _ids(page)[-1:], [row])


def _shows(page: Any, row: int) -> None:
    becomes(page, lambda: [each for each in _ids(page) if each == row], [row])


_FOCUS = "document.activeElement.getAttribute('role')"


def _press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_every_row_of_a_hundred_million_is_reached(page: Any, tmp_path: Path) -> None:
    table = _opened(_long_file(tmp_path, LONG))
    open_bare(page, table, *TRAITS)
    _begins_with(page, 0)
    grid = page.locator("[role=grid]")
    becomes(page, lambda: grid.get_attribute("aria-rowcount"), str(LONG + 1))
    grid.focus()
    _press(page, "Control+End")
    _ends_with(page, LONG - 1)
    _press(page, "PageUp", "PageDown", "ArrowUp", "ArrowDown")
    _ends_with(page, LONG - 1)
    becomes(page, page.locator(".cell.active").text_content, f"{((LONG - 1) * 7919) % 1009}")
    _press(page, "Control+Home")
    _begins_with(page, 0)
    go = page.get_by_label("Go to row")
    go.fill(f"{LONG // 2:,}")
    go.press("Enter")
    _shows(page, LONG // 2 - 1)
    for wrong in ("-5", "1.5", "abc", ""):
        go.fill(wrong)
        go.press("Enter")
        becomes(page, lambda: go.get_attribute("aria-invalid"), "true")
        _shows(page, LONG // 2 - 1)
    go.fill("1e3")
    go.press("Enter")
    becomes(page, lambda: go.get_attribute("aria-invalid"), "false")
    _shows(page, 999)
    # The scroll bar: to its very end, and to half of it.
    page.evaluate("() => { const v = document.querySelector('.viewport'); v.scrollTop = v.scrollHeight }")
    _ends_with(page, LONG - 1)
    page.evaluate(
        "() => { const v = document.querySelector('.viewport'); v.scrollTop = (v.scrollHeight - v.clientHeight) / 2 }"
    )

    def is_half_way() -> None:
        assert abs(_ids(page)[0] - LONG / 2) < LONG / 1_000

    comes_true(page, is_half_way)
    # The wheel moves by three rows a tick, here as in a short table; no row is jumped over.
    box = grid.bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    before = _ids(page)[0]
    for tick in range(1, 5):
        page.mouse.wheel(0, 100)
        _begins_with(page, before + 3 * tick)
    page.mouse.wheel(0, -400)
    _begins_with(page, before)
    took = sorted(
        milliseconds(
            page,
            f"const go = document.querySelector('.goto'); go.value = '{row}';"
            " go.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }))",
            f"document.querySelector('.cell.active')?.closest('[aria-rowindex=\"{row + 1}\"]') &&"
            " document.querySelector('.cell.active').textContent !== ''",
        )
        for row in (1, LONG // 2, LONG, LONG // 3, 7 * (LONG // 9))
    )
    print(f"go to a row of {LONG:,}: median {took[2]:.0f} ms, most {took[-1]:.0f} ms")
    table.close()


def test_twenty_million_rows_are_sorted_to_their_last_one(page: Any, tmp_path: Path) -> None:
    table = _opened(_long_file(tmp_path, SORTED))
    bridge = open_bare(page, table, *TRAITS)
    _begins_with(page, 0)
    # What is drawn from a sample says so in its header, and a click reads all rows.
    note = page.locator(".head [data-place='1'] .exact")
    note.wait_for()
    assert SORTED != 20_000_000 or "of 20M" in note.inner_text()
    note.click()
    note.wait_for(state="detached")
    assert table.state["rows"] == SORTED
    page.locator(f".head [data-place='1'] .bars[aria-label*='from all {SORTED:,} rows']").wait_for()
    page.evaluate(
        """() => new MutationObserver(() => {
            window.isTold ||= document.querySelectorAll('.work:not([hidden]) :is(progress, .stop)').length === 2;
        }).observe(document.querySelector('.work'), { childList: true, subtree: true, attributes: true })"""
    )
    page.locator(".head [data-place='1'] .name").click()
    page.locator("[aria-sort=ascending]").wait_for(timeout=240_000)
    assert page.evaluate("window.isTold"), "how far it is, and Stop"
    page.locator("[role=grid]").focus()
    _press(page, "Control+End")
    # The last of those with the greatest key, in the order of the file.
    key = 1_008
    last = next(row for row in range(SORTED - 1, 0, -1) if (row * 7919) % 1009 == key)
    _ends_with(page, last)
    becomes(page, page.locator(".cell.active").text_content, str(key))
    assert "sort" in bridge.asked
    table.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_table_is_used_at_two_hundred_percent_in_forced_colours_without_motion(page: Any, scheme: str) -> None:
    table = TableView.from_frame(_penguins(), title="penguins")
    # A zoom of 200 % halves what the page takes for its width and height.
    open_bare(page, table, *TRAITS, theme=scheme, width=640)
    page.set_viewport_size({"width": 640, "height": 380})
    page.emulate_media(color_scheme=scheme, forced_colors="active", reduced_motion="reduce")
    page.locator(".sketch .bars").first.wait_for()
    page.locator("[role=grid]").focus()
    _press(page, "Control+End", "Shift+ArrowUp")
    _ends_with(page, 1_999)
    told = lambda: page.evaluate(  # noqa: E731
        """() => {
            const active = getComputedStyle(document.querySelector('.cell.active'));
            const other = document.querySelector('.cell.chosen:not(.active)');
            return [active.outlineStyle, active.outlineWidth, getComputedStyle(other).outlineStyle,
                document.getAnimations().length, document.documentElement.scrollWidth <= innerWidth] }"""
    )
    becomes(page, told, ["solid", "2px", "dashed", 0, True])
    if shots := os.environ.get("NBTOOLS_SHOTS"):
        page.screenshot(path=Path(shots) / f"table-forced-{scheme}.png")
    assert axe_findings(page) == []
    table.close()


def test_a_range_is_chosen_by_keys(page: Any) -> None:
    table = TableView.from_frame(_penguins(), title="penguins")
    open_bare(page, table, *TRAITS)
    settled(page)
    page.locator("[role=grid]").focus()
    _press(page, "Shift+F10")
    page.get_by_role("menuitem", name="Filter").press("Enter")
    page.get_by_label("Comparison").select_option("between")
    page.get_by_label("Value", exact=True).fill("10")
    _press(page, "Tab")
    page.keyboard.type("19")
    _press(page, "Enter")
    page.locator(".chip").wait_for()
    becomes(page, lambda: page.locator("[role=grid]").get_attribute("aria-rowcount"), "11")
    becomes(page, lambda: _ids(page), list(range(10, 20)))
    table.close()


def _penguins() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "id": range(2_000),
            "species": [("Adelie", "Gentoo", "Chinstrap")[n % 3] for n in range(2_000)],
            "mass": [None if n % 10 == 0 else 3_000 + n * 7 % 1_900 for n in range(2_000)],
            "seen": pd.date_range("2020-01-01", periods=2_000, freq="D"),
            "note": [f"<b>{n}</b>" for n in range(2_000)],
        }
    )


def test_all_actions_work_by_keys_alone(page: Any) -> None:
    table = TableView.from_frame(_penguins(), title="penguins")
    open_bare(page, table, *TRAITS)
    _ids(page)
    page.get_by_label("Find column").focus()
    _press(page, "Tab", "Tab", "Tab", "Tab")
    becomes(page, lambda: page.evaluate(_FOCUS), "grid")  # one tab stop
    _press(page, "ArrowUp", "Enter")
    page.locator("[aria-sort=ascending]").wait_for()
    _press(page, "Enter")
    page.locator("[aria-sort=descending]").wait_for()
    _begins_with(page, 1_999)
    page.locator(".nbt > .unseen", has_text="descending").wait_for()
    page.locator("[role=columnheader][title^=species] .tops").wait_for()
    _press(page, "ArrowRight", "Shift+F10")
    page.get_by_role("menu").wait_for()
    _press(page, "ArrowDown", "ArrowDown", "ArrowDown")
    becomes(page, lambda: page.evaluate("document.activeElement.textContent"), "Keep the most frequent value")
    _press(page, "ArrowUp", "Enter")
    page.get_by_label("Comparison").select_option("=")
    page.get_by_label("Value", exact=True).fill("Gentoo")
    page.keyboard.press("Enter")
    page.locator(".chip").wait_for()
    becomes(page, lambda: page.locator("[role=grid]").get_attribute("aria-rowcount"), "668")
    _begins_with(page, 1_999)
    page.locator(".chip").focus()
    page.keyboard.press("Enter")
    page.locator(".chip").wait_for(state="detached")
    page.locator("[role=grid]").focus()
    # Pin and widen by the menu, copy a rectangle, look at a value.
    _press(page, "Shift+F10")
    page.get_by_role("menuitem", name="Pin").press("Enter")
    page.locator("[role=columnheader].pinned").wait_for()
    # The header is drawn again now and then, so it is looked at inside the page.
    before = page.evaluate("document.querySelector('[role=columnheader].active').getBoundingClientRect().width")
    _press(page, "Alt+ArrowRight")
    page.wait_for_function(
        f"document.querySelector('[role=columnheader].active').getBoundingClientRect().width > {before}"
    )
    page.evaluate("() => { document.execCommand = () => { window.copied = document.querySelector('textarea').value } }")
    _press(page, "ArrowDown", "Home", "Shift+ArrowRight", "Shift+ArrowDown", "Control+c")
    page.wait_for_function("window.copied !== undefined")
    assert page.evaluate("window.copied") == "species\tid\nGentoo\t1999\nAdelie\t1998"
    _press(page, "End", "Enter")
    page.get_by_role("dialog").wait_for()
    becomes(page, page.locator(".side pre").inner_text, "<b>1998</b>")
    _press(page, "Escape")
    becomes(page, lambda: page.evaluate(_FOCUS), "grid")
    table.close()


def test_all_actions_work_by_the_mouse_alone(page: Any) -> None:
    table = TableView.from_frame(_penguins(), title="penguins")
    open_bare(page, table, *TRAITS)
    _ids(page)
    page.locator("[role=grid]").click(position={"x": 90, "y": 120})
    becomes(page, lambda: page.evaluate(_FOCUS), "grid")
    name = page.locator("[role=columnheader][title^=id] .name b")
    name.click()
    page.locator("[aria-sort=ascending]").wait_for()
    name.click()
    page.locator("[aria-sort=descending]").wait_for()
    _begins_with(page, 1_999)
    species = page.locator("[role=columnheader][title^=species]")
    species.locator(".funnel").click()
    form = page.get_by_role("form", name="Filter species")
    form.locator(".values label", has_text="Gentoo").click()
    form.get_by_role("button", name="Filter").click()
    page.locator(".chip").wait_for()
    becomes(page, lambda: page.locator("[role=grid]").get_attribute("aria-rowcount"), "668")
    page.locator(".chip").click()
    page.locator(".chip").wait_for(state="detached")
    species.locator(".dots").click()
    page.get_by_role("menuitem", name="Pin").click()
    page.locator("[role=columnheader].pinned").wait_for()
    before = page.evaluate("document.querySelector('[role=columnheader].pinned').getBoundingClientRect().width")
    page.locator("[role=columnheader].pinned").click(button="right")
    page.get_by_role("menuitem", name="Wider").click()
    page.wait_for_function(
        f"document.querySelector('[role=columnheader].pinned').getBoundingClientRect().width > {before}"
    )
    page.evaluate("() => { document.execCommand = () => { window.copied = document.querySelector('textarea').value } }")
    settled(page)
    first, last = (page.locator(f"[aria-rowindex='{row}'] [aria-colindex='{row}']") for row in (2, 3))
    first.drag_to(last)
    last.click(button="right")
    page.get_by_role("menuitem", name="Copy", exact=True).click()
    page.wait_for_function("window.copied !== undefined")
    assert page.evaluate("window.copied") == "species\tid\nGentoo\t1999\nAdelie\t1998"
    page.locator("[aria-rowindex='3'] [aria-colindex='6']").dblclick()
    page.get_by_role("dialog").wait_for()
    becomes(page, page.locator(".side pre").inner_text, "<b>1998</b>")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("dialog").wait_for(state="hidden")
    table.close()


def test_brushing_a_histogram_and_clicking_a_header_do_what_they_show(page: Any) -> None:
    table = TableView.from_frame(_penguins(), title="penguins")
    open_bare(page, table, *TRAITS)
    bars = page.locator("[role=columnheader][title^=mass] .bars")
    bars.wait_for()
    page.locator("[role=columnheader][title^=mass]", has_text="10 % missing").wait_for()
    box = page.evaluate(
        "document.querySelector('[role=columnheader][title^=mass] .bars').getBoundingClientRect().toJSON()"
    )
    page.mouse.move(box["x"] + 2, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10, steps=4)
    page.mouse.up()
    page.locator(".chip").wait_for()
    kept = table.state["rows"]
    masses = _penguins()["mass"]
    low, high = masses.min(), masses.max()
    edge = low + (high - low) * 13 / 24
    assert kept == ((masses >= low) & (masses < edge)).sum()
    page.locator("[role=columnheader][title^=species] .name").click()
    page.locator("[aria-sort=ascending]").wait_for()
    settled(page)
    becomes(page, lambda: table.state["order"], [["species", False]])
    page.locator("[data-top=Chinstrap]").click()
    page.locator(".chip").nth(1).wait_for()
    assert table.state["conditions"][1] == "\"species\" = 'Chinstrap'"
    page.locator(".wrap").click()
    page.locator(".wrapped .cell").first.wait_for()
    table.close()


def test_profiles_stay_where_rows_are_only_sorted(page: Any) -> None:
    frame = pd.DataFrame({"name": list("abab") * 10, "mass": [1.5, 2.5, 3.5, 9.5] * 10})
    table = TableView.from_frame(frame, title="sorted")
    bridge = open_bare(page, table, *TRAITS)
    there = "[...document.querySelectorAll('.sketch')].filter((each) => each.childElementCount).length === 2"
    page.wait_for_function(there)
    asked = bridge.asked.count("profile")
    page.locator("[role=columnheader][title^=name] .name").click()
    page.locator("[aria-sort=ascending]").wait_for()
    page.wait_for_function(there)
    settled(page)
    page.wait_for_timeout(500)
    assert bridge.asked.count("profile") == asked
    page.locator("[data-top=a]").click()
    page.locator(".chip").wait_for()
    becomes(page, lambda: bridge.asked.count("profile"), asked + 2)
    page.wait_for_function(there)
    page.locator(".count", has_text="20 of 40 rows").wait_for()
    table.close()


def test_ten_thousand_columns_are_found_by_name(page: Any) -> None:
    table = TableView.from_frame(pd.DataFrame({f"c{n}": [n] * 5 for n in range(10_000)}), title="wide")
    bridge = open_bare(page, table, *TRAITS)
    _ids(page)
    find = page.get_by_label("Find column")
    find.fill("c9876")
    find.press("Enter")
    page.locator("[role=columnheader][title^=c9876]").wait_for()
    becomes(page, page.locator(".cell.active").text_content, "9876")
    assert page.locator("[role=gridcell]").count() < 400
    assert bridge.asked.count("cells") < 6
    page.locator("[role=grid]").focus()
    _press(page, "End", "Home", "End")
    becomes(page, page.locator(".cell.active").text_content, "9999")
    table.close()


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 700), ("dark", 700)])
def test_the_table_is_found_good_by_axe_and_keeps_its_pictures(page: Any, theme: str, width: int) -> None:
    table = TableView.from_frame(_penguins(), title="penguins")
    open_bare(page, table, *TRAITS, theme=theme, width=width)
    page.locator("[role=columnheader][title^=seen] .bars, [role=columnheader][title^=mass] .bars").first.wait_for()
    settled(page)
    page.locator("[role=grid]").focus()
    _press(page, "ArrowDown", "Shift+ArrowRight", "Shift+ArrowDown")
    settled(page)
    page.wait_for_timeout(300)
    if shots := os.environ.get("NBTOOLS_SHOTS"):
        page.screenshot(path=Path(shots) / f"table-{theme}-{width}.png")
    assert axe_findings(page) == []
    _press(page, "Shift+F10")
    assert axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing hangs over"
    table.close()


def test_a_restarted_kernel_is_told_and_the_cell_can_be_run_again(page: Any) -> None:
    table = TableView.from_frame(_penguins(), title="penguins")
    open_bare(page, table, *TRAITS)
    settled(page)
    page.evaluate("window.model.fire('comm_live_update')")
    page.locator(".lost", has_text="needs %load_ext nbtools").wait_for()
    page.evaluate(
        "() => document.addEventListener('click', ({ target: { dataset } }) =>"
        " { window.ran ??= dataset.commandlinkerCommand; })"
    )
    page.get_by_role("button", name="Run the cell again").click()
    assert page.evaluate("window.ran") == "notebook:run-cell"
    page.evaluate("window.endView()")
    table.close()


def test_a_screen_reader_reads_the_header_first_and_each_row_from_its_number_on(page: Any, tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("a,b,c\n1,x,2.5\n2,y,3.5\n")
    table = _opened(tmp_path / "few.csv")
    table.view = {"pinned": ["b"]}
    open_bare(page, table, *TRAITS)
    settled(page)
    rows = lambda: page.evaluate(  # noqa: E731
        """() => [...document.querySelectorAll('[role=row]')].map((row) => [row.getAttribute('aria-rowindex'),
            ...[...row.children].map((cell) => (cell.querySelector('b, .unseen') ?? cell).textContent)])"""
    )
    becomes(page, rows, [["1", "row", "b", "a", "c"], ["2", "1", "x", "1", "2.5"], ["3", "2", "y", "2", "3.5"]])
    table.close()
