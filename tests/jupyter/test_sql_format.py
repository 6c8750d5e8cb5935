"""What JupyterLab's "Format SQL" gets from a kernel."""

from __future__ import annotations

import nbtools
from nbtools.jupyter.sql_format import formatted_cell


def test_the_line_of_the_magic_stays(notebook) -> None:
    answer = formatted_cell("%%sql -o n --limit 3\nselect a from t", notebook.shell)
    assert answer.data == {"version": nbtools.__version__, "text": "%%sql -o n --limit 3\nSELECT\n  a\nFROM t"}


def test_the_dialect_is_that_of_the_connection(notebook) -> None:
    notebook.run("import sqlite3; crm = sqlite3.connect('crm.db'); crm.execute('create table t (a)')")
    query = "select datetime('now'), iif(a, 1, 2) from t"
    assert (
        formatted_cell(f"%%sql --dialect sqlite\n{query}", notebook.shell)
        .data["text"]
        .startswith("%%sql --dialect sqlite\nSELECT\n")
    )
    notebook.run("%sql crm")
    assert "IIF(a, 1, 2)" in formatted_cell(f"%%sql\n{query}", notebook.shell).data["text"]


def test_what_cannot_be_formatted_is_said(notebook) -> None:
    assert "problem" in formatted_cell("%%sql\nselect from where", notebook.shell).data
