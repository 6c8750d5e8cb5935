"""What leaves for the model: marked values in frames, files and memory never do above the level that a person set."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from nbtools import Workbench, tool
from nbtools.agent.models.choice import ModelChoice
from nbtools.agent.sharing import Sharing, default_level, level_after
from nbtools.errors import ConfigInvalid, InvalidArguments

CANARY = "CANARY-7f3a"
NUMBER = 918273645


@tool(read_only=True)
def complain(name: str = "") -> str:
    """Fail with a value in the message.

    Parameters
    ----------
    name
        What for.
    """
    raise ValueError(f"{CANARY} is not a number")


@tool(read_only=True)
def tree() -> dict[str, Any]:
    """Return values as keys, deep inside."""
    return {"found": {CANARY: [1, {CANARY: NUMBER}]}, "list": [[CANARY, NUMBER]], "sure": True}


@tool(read_only=True)
def flat() -> dict[str, int]:
    """Return values as keys."""
    return {CANARY: NUMBER}


CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sql_query", {"query": "select * from people"}),
    ("sql_query", {"query": "select min(name) as m, max(n) as x from people"}),
    ("sql_query", {"query": "pivot people on name using sum(n)"}),
    ("sql_query", {"query": "select * from read_csv('secret.csv', skip=1, header=true)"}),
    ("sql_query", {"query": "select cast(name as integer) from people"}),
    ("sql_query", {"query": "select kind from people"}),
    ("file_read", {"path": "secret.csv"}),
    ("file_list", {}),
    ("memory_retrieve", {"key": "note"}),
    ("memory_search", {"query": "canary"}),
    ("memory_retrieve", {"key": "nte"}),
    ("code_execute", {"code": "print(open('secret.csv').read())", "language": "python"}),
    ("code_execute", {"code": "raise ValueError(open('secret.csv').read())", "language": "python"}),
    ("data_analyze", {"input_file_path": "secret.csv", "analysis_script": "print(open(input_file_path).read())"}),
    ("complain", {}),
    ("tree", {}),
    ("flat", {}),
)


class Listener:
    """A model that makes the calls one by one, and keeps every byte that it is sent."""

    def __init__(self, calls: tuple[tuple[str, dict[str, Any]], ...]) -> None:
        self.calls = calls
        self.heard = b""
        self.model = FunctionModel(stream_function=self.answer)

    async def answer(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        import json

        self.heard += ModelMessagesTypeAdapter.dump_json(messages) + repr(info).encode()
        done = len(messages) // 2
        if done < len(self.calls):
            name, arguments = self.calls[done]
            yield {0: DeltaToolCall(name=name, json_args=json.dumps(arguments), tool_call_id=f"c{done}")}
        else:
            yield "Done."


@pytest.fixture
def secret(open_bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.csv").write_text(f"name,n\n{CANARY},{NUMBER}\n{CANARY},{NUMBER}\n")
    (tmp_path / f"{CANARY}.txt").write_text(CANARY)
    frame = pd.DataFrame({"name": [CANARY] * 3, "n": [NUMBER] * 3})
    frame["kind"] = pd.Categorical([CANARY] * 3)
    wb: Workbench = open_bench(frames={"people": frame}, tools=(complain, tree, flat))
    wb.memory.write("note", f"the canary {CANARY} {NUMBER}", tags=[CANARY])
    wb.memory.write(f"nota-{CANARY}", "canary")
    return wb


@pytest.mark.processes
def test_no_marked_value_reaches_the_model_at_the_level_of_the_schema(secret: Workbench) -> None:
    listener = Listener(CALLS)
    run = secret.agent("Look at everything.", model=listener.model, share="schema")
    assert run.state == "done"
    assert len(run.calls) == len(CALLS)
    assert not [call.tool for call in run.calls if call.result.error and call.result.error.code == "TOOL_NOT_FOUND"]
    assert CANARY.encode() not in listener.heard
    assert str(NUMBER).encode() not in listener.heard
    # The person saw the values, or the search above would have found nothing to hide.
    assert CANARY in str([call.result for call in run.calls])


@pytest.mark.processes
def test_the_schema_tells_the_columns(secret: Workbench) -> None:
    listener = Listener(CALLS[:1])
    secret.agent("Look.", model=listener.model, share="schema")
    assert b"VARCHAR" in listener.heard
    assert b"kind" in listener.heard
    assert b"up to 4 items" in listener.heard


@pytest.mark.processes
def test_values_pass_where_the_person_says_so_and_for_a_model_of_this_machine(secret: Workbench) -> None:
    for given in ({"share": "values"}, {}):
        listener = Listener(CALLS[:1])
        secret.agent("Look.", model=listener.model, **given)  # type: ignore[arg-type]
        assert CANARY.encode() in listener.heard


@pytest.mark.processes
def test_a_sample_has_the_first_rows_alone(open_bench: Any) -> None:
    frame = pd.DataFrame({"name": [f"row-{n}-" for n in range(10)]})
    wb = open_bench(frames={"people": frame})
    listener = Listener(CALLS[:1])
    wb.agent("Look.", model=listener.model, share="sample:2")
    assert b"row-1-" in listener.heard
    assert b"row-2-" not in listener.heard
    assert b"10 items" in listener.heard


def test_a_model_elsewhere_sees_the_schema_unless_told() -> None:
    remote = ModelChoice(name="openai:m", provider="openai", model="m")
    here = ModelChoice(name="openai-chat:m", provider="openai-chat", model="m", base_url="http://localhost:1/v1")
    assert (default_level(remote), default_level(here)) == ("schema", "values")
    assert level_after("sample:3", remote, "sample:3") == "sample:3"
    assert level_after("sample:3", remote, "schema") == "sample:3"
    with pytest.raises(InvalidArguments, match="held at level sample:5"):
        level_after("sample:3", remote, "sample:5")
    with pytest.raises(InvalidArguments, match="held at level values"):
        level_after(None, remote, "values")
    with pytest.raises(ConfigInvalid, match="share is 'all'"):
        Sharing.of("all")


def test_the_schema_rounds_sizes_up_to_powers_of_two() -> None:
    sizes = [Sharing.of("schema").size(number, "row") for number in (1, 2, 3, 4, 5)]
    assert sizes == ["1 row", "up to 2 rows", "up to 4 rows", "up to 4 rows", "up to 8 rows"]


def test_a_conversation_does_not_go_on_at_a_lower_level(wb: Workbench) -> None:
    first = wb.agent("Look!", model=Listener((("look", {"name": "a"}),)).model)
    with pytest.raises(InvalidArguments, match="held at level values"):
        wb.agent("And?", model=Listener(()).model, share="schema", after=first)


@pytest.mark.processes
def test_what_was_printed_before_a_failure_is_read_where_values_are(wb: Workbench) -> None:
    crashed = wb.call("code_execute", {"code": "import os\nprint('far')\nos.abort()"})
    own = wb.registry["code_execute"]
    text = Sharing(level="values").text_of(own, crashed)
    assert text.startswith("code_execute failed: KERNEL_DIED")
    assert text.endswith("\nPrinted before that:\nfar\n")
    assert "far" not in Sharing(level="schema").text_of(own, crashed)
