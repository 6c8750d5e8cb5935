"""Approval by the client: asked by elicitation, in the way of the protocol's older or newer era.

In the older protocol the client is asked while the call waits. In the newer one (2026-07-28) the call is answered with
``input_required``, and the client repeats it with the answer.
"""

from __future__ import annotations

import contextvars
from typing import Any

from nbtools.errors import ApprovalDenied
from nbtools.gate import Answer, ApprovalRequest

__all__ = ["CLIENT", "ElicitationApprover", "McpClient", "form"]

_ANSWERS: dict[str, Answer] = {"yes, once": "once", "yes, this tool all session": "tool", "no": "no"}


class McpClient:
    """The client of the request that a call came with; a tool gets it by ``ctx.use(McpClient)``.

    Attributes
    ----------
    session
        The official package's session: for asking the client for more than a yes (``elicit_form``, ``create_message``).
    request_id
        What the client is told its answer belongs to.
    pending
        What the client is to be asked before it repeats the call; `None` when nothing.
    """

    def __init__(self, context: Any, params: Any) -> None:
        self._context = context
        self._given = (getattr(params, "input_responses", None) or {}).get("approval")
        self.session = context.session
        self.request_id = context.request_id
        self.pending: ApprovalRequest | None = None

    @property
    def can_elicit(self) -> bool:
        """Whether the client declared that it shows forms."""
        capabilities = self._context.session.client_capabilities
        return capabilities is not None and capabilities.elicitation is not None

    async def ask(self, request: ApprovalRequest) -> Answer:
        """Return the client's answer, or note what it is to be asked.

        Raises
        ------
        ApprovalDenied
            The client shows no forms, so nobody was asked; or it is asked by the answer to this call.
        """
        if self._given is not None:
            return _answer(self._given)
        if not self.can_elicit:
            raise _nobody(request)
        if not self._context.session.can_send_request:
            self.pending = request
            raise ApprovalDenied(f"{request.tool.name} waits for approval.", hint="Repeat the call with the answer.")
        said = await self._context.session.elicit_form(
            request.text(), form(), related_request_id=self._context.request_id
        )
        return _answer(said)


CLIENT: contextvars.ContextVar[McpClient | None] = contextvars.ContextVar("nbtools_mcp_client", default=None)


class ElicitationApprover:
    """Asks the client of the request that the call came with; without a client that shows forms the call is denied."""

    async def approve(self, request: ApprovalRequest) -> Answer:
        """Ask, and take anything but a clear yes as a no."""
        client = CLIENT.get()
        if client is None:
            raise _nobody(request)
        return await client.ask(request)


def _nobody(request: ApprovalRequest) -> ApprovalDenied:
    name = request.tool.name
    return ApprovalDenied(
        f"{name} needs approval, and nobody was asked: this client cannot show the question.",
        hint=f'Use a client that supports elicitation, or allow it in nbtools.toml: policy.{name} = "allow".',
    )


def form() -> dict[str, Any]:
    """Return the schema of what the client is asked."""
    choice = {"type": "string", "title": "May it run?", "enum": list(_ANSWERS)}
    return {"type": "object", "properties": {"answer": choice}, "required": ["answer"]}


def _answer(said: Any) -> Answer:
    if getattr(said, "action", None) != "accept":
        return "no"
    # A client may show the form as a bare yes or no.
    return _ANSWERS.get(str((said.content or {}).get("answer", "yes, once")), "no")
