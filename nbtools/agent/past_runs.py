"""``wb.agent``, as far as it tells of runs that were, takes back what they did, and ends them."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

from nbtools.agent.exports.notebook import RunExport
from nbtools.agent.exports.writing import write_notebook, write_workflow
from nbtools.agent.models.choice import require_agent
from nbtools.agent.records.run_log import AgentRunFolder, AgentRunLog
from nbtools.agent.records.run_record import RunRecord
from nbtools.agent.run import AgentRun
from nbtools.agent.tries import KEEPS, keep_sessions
from nbtools.conduct.run_folders import RunFolders
from nbtools.contract.approval.gate import Approver
from nbtools.contract.execute import LocalExecutor, perform
from nbtools.contract.tool import Caller, Effects, ToolCall
from nbtools.errors import InvalidArguments
from nbtools.ground import aio
from nbtools.ground.paths import Roots
from nbtools.memory import AgentMemory, MemoryFiles
from nbtools.texts.other_words import KnowsOtherWords


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentHost:
    """The parts of a workbench that runs use.

    Attributes
    ----------
    executor
        Returns who performs calls and asks for approval; given an approver, one that asks that one.
    runs
        The folder of all runs of this agent.
    runs_age
        Seconds after which a run that has ended is removed.
    runs_size
        Total bytes of all runs; beyond that, the oldest are removed.
    check_workflow
        Returns what is wrong with the YAML of a workflow, nothing where it is valid.
    idle
        Returns the tools that can do nothing here, of which a model gets only the names.
    model
        The setting ``model``: which model answers where a call names none; `None` where nothing is set.
    models
        The setting ``models``: what is set for each model, by name.
    """

    executor: Callable[[Approver | None], LocalExecutor]
    runs: Path
    runs_age: float
    runs_size: int
    check_workflow: Callable[[str], str]
    idle: Callable[[], Collection[str]]
    model: str | None
    models: Mapping[str, Any]


class PastRuns(KnowsOtherWords):
    """The runs that are kept, and those that go on in this process.

    Parameters
    ----------
    host
        See `AgentHost`.
    check_open
        Raises when the workbench is closed.
    """

    def __init__(self, host: AgentHost, *, check_open: Callable[[], None] = lambda: None) -> None:
        self._host = host
        self._check_open = check_open
        self._live: weakref.WeakValueDictionary[str, AgentRun] = weakref.WeakValueDictionary()
        self._folders = RunFolders(
            host.runs, AgentRunFolder, seconds=host.runs_age, most_bytes=host.runs_size, listed_by="nbtools agent runs"
        )

    async def aruns(self, limit: int | None = 20) -> list[dict[str, Any]]:
        """Return what is kept of runs, those that were at work last first."""
        self._check_open()
        return await aio.in_thread(lambda: [run.read_record().to_dict() for run in self._folders.newest(limit)])

    runs = aio.blocking(aruns)

    async def aget(self, run_id: str) -> AgentRun:
        """Return a run, by its id or the beginning of it; one of this process with its events.

        Raises
        ------
        FileMissing, InvalidArguments
            There is none, or several begin so.
        """
        self._check_open()
        record = await self._record(run_id)
        live = self._live.get(record.run_id)
        if live is not None and (live.state == "running" or not record.has_left(live.record)):
            return live
        run = AgentRun(record)
        run.end()
        return run

    get = aio.blocking(aget)

    async def alog(self, run_id: str) -> list[dict[str, Any]]:
        """Return what happened in a run, event by event, as dicts; also of a run of another process."""
        self._check_open()
        return (await self._find(run_id)).events()

    log = aio.blocking(alog)

    async def amessages(self, run_id: str) -> list[Any]:
        """Return the messages of a run's conversation, as pydantic-ai has them."""
        self._check_open()
        require_agent()
        return await aio.in_thread((await self._find(run_id)).messages)

    messages = aio.blocking(amessages)

    async def asent(self, run_id: str) -> list[str]:
        """Return all that a run's model was sent: instructions, messages, results, tools; a heading before each."""
        self._check_open()
        run = await self._find(run_id)
        from nbtools.agent.history import sent_texts

        tools = run.load_text(f"tools-{run.read_record().tools_sent}") or ""
        return [*sent_texts(await self.amessages(run.folder.name)), *(["— tools", tools] if tools else [])]

    sent = aio.blocking(asent)

    async def aundo(self, run: str | AgentRun) -> list[dict[str, Any]]:
        """Take back what a run did to files and notes, the last first.

        Returns
        -------
        list
            A row for each thing: ``tool``, ``target``, ``undone``, and ``why`` it was not. What someone has changed
            since is left alone, and of a tool whose arguments name no file and no note it is not known what it did.

        Raises
        ------
        FileMissing
            There is no such run.
        PermissionDenied
            It still runs.
        """
        self._check_open()
        run_id = (await self._find(run)).folder.name
        executor = await aio.in_thread(self._host.executor, None)
        services = executor.door.services
        places = {"roots": services[Roots](), "memory": services[AgentMemory](), "files": services[MemoryFiles]()}
        from nbtools.agent.undo.taking_back import take_back

        call = ToolCall(tool="agent_undo", arguments={"run": run_id})
        effects = Effects(destructive=True, idempotent=True)
        # The lease is held meanwhile, so that no one goes on with the run while it is taken back.
        log = await aio.in_thread(AgentRunLog, self._host.runs / run_id)
        try:
            work = functools.partial(take_back, log, **places)
            rows, _ = await aio.here(perform(executor.door, call, work, effects=effects))
        finally:
            log.close()
        return list(rows)

    undo = aio.blocking(aundo)

    async def aexport(
        self,
        run: str | AgentRun,
        path: str | Path,
        *,
        as_workflow: bool = False,
        prove: bool = False,
        repeat: Collection[int] = (),
        caller: Caller = "python",
    ) -> RunExport:
        """Write a run as a notebook that makes its calls again, or as a workflow; neither needs a model.

        Parameters
        ----------
        run
            The run, its id, or the beginning of it.
        path
            The file, below the allowed folders.
        as_workflow
            Whether it becomes a workflow: calls are nodes, and what may be another value next time is an input.
        prove
            Whether the notebook is run once, in a clean kernel and a copy of the folders and notes. It is written with
            its outputs, and `RunExport.proof` says how many results came again.
        repeat
            Numbers of calls, from 1, that the notebook makes again although they destroy or reach out, in a proof too.
        caller
            Who asks for it.

        Raises
        ------
        FileMissing
            There is no such run.
        InvalidArguments
            No call of it succeeded, a workflow was to be proved, a number is of no call, or the file is something else
            than such an export.
        ExecutionFailed
            The notebook did not run to its end.
        """
        self._check_open()
        if prove and as_workflow:
            raise InvalidArguments("only a notebook can be proved, not a workflow.", hint="Run the workflow.")
        source = await self.aget(id_of(run))
        log = await self.alog(source.run_id)
        executor = await aio.in_thread(self._host.executor, None)
        facts = (source.run_id, source.prompt, source.label or source.model, log)
        if as_workflow:
            write = functools.partial(write_workflow, facts, path, executor, self._host.check_workflow)
        else:
            write = functools.partial(write_notebook, facts, path, executor, prove_it=prove, repeat=repeat)
        label = source.seen
        call = ToolCall(tool="agent_export", arguments={"run": source.run_id, "path": str(path)}, caller=caller)
        call = call.but(label=label)
        work = perform(executor.door, call, write, effects=Effects(destructive=True), origins=("file_write",))
        return cast("RunExport", (await aio.here(work))[0])

    export = aio.blocking(aexport)

    async def acancel(self, run: str | AgentRun) -> AgentRun:
        """End a run that goes on in this process, or waits, and return it; one that is over stays as it is.

        Raises
        ------
        PermissionDenied
            It goes on in another process.
        FileMissing
            There is no such run.
        """
        target = await self.aget(id_of(run))
        if target.state == "running" and target.run_id in self._live:
            target.cancel()
            return await target.await_end()
        if target.state in {"running", "pending", "interrupted"}:
            log = await aio.in_thread(AgentRunLog, self._host.runs / target.run_id)
            try:
                if log.record.state in {"running", "pending"}:
                    await log.cancel()
            finally:
                log.close()
            self._live.pop(target.run_id, None)
        return await self.aget(target.run_id)

    cancel = aio.blocking(acancel)

    async def akeep(self, run: str | AgentRun) -> AgentRun:
        """Keep one of several tries, and return it: its sessions replace the originals.

        The others are ended with their sessions. What they wrote stays, until `undo` takes it back.

        Raises
        ------
        InvalidArguments
            It is not one of several tries, or still runs, or a session that it copied has run since: the others go on.
        FileMissing
            There is no such run.
        """
        best = await self.aget(id_of(run))
        options, executor = best.record.options, await aio.in_thread(self._host.executor, None)
        if not options.tries or best.state == "running":
            what = "still runs" if options.tries else "is not one of several tries"
            raise InvalidArguments(f"run {best.run_id[:8]} {what}.", hint="%agent show shows what a run did.")
        records = await aio.in_thread(lambda: [folder.read_record() for folder in self._folders.newest(None)])
        others = [one for one in records if one.options.tries == options.tries and one.run_id != best.run_id]

        async def keep() -> None:
            from nbtools.kernels import Kernels

            async def end_others() -> None:
                for other in others:
                    await self.acancel(other.run_id)

            ends = [other.options.sessions_end for other in others]
            await keep_sessions(executor.door.for_models[Kernels](), options.sessions_end, ends, end_others)

        call = ToolCall(tool="agent_keep", arguments={"run": best.run_id})
        await aio.here(perform(executor.door, call, keep, effects=KEEPS))
        return best

    keep = aio.blocking(akeep)

    async def aforget(self, run: str | AgentRun) -> str:
        """Erase a run that does not go on, with its log and messages, for ever, and return its id.

        What it did stays, and can no longer be taken back. Messages that another run goes on from stay with that one.

        Raises
        ------
        PermissionDenied
            It still runs.
        FileMissing
            There is no such run.
        """
        self._check_open()
        run_id = await aio.in_thread(self._folders.forget, id_of(run))
        self._live.pop(run_id, None)
        return run_id

    forget = aio.blocking(aforget)

    async def _find(self, run: str | AgentRun) -> AgentRunFolder:
        return await aio.in_thread(self._folders.find, id_of(run))

    async def _record(self, run: str | AgentRun) -> RunRecord:
        """Return what is kept of a run; what goes on here is newer than what is stored."""
        live = self._live.get(id_of(run))
        if live is not None and live.state == "running":
            return live.record
        return (await self._find(run)).read_record()


def id_of(run: str | AgentRun) -> str:
    """Return the id of a run, or the beginning of it."""
    return run.run_id if isinstance(run, AgentRun) else run
