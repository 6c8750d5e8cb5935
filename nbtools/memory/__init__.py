"""Memory: records that outlive the kernel, shared by every notebook, workflow and agent of a user.

::

    records, search          what a record is, what may be stored; words and their ranking (pure)
    repository, reference    the seam to the stores, and the plainest store
    store, views, calls      AgentMemory, CallLog: what people use
    opening, transfer        from a URL to a memory; files and tables out and in
    files, anthropic, …      the memory tool's files, in a memory or in an object store
    postgres, langgraph      the same records in PostgreSQL; LangGraph's store over any of them

    client ── wire ── server, keeper      one process has the DuckDB file, the others ask it at its listener
                         engine           commit, merge, read
        decide  journal  duckdb_tables  index, cache
        (pure)  durable  at rest        derived, in memory
    duckdb_repository        the same engine in this process
    place, salvage           the lock and what lies beside the file; what to do when it is damaged
    erasure                  what of a record of a call tells a value that is forgotten (pure)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbtools.lazy import facade

if TYPE_CHECKING:
    from nbtools.memory.calls import CallLog
    from nbtools.memory.files import MemoryFiles
    from nbtools.memory.opening import default_memory_url, memory_context, open_memory, open_repository
    from nbtools.memory.records import KEEP, Limits, MemoryRecord, Scope
    from nbtools.memory.reference import InMemoryRepository
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

__getattr__ = facade(
    __name__,
    {
        "KEEP": "nbtools.memory.records",
        "AgentMemory": "nbtools.memory.store",
        "CallLog": "nbtools.memory.calls",
        "InMemoryRepository": "nbtools.memory.reference",
        "Limits": "nbtools.memory.records",
        "MemoryFiles": "nbtools.memory.files",
        "MemoryRecord": "nbtools.memory.records",
        "Repository": "nbtools.memory.repository",
        "Scope": "nbtools.memory.records",
        "default_memory_url": "nbtools.memory.opening",
        "memory_context": "nbtools.memory.opening",
        "open_memory": "nbtools.memory.opening",
        "open_repository": "nbtools.memory.opening",
    },
)
