"""A run of a workflow to look at and to answer: its graph as it changes, the times of its steps, its questions."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import json
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import traitlets

from nbtools.errors import InvalidArguments, NbtoolsError
from nbtools.ground.aio import in_thread
from nbtools.texts.redaction import redact
from nbtools.texts.visible import visible
from nbtools.widgets.forms.fields import fields_of, problems_of, values_of
from nbtools.widgets.live.live_widget import LiveWidget, ViewRequest
from nbtools.widgets.live.sources import module_text, style_text
from nbtools.workflow.driver.questions import accept, question_text, question_words
from nbtools.workflow.runs.events import RunStarted
from nbtools.workflow.runs.state import RunState
from nbtools.workflow.spec import Workflow
from nbtools.workflow.views.cards import output_part, run_card, used_words
from nbtools.workflow.views.graph import GraphDrawing
from nbtools.workflow.views.live import LiveView
from nbtools.workflow.views.table import COLUMNS, rows_of, table
from nbtools.workflow.views.waterfall import waterfall_svg

if TYPE_CHECKING:
    from nbtools.workflow.service import Workflows
    from nbtools.workflow.workflow_run import WorkflowRun

_Behind = Callable[[str, Mapping[str, Any]], Awaitable[Any]]


@dataclasses.dataclass
class _AskedStep:
    """What a person is asked, and who waits for the answer; nobody does where the run waits by itself.

    `reply` is what was answered already, and waits for the run to go on.
    """

    question: Mapping[str, Any]
    answered: concurrent.futures.Future[Any] | None = None
    reply: str = ""


class WorkflowView(LiveWidget):
    """Shows a run; give it to ``on_event``, and its `ask` to ``ask``.

    Parameters
    ----------
    workflow
        What runs.
    progress
        Where the run stands; `None` for a new one.
    stop
        Ends the run of that name.
    answer
        Takes the answer to a question of a run that is not driven here: run, step and answer.
    behind
        Asks a person where no page takes clicks.
    look
        Returns the run as it is now, where its events do not come here.
    """

    _esm = module_text("workflow_view")
    _css = style_text("cards", "workflow")
    looks: ClassVar[frozenset[str]] = frozenset({"look"})
    state = traitlets.Unicode("pending").tag(sync=True)
    run_id = traitlets.Unicode("").tag(sync=True)
    head = traitlets.Unicode("").tag(sync=True)
    graph = traitlets.Unicode("").tag(sync=True)
    bars = traitlets.Unicode("").tag(sync=True)
    outcome = traitlets.Unicode("").tag(sync=True)
    columns = traitlets.List([*COLUMNS]).tag(sync=True)
    rows: Any = traitlets.List().tag(sync=True)
    questions: Any = traitlets.List().tag(sync=True)
    is_driven = traitlets.Bool(False).tag(sync=True)  # whether it runs here, and can be stopped here
    is_followed = traitlets.Bool(False).tag(sync=True)  # whether to look again and again what became of it
    is_short = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        workflow: Workflow,
        progress: RunState | None = None,
        *,
        stop: Callable[[str], None] | None = None,
        answer: Callable[[str, str, Any], object] | None = None,
        behind: _Behind | None = None,
        look: Callable[[], WorkflowRun] | None = None,
    ) -> None:
        self._look = look
        self._workflow = workflow
        self._drawing = GraphDrawing(workflow)
        self._stop, self._answer_to, self._behind = stop, answer, behind
        self._open: dict[str, _AskedStep] = {}
        self._lock = threading.RLock()
        self._state = RunState.of([node.id for node in workflow.nodes], inputs={}) if progress is None else progress
        self.follow = LiveView(workflow, progress, show=self.paint)
        super().__init__(title=workflow.name)
        self.paint(self._state, {})

    def __call__(self, event: Any) -> None:
        """Take an event of the run, from any thread."""
        if isinstance(event, RunStarted):
            # Not with the next drawing: who is asked at once may press Stop before it.
            with self._lock:
                self.run_id, self.is_driven = event.run_id, True
        self.follow(event)

    def paint(self, state: RunState, now: Mapping[str, str]) -> None:
        """Show a state, and the last line of what each running step shows."""
        facts = [state.run_id, *used_words(state)]
        rows = [[redact(cell) for cell in row] for row in rows_of(state)]
        for row in rows:
            row[-1] = row[-1] or now.get(row[0], "")
        with self._lock, self.hold_trait_notifications():
            self._state = state
            self.state, self.run_id, self.head = state.state, state.run_id, " · ".join(filter(None, facts))
            self.graph, self.bars = redact(self._drawing.svg(state)), redact(waterfall_svg(state))
            self.outcome = redact(output_part(state.outputs or {}))
            self.rows = rows

    def end(self) -> None:
        """Show that nothing runs here any more; graph and times are a click away."""
        self.follow.draw()
        self.is_driven, self.is_short = False, True

    def answer_look(self, request: ViewRequest) -> None:
        """Show what became of a run whose events do not come here."""
        if self._look is not None:
            self.show_run(self._look())

    def show_run(self, run: WorkflowRun) -> None:
        """Show a run as its log tells it."""
        self.paint(run.progress, {})
        self.state, self.is_driven = run.state, run.driver is not None
        self.is_followed = self._look is not None and not run.has_ended
        with self._lock:
            self._open = {one.step: _AskedStep(one.question, reply=_reply_text(one.reply)) for one in run.questions}
            self.questions = [_question_fields(name, one) for name, one in self._open.items()]

    # -- questions -----------------------------------------------------------------------------------------------------

    async def ask(self, step: str, question: Mapping[str, Any]) -> Any:
        """Put a question of the run to the person who looks at it, and return the answer."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            self._put(step, _AskedStep(question, future))
            if not await in_thread(self.wait_for_view):
                self._put(step, None)
                return None if self._behind is None else await self._behind(step, question)
            return await asyncio.wrap_future(future)
        finally:
            self._put(step, None)

    def _put(self, step: str, question: _AskedStep | None) -> None:
        with self._lock:
            if question is None:
                self._open.pop(step, None)
            else:
                self._open[step] = question
            self.questions = [_question_fields(name, one) for name, one in self._open.items()]

    def answer_answer(self, request: ViewRequest) -> dict[str, Any]:
        """Take an answer to a question."""
        step, answer = request.args["step"], request.args["answer"]
        step_open = self._open.get(step)
        if step_open is None:
            return {"problems": {"": "It has already been answered."}}
        try:
            if "fill" in step_open.question and isinstance(answer, dict):
                answer = values_of(step_open.question["fill"], answer)
            accepted = accept(step_open.question, answer)
            if step_open.answered is None and self._answer_to is not None:
                self._answer_to(self.run_id, step, accepted)
        except NbtoolsError as exc:
            if self._look is not None:
                self.show_run(self._look())
                now = self._open.get(step)
                if now is None or now.reply:  # someone was faster, and the view says what was answered
                    return {"problems": {}}
            return {"problems": problems_of(exc, step_open.question.get("fill", {}).get("properties", ()))}
        if step_open.answered is not None and not step_open.answered.done():
            step_open.answered.set_result(accepted)
        self._put(step, None)
        return {"problems": {}}

    def answer_stop(self, request: ViewRequest) -> None:
        """Ask the driver of the run to end it."""
        if self._stop is not None:
            self._stop(self.run_id)

    # -- without a front end -------------------------------------------------------------------------------------------

    def plain_text(self) -> str:
        """Return the nodes as a table, and what is asked."""
        questions = [f"{one['step']} asks: {one['text']} {one['told']}".rstrip() for one in self.questions]
        return "\n".join([f"{self.title}: {self.state} {self.head}", table(self._state, self._workflow), *questions])

    def plain_html(self) -> str:
        """Return the card of the run."""
        questions = [(step, question_text(one.question), one.question) for step, one in self._open.items()]
        return run_card(self.run_id, self.state, self._state, self._workflow, questions)


