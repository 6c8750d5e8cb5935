"""How a fork of the zygote becomes an ordinary Jupyter kernel.

`build` runs in the zygote and does everything of `IPKernelApp.initialize` that needs neither threads nor sockets.
`main` runs in the fork: environment, folder and confinement first, while there is only one thread; then the sockets,
the threads and the kernel. It is ipykernel all the way, so any Jupyter client can talk to it.
"""

# mypy: allow-untyped-calls
# ipykernel and IPython, whose parts this is made of, are not typed.

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import errno
import functools
import gc
import importlib
import io
import json
import linecache
import os
import random
import sys
import time
import traceback
import types
import weakref
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any, NoReturn

from nbtools import confine
from nbtools.kernels.inside import copying, hooks, pictures, streams
from nbtools.processes import process_tree
from nbtools.processes.child import take_name

_INLINE = "module://matplotlib_inline.backend_inline"
# ipykernel's own interval, 0.2 s, is what a reader would have to wait for the first line.
_FLUSH_S = 0.02
_SHOWN = frozenset({"display_data", "execute_result", "update_display_data"})
# Less than an owner takes at once, however it is written.
_MOST_BUNDLE = 100_000_000
# How long `os._exit` may wait for what is under way in a descriptor.
_LAST_SETTLE_S = 0.05
# The zygote's objects are frozen, so what a script makes is all there is to look at; Python's own 700 is too often.
_COLLECT = (10_000, 20, 20)


# The standard streams of this process by their names, and the process that they speak for.
_streams: dict[str, Any] = {}
_kernel = {"pid": 0}
# What a copy inherits of its original's kernel and must not end: the numbers in it are others' by now.
_inherited: list[Any] = []


def make_stream(*args: Any, **options: Any) -> Any:
    """Return a standard stream for a kernel: in a copy the one of its original, which loggers may hold, begun again."""
    name = args[2]
    if name in _streams:
        vars(_streams[name]).clear()
        _streams[name].__init__(*args, **options)
    else:
        _streams[name] = _make_stream_class()(*args, **options)
    return _streams[name]


@functools.cache
def _make_stream_class() -> type:
    from ipykernel.iostream import OutStream

    class RawStream(OutStream):
        """A standard stream that is seen soon and knows whether raw output is still on its way."""

        flush_interval = _FLUSH_S

        def __init__(self, *args: Any, **options: Any) -> None:
            self.watcher = streams.Watcher(self)
            super().__init__(*args, **options)

        def _watch_pipe_fd(self) -> None:
            self.watcher.run()

    return RawStream


class _CappedDisplays:
    """The session of a kernel, which sends no more MIME bundles in one execution than the owner keeps.

    What is beyond is told by its size, so that the owner knows of it and ends a loop.
    """

    def __init__(self, session: Any) -> None:
        self._session, self._send = session, session.send
        self._cap, self._sent = sys.maxsize, 0
        session.send = self.send

    def begin(self, cap: int) -> None:
        """Count the displays of the next execution, of which `cap` bytes are sent."""
        self._cap, self._sent = cap, 0

    def send(self, stream: Any, message: Any, *args: Any, **options: Any) -> Any:
        """Send a message as the session does, a bundle that is too large without its data."""
        if isinstance(message, dict) and message.get("msg_type") in _SHOWN:
            data = message["content"]["data"]
            size = sum(len(one) if isinstance(one, str) else len(json.dumps(one, default=str)) for one in data.values())
            # An update replaces what was sent before: the owner knows how much.
            sent = self._sent if message["msg_type"] != "update_display_data" else 0
            if hooks.REPORT not in data and sent + size > min(self._cap, _MOST_BUNDLE):
                content = {"data": {hooks.REPORT: {"dropped": size}}, "metadata": {}, "transient": {}}
                message = {**message, "content": content}
            elif not message["content"].get("transient", {}).get("display_id"):
                self._sent += size
        return self._send(stream, message, *args, **options)


