"""The kernel monitor: the sessions with their state, age, CPU and memory, and buttons for what changes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import traitlets

from nbtools.kernels.sessions.table import CHANGES
from nbtools.texts import html_parts
from nbtools.texts.visible import aligned
from nbtools.widgets.live.live_widget import LiveWidget, Perform, ViewRequest
from nbtools.widgets.live.sources import module_text, style_text

if TYPE_CHECKING:
    from nbtools.kernels import Kernels

_COLUMNS = ("name", "language", "state", "age_s", "cpu_s", "memory_bytes", "last_call")


class KernelMonitor(LiveWidget):
    """Shows the sessions, once a second while someone looks.

    Parameters
    ----------
    kernels
        Whose they are.
    perform
        See `nbtools.widgets.live.live_widget.Perform`.
    """

    _esm = module_text("kernel_monitor")
    _css = style_text("cards", "workflow")
    lanes: ClassVar[Mapping[str, str]] = {"change": "changes"}
    looks: ClassVar[frozenset[str]] = frozenset({"list"})
    rows: Any = traitlets.List().tag(sync=True)

    def __init__(self, kernels: Kernels, perform: Perform) -> None:
        self._kernels = kernels
        self._perform = perform
        super().__init__(title="Kernels", rows=self._listed())

    def _listed(self) -> list[dict[str, Any]]:
        return [{name: kernel.get(name) for name in (*_COLUMNS, "pid", "copy_of")} for kernel in self._kernels.list()]

    def answer_list(self, request: ViewRequest) -> list[dict[str, Any]]:
        """Return the sessions of now."""
        self.rows = self._listed()
        return self.rows  # type: ignore[no-any-return]  # what `_listed` gave

    def answer_change(self, request: ViewRequest) -> None:
        """Start, interrupt, restart or stop a session."""
        verb, name = request.args["verb"], request.args["session"]
        _, effects = CHANGES[verb]
        act = getattr(self._kernels, verb)
        self._perform(f"kernels_{verb}", lambda: act(name), arguments={"name": name}, effects=effects)

    def _cells(self) -> list[list[str]]:
        return [["" if row[name] is None else str(row[name]) for name in _COLUMNS] for row in self.rows]

    def plain_text(self) -> str:
        """Return the sessions as lines."""
        return "\n".join(aligned([_COLUMNS, *self._cells()])) if self.rows else "no sessions yet"

    def plain_html(self) -> str:
        """Return them as a table."""
        return html_parts.table(_COLUMNS, self._cells(), title=self.title, empty="no sessions yet")
