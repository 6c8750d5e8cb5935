"""A live picture of a run: one notebook display that is updated with each event, or a line for each event.

Events come on the nbtools loop, which must not wait for a front end: an event changes the state and asks for a drawing,
and a timer draws, at most five times a second. The end is drawn at once, because the cell that shows the picture
may be over right after it. Jupyter reads off a context variable which cell an output belongs to, so the variables of
the cell that made the view are kept.
"""

from __future__ import annotations

import contextvars
import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from nbtools.ground.telemetry import fresh_id
from nbtools.texts import html_parts
from nbtools.texts.redaction import redact
from nbtools.texts.visible import brief
from nbtools.workflow.runs import events
from nbtools.workflow.runs.lines import event_line
from nbtools.workflow.runs.state import RunState, step_label
from nbtools.workflow.spec import Workflow
from nbtools.workflow.views.cards import headline, progress_parts
from nbtools.workflow.views.graph import GraphDrawing
from nbtools.workflow.views.table import table

_EVERY_S = 0.2
_MOST_NOW = 8


class LiveView:
    """Follows a run; give it to ``on_event``.

    In a notebook it updates one display with the graph and the table; elsewhere it writes a line for each event. With
    `show`, it passes the state to that function instead.

    Parameters
    ----------
    workflow
        What runs.
    progress
        The progress of a run that is resumed; `None` for a new one.
    write
        Takes the lines where there is no notebook; `None` prints them.
    show
        Gets the state each time that it should be shown, and the last line of output of each running step.
    """

    def __init__(
        self,
        workflow: Workflow,
        progress: RunState | None = None,
        *,
        write: Callable[[str], None] | None = None,
        show: Callable[[RunState, Mapping[str, str]], None] | None = None,
    ) -> None:
        self._workflow = workflow
        self._drawing = GraphDrawing(workflow)
        names = [node.id for node in workflow.nodes]
        # A copy, because the run that was handed in is shown elsewhere as it was then.
        self._state = RunState.of(names, inputs={}) if progress is None else _copied(progress)
        self._now: dict[str, str] = {}
        self._write = write or print
        self._show_state = show
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._due = 0.0
        ipython = sys.modules.get("IPython")
        shell = None if ipython is None else ipython.get_ipython()
        # A terminal's IPython can display things, and cannot change them afterwards.
        self._shell = shell if hasattr(shell, "kernel") else None
        self._context = contextvars.copy_context()
        self._display_id = fresh_id()
        self._has_shown = False

    def __call__(self, event: events.RunEvent) -> None:
        """Take an event, from any thread."""
        with self._lock:
            # Lines come as they happen; a picture can wait for the next one.
            if self._shell is None and self._show_state is None:
                if line := event_line(event):
                    self._write(line)
                return
            self._state.apply(event)
            self._note(event)
            if isinstance(event, events.RunEnded):
                self.draw()
            elif self._timer is None:
                self._timer = threading.Timer(max(0.0, self._due - time.monotonic()), self._draw_in_time)
                # An interpreter that ends must not wait for a picture that no one will see.
                self._timer.daemon = True
                self._timer.start()

    def draw(self, *, is_short: bool = False) -> None:
        """Draw what is known now; only the state of the run where something else shows the rest."""
        with self._lock:
            self._stop_timer()
            if self._show_state is not None:
                self._show_state(self._state, self._now)
                self._due = time.monotonic() + _EVERY_S
                return
            as_text = f"{self._workflow.name}: {self._state.state} ({self._state.run_id})"
            parts = [headline(self._workflow.name, self._state.state, self._state.run_id, self._state)]
            if not is_short:
                as_text = f"{as_text}\n{table(self._state, self._workflow)}"
                parts += progress_parts(self._state, self._drawing.svg(self._state))
                parts += [html_parts.footer(f"{name} {text}") for name, text in list(self._now.items())[:_MOST_NOW]]
            self._show({"text/html": f"<div>{redact(''.join(parts))}</div>", "text/plain": as_text})

    def end(self) -> None:
        """Draw only the state, because something else shows the rest; nothing where the run never began."""
        if self._state.run_id:
            self.draw(is_short=True)

    def _show(self, data: dict[str, Any]) -> None:
        if self._shell is None:
            return
        publish = self._shell.display_pub.publish
        # The first display makes the output, the others change it: an update of what was never shown is dropped.
        how = {"transient": {"display_id": self._display_id}, "update": self._has_shown}
        # A copy each time: a context can be entered by one thread at a time only.
        self._context.copy().run(publish, data=data, metadata={}, **how)
        self._has_shown = True
        self._due = time.monotonic() + _EVERY_S

    def _draw_in_time(self) -> None:
        with self._lock:
            # A timer that was stopped while it waited for the lock has nothing to draw.
            if self._timer is threading.current_thread():
                self.draw()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _note(self, event: events.RunEvent) -> None:
        """Keep the last line of what each running step shows; steps of runs inside are seen only here."""
        if not isinstance(
            event, events.NodeStarted | events.NodeOutput | events.NodeEnded | events.RetryPlanned | events.NodeSkipped
        ):
            return
        item = None if isinstance(event, events.NodeSkipped) else event.item
        name = step_label(event.node, item)
        match event:
            case events.NodeStarted() if "/" in name:
                self._now[name] = "runs"
            case events.NodeOutput():
                self._now[name] = brief(event.text.strip().rpartition("\n")[2], 120) or self._now.get(name, "")
            case events.NodeEnded() | events.RetryPlanned() | events.NodeSkipped():
                self._now.pop(name, None)


def _copied(state: RunState) -> RunState:
    """Return a state that can change without the other."""
    nodes = {
        name: dataclasses.replace(node, steps=[dataclasses.replace(step) for step in node.steps])
        for name, node in state.nodes.items()
    }
    return dataclasses.replace(state, nodes=nodes)
