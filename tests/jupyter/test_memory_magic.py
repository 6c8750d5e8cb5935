"""``%memory`` and ``%%memory``."""

from __future__ import annotations

import dataclasses
import json

import pytest

from nbtools.errors import InvalidArguments, MemoryNotFound
from nbtools.jupyter.magics.memory import _record_table
from nbtools.memory import MemoryRecord

NOW = "2026-01-02T03:04:05+00:00"


def test_a_value_is_saved_and_read_again(notebook) -> None:
    saved = notebook.run('%memory save goal {"kpi": "churn"} --tags plan q3 --ttl 7d').value
    assert saved.ok
    assert saved.text == "Memory item 'goal' saved successfully."
    assert notebook.run("%memory get goal").value == {"kpi": "churn"}


def test_a_save_keeps_the_tags_and_the_end_that_it_does_not_name(notebook) -> None:
    notebook.run("import nbtools\nmemory = nbtools.workbench().memory")
    notebook.run("%memory save goal 1 --tags plan --ttl 7d")
    first = notebook["memory"].record("goal")
    notebook.run("%memory save goal 2")
    notebook.run("%%memory goal\n3")
    notebook.run("%tool memory_save --key goal --value 4")
    kept = notebook["memory"].record("goal")
    assert (kept.version, kept.tags, kept.expires_at) == (4, ("plan",), first.expires_at)
    notebook.run("%memory save goal 5 --ttl never --tags")
    freed = notebook["memory"].record("goal")
    assert (freed.version, freed.tags, freed.expires_at) == (5, (), None)


@pytest.mark.parametrize(
    ("given", "value"), [("5", 5), ('"5"', "5"), ("two words", "two words"), ("null", None), ("[1, 2]", [1, 2])]
)
def test_values_are_json_or_text(notebook, given: str, value: object) -> None:
    notebook.run(f"%memory save k {given}")
    assert notebook.run("%memory get k").value == value


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ("df", "saved the text 'df'; write {df} for the variable\n"),
        ("[1,2", "saved as text: it is not JSON (Expecting "),
        ('{"a": 1, }', ""),
        ('"df"', ""),
        ("{df}", ""),
        ("df two", ""),
        ("[1,2]", ""),
        ("In", ""),
    ],
)
def test_a_text_that_may_be_meant_as_something_else_is_told(notebook, given: str, note: str) -> None:
    notebook.run("df = 'two'")
    saved = notebook.run(f"%memory save k {given}")
    assert saved.value.ok
    told = saved.stdout.partition("Out[")[0]
    assert told.startswith(note)
    assert bool(told) is bool(note)


def test_a_variable_is_saved_as_its_value(notebook) -> None:
    notebook.run("plan = {'a': [1, None]}; key = 'my key'")
    notebook.run("%memory save {key} {plan}")
    assert notebook.run('%memory get "my key"').value == {"a": [1, None]}


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("{list(frame.columns)}", ["a", "b c"]),
        ("{frame['b c'].sum()}", 7),
        ("{frame['b c'].mean()}", 3.5),
        ("{ {name: len(name) for name in frame} }", {"a": 1, "b c": 3}),
        ("{'kpi': frame.shape[1]}", {"kpi": 2}),
        ('"{len(frame)} rows"', "2 rows"),
        ('{"a": {"b": 1}}', {"a": {"b": 1}}),
        ("'{\"a\": 1}'", '{"a": 1}'),
    ],
)
def test_expressions_of_a_line_are_saved_as_their_values(notebook, given: str, value: object) -> None:
    notebook.run("import pandas as pd\nframe = pd.DataFrame({'a': [1, 2], 'b c': [3, 4]})")
    saved = notebook.run(f"%memory save k {given}")
    assert saved.value.ok, saved.error
    assert notebook.run("%memory get k").value == value
    asked = notebook.run(f"%tool memory_save --key t --value {given}")
    assert asked.value.ok, asked.error
    assert notebook.run("%memory get t").value == value


@pytest.mark.parametrize("given", ["{list(fram.columns)}", "{fram}", '{"a": 1,', "{'a' 1}", "{frame.sum}"])
def test_what_is_no_value_is_refused_and_nothing_is_saved(notebook, given: str) -> None:
    notebook.run("import pandas as pd\nframe = pd.DataFrame({'a': [1]})")
    for line in (f"%memory save k {given}", f"%tool memory_save --key k --value {given}"):
        assert isinstance(notebook.run(line).error, InvalidArguments)
    assert notebook.run("%memory list").value == []


