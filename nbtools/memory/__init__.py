"""Memory: records that outlive the kernel, shared by every notebook, workflow and agent of a user.

A module imports the rooms below its own, never up and never sideways::

     5  opening, anthropic, langgraph   from a URL to a memory; other people's interfaces over it
     4  keeper/  |  files/              one file for many processes; the memory tool's virtual files
     3  duckdb/  |  postgres/  |  in_memory  |  store    the three stores; AgentMemory, which people use
     2  rules/  |  calls  |  export     what changes do and searches find (pure); tool calls; files and tables
     1  repository                      the seam: what every store promises
     0  records  |  exact/             what a record is, whose it is, what may be stored; values as they were

A change takes this way: `AgentMemory` checks and encodes it, the client of the keeper sends it, the keeper's server
collects what waits into one group, the engine decides the group by the rules and commits it to the journal, and later
merges the journal into the DuckDB file.
"""

from typing import TYPE_CHECKING

from nbtools.ground.lazy import facade

if TYPE_CHECKING:
    from nbtools.memory.calls import CallLog
    from nbtools.memory.files.tool import MemoryFiles
    from nbtools.memory.in_memory import InMemoryRepository
    from nbtools.memory.opening import default_memory_url, memory_context, open_memory, open_repository
    from nbtools.memory.records import KEEP, Limits, MemoryRecord, Scope
    from nbtools.memory.repository import Repository
    from nbtools.memory.store import AgentMemory

__all__ = [
    "KEEP",
    "AgentMemory",
    "CallLog",
    "InMemoryRepository",
    "Limits",
    "MemoryFiles",
    "MemoryRecord",
    "Repository",
    "Scope",
    "default_memory_url",
    "memory_context",
    "open_memory",
    "open_repository",
]

__getattr__ = facade(__name__)
