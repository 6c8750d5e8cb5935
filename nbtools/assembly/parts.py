"""The parts of a workbench: memory, kernels, SQL, tools and the door, each built at its first use.

A workbench that only answers SQL starts no kernel and no memory. What was built here is closed here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from nbtools.assembly.portable_tools import portable_tools, stays_here
from nbtools.contract.approval.gate import Approver, check_names, rules_from_config
from nbtools.contract.door import CallLimits, Door
from nbtools.contract.execute import CompositeExecutor, Executor, LocalExecutor, perform
from nbtools.contract.record import CallRecorder
from nbtools.contract.registry import Registry, not_enabled
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import Services, Tool, ToolCall, tool, tool_of
from nbtools.contract.wire.plain_returns import ArtifactFolder
from nbtools.errors import ConfigMissing, FileMissing, MissingExtra, PermissionDenied, WorkbenchClosed
from nbtools.ground import aio
from nbtools.ground.config import Config
from nbtools.ground.home import folder_name, private
from nbtools.ground.lazy import ByClassName, ClosedAtEnd, until_closed
from nbtools.ground.paths import ARTIFACTS, Roots, working_folder
from nbtools.texts.other_words import KnowsOtherWords

if TYPE_CHECKING:
    from nbtools.agent import AgentService
    from nbtools.kernels import Kernels
    from nbtools.memory import AgentMemory, CallLog, MemoryFiles
    from nbtools.memory.rules.marks import StoredMarks
    from nbtools.memory.tables import TableFolder
    from nbtools.processes.runtime_dir import RuntimeDir
    from nbtools.sql import SqlSession
    from nbtools.sql.frames import Frames
    from nbtools.toolbox import Processes
    from nbtools.toolbox.web.downloads import Downloads
    from nbtools.widgets.open_grids import OpenGrids
    from nbtools.workflow.driver.host import WorkerRecipe, WorkflowHost
    from nbtools.workflow.service import Workflows
    from nbtools.workflow.workflow_run import WorkflowRun

# Seconds after the last notebook that a memory's keeper stays in a class; after twenty times that without a question it
# leaves beside open notebooks too, and the next question starts another.
_IDLE_IN_CLASS_S = 1.0
_CLOSED = (  # in this order: the memory is the last that is needed
    *("_explorers", "agent"),
    *("_model_processes", "_processes", "kernels", "_model_sql", "sql_session"),
    *("_marks", "memory_files", "memory", "_folder"),
)


class Parts(KnowsOtherWords, ClosedAtEnd):
    """What a workbench consists of.

    Parameters
    ----------
    config
        The settings.
    approver
        Who answers when the gate asks; `None` means nobody.
    tools
        More tools, beside the shelf and those of installed packages.
    frames
        The DataFrames that SQL sees: by name, or a function that returns the one of a name, or `None`.
    kernels
        Kernels that someone else closes; `None` makes them as the settings say.
    """

    def __init__(
        self,
        config: Config,
        *,
        approver: Approver | None,
        tools: Iterable[Tool | Callable[..., Any]],
        frames: Frames | None,
        kernels: Kernels | None,
    ) -> None:
        self.config = config
        self._given_kernels = kernels
        self._approver = approver
        self._extra = tuple(tools)
        self._frames = _lookup_in(frames)
        self.page: Callable[[], Any] = lambda: None  # returns what asks the notebook's page
        self._lent: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._closers: list[Any] = []
        self.is_closed = False
        private(config.home)
        if self.config.otel:
            from nbtools.ground.telemetry import connect_opentelemetry

            connect_opentelemetry()

    @until_closed
    def roots(self) -> Roots:
        """The folders below which files may be used."""
        return Roots(self.config.allowed_paths, artifacts=self._files_left, may_grow=self.config.may_grow())

    def allow(self, folder: str | os.PathLike[str]) -> Path:
        """Open one more folder to the person at this workbench, until it is closed, and return it; models get nothing.

        Parameters
        ----------
        folder
            Absolute, or relative to the working folder; ``~`` is the home folder.

        Raises
        ------
        FileMissing, PermissionDenied
            There is no such folder; the settings forbid it.
        """
        self.check_open()
        if not self.config.allow_more:
            raise PermissionDenied("the settings forbid it (allow_more, or class).", tried="allowing a folder")
        real = Path(os.path.realpath(Path(folder).expanduser()))
        if not real.is_dir():
            what = "is a file; allow its folder" if real.exists() else "does not exist"
            raise FileMissing(f"{str(folder)!r} {what}.", tried="allowing a folder")
        self.roots.add(real)
        self.kernels.allow(real)
        self.sql_session.allow(real)
        return real

    @until_closed
    def _folder(self) -> RuntimeDir:
        from nbtools.processes.runtime_dir import RuntimeDir

        return RuntimeDir(self.config.home, holding=ARTIFACTS)

    @property
    def artifacts(self) -> Path:
        """The folder of what confined scripts left, which tools read as ``artifacts/NAME``; it goes with `close`."""
        return self._folder.hold(ARTIFACTS)

    # Asked for at each judgement of a path: a folder that no script has made yet must not be made by looking.
    def _files_left(self) -> Path | None:
        folder: RuntimeDir | None = self.__dict__.get("_folder")
        return None if folder is None else folder.path / ARTIFACTS

    @until_closed
    def memory(self) -> AgentMemory:
        """The memory of this agent."""
        from nbtools.memory import default_memory_url, open_memory
        from nbtools.memory.rules.marks import MarkingRepository

        home, url = self.config.home, self.config.memory_url or default_memory_url(self.config.home)
        # What is forgotten is erased in these too: a run keeps the results of its steps, and what was in files before.
        holders = lambda: (home / "runs", home / "agent_runs", self.artifacts)  # noqa: E731 - a line is a line here
        # In a class its keeper is not left to wait: an eighth of what a notebook takes is worth half a second's start.
        idle_exit, agent_id = _IDLE_IN_CLASS_S if self.config.classroom else None, self.config.agent_id
        tables = lambda: self.memory_tables  # noqa: E731 - so is this one
        memory = open_memory(url, agent_id=agent_id, holders=holders, tables=tables, idle_exit=idle_exit)
        memory.repository = MarkingRepository(memory.repository, agent_id)
        return memory

    @until_closed
    def memory_files(self) -> MemoryFiles:
        """The files of the memory tool: in the memory, or where ``NBTOOLS_MEMORY_FILES_URL`` says."""
        from nbtools.memory import MemoryFiles

        return MemoryFiles(self.config.memory_files_url or self.memory)

    @until_closed
    def kernels(self) -> Kernels:
        """The managed kernels; nothing is started before the first run."""
        return self._given_kernels or self._open_kernels()

    @until_closed
    def _model_kernels(self) -> Kernels:
        from nbtools.kernels.other_folders import KernelsForFolders

        config = self.config
        # Kernels that were handed in look at the folder of a call alone: its tool has judged that.
        if self._given_kernels is not None or config.model_paths == config.allowed_paths:
            return self.kernels
        return KernelsForFolders(self.kernels, config.model_paths, may_grow=config.may_grow(by_settings=True))

    def _open_kernels(self) -> Kernels:
        from nbtools.kernels import Kernels

        config = self.config
        return Kernels(
            backend=cast("Any", config.kernels),
            home=config.home,
            allowed_paths=config.allowed_paths,
            may_grow=config.may_grow(),
            sandbox=cast("Any", config.sandbox),
            network=config.network,
            spares=config.spares,
            memory_bytes=config.kernel_memory,
            preloads=config.preloads,
            artifacts_folder=lambda: None if self.is_closed else self.artifacts,  # the folder goes with the workbench
            idle_s=config.kernel_idle,
            warm_s=config.kernel_warm,
            timeout=config.kernel_timeout,
            gateway_url=config.gateway_url,
            gateway_token=config.gateway_token,
        )

    def _frame(self, name: str) -> Any:
        from nbtools.assembly.values_held import see_value

        # Before the notebook's own names: the rows of an explorer are lent for one call, under a name nobody else has.
        value = self._lent[name] if name in self._lent else self._frames(name) if self._frames is not None else None
        see_value(value, self.door.services)
        return value

    def _frame_names(self) -> list[str]:
        from nbtools.sql.suggestions import names_behind

        return names_behind(self._frames)

    @until_closed
    def memory_tables(self) -> TableFolder:
        """The tables and other values that memory items mean; see `nbtools.memory.tables`."""
        from nbtools.memory.tables import TableFolder

        bounds = (self.config.tables_age, self.config.tables_size)
        return TableFolder(self.config.home / "memory_tables", bounds=bounds, memory=lambda: self.memory)

    @until_closed
    def sql_session(self) -> SqlSession:
        """The read-only SQL session."""
        return self._open_sql()

    @until_closed
    def _explorers(self) -> OpenGrids:
        from nbtools.widgets.open_grids import OpenGrids

        return OpenGrids()

    @until_closed
    # A separate session: connections and folders that a person opens meanwhile are never a model's.
    def _model_sql(self) -> SqlSession:
        return self._open_sql(self.config.model_paths)

    def _open_sql(self, allowed_paths: tuple[Path, ...] | None = None) -> SqlSession:
        from nbtools.sql import SqlSession

        config = self.config
        return SqlSession(
            allowed_paths=config.allowed_paths if allowed_paths is None else allowed_paths,
            may_grow=config.may_grow(by_settings=allowed_paths is not None),
            artifacts=self.artifacts,
            connections=config.connections,
            waiting=config.waiting("connections"),
            frames=self._frame,
            frame_names=self._frame_names,
            tables={"nbtools.memory": lambda: self.memory.table(own=False), "nbtools.calls": self._calls_table},
            timeout=config.sql_timeout,
            memory_bytes=config.sql_memory,
            limit=config.sql_limit,
            max_bytes=config.sql_max_bytes,
            missing_words=config.missing_words,
            downloads=self._downloads(None if allowed_paths is None else config.sql_places),
            check_open=self.check_open,
        )

    def _downloads(self, places: tuple[str, ...] | None) -> Downloads | None:
        """Return what fetches the files that SQL names by URLs; for a model's queries only below `places`."""
        # An empty list closes the web to SQL; not given, a person's queries may go anywhere.
        if places == ():
            return None
        from nbtools.toolbox.web.downloads import Downloads

        # Apart: what a person's query has fetched is not there for a model, though it may ask for the same address.
        folder = self.config.home / "downloads" / ("own" if places is None else "models")
        return Downloads(folder, allow_private=self.config.allow_private, places=places)

    @until_closed
    def recorder(self) -> CallRecorder:
        """Keeps the record of calls, in the memory database when that is available."""
        return CallRecorder(lambda records: self._call_log.append(*records))

    @until_closed
    def _call_log(self) -> CallLog:
        from nbtools.memory import CallLog

        return CallLog(self.memory.repository)

    @until_closed
    def door(self) -> Door:
        """What every call goes through."""
        return Door(
            services=self._services(),
            model_services=self._model_services(),
            rules=rules_from_config(self.config.policy, base=self.config.start),
            approver=self._approver,
            recorder=self.recorder,
            limits=CallLimits(approval=self.config.approval_time),
        )

    @until_closed
    def registry(self) -> Registry:
        """All tools: the shelf, the user's own, those of installed packages, and those that the settings configure."""
        shelf, faults = self.shelf_and_faults
        for fault in faults:
            warnings.warn(fault, stacklevel=2)
        # A configured tool that takes the name of one of the shelf replaces it, and is made from what it replaces.
        configured = [shelf.create_tool_from_config(config, name=name) for name, config in self.config.tools.items()]
        enabled_tools = shelf.without(*(t.name for t in configured if t.name in shelf)).with_tool(*configured)
        if not self.config.workflows:
            return enabled_tools
        from nbtools.workflow.offered import workflow_tool

        tools = (workflow_tool(file, lambda: self.workflows, tools=enabled_tools) for file in self.config.workflows)
        return enabled_tools.with_tool(*tools)

    @until_closed
    def shelf_and_faults(self) -> tuple[Registry, tuple[str, ...]]:
        """The tools before the settings', and what is wrong with those of installed packages."""
        from nbtools.toolbox import STANDARD

        allowed = ", ".join(self.config.allowed_commands) or "nothing, until ALLOWED_COMMANDS names programs"
        notes = dict.fromkeys(("shell", "process"), f"Allowed here: {allowed}.")
        tools = [tool_of(fn) for toolset in STANDARD for fn in toolset]
        shelf = Registry(dataclasses.replace(t, note=notes[t.name]) if t.name in notes else t for t in tools)
        return shelf.with_tool(*self._extra).with_entry_points()

    @until_closed
    def executor(self) -> Executor:
        """Performs calls: the tools of this process and, behind them, those of outside servers."""
        # Here and not in the door: a door is made without tools, and only with them a slip in a rule can be seen.
        check_names(self.door.rules, self.registry)
        local = LocalExecutor(self.registry, door=self.door, enabled=self.config.enabled_tools)
        return CompositeExecutor([local, *self._outside()]) if self.config.mcp_servers else local

    def executor_with(
        self,
        approver: Approver | None = None,
        services: Services | None = None,
        tools: Registry | None = None,
    ) -> LocalExecutor:
        """Return an executor that asks someone else for approval, has more services, or offers other tools."""
        door = self.door.but(services=services, approver=approver)
        return LocalExecutor(self.executor.tools() if tools is None else tools, door=door)

    @until_closed
    def workflows(self) -> Workflows:
        """Workflows: YAML files that are checked, run, resumed and shown."""
        from nbtools.assembly.prompts import answer_prompt
        from nbtools.workflow.driver.host import WorkflowHost
        from nbtools.workflow.service import Workflows

        host = WorkflowHost(
            runs=self.config.home / "runs",
            runs_age=self.config.runs_age,
            runs_size=self.config.runs_size,
            artifacts=lambda: self.artifacts,
            tools=lambda: self.executor.tools(),  # noqa: PLW0108 - the executor is built when it is needed
            executor=self.executor_with,
            perform=self.aperform,
            kernels=lambda: self.kernels,
            memory=lambda: self.memory,
            prompter=lambda prompt: answer_prompt(self.agent, prompt),
            find_model=self._find_model,
            recipe=self._recipe,
        )

        def viewer(run: WorkflowRun) -> Any:
            from nbtools.widgets.workflow_view import view_of

            return view_of(run, self.workflows, self.config.widgets_read_only)

        return Workflows(host, check_open=self.check_open, viewer=viewer)

    def _find_model(self, name: str) -> None:
        """Raise `ConfigInvalid` where no model has this name; a key or a package that is missing is another matter."""
        from nbtools.agent.models.choice import choose_model

        # A file may be checked on a machine that cannot run it.
        with contextlib.suppress(ConfigMissing, MissingExtra):
            choose_model(name, self.config.models)

    def _recipe(self) -> WorkerRecipe:
        """Return how a worker of a cluster makes these parts again."""
        from nbtools.workflow.driver.host import WorkerRecipe

        url = self.config.memory_url or ""
        # A memory in this process is nobody else's, a file is shared on one machine, PostgreSQL everywhere.
        here = "" if url == ":memory:" else "machine"
        return WorkerRecipe(
            open=functools.partial(open_on_worker, self.config.without_secrets()),
            functions=tuple(portable_tools(self._extra)),
            tools=lambda: self.registry,
            # DataFrames of this process, and passwords, are not for workers.
            stays=lambda item: stays_here(
                item, self.door.rules, sql=self._frames is not None or bool(self.config.connections)
            ),
            memory="*" if url.startswith("postgres") else here,
        )

    @until_closed
    def agent(self) -> AgentService:
        """A model at work with the tools: ``wb.agent("…")``, ``await wb.agent.arun("…")``."""
        from nbtools.agent import AgentHost, AgentService
        from nbtools.assembly.health import not_offered

        host = AgentHost(
            executor=self.executor_with,
            runs=self.config.home / "agent_runs" / folder_name(self.config.agent_id),
            runs_age=self.config.runs_age,
            runs_size=self.config.runs_size,
            check_workflow=lambda text: "" if (report := self.workflows.validate(text)).ok else str(report),
            idle=lambda: not_offered(self.config),
            model=self.config.model,
            models=self.config.models,
        )
        return AgentService(host, check_open=self.check_open, page=lambda: self.page())  # noqa: PLW0108 - it comes

    async def aperform(
        self, call: ToolCall, work: Callable[[], Any], *, door: Door | None = None, **how: Any
    ) -> tuple[Any, ToolResult]:
        """Do something that no tool does, by `nbtools.contract.execute.perform`.

        A tool that it stands for must be enabled. `door` is the workbench's own where none is given; **how goes on to
        `perform`, which tells the errors.
        """
        used = door or self.door
        # What is not a tool has the tools that it stands for among its origins: where those are off, so is this.
        if self.config.enabled_tools != ("*",):
            enabled = self.registry.select(*self.config.enabled_tools)
            names = [name for name in (call.tool, *how.get("origins", ())) if name in self.registry]
            if names and not any(name in enabled for name in names):
                used.refuse(call, not_enabled(names[0], enabled)).raise_for_error()
        return await aio.here(perform(used, call, work, **how))

    perform = aio.blocking(aperform)

    def _outside(self) -> list[Executor]:
        """Return the outside servers; each is connected when one of its tools, or the list of all, is asked for."""
        from nbtools.mcp_client import McpExecutor

        servers = [McpExecutor(name, config, door=self.door) for name, config in self.config.mcp_servers.items()]
        self._closers += servers
        return list(servers)

    def _services(self) -> Services:
        """Return what tools may ask their context for."""
        from nbtools.toolbox import Acts, CommandPolicy, OfferedFrames, SandboxPolicy, WebPolicy

        config = self.config
        confinements = SandboxPolicy(
            person=cast("Any", config.sandbox),
            model=cast("Any", config.model_sandbox),
            # The default level falls back on a host that cannot enforce it; one that someone chose must hold or
            # refuse.
            model_required=config.sources.get("model_sandbox", "default") != "default",
        )
        commands = CommandPolicy(allowed=config.allowed_commands)
        web = WebPolicy(allow_private=config.allow_private, provider=config.web_search_provider)
        return ByClassName(
            {
                "nbtools.kernels.service.Kernels": lambda: self.kernels,
                "nbtools.contract.approval.label_rules.Marks": lambda: self._marks,
                "nbtools.memory.files.tool.MemoryFiles": lambda: self.memory_files,
                "nbtools.memory.store.AgentMemory": lambda: self.memory,
                "nbtools.ground.paths.Roots": lambda: self.roots,
                "nbtools.contract.record.CallRecorder": lambda: self.recorder,
                "nbtools.contract.wire.plain_returns.ArtifactFolder": lambda: ArtifactFolder(lambda: self.artifacts),
                "nbtools.sql.session.SqlSession": lambda: self.sql_session,
                "nbtools.toolbox.commands.processes.Processes": lambda: self._processes,
                "nbtools.toolbox.policies.Acts": lambda: Acts(self.aperform),
                "nbtools.toolbox.policies.CommandPolicy": lambda: commands,
                "nbtools.toolbox.policies.OfferedFrames": lambda: OfferedFrames(
                    lookup=self._frame, names=self._frame_names
                ),
                "nbtools.toolbox.policies.SandboxPolicy": lambda: confinements,
                "nbtools.toolbox.policies.WebPolicy": lambda: web,
            }
        )

    @until_closed
    def _marks(self) -> StoredMarks:
        """What knows files and notes again that came of strangers' texts."""
        from nbtools.memory.rules.marks import StoredMarks

        roots = lambda: (*self._model_roots.roots, *self.roots.roots, working_folder())  # noqa: E731 - a line is a line here
        where = (self.config.agent_id, roots, self.config.home, self._files_left)
        kernels = lambda by_model: self._model_kernels if by_model else self.kernels  # noqa: E731 - so is this one
        return StoredMarks(self.memory.repository, *where, kernels)

    def _model_services(self) -> Services:
        """Return what a model gets in place of a person's services: what a person opens or allows is theirs alone."""
        return ByClassName(
            {
                "nbtools.kernels.service.Kernels": lambda: self._model_kernels,
                "nbtools.ground.paths.Roots": lambda: self._model_roots,
                "nbtools.sql.session.SqlSession": lambda: self._model_sql,
                "nbtools.toolbox.commands.processes.Processes": lambda: self._model_processes,
            }
        )

    @until_closed
    def _model_roots(self) -> Roots:
        config, folder = self.config, self._files_left
        how: Any = {"none_because": config.no_model_paths, "may_grow": config.may_grow(by_settings=True)}
        how["hides"] = lambda path: self._marks.knows_names([path])
        return Roots(config.model_paths, artifacts=folder, closed=(config.home,), **how)

    @until_closed
    def _processes(self) -> Processes:
        return self._open_processes(self.roots)

    @until_closed
    def _model_processes(self) -> Processes:
        return self._open_processes(self._model_roots)

    def _open_processes(self, roots: Roots) -> Processes:
        from nbtools.toolbox import CommandPolicy, Processes

        config, commands = self.config, CommandPolicy(allowed=self.config.allowed_commands)
        return Processes(commands, roots, network=config.network, memory_bytes=config.kernel_memory)

    def opened(self, part: str) -> Any:
        """Return ``"memory"``, ``"kernels"`` or ``"sql_session"`` if it was used before, else `None`."""
        return self.__dict__.get(part)

    def use_frames(self, frames: Frames | None) -> None:
        """Let SQL see these DataFrames, by name or by a function of the name; `None` takes that back."""
        self.check_open()
        self._frames = _lookup_in(frames)

    def _calls_table(self) -> Any:
        # A query on the calls is itself a call, and those before it have to be in the table.
        self.recorder.flush()
        return self.memory.snapshot("calls")

    def close(self) -> None:
        """End what this workbench started; harmless when repeated."""
        recorder = self.__dict__.get("recorder")
        if recorder is not None:
            recorder.close(running_s=1.0)  # outside the lock: writing the last records may open the memory
        with self._lock:
            self.is_closed = True
            # Asking for a part would build it: only what was used before is ended.
            opened = [name for name in self.__dict__ if isinstance(getattr(type(self), name, None), until_closed)]
            parts = {name: self.__dict__.pop(name) for name in opened}
            closers, self._closers = self._closers, []
        closers += [parts[name] for name in _CLOSED if name in parts and parts[name] is not self._given_kernels]
        for part in closers:
            part.close()
        if recorder is not None and (recorder.lost or recorder.unwritten()):
            warnings.warn(recorder.summary(), stacklevel=3)

    def check_open(self) -> None:
        """Raise `WorkbenchClosed` if it was closed: then nothing of it can be used any more."""
        if self.is_closed:
            raise WorkbenchClosed("this workbench is closed.", hint="Open another one with nbtools.Workbench().")


def _lookup_in(frames: Frames | None) -> Callable[[str], Any] | None:
    return frames.get if isinstance(frames, Mapping) else frames


def open_on_worker(
    settings: Mapping[str, Any], functions: Iterable[tuple[Callable[..., Any], Mapping[str, Any]]]
) -> tuple[WorkflowHost, Callable[[], None]]:
    """Return what steps need on a worker of a cluster, and what closes it.

    Parameters
    ----------
    settings
        See `nbtools.ground.config.Config.without_secrets`.
    functions
        The user's own tools, each by its function and by what `nbtools.contract.tool.tool` was told.
    """
    tools = [tool(**options)(function) for function, options in functions]
    parts = Parts(Config.load(**settings), approver=None, tools=tools, frames=None, kernels=None)
    return parts.workflows.host, parts.close