def test_an_array_that_comes_back_as_a_list_is_told_and_objects_are_listed_as_every_face_shows_them(notebook) -> None:
    notebook.run("import numpy as np\narray, pair, mixed = np.array([1.5, 2]), {'a': (1, 2)}, [(1, 2j)]")
    for name, kind in (("array", "ndarray"), ("pair", "tuple")):
        assert f"saved as JSON: {kind} comes back as list" in notebook.run(f"%memory save {name} {{{name}}}").stdout
    assert notebook.run("%nbsql rows << select 1 as n").error is None
    assert "comes back" not in notebook.run("%memory save frame {rows}").stdout
    assert notebook.run("%memory save mixed {mixed}").stdout.count("comes back") == 0
    assert notebook.run("%memory get mixed").value == [(1, 2j)]
    assert "comes back" not in notebook.run("%memory save words two words").stdout
    for listed in ("list", "history mixed"):
        shown = notebook.run(f"%memory {listed}").stdout
        assert '[[1, "2j"]]' in shown
        assert "nbtools_value" not in shown


def test_the_cells_text_is_saved(notebook) -> None:
    notebook.run("%%memory note --tags text\nfirst line\nsecond {not filled}\n")
    assert notebook.run("%memory get note").value == "first line\nsecond {not filled}"


def test_the_cells_json_is_saved_as_its_value(notebook) -> None:
    notebook.run('%%memory note --json\n{"a":\n 1}\n')
    assert notebook.run("%memory get note").value == {"a": 1}
    assert isinstance(notebook.run("%%memory note --json\n{oops\n").error, InvalidArguments)


def test_the_result_goes_where_it_is_told(notebook) -> None:
    notebook.run("%memory save goal 5")
    assert notebook.run("goal << %memory get goal").value is None
    assert notebook["goal"] == 5
    notebook.run("%memory get goal -o other")
    assert notebook["other"] == 5


def test_a_semicolon_mutes_the_value(notebook) -> None:
    notebook.run("%memory save goal 5")
    cell = notebook.run("%memory get goal;")
    assert (cell.value, cell.stdout, cell.error) == (None, "", None)


def test_lists_finds_and_searches_are_records(notebook) -> None:
    notebook.run("%memory save plan.a 1 --tags x y")
    notebook.run("%memory save plan.b 'churn of customers' --tags x")
    notebook.run("%memory save other 3")
    assert [r.key for r in notebook.run("%memory list plan.").value] == ["plan.a", "plan.b"]
    assert [r.key for r in notebook.run("%memory find --tags x y").value] == ["plan.a"]
    assert [r.key for r in notebook.run("%memory find --tags y z --match any").value] == ["plan.a"]
    assert next(iter(notebook.run("%memory search churn").value)).key == "plan.b"
    assert len(notebook.run("%memory").value) == 3


def test_records_show_themselves_in_text_and_html_escaped(notebook) -> None:
    notebook.run("%memory save tag '<script>alert(1)</script>'")
    shown = notebook.run("%memory list").value
    page = shown._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "alert(1)" in shown.as_table().to_text()
    assert shown.to_pandas()["key"].tolist() == ["tag"]


def test_history_restore_and_delete(notebook) -> None:
    notebook.run("%memory save k first")
    notebook.run("%memory save k second")
    assert [r.value for r in notebook.run("%memory history k").value] == ["first", "second"]
    notebook.run("%memory restore k 1")
    assert notebook.run("%memory get k").value == "first"
    assert notebook.run("%memory delete k").value.text == "Memory item 'k' deleted successfully."
    assert isinstance(notebook.run("%memory get k").error, MemoryNotFound)
    assert isinstance(notebook.run("%memory delete k").error, MemoryNotFound)


def test_forget_erases_history_and_what_calls_tell(notebook) -> None:
    notebook.run("import nbtools\nwb = nbtools.workbench()")
    notebook.run("%memory save k hunter2-geheim")
    notebook.run("%tool memory_save --key k --value other-geheim")
    told = str(notebook.run("wb.call_records()").value)
    assert ("geheim" in told, "sha256" in told) == (False, True), "the record of a save has the hash of the value"
    notebook.run("%tool memory_search --query other-geheim")
    assert "other-geheim" in str(notebook.run("wb.call_records()").value)
    assert "versions: 2" in notebook.run("%memory forget k").value.text
    told = str(notebook.run("wb.call_records()").value)
    assert ("geheim" in told, "sha256" in told) == (False, False)
    assert isinstance(notebook.run("%memory get k").error, MemoryNotFound)
    assert isinstance(notebook.run("%memory history k").error, MemoryNotFound)
    # A slip in the name must not look like success.
    assert isinstance(notebook.run("%memory forget kk").error, MemoryNotFound)