def _make_kernel_class() -> type:
    from ipykernel.ipkernel import IPythonKernel

    class ForkedKernel(IPythonKernel):
        """An ipykernel that takes the script's context from the metadata of the request."""

        _execute_sleep = 0.0
        displays: Any = None
        copier: Any = None

        async def do_execute(
            self,
            code: str,
            silent: bool,
            store_history: bool = True,
            user_expressions: Any = None,
            allow_stdin: bool = False,
            *,
            cell_meta: Any = None,
            cell_id: Any = None,
        ) -> Any:
            """Make the context, then execute as ipykernel does."""
            text = (cell_meta or {}).get("nbtools")
            if text is not None:
                # As a text, like all that carries values: what reads messages here rounds integers beyond 64 bits.
                context = json.loads(text)
                self.displays.begin(context["display_bytes"])
                try:
                    hooks.begin(context)
                except Exception as exc:
                    # Without a reply the owner would wait until the time is over.
                    lines = traceback.format_exception(exc)
                    return {"status": "error", "ename": type(exc).__name__, "evalue": str(exc), "traceback": lines}
            reply = await super().do_execute(
                code, silent, store_history, user_expressions, allow_stdin, cell_meta=cell_meta, cell_id=cell_id
            )
            if self.copier is not None:
                self.copier.context = contextvars.copy_context()
            return reply

    return ForkedKernel


def _make_app_class() -> type:
    import zmq
    from ipykernel.iostream import IOPubThread
    from ipykernel.kernelapp import IPKernelApp

    class Publisher(IOPubThread):
        """Sends what is shown, from a thread of its own, and ends a kernel that has no memory left for it.

        Parts of the message are sent by then: the rest would be taken from the next, and the thread waits for ever.
        """

        def _really_send(self, *args: Any, **options: Any) -> None:
            try:
                super()._really_send(*args, **options)
            except (MemoryError, zmq.ZMQError) as exc:
                if isinstance(exc, zmq.ZMQError) and exc.errno != errno.ENOMEM:
                    raise
                try:
                    _streams["stderr"].write.words.add("stderr", streams.NO_MEMORY)
                finally:
                    os.abort()

    class ForkedKernelApp(IPKernelApp):
        """IPKernelApp without a connection file: the owner knows the connection."""

        def init_connection_file(self) -> None:
            """Do nothing: there is no file."""

        def write_connection_file(self, **_: Any) -> None:
            """Do nothing: there is no file."""

        def init_iopub(self, context: Any) -> None:
            """As upstream, without the loopback TCP pipe for forked children, and without a high-water mark.

            At the mark a publisher drops messages, and the one that says "idle" could be among them. What the owner
            has not read yet is bounded by the output caps.
            """
            # ipykernel 7 greets each subscriber, which takes a socket that hears of it; ipykernel 6 does not.
            greeting = {"session": self.session} if "session" in signature(IOPubThread).parameters else {}
            self.iopub_socket = context.socket(zmq.XPUB if greeting else zmq.PUB)
            self.iopub_socket.linger = 1000
            self.iopub_socket.sndhwm = 0
            self.iopub_port = self._bind_socket(self.iopub_socket, self.iopub_port)
            self.configure_tornado_logger()
            self.iopub_thread = Publisher(self.iopub_socket, pipe=False, **greeting)
            self.iopub_thread.start()
            self.iopub_socket = self.iopub_thread.background_socket

    return ForkedKernelApp


def build() -> None:
    """In the zygote: import, construct and prepare all that needs neither threads nor sockets.

    The collector looks at all that is imported again and again, and finds next to nothing; kernels turn it on.
    """
    gc.disable()
    confine.prepare()
    iostream: Any = importlib.import_module("ipykernel.iostream")
    iostream.PIPE_BUFFER_SIZE = 1 << 16  # upstream reads raw descriptor output 1,000 bytes at a time
    # No debugger in managed kernels: it would cost 10 MB, threads and warnings in every one.
    with _absent("debugpy"):
        _import_all()
    from ipykernel.compiler import XCachingCompiler
    from ipykernel.zmqshell import ZMQInteractiveShell
    from IPython.core.application import BaseIPythonApplication
    from jupyter_client.session import Session
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    # Who asks what the kernel is would be told a tip, drawn from the random numbers of the script.
    config.InteractiveShell.enable_tip = False
    app_class = _make_app_class()
    app = app_class.instance(  # type: ignore[attr-defined]  # a traitlets singleton
        config=config, log_level=40, kernel_class=_make_kernel_class()
    )
    app.outstream_class = f"{__name__}.make_stream"
    BaseIPythonApplication.initialize(app, [])
    app.update_config(config)
    app.init_pdb()
    shell = ZMQInteractiveShell.instance(
        parent=app, profile_dir=app.profile_dir, compiler_class=XCachingCompiler, user_ns={}
    )
    app.shell = shell
    # The fork gives it the key and identity that are its own. To send a large message without copying it, pyzmq would
    # start threads that a copy of the session lacks.
    app.session = Session(parent=app, key=b"", copy_threshold=sys.maxsize)
    app.init_extensions()
    shell.transform_cell("x = 1\nprint(x)")
    # The collector would write into every object's header and so copy the pages that forks share.
    gc.freeze()


