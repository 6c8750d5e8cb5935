"""A run of a workflow, read from its log: its state, outputs, nodes and open questions, and how it is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nbtools.conduct.run_folder import write_file
from nbtools.contract.label import Label
from nbtools.contract.result import ErrorInfo, ToolResult
from nbtools.errors import ApprovalPending, InvalidArguments
from nbtools.texts.other_words import KnowsOtherWords
from nbtools.texts.visible import harmless
from nbtools.workflow.runs.log import ENDED_RUN, FrozenRun
from nbtools.workflow.runs.state import RunState
from nbtools.workflow.spec import Workflow
from nbtools.workflow.views.cards import answer_command, run_card
from nbtools.workflow.views.report import report_html
from nbtools.workflow.views.table import table


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenQuestion:
    """A question of a run that has not gone on since.

    Attributes
    ----------
    step
        The step that waits: ``agree``, ``each[2]``, or in a run inside of this one ``each[2]/agree``.
    text
        The question, with the answers that fit.
    question
        The same as data, see `nbtools.workflow.runs.events.QuestionAsked`.
    deadline
        When it is too late, in seconds since 1970; `None` is never.
    reply
        What someone has answered, which waits for the run to go on: ``answer``, ``by``, ``at``.
    """

    step: str
    text: str
    question: Mapping[str, Any]
    deadline: float | None = None
    reply: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkflowRun(KnowsOtherWords):
    """A run, as its log tells it.

    Attributes
    ----------
    run_id
        Id of the run.
    folder
        Its folder.
    workflow
        Name of its workflow.
    source
        Its file, as it was named when the run began.
    state
        ``"ok"``, ``"failed"``, ``"cancelled"``, ``"declined"`` (a person said no), ``"waiting"`` or ``"unknown"``
        (until a question is answered), ``"running"``, or ``"lost"``: its driver ended without a word.
    outputs
        What it returned; empty unless it is ok, or declined: then what did not need the answer is there.
    error
        Why it failed: code, message, hint, and the node.
    progress
        The state of every node, with attempts, times and results.
    questions
        What people are asked.
    driver
        Who drives it now: process, machine, since when; `None` when nobody does.
    drift
        What is different from the files of now, in words; a run always uses those of its start.
    definition
        What runs, as it was at the start; `None` where that can no longer be read.
    """

    run_id: str
    folder: Path
    workflow: str
    state: str
    source: str = ""
    outputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    progress: RunState = dataclasses.field(default_factory=RunState, repr=False)
    questions: tuple[OpenQuestion, ...] = ()
    driver: Mapping[str, Any] | None = None
    drift: tuple[str, ...] = ()
    definition: Workflow | None = dataclasses.field(default=None, repr=False)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended: no process drives it, and it waits for nothing. Unless it is ok, it can be resumed."""
        return self.state in ENDED_RUN

    @property
    def ok(self) -> bool:
        """Whether it has ended as it should."""
        return self.state == "ok"

    @property
    def seen(self) -> Label:
        """What its steps have read, and so what its outputs may hold."""
        return self.progress.label()

    def raise_for_error(self, further: str | None = None) -> WorkflowRun:
        """Return the run itself, or raise what it failed by.

        Parameters
        ----------
        further
            How it goes on, behind what its error says; `None` tells that for a command line.

        Raises
        ------
        NbtoolsError
            It failed, was cancelled, or waits for a person.
        """
        if self.ok:
            return self
        if self.questions and not self.has_ended:
            waits = f"the run {self.run_id} is {self.state}: {'; '.join(question.text for question in self.questions)}"
            raise ApprovalPending(waits, hint=further or f"nbtools runs show {self.run_id}")
        error = self.error or {"code": "CANCELLED", "message": f"the run {self.run_id} is {self.state}."}
        further = further or f"it continues with nbtools run --resume {self.run_id}"
        hint = "; ".join(filter(None, (error.get("hint"), further)))
        info = ErrorInfo(code=str(error["code"]), message=str(error["message"]), hint=hint)
        raise ToolResult(ok=False, tool=self.workflow, call_id=self.run_id, error=info).to_error()

    def __str__(self) -> str:
        lines = [f"{self.workflow}: {self.state} ({self.run_id})"]
        for name, node in self.progress.nodes.items():
            if node.state == "failed":
                lines.append(f"  {name} failed: {(node.view()['error'] or {}).get('message', '')}")
        lines += [f"  {name}: {value}" for name, value in self.outputs.items()]
        for step, text, question in self._open_questions():
            lines += [f"  {step} asks: {text}", f"  → {answer_command(self.run_id, step, question)}"]
        return harmless("\n".join(lines))

    def table(self) -> str:
        """Return the nodes with attempts, seconds, reasons and results, as lines of text."""
        return table(self.progress, self.definition)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the run and its nodes at an IPython prompt."""
        printer.text(f"{self}\n\n{harmless(self.table())}")

    def _repr_html_(self) -> str:
        """Show the run as a card: graph, nodes, outputs, pictures, and questions with what answers them."""
        asked_parts = self._open_questions()
        return run_card(
            self.run_id, self.state, self.progress, self.definition, asked_parts, error=self.error, drift=self.drift
        )

    def write_report(self) -> Path:
        """Write ``report.html`` into the run's folder and return its path: one file that loads nothing."""
        text = report_html(FrozenRun(self.folder), self.state, self.progress, self.definition, self._open_questions())
        path = self.folder / "report.html"
        write_file(path, text.encode(), is_kept=False)
        return path

    def _open_questions(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        return [(question.step, question.text, question.question) for question in self.questions]


def the_open_question(runs: Iterable[WorkflowRun], word: str | None) -> tuple[str, OpenQuestion]:
    """Return the one question that is open, and the name of its run.

    Parameters
    ----------
    runs
        Among which it is looked for.
    word
        The start of a run's name, or a step; `None` where one question is open in all.

    Raises
    ------
    InvalidArguments
        None is open that the word fits, or more than one.
    """
    every = [(run.run_id, question) for run in runs for question in run.questions if question.reply is None]
    fit = [pair for pair in every if word is None or pair[0].startswith(word) or pair[1].step == word]
    if len(fit) == 1:
        return fit[0]
    listed = "; ".join(f"{run_id} {question.step}: {question.text}" for run_id, question in fit or every)
    hint = f"Open are {listed}." if listed else "No run has an open question."
    among = "" if word is None else f" for {word!r}"
    raise InvalidArguments(f"{'several questions are' if fit else 'no question is'} open{among}.", hint=hint)
