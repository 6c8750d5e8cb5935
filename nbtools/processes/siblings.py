"""How a process forks a sibling: its parent adds ``CLONE_PARENT`` to the very system call, which it stops at (ptrace).

The C library's fork does not take that flag, and a fork by another way than the library's would leave out what
allocators and other libraries do around one. Where a parent may not do this, a process becomes its grandparent's child
when the one in between ends, which takes a second fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any

from nbtools.confine.alarm import interrupted_after
from nbtools.confine.linux import LIBC

_SEIZE, _INTERRUPT, _TO_SYSCALL, _DETACH, _PEEK, _POKE = 0x4206, 0x4207, 24, 17, 3, 6
_MARK_SYSCALLS, _SYSCALL_STOP, _LARGEST_SIGNAL = 1, signal.SIGTRAP | 0x80, 0x7F
# Where a process that is stopped has the number of the system call, its first argument, and its result.
_NUMBER, _FLAGS, _RESULT = 120, 112, 80
_CLONE, _NOT_DONE_YET = 56, -38
# What the C library's fork asks for, and nothing else: the number of the child at its place, and a signal at its end.
# Others may wait for their child within the system call, or hand it to this process.
_CLONE_PARENT, _FLAGS_OF_FORK = 0x8000, 0x1200000 | signal.SIGCHLD
# What a system call gives that is made again, behind a signal; and how often it may, since signals can come for ever.
_AGAIN, _ATTEMPTS = range(-516, -511), 5
# Seconds for the fork to begin: until then the process runs code that others may have put around it.
_PATIENCE_S = 0.5
_STOPS = 10
_WAITING_FORKS = frozenset({str(_CLONE), "58", "435"})  # clone, vfork, clone3


def is_known() -> bool:
    """Tell whether this is a machine and a C library whose forks are known."""
    if not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
        return False
    return sys.maxsize > 1 << 32 and "CS_GNU_LIBC_VERSION" in os.confstr_names


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> int:
    call: Any = LIBC.ptrace  # type: ignore[union-attr]  # is_known() was asked
    call.restype, call.argtypes = ctypes.c_long, (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    return int(call(request, pid, address, data))


def seize(pid: int) -> bool:
    """Stop a child until `let_fork`; tell whether that is allowed here. See there for one that cannot be stopped."""
    return is_known() and _ptrace(_SEIZE, pid, 0, _MARK_SYSCALLS) == 0 and _halt(pid, _PATIENCE_S) > 0


def let_fork(pid: int, patience: float = _PATIENCE_S) -> int:
    """Let a child that was seized make its next process, as a sibling; return its number, or 0 where there is none.

    One that can neither go on nor be stopped is killed: then it is -1.
    """
    result = 0
    _ptrace(_TO_SYSCALL, pid)
    try:
        for _ in range(_ATTEMPTS):
            if not _runs_to_fork(pid, patience):
                break
            # Within the system call, where no code of its own can keep it.
            _ptrace(_POKE, pid, _FLAGS, _FLAGS_OF_FORK | _CLONE_PARENT)
            _ptrace(_TO_SYSCALL, pid)
            result = _ptrace(_PEEK, pid, _RESULT) if _stop_of(pid) else 0
            if result not in _AGAIN:
                break
            _ptrace(_POKE, pid, _FLAGS, _FLAGS_OF_FORK)
            _ptrace(_TO_SYSCALL, pid)
        else:
            _halt(pid, patience)
    except TimeoutError:
        if _halt(pid, patience) < 0:
            return -1
    _ptrace(_DETACH, pid)
    return max(0, result)


def _halt(pid: int, patience: float) -> int:
    """Stop it where it is; return 1 where it stands still, 0 where it has ended, -1 where it had to be killed."""
    _ptrace(_INTERRUPT, pid)
    call = ""
    for _ in range(_STOPS):
        with contextlib.suppress(TimeoutError), interrupted_after(patience):
            return int(_stop_of(pid) != 0)
        # Longer than for a fork, which has another way: on a machine that swaps, a stop takes a while. But one that
        # waits within a fork does so for a process that has its memory.
        before, call = call, _system_call(pid)
        if before == call and call.partition(" ")[0] in _WAITING_FORKS:
            break
    os.kill(pid, signal.SIGKILL)  # it must not hold us up
    return -1


def _system_call(pid: int) -> str:
    """Return the system call in which a process waits, with all its arguments."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/syscall").read_text()
    return ""


def _runs_to_fork(pid: int, patience: float) -> bool:
    """Let it run until it is about to fork; tell whether it is, and has not ended."""
    with interrupted_after(patience):
        while stop := _stop_of(pid):
            if stop == _SYSCALL_STOP and _ptrace(_PEEK, pid, _NUMBER) == _CLONE:
                is_fork = _ptrace(_PEEK, pid, _FLAGS) == _FLAGS_OF_FORK
                if is_fork and _ptrace(_PEEK, pid, _RESULT) == _NOT_DONE_YET:
                    return True
            _ptrace(_TO_SYSCALL, pid, 0, stop if stop <= _LARGEST_SIGNAL else 0)
    return False


def _stop_of(pid: int) -> int:
    """Wait until it stops, and return why, or 0 where it has ended; its burial is left to others."""
    state = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return state.si_status if state is not None and state.si_code == os.CLD_TRAPPED else 0
