"""``%tools``, ``%tool`` and ``%nbtools``."""

from __future__ import annotations

import dataclasses
import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from nbtools.contract.approval.gate import Nobody
from nbtools.contract.tool import tool, tool_of
from nbtools.errors import ConfigInvalid, InvalidArguments, ToolNotFound
from nbtools.jupyter.display.tool_card import effects_in_words


def test_the_shelf_lists_every_tool_with_its_effects(notebook) -> None:
    shelf = notebook.run("%tools").value
    page = shelf._repr_html_()
    assert "calculator" in page
    assert "only reads" in page
    assert "idempotent" not in page
    assert notebook.run("%nbshelf").value.as_table() == shelf.as_table()


def test_a_tools_card_tells_its_arguments(notebook) -> None:
    card = notebook.run("%tools file_read").value
    assert "path" in card.to_text()
    assert "required" in card.to_html()


def test_a_tool_is_called_with_options_made_from_its_schema(notebook) -> None:
    result = notebook.run("%tool calculator --expression '6 * 7'").value
    assert (result.ok, result.data["value"]) == (True, 42)
    notebook.run("what = 'three'")
    assert notebook.run("%tool string_length --text {what}").value.data["characters"] == 5


def test_lists_and_objects_are_json_or_variables(notebook, folder) -> None:
    rows = '[{"a": 1}, {"a": 2}]'
    assert notebook.run(f"%tool dataframe_to_csv --data {rows} --path out.csv").value.ok
    notebook.run("rows = [{'a': 1}]")
    notebook.run("%tool dataframe_to_csv --data {rows} --path again.csv")
    assert (folder / "again.csv").read_text() == "a\n1\n"
    tagged = notebook.run("%tool memory_save --key k --value v --tags x y").value
    assert tagged.ok
    assert [r.key for r in notebook.run("%memory find --tags x y").value] == ["k"]


def test_all_mistakes_of_a_call_are_named_at_once(notebook) -> None:
    said = "\n".join(notebook.run("%tool file_move --sorce a --overwrite 7").lines)
    assert "sorce: unknown argument, did you mean 'source'?" in said
    assert "dest: required" in said
    assert "overwrite" in said


@pytest.mark.parametrize("line", ["%tool calculater --expression 1", "%tools calculater", "%tool calculater?"])
def test_an_unknown_tool_gets_the_nearest_offered(notebook, line: str) -> None:
    cell = notebook.run(line)
    assert isinstance(cell.error, ToolNotFound)
    assert "calculator" in cell.lines[-1]


def test_a_tools_help_is_shown_by_question_mark(notebook) -> None:
    asked, printed = notebook.run("%tool calculator?"), notebook.run("%tool calculator --help")
    assert "--expression" in asked.stdout
    assert asked.stdout == printed.stdout


@pytest.mark.processes
@pytest.mark.parametrize(
    "cell",
    [
        "r << %tool calculator --expression '1/0'",
        "%%data_analyze sales.csv -o r\nresult = 1\n1 / 0\n",
        "%%code bash -o r\nexit 3\n",
        "%%nbsql -o r\ndrop table sales\n",
        "%memory -o r get nothing",
    ],
)
def test_a_failed_call_leaves_the_variable_as_it_was(notebook, cell: str) -> None:
    before = notebook.run("r = object()\nr").value
    assert notebook.run(cell).error is not None
    assert notebook["r"] is before


def test_the_history_tells_what_was_called(notebook) -> None:
    notebook.run("%tool calculator --expression 1+1")
    notebook.run("%tool string_length --text x")
    history = notebook.run("%tools --history -n 5").value
    assert [call["tool"] for call in history] == ["string_length", "calculator"]
    assert [call["tool"] for call in notebook.run("%tools calculator --history").value] == ["calculator"]
    assert "string_length" in history._repr_html_()


def test_the_status_card_tells_where_things_are(notebook, tmp_path) -> None:
    card = notebook.run("%nbtools").value
    assert {"%memory", "%%data_analyze", "%%code", "%tool"} <= set(card.facts["magics"].split())
    assert str(tmp_path / "home") in card.to_text()
    assert "%memory" in card.to_html()


def test_the_settings_are_shown_with_their_source(notebook, monkeypatch) -> None:
    monkeypatch.setenv("NBTOOLS_SQL_LIMIT", "7")
    notebook.run("%reload_ext nbtools")
    row = notebook.run("%nbtools config sql_limit").value.rows[0]
    assert row[:3] == ("sql_limit", "7", "NBTOOLS_SQL_LIMIT")
    wrong = notebook.run("%nbtools config sql_limt")
    assert isinstance(wrong.error, ConfigInvalid)
    assert "sql_limit" in wrong.lines[-1]


