"""A call that waits for a yes, as a card shows it: its arguments as fields, what it would change, and what was said."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, get_args

from nbtools.contract.approval.approval_request import ApprovalRequest, asker
from nbtools.contract.approval.gate import Answer, Reply, is_yes
from nbtools.errors import InvalidArguments, NbtoolsError
from nbtools.ground import aio
from nbtools.texts.redaction import redact
from nbtools.texts.visible import visible
from nbtools.widgets.forms.fields import fields_of, problems_of, values_of

if TYPE_CHECKING:
    from nbtools.agent.approvals import PendingApproval
    from nbtools.contract.tool import Tool

_TOLD: Mapping[str, str] = {
    "once": "allowed once",
    "tool": "allowed, as this tool is for the rest of the session",
    "content": "allowed, as this exact call is for the rest of the session",
    "no": "not allowed",
    "later": "left for later",
}


class Proposal:
    """A call that someone may allow, change or refuse.

    Parameters
    ----------
    tool
        What would run.
    arguments
        As the tool would get them.
    about
        More for people: ``caller``, ``consequence``, ``reason``.
    request
        Returns what is asked for the call with other arguments, or raises what is wrong with them; `None` where only
        the door can tell.
    parts
        What the call would change; `None` has it looked up by `request`.
    """

    def __init__(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        about: Mapping[str, str],
        *,
        request: Callable[[Mapping[str, Any]], Coroutine[Any, Any, ApprovalRequest]] | None = None,
        parts: list[dict[str, str]] | None = None,
    ) -> None:
        self._tool = tool
        self._arguments = dict(arguments)
        self._about = dict(about)
        self._request = request
        self._parts = parts

    @classmethod
    def of_request(cls, request: ApprovalRequest) -> Proposal:
        """Return what the gate asks."""
        about = {"caller": asker(request.call.caller), "consequence": request.consequence, "reason": request.reason}
        parts = request.shown_parts()
        return cls(request.tool, request.call.arguments, about, request=request.changed, parts=parts)

    @classmethod
    def of_pending(
        cls,
        waiting: PendingApproval,
        tool: Tool,
        request: Callable[[Tool, Mapping[str, Any], str], Coroutine[Any, Any, ApprovalRequest]],
    ) -> Proposal:
        """Return what a run of an agent waits for; what it would change is looked up again, by `request`."""
        about = {"caller": asker("model"), "consequence": waiting.consequence, "reason": waiting.reason}
        return cls(tool, waiting.arguments, about, request=lambda arguments: request(tool, arguments, waiting.reason))

    def view(self) -> dict[str, Any]:
        """Return what a card shows."""
        fields = fields_of(self._tool.schema, redact(self._arguments))
        for field in fields:
            if isinstance(field["value"], str):
                # Nothing in an argument may look like something else; what is not edited goes on as it is.
                field["value"] = visible(field["value"], lines=True)
        parts = self._parts
        if parts is None:
            try:
                parts = self._parts_with(self._arguments)
            except NbtoolsError as exc:
                parts = [{"title": visible(exc.message), "text": ""}]
        about = {name: visible(text) for name, text in self._about.items()}
        return {"tool": self._tool.name, "title": self._tool.title, "fields": fields, "parts": parts, **about}

    def check(self, edited: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is wrong with what was typed, by field, and what the call would change now."""
        try:
            return {"problems": {}, "parts": self._parts_with(self._changed(edited))}
        except NbtoolsError as exc:
            return {"problems": problems_of(exc, {*self._tool.schema["properties"], *self._arguments})}

    def reply(self, answer: str, edited: Mapping[str, Any], reason: str, by: str) -> Reply:
        """Return what was answered.

        Raises
        ------
        InvalidArguments
            There is no such answer, or what was typed does not fit.
        """
        if answer not in get_args(Answer):
            raise InvalidArguments(f"{answer!r} is not an answer.", hint=f"Answers are {', '.join(get_args(Answer))}.")
        arguments = None
        if edited and is_yes(answer):
            arguments = self._changed(edited)
            self._parts_with(arguments)
        return Reply(answer=answer, arguments=arguments, reason=reason.strip(), by=by)  # type: ignore[arg-type]  # one of them

    def _changed(self, edited: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with what was typed; an emptied field takes its argument away."""
        changed = values_of(self._tool.schema, edited, self._arguments)
        unchanged = {name: value for name, value in self._arguments.items() if name not in edited}
        return {**unchanged, **changed}

    def _parts_with(self, arguments: Mapping[str, Any]) -> list[dict[str, str]]:
        """Return what the call would change with other arguments, and raise what is wrong with them."""
        if self._request is not None:
            return aio.run(self._request(arguments)).shown_parts()
        self._tool.parameters.validate(arguments, None)
        return []


def told_of(reply: Reply) -> str:
    """Return what was answered, in words."""
    words = "allowed with changes" if reply.arguments is not None else _TOLD[reply.answer]
    return f"{words}: {visible(reply.reason)}" if reply.reason else words
