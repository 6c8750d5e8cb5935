"""``%nbtools``: what is here, how it does, and the settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbtools.errors import ConfigInvalid, did_you_mean
from nbtools.jupyter.display.blocks import Card, Table
from nbtools.jupyter.display.status import doctor_table, status_card
from nbtools.jupyter.line.arguments import MagicParser, count
from nbtools.jupyter.magic import Magic, MagicRequest

__all__ = ["MAGIC"]


def _usage(prog: str, cell: bool) -> MagicParser:
    parser = MagicParser(prog, description="Show the state and the settings of nbtools, check it, and serve its tools.")
    parser.leaf("status", "show memory, kernels, SQL and tools, and the names of the magics", default=True)
    parser.leaf("doctor", "check every part, and say how to repair or install what is missing")
    config = parser.leaf("config", "show the settings, and where each value comes from")
    config.take("setting", nargs="?", metavar="SETTING", kind="setting")
    parser.leaf("version", "show the version of nbtools")
    mcp = parser.leaf("mcp", "serve the tools to MCP clients on this machine")
    mcp.take("action", nargs="?", choices=("start", "stop"), metavar="start|stop")
    mcp.take("--port", type=count, default=0, metavar="PORT", help="port of the server; 0 takes a free one")
    return parser


def _run(request: MagicRequest) -> Any:
    return _COMMANDS[request.args.command](request)


def _status(request: MagicRequest) -> Card:
    session = request.session
    return status_card(session.workbench.status(), session.short_names())


def _config(request: MagicRequest) -> Table:
    rows = request.session.workbench.config.rows()
    wanted = request.args.setting
    if wanted is not None:
        known = [row["setting"] for row in rows]
        if wanted not in known:
            hint = did_you_mean(wanted, known, f"Settings are {', '.join(known)}.")
            raise ConfigInvalid(f"there is no setting {wanted!r}.", hint=hint, tried="reading the settings")
        rows = [row for row in rows if row["setting"] == wanted]
    columns = ("setting", "value", "source", "meaning")
    return Table(
        columns=columns,
        rows=tuple(tuple(row[name] for name in columns) for row in rows),
        title="settings",
        footer="NBTOOLS_* variables and nbtools.toml change them; %config NBTools has the options of the magics",
    )


def _version(request: MagicRequest) -> str:
    version: str = request.session.workbench.status()["version"]
    return version


def _mcp(request: MagicRequest) -> Card:
    session, action = request.session, request.args.action
    if action == "start":
        return session.serving.start(session.workbench, port=request.args.port)
    return session.serving.stop() if action == "stop" else session.serving.card()


_COMMANDS: dict[str, Callable[[MagicRequest], Any]] = {
    "status": _status,
    "doctor": lambda request: doctor_table(request.session.workbench.doctor()),
    "config": _config,
    "version": _version,
    "mcp": _mcp,
}
MAGIC = Magic(usage=_usage, run=_run)
