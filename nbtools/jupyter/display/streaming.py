"""Output while the work runs: streams and displays go to the cell as they appear, long work shows its time.

Jupyter reads off a context variable which cell an output belongs to. `Live` keeps the variables of the cell that asked
and uses them for every output: what calls it may be older than the cell, such as the reader of a kernel that was
started ahead while another cell ran.

The time is a separate display above the output, and nothing of it stays: protocols of notebooks can empty a display
and clear a cell, and remove nothing in between. So where the magic is all of its cell, the cell is cleared and shown
again, with the time above it and in the end without; elsewhere the display is emptied. A kernel that is killed or
restarted meanwhile can do neither. So the text is true whenever it is read, because it says when it was written, and
its style hides it in a browser once no newer one has come for a while.

A cell shows the beginning of a flood and its last lines: front ends lay out every line that they are given.
"""

from __future__ import annotations

import asyncio
import contextvars
import html
import re
import sys
import time
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from nbtools.ground.telemetry import fresh_id
from nbtools.jupyter.catalogue import CATALOGUE
from nbtools.kernels.interface import DISPLAY_ID
from nbtools.texts.shown import STREAMS, RunOutputs, read_text

T = TypeVar("T")

_SHOW_AFTER_S = 2.0
_EVERY_S = 1.0
_MOST_LINES, _MOST_CHARACTERS = 2_000, 200_000
_LAST_LINES, _LAST_CHARACTERS = 10, 4_000
_MOST_DISPLAYS = 500
_MOST_AGAIN = 2_000_000  # characters that are sent to the cell a second time
# Charts that some front ends draw themselves; the others need a picture.
_CHARTS = ("application/vnd.plotly", "application/vnd.vegalite")
_NAMES = "|".join(name for entry in CATALOGUE for name in entry.names)
_ALONE = re.compile(rf"\s*(?:\w+\s*<<\s*)?(?:%%(?:{_NAMES})\b|%(?:{_NAMES})\b[^\n]*\s*\Z)")
_STYLE = "color:var(--jp-ui-font-color2,#777);font-size:85%;animation:nbtools-over 0s 8s forwards"
_OVER = "<style>@keyframes nbtools-over{to{visibility:hidden;position:absolute}}</style>"


