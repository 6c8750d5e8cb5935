"""Managed kernels: a clean one for every script, named sessions, and nothing left behind.

`Kernels` is the service. Below it, a `Backend` opens kernels and a `Kernel` runs code:

- ``forked`` (Linux): a zygote process that has loaded the libraries forks ready ipykernels;
- ``spawned``: ordinary kernels from kernelspecs;
- ``process``: the programs of `nbtools.kernels.languages`;
- ``gateway``: kernels on a Jupyter server.

`Kernels` opens kernels through a pool of spares, under the level of confinement that was asked for. A warden process
keeps them and ends them with everything they started, even when the owner is killed.
"""

from typing import TYPE_CHECKING

from nbtools.ground.lazy import facade

if TYPE_CHECKING:
    from nbtools.confine import Level
    from nbtools.kernels.fake import FakeKernels
    from nbtools.kernels.forked.provisioner import install_kernelspec
    from nbtools.kernels.handle import KernelSession
    from nbtools.kernels.interface import (
        Backend,
        ErrorDetail,
        Execution,
        Kernel,
        KernelOptions,
        OutputLimits,
        OutputPiece,
        RunContext,
        Status,
    )
    from nbtools.kernels.service import Kernels

__all__ = [
    "Backend",
    "ErrorDetail",
    "Execution",
    "FakeKernels",
    "Kernel",
    "KernelOptions",
    "KernelSession",
    "Kernels",
    "Level",
    "OutputLimits",
    "OutputPiece",
    "RunContext",
    "Status",
    "install_kernelspec",
]

__getattr__ = facade(__name__)
