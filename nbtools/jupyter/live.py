"""Output while the work runs: streams and displays go to the cell as they appear, long work shows its time.

Jupyter reads off a context variable which cell an output belongs to. `Live` keeps the variables of the cell that asked
and uses them for every output: what calls it may be older than the cell, the reader of a kernel that was started ahead
while another cell ran, for one.
"""

from __future__ import annotations

import asyncio
import contextvars
import html
import sys
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from nbtools.telemetry import fresh_id

__all__ = ["Live"]

T = TypeVar("T")

_SHOW_AFTER_S = 2.0
_EVERY_S = 1.0
_STYLE = "color:var(--jp-ui-font-color2,#777);font-size:85%"


class Live:
    """Shows the output of one call.

    Parameters
    ----------
    label
        What runs, such as ``"data_analyze"``.
    shell
        The IPython shell.
    progress
        Whether to show the elapsed time of long work.

    Attributes
    ----------
    stdout
        What was printed so far.
    displayed
        MIME types that were shown so far.
    values
        The plain forms of what was shown and is no picture, a line each.
    """

    def __init__(self, label: str, shell: Any, *, progress: bool = True) -> None:
        self._label = label
        self._shell = shell
        self._progress = progress
        self._stage = ""
        self._parts: list[str] = []
        self._display_id: str | None = None
        self._context = contextvars.copy_context()
        self.displayed: set[str] = set()
        self.values = ""

    @property
    def stdout(self) -> str:
        """What was printed so far."""
        return "".join(self._parts)

    def __call__(self, kind: str, text: str = "", data: Any = None) -> None:
        """Show one piece of output; see `nbtools.tool.Context.emit` for the kinds."""
        # A copy each time: a context can be entered by one thread at a time only.
        self._context.copy().run(self._put, kind, text, data)

    def _put(self, kind: str, text: str, data: Any) -> None:
        if kind == "stdout":
            self._parts.append(text)
            self._write(sys.stdout, text)
        elif kind == "stderr":
            self._write(sys.stderr, text)
        elif kind == "display" and data:
            self.displayed.update(data)
            if "text/plain" in data and not any(mime.startswith("image/") for mime in data):
                self.values += f"{data['text/plain']}\n"
            self._publish(dict(data))
        elif kind == "progress":
            self._stage = text

    @staticmethod
    def _write(stream: Any, text: str) -> None:
        stream.write(text)
        stream.flush()  # or a front end sees it a fifth of a second late

    def _publish(self, data: dict[str, Any], **how: Any) -> None:
        self._shell.display_pub.publish(data=data, metadata={}, **how)

    async def watch(self, work: Awaitable[T]) -> T:
        """Await the work, showing elapsed time when it takes long."""
        if not self._progress:
            return await work
        clock = asyncio.ensure_future(self._tick())
        try:
            return await work
        finally:
            clock.cancel()
            self._settle()

    async def _tick(self) -> None:
        self._begun = time.monotonic()
        await asyncio.sleep(_SHOW_AFTER_S)
        while True:
            self._show(f"{self._label} · {_elapsed(self._begun)} {self._stage}".rstrip())
            await asyncio.sleep(_EVERY_S)

    def _show(self, line: str) -> None:
        if hasattr(self._shell, "kernel"):
            update = self._display_id is not None
            self._display_id = self._display_id or fresh_id()
            data = {"text/html": f"<span style='{_STYLE}'>{html.escape(line)}</span>", "text/plain": line}
            self._publish(data, transient={"display_id": self._display_id}, update=update)
        elif sys.stderr.isatty():
            self._display_id = "terminal"
            self._write(sys.stderr, f"\r{line}\x1b[K")

    def _settle(self) -> None:
        """Leave the time it took in a notebook, and a clean line in a terminal."""
        if self._display_id == "terminal":
            self._write(sys.stderr, "\r\x1b[K")
        elif self._display_id is not None:
            self._show(f"{self._label} took {_elapsed(self._begun)}")


def _elapsed(begun: float) -> str:
    seconds = int(time.monotonic() - begun)
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
