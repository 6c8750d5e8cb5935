"""Approval by the client, by elicitation, as the older and the newer protocol do it.

In the older protocol the client is asked while the call waits. In the newer one (2026-07-28) the call is answered with
``input_required``, and the client repeats it with the answer.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import secrets
from collections.abc import Coroutine, Mapping
from typing import Any, NoReturn

from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import Answer
from nbtools.errors import ApprovalDenied, Cancelled
from nbtools.ground.lazy import need
from nbtools.texts.visible import wrapped
from nbtools.workflow.offered import QuestionForms

_WHY = "Serving tools over MCP"
_MAX_OPEN = 1_000
_CAPABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
_ANSWERS: dict[str, Answer] = {"yes, once": "once", "yes, this tool for the whole session": "tool", "no": "no"}
_ALL = "show all of it"
_COLUMNS = 100  # nobody knows how wide the client's form is: wider ones leave the lines as they are


class Questions:
    """Questions that clients of the newer protocol answer by repeating a call, each bound to what was shown.

    The client gets a state and returns it with the answer. The state stands for the seal of the call in question and
    for the seals of calls approved on the way there, and is valid once.
    """

    def __init__(self) -> None:
        self._open: collections.OrderedDict[str, tuple[str, frozenset[str]]] = collections.OrderedDict()

    def ask(self, digest: str, approved: frozenset[str]) -> str:
        """Return the state for a question about a prepared call."""
        state = secrets.token_urlsafe(16)
        self._open[state] = (digest, approved)
        while len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)
        return state

    def take(self, state: str | None) -> tuple[str, frozenset[str]]:
        """Return the seal in question and the seals approved before; nothing for a state that is unknown or used."""
        return self._open.pop(state or "", ("", frozenset()))


class McpClient:
    """The client of the request that a call came with; a tool gets it by ``ctx.use(McpClient)``.

    Attributes
    ----------
    session
        The official package's session: for asking the client for more than a yes (``elicit_form``, ``create_message``).
    request_id
        Id of the request, to which the client's answer belongs.
    pending
        What the client is to be asked before it repeats the call; `None` when nothing.
    inputs
        The answers that this call is repeated with, by name.
    state
        The state that a tool gave to `require`; `None` where none did.
    required
        What is sent in place of a result when a tool requires more; an error where the client cannot give that.
    """

    def __init__(self, context: Any, params: Any, questions: Questions, *, lasting: bool) -> None:
        self._context = context
        self._form = (getattr(params, "input_responses", None) or {}).get("approval")
        self._questions = questions
        sent: str | None = getattr(params, "request_state", None)
        token, is_of_a_tool, own = (sent or "").partition(" ")
        self._request, self._approved = questions.take(token)
        self._loop = asyncio.get_running_loop()
        self._lasting = lasting
        self.inputs: Mapping[str, Any] = getattr(params, "input_responses", None) or {}
        self.state: str | None = own if is_of_a_tool else None
        self.required: Any = None
        self.session = context.session
        self.request_id = context.request_id
        self.pending: ApprovalRequest | None = None
        self._whole = False

    @property
    def can_elicit(self) -> bool:
        """Whether the client declared that it shows forms."""
        capabilities = self._context.session.client_capabilities
        return capabilities is not None and capabilities.elicitation is not None

    def require(self, requests: Mapping[str, Any] | None = None, *, state: str | None = None) -> NoReturn:
        """End the call, and ask the client to repeat it with more input (protocols from 2026-07-28 on).

        Parameters
        ----------
        requests
            Name to a request of the official package: ``ElicitRequest``, ``CreateMessageRequest`` and the like.
        state
            Comes back unchanged with the answers, in `state`.

        Raises
        ------
        Cancelled
            Always; the door records it.
        """
        types = need("mcp.types", extra="mcp", why=_WHY)
        capabilities = self._context.session.client_capabilities
        declared = capabilities.model_dump(by_alias=True, exclude_none=True) if capabilities is not None else {}
        needed: dict[str, Any] = {_CAPABILITIES[request.method]: {} for request in (requests or {}).values()}
        if missing := {name: value for name, value in needed.items() if name not in declared}:
            error = need("mcp", extra="mcp", why=_WHY).MCPError
            message = f"this call needs a client that supports {', '.join(missing)}"
            code = types.MISSING_REQUIRED_CLIENT_CAPABILITY
            self.required = error(code, message, {"requiredCapabilities": missing})
        else:
            # What was approved on the way here holds when the call is repeated.
            if state is not None or self._approved:
                state = f"{self._questions.ask('', self._approved)} {state or ''}"
            self.required = types.InputRequiredResult(input_requests=requests or None, request_state=state)
        raise Cancelled("the call waits until the client repeats it with the answers.")

    def asked_for(self) -> Any:
        """Return what the call is answered with when a tool required more, else `None`.

        Raises
        ------
        MCPError
            The client cannot give what was required.
        """
        if isinstance(self.required, Exception):
            raise self.required
        return self.required

    async def ask(self, request: ApprovalRequest) -> Answer:
        """Return the client's answer, or note what it is to be asked.

        Raises
        ------
        ApprovalDenied
            The client shows no forms, so no one was asked; or it is asked by the answer to this call.
        """
        digest = request.seal
        # The call is repeated from its beginning by clients of the newer era: it passes here a second time.
        if digest in self._approved:
            return "once"
        whole = self._form is not None and digest == self._request and _chosen(self._form) == _ALL
        if self._form is not None and digest == self._request and not whole:
            answer = _answer(self._form)
            self._approved |= {digest} if answer != "no" else set()
            return answer
        if not self.can_elicit:
            raise _nobody(request)
        if not self._context.session.can_send_request:
            # A client can only repeat what it has sent itself.
            if request.call.parent_id is not None:
                return "later"  # the call that makes it is the one to be repeated
            self.pending, self._whole = request, whole
            raise ApprovalDenied(f"{request.tool.name} waits for approval.", hint="Repeat the call with the answer.")
        choice = await self._elicit(*_asking(request, lasting=self._lasting))
        if _chosen(choice) == _ALL:
            choice = await self._elicit(*_asking(request, lasting=self._lasting, whole=True))
        return _answer(choice)

    async def _elicit(self, text: str, schema: Mapping[str, Any]) -> Any:
        """Show a form on the connection's own loop: a workflow runs on that of nbtools."""
        asking: Coroutine[Any, Any, Any] = self._context.session.elicit_form(
            wrapped(text, _COLUMNS), dict(schema), related_request_id=self._context.request_id
        )
        if asyncio.get_running_loop() is self._loop:
            return await asking
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, self._loop))

    def forms(self) -> QuestionForms:
        """Return how the client is asked the questions of a workflow, in the way of its era."""
        answers = {name: _fields(form_answer) for name, form_answer in self.inputs.items()}
        if not self.can_elicit:
            return QuestionForms(answers=answers, state=self.state or "")
        if not self._context.session.can_send_request:
            return QuestionForms(leave=self._leave, answers=answers, state=self.state or "")

        async def ask(text: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
            return _fields(await self._elicit(text, schema))

        return QuestionForms(ask=ask)

    def _leave(self, forms: Mapping[str, tuple[str, Mapping[str, Any]]], state: str) -> NoReturn:
        types = need("mcp.types", extra="mcp", why=_WHY)
        params = {
            name: types.ElicitRequestFormParams(message=wrapped(text, _COLUMNS), requested_schema=dict(schema))
            for name, (text, schema) in forms.items()
        }
        self.require({name: types.ElicitRequest(params=one) for name, one in params.items()}, state=state)

    def question(self, request: ApprovalRequest) -> tuple[str, dict[str, Any], str]:
        """Return the words and the form of a pending question, and the state that its answer comes back with."""
        state = self._questions.ask(request.seal, self._approved)
        text, schema = _asking(request, lasting=self._lasting, whole=self._whole)
        return wrapped(text, _COLUMNS), schema, state


CLIENT: contextvars.ContextVar[McpClient | None] = contextvars.ContextVar("nbtools_mcp_client", default=None)


class ElicitationApprover:
    """Asks the client of the request that the call came with; without a client that shows forms the call is denied."""

    async def approve(self, request: ApprovalRequest) -> Answer:
        """Ask the client; anything but a clear yes is a no."""
        client = CLIENT.get()
        if client is None:
            raise _nobody(request)
        return await client.ask(request)


def _nobody(request: ApprovalRequest) -> ApprovalDenied:
    name = request.tool.name
    return ApprovalDenied(
        f"{name} needs approval, but this client cannot ask for it.",
        hint=f'Use a client that supports elicitation, or allow the tool in nbtools.toml: policy.{name} = "allow".',
    )


def _asking(request: ApprovalRequest, *, lasting: bool, whole: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the text and the form for a call; where the text is shortened, one of the answers asks for all of it."""
    text, all_of_it = request.text(), request.text(whole=True)
    schema = form(lasting=lasting)
    if whole or text == all_of_it:
        return all_of_it, schema
    schema["properties"]["answer"]["enum"].append(_ALL)
    return text, schema


def form(*, lasting: bool) -> dict[str, Any]:
    """Return the schema of the form; with `lasting`, an answer may hold for the whole session."""
    answers = [word for word, answer in _ANSWERS.items() if lasting or answer != "tool"]
    choice = {"type": "string", "title": "May it run?", "enum": answers}
    return {"type": "object", "properties": {"answer": choice}, "required": ["answer"]}


def _fields(result: Any) -> Mapping[str, Any] | None:
    """Return the fields of the form; none after a no, `None` where the form was closed without an answer."""
    action = getattr(result, "action", None)
    return dict(result.content or {}) if action == "accept" else {} if action == "decline" else None


def client_forms() -> QuestionForms:
    """Return how to ask the client whose request is being handled; where there is none, nothing is asked."""
    client = CLIENT.get()
    return QuestionForms() if client is None else client.forms()


def _chosen(result: Any) -> str:
    return str((result.content or {}).get("answer", "")) if getattr(result, "action", None) == "accept" else ""


def _answer(result: Any) -> Answer:
    if getattr(result, "action", None) != "accept":
        return "no"
    # A client may show the form as a bare yes or no.
    return _ANSWERS.get(str((result.content or {}).get("answer", "yes, once")), "no")
