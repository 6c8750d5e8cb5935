"""Kernels on another machine: Jupyter Server, Kernel Gateway or Enterprise Gateway over HTTP and websocket.

The server starts, interrupts and ends the kernel; messages go over its websocket (`nbtools.kernels.gateway.client`). A
Python kernel gets the same hooks as a local one, as text, and files travel there and back
(`nbtools.kernels.gateway.staging`).
Where it runs, and what confines it, is the server's business: the level in force is told as ``"off"``.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nbtools import errors
from nbtools.ground import aio
from nbtools.kernels.gateway import staging
from nbtools.kernels.gateway.client import GatewayClient, KernelSocket
from nbtools.kernels.gateway.staging import StagingPlan
from nbtools.kernels.interface import Execution, KernelOptions, OutputLimits, RunContext
from nbtools.kernels.jupyter import bootstrap
from nbtools.kernels.jupyter.kernel import JupyterRun, code_content
from nbtools.kernels.jupyter.messages import Message
from nbtools.kernels.languages import LANGUAGES
from nbtools.kernels.runs.ending import Ending, take_in
from nbtools.kernels.runs.local import RunningKernel
from nbtools.kernels.runs.output import Collector

_STEP_S = 60.0
# Seconds between two looks. A request takes some milliseconds on the server, so it is not asked more often.
_WATCH_S = 2.0
_STEP = "nbtools"
_NOT_FOUND = 404
# Tornado, on which these servers stand, closes a websocket at a message of 10 MB; escaping may double the text.
_MAX_CODE = 4 << 20
# jupyter_server sends these words as the script's own output.
_RATE_WORDS = ("IOPub data rate exceeded", "IOPub message rate exceeded")
# The states by which a server tells that the kernel's process has ended.
_GONE = frozenset({"dead", "restarting", "autorestarting"})


class GatewayBackend:
    """Start kernels on a Jupyter server.

    Parameters
    ----------
    url
        Address of the server, as in ``http://host:8888``; a ``?token=`` in it is used.
    token
        Its token; `None` when it wants none.
    start_timeout
        Seconds that a kernel may take to answer for the first time.
    """

    name = "gateway"

    def __init__(self, url: str, token: str | None = None, *, start_timeout: float = 60.0) -> None:
        self._server = GatewayClient(url, token)
        self._start_timeout = start_timeout
        self._kernels: set[GatewayKernel] = set()

    async def open(self, options: KernelOptions) -> GatewayKernel:
        """Start a kernel; see `nbtools.kernels.interface.Backend.open`.

        Raises
        ------
        LanguageUnavailable
            The server has no kernel for the language.
        SandboxUnavailable
            A sandbox was asked for, which only the server could provide.
        NetworkError, PermissionDenied, HttpError
            The server cannot be reached, refuses the token, or fails.
        """
        if options.sandbox == "strict":
            raise errors.SandboxUnavailable(
                f"sandbox='strict' cannot be enforced on the gateway {self._server.shown_url}: it runs the kernels.",
                hint="Confine the server itself (in its own container), and ask for sandbox='off'.",
            )
        spec, is_python = await self._spec(options.language)
        started = await aio.in_thread(self._server.request, "POST", "/api/kernels", json_body={"name": spec})
        kernel = GatewayKernel(
            self._server, str(started["id"]), is_python=is_python, on_close=lambda: self._kernels.discard(kernel)
        )
        self._kernels.add(kernel)
        try:
            await kernel.connect(timeout=self._start_timeout)
        except BaseException:
            await kernel.close()
            raise
        return kernel

    async def _spec(self, language: str) -> tuple[str, bool]:
        """Return the name of the server's kernelspec for a language, and whether it is Python."""
        answer = await aio.in_thread(self._server.request, "GET", "/api/kernelspecs")
        try:
            specs = {name: str(spec["spec"]["language"]).lower() for name, spec in answer["kernelspecs"].items()}
        except (KeyError, TypeError, AttributeError):
            raise errors.NetworkError(
                f"What answers at {self._server.shown_url} is not a Jupyter server.", retryable=False
            ) from None
        if language.startswith("kernel:"):
            name = language.removeprefix("kernel:")
            if name in specs:
                return name, specs[name] == "python"
        else:
            entry = LANGUAGES.get(language)
            accepted = (language,) if entry is None else (language, *entry.kernels)
            names = [name for name, spoken in specs.items() if spoken in accepted]
            if names:
                return (answer["default"] if answer.get("default") in names else names[0]), language == "python"
        raise errors.LanguageUnavailable(
            f"The gateway {self._server.shown_url} has no kernel for {language!r}.",
            hint=errors.did_you_mean(
                language, specs, f"It has: {', '.join(sorted(specs)) or 'none'}.", form="kernel:{}"
            ),
        )

    async def close(self) -> None:
        """End all kernels of this backend."""
        await asyncio.gather(*(kernel.close() for kernel in list(self._kernels)))
        self._server.close()


