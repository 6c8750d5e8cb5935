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
    from nbtools.kernels.forked.provisioner import install_kernelspec
    from nbtools.kernels.interface import (
        Backend,
        Cap,
        ErrorDetail,
        Execution,
        Kernel,
        Level,
        Output,
        Profile,
        Status,
        World,
    )
    from nbtools.kernels.service import Kernels

__all__ = [
    "Backend",
    "Cap",
    "ErrorDetail",
    "Execution",
    "Kernel",
    "Kernels",
    "Level",
    "Output",
    "Profile",
    "Status",
    "World",
    "install_kernelspec",
]

_KERNEL = "nbtools.kernels.interface"

__getattr__ = facade(
    __name__,
    {
        **dict.fromkeys(
            ("Backend", "Cap", "ErrorDetail", "Execution", "Kernel", "Level", "Output", "Profile", "Status", "World"),
            _KERNEL,
        ),
        "Kernels": "nbtools.kernels.service",
        "install_kernelspec": "nbtools.kernels.forked.provisioner",
    },
)
