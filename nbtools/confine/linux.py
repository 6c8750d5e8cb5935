"""The few system calls of Linux that the standard library does not wrap."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Sequence

# On Windows there is no C library to ask for by `None`; nothing below is called there.
LIBC = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None

_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63
_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000
_PRIVATE = 0x4000 | 1 << 18  # MS_REC, MS_PRIVATE
_HARMLESS = 2 | 4  # MS_NOSUID, MS_NODEV
_BIND = 0x1000
_NO_PROGRAMS = 8  # MS_NOEXEC


def machine() -> str:
    """Return ``"x86_64"``, ``"aarch64"`` or whatever else this process' system calls are numbered for."""
    machine = os.uname().machine
    return machine if struct.calcsize("P") == 8 else f"{machine}, 32 bits"


def prctl(option: int, *values: int) -> int:
    """Call ``prctl``; raise `OSError` when it fails."""
    padded = (*values, 0, 0, 0, 0)[:4]
    assert LIBC is not None
    result: int = LIBC.prctl(option, *(ctypes.c_ulong(value) for value in padded))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}): {os.strerror(ctypes.get_errno())}")
    return result


def syscall(what: str, number: int, *values: int | bytes | None) -> int:
    """Make a system call by number; raise `OSError`, naming `what`, when it fails."""
    assert LIBC is not None
    wide = (ctypes.c_long(value) if isinstance(value, int) else value for value in values)
    result: int = LIBC.syscall(ctypes.c_long(number), *wide)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def process_status(path: str, folder: int | None = None) -> dict[str, str]:
    """Return the lines of a process' status by their names; a process that ended raises `OSError`.

    Parameters
    ----------
    path
        Its file ``status`` below ``/proc``.
    folder
        A descriptor of the folder that a relative path starts at.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(handle, encoding="utf-8", errors="replace") as lines:
        pairs = (line.partition(":") for line in lines)
        return {name: value.strip() for name, _, value in pairs}


def no_new_privileges() -> None:
    """Give up, for this process and all it starts, ever gaining a privilege by running a program."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities(only: tuple[int, ...] | None = None) -> None:
    """Give up capabilities: all of them, or those numbered in `only`.

    Root in a container keeps some that walk around Landlock (``CAP_PERFMON`` reads other processes' environment) or
    around rlimits (``CAP_SYS_RESOURCE``), so even there they go.
    """
    for number in range(_LAST_CAPABILITY + 1) if only is None else only:
        try:
            prctl(_PR_CAPBSET_DROP, number)
        except OSError:
            break  # beyond the last one, or we hold no CAP_SETPCAP and then hold none of the others either
    assert LIBC is not None
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    words = [0] * 6
    if only is not None:
        buffer = bytes(24)
        _check("capget", LIBC.capget(header, buffer))
        words = list(struct.unpack("6I", buffer))
        for number in only:
            for field in range(3):
                words[3 * (number // 32) + field] &= ~(1 << number % 32)
    with contextlib.suppress(OSError):  # Linux older than 4.3 has no ambient set
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    _check("capset", LIBC.capset(header, struct.pack("6I", *words)))


def own_shared_memory(size: int | None = None, keep: Sequence[str] = ()) -> None:
    """Give this process, and all it starts from now on, its own ``/dev/shm``, empty and gone with the last.

    A user who may not mount by right does it in a user namespace where it is the same user. Call it while there is only
    one thread.

    Parameters
    ----------
    size
        The most bytes that fit; `None` takes half of the machine's memory.
    keep
        Folders in it that stay to be seen, those of others' included.

    Raises
    ------
    OSError
        This host allows neither.
    """
    user, group = os.geteuid(), os.getegid()
    assert LIBC is not None
    if LIBC.unshare(_NEW_MOUNTS) < 0:
        _check("unshare", LIBC.unshare(_NEW_USER | _NEW_MOUNTS))
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - pathlib would be loaded for it
                file.write(text)
    # What is mounted here must not be seen by others, who see the same folders.
    _check("mount", LIBC.mount(b"none", b"/", None, ctypes.c_ulong(_PRIVATE), None))
    handles = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in keep]
    options = b"mode=1777" + (b"" if size is None else b",size=%d" % size)
    _check("mount", LIBC.mount(b"nbtools", b"/dev/shm", b"tmpfs", ctypes.c_ulong(_HARMLESS), options))
    for path, handle in handles:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103 - pathlib would be loaded for it
        source = b"/proc/self/fd/%d" % handle
        _check("mount", LIBC.mount(source, os.fsencode(path), None, ctypes.c_ulong(_BIND), None))
        os.close(handle)


def hide_processes() -> None:
    """Show this process, and all it starts, only those processes in ``/proc`` that it may trace.

    Call it after `own_shared_memory`, which makes the view of the file system that is changed.

    Raises
    ------
    OSError
        It takes the right to mount in the namespace of processes, or Linux 5.8.
    """
    assert LIBC is not None
    flags = ctypes.c_ulong(_HARMLESS | _NO_PROGRAMS)
    _check("mount", LIBC.mount(b"nbtools", b"/proc", b"proc", flags, b"hidepid=ptraceable"))


def _check(what: str, result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
