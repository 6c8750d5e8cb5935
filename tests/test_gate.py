"""The gate: pure decisions, rules from a configuration, people who answer."""

from __future__ import annotations

import io
from typing import Any

import pytest

from nbtools.errors import ConfigInvalid
from nbtools.gate import ApprovalRequest, AskTerminal, Grants, Rule, check_names, decide, rules_from_config
from nbtools.parameters import SchemaParameters
from nbtools.tool import Effects, Tool, ToolCall


def made(name: str = "x", *, trusted: bool = True, **effects: bool) -> Tool:
    return Tool(
        name=name,
        function=lambda: None,
        parameters=SchemaParameters({}),
        effects=Effects(**effects),
        trusted=trusted,
    )


@pytest.mark.parametrize(
    ("effects", "caller", "action"),
    [
        ({"read_only": True}, "model", "allow"),
        ({"read_only": True}, "python", "allow"),
        ({"destructive": True}, "python", "allow"),
        ({"destructive": True}, "magic", "allow"),
        ({"destructive": True}, "workflow", "allow"),
        ({"destructive": True}, "model", "ask"),
        ({"destructive": True}, "mcp", "ask"),
        ({}, "model", "allow"),
        ({"open_world": True}, "model", "allow"),
    ],
)
def test_the_defaults_ask_only_for_what_a_model_may_destroy(effects: dict[str, bool], caller: Any, action: str) -> None:
    assert decide((), made(**effects), {}, caller).action == action


BELOW_TMP = {"x": {"action": "allow", "arguments": {"path": "/tmp/*"}}, "*": "deny"}


@pytest.mark.parametrize(
    ("policy", "tool", "arguments", "caller", "action"),
    [
        ({"x": "deny"}, made(read_only=True), {}, "python", "deny"),
        ({"file_*": "ask"}, made("file_write"), {}, "python", "ask"),
        ({"file_*": "ask"}, made("code"), {}, "python", "allow"),
        ({"open_world": "deny"}, made(open_world=True), {}, "python", "deny"),
        ({"x": "allow", "*": "deny"}, made("x"), {}, "python", "allow"),
        ({"*": "deny", "x": "allow"}, made("x"), {}, "python", "allow"),
        (
            BELOW_TMP,
            made(),
            {"path": "/tmp/a"},
            "model",
            "allow",
        ),
        (
            BELOW_TMP,
            made(),
            {"path": "/etc"},
            "model",
            "deny",
        ),
        (BELOW_TMP, made(), {}, "model", "deny"),
        ({"x": {"action": "deny", "callers": ["model"]}}, made(), {}, "model", "deny"),
        ({"x": {"action": "deny", "callers": "model"}}, made(), {}, "python", "allow"),
        ({"x": [{"action": "deny", "callers": "model"}, {"action": "ask"}]}, made(), {}, "python", "ask"),
        ({"destructive": "allow"}, made(destructive=True), {}, "model", "allow"),
    ],
)
def test_a_policy_is_judged_from_the_particular_to_the_general(
    policy: dict[str, Any], tool: Tool, arguments: dict[str, Any], caller: Any, action: str
) -> None:
    decision = decide(rules_from_config(policy), tool, arguments, caller)
    assert decision.action == action
    assert decision.reason


def test_effects_that_a_stranger_claims_are_not_believed() -> None:
    claimed = made(trusted=False, read_only=True)
    assert decide((), claimed, {}, "python").action == "ask"
    assert decide(rules_from_config({"x": "allow"}), claimed, {}, "model").action == "allow"


@pytest.mark.parametrize(
    ("policy", "hint"),
    [
        ({"x": "perhaps"}, "Use allow, ask or deny."),
        ({"x": {"acton": "deny"}}, "Did you mean 'action'?"),
        ({"x": {"arguments": {}}}, "Use allow, ask or deny."),
        ({"x": {"action": "deny", "effects": ["harmless"]}}, "Use read_only, destructive, idempotent, open_world."),
    ],
)
def test_a_policy_with_a_mistake_is_refused(policy: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigInvalid, match="policy 'x'") as caught:
        rules_from_config(policy)
    assert caught.value.hint == hint


def test_a_rule_for_a_tool_that_does_not_exist_is_refused() -> None:
    known = ("shell", "calculator")
    check_names(rules_from_config({"shell": "deny", "calc*": "ask", "open_world": "ask", "server__x": "allow"}), known)
    with pytest.raises(ConfigInvalid, match="deny 'calculatr', and there is no such tool") as caught:
        check_names(rules_from_config({"calculatr": "deny"}), known)
    assert caught.value.hint == "Did you mean 'calculator'?"


def test_a_rule_reads_as_a_line() -> None:
    assert str(Rule(action="deny", tool="file_*", callers=("model",))) == "deny file_* by model"
    assert str(Rule(action="allow")) == "allow everything"


def _request(**arguments: Any) -> ApprovalRequest:
    call = ToolCall(tool="x", arguments=arguments, caller="model")
    return ApprovalRequest(tool=made(destructive=True, open_world=True), call=call, reason="by default: ask")


def test_a_request_reads_with_tool_arguments_and_consequence() -> None:
    text = _request(code="a = 1\nb = 2", n=3, long="y" * 1_000).text()
    lines = text.splitlines()
    assert "x (may overwrite, delete or run things, reaches beyond this machine)" in lines[0]
    assert "  code: a = 1" in lines
    assert "  n: 3" in lines
    assert "(1,000 characters)" in text
    assert lines[-1] == "  (by default: ask)"


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["y"], "once"),
        (["YES"], "once"),
        (["t"], "tool"),
        (["a"], "content"),
        (["n"], "no"),
        (["what?", "", "y"], "once"),
        (["?", "?", "?", "y"], "no"),
        ([], "no"),
    ],
)
def test_a_person_at_a_terminal_answers(typed: list[str], answer: str) -> None:
    import asyncio

    left = iter(typed)

    def read(prompt: str) -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    out = io.StringIO()
    assert asyncio.run(AskTerminal(read, out).approve(_request(n=1))) == answer
    assert "wants to run" in out.getvalue()


def test_grants_cover_what_was_said_and_nothing_else() -> None:
    grants = Grants()
    call = ToolCall(tool="x", arguments={"a": 1, "b": [2]})
    same = ToolCall(tool="x", arguments={"b": [2], "a": 1})
    other = ToolCall(tool="x", arguments={"a": 2})
    grants.remember(call, "once")
    assert not grants.covers(call)
    grants.remember(call, "content")
    assert (grants.covers(call), grants.covers(same), grants.covers(other)) == (True, True, False)
    grants.remember(call, "tool")
    assert grants.covers(other)
    assert not grants.covers(ToolCall(tool="y", arguments={"a": 1, "b": [2]}))
