"""Commands on runs of workflows: ``run`` starts or resumes one, ``runs`` lists, shows, answers and cancels."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import json
import queue
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.assembly.workbench import Workbench
from nbtools.cli.command_parser import CommandParser, add_command, add_options, read_values
from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import Answer, Nobody
from nbtools.errors import Interrupted, InvalidArguments
from nbtools.ground.option_values import pair
from nbtools.texts.visible import counted, visible, wrapped

if TYPE_CHECKING:
    from nbtools.workflow.runs.events import RunEvent
    from nbtools.workflow.spec import Workflow
    from nbtools.workflow.workflow_run import WorkflowRun

_WAITS, _STOPPED = 3, 130


def add_commands(commands: Any) -> None:
    """Add ``run`` and ``runs`` to the parser's commands."""
    # Its inputs are not known before the file is read: they are parsed in a second pass.
    add_command(commands, __file__, "run", wait=_wait).set_defaults(perform=_run)
    add_command(commands, __file__, "runs").set_defaults(perform=_runs)


def _wait(word: str) -> float | None:
    return None if word == "none" else float(word)


def _run(arguments: argparse.Namespace) -> int:
    with Workbench(approver=_Later()) as wb:
        options = vars(arguments)
        inputs: dict[str, Any] = {}
        if (file := arguments.file) is not None:
            report = wb.workflows.validate(file)
            if not report.ok:
                print(report, file=sys.stderr)
                return 1
            options, inputs = _read_rest(arguments, report.workflow)
        elif "resume" not in options:
            raise InvalidArguments("name a file, or --resume RUN.", hint="nbtools runs lists the runs.")
        elif "input" in options:
            inputs = _read_inputs(options, {}, wb.workflows.workflow_now(options["resume"]))
        if options.get("plan"):
            print(wb.workflows.plan(file, inputs, resume=options.get("resume")))
            return 0
        is_quiet = bool(options.get("events") or options.get("json"))
        terminal = _Terminal(is_quiet=is_quiet, has_events=bool(options.get("events")))
        has_person = sys.stdin is not None and sys.stdin.isatty()
        # In a script nobody can answer: the run is left where it waits, and the exit code says so.
        wait_s = options.get("wait", None if has_person else 0.0)
        how: dict[str, Any] = {
            "executor": options.get("executor", "local"),
            "on_event": terminal.show,
            # Without waiting, what is open is printed once, at the end.
            "ask": terminal.ask if has_person else None if wait_s == 0 else terminal.say_where_to_answer,
            "wait_s": wait_s,
        }
        done, is_stopped = _driven(wb, file, inputs, options, how)
        if _is_notebook(arguments.file):
            _take_notebook(done, _target(arguments.file, options))
    _print_run(done, as_json=bool(options.get("json")), is_quiet=bool(options.get("events")))
    if is_stopped:
        return _STOPPED
    return 0 if done.ok else _WAITS if done.state in {"waiting", "unknown"} else 1


def _is_notebook(file: str | None) -> bool:
    return str(file).endswith(".ipynb")


def _as_papermill(words: Sequence[str]) -> list[str]:
    """Return arguments in which a second notebook is where the first one goes, and ``-p NAME VALUE`` one word."""
    rest = ["--out", *words] if words and _is_notebook(words[0]) else [*words]
    joined: list[str] = []
    for word in rest:
        if joined[-2:-1] == ["-p"] and "=" not in joined[-1]:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _target(notebook: str, options: Mapping[str, Any]) -> Path:
    """Return where a notebook goes as it ran."""
    return Path(options.get("out", Path(notebook).with_suffix(".executed.ipynb")))


def _take_notebook(run: WorkflowRun, target: Path) -> None:
    """Put the notebook as it ran in its place, and say so."""
    for artifact in next(iter(run.progress.nodes.values())).view()["artifacts"][:1]:
        shutil.copyfile(artifact["path"], target)
        print(f"executed notebook: {target}", file=sys.stderr)


def _driven(
    wb: Workbench, file: str | None, inputs: Mapping[str, Any], options: Mapping[str, Any], how: Mapping[str, Any]
) -> tuple[WorkflowRun, bool]:
    """Return what a run has come to, new or resumed, and whether Ctrl-C has ended it."""
    try:
        if (resumed := options.get("resume")) is None:
            return wb.workflows.run(str(file), inputs, cached=bool(options.get("cached")), **how), False
        # Said, and not refused: a second --resume in a script must be harmless.
        if (was := wb.workflows.show(resumed)).ok:
            print(f"{was.run_id} is ok: there is nothing left to do.", file=sys.stderr)
        return wb.workflows.resume(was.run_id, file, inputs, **how), False
    except Interrupted as exc:
        # Stopped before there was a run: nothing can be shown of it.
        if exc.value is None:
            raise
        return exc.value, True


