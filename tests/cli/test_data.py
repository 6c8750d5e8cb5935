"""``nbtools memory`` and ``nbtools sql``: values outlive the process, queries only read."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from nbtools import Workbench
from tests.conftest import mostly_slow

pytestmark = pytest.mark.broad


@pytest.mark.slow
def test_a_value_outlives_the_process(nbtools_process: Callable[..., Any]) -> None:
    assert nbtools_process("memory", "save", "a/b", "plain text", "--tags", "x").code == 0
    assert nbtools_process("memory", "get", "a/b").out == "plain text\n"


@pytest.mark.usefixtures("memory_file")
def test_a_value_has_tags_and_versions(nbtools: Callable[..., Any]) -> None:
    assert nbtools("memory", "save", "a/b", '{"n": 1}', "--tags", "x", "y").code == 0
    assert nbtools("memory", "save", "a/b", "plain text", "--tags", "x").code == 0
    assert nbtools("memory", "get", "a/b").out == "plain text\n"
    assert [json.loads(line)["version"] for line in nbtools("memory", "history", "a/b").out.splitlines()] == [1, 2]
    assert "a/b" in nbtools("memory", "find", "x").out
    nothing = nbtools("memory", "find", "y")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "no note matches\n")
    assert "a/b" in nbtools("memory", "search", "plain").out
    assert nbtools("memory", "delete", "a/b").code == 0
    gone = nbtools("memory", "get", "a/b")
    assert (gone.code, gone.out) == (1, "")
    assert "a/b" in gone.err


def test_a_text_that_begins_like_json_is_told_to_be_saved_as_text(nbtools: Callable[..., Any]) -> None:
    cut = nbtools("memory", "save", "k", '{"a": 1')
    assert (cut.code, cut.out) == (0, "saved k (version 1)\n")
    assert cut.err.startswith("saved as text: it is not JSON (Expecting ")
    for text in ("one", "[1]", '{"a": 1}'):
        assert nbtools("memory", "save", "k", text).err == ""


@pytest.mark.usefixtures("memory_file")
def test_a_terminal_shows_items_and_tables_as_a_person_reads_them(
    nbtools: Callable[..., Any], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Workbench(home=environment["NBTOOLS_HOME"]) as wb:
        wb.memory.write("a/t", pd.DataFrame({"n": [1, 2]}), tags=["x"])
        wb.memory.write("b", pd.DataFrame({"n": range(1000), "text": ["x" * 90] * 1000}))
    assert nbtools("memory", "get", "a/t").out.split() == ["n", "0", "1", "1", "2"]
    assert (rows := nbtools("memory", "get", "b").out).count("\n") == 1001
    assert rows.count("x" * 90) == 1000
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = nbtools("memory", "get", "b").out
    assert (shown.count("\n"), "the first 50 of 1,000 rows" in shown) == (52, True)
    assert nbtools("memory", "delete", "b").code == 0
    header, row = nbtools("memory", "list").out.splitlines()
    assert header.split() == ["key", "value", "tags", "version", "updated"]
    assert row.split()[:3] == ["a/t", "table,", "2"]
    assert nbtools("memory", "history", "a/t").out.splitlines()[1].startswith("write ")


@pytest.mark.usefixtures("memory_file")
def test_a_comma_separates_tags_as_a_space_does(nbtools: Callable[..., Any]) -> None:
    assert nbtools("memory", "save", "a/b", "x", "--tags", "p,q", "r").code == 0
    assert [json.loads(line)["tags"] for line in nbtools("memory", "find", "q").out.splitlines()] == [["p", "q", "r"]]
    assert "a/b" in nbtools("memory", "find", "p,r", "--match", "all").out


@pytest.mark.usefixtures("memory_file")
def test_a_forgotten_value_has_no_history(nbtools: Callable[..., Any]) -> None:
    nbtools("memory", "save", "a/b", "hunter2-geheim")
    nbtools("memory", "save", "a/b", "plain text")
    assert nbtools("memory", "forget", "a/b").out == "erased a/b (versions: 2)\n"
    assert nbtools("memory", "history", "a/b").out == ""
    missed = nbtools("memory", "forget", "a/b")
    assert (missed.code, missed.out) == (1, "")


@pytest.mark.usefixtures("memory_file")
def test_a_deleted_value_is_restored(nbtools: Callable[..., Any]) -> None:
    nbtools("memory", "save", "goal", "1")
    nbtools("memory", "save", "goal", "2")
    nbtools("memory", "delete", "goal")
    assert "→ nbtools memory restore 'goal' brings it back" in nbtools("memory", "get", "goal").err
    assert nbtools("memory", "restore", "goal").out == "restored goal (version 4)\n"
    assert "→ nbtools memory --agent x list shows" in nbtools("memory", "--agent", "x", "get", "goal").err
    assert nbtools("memory", "get", "goal").out == "2\n"
    assert nbtools("memory", "restore", "goal", "1").code == 0
    assert nbtools("memory", "get", "goal").out == "1\n"
    assert nbtools("memory", "restore", "none").code == 1


@pytest.mark.usefixtures("memory_file")
def test_scopes_stay_apart(nbtools: Callable[..., Any]) -> None:
    nbtools("memory", "save", "k", "mine")
    nbtools("memory", "--workflow", "w", "save", "k", "the workflow's")
    nbtools("memory", "--workflow", "w", "--node", "n", "save", "k", "the node's")
    assert nbtools("memory", "get", "k").out == "mine\n"
    assert nbtools("memory", "--workflow", "w", "get", "k").out == "the workflow's\n"
    nbtools("memory", "--agent", "ann", "save", "k", "ann's")
    assert nbtools("memory", "--agent", "ann", "get", "k").out == "ann's\n"
    assert nbtools("memory", "--workflow", "w", "--node", "n", "get", "k").out == "the node's\n"


@pytest.mark.usefixtures("memory_file")
@pytest.mark.filterwarnings("always:of this process's calls")
def test_what_goes_wrong_at_the_end_is_told_in_a_line(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = nbtools("memory", "list", NBTOOLS_HOME=str(tmp_path / "file" / "home"))
    assert done.code == 1
    assert done.err.startswith("warning: of this process's calls, 1 will never be on record")
    assert ".py" not in done.err


@pytest.mark.usefixtures("memory_file")
def test_items_are_exported_and_imported(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    nbtools("memory", "save", "a", "1")
    nbtools("memory", "save", "b", "two")
    assert nbtools("memory", "export", "all.jsonl").code == 0
    other = {"NBTOOLS_HOME": str(tmp_path / "other")}
    assert nbtools("memory", "import", "all.jsonl", **other).out == "2 items read from all.jsonl\n"
    nbtools("memory", "save", "a", "2", **other)
    again = nbtools("memory", "import", "all.jsonl", **other)
    told = "1 item has another value than before (a); nbtools memory history KEY shows the earlier ones\n"
    assert (again.out, again.err) == ("2 items read from all.jsonl\n", told)
    assert (nbtools("memory", "get", "a", **other).out, nbtools("memory", "get", "b", **other).out) == ("1\n", "two\n")


@pytest.mark.usefixtures("memory_file")
def test_a_save_keeps_the_tags_and_the_end_that_it_does_not_name(nbtools: Callable[..., Any]) -> None:
    for more in (("1", "--tags", "x", "--ttl", "7d"), ("2",), ("3", "--ttl", "never", "--tags")):
        assert nbtools("memory", "save", "a", *more).code == 0
    first, kept, freed = map(json.loads, nbtools("memory", "history", "a").out.splitlines())
    assert (kept["value"], kept["tags"], kept["expires_at"]) == (2, ["x"], first["expires_at"])
    assert first["expires_at"]
    assert (freed["value"], freed["tags"], freed["expires_at"]) == (3, [], None)


def test_rows_go_to_a_file_that_is_replaced_on_request(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    done = nbtools("sql", "select range as n from range(100_000)", "--out-file", "rows.csv")
    assert (done.code, done.out) == (0, "")
    assert "100,000 rows written to rows.csv" in done.err
    again = nbtools("sql", "select 1 as n", "--out-file", "rows.csv")
    assert again.code != 0
    assert "exists already" in again.err
    assert nbtools("sql", "select 1 as n", "--out-file", "rows.csv", "--overwrite").code == 0
    assert (tmp_path / "rows.csv").read_text() == "n\n1\n"


def test_a_query_reads_files_in_every_format(nbtools: Callable[..., Any], penguins: str) -> None:
    query = f"select species, count(*) as n from '{penguins}' where year >= :year group by all order by n desc"
    rows = nbtools("sql", query, "--param", "year=2007", "--format", "json").json
    assert rows == [{"species": "Adelie", "n": 152}, {"species": "Gentoo", "n": 124}, {"species": "Chinstrap", "n": 68}]
    text = nbtools("sql", query, "--param", "year=2007", "--format", "csv").out
    assert [row["species"] for row in csv.DictReader(io.StringIO(text))] == ["Adelie", "Gentoo", "Chinstrap"]
    assert "Gentoo" in nbtools("sql", "-", "--param", "year=2007", stdin=query).out


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("delete from x", "read-only"),
        ("select 1; select 2", "one statement"),
        ("selec 1", "line 1"),
        ("select * from nowhere", "nowhere"),
        ("select * from '/etc/passwd'", "/etc/passwd"),
        ("select '%agent resume', x", "select '%agent resume', x"),
    ],
)
def test_what_is_refused_says_why_in_three_lines(nbtools: Callable[..., Any], query: str, said: str) -> None:
    done = nbtools("sql", query)
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_query_can_be_judged_without_running(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    assert nbtools("sql", "--check", "select 1").out == "allowed: reads no table and no file\n"
    (tmp_path / "x.csv").write_text("a\n1\n", encoding="utf-8")
    assert nbtools("sql", "--check", "from 'x.csv'").out == "allowed: reads x.csv\n"
    assert nbtools("sql", "--check", "drop table x").code == 1
    assert nbtools("sql", "--check", "select :n + 1", "--param", "n=3").code == 0
    for check in ([], ["--check"]):
        without = nbtools("sql", *check, "select :n + :m", "--param", "n=3")
        assert (without.code, without.out) == (1, "")
        assert without.err.endswith("→ If :m is a parameter, give it a value: --param m=…\n")
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as own:
        own.execute("create view outside as from read_csv('/etc/hostname')")
    refused = nbtools("sql", "--check", "from outside", "--connection", "duckdb:///shop.duckdb")
    assert (refused.code, refused.out) == (1, "")
    assert "/etc/hostname" in refused.err


@pytest.mark.parametrize("form", mostly_slow(["csv", "json", "table"], 3))
def test_a_pipe_gets_every_row_of_a_file(nbtools: Callable[..., Any], tmp_path: Path, form: str) -> None:
    (tmp_path / "big.csv").write_text("n\n" + "\n".join(map(str, range(200_000))), encoding="utf-8")
    done = nbtools("sql", "from 'big.csv'", "--format", form)
    assert done.code == 0
    rows = {"csv": lambda: done.out.split()[1:], "json": lambda: [row["n"] for row in done.json]}
    found = rows.get(form, lambda: done.out.splitlines()[1:-1])()
    assert sum(map(int, found)) == 200_000 * 199_999 // 2
    if form == "json":
        assert len(nbtools("sql", "from 'big.csv'", "--format", "json", "--limit", "7").json) == 7
        assert len(nbtools("sql", "from 'big.csv'", "--format", "json", "--limit", "none").json) == 200_000


def test_a_query_that_fails_late_leaves_the_pipe_empty(nbtools: Callable[..., Any]) -> None:
    query = "select if(range > 150_000, error('late'), 1) as n from range(200_000)"
    for form in ("csv", "json", "table"):
        done = nbtools("sql", query, "--format", form)
        assert (done.code, done.out) == (1, "")
        assert "late" in done.err


def test_a_table_that_is_too_large_says_how_to_go_on(nbtools: Callable[..., Any]) -> None:
    done = nbtools("sql", "from range(200_000)", NBTOOLS_SQL_MAX_BYTES="100kB")
    assert (done.code, done.out) == (1, "")
    assert "--format csv" in done.err
    assert len(nbtools("sql", "from range(200_000)", "--format", "csv", NBTOOLS_SQL_MAX_BYTES="100kB").out) > 1_000_000


def test_how_files_were_read_is_told_wherever_their_rows_go(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("year\n2001\nN/A\n", encoding="utf-8")
    for way in ((), ("--json",), ("--out-file", "g.parquet")):
        assert "N/A" in nbtools("sql", "from 'g.csv'", *way).err


@pytest.mark.usefixtures("memory_file")
def test_what_was_called_is_a_table(nbtools: Callable[..., Any]) -> None:
    nbtools("call", "calculator", "--json", '{"expression": "1 + 1"}')
    rows = nbtools("sql", "select tool, caller, ok from nbtools.calls", "--format", "json").json
    assert {"tool": "calculator", "caller": "cli", "ok": True} in rows


def test_a_setting_with_a_mistake_is_wrong_usage(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "nbtools.toml").write_text("sandbx = 'off'\n", encoding="utf-8")
    done = nbtools("doctor")
    assert done.code == 2
    assert "Did you mean 'sandbox'?" in done.err


@pytest.mark.parametrize("ttl", ["0", "-5", "soon"])
def test_a_ttl_that_is_none_is_wrong_usage_in_words(nbtools: Callable[..., Any], ttl: str) -> None:
    done = nbtools("memory", "save", "a", "1", "--ttl", ttl)
    assert done.code == 2
    assert f"'{ttl}' is not a duration of more than 0" in done.err
    assert nbtools("memory", "get", "a").code == 1


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "banana"])
def test_a_time_that_no_query_can_be_given_is_told(nbtools: Callable[..., Any], seconds: str) -> None:
    done = nbtools("sql", "select 1", f"--timeout={seconds}")
    assert done.code == 2
    assert f"{seconds!r} is not a duration of more than 0 such as 30, 90s, 5min" in done.err


def test_a_query_ends_at_the_time_it_is_given(nbtools: Callable[..., Any]) -> None:
    done = nbtools("sql", "select count(*) from range(100000000000) a, range(1000000) b", "--timeout", "0.3")
    assert done.code == 1
    assert "exceeded its time" in done.err


@pytest.mark.parametrize(
    "arguments", [("memory", "search", "x", "--limit", "-1"), ("sql", "select 1", "--limit", "some")]
)
def test_a_limit_that_is_no_count_is_wrong_usage(nbtools: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    done = nbtools(*arguments)
    assert done.code == 2
    assert "is not a whole number of 0 or more" in done.err


def test_an_unknown_key_says_what_was_tried_and_what_to_do_next(nbtools: Callable[..., Any]) -> None:
    assert nbtools("memory", "get", "nothing-like-it").err.splitlines() == [
        "MemoryNotFound: nbtools memory get",
        "There is no memory 'nothing-like-it' for agent 'default'.",
        "→ nbtools memory list shows what there is.",
    ]


def test_a_place_that_cannot_be_written_is_told_in_three_lines(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for arguments in (("memory", "export", "file/x.jsonl"), ("demo", "--out", "file"), ("demo", "--out", "file/out")):
        done = nbtools(*arguments)
        lines = done.err.splitlines()
        code = 2 if arguments[0] == "demo" else 1
        assert (done.code, len(lines), lines[0].split()[2]) == (code, 3, arguments[0]), done.err
        assert "file" in lines[1]


def test_a_file_that_is_not_there_says_where_it_was_looked_for(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    assert nbtools("memory", "import", "no.jsonl").err.endswith(f"→ Relative paths start at {tmp_path}.\n")


@pytest.mark.slow
def test_what_is_redirected_is_utf8_on_every_machine(
    nbtools_process: Callable[..., Any], environment: dict[str, str]
) -> None:
    environment["PYTHONIOENCODING"] = "ascii"
    assert nbtools_process("memory", "save", "größe", "ü𝄞").code == 0
    assert json.loads(nbtools_process("memory", "list").out)["value"] == "ü𝄞"
    assert nbtools_process("sql", "--format", "csv", "select 'é' as a, '日本' as b").out == "a,b\né,日本\n"


@pytest.mark.parametrize("port", ["70000", "-1", "some"])
def test_a_port_that_is_none_is_wrong_usage_on_three_lines_at_most(nbtools: Callable[..., Any], port: str) -> None:
    done = nbtools("mcp", "--http", port)
    assert (done.code, len(done.err.splitlines())) == (2, 2)
    assert "is not a port" in done.err


@pytest.mark.parametrize("words", [("sql", "-a.csv"), ("sql", "select 1", "--out-file", "-a.csv"), ("run", "-a.yaml")])
def test_a_file_that_looks_like_an_option_is_told_how_it_is_named(
    nbtools: Callable[..., Any], words: tuple[str, ...]
) -> None:
    wrong, name = nbtools(*words), words[-1]
    hint = f"→ A file whose name begins with a dash is written ./{name}, in SQL FROM './{name}'."
    assert (wrong.code, wrong.err.splitlines()[-1]) == (2, hint)


@pytest.mark.parametrize("words", [("memory",), ("skill",), ("tools", "nope"), ("completion",)])
def test_what_is_missing_or_unknown_without_a_like_is_told_where_to_read_on(
    nbtools: Callable[..., Any], words: tuple[str, ...]
) -> None:
    assert nbtools(*words).err.splitlines()[-1] == f"nbtools {words[0]} --help says more"


@pytest.mark.usefixtures("memory_file")
def test_a_value_may_come_from_standard_input_and_items_are_one_document(nbtools: Callable[..., Any]) -> None:
    nbtools("memory", "save", "a", "-", stdin='{"n": 1}')
    nbtools("memory", "save", "b", "-", stdin="two words")
    assert nbtools("memory", "get", "a", "--json").json == {"n": 1}
    assert nbtools("memory", "get", "b", "--json").json == "two words"
    assert [item["key"] for item in nbtools("memory", "list", "--json").json] == ["a", "b"]
    assert nbtools("memory", "search", "nothing", "--json").json == []
