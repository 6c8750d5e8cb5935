"""`asyncio.run` in a script: its loop runs beside the kernel's, which waits for the script anyway.

A script whose statements run inside of the kernel's own loop may await at the top level. A whole program calls
`asyncio.run`, which refuses to run where a loop is running. So that one steps aside meanwhile: for asyncio there is no
running loop and no current task until the inner loop has ended.

Like `nbtools.kernels.inside.hooks`, this module uses only the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any


class LoopsBeside:
    """Lets what runs its own loop do so in the main thread, once: in that loop asyncio's own rule holds."""

    def __init__(self) -> None:
        self._is_aside = False
        asyncio.run = asyncio.runners.run = self._beside(asyncio.run)
        for kind, names in ((asyncio.Runner, ("run",)), (asyncio.BaseEventLoop, ("run_until_complete", "run_forever"))):
            for name in names:
                setattr(kind, name, self._beside(getattr(kind, name)))

    def _beside(self, run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def run_beside(*args: Any, **kwargs: Any) -> Any:
            loop = asyncio._get_running_loop()  # noqa: SLF001 - what loops themselves use
            if loop is None or self._is_aside or threading.current_thread() is not threading.main_thread():
                return run(*args, **kwargs)
            if args[0] is loop and asyncio.iscoroutine(args[-1]):
                # What `asyncio.get_event_loop` has returned is the kernel's, which is running already.
                return asyncio.run(args[-1])
            with self._aside(loop):
                return run(*args, **kwargs)

        return run_beside

    @contextlib.contextmanager
    def _aside(self, loop: Any) -> Iterator[None]:
        tasks: Any = asyncio.tasks
        task = asyncio.current_task(loop)
        if task is not None:
            tasks._leave_task(loop, task)  # noqa: SLF001 - what loops themselves use
        asyncio._set_running_loop(None)  # noqa: SLF001 - the same
        self._is_aside = True
        try:
            yield
        finally:
            self._is_aside = False
            asyncio.set_event_loop(loop)
            asyncio._set_running_loop(loop)  # noqa: SLF001 - the same
            if task is not None:
                tasks._enter_task(loop, task)  # noqa: SLF001 - the same
