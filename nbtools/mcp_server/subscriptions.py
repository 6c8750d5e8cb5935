"""Subscriptions: clients that subscribed are told when an item of the memory changes.

The memory has no way to call back across processes, so one task reads its count of changes, twice a second and only
while a client waits. In the protocol's older era each session that subscribed gets the notice; in the newer one
(2026-07-28) all notices go over a bus, from which the official package feeds the streams that clients opened.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from nbtools.ground.lazy import need

_WHY = "Serving tools over MCP"
_LOOK_S = 0.5
_MAX_SESSIONS = 1_000
_MAX_RESOURCES = 1_000
_INVALID_PARAMS = -32602


def call_at_end(session: Any, work: Callable[[], object]) -> None:
    """Call a function when the connection of a session ends, if the package reports that.

    A connection's ``exit_stack`` is public; its way from a session is not, so this is the one place that knows it.
    """
    connection = getattr(session, "connection", None) or getattr(session, "_connection", None)
    if connection is not None:
        connection.exit_stack.callback(work)


class Subscriptions:
    """Watches the resources that clients subscribed to, and reports changes.

    Parameters
    ----------
    versions
        Returns the state of the whole store, and the version of each of some resources, `None` for one that is not
        there; none of them when the state is the given one.
    interval
        Seconds between two looks.
    """

    def __init__(
        self, versions: Callable[..., Awaitable[tuple[Any, dict[str, Any]]]], *, interval: float = _LOOK_S
    ) -> None:
        official = need("mcp.server.subscriptions", extra="mcp", why=_WHY)
        self._updated = official.ResourceUpdated
        self._bus = official.InMemorySubscriptionBus()
        self._streams = official.ListenHandler(self._bus)
        self._versions = versions
        self._interval = interval
        self._sessions: collections.OrderedDict[str, tuple[Any, set[str]]] = collections.OrderedDict()
        self._listening: collections.Counter[str] = collections.Counter()
        self._versions_seen: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None

    async def subscribe(self, who: str, session: Any, uri: str) -> None:
        """Tell a client of the older era when a resource changes.

        Parameters
        ----------
        who
            Id of its connection.
        session
            The official package's, a different one for each request; any of them reaches the connection.
        uri
            The resource.

        Raises
        ------
        MCPError
            The client has reached its limit of subscriptions.
        """
        await self._begin({uri})
        uris = {*self._sessions.get(who, (None, set()))[1], uri}
        self._check(uris)
        self._sessions.pop(who, None)
        self._sessions[who] = (session, uris)
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        self._start()

    def unsubscribe(self, who: str, uri: str) -> None:
        """Stop telling a client of changes of a resource."""
        if who in self._sessions:
            self._sessions[who][1].discard(uri)

    def forget(self, who: str) -> None:
        """Drop the subscriptions of a client whose session has ended."""
        self._sessions.pop(who, None)

    def _check(self, uris: set[str]) -> None:
        if len(uris) > _MAX_RESOURCES:
            error = need("mcp", extra="mcp", why=_WHY).MCPError
            raise error(_INVALID_PARAMS, f"a client may subscribe to {_MAX_RESOURCES:,} resources at once.")

    async def listen(self, context: Any, params: Any) -> Any:
        """Serve one stream of the newer era until its client leaves."""
        uris = set(params.notifications.resource_subscriptions or ())
        self._check(uris)
        await self._begin(uris)
        self._listening.update(uris)
        self._start()
        try:
            return await self._streams(context, params)
        finally:
            self._listening.subtract(uris)

    async def _begin(self, uris: set[str]) -> None:
        """Note the state before the client is told that its subscription has begun."""
        new = frozenset(uris - self._uris())
        with contextlib.suppress(Exception):  # a memory that cannot be had now may be had at the first look
            self._versions_seen |= (await self._versions(new))[1]

    def _uris(self) -> frozenset[str]:
        watched = {uri for uri, count in self._listening.items() if count > 0}
        return frozenset(watched.union(*(uris for _, uris in self._sessions.values())))

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        """Look for changes while any client waits for them."""
        state: Any = None
        while uris := self._uris():
            with contextlib.suppress(Exception):  # same
                state, versions = await self._versions(uris, state)
                changed = [uri for uri, version in versions.items() if self._versions_seen.get(uri) != version]
                self._versions_seen = {uri: self._versions_seen.get(uri) for uri in self._uris()} | versions
                for uri in changed:
                    await self._tell(uri)
            await asyncio.sleep(self._interval)

    async def _tell(self, uri: str) -> None:
        await self._bus.publish(self._updated(uri))
        for session, uris in list(self._sessions.values()):
            if uri in uris:
                with contextlib.suppress(Exception):  # a client that is gone
                    await session.send_resource_updated(uri)

    def close(self) -> None:
        """Stop looking for changes, and end the streams."""
        self._streams.close()
        if self._task is not None:
            self._task.cancel()
