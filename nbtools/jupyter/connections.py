"""The connections of a notebook: those of its settings and those that its person opens, one of which is current.

They belong to the person's SQL session. A model has its own session, which knows only those of the settings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbtools.errors import InvalidArguments, did_you_mean
from nbtools.sql.engines.urls import mask_url
from nbtools.texts.sql_quotes import quote_text

if TYPE_CHECKING:
    from nbtools.assembly.workbench import Workbench

# Seconds for which the tables of a database are remembered, for completion and to tell them from DataFrames.
_FRESH_S = 30.0
_LOCAL = frozenset({"duckdb://", "duckdb:///:memory:"})


class NotebookConnections:
    """Connections by name, and which one queries go to.

    Parameters
    ----------
    workbench
        Returns the notebook's workbench.
    names
        The notebook's variables, among which are its own connections.

    Attributes
    ----------
    current
        The name of the connection that queries go to; `None` for DataFrames and files.
    closed
        The URLs of connections with a name that were closed.
    """

    def __init__(self, workbench: Callable[[], Workbench], names: Mapping[str, Any]) -> None:
        self._workbench = workbench
        self._names = names
        self.current: str | None = None
        self._opened: dict[str, str] = {}
        self.closed: dict[str, str] = {}
        self._catalogs: dict[str, tuple[float, Sequence[Mapping[str, Any]]]] = {}

    @property
    def urls(self) -> dict[str, str]:
        """The URLs of all connections by name."""
        return {**self._workbench().config.connections, **self._opened}

    def name_of(self, reference: str) -> str | None:
        """Return the name of a connection given by its name or URL, which has one from now on; `None` for local data.

        Raises
        ------
        InvalidArguments
            There is no connection of that name.
        """
        if reference.lower() in _LOCAL:
            return None
        self._take_variable(reference)
        urls = self.urls
        if reference not in urls and "://" not in reference:
            there = f"Connections: {', '.join(urls)}." if urls else "Open one by its URL: %nbsql sqlite:///shop.db."
            there = f"{waiting}." if (waiting := self._workbench().config.waiting("connections")) else there
            is_query = any(map(str.isspace, reference)) or reference.startswith("{")
            # IPython has put the text of a variable in place of its name.
            hint = "wb.sql(NAME) runs the query of a variable." if is_query else did_you_mean(reference, urls, there)
            if os.path.exists(reference):  # noqa: PTH110 - of a long query too
                hint = f"A file is read by a query: %nbsql FROM {quote_text(reference)}"
            if reference in self.closed:
                hint = f"It was closed; %nbsql --connect {reference} {mask_url(self.closed[reference])} opens it again."
            raise InvalidArguments(f"there is no connection {reference!r}.", hint=hint, tried="running SQL")
        name = reference
        if reference not in urls:
            name = mask_url(reference)  # shown wherever a name is, so it holds no password
            self._opened[name] = reference
        url, session = urls.get(reference, reference), self._workbench().sql_session
        if session.connections.get(name) != url:
            session.connect(name, url)
        return name

    def _take_variable(self, name: str) -> None:
        """Let a name mean the connection that a variable holds now; a name of the settings stays what it is there."""
        from nbtools.sql.engines.lent import LentConnection, is_connection

        value, before = self._names.get(name), self._opened.get(name)
        if isinstance(before, LentConnection) and value is None:
            self.close(name)
            raise InvalidArguments(
                f"the variable {name!r} is gone, and its connection is forgotten.",
                hint="Open it again, or use another: %nbsql duckdb:// reads DataFrames and files.",
                tried="running SQL",
            )
        if name in self._workbench().config.connections or not is_connection(value):
            return
        if isinstance(before, LentConnection):
            self._opened[name] = before.now(value)
        elif before is None:
            self._opened[name] = LentConnection(name, value)

    def is_variable(self, name: str) -> bool:
        """Tell whether a variable of that name is a connection."""
        from nbtools.sql.engines.lent import is_connection

        return is_connection(self._names.get(name))

    def takes_frames(self, name: str) -> bool:
        """Tell whether queries over a connection see the DataFrames, too."""
        from nbtools.sql.engines.lent import LentConnection

        url = self.urls.get(name, name)
        return url.engine.takes_frames if isinstance(url, LentConnection) else url.lower().startswith("duckdb:")

    def open(self, reference: str, name: str | None = None) -> tuple[str | None, int]:
        """Open a connection, make it the current one, and return its name and how many tables it has.

        Parameters
        ----------
        reference
            Its name or URL.
        name
            What it is to be called; `None` for its name, or its URL without a password.

        Raises
        ------
        InvalidArguments
            The name is one of the settings, or none at all.
        NbtoolsError
            It cannot be reached; the current connection stays.
        """
        before = dict(self._opened)
        try:
            if name is not None:
                self._take_name(name, reference)
            opened_name = self.name_of(name or reference)
            tables = 0 if opened_name is None else len(self.tables(opened_name, fresh=True))
        except BaseException:
            # As it was before: a name that leads nowhere must not stand among the connections.
            for new in self._opened.keys() - before.keys():
                self.close(new)
            self._opened = before
            raise
        self.current = opened_name
        return opened_name, tables

    def _take_name(self, name: str, url: str) -> None:
        if not name.isidentifier() or name in self._workbench().config.connections:
            what = "is a connection of the settings" if name.isidentifier() else "is not a name"
            raise InvalidArguments(
                f"{name!r} {what}.", hint="Use another name, of letters, digits and _.", tried="opening a connection"
            )
        if "://" not in url:
            url = self.urls.get(url, url)
        if "://" not in url:
            hint = "Write --connect NAME URL, such as --connect shop sqlite:///shop.db."
            raise InvalidArguments(f"{url!r} is not a URL.", hint=hint, tried="opening a connection")
        self._opened[name] = url
        self._catalogs.pop(name, None)

    def close(self, reference: str) -> str:
        """Close a connection and forget it, where the settings do not name it; return its name.

        Raises
        ------
        InvalidArguments
            There is no such connection.
        """
        name = reference if reference in self._opened else self.name_of(reference)
        if name is None:
            raise InvalidArguments("DataFrames and files need no connection.", hint="Name one of %nbsql --connections.")
        session = self._workbench().sql_session
        session.disconnect(name)
        self._catalogs.pop(name, None)
        if isinstance(url := self._opened.pop(name, None), str) and name.isidentifier():
            self.closed[name] = url
        # A connection of the settings is only closed, and opens again when it is asked next.
        if name in (configured := self._workbench().config.connections):
            session.connect(name, configured[name])
        self.current = None if self.current == name else self.current
        return name

    def rows(self) -> list[tuple[str, str, str]]:
        """Return name, state and URL without a password of each connection."""
        session = self._workbench().opened("sql_session")
        return [
            (
                name,
                "current" if name == self.current else "open" if session and session.is_connected(name) else "",
                mask_url(url),
            )
            for name, url in self.urls.items()
        ]

    def tables(self, name: str, *, fresh: bool = False) -> Sequence[Mapping[str, Any]]:
        """Return the tables of a connection, remembered for half a minute."""
        when, catalog = self._catalogs.get(name, (0.0, ()))
        # Completion asks at each key, and a catalogue may take a second; a listing that a person asks for is always
        # new.
        if fresh or time.monotonic() - when > _FRESH_S:
            catalog = self._workbench().sql_session.catalog(name)
            self._catalogs[name] = (time.monotonic(), catalog)
        return catalog
