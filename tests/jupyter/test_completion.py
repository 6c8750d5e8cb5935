"""What is offered while a line of ours is written."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from typing import Any

import pandas as pd
import pytest
from IPython.core.completer import provisionalcompleter

from nbtools.jupyter.completion.sql_completion import complete_query
from nbtools.jupyter.options import NBTools
from nbtools.jupyter.session import NotebookSession


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("%memory ", {"save", "get", "history"}),
        ("%memory s", {"save", "search", "scope"}),
        ("x = %memory s", {"save", "search", "scope"}),
        ("%memory save k v --t", {"--tags", "--ttl"}),
        ("%memory scope ", {"agent", "workflow", "node"}),
        ("%memory find --match ", {"all", "any"}),
        ("%tool calc", {"calculator"}),
        ("%tools calc", {"calculator"}),
        ("%tool calculator --e", {"--expression"}),
        ("%tool memory_save --scope ", {"agent", "workflow", "node"}),
        ("%tool memory_retrieve --match a", {"all", "any"}),
        ("%%data_analyze sal", {"sales.csv"}),
        ("%%data_visualize sales.csv -i sal", {"sales.csv"}),
        ("%%code py", {"python"}),
        ("%nbtools config sql_l", {"sql_limit"}),
        ("%%nbsql --l", {"--limit"}),
        ("%nbsql select * from 'sal", {"sales.csv"}),
        ("%%nbsql\nSELECT * FROM nbt", {"nbtools.memory", "nbtools.calls"}),
        ("%%nbsql\nsel", {"select"}),
    ],
)
def test_subcommands_options_and_values_are_offered(notebook, text: str, offered: set[str]) -> None:
    notebook.run("%tools")  # the shelf is imported by the first use of a tool
    assert offered <= set(notebook.complete(text))


@pytest.mark.processes
def test_the_first_tab_knows_the_tools_and_loads_nothing_heavy() -> None:
    script = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "nbtools")
offered = shell.Completer.complete(line_buffer="%tool ", cursor_pos=6)[1]
assert "calculator" in offered and "%%html" not in offered, offered[:5]
print(*({"duckdb", "pandas", "pydantic", "sqlglot", "matplotlib"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_keys_tags_frames_and_columns_are_offered(notebook) -> None:
    notebook.run("%memory save goal 5 --tags plan")
    notebook.shell.user_ns |= {"sales": pd.DataFrame({"price": [1], "city": ["Bern"]}), "year": 2024}
    assert notebook.complete("%memory get g") == ["goal"]
    assert notebook.complete("%memory find --tags ") == ["plan"]
    assert notebook.complete("%nbsql select * from sa") == ["sales"]
    assert "price" in notebook.complete("%nbsql select pr| from sales")
    assert "price" in notebook.complete("%%nbsql\nselect city,\n  pr|\nfrom sales")
    assert notebook.complete("%%nbsql\nselect s.pr|\nfrom sales s") == ["s.price"]
    assert notebook.complete("%nbsql select * from sales where y > :ye") == ["year"]


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("%nbsql select uni| from odd", ['"unit price"']),
        ("%nbsql select | from odd", ["Größe"]),
        ('%nbsql select "unit p| from odd', ['"unit price"']),
        ("%nbsql select o.uni| from odd as o", ['o."unit price"']),
        ('%nbsql select "my odd".uni| from odd "my odd"', ['"my odd"."unit price"']),
        ("%nbsql select B.pr| from odd a, sales b", ["B.price"]),
        ("%nbsql select sales.ci| from 'sales.csv'", ["sales.city"]),
        ("%nbsql select b.pr| from odd a, sales b", ["b.price"]),
        ("%nbsql select gro| from odd where 1 = 1", ['"group"', "group"]),
        ("%nbsql select * from ord", ['"order"']),
        ("%nbsql select ci| from 'sales.csv'", ["city"]),
        ("%nbsql select f.| from 'sales.csv' f", ["f.city", "f.amount"]),
        ("%%nbsql\nselect am|\nfrom read_csv('my sales.csv', header = true) as s", ['"am ount"']),
        ("%nbsql select * from 'my", ["my sales.csv"]),
        ("%nbsql select ci| from '/etc/passwd'", []),
        ("%%data_analyze my", ['"my sales.csv"']),
    ],
)
def test_names_are_offered_as_they_must_be_written(notebook, folder, text: str, offered: list[str]) -> None:
    (folder / "my sales.csv").write_text("city,am ount\nBern,10\n")
    odd = pd.DataFrame({"unit price": [1], "group": [2], "Größe": [3]})
    notebook.shell.user_ns |= {"odd": odd, "sales": pd.DataFrame({"price": [1]}), "order": odd}
    found = notebook.complete(text)
    assert found == offered or (offered and found[: len(offered)] == offered)


def test_a_line_that_could_not_run_completes_to_nothing(notebook, capsys) -> None:
    assert notebook.complete("%tool no_such_tool --") == []
    assert capsys.readouterr() == ("", "")


def test_other_lines_are_left_to_others(notebook) -> None:
    assert notebook.complete("x = 7 % me") == []
    assert notebook.complete("%timeit s") == []
    assert notebook.complete("import o") == []
    assert notebook.complete("%%html\nsel") == []


OTHERS = (
    "%%time\nabcd",
    "%%time\nos.getcw",
    "%%timeit n = 1\nfor each in abcd",
    "%%html\n<b>abcd",
    "%%data_analyze sales.csv\nos.getcw",
    "x = 7 % abcd",
    "os.getcw",
)


def tab(shell: Any, text: str) -> list[tuple[int, int, str]]:
    """Return what IPython inserts for Tab at the end of a text: from, to, and the new text."""
    with provisionalcompleter():
        return [(found.start, found.end, found.text) for found in shell.Completer.completions(text, len(text))]


def test_tab_in_others_magics_answers_as_before_the_extension(bare) -> None:
    bare.run("import os\nabcdef = 1")
    before = [tab(bare.shell, text) for text in OTHERS]
    assert all(before)
    bare.run("%load_ext nbtools")
    for _ in range(2):  # an answer must not change the next one
        assert [tab(bare.shell, text) for text in OTHERS] == before
        assert "save" in {text for *_, text in tab(bare.shell, "%memory sa")}


def test_tab_says_nothing_where_settings_are_wrong(bare, folder, capsys) -> None:
    (folder / "nbtools.toml").write_text('sql_limit = "many"\n')
    bare.run("%load_ext nbtools")
    assert bare.complete("%%nbsql\nsel") == []
    assert capsys.readouterr() == ("", "")


def test_no_memory_is_made_to_complete_a_key(notebook, tmp_path) -> None:
    assert notebook.complete("%memory get ") == []
    assert list((tmp_path / "home").iterdir()) == []


def test_tables_of_a_database_are_offered_once_it_was_asked(notebook, folder) -> None:
    with contextlib.closing(sqlite3.connect(folder / "shop.db")) as shop:
        shop.execute("create table items as select 7 as price, 8 as 'in stock'")
        shop.commit()
    url = f"sqlite:///{folder / 'shop.db'}"
    assert notebook.complete(f"%nbsql {url} select * from it") == []
    notebook.run(f"%nbsql {url} select 1 as x")
    assert notebook.complete(f"%nbsql {url} select * from it") == ["items"]
    assert notebook.complete(f"%%nbsql {url}\nselect *\nfrom it") == ["items"]
    assert notebook.complete(f"%%nbsql {url}\nselect i.|\nfrom items i") == ["i.price", 'i."in stock"']


def test_a_file_is_looked_into_once_until_it_changes(notebook, folder) -> None:
    file = folder / "wide.csv"
    file.write_text("leftmost,second\n1,2\n", encoding="utf-8")
    session = NotebookSession(notebook.shell, NBTools(), short_names=dict)
    session.completion_timeout = 20.0
    for _ in range(2):
        assert "leftmost" in complete_query(session, "select leftm", "select leftm from 'wide.csv'")[1]
        assert list(session.file_columns.values()) == [("leftmost", "second")]
    file.write_text("leftmost,second,third\n1,2,3\n", encoding="utf-8")
    assert "third" in complete_query(session, "select thi", "select thi from 'wide.csv'")[1]
