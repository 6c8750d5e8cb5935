"""What a script finds around it inside its kernel: folder, names, figures, memory, and the report on how it ended.

A forked kernel has imported this module before; any other Python kernel gets its text over the wire, wherever it runs.
Therefore it uses only the standard library and finds everything else, IPython first of all, when it is called.

`begin` is told the context of the next script. Two hooks do the rest: after a cell the open figure is saved if that was
asked for, and a report goes out as a display of a private MIME type, which the owner takes out of the stream: the line
of the script that failed, the exit code, what became of the figure.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import io
import itertools
import os
import pathlib
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any

REPORT = "application/vnd.nbtools.report+json"
_LARGE = 1 << 20
_INLINE = "module://matplotlib_inline.backend_inline"
# Where nbtools may not be installed, its text was sent before; the version there might be another one.
_streams: Any = sys.modules.get("nbtools_streams") or importlib.import_module("nbtools.kernels.inside.streams")
_loops: Any = sys.modules.get("nbtools_event_loops") or importlib.import_module("nbtools.kernels.inside.event_loops")
_ends: Any = sys.modules.get("nbtools_program_end") or importlib.import_module("nbtools.kernels.inside.program_end")
_memory: Any = sys.modules.get("nbtools_memory") or importlib.import_module("nbtools.kernels.inside.memory")
_pictures: Any = sys.modules.get("nbtools_pictures") or importlib.import_module("nbtools.kernels.inside.pictures")
_writers: Any = sys.modules.get("nbtools_writers") or importlib.import_module("nbtools.kernels.inside.writers")
_values: Any = sys.modules.get("nbtools_values") or importlib.import_module("nbtools.kernels.inside.values")


class CellHooks:
    """The hooks of one kernel.

    Parameters
    ----------
    shell
        IPython's shell.
    channel
        Descriptor of the socket that leads to the owner's memory; `None` when there is none.
    """

    def __init__(self, shell: Any, channel: int | None) -> None:
        self.shell = shell
        self.memory = _memory.Memory(channel) if channel is not None else None
        if hasattr(shell.display_pub, "session"):
            make_sendable(shell.display_pub.session)
        # IPython would keep all output a second time, for a history that nobody reads.
        if hasattr(shell, "_tee"):
            shell._tee = lambda **_: contextlib.nullcontext()  # noqa: SLF001 - there is no public way
        self._folder: str | None = None
        self._figure_path: str | None = None
        self._before: tuple[int, int, int] | None = None
        self._last_shown: Any = None
        self._figure: str | None = None
        self._wants_value = False
        self._value_names: list[str] = []
        self._value_folder: str | None = None
        self._earlier: dict[str, Any] = {}
        self._last_folder = next((one for one in reversed(sys.path_importer_cache) if not _is_passing(one)), "")
        events = shell.events
        events.register("pre_execute", self._cap_streams)
        events.register("post_run_cell", self._report)
        events.register("post_execute", self._after)
        # The inline backend closes figures in its own hook, so ours comes first.
        events.callbacks["post_execute"].insert(0, events.callbacks["post_execute"].pop())
        shell.display_formatter.mimebundle_formatter.for_type_by_name("matplotlib.figure", "Figure", self._remember)
        for version in ("v5", "v6"):
            charts = shell.display_formatter.mimebundle_formatter
            charts.for_type_by_name(f"altair.vegalite.{version}.api", "TopLevelMixin", _pictures.chart_bundle)
        # IPython's own would shut the kernel down, and `sys.exit` stays what it is.
        leave = _ends.ExitCommand()
        for name in ("exit", "quit"):
            shell.user_ns[name] = leave
            shell.user_ns_hidden[name] = leave
        warnings.filterwarnings("ignore", message="To exit: use 'exit'")
        os.environ["MPLBACKEND"] = _INLINE
        self.end = _ends.ProgramEnd(shell, self.publish)
        self._ends, self._is_over = "", False
        self._writers: Any = None
        self._take_place()
        _loops.LoopsBeside()

    def _take_place(self) -> None:
        """Stand before the streams and the kernel."""
        streams = [stream for stream in (sys.stdout, sys.stderr) if hasattr(stream, "pub_thread")]
        for thread in {stream.pub_thread for stream in streams}:
            # Its own first message makes it a socket, for which a script may leave no descriptor: all output was lost.
            thread.schedule(functools.partial(thread.schedule, bool))
        self._caps = [_streams.Cap(stream, lambda: self.publish({"overflow": True})) for stream in streams]
        if (kernel := getattr(self.shell, "kernel", None)) is not None:
            kernel.do_execute = self._to_the_end(kernel.do_execute)
            kernel.raw_input = kernel.getpass = _ends.refuse_to_ask

    def move_in(self, channel: int) -> None:
        """In a copy: serve the streams, the kernel and the channel that are its own."""
        assert self.memory is not None
        self.memory._use(channel)  # noqa: SLF001 - a script would see a public name
        self._take_place()
        self.end.move_in()

    def _to_the_end(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Return what executes a cell, and ends the script with it where it is the script's last one."""

        @functools.wraps(execute)
        async def execute_and_end(*args: Any, **kwargs: Any) -> Any:
            reply = await execute(*args, **kwargs)
            if self._is_over:
                self._is_over = False
                try:
                    await self.end.run(patient=reply.get("ename") != "KeyboardInterrupt")
                except (Exception, KeyboardInterrupt):
                    # The script may have broken what ends it; without a reply nobody would know.
                    with contextlib.suppress(Exception):
                        traceback.print_exc()
                self._settle()
            if self._writers is not None:
                others = self._writers.others()
                self._writers.close()
                if others is not None:
                    self.publish(dict(zip(("others", "has_children"), others, strict=True)))
            return reply

        return execute_and_end

    def begin(self, context: Mapping[str, Any]) -> None:
        """Make the context of the next script."""
        for cap in self._caps:
            cap.begin(context["text_bytes"])
        self._ends = context.get("ends", "")
        if self._writers is not None:
            self._writers.close()
        watched = context.get("watched")
        self._writers = _writers.Writers(watched) if watched else None
        self._name_script(context.get("file"), context.get("last_words"))
        self._last_shown = self._figure = None
        self._figure_path = context.get("figure_path")
        self._wants_value = bool(context.get("wants_value"))
        self._before = _stat(self._figure_path)
        folder = context.get("cwd")
        if folder:
            os.chdir(folder)
            if self._folder in sys.path:
                sys.path.remove(self._folder)
            sys.path.insert(0, folder)
            self._folder = folder
        # After the change of folder: the links lie in it.
        for name, path in (context.get("links") or {}).items():
            _link(name, path)
        _look_again(self._last_folder)
        names = self.shell.user_ns
        variables = context.get("variables") or {}
        names.update(_values.loaded(variables, tables=self._wants_value))
        self._value_names, self._value_folder = context.get("value_names") or [], context.get("value_folder")
        self._earlier = {name: names[name] for name in self._value_names if name in names}
        if self._figure_path:
            names["output_image_path"] = self._figure_path
            with contextlib.suppress(OSError):
                pathlib.Path(self._figure_path).parent.mkdir(parents=True, exist_ok=True)
        if context.get("memory") and self.memory is not None:
            names["memory"] = self.memory
        # A session must not keep the memory of an earlier run. What the script itself called so stays.
        elif isinstance(names.get("memory"), _memory.Memory):
            del names["memory"]
        if self._ends == "script":
            self.end.begin()

    def _name_script(self, file: str | None, last_words: str | None) -> None:
        """Tell the script where it stands, and its streams where they leave their last words."""
        self.shell.user_ns.pop("__file__", None)  # of an earlier run, whose file is gone
        if file:
            self.shell.user_ns["__file__"] = file
            sys.argv[:] = [file]
        if last_words and self._caps and self._caps[0].words is None:
            # Files may be limited to less: then nothing but what a crash cuts off is missing.
            with contextlib.suppress(OSError):
                # The file's map holds a descriptor that could be a file of the script.
                with self.end.owning():
                    words = _streams.LastWords(last_words)
                for cap in self._caps:
                    cap.words = words
                self.end.settle_in()
        if last_words and self._caps and self._caps[0].words is not None:
            self._caps[0].words.begin()

    def variables(self) -> list[dict[str, Any]]:
        """Describe what the session has defined: name, type, shape or length, the start of its text."""
        hidden = self.shell.user_ns_hidden
        rows = []
        for name, value in list(self.shell.user_ns.items()):
            if name.startswith("_") or (name in hidden and hidden[name] is value) or isinstance(value, _memory.Memory):
                continue
            rows.append({"name": name, "type": type(value).__name__, "size": _size(value), "text": _brief(value)})
        return rows

    def _cap_streams(self) -> None:
        # Now, because the request that made the hooks puts back what it has found in the streams.
        for cap in self._caps:
            cap.attach()

    def publish(self, report: Mapping[str, Any]) -> None:
        """Send a report to the owner; processes that the script forks have none."""
        if self.end.is_here:
            self.shell.display_pub.publish(data={REPORT: dict(report)}, metadata={})

    def _remember(self, figure: Any, *_: Any, **__: Any) -> None:
        # A formatter that formats nothing: it only learns which figure was shown last, because the inline
        # backend's show() closes what it shows.
        self._last_shown = figure

    def _after(self) -> None:
        if not self.end.is_here:
            error = _error(self.shell.last_execution_result)
            self.end.leave(0 if error is None else _exit_code(error))
        open_figures = _pictures.open_figures()
        is_wanted = self._figure_path and self._figure is None and not self._has_failed()
        if is_wanted and _stat(self._figure_path) == self._before:
            self._save(open_figures[-1] if open_figures else self._last_shown)
        if open_figures and not _pictures.is_inline():
            # The script chose a backend that shows nothing: a picture would be lost.
            self._show(open_figures)

    def _has_failed(self) -> bool:
        # The hook is not told the result, and the inline backend closes the figures before the one that is.
        error = _error(self.shell.last_execution_result)
        return error is not None and _exit_code(error) != 0

    def _save(self, figure: Any) -> None:
        if figure is None:
            return
        path, buffer = pathlib.Path(str(self._figure_path)), io.BytesIO()
        kind = path.suffix[1:].lower()
        try:
            with _pictures.unheard_warnings():
                box = _pictures.tight_box(figure) if kind == "png" else "tight"
                # A figure that cannot be drawn would leave half a file in place of a good one.
                figure.savefig(buffer, format=kind or None, bbox_inches=box)
            path.write_bytes(buffer.getvalue())
            self._figure = "saved"
        except Exception as exc:
            self._figure = f"{type(exc).__name__}: {exc}"

    def _show(self, figures: list[Any]) -> None:
        pyplot = sys.modules["matplotlib.pyplot"]
        try:
            for figure in figures:
                data = {"image/png": _pictures.print_figure(figure), "text/plain": repr(figure)}
                self.shell.display_pub.publish(data=data, metadata={})
        finally:
            pyplot.close("all")

    def _report(self, result: Any) -> None:
        # An interrupt is sent a second time when the end takes long; it is meant for the cell, which is over.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._tell_the_end(result)
        finally:
            signal.signal(signal.SIGINT, before)

    def _value(self, last: Any) -> tuple[Any, str]:
        """Return what the script assigned to one of the names that were asked for, else its last expression."""
        names, missing = self.shell.user_ns, object()
        for name in self._value_names:
            value = names.get(name, missing)
            if value is not missing and value is not self._earlier.get(name, missing):
                return value, name
        return last, _values.LAST

    def _settle(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            _streams.settle(stream)

    def _tell_the_end(self, result: Any) -> None:
        self._is_over = bool(self._ends)
        self._settle()
        report: dict[str, Any] = {}
        error = _as_python_says(_error(result), result.info.raw_cell)
        if self._figure_path and self._figure is None and error is None and _stat(self._figure_path) == self._before:
            self._figure = _pictures.export(
                result.result, self.shell.user_ns, str(self._figure_path), self.shell.display_formatter
            )
        if isinstance(error, SystemExit):
            report["exit_code"] = _exit_code(error)
            if not isinstance(error.code, int | None):
                sys.stderr.write(f"{error.code}\n")
        if error is not None:
            report["line"] = _line(error, self.shell.user_ns)
        # Its text would repeat file and line; the report has the line already.
        if isinstance(error, SyntaxError):
            report["value"] = error.msg
        if self._figure is not None:
            report["figure"] = self._figure
        if self._wants_value and error is None:
            self._wants_value = False
            value, of = self._value(result.result)
            report |= _values.report(value, self._value_folder, of)
        if report:
            self.publish(report)


def _as_python_says(error: BaseException | None, source: str) -> BaseException | None:
    """Return an error as Python itself has it: IPython calls input with an open bracket incomplete."""
    if isinstance(error, SyntaxError) and error.msg == "incomplete input":
        try:
            compile(source, "script", "exec", dont_inherit=True)
        except SyntaxError as exc:
            return exc
    return error


def _look_again(last_folder: str) -> None:
    """Let modules be found that were written a moment ago: finders cache what a folder held.

    Only a folder that was listed a moment ago has the same time as before. Those of packages, up to `last_folder`, were
    listed before there was a kernel, and lie in hundreds of pages of memory that forks share until they are touched.
    """
    folders = sys.path_importer_cache
    # As a list at once: a thread may import meanwhile.
    new = itertools.takewhile(lambda folder: folder != last_folder, [*reversed(folders)])
    looked = (*sys.path, *new)
    for folder in filter(_is_passing, looked):
        folders.pop(folder, None)
    finders: tuple[Any, ...] = (*sys.meta_path, *map(folders.get, looked))
    for finder in finders:
        if finder is not importlib.machinery.PathFinder and hasattr(finder, "invalidate_caches"):
            finder.invalidate_caches()


def _is_passing(folder: str) -> bool:
    """Tell whether what is known of a folder may end: it was not there, or its name depends on where one works."""
    return sys.path_importer_cache.get(folder) is None or not os.path.isabs(folder)  # noqa: PTH117 - text


def _link(name: str, path: str) -> None:
    """Put a link to a file into the working folder, in place of an older link; the script's own file stays."""
    link = pathlib.Path(name)
    with contextlib.suppress(OSError):
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():
            link.unlink()
        link.symlink_to(path)


def _error(result: Any) -> BaseException | None:
    """Return the exception that ended a cell."""
    return getattr(result, "error_before_exec", None) or getattr(result, "error_in_exec", None)


def _exit_code(error: BaseException) -> int:
    """Return the exit code that an exception stands for."""
    code = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) else 0 if code is None else 1


