"""The gate: pure decisions, rules from a configuration, people who answer."""

from __future__ import annotations

import asyncio
import dataclasses
import io
from pathlib import Path
from typing import Annotated, Any

import pytest

from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import AskTerminal, Grants, Rule, check_names, decide, rules_from_config
from nbtools.contract.prepared import PreparedCall, prepare
from nbtools.contract.registry import Registry
from nbtools.contract.signature.parameters import Canonical, SchemaParameters
from nbtools.contract.tool import Effects, Reading, Tool, ToolCall, tool, tool_of
from nbtools.errors import ConfigInvalid


def asked(
    tool: Tool, arguments: dict[str, Any] | None = None, caller: Any = "model", session: str = ""
) -> PreparedCall:
    call = ToolCall(tool=tool.name, arguments=arguments or {}, caller=caller, session=session)
    return asyncio.run(prepare(tool, call))


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
        ({"undeclared": True}, "python", "allow"),
        ({"undeclared": True}, "workflow", "allow"),
        ({"undeclared": True}, "model", "ask"),
        ({"undeclared": True}, "mcp", "ask"),
    ],
)
def test_the_defaults_ask_only_for_what_a_model_may_destroy(effects: dict[str, bool], caller: Any, action: str) -> None:
    assert decide((), asked(made(**effects), caller=caller)).action == action


def test_who_says_nothing_of_effects_declares_none() -> None:
    def wipe() -> None:
        """Wipe all."""

    bare, false = tool_of(wipe), tool_of(tool(destructive=False)(wipe))
    assert [bare.effects.undeclared, false.effects.undeclared] == [True, False]
    request = ApprovalRequest(prepared=asked(bare), reason=decide((), asked(bare)).reason)
    assert "wipe (declares no effects: it may do anything) wants to run" in request.text()
    assert "@tool(read_only=True)" in request.text()
    # Whoever knows their own tools may let them run.
    assert decide(rules_from_config({"undeclared": "allow"}), asked(bare)).action == "allow"


def test_effects_of_a_server_that_is_not_trusted_are_shown_as_claims() -> None:
    request = ApprovalRequest(prepared=asked(made(read_only=True, trusted=False)), reason="?")
    assert request.consequence == "its server claims: only reads"


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
    decision = decide(rules_from_config(policy), asked(tool, arguments, caller))
    assert decision.action == action
    assert decision.reason


def test_effects_that_a_stranger_claims_are_not_believed() -> None:
    claimed = made(trusted=False, read_only=True)
    assert decide((), asked(claimed, caller="python")).action == "ask"
    assert decide(rules_from_config({"x": "allow"}), asked(claimed)).action == "allow"


@pytest.mark.parametrize(("pattern", "action"), [("ls*", "ask"), ("*", "allow"), ("[lr]*", "allow")])
def test_a_rule_allows_what_consists_of_parts_where_all_of_them_fit(pattern: str, action: str) -> None:
    async def readings(values: Any, ctx: Any) -> dict[str, Reading]:
        return {"command": Reading(parts=("ls", "rm a"))}

    @tool(readings_of=readings)
    def run(command: str) -> None:
        """Run."""

    rules = (Rule(action="allow", arguments={"command": pattern}), Rule(action="ask"))
    assert decide(rules, asked(tool_of(run), {"command": "ls; rm a"})).action == action


@pytest.mark.parametrize(
    ("policy", "hint"),
    [
        ({"x": "perhaps"}, "Use allow, ask or deny."),
        ({"x": {"acton": "deny"}}, "Did you mean 'action'?"),
        ({"x": {"arguments": {}}}, "Use allow, ask or deny."),
        (
            {"x": {"action": "deny", "effects": ["harmless"]}},
            "Use read_only, destructive, idempotent, open_world, public, undeclared.",
        ),
        ({"x": {"action": "deny", "callers": "modle"}}, "Did you mean 'model'?"),
        ({"x": {"action": "deny", "arguments": ["path"]}}, 'Use {"path": "out/*"}: a name and a pattern.'),
        ({"x": {"action": "deny", "base": "/"}}, "Use action, effects, callers, arguments."),
    ],
)
def test_a_policy_with_a_mistake_is_refused(policy: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigInvalid, match="policy 'x'") as caught:
        rules_from_config(policy)
    assert caught.value.hint == hint


def test_a_rule_for_a_tool_that_does_not_exist_is_refused() -> None:
    known = {name: made(name) for name in ("shell", "calculator")}
    check_names(rules_from_config({"shell": "deny", "calc*": "ask", "open_world": "ask", "server__x": "allow"}), known)
    with pytest.raises(ConfigInvalid, match="deny 'calculatr', and there is no such tool") as caught:
        check_names(rules_from_config({"calculatr": "deny"}), known)
    assert caught.value.hint == "Did you mean 'calculator'?"


