"""A run of the agent in a cell: text as it is written, one line for each finished call, and what it used at the end."""

from __future__ import annotations

import asyncio
import dataclasses
import html
import json
from typing import TYPE_CHECKING

from nbtools.agent.records.events import ApprovalAsked, CallEnded, TextDelta
from nbtools.agent.records.lines import RunLines, usage_line
from nbtools.errors import Cancelled
from nbtools.jupyter.display.blocks import Block
from nbtools.jupyter.display.results import picture_bundles
from nbtools.texts import html_parts
from nbtools.texts.visible import visible

if TYPE_CHECKING:
    from nbtools.agent import AgentRun
    from nbtools.jupyter.display.streaming import Live

# A front end lays the cell out again for each output that it gets.
_EVERY_S = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class RunFooter(Block):
    """What a run has used whose text the cell has shown, and what it waits for; the cell fails by what it failed by.

    Attributes
    ----------
    run
        The run.
    """

    run: AgentRun

    def to_text(self) -> str:
        """Return what it used and, where it waits or stopped, what to do next."""
        return "\n".join([usage_line(self.run), *_next_steps(self.run)])

    def to_html(self) -> str:
        """Return the same in small letters."""
        return "".join(html_parts.footer(line) for line in self.to_text().split("\n"))


def _next_steps(run: AgentRun) -> list[str]:
    if run.state == "pending":
        names = ", ".join(item.tool for item in run.pending)
        return [f"→ it waits for approval of {names}: %agent resume {run.run_id[:8]}"]
    return ["→ that is a plan; a %%agent cell that says go carries it out"] if run.is_plan else []


class RunView:
    """Shows one run in a cell.

    Parameters
    ----------
    run
        The run.
    live
        Where its output goes.
    """

    def __init__(self, run: AgentRun, live: Live) -> None:
        self._run = run
        self._live = live
        self._lines = RunLines()
        self._seen = 0
        self._pending: list[str] = []
        self._shown_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_within_line = False

    async def follow(self) -> AgentRun:
        """Show the run to its end, and return it; a caller that is cancelled meanwhile stops it and gets it too."""
        try:
            await self._show()
        except asyncio.CancelledError:
            self._run.interrupt()
            await self._show()  # what it still says, until it has stored what the next one goes on from
        finally:
            self._write(self._line_end())
            self._flush()
        return self._run

    async def _show(self) -> None:
        number = 0
        async for event in self._run:
            number += 1
            if number <= self._seen:
                continue
            self._seen = number
            if isinstance(event, TextDelta):
                self._write(visible(event.text, lines=True))
            elif isinstance(event, CallEnded):
                self._show_call(event)
            elif line := self._lines.line(event.to_dict()):
                self._write(f"{self._line_end()}{line}\n")
            if isinstance(event, ApprovalAsked):
                self._write(self._line_end())
                self._flush()  # the question stands below what led to it

    def _line_end(self) -> str:
        return "\n" if self._is_within_line else ""

    def _write(self, text: str) -> None:
        """Show text: at once, or with what comes within the same twentieth of a second."""
        if not text:
            return
        self._pending.append(text)
        self._is_within_line = not text.endswith("\n")
        if self._timer is None:
            loop = asyncio.get_running_loop()
            wait = self._shown_at + _EVERY_S - loop.time()
            self._timer = loop.call_later(max(wait, 0.0), self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending:
            text, self._pending = "".join(self._pending), []
            self._live("stdout", text)
            self._shown_at = asyncio.get_running_loop().time()

    def _show_call(self, event: CallEnded) -> None:
        """Show a call that came back: a line that opens, and its pictures."""
        line = self._lines.line(event.to_dict())
        self._write(self._line_end())
        self._flush()
        arguments = dict(self._lines.arguments.get(event.call_id, {}))
        arguments_text = json.dumps(arguments, ensure_ascii=False, indent=1, default=str)
        result_text = str(event.result) if event.result.error else event.result.shown_text()
        inside = html_parts.preformatted(f"{event.tool} {arguments_text}") + html_parts.preformatted(result_text)
        opened = f"<details><summary>{html.escape(line)}</summary>{inside}</details>"
        self._live("display", data={"text/plain": line, "text/html": opened})
        if event.result.error and event.result.error.code == Cancelled.code and event.result.text:
            self._write(visible(event.result.text, lines=True))
        for bundle in picture_bundles(event.result.artifacts):
            self._live("display", data=dict(bundle))