def test_a_setting_that_does_not_fit_is_told_in_three_lines(bare, monkeypatch) -> None:
    monkeypatch.setenv("NBTOOLS_SPARES", "many")
    bare.run("%load_ext nbtools")
    lines = bare.run("%memory list").lines
    assert len(lines) == 3
    assert "NBTOOLS_SPARES" in lines[1]


def test_an_unknown_subcommand_gets_the_nearest_offered(notebook) -> None:
    cell = notebook.run("%nbtools docter")
    assert isinstance(cell.error, InvalidArguments)
    assert "%nbtools doctor" in cell.lines[-1]


def test_a_word_too_many_is_answered_with_quotes(notebook) -> None:
    cell = notebook.run("%nbtools trust a b")
    assert isinstance(cell.error, InvalidArguments)
    assert "Put a text with spaces in quotes." in cell.error.hint


@pytest.mark.processes
def test_the_notebook_serves_its_tools_over_mcp(notebook) -> None:
    pytest.importorskip("mcp")
    pytest.importorskip("uvicorn")
    card = notebook.run("%nbtools mcp start").value
    url = card.title.removeprefix("MCP at ")
    assert url in card.to_text()
    file = Path(re.search(r"^  (/.+\.json)$", card.to_text(), re.MULTILINE)[1])
    assert file.stat().st_mode & 0o777 == 0o600
    header = json.loads(file.read_text())["mcpServers"]["nbtools"]["headers"]["Authorization"]
    token = header.removeprefix("Bearer ")
    assert len(token) > 20
    assert token not in card.to_text() + card.to_html() + notebook.run("%nbtools mcp").value.to_text()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=10)
    assert refused.value.code == 401
    assert "already" in notebook.run("%nbtools mcp start").lines[1]
    notebook.run("%unload_ext nbtools")
    assert not file.exists()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=10)


def test_reading_the_workbench_changes_nothing_and_it_is_prepared_whoever_opened_it(notebook) -> None:
    """Rules and who is asked follow from opening and from the option, not from someone who looks."""
    from nbtools.assembly.shared import close_shared, shared

    notebook.run("%tools")
    session = notebook.shell.meta["nbtools"].dispatcher.session
    close_shared()
    door = shared().door
    assert not isinstance(door.approver, Nobody)
    door.rules, approver = (), Nobody()
    door.approver = approver
    assert session.workbench.door is door
    assert (door.rules, door.approver) == ((), approver)
    notebook.run("%config NBTools.confirm = True")
    assert [rule.action for rule in door.rules] == ["ask"]
    notebook.run("%config NBTools.confirm = False")
    assert door.rules == ()


def test_confirm_asks_before_something_destructive(notebook, monkeypatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda prompt: asked.append(prompt) or "n")
    notebook.run("%memory save k v")
    notebook.run("%config NBTools.confirm = True")
    assert "the answer was no" in "\n".join(notebook.run("%memory delete k").lines)
    assert len(asked) == 1
    notebook.run("%config NBTools.confirm = False")
    assert notebook.run("%memory delete k").error is None


def test_help_shows_the_page_of_a_magic_and_of_a_tool(notebook) -> None:
    assert "usage: %explore" in notebook.run("%nbtools help explore").value.to_text()
    assert "Query data with SQL" in notebook.run("%nbtools help sql_query").value.to_text()
    assert "data_visualize" in notebook.run("%nbtools help").value.to_text()
    assert "'memory'" in notebook.run("%nbtools help memry").lines[-1]


def test_what_an_outside_server_says_of_its_tool_is_told_as_its_claim() -> None:
    def look() -> int:
        """Look."""
        return 1

    claimed = tool_of(tool(read_only=True)(look))
    assert effects_in_words(claimed) == "only reads"
    assert effects_in_words(dataclasses.replace(claimed, trusted=False)) == "its server claims: only reads"
    assert effects_in_words(tool_of(tool(look))) == "declares no effects"


@pytest.mark.processes
def test_a_name_is_bound_to_what_code_assigned_whichever_magic_ran_it(notebook) -> None:
    for cell in ("%%data_analyze -o d\nd = [1, 2]", "%%code -o d\nd = [1, 2]", "%kernels exec -o d s d = [1, 2]"):
        notebook.run("d = None")
        assert notebook.run(cell).error is None
        assert notebook["d"] == [1, 2], cell
    assert "neither d nor result" in notebook.run("%%code -o d\nx = 3").stdout
    assert notebook["d"] == [1, 2]
    notebook.run("%%code bash -o d\necho 3")
    assert notebook["d"].data["stdout"] == "3\n"
