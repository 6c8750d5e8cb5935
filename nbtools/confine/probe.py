"""The child that measures a host: confine, misbehave, report as JSON. Run as a file, see `host`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable


def _is_refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError:
        return True
    return False


def _tries(action: Callable[[], object]) -> bool:
    """Tell whether an action works in a child: it could leave this process half changed."""
    pid = os.fork()
    if pid == 0:
        os._exit(int(_is_refused(action)))
    return os.waitpid(pid, 0)[1] == 0


def main(package: str, inside: str, outside: str) -> None:
    """Confine this process as strictly as the host allows and print what it was refused.

    Parameters
    ----------
    package
        The folder that holds the package.
    inside
        A folder that may be written.
    outside
        A file that must not be touched.
    """
    sys.path.insert(0, package)
    # Loaded before the sandbox closes, so that a failure says something about the host and not about an import.
    import socket

    from nbtools.confine import Confinement, apply, landlock, linux, seccomp

    is_linux = sys.platform.startswith("linux")
    parent = os.getppid()
    report: dict[str, object] = {
        "landlock_abi": landlock.available_abi() if is_linux else 0,
        "seccomp": is_linux and seccomp.is_available(),
        "supervision": is_linux and seccomp.is_available("notify"),
    }
    report["shared_memory"] = is_linux and _tries(linux.own_shared_memory)

    def hides_processes() -> None:
        linux.own_shared_memory()
        linux.hide_processes()

    report["own_processes"] = is_linux and _tries(hides_processes)
    applied = apply(Confinement(level="strict", write=(inside,), file_bytes=1 << 30, required=False))
    report["limits"] = applied.level != "off"
    report["failed"] = list(applied.missing)

    def reads_environment() -> object:
        with open(f"/proc/{parent}/environ", "rb") as file:  # noqa: PTH123 - as an attacker would
            return file.read()

    def opens_file() -> object:
        with open(outside, "a") as file:  # noqa: PTH123 - as an attacker would
            return file.write("y")

    attempts: dict[str, Callable[[], object]] = {"files": opens_file}
    if is_linux:
        number = seccomp.NUMBERS.get(linux.machine(), {})
        attempts |= {
            "signals": lambda: os.kill(parent, 0),
            "environ": reads_environment,
            "network": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close(),
            "metadata": lambda: os.chmod(outside, 0o600),  # noqa: PTH101 - as an attacker would
            "trace": lambda: linux.syscall("ptrace", number.get("ptrace", -1), 16, parent, 0, 0),
            "terminals": lambda: os.close(os.openpty()[0]),
            "sockets": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_RAW).close(),
            "namespaces": lambda: linux.syscall("unshare", number.get("unshare", -1), 0x10000000),
        }
    report["refused"] = {name: _is_refused(action) for name, action in attempts.items()}
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
