"""``%workflow`` and ``%%workflow``: check, preview, run and answer workflows from a cell."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbtools.conduct.resumption import run_to_resume
from nbtools.ground.aio import in_thread
from nbtools.ground.option_values import pair
from nbtools.jupyter.display.blocks import Table, moment
from nbtools.jupyter.line.arguments import declared_usage
from nbtools.jupyter.magic import Magic, MagicRequest
from nbtools.jupyter.session import read_line

if TYPE_CHECKING:
    from nbtools.workflow.runs.state import RunState
    from nbtools.workflow.spec import Workflow


def _run(request: MagicRequest) -> Any:
    if request.cell is not None:
        # A line break tells YAML from a path, and a cell of one line has none.
        source = request.cell if request.cell.endswith("\n") else f"{request.cell}\n"
        return _plan(request, source) if request.args.plan else _start(request, source)
    result = _COMMANDS[request.args.command](request)
    request.bind(result)
    return result


def _inputs(request: MagicRequest, definition: Workflow) -> dict[str, Any]:
    """Return the inputs that the line gives, each read as its schema says."""
    from nbtools.workflow.driver.definition import input_values

    return input_values(dict(map(pair, request.args.inputs)), definition)


def _read(request: MagicRequest, source: str) -> Workflow:
    workflow: Workflow = request.session.workbench.workflows.validate(source).raise_for_errors().workflow
    return workflow


def _start(request: MagicRequest, source: str) -> Any:
    definition = _read(request, source)
    inputs = _inputs(request, definition)
    if request.cell is not None and request.args.resume:
        run = request.session.workbench.workflows.show(request.args.resume)
        whole: dict[str, Any] = {"executor": request.args.executor}
        return _drive(request, definition, None, "aresume", run.run_id, source, inputs, **whole)
    return _drive(
        request, definition, None, "arun", source, inputs, cached=request.args.cached, executor=request.args.executor
    )


def _resume(request: MagicRequest) -> Any:
    workflows, args = request.session.workbench.workflows, request.args
    every = ((run.run_id, run.state, run.workflow) for run in workflows.runs())
    run = workflows.show(args.run or run_to_resume(every, "%workflow list"))
    if run.ok:
        request.note("it is ok: nothing is left to do")
        return run
    # One that has ended takes its file as it is now: the picture has the nodes of that.
    definition = workflows.workflow_now(run.run_id, args.file) if run.has_ended else run.definition
    if definition is None:  # resuming says what is wrong with the file
        return workflows.resume(run.run_id, args.file, executor=args.executor)
    progress = None if run.has_ended else run.progress
    return _drive(request, definition, progress, "aresume", run.run_id, args.file, executor=args.executor)


def _drive(
    request: MagicRequest, definition: Workflow, progress: RunState | None, name: str, *positional: Any, **options: Any
) -> Any:
    """Run or resume, with a picture or lines that follow the events, and ask the user what a run asks."""
    from nbtools.workflow.views.live import LiveView

    workflows = request.session.workbench.workflows

    async def ask(step: str, question: Mapping[str, Any]) -> Any:
        from nbtools.workflow.driver.questions import answer_at_line

        return await answer_at_line(step, question, lambda prompt: in_thread(_typed_line, f"{prompt} "))

    lives: list[Any] = []
    # Made here and not on the loop: this is the cell that asked.
    view: Any = _clickable(request, definition, progress, ask)
    if view is None:
        view = LiveView(definition, progress, write=lambda line: lives[0]("stdout", f"{line}\n"))
    else:
        ask = view.ask

    def work(live: Any) -> Any:
        lives.append(live)
        return getattr(workflows, name)(*positional, on_event=view, ask=ask, **options)

    try:
        run = request.session.drive(
            "workflow", work, stopped=request.bind, shows_time=False, hint=lambda run: _after_stop(run, request)
        )[0]
    finally:
        view.end()  # the run shows itself below
    request.end_with(run, _after_stop(run, request))
    return run


def _typed_line(prompt: str) -> str | None:
    with contextlib.suppress(EOFError):  # nobody can be asked here
        return read_line(prompt)
    return None


def _after_stop(run: Any, request: MagicRequest) -> str:
    """Return how a run that was stopped goes on, so that nothing is done twice."""
    if run is None:
        return "%workflow lists the runs, and %workflow resume RUN continues one."
    again = f"%%workflow --resume {run.run_id}" if request.cell is not None else f"%workflow resume {run.run_id}"
    return f"{again} continues it, without repeating what is done and unchanged; running the cell again starts over."


def _clickable(request: MagicRequest, definition: Workflow, progress: RunState | None, ask: Any) -> Any:
    """Return the run as a widget in the cell; `None` where a page hands no clicks on while a cell runs."""
    if "ipykernel" not in sys.modules:
        return None
    from nbtools.widgets.approval_card import can_click

    if not can_click() or request.session.workbench.config.widgets_read_only:
        return None
    from nbtools.widgets.workflow_view import WorkflowView

    workflows = request.session.workbench.workflows
    view = WorkflowView(definition, progress, stop=lambda run: workflows.cancel(run, by="notebook"), behind=ask)
    request.session.show(view)
    return view


def _plan(request: MagicRequest, source: str) -> Any:
    return request.session.workbench.workflows.plan(source, _inputs(request, _read(request, source)))


def _answer(request: MagicRequest) -> Any:
    from nbtools.workflow.workflow_run import the_open_question

    workflows, args = request.session.workbench.workflows, request.args
    run_id, step = args.run, args.step
    if step is None:
        run_id, question = the_open_question(workflows.runs(), run_id)
        step = question.step
    workflows.answer(run_id, step, args.answer, by="notebook")
    request.note(f"answered {step} of {run_id}")


def _cancel(request: MagicRequest) -> Any:
    request.session.workbench.workflows.cancel(request.args.run, by="notebook")
    request.note("its driver was asked to end it")


def _list(request: MagicRequest) -> Any:

    runs: Sequence[Any] = request.session.workbench.workflows.runs()
    rows = tuple(
        (run.run_id, run.state, moment(run.progress.started_at), ", ".join(question.step for question in run.questions))
        for run in runs
    )
    return Table(columns=("run", "state", "started", "asks"), rows=rows, empty="There are no runs yet.")


_COMMANDS = {
    "run": lambda request: _start(request, request.args.file),
    "plan": lambda request: _plan(request, request.args.file),
    "validate": lambda request: request.session.workbench.workflows.validate(request.args.file),
    "list": _list,
    "show": lambda request: request.session.workbench.workflows.show(request.args.run),
    "resume": _resume,
    "report": lambda request: request.session.workbench.workflows.report(request.args.run),
    "export": lambda request: request.session.workbench.workflows.export_notebook(
        request.args.run, request.args.to, overwrite=request.args.overwrite
    ),
    "cancel": _cancel,
    "answer": _answer,
}
MAGIC = Magic(usage=declared_usage(__file__), run=_run)
