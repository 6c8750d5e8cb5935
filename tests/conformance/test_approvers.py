"""What everyone who answers for the gate promises: one of four answers, and no unless it is clear."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import Approver, AskFunction, AskTerminal, Nobody, Reply
from nbtools.contract.prepared import prepare
from nbtools.contract.signature.parameters import SchemaParameters
from nbtools.contract.tool import Tool, ToolCall
from nbtools.ground import aio
from nbtools.widgets.approval_card import CardApprover

CALL = ToolCall(tool="x", arguments={"path": "a"}, caller="model")
TOOL = Tool(name="x", function=lambda: None, parameters=SchemaParameters({}))
REQUEST = ApprovalRequest(prepared=aio.run(prepare(TOOL, CALL)), reason="by default")


async def _later(answer: Any) -> Any:
    return answer


def _coroutine_function(answer: Any) -> Callable[[ApprovalRequest], Any]:
    async def ask(request: ApprovalRequest) -> Any:
        return answer

    return ask


# How each is made so that it says yes, and so that what it hears is not a clear yes.
APPROVERS: dict[str, tuple[Callable[[], Approver] | None, Callable[[], Approver]]] = {
    "nobody": (None, Nobody),
    "function": (lambda: AskFunction(lambda _: True), lambda: AskFunction(lambda _: "perhaps")),
    "coroutine": (lambda: AskFunction(_coroutine_function("once")), lambda: AskFunction(_coroutine_function(None))),
    "awaitable": (lambda: AskFunction(lambda _: _later(True)), lambda: AskFunction(lambda _: _later(1))),
    "terminal": (
        lambda: AskTerminal(lambda _: "y", io.StringIO()),
        lambda: AskTerminal(lambda _: "well", io.StringIO()),
    ),
    "card": (  # no kernel is here, so whoever stands behind is asked
        lambda: CardApprover(AskFunction(lambda _: True), lambda _: None),
        lambda: CardApprover(AskFunction(lambda _: "perhaps"), lambda _: None),
    ),
}


@pytest.mark.parametrize("name", [name for name, (yes, _) in APPROVERS.items() if yes])
def test_a_yes_holds_once(name: str) -> None:
    make = APPROVERS[name][0]
    assert make is not None
    assert Reply.of(aio.run(make().approve(REQUEST))).answer == "once"


@pytest.mark.parametrize("name", APPROVERS)
def test_what_is_no_clear_yes_is_a_no(name: str) -> None:
    assert Reply.of(aio.run(APPROVERS[name][1]().approve(REQUEST))).answer == "no"
