"""The tools we ship.

`STANDARD` is a tuple of toolsets, each a tuple of functions; having it loads none of the libraries that the tools
stand on. What the tools may do (`SandboxPolicy`, `CommandPolicy`, `WebPolicy`) and the services that they reach by
``ctx.use`` are handed down by the workbench, which also closes `Processes`.
"""

from typing import TYPE_CHECKING

from nbtools.ground.lazy import facade

if TYPE_CHECKING:
    from nbtools.toolbox.commands.processes import Processes
    from nbtools.toolbox.policies import Acts, CommandPolicy, OfferedFrames, SandboxPolicy, WebPolicy
    from nbtools.toolbox.standard import STANDARD

__all__ = ["STANDARD", "Acts", "CommandPolicy", "OfferedFrames", "Processes", "SandboxPolicy", "WebPolicy"]

__getattr__ = facade(__name__)
