"""`OpenGrids`: tables and explorers, which end when they can no longer be used.

In a kernel, ipywidgets holds every widget for as long as the process lives. What a notebook tells: a cell that runs
again shows another one in place of the one before, and one that was never shown has nothing but its name. Either
may still be held by a variable or by a box, and then it goes on.
"""

from __future__ import annotations

import gc
import threading
import types
import weakref
from typing import Any, ClassVar

from nbtools.widgets.grid.grid_widget import GridWidget
from nbtools.widgets.live.live_widget import cell_and_run, notebook_shell


class OpenGrids:
    """Follows those of one owner, and with those of all others which cell shows them."""

    _lock: ClassVar = threading.Lock()
    _cells: ClassVar[weakref.WeakKeyDictionary[GridWidget, tuple[Any, Any]]] = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self._own: weakref.WeakSet[GridWidget] = weakref.WeakSet()

    def add(self, grid: GridWidget) -> None:
        """Follow one more, and close those that it takes the place of."""
        cell, run = cell_and_run()
        with self._lock:
            replaced = [
                each
                for each, (its_cell, its_run) in self._cells.items()
                # What this very run has made may not have got its name yet.
                if run is not None and its_run != run
                # The cell that shows a name need not be the cell that made it.
                if not each.is_shown or (cell is not None and (each.shown_in or its_cell) == cell)
            ]
            self._cells[grid] = cell, run
            self._own.add(grid)
        _drop_named(replaced)
        for each in replaced:
            with self._lock:
                self._cells.pop(each, None)
            each.close()

    def close(self) -> None:
        """Give back what their rows took; what is on the screen stays there."""
        with self._lock:
            left = list(self._own)
            self._own.clear()
        for each in left:
            each.close_pages()


def _drop_named(widgets: list[GridWidget]) -> None:
    """Take those out of a list that something refers to beside ipywidgets, themselves, and the history of outputs."""
    if not widgets:
        return
    shell = notebook_shell()
    names, history = ({}, None) if shell is None else (shell.user_ns, shell.user_ns.get("Out"))
    ids: set[int] = set()
    for holder in gc.get_referrers(*widgets):
        of_ipython = type(holder).__module__.startswith(("IPython", "ipykernel"))
        if holder is widgets or holder is history or of_ipython or isinstance(holder, types.MethodType):
            continue
        if holder is names or holder is getattr(shell, "user_ns_hidden", None):
            ids.update(id(value) for name, value in names.items() if not name.startswith("_"))
        elif isinstance(holder, dict):
            # The registry of ipywidgets has each under its id.
            own = ((key, value) for key, value in holder.items() if isinstance(value, GridWidget))
            ids.update(id(value) for key, value in own if key != value.model_id)
        else:
            ids.update(map(id, gc.get_referents(holder)))
    widgets[:] = [each for each in widgets if id(each) not in ids]
