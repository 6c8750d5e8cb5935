"""The keeper: the one process that has a memory file open, for all notebooks, kernels and agents of a user.

``python -m nbtools.memory.keeper /path/m.duckdb`` is started by the first client that needs it, goes on in the
background, and leaves when it has had no requests for a while. What it says on standard output until then is one
line of JSON: ``{"ready": true}``, or why it cannot serve.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.errors import MemoryUnavailable, NbtoolsError
from nbtools.memory.duckdb.directory import MemoryDirectory
from nbtools.memory.keeper.protocol import PROTOCOL, connect_to, dumps, failure_to_wire

if TYPE_CHECKING:
    from nbtools.memory.duckdb.engine import MemoryEngine

# The log is for the traceback of the last days; longer ones have to be copied.
_LOG_BYTES = 1 << 20


def main(arguments: list[str] | None = None) -> int:
    """Run the keeper of a file; return 0 when it served, or when another keeper serves already."""
    parser = argparse.ArgumentParser(prog="python -m nbtools.memory.keeper", description=main.__doc__)
    parser.add_argument("path", type=Path, help="the memory file")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds without clients until it leaves")
    parser.add_argument("--history", type=int, default=100, help="versions kept of each record")
    # Programs that run since before an update start this keeper by its old options, so these keep their names.
    parser.add_argument("--wait", type=float, default=10.0, help="seconds to wait for another holder of the file")
    parser.add_argument("--tcp", action="store_true", help="listen on a loopback port instead of a Unix socket")
    parser.add_argument("--foreground", action="store_true", help="do not go into the background")
    parser.add_argument("--protocol", type=int, default=PROTOCOL, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.foreground and hasattr(os, "fork") and os.fork():
        os._exit(0)  # Its starter waits for this process alone, so no zombie is left behind.
    try:
        serve(
            Path(os.path.realpath(options.path)),
            idle_exit=options.idle,
            history=options.history,
            timeout=options.wait,
            tcp=options.tcp,
            protocol=options.protocol,
        )
    except NbtoolsError as exc:
        _report(failure_to_wire(exc))
        return 1
    except Exception as exc:
        # Its starter does not see the traceback, so each reason is sent.
        traceback.print_exc()
        reason = f"The keeper of {options.path} could not start: {type(exc).__name__}: {exc}"
        hint = f"{MemoryDirectory(options.path).messages} says more"
        _report(failure_to_wire(MemoryUnavailable(reason, hint=hint)))
        return 1
    return 0


def serve(
    path: Path,
    *,
    idle_exit: float = 60.0,
    history: int = 100,
    timeout: float = 10.0,
    tcp: bool = False,
    protocol: int = PROTOCOL,
) -> None:
    """Serve a file until it has no clients, or return at once if another keeper serves it.

    Raises
    ------
    MemoryUnavailable
        The file is unavailable.
    """
    os.umask(0o077)  # Notes are nobody else's business.
    directory = MemoryDirectory(path)
    directory.make()
    end = time.monotonic() + timeout
    if not _lead(directory, end):
        return
    try:
        with contextlib.suppress(OSError):
            _keep_messages(directory)
        # Imported only by the leader: DuckDB takes most of the time of a start.
        from nbtools.memory.keeper.listener import Listener
        from nbtools.memory.keeper.server import KeeperServer

        engine = _open(directory, history, end)
        listener = Listener(directory.socket_path, tcp=tcp)
        greeting = {"hello": protocol, "version": _version(), "pid": os.getpid()}
        server = KeeperServer(engine, directory, listener, idle_exit=idle_exit, greeting=greeting)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: server.leave())
        with contextlib.suppress(AttributeError):
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        directory.announce(address=listener.address, protocol=protocol, started=time.time())
        _report({"ready": True})
        server.run()
    except (OSError, NbtoolsError) as exc:
        if directory.is_lost():
            why = f"{directory.folder} was removed while the keeper of {path} started."
            raise MemoryUnavailable(why, hint="try again", retryable=True) from exc
        raise
    finally:
        directory.release()


def _open(directory: MemoryDirectory, history: int, end: float) -> MemoryEngine:
    """Open the file; wait while another process, such as an ending keeper without a lock, has it open."""
    from nbtools.memory.duckdb.recovery import open_engine

    while True:
        try:
            return open_engine(directory, history=history)
        except MemoryUnavailable as exc:
            if not exc.retryable or time.monotonic() > end or directory.is_lost():
                raise
        time.sleep(0.05)


def _lead(directory: MemoryDirectory, end: float) -> bool:
    """Acquire the lock of the file; return `False` if another keeper has it and can be reached."""
    while not directory.acquire(0.0):
        address = directory.holder().get("address")
        if address and not directory.is_elsewhere() and _can_reach(address):
            _report({"ready": True})
            return False
        if time.monotonic() > end:
            hint = "use NBTOOLS_MEMORY_URL=postgresql://… to share a memory between machines"
            raise MemoryUnavailable(
                f"{directory.path} is held by {directory.held_by()}.",
                hint=hint if directory.is_elsewhere() else "close it there, or end that process",
                retryable=True,
            )
        # The lock of another process cannot be waited for with a limit, so it is tried again.
        time.sleep(0.02)
    return True


def _keep_messages(directory: MemoryDirectory) -> None:
    """Redirect standard error to the keeper's log, which starts again from nothing once it is long."""
    is_long = directory.messages.exists() and directory.messages.stat().st_size > _LOG_BYTES
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if is_long else 0)
    fd = os.open(directory.messages, flags, 0o600)
    os.dup2(fd, 2)
    os.close(fd)


def _report(facts: dict[str, Any]) -> None:
    """Write one line for the process that started this one and waits for it, and close standard output."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(dumps(facts) + "\n")
        sys.stdout.flush()
    # Closed by taking its place: a later print to a closed descriptor could reach the memory file.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("nbtools-kit")
    except metadata.PackageNotFoundError:
        return "unknown"


def _can_reach(address: Any) -> bool:
    try:
        connect_to(address, timeout=1.0).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
