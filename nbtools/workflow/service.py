"""The service: validate workflows, run and resume them, say what a run would do, and answer its questions.

Nothing here starts before it is asked for. The asynchronous names do the work on the nbtools loop; the blocking names
are derived.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import shlex
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.conduct.run_folders import RunFolders
from nbtools.contract.approval.label_rules import label_of_files, marks_of, of_unknown
from nbtools.contract.approval.own_words import label_of_values
from nbtools.contract.execute import Executor
from nbtools.contract.label import Label
from nbtools.contract.registry import Registry
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import Tool, ToolCall
from nbtools.errors import FileMissing, InvalidArguments, NbtoolsError, NetworkError, did_you_mean
from nbtools.ground import aio
from nbtools.ground.folder import Folder
from nbtools.ground.home import not_written
from nbtools.ground.paths import working_folder
from nbtools.texts.other_words import KnowsOtherWords
from nbtools.workflow.driver.dask_cluster import open_runner
from nbtools.workflow.driver.definition import RunDefinition, check_inputs
from nbtools.workflow.driver.going_on import EarlierRuns
from nbtools.workflow.driver.host import WorkflowHost
from nbtools.workflow.driver.local import AskPerson, Drive, DriveOptions
from nbtools.workflow.driver.preview import Preview, preview, preview_of_going_on
from nbtools.workflow.driver.questions import accept, question_text
from nbtools.workflow.driver.steps import StepRunner
from nbtools.workflow.findings import Report
from nbtools.workflow.notebooks import as_workflow, made_of, text_of
from nbtools.workflow.offered import workflow_tool
from nbtools.workflow.runs.events import RunEvent
from nbtools.workflow.runs.log import FrozenRun, RunLog, RunOrder, fresh_run_id
from nbtools.workflow.runs.state import RunState, step_label
from nbtools.workflow.spec import Workflow
from nbtools.workflow.validation import validate
from nbtools.workflow.views.notebook import repeating_notebook
from nbtools.workflow.views.saved import read_drift, read_progress
from nbtools.workflow.workflow_run import OpenQuestion, WorkflowRun

_SHOWN_RUNS = 200
_Source = str | os.PathLike[str]


class Workflows(KnowsOtherWords):
    """The workflows of a workbench.

    Parameters
    ----------
    host
        What runs need of the workbench.
    check_open
        Raises when the workbench is closed.
    viewer
        Returns the widget of a run; `None` where there is none.
    """

    def __init__(
        self,
        host: WorkflowHost,
        *,
        check_open: Callable[[], None] = lambda: None,
        viewer: Callable[[WorkflowRun], Any] | None = None,
    ) -> None:
        self._viewer = viewer
        self.host = dataclasses.replace(host, workflow_tool=lambda path, name: self.tool(path, name=name))
        self._check_open = check_open
        self._folders = RunFolders(
            host.runs, FrozenRun, seconds=host.runs_age, most_bytes=host.runs_size, listed_by="nbtools runs"
        )

    def tool(self, path: str | os.PathLike[str], *, name: str | None = None) -> Tool:
        """Return a workflow file as a tool: its inputs are the parameters, its outputs the data.

        Parameters
        ----------
        path
            The file.
        name
            Of the tool; `None` takes the workflow's own.

        Raises
        ------
        ConfigInvalid
            The workflow has mistakes.
        """
        return workflow_tool(Path(path), lambda: self, name=name, tools=self.host.tools())

    def validate(self, source: str | os.PathLike[str]) -> Report:
        """Return what is wrong with a workflow: a path, a notebook, or YAML with a line break; nothing runs."""
        return validate(as_workflow(source), self.host.tools(), find_model=self.host.find_model)

    def _read(self, source: _Source, inputs: Mapping[str, Any] | None = None) -> tuple[Report, _Source]:
        """Return what is known of a workflow without mistakes, and its source: that of a notebook is one step."""
        # A notebook becomes a workflow of one step, so that there is one kind of run to resume, show and report.
        source = as_workflow(source, inputs)
        return self.validate(source).raise_for_errors(), source

    def _order(
        self, source: _Source, inputs: Mapping[str, Any] | None, before: Mapping[str, Any] | None = None
    ) -> tuple[Report, RunOrder]:
        """Return what is known of a workflow, and what a run of it is to do.

        The inputs of `before`, which were given to the run that goes on, hold where the workflow still has them.
        """
        report, source = self._read(source, {**(before or {}), **(inputs or {})})
        own_values = {name: value for name, value in (before or {}).items() if name in report.workflow.inputs}
        own_values |= inputs or {}
        values = check_inputs(report.workflow, own_values)
        # Kept apart: a run that goes on takes the defaults of its file then, and the values that were given hold.
        how: dict[str, Any] = {"inputs": values, "defaults": values.keys() - own_values.keys()}
        how |= {"workflow": report.workflow.name, "text": text_of(source)}
        return report, RunOrder(source=report.path, files=report.files, **how)

    def arun(
        self,
        source: str | os.PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        cached: bool = False,
        executor: str = "local",
        on_event: Callable[[RunEvent], None] | None = None,
        ask: AskPerson | None = None,
        wait_s: float | None = 0.0,
    ) -> Coroutine[Any, Any, WorkflowRun]:
        """Run a workflow and return what became of it; a failure is in the run, never raised.

        Parameters
        ----------
        source
            A path, of a notebook too, or YAML that has a line break.
        inputs
            Values of the inputs; of a notebook, those of its cell with the tag parameters.
        cached
            Whether results of earlier runs are used again where nothing that a node depends on has changed. A step that
            reads what is not compared, such as the memory, a database or what a folder holds, runs again.
        executor
            Who computes: ``"local"``, ``"dask://HOST:PORT"`` (a scheduler whose workers see the folder of runs), or
            ``"dask://local"`` for a cluster on this machine. Prompts, questions, keys and effects stay here.
        on_event
            Called on the nbtools loop with each event.
        ask
            Asks a person who is here: gets the step's name and the question, and returns the answer or `None`.
        wait_s
            Seconds to wait for answers from elsewhere once nothing else can be done; `None` waits for ever. Then the
            run is ``"waiting"``: answer it, and resume it.

        Raises
        ------
        ConfigInvalid
            The workflow has mistakes; the message shows each.
        InvalidArguments
            The inputs do not fit.
        NetworkError
            The cluster does not answer; the run can be resumed.
        """
        # Now, while the code that hands on the inputs can be seen.
        options = DriveOptions(on_event=on_event, ask=ask, wait_s=wait_s, label=label_of_values(inputs))
        return self._begin(executor, options, source, inputs, is_cached=cached)

    async def _begin(self, executor: str, options: DriveOptions, *how: Any, is_cached: bool) -> WorkflowRun:
        self._check_open()
        report, order = await aio.in_thread(self._order, *how)
        folder = self.host.runs / fresh_run_id(report.workflow.name)

        def create() -> RunLog:
            try:
                FrozenRun.create(folder, order)
                return RunLog(folder)
            except OSError as exc:
                raise not_written(exc) from exc

        log = await aio.in_thread(create)
        reuse = EarlierRuns(self.host.runs, report.workflow.name, but=folder.name) if is_cached else None
        options = dataclasses.replace(options, reuse=reuse)
        return await aio.here(self._drive(log, options, executor))

    run = aio.blocking(arun)

    def aresume(
        self,
        run_id: str,
        source: str | os.PathLike[str] | None = None,
        inputs: Mapping[str, Any] | None = None,
        *,
        executor: str = "local",
        on_event: Callable[[RunEvent], None] | None = None,
        ask: AskPerson | None = None,
        wait_s: float | None = 0.0,
    ) -> Coroutine[Any, Any, WorkflowRun]:
        """Go on with a run: what has ended well is kept, and what is unknown is asked.

        A run that waits, or whose driver was lost, goes on with its files as they were at its start. One that failed,
        was cancelled or declined takes its files as they are now, keeps what is done and unchanged, and runs the rest;
        a step that had effects and has changed since asks before it runs again. A run that is ok is returned as it is.

        Parameters
        ----------
        run_id
            The run, or the start of its name where that is enough.
        source
            A path, or YAML that has a line break, for a run that has ended; `None` takes the file that it began with.
        inputs
            Values in place of those of the run, which hold on.
        executor
            Who computes, as for `arun`.
        on_event
            Called on the nbtools loop with each event.
        ask
            Asks a person who is here, as for `arun`; `None` asks no one.
        wait_s
            Seconds to wait for answers from elsewhere, as for `arun`; `None` waits for ever.

        Raises
        ------
        FileMissing
            There is no such run, or its file is gone.
        PermissionDenied
            Someone else drives it; the message says who.
        ConfigInvalid
            The file has mistakes now.
        InvalidArguments
            The run goes on with its own file, or the inputs do not fit.
        """
        options = DriveOptions(on_event=on_event, ask=ask, wait_s=wait_s, label=label_of_values(inputs))  # as `arun`
        return self._go_on(run_id, executor, options, source, inputs)

    async def _go_on(self, run_id: str, executor: str, options: DriveOptions, *how: Any) -> WorkflowRun:
        self._check_open()
        run = self._folders.find(run_id)
        # Relative paths are in the log and in the hashes of the steps: elsewhere they would name other files.
        begun_in = str(run.facts["working_folder"])
        if begun_in != await aio.in_thread(os.path.realpath, "."):
            hint = f"Change to it: cd {shlex.quote(begun_in)}"
            raise InvalidArguments(f"the run began in {begun_in}, where its relative paths start.", hint=hint)
        # Returned and not refused, so that a script may resume what another one has finished.
        if (await aio.in_thread(self.show, run.folder.name)).ok:
            return await aio.in_thread(self.show, run.folder.name)
        log = await aio.in_thread(RunLog, run.folder)
        try:
            # The lease is held by now: of two that resume at once, the second must not freeze its files over those of
            # the first.
            goes_on = await aio.in_thread(self._begin_again, log, *how)
        except BaseException:
            await asyncio.shield(aio.in_thread(log.close))
            raise
        return await aio.here(self._drive(log, options, executor, goes_on=goes_on))

    resume = aio.blocking(aresume)

    def _begin_again(self, log: RunLog, source: _Source | None, inputs: Mapping[str, Any] | None) -> bool:
        """Let a run that has ended take its files as they are now; return whether it did so."""
        if not log.has_ended:
            if source is not None or inputs:
                hint = f"End it first: nbtools runs cancel {log.folder.name}. Then it accepts another file."
                raise InvalidArguments("the run has not ended, and continues with its own file.", hint=hint)
            return False
        _, order = self._order_now(log, source, inputs)
        # What others have asked of the run before it ended does not hold any more.
        for message in log.messages():
            log.remove(message)
        log.freeze_again(order)
        return True

    def _order_now(
        self, run: FrozenRun, source: _Source | None, inputs: Mapping[str, Any] | None
    ) -> tuple[Report, RunOrder]:
        """Return what is known of a run's files now, and what it is to do by them."""
        names = run.facts["inputs"].keys() - set(run.facts["defaults"])
        before = {name: run.facts["inputs"][name] for name in names}
        return self._order(made_of(run.source_now()) if source is None else source, inputs, before)

    def workflow_now(self, run_id: str, source: str | os.PathLike[str] | None = None) -> Workflow:
        """Return what a run that has ended goes on with: its file as it is now, or another.

        Raises
        ------
        FileMissing, ConfigInvalid
            There is no such run or file, or the file has mistakes now.
        """
        report, _ = self._read(self._folders.find(run_id).source_now() if source is None else source)
        workflow: Workflow = report.workflow
        return workflow

    async def _drive(self, log: RunLog, options: DriveOptions, executor: str, *, goes_on: bool = False) -> WorkflowRun:
        try:
            definition = await aio.in_thread(RunDefinition.of_run, log, self.host)
            local = StepRunner(self.host, definition.tools)
            options = dataclasses.replace(options, label=await aio.in_thread(self._label_of, log, options.label))
            async with open_runner(executor, local, self.host.recipe) as runner:
                await Drive(log, definition, runner, options, goes_on=goes_on).adrive()
        except NetworkError as exc:
            exc.hint = f"{exc.hint} Then continue the run: nbtools run --resume {log.folder.name}"
            raise
        except NbtoolsError:
            raise
        except OSError as exc:
            raise not_written(exc) from exc
        finally:
            await asyncio.shield(aio.in_thread(log.close))  # the lease must go, whatever happens
        await aio.in_thread(self._folders.prune_once)
        return await aio.in_thread(self._show_with_report, log.folder.name)

    def _label_of(self, run: FrozenRun, inputs: Label) -> Label:
        """Return what a run may hold from its start: of its files, as they are and were then, and of its inputs."""
        services = self.host.executor(None, {}, self.host.tools()).door.services
        folders = (run.folder / run.facts["frozen"], Path(run.facts["root"] or run.folder))
        files = label_of_files(services, [folder / name for name in run.facts["files"] for folder in folders])
        return files | inputs | of_unknown(services) if inputs else files

    def _show_with_report(self, run_id: str) -> WorkflowRun:
        run = self.show(run_id)
        with contextlib.suppress(OSError, NbtoolsError):  # a full disk takes the report, not the run
            self._labelled(run.write_report(), run.progress)
        return run

    def _labelled(self, file: Path, progress: RunState) -> Path:
        """Return a file that shows a run, and which has its label from now on, as each copy of it."""
        if progress.label().strangers:
            marks_of(self.host.executor(None, {}, self.host.tools()).door.services).mark_file(file)
        return file

    def plan(
        self,
        source: str | os.PathLike[str] | None = None,
        inputs: Mapping[str, Any] | None = None,
        *,
        resume: str | None = None,
    ) -> Preview:
        """Return what a run with ``cached=True`` would do, and why; nothing runs.

        Parameters
        ----------
        source
            A path, or YAML that has a line break; with `resume`, `None` takes the file that the run began with.
        inputs
            Values of the inputs, as for `arun`; with `resume`, as for `aresume`.
        resume
            A run that has ended: then what it would do as it goes on.

        Raises
        ------
        ConfigInvalid, InvalidArguments
            As for `arun`.
        """
        self._check_open()
        run = None if resume is None else self._folders.find(resume)
        if run is not None and not run.has_ended:
            hint = f"Continue it: nbtools run --resume {run.folder.name}"
            raise InvalidArguments(f"{run.folder.name} has not ended.", hint=hint)
        if run is None:
            if source is None:
                raise InvalidArguments("name a file, or a run to resume.")
            report, order = self._order(source, inputs)
        else:
            report, order = self._order_now(run, source, inputs)
        path = Path(report.path) if report.path != "<text>" else working_folder() / "<text>"
        definition = RunDefinition(path, report.workflow, self.host, folder=working_folder())
        if run is not None:
            return preview_of_going_on(definition, order.inputs, run)
        return preview(definition, order.inputs, EarlierRuns(self.host.runs, report.workflow.name))

    def runs(self) -> list[WorkflowRun]:
        """Return the newest 200 runs, the newest first."""
        runs = []
        for run in self._folders.newest(_SHOWN_RUNS):
            with contextlib.suppress(NbtoolsError, OSError):
                runs.append(self._as_run(run))
        return runs

    def prune(self, *, seconds: float | None = None, most_bytes: int | None = None) -> tuple[int, int]:
        """Remove old runs that have ended, see `nbtools.conduct.run_folders.RunFolders.prune`."""
        return self._folders.prune(seconds=seconds, most_bytes=most_bytes)

    def forget(self, run_id: str) -> str:
        """Remove a run that is not being driven, see `nbtools.conduct.run_folders.RunFolders.forget`."""
        return self._folders.forget(run_id)

    def show(self, run_id: str) -> WorkflowRun:
        """Return a run, also while it is driven elsewhere.

        Raises
        ------
        FileMissing
            There is no such run.
        """
        return self._as_run(self._folders.find(run_id))

    def _as_run(self, run: FrozenRun) -> WorkflowRun:
        progress, definition = read_progress(run)
        driver = run.holder()
        state = "lost" if progress.state in {"running", "pending"} and driver is None else progress.state
        return WorkflowRun(
            run_id=run.folder.name,
            folder=run.folder,
            workflow=str(run.facts["workflow"]),
            state=state,
            source=str(run.facts["source"]),
            outputs=progress.outputs or {},
            error=progress.error,
            progress=progress,
            questions=tuple(_questions(run, progress)),
            driver=driver,
            drift=tuple(read_drift(run, definition)),
            definition=definition,
        )

    def view(self, run: WorkflowRun | str) -> Any:
        """Return a run as a widget of a notebook, which follows it, takes answers to its questions, and can stop it.

        Raises
        ------
        FileMissing
            There is no such run.
        InvalidArguments
            Its file can no longer be read.
        """
        return (self._viewer or (lambda shown_run: shown_run))(self.show(run if isinstance(run, str) else run.run_id))

    def report(self, run_id: str) -> Path:
        """Write the report of a run again, also while it is driven, and return its path.

        Raises
        ------
        FileMissing
            There is no such run.
        """
        run = self.show(run_id)
        return self._labelled(run.write_report(), run.progress)

    def export_notebook(self, run_id: str, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a notebook that repeats a run step by step, and return its path.

        Each node is a cell that runs it as a run does; what people and models answered is not asked again. The notebook
        runs from top to bottom, in the folder in which the run was started.

        Parameters
        ----------
        run_id
            The run.
        path
            The notebook.
        overwrite
            Whether a file that is there is replaced.

        Raises
        ------
        FileMissing
            There is no such run, or no such folder.
        FileAlreadyExists
            The file is there.
        InvalidArguments
            The workflow can no longer be read.
        """
        target, run = Path(path), self._folders.find(run_id)
        progress, definition = read_progress(run)
        if definition is None:
            raise InvalidArguments(f"the workflow of {run.folder.name} can no longer be read.")
        if not target.parent.is_dir():
            raise FileMissing(f"the folder of {str(path)!r} does not exist.", hint="Make it, or name another file.")
        notebook = repeating_notebook(run, progress, definition, folder=target.resolve().parent)
        content = f"{json.dumps(notebook, indent=1, ensure_ascii=False)}\n"
        Folder(target.parent, None).replace(target.name, content.encode(), overwrite=overwrite)
        self._labelled(target.resolve(), progress)
        return target

    def answer(self, run_id: str, step: str, answer: Any, *, by: str = "") -> OpenQuestion:
        """Answer a question of a run; who drives it takes the answer at once, a resume finds it.

        Parameters
        ----------
        run_id
            The run, or the start of its name where that is enough.
        step
            The step that asks, see `OpenQuestion`.
        answer
            A value, or a text such as ``yes``, a choice, ``retry``, or JSON for a form.
        by
            Who answers.

        Raises
        ------
        InvalidArguments
            The step asks nothing, or the answer does not fit.
        """
        run = self._folders.find(run_id)
        questions = {question.step: question for question in _questions(run, read_progress(run)[0])}
        if step not in questions:
            hint = did_you_mean(
                step, questions, f"Open are {', '.join(questions)}." if questions else "The run has no open question."
            )
            raise InvalidArguments(f"{step!r} of {run.folder.name} has no open question.", hint=hint)
        accept(questions[step].question, answer)
        folder, node, item = _locate(run.folder, step)
        # Two answers would be taken in the order of their files, and the first person would read that theirs did not
        # hold.
        if reply := questions[step].reply:
            message = f"{step!r} was answered with {reply['answer']!r} by {reply.get('by') or 'someone'}"
            raise InvalidArguments(f"{message}; an answer cannot be changed.", hint="Resume the run.")
        FrozenRun(folder).post("answer", node=node, item=item, answer=answer, by=by)
        return questions[step]

    def cancel(self, run_id: str, *, by: str = "") -> None:
        """Ask the driver of a run to end it; a run that is not being driven is ended at once.

        Raises
        ------
        InvalidArguments
            It has ended already.
        """
        run = self._folders.find(run_id)
        if run.has_ended:
            raise InvalidArguments(f"{run.folder.name} has ended already.")
        # Posted in any case, so that a driver that starts in this moment finds it too.
        run.post("cancel", by=by)
        if run.holder() is None:
            self.resume(run.folder.name)


class WorkflowExecutor:
    """Offers workflow files as tools, one for each.

    Parameters
    ----------
    workflows
        Those of a workbench, which run them.
    files
        Paths of the files.

    Raises
    ------
    ConfigInvalid
        A file has mistakes.
    """

    def __init__(self, workflows: Workflows, files: list[str | Path] | tuple[str | Path, ...]) -> None:
        host = workflows.host
        tools = Registry(workflow_tool(Path(file), lambda: workflows, tools=host.tools()) for file in files)
        self._inner: Executor = host.executor(None, {}, tools)

    def tools(self) -> Registry:
        """Return the workflows as tools."""
        return self._inner.tools()

    async def acall(self, call: ToolCall) -> ToolResult:
        """Run a workflow; an expected failure is in the result."""
        return await self._inner.acall(call)


def _questions(run: FrozenRun, progress: RunState, prefix: str = "") -> Iterator[OpenQuestion]:
    """Yield the open questions of a run, and of the runs inside of it."""
    # Reversed, so that of several answers the first stands, which is the one that the driver takes.
    replies = {(one.get("node"), one.get("item")): one for one in reversed(run.messages()) if one["what"] == "answer"}
    for name, item, step in progress.open_questions():
        question, label = step.question or {}, prefix + step_label(name, item)
        text, reply = question_text(question), replies.get((name, item))
        yield OpenQuestion(step=label, text=text, question=question, deadline=step.deadline, reply=reply)
    for folder in sorted((run.folder / "sub").glob("*")):
        with contextlib.suppress(NbtoolsError):
            inner = FrozenRun(folder)
            yield from _questions(inner, read_progress(inner)[0], f"{prefix}{folder.name}/")


def _locate(folder: Path, step: str) -> tuple[Path, str, int | None]:
    """Return the folder of the run in which a step asks, its node, and its item."""
    *outer, last = step.split("/")
    for name in outer:
        folder = folder / "sub" / name
    node, _, item = last.partition("[")
    return folder, node, int(item.rstrip("]")) if item else None
