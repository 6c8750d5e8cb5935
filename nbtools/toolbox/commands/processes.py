"""Processes that tools start: confined, with bounded output, and ended with everything that they started.

They are kept by a separate warden process (see `nbtools.processes.client`), which ends them when the workbench
closes, and also when its process is killed. Everything here runs on the nbtools loop.
"""

from __future__ import annotations

import asyncio
import codecs
import dataclasses
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.errors import InvalidArguments, LanguageUnavailable, LimitExceeded
from nbtools.ground import aio
from nbtools.ground.paths import Roots
from nbtools.kernels.runs.output import PipeReader
from nbtools.toolbox.commands.allow_list import Programs
from nbtools.toolbox.policies import CommandPolicy

if TYPE_CHECKING:
    from nbtools.confine import Level
    from nbtools.kernels.runs.local import LocalBackend
    from nbtools.processes.client import Exit, WardenClient, WatchedProcess

_KEPT = 32
_TAIL = 100_000
_START_S = 30.0
_SETTLE_S = 0.15
_TERM_S = 2.0
_DEAD_S = 5.0


class Stream(PipeReader):
    """One output of a process: the text that is kept, and what to do with each piece.

    Parameters
    ----------
    most
        Bytes to keep.
    full
        Set at the cap: the first bytes are kept. Where it is not given, the last ones are, and the rest is forgotten.
    on_text
        Called with each piece of text as it arrives.
    """

    def __init__(
        self, most: int, full: asyncio.Event | None = None, on_text: Callable[[str], None] | None = None
    ) -> None:
        super().__init__()
        self._most = most
        self._full = full
        self._on_text = on_text
        # A character may fall between two reads.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._buffer = bytearray()
        self.start(self._show)

    @property
    def text(self) -> str:
        """What is kept, bytes that are not UTF-8 replaced."""
        return self._buffer.decode("utf-8", "replace")

    def _show(self, data: bytes) -> None:
        self._keep(data)
        text = self._decoder.decode(data)
        if text and self._on_text is not None:
            self._on_text(text)

    def _keep(self, data: bytes) -> None:
        if self._full is None:
            self._buffer += data
            # Of a server that runs for days, the end is what is asked for.
            del self._buffer[: -self._most]
            return
        room = self._most - len(self._buffer)
        self._buffer += data[:room]
        if len(data) > room:
            self._full.set()
            # Nothing more is wanted, of this stream or for its listener.
            self._on_text = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChildSettings:
    """What a process finds around it: its folder, what it inherits, how it is confined, and what it may start."""

    cwd: Path
    environment: Mapping[str, str]
    level: Level
    programs: Programs


@dataclasses.dataclass(kw_only=True)
class Background:
    """A process that goes on after the call that started it."""

    command: str
    args: tuple[str, ...]
    child: WatchedProcess
    stdout: Stream
    stderr: Stream
    pid: int
    started_at: float = dataclasses.field(default_factory=time.monotonic)
    stopped: bool = False

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return not self.child.exited.done()

    def to_dict(self) -> dict[str, Any]:
        """Return pid, status, return code and the end of both streams."""
        status = "running" if self.running else "stopped" if self.stopped else "exited"
        return {
            "pid": self.pid,
            "status": status,
            "returncode": None if self.running else exit_code(self.child.exited.result()),
            "stdout": self.stdout.text,
            "stderr": self.stderr.text,
        }

    def summary(self) -> dict[str, Any]:
        """Return what a listing shows."""
        facts = self.to_dict()
        return {
            "pid": self.pid,
            "command": " ".join([self.command, *self.args])[:200],
            "status": facts["status"],
            "returncode": facts["returncode"],
            "age_s": round(time.monotonic() - self.started_at, 1),
        }


