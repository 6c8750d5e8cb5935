"""Commands that run in a fork of a process which has imported what they need, instead of importing it each time.

The process is forked from the warm process before that has loaded anything, so it contains no library and no kernel's
shell. It imports what commands need once the libraries of kernels are loaded, and ends with the warm process.

A fork checks that it may serve the process that asks, as for owners of kernels, takes on what that has, and says so.
Only then it is sent arguments, environment, and copies of the standard streams and the folder: in a queue that nobody
reads the streams would stay open. Before it begins it says that too; until then the process may run the command itself.
It ends when the process is gone, however that went.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbtools.errors import NbtoolsError
from nbtools.ground.home import make_private
from nbtools.kernels.forked.forking_server import ForkingServer, admit, listen_at
from nbtools.kernels.forked.packages import installed_in
from nbtools.kernels.forked.sameness import SOCKET, newest_code

# Named, because commands stand above kernels. It has `main`, which returns the exit code.
_COMMANDS = "nbtools.cli.ahead"


def serve(folder: Path, go: int) -> None:
    """Wait for a byte from the warm process, import what commands need, and serve them until it has ended."""
    if not os.read(go, 1):
        return
    importlib.import_module(_COMMANDS)
    gc.collect()
    gc.freeze()
    os.umask(0o077)
    make_private(folder)
    with listen_at(folder) as listener:
        origin = {"path": installed_in(sys.path), "newest": newest_code()}
        server = ForkingServer(folder, listener, origin, become=_run, idle_s=math.inf, successor=go)
        server.run()
        with contextlib.suppress(OSError):
            if server.is_found():
                (folder / SOCKET).unlink()


def _run(connection: socket.socket, origin: dict[str, Any]) -> None:
    """In the fork: run the command, and tell its exit code."""
    admitted = admit(connection)
    if admitted is None:
        return
    pipe, *_ = admitted
    pipe.send({"event": "hello", "pid": os.getpid()})
    order = pipe.wait()
    if order is None:
        return  # a client that has given up waiting runs the command itself
    connection.settimeout(None)
    command, streams = order
    _take_streams(streams)
    os.environ.clear()
    os.environ.update(command["env"])
    time.tzset()
    sys.argv, sys.path = [command["program"], *command["arguments"]], command["path"]
    if not _may_run(origin) or not pipe.send({"event": "begun"}):
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    code = _perform(command["arguments"])
    pipe.send({"event": "done", "code": code})
    os._exit(code)


def _may_run(origin: dict[str, Any]) -> bool:
    """Tell whether the command may run here: the code is still the same, and the settings allow it."""
    from nbtools.ground.config import Config

    with contextlib.suppress(NbtoolsError):
        return newest_code() == origin["newest"] and bool(Config.load().kernel_warm)
    return False  # the command itself says what is wrong with the settings


def _take_streams(descriptors: Sequence[int]) -> None:
    """Make the command's standard streams and folder those of this process."""
    *streams, folder = descriptors
    os.fchdir(folder)
    os.close(folder)
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
        os.close(descriptor)
    for target, name in enumerate(("stdin", "stdout", "stderr")):
        old: Any = getattr(sys, name)
        new: Any = open(  # noqa: SIM115 - for the life of the process
            target, "w" if target else "r", encoding=old.encoding, errors=old.errors, closefd=False
        )
        if target:
            lines = target == 2 or new.isatty()
            new.reconfigure(line_buffering=lines, write_through=old.write_through)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _end_with(connection: socket.socket) -> None:
    """Wait for the end of the command's process, and end as it does: at once, its kernels by the end of their owner."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _perform(arguments: Sequence[str]) -> int:
    """Run the command to its end, as the interpreter would."""
    try:
        code = importlib.import_module(_COMMANDS).main(arguments)
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - what the interpreter does at its end
    atexit._run_exitfuncs()  # noqa: SLF001 - the same
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return int(code)
