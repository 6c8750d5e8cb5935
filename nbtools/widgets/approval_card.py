"""The approval card: a call in the cell with its arguments, what it would change, and a button for each scope of a yes.

A cell that runs is busy, so its clicks must be read by another thread: a kernel with subshells has one. Whether the
front end uses it shows at once: the card's view says that it is there. Where none does, the one behind it is asked,
by ``input()`` in most cases.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import html
import sys
from collections.abc import Callable
from typing import Any

import traitlets

from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import Answer, Approver, Reply
from nbtools.errors import NbtoolsError
from nbtools.ground.aio import in_thread
from nbtools.texts import html_parts
from nbtools.widgets.forms.fields import problems_of
from nbtools.widgets.forms.proposals import Proposal, told_of
from nbtools.widgets.live.live_widget import LiveWidget, ViewRequest, has_person, is_served
from nbtools.widgets.live.sources import module_text, style_text


def can_click() -> bool:
    """Tell whether clicks may be handled while a cell runs, and someone may be there to click."""
    if is_served() or not has_person():
        return False
    return bool(getattr(sys.modules["IPython"].get_ipython().kernel, "_supports_kernel_subshells", False))


class ApprovalCard(LiveWidget):
    """A call that waits for a yes.

    Parameters
    ----------
    proposal
        The call.
    """

    _esm = module_text("approval_card")
    _css = style_text("cards")
    proposal = traitlets.Dict().tag(sync=True)
    state = traitlets.Unicode("asking").tag(sync=True)  # asking, answered, or over: nobody waits for an answer
    outcome = traitlets.Unicode("").tag(sync=True)
    draft = traitlets.Dict().tag(sync=True)  # what was typed so far: a view that is drawn again shows it

    def __init__(self, proposal: Proposal) -> None:
        self._proposal = proposal
        self._reply: concurrent.futures.Future[Reply] = concurrent.futures.Future()
        view = proposal.view()
        super().__init__(title=f"{view['tool']} asks for approval", proposal=view)

    def answer_check(self, request: ViewRequest) -> dict[str, Any]:
        """Say what is wrong with what was typed, and what the call would change."""
        return self._proposal.check(request.args["edited"])

    def answer_decide(self, request: ViewRequest) -> dict[str, Any]:
        """Take an answer."""
        args = request.args
        try:
            reply = self._proposal.reply(args["answer"], args["edited"], args.get("reason", ""), "notebook")
        except NbtoolsError as exc:
            return {"problems": problems_of(exc, [field["name"] for field in self.proposal["fields"]])}
        if self.state == "asking":
            self.outcome, self.state = told_of(reply), "answered"
            self._reply.set_result(reply)
        return {"problems": {}}

    async def reply(self) -> Reply:
        """Wait for the answer."""
        return await asyncio.wrap_future(self._reply)

    def end(self, outcome: str) -> None:
        """Take no answer any more, and say why."""
        if self.state == "asking":
            self.outcome, self.state = outcome, "over"

    def plain_text(self) -> str:
        """Return the call as a person reads it."""
        lines = [_as_text(f"{field['name']}:", str(field["value"])) for field in self.proposal["fields"]]
        lines += [_as_text(part["title"], part["text"]) for part in self.proposal["parts"]]
        # A saved notebook keeps what was asked and how it was answered, and none of the buttons.
        return "\n".join([f"{self.title} ({self.proposal['consequence']}) {self.outcome}".rstrip(), *lines])

    def plain_html(self) -> str:
        """Return the same in a frame that opens."""
        head, _, rest = self.plain_text().partition("\n")
        return f"<details><summary>{html.escape(head)}</summary>{html_parts.preformatted(rest)}</details>"


def _as_text(head: str, text: str) -> str:
    """Return a head with its text: behind a bar where it has lines, none of which can look like another part."""
    lines = text.split("\n")
    return f"  {head} {text}".rstrip() if len(lines) == 1 else "\n  │ ".join([f"  {head}", *lines])


class CardApprover:
    """Asks by a card in the cell; where no front end takes clicks, the one that stands behind is asked.

    Parameters
    ----------
    behind
        Who is asked there.
    show
        Shows a widget in the cell.
    """

    def __init__(self, behind: Approver, show: Callable[[LiveWidget], None]) -> None:
        self._behind = behind
        self._show = show
        self._is_unseen = False

    async def approve(self, request: ApprovalRequest) -> Answer | Reply:
        """Show the card and wait for the answer."""
        if self._is_unseen or not can_click():
            return await self._behind.approve(request)
        card = await in_thread(self._open, request)
        try:
            if not await in_thread(card.wait_for_view):
                self._is_unseen = True
                card.end("asked below, because this page delivers no clicks while a cell runs")
                return await self._behind.approve(request)
            return await card.reply()
        finally:
            card.end("not answered: the cell has ended")

    def _open(self, request: ApprovalRequest) -> ApprovalCard:
        card = ApprovalCard(Proposal.of_request(request))
        self._show(card)
        return card