def as_in_a_cell() -> contextlib.AbstractContextManager[Any]:
    """Let libraries that are imported meanwhile find the kernel's shell: pandas asks it how wide frames are to be."""
    from ipykernel.kernelapp import IPKernelApp

    shell: Any = IPKernelApp.instance().shell
    trap: contextlib.AbstractContextManager[Any] = shell.builtin_trap
    return trap


def use_inline_figures() -> None:
    """In the zygote, once matplotlib is loaded: let the shell show figures, which it does by itself where it is not."""
    from ipykernel.kernelapp import IPKernelApp
    from IPython.core.pylabtools import activate_matplotlib
    from matplotlib.figure import Figure
    from matplotlib_inline.backend_inline import configure_inline_support

    shell: Any = IPKernelApp.instance().shell
    # The hooks that show figures live on the shell.
    activate_matplotlib("inline")
    configure_inline_support(shell, "inline")
    # A script that sets the inline backend's formats or options puts IPython's own printer in this place.
    shell.display_formatter.formatters["image/png"].for_type(Figure, pictures.print_figure)


def fail_once() -> None:
    """In the zygote: walk the way of an error, because what lays out a traceback takes long to load."""
    from ipykernel.kernelapp import IPKernelApp

    shell: Any = IPKernelApp.instance().shell
    text, name = "def fail():\n    return 1 / 0\nfail()\n", "<nbtools>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        exec(compile(text, name, "exec"), {})  # noqa: S102 - the text above
    except ZeroDivisionError:
        shell.InteractiveTB.structured_traceback(*sys.exc_info())
    del linecache.cache[name]


@contextlib.contextmanager
def _absent(name: str) -> Any:
    """Make an import of `name` fail meanwhile."""
    sys.modules[name] = None  # type: ignore[assignment]  # the documented way to block an import
    try:
        yield
    finally:
        del sys.modules[name]


def _import_all() -> None:
    for name in (
        *("IPython", "IPython.core.completer", "ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.debugger"),
        *("ipykernel.subshell_manager", "jupyter_client.session", "tornado.platform.asyncio"),
        *("zmq.eventloop.zmqstream", "zmq.utils.garbage"),
        *("asyncio", "base64", "decimal", "faulthandler", "hashlib", "hmac", "html", "inspect", "platform"),
        *("sqlite3", "tempfile", "uuid", "nbtools.confine"),
    ):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    importlib.import_module("platform").machine()


def main(message: Mapping[str, Any], descriptors: Sequence[int], ready: int) -> None:
    """In the fork: become the kernel that the message describes, and serve until it is shut down."""
    gc.set_threshold(*_COLLECT)
    gc.enable()
    _settle(message)
    applied = confine.apply(confine.Confinement.from_dict(message["confinement"]))
    before = copying.parts()
    app = _connect(message["connection"])
    shell, copier = app.shell, None
    if message.get("managed", True):
        shell.nbtools_hooks = hooks.CellHooks(shell, descriptors[0] if descriptors else None)
        app.kernel.displays = _CappedDisplays(app.session)
        app.kernel.copier = copier = copying.Copier(app, shell.nbtools_hooks, descriptors[0])
        copier.take_place(before)
    else:
        # Another client's kernel: nobody there knows our reports, and its output is not ours to cut.
        hooks.make_sendable(app.session)
        _become_the_users(app)
    _hear_before_exit()
    os.register_at_fork(after_in_child=functools.partial(_speak_plainly, shell))
    if applied.level == "strict":
        # The sockets are bound: from now on this process connects to nothing.
        confinement = message["confinement"]
        confine.lock_network(network=bool(confinement.get("network")), supervised=bool(confinement.get("supervised")))
        # IPython runs `!command` in a terminal, which is not to be had here; its other way passes the output on too.
        shell.system = shell.system_raw
    facts = {"confinement": applied.level, "missing": list(applied.missing)}
    os.write(ready, json.dumps(facts).encode())
    os.close(ready)
    app.start()
    while copier is not None and copier.is_asked:
        orders = copier.copy()
        if orders is not None:
            copier.context.run(_serve_as_the_copy, app, copier, orders)
        else:
            with contextlib.suppress(KeyboardInterrupt):
                app.io_loop.start()


