"""One process with loaded libraries for all tests of a run, as the notebooks and commands of a user share one.

Each test that runs a script in a kernel would else start a process of its own and load libraries in it, which takes
seconds of the processor. What a test says of the process itself it says in a module marked ``own_zygote``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbtools.ground import aio
from nbtools.kernels.forked import warm_client
from nbtools.kernels.forked.sameness import SOCKET
from nbtools.kernels.forked.warm import PROBLEM
from nbtools.kernels.forked.warm_client import WarmClient
from nbtools.kernels.forked.zygote_client import DEFAULT_PRELOADS, ZygoteClient
from nbtools.processes.client import WardenClient
from nbtools.processes.runtime_dir import RuntimeDir

_LOAD_S = 120.0
_IDLE_S = 120.0
_LOOK_S = 0.1  # each look asks every file of the package for its time


class _SharedProcess(WarmClient):
    """The way to the process of this run; tests that change what libraries read when they load get one of their own."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, idle_s=_IDLE_S, preloads=DEFAULT_PRELOADS)
        self._usual = self._key()

    def is_wanted(self) -> bool:
        """Say that more scripts come."""
        return True

    async def join(self, folder: Path) -> WardenClient | None:
        """Return a zygote that has all libraries, however long they take to load."""
        if self._key() != self._usual:
            return None
        deadline = time.monotonic() + _LOAD_S
        while not self.is_loaded and time.monotonic() < deadline:
            await aio.in_thread(self.start)
            if self._folder is None or (self._folder / PROBLEM).exists():
                return None
            await asyncio.sleep(_LOOK_S)
        return await super().join(folder)

    def end(self) -> None:
        """Let the process leave: it does when its socket is gone."""
        for place in (self._home / "warm").glob("*"):
            (place / SOCKET).unlink(missing_ok=True)


class SharedLibraries:
    """Lends the process of a run to whoever forks kernels, except in tests that are about their own.

    Parameters
    ----------
    home
        A folder of this run, the same for all its workers.
    """

    def __init__(self, home: Path) -> None:
        self.is_lent = True
        self.process = _SharedProcess(home)
        warm_client._ANSWER_S = _LOAD_S  # a busy machine is not a reason to load them once more
        begin = ZygoteClient.__init__

        def begin_shared(
            client: ZygoteClient, preloads: Sequence[str], folder: RuntimeDir, warm: WarmClient | None = None
        ) -> None:
            is_fit = self.is_lent and warm is None and set(preloads) <= set(DEFAULT_PRELOADS)
            begin(client, preloads, folder, self.process if is_fit else warm)

        replaced: Any = begin_shared
        ZygoteClient.__init__ = replaced  # type: ignore[method-assign]
