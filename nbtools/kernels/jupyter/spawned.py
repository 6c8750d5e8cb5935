"""Ordinary Jupyter kernels, started from a kernelspec by a small warden process.

The backend of macOS, of any kernelspec that is no Python of ours, and of Linux when forks cannot be had. The kernel is
what the kernelspec says, over local sockets; the warden gives it a process group, limits, and an end when the owner
ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nbtools import confine
from nbtools.errors import LanguageUnavailable, SandboxUnavailable, nearest
from nbtools.kernels.inside import strict_kernel
from nbtools.kernels.interface import KernelOptions
from nbtools.kernels.jupyter.kernel import ConnectionInfo, JupyterKernel
from nbtools.kernels.jupyter.memory_rpc import MemoryRpc
from nbtools.kernels.warden.client import WardenClient, open_warden, wait_or_died
from nbtools.kernels.warden.runtime_dir import RuntimeDir
from nbtools.redaction import scrub_environment

__all__ = ["SpawnedBackend", "confinement_of", "environment_of", "installed_spec", "limits_of"]

_INLINE = "module://matplotlib_inline.backend_inline"
_START_S = 60.0


def environment_of(profile: KernelOptions, folder: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a kernel's environment: without secrets unless the level is ``"off"``, temporary files in `folder`."""
    # It belongs to a test of the owner, and ipykernel captures no raw output where it sees it.
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    env = own if profile.sandbox == "off" else scrub_environment(own)
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {**env, **(extra or {}), "MPLBACKEND": _INLINE, "TMPDIR": str(temporary)}


def confinement_of(profile: KernelOptions, folder: Path) -> confine.Confinement:
    """Return what a kernel puts itself under; `folder` is its own, for sockets and temporary files."""
    write = [str(folder), *map(str, profile.write_paths)]
    if profile.cwd is not None:
        write.append(str(profile.cwd))
    return confine.Confinement(
        level=profile.sandbox,
        read=tuple(map(str, profile.read_paths)),
        write=tuple(write),
        folder=None if profile.cwd is None else str(profile.cwd),
        network=profile.network,
        memory_bytes=profile.memory_bytes,
        cpu_s=profile.cpu_s,
        file_bytes=profile.file_bytes,
        supervised=profile.sandbox == "strict",
    )


def limits_of(profile: KernelOptions) -> dict[str, int | None]:
    """Return what the warden watches over for the whole family."""
    if profile.sandbox == "off":
        return {"memory_bytes": None, "processes": None}
    return {"memory_bytes": profile.memory_bytes, "processes": profile.processes}


