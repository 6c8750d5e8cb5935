"""Whose the changes of a folder are: this process's, or another program's.

Linux tells it (fanotify): everyone may ask which events in a folder are of the process that asks. Processes that it
has started count as others there, so whose the other changes are is not certain once it has started one. Nothing is
known where the system does not tell: before Linux 5.13, in a strict kernel, in most containers, or when too much
happened.

Like `nbtools.kernels.inside.hooks`, this module uses only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
from collections.abc import Iterable

# <linux/fanotify.h>: not inherited by programs, never waiting, and names of files in their folders.
_FLAGS = 0x1 | 0x2 | 0x400 | 0x800
_MODIFY, _ATTRIBUTES, _CLOSE_WRITE, _MOVED_TO, _CREATE = 0x2, 0x4, 0x8, 0x80, 0x100
_ON_CHILDREN, _OVERFLOW = 0x08000000, 0x4000
_WATCHED = _MODIFY | _ATTRIBUTES | _CLOSE_WRITE | _MOVED_TO | _CREATE | _ON_CHILDREN
_EVENT, _HANDLE = struct.Struct("=IBBHQii"), struct.Struct("=BBH8sIi")
_ADD, _HERE = 1, -100
_MOST = 1_000


class Writers:
    """Who changes files that lie in folders, from now on.

    Parameters
    ----------
    folders
        What lies below one of them is not looked at, unless that folder is among them too.
    """

    def __init__(self, folders: Iterable[str]) -> None:
        self._system = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        init = getattr(self._system, "fanotify_init", None)
        self._descriptor = -1 if init is None else init(_FLAGS, os.O_RDONLY)
        self._faults = _faults_of_children()
        if not all(self._is_marked(folder) for folder in folders):
            self.close()

    def close(self) -> None:
        """Look no longer."""
        if self._is_ours():
            os.close(self._descriptor)
        self._descriptor = -1

    def others(self) -> tuple[list[str], bool] | None:
        """Return the names of files that this process has not changed, and whether it has started others that may have.

        `None` where that is not known.
        """
        own, others = set[str](), set[str]()
        with contextlib.suppress(BlockingIOError):
            while self._is_ours() and (data := os.read(self._descriptor, 1 << 16)):
                at = 0
                while at < len(data):
                    size, _, _, head, mask, _, pid = _EVENT.unpack_from(data, at)
                    if mask & _OVERFLOW:
                        return None
                    *_, handle, _ = _HANDLE.unpack_from(data, at + head)
                    name = data[at + head + _HANDLE.size + handle : at + size].partition(b"\0")[0]
                    (own if pid == os.getpid() else others).add(os.fsdecode(name))
                    at += size
        if not self._is_ours() or len(others) > _MOST:
            return None
        return sorted(others - own), self._has_started_processes()

    def _is_marked(self, folder: str) -> bool:
        if self._system is None or self._descriptor < 0:
            return False
        mask = ctypes.c_uint64(_WATCHED)
        return bool(self._system.fanotify_mark(self._descriptor, _ADD, mask, _HERE, os.fsencode(folder)) == 0)

    def _is_ours(self) -> bool:
        """Tell whether the descriptor is ours still: a script may close all that are open, and open others."""
        try:
            return os.readlink(f"/proc/self/fd/{self._descriptor}") == "anon_inode:[fanotify]"  # noqa: PTH115 - no path
        except OSError:
            return False

    def _has_started_processes(self) -> bool:
        if signal.getsignal(signal.SIGCHLD) != signal.SIG_DFL or _faults_of_children() != self._faults:
            return True
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True


def _faults_of_children() -> int:
    """Return the page faults of all processes that this one has started and seen end: each has some."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
