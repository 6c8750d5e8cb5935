"""nbtools: a notebook with a memory, clean kernels, SQL that can only read, and a shelf of tools.

In a notebook: ``%load_ext nbtools``. In Python: ``with nbtools.Workbench() as wb: …``.

A module imports its own package and the floors below it, never up, never sideways::

     7  fronts       jupyter/  |  cli/                                  nobody imports these
     6  serving      mcp_server                                         the fronts start it
     5  assembly     parts → workbench, shared, health                  the only place that wires parts together
     5  views        widgets/                                           what a workbench shows in a notebook
     4  conduct      workflow/  |  agent/                               files of steps, and a model at work: strangers
     3  tools        toolbox/                                           the tools we ship
     2  services     memory/  |  kernels/  |  sql/  |  mcp_client       useful without any model
     1  contract     result, docstring, parameters → tool → schema → prepared → gate, record → door → registry → execute
     1  questions    consequence, approval_request                      what a person is asked, with all that a yes does
     1  labels       label, label_rules, json_values                    what a result may hold, and how it is written
     1  reading      schema_mistakes                                    what nobody can read of a schema
     1  functions    tool_functions, langchain                          tools as functions of Python
     1  wire         mcp_lines                                          what both sides of MCP write and read
     0  ground       errors, python_tree → lazy, aio, home, secret_values → redaction → telemetry → framing, confine/
     0  settings     settings_file → config → option_values             what a file may say, and all that was said
     0  files        folder → paths; folder_state; trimming             touched by name; what was written; what goes
     0  texts        charsets, yaml_tree → parsing; shown, visible → html_parts read safely, shown truly

In the packages the same holds between rooms (sub-packages). Words with a meaning of our own, and where they live::

    call       tool        a tool asked for, with arguments; what comes back is its result
    door       door        what every call goes through: prepare, gate, limits, run, span, record
    gate       gate        the rules and the person that let a call run, ask, or deny it
    grant      gate        a yes that holds for the rest of a session
    effect     tool        what a tool does to the world: reads only, destroys, can be repeated, reaches out
    span       telemetry   one timed piece of work
    roots      paths       the folders whose files may be used
    artifact   result      a file that a call made
    level      confine     how closely a process is confined: off, limits, strict
    scope      memory      whose memory: an agent's, a workflow's, a node's
    journal    memory      what was written and is not merged into the database yet
    snapshot   memory      a copy of the database from which a damaged one is recovered
    keeper     memory      the process that holds a memory file for all others
    verdict    sql         whether a text may run, and why not
    worker     sql         the process in which a query runs, so that it can be killed
    session    kernels     a kernel with a name, which keeps its state between runs
    pool       kernels     the kernels that are ready before somebody asks
    spare      kernels     one of them
    lease      kernels     a kernel that is lent for one run, or one session
    zygote     kernels     a process that has loaded the libraries, from which kernels are forked
    canary     kernels     the first fork of a zygote, which proves that forking works
    warden     kernels     the process that starts kernels and ends them with all they started
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nbtools.lazy import facade as _facade

if TYPE_CHECKING:
    from nbtools.config import Config
    from nbtools.errors import NbtoolsError
    from nbtools.execute import CompositeExecutor, LocalExecutor
    from nbtools.memory import memory_context, open_memory
    from nbtools.registry import Registry
    from nbtools.result import Artifact, Output, ToolResult
    from nbtools.shared import explore
    from nbtools.shared import shared as workbench
    from nbtools.sql import Policy
    from nbtools.tool import Context, ToolCall, tool
    from nbtools.workbench import Workbench

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


def _function(module: str, name: str) -> property:
    """Return a property for a function that is called like its module.

    Importing a submodule sets it on its package under its own name, where it would hide the function. A property
    cannot be hidden; what is set is dropped, because the module stays in `sys.modules`, where imports look.
    """

    def get(package: ModuleType) -> Any:
        return getattr(importlib.import_module(module), name)

    def drop(package: ModuleType, value: Any) -> None:
        """Let the import system set the submodule, to no effect."""

    return property(get, drop)


class _Package(ModuleType):
    """The package, with `tool` and `workbench` as functions."""

    tool = _function("nbtools.tool", "tool")
    workbench = _function("nbtools.shared", "shared")


sys.modules[__name__].__class__ = _Package


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
