"""The workbench of this process: the magics and `nbtools.assembly.workbench` use the same one."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nbtools.assembly.workbench import Workbench

if TYPE_CHECKING:
    from nbtools.widgets.explorer import Explorer


class _SharedWorkbench:
    """Makes the one workbench, and a new one after that was closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workbench: Workbench | None = None
        self._prepare: Callable[[Workbench], None] | None = None

    def prepare(self, how: Callable[[Workbench], None] | None) -> None:
        with self._lock:
            self._prepare = how
            if how is not None and self._workbench is not None and not self._workbench.is_closed:
                how(self._workbench)

    def get(self) -> Workbench:
        with self._lock:
            if self._workbench is None or self._workbench.is_closed:
                self._workbench = Workbench(frames=_notebook_variable)
                atexit.register(self.close)
                if self._prepare is not None:
                    self._prepare(self._workbench)
            return self._workbench

    def close(self) -> None:
        with self._lock:
            workbench, self._workbench = self._workbench, None
        if workbench is not None:
            workbench.close()


def _notebook_variable(name: str) -> Any:
    """Return the variable of the notebook that runs in this process, if there is one."""
    # Not imported: a program without IPython has no notebook, and the import takes a tenth of a second.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return None if shell is None else shell.user_ns.get(name)


_SHARED = _SharedWorkbench()


def shared() -> Workbench:
    """Return the workbench that the magics of this process use, making it at first use."""
    return _SHARED.get()


def prepare_shared(how: Callable[[Workbench], None] | None) -> None:
    """Let a notebook prepare the workbench of this process: the present one and each that is made later.

    Parameters
    ----------
    how
        Called with a workbench, once; it may not ask for the shared one. `None` prepares none from now on.
    """
    _SHARED.prepare(how)


def explore(source: Any, **options: Any) -> Explorer:
    """Look at all rows of a file, a frame or a SELECT; see `nbtools.Workbench.explore`, also for the options."""
    return shared().explore(source, **options)


def close_shared() -> None:
    """Close the workbench of this process, if there is one; the next use makes another."""
    _SHARED.close()
