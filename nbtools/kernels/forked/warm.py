"""The warm process: one zygote with loaded libraries for all notebooks, commands and servers of a user.

``python -m nbtools.kernels.forked.warm PLACE IDLE PRELOADS COMMANDS HEAD_START`` loads the libraries once and listens
on a socket that only its user can open. While they load, owners get zygotes without libraries, whose scripts import
what they need. An owner who waits has a head start of so many seconds: loading beside its script slows it down by half.

For each owner who connects it forks a zygote of the owner's own, which copies the settings of the owner's process
(limits, umask, priority, processors, control group) and serves it as any zygote does: its kernels end with this owner
only. The warm process itself runs no script, and leaves when it was idle, when packages have changed, or when its
socket is gone. Zygotes that it has forked go on without it.

Commands are run by a fork that it makes of itself at its start: see `nbtools.kernels.forked.commands`.

An owner who is refused (see `nbtools.kernels.forked.forking_server`) starts its own zygote.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbtools.kernels.forked import commands
from nbtools.kernels.forked.forking_server import ForkingServer, admit, listen_at
from nbtools.kernels.forked.sameness import SOCKET
from nbtools.processes.runtime_dir import try_lock

# Files of the process, beside its socket: who serves, whether the libraries are loaded, and why they cannot be.
LOCK = "lock"
LOADED = "loaded"
PROBLEM = "problem"
_LOADING_S = 60.0


def _become_zygote(connection: socket.socket, origin: Mapping[str, Any]) -> None:
    """In the fork: serve an owner who is admitted."""
    from nbtools.kernels.forked.zygote import Zygote

    admitted = admit(connection)
    if admitted is not None:
        pipe, request, owner = admitted
        connection.settimeout(None)
        Zygote(pipe, request["folder"], owner=owner).run(origin)


def _start_commands(folder: Path, lock: int) -> int:
    """Fork the process that runs commands; return the descriptor by which it learns that it may begin, or is to end."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(writer)
        os.close(lock)
        try:
            commands.serve(folder, reader)
        finally:
            os._exit(0)
    os.close(reader)
    return writer


def serve() -> None:
    """Run the process; its arguments are told above, the preloads are a JSON list."""
    os.umask(0o077)  # of its first starter; each fork takes on its owner's
    base, idle_s, preloads = Path(sys.argv[1]), float(sys.argv[2]), json.loads(sys.argv[3])
    lock = os.open(base / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not try_lock(lock):
        return  # another one is there, or on its way
    if os.fork():
        os._exit(0)  # its starter has nobody to bury, and finds the lock held
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before anything is loaded: commands want none of it.
    begin, head_start_s = _start_commands(Path(sys.argv[4]), lock), float(sys.argv[5])
    sys.argv = ["nbtools-kernel"]
    from nbtools.kernels.forked import zygote
    from nbtools.kernels.inside import forked_kernel

    for name in (SOCKET, LOADED, PROBLEM):
        with contextlib.suppress(OSError):
            (base / name).unlink()
    # A caller in a hurry gets a kernel without libraries; a fork loads them meanwhile, and takes over.
    forked_kernel.build()
    origin = zygote.without_libraries()
    with listen_at(base) as listener:
        reader, writer = os.pipe()
        if os.fork():
            os.close(writer)
            ForkingServer(
                base, listener, {**origin, "is_light": True}, become=_become_zygote, idle_s=_LOADING_S, successor=reader
            ).run()
            os._exit(0)  # without a trace: socket and lock are the successor's
        os.close(reader)
        time.sleep(head_start_s)
        try:
            origin = zygote.load(preloads)
        except Exception as exc:
            origin = {"problem": f"{type(exc).__name__}: {exc}"}
        if origin["problem"]:
            # The next caller starts its own zygote, and reports what that one says.
            (base / SOCKET).unlink()
            (base / PROBLEM).write_text(origin["problem"], "utf-8")
            return
        (base / LOADED).touch()
        os.close(writer)
        with contextlib.suppress(BrokenPipeError):
            os.write(begin, b"1")
        warm = ForkingServer(base, listener, origin, become=_become_zygote, idle_s=idle_s)
        warm.run()
        with contextlib.suppress(OSError):
            if warm.is_found():
                (base / SOCKET).unlink()


if __name__ == "__main__":
    serve()
