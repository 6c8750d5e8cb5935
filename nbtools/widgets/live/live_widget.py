"""`LiveWidget`: a widget whose views ask and get replies, on anywidget's custom messages.

What goes over the wire, each a JSON object with its kind in ``t``::

    view → kernel   ready                            a view listens from now on; nothing is sent before
                    ask     id, name, given          answered by the method answer_NAME, in the lane of that name
                    stop    id                       nobody waits for this reply any more
    kernel → view   seen                             the answer to ready, which is said until then
                    reply   id, value | error        error: message, hint, stopped
                    progress id, share               0 to 1, while a request is answered
                    tell    name, given              something happened
                    text    name, offset, text       a piece of a text that grows, and where it belongs

A view that comes late, or again after the page was reloaded, sees the traits and gets every text whole: its ``ready``
is answered by them. An exception never gets lost: it is the reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import html
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, Self, TypeVar

import anywidget
import traitlets
from comm import DummyComm
from ipywidgets.widgets import widget as registry

from nbtools.errors import Cancelled, NbtoolsError, PermissionDenied, of_the_system
from nbtools.ground import aio
from nbtools.kernels.interface import DISPLAY_ID
from nbtools.texts import html_parts
from nbtools.texts.shown import STREAMS, RunOutputs, plain_form, read_text
from nbtools.widgets.live.lanes import Lane

T = TypeVar("T")

Perform = Callable[..., Any]
"""Does something through the door: name and work, then by name ``arguments``, ``effects`` and ``origins``."""

VIEW_S = 8.0
"""Seconds that a page has to show that it hands messages on while a cell runs."""

_FIRST_VIEW_S = 0.15
_PIECES_S = 0.03  # between two pieces of a text: one for each token would be too many
# A front end whose kernel is gone says "model not found" in place of a widget: what was saved says more. It shows
# after a moment, so that it is not seen before a view hides it.
_SAVED_STYLE = """<style>
@keyframes nbt-saved { from { max-height: 0; overflow: hidden; } }
.nbt-saved { animation: nbt-saved 0s 0.6s backwards; }
.jp-OutputArea-child:has(+ * .nbt-saved) > .jp-OutputArea-output:not([data-mime-type], :has(.nbt)) { display: none; }
</style>"""
_BY_KERNEL = "it was stopped by the interrupt of the kernel; what is shown is what was there before."
_SAVED_NOTE = "as last seen; run the cell to use it"


def has_kernel() -> bool:
    """Tell whether this process is a kernel, whose front end may show widgets."""
    return getattr(notebook_shell(), "kernel", None) is not None


def has_person() -> bool:
    """Tell whether a kernel is here, and someone before it: who runs notebooks alone, as nbclient does, says so."""
    return bool(getattr(getattr(notebook_shell(), "kernel", None), "_allow_stdin", False))


def is_served() -> bool:
    """Tell whether the cell that runs is a page's, whose visitors are not those who own the kernel.

    Servers of pages, such as voila, run the notebook with nobody before it, and show its widgets to every visitor;
    marimo says that it does.
    """
    marimo: Any = sys.modules.get("marimo")
    with contextlib.suppress(Exception):  # it is not there, or this is not a cell of it
        if marimo is not None and marimo.app_meta().mode == "run":
            return True
    return has_kernel() and (not has_person() or any(name.startswith("VOILA_") for name in os.environ))


def notebook_shell() -> Any:
    """Return IPython's shell; `None` where there is none."""
    # Nothing is imported to look: without IPython there is no kernel.
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def cell_and_run() -> tuple[Any, Any]:
    """Return the id of the cell that runs, and of this run of it; `None` where the front end does not tell."""
    shell = notebook_shell()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return parent.get("metadata", {}).get("cellId"), parent.get("header", {}).get("msg_id")


class ViewRequest:
    """One request of a view, as the method that answers it sees it.

    Parameters
    ----------
    name
        What is asked for.
    arguments
        What the view sent along.
    report
        Gets the share that is done.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], report: Callable[[float], None]) -> None:
        self.name = name
        self.args = arguments
        self.report = report
        self.is_stopped = self.by_kernel = False
        self._lock = threading.Lock()
        self._interrupt: Callable[[], object] | None = None

    def stop(self, *, by_kernel: bool = False) -> None:
        """End the work: nobody waits for the answer, or the kernel's interrupt asks for it, which a view is told."""
        with self._lock:
            self.is_stopped, self.by_kernel = True, by_kernel
            if self._interrupt is not None:
                self._interrupt()

    @contextlib.contextmanager
    def interrupted_by(self, interrupt: Callable[[], object]) -> Any:
        """Call a function when the request is stopped while the block runs.

        Raises
        ------
        Cancelled
            It was stopped before.
        """
        with self._lock:
            self.check()
            self._interrupt = interrupt
        try:
            yield
        finally:
            with self._lock:
                self._interrupt = None

    def check(self) -> None:
        """Raise `Cancelled` when the request was stopped; long work calls it between its steps."""
        if self.is_stopped:
            raise Cancelled("it was stopped.", tried=f"answering {self.name}")


