"""Forked kernels for any Jupyter client: a kernel provisioner, and the kernelspec that names it.

`jupyter_client` asks a provisioner to start, signal and await a kernel. This one forks it from a zygote that is shared
by all kernels of the process (a JupyterLab server, nbclient, papermill, a gateway), so a notebook's kernel is ready in
a fraction of the usual time. The kernel is the user's own: it has the user's environment and is not confined.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from traitlets.traitlets import List, Unicode

from nbtools import confine
from nbtools.errors import ConfigInvalid
from nbtools.ground import aio
from nbtools.ground.paths import working_folder
from nbtools.kernels.forked.backend import ForkedBackend
from nbtools.kernels.forked.zygote_client import DEFAULT_PRELOADS, ZygoteClient
from nbtools.kernels.jupyter.kernel import ConnectionInfo
from nbtools.processes.client import WatchedProcess
from nbtools.processes.runtime_dir import RuntimeDir


@functools.cache
def _share_zygotes(process: int, preloads: Sequence[str]) -> tuple[ZygoteClient, RuntimeDir]:
    """Return the zygote's keeper of this process; a process forked from it gets its own."""
    # It is never closed: the warden removes it when this process ends, and a sweep when that fails.
    folder = RuntimeDir()
    return ZygoteClient(preloads, folder), folder


class ForkedProvisioner(KernelProvisionerBase):
    """Start kernels by fork.

    The kernelspec may name other modules to load in ``metadata.kernel_provisioner.config.preloads``.
    """

    preloads: Any = List(Unicode(), default_value=list(DEFAULT_PRELOADS), help="Modules loaded before the fork.")

    _child: WatchedProcess | None = None
    _kernel_folder: Path | None = None

    @property
    def has_process(self) -> bool:
        """Whether a kernel is in its care."""
        return self._child is not None

    @property
    def pid(self) -> int | None:
        """The kernel's process id."""
        return self._child.pid if self._child is not None else None

    async def poll(self) -> int | None:
        """Return `None` while the kernel runs, else its exit code."""
        if self._child is None:
            return 0
        return self._code() if self._child.exited.done() else None

    def _code(self) -> int:
        assert self._child is not None
        how = self._child.exited.result()
        return how.code if how.code is not None else -(how.signal or 0)

    async def wait(self) -> int | None:
        """Wait for the end and return the exit code."""
        if self._child is None:
            return 0
        child = self._child

        async def gone() -> None:
            await child.exited

        await aio.here(gone())
        code = self._code()
        self._child = None
        return code

    async def send_signal(self, signum: int) -> None:
        """Send a signal to the kernel's process group."""
        if self._child is not None:
            # Sending is one write to a socket, which any thread may do.
            self._child.signal(signum)

    async def kill(self, restart: bool = False) -> None:
        """End the kernel and everything it started."""
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        """Ask the kernel to end."""
        await self.send_signal(signal.SIGTERM)

    async def cleanup(self, restart: bool = False) -> None:
        """Remove the sockets; a restart keeps their place, because clients know it."""
        if self._kernel_folder is not None and not restart:
            shutil.rmtree(self._kernel_folder, ignore_errors=True)
            self._kernel_folder = None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Prepare the launch; there is no command to run."""
        kwargs.pop("extra_arguments", None)
        return dict(await super().pre_launch(cmd=["nbtools-forked"], **kwargs))

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Fork the kernel and return its connection information."""
        manager: Any = self.parent
        zygotes, folder = _share_zygotes(os.getpid(), tuple(self.preloads))
        if self._kernel_folder is None:
            self._kernel_folder = folder.make(secrets.token_hex(6))
        elif not self._kernel_folder.exists():
            folder.make(self._kernel_folder.name)
        # A restart binds the same addresses, where the sockets of the dead kernel may still lie.
        for left in self._kernel_folder.glob("s-*"):
            left.unlink()
        info = ConnectionInfo(self._kernel_folder, manager.session.key.decode()).to_dict()
        message = {
            "id": secrets.token_hex(6),
            "env": dict(kwargs.get("env") or os.environ),
            "cwd": str(kwargs.get("cwd") or working_folder()),
            "confinement": confine.Confinement(level="off").to_dict(),
            "connection": info,
            # Such a kernel has no owner of ours that would understand reports, or answer requests for memory.
            "managed": False,
        }
        self._child, _ = await aio.here(zygotes.fork(message))
        manager.transport, manager.ip = info["transport"], info["ip"]
        self.connection_info: Any = {**info, "key": manager.session.key}
        return self.connection_info


def install_kernelspec(
    name: str = "nbtools-forked",
    *,
    display_name: str = "Python 3 (nbtools, forked)",
    prefix: str | None = None,
    user: bool = False,
    preloads: Sequence[str] | None = None,
) -> Path:
    """Install a kernelspec, so that JupyterLab, nbclient, papermill and gateways start forked kernels by name.

    Parameters
    ----------
    name
        The kernelspec's name, as in ``papermill -k NAME``.
    display_name
        What a launcher shows.
    prefix
        Install below this prefix, such as ``sys.prefix``.
    user
        Install for the user instead; the default without a prefix is the environment this Python belongs to.
    preloads
        Modules to load before the fork; `None` takes the usual ones.

    Returns
    -------
    Path
        The kernelspec's folder.

    Raises
    ------
    ConfigInvalid
        This system cannot fork kernels.
    """
    if not ForkedBackend.is_supported():
        raise ConfigInvalid("Forked kernels need Linux.", hint="Use the ordinary python3 kernelspec.")
    import sys

    from jupyter_client.kernelspec import KernelSpecManager

    config = {"preloads": list(preloads)} if preloads is not None else {}
    spec = {
        # Never run: the provisioner forks. It is what clients show, and must not be empty.
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": display_name,
        "language": "python",
        "interrupt_mode": "signal",
        "metadata": {"debugger": False, "kernel_provisioner": {"provisioner_name": "nbtools-forked", "config": config}},
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.json").write_text(json.dumps(spec, indent=1))
        path = KernelSpecManager().install_kernel_spec(
            folder, name, user=user, prefix=None if user else prefix or sys.prefix
        )
    return Path(path)
