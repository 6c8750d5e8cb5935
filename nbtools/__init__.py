"""nbtools: a notebook with a memory, clean kernels, SQL that can only read, and a shelf of tools.

In a notebook: ``%load_ext nbtools``. In Python: ``with nbtools.Workbench() as wb: …``.

A module imports its own package and the floors below it, never up, never sideways::

     7  fronts       jupyter/  |  cli/                    nobody imports these
     6  serving      mcp_server/                          the fronts start it
     5  assembly     assembly/                            the only place that wires parts together
     5  views        widgets/                             what a workbench shows in a notebook
     4  runs         workflow/  |  agent/                 files of steps, and a model at work: strangers
     3  conduct      conduct/                             what a run is, for both: its folder, its log, its driver
     3  tools        toolbox/                             the tools we ship
     2  services     memory/  |  kernels/  |  sql/  |  mcp_client/   useful without any model
     1  contract     contract/                            what a tool is, and the one door that every call goes through
     0  processes    processes/                           child processes, ended with all that they started
     0  walls        confine/                             what a process may touch
     0  ground       ground/                              loops, folders and settings
     0  texts        errors, texts/                       read within limits, shown truly, cleared of secrets

In the packages the same holds between rooms (sub-packages). Words with a meaning of our own, and where they live::

    call       contract   a tool asked for, with arguments; what comes back is its result
    door       contract   what every call goes through: prepare, gate, limits, run, span, record
    gate       contract   the rules and the person that let a call run, ask, or deny it
    grant      contract   a yes that holds for the rest of a session
    effect     contract   what a tool does to the world: reads only, destroys, can be repeated, reaches out
    span       ground     one timed piece of work
    roots      ground     the folders whose files may be used
    artifact   contract   a file that a call made
    level      confine     how closely a process is confined: off, limits, strict
    scope      memory      whose memory: an agent's, a workflow's, a node's
    journal    memory      what was written and is not merged into the database yet
    snapshot   memory      a copy of the database from which a damaged one is recovered
    keeper     memory      the process that holds a memory file for all others
    verdict    sql         whether a text may run, and why not
    worker     sql         the process in which a query runs, so that it can be killed
    session    kernels     a kernel with a name, which keeps its state between runs
    pool       kernels     the kernels that are ready before someone asks
    spare      kernels     one of them
    lease      kernels     a kernel that is lent for one run, or one session
    zygote     kernels     a process that has loaded the libraries, from which kernels are forked
    canary     kernels     the first fork of a zygote, which proves that forking works
    warden     processes  the process that starts kernels and ends them with all they started
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from nbtools.ground.lazy import OtherModules as _OtherModules
from nbtools.ground.lazy import facade as _facade

if TYPE_CHECKING:
    from nbtools.assembly.shared import explore
    from nbtools.assembly.shared import shared as workbench
    from nbtools.assembly.workbench import Workbench
    from nbtools.contract.execute import CompositeExecutor, LocalExecutor
    from nbtools.contract.registry import Registry
    from nbtools.contract.result import Artifact, Output, ToolResult
    from nbtools.contract.tool import Context, ToolCall, tool
    from nbtools.errors import NbtoolsError
    from nbtools.ground.config import Config
    from nbtools.memory import memory_context, open_memory
    from nbtools.sql import Policy

__version__ = "0.1.0"
__all__ = [
    "Artifact",
    "CompositeExecutor",
    "Config",
    "Context",
    "LocalExecutor",
    "NbtoolsError",
    "Output",
    "Policy",
    "Registry",
    "ToolCall",
    "ToolResult",
    "Workbench",
    "explore",
    "import_defaults",
    "load_ipython_extension",
    "memory_context",
    "open_memory",
    "tool",
    "unload_ipython_extension",
    "workbench",
]

__getattr__ = _facade(__name__)
sys.meta_path.append(_OtherModules())


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def load_ipython_extension(ipython: Any) -> None:
    """Add the magics to an IPython shell; called by ``%load_ext nbtools``."""
    from nbtools.jupyter import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Take everything back and end what runs; called by ``%unload_ext nbtools``."""
    from nbtools.jupyter import unload

    unload(ipython)


def import_defaults() -> None:
    """Do nothing: notebooks written for another package of this name call it."""
