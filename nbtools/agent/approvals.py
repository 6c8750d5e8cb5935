"""Asking for approval in a run: events, answers that were given before, and what an approval is bound to."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from nbtools.agent.records.events import ApprovalAnswered, ApprovalAsked, AskedCall
from nbtools.agent.records.run_log import AgentRunLog
from nbtools.contract.approval.approval_request import ApprovalRequest, request_text
from nbtools.contract.approval.gate import Approver, Nobody, Reply, is_yes
from nbtools.contract.execute import LocalExecutor
from nbtools.errors import InvalidArguments, NbtoolsError
from nbtools.ground.paths import Roots
from nbtools.texts.redaction import redact

Answers = Mapping[str, Reply | str | bool] | Reply | str | bool | None
"""Answers to calls that wait, by their ids, or one for all; `True` is once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PendingApproval(AskedCall):
    """A call that waits for an answer, even after the process has ended.

    Attributes
    ----------
    id
        What it is answered by.
    asked_at
        When it was asked, in seconds since the epoch.
    """

    id: str
    asked_at: float = 0.0

    @property
    def whole(self) -> str:
        """The request with all of its arguments, however long they are."""
        return request_text(self.text.partition("\n")[0], self.arguments, self.reason, self.parts, whole=True)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**dataclasses.asdict(self), "arguments": dict(self.arguments), "parts": [*map(dict, self.parts)]}


class RunApprover:
    """Asks for the calls of one run, one after the other.

    Parameters
    ----------
    behind
        Who is asked.
    log
        The run, whose clock stands still meanwhile.
    answers
        Replies that were given before, by ids of calls, each with what it was given to.
    waited
        The ids of calls that waited when the run went on: where no one can be asked, they wait again.
    seconds
        For how long after it was asked a call may be answered with yes.
    """

    def __init__(
        self,
        behind: Approver,
        *,
        log: AgentRunLog,
        answers: Mapping[str, tuple[Reply, PendingApproval]] | None = None,
        waited: Collection[str] = (),
        seconds: float = math.inf,
    ) -> None:
        self._behind = behind
        self._log = log
        self._answers = dict(answers or {})
        self._waited = waited
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._left = asyncio.Event()
        self._is_asking = False
        self.pending: dict[str, PendingApproval] = {}

    async def approve(self, request: ApprovalRequest) -> Reply:
        """Ask; what was answered before counts if nothing has changed since."""
        call_id, seal = request.call.call_id, request.seal
        # A person reads one question at a time; calls of one answer come at once.
        async with self._lock:
            given_reply, was = self._answers.pop(call_id, (None, None))
            # An answer is for what was shown: it was given before the process ended, and files may have changed since.
            lapsed = self._lapsed(given_reply, was, seal)
            if lapsed:
                request = dataclasses.replace(request, reason=f"{request.reason}; {lapsed}, so it is asked again")
                # Where no one can be asked it waits again: an answer that comes too late loses nothing.
                given_reply = Reply(answer="later", reason=lapsed) if isinstance(self._behind, Nobody) else None
            waiting = _pending(request)
            self._log.emit(
                ApprovalAsked(
                    call_id=call_id,
                    **{k: v for k, v in waiting.to_dict().items() if k not in {"id", "asked_at"}},
                )
            )
            reply = given_reply if given_reply is not None else await self._ask(request)
            if reply.answer == "later":
                self.pending[call_id] = waiting
            self._log.emit(
                ApprovalAnswered(
                    call_id=call_id,
                    tool=request.tool.name,
                    answer=reply.answer,
                    by=reply.by,
                    reason=reply.reason,
                    arguments=reply.arguments,
                )
            )
        return reply

    def leave(self) -> bool:
        """Leave what someone is asked just now, and what comes after it, for later; return whether one was asked."""
        if self._is_asking:
            self._left.set()
        return self._is_asking

    def _lapsed(self, reply: Reply | None, was: PendingApproval | None, seal: str) -> str:
        """Return why a yes to a call is no longer valid; nothing where it is."""
        if reply is None or was is None or not is_yes(reply.answer):
            return ""
        if was.digest != seal:
            return "what was answered for has changed since: the call, its tool, or what it names or would change"
        if time.time() - was.asked_at > self._seconds:
            return f"it was asked more than {self._seconds:,.0f} s before it was answered"
        return ""

    async def _ask(self, request: ApprovalRequest) -> Reply:
        if isinstance(self._behind, Nobody):
            # What waited before goes on waiting; a new call that no one can be asked for gets a no, from which the
            # model goes on.
            waits = request.call.call_id in self._waited
            return Reply(answer="later" if waits else "no", reason=self._behind.why)
        asking, leaving = map(asyncio.ensure_future, (self._behind.approve(request), self._left.wait()))
        # The time that a person takes is not the run's.
        self._log.record.ledger.pause_clock()
        self._is_asking = True
        try:
            await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return Reply.of(asking.result()) if asking.done() else Reply(answer="later", reason="the run was stopped")
        finally:
            self._is_asking = False
            self._log.record.ledger.resume_clock()
            asking.cancel()
            leaving.cancel()


def _pending(request: ApprovalRequest) -> PendingApproval:
    return PendingApproval(
        id=request.call.call_id,
        tool=request.tool.name,
        arguments=redact(dict(request.call.arguments)),
        consequence=request.consequence,
        reason=request.reason,
        text=request.text(),
        digest=request.seal,
        parts=tuple(request.shown_parts()),
        asked_at=time.time(),
    )


def check_changes(
    pending: Iterable[Mapping[str, Any]], replies: Mapping[str, Reply], executor: LocalExecutor, tried: str
) -> None:
    """Check changed arguments before the answers count: a mistake in them must not consume the approval.

    Raises
    ------
    NbtoolsError
        They do not fit the tool, or name a file that it may not use.
    """
    tools, roots = executor.tools(), executor.door.services[Roots]()
    for item in pending:
        reply = replies.get(item["id"])
        if reply is not None and reply.arguments is not None and item["tool"] in tools:
            try:
                tools[item["tool"]].parameters.validate(dict(reply.arguments), roots)
            except NbtoolsError as exc:
                exc.tried = tried
                raise


def replies_of(answers: Answers, waiting: Sequence[str], tried: str) -> dict[str, Reply]:
    """Return the replies to calls that wait, by their ids."""
    if answers is None:
        return {}
    if not isinstance(answers, Mapping):
        answers = dict.fromkeys(waiting, answers)
    for name in answers:
        if name not in waiting:
            hint = f"Those that wait are {', '.join(waiting) or 'none'}."
            raise InvalidArguments(f"no call {name!r} waits for an answer.", hint=hint, tried=tried)
    return {name: Reply.of(answer) for name, answer in answers.items()}


def same_reply(
    pending: Sequence[PendingApproval],
    answer: Any,
    *,
    by: str,
    reason: str = "",
    changes: Mapping[str, Any] | None = None,
) -> dict[str, Reply]:
    """Return the same reply to every call that waits; arguments are changed only where one does.

    Raises
    ------
    InvalidArguments
        Arguments are to be changed, but more or fewer than one call is waiting.
    """
    # One change for several calls would approve arguments that no one has read.
    if changes and len(pending) != 1:
        raise InvalidArguments(
            f"--set needs exactly one waiting call; {len(pending)} are waiting.", hint="Leave it out to be asked."
        )
    return {
        item.id: Reply(
            answer=answer, arguments={**item.arguments, **changes} if changes else None, reason=reason, by=by
        )
        for item in pending
    }
