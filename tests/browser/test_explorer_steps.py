"""What changes columns of an explorer by keys and mouse: the SQL follows, and each step can be taken back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nbtools.assembly.workbench import Workbench
from tests.browser.bare import axe_findings, open_bare, settled

pytestmark = [pytest.mark.races, pytest.mark.slow]

TRAITS = ("state", "view", "sql", "connection", "connections", "pinned", "problem", "undo")
LOOKS = [("light", 1280), ("dark", 700)]


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


def _keep(page: Any, name: str, theme: str, width: int) -> None:
    if shots := os.environ.get("NBTOOLS_SHOTS"):
        page.screenshot(path=Path(shots) / f"{name}-{theme}-{width}.png", full_page=True)


def _open_item(page: Any, column: str, item: str, *, by_keys: bool) -> None:
    """Open an item of a column's menu."""
    if not by_keys:
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
    explorer = workbench.explore("orders.csv")
    open_bare(page, explorer, *TRAITS, theme=theme, width=width)
    page.locator(".count", has_text="600 rows").wait_for()
    settled(page)
    assert page.get_by_role("button", name="Undo").is_hidden()
    _open_item(page, "amount", "Clean…", by_keys=theme == "dark")
    form = page.get_by_role("form", name="Clean amount")
    # What most values look like is chosen, and what becomes of the others is said first.
    form.get_by_text("24 of 600 values become missing: ").wait_for()
    assert form.get_by_label("What to do").input_value() == "number"
    _keep(page, "clean-number", theme, width)
    assert axe_findings(page) == []
    form.get_by_role("button", name="Apply").press("Enter")
    page.locator("[role=columnheader][title='amount · double']").wait_for()
    assert explorer.sql == (
        'SELECT *\nFROM (SELECT * REPLACE (TRY_CAST(TRIM("amount") AS DOUBLE) AS "amount") FROM \'orders.csv\')'
    )
    _open_item(page, "day", "Clean…", by_keys=theme == "dark")
    form = page.get_by_role("form", name="Clean day")
    form.get_by_text("All 600 values are read; none becomes missing.").wait_for()
    _keep(page, "clean-date", theme, width)
    form.get_by_role("button", name="Apply").click()
    page.locator("[role=columnheader][title='day · date']").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.locator("[role=columnheader][title='day · varchar']").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.locator("[role=columnheader][title='amount · varchar']").wait_for()
    page.get_by_role("button", name="Undo").wait_for(state="hidden")
    assert explorer.sql == "SELECT *\nFROM 'orders.csv'"
    explorer.close()
