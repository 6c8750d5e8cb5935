"""Serving the notebook's tools to MCP clients, from the notebook."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nbtools.errors import InvalidArguments
from nbtools.jupyter.display import Card, Listing

if TYPE_CHECKING:
    from nbtools.mcp_server import HttpServer
    from nbtools.workbench import Workbench

__all__ = ["Serving"]


class Serving:
    """The one MCP server of a notebook: it shares the notebook's memory, kernels and records."""

    def __init__(self) -> None:
        self._server: HttpServer | None = None

    def start(self, workbench: Workbench, *, port: int = 0) -> Card:
        """Start serving over HTTP on this machine, and return what clients need to know.

        Raises
        ------
        InvalidArguments
            It serves already.
        MissingExtra
            The extra ``mcp`` is not installed.
        ConfigInvalid
            The port cannot be had.
        """
        from nbtools.mcp_server import HttpServer

        if self._server is not None:
            raise InvalidArguments(f"it serves already, at {self._server.url}.", hint="%nbtools mcp stop ends it.")
        server = HttpServer(workbench, port=port)
        server.start()
        self._server = server
        return self.card()

    def card(self) -> Card:
        """Return where it serves and what a client's configuration takes; the token is in it."""
        from nbtools.mcp_server import client_config

        if self._server is None:
            return Card(title="MCP", about="not serving; %nbtools mcp start does")
        told = json.dumps(client_config(url=self._server.url, token=self._server.token), indent=2)
        about = "A client's configuration takes this; whoever has the token may call every tool."
        return Card(title=f"MCP at {self._server.url}", about=about, parts=(Listing(text=told),))

    def stop(self) -> Card:
        """Stop serving; harmless when nothing does."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        return Card(title="MCP", about="stopped" if server is not None else "it was not serving")