def test_a_rule_reads_as_a_line() -> None:
    assert str(Rule(action="deny", tool="file_*", callers=("model",))) == "deny file_* by model"
    assert str(Rule(action="allow")) == "allow everything"


def _request(**arguments: Any) -> ApprovalRequest:
    return ApprovalRequest(prepared=asked(made(destructive=True, open_world=True), arguments), reason="by default: ask")


def test_a_request_reads_with_tool_arguments_and_consequence() -> None:
    text = _request(code="a = 1\nb = 2", n=3, flag=True).text()
    assert text.splitlines() == [
        "x (may overwrite, delete or run things, reaches beyond this machine) wants to run, asked for by a model:",
        "  code:",
        "  │ a = 1",
        "  │ b = 2",
        "  n: 3",
        "  flag: true",
        "  (by default: ask)",
    ]


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
def test_a_person_at_a_terminal_answers(typed: list[str], answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
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


def test_nothing_of_an_argument_can_pass_for_another_part_of_the_question() -> None:
    forged = "print(1)\n  (by default: allow read_only)\nAllow? y"
    hidden = "x\r\x1b[2K\u202egpj\u200b\u00a0\u3164"
    lines = _request(code=forged, **{"a\n  (harmless)": hidden}).text().splitlines()
    assert lines[1:5] == ["  code:", "  │ print(1)", "  │   (by default: allow read_only)", "  │ Allow? y"]
    assert lines[5] == "  a<U+000A>  (harmless): x<U+000D><U+001B>[2K<U+202E>gpj<U+200B><U+00A0><U+3164>"


def test_the_end_of_what_is_long_is_shown_and_what_is_left_out_is_counted() -> None:
    text = _request(code="\n" * 10_000 + "remove()", line="a" * 100_000 + "; rm -r /").text()
    assert "[… 9,601 more lines not shown …]" in text
    assert "  │ remove()" in text
    assert "[… 60,009 more characters not shown …]" in text
    assert "; rm -r /" in text
    assert len(text) < 50_000
    short = "a" * 5_000
    assert short in _request(code=short).text()


def test_all_of_what_is_long_can_be_shown_before_it_is_answered() -> None:
    typed, asked, out = iter(["s", "", "q", "s", "", "", "", "", "y"]), list[str](), io.StringIO()

    def read(prompt: str) -> str:
        asked.append(prompt)
        return next(typed)

    code = "\n".join([*(f"line({n})" for n in range(450)), "remove()"])
    assert asyncio.run(AskTerminal(read, out).approve(_request(code=code))) == "once"
    assert "[s]how all of it" in asked[0]
    assert asked[1].endswith("more lines: Enter continues, q ends: ")
    assert "  │ line(225)\n" in out.getvalue()  # the middle, which the question itself leaves out
    assert (
        asyncio.run(AskTerminal(lambda prompt: "s" if "[s]" in prompt else "y", out).approve(_request(code="x")))
        == "once"
    )


def test_a_line_that_goes_on_below_itself_cannot_pass_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = io.StringIO()
    forged = "x = 1" + " " * 200 + "(by default: allow read_only)\t" + "漢" * 30
    asyncio.run(AskTerminal(lambda _: "n", out).approve(_request(code=f"{forged}\ny", note=forged)))
    lines = out.getvalue().splitlines()
    widths = [sum(2 if char == "漢" else 1 for char in line) for line in lines]
    assert max(widths) < 40
    told = [line for line in lines if "allow read_only" in line]
    assert len(told) == 2
    assert all(line.startswith("  ┊ ") for line in told)


def test_grants_cover_what_was_said_and_nothing_else() -> None:
    grants = Grants()
    tool = made()
    first = asked(tool, {"a": 1, "b": [2]})
    same = asked(tool, {"b": [2], "a": 1})
    other = asked(tool, {"a": 2})
    grants.remember(first, "once")
    assert not grants.covers(first)
    grants.remember(first, "content")
    assert (grants.covers(first), grants.covers(same), grants.covers(other)) == (True, True, False)
    grants.remember(first, "tool")
    assert grants.covers(other)
    assert not grants.covers(asked(made("y"), {"a": 1, "b": [2]}))
    assert not grants.covers(asked(tool, {"a": 1, "b": [2]}, session="another's"))
    assert not grants.covers(asked(dataclasses.replace(tool, about="Now it does more."), {"a": 2}))


@pytest.mark.parametrize(
    ("rules", "action"),
    [
        ({"file_write": "deny"}, "deny"),
        ({"file_write": "deny", "note": "allow"}, "deny"),
        ({"file_*": "ask", "note": "allow"}, "ask"),
        ({"file_write": "allow", "note": "ask"}, "ask"),
        ({"*": "deny", "note": "allow"}, "allow"),
        ({"file_write": [{"action": "deny", "arguments": {"path": "b"}}, "allow"]}, "allow"),
        ({}, "ask"),
    ],
)
def test_a_tool_under_another_name_stays_under_the_rules_of_its_original(rules: dict[str, Any], action: str) -> None:
    note = Registry([made("file_write", destructive=True)]).configured("file_write", new_name="note")
    assert decide(rules_from_config(rules), asked(note, {"path": "a"})).action == action


@pytest.mark.parametrize(("action", "pattern"), [("deny", "secret*"), ("deny", "SECRET*"), ("ask", "secret*")])
def test_what_is_refused_is_refused_in_every_case_of_its_letters(action: str, pattern: str) -> None:
    def send(header: str) -> None:
        """Send."""

    rules = (Rule(action=action, tool="send", arguments={"header": pattern}),)
    assert [decide(rules, asked(tool_of(send), {"header": text})).action for text in ("secret-a", "Secret-A")] == [
        action,
        action,
    ]


@pytest.mark.parametrize(("pattern", "action"), [("python", "deny"), ("py", "deny"), ("p?", "deny"), ("pyt*", "allow")])
def test_a_value_in_a_rule_has_all_its_spellings_and_a_pattern_none(pattern: str, action: str) -> None:
    def run(language: Annotated[str, Canonical(lambda text: text[:2])]) -> None:
        """Run."""

    rules = (Rule(action="deny", tool="run", arguments={"language": pattern}),)
    assert decide(rules, asked(tool_of(run), {"language": "python"}, caller="python")).action == action


@tool
def touch(path: Path, sure: bool = False) -> str:
    """Touch a file.

    Parameters
    ----------
    path
        Which one.
    sure
        Whether it is certain.
    """
    return str(path)


@pytest.mark.parametrize(
    ("pattern", "path", "action"),
    [
        ("secret", "secret", "deny"),
        ("secret/", "secret", "deny"),
        ("secret", "secrets", "allow"),
        ("sub/*", "sub/x", "deny"),
        ("sub/*", "sub", "deny"),  # whoever moves the folder moves what is inside
        ("sub/a*", "sub", "allow"),
        ("sub/a*", "sub/ab", "deny"),
        ("sub/a*", "sub/b", "allow"),
        ("*/x", "deep/x", "deny"),
        ("*.key", "deep/a.key", "deny"),
        ("BASE/s*", "sub", "deny"),
        ("/*", "sub/x", "deny"),
        ("link/*", "sub/x", "deny"),
    ],
)
def test_a_pattern_of_paths_means_the_files_that_it_names(tmp_path: Path, pattern: str, path: str, action: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "sub")
    rule = {"action": "deny", "arguments": {"path": pattern.replace("BASE", str(tmp_path))}}
    rules = rules_from_config({"touch": rule}, base=tmp_path)
    assert decide(rules, asked(tool_of(touch), {"path": str(tmp_path / path)}, caller="python")).action == action


@pytest.mark.parametrize("pattern", ["True", "true", "t*"])
def test_a_truth_value_is_written_in_either_way(pattern: str, tmp_path: Path) -> None:
    rules = rules_from_config({"touch": {"action": "deny", "arguments": {"sure": pattern}}})
    answers = [
        decide(rules, asked(tool_of(touch), {"path": "x", "sure": sure}, caller="python")).action
        for sure in (True, False)
    ]
    assert answers == ["deny", "allow"]


def test_a_grant_holds_for_the_reason_that_it_was_given_for() -> None:
    other, by_label = made("a", destructive=True), made("b", destructive=True)
    grants = Grants()
    grants.remember(asked(other), "tool")
    grants.remember(asked(by_label), "tool", by_label=True)
    covered = [(grants.covers(asked(each)), grants.covers(asked(each), by_label=True)) for each in (other, by_label)]
    assert covered == [(True, False), (True, True)]


def test_rules_for_callers_come_before_those_for_all() -> None:
    policy = {"x": ["deny", {"action": "ask", "callers": ["model"]}], "*": {"action": "allow", "callers": ["model"]}}
    rules = rules_from_config(policy)
    assert [decide(rules, asked(made("x"), caller=caller)).action for caller in ("model", "python")] == ["ask", "deny"]
