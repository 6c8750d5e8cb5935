"""Lab's front end knows nbtools: SQL in colour, errors at their place, and a cell that is formatted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.browser.bare import becomes, comes_true

pytestmark = pytest.mark.slow

SQL = """%%sql -o n
select place.city, count(*) as n -- it's "a" note
from 'rows.csv' place
where place.city <> :name and place.n > 7 qualify n > 1"""
FORMATTED = """%%sql -o n
select
  place.city,
  count(*) as n -- it's "a" note
from 'rows.csv' place
where place.city <> :name
  and place.n > 7
qualify n > 1"""
CELLS = (
    "%load_ext nbtools\nname = 'x'",
    SQL,
    "x = 'python'  # where it's",
    "top = 1\n%sql select 'it''s', 7 as n",
    '%%code bash\nif true; then echo "it\'s"; fi',
    "%%sql\nselect city\nfrom 'rows.csv'\nwhere town = 1",
)


def _notebook(root: Path) -> None:
    (root / "rows.csv").write_text("city,n\nOslo,1\n", encoding="utf-8")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, root / "sql.ipynb")


def _colours(page: Any, cell: int) -> dict[str, list[str]]:
    """Return the words of a cell by their colours, as they are seen."""
    return dict(
        page.evaluate(
            """(at) => {
                const seen = {}, cell = document.querySelectorAll('.jp-Notebook .jp-Cell')[at];
                for (const line of cell.querySelectorAll('.cm-line')) {
                    const texts = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
                    let last = null;
                    while (texts.nextNode()) {
                        const { color } = getComputedStyle(texts.currentNode.parentNode), text = texts.currentNode.data;
                        if (last?.color === color) last.text += text;
                        else (seen[color] ??= []).push(last = { color, text });
                    }
                }
                for (const color in seen) seen[color] = seen[color].map((each) => each.text.trim());
                return seen;
            }""",
            cell,
        )
    )


def _run(page: Any, cell: int) -> None:
    page.evaluate(
        """(at) => { window.tested.content.activeCellIndex = at;
            window.jupyterapp.commands.execute('notebook:run-cell') }""",
        cell,
    )
    page.wait_for_function("(at) => window.tested.content.widgets[at].model.executionCount !== null", arg=cell)


def _words(colours: dict[str, list[str]], word: str) -> set[str]:
    return {each for words in colours.values() if word in words for each in words}


def _format(page: Any, way: str) -> None:
    if way == "mouse":
        page.locator(".jp-Cell").nth(1).locator(".cm-content").click(button="right")
        page.get_by_role("menuitem", name="Format SQL").click()
    else:
        page.keyboard.press("Alt+Shift+F")


@pytest.mark.parametrize(("lab", "way"), [("light", "mouse"), ("notebook", "keys")], indirect=["lab"])
def test_scripts_are_in_colour_mistakes_at_their_place_and_cells_formatted(
    lab: Any, open_notebook: Any, way: str
) -> None:
    _notebook(lab.root)
    notebook = open_notebook("sql.ipynb")
    page = notebook.page
    comes_true(page, lambda: _are_in_colour(page))  # a language of Lab's loads when it is asked for
    _run(page, 0)
    _run(page, 5)
    becomes(page, page.locator(".nbt-mistake").all_inner_texts, ["town"])

    page.evaluate("window.tested.content.activeCellIndex = 1")
    _format(page, way)
    becomes(page, lambda: _source(page), FORMATTED)
    page.locator(".jp-Cell").nth(1).locator(".cm-content").click()
    page.keyboard.press("Control+z")
    becomes(page, lambda: _source(page), SQL)
    # The editor knows the language: lines are commented out in it.
    page.keyboard.press("Control+End")
    page.keyboard.press("Control+/")
    becomes(page, lambda: _source(page), SQL.replace("\nwhere", "\n-- where"))
    page.evaluate("window.tested.content.widgets[1].model.sharedModel.setSource('%%sql\\nselect \"a')")
    _format(page, way)
    page.locator(".Toastify__toast").wait_for()
    assert notebook.abroad == []


def _source(page: Any) -> str:
    return str(page.evaluate("window.tested.content.widgets[1].model.sharedModel.getSource()"))


def _are_in_colour(page: Any) -> None:
    query = _colours(page, 1)
    keywords, note = _words(query, "select"), _words(query, '-- it\'s "a" note')
    assert {"as", "from", "where", "and", "qualify"} <= keywords
    assert len(note) == 1
    assert _words(query, "'rows.csv'") == {"'rows.csv'"}
    assert not {"name", "place", "city", "'rows.csv'"} & keywords
    assert _words(query, "name") == {"name"}
    assert {"7", "1"} <= _words(query, "7")
    # Python is left as it is.
    assert _words(_colours(page, 2), "# where it's") == {"# where it's"}
    assert _words(_colours(page, 3), "top = 1") == set()
    assert "'it''s'" in _words(_colours(page, 3), "'it''s'")
    assert "then" in _words(_colours(page, 4), "if")
