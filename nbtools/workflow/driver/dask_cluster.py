"""Steps on a Dask cluster: the driver keeps the graph, the log, the keys and all questions; workers compute.

What leaves the driver: code, and calls of tools that read or whose effects are the same a second time. Prompts,
questions, workflows inside, other effects, calls that someone may have to approve and what reads the environment stay.
A worker that cannot perform a step as the driver would says so before it begins, and the driver performs it.

Nothing is done twice. A task that Dask gave to a second worker comes back undone (`nbtools.workflow.driver.dask_worker`
says how); a step that may be repeated is then sent again, and the outcome of any other is unknown. When the scheduler
is lost, all that was sent comes to the same decision, and the driver performs what follows itself, until a scheduler
with a worker answers at the same address again.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import pickle
import secrets
import sys
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from nbtools.contract.registry import Registry
from nbtools.contract.result import ToolResult
from nbtools.errors import ConfigInvalid, ConfigMissing, InvalidArguments, NbtoolsError, NetworkError
from nbtools.ground.aio import in_thread
from nbtools.ground.lazy import need
from nbtools.workflow.driver.host import WorkerRecipe
from nbtools.workflow.driver.questions import unknown_result
from nbtools.workflow.driver.steps import Means, Runner, Show, StepAttempt, StepRunner
from nbtools.workflow.graph import references
from nbtools.workflow.runs.state import failure_result
from nbtools.workflow.spec import KernelNode, NodeFields, ToolNode

_LOCAL = "dask://local"
# How long a cluster may take to answer is Dask's own setting; by its default 30 s.
_PATIENCE = "distributed.comm.timeouts.connect"
# Seconds from one look for a scheduler that was lost to the next.
_AGAIN_S = 2.0
_LOOK_S = 2.0
# How long it may be without a worker is Dask's own setting, too, which is not set by default.
_WITHOUT_WORKERS = "distributed.scheduler.no-workers-timeout"
_NO_SCHEDULER = "the scheduler was lost"
_MOST_STARTS = 3
# A tool that failed by one of these on a worker may find on the driver's machine what it lacked.
_LACKING = frozenset({"CONFIG_MISSING", "FILE_NOT_FOUND", "PATH_NOT_ALLOWED", "PERMISSION_DENIED", "TOOL_NOT_FOUND"})


@contextlib.asynccontextmanager
async def open_runner(
    executor: str, local: StepRunner, recipe: Callable[[], WorkerRecipe] | None
) -> AsyncIterator[Runner]:
    """Open who performs the steps of a run.

    Parameters
    ----------
    executor
        ``"local"``, ``"dask://HOST:PORT"`` of a scheduler, or ``"dask://local"`` for a cluster on this machine that
        ends with the run.
    local
        Performs what does not leave this process.
    recipe
        Returns how workers make the surroundings; `None` where there is none.

    Raises
    ------
    InvalidArguments
        There is no such executor.
    MissingExtra
        Dask is not installed.
    NetworkError
        The scheduler, or its workers, are not there.
    """
    if executor == "local":
        yield local
        return
    if not executor.startswith("dask://") or not executor.removeprefix("dask://"):
        hint = "Use 'local', 'dask://local', or 'dask://HOST:PORT' of a scheduler."
        raise InvalidArguments(f"{executor!r} is not an executor.", hint=hint)
    if recipe is None:
        raise ConfigMissing("this workbench cannot be recreated on another machine.", hint="Use the local executor.")
    need("distributed", extra="dask", why="Running a workflow on a cluster")
    connection = _Connection(await in_thread(lambda: _Cluster(executor, recipe())), executor)
    try:
        yield DaskRunner(local, connection)
    finally:
        await asyncio.shield(connection.aclose())


class DaskRunner:
    """Performs steps on the workers of a cluster, and in this process what must not leave it.

    Parameters
    ----------
    local
        Performs what does not leave this process.
    connection
        Leads to the workers.
    """

    def __init__(self, local: StepRunner, connection: _Connection) -> None:
        self._local = local
        self._connection = connection

    def for_tools(self, tools: Registry) -> DaskRunner:
        """Return a runner for the nodes of another workflow."""
        return DaskRunner(self._local.for_tools(tools), self._connection)

    async def aperform(self, step: StepAttempt, means: Means) -> Any:
        """Return the result of a step, see `StepRunner.aperform`."""
        losses: list[str] = []
        here = functools.partial(self._local.aperform, step, means)
        # A step that ends its worker each time must not take down one worker after the other.
        for _ in range(_MOST_STARTS):
            cluster = self._connection.cluster()
            if cluster is None or not self._may_leave(step.node, cluster):
                return await here()
            tool = self._local.tools[step.node.tool] if isinstance(step.node, ToolNode) else None
            # Written down before it is sent: a driver that reads the log later must know that a worker may have begun.
            if means.journal is not None and not (tool and tool.effects.read_only):
                await means.journal.started(step.run_id)
            loss, result = await cluster.aperform(self._as_sent(step), tool.fingerprint if tool else "", means.show)
            if result is not None:
                if means.journal is not None:
                    ended = ToolResult(ok=bool(result["ok"]), tool=step.node.id, call_id=step.run_id)
                    await means.journal.ended(step.run_id, ended)
                lacks = isinstance(step.node, ToolNode) and result["error"] and result["error"]["code"] in _LACKING
                return result if not lacks else await here()
            if loss and not self._is_repeatable(step.node):
                lost = f"It was sent to a worker, and {loss}; whether it has done its work is not known."
                return unknown_result(lost, needs_value=step.needs_value)
            if not loss:
                return await here()
            losses.append(loss)
        hint = "It may need more memory than a worker has, or end its process."
        counts = (f"{loss}, {count} times" if count > 1 else loss for loss, count in Counter(losses).items())
        return failure_result("KERNEL_DIED", f"{'; then '.join(counts)}.", hint)

    def _may_leave(self, node: NodeFields, cluster: _Cluster) -> bool:
        # Variables of the environment are of this process, and often secrets: they are not sent anywhere.
        if any(expression.root == "env" for _, expression in references(node)):
            return False
        if isinstance(node, ToolNode):
            tool = self._local.tools[node.tool]
            # What the workflow itself configures is known to no worker.
            return cluster.knows(tool) and self._is_repeatable(node) and not cluster.recipe.stays(tool)
        return isinstance(node, KernelNode)

    def _is_repeatable(self, node: NodeFields) -> bool:
        if isinstance(node, ToolNode):
            effects = self._local.tools[node.tool].effects
            return effects.read_only or effects.idempotent
        return isinstance(node, KernelNode) and node.idempotent

    @staticmethod
    def _as_sent(step: StepAttempt) -> StepAttempt:
        """Return a step as a worker gets it: code that does not name the memory needs none."""
        if isinstance(step.node, KernelNode) and "memory" not in step.source:
            return dataclasses.replace(step, memory=step.memory.model_copy(update={"enabled": False}))
        return step


class _Connection:
    """The cluster of a run. One that was lost is looked for again, beside the steps that the driver performs."""

    def __init__(self, cluster: _Cluster, executor: str) -> None:
        self._cluster = cluster
        self._executor = executor
        self._tried = 0.0
        self._trying: asyncio.Task[None] | None = None
        self._is_closed = False

    def cluster(self) -> _Cluster | None:
        """Return the cluster, `None` while it is lost; one that was started here does not come back."""
        if not self._cluster.loss:
            return self._cluster
        is_due = self._trying is None and time.monotonic() - self._tried > _AGAIN_S
        if is_due and self._executor != _LOCAL:
            self._trying = asyncio.create_task(self._try_again(), name="nbtools looks for the scheduler")
        return None

    async def _try_again(self) -> None:
        with contextlib.suppress(NbtoolsError):
            cluster = await in_thread(_Cluster, self._executor, self._cluster.recipe)
            lost, self._cluster = self._cluster, cluster
            await in_thread((cluster if self._is_closed else lost).close)
        self._tried, self._trying = time.monotonic(), None

    async def aclose(self) -> None:
        """Leave the cluster."""
        self._is_closed = True  # who still looks for the scheduler leaves it by itself
        await in_thread(self._cluster.close)


class _Cluster:
    """The connection to a cluster; everything here but `aperform` may block, and is called in a thread."""

    def __init__(self, executor: str, recipe: WorkerRecipe) -> None:
        import dask
        import distributed

        from nbtools.workflow.driver.dask_worker import Claims, NodeWorker, this_machine

        self.recipe = recipe
        self._patience = dask.utils.parse_timedelta(dask.config.get(_PATIENCE))
        self._may_be_without_s = dask.utils.parse_timedelta(dask.config.get(_WITHOUT_WORKERS, None) or "60s")
        # Why the cluster counts as lost; empty while it does not.
        self.loss = ""
        self._recipe = _pickled(recipe)
        self._memory = this_machine() if recipe.memory == "machine" else recipe.memory
        self._topic = f"nbtools-{secrets.token_hex(8)}"
        self._shows: dict[str, Show] = {}
        # Let go with the next task: a client sends once in 10 ms, and a message that lets go would hold up a task.
        self._ended: list[Any] = []
        self._no_worker_since: float | None = None
        self._tools = recipe.tools()
        with contextlib.ExitStack() as stack:
            connect: Any = distributed.Client
            address = executor.replace("dask://", "tcp://")
            # A cluster that was started here brings the certificates with it.
            scheduler = stack.enter_context(_local_cluster()) if executor == _LOCAL else address
            try:
                self._client = stack.enter_context(connect(scheduler, timeout=self._patience, set_as_default=False))
                self._client.register_plugin(Claims())
                self._client.register_plugin(NodeWorker())
                self._client.wait_for_workers(1, timeout=self._patience)
            except OSError as exc:  # TimeoutError is one
                raise NetworkError(
                    f"no scheduler with a worker answered at {address}: {exc}",
                    hint="Start `dask scheduler` and `dask worker`, or use dask://local. Dask's setting "
                    f"{_PATIENCE} says how long a busy one is waited for.",
                ) from None
            except ModuleNotFoundError as exc:
                raise ConfigInvalid(
                    f"the cluster at {address} has no {exc.name}.", hint="Install nbtools on its machines."
                ) from None
            self._client.subscribe_topic(self._topic, self._tell)
            self._closing = stack.pop_all()

    def close(self) -> None:
        """Leave the cluster, or end it where it was started here."""
        self._ended.clear()
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            self._closing.close()

    def knows(self, tool: Any) -> bool:
        """Tell whether a worker has a tool: those that a file configures are the driver's alone."""
        return tool.name in self._tools and self._tools[tool.name].fingerprint == tool.fingerprint

    async def aperform(self, step: StepAttempt, fingerprint: str, show: Show) -> tuple[str, Any]:
        """Return what went wrong, and the result; neither where no worker could perform the step."""
        from nbtools.workflow.driver.dask_worker import RemoteStep

        # Drawn: Dask answers a key that it knows from its memory, and would run nothing.
        key = f"nbtools-{step.node.id}-{step.attempt}.{step.fence}-{secrets.token_hex(8)}"
        run_file = step.artifacts.parent.parent / "run.json"
        remote = RemoteStep(
            step=step, fingerprint=fingerprint, run_file=run_file, memory=self._memory, topic=self._topic
        )
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self._shows[key] = lambda stream, text: _tell_loop(loop, show, stream, text)
        try:
            task, resources = pickle.dumps(remote), step.node.resources
            future = await in_thread(self._submit, key, task, resources, lambda: _tell_loop(loop, ended.set))
            while future is not None and not ended.is_set() and not self.loss:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), _LOOK_S)
                if not ended.is_set():
                    self._look()
            loss, outcome = await in_thread(self._outcome, future)
            # Let go only when the next one is sent: a future that is dropped is forgotten by the scheduler at once,
            # with its claim.
            self._ended.append(future)
        except asyncio.CancelledError:
            await asyncio.shield(in_thread(self._stop, key))
            raise
        finally:
            self._shows.pop(key, None)
        if "elsewhere" in outcome:
            show("stderr", f"performed by the driver: {outcome['elsewhere']}\n")
        return loss, outcome.get("done")

    def _submit(self, key: str, task: bytes, resources: Mapping[str, float], ended: Any) -> Any:
        from nbtools.workflow.driver.dask_worker import run_step

        if resources:
            self._check_resources(resources)
        how: dict[str, Any] = {"resources": dict(resources)} if resources else {}
        try:
            future = self._client.submit(run_step, self._recipe, task, key, key=key, retries=0, **how)
            self._ended.clear()
            future.add_done_callback(lambda _: ended())
        except Exception:  # whatever a client that has lost its scheduler raises
            self.loss = _NO_SCHEDULER
            return None
        return future

    def _check_resources(self, resources: Mapping[str, float]) -> None:
        """Raise for what no worker has: such a task would wait for ever."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        offered = [worker.get("resources") or {} for worker in workers]
        if any(all(has.get(name, 0) >= amount for name, amount in resources.items()) for has in offered):
            return
        amounts = ", ".join(f"{name}={amount:g}" for name, amount in resources.items())
        raise ConfigMissing(
            f"no worker of the cluster has {amounts}.", hint=f"Start one: dask worker --resources '{amounts}'."
        )

    def _outcome(self, future: Any) -> tuple[str, Mapping[str, Any]]:
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        if future is None or self.loss:
            return self.loss, {}
        try:
            outcome = future.result(timeout=self._patience)
        except KilledWorker:
            return "its worker was lost", {}
        except (CancelledError, TimeoutError):
            self.loss = _NO_SCHEDULER  # nobody here cancels a task and waits for it
            return self.loss, {}
        except Exception as exc:
            return f"its worker failed: {type(exc).__name__}: {exc}", {}
        if "restarted" in outcome:  # the client has found a scheduler that knows nothing of us
            self.loss = _NO_SCHEDULER
        return "its worker was lost" if "again" in outcome else "", outcome

    def _look(self) -> None:
        """Find out whether there is still someone who could answer."""
        if self._client.status not in {"running", "connecting"}:
            self.loss = _NO_SCHEDULER
            return
        if self._client.scheduler_info().get("workers"):
            self._no_worker_since = None
            return
        # Workers come and go: a cluster that scales is given a while before it counts as lost.
        self._no_worker_since = self._no_worker_since or time.monotonic()
        if time.monotonic() - self._no_worker_since > self._may_be_without_s:
            self.loss = f"no worker of the cluster came back within {self._may_be_without_s:g} s"

    def _stop(self, key: str) -> None:
        from distributed import Future

        from nbtools.workflow.driver.dask_worker import stop_step

        with contextlib.suppress(Exception):
            self._client.cancel([Future(key, self._client)], force=True)
            self._client.run(stop_step, key, on_error="ignore")

    def _tell(self, event: tuple[float, Any]) -> None:
        output = event[1]
        if show := self._shows.get(output["key"]):
            show(output["stream"], output["text"])


def _local_cluster() -> Any:
    """Return two worker processes on this machine with their scheduler, which nobody else can talk to.

    A scheduler runs what it is sent, and other users of the machine reach its port: both sides show certificates that
    were made for this cluster and that only its own processes have. It serves no pages.

    Raises
    ------
    MissingExtra
        What makes certificates is not installed.
    NetworkError
        They did not start.
    """
    import dask
    import distributed

    need("cryptography", extra="dask", why="Closing a cluster on this machine to other users")
    make: Any = distributed.LocalCluster
    certificates: Any = distributed.Security
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 4, "dashboard_address": "127.0.0.1:0"}
    options["scheduler_kwargs"] = {"dashboard": False}
    no_pages: dict[str, list[str]] = {
        f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker", "nanny")
    }
    try:
        with dask.config.set(no_pages):
            # That a worker takes long to end is nothing to tell.
            return make(**options, security=certificates.temporary(), silence_logs=logging.ERROR)
    except (OSError, RuntimeError) as exc:
        raise NetworkError(
            f"the workers on this machine did not start: {exc}",
            hint="Workers import a script that starts them: run the workflow below `if __name__ == '__main__':`.",
        ) from None


def _tell_loop(loop: asyncio.AbstractEventLoop, function: Any, *args: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(function, *args)


def _pickled(recipe: WorkerRecipe) -> bytes:
    """Return how workers make the surroundings; functions of the user go by value: workers may lack their files."""
    import cloudpickle

    pickles: list[bytes] = []
    for one in recipe.functions:
        module = sys.modules.get(one[0].__module__)
        is_named = module is not None and module.__name__ not in cloudpickle.list_registry_pickle_by_value()
        if is_named:
            cloudpickle.register_pickle_by_value(module)
        try:
            pickles.append(cloudpickle.dumps(one))
        except Exception:  # whatever objects that hold locks and connections raise: the driver calls this one
            continue
        finally:
            if is_named:
                cloudpickle.unregister_pickle_by_value(module)
    return pickle.dumps((recipe.open, pickles))
