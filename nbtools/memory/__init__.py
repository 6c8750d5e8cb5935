"""Memory: records that outlive the kernel, shared by every notebook, workflow and agent of a user.

::

    records, search          what a record is, what may be stored; words and ranking     (pure)
    repository, reference    the seam to the stores, and the plainest store               (protocol, in-memory)
    store, calls, opening    AgentMemory, CallLog; from a URL to either
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbtools.lazy import facade

if TYPE_CHECKING:
    from nbtools.memory.calls import CallLog
    from nbtools.memory.files import MemoryFiles
    from nbtools.memory.opening import default_memory_url, memory_context, open_memory, open_repository
    from nbtools.memory.records import Limits, MemoryRecord, Scope
    from nbtools.memory.reference import InMemoryRepository
    from nbtools.memory.repository import Repository
    from nbtools.memory.store import AgentMemory

__all__ = [
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
