"""Opening: create the repository and the memory that a URL names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nbtools.errors import ConfigInvalid, nearest
from nbtools.ground.config import Config
from nbtools.memory.records import Limits, make_scope
from nbtools.memory.repository import Repository
from nbtools.memory.store import AgentMemory, Embed
from nbtools.texts.units import parse_seconds


def open_memory(
    url: str | os.PathLike[str] = ":memory:",
    *,
    agent_id: str = "default",
    workflow_id: str | None = None,
    node_id: str | None = None,
    scope: str | None = "agent",
    limits: Limits | None = None,
    embed: Embed | None = None,
    holders: Callable[[], Iterable[Path]] = tuple,
    tables: Callable[[], Any] | None = None,
    **options: Any,
) -> AgentMemory:
    """Open a memory; close it with `AgentMemory.close` or by using it as a context manager.

    Parameters
    ----------
    url
        ``duckdb:///path/m.duckdb`` (or just the path), ``:memory:``, or ``postgresql://…``.
    agent_id
        The agent whose memory it is.
    workflow_id
        The workflow whose memory it is, where `scope` reaches so far.
    node_id
        The node whose memory it is, where `scope` is ``node``.
    scope
        ``agent`` (shared by all its workflows), ``workflow`` (shared by its nodes) or ``node``; `None` takes the
        narrowest level among the ids.
    limits
        What may be stored; `None` takes the usual limits.
    embed
        Turns a text into a vector, for searches by nearness.
    holders
        Returns folders with files that may hold values too; see `AgentMemory`.
    tables
        Returns the `TableFolder` for values that JSON has no form for; `None` refuses them.
    **options
        Those of `open_repository`.

    Raises
    ------
    ConfigInvalid
        The URL has an unknown scheme or names nothing.

    Examples
    --------
    >>> with open_memory(":memory:", agent_id="a") as memory:
    ...     memory.incr("runs")
    1
    """
    make_scope(agent_id, workflow_id, node_id, scope=scope)  # Nothing is opened for a scope that cannot be.
    return AgentMemory(
        open_repository(url, **options),
        agent_id=agent_id,
        workflow_id=workflow_id,
        node_id=node_id,
        scope=scope,
        limits=limits,
        embed=embed,
        holders=holders,
        tables=tables,
        owns_repository=True,
    )


def open_repository(
    url: str | os.PathLike[str],
    *,
    embedded: bool = False,
    history: int = 100,
    idle_exit: float | None = None,
    timeout: float = 30.0,
) -> Repository:
    """Open the repository that a URL names.

    A DuckDB file is opened on first use, not here, so a notebook loads even when its memory is unavailable.

    Parameters
    ----------
    url
        As for `open_memory`.
    embedded
        Open the DuckDB file in this process, instead of through the keeper that shares it with other processes.
    history
        How many versions of a record are kept. For a shared file, the process that starts its keeper decides.
    idle_exit
        Seconds after which an unused keeper leaves; `None` takes ``NBTOOLS_KEEPER_IDLE``, or a minute.
    timeout
        Seconds that one request may take, including a restart of the keeper.

    Raises
    ------
    ConfigInvalid
        The URL has an unknown scheme or names nothing.
    """
    text = os.fspath(url)
    # Read here and not at import, so that a process can change it for its own children.
    if idle_exit is None:
        idle_exit = parse_seconds(os.environ.get("NBTOOLS_KEEPER_IDLE") or 60.0)
    scheme, colon, rest = text.partition("://")
    if text in (":memory:", "memory://", "duckdb://:memory:", "duckdb:///:memory:"):
        from nbtools.memory.duckdb.repository import DuckDBRepository

        return DuckDBRepository(None, history=history)
    if not colon:
        return _open_file(text, embedded, history, idle_exit, timeout)

    def postgres() -> Repository:
        from nbtools.memory.postgres.repository import PostgresRepository

        return PostgresRepository(text, history=history, timeout=timeout)

    # Three slashes are followed by an absolute path, as the name of a file on this machine.
    path = rest if rest[:2] != "/~" else rest[1:]
    openers: dict[str, Callable[[], Repository]] = {
        "duckdb": lambda: _open_file(path, embedded, history, idle_exit, timeout),
        "postgresql": postgres,
        "postgres": postgres,
    }
    if scheme in openers:
        return openers[scheme]()
    close = nearest(scheme, openers)
    raise ConfigInvalid(
        f"The memory URL has the unknown scheme {scheme!r}.",
        hint=f"did you mean {close}://…?" if close else "use duckdb:///path/m.duckdb, postgresql://… or :memory:",
    )


def default_memory_url(home: str | os.PathLike[str]) -> str:
    """Return the URL of the memory in a user's home of nbtools."""
    return f"duckdb://{Path(home).expanduser().absolute() / 'memory.duckdb'}"


@contextmanager
def memory_context(
    url: str | os.PathLike[str] | None = None,
    *,
    agent_id: str | None = None,
    workflow_id: str | None = None,
    node_id: str | None = None,
    scope: str | None = None,
    **options: Any,
) -> Iterator[AgentMemory]:
    """Open a memory for a block and close what was opened.

    Parameters
    ----------
    url
        `None` takes the configured one: ``NBTOOLS_MEMORY_URL``, or the file in ``NBTOOLS_HOME``.
    agent_id
        `None` takes the configured one.
    workflow_id
        The workflow whose memory it is; `None` for none.
    node_id
        The node whose memory it is; `None` for none.
    scope
        `None` takes the narrowest level among the given ids.
    **options
        Those of `open_memory`.

    Examples
    --------
    >>> with memory_context(":memory:", agent_id="a", workflow_id="w") as memory:
    ...     memory.scope.name
    'workflow'
    """
    if url is None or agent_id is None:
        config = Config.load()
        url = url or config.memory_url or default_memory_url(config.home)
        agent_id = agent_id or config.agent_id
    memory = open_memory(url, agent_id=agent_id, workflow_id=workflow_id, node_id=node_id, scope=scope, **options)
    with memory:
        yield memory


def _open_file(name: str, embedded: bool, history: int, idle_exit: float, timeout: float) -> Repository:
    if not name or "\0" in name or name.endswith("/"):
        raise ConfigInvalid(f"The memory URL does not name a file: {name!r}.", hint="use duckdb:///path/m.duckdb")
    # One file has one keeper, whatever name it is called by.
    path = Path(os.path.realpath(Path(name).expanduser()))
    if embedded:
        from nbtools.memory.duckdb.repository import DuckDBRepository

        return DuckDBRepository(path, history=history)
    from nbtools.memory.keeper.client import KeeperRepository

    return KeeperRepository(path, history=history, idle_exit=idle_exit, timeout=timeout)
