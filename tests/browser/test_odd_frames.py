"""Frames that break tables, as data: each is shown, sorted, profiled and walked through without an error."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

from nbtools.widgets.table import TableView
from tests.browser.bare import axe_findings, becomes, comes_true, open_bare, settled

pytestmark = [pytest.mark.races, pytest.mark.slow]

CASES = json.loads(Path(__file__).with_name("odd_frames.json").read_text(encoding="utf-8"))
NAMES = {"pd": pd, "pl": pl, "math": math, "decimal": decimal, "dt": dt}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_an_odd_frame_is_shown_and_used(page: Any, case: dict[str, Any]) -> None:
    table = TableView.from_frame(eval(case["frame"], NAMES), title=case["name"])
    open_bare(page, table, "state", "view")
    settled(page)

    def is_shown() -> None:
        told = page.locator(".nbt").inner_text()
        for expected in case["shows"]:
            assert expected in told, (expected, told[:2_000])

    comes_true(page, is_shown)
    columns, rows = len(table.state["columns"]), table.state["rows"]
    grid = page.locator("[role=grid]")
    sizes = [str(rows + 1), str(columns + 1)]
    becomes(page, lambda: [grid.get_attribute(f"aria-{name}count") for name in ("row", "col")], sizes)
    grid.focus()
    for key in ("ArrowDown", "Control+End", "Control+Home", "ArrowUp", "End", "Shift+ArrowLeft", "Home"):
        page.keyboard.press(key)
    settled(page)
    if columns:
        for place in {0, min(columns, 3) - 1}:
            page.evaluate("(at) => document.querySelector(`.head [data-place='${at}'] .name`)?.scrollIntoView()", place)
            page.locator(f".head [data-place='{place}'] .name").click()
            page.wait_for_function("document.querySelector('[aria-sort=ascending]')")
    settled(page)
    assert page.locator(".is-error").count() == 0, page.locator(".is-error").all_inner_texts()
    assert page.evaluate("window.hacked") is None
    assert axe_findings(page) == []
    table.close()


_SILENT = """([text, traits]) => {
    const heard = new Map();
    window.sent = [];
    window.model = {
        get: (name) => traits[name], set: (name, value) => { traits[name] = value; }, save_changes: () => {},
        on: (name, run) => heard.set(name, run), off: (name) => heard.delete(name),
        send: (message) => window.sent.push(message),
    };
    window.fire = (name, ...given) => heard.get(name)?.(...given);
    return import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })))
        .then((module) => module.default.render({ model, el: document.body, signal: new AbortController().signal }));
}"""


def test_long_work_shows_how_far_it_is_and_stops_when_asked(browser: Any) -> None:
    """The JavaScript alone, with a model that never answers by itself."""
    page = browser.new_page()
    page.set_content(f"<style>{TableView._css}</style>")
    columns = [{"name": "a", "type": "BIGINT", "kind": "number"}]
    state = {
        "rows": 5,
        "of": 5,
        "whole": False,
        "columns": columns,
        "order": [],
        "conditions": [],
        "rev": 0,
        "note": "",
        "notes": [],
    }
    page.evaluate(_SILENT, [TableView._esm, {"title": "t", "state": state, "view": {}}])
    # All rows are read once the first ones are seen.
    page.wait_for_function("window.sent.find((each) => each.name === 'cells')")
    assert not page.evaluate("window.sent.some((each) => each.name === 'finish')")
    first = page.evaluate("window.sent.find((each) => each.name === 'cells').id")
    page.evaluate("(id) => fire('msg:custom', { t: 'reply', id, value: [['a'], ['b'], ['c'], ['d'], ['e']] })", first)
    page.get_by_role("button", name="Stop").wait_for()
    asked = page.evaluate("window.sent.find((each) => each.name === 'finish')")
    page.evaluate("(id) => fire('msg:custom', { t: 'progress', id, share: 0.4 })", asked["id"])
    becomes(page, lambda: page.locator("progress").evaluate("(each) => each.value"), 0.4)
    # Nobody knows yet how many.
    becomes(page, lambda: page.locator("[role=grid]").get_attribute("aria-rowcount"), "-1")
    page.get_by_role("button", name="Stop").click()
    assert page.evaluate("window.sent.filter((each) => each.t === 'stop').map((each) => each.id)") == [asked["id"]]
    page.get_by_role("button", name="Stop").wait_for(state="hidden")
    # An answer that comes too late changes nothing; what a page says of rows of before is not shown.
    page.evaluate("(id) => fire('msg:custom', { t: 'reply', id, value: null })", asked["id"])
    arranged = "(rev) => { model.set('state', { ...model.get('state'), rev, whole: true }); fire('change:state'); }"
    page.evaluate(arranged, 1)
    page.wait_for_function("window.sent.filter((each) => each.name === 'cells').length === 2")
    cells = page.evaluate("window.sent.findLast((each) => each.name === 'cells')")
    page.evaluate(arranged, 2)
    page.evaluate("(id) => fire('msg:custom', { t: 'reply', id, value: [['old'], ['old'], ['old']] })", cells["id"])
    page.wait_for_function("window.sent.filter((each) => each.name === 'cells').length >= 3")
    assert "old" not in page.locator("[role=grid]").inner_text()
    page.close()


def test_what_is_saved_of_a_table_is_what_the_live_one_shows(page: Any) -> None:
    """Text by text, as a person reads both; a number of more digits has them all in its title."""
    numbers = {
        "chf": [5614.880000000001, 12.5, math.nan],
        "large": [123456789012.55, 12345678900.5, 7.0],
        "whole": [2**53 + 1, -(2**63), 0],
        "decimal": [decimal.Decimal("1234567890123456789012345678.0000000001"), decimal.Decimal(0), None],
        "narrow": pd.Series([0.1, 1.5, -2.25], dtype="float32"),
        "day": pd.to_datetime(["2025-10-18", None, "2024-02-29"]),
        "is": [True, False, True],
    }
    table = TableView.from_frame(pd.DataFrame(numbers), title="numbers")
    open_bare(page, table, "state", "view")
    settled(page)
    cells = page.locator(".body .cell:not([role=rowheader])")
    live = cells.evaluate_all("(all) => all.map((each) => [each.textContent, each.title])")
    page.set_content(table.plain_html())
    saved = page.locator("td").evaluate_all("(all) => all.map((each) => [each.textContent, each.title])")
    assert [text for text, _ in saved] == [text for text, _ in live]
    assert ["5614.88", "5614.880000000001"] in live
    assert ["5614.88", "5614.880000000001"] in saved
    table.close()