def test_export_and_import_carry_the_items(notebook, folder) -> None:
    notebook.run("%memory save a 1 --tags t")
    assert "1 memory items written" in notebook.run("%memory export out.jsonl").value.text
    assert json.loads((folder / "out.jsonl").read_text())["key"] == "a"
    notebook.run("%memory delete a")
    assert "another value" not in notebook.run("%memory import out.jsonl").stdout
    notebook.run("%memory save a 2")
    told = "1 item has another value than before (a); %memory history KEY shows the earlier ones\n"
    again = notebook.run("%memory import out.jsonl")
    assert told in again.stdout
    assert "1 memory items read" in again.value.text
    assert notebook.run("%memory get a").value == 1


def test_scopes_stay_apart(notebook) -> None:
    notebook.run("%memory save k agent")
    notebook.run("%memory scope node churn clean")
    assert isinstance(notebook.run("%memory get k").error, MemoryNotFound)
    notebook.run("%memory save k node")
    assert notebook.run("%memory scope").value.facts["level"] == "node"
    notebook.run("%memory scope agent")
    assert notebook.run("%memory get k").value == "agent"
    assert isinstance(notebook.run("%memory scope workflow").error, InvalidArguments)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("%memory sav k v", "Did you mean %memory save?"),
        ("%memory save k v --tag x", "Did you mean --tags?"),
        ("%memory list --bogus", "usage: %memory list"),
        ("%memory save", "KEY, VALUE"),
        ("%memory save k v --ttl soon", "not a duration"),
        ("%memory save k v --ttl 0", "more than 0"),
        ("%memory restore k one", "whole number"),
        ("%memory get gaol", "goal"),
        ("%memory save k 'open", "never closed"),
        ("%memory get {nothing}", "no variable 'nothing'"),
        ("%memory get goal -o 1x", "not a name for a variable"),
        ("%memory find", "--tags"),
    ],
)
def test_mistakes_show_at_most_three_lines_that_say_what_to_do(notebook, line: str, told: str) -> None:
    notebook.run("%memory save goal 5")
    lines = notebook.run(line).lines
    assert 2 <= len(lines) <= 3
    assert told in "\n".join(lines)


def test_the_whole_traceback_is_shown_on_request(notebook) -> None:
    assert any("Traceback" in line for line in notebook.run("%memory get nothing --traceback").lines)
    notebook.run("%config NBTools.traceback = True")
    assert any("Traceback" in line for line in notebook.run("%memory get nothing").lines)


def test_what_the_magic_does_is_recorded_like_a_tools_call(notebook) -> None:
    notebook.run("%memory save k v")
    calls = notebook.run("%tools --history").value
    assert (calls[0]["tool"], calls[0]["caller"], calls[0]["ok"]) == ("memory_save", "magic", True)


@pytest.mark.processes
def test_a_memory_that_cannot_be_had_takes_no_other_magic_away(bare, tmp_path, monkeypatch) -> None:
    broken = tmp_path / "home" / "memory.duckdb"
    broken.parent.mkdir()
    broken.mkdir()
    bare.run("%load_ext nbtools")
    assert len(bare.run("%memory list").lines) <= 3
    assert bare.run("%nbtools").error is None
    assert bare.run("%nbsql select 1 as x").error is None
    with pytest.warns(UserWarning, match="will never be on record"):
        bare.shell.run_line_magic("unload_ext", "nbtools")


def test_an_unknown_key_says_what_to_do_next(notebook) -> None:
    for command in ("get", "delete"):
        lines = notebook.run(f"%memory {command} nothing-like-it").lines
        assert (len(lines), lines[2]) == (3, "→ See %memory list.")


def test_a_deleted_item_says_how_it_comes_back_and_comes_back_by_that(notebook) -> None:
    notebook.run("%memory save goal 5")
    notebook.run("%memory save goals 6")
    notebook.run("%memory delete goal")
    assert notebook.run("%memory get goal").lines[-1] == "→ %memory restore 'goal' brings it back"
    assert "restore 'goal'" in notebook.run("%tool memory_retrieve --key goal").lines[-1]
    assert notebook.run("%memory restore goal").value.ok
    assert notebook.run("%memory get goal").value == 5


def test_a_low_score_is_shown_as_a_number_above_zero() -> None:
    record = MemoryRecord.from_dict(
        {"agent_id": "a", "key": "k", "value": 1, "tags": [], "created_at": NOW, "updated_at": NOW, "version": 1}
    )
    table = _record_table([dataclasses.replace(record, score=0.00042)], "best", "1 item")
    assert table.rows[0][-1] == "0.00042"


def test_a_comma_separates_tags_as_a_space_does(notebook) -> None:
    notebook.run("%memory save goal 5 --tags plan,risk")
    for line in (
        "%memory find --tags risk",
        "%memory find --tags plan,risk --match all",
        "%memory search goal --tags plan,",
    ):
        found = list(notebook.run(line).value)
        assert [(item.key, list(item.tags)) for item in found] == [("goal", ["plan", "risk"])], line
