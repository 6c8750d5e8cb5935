"""``%nbtools``: what is here, how it does, and the settings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from nbtools.assembly.health import policy_faults
from nbtools.assembly.reset import kept_in, reset, to_lines
from nbtools.contract.tool import Effects
from nbtools.ground.config import Config
from nbtools.jupyter.display.blocks import Card, Listing, Table
from nbtools.jupyter.display.status import Findings, status_card
from nbtools.jupyter.help_pages import help_page
from nbtools.jupyter.line.arguments import declared_usage
from nbtools.jupyter.magic import Magic, MagicRequest
from nbtools.jupyter.session import read_line


def _status(request: MagicRequest) -> Card:
    session = request.session
    return status_card(session.workbench.status(), session.short_names())


def _config(request: MagicRequest) -> Table:
    rows = request.session.workbench.config.rows(request.args.setting)
    columns = ("setting", "value", "source", "meaning")
    return Table(
        columns=columns,
        rows=tuple(tuple(row[name] for name in columns) for row in rows),
        title="settings",
        footer="NBTOOLS_* variables and nbtools.toml change them; %config NBTools has the options of the magics",
    )


def _allow(request: MagicRequest) -> Listing:
    workbench, folder = request.session.workbench, request.args.folder
    if folder is None:
        return Listing(text="\n".join(map(str, workbench.roots.roots)))
    work = functools.partial(workbench.allow, folder)
    real, _ = request.perform("allow_folder", work, effects=Effects(), arguments={"folder": folder})
    what = "your queries, scripts and tools may use files below"
    return Listing(text=f"{what} {real} until this notebook ends; a model may not")


def _trust(request: MagicRequest) -> Listing:
    file = Config.load().file
    is_about_settings = request.args.file is None or (file is not None and file.is_at(request.args.file))
    if request.args.note is not None or not is_about_settings:
        bench = request.session.workbench
        return Listing(text=bench.have_read(request.args.file, note=request.args.note, caller="magic"))
    if file is None:
        return Listing(text="there is no nbtools.toml here")

    def trust() -> None:
        request.perform("trust_settings", file.trust, effects=Effects(), arguments={"path": str(file.path)})

    # Told before the question, because a rule that names no tool protects nothing once the file is trusted.
    faults = [" ".join(fault) for fault in policy_faults(file, request.session.workbench.registry)]
    return Listing(text=file.ask(print, read_line, trust, faults))


def _reset(request: MagicRequest) -> Listing:
    workbench = request.session.workbench
    home, contents = workbench.config.home, kept_in(workbench.config.home)
    if not contents:
        return Listing(text=f"{home} keeps nothing")
    kernels = workbench.opened("kernels")
    sessions = ", ".join(row["name"] for row in (kernels.list() if kernels is not None else ()) if row["pid"])
    ends = [f"Sessions that end, with their variables: {sessions}"] if sessions else []
    lines = "\n".join([f"{home} keeps:", *(f"  {line}" for line in to_lines(contents)), *ends])
    if not request.args.yes:
        print(lines)  # noqa: T201 - the question is about it
        try:
            if read_line("Remove all of it permanently? Type yes: ").strip() != "yes":
                return Listing(text="nothing was removed")
        except EOFError:
            return Listing(text="nothing was removed: no one is at the keyboard to say yes; --yes does not ask")
    # Closed first: an open workbench would write its last records into what has just been removed.
    workbench.close()
    reset(home)
    return Listing(text="\n".join([*lines.splitlines()[1:], "", f"All of it was removed from {home}."]))


def _help(request: MagicRequest) -> Listing:
    return Listing(text=help_page(" ".join(request.args.topic) or None, request.session.workbench.executor.tools()))


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
    "doctor": lambda request: Findings(checks=tuple(request.session.workbench.doctor())),
    "allow": _allow,
    "reset": _reset,
    "config": _config,
    "help": _help,
    "trust": _trust,
    "version": _version,
    "mcp": _mcp,
}
MAGIC = Magic(usage=declared_usage(__file__), run=lambda request: _COMMANDS[request.args.command](request))