def make_sendable(session: Any) -> None:
    """Let the session send text with lone surrogates, written as Python's ``repr`` does, and what memory hardly holds.

    JSON cannot hold them: a message with one is lost, and with an error or a reply the end of the script. What is large
    is packed by Python: orjson, which others are packed by, ends the process where it gets no memory.
    """
    pack: Callable[[Any], bytes] = session.pack
    pack_large: Callable[[Any], bytes] = importlib.import_module("jupyter_client.session").json_packer

    def packed(part: Any) -> bytes:
        if _is_large(part):
            return pack_large(_visible(part))
        try:
            packed_part = pack(part)
            packed_part.decode()
        except UnicodeError:
            return pack(_visible(part))
        return packed_part

    session.pack = packed


def _is_large(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    data = part.get("data")
    texts = (part.get("text"), *(data.values() if isinstance(data, dict) else ()))
    # Of a list or a mapping nobody knows how large it is.
    return any(len(one) > _LARGE if isinstance(one, str) else one is not None for one in texts)


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_visible(key): _visible(one) for key, one in value.items()}
    return [_visible(one) for one in value] if isinstance(value, list | tuple) else value


def _line(error: BaseException, names: Mapping[str, Any]) -> int | None:
    """Return the line of the script itself at which the error left it."""
    trace = traceback.walk_tb(error.__traceback__)
    frames = [(frame.f_code.co_filename, line) for frame, line in trace if frame.f_globals is names]
    if frames:
        script = frames[0][0]
        return [line for name, line in frames if name == script][-1]
    return error.lineno if isinstance(error, SyntaxError) else None


