"""The service: clean kernels by lease, named sessions, and nothing left behind.

Nothing is started before the first use. All state lives on the nbtools loop; the blocking names are derived. A call
that is cancelled, by Stop or by the caller's own cancellation, *returns* an execution that is ``"stopped"`` and holds
the output so far.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from nbtools.confine import Level
from nbtools.errors import KernelDied, WorkbenchClosed
from nbtools.ground import aio
from nbtools.ground.lazy import ClosedAtEnd
from nbtools.ground.paths import ARTIFACTS, MayGrow, Roots
from nbtools.kernels import validation
from nbtools.kernels.backends import Backends, Choice, settled
from nbtools.kernels.forked.backend import ForkedBackend
from nbtools.kernels.forked.warm_client import WarmClient
from nbtools.kernels.forked.zygote_client import DEFAULT_PRELOADS
from nbtools.kernels.handle import KernelSession
from nbtools.kernels.interface import (
    Backend,
    Execution,
    KernelOptions,
    OnOutput,
    OutputLimits,
    OutputPiece,
)
from nbtools.kernels.languages import language_of
from nbtools.kernels.planted import awake
from nbtools.kernels.pool import Lease, Pool
from nbtools.kernels.runs.ending import stoppable, take_in
from nbtools.kernels.runs.in_folders import FolderRuns
from nbtools.kernels.runs.requests import RunRequest, context_of, noted, settled_level, within
from nbtools.kernels.sessions.table import Sessions
from nbtools.processes.runtime_dir import RuntimeDir

# Closing takes the loop's time, and the caller's result is still on its way there.
_CLOSE_DELAY_S = 0.005


class Kernels(ClosedAtEnd):
    """Managed kernels of one workbench.

    Parameters
    ----------
    backend
        ``"auto"``, ``"forked"``, ``"spawned"``, ``"gateway"``, or a `Backend` that runs every language.
    home
        Where the folders of kernels are made when the system has no folder for temporary files that can be written.
    allowed_paths
        Roots: working folders must lie below one, and strict kernels may read them. None given, none checked.
    may_grow
        See `nbtools.ground.paths.MayGrow`.
    sandbox
        The level where a call names none.
    network
        Whether strict kernels may open connections.
    spares
        Kernels held ready.
    memory_bytes
        Bytes of memory of each kernel with all it starts; `None` sets no limit, here and in the next three.
    processes
        How many processes each kernel with all it starts may be.
    cpu_s
        Seconds of processor time of each kernel.
    file_bytes
        Bytes of each file, and of all files together by which a run's folders grow.
    preloads
        Modules that forked kernels have loaded.
    warm_s
        Seconds for which a process with these modules stays for all of the user's notebooks and commands after its last
        use; 0 makes one only for these kernels. It needs `home`.
    idle_s
        Seconds after which an unused session is ended; `None` never ends one.
    timeout
        Seconds until code is ended where a call says nothing else.
    limits
        How much output a run may make.
    artifacts_folder
        Where files go that a script left in a folder of the kernel's own, or what returns it; `None` takes a folder
        that goes with `close`.
    gateway_url
        The Jupyter server for remote kernels, which ``"auto"`` takes where it is set.
    gateway_token
        Its token; `None` where it asks for none.
    """

    def __init__(
        self,
        backend: Choice | Backend = "auto",
        *,
        home: Path | None = None,
        allowed_paths: Sequence[str | Path] = (),
        may_grow: MayGrow = True,
        sandbox: Level = "limits",
        network: bool = False,
        spares: int = 1,
        memory_bytes: int | None = 4 << 30,
        processes: int | None = 256,
        cpu_s: int | None = None,
        file_bytes: int | None = 16 << 30,
        preloads: Sequence[str] = DEFAULT_PRELOADS,
        warm_s: float = 0.0,
        idle_s: float | None = 3600.0,
        timeout: float = 300.0,
        limits: OutputLimits | None = None,
        artifacts_folder: Path | Callable[[], Path | None] | None = None,
        gateway_url: str | None = None,
        gateway_token: str | None = None,
    ) -> None:
        counts = {"memory_bytes": memory_bytes, "processes": processes, "cpu_s": cpu_s, "file_bytes": file_bytes}
        for name, count in counts.items():
            validation.check_count(count, name)
        validation.check_count(spares, "spares", least=0, may_be_none=False)
        self._choice = settled(backend, gateway_url)
        self._home = home
        self._roots = Roots(allowed_paths, may_grow=may_grow) if allowed_paths else None
        self._sandbox: Level = sandbox
        self._spares = spares
        self._is_closed = False
        self.timeout = timeout
        self._preloads = (preloads,) if isinstance(preloads, str) else tuple(preloads)
        self._warm_s = warm_s
        self._find_place = (lambda: artifacts_folder) if isinstance(artifacts_folder, Path) else artifacts_folder
        self._gateway = {"gateway_url": gateway_url, "gateway_token": gateway_token}
        self._base = KernelOptions(
            network=network,
            read_paths=self._roots.roots if self._roots else (),
            closed=(home,) if home else (),
            memory_bytes=memory_bytes,
            processes=processes,
            cpu_s=cpu_s,
            file_bytes=file_bytes,
        )
        # How many runs wait for a kernel that starts, or for room for one.
        self.waiting = 0
        self._folder: RuntimeDir | None = None
        self._shared: Path | None = None
        self._backends: Backends | None = None
        self._pool: Pool | None = None
        self._sessions = Sessions(self._ready_pool, self._dispose, lambda: self.artifacts_folder, idle_s)
        output, elsewhere = validation.check_output(limits), self.is_elsewhere
        self._in_folders = FolderRuns(
            home, output, lambda: self.artifacts_folder, self._shared_folder, is_elsewhere=elsewhere
        )
        self._closing: set[asyncio.Task[None]] = set()

    async def arun(
        self,
        code: str,
        *,
        language: str = "python",
        session: str | None = None,
        timeout: float | Literal["setting"] | None = "setting",
        grace: float = 2.0,
        sandbox: Level | None = None,
        cwd: str | Path | None = None,
        variables: Mapping[str, Any] | None = None,
        inputs_paths: Sequence[str | Path] = (),
        write_paths: Sequence[str | Path] = (),
        figure_path: str | Path | None = None,
        on_output: OnOutput | None = None,
        memory: Any = None,
        wants_value: bool | Sequence[str] = False,
        artifacts_folder: Path | None = None,
        frames: Mapping[str, Any] | None = None,
    ) -> Execution:
        """Run code in a clean kernel, or in a session, and return what became of it.

        Parameters
        ----------
        code
            The script.
        language
            ``"python"``, ``"bash"``, ``"node"``, … or ``"kernel:NAME"`` for an installed kernelspec.
        session
            Name of the session that runs it; `None` takes a clean kernel.
        timeout
            Seconds until it is interrupted; `None` never, ``"setting"`` takes that of these kernels.
        grace
            Seconds from the interrupt until it is killed.
        sandbox
            Level that is enforced, or the run refused; `None` takes that of these kernels, as far as this host allows.
        cwd
            The working folder; `None` makes one with links to the input files, and what the script leaves there is
            kept.
        variables
            JSON values by name, for the script.
        inputs_paths
            Files that the script reads, besides the allowed folders; links are not followed.
        write_paths
            Files and folders that a strict kernel may write, besides the working folder; links are not followed.
        figure_path
            Where the open figure is saved if the script did not save it there (``output_image_path``).
        on_output
            Gets each `OutputPiece` as it appears, on the nbtools loop.
        memory
            What ``memory`` is in the script; `None` grants none.
        wants_value
            Whether `Execution.value` is wanted as JSON. Names instead ask for an object: the first of these variables
            that the script assigns, or the last expression where it assigns none.
        artifacts_folder
            Where files go that the script left in a new working folder; `None` takes that of these kernels.
        frames
            Tables and arrays by name, of which the script gets copies.

        Raises
        ------
        InvalidArguments, FileMissing, PathNotAllowed, LimitExceeded
            The request does not make sense, or is not allowed.
        LanguageUnavailable, SandboxUnavailable, KernelDied, WorkbenchClosed
            No kernel for it is available: on this host, or because `close` was called before.
        """
        seconds = self.timeout if timeout == "setting" else timeout
        folder = None if cwd is None else validation.check_folder(cwd, self._roots)
        request = RunRequest(
            code=validation.check_code(code),
            options=self._options(language, sandbox, folder, inputs_paths, write_paths),
            context=context_of(folder, variables or {}, inputs_paths, figure_path, memory, wants_value is True),
            timeout=None if seconds is None else validation.check_seconds(seconds, "timeout"),
            grace=validation.check_seconds(grace, "grace", may_be_zero=True),
            on_output=on_output,
            session=None if session is None else validation.check_name(session),
            target=artifacts_folder,
            frames=validation.check_names(frames) if frames else {},
            value_names=None if isinstance(wants_value, bool) else tuple(wants_value),
        )
        return await stoppable(self._carry_out(noted(request, variables or {}), explicit=sandbox is not None))

    run = aio.blocking(arun)

    def allow(self, folder: Path) -> None:
        """Let working folders lie below one more folder; what strict kernels may read stays what it was."""
        if self._roots is not None:
            self._roots.add(folder)

    @property
    def has_network(self) -> bool:
        """Whether kernels may use the network, also strictly confined ones."""
        return self._base.network

    def _options(
        self,
        language: str,
        sandbox: Level | None,
        folder: Path | None,
        inputs_paths: Sequence[str | Path],
        write_paths: Sequence[str | Path],
    ) -> KernelOptions:
        """Return what kernel the run needs."""
        level = validation.check_level(sandbox or self._sandbox)
        # What binds only a strict kernel is left out of the others, so that one spare fits all of them.
        base = dataclasses.replace(self._base, language=language_of(language), sandbox=level)
        if level != "strict":
            return dataclasses.replace(base, read_paths=(), network=True)
        # Only what no root covers is named, so that one spare fits runs with different inputs below a root.
        roots = (*base.read_paths, *filter(None, (folder, self._find_place and self._find_place())))
        return dataclasses.replace(
            base,
            cwd=folder,
            read_paths=(*base.read_paths, *validation.outside(map(Path, inputs_paths), roots)),
            write_paths=validation.outside(map(Path, write_paths), (folder,) if folder else ()),
        )

    @property
    def artifacts_folder(self) -> Path | None:
        """Where files go that a script left in a folder of the kernel's own; `None` before there is one."""
        if self._find_place is not None:
            return self._find_place()
        return None if self._folder is None else self._folder.hold(ARTIFACTS)

    @property
    def is_elsewhere(self) -> bool:
        """Whether a gateway runs the kernels, on a machine of which nothing is known here."""
        return self._choice == "gateway"

    async def _carry_out(self, request: RunRequest, *, explicit: bool) -> Execution:
        began = time.perf_counter()
        try:
            pool = self._ready_pool()
            if request.options.sandbox == "strict":
                request = await settled_level(request, explicit=explicit, is_elsewhere=self.is_elsewhere)
            if request.session is not None:
                return await self._run_in_session(request, request.session)
            self.waiting += 1
            try:
                lease = await pool.take(request.options)
            finally:
                self.waiting -= 1
            try:
                return await self._run(lease, request)
            finally:
                self._dispose(lease)
                pool.refill(request.options)
        except asyncio.CancelledError:
            # Stopped before the code had begun: there is nothing to interrupt and nothing to show.
            take_in()
            return Execution(
                status="stopped",
                language=request.options.language,
                session=request.session,
                sandbox=request.options.sandbox,
                duration_s=time.perf_counter() - began,
            )

    async def _run(self, lease: Lease, request: RunRequest) -> Execution:
        """Run, and put back the files by which code that nobody knows could loosen the next run in the same folder."""
        async with awake(lease.kernel, request.context.cwd if request.is_guarded else None) as notes:
            execution = await self._in_folders.run(lease.kernel, lease.folder, request)
        news: tuple[str, ...] = ()
        if self._backends is not None:
            news, self._backends.news = self._backends.news, ()
        all_notes = (*request.notes, *news, *execution.notes, *notes)
        return dataclasses.replace(execution, language=request.options.language, notes=all_notes)

    def _shared_folder(self) -> Path:
        """Return the folder in which tables and arrays are handed over, made again where someone has removed it."""
        assert self._folder is not None, "a lease came out of a pool"
        assert self._shared is not None, "it was made with the folder"
        self._folder.restore()
        return self._shared

    def _dispose(self, lease: Lease) -> None:
        """Close a lease in the background; the caller has the result already and does not wait."""
        # The caller, in another thread, wants its result first.
        aio.spawn(lease.close(delay=_CLOSE_DELAY_S), self._closing)

    async def _run_in_session(self, request: RunRequest, name: str) -> Execution:
        # Before the lock, so that a wrong language is refused at once, not after the run that is under way.
        session = self._sessions.obtain(name, request.options)
        async with session.alone():
            # Again: its kernel may have ended meanwhile, and another caller have given it other rights.
            self._sessions.settle_rights(session, request.options)
            request = within(request, session.options)
            notes = await self._sessions.revive(session)
            assert session.lease is not None
            notes = (*notes, *await self._sessions.keep_state(session))
            if notes and request.on_output is not None:
                # Before what the code says, and not among it: it begins without what its writer relies on.
                request.on_output(OutputPiece(kind="stderr", text="".join(f"[{note}]\n" for note in notes)))
            if not all(map(Path.is_dir, session.lease.places)) and self._folder is not None:
                self._folder.restore()
                notes = (*notes, session.lease.mend())
            session.begin(request.code)
            session.guards = request.context.cwd if request.is_guarded else None
            execution = await self._run(session.lease, request)
            session.end(execution)
            if not session.is_alive:
                why = "its kernel ended" if execution.status in ("ok", "error") else execution.status
                self._sessions.lose(session, why)
                notes = (*notes, f"session {name!r} lost its state ({why}); the next run starts it again")
            self._sessions.keep_ahead(session)
        return dataclasses.replace(execution, session=name, notes=(*execution.notes, *notes))

    async def astart(self, name: str, *, language: str = "python", sandbox: Level | None = None) -> dict[str, Any]:
        """Start a session ahead of its first run; one that runs already is left as it is."""
        name = validation.check_name(name)
        level = validation.check_level(sandbox or self._sandbox)
        return await aio.here(self._start(name, self._options(language, level, None, (), ())))

    async def _start(self, name: str, options: KernelOptions) -> dict[str, Any]:
        self._ready_pool()
        session = self._sessions.obtain(name, options)
        async with session.alone():
            await self._sessions.revive(session)
        return session.to_dict()

    async def afork(self, name: str, copy: str) -> None:
        """Copy a session with all that it has, by a fork of its process; the copy goes its own way.

        Parameters
        ----------
        name
            The session, which runs nothing.
        copy
            Name of the new session. It works in the same folder, and files that are open belong to both.

        Raises
        ------
        InvalidArguments
            There is no such session, or one of the new name; or it has what a copy would lack, or what two processes
            would use that do not know of each other: threads, child processes, connections, locked files.
        KernelDied
            The session, or its copy, ended meanwhile.
        """
        await aio.here(self._sessions.fork(name, validation.check_name(copy)))

    def gives_rights_of(self, name: str, level: Level | None) -> bool:
        """Tell whether a session can do no more than what may run here at this level of confinement."""
        options = self._sessions.find(name).options
        folders = (*options.read_paths, *options.write_paths, *filter(None, (options.cwd,)))
        outside = validation.outside(folders, self._roots.roots if self._roots else ())
        return options.sandbox == (level or self._sandbox) and not outside

    def is_theirs(self, name: str, *, from_now: bool = False) -> bool:
        """Tell whether a session, or what it is a copy of, took strangers' texts; `from_now` on it did."""
        if name not in self._sessions:
            return False
        session = self._sessions.find(name)
        session.is_theirs |= from_now
        return session.is_theirs

    async def aadopt(self, name: str, new_name: str | None = None) -> None:
        """Let a copy take the place and the name of the session that it was made from, which ends; or a new name.

        Parameters
        ----------
        name
            The copy. What the other has kept for `undo`, from before it was copied, is the copy's from now on.
        new_name
            What it is called from now on; `None` takes the name of the other.

        Raises
        ------
        InvalidArguments
            There is no such session, it is not a copy, or one of the two is running code.
        """
        await aio.here(self._sessions.adopt(name, None if new_name is None else validation.check_name(new_name)))

    async def akeep(self, name: str, states: int = 5) -> None:
        """Keep the state of a session before each of its last runs, for `undo`.

        Parameters
        ----------
        name
            The session.
        states
            Before how many runs, at most; 0 keeps none. Each run takes longer by a fork of the session, and the oldest
            states go where the session reaches its limit of memory with them.

        Raises
        ------
        InvalidArguments
            There is no such session, `states` is not such a number, or the kernel cannot be copied.
        """
        validation.check_count(states, "states", least=0, may_be_none=False)
        await aio.here(self._sessions.keep(name, states))

    async def aundo(self, name: str, runs: int = 1) -> tuple[str, ...]:
        """Take a session back to its state before its last runs; return the files that they wrote, which stay.

        Parameters
        ----------
        name
            The session, whose states are kept; see `keep`.
        runs
            How many runs to go back. What they did outside of the session, such as calls and files, is not taken back.

        Raises
        ------
        InvalidArguments
            There is no such session, or that state was not kept; the reason was told with the run.
        KernelDied
            The state has ended meanwhile.
        """
        validation.check_count(runs, "runs", least=1, may_be_none=False)
        return await aio.here(self._sessions.undo(name, runs))

    async def astop(self, name: str) -> None:
        """End a session; a run under way in it ends too."""
        await aio.here(self._sessions.stop(name))

    async def arestart(self, name: str) -> None:
        """End a session's kernel and start a fresh one under the same name."""
        await aio.here(self._sessions.restart(name))

    async def ainterrupt(self, name: str) -> None:
        """Interrupt what a session runs, as Ctrl-C does."""
        await aio.here(self._sessions.interrupt(name))

    async def avariables(self, name: str) -> Sequence[dict[str, Any]]:
        """List what a session has defined: name, type, size, the start of its text."""
        return await aio.here(self._sessions.variables(name))

    start = aio.blocking(astart)
    fork = aio.blocking(afork)
    adopt = aio.blocking(aadopt)
    keep = aio.blocking(akeep)
    undo = aio.blocking(aundo)
    stop = aio.blocking(astop)
    restart = aio.blocking(arestart)
    interrupt = aio.blocking(ainterrupt)
    variables = aio.blocking(avariables)

    def session(self, name: str, *, language: str = "python") -> KernelSession:
        """Return a handle for the session of that name; its kernel starts with the first run."""
        return KernelSession(self, validation.check_name(name), language=language_of(language))

    def state_of(self, name: str) -> str:
        """Return the state of a session: ``"busy"``, ``"idle"``, ``"dead"``, or ``"not started"``."""
        return self._sessions.find(name).state if name in self._sessions else "not started"

    def list(self) -> list[dict[str, Any]]:
        """Return the sessions, each with state, process id, age, idle time, CPU, memory and last call."""
        return self._sessions.to_list()

    def describe(self) -> dict[str, Any]:
        """Return, for the doctor, which backend is in use, why no better one, and how many sessions there are."""
        url = self._gateway["gateway_url"]
        backends = self._backends or Backends(self._choice, preloads=self._preloads, gateway_url=url)
        return {**backends.to_dict(), "sandbox": self._sandbox, "sessions": len(self._sessions)}

    def _ready_pool(self) -> Pool:
        if self._is_closed:
            raise WorkbenchClosed("these kernels are closed.", hint="Open another workbench, or another Kernels().")
        if self._pool is None:
            self._folder = RuntimeDir(self._home)
            self._shared = self._folder.hold_in_memory()
            warm = None
            if self._warm_s and self._home is not None and ForkedBackend.is_supported():
                warm = WarmClient(self._home, idle_s=self._warm_s, preloads=self._preloads)
            self._backends = Backends(
                self._choice, folder=self._folder, preloads=self._preloads, warm=warm, **self._gateway
            )
            self._pool = Pool(
                self._backends.open,
                self._folder,
                spares=self._spares,
                readable=(self.artifacts_folder or self._folder.path, self._shared),
                is_stale=self._backends.is_stale,
            )
        return self._pool

    async def awarm(self, *, sandbox: Level | None = None) -> None:
        """Make the spares now; a failure is left for the first run to report."""
        options = self._options("python", validation.check_level(sandbox or self._sandbox), None, (), ())

        async def fill() -> None:
            # The first run meets the same failure, and tells it to someone who reads it.
            with contextlib.suppress(KernelDied):
                await self._ready_pool().fill(options)

        await aio.here(fill())

    warm = aio.blocking(awarm)

    async def aclose(self) -> None:
        """End every kernel and remove every folder. Harmless when repeated; a later run raises `WorkbenchClosed`."""
        await aio.here(self._close())

    close = aio.blocking(aclose)

    @aio.once
    async def _close(self) -> None:
        self._is_closed = True
        pool, backends, folder = self._pool, self._backends, self._folder
        self._pool = self._backends = self._folder = None
        # Sessions first: what they run ends, and gives its lease back.
        await self._sessions.close()
        if pool is not None:
            await pool.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if backends is not None:
            await backends.close()
        if folder is not None:
            folder.close()
