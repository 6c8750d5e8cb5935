"""The tools we ship.

`STANDARD` is a tuple of toolsets, each a tuple of functions; importing it loads none of the libraries that the tools
stand on. What the tools may do (`Confinements`, `CommandPolicy`, `WebPolicy`) and the services that they reach by
``ctx.use`` are handed down by the workbench.
"""

from __future__ import annotations

from nbtools.toolbox import data, files, memory, memory_files, scripts, sql, system, text, web
from nbtools.toolbox.policies import CommandPolicy, Confinements, WebPolicy
from nbtools.toolbox.processes import Processes

__all__ = ["STANDARD", "CommandPolicy", "Confinements", "Processes", "WebPolicy"]

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
"""The toolsets of the shelf, in the order in which they are shown."""
