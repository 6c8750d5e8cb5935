"""Ordinary Jupyter kernels, started from a kernelspec by a small warden process.

The backend of macOS, of any kernelspec that is not a Python of ours, and of Linux without forks. The kernel
is what the kernelspec says, over local sockets; the warden gives it a process group, limits, and an end when the owner
ends.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nbtools.errors import LanguageUnavailable, SandboxUnavailable, did_you_mean
from nbtools.kernels.inside import strict_kernel
from nbtools.kernels.interface import KernelOptions
from nbtools.kernels.jupyter.kernel import ConnectionInfo, JupyterBackend, JupyterKernel
from nbtools.kernels.jupyter.memory_rpc import MemoryRpc
from nbtools.kernels.runs.local import start_message

_START_S = 60.0


class SpawnedBackend(JupyterBackend):
    """Start kernels by their kernelspecs."""

    name = "spawned"

    async def open(self, options: KernelOptions) -> JupyterKernel:
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
        spec = _find_spec(options.language)
        is_strict = options.sandbox == "strict"
        # Its start would have to be ours, as `strict_kernel` is, to open the sockets before the lock.
        if is_strict and options.language != "python":
            raise _cannot_be_strict(options.language)
        warden = await self.warden()
        folder = self.folder.make(secrets.token_hex(6))
        connection = ConnectionInfo(folder)
        file = _write_private(folder / "connection.json", {**connection.to_dict(), "kernel_name": spec["name"]})
        memory_rpc = MemoryRpc() if spec["python"] else None
        message = {
            "do": "spawn",
            **start_message(options, folder, spec["env"]),
            "argv": [part.replace("{connection_file}", file) for part in spec["argv"]],
            "targets": [strict_kernel.CHANNEL] if memory_rpc else [],
        }
        # The warden ends it; ipykernel's own watch would take the warden for its parent, which it is.
        message["env"].pop("JPY_PARENT_PID", None)
        if memory_rpc is not None:
            # No start-up files of the user: every kernel begins the same.
            message["env"] |= {"IPYTHONDIR": str(folder / "ipython"), "NBTOOLS_CHANNEL": str(strict_kernel.CHANNEL)}
        if is_strict:
            # Too long for a command line, where other users of the machine could read the key too.
            orders = _write_private(folder / "orders.json", {**message, "connection": connection.to_dict()})
            message["argv"] = [sys.executable, "-P", strict_kernel.__file__, orders]
            message["confines_itself"] = strict_kernel.HANDOVER
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            if memory_rpc is not None:
                undo.callback(memory_rpc.close)
            process = warden.begin(message, [memory_rpc.theirs.fileno()] if memory_rpc else [])
            undo.pop_all()
        if memory_rpc is not None:
            memory_rpc.theirs.close()
        kernel = JupyterKernel(
            process=process,
            connection=connection,
            zmq_context=self.zmq_context,
            sandbox=options.sandbox,
            python="loaded" if is_strict else "text" if spec["python"] else None,
            interrupts=spec["interrupts"],
            memory_rpc=memory_rpc,
            folder=folder,
            on_close=self._kernels.discard,
        )
        return await self._enter(kernel, kernel.connect(timeout=_START_S))


def _write_private(file: Path, content: Mapping[str, Any]) -> str:
    """Write JSON to a file that only its owner can read; return its path."""
    file.write_text(json.dumps(content))
    file.chmod(0o600)
    return str(file)


def _cannot_be_strict(language: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"sandbox='strict' cannot be put on {language!r}: such a kernel opens its sockets by itself.",
        hint="Ask for sandbox='limits'.",
    )


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
        names = sorted(manager.find_kernel_specs())
        raise LanguageUnavailable(
            f"No Jupyter kernel is installed as {name!r}.",
            hint=did_you_mean(name, names, f"Installed are: {', '.join(names) or 'none'}.", form="kernel:{}"),
            tried=f"starting a kernel for {language!r}",
        ) from None


def _find_spec(language: str) -> dict[str, Any]:
    """Return name, command, environment and manner of interrupt of the kernel for a language."""
    if language == "python":
        # This interpreter, whatever kernelspec happens to be called python3.
        argv = [sys.executable, "-P", "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=40"]
        # What an agent runs belongs in no history of its person.
        argv += ["--HistoryManager.hist_file=:memory:"]
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