class SpawnedBackend:
    """Start kernels by their kernelspecs.

    Parameters
    ----------
    folder
        Where each kernel gets a folder of its own; `None` makes one at first use.
    """

    name = "spawned"

    def __init__(self, folder: RuntimeDir | None = None) -> None:
        self._folder = folder
        self._owns_folder = folder is None
        self._warden: WardenClient | None = None
        self._context: Any = None
        self._kernels: set[JupyterKernel] = set()
        self._lock = asyncio.Lock()

    async def open(self, profile: KernelOptions) -> JupyterKernel:
        """Start a kernel; see `nbtools.kernels.interface.Backend.open`.

        Raises
        ------
        LanguageUnavailable
            No such kernelspec.
        SandboxUnavailable
            A strict kernel that is not Python was asked for.
        KernelDied
            It ended before it was ready.
        """
        spec = _find_spec(profile.language)
        is_strict = profile.sandbox == "strict"
        if is_strict and profile.language != "python":
            raise _cannot_be_strict(profile.language)
        warden = await self._ready_warden()
        name = secrets.token_hex(6)
        assert self._folder is not None
        place = self._folder.make(name)
        connection = ConnectionInfo(place, secrets.token_hex(16))
        file = place / "connection.json"
        file.write_text(json.dumps({**connection.to_dict(), "kernel_name": spec["name"]}))
        file.chmod(0o600)
        channel = MemoryRpc() if spec["python"] else None
        message = {
            "do": "spawn",
            "id": name,
            "argv": [part.replace("{connection_file}", str(file)) for part in spec["argv"]],
            "env": self._environment(profile, place, spec),
            "cwd": str(profile.cwd) if profile.cwd else None,
            "confinement": confinement_of(profile, place).to_dict(),
            "targets": [strict_kernel.CHANNEL] if channel else [],
            **limits_of(profile),
        }
        if is_strict:
            message |= _confining_itself(message, connection, place)
        child = warden.begin(message, [channel.theirs.fileno()] if channel else [])
        if channel is not None:
            channel.theirs.close()
        kernel = JupyterKernel(
            child=child,
            connection=connection,
            context=self._context,
            confinement=profile.sandbox,
            python="loaded" if is_strict else "text" if spec["python"] else None,
            interrupts=spec["interrupts"],
            channel=channel,
            on_close=lambda: self._forget(kernel, place),
        )
        self._kernels.add(kernel)
        try:
            await wait_or_died(child.started, child, seconds=_START_S, what="was not started")
            await kernel.connect(seconds=_START_S)
        except BaseException:
            await kernel.close()
            raise
        return kernel

    def _environment(self, profile: KernelOptions, place: Path, spec: Mapping[str, Any]) -> dict[str, str]:
        env = environment_of(profile, place, spec["env"])
        # The warden ends it; ipykernel's own watch would take the warden for its parent, which it is.
        env.pop("JPY_PARENT_PID", None)
        if spec["python"]:
            # No start-up files of the user: every kernel begins the same.
            env["IPYTHONDIR"] = str(place / "ipython")
            env["NBTOOLS_CHANNEL"] = str(strict_kernel.CHANNEL)
            env["PYTHONWARNINGS"] = env.get("PYTHONWARNINGS", "")
        return env

    async def _ready_warden(self) -> WardenClient:
        async with self._lock:
            if self._warden is not None and self._warden.alive:
                return self._warden
            import zmq

            self._folder = self._folder or RuntimeDir()
            self._context = self._context or zmq.Context()
            self._warden = await open_warden(self._folder, what="starts kernels")
            return self._warden

    def _forget(self, kernel: JupyterKernel, place: Path) -> None:
        import shutil

        self._kernels.discard(kernel)
        shutil.rmtree(place, ignore_errors=True)

    async def close(self) -> None:
        """End all kernels and the warden."""
        await asyncio.gather(*(kernel.close() for kernel in list(self._kernels)))
        if self._warden is not None:
            await self._warden.close()
            self._warden = None
        if self._context is not None:
            self._context.term()
            self._context = None
        if self._folder is not None and self._owns_folder:
            self._folder.close()
            self._folder = None


def _cannot_be_strict(language: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"sandbox='strict' cannot be put on {language!r}: such a kernel opens its sockets by itself.",
        hint="Ask for sandbox='limits'.",
        tried="starting a kernel",
    )


def _confining_itself(message: Mapping[str, Any], connection: ConnectionInfo, place: Path) -> dict[str, Any]:
    """Return what has to be different for a kernel that confines itself."""
    orders = place / "orders.json"
    orders.write_text(json.dumps({**message, "connection": connection.to_dict()}))
    orders.chmod(0o600)
    argv = [sys.executable, "-P", str(Path(strict_kernel.__file__)), str(orders)]
    return {"argv": argv, "confines_itself": strict_kernel.HANDOVER}


def installed_spec(language: str) -> Any:
    """Return the kernelspec that ``kernel:NAME`` means.

    Raises
    ------
    LanguageUnavailable
        No such kernel is installed.
    """
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    name = language.removeprefix("kernel:")
    manager = KernelSpecManager()
    try:
        return manager.get_kernel_spec(name)
    except (NoSuchKernel, ValueError):
        known = sorted(manager.find_kernel_specs())
        close = nearest(name, known)
        raise LanguageUnavailable(
            f"No Jupyter kernel is installed as {name!r}.",
            hint=f"Did you mean kernel:{close}?" if close else f"Installed are: {', '.join(known) or 'none'}.",
            tried=f"starting a kernel for {language!r}",
        ) from None


def _find_spec(language: str) -> dict[str, Any]:
    """Return name, command, environment and manner of interrupt of the kernel for a language."""
    if language == "python":
        # This interpreter, whatever kernelspec happens to be called python3.
        argv = [sys.executable, "-P", "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=40"]
        return {"name": "python3", "argv": argv, "env": {}, "python": True, "interrupts": "signal"}
    name, spec = language.removeprefix("kernel:"), installed_spec(language)
    interrupts: Literal["signal", "message"] = "message" if spec.interrupt_mode == "message" else "signal"
    return {
        "name": name,
        "argv": [sys.executable if part in ("python", "python3") else part for part in spec.argv],
        "env": dict(spec.env),
        "python": spec.language == "python",
        "interrupts": interrupts,
    }