class _GatewayRun(JupyterRun):
    """A request to a remote kernel; one that runs a script has the steps around it, which are requests too."""

    context = RunContext()
    plan: StagingPlan | None = None
    preparation: _GatewayRun | None = None
    listing: _GatewayRun | None = None
    sending: asyncio.Future[None]
    watching: asyncio.Future[None]

    def __init__(self, msg_id: str, collector: Collector, content: Mapping[str, Any]) -> None:
        super().__init__(msg_id, collector)
        self.content = content


class GatewayKernel(RunningKernel[_GatewayRun]):
    """One kernel of a Jupyter server, whose confinement is not known here.

    Parameters
    ----------
    server
        The server.
    kernel_id
        The kernel's id there.
    is_python
        Whether it runs Python: then variables, figures and files work as in a local one.
    on_close
        Called once when it is released.

    Attributes
    ----------
    socket
        The websocket that carries its messages.
    """

    def __init__(self, server: GatewayClient, kernel_id: str, *, is_python: bool, on_close: Callable[[], None]) -> None:
        self.id = kernel_id
        self._server = server
        self._is_python = is_python
        self._on_close = on_close
        self._runs: dict[str, _GatewayRun] = {}
        self._ended: str | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._folder: str | None = None
        self._cwd: Path | None = None
        self._is_throttled = False
        self._count = 0
        loop = asyncio.get_running_loop()

        def on_loop(step: Callable[[Any], None]) -> Callable[[Any], None]:
            def call(value: Any) -> None:
                with contextlib.suppress(RuntimeError):  # the loop is gone, and everybody who waited with it
                    loop.call_soon_threadsafe(step, value)

            return call

        self.socket = KernelSocket(server, kernel_id, on_message=on_loop(self._take), on_lost=on_loop(self._lose))

    @property
    def pid(self) -> int | None:
        """`None`: the process is on another machine."""
        return None

    @property
    def alive(self) -> bool:
        """Whether it can run code."""
        return self._ended is None and not self._is_closed

    async def connect(self, *, timeout: float) -> None:
        """Open the websocket and wait until the kernel answers.

        Raises
        ------
        NetworkError
            The websocket cannot be opened.
        KernelDied
            The kernel does not answer.
        """
        await aio.in_thread(self.socket.open)
        await aio.in_thread(self.socket.send, self._message("kernel_info_request", {}, "info"))
        await asyncio.wait({self._ready}, timeout=timeout)
        if not self._ready.done() or self._ended is not None:
            why = self._ended or f"it did not answer within {timeout:g} s"
            raise errors.KernelDied(f"The kernel on the gateway {self._server.shown_url} did not start: {why}.")

    async def finish(self, *, timeout: float) -> None:
        """End a session as a script ends, in so many seconds, and fetch what that wrote; the kernel is still there."""
        if self._is_python:
            await self.run("pass", timeout=timeout, context=RunContext(cwd=self._cwd, ends="session"))

    async def _begin(self, code: str, collector: Collector, context: RunContext) -> _GatewayRun | Execution:
        if not isinstance(code, str):
            raise errors.InvalidArguments("The code is not text.")
        if len(code) > _MAX_CODE:
            raise errors.LimitExceeded(
                f"The code is {len(code):,} characters long; gateways take messages of up to about 10 MB.",
                hint="Put data into a file and hand that over.",
            )
        try:
            plan, preparation = await self._prepare(context, collector.limits)
        except (errors.NetworkError, errors.KernelDied, asyncio.CancelledError) as exc:
            return self._end_early(collector, exc)
        run = self._request(code, collector)
        run.context, run.plan, run.preparation = context, plan, preparation
        self._cwd = context.cwd
        if plan is not None:
            run.listing = self._request("", Collector(), expression=_transfer("list_changed()"))
        # In one go: the answers then come as fast as the kernel works, not as fast as the network.
        run.sending = asyncio.ensure_future(self._send(*filter(None, (preparation, run, run.listing))))
        run.watching = asyncio.ensure_future(self._watch())
        return run

    async def _finish(self, run: _GatewayRun, ending: Ending | None) -> Execution:
        run.watching.cancel()
        await asyncio.wait({run.sending})
        notes = self._notes(run.context)
        if self._is_throttled:
            notes = (*notes, "the gateway dropped output: it came faster than its iopub rate limits allow")
            self._is_throttled = False
        if self.socket.reconnects:
            notes = (*notes, "the connection to the gateway was lost and came back")
            self.socket.reconnects = 0
        if run.preparation is not None and run.preparation.reply and (failure := _failure(run.preparation.reply)):
            notes = (*notes, failure)
        # A server interrupts the code before it ends the kernel: the reply to that is not the code's own.
        has_own_reply = run.reply is not None and run.reply.get("ename") != "KeyboardInterrupt"
        is_lost = self._ended is not None and not has_own_reply
        execution = run.execution(ending or ("died" if is_lost else None), notes=notes, sandbox=self.sandbox)
        if run.plan is not None and run.listing is not None and self.alive:
            execution = await self._with_artifacts(execution, run.plan, run.listing, run.context)
        self._runs.clear()
        return execution

    def _end_early(self, collector: Collector, exc: BaseException) -> Execution:
        """Return what became of a run that could not begin."""
        if isinstance(exc, asyncio.CancelledError):
            take_in()
            return collector.execution("stopped", sandbox="off")
        self._lose(str(exc))
        return collector.execution("died", sandbox="off", notes=(str(exc),))

    async def _prepare(
        self, context: RunContext, limits: OutputLimits
    ) -> tuple[StagingPlan | None, _GatewayRun | None]:
        """Send the files that a Python script needs; return the plan, and the request that makes its context."""
        if not self._is_python:
            return None, None
        if self._folder is None:
            await self._step(bootstrap.load_code())
            await self._step(bootstrap.load_code("file_transfer"))
            self._folder = (await self._step(_transfer("begin()")))["folder"]
        # Files go before the request: a script that starts before its input is there would fail.
        carried = StagingPlan.for_run(context, self._folder)
        for path, remote in carried.files.items():
            for piece in staging.upload_calls(path, remote):
                await self._step(_transfer(piece))
        begin = f"({_transfer('begin()')}, {bootstrap.begin_code(carried.context, limits)})"
        return carried, self._request("", Collector(), expression=begin)

    async def _with_artifacts(
        self, execution: Execution, carried: StagingPlan, listing: _GatewayRun, context: RunContext
    ) -> Execution:
        """Fetch the files that the code made; a note names those that cannot be fetched."""
        fetched: list[Path] = []
        notes = list(execution.notes)
        try:
            changed = (await self._read_answer(listing))["changed"]
            paths = {remote: local for remote in changed if (local := staging.local_path(remote, carried, context))}
            total = 0
            for remote, path in paths.items():
                total += changed[remote]
                if total > staging.MOST_BYTES:
                    notes.append(f"{remote} and what follows was left on the gateway: too large to be fetched")
                    break
                await self._fetch(remote, path, changed[remote])
                fetched.append(path)
        except (errors.NbtoolsError, OSError, KeyError, TypeError, ValueError, asyncio.CancelledError) as exc:
            take_in()
            notes.append(f"files that the code made could not be fetched: {exc}")
        return dataclasses.replace(execution, artifacts=tuple(sorted(fetched)), notes=tuple(notes))

    async def _fetch(self, remote: str, path: Path, size: int) -> None:
        # The place was judged before: no link leads out of the working folder.
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for at in range(0, size, staging.PIECE_BYTES):
                answer = await self._step(_transfer(f"get({json.dumps(remote)}, {at}, {staging.PIECE_BYTES})"))
                file.write(base64.b64decode(answer["data"]))

    async def variables(self) -> list[dict[str, Any]]:
        """List what the session has defined."""
        if not self._is_python:
            return []
        if self._folder is None:
            await self._prepare(RunContext(), OutputLimits())
        return list((await self._step(bootstrap.variables_code())).get("variables", ()))

    async def _step(self, expression: str) -> dict[str, Any]:
        """Evaluate an expression of our own in the kernel and return its report."""
        run = self._request("", Collector(), expression=expression)
        await self._send(run)
        return await self._read_answer(run)

    async def _read_answer(self, run: _GatewayRun) -> dict[str, Any]:
        """Wait for a step of our own and return its report."""
        watch = asyncio.ensure_future(self._watch())
        await asyncio.wait({run.done}, timeout=_STEP_S)
        watch.cancel()
        self._runs.pop(run.msg_id, None)
        if run.reply is None:
            raise errors.KernelDied(self._ended or "The remote kernel did not answer.")
        if failure := _failure(run.reply):
            raise errors.KernelDied(failure)
        return {**run.report, **_parse_answer(run.reply)}

    def _request(self, code: str, collector: Collector, *, expression: str | None = None) -> _GatewayRun:
        """Make a request that is not sent yet.

        Steps of our own are user expressions, because code would go through IPython's tokenizer: seconds for a
        megabyte of data.
        """
        self._count += 1
        content = code_content(code, silent=expression is not None, recorded=expression is None)
        if expression is not None:
            content["user_expressions"] = {_STEP: expression}
        run = _GatewayRun(f"{self.socket.session}_{self._count}", collector, content)
        self._runs[run.msg_id] = run
        return run

    async def _watch(self) -> None:
        """Ask now and then whether the kernel is still there: a server sends no message when someone ends it."""
        while self.alive:
            await asyncio.sleep(_WATCH_S)
            try:
                await aio.in_thread(self._server.request, "GET", f"/api/kernels/{self.id}", timeout=10)
            except errors.HttpError as exc:
                if exc.data.get("status") == _NOT_FOUND:
                    self._lose("the server has ended the kernel")
            except errors.NbtoolsError:
                continue  # the channel finds out whether the server is gone

    async def _send(self, *runs: _GatewayRun) -> None:
        messages = [self._message("execute_request", run.content, run.msg_id) for run in runs]
        try:
            await aio.in_thread(self.socket.send, *messages)
        except errors.NetworkError as exc:
            self._lose(str(exc))

    def _message(self, kind: str, content: Mapping[str, Any], msg_id: str) -> dict[str, Any]:
        header = {
            "msg_id": msg_id,
            "msg_type": kind,
            "username": "nbtools",
            "session": self.socket.session,
            "version": "5.3",
            "date": "",
        }
        framed = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        return {**framed, "channel": "shell", "buffers": []}

    def _take(self, message: dict[str, Any]) -> None:
        try:
            kind = message["header"]["msg_type"]
            content = message["content"]
            parent = (message.get("parent_header") or {}).get("msg_id", "")
            state = content.get("execution_state") if kind == "status" else None
        except (KeyError, TypeError, AttributeError):
            return  # not a message of the protocol
        if kind == "kernel_info_reply" and not self._ready.done():
            self._ready.set_result(None)
        if state in _GONE:
            self._lose("the kernel died" if state == "dead" else "the kernel died and was restarted by its server")
        elif parent in self._runs:
            run = self._runs[parent]
            run.messages += 1
            if kind == "stream" and str(content.get("text", "")).startswith(_RATE_WORDS):
                # The server says so in the script's name, and drops output for a while.
                run.collector.truncated = self._is_throttled = True
            else:
                run.take(Message(type=kind, parent_id=parent, content=content))

    def _lose(self, reason: str) -> None:
        """Mark the kernel as gone and end the waiting for it."""
        if self._ended is None:
            self._ended = reason
        if not self._ready.done():
            self._ready.set_result(None)
        for run in self._runs.values():
            run.finish()

    def _notes(self, context: RunContext) -> tuple[str, ...]:
        notes = (self._ended,) if self._ended is not None else ()
        return (*notes, "memory is not available on a gateway") if context.memory is not None else notes

    async def interrupt(self) -> None:
        """Interrupt the running code."""
        await aio.in_thread(self._server.request, "POST", f"/api/kernels/{self.id}/interrupt", timeout=10)

    async def kill(self) -> None:
        """Ask the server to end the kernel."""
        self._ended = self._ended or "the kernel was killed"
        with contextlib.suppress(errors.NbtoolsError):
            await aio.in_thread(self._server.request, "DELETE", f"/api/kernels/{self.id}", timeout=20)
        self._lose("the kernel was killed")

    async def _is_there_after_delete(self) -> bool:
        """Ask the server to end the kernel; return whether the kernel still exists there."""
        try:
            await aio.in_thread(self._server.request, "DELETE", f"/api/kernels/{self.id}", timeout=20)
            await aio.in_thread(self._server.request, "GET", f"/api/kernels/{self.id}", timeout=20)
        except errors.HttpError as exc:
            return exc.data.get("status") != _NOT_FOUND
        except errors.NbtoolsError:
            return False  # the server is gone: nothing can be done
        return True

    async def _close(self) -> None:
        if self._ended is None and self._folder is not None:
            with contextlib.suppress(errors.NbtoolsError, asyncio.TimeoutError):
                # A kernel that is busy cannot clean up; its server is not made to wait for it.
                await asyncio.wait_for(self._step(_transfer("clean()")), 2.0)
        self.socket.close()
        # A server that is just starting a dead kernel again forgets that it was told to end it.
        for pause in (0.0, 0.3, 1.0, 2.0):
            await asyncio.sleep(pause)
            if not await self._is_there_after_delete():
                break
        self._on_close()


def _failure(reply: Mapping[str, Any]) -> str | None:
    """Return why a step of our own failed over there; `None` when it did not."""
    answer = (reply.get("user_expressions") or {}).get(_STEP) or {}
    if answer.get("status") == "ok":
        return None
    return f"The remote kernel refused a step: {answer.get('ename')}: {answer.get('evalue')}."


def _parse_answer(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a function of the file transfer returned: JSON text, shown as Python shows a string."""
    with contextlib.suppress(KeyError, TypeError, ValueError, SyntaxError):
        answer = json.loads(ast.literal_eval(reply["user_expressions"][_STEP]["data"]["text/plain"]))
        return answer if isinstance(answer, dict) else {}
    return {}


def _transfer(call: str) -> str:
    return f"__import__('sys').modules['nbtools_file_transfer'].{call}"
