"""``nbtools mcp`` serves the tools to MCP clients; ``nbtools skill`` tells other agents how to use them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from nbtools import mcp_server
from nbtools.assembly.workbench import Workbench
from nbtools.cli.command_parser import add_command
from nbtools.errors import FileAlreadyExists
from nbtools.ground.config import Config
from nbtools.ground.paths import HOW_TO_ALLOW

_LAST_PORT = 65_535


def add_commands(commands: Any) -> None:
    """Add ``mcp`` to the parser's commands."""
    add_command(commands, __file__, "mcp", port=_port, folder=_folder).set_defaults(perform=_mcp)
    add_command(commands, __file__, "skill").set_defaults(perform=_skill)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= _LAST_PORT):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: use 0 to {_LAST_PORT}")
    return int(text)


def _folder(text: str) -> str:
    if not os.path.isdir(text):  # noqa: PTH112 - the text goes to chdir as it is
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}")
    return text


def _mcp(arguments: argparse.Namespace) -> int:

    if arguments.folder is not None:
        # Before the settings are read: they are looked for from the folder upwards.
        os.chdir(arguments.folder)
    config = Config.load(workflows=arguments.workflow)
    if config.no_model_paths:
        print(f"no folder is allowed: {config.no_model_paths} {HOW_TO_ALLOW}", file=sys.stderr)
    if arguments.print_config and arguments.http is None:
        print(json.dumps(mcp_server.client_config(config=config), indent=2))
        return 0
    # The token may come from outside, so that a client's configuration can name it in advance.
    # An empty variable is one that is not set: only --no-token opens the door.
    token = "" if arguments.no_token else os.environ.get("NBTOOLS_MCP_TOKEN", "").strip() or None
    if arguments.print_config:
        url = f"http://{arguments.host}:{arguments.http}/mcp"
        # A token that will be made when the server starts cannot be printed now.
        shown_token = "$NBTOOLS_MCP_TOKEN" if token is None else token
        print(json.dumps(mcp_server.client_config(url=url, token=shown_token), indent=2))
        return 0
    with Workbench(config) as wb:
        if arguments.http is None:
            mcp_server.serve_stdio(wb)
            return 0
        server = mcp_server.HttpServer(wb, port=arguments.http, host=arguments.host, token=token)
        server.start()
        print(f"serving at {server.url}", file=sys.stderr)
        print(json.dumps(mcp_server.client_config(url=server.url, token=server.token), indent=2), flush=True)
        try:
            server.wait()
        finally:
            server.close()
    return 0


def _skill(arguments: argparse.Namespace) -> int:

    folder = Path(arguments.folder).expanduser() / "nbtools"
    files = {
        "SKILL.md": Path(__file__).with_name("SKILL.md").read_text(encoding="utf-8"),
        "mcp.json": json.dumps(mcp_server.client_config(config=Config.load()), indent=2) + "\n",
    }
    there = [folder / name for name in files if (folder / name).exists()]
    if there and not arguments.force:
        raise FileAlreadyExists(f"{there[0]} already exists.", hint="Add --force to overwrite it.")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)
    return 0
