"""How long things take, from an act to what is seen of it, in JupyterLab with a kernel; each is printed (pytest -s).

What must be right is asserted, how long it took is not: that depends on the machine.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import duckdb
import nbformat
import pytest

from tests.browser.bare import milliseconds

pytestmark = [pytest.mark.races, pytest.mark.slow]

LONG = int(os.environ.get("TEST_ROWS", "100_000_000"))
SORTED = LONG // 10
TOKENS = 1_000
TALK = f"""import nbtools, threading, time
chat = nbtools.workbench().chat(script='turns.yaml')
key, tokens = chat._put('text'), [('<b>', ' wörd', ' 😀', '\\n', '&amp;')[n % 5] + str(n) for n in range({TOKENS})]
def talk():
    chat.wait_for_view()
    begun = time.monotonic()
    for n, token in enumerate(tokens):
        chat.text(key).write(token)
        time.sleep(max(0.0, begun + n / 200 - time.monotonic()))
    chat._end_text()
    chat.text(key).flush()
threading.Thread(target=talk).start()
chat"""
CELLS = (
    "%load_ext nbtools",
    "%explore long.parquet",
    "%explore other.parquet",
    "%explore rows.csv",
    "%explore other.parquet",
    "%memory save goal growth --tags plan\n%memory save note leave\n%memory browse",
    TALK,
)
_GO = (
    "const go = root.querySelector('.goto'); go.value = '{row}';"
    " go.dispatchEvent(new KeyboardEvent('keydown', {{ key: 'Enter', bubbles: true }}))"
)
_THERE = (
    "root.querySelector('.cell.active')?.closest('[aria-rowindex=\"{at}\"]') &&"
    " root.querySelector('.cell.active').textContent !== ''"
)
_SORT = """const at = root.querySelector("[data-place='2'] .name"), { x, y } = at.getBoundingClientRect();
    for (const type of ["pointerdown", "pointerup"])
        at.dispatchEvent(new PointerEvent(type, { bubbles: true, pointerId: 1, clientX: x, clientY: y }))"""


class _Clock:
    def __init__(self, page: Any) -> None:
        self._page = page

    def took(self, widget: int, act: str, done: str) -> float:
        """Return the milliseconds from an act to what is to be seen of it, both as JavaScript about `root`."""
        cell = f"document.querySelectorAll('.jp-Notebook .jp-Cell')[{widget}]"
        return milliseconds(self._page, f"const root = {cell}.querySelector('.nbt'); {act}", done)

    def tell(self, what: str, took: list[float]) -> None:
        ordered = sorted(took)
        print(
            f"\n{what}: median {ordered[len(took) // 2]:.0f} ms, most {ordered[-1]:.0f} ms "
            f"(load {os.getloadavg()[0]:.1f})",
            end="",
        )

    def jumps(self, widget: int, rows: int, *, beside: int = 0) -> list[float]:
        targets = [
            1 + beside,
            rows // 2 + beside,
            rows - beside,
            *(rows * part // 11 + beside for part in range(1, 11)),
        ]
        return [self.took(widget, _GO.format(row=row), _THERE.format(at=row + 1)) for row in targets]


def _run(page: Any, cell: int) -> float:
    """Run a cell, and return the milliseconds until a row of its table is seen."""
    act = "window.tested.content.activeCellIndex = {}; window.jupyterapp.commands.execute('notebook:run-cell')"
    row = ".querySelector('.nbt .body [role=gridcell]:not(.waits)')"
    return milliseconds(page, act.format(cell), f"document.querySelectorAll('.jp-Notebook .jp-Cell')[{cell}]{row}")


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBTOOLS_KERNEL_WARM", "30s")


@pytest.mark.parametrize("lab", ["light"], indirect=True)
def test_pages_clicks_and_streams_come_at_once(lab: Any, open_notebook: Any) -> None:
    columns = "range::bigint as id, (range * 7919) % 1009 as k"
    duckdb.execute(f"copy (select {columns} from range({LONG})) to '{lab.root}/long.parquet'")
    duckdb.execute(f"copy (select {columns}, random() as f from range({SORTED})) to '{lab.root}/other.parquet'")
    duckdb.execute(f"copy (select {columns} from range({SORTED // 5})) to '{lab.root}/rows.csv'")
    (lab.root / "turns.yaml").write_text("turns:\n  - say: Yes.\n", encoding="utf-8")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    book.metadata["kernelspec"] = kernel
    nbformat.write(book, lab.root / "numbers.ipynb")
    notebook = open_notebook("numbers.ipynb")
    page, clock = notebook.page, _Clock(notebook.page)
    page.evaluate(
        "() => { window.tested.content.activeCellIndex = 0; window.jupyterapp.commands.execute('notebook:run-cell') }"
    )
    page.wait_for_timeout(3_000)  # what the first table needs is imported meanwhile
    clock.tell(f"first rows of {LONG:,}, the first of a kernel", [_run(page, 1)])
    # A person looks at them; beside the profiles of the table before, the next one takes up to twice as long.
    page.wait_for_timeout(2_000)
    clock.tell(f"first rows of {SORTED:,}", [_run(page, 2)])
    page.wait_for_timeout(2_000)
    clock.tell(f"first rows of a CSV file of {SORTED // 5:,}", [_run(page, 3)])
    clock.tell(f"first rows of {SORTED:,}, at once behind them", [_run(page, 4)])
    long, other = (page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".nbt") for cell in (1, 2))
    clock.tell(f"go to a row of {LONG:,}", clock.jumps(1, LONG))
    # Pages, while all rows are read for a profile.
    exact = long.locator("[data-place='0'] .exact")
    exact.wait_for()
    assert "of 100M" in exact.inner_text() or LONG != 100_000_000
    page.evaluate(
        """() => new MutationObserver((all) => {
            window.isRead ||= all.some((each) => each.target.textContent.includes('reading all'));
        }).observe(document.querySelector('.jp-Notebook'), { subtree: true, childList: true })"""
    )
    exact.click()
    page.wait_for_function("window.isRead")
    # Beside them: the view has kept the pages themselves.
    clock.tell("the same while all rows are read for a profile", clock.jumps(1, LONG, beside=5_000))
    long.locator("[data-place='0'] .exact").wait_for(state="detached")
    assert f"from all {LONG:,} rows" in long.locator("[data-place='0'] .bars").get_attribute("aria-label")
    # Sorted once, then any page.
    other.scroll_into_view_if_needed()
    sorting = clock.took(2, _SORT, "root.querySelector('[aria-sort=ascending]')")
    clock.tell(f"sort {SORTED:,} rows by random numbers, once", [sorting])
    clock.tell("go to a row of these", clock.jumps(2, SORTED))
    _click_and_stream(page, clock)
    assert notebook.abroad == []


_OPENED = "root.querySelector('.panel[aria-label={}] > *')?.offsetHeight"


def _click_and_stream(page: Any, clock: _Clock) -> None:
    took = [
        clock.took(2, "root.querySelector('.wrap').click()", "root.querySelector('.wrapped')"),
        clock.took(2, "root.querySelector('.wrap').click()", "!root.querySelector('.wrapped')"),
        clock.took(2, "root.querySelector('.to-chart').click()", _OPENED.format("Chart")),
        clock.took(2, "root.querySelector('.to-script').click()", _OPENED.format("Script")),
    ]
    page.evaluate(
        """() => { const book = window.tested.content; book.activeCellIndex = 5;
            window.jupyterapp.commands.execute('notebook:run-cell') }"""
    )
    page.locator(".note").first.wait_for()
    page.locator(".nbt .notes .note").first.wait_for()
    took.append(clock.took(5, "root.querySelector('[data-key=note]').click()", "root.querySelector('.side textarea')"))
    took.append(clock.took(5, "root.querySelector('.chip').click()", "root.querySelector('.chip[aria-pressed=true]')"))
    clock.tell("a click, until it is seen", took)
    page.evaluate(
        """() => { const book = window.tested.content; book.activeCellIndex = 6;
            window.grown = []; window.jupyterapp.commands.execute('notebook:run-cell');
            const look = () => {
                const text = document.querySelector('[data-text]')?.textContent ?? '', last = window.grown.at(-1);
                if (text.length && text.length !== last?.[1]) window.grown.push([performance.now(), text.length]);
                requestAnimationFrame(look); };
            look(); }"""
    )
    expected = "".join(f"{('<b>', ' wörd', ' 😀', chr(10), '&amp;')[n % 5]}{n}" for n in range(TOKENS))
    page.wait_for_function("(ending) => document.querySelector('[data-text]')?.textContent.endsWith(ending)", arg="999")
    assert page.evaluate("document.querySelector('[data-text]').textContent") == expected
    grown = page.evaluate("window.grown")
    gaps = [after[0] - before[0] for before, after in itertools.pairwise(grown)]
    clock.tell(f"{TOKENS} tokens in {(grown[-1][0] - grown[0][0]) / 1000:.1f} s, between two that are seen", gaps)
