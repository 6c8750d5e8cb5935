"""What a label makes of a call, by the rules alone: what was seen, what the call can do, where it leads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import pytest

from nbtools.contract.approval.gate import AskFunction, Reply, Rule, decide
from nbtools.contract.approval.label_rules import Marks, of_call, see_names
from nbtools.contract.door import Door
from nbtools.contract.execute import LocalExecutor
from nbtools.contract.label import UNLABELLED, Label, join
from nbtools.contract.prepared import PreparedCall, Reading, prepare
from nbtools.contract.signature.parameters import SchemaParameters
from nbtools.contract.tool import Context, Effects, Tool, ToolCall, tool, tool_of
from nbtools.ground import aio
from nbtools.ground.paths import Roots

STRANGERS, PRIVATE = Label(strangers=True), Label(private=True)


def prepared(arguments: dict[str, Any], *, label: Label, hosts: frozenset[str] = frozenset(), **effects: bool) -> Any:
    made = Tool(name="x", function=lambda: None, parameters=SchemaParameters({}), effects=Effects(**effects))
    call = ToolCall(tool="x", arguments=arguments, caller="model", label=label, hosts=hosts)
    return asyncio.run(prepare(made, call))


def test_where_nobody_keeps_marks_nothing_is_marked() -> None:
    none, path = Marks(), Path("notes.txt")
    answers = [none.has_any(), none.knows_file(path), none.knows_names([path]), none.knows_value("text")]
    assert answers == [False] * 4
    assert (none.lift(path), none.so_far("call")) == (0, UNLABELLED)


@pytest.mark.parametrize(
    ("labels", "joined"),
    [
        ([], UNLABELLED),
        ([UNLABELLED, PRIVATE], PRIVATE),
        ([STRANGERS, UNLABELLED], STRANGERS),
        ([STRANGERS, PRIVATE], Label(strangers=True, private=True)),
    ],
)
def test_what_one_of_several_holds_all_of_them_hold(labels: list[Label], joined: Label) -> None:
    assert join(labels) == joined


@pytest.mark.parametrize(
    ("label", "effects", "action"),
    [
        (UNLABELLED, {}, "allow"),
        (STRANGERS, {}, "ask"),
        (STRANGERS, {"idempotent": True}, "ask"),
        (STRANGERS, {"read_only": True}, "allow"),
        (PRIVATE, {}, "allow"),
        (PRIVATE, {"read_only": True, "open_world": True}, "ask"),
        (STRANGERS, {"read_only": True, "open_world": True}, "ask"),
        (UNLABELLED, {"read_only": True, "open_world": True}, "allow"),
    ],
)
def test_a_label_asks_for_what_changes_something_or_reaches_out(
    label: Label, effects: dict[str, bool], action: str
) -> None:
    assert decide((), prepared({}, label=label, **effects)).action == action


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ({"url": "https://a.example/x"}, "allow"),
        ({"url": "https://b.example/x"}, "ask"),
        ({"url": "https://a.example/x", "copy": "https://b.example/y"}, "ask"),
        ({"url": "https://a.example/x", "note": "what was seen"}, "ask"),
        ({}, "ask"),
    ],
)
def test_a_named_host_spares_a_question_where_all_of_the_call_leads_there(
    arguments: dict[str, str], action: str
) -> None:
    call = prepared(arguments, label=PRIVATE, hosts=frozenset({"a.example"}), read_only=True, open_world=True)
    assert decide((), call).action == action


def judged(rule: Rule, path: Path) -> str:
    def move(path: Path) -> None:
        """Move."""

    call = ToolCall(tool="move", arguments={"path": str(path)}, caller="python")
    services = {Roots: lambda: Roots([path.anchor])}
    return decide((rule,), asyncio.run(prepare(tool_of(move), call, services))).action


def test_what_may_not_be_touched_inside_may_not_be_moved_with_its_folder(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    deny, allow = (Rule(action=one, tool="move", arguments={"path": f"{secret}/*"}) for one in ("deny", "allow"))
    assert [judged(deny, path) for path in (secret, secret / "a", tmp_path)] == ["deny", "deny", "allow"]
    rest = Rule(action="deny", tool="move")
    assert decide((allow, rest), _moved(secret)).action == "deny"
    assert decide((allow, rest), _moved(secret / "a")).action == "allow"


def _moved(path: Path) -> PreparedCall:
    def move(path: Path) -> None:
        """Move."""

    call = ToolCall(tool="move", arguments={"path": str(path)}, caller="python")
    return asyncio.run(prepare(tool_of(move), call, {Roots: lambda: Roots([path.anchor])}))


def test_what_cannot_be_read_whole_is_refused_and_never_allowed_by_a_pattern() -> None:
    async def readings(values: Any, ctx: Any) -> dict[str, Reading]:
        return {"command": Reading(parts=("ls",), complete=False)}

    @tool(readings_of=readings)
    def run(command: str) -> None:
        """Run."""

    call = ToolCall(tool="run", arguments={"command": "ls $(x)"}, caller="python")
    made = asyncio.run(prepare(tool_of(run), call))
    deny = Rule(action="deny", tool="run", arguments={"command": "rm*"})
    allow = Rule(action="allow", tool="run", arguments={"command": "ls"})
    assert decide((deny,), made).action == "deny"
    assert decide((allow, Rule(action="deny", tool="run")), made).action == "deny"


def test_a_yes_is_for_what_was_shown_and_not_for_what_it_became_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("print('good')")
    runs: list[str] = []

    @tool(destructive=True)
    def run(path: Annotated[Path, "What."]) -> str:
        """Run a file."""
        runs.append(path.read_text())
        return "ran"

    def answer(_: Any) -> Reply:
        file.write_text("print('evil')")
        return Reply(answer="once")

    services = {Roots: lambda: Roots([tmp_path])}
    door = Door(approver=AskFunction(answer), services=services)
    result = aio.run(door.admit(tool_of(run), ToolCall(tool="run", arguments={"path": str(file)}, caller="model")))
    assert not result.ok
    assert "has changed while it was asked for" in str(result)
    assert not runs


@pytest.mark.parametrize(
    ("effects", "action"), [({}, "allow"), ({"destructive": True}, "ask"), ({"open_world": True}, "ask")]
)
def test_a_tool_that_judges_each_call_is_asked_for_where_this_one_does_harm(
    effects: dict[str, bool], action: str
) -> None:
    @tool(effects_of=lambda *_: Effects(**effects))
    def act() -> None:
        """Act."""

    call = ToolCall(tool="act", arguments={}, caller="model", label=STRANGERS)
    assert decide((), asyncio.run(prepare(tool_of(act), call))).action == action


def test_a_tool_that_reaches_a_named_host_may_change_something_there_and_is_asked_for() -> None:
    @tool(effects_of=lambda *_: Effects(open_world=True))
    def send(url: str) -> None:
        """Send."""

    call = ToolCall(tool="send", arguments={"url": "https://named.example/"}, caller="model", label=STRANGERS)
    call = call.but(hosts=frozenset({"named.example"}))
    decision = decide((), asyncio.run(prepare(tool_of(send), call)))
    assert decision.action == "ask"
    assert "has read what strangers may have written" in decision.reason


@pytest.mark.parametrize(
    ("effects", "trusted", "label"),
    [
        ({}, True, PRIVATE),
        ({"public": True}, True, UNLABELLED),
        ({"public": True, "open_world": True}, True, STRANGERS),
        ({"public": True}, False, STRANGERS),
        ({}, False, Label(strangers=True, private=True)),
    ],
)
def test_what_a_call_gives_is_labelled_by_what_its_tool_declares(
    effects: dict[str, bool], trusted: bool, label: Label
) -> None:
    made = Tool(
        name="x", function=lambda: None, parameters=SchemaParameters({}), effects=Effects(**effects), trusted=trusted
    )
    assert of_call(asyncio.run(prepare(made, ToolCall(tool="x", arguments={})))) == label


@pytest.mark.parametrize(("has_seen_more", "questions"), [(False, 1), (True, 2)])
def test_a_part_of_what_was_said_yes_to_is_asked_for_once_more_was_seen(has_seen_more: bool, questions: int) -> None:
    asked: list[str] = []

    def answer(request: Any) -> Reply:
        asked.append(request.tool.name)
        return Reply(answer="once")

    @tool()
    def part() -> str:
        """Do a part."""
        return "done"

    @tool()
    async def whole(ctx: Context) -> str:
        """Do the whole."""
        if has_seen_more:
            ctx.seen.append(PRIVATE)
        call = ToolCall(tool="part", arguments={}, caller="model")
        return str((await door.admit(tool_of(part), call)).raise_for_error().text)

    door = Door(approver=AskFunction(answer))
    call = ToolCall(tool="whole", arguments={}, caller="model", label=STRANGERS)
    assert aio.run(door.admit(tool_of(whole), call)).ok
    assert asked == ["whole", "part"][:questions]


class NamedByStrangers(Marks):
    """Knows one name that strangers gave."""

    def knows_names(self, paths: Iterable[Path]) -> bool:
        return Path("theirs") in paths


@tool(read_only=True)
def list_names(name: str, *, ctx: Context) -> list[str]:
    """List names.

    Parameters
    ----------
    name
        The name that is there.
    """
    see_names(ctx, [Path("own"), Path(name)])
    return [name]


def test_a_list_of_names_is_strangers_where_one_of_them_is() -> None:
    knowing, plain = Door(services={Marks: NamedByStrangers}), Door()
    for door, name, is_theirs in ((knowing, "theirs", True), (knowing, "other", False), (plain, "theirs", False)):
        result = LocalExecutor([list_names], door=door).call(ToolCall(tool="list_names", arguments={"name": name}))
        assert (result.data, result.label.strangers) == ([name], is_theirs)
