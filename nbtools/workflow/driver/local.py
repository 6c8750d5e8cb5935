"""The local driver: it does what the plan says, on the nbtools loop, and writes down what became of it.

Everything that happens is an event: it is appended to the log, applied to the state and told to watchers, in
this order. The door has the start of what may change something written down (`nbtools.contract.tool.CallJournal`): it
is on the disk before anything is done. So is the result before a step that needs it starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nbtools.contract.door import running_label
from nbtools.contract.label import UNLABELLED, Label
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import CallJournal
from nbtools.errors import CallTimeout, NbtoolsError
from nbtools.ground.telemetry import span
from nbtools.workflow.driver.definition import RunDefinition
from nbtools.workflow.driver.going_on import FRESH, Choice, EarlierRuns, GoingOn
from nbtools.workflow.driver.inside import free_folder, result_of
from nbtools.workflow.driver.questions import accept, ended_by, question_of, unknown_result
from nbtools.workflow.driver.step_factory import StepFactory
from nbtools.workflow.driver.steps import Means, Runner, StepAttempt, failure_of
from nbtools.workflow.runs import events
from nbtools.workflow.runs.history import EarlierStep, RunHistory
from nbtools.workflow.runs.log import RunLog
from nbtools.workflow.runs.plan import Action, RunPlan, Start
from nbtools.workflow.runs.state import NEVER_AGAIN, RunState, StepState, failure_result, step_label
from nbtools.workflow.spec import AskNode, CodeNode, NodeFields, PromptNode, ToolNode, WorkflowNode

# How often messages of other processes are looked for while a run waits, how often at the most, and how often used time
# is written down.
_POLL_S = 0.25
_LOOK_S = 0.1
_BUDGET_S = 1.0
_LONGEST_WAIT_S = 600.0

AskPerson = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Asks a person: the step's name and the question; returns the answer, `None` where nobody can say."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriveOptions:
    """How a run is driven.

    Attributes
    ----------
    on_event
        Called with each event; what it raises is forgotten.
    ask
        Asks a person; `None` where there is none.
    wait_s
        Seconds to wait for answers of other processes once nothing else can be done; `None` waits for ever.
    reuse
        Results of earlier runs that may be used again; `None` runs everything.
    label
        What the inputs may hold, besides what the call that this is part of has read.
    """

    on_event: Callable[[events.RunEvent], None] | None = None
    ask: AskPerson | None = None
    wait_s: float | None = 0.0
    reuse: EarlierRuns | None = None
    label: Label = UNLABELLED


class Drive:
    """One drive of a run, from where its log ends to where nothing more can be done.

    Parameters
    ----------
    log
        The log, whose lease is held.
    definition
        The workflow as it was at the start of the run.
    runner
        Performs the steps.
    options
        See `DriveOptions`.
    extra_files
        Files of the run around this one that its steps may read.
    goes_on
        Whether a run that has ended continues, with its files as they are now.
    """

    def __init__(
        self,
        log: RunLog,
        definition: RunDefinition,
        runner: Runner,
        options: DriveOptions,
        extra_files: tuple[str, ...] = (),
        *,
        goes_on: bool = False,
    ) -> None:
        self.log = log
        self._definition = definition
        self._workflow = definition.workflow
        self._runner = runner
        self._options = options
        self._plan = RunPlan(self._workflow)
        # The whole log is read before anything is written to it: history and state are both folds of the same events.
        names, events = [node.id for node in self._workflow.nodes], list(log.events())
        self._begins_again = names if goes_on else None
        self.state = RunState.of(names, inputs=log.facts["inputs"], events=events)
        self._going_on = GoingOn(RunHistory(events, is_new=goes_on), definition, self.state, options.reuse)
        self._factory = StepFactory(definition, self._plan, self.state, log.folder, extra_files)
        self._stopped = self._limit = ""
        self._tasks: dict[asyncio.Task[None], tuple[str, int | None]] = {}
        self._asking: dict[asyncio.Task[None], tuple[str, int | None]] = {}
        self._inside_waiting: set[tuple[str, int | None]] = set()  # runs inside of this one that wait for a person
        self._wake = asyncio.Event()
        self._budget_at = time.monotonic()
        self._looked = 0.0

    async def adrive(self) -> RunState:
        """Return the state in which nothing more can be done: the run has ended, or waits for a person."""
        with span(f"workflow {self._workflow.name}", run_id=self.log.folder.name) as timed:
            state = await self._drive_on()
            timed.facts.update(state=state.state, seconds=round(state.seconds, 3))
            if state.error is not None:
                timed.outcome = str(state.error.get("code", state.state))
            return state

    async def _drive_on(self) -> RunState:
        whose: dict[str, Any] = {"run_id": self.log.folder.name, "workflow": self._workflow.name}
        whose |= {"fence": self.state.fence + 1, "driver": f"{socket.gethostname()}:{os.getpid()}"}
        label = (self._options.label | running_label()).names()
        self._emit(events.RunStarted(**whose, nodes=self._begins_again, label=label))
        # Listed first: what is decided about one of them changes the states that are looked through.
        lost = [(name, item) for name, item, step in self.state.steps() if step.state == "running"]
        for name, item in lost:
            self._recover(name, item)
        for name, item, step in self.state.open_questions():
            self._ask(name, item, step)
        end = await self._turns()
        for task in [*self._tasks, *self._asking]:
            task.cancel()
        # Before the end is written: a resume adds to what is in the log, and nothing may follow a RunEnded.
        self._tell_budget(everything=True)
        self._emit(end)
        return self.state

    async def _turns(self) -> events.RunEnded:
        """Do what can be done until the run ends, or nobody answers."""
        idle_since: float | None = None
        while True:
            try:
                self._look_around()
                actions = self._plan.next_actions(self.state, env=os.environ, stopped=self._stopped)
                has_done = [self._do(action) for action in actions if not isinstance(action, events.RunEnded)]
                if actions and isinstance(actions[-1], events.RunEnded):
                    return self._ended(actions[-1])
                if any(has_done):
                    idle_since = None
                    # Steps that were started get their turn, and a Stop is noticed, also in a run that never has to
                    # wait.
                    await asyncio.sleep(0)
                    continue
                if self._tasks or self._asking:
                    idle_since = None
                # A retry that is planned will still do something, so the time without answers has not begun.
                elif not self.state.retrying:
                    idle_since = idle_since or time.monotonic()
                    wait_s = self._options.wait_s
                    if wait_s is not None and time.monotonic() - idle_since >= wait_s:
                        return self._unanswered()
                await self._wait()
            except asyncio.CancelledError:
                # A Stop ends what runs; nodes with `finally` still do their work. A run that waits goes on waiting.
                # Nothing runs that a Stop could end: the person means the waiting, and not the run.
                if not self._tasks and not self._stopped and self.state.open_questions():
                    return self._unanswered()
                self._stop("stopped by the user")

    async def _wait(self) -> None:
        """Wait until something has happened, or it is time to look around."""
        self._wake.clear()
        due = [_retry_in(self.state.step(name, item)) for name, item in self.state.retrying]
        seconds = max(0.0, min([_POLL_S, *due]))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    # -- events

    def _emit(self, event: events.RunEvent) -> None:
        """Write an event down, apply it, and tell it."""
        # First the log: a state that went ahead of it would be lost with the process.
        self.log.append(event)
        self.state.apply(event)
        self.tell(event)

    def tell(self, event: events.RunEvent) -> None:
        """Tell an event to watchers; a picture that cannot be drawn ends no run."""
        if self._options.on_event is not None:
            with contextlib.suppress(Exception):
                self._options.on_event(event)

    def _tell_budget(self, *, everything: bool = False) -> None:
        now = time.monotonic()
        if everything or now - self._budget_at >= _BUDGET_S:
            self._emit(events.BudgetUsed(seconds=round(now - self._budget_at, 3)))
            self._budget_at = now

    # -- what comes from outside: messages, limits, deadlines

    def _look_around(self) -> None:
        for message in self._new_messages():
            if message["what"] == "cancel":
                self._stop(f"cancelled by {message.get('by') or 'someone'}")
            elif message["what"] == "answer":
                self.answer(message["node"], message.get("item"), message.get("answer"), message.get("by", ""))
            # After its event is in the log: a driver that ends between the two reads it twice, and the second time it
            # changes nothing.
            self.log.remove(message)
        # What was used since the last BudgetUsed is in no event yet, and counts as well.
        limits, used = self._workflow.limits, time.monotonic() - self._budget_at
        if limits.seconds is not None and self.state.seconds + used > limits.seconds:
            self._exceed(f"the run took more than {limits.seconds:g} s")
        if limits.tokens is not None and self.state.tokens > limits.tokens:
            self._exceed(f"the models used {self.state.tokens:,} tokens, and {limits.tokens:,} are allowed")
        if limits.usd is not None and self.state.usd > limits.usd:
            self._exceed(f"the models cost {self.state.usd:.4f} USD, and {limits.usd:g} are allowed")
        self._tell_budget()
        now = time.time()
        for name, item, step in self.state.open_questions():
            # Only what waits: a step of unknown outcome that failed by its time would claim that it has not done its
            # work.
            if step.deadline is not None and step.deadline < now and step.state == "waiting":
                result = failure_result("TIMEOUT", "no one answered in time.", "Ask again with a longer timeout_s.")
                self._emit(events.NodeEnded(node=name, item=item, state="failed", result=result))

    def _new_messages(self) -> list[dict[str, Any]]:
        """Return what other processes said; a folder is not read after each of many short steps."""
        if time.monotonic() - self._looked < _LOOK_S:
            return []
        self._looked = time.monotonic()
        return self.log.messages()

    def _exceed(self, what: str) -> None:
        if not self._limit:
            self._limit = what
            self._stop(what)

    def _stop(self, why: str) -> None:
        if not self._stopped:
            self._stopped = why
        for task in [*self._tasks, *self._asking]:
            task.cancel()

    # -- actions

    def _do(self, action: Action) -> bool:
        """Do what the plan says; return whether something was done."""
        if isinstance(action, Start):
            return self._start(action.node, action.item)
        self._emit(action)
        return True

    def _start(self, name: str, item: int | None) -> bool:
        """Start a step if there is room for it; return whether it was started, or has ended."""
        node, of = self._plan.nodes[name], self.state.step(name, item)
        if _retry_in(of) > 0 or (name, item) in self._inside_waiting:
            return False
        # A question takes no room: people answer in days, and steps would wait for them.
        if not isinstance(node, AskNode) and not self._has_room(node):
            return False
        try:
            step = self._factory.step(node, item, of.attempt + 1)
            if isinstance(node, AskNode):
                question = self._definition.without_secrets(question_of(node, step.values))
                # Compared as it would be asked, expressions filled in: another figure in it is another question.
                if (earlier := self._going_on.answered(name, item, question)) is not None:
                    why = f"kept: {earlier.why}"
                    self._emit(events.NodeEnded(node=name, item=item, state="ok", result=earlier.result, why=why))
                    return True
                deadline = None if node.ask.timeout_s is None else time.time() + node.ask.timeout_s
                self._emit(events.QuestionAsked(node=name, item=item, question=question, deadline=deadline))
                self._ask(name, item, of)
                return True
        except NbtoolsError as exc:
            self._emit(events.NodeEnded(node=name, item=item, state="failed", result=failure_of(exc)))
            return True
        parts = self._factory.parts(step)
        # What was tried in this round, or what a person has said yes to, is decided.
        is_decided = of.attempt > 0 or of.answer is True
        choice = FRESH if is_decided else self._going_on.choose(step, parts)
        if choice.action != "run":
            self._keep_or_ask(step, parts, choice)
            return True
        why = "tried again" if of.attempt else choice.why
        # A second attempt goes on with the folder of the first, whose log says what it has done.
        inside = of.inside or self._folder_inside(node, item, choice.earlier, is_first=of.attempt == 0)
        self._emit(events.NodeStarted(**step.of, why=why, parts=parts, inside=inside))
        task = asyncio.create_task(self._run(step), name=f"nbtools {name}")
        self._tasks[task] = (name, item)
        task.add_done_callback(self._forget)
        return True

    def _keep_or_ask(self, step: StepAttempt, parts: Mapping[str, str], choice: Choice) -> None:
        """Take over what an earlier round has left of a step, or ask a person about it."""
        name, item = step.node.id, step.item_index
        if choice.action == "again":
            question = f"{choice.why} Run it again? No keeps the result that it has."
            self._emit(events.QuestionAsked(node=name, item=item, question={"again": question}))
            self._ask(name, item, self.state.step(name, item))
        elif choice.action in {"keep", "reuse"}:
            self._take_over(step, parts, choice, state="ok", why=choice.why)
        else:
            result = unknown_result(choice.why, needs_value=step.needs_value)
            self._take_over(step, parts, choice, state="unknown", result=result)
            self._ask(name, item, self.state.step(name, item))

    def _take_over(self, step: StepAttempt, parts: Mapping[str, str], choice: Choice, **ended: Any) -> None:
        earlier = choice.earlier
        assert earlier is not None, "what is taken over was there"
        # As it was counted then: the next attempt of this step must not have the number of one that is in the log.
        of = step.of | {"fence": self.state.fence, "attempt": max(1, earlier.attempt)}
        self._emit(events.NodeStarted(**of, parts=parts, inside=earlier.inside))
        if earlier.effect:
            self._emit(events.CallState(**of, state=earlier.effect if ended["state"] == "unknown" else "ok"))
        self._emit(events.NodeEnded(**of, **{"result": earlier.result, **ended}))

    def _folder_inside(self, node: NodeFields, item: int | None, earlier: EarlierStep | None, *, is_first: bool) -> str:
        """Return the folder of a workflow node's run: that of the round before, or one that is not there yet."""
        if not isinstance(node, WorkflowNode):
            return ""
        if earlier is not None:
            return earlier.inside or earlier.label
        label = step_label(node.id, item)
        return free_folder(self.log.folder, label) if is_first else label

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._asking.pop(task, None)
        self._wake.set()

    def _has_room(self, node: NodeFields) -> bool:
        limits = self._workflow.limits
        if len(self._tasks) >= limits.max_parallel:
            return False
        if not limits.parallel:
            return True
        name = _limited_name(node)
        most = limits.parallel.get(name) if name else None
        running = (self._plan.nodes[n] for n, _ in self._tasks.values())
        return most is None or sum(_limited_name(other) == name for other in running) < most

    # -- one step

    async def _run(self, step: StepAttempt) -> None:
        """Perform a step and write down what became of it."""
        facts: dict[str, Any] = {} if step.item_index is None else {"item": step.item_index}
        with span(f"workflow_step {step.node.id}", kind=step.node.kind, attempt=step.attempt, **facts) as timed:
            error, timed.facts["state"] = await self._attempt(step)
            timed.outcome = "ok" if error is None else str(error["code"])

    async def _attempt(self, step: StepAttempt) -> tuple[Mapping[str, Any] | None, str]:
        """Perform a step, write down what became of it, and return its error and the state that this left."""
        name, item = step.node.id, step.item_index
        try:
            result = await self._perform(step)
        except asyncio.CancelledError:
            result = failure_result("CANCELLED", self._stopped or "the step was cancelled.")
        except NbtoolsError as exc:
            result = failure_of(exc)
        except Exception as exc:
            result = failure_result("INTERNAL", f"{type(exc).__name__}: {exc}", "Please report this.")
        # A run inside waits for a person. The step neither ends nor is tried again: a resume starts it, and finds its
        # log.
        if result is None:
            self._inside_waiting.add((name, item))
            return None, self.state.step(name, item).state
        if used := result.get("usage"):
            self._emit(events.BudgetUsed(tokens=used.get("tokens", 0), usd=used.get("usd", 0.0)))
        # Masked before it is an event: the log, the record and every view are made of events.
        self._end(step, self._definition.without_secrets(result))
        ended = self.state.step(name, item)
        state = ended.state  # before the next attempt begins, which it may while the log is synchronised
        if ended.effect:
            await self.log.sync()
        return result["error"], state

    def _end(self, step: StepAttempt, result: Mapping[str, Any]) -> None:
        name, item, error = step.node.id, step.item_index, result["error"]
        retry = step.node.retry
        if waits := result.get("waits"):  # nobody can say yet whether its call may run
            question = {"approve": waits["asked"], "digest": waits["digest"]}
            self._emit(events.QuestionAsked(node=name, item=item, question=question))
            self._ask(name, item, self.state.step(name, item))
            return
        if "question" in result:
            self._emit(events.NodeEnded(**step.of, state="unknown", result=result))
            self._ask(name, item, self.state.step(name, item))
            return
        is_again = error is not None and error["code"] not in NEVER_AGAIN and not self._stopped
        if retry is not None and is_again and step.attempt < retry.attempts:
            wait_s = min(retry.backoff_s * 2 ** (step.attempt - 1), _LONGEST_WAIT_S)
            self._emit(events.RetryPlanned(node=name, item=item, attempt=step.attempt, wait_s=wait_s, error=error))
            return
        bad = "declined" if result.get("declined") else "failed"
        state: Any = "ok" if error is None else "cancelled" if error["code"] == "CANCELLED" else bad
        self._emit(events.NodeEnded(**step.of, state=state, result=result, left=self._left(step)))

    def _left(self, step: StepAttempt) -> Mapping[str, str]:
        """Return the files that a step names and has changed, by what they hold now."""
        of = self.state.step(step.node.id, step.item_index)
        return self._factory.changed_files(step, of.parts) if of.effect or of.inside else {}

    async def _perform(self, step: StepAttempt) -> Any:
        """Return the result of a step, or `None` where a run inside waits for a person."""
        if isinstance(step.node, WorkflowNode):
            return await self._run_inside(step)

        def show(stream: str, text: str) -> None:
            clean = self._definition.without_secrets(text)
            self.tell(events.NodeOutput(node=step.node.id, item=step.item_index, stream=stream, text=clean))

        limits = self._workflow.limits
        means = Means(
            show=show,
            journal=self._journal(step),
            # What other models of the run use meanwhile is not known here: several at once may go over it, each by its
            # own part.
            tokens=None if limits.tokens is None else max(0, limits.tokens - self.state.tokens),
            usd=None if limits.usd is None else max(0.0, limits.usd - self.state.usd),
        )
        return await self._runner.aperform(step, means)

    def _journal(self, step: StepAttempt) -> CallJournal | None:
        """Return where the door writes down what a step starts; a model's tools that may be called again need none."""
        if isinstance(step.node, PromptNode) and self._definition.is_repeatable(step.node):
            return None

        async def started(call_id: str) -> None:
            self._emit(events.CallState(**step.of, state="started", call_id=call_id))
            await self.log.sync()

        async def ended(call_id: str, result: ToolResult) -> None:
            # A call that only reads was never marked as started, and has nothing to be marked as ended.
            if self.state.step(step.node.id, step.item_index).effect:
                self._emit(events.CallState(**step.of, state="ok" if result.ok else "failed", call_id=call_id))

        return CallJournal(started=started, ended=ended)

    async def _run_inside(self, step: StepAttempt) -> Any:
        """Run a workflow inside of this one; it has its own log below the folder of this run."""
        node = step.node
        assert isinstance(node, WorkflowNode)
        label = step_label(node.id, step.item_index)
        inner = self._definition.inner(node)
        begun = time.perf_counter()

        def pass_on(event: events.RunEvent) -> None:
            if (name := getattr(event, "node", None)) is not None:
                changed: Any = {"node": f"{label}/{name}"}
                self.tell(dataclasses.replace(event, **changed))

        folder = self.log.folder / "sub" / (self.state.step(node.id, step.item_index).inside or label)
        # A separate log: the run inside is resumed by itself, however often the step around it is tried.
        log, goes_on = inner.open_log(folder, step.values.get("args", {}))
        try:
            ask = self._options.ask
            ask_inside = ask and (lambda inner_step, question: ask(f"{label}/{inner_step}", question))
            options = dataclasses.replace(self._options, on_event=pass_on, ask=ask_inside, label=step.label)
            # Only files that an input names: a workflow inside reads nothing else of the run around it.
            extra_files = tuple(path for path in step.paths() if path in repr(log.facts["inputs"]))
            drive = Drive(log, inner, self._runner.for_tools(inner.tools), options, extra_files, goes_on=goes_on)
            async with asyncio.timeout(node.timeout_s) as clock:
                state = await drive.adrive()
        finally:
            log.close()
        if clock.expired():  # the run inside took the cancellation for a Stop, and has ended in order
            return failure_of(CallTimeout(f"the workflow {inner.workflow.name} took more than {node.timeout_s:g} s."))
        if state.state in {"waiting", "unknown"}:
            return None
        return result_of(inner.workflow, state, time.perf_counter() - begun)

    # -- questions

    def _recover(self, name: str, item: int | None) -> None:
        """Decide about a step that was running when its driver was lost: it is repeated, or its outcome is unknown."""
        node, of = self._plan.nodes[name], self.state.step(name, item)
        # Without an effect in the log nothing had been started: the door writes it down before it does anything.
        if self._definition.is_repeatable(node) or not of.effect:
            error = {"code": "CANCELLED", "message": "the driver was lost", "hint": None}
            self._emit(events.RetryPlanned(node=name, item=item, attempt=of.attempt, wait_s=0.0, error=error))
            return
        message = "It was running when its driver was lost, and whether it has done its work is not known."
        if of.effect != "started":
            message = f"It had ended ({of.effect}) when its driver was lost, and its result is lost."
        result = unknown_result(message, needs_value=self._definition.reads_value_of(node))
        self._emit(
            events.NodeEnded(node=name, item=item, attempt=of.attempt, fence=of.fence, state="unknown", result=result)
        )

    def _ask(self, name: str, item: int | None, of: StepState) -> None:
        """Ask a person who is here, beside everything else."""
        ask, question = self._options.ask, of.question or {}
        if ask is None:
            return
        label = step_label(name, item)

        async def wait() -> None:
            answer = await ask(label, question)
            if answer is not None:
                self.answer(name, item, answer, "a person here")

        task = asyncio.create_task(wait(), name=f"nbtools asks {label}")
        self._asking[task] = (name, item)
        task.add_done_callback(self._forget)

    def answer(self, name: str, item: int | None, answer: Any, by: str) -> None:
        """Take an answer to an open question; one that does not fit, or comes too late, changes nothing."""
        of = self.state.step(name, item)
        if of.state not in {"waiting", "unknown"}:
            return
        try:
            accepted = accept(of.question or {}, answer)
        except NbtoolsError:
            return
        was, question = of.state, of.question or {}
        # A person at a terminal or a page need not answer any more; the task that brings the answer lives
        # on.
        for task, key in self._asking.items():
            if key == (name, item) and task is not asyncio.current_task():
                task.cancel()
        self._emit(events.QuestionAnswered(node=name, item=item, answer=accepted, by=by))
        who = by or "someone"
        if was == "waiting" and "again" in question and accepted is False:
            step = self._factory.step(self._plan.nodes[name], item, 1)
            parts = self._factory.parts(step)
            # Chosen again rather than remembered: the driver that asked may have been another process.
            choice = self._going_on.choose(step, parts)
            self._take_over(step, parts, choice, state="ok", why=f"kept: {who} said no to running it again")
        elif (ended := ended_by(was, question, accepted, who)) is not None:
            self._emit(events.NodeEnded(node=name, item=item, **ended))

    # -- the end

    def _ended(self, end: events.RunEnded) -> events.RunEnded:
        # To the plan a limit is a stop like any other. People have to see that it was one, and that a higher one goes
        # on.
        if self._limit and end.state == "cancelled":
            hint = "Raise the limit in `limits`, and continue the run: nbtools run --resume " + self.log.folder.name
            error = {"code": "LIMIT_EXCEEDED", "message": f"{self._limit}.", "hint": hint}
            end = dataclasses.replace(end, state="failed", error=error)
        outputs = None if end.outputs is None else self._definition.without_secrets(dict(end.outputs))
        return dataclasses.replace(end, outputs=outputs)

    def _unanswered(self) -> events.RunEnded:
        states = {step.state for _, _, step in self.state.open_questions()}
        return events.RunEnded(state="unknown" if "unknown" in states else "waiting")


def _limited_name(node: NodeFields) -> str | None:
    if isinstance(node, ToolNode):
        return node.tool
    if isinstance(node, PromptNode):
        return node.model
    return node.language if isinstance(node, CodeNode) else None


def _retry_in(of: StepState) -> float:
    """Return the seconds until a step may be tried again; a clock that was set back makes nobody wait for longer."""
    left = (of.retry_at or 0.0) - time.time()
    return left if left <= of.retry_wait_s else 0.0