class GrowingText:
    """A text that grows while it is shown, sent in pieces at most every 30 ms.

    Parameters
    ----------
    send
        Sends a piece, given its offset and the text.
    """

    def __init__(self, send: Callable[[int, str], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._parts: list[str] = []
        self._sent_parts = 0
        self._offset = 0
        self._last = 0.0
        self._timer: threading.Timer | None = None

    def write(self, text: str) -> None:
        """Add text."""
        with self._lock:
            self._parts.append(text)
            if time.monotonic() - self._last >= _PIECES_S:
                self._flush()
            elif self._timer is None:
                self._timer = threading.Timer(_PIECES_S, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def replace(self, text: str) -> None:
        """Put another text in place of all."""
        with self._lock:
            self._parts, self._sent_parts, self._offset = [text], 0, 0
            self._flush(empty=True)

    def flush(self) -> None:
        """Send what was not sent yet."""
        with self._lock:
            self._flush()

    def _flush(self, *, empty: bool = False) -> None:
        self._timer = None
        piece = "".join(self._parts[self._sent_parts :])
        if piece or empty:
            self._send(self._offset, piece)
            self._sent_parts = len(self._parts)
            # The offset counts as JavaScript does: in units of UTF-16.
            self._offset += len(piece.encode("utf-16-le", "surrogatepass")) // 2
            self._last = time.monotonic()

    def again(self) -> None:
        """Send all from the start, for a view that came late."""
        with self._lock:
            self._offset = self._sent_parts = 0
            self._flush()

    def __str__(self) -> str:
        return "".join(self._parts)


class LiveWidget(anywidget.AnyWidget):
    """A widget whose views ask and get replies; see the module for what goes over the wire.

    A subclass sets ``_esm`` and ``_css`` (see `nbtools.widgets.live.sources`), answers requests by methods
    ``answer_NAME``, which run in threads and may block, and overrides `plain_text` and `plain_html`.

    Attributes
    ----------
    lanes
        The lane of a request by its name; requests that are not in it take the lane ``"main"``. Each lane answers one
        request after the other.
    looks
        The requests that change nothing and run nothing: the others are refused where a view may only look.
    """

    looks: ClassVar[frozenset[str]] = frozenset()
    lanes: ClassVar[Mapping[str, str]] = {}
    _has_shown: ClassVar[bool] = False
    _unanswered: ClassVar[set[ViewRequest]] = set()
    title = traitlets.Unicode("").tag(sync=True)
    saved_as = traitlets.Unicode("").tag(sync=True)  # the output that a view takes the place of
    read_only = traitlets.Bool(False).tag(sync=True)  # what views draw; what they may do, only this side knows

    def __init__(self, **traits: Any) -> None:
        self._requests: dict[str, ViewRequest] = {}
        self._lanes_open: dict[str, Lane] = {}
        self._texts: dict[str, GrowingText] = {}
        self._watched = threading.Event()
        self._was_put_out = False
        self.shown_in: Any = None  # the cell that did
        self._only_looks = is_served()
        super().__init__(saved_as=secrets.token_hex(6), read_only=self._only_looks, **traits)
        self.on_msg(self._receive)
        if self.comm is not None:
            # ipykernel 7 hands messages to the last writer: the thread of a cell that runs. A front end that sends
            # them to a subshell means that one, and there they are handled while the cell goes on.
            self.comm._reply_subshell_for = lambda _data, sent_to: sent_to  # noqa: SLF001 - it has no public name

    def open(self) -> None:
        """Open the connection to the front end; where there is none, leave the widget to those who refer to it.

        ipywidgets holds every widget for as long as the process lives, since a front end may ask for it.
        """
        super().open()
        for widget in (self, self.layout):
            if isinstance(widget.comm, DummyComm):
                widget.comm.close()
                registry._instances.pop(widget.model_id, None)  # noqa: SLF001 - it has no public name

    @property
    def is_shown(self) -> bool:
        """Whether a cell has shown it, by itself or in a box."""
        return self._was_put_out or self._watched.is_set()

    def hold(self, read_only: bool | None) -> Self:
        """Let views only look, or let them act again; `None` leaves it. Return the widget itself.

        Who sees a page need not be who owns the kernel: where views only look, whatever they send that would run or
        change something is refused.
        """
        if read_only is not None:
            self._only_looks = self.read_only = read_only
        return self

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take traits from a view, where it may act; ipywidgets calls this."""
        if not self._only_looks:
            super().set_state(sync_data)

    # -- to the views ------------------------------------------------------------------------------------------------

    def tell(self, name: str, **arguments: Any) -> None:
        """Tell all views that something happened; without a view nothing is sent, and what lasts belongs in a trait."""
        if self._watched.is_set():
            self.send({"t": "tell", "name": name, "given": arguments})

    def wait_for_view(self) -> bool:
        """Block until a view listens, which also shows that messages arrive now; tell whether one does in 8 seconds."""
        return self._watched.wait(VIEW_S)

    def text(self, name: str) -> GrowingText:
        """Return the text of a name, which views show while it grows."""
        if name not in self._texts:
            self._texts[name] = GrowingText(functools.partial(self._send_piece, name))
        return self._texts[name]

    def output_into(self, name: str, outputs: RunOutputs) -> Callable[..., None]:
        """Return what takes the output of a call, see `nbtools.contract.tool.Context.emit`, into a text and a list."""

        def show(kind: str, text: str = "", data: Any = None) -> None:
            bundle = dict(data) if kind in {"display", "update"} else {}
            display_id = bundle.pop(DISPLAY_ID, None)
            if kind in STREAMS:
                outputs.stream(kind, text)
                self.text(name).write(text)
            elif kind == "display":
                outputs.display(bundle, display_id)
                self.text(name).write(f"{plain_form(bundle)}\n")
            elif kind == "update":
                outputs.update(bundle, display_id)
                self.text(name).replace(read_text(outputs.outputs))
            elif kind == "clear":
                outputs.clear()
                self.text(name).replace("")

        return show

    def wait_for_call(self, request: ViewRequest, calling: Coroutine[Any, Any, T], name: str) -> T:
        """Wait for a call whose output goes to a text, which views show from now on; Stop cancels it."""
        self.tell("begins", text=name)
        running = asyncio.run_coroutine_threadsafe(calling, aio.loop())
        with request.interrupted_by(running.cancel):
            result = running.result()
        self.text(name).flush()
        return result

    def _send_piece(self, name: str, offset: int, text: str) -> None:
        if self._watched.is_set():
            self.send({"t": "text", "name": name, "offset": offset, "text": text})

    # -- from the views ----------------------------------------------------------------------------------------------

    def _receive(self, _widget: Any, message: Any, _buffers: Any) -> None:
        """Hand a message on. This runs in the thread of the cells, and what it raises would be shown nowhere."""
        kind = message.get("t") if isinstance(message, dict) else None
        if kind == "ready":
            self._watched.set()
            self.send({"t": "seen"})
            for text in list(self._texts.values()):
                text.again()
        elif kind == "stop":
            request = self._requests.get(str(message.get("id")))
            if request is not None:
                request.stop()
        elif kind == "ask":
            key, name = str(message.get("id")), str(message.get("name"))
            request = ViewRequest(name, message.get("given") or {}, functools.partial(self._report, key))
            self._requests[key] = request
            self._unanswered.add(request)
            lane = self._lanes_open.setdefault(self.lanes.get(name, "main"), Lane(f"nbtools-{type(self).__name__}"))
            try:
                lane.put(functools.partial(self._answer, key, request))
            except NbtoolsError as exc:  # no thread to be had
                self._unanswered.discard(request)
                self.send({"t": "reply", "id": key, "error": _error_fields(exc, stopped=False)})

    @classmethod
    def interrupt(cls) -> None:
        """Stop what any view waits for: a person interrupts the kernel while no cell runs."""
        for request in list(cls._unanswered):
            request.stop(by_kernel=True)

    def _report(self, key: str, share: float) -> None:
        self.send({"t": "progress", "id": key, "share": share})

    def _answer(self, key: str, request: ViewRequest) -> None:
        reply: dict[str, Any] = {"t": "reply", "id": key}
        try:
            request.check()
            if self._only_looks and request.name not in self.looks:
                message_text = f"this page only shows: {request.name!r} is for the owner of the notebook."
                raise PermissionDenied(message_text, hint="The owner allows it with read_only=False.")
            answer = getattr(self, f"answer_{request.name}", None)
            if answer is None:
                raise NotImplementedError(f"{type(self).__name__} answers no {request.name!r}")
            reply["value"] = answer(request)
        except Exception as exc:
            reply["error"] = _error_fields(of_the_system(exc) or exc, stopped=request.is_stopped)
            if request.by_kernel:
                reply["error"] |= {"message": _BY_KERNEL, "hint": "", "by_kernel": True}
        finally:
            self._requests.pop(key, None)
            self._unanswered.discard(request)
        with contextlib.suppress(Exception):  # the connection may be gone by now, and then nobody waits
            self.send(reply)

    def close(self) -> None:
        """Stop what is being answered and remove all views."""
        # ipywidgets closes what Python collects, also what was never finished.
        # A copy: a request that is stopped takes itself out of the mapping.
        for request in list(getattr(self, "_requests", {}).values()):
            request.stop()
        super().close()
        self.layout.close()

    # -- where no front end runs -------------------------------------------------------------------------------------

    def plain_text(self) -> str:
        """Return what a terminal shows; subclasses override it."""
        return f"{type(self).__name__}({self.title!r})"

    def plain_html(self) -> str:
        """Return what a page without scripts shows; subclasses override it. Styles may get lost, elements do not."""
        return f"<pre>{html.escape(self.plain_text())}</pre>"

    def __repr__(self) -> str:
        return self.plain_text()

    def outputs(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the outputs of a cell that shows this, each as data and metadata.

        The first is the view, the second what is saved, which a view hides. In one output a front end would choose the
        view even where nothing is left to show in it.
        """
        return [_without_forms(self._bundle()), self._saved()]

    def _saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what stays of it in a saved notebook, and is hidden while a view of it is shown."""
        body = f"{_SAVED_STYLE}{self.plain_html()}{html_parts.footer(_SAVED_NOTE)}"
        page = f'<div class="nbt-saved" data-nbt-saved="{self.saved_as}">{body}</div>'
        return {"text/plain": self.plain_text(), "text/html": page}, {}

    def _bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self._note_cell()
        return bundle_of(super()._repr_mimebundle_())

    def _note_cell(self) -> None:
        self._was_put_out, self.shown_in = True, cell_and_run()[0]

    def _ipython_display_(self) -> None:
        if not has_kernel():
            raise NotImplementedError  # IPython goes on with the plain forms
        self.show()

    def show(self) -> None:
        """Show it in the cell that runs."""
        publish(self._bundle(), [self])

    def save_again(self) -> None:
        """Put what is seen now in place of what was saved when the cell ran, such as a count that came later."""
        if self._was_put_out and has_kernel():
            self._publish_saved(update=True)

    def show_saved(self) -> None:
        """Show what is saved, behind a view that was shown now.

        With the first HTML of a page, JupyterLab loads a megabyte of scripts for formulas: the first view of a kernel
        is given a moment to be there before, where the front end tells that it is while a cell runs.
        """
        self._note_cell()
        if not LiveWidget._has_shown:
            LiveWidget._has_shown = True
            self._watched.wait(_FIRST_VIEW_S)
        self._publish_saved()

    def _publish_saved(self, **how: bool) -> None:
        # Under a name, by which it can be said again.
        data, metadata = self._saved()
        named = {"transient": {"display_id": self.saved_as}, **how}
        notebook_shell().display_pub.publish(data=data, metadata=metadata, **named)

    def _repr_mimebundle_(self, **how: Any) -> Any:
        data, metadata = self._bundle() if has_kernel() else ({}, {})
        return {**data, "text/plain": self.plain_text(), "text/html": self.plain_html()}, metadata


def bundle_of(mimebundle: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the data and the metadata of what ipywidgets shows of a widget."""
    return mimebundle if isinstance(mimebundle, tuple) else (mimebundle or {}, {})


def _without_forms(bundle: tuple[dict[str, Any], dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    data, metadata = bundle
    return {**data, "text/plain": "", "text/html": ""}, metadata


def publish(bundle: tuple[dict[str, Any], dict[str, Any]], widgets: list[LiveWidget]) -> None:
    """Show a view in the cell that runs, then a text and HTML of each widget in it, which are saved."""
    data, metadata = _without_forms(bundle)
    notebook_shell().display_pub.publish(data=data, metadata=metadata)
    for widget in widgets:
        widget.show_saved()


def _error_fields(exc: Exception, *, stopped: bool) -> dict[str, Any]:
    """Return an error as a view shows it."""
    if isinstance(exc, NbtoolsError):
        return {"message": exc.message, "hint": exc.hint or "", "stopped": stopped or isinstance(exc, Cancelled)}
    return {"message": f"{type(exc).__name__}: {exc}", "hint": "", "stopped": stopped}
