"""Run a command in a fork of a process that has already imported what it needs, if there is one.

It only saves time and must never cause a failure: `forward` returns `None` while nothing has been done, and then this
process runs the command. Such a command waits only for what is imported here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from nbtools.ground.home import default_home
from nbtools.kernels.forked.sameness import SOCKET, commands_place, is_private
from nbtools.processes.fd_socket import FdSocket

# Those that ask no questions: a question needs the terminal of the process that asks.
_FORWARDED = frozenset({"call", "sql", "memory", "tools"})
_ANSWER_S = 2.0


def forward(arguments: Sequence[str]) -> int | None:
    """Return the exit code of a command that another process has run; `None` when this one is to run it."""
    if not arguments or arguments[0] not in _FORWARDED or not sys.platform.startswith("linux"):
        return None
    # A debugger sees only this process.
    if os.environ.get("NBTOOLS_KERNEL_WARM") == "0" or sys.gettrace() is not None:
        return None
    folder = commands_place(Path(os.environ.get("NBTOOLS_HOME") or default_home()).expanduser())
    # Another user who could write there could put their own socket in its place, and be sent our environment.
    if not is_private(folder):
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        pipe = FdSocket(connection)
        try:
            pid = _hand_over(pipe, connection, folder, arguments)
        except (AttributeError, OSError, ValueError):
            return None  # nobody listens, or a standard stream is closed
        return None if pid is None else _wait(pipe, pid)


def _hand_over(pipe: FdSocket, connection: socket.socket, runtime_dir: Path, arguments: Sequence[str]) -> int | None:
    """Hand over the command and its streams; return the process that has started it, `None` when none has."""
    streams = [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)]
    connection.settimeout(_ANSWER_S)
    connection.connect(str(runtime_dir / SOCKET))
    pipe.send({"do": "command"})
    answer = pipe.wait()
    if answer is None or "refused" in answer[0]:
        return None
    # Only the answer has a limit; the command itself takes as long as it takes.
    connection.settimeout(None)
    # A descriptor, not a path: the folder may be renamed, or be out of the other process's reach by name.
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    request = {"arguments": list(arguments), "program": sys.argv[0], "path": sys.path, "env": dict(os.environ)}
    try:
        pipe.send(request, [*streams, folder])
    finally:
        os.close(folder)
    return None if pipe.wait() is None else int(answer[0]["pid"])


def _wait(pipe: FdSocket, pid: int) -> int:
    """Wait for the end of the command; pass on Ctrl-C and Ctrl-Z, which the terminal sends only to this process."""

    def send(number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def pause(*_: object) -> None:
        # The command first: else it would go on printing into a shell that has its prompt again.
        send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        send(signal.SIGCONT)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: send(signal.SIGINT))
    signal.signal(signal.SIGTSTP, pause)
    done = pipe.wait()
    if done is None:
        print("nbtools: the process that ran the command was ended; its effects until then remain.", file=sys.stderr)
        return 1
    return int(done[0]["code"])
