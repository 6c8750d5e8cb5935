"""Asking for approval in a run: events, answers that were given before, and what an approval is bound to."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nbtools.agent.records.budgets import Ledger
from nbtools.agent.records.events import AgentEvent, ApprovalAnswered, ApprovalAsked
from nbtools.aio import in_thread
from nbtools.gate import ApprovalRequest, Approver, Nobody, Reply, is_yes
from nbtools.prepared import PreparedCall
from nbtools.redaction import redact

__all__ = ["PendingApproval", "RunApprover", "seal_of"]

_MOST_HASHED = 64 * 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class PendingApproval:
    """A call that waits for an answer, also after the process has ended.

    Attributes
    ----------
    id
        What it is answered by.
    tool, arguments
        What would run: validated, defaults filled in, paths followed.
    consequence, reason
        What a yes would do, and why it is asked.
    text
        The request as a person reads it.
    digest
        What an answer is bound to: the prepared call, its tool, and the files that it names as they were.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]
    consequence: str
    reason: str
    text: str
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**dataclasses.asdict(self), "arguments": dict(self.arguments)}


def seal_of(prepared: PreparedCall) -> str:
    """Return what an approval is bound to: the digest of the call, and the state of each file that it names."""
    told = [prepared.digest]
    for name in prepared.values:
        place = prepared.place(name)
        if place is None:
            continue
        try:
            found = os.stat(place)  # noqa: PTH116 - a `Place` may be no `Path`
            told.append(f"{name} {found.st_size} {found.st_mtime_ns}")
            if os.path.isfile(place) and found.st_size <= _MOST_HASHED:  # noqa: PTH113 - same
                with open(place, "rb") as file:  # noqa: PTH123 - same
                    told[-1] = f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}"
        except OSError as exc:
            told.append(f"{name} {type(exc).__name__}")
    return hashlib.sha256("\n".join(told).encode("utf-8", "surrogatepass")).hexdigest()


class RunApprover:
    """Asks for the calls of one run, one after the other.

    Parameters
    ----------
    behind
        Who is asked.
    emit
        Takes the events.
    ledger
        Its clock stands still meanwhile.
    mark
        Is awaited with the id of a call, and ``"asked"`` before or ``"started"`` after a yes.
    answers
        Replies that were given before, by ids of calls, each with the digest that it is bound to.
    """

    def __init__(
        self,
        behind: Approver,
        *,
        emit: Callable[[AgentEvent], None],
        ledger: Ledger,
        mark: Callable[[str, str], Awaitable[None]],
        answers: Mapping[str, tuple[Reply, str]] | None = None,
    ) -> None:
        self._behind = behind
        self._emit = emit
        self._ledger = ledger
        self._mark = mark
        self._answers = dict(answers or {})
        self._lock = asyncio.Lock()
        self.pending: dict[str, PendingApproval] = {}

    async def approve(self, request: ApprovalRequest) -> Reply:
        """Ask; what was answered before counts if nothing has changed since."""
        asked = request.prepared
        call_id = asked.call.call_id
        async with self._lock:
            seal = await in_thread(seal_of, asked)
            given, bound = self._answers.pop(call_id, (None, ""))
            if given is not None and bound != seal:
                told = f"{request.reason}; what was answered for has changed since, so it is asked again"
                request, given = dataclasses.replace(request, reason=told), None
            waiting = _pending(request, seal)
            self._emit(
                ApprovalAsked(
                    call_id=call_id,
                    **{k: v for k, v in waiting.to_dict().items() if k != "id"},
                )
            )
            reply = given if given is not None else await self._ask(request)
            if is_yes(reply.answer) and given is None and await in_thread(seal_of, asked) != seal:
                reply = Reply(answer="no", reason="a file of it changed while it was asked for. Propose it again")
            if reply.answer == "later":
                self.pending[call_id] = waiting
            elif is_yes(reply.answer):
                await self._mark(call_id, "started")
            self._emit(
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

    async def _ask(self, request: ApprovalRequest) -> Reply:
        if isinstance(self._behind, Nobody):
            return Reply(answer="no", reason="nobody is here to give it")
        await self._mark(request.call.call_id, "asked")
        self._ledger.pause_clock()
        try:
            return Reply.of(await self._behind.approve(request))
        finally:
            self._ledger.resume_clock()


def _pending(request: ApprovalRequest, seal: str) -> PendingApproval:
    return PendingApproval(
        id=request.call.call_id,
        tool=request.tool.name,
        arguments=redact(dict(request.call.arguments)),
        consequence=request.consequence,
        reason=request.reason,
        text=request.text(),
        digest=seal,
    )
