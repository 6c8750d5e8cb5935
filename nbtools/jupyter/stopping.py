"""Stop and Ctrl-C while a cell runs: they never end an import that nbtools has begun halfway.

Python hands an interrupt to the main thread between any two steps, also inside of an import. There it may leave the
module's lock held, so that every later import of it waits for ever, and half a module behind, which compiled ones do
not survive. So while a cell runs, an interrupt is looked at first: where one of our frames is on the stack and a module
is being imported, no matter by whom (ours, or a library that we called), it is held back and tried again until
the import is through. Elsewhere in our frames it comes at once, as an error of three lines; in code that is not ours it
is what it was before. One that was held back is that error wherever it comes through, and nothing after the cell.

While no cell runs, a kernel of Jupyter takes no notice of an interrupt: then it stops what widgets were asked for.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
import traceback
from types import FrameType
from typing import Any

from nbtools.errors import Interrupted

_AGAIN_S = 0.02
_PATIENCE_S = 20.0  # an import that takes longer may hang: then a Stop ends it
_IMPORTING = "<frozen importlib._bootstrap>"


class Stopping:
    """What an interrupt does in the cells of one shell.

    Parameters
    ----------
    shell
        The IPython shell.

    Attributes
    ----------
    is_stopped
        Whether an interrupt came to our code in this cell; some that we call, such as DuckDB, answer it by an error of
        their own.
    """

    def __init__(self, shell: Any) -> None:
        self._shell, self._runs_cells = shell, shell.run_code.__code__
        self._before: Any = None
        self._held_since: float | None = None
        self._sending = threading.Lock()
        self.is_stopped = False

    def load(self) -> None:
        """Look at the interrupts of the next cells, and of this one where a cell loads us."""
        self._shell.events.register("pre_run_cell", self._begin)
        self._shell.events.register("post_run_cell", self._end)
        self._between_cells(signal.SIG_IGN, _interrupt_widgets)
        if self._is_in_cell(None):
            self._begin()

    def unload(self) -> None:
        """Look at none any more."""
        self._shell.events.unregister("pre_run_cell", self._begin)
        self._shell.events.unregister("post_run_cell", self._end)
        self._between_cells(_interrupt_widgets, signal.SIG_IGN)
        self._end()

    def _between_cells(self, before: Any, after: Any) -> None:
        """Let the kernel put a handler back behind each message, where it would put back the one of before."""
        kernel: Any = getattr(self._shell, "kernel", None)
        if getattr(kernel, "saved_sigint_handler", None) == before:
            kernel.saved_sigint_handler = after

    def _begin(self, *_: object) -> None:
        # Only the main thread gets interrupts, and someone may want to have none.
        if self._before is None and threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):
                self._before, self.is_stopped = before, False
                signal.signal(signal.SIGINT, self._interrupt)

    def _end(self, *_: object) -> None:
        if self._before is not None and threading.current_thread() is threading.main_thread():
            self._let_through()  # what is still held back came too late
            if signal.getsignal(signal.SIGINT) == self._interrupt:  # a cell may have put another one there
                signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code is Stopping._let_through.__code__:
            return  # it was sent again while it came through
        is_ours, is_importing = self._look(frame)
        since, now = self._held_since, time.monotonic()
        if is_ours and is_importing and (since is None or now - since < _PATIENCE_S):
            if since is None:
                self._held_since = now
                # Bare: the interrupted frame may hold what starting a `Thread` takes.
                _thread.start_new_thread(self._try_again, ())
            return
        self._let_through()
        if is_ours or (since is not None and self._is_in_cell(frame)):
            self.is_stopped = True
            raise Interrupted
        if since is None:
            self._before(number, frame)

    def _let_through(self) -> None:
        """Hold back nothing more; what was sent until then arrives in here, and counts no second time."""
        with self._sending:
            self._held_since = None

    def _try_again(self) -> None:
        while True:
            time.sleep(_AGAIN_S)
            with self._sending:
                if self._held_since is None:
                    return
                if hasattr(signal, "pthread_kill"):
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # also ends a wait on a lock
                else:
                    _thread.interrupt_main()

    def _is_in_cell(self, frame: FrameType | None) -> bool:
        return any(caller.f_code is self._runs_cells for caller, _ in traceback.walk_stack(frame))

    def _look(self, frame: FrameType | None) -> tuple[bool, bool]:
        """Tell whether the cell's code is in nbtools, and whether it imports a module."""
        is_ours = is_importing = False
        for caller, _ in traceback.walk_stack(frame):
            if caller.f_code is self._runs_cells:
                break
            is_importing = is_importing or caller.f_code.co_filename == _IMPORTING
            is_ours = is_ours or str(caller.f_globals.get("__name__")).startswith("nbtools.")
        return is_ours, is_importing


def _interrupt_widgets(*_: object) -> None:
    live: Any = sys.modules.get("nbtools.widgets.live.live_widget")
    if live is not None:
        # In a thread: the main one may hold what stopping takes.
        _thread.start_new_thread(live.LiveWidget.interrupt, ())