def _read_rest(arguments: argparse.Namespace, workflow: Workflow) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options and the inputs that stand behind the file."""
    parser = CommandParser(prog=f"nbtools run {arguments.file}", description=workflow.description)
    add_options(parser, __file__, "run", wait=_wait)
    about = {name: str(schema.get("description", "")) for name, schema in workflow.inputs.items()}
    if _is_notebook(arguments.file):
        arguments.rest = _as_papermill(arguments.rest)
    options, values = read_values(parser, arguments, about)
    if _is_notebook(arguments.file):
        target = _target(arguments.file, options)
        if target.resolve() == Path(arguments.file).resolve():
            raise InvalidArguments("the notebook itself would be replaced.", hint="Name another file with --out.")
        if not target.parent.is_dir():
            raise InvalidArguments(f"there is no folder {str(target.parent)!r}.", hint="Make it, or change --out.")
    elif "out" in options:
        raise InvalidArguments("--out is for notebooks; a workflow names in its nodes what it writes.")
    return options, _read_inputs(options, values, workflow)


def _read_inputs(options: Mapping[str, Any], values: Mapping[str, str], workflow: Workflow) -> dict[str, Any]:
    """Return the inputs that are given by ``--input`` and by their own options."""
    from nbtools.workflow.driver.definition import input_values

    inputs = {**dict(pair(word, "--input ") for word in options.get("input", ())), **values}
    return input_values(inputs, workflow)


class _Later(Nobody):
    """Leaves calls of a workflow for an answer, here or from elsewhere; nobody allows those of a model in it."""

    async def approve(self, request: ApprovalRequest) -> Answer:
        """Leave it."""
        # A model goes on after a no and would only wait after a "later"; a step of a workflow can wait for days.
        return "later" if request.call.caller == "workflow" else "no"


class _Terminal:
    """What a person at a terminal sees of a run, and how questions are asked there."""

    def __init__(self, *, is_quiet: bool, has_events: bool) -> None:
        self._is_quiet = is_quiet
        self._has_events = has_events
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._begun = time.monotonic()
        self._run_id = ""
        self._reader: threading.Thread | None = None

    def show(self, event: RunEvent) -> None:
        """Print an event: as JSON, or what it means in a line."""
        from nbtools.workflow.runs.events import RunStarted
        from nbtools.workflow.runs.lines import event_line

        if isinstance(event, RunStarted):
            self._run_id = event.run_id
        if self._has_events:
            print(json.dumps(event.to_dict(), ensure_ascii=False, default=repr), flush=True)
        elif not self._is_quiet and (line := event_line(event)):
            print(f"{time.monotonic() - self._begun:7.2f}  {line}", file=sys.stderr, flush=True)

    async def ask(self, step: str, question: Mapping[str, Any]) -> Any:
        """Ask at the terminal until an answer fits; the end of input is not an answer."""
        from nbtools.workflow.driver.questions import answer_at_line

        if self._reader is None:
            # One thread reads all lines: a question that was answered elsewhere must not swallow the next answer.
            self._reader = threading.Thread(target=self._read, name="nbtools-answers", daemon=True)
            self._reader.start()
        return await answer_at_line(step, question, self._next_line)

    async def _next_line(self, prompt: str) -> str | None:
        print(prompt, file=sys.stderr, flush=True)
        while True:
            with contextlib.suppress(queue.Empty):
                return self._lines.get_nowait()
            await asyncio.sleep(0.1)

    async def say_where_to_answer(self, step: str, question: Mapping[str, Any]) -> None:
        """Print a question, and how it is answered from elsewhere: nobody is here."""
        from nbtools.workflow.driver.questions import question_text

        for line in _question_lines(self._run_id, step, question_text(question)):
            print(line, file=sys.stderr, flush=True)

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line.strip())
        self._lines.put(None)


def _print_run(run: WorkflowRun, *, as_json: bool, is_quiet: bool) -> None:
    if as_json:
        print(json.dumps(_as_json(run), ensure_ascii=False, default=repr))
        return
    if not is_quiet:
        for name, value in run.outputs.items():
            print(_output_line(name, value))
    error = run.error or {}
    if error:
        lines = [f"{run.workflow} {run.state}: {error.get('code')}", str(error.get("message"))]
        lines += [f"→ {error['hint']}"] if error.get("hint") else []
        print("\n".join(lines), file=sys.stderr)
    for line in (*_printed(run), *_questions(run), *_next_steps(run), f"{run.state}: {run.folder}"):
        print(line, file=sys.stderr)


def _output_line(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{name}: {visible(text, lines=True)}"


def _printed(run: WorkflowRun) -> Iterator[str]:
    """Yield what failed steps printed before they failed."""
    from nbtools.workflow.views.signs import printed_of

    for name, item, step in run.progress.steps():
        if printed := printed_of(step.result):
            yield f"{name if item is None else f'{name}[{item}]'} printed:"
            yield from (f"  {line}" for line in printed.splitlines())


def _questions(run: WorkflowRun) -> Iterator[str]:
    for question in run.questions:
        yield from _question_lines(run.run_id, question.step, question.text)


def _question_lines(run_id: str, step: str, text: str) -> tuple[str, str]:
    return wrapped(f"{step} asks: {text}"), f"→ nbtools runs answer {run_id} {step} ANSWER"


def _next_steps(run: WorkflowRun) -> Iterator[str]:
    """Yield what can be done with a run as it stands."""
    from nbtools.workflow.runs.history import RunHistory
    from nbtools.workflow.runs.log import FrozenRun

    if run.questions and run.driver is None:
        yield f"→ nbtools run --resume {run.run_id} continues once that is answered."
    if run.state == "lost":
        yield "Its driver ended unexpectedly. What has ended is kept; you are asked before anything may happen twice."
        yield f"→ nbtools run --resume {run.run_id}"
    if run.has_ended and not run.ok:
        yield "It resumes where it stopped, using the current file; finished, unchanged steps are not repeated."
        for step in RunHistory(FrozenRun(run.folder).events(), is_new=True).unknown():
            yield f"It is not known how {step.label} ended. Unless it can be repeated, you choose: retry, done or fail."
        yield f"→ nbtools run --resume {run.run_id}"
    for line in run.drift:
        is_old = " the run began" in line and (run.ok or not run.has_ended)
        yield f"note: {line}; this run uses it as it was" if is_old else f"note: {line}"
    if run.drift and run.ok:
        yield f"→ nbtools run {run.source} --plan says what a new run would do."
    if run.drift and not run.has_ended and run.driver is None:
        yield "→ To use the file as it is now, cancel the run first, then resume it:"
        yield f"→ nbtools runs cancel {run.run_id}"


def _as_json(run: WorkflowRun) -> dict[str, Any]:
    nodes = {
        name: {**node.view(), "attempt": node.attempt, "why": node.why} for name, node in run.progress.nodes.items()
    }
    questions = [{"step": one.step, "question": dict(one.question), "deadline": one.deadline} for one in run.questions]
    record = {
        name: getattr(run, name) for name in ("run_id", "workflow", "state", "outputs", "error", "driver", "drift")
    }
    return {**record, "folder": str(run.folder), "questions": questions, "nodes": nodes}


def _runs(arguments: argparse.Namespace) -> int:
    as_json = bool(getattr(arguments, "json", False))
    with Workbench() as wb:
        match arguments.verb:
            case "show":
                run = wb.workflows.show(arguments.run)
                print(json.dumps(_as_json(run), ensure_ascii=False, default=repr) if as_json else _details(run))
            case "report":
                print(wb.workflows.report(arguments.run))
            case "export":
                print(wb.workflows.export_notebook(arguments.run, arguments.to, overwrite=arguments.overwrite))
            case "answer":
                run_id, step = _answer(wb, arguments)
                print(f"answered {step} of {run_id}", file=sys.stderr)
                if wb.workflows.show(run_id).driver is None:
                    print(f"→ nbtools run --resume {run_id}", file=sys.stderr)
            case "prune":
                seconds = None if arguments.days is None else arguments.days * 86_400
                count, freed = wb.workflows.prune(seconds=seconds, most_bytes=arguments.size)
                print(f"{counted(count, 'run')} removed, {freed:,} bytes; the newest 20 stay")
            case "forget":
                print(f"removed {wb.workflows.forget(arguments.run)}")
            case "cancel":
                wb.workflows.cancel(arguments.run, by=_user())
            case _:
                runs = wb.workflows.runs()
                if as_json:
                    print(json.dumps([_as_json(run) for run in runs], ensure_ascii=False, default=repr))
                else:
                    print("\n".join(_rows(runs)) or "There are no runs yet.")
    return 0


def _answer(wb: Workbench, arguments: argparse.Namespace) -> tuple[str, str]:
    """Answer a question, and return its run and its step; at a terminal a word that does not fit is asked for again."""
    from nbtools.workflow.driver.questions import accept
    from nbtools.workflow.workflow_run import the_open_question

    run_id, step, answer, question = arguments.run, arguments.step, arguments.answer, None
    if step is None:
        run_id, question = the_open_question(wb.workflows.runs(), run_id)
        step = question.step
    else:
        question = next((one for one in wb.workflows.show(run_id).questions if one.step == step), None)
    while question is not None and sys.stdin is not None and sys.stdin.isatty():
        try:
            accept(question.question, answer)
        except InvalidArguments as exc:
            print("\n".join(exc.three_lines()), file=sys.stderr)
            answer = input(f"{step} asks: {question.text} ")
        else:
            break
    wb.workflows.answer(run_id, step, answer, by=_user())
    return run_id, step


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "someone"


def _rows(runs: Sequence[WorkflowRun]) -> list[str]:
    rows = []
    for run in runs:
        began = run.progress.started_at
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began)) if began else ""
        asks = f"  {len(run.questions)} open question{'s' * (len(run.questions) > 1)}" if run.questions else ""
        rows.append(f"{run.run_id:<44} {run.state:<9} {when}{asks}".rstrip())
    return rows


def _details(run: WorkflowRun) -> str:
    lines = [f"{run.workflow}: {run.state} ({run.run_id})", f"folder: {run.folder}"]
    if run.driver:
        lines.append(f"driven by process {run.driver.get('pid')} on {run.driver.get('host')}")
    lines += ["", run.table(), ""]
    lines += [f"  {_output_line(name, value)}" for name, value in run.outputs.items()]
    return "\n".join([*lines, *_printed(run), *_questions(run), *_next_steps(run)]).rstrip()