class _Window:
    """What a cell shows of streams: the beginning, and of what is missing the last lines."""

    def __init__(self) -> None:
        self._lines, self._characters = _MOST_LINES, _MOST_CHARACTERS
        self._missing = self._missing_lines = 0
        self._tail = ""

    def part(self, text: str) -> str:
        """Return what is shown of the next piece."""
        piece = "" if self._missing else text[: self._characters]
        lines = piece.split("\n", self._lines)
        if len(lines) > self._lines:
            piece = "".join(f"{line}\n" for line in lines[: self._lines])
        self._lines -= piece.count("\n")
        self._characters -= len(piece)
        rest = text[len(piece) :]
        self._missing += len(rest)
        self._missing_lines += rest.count("\n")
        self._tail = (self._tail + rest)[-_LAST_CHARACTERS:]
        return piece

    def end(self) -> str:
        """Return what is shown at the end: how much is missing, and the last of it."""
        if not self._missing:
            return ""
        last = "".join(self._tail.splitlines(keepends=True)[-_LAST_LINES:])
        lines, characters = self._missing_lines - last.count("\n"), self._missing - len(last)
        if not characters:
            return last
        where = "they are in the data of the result, under stdout and stderr"
        what = f"{lines:,} lines ({characters:,} characters)" if lines > 1 else f"{characters:,} characters"
        return f"\n… {what} are not shown here: {where} …\n{last}"


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
    displayed
        MIME types that were shown so far.
    """

    def __init__(self, label: str, shell: Any, *, progress: bool = True) -> None:
        self._label = label
        self._shell = shell
        self._progress = progress
        self._stage = ""
        self._window = _Window()
        self._outputs = RunOutputs()
        self._again = 0
        self._displays = 0
        self._display_id: str | None = None
        # By what the notebook calls the displays of the run that can be updated: one run's "a" is not another's.
        self._names: dict[str, str] = {}
        self._chart: str | None = None
        self._owns_cell = _ALONE.match(_code_of(shell)) is not None
        self._context = contextvars.copy_context()
        self.displayed: set[str] = set()

    def has_told(self, text: str) -> bool:
        """Tell whether a text says what the cell has shown, with or without what went to standard error."""
        outputs = self._outputs.outputs
        return bool(outputs) and text.strip() in {read_text(outputs, ("stdout",)).strip(), read_text(outputs).strip()}

    def __call__(self, kind: str, text: str = "", data: Any = None) -> None:
        """Show one piece of output; see `nbtools.contract.tool.Context.emit` for the kinds."""
        # A copy each time: a context can be entered by one thread at a time only.
        self._context.copy().run(self._put, kind, text, data)

    def _put(self, kind: str, text: str, data: Any) -> None:
        if kind in STREAMS:
            self._outputs.stream(kind, text)
            self._show(kind, self._window.part(text))
        elif kind in {"display", "update"} and data:
            bundle = dict(data)
            name = self._name_of(bundle.pop(DISPLAY_ID, None), bundle)
            self.displayed.update(bundle)
            if kind == "update" and name is not None:
                self._outputs.update(bundle, name)
                self._show(kind, bundle, name)
            else:
                self._outputs.display(bundle, name)
                self._displays += 1
                if self._displays <= _MOST_DISPLAYS:
                    self._show("display", bundle, name)
        elif kind == "clear":
            self._clear(wait=text == "wait")
        elif kind == "progress":
            self._stage = text

    def _name_of(self, display_id: str | None, bundle: Mapping[str, Any]) -> str | None:
        """Return what the notebook calls a display; `None` for one that is shown once and for all."""
        if display_id is not None:
            return self._names.setdefault(display_id, fresh_id())
        if any(mime.startswith(_CHARTS) for mime in bundle):
            self._chart = fresh_id()
            return self._chart
        return None

    def _clear(self, *, wait: bool) -> None:
        """Clear the cell; with `wait` when the next output comes, which is at once."""
        self._outputs.clear()
        self._window, self._again, self._displays = _Window(), 0, 0
        # The time is gone with the rest, and is shown again in a second.
        self._chart = None
        if self._display_id != "terminal":
            self._display_id = None
        self._shell.display_pub.clear_output(wait=wait)

    def _show(self, kind: str, what: Any, name: str | None = None) -> None:
        """Show something."""
        if not what:
            return
        if self._display_id == "terminal":
            self._display_id = None
            self._write(sys.stderr, "\r\x1b[K")
        self._again += len(what) if isinstance(what, str) else sum(len(str(part)) for part in what.values())
        if kind in STREAMS:
            self._write(sys.stdout if kind == "stdout" else sys.stderr, what)
        elif name is None:
            self._publish(what)
        else:
            self._publish(what, transient={"display_id": name}, update=kind == "update")

    @staticmethod
    def _write(stream: Any, text: str) -> None:
        stream.write(text)
        stream.flush()  # or a front end sees it a fifth of a second late

    def _publish(self, data: dict[str, Any], **how: Any) -> None:
        self._shell.display_pub.publish(data=data, metadata={}, **how)

    def add_picture(self, picture: Mapping[str, Any]) -> bool:
        """Add its picture to the chart that was shown last; tell whether there is such a chart.

        A front end shows the richest form that it knows, so what needs the network to be drawn is taken out.
        """
        chart = self._outputs.bundle_of(self._chart) if self._chart is not None else None
        if chart is None:
            return False
        chart.pop("text/html", None)
        chart.update({mime: data for mime, data in picture.items() if mime.startswith("image/")})
        if hasattr(self._shell, "kernel"):
            self._publish(chart, transient={"display_id": self._chart}, update=True)
        return True

    async def watch(self, work: Awaitable[T]) -> T:
        """Await the work, showing elapsed time when it takes long."""
        clock = asyncio.ensure_future(self._tick()) if self._progress else None
        try:
            return await work
        finally:
            if clock is not None:
                clock.cancel()
            self._context.copy().run(self._end_time)

    async def _tick(self) -> None:
        begun = time.monotonic()
        await asyncio.sleep(_SHOW_AFTER_S)
        while True:
            so_far = f"running for {_elapsed_text(begun)} at {time.strftime('%Y-%m-%d %H:%M:%S')}"
            line = f"{self._label} · {so_far} {self._stage}".rstrip()
            self._context.copy().run(self._show_time, line)
            await asyncio.sleep(_EVERY_S)

    def _show_time(self, line: str) -> None:
        """Show the time so far."""
        if hasattr(self._shell, "kernel"):
            html_text = f"{_OVER}<span style='{_STYLE}'>{html.escape(line)}</span>"
            data = {"text/html": html_text, "text/plain": line}
            if self._display_id is not None:
                self._publish(data, transient={"display_id": self._display_id}, update=True)
                return
            self._display_id = fresh_id()
            self._redraw(data)
        elif sys.stderr.isatty() and not self._is_within_a_line():
            self._display_id = "terminal"
            self._write(sys.stderr, f"\r{line}\x1b[K")

    def _is_within_a_line(self) -> bool:
        kind, what = self._outputs.outputs[-1] if self._outputs.outputs else ("", "")
        return kind in STREAMS and not what.endswith("\n")

    def _redraw(self, time_so_far: dict[str, Any] | None) -> None:
        """Show the cell again, with the time above the output, or without it."""
        how = {"transient": {"display_id": self._display_id}}
        can_clear = self._owns_cell and self._again <= _MOST_AGAIN
        if not can_clear:
            self._publish(time_so_far or {}, **how, update=time_so_far is None)
            return
        # Clearing waits for what comes next, so that nothing flickers.
        self._shell.display_pub.clear_output(wait=bool(self._outputs.outputs or time_so_far))
        if time_so_far is not None:
            self._publish(time_so_far, **how)
        self._window, self._again, displays = _Window(), 0, 0
        for kind, what, name in self._outputs.named():
            displays += kind == "display"
            if kind in STREAMS:
                self._show(kind, self._window.part(what))
            elif displays <= _MOST_DISPLAYS:
                self._show(kind, what, name)

    def _end_time(self) -> None:
        """Take the time away, and say what the cell does not show."""
        if self._display_id == "terminal":
            self._write(sys.stderr, "\r\x1b[K")
        elif self._display_id is not None:
            self._redraw(None)
        self._display_id = None
        more = self._displays - _MOST_DISPLAYS
        left_out = f"\n… {more:,} displays are not shown here …\n" if more > 0 else ""
        if rest := self._window.end() + left_out:
            self._write(sys.stdout, rest)


def _code_of(shell: Any) -> str:
    """Return the text of the cell that runs; nothing where no kernel runs it."""
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return str(parent.get("content", {}).get("code", ""))


def _elapsed_text(begun: float) -> str:
    seconds = int(time.monotonic() - begun)
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
