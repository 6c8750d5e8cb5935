"""The magics in JupyterLab under the hands of a person: light and dark, Stop, Tab, help."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.browser.bare import becomes, comes_true

pytestmark = [pytest.mark.races, pytest.mark.slow]

CELLS = (
    "%load_ext nbtools",
    "import pandas as pd\nsales = pd.DataFrame({'city': ['Bern', 'Chur', 'Bern'], 'amount': [1, 2, 3]})",
    "%nbtools",
    '%memory save goal {"kpi": "churn", "<b>": "&amp;"} --tags plan q3',
    "%memory list",
    "%%nbsql\nselect city, sum(amount) as total from sales group by city order by total",
    "%tools",
    "%%data_analyze sales.csv\nimport pandas as pd\nd = pd.read_csv(input_file_path)\nprint(len(d))\nd",
    "%%data_visualize sales.csv -i out.png\nimport pandas as pd\npd.read_csv(input_file_path).plot.bar(x='city');",
    "%tools --history -n 4",
    "%nbtools doctor",
)


def _write(root: Path, *cells: str) -> None:
    (root / "sales.csv").write_text("city,amount\nBern,10\nChur,32\n", encoding="utf-8")
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(book, root / "magics.ipynb")


def _look(page: Any, name: str) -> None:
    """Leave pictures of every cell where a person wants to look at them."""
    shots = os.environ.get("NBTOOLS_SHOTS")
    if shots:
        for number, cell in enumerate(page.locator(".jp-Notebook .jp-Cell").all()):
            cell.screenshot(path=Path(shots) / f"{name}-{number:02d}.png")


def _luminance(colour: str) -> float:
    """Return how bright a CSS colour is, 0 to 1."""
    most = 1 if colour.startswith("color(srgb") else 255  # what is mixed of two colours is written so
    red, green, blue = (float(part) / most for part in re.findall(r"[\d.]+", colour)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_magic_shows_itself_in_the_theme(lab: Any, open_notebook: Any, request: pytest.FixtureRequest) -> None:
    _write(lab.root, *CELLS)
    notebook = open_notebook("magics.ipynb")
    notebook.run_all()
    page = notebook.page
    theme = request.node.callspec.id
    becomes(page, page.locator(".jp-OutputArea-output img").count, 1)

    def are_drawn() -> None:
        assert page.locator(".jp-OutputArea-output table").count() >= 6
        told = page.locator(".jp-OutputArea-output").all_inner_texts()
        assert any('"<b>": "&amp;"' in text for text in told), "what was saved is shown as it is, not as markup"

    comes_true(page, are_drawn)
    _look(page, f"magics-{theme}")
    for kind in ("application/vnd.jupyter.stderr", "application/vnd.jupyter.error"):
        found = page.locator(f'.jp-OutputArea-output[data-mime-type="{kind}"]')
        assert found.count() == 0, found.all_inner_texts()
    colours = page.evaluate(
        """() => [...document.querySelectorAll('.jp-OutputArea-output table td, .jp-OutputArea-output div')]
            .filter(each => each.innerText.trim())
            .map(each => getComputedStyle(each).color)"""
    )
    bright = [_luminance(colour) for colour in set(colours)]
    assert all(value > 0.3 if theme == "dark" else value < 0.6 for value in bright), "text is hard to read"
    assert notebook.abroad == [], "nothing may leave this machine"


@pytest.mark.parametrize("lab", ["light"], indirect=True)
def test_stop_tab_and_help_work_by_hand(lab: Any, open_notebook: Any) -> None:
    script = "%%data_analyze sales.csv\nimport time\nprint('so far', flush=True)\ntime.sleep(600)"
    timed = ("%%time\nabcd", "%%time\nabcde")
    # Jedi reads for seconds at its first question: longer than JupyterLab waits.
    first = "%load_ext nbtools\n%config IPCompleter.use_jedi = False\nabcdef, abcdeg = [5], 6\n%memory save goal 5"
    _write(lab.root, first, script, "%memory get go", *timed)
    notebook = open_notebook("magics.ipynb")
    page = notebook.page
    first, second, third, *others = page.locator(".jp-Notebook .jp-CodeCell").all()
    first.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    first.get_by_text("saved successfully").wait_for()
    second.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    second.locator(".jp-OutputArea").get_by_text("so far").wait_for()
    page.evaluate("() => window.jupyterapp.commands.execute('kernelmenu:interrupt')")
    second.get_by_text("you stopped it").wait_for()
    assert "Traceback" not in second.inner_text()
    third.locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.press("Tab")
    page.locator(".jp-Completer-item").get_by_text("goal").wait_for()
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Enter")
    third.locator(".jp-OutputArea").get_by_text("5", exact=True).wait_for()
    for cell in others:  # a magic of IPython's own, after one of ours
        cell.locator(".cm-content").click()
        page.keyboard.press("Control+End")
        page.keyboard.press("Tab")
        page.locator(".jp-Completer-item").get_by_text("abcdef").wait_for()
        page.keyboard.press("Enter")
        page.keyboard.press("Control+Enter")
        cell.locator(".jp-OutputArea").get_by_text("[5]", exact=True).wait_for()


@pytest.mark.parametrize("lab", ["light"], indirect=True)
def test_the_time_of_long_work_goes_and_a_flood_leaves_the_page_usable(lab: Any, open_notebook: Any) -> None:
    slow = "%%data_analyze sales.csv\nimport time\nprint('one', flush=True)\ntime.sleep(5)\nprint('two')"
    flood = "%%data_analyze sales.csv\nfor i in range(300_000): print(i)"
    _write(lab.root, "%load_ext nbtools", slow, flood)
    notebook = open_notebook("magics.ipynb")
    page = notebook.page
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    # While it runs, the time stands above the output.
    page.wait_for_function(
        """() => {
            const text = [...document.querySelectorAll('.jp-OutputArea-output')].map(each => each.innerText).join(' ');
            return /data_analyze · running for \\d+ s at [-\\d]+ [:\\d]+\\s+one/.test(text);
        }"""
    )
    notebook.run_all()
    told = page.evaluate("() => window.tested.content.model.toJSON().cells.slice(1).map(cell => cell.outputs)")
    assert [output["output_type"] for output in told[0]] == ["stream", "execute_result"]
    assert "".join(told[0][0]["text"]) == "one\ntwo\n"
    text = "".join(told[1][0]["text"])
    assert len(text.splitlines()) < 2_100
    assert text.endswith("299999\n")
    begun = time.monotonic()
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("lab", ["light"], indirect=True)
def test_the_time_vanishes_when_the_kernel_ends_and_is_true_in_the_file(lab: Any, open_notebook: Any) -> None:
    _write(lab.root, "%load_ext nbtools", "%%data_analyze sales.csv\nprint('one', flush=True)\nwhile True: pass")
    page = open_notebook("magics.ipynb").page
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    page.get_by_text("data_analyze · running for").wait_for()
    page.evaluate("() => { window.tested.sessionContext.session.kernel.restart(); }")
    page.get_by_text("data_analyze · running for").wait_for(state="hidden")
    cell = page.evaluate("() => window.tested.content.model.toJSON().cells[1]")
    shown = [output["data"]["text/plain"] for output in cell["outputs"] if output["output_type"] == "display_data"]
    assert re.fullmatch(r"data_analyze · running for \d+ s at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "".join(shown[0]))


DAY = (
    "%load_ext nbtools",
    "import pandas as pd\ndf = pd.DataFrame({'city': ['Bern', 'Chur', 'Bern'], 'amount': [1, 2, 4]})",
    "%%data_analyze df -o summary\nsummary = df.groupby('city', as_index=False).amount.sum()",
    "%%nbsql -o top\nselect city, amount from summary order by amount desc limit 1",
    "%nbsql --out-file top.parquet --overwrite from top",
    "%memory save top {top}",
)
NEXT_DAY = ("%load_ext nbtools", "%memory get top -o top", "top", "%nbsql select city from 'top.parquet'")


@pytest.mark.parametrize("lab", ["light"], indirect=True)
def test_tables_go_from_cell_to_cell_to_a_file_and_through_a_restart(lab: Any, open_notebook: Any) -> None:
    _write(lab.root, *DAY, *NEXT_DAY)
    notebook = open_notebook("magics.ipynb")
    notebook.run_all()
    page = notebook.page
    page.evaluate("() => window.tested.sessionContext.session.kernel.restart()")
    page.evaluate(
        """async first => {
            const {content, sessionContext} = window.tested;
            content.model.sharedModel.cells.forEach(cell => cell.cell_type === 'code' && cell.setOutputs([]));
            for (let index = first; index < content.widgets.length; index++) {
                content.activeCellIndex = index;
                content.deselectAll();
                await window.jupyterapp.commands.execute('notebook:run-cell');
            }
        }""",
        len(DAY),
    )
    _look(page, "day")
    outputs = page.evaluate("() => window.tested.content.model.toJSON().cells.map(cell => cell.outputs)")
    assert outputs[: len(DAY)] == [[]] * len(DAY), "only the cells below were run again"
    assert [len(found) for found in outputs[len(DAY) :]] == [0, 0, 1, 2]

    def is_drawn() -> None:
        text = "".join(page.locator(".jp-OutputArea-output").all_inner_texts())
        assert re.search(r"Bern\s+5", text), "the table of the day before"
        assert "1 row" in text

    comes_true(page, is_drawn)
    assert notebook.abroad == []