def _serve_as_the_copy(app: Any, copier: copying.Copier, orders: Mapping[str, Any]) -> None:
    """In a copy: make a kernel with its own sockets and threads around all that the shell has, and serve."""
    before, shell, displays = copying.parts(), app.shell, app.kernel.displays
    os.environ[process_tree.MARK] = orders["id"]
    take_name(orders["id"])
    if not orders["is_heir"]:
        _leave_the_end_to_the_original()
    # What printed plainly is for processes that a script forks.
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    vars(shell).pop("_showtraceback", None)
    names = ("shell_socket", "stdin_socket", "control_socket", "debugpy_socket", "debug_shell_socket", "iopub_socket")
    parts = (
        *names,
        "context",
        "iopub_thread",
        "heartbeat",
        "kernel",
        "control_thread",
        "shell_channel_thread",
        "io_loop",
    )
    _inherited.append(([getattr(app, part, None) for part in parts], [dict(vars(one)) for one in _streams.values()]))
    app.context = app.control_thread = app.shell_channel_thread = None
    type(app.kernel).clear_instance()
    app.kernel, app._ports = None, {}  # noqa: SLF001 - there is no public way
    asyncio.set_event_loop(asyncio.new_event_loop())
    with shell.nbtools_hooks.end.owning():
        _connect(orders["connection"])
    for end in (app.close, app.iopub_thread.stop):
        atexit.unregister(end)  # it would end the kernel before its last reply is sent
    app.kernel.displays, app.kernel.copier = displays, copier
    shell.nbtools_hooks.move_in(orders["channel"])
    copier.take_place(before)
    random.setstate(copier.random)
    app.start()


def _leave_the_end_to_the_original() -> None:
    """In a copy: remove and do nothing at the end, which is the original's to do; temporary files are files, too."""
    finalizers: Any = weakref.finalize
    for finalizer in list(finalizers._registry):  # noqa: SLF001 - there is no public way
        finalizer.detach()
    atexit._clear()  # noqa: SLF001 - the interpreter's own way
    tempfile: Any = importlib.import_module("tempfile")
    closer = tempfile._TemporaryFileCloser  # noqa: SLF001 - the same
    # Of those that there are, which take long to find among all objects; that one is closed does not say it is gone.
    tempfile._TemporaryFileCloser = type(closer.__name__, (closer,), {"delete": True})  # noqa: SLF001 - the same
    closer.delete = property(lambda _: False)


def _settle(message: Mapping[str, Any]) -> None:
    """Take on the environment and the folder, and give up what the zygote decided for itself."""
    # The fork shows the zygote's variables otherwise, and the owner's may have changed since.
    os.environ.clear()
    os.environ.update(message["env"])
    os.environ[process_tree.MARK] = message["id"]
    os.environ["MPLBACKEND"] = _INLINE
    time.tzset()
    tempfile: Any = importlib.import_module("tempfile")
    tempfile.tempdir = None
    if message.get("cwd"):
        os.chdir(message["cwd"])
    # Python's own generator reseeds itself after a fork, numpy's does not.
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random").seed(None)


