"""What runs on a Dask cluster: steps on a worker, and on the scheduler the claims that let each run once.

A worker that is killed takes its task with it, and Dask gives the task to another one, whatever ``retries`` says. So a
worker claims a task at the scheduler before it begins: the one that asks second is told so, and comes back with nothing
done. The driver then decides, since it knows which steps may be repeated.

Tasks are bytes, so that a scheduler never has to read them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pickle
import secrets
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle
from distributed import get_worker
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin
from distributed.utils import sync

from nbtools.errors import PermissionDenied
from nbtools.ground import aio
from nbtools.workflow.driver.host import WorkflowHost
from nbtools.workflow.driver.steps import Means, StepAttempt, StepRunner
from nbtools.workflow.spec import KernelNode, ToolNode


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteStep:
    """What a task holds.

    Attributes
    ----------
    step
        What to do.
    fingerprint
        Which tool the driver means; empty for code.
    run_file
        A file of the run's folder, which has to be there.
    memory
        The machine that has the memory; ``"*"`` is all, ``""`` is none but the driver's process.
    topic
        Where output is told.
    """

    step: StepAttempt
    fingerprint: str
    run_file: Path
    memory: str
    topic: str


def this_machine() -> str:
    """Return what tells this machine, and this start of it, from others."""
    try:
        return f"{socket.gethostname()} {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    except OSError:
        return socket.gethostname()


class Claims(SchedulerPlugin):
    """Lets one worker have a task, once."""

    name = "nbtools-claims"
    idempotent = True

    def __init__(self) -> None:
        self._claims: dict[str, str] = {}
        self._scheduler: Any = None

    async def start(self, scheduler: Any) -> None:
        """Let workers ask."""
        self._scheduler = scheduler
        scheduler.handlers["nbtools_claim"] = self.claim

    async def claim(self, *, key: str, token: str) -> bool:
        """Tell whether the holder of this token may begin; a task that nobody wants any more is for nobody."""
        return key in self._scheduler.tasks and self._claims.setdefault(key, token) == token

    def transition(self, key: Any, start: Any, finish: Any, *args: Any, **kwargs: Any) -> None:
        """Forget a claim with its task."""
        if finish == "forgotten":
            self._claims.pop(key, None)

    def __reduce__(self) -> Any:
        return Claims, ()


class NodeWorker(WorkerPlugin):
    """The workbenches of a worker, one for each workbench of a driver, and the steps that run."""

    name = "nbtools"
    idempotent = True

    def __init__(self) -> None:
        self._opened: dict[bytes, tuple[WorkflowHost, Any]] = {}
        self._running: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = {}
        self._lock: Any = None
        self._worker: Any = None

    def setup(self, worker: Any) -> None:
        """Take the worker; Dask calls it when the worker starts."""
        self._worker, self._lock = worker, threading.Lock()

    def teardown(self, worker: Any) -> None:
        """Close what was opened; Dask calls it when the worker ends."""
        for _, close in self._opened.values():
            with contextlib.suppress(Exception):
                close()
        self._opened.clear()

    def __reduce__(self) -> Any:
        return NodeWorker, ()

    def run(self, recipe: bytes, task: bytes, key: str) -> dict[str, Any]:
        """Return ``{"done": result}``, or why it was not begun: ``elsewhere``, ``again`` or ``restarted``."""
        try:
            remote: RemoteStep = pickle.loads(task)  # noqa: S301 - from the driver, which could run anything here
            host = self._host(recipe)
            runner = self._runner(remote, host)
        except Exception as exc:
            return {"elsewhere": f"{type(exc).__name__}: {exc}"}
        try:
            is_first = self._claim(key)
        except Exception:  # whatever a scheduler says that has no such handler
            return {"restarted": True}
        # Another worker has begun with it: to run it here would be the second time.
        if not is_first:
            return {"again": True}
        return {"done": aio.run(self._perform(runner, remote, key))}

    def stop(self, key: str) -> None:
        """End a step that runs."""
        task = self._running.get(key)
        if task is not None:
            task[0].call_soon_threadsafe(task[1].cancel)

    async def _perform(self, runner: StepRunner, remote: RemoteStep, key: str) -> Any:
        def show(stream: str, text: str) -> None:
            self._worker.log_event(remote.topic, {"key": key, "stream": stream, "text": text})

        doing = asyncio.ensure_future(runner.aperform(remote.step, Means(show=show)))
        self._running[key] = (asyncio.get_running_loop(), doing)
        try:
            return await doing
        finally:
            del self._running[key]

    def _claim(self, key: str) -> bool:
        asking = self._worker.scheduler.nbtools_claim
        return bool(sync(self._worker.loop, asking, key=key, token=secrets.token_hex(8)))

    def _host(self, recipe: bytes) -> WorkflowHost:
        with self._lock:
            # One for all steps of a workbench: it holds connections and kernels, which take long to open.
            if recipe not in self._opened:
                make, functions = pickle.loads(recipe)  # noqa: S301 - from the driver
                self._opened[recipe] = make([cloudpickle.loads(one) for one in functions])
            return self._opened[recipe][0]

    def _runner(self, remote: RemoteStep, host: WorkflowHost) -> StepRunner:
        """Return who performs a step here.

        Raises
        ------
        PermissionDenied
            It cannot be performed here as the driver would.
        """
        node, tools = remote.step.node, host.tools()
        # Files of steps travel by the folder of the run, which both sides have to see.
        if not remote.run_file.exists():
            raise PermissionDenied("the folder of the run does not exist here.", hint="Share it between the machines.")
        if isinstance(node, ToolNode) and (
            node.tool not in tools or tools[node.tool].fingerprint != remote.fingerprint
        ):
            raise PermissionDenied(f"{node.tool} is a different tool here.", hint="Install the same packages.")
        if remote.memory not in {"*", this_machine()}:
            if isinstance(node, KernelNode) and remote.step.memory.enabled:
                raise PermissionDenied("the memory is not shared with this machine.")
            host = dataclasses.replace(host, memory=_no_memory)
        return StepRunner(host, tools)


def _no_memory() -> Any:
    raise PermissionDenied("the memory is not shared with this machine.", hint="Use PostgreSQL.")


def run_step(recipe: bytes, task: bytes, key: str) -> Mapping[str, Any]:
    """Perform a step on the worker that this is called on, see `NodeWorker.run`."""
    here: Any = get_worker().plugins.get("nbtools")
    if here is None:
        return {"restarted": True}
    outcome: Mapping[str, Any] = here.run(recipe, task, key)
    return outcome


def stop_step(key: str, dask_worker: Any = None) -> None:
    """End a step if it runs on this worker."""
    dask_worker.plugins["nbtools"].stop(key)
