"""seccomp: a filter over system calls, assembled from rules into classic BPF.

A rule names system calls, conditions on their arguments, and what happens when all conditions hold. Rules are tried in
order; what no rule catches is allowed. A filter can see numbers only, never what a pointer points to. That decides the
shape of several rules: a socket is judged when it is made (by family), because its address is behind a pointer; the
local family has streams and packets with a connection alone, because a datagram may carry an address.

Three filters come out of it:

- `sandbox`: set before threads start. No sockets but local streams (and the internet families, when the network is
  allowed), no tracing, mounting, namespaces, keyrings, io_uring and the like, no limits or priorities of processes
  older than this one. Changes of metadata go to a supervisor, or are refused.
- `lock`: set once the process has opened its own sockets. From then on it connects to nothing, or, when the network is
  allowed, it makes no more local sockets, so that no service of this machine can be reached through one.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import functools
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from nbtools.confine import linux
from nbtools.texts.parsing import word_lists

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000


def _numbers() -> dict[str, dict[str, int]]:
    """Read the table beside this module; a dash means that the architecture never had the call."""
    rows = [line.split("\t") for line in Path(__file__).with_name("system_calls.tsv").read_text("ascii").splitlines()]
    columns = {machine: at for at, machine in enumerate(rows[0]) if at}
    return {machine: {row[0]: int(row[at]) for row in rows[1:] if row[at] != "-"} for machine, at in columns.items()}


NUMBERS = _numbers()
"""System call numbers by machine and name."""

_LISTS = word_lists(__file__, "system_calls.words")
METADATA = _LISTS["metadata"]
"""Calls that change a file's mode, owner or times: Landlock does not govern them."""

SCHEDULING, SIGNALLING = _LISTS["scheduling"], _LISTS["signalling"]
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # typing into a terminal
_DIRECTION, _READS = 0xC0000000, 0x80000000
_FS_SET_ENCRYPTION, _FAT_SET_ATTRIBUTES = 0x800C6613, 0x40047211
_FS_FIEMAP, _FICLONE, _FICLONERANGE = 0xC020660B, 0x40049409, 0x4020940D
_PR_SET_DUMPABLE = 4
_O_ACCMODE, _O_TRUNC = 0b11, 0o1000
_SOCK_TYPE_MASK = 0xF
_AF_NETLINK = 16  # read by getifaddrs
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1

SELF = 1 << 40
"""In a condition: the number of the process that installs the filter, so that one program fits many processes."""
_SELF_GROUP = 1 << 41  # its negative, as a group is named to kill()
# Likewise those who started it, nearest first, and the groups that they are in.
_FOREBEARS, _FOREBEARS_GROUPS = (1 << 42, 1 << 43), (1 << 44, 1 << 45)

Action = Literal["refuse", "missing", "unsupported", "notify"]
_ACTIONS: dict[Action, int] = {
    "refuse": 0x00050000 | errno.EPERM,
    "missing": 0x00050000 | errno.ENOSYS,
    "unsupported": 0x00050000 | errno.ENOTSUP,
    "notify": 0x7FC00000,
}
_ALLOW, _KILL = 0x7FFF0000, 0x80000000

_LOAD, _JUMP, _JEQ, _JGT, _JGE, _JSET, _AND, _RETURN = 0x20, 0x05, 0x15, 0x25, 0x35, 0x45, 0x54, 0x06


@dataclasses.dataclass(frozen=True, kw_only=True)
class When:
    """A condition on one argument of a system call.

    The kernel takes the arguments judged here as 32-bit numbers, so only the lower half is looked at; ``"given"``,
    which is for pointers, looks at both.
    """

    argument: int
    op: Literal["eq", "ne", "gt", "lt", "any", "none", "given"]
    value: int = 0
    mask: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallRule:
    """System calls by name, what they must look like, and what is done with them then."""

    calls: tuple[str, ...]
    action: Action = "refuse"
    when: tuple[When, ...] = ()


_Instruction = tuple[int, int, int, int]


