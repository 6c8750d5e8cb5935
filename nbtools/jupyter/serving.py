"""Serving the notebook's tools to MCP clients, from the notebook."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from nbtools.errors import InvalidArguments
from nbtools.ground.home import make_private
from nbtools.jupyter.display.blocks import Card, Listing

if TYPE_CHECKING:
    from nbtools.assembly.workbench import Workbench
    from nbtools.mcp_server import HttpServer

_ABOUT = """What a client needs, its token included, is in the file
  {file}
Only you can read it, and it is removed when the server stops. Anyone with the token may call every tool."""


class Serving:
    """The one MCP server of a notebook: it shares the notebook's memory, kernels and records.

    The token is written to a file of the user's own, never shown: what a cell shows is saved with the notebook.
    """

    def __init__(self) -> None:
        self._server: HttpServer | None = None
        self._file = Path()

    def start(self, workbench: Workbench, *, port: int = 0) -> Card:
        """Start serving over HTTP on this machine, and return what clients need to know.

        Raises
        ------
        InvalidArguments
            It serves already.
        MissingExtra
            The extra ``mcp`` is not installed.
        ConfigInvalid
            The port is in use, or may not be opened.
        """
        from nbtools.mcp_server import HttpServer, client_config

        if self._server is not None:
            raise InvalidArguments(f"it is already serving, at {self._server.url}.", hint="%nbtools mcp stop ends it.")
        server = HttpServer(workbench, port=port)
        server.start()
        self._server = server
        self._file = workbench.config.home / f"mcp-{os.getpid()}.json"
        self._file.unlink(missing_ok=True)
        make_private(self._file.parent)
        # New in any case: a file or link that someone has put there must not get the token.
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(client_config(url=server.url, token=server.token), file, indent=2)
        return self.card()

    def card(self) -> Card:
        """Return where it serves, and which file has a client's configuration; the token is not in the card."""
        from nbtools.mcp_server import client_config
        from nbtools.texts.secret_values import MASK

        if self._server is None:
            return Card(title="MCP", about="not running; %nbtools mcp start starts it")
        config = json.dumps(client_config(url=self._server.url, token=MASK), indent=2)
        about = _ABOUT.format(file=self._file)
        return Card(title=f"MCP at {self._server.url}", about=about, parts=(Listing(text=config),))

    def stop(self) -> Card:
        """Stop serving; harmless when nothing does."""
        server, self._server = self._server, None
        if server is None:
            return Card(title="MCP", about="it was not serving")
        server.close()
        self._file.unlink(missing_ok=True)
        return Card(title="MCP", about="stopped")
