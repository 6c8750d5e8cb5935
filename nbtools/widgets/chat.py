"""A conversation with an agent: text as it is written, a card for each call, approvals and questions in their place.

What the agent says comes in events, which a thread takes for each run. Texts grow piece by piece and are not part of
the items; an item says where its text stands. A call that was left for later keeps its card: once all that wait are
answered, the run goes on. Where another cell or process answers, the card says so: each click looks first, and while
a page with the card is seen it looks every other second.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import html
import json
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import traitlets

from nbtools.agent.records.events import (
    AgentEvent,
    AgentRunEnded,
    ApprovalAnswered,
    CallEnded,
    CallProposed,
    TextDelta,
)
from nbtools.agent.records.lines import RunLines, usage_line
from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import Reply
from nbtools.errors import InvalidArguments, NbtoolsError
from nbtools.ground.aio import in_thread
from nbtools.texts.visible import brief
from nbtools.widgets.forms.fields import problems_of
from nbtools.widgets.forms.proposals import Proposal, told_of
from nbtools.widgets.forms.results import cell_of, pictures_of
from nbtools.widgets.live.live_widget import LiveWidget, ViewRequest
from nbtools.widgets.live.sources import module_text, style_text

if TYPE_CHECKING:
    from nbtools.agent import AgentRun, AgentService
    from nbtools.contract.registry import Registry
    from nbtools.contract.tool import Tool

_MOST_TEXT = 4_000


class Chat(LiveWidget):
    """A conversation that goes on run by run.

    Parameters
    ----------
    agent
        Runs the model.
    tools
        Returns the tools, for the fields of a call that waits.
    request
        Returns what is asked for a call, given its tool, arguments and the reason.
    run
        A run that the conversation goes on from; one that waits for approval shows what it waits for.
    can_write
        Whether a message can be written; without, the widget only finishes `run`.
    settings
        Of each run, see `nbtools.agent.settings.RunSettings`.
    """

    _esm = module_text("chat")
    _css = style_text("cards", "workflow", "chat")
    lanes: ClassVar[Mapping[str, str]] = {"stop": "stop", "check": "check", "undo": "undo"}
    looks: ClassVar[frozenset[str]] = frozenset({"look"})
    items: Any = traitlets.List().tag(sync=True)
    state = traitlets.Unicode("idle").tag(sync=True)  # idle, starting, running, pending, elsewhere: another goes on
    run_id = traitlets.Unicode("").tag(sync=True)
    can_write = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self,
        agent: AgentService,
        *,
        tools: Callable[[], Registry],
        request: Callable[[Tool, Mapping[str, Any], str], Coroutine[Any, Any, ApprovalRequest]],
        run: AgentRun | None = None,
        can_write: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._agent, self._tools, self._request = agent, tools, request
        self._settings = dict(settings or {})
        self._run = run
        self._lock = threading.RLock()
        self._count = 0
        self._lines = RunLines()
        self._writes = ""  # the item whose text grows
        self._proposals: dict[str, Proposal] = {}
        self._waiting: dict[str, concurrent.futures.Future[Any]] = {}
        self._replies: dict[str, Reply] = {}
        super().__init__(title="Agent", can_write=can_write)
        if run is not None:
            self._rest(run)

    # -- items ---------------------------------------------------------------------------------------------------------

    def _put(self, kind: str, *, key: str = "", **facts: Any) -> str:
        """Add an item, or change the one of that key; return the key."""
        with self._lock:
            items = [dict(item) for item in self.items]
            item_known = next((item for item in items if item["id"] == key), None)
            if item_known is not None:
                item_known.update(facts)
            else:
                self._count += 1
                key = key or f"item-{self._count}"
                items.append({"id": key, "kind": kind, **facts})
            self.items = items
        return key

    # -- what people do ------------------------------------------------------------------------------------------------

    def answer_send(self, request: ViewRequest) -> None:
        """Start a run with a message, or hand it to the model that works."""
        message = str(request.args["text"]).strip()
        if not message:
            return
        if self.state == "running" and self._run is not None:
            self._put("user", text=message)
            self._run.say(message)
            return
        settings = {**self._settings, "approver": self, "ask": self._ask}
        if self._run is not None:
            settings["after"] = self._run
        # Shown at once: the first run of a kernel takes seconds to begin.
        key, before, self.state = self._put("user", text=message), self.state, "starting"
        try:
            run = self._agent.start(message, **{**settings, "words": message})
        except BaseException:
            self.items, self.state = [item for item in self.items if item["id"] != key], before
            raise
        for item in self.items:
            if item.get("state") == "asking":
                self._put("approval", key=item["id"], state="over", told="not answered")
        self._follow(run)

    def answer_stop(self, request: ViewRequest) -> None:
        """End the run that goes on."""
        if self._run is not None:
            self._run.cancel()

    def answer_resume(self, request: ViewRequest) -> None:
        """Go on with the run that ended before it was done."""
        self._go_on()

    def answer_undo(self, request: ViewRequest) -> list[dict[str, Any]]:
        """Take back what a run did to files and notes, and say what became of each."""
        return self._agent.undo(request.args["run"])

    def answer_check(self, request: ViewRequest) -> dict[str, Any]:
        """Say what is wrong with the arguments as typed, and what the call would change."""
        return self._proposals[request.args["id"]].check(request.args["edited"])

    def answer_decide(self, request: ViewRequest) -> dict[str, Any]:
        """Take an answer to a call that waits."""
        args, key = request.args, request.args["id"]
        if key not in self._waiting and self._has_moved():
            return {"problems": {}}
        proposal = self._proposals[key]
        try:
            reply = proposal.reply(args["answer"], args["edited"], args.get("reason", ""), "notebook")
        except NbtoolsError as exc:
            fields = next(item for item in self.items if item["id"] == key)["asked"]["fields"]
            return {"problems": problems_of(exc, [field["name"] for field in fields])}
        waiting = self._waiting.pop(key, None)
        if waiting is None and reply.answer == "later":
            return {"problems": {}}
        self._put("approval", key=key, state="answered", told=told_of(reply))
        if waiting is not None:
            waiting.set_result(reply)
        else:
            self._replies[key] = reply
            self._go_on()
        return {"problems": {}}

    def answer_look(self, request: ViewRequest) -> None:
        """Show what became of calls that wait here and were answered elsewhere."""
        if self.state in {"pending", "elsewhere"}:
            self._has_moved()

    def answer_tell(self, request: ViewRequest) -> None:
        """Take the answer to a question of the model."""
        waiting = self._waiting.pop(request.args["id"], None)
        if waiting is not None:
            self._put("question", key=request.args["id"], told=request.args["answer"])
            waiting.set_result(request.args["answer"])

    # -- who is asked --------------------------------------------------------------------------------------------------

    async def approve(self, request: ApprovalRequest) -> Reply:
        """Ask by a card in the conversation."""
        key = request.call.call_id
        waiting: concurrent.futures.Future[Reply] = concurrent.futures.Future()
        proposal = Proposal.of_request(request)
        self._proposals[key], self._waiting[key] = proposal, waiting
        view = await in_thread(proposal.view)
        if any(item["id"] == f"call-{key}" for item in self.items):
            self._put("call", key=f"call-{key}", state="waits")
        self._put("approval", key=key, asked=view, state="asking", told="")
        try:
            return await asyncio.wrap_future(waiting)
        finally:
            if self._waiting.pop(key, None) is not None:
                self._put("approval", key=key, state="over", told="not answered: the run has ended")

    def _ask(self, question: str, choices: tuple[str, ...]) -> str | None:
        waiting: concurrent.futures.Future[str] = concurrent.futures.Future()
        key = self._put("question", text=question, choices=list(choices), told="")
        self._waiting[key] = waiting
        return waiting.result()

    # -- what the agent does -------------------------------------------------------------------------------------------

    def _follow(self, run: AgentRun) -> None:
        self._run, self.run_id, self.state = run, run.run_id, "running"
        context = contextvars.copy_context()
        work = functools.partial(context.run, self._take_all, run)
        threading.Thread(target=work, name="nbtools-chat", daemon=True).start()

    def _take_all(self, run: AgentRun) -> None:
        try:
            for event in run:
                self._take(event)
        finally:
            self._end_text()
            for waiting in list(self._waiting.values()):
                if not waiting.done():
                    waiting.cancel()
            self._rest(run)

    def _take(self, event: AgentEvent) -> None:
        if isinstance(event, TextDelta):
            if not self._writes:
                self._writes = self._put("text")
            self.text(self._writes).write(event.text)
            return
        self._end_text()
        line = self._lines.line(event.to_dict())
        if isinstance(event, CallProposed):
            arguments = json.dumps(dict(event.arguments), ensure_ascii=False, indent=1, default=str)
            self._put("call", key=f"call-{event.call_id}", tool=event.tool, given=arguments, state="running")
        elif isinstance(event, CallEnded):
            self._put_result(event)
        elif line and not isinstance(event, AgentRunEnded):
            self._put("note", text=line)

    def _end_text(self) -> None:
        if self._writes:
            self.text(self._writes).flush()
            self._writes = ""

    def _put_result(self, event: CallEnded) -> None:
        result = event.result
        text = str(result) if result.error else result.shown_text()
        arguments = self._lines.arguments.get(event.call_id, {})
        self._put(
            "call",
            key=f"call-{event.call_id}",
            tool=event.tool,
            state="done" if result.ok else "failed",
            text=text[:_MOST_TEXT],
            line=brief(text, 100),
            seconds=round(result.duration_s or 0.0, 2),
            pictures=pictures_of(result.artifacts),
            code=cell_of(event.tool, arguments),
        )

    def _rest(self, run: AgentRun) -> None:
        """Show what became of a run, and what it waits for."""
        error = f"{run.error.message} {run.error.hint or ''}".strip() if run.error else ""
        for item in self.items:
            if item["kind"] == "end" and item["run"] == run.run_id:
                self._put("end", key=item["id"], is_last=False)
        self._put("end", run=run.run_id, text=usage_line(run), error=error, is_last=True)
        self._replies.clear()
        for waiting in run.pending:
            if waiting.id not in self._proposals:
                tool = self._tools()[waiting.tool]
                self._proposals[waiting.id] = Proposal.of_pending(waiting, tool, self._request)
            view = self._proposals[waiting.id].view()
            self._put("approval", key=waiting.id, asked=view, state="asking", told="")
        self.run_id, self.state = run.run_id, "pending" if run.pending else "idle"

    def _go_on(self) -> None:
        """Resume the run that waits, once all its calls are answered."""
        run = self._run
        if run is None or any(waiting.id not in self._replies for waiting in run.pending):
            return
        replies, self._replies = self._replies, {}
        try:
            self._follow(self._agent.start_again(run, replies, approver=self, ask=self._ask))
        except NbtoolsError as exc:
            if self._has_moved():  # someone was faster
                return
            for key in replies:
                self._put("approval", key=key, state="asking", told="")
            raise InvalidArguments(f"the run cannot continue: {exc.message}", hint=exc.hint) from exc

    # -- what others do ------------------------------------------------------------------------------------------------

    def _has_moved(self) -> bool:
        """Tell whether the run that waits here went on, or ended, elsewhere, and show what became of its calls."""
        was = self._run
        run = None if was is None or not was.pending else self._agent.get(was.run_id)
        if was is None or run is None or (run.state, run.record.ended_at) == (was.state, was.record.ended_at):
            return False
        is_going, open_calls = run.state == "running", {waiting.id for waiting in run.pending}
        replies = self._replies_to(run)
        for waiting in was.pending:
            if (reply := replies.get(waiting.id)) is not None:
                self._put("approval", key=waiting.id, state="answered", told=reply)
            elif is_going:
                self._put("approval", key=waiting.id, state="elsewhere", told="another cell or process continues it")
            elif waiting.id not in open_calls:
                self._put("approval", key=waiting.id, state="over", told=f"not answered: the run is {run.state}")
        self._replies.clear()
        if is_going:
            self.state = "elsewhere"
        else:
            self._run = run
            self._rest(run)
        return True

    def _replies_to(self, run: AgentRun) -> dict[str, str]:
        """Return what was answered to calls of a run, in words, by their ids; `later` is not an answer."""
        events = [*self._agent.log(run.run_id), *(event.to_dict() for event in run.events)]
        last = {event["call_id"]: event for event in events if event["kind"] == ApprovalAnswered.kind}
        return {
            key: f"{told_of(_reply_of(event))} · elsewhere, {time.strftime('%H:%M', time.localtime(event['at']))}"
            for key, event in last.items()
            if event["answer"] != "later"
        }

    # -- without a front end -------------------------------------------------------------------------------------------

    def _line_of(self, item: Mapping[str, Any]) -> str:
        match item["kind"]:
            case "text":
                return str(self.text(item["id"]))
            case "call":
                return f"  {item['tool']} · {item['state']} · {item.get('line', '')}"
            case "approval":
                return f"  {item['asked']['tool']} asks for approval: {item['told'] or 'it waits'}"
            case "user":
                return f"> {item['text']}"
            case "end":
                resumed = f"→ %agent resume {item['run'][:8]} continues it" if item["error"] and item["is_last"] else ""
                return "\n".join(filter(None, [f"✗ {item['error']}" if item["error"] else "", item["text"], resumed]))
        return str(item.get("text", ""))

    def plain_text(self) -> str:
        """Return the conversation as lines."""
        waits = f"it waits for approval: %agent resume {self.run_id[:8]}" if self.state == "pending" else ""
        return "\n".join(filter(None, [self.title, *map(self._line_of, self.items), waits]))

    def plain_html(self) -> str:
        """Return the conversation as lines of a page."""
        return f"<div style='white-space:pre-wrap'>{html.escape(self.plain_text())}</div>"


def _reply_of(event: Mapping[str, Any]) -> Reply:
    return Reply(**{name: event[name] for name in ("answer", "arguments", "reason", "by") if name in event})
