"""The shelf: which toolsets there are, in the order in which they are shown."""

from __future__ import annotations

from nbtools.toolbox import data, files, memory, memory_files, scripts, sql, system, text, web

__all__ = ["STANDARD"]

STANDARD = (
    memory.TOOLS,
    memory_files.TOOLS,
    scripts.TOOLS,
    sql.TOOLS,
    files.TOOLS,
    data.TOOLS,
    web.TOOLS,
    system.TOOLS,
    text.TOOLS,
)
"""The toolsets, each a tuple of functions."""