def _condition(when: When) -> list[_Instruction]:
    """Return instructions that fall through when the condition holds and jump by 255 (to be patched) when not."""
    low = 16 + 8 * when.argument
    code: list[_Instruction] = [(_LOAD, 0, 0, low)]
    if when.mask is not None:
        code.append((_AND, 0, 0, when.mask))
    jumps: dict[str, _Instruction] = {
        "eq": (_JEQ, 0, 255, when.value),
        "ne": (_JEQ, 255, 0, when.value),
        "gt": (_JGT, 0, 255, when.value),
        "lt": (_JGE, 255, 0, when.value),
        "any": (_JSET, 0, 255, when.value),
        "none": (_JSET, 255, 0, when.value),
    }
    if when.op == "given":
        # Not zero in the lower half, or else not zero in the upper half.
        return [*code, (_JEQ, 0, 2, 0), (_LOAD, 0, 0, low + 4), (_JEQ, 255, 0, 0)]
    return [*code, jumps[when.op]]


def _block(rule: CallRule, number: int) -> list[_Instruction]:
    """Return the instructions for one call of a rule; the call's number is loaded before and after it."""
    answer = (_RETURN, 0, 0, _ACTIONS[rule.action])
    if not rule.when:
        return [(_JEQ, 0, 1, number), answer]
    body = [instruction for when in rule.when for instruction in _condition(when)]
    body.append(answer)
    patched = [
        (code, len(body) - at - 1 if yes == 255 else yes, len(body) - at - 1 if no == 255 else no, value)
        for at, (code, yes, no, value) in enumerate(body)
    ]
    # Both ways out of the body meet at the reload.
    return [(_JEQ, 0, len(patched) + 1, number), *patched, (_LOAD, 0, 0, 0)]


