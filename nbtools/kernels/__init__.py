"""Managed kernels: a clean one for every script, named sessions, and nothing left behind.

`Kernels` is the service. Below it, a `Backend` opens kernels and a `Kernel` runs code:

- ``forked`` (Linux): a zygote process that has loaded the libraries forks ready ipykernels;
- ``spawned``: ordinary kernels from kernelspecs;
- ``process``: shells, Node.js, PowerShell;
- ``gateway``: kernels on a Jupyter server.

`Kernels` opens kernels through a pool of spares, under the level of confinement that was asked for. A warden process
keeps them and ends them with everything they started, even when the owner is killed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbtools.lazy import facade

if TYPE_CHECKING:
    from nbtools.confine import Level
    from nbtools.kernels.fake import FakeKernels
    from nbtools.kernels.forked.provisioner import install_kernelspec
    from nbtools.kernels.handle import KernelSession
    from nbtools.kernels.interface import (
        Backend,
        Cap,
        ErrorDetail,
        Execution,
        Kernel,
        KernelOptions,
        Output,
        OutputLimits,
        OutputPiece,
        Profile,
        RunContext,
        Status,
        World,
    )
    from nbtools.kernels.service import Kernels

_INTERFACE = (
    *("Backend", "ErrorDetail", "Execution", "Kernel", "KernelOptions", "OutputLimits", "OutputPiece"),
    *("RunContext", "Status", "Cap", "Output", "Profile", "World"),
)
__all__ = [
    "Backend",
    "Cap",
    "ErrorDetail",
    "Execution",
    "FakeKernels",
    "Kernel",
    "KernelOptions",
    "KernelSession",
    "Kernels",
    "Level",
    "Output",
    "OutputLimits",
    "OutputPiece",
    "Profile",
    "RunContext",
    "Status",
    "World",
    "install_kernelspec",
]

__getattr__ = facade(
    __name__,
    {
        **dict.fromkeys(_INTERFACE, "nbtools.kernels.interface"),
        "FakeKernels": "nbtools.kernels.fake",
        "KernelSession": "nbtools.kernels.handle",
        "Kernels": "nbtools.kernels.service",
        "Level": "nbtools.confine",
        "install_kernelspec": "nbtools.kernels.forked.provisioner",
    },
)
