"""The few system calls of Linux that the standard library does not wrap."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct

__all__ = ["LIBC", "drop_capabilities", "machine", "no_new_privileges", "prctl", "syscall"]

# On Windows there is no C library to ask for by `None`; nothing below is called there.
LIBC = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None

_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63


def machine() -> str:
    """Return ``"x86_64"``, ``"aarch64"`` or whatever else this process' system calls are numbered for."""
    return platform.machine() if struct.calcsize("P") == 8 else f"{platform.machine()}, 32 bits"


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


def _check(what: str, result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