@functools.cache
def assemble(rules: tuple[CallRule, ...], machine: str) -> tuple[_Instruction, ...]:
    """Turn rules into a program for a machine; calls that it does not have are left out.

    Numbers are looked up by halving: when a filter is set, the kernel tries it on every system call there is, and a
    long list would make that the most expensive step of a confinement.
    """
    numbers = NUMBERS[machine]
    program: list[_Instruction] = [
        *((_LOAD, 0, 0, 4), (_JEQ, 1, 0, _AUDIT_ARCH[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0))
    ]
    if machine == "x86_64":
        # The x32 numbers would be a back door to every call judged by number.
        program += [(_JGE, 0, 1, _X32_BIT), (_RETURN, 0, 0, _ACTIONS["refuse"])]
    blocks: dict[int, list[_Instruction]] = {}
    for rule in rules:
        for call in rule.calls:
            if call in numbers:
                blocks.setdefault(numbers[call], []).extend(_block(rule, numbers[call]))
    return (*program, *_halve(sorted(blocks.items())))


def _halve(blocks: list[tuple[int, list[_Instruction]]]) -> list[_Instruction]:
    if len(blocks) <= 3:
        return [*(instruction for _, block in blocks for instruction in block), (_RETURN, 0, 0, _ALLOW)]
    middle = len(blocks) // 2
    lower, upper = _halve(blocks[:middle]), _halve(blocks[middle:])
    return [(_JGE, 0, 1, blocks[middle][0]), (_JUMP, 0, 0, len(lower)), *lower, *upper]


def _socket_rules(network: bool) -> tuple[CallRule, ...]:
    families = (socket.AF_UNIX, *((socket.AF_INET, socket.AF_INET6, _AF_NETLINK) if network else ()))
    kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    # By a list of what is allowed: a raw socket of the local family is a datagram socket under another name.
    local = (
        When(argument=0, op="eq", value=socket.AF_UNIX),
        *(When(argument=1, op="ne", value=kind, mask=_SOCK_TYPE_MASK) for kind in kinds),
    )
    internet = tuple(
        (
            When(argument=0, op="eq", value=family),
            *(
                When(argument=1, op="ne", value=kind, mask=_SOCK_TYPE_MASK)
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
            ),
        )
        for family in families
        if family in (socket.AF_INET, socket.AF_INET6)
    )
    return (
        CallRule(calls=("socket", "socketpair"), when=tuple(When(argument=0, op="ne", value=f) for f in families)),
        *(CallRule(calls=("socket", "socketpair"), when=when) for when in (local, *internet)),
    )


def _ioctl_rules() -> tuple[CallRule, ...]:
    """Refuse to type into terminals, and the controls by which file systems change a file's metadata.

    Landlock governs the controls of devices only. Those of files come in families by their second byte; the ones that
    only read have the direction "read" in their upper two bits.
    """

    def family(letter: int, *spared: int) -> CallRule:
        when = (
            When(argument=1, op="eq", value=letter << 8, mask=0xFF00),
            When(argument=1, op="ne", value=_READS, mask=_DIRECTION),
            *(When(argument=1, op="ne", value=number) for number in spared),
        )
        return CallRule(calls=("ioctl",), when=when)

    named = (_TIOCSTI, _TIOCLINUX, _FS_SET_ENCRYPTION, _FAT_SET_ATTRIBUTES)
    return (
        *(CallRule(calls=("ioctl",), when=(When(argument=1, op="eq", value=number),)) for number in named),
        family(ord("f"), _FS_FIEMAP),
        family(ord("X")),
        family(ord("v")),
        family(0x94, _FICLONE, _FICLONERANGE),
    )


def _elder_rules(*, signals: bool, action: Action) -> tuple[CallRule, ...]:
    """Judge priorities and (where Landlock cannot) signals of processes that are older than this one; refuse limits.

    The owner of a kernel started before it, so its number is lower, unless the numbers have wrapped around since. That
    is why those who started it are named as well where signals are concerned; and why a supervisor, where there is one,
    looks whose a lower number is: threads and children of this process may have got one.
    """

    def elder(at: int) -> tuple[When, ...]:
        return (When(argument=at, op="gt", value=0), When(argument=at, op="lt", value=SELF))

    rules = [
        CallRule(calls=("prlimit64",), when=(When(argument=0, op="gt", value=0), When(argument=2, op="given"))),
        CallRule(calls=SCHEDULING, action=action, when=elder(0)),
        CallRule(
            calls=("setpriority",), action=action, when=(When(argument=0, op="eq", value=_PRIO_PROCESS), *elder(1))
        ),
        CallRule(calls=("setpriority",), when=(When(argument=0, op="ne", value=_PRIO_PROCESS),)),
        CallRule(
            calls=("ioprio_set",),
            action=action,
            when=(When(argument=0, op="eq", value=_IOPRIO_WHO_PROCESS), *elder(1)),
        ),
        CallRule(calls=("ioprio_set",), when=(When(argument=0, op="ne", value=_IOPRIO_WHO_PROCESS),)),
    ]
    if signals:
        # -1 is everybody, -n is the group n. A pidfd can be had from /proc too, so sending through one goes altogether.
        rules += [
            CallRule(calls=SIGNALLING, action=action, when=elder(0)),
            CallRule(calls=("kill",), when=(When(argument=0, op="gt", value=_SELF_GROUP),)),
            CallRule(calls=("pidfd_send_signal",)),
        ]
        for one in _FOREBEARS:
            named = (When(argument=0, op="eq", value=one),)
            rules.append(CallRule(calls=SIGNALLING, when=named))
        rules += [
            CallRule(calls=("kill",), when=(When(argument=0, op="eq", value=group),)) for group in _FOREBEARS_GROUPS
        ]
    return tuple(rules)


@functools.cache
def sandbox(*, network: bool, metadata: Action | None, abi: int, connect: Action | None = None) -> tuple[CallRule, ...]:
    """Return the rules of a strict sandbox.

    Parameters
    ----------
    network
        Whether internet sockets may be made.
    metadata
        What happens to `METADATA` calls; `None` allows them.
    abi
        The Landlock ABI in force: what an old one does not govern is refused here.
    connect
        What happens to ``connect`` from the start; `None` allows it until `lock` is in force.
    """
    rules = [
        CallRule(calls=_LISTS["forbidden"]),
        # The flags of clone3 are behind a pointer. Said to be missing, the C library falls back to clone.
        CallRule(calls=("clone3",), action="missing"),
        CallRule(calls=("clone",), when=(When(argument=0, op="any", value=_NEW_NAMESPACES),)),
        # Its memory and descriptors could not be counted any more.
        CallRule(
            calls=("prctl",),
            when=(When(argument=0, op="eq", value=_PR_SET_DUMPABLE), When(argument=1, op="eq", value=0)),
        ),
        *_ioctl_rules(),
        *_socket_rules(network),
        *_elder_rules(signals=abi < 6, action="notify" if metadata == "notify" else "refuse"),
    ]
    if connect is not None:
        rules.append(CallRule(calls=("connect",), action=connect))
    if metadata is not None:
        rules += [CallRule(calls=METADATA, action=metadata), CallRule(calls=_LISTS["attributes"], action="unsupported")]
    if abi < 3:
        truncating = (When(argument=1, op="any", value=_O_TRUNC), When(argument=1, op="none", value=_O_ACCMODE))
        truncating_at = tuple(dataclasses.replace(when, argument=2) for when in truncating)
        rules += [
            CallRule(calls=("truncate",)),
            CallRule(calls=("open",), when=truncating),
            CallRule(calls=("openat",), when=truncating_at),
            CallRule(calls=("openat2",), action="missing"),
        ]
    return tuple(rules)


def lock(*, network: bool) -> tuple[CallRule, ...]:
    """Return the rules that close the network, or with `network` the services of this machine, for good."""
    if network:
        return (CallRule(calls=("socket",), when=(When(argument=0, op="eq", value=socket.AF_UNIX),)),)
    return (CallRule(calls=("connect",)),)


_SET_MODE_FILTER, _GET_ACTION_AVAIL = 1, 2
_FLAG_TSYNC, _FLAG_NEW_LISTENER = 1, 8


def _encode(program: tuple[_Instruction, ...], pid: int, forebears: Sequence[int] = ()) -> bytes:
    stands_for = {SELF: pid, _SELF_GROUP: 2**32 - pid}
    for name, group, one in zip(_FOREBEARS, _FOREBEARS_GROUPS, forebears, strict=False):
        with contextlib.suppress(OSError):
            stands_for |= {name: one, group: 2**32 - os.getpgid(one)}
    # Nobody has the number that stands for a forebear who is not known.
    unknown = 2**32 - 1
    stands_for = dict.fromkeys((*_FOREBEARS, *_FOREBEARS_GROUPS), unknown) | stands_for
    pack = struct.Struct("HBBI").pack
    return b"".join(pack(code, yes, no, stands_for.get(value, value)) for code, yes, no, value in program)


def _forebears() -> list[int]:
    """Return the parent and its parent, as far as they are to be seen and are not the first process of all."""
    parents = [os.getppid()]
    with contextlib.suppress(OSError):
        parents.append(int(linux.process_status(f"/proc/{parents[0]}/status")["PPid"]))
    return [one for one in parents if one > 1]


def compiled(rules: tuple[CallRule, ...]) -> tuple[_Instruction, ...]:
    """Return the program for this machine.

    Raises
    ------
    NotImplementedError
        The processor is none whose system calls are known here.
    """
    if linux.machine() not in NUMBERS:
        raise NotImplementedError(f"system calls of {linux.machine()} are not known")
    return assemble(rules, linux.machine())


def install(rules: tuple[CallRule, ...], *, listen: bool = False) -> int | None:
    """Put rules into force, for all threads of this process and all it starts.

    Parameters
    ----------
    rules
        From `sandbox` or `lock`.
    listen
        Whether ``"notify"`` rules are there: then a descriptor is returned from which a supervisor reads the calls.
        This is possible only while the process has one thread.

    Raises
    ------
    OSError
        The kernel refused.
    NotImplementedError
        The processor is none whose system calls are known here.
    """
    program = compiled(rules)
    names_them = any(when.value in _FOREBEARS for rule in rules for when in rule.when)
    code = _encode(program, os.getpid(), _forebears() if names_them else ())
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
    linux.no_new_privileges()
    flags = _FLAG_NEW_LISTENER if listen else _FLAG_TSYNC
    result = linux.syscall("seccomp", NUMBERS[linux.machine()]["seccomp"], _SET_MODE_FILTER, flags, header)
    if listen:
        os.set_inheritable(result, False)
        return result
    if result > 0:
        raise OSError(errno.EBUSY, f"seccomp: thread {result} has another filter")
    return None


def is_available(action: Action = "refuse") -> bool:
    """Tell whether this machine's kernel offers filters with that action."""
    numbers = NUMBERS.get(linux.machine())
    if numbers is None:
        return False
    action_number = struct.pack("I", _ACTIONS[action] & 0xFFFF0000)
    try:
        linux.syscall("seccomp", numbers["seccomp"], _GET_ACTION_AVAIL, 0, action_number)
    except OSError:
        return False
    return True
