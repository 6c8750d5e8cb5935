"""A run as people and programs see it: its events while it runs, and its outcome."""

from __future__ import annotations

import asyncio
import dataclasses
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from nbtools.agent.approvals import PendingApproval
from nbtools.agent.records.events import AgentEvent, CallEnded
from nbtools.agent.records.lines import usage_words
from nbtools.agent.records.run_record import RunRecord
from nbtools.contract.label import Label
from nbtools.contract.result import ErrorInfo, ToolResult
from nbtools.errors import ApprovalPending, Interrupted
from nbtools.ground import aio
from nbtools.texts.other_words import KnowsOtherWords
from nbtools.texts.visible import visible, wrapped


class AgentRun(KnowsOtherWords):
    """One run of an agent.

    Iterate over it, sync or async, for all its events from the first one, as often as you like; `wait` for its end.

    Parameters
    ----------
    record
        What is kept of it.

    Examples
    --------
    ::

        run = wb.agent.start("How many penguins are there?", model="claude")
        for event in run:
            print(event.kind)
        print(run.text)
    """

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._lock = threading.Lock()
        self._events: list[AgentEvent] = []
        self._takers: list[Callable[[AgentEvent | None], None]] = []
        self._done = threading.Event()
        self._cancel: Callable[[], object] = lambda: None
        self._interrupt: Callable[[], object] = lambda: None
        self._say: Callable[[str], object] = lambda _: None

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        """Its id."""
        return self.record.run_id

    @property
    def conversation_id(self) -> str:
        """The conversation that it belongs to."""
        return self.record.conversation_id

    @property
    def state(self) -> str:
        """``running``, ``done``, ``pending`` (it waits for approval), ``budget``, ``cancelled`` or ``failed``.

        It is ``incomplete`` where the model's answer was cut, broke off or is empty, ``refused`` where the model would
        not answer, and ``interrupted`` where the process that ran it is gone.
        """
        return self.record.state

    @property
    def model(self) -> str:
        """The model that answered."""
        return self.record.model

    @property
    def seen(self) -> Label:
        """The label of what its model has seen, and so of its answer."""
        return Label.of(self.record.options.seen)

    @property
    def label(self) -> str:
        """``scripted (no LLM)`` where a script played the model, else empty."""
        return self.record.label

    @property
    def is_plan(self) -> bool:
        """Whether it ends with a plan, having changed nothing."""
        return self.record.options.plan

    @property
    def prompt(self) -> str:
        """What was asked."""
        return self.record.prompt

    @property
    def text(self) -> str:
        """The answer, or the part of it that existed when the run stopped."""
        return self.record.text

    @property
    def value(self) -> Any:
        """The answer by the schema, where one was given."""
        return self.record.value

    @property
    def usage(self) -> dict[str, Any]:
        """Steps, tool calls, tokens, seconds, and US dollars where the price is known, else `None`."""
        return self.record.ledger.counts()

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for an answer, which ``wb.agent.resume`` takes."""
        return tuple(PendingApproval(**item) for item in self.record.pending)

    @property
    def error(self) -> ErrorInfo | None:
        """Why it failed, reached a budget or has an incomplete answer; `None` otherwise."""
        return None if self.record.error is None else ErrorInfo(**self.record.error)

    @property
    def events(self) -> tuple[AgentEvent, ...]:
        """What happened so far in this process."""
        with self._lock:
            return tuple(self._events)

    @property
    def calls(self) -> tuple[CallEnded, ...]:
        """The calls that have returned so far, in the order of their return."""
        return tuple(event for event in self.events if isinstance(event, CallEnded))

    def raise_for_error(self, further: str | None = None) -> AgentRun:
        """Return the run, if it is done.

        Parameters
        ----------
        further
            How to continue, added to the hint of its error.

        Raises
        ------
        NbtoolsError
            It failed, was stopped, reached a budget, waits for approval, or the model gave no whole answer.
        """
        if self.state == "pending":
            names = ", ".join(item.tool for item in self.pending)
            raise ApprovalPending(
                f"the run waits for approval of {names}.", hint=f"wb.agent.resume({self.run_id!r}, …)"
            )
        error = self.error
        if error is None and self.state != "done":
            error = ErrorInfo(code="CANCELLED", message=f"the run is {self.state}.")
        if error is not None:
            error = dataclasses.replace(error, hint="; ".join(filter(None, (error.hint, further))) or None)
            ToolResult(ok=False, tool="agent", call_id=self.run_id, text=error.message, error=error).raise_for_error()
        return self

    # -- while it runs -------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Stop it; returns at once, from any thread. The conversation can go on."""
        self._cancel()

    def interrupt(self) -> None:
        """Stop it as `cancel` does, but leave a call that is waiting for approval right now to wait."""
        self._interrupt()

    def say(self, text: str) -> None:
        """Send the model a message at its next step."""
        self._say(text)

    async def await_end(self) -> AgentRun:
        """Wait until the run ends or waits for an answer, and return it; cancelling this call cancels the run."""
        try:
            async for _ in self:
                pass
        finally:
            self.cancel()  # harmless at the end
        return self

    def wait(self, timeout: float | None = None) -> AgentRun:
        """Block until the run ends or waits for an answer; Ctrl-C and Stop interrupt it.

        Parameters
        ----------
        timeout
            Seconds; `None` waits for ever. After a timeout the run continues.
        """
        try:
            aio.wait(self._done, timeout)
        except KeyboardInterrupt:
            self.interrupt()
            # A model that does not answer must not hold the cell for longer; what was said so far is stored by then.
            self._done.wait(5.0)
            raise Interrupted(self) from None
        return self

    def __iter__(self) -> Iterator[AgentEvent]:
        events: queue.SimpleQueue[AgentEvent | None] = queue.SimpleQueue()
        self._give_to(events.put)
        while (event := events.get()) is not None:
            yield event

    async def __aiter__(self) -> AsyncIterator[AgentEvent]:
        running = asyncio.get_running_loop()
        events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()

        def take(event: AgentEvent | None) -> None:
            # Events come on nbtools' loop, and an asyncio queue belongs to the one that reads it.
            running.call_soon_threadsafe(events.put_nowait, event)

        self._give_to(take)
        while (event := await events.get()) is not None:
            yield event

    def _give_to(self, take: Callable[[AgentEvent | None], None]) -> None:
        with self._lock:
            # Under the lock, so that a late listener misses nothing and gets nothing twice.
            for event in self._events:
                take(event)
            if self._done.is_set():
                take(None)
            else:
                self._takers.append(take)

    # -- for its driver ------------------------------------------------------------------------------------------------

    def follow(
        self, *, cancel: Callable[[], object], interrupt: Callable[[], object], say: Callable[[str], object]
    ) -> None:
        """Set the functions that stop the run and that send it a message."""
        self._cancel, self._interrupt, self._say = cancel, interrupt, say

    def take(self, event: AgentEvent) -> None:
        """Pass an event to all listeners."""
        with self._lock:
            self._events.append(event)
            self._tell(event)

    def end(self) -> None:
        """Tell all listeners that no more events follow."""
        with self._lock:
            self._done.set()
            self._tell(None)
            self._takers.clear()

    def _tell(self, event: AgentEvent | None) -> None:
        for take in list(self._takers):
            try:
                take(event)
            except RuntimeError:  # its loop is closed: nobody waits there any more
                self._takers.remove(take)

    def __repr__(self) -> str:
        totals = ", ".join(usage_words(self.usage))
        lines = [f"AgentRun {self.run_id}: {self.state} ({self.label or self.model}; {totals})"]
        lines += [visible(self.text, lines=True)] if self.text else []
        lines += [f"{self.error.code}: {visible(self.error.message, lines=True)}"] if self.error else []
        lines += [f"waits for an answer to {item.id}:\n{wrapped(item.text)}" for item in self.pending]
        return "\n".join(lines)
