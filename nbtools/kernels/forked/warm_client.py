"""The owner's way to the warm process: find it, start it when there is none, and ask it for a zygote.

It only saves time and must never cause a failure: a caller that is not served in time gets `None` and starts its own
zygote.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools.ground import aio
from nbtools.ground.config import Config
from nbtools.ground.home import make_private
from nbtools.kernels.forked import sameness
from nbtools.kernels.forked.forking_server import peer_of
from nbtools.kernels.forked.warm import LOADED, LOCK, PROBLEM
from nbtools.processes.client import WardenClient, make_importable
from nbtools.processes.runtime_dir import SOCKET_PATH_BYTES, try_lock
from nbtools.texts.redaction import scrub_environment

# Loading the libraries takes seconds on a cold disk; a fork takes milliseconds, and someone waits for it.
_LOAD_S, _ANSWER_S = 45.0, 3.0
_LOOK_S = 0.005
LAST_SCRIPT = "last-script"
"""The file whose time says when a script last ran."""
# What a first script takes to import pandas.
_HEAD_START_S = 0.7
_STARTS, _TRIES = 2, 5
# A person who runs a script within that time of the last one runs more of them.
_LATELY_S = 600.0
# After a failure, loading is not tried again for this time.
_PROBLEM_S = 600.0


class WarmClient:
    """One user's warm process for one interpreter, its packages, and an environment.

    Parameters
    ----------
    home
        The folder of nbtools, in which the socket lies.
    idle_s
        Seconds after which a warm process that is started here leaves when it is not used.
    preloads
        What it loads.
    """

    def __init__(self, home: Path, *, idle_s: float, preloads: Sequence[str]) -> None:
        self._idle_s = idle_s
        self._preloads = list(preloads)
        self._home = home
        self._folder: Path | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the process that was joined last has loaded the libraries, or has left to one that has."""
        return self._folder is not None and (self._folder / LOADED).exists()

    @property
    def commands_pid(self) -> int | None:
        """The id of the process in which commands run; `None` when there is none."""
        connection = _open(sameness.commands_place(self._home) / sameness.SOCKET)
        if connection is None:
            return None
        with connection:
            return peer_of(connection)[0]

    def is_wanted(self) -> bool:
        """Tell whether the process is there, or a script was run lately by anyone with this home; note that one is.

        Most of those who run one script run no other: four processes and 150 MB would wait for nothing.
        """
        mark = self._home / LAST_SCRIPT
        is_wanted = (
            _is_recent(mark, _LATELY_S)
            or (self._home.absolute() / sameness.PLACE / self._key() / sameness.SOCKET).exists()
        )
        with contextlib.suppress(OSError):
            make_private(self._home)
            mark.touch()
        return is_wanted

    async def join(self, folder: Path) -> WardenClient | None:
        """Return a zygote forked for this process, whose folder is `folder`; `None` if there is none."""
        for _ in range(_TRIES):
            connection = await aio.in_thread(self._connect, _HEAD_START_S)
            if connection is None:
                return None
            zygote = WardenClient(connection)
            zygote.send({"do": "join", "folder": str(folder)})
            waiters: set[asyncio.Future[Any]] = {zygote.hello, zygote.gone}
            await asyncio.wait(waiters, timeout=_ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
            if zygote.hello.done() and not zygote.hello.cancelled():
                if "refused" not in zygote.hello.result():
                    return zygote
                break
            if not zygote.gone.done():
                break
            # It has left meanwhile, because packages have changed or it was idle: the next one is started.
            await asyncio.sleep(_LOOK_S)
        await zygote.close(timeout=0.0)
        return None

    def start(self) -> None:
        """Start the process if there is none, without waiting for it."""
        connection = self._connect()
        if connection is not None:
            connection.close()

    def _connect(self, head_start_s: float = 0.0) -> socket.socket | None:
        """Connect, starting the process first if there is none; for `head_start_s` see there."""
        try:
            folder = self._make_place()
        except OSError:
            return None
        if folder is None or _is_recent(folder / PROBLEM, _PROBLEM_S):
            return None
        self._folder = folder
        deadline, starts = time.monotonic() + _LOAD_S, 0
        while time.monotonic() < deadline:
            connection = _open(folder / sameness.SOCKET)
            if connection is not None:
                return connection
            if not _is_held(folder / LOCK):
                if starts == _STARTS:
                    return None
                starts += 1
                if not self._start(folder, head_start_s):
                    return None
            time.sleep(_LOOK_S)
        return None

    def _make_place(self) -> Path | None:
        """Return the private folder of the process; `None` when it is not private, or its name too long."""
        folder = self._home.absolute() / sameness.PLACE / self._key()
        if len(os.fsencode(folder / sameness.SOCKET)) > SOCKET_PATH_BYTES:
            return None
        make_private(folder)
        return folder if sameness.is_private(folder) else None

    def _key(self) -> str:
        """Return a name that differs where a fork of the process would differ from a process started here."""
        return sameness.name_of(sameness.newest_code(), self._preloads, self._environment())

    def _environment(self) -> Mapping[str, str]:
        variables = sameness.read_at_import(scrub_environment(os.environ))
        return {**variables, "PATH": os.defpath, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}

    def _start(self, folder: Path, head_start_s: float) -> bool:
        """Start the process; one that is not the first leaves again."""
        command = [sys.executable, "-P", "-m", "nbtools.kernels.forked.warm", str(folder), str(self._idle_s)]
        env = {**make_importable(self._environment()), "IPYTHONDIR": str(folder / "ipython")}
        try:
            done = subprocess.run(
                [*command, json.dumps(self._preloads), str(sameness.commands_place(self._home)), str(head_start_s)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=env,
                check=False,
            )
        except OSError:
            return False
        return done.returncode == 0


def _open(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_S)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    connection.settimeout(None)
    return connection


def _is_held(lock: Path) -> bool:
    """Tell whether a process has the lock: one that serves, or will."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _is_recent(file: Path, seconds: float) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - file.stat().st_mtime < seconds
    return False


if __name__ == "__main__":
    # Started with a notebook, so that the libraries are there when its first script comes.
    settings = Config.load()
    if settings.kernel_warm and settings.kernels in ("auto", "forked"):
        WarmClient(settings.home, idle_s=settings.kernel_warm, preloads=settings.preloads).start()
