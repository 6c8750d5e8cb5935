"""``%tools``: the shelf, one tool in full, and the history of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbtools.contract.tool import Tool
from nbtools.jupyter.display.blocks import Records, Table, duration, moment
from nbtools.jupyter.display.tool_card import effects_in_words, tool_card
from nbtools.jupyter.line.arguments import declared_usage
from nbtools.jupyter.magic import Magic, MagicRequest
from nbtools.texts.visible import brief, counted


def _run(request: MagicRequest) -> Any:
    name = request.args.name
    if request.args.history:
        return _history(request, name)
    tools = request.session.workbench.executor.tools()
    return Records(tools.values(), _shelf_table) if name is None else tool_card(tools[name])


def _shelf_table(tools: Sequence[Tool]) -> Table:
    rows = tuple(
        (t.name, effects_in_words(t), brief(t.description.split("\n")[0], 100), t.signature_line) for t in tools
    )
    columns = ("tool", "effects", "what it does", "call")
    return Table(columns=columns, rows=rows, title="tools", footer=counted(len(rows), "tool"))


def _history(request: MagicRequest, name: str | None) -> Records:
    # Records are asked for by number and not by tool: of one tool the newest are looked for among the last thousand.
    calls = request.session.workbench.call_records(1_000 if name else request.args.n)
    chosen = [call for call in calls if name is None or call.get("tool") == name]
    return Records(chosen[: request.args.n], _history_table, most=request.args.n)


def _history_table(calls: Sequence[dict[str, Any]]) -> Table:
    columns = ("when", "tool", "by", "outcome", "took", "arguments", "call id")
    rows = tuple(
        (
            moment(c.get("started_at")),
            f"↳ {c.get('tool')}" if c.get("parent_id") else c.get("tool"),
            c.get("caller"),
            "ok" if c.get("ok") else f"{c.get('code') or 'no end'}: {brief(c.get('message') or '', 60)}",
            duration(c.get("duration_s")),
            c.get("arguments"),
            c.get("call_id"),
        )
        for c in calls
    )
    return Table(columns=columns, rows=rows, title="calls", footer=counted(len(rows), "call"), empty="no calls yet")


MAGIC = Magic(usage=declared_usage(__file__), run=_run)
