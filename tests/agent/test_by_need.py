"""Tools by need: few are sent at the start, the others are found, and each can be called."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, UserPromptPart

from nbtools import tool
from nbtools.agent.tools.by_need import MOST_BYTES, ToolsByNeed, offered_by_need
from nbtools.contract.registry import Registry
from tests.agent.stand_ins import WIRES, Answer, stand_in

SEEN = Answer(text="Seen.")


def _many(count: int = 40) -> Registry:
    """Return many tools, of which one plays chess."""

    @tool(read_only=True)
    def chess_move(board: str) -> str:
        """Find the best move on a board of chess.

        Parameters
        ----------
        board
            Where the pieces stand.
        """
        return board

    def numbered(number: int) -> Any:
        def work(text: str) -> str:
            return text

        work.__name__ = f"work_{number}"
        work.__doc__ = f"Do the work number {number}.{' It takes long.' * 10}"
        return tool(read_only=True)(work)

    return Registry([*map(numbered, range(count)), chess_move])


def _asked(text: str, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    answers = [ModelResponse(parts=[ToolCallPart(tool_name=name, args=arguments)]) for name, arguments in calls]
    return [ModelRequest(parts=[UserPromptPart(content=text)]), *answers]


def _sent(body: bytes) -> tuple[list[str], int]:
    """Return the names of the tools in a request, and how many bytes they take there."""
    tools = json.loads(body)["tools"]
    names = [item["function"]["name"] if "function" in item else item["name"] for item in tools]
    return names, len(json.dumps(tools, ensure_ascii=False, separators=(",", ":")).encode())


# -- which ones --------------------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_few_tools_and_chosen_ones_are_sent_whole() -> None:
    few, many = _many(2), _many()
    assert offered_by_need(few, ("*",)) is few
    assert offered_by_need(many, ("work_*",)) is many
    assert ToolsByNeed(many).names_for(_asked("Play chess!")) == list(many)


@pytest.mark.unit
def test_what_is_sent_follows_from_the_conversation_and_only_grows_at_its_end() -> None:
    tools = offered_by_need(_many(), ("*",))
    assert "work_3, " in tools["tool_search"].description
    by_need = ToolsByNeed(tools)
    first = by_need.names_for(_asked("What shall I move in this game of chess?"))
    assert {"tool_search", "chess_move"} <= set(first)
    assert len(first) < len(tools)
    calls = [
        ("tool_search", {"words": "work_33, work_37"}),
        ("work_39", {"text": "a"}),
        ("rm_rf", {}),
        ("tool_search", {}),
    ]
    later = ToolsByNeed(tools).names_for(_asked("What shall I move in this game of chess?", *calls))
    assert later[: len(first)] == first
    assert [name for name in later[len(first) :] if name in {"work_33", "work_37", "work_39"}] == [
        "work_33",
        "work_37",
        "work_39",
    ]
    assert set(later) <= set(tools)


@pytest.mark.unit
def test_a_search_knows_names_descriptions_and_parameters() -> None:
    by_need = ToolsByNeed(offered_by_need(_many(), ("*",)))
    for words in ("chess_move", "playing chess", "boards", "where pieces stand"):
        assert by_need.find(words)[0].name == "chess_move", words
    assert [found.name for found in by_need.find("work_1 work_2")][:2] == ["work_1", "work_2"]
    assert by_need.find("") == []


@pytest.mark.unit
def test_names_of_very_many_tools_are_cut_and_counted() -> None:
    about = offered_by_need(_many(1_000), ("*",))["tool_search"].description
    assert " more." in about
    assert len(about) < 1_300


# -- in runs -----------------------------------------------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.parametrize("wire", WIRES[:3])
@pytest.mark.parametrize(
    "prompt", ["Go!", "Load penguins.csv, ask SQL how many there are, draw a chart, and save a note."]
)
def test_a_first_request_has_at_most_six_thousand_bytes_of_tools(open_bench: Any, wire: str, prompt: str) -> None:
    with stand_in(wire, SEEN, SEEN) as server:
        bench = open_bench(models={"m": {"model": f"{wire}:m", "base_url": server.url, "api_key": "k"}}, model="m")
        around: dict[str, Any] = {"ask": lambda *_: "yes", "look": lambda *_: ""}
        bench.agent(prompt, **around)
        bench.agent(prompt, tools=["*", "add_line"], **around)
    (names, size), (all_names, whole) = map(_sent, server.requests)
    assert size <= MOST_BYTES, (names, size)
    assert whole > 4 * MOST_BYTES
    wanted = {"sql_query"} if "SQL" in prompt else {"look", "add_line"}  # what fits, then what people added
    assert {"tool_search", "ask_user", "artifact_read", "notebook_look"} | wanted <= set(names)
    assert wanted == {"sql_query"} or "sql_query" not in names
    assert "tool_search" not in all_names
    assert set(names) - {"tool_search"} < set(all_names)


@pytest.mark.processes
@pytest.mark.parametrize("wire", WIRES)
def test_a_found_tool_is_sent_next_and_one_that_was_not_is_called_all_the_same(open_bench: Any, wire: str) -> None:
    search = Answer(calls=[("tool_search", '{"words": "calculator"}')])
    unseen = Answer(calls=[("json_parse", '{"json_string": "[1]"}'), ("yaml_parse", '{"txt": "a"}'), ("rm_rf", "{}")])
    with stand_in(wire, search, unseen, SEEN) as server:
        bench = open_bench(models={"m": {"model": f"{wire}:m", "base_url": server.url, "api_key": "k"}}, model="m")
        run = bench.agent("Go!", share="schema")
    assert run.state == "done", run
    codes = {call.tool: call.result.error and call.result.error.code for call in run.calls}
    assert codes == {
        "tool_search": None,
        "json_parse": None,
        "yaml_parse": "INVALID_ARGUMENTS",
        "rm_rf": "TOOL_NOT_FOUND",
    }
    assert run.calls[0].sent.startswith("calculator: Compute")
    assert [b"Understands numbers" in body for body in server.requests] == [
        False,
        True,
        True,
    ]  # in the description of calculator
    assert [body.count(b"Read a YAML text") for body in server.requests] == [0, 0, 1]
    recorded = {record["tool"] for record in bench.call_records()}
    assert recorded == set(codes)
    assert "Read a YAML text" in bench.agent.sent(run.run_id)[-1]


PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from nbtools import Workbench, tool

folder = Path(sys.argv[1])

@tool(destructive=False, idempotent=True)  # what came before is stored before it is called
def stumble() -> str:
    '''Stumble over a stone.'''
    if not (folder / "again").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return "up again"

if __name__ == "__main__":
    with Workbench(home=folder / "home", memory_url=f"duckdb:///{folder}/m.duckdb", tools=[stumble]) as wb:
        if not (folder / "again").exists():
            wb.agent("Go!", script=folder / "turns.yaml")
        (run,) = wb.agent.runs()
        run = wb.agent.resume(run["run_id"])
        names = list(json.loads(wb.agent.sent(run.run_id)[-1]))
        print(json.dumps([run.state, run.text, [call.tool for call in run.calls], names]))
"""