class Processes:
    """Starts processes for tools, and keeps those that run in the background.

    Parameters
    ----------
    policy
        What children inherit, and how many may run in the background.
    roots
        The folders that a strictly confined process may read and write.
    network
        Whether a strictly confined process may reach the internet.
    memory_bytes
        Bytes of memory of each process with all that it starts; `None` sets no limit.
    processes
        How many processes each process with all that it starts may be; `None` sets no limit.
    """

    def __init__(
        self,
        policy: CommandPolicy,
        roots: Roots,
        *,
        network: bool = False,
        memory_bytes: int | None = None,
        processes: int | None = 256,
    ) -> None:
        self.policy = policy
        self._roots = roots
        self._network = network
        self._limits = {"memory_bytes": memory_bytes, "processes": processes}
        self._backend: LocalBackend[Any] | None = None
        self._background: dict[int, Background] = {}

    async def start(self, argv: Sequence[str], around: ChildSettings, descriptors: Sequence[int]) -> WatchedProcess:
        """Start a process and return it at once.

        Parameters
        ----------
        argv
            Absolute path of the program, and its arguments.
        around
            What it finds around it.
        descriptors
            Standard input, output and error; they stay the caller's to close.

        Raises
        ------
        LanguageUnavailable
            This system cannot keep processes.
        """
        warden = await self._warden()
        message = {
            "do": "spawn",
            "id": secrets.token_hex(6),
            "argv": list(argv),
            "env": {**around.environment, "PWD": str(around.cwd)},
            "cwd": str(around.cwd),
            "confinement": self._confinement(around.level, await aio.in_thread(around.programs.files, argv[0])),
            # The standard streams alone: no other descriptor of ours goes along.
            "targets": [0, 1, 2],
            **({} if around.level == "off" else self._limits),
        }
        return warden.begin(message, list(descriptors))

    def _confinement(self, level: Level, programs: tuple[str, ...] | None) -> dict[str, Any]:
        from nbtools import confine

        roots = tuple(map(str, self._roots.roots))
        box = confine.Confinement(
            level=level,
            read=roots,
            write=(*roots, "/dev/null"),
            # The home has the memory, keys and what was trusted, and may lie below an allowed folder.
            closed=tuple(map(str, self._roots.closed)),
            programs=programs,
            network=self._network,
            memory_bytes=self._limits["memory_bytes"],
            sockets=False,
            supervised=level == "strict",
        )
        return box.to_dict()

    async def _warden(self) -> WardenClient:
        if os.name == "nt":
            raise LanguageUnavailable("shell and process need Linux or macOS.", hint="Use code_execute instead.")
        from nbtools.kernels.runs.local import LocalBackend

        self._backend = self._backend or LocalBackend()
        return await self._backend.warden()

    async def begin(self, program: str, command: str, args: Sequence[str], around: ChildSettings) -> Background:
        """Start a background process, and wait a moment to see whether it ends at once.

        Parameters
        ----------
        program
            Its absolute path.
        command
            The program as it was asked for.
        args
            Its arguments as they were asked for.
        around
            As for `start`.

        Raises
        ------
        LimitExceeded
            As many as may run do so already.
        """
        running = sum(process.running for process in self._background.values())
        if running >= self.policy.processes:
            raise LimitExceeded(
                f"{running} background processes run already; {self.policy.processes} may.",
                hint="Stop one: process(action='stop', pid=…).",
            )
        stdout, stderr = Stream(_TAIL), Stream(_TAIL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            child = await self.start([program, *args], around, [nothing, stdout.write_end, stderr.write_end])
        except BaseException:
            stdout.close()
            stderr.close()
            raise
        finally:
            os.close(nothing)
            stdout.close_write_end()
            stderr.close_write_end()
        pid = await asyncio.wait_for(child.started, _START_S)
        background = Background(command=command, args=tuple(args), child=child, stdout=stdout, stderr=stderr, pid=pid)
        child.exited.add_done_callback(lambda _: stdout.close())
        child.exited.add_done_callback(lambda _: stderr.close())
        self._forget_old()
        self._background[pid] = background
        await asyncio.wait({child.exited}, timeout=_SETTLE_S)
        return background

    def _forget_old(self) -> None:
        """Keep what ended for a while, so that its output can be asked for."""
        ended = [pid for pid, process in self._background.items() if not process.running]
        for pid in ended[: max(0, len(self._background) - _KEPT + 1)]:
            del self._background[pid]

    def find(self, pid: int | None) -> Background:
        """Return a background process by its id.

        Raises
        ------
        InvalidArguments
            None was started here with that id: other processes of this machine are nobody's business.
        """
        if pid is not None and pid in self._background:
            return self._background[pid]
        pids = ", ".join(map(str, self._background)) or "none"
        raise InvalidArguments(f"no process {pid} was started here.", hint=f"Started here: {pids}.")

    def listed(self) -> list[dict[str, Any]]:
        """Return the background processes, those that ended lately among them."""
        return [process.summary() for process in self._background.values()]

    async def stop(self, pid: int | None) -> Background:
        """End a background process and what it started: politely first, then for good.

        Raises
        ------
        InvalidArguments
            There is none with that id.
        """
        process = self.find(pid)
        if process.running:
            process.stopped = True
            await _end(process.child, grace=_TERM_S)
        return process

    async def aclose(self) -> None:
        """End everything. Harmless when repeated; a later start begins again."""
        await aio.here(self._close())

    close = aio.blocking(aclose)

    async def _close(self) -> None:
        if self._backend is not None:
            await self._backend.close()
        # The exits have been noted by then; their callbacks run first.
        await asyncio.sleep(0)
        self._background.clear()


async def _end(child: WatchedProcess, *, grace: float) -> None:
    """Ask a process to end, and kill it with everything it started when it has not within `grace` seconds."""
    child.signal(signal.SIGTERM)
    await asyncio.wait({child.exited}, timeout=grace)
    if not child.exited.done():
        child.signal(signal.SIGKILL)
        await asyncio.wait({child.exited}, timeout=_DEAD_S)


def exit_code(how: Exit) -> int:
    """Return the exit code, or 128 plus the number of the signal that ended the process, as shells do."""
    if how.signal is not None:
        return 128 + how.signal
    return 0 if how.code is None else how.code