def _connect(connection: Mapping[str, Any]) -> Any:
    """Open sockets, start threads, make the kernel: the second half of `IPKernelApp.initialize`."""
    from ipykernel.kernelapp import IPKernelApp
    from jupyter_client.session import new_id

    app: Any = IPKernelApp.instance()
    _kernel["pid"] = os.getpid()
    # Each fork needs its own identity: clients tell a restarted kernel by it.
    app.session.set_trait("session", new_id())
    app.session.set_trait("pid", os.getpid())
    app.session.set_trait("key", connection["key"].encode())
    app.transport, app.ip = connection["transport"], connection["ip"]
    for name in ("shell", "iopub", "stdin", "control", "hb"):
        setattr(app, f"{name}_port", connection[f"{name}_port"])
    app.init_sockets()
    app.init_heartbeat()
    app.log_connection_info()
    app.init_io()
    app.init_signal()
    with _few_modules():
        app.init_kernel()
    app.shell.kernel = app.kernel
    app.init_path()
    app.init_shell()
    sys.stdout.flush()
    sys.stderr.flush()
    return app


def _become_the_users(app: Any) -> None:
    """Take on what an ordinary kernel has of its user: modules beside the notebook, profile, configuration, start-up.

    It comes after the sockets and threads, as in an ordinary kernel: start-up files may do anything.
    """
    # The zygote is started with -P, which keeps IPython from doing this.
    if "" not in sys.path:
        names = [os.path.basename(entry) for entry in sys.path]  # noqa: PTH119 - strings all along
        installed = (at for at, name in enumerate(names) if name in {"site-packages", "dist-packages"})
        sys.path.insert(next(installed, 0), "")
    shell, traits = app.shell, type(app).class_traits()
    # What the zygote found lies in its own folder.
    app.ipython_dir = importlib.import_module("IPython.paths").get_ipython_dir()
    app.profile_dir, app.config_file_paths = None, [os.getcwd()]  # noqa: PTH109 - as IPython has it
    app.config = importlib.import_module("traitlets.config").Config({"HistoryManager": {"hist_file": ":memory:"}})
    app.extensions = traits["extensions"].default(app)
    shell.colors = type(shell).class_traits()["colors"].default(shell)
    app.init_profile_dir()
    app.init_config_files()
    app.load_config_file()
    shell.profile_dir = app.profile_dir
    for part in (shell, app.kernel, *(part for part in shell.configurables if part is not app)):
        part.config = app.config.copy()
    app.init_gui_pylab()
    app.init_extensions()
    app.init_code()


def rehearse() -> None:
    """In a spare: run the steps of most scripts once, so that the memory they write is copied before a script waits.

    Every megabyte spares a script some 250 page faults. Drawing a chart as well would take eight more in every spare.
    """
    pandas: Any = sys.modules.get("pandas")
    if pandas is not None:
        frame = pandas.read_csv(io.StringIO("a,b\n1,x\n2.5,y\n"))
        frame.describe().to_string()
        frame.groupby("b")["a"].mean()
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(pyplot.figure())
    hooks.rehearse()


@contextlib.contextmanager
def _few_modules() -> Any:
    """Show ipykernel a short list of modules while it makes a kernel.

    It looks at the file of each of the thousands of modules, for a debugger that is not there. Looking writes into
    every one of them, which copies 6 MB of pages that forks otherwise share.
    """
    ipkernel: Any = importlib.import_module("ipykernel.ipkernel")
    ipkernel.sys = types.SimpleNamespace(**{**vars(sys), "modules": {}})
    try:
        yield
    finally:
        ipkernel.sys = sys


def _hear_before_exit() -> None:
    """Make `os._exit` wait for what children have written: the threads that read it would end with the process."""
    leave = os._exit

    @functools.wraps(leave)
    def leave_politely(status: int) -> NoReturn:
        try:
            # Processes that the script forked have other streams, and none of the threads.
            if os.getpid() == _kernel["pid"]:
                for stream in _streams.values():
                    stream.watcher.settle(_LAST_SETTLE_S)
        finally:
            leave(status)

    os._exit = leave_politely


def _speak_plainly(shell: Any) -> None:
    """In processes that the script forks: print to the descriptors that the kernel watches; no ZeroMQ after a fork."""
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - same
    # The one of a kernel sends it.
    shell._showtraceback = lambda *parts: sys.stderr.write("\n".join([*parts[-1], ""]))  # noqa: SLF001 - IPython's hook