def _stat(path: str | None) -> tuple[int, int, int] | None:
    try:
        status = pathlib.Path(path).stat() if path else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino) if status else None


def _size(value: Any) -> str | None:
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            return " x ".join(str(part) for part in shape)
        return str(len(value))
    except Exception:
        return None


def _brief(value: Any) -> str:
    # The text of a large table takes seconds, and that of a function says nothing.
    if hasattr(value, "__dataframe__") or callable(value):
        return ""
    try:
        text = repr(value)
    except Exception:
        return ""
    return text if len(text) <= 200 else text[:199] + "…"


def _install() -> CellHooks:
    shell = importlib.import_module("IPython").get_ipython()
    hooks: CellHooks | None = getattr(shell, "nbtools_hooks", None)
    if hooks is None:
        fd = os.environ.get("NBTOOLS_CHANNEL")
        hooks = CellHooks(shell, int(fd) if fd else None)
        shell.nbtools_hooks = hooks
    return hooks


def begin(context: Mapping[str, Any]) -> None:
    """Make the context of the next script; installs the hooks at first use."""
    _install().begin(context)


def rehearse() -> None:
    """Take the steps of a script's end once; see `ProgramEnd.rehearse`."""
    _install().end.rehearse()


def variables() -> None:
    """Send the owner a report that lists what the session has defined."""
    hooks = _install()
    hooks.publish({"variables": hooks.variables()})
