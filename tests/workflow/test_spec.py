"""The models of a workflow file: what they take, what they refuse, and the schema that editors get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from nbtools.kernels.languages import LANGUAGES, language_of, spellings
from nbtools.workflow.spec import (
    Approve,
    AskNode,
    Choose,
    CodeFile,
    CodeNode,
    ConfiguredTool,
    Fill,
    OfferedTool,
    PromptNode,
    ToolNode,
    Workflow,
    WorkflowNode,
    editor_schema,
)

NODES: list[dict[str, Any]] = [
    {"id": "profile", "tool": "data_analyze", "args": {"input_file_path": "${inputs.path}"}, "retry": {"attempts": 2}},
    {"id": "score", "code": "1 + 1", "needs": ["profile"], "output": {"type": "integer"}, "memory": {"enabled": False}},
    {"id": "script", "code": {"file": "score.py"}, "when": "always"},
    {"id": "explain", "prompt": "Explain ${nodes.profile.text}", "tools": ["*", {"name": "web_search"}]},
    {"id": "release", "ask": {"approve": "Send it?", "timeout_s": 60}},
    {"id": "pick", "ask": {"choose": ["a", "b"]}},
    {"id": "form", "ask": {"fill": {"type": "object"}, "question": "Who?"}},
    {"id": "regions", "workflow": "region.yaml", "for_each": [1, 2], "on_item_error": "collect", "finally": True},
]
WHOLE: dict[str, Any] = {
    "version": 1,
    "name": "report",
    "inputs": {"path": {"type": "string"}, "limit": {"type": "integer", "default": 3}},
    "tools": {"fetch": {"tool": "http_client", "fixed_config": {"method": "GET"}, "exposed_inputs": ["url"]}},
    "nodes": NODES,
    "outputs": {"text": "${nodes.explain.text}"},
}


def test_the_key_of_a_node_decides_its_kind() -> None:
    made = Workflow.model_validate(WHOLE)
    kinds = [ToolNode, CodeNode, CodeNode, PromptNode, AskNode, AskNode, AskNode, WorkflowNode]
    assert [type(node) for node in made.nodes] == kinds
    assert [type(node.ask) for node in made.nodes[4:7]] == [Approve, Choose, Fill]
    assert made.nodes[2].code == CodeFile(file="score.py")
    assert made.nodes[3].tools == ("*", OfferedTool(name="web_search"))
    assert isinstance(made.tools["fetch"], ConfiguredTool)
    assert [node.always for node in made.nodes] == [False, False, True, False, False, False, False, True]


def test_defaults_are_those_that_the_file_need_not_say() -> None:
    made = Workflow.model_validate(WHOLE)
    assert (made.agent, made.memory.default_scope, made.limits.max_parallel) == ("report", "workflow", 4)
    assert made.input_schema == {
        "type": "object",
        "properties": WHOLE["inputs"],
        "additionalProperties": False,
        "required": ["path"],
    }


def test_a_workflow_cannot_be_changed() -> None:
    made = Workflow.model_validate(WHOLE)
    with pytest.raises(ValidationError):
        made.nodes[0].timeout_s = 5


WRONG: list[dict[str, Any]] = [
    {"id": "a", "tool": "x", "prompt": "two kinds"},
    {"id": "a", "needs": []},
    {"id": "a", "tool": "x", "timeout_s": "60"},
    {"id": "a", "tool": "x", "timeout_s": 0},
    {"id": "a", "tool": "x", "finally": "yes"},
    {"id": "a", "tool": "x", "retrys": {}},
    {"id": "1a", "tool": "x"},
    {"id": "a", "tool": "x", "needs": "b"},
    {"id": "a", "ask": {"approve": "?", "choose": []}},
    {"id": "a", "code": {"path": "x.py"}},
]


_VALIDATOR = jsonschema.Draft202012Validator(editor_schema())


@pytest.mark.parametrize("node", WRONG)
def test_what_is_no_node_is_refused_by_the_models_and_by_the_schema_for_editors(node: dict[str, Any]) -> None:
    wrong = {**WHOLE, "nodes": [node]}
    with pytest.raises(ValidationError):
        Workflow.model_validate(wrong)
    assert not _VALIDATOR.is_valid(wrong)


def test_the_schema_for_editors_accepts_every_kind_and_marks_unknown_keys() -> None:
    jsonschema.Draft202012Validator.check_schema(_VALIDATOR.schema)
    _VALIDATOR.validate(WHOLE)
    for place in (WHOLE, WHOLE["tools"]["fetch"]):
        place["surplus"] = 1
        assert not _VALIDATOR.is_valid(WHOLE)
        del place["surplus"]


@pytest.mark.parametrize("word", [*spellings(), "JavaScript", "kernel:python3"])
def test_a_node_takes_every_language_that_kernels_take(word: str) -> None:
    node = CodeNode(id="a", code="1", language=word)
    assert node.language == language_of(word)
    jsonschema.validate(word.lower(), CodeNode.model_json_schema()["properties"]["language"])


@pytest.mark.parametrize("word", ["cobol", "kernel:", " "])
def test_a_node_refuses_a_language_that_nobody_runs(word: str) -> None:
    with pytest.raises(ValidationError, match=f"{', '.join(LANGUAGES)} or kernel:NAME"):
        CodeNode(id="a", code="1", language=word)


def test_two_dollars_write_an_opening_brace_where_nothing_is_filled_in(tmp_path: Path) -> None:
    inputs = {"x": {"type": "array", "default": ["costs ${price}", {"y": "$${inputs.x}"}]}}
    made = Workflow.model_validate({**WHOLE, "inputs": inputs})
    assert made.inputs["x"]["default"] == ["costs ${price}", {"y": "${inputs.x}"}]
    assert CodeNode(id="a", code='print("$${inputs.x} ${y}")').source(tmp_path) == 'print("${inputs.x} ${y}")'
    (tmp_path / "a.sh").write_text("echo $${x}")
    assert CodeNode(id="a", code=CodeFile(file="a.sh"), language="sh").source(tmp_path) == "echo $${x}"