@pytest.mark.slow
@pytest.mark.races
def test_what_a_killed_run_found_is_sent_by_the_process_that_goes_on(tmp_path: Path) -> None:
    turns = [
        {"calls": [{"tool": "tool_search", "arguments": {"words": "draw charts"}}]},
        {"calls": [{"tool": "stumble"}]},
    ]
    (tmp_path / "turns.yaml").write_text(json.dumps([*turns, {"say": "Done."}]))
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, env=environ, timeout=60, check=False).returncode == -signal.SIGKILL
    (tmp_path / "again").touch()
    output = subprocess.run(command, env=environ, timeout=60, check=True, stdout=subprocess.PIPE).stdout
    state, text, calls, names = json.loads(output)
    assert (state, text, calls) == ("done", "Done.", ["stumble"])
    assert {"tool_search", "data_visualize"} <= set(names)
    assert "file_delete" not in names


WORKFLOW = """
version: 1
name: ask
nodes:
  - {{id: ask, prompt: Go!, agent: agent.yaml, tools: {tools}}}
"""


def test_a_prompt_node_that_names_its_tools_has_them_whole(open_bench: Any, tmp_path: Path) -> None:
    workflow = tmp_path / "w.yaml"
    (tmp_path / "turns.yaml").write_text("- say: Done.\n")
    (tmp_path / "agent.yaml").write_text(f"model: scripted:{tmp_path}/turns.yaml\n")
    named = "[memory_save, memory_search, data_analyze, data_visualize, sql_query, code_execute]"
    for tools, is_searched in ((named, False), ('["*"]', True)):
        workflow.write_text(WORKFLOW.format(tools=tools))
        bench = open_bench()
        assert bench.workflows.run(workflow).raise_for_error().state == "ok"
        record = bench.agent.runs()[0]
        assert ("tool_search" in bench.agent.sent(record["run_id"])[-1]) == is_searched
        assert ('"code_execute": {' in bench.agent.sent(record["run_id"])[-1]) != is_searched
