"""Landlock: the kernel refuses files outside the given ones, and signals and abstract sockets of strangers.

A ruleset names the rights it governs; whatever no rule grants is refused from then on, for this thread and all that
comes after it. What the running kernel governs depends on its ABI:

====  =======  ==========================================================
ABI   Linux    adds
====  =======  ==========================================================
1     5.13     reading, writing, making and removing; no tracing of strangers
2     5.19     moving files between folders
3     6.2      truncating
4     6.7      TCP ports
5     6.10     device controls
6     6.12     signals and abstract sockets
====  =======  ==========================================================

It cannot govern metadata (mode, owner, times, attributes) nor sockets other than TCP: `seccomp` does.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable

from nbtools.confine import linux

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every architecture
_RULE_PATH_BENEATH = 1
_CREATE_VERSION = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_ABI_1 = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_TCP = 0b11  # bind and connect
_SCOPE = 0b11  # abstract sockets and signals

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICE = _READ_FILE | _WRITE_FILE | _READ_DIR | _IOCTL_DEV
_FILES_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def available_abi() -> int:
    """Return the kernel's Landlock ABI; 0 when there is none."""
    try:
        return linux.syscall("landlock_create_ruleset", _CREATE, None, 0, _CREATE_VERSION)
    except OSError:
        return 0


def restrict(
    *,
    read: Iterable[str],
    write: Iterable[str],
    listed: Iterable[str] = (),
    devices: Iterable[str] = (),
    programs: Iterable[str] | None = None,
    network: bool,
    abi: int | None = None,
) -> None:
    """Confine this thread, and every thread and process it starts from now on, to the given files.

    Parameters
    ----------
    read
        Files and folders that may be read, with all below them. What does not exist is skipped.
    write
        Files and folders where everything is allowed but making devices.
    listed
        Folders of which, and of all below them, the names may be listed.
    devices
        Device files, or folders of them, that may be opened for reading and writing and controlled.
    programs
        The only files and folders that may be executed (and read); `None` allows it of all that may be read.
    network
        Whether TCP stays allowed.
    abi
        Use no more than this ABI offers; `None` takes what the kernel has.

    Raises
    ------
    OSError
        The kernel has no Landlock or refused the ruleset.
    """
    abi = available_abi() if abi is None else abi
    governed = _ABI_1 | (abi >= 2 and _REFER) | (abi >= 3 and _TRUNCATE) | (abi >= 5 and _IOCTL_DEV)
    writing = governed & ~(_MAKE_CHAR | _MAKE_BLOCK)
    exempt = 0 if programs is None else _EXECUTE
    rules = (
        *((_READ & ~exempt, read), (writing & ~exempt, write), (_READ_DIR, listed)),
        *((_DEVICE & governed, devices), (_READ, programs or ())),
    )
    _enforce(abi, (governed, _TCP if abi >= 4 and not network else 0, _SCOPE if abi >= 6 else 0), rules)


def restrict_programs(programs: Iterable[str]) -> None:
    """Keep this thread, and all it starts from now on, from executing other files than these; all else stays allowed.

    Raises
    ------
    OSError
        The kernel has no Landlock of ABI 2, or refused the ruleset.
    """
    abi = available_abi()
    # Moving files between folders is refused by every ruleset that does not allow it, which takes the second ABI.
    _enforce(abi if abi >= 2 else 0, (_EXECUTE | _REFER, 0, 0), ((_EXECUTE, programs), (_REFER, ("/",))))


def restrict_tracing() -> None:
    """Keep this thread, and all it starts from now on, from looking into processes that are not below it.

    Their environment, memory and descriptors are closed; files stay as they are.

    Raises
    ------
    OSError
        The kernel has no Landlock of ABI 2, or refused the ruleset.
    """
    # Any ruleset does it. This one governs the moving of files between folders, and allows it everywhere.
    abi = available_abi()
    _enforce(abi if abi >= 2 else 0, (_REFER, 0, 0), ((_REFER, ("/",)),))


def _enforce(abi: int, fields: tuple[int, int, int], rules: Iterable[tuple[int, Iterable[str]]]) -> None:
    if abi < 1:
        raise OSError(errno.ENOSYS, "the kernel has no Landlock, or it is off")
    # The structure grew with the ABI; a longer one than the kernel knows is refused unless its tail is zero.
    attributes = struct.pack("QQQ", *fields)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = linux.syscall("landlock_create_ruleset", _CREATE, attributes, len(attributes), 0)
    try:
        for rights, paths in rules:
            for path in dict.fromkeys(paths):
                _allow(ruleset, path, rights)
        linux.no_new_privileges()
        linux.syscall("landlock_restrict_self", _RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        # O_PATH needs no permission to read the file itself.
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # absent or out of reach: then there is nothing to allow
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= _FILES_ONLY
        linux.syscall(
            f"landlock_add_rule({path})", _ADD, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, handle), 0
        )
    finally:
        os.close(handle)
