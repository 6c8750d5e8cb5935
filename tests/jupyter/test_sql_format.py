"""What JupyterLab's "Format SQL" gets from a kernel."""

from __future__ import annotations

import nbtools
from nbtools.jupyter.sql_format import _dialect, formatted_cell


def test_the_line_of_the_magic_stays(notebook) -> None:
    answer = formatted_cell("%%sql -o n --limit 3\nselect a from t", notebook.shell)
    assert answer.data == {"version": nbtools.__version__, "text": "%%sql -o n --limit 3\nselect a\nfrom t"}


def test_the_dialect_is_that_of_the_connection(notebook) -> None:
    query = r"select 'it\'s' from t"
    assert "problem" in formatted_cell(f"%%sql\n{query}", notebook.shell).data
    assert "text" in formatted_cell(f"%%sql --dialect mysql\n{query}", notebook.shell).data
    notebook.run("import sqlite3; crm = sqlite3.connect('crm.db'); crm.execute('create table t (a)')")
    notebook.run("%sql crm")
    assert _dialect("%%sql", notebook.shell) == "sqlite"


def test_what_cannot_be_formatted_is_said(notebook) -> None:
    assert "problem" in formatted_cell("%%sql\nselect 'open", notebook.shell).data