def view_of(run: WorkflowRun, workflows: Workflows, read_only: bool | None = None) -> WorkflowView:
    """Return a run as a widget, wherever it is driven; `read_only` see `nbtools.widgets.LiveWidget.hold`.

    Raises
    ------
    InvalidArguments
        Its file can no longer be read.
    """
    if run.definition is None:
        raise InvalidArguments(f"the file of {run.run_id} cannot be read.", hint="Print the run to see it as text.")
    view = WorkflowView(
        run.definition,
        run.progress,
        stop=lambda name: workflows.cancel(name, by="notebook"),
        answer=lambda name, step, answer: workflows.answer(name, step, answer, by="notebook"),
        look=lambda: workflows.show(run.run_id),
    )
    view.show_run(run)
    return view.hold(read_only)


def _reply_text(message: Mapping[str, Any] | None) -> str:
    """Return what someone has answered, in words."""
    if message is None:
        return ""
    answer, by = message["answer"], message.get("by")
    words = ("no", "yes")[answer] if isinstance(answer, bool) else answer
    words = words if isinstance(words, str) else json.dumps(words, ensure_ascii=False)
    when = time.strftime("%H:%M", time.localtime(message["at"]))
    return str(redact(visible(f"answered: {words}{f', by {by}' if by else ''}, at {when}")))


def _question_fields(step: str, one: _AskedStep) -> dict[str, Any]:
    """Return a question as a view shows it: a text, and buttons with the answers, or the fields of a form."""
    question = one.question
    answers: list[list[str]] = [["retry", "Run it again"], ["done", "Count it as done"], ["fail", "Count it as failed"]]
    if "approve" in question or "again" in question:
        answers = [["yes", "Yes"], ["no", "No"]]
    elif "choose" in question:
        answers = [[choice, visible(choice)] for choice in question["choose"]]
    form = question.get("fill")
    return {
        "step": step,
        "text": question_words(question)[0],
        "fields": [] if form is None else fields_of(form),
        "answers": answers if form is None else [],
        "gives": bool(question.get("needs_value")),
        "told": one.reply,
    }
