"""The filter programs, run by an interpreter of their own instruction set: so both processors are tested on any."""

import errno
import socket
import struct

import pytest

from nbtools.confine import seccomp
from nbtools.confine.seccomp import NUMBERS, CallRule, When

ALLOW, NOTIFY, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x7FC00000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SELF = 5000
# Its number is the higher one: numbers have wrapped around since it started.
PARENT = 9000


def decide(program, machine, call, *arguments, number=None, arch=None):
    """Run a program as the kernel does."""
    number = NUMBERS[machine][call] if number is None else number
    padded = [value & 0xFFFFFFFFFFFFFFFF for value in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("=IIQ6Q", number, ARCH[machine] if arch is None else arch, 0, *padded)
    at, register = 0, 0
    while True:
        code, yes, no, value = program[at]
        value = {seccomp.SELF: SELF, 1 << 41: 2**32 - SELF, 1 << 42: PARENT, 1 << 44: 2**32 - PARENT}.get(value, value)
        at += 1
        if code == 0x20:
            (register,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            register &= value
        elif code == 0x05:
            at += value
        elif code == 0x06:
            return value
        else:
            holds = {0x15: register == value, 0x25: register > value, 0x35: register >= value, 0x45: register & value}
            at += yes if holds[code] else no


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request):
    return request.param


def sandbox(machine, *, network=False, metadata="refuse", abi=7):
    return seccomp.assemble(seccomp.sandbox(network=network, metadata=metadata, abi=abi), machine)


def test_calls_that_no_rule_names_are_allowed(machine):
    program = sandbox(machine)
    named = {call for rule in seccomp.sandbox(network=False, metadata="refuse", abi=7) for call in rule.calls}
    known = {NUMBERS[machine][call] for call in named if call in NUMBERS[machine]}
    for number in set(range(470)) - known:
        assert decide(program, machine, "", number=number) == ALLOW


def test_forbidden_calls_are_refused_whatever_their_arguments(machine):
    program = sandbox(machine)
    for call in (
        "ptrace",
        "process_vm_readv",
        "mount",
        "unshare",
        "setns",
        "bpf",
        "keyctl",
        "io_uring_setup",
        "shmget",
    ):
        assert decide(program, machine, call, 1, 2, 3) == EPERM
    assert decide(program, machine, "clone3") == ENOSYS


def test_another_processors_numbers_kill(machine):
    assert decide(sandbox(machine), machine, "ptrace", arch=0x40000003) == KILL


def test_the_x32_numbers_are_refused():
    assert decide(sandbox("x86_64"), "x86_64", "", number=0x40000000 + 41) == EPERM


def test_sockets_are_judged_by_family_and_kind(machine):
    closed, opened = sandbox(machine), sandbox(machine, network=True)
    unix, inet, packet = socket.AF_UNIX, socket.AF_INET, 17
    cloexec = 0o2000000
    for call in ("socket", "socketpair"):
        assert decide(closed, machine, call, unix, socket.SOCK_STREAM | cloexec) == ALLOW
        assert decide(closed, machine, call, unix, socket.SOCK_SEQPACKET) == ALLOW
        assert decide(closed, machine, call, unix, socket.SOCK_DGRAM | cloexec) == EPERM
        assert decide(closed, machine, call, inet, socket.SOCK_STREAM) == EPERM
        assert decide(opened, machine, call, inet, socket.SOCK_DGRAM) == ALLOW
        assert decide(opened, machine, call, packet, 3) == EPERM
        # The kernel looks at the lower half only, and so must the filter.
        assert decide(closed, machine, call, (1 << 32) | inet, 1) == EPERM


def test_namespaces_by_clone_are_refused_and_threads_are_not(machine):
    program = sandbox(machine)
    assert decide(program, machine, "clone", 0x3D0F00) == ALLOW
    for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(program, machine, "clone", flag | 17) == EPERM


def test_limits_and_priorities_of_elders_are_refused(machine):
    program = sandbox(machine)
    some_pointer_above_4_gib = 0x7F00_0000_0000
    assert decide(program, machine, "prlimit64", 0, 3, some_pointer_above_4_gib) == ALLOW
    assert decide(program, machine, "prlimit64", SELF + 1, 3, 0) == ALLOW
    assert decide(program, machine, "prlimit64", SELF - 1, 3, some_pointer_above_4_gib) == EPERM
    assert decide(program, machine, "prlimit64", SELF - 1, 3, 8) == EPERM
    for call in ("sched_setaffinity", "sched_setscheduler", "sched_setattr"):
        assert [decide(program, machine, call, pid) for pid in (0, SELF, SELF + 9, SELF - 1, 1)] == [ALLOW] * 3 + [
            EPERM
        ] * 2
    assert decide(program, machine, "setpriority", 0, 0) == ALLOW
    assert decide(program, machine, "setpriority", 0, SELF - 1) == EPERM
    assert decide(program, machine, "setpriority", 2, 0) == EPERM


def test_signals_are_guarded_by_number_where_landlock_cannot(machine):
    new, old = sandbox(machine, abi=6), sandbox(machine, abi=5)
    assert decide(new, machine, "kill", 1) == ALLOW
    assert [decide(old, machine, "kill", pid) for pid in (0, SELF, SELF + 1, -SELF, -SELF - 5)] == [ALLOW] * 5
    assert [decide(old, machine, "kill", pid) for pid in (1, SELF - 1, -1, -2, 1 - SELF)] == [EPERM] * 5
    assert [decide(old, machine, "kill", pid) for pid in (PARENT, -PARENT)] == [EPERM] * 2
    assert decide(old, machine, "tgkill", SELF - 1, SELF - 1) == EPERM
    assert decide(old, machine, "pidfd_send_signal", 3) == EPERM


def test_metadata_goes_where_it_was_said(machine):
    for metadata, answer in (("refuse", EPERM), ("notify", NOTIFY), (None, ALLOW)):
        program = sandbox(machine, metadata=metadata)
        for call in seccomp.METADATA:
            if call in NUMBERS[machine]:
                assert decide(program, machine, call) == answer


def test_truncation_is_refused_where_landlock_cannot(machine):
    old = sandbox(machine, abi=2)
    assert decide(old, machine, "truncate") == EPERM
    assert decide(old, machine, "openat", 0, 0, 0o1000) == EPERM
    assert decide(old, machine, "openat", 0, 0, 0o1001) == ALLOW
    assert decide(old, machine, "openat", 0, 0, 0) == ALLOW
    assert decide(old, machine, "openat2") == ENOSYS


def test_the_lock_closes_connections_or_local_sockets(machine):
    closed = seccomp.assemble(seccomp.lock(network=False), machine)
    opened = seccomp.assemble(seccomp.lock(network=True), machine)
    assert (decide(closed, machine, "connect"), decide(opened, machine, "connect")) == (EPERM, ALLOW)
    assert decide(opened, machine, "socket", socket.AF_UNIX, 1) == EPERM
    assert decide(opened, machine, "socket", socket.AF_INET, 1) == ALLOW
    assert decide(opened, machine, "socketpair", socket.AF_UNIX, 1) == ALLOW


@pytest.mark.parametrize(
    ("op", "value", "mask", "yes", "no"),
    [
        ("eq", 7, None, [7, 7 | 1 << 32], [8]),
        ("ne", 7, None, [8], [7]),
        ("gt", 7, None, [8], [7, 6]),
        ("lt", 7, None, [6, 0], [7, 8]),
        ("any", 6, None, [2, 4, 7], [1, 8]),
        ("none", 6, None, [1, 8], [2, 7]),
        ("eq", 2, 0xF, [2, 0x102], [3, 0x103]),
        ("given", 0, None, [1, 1 << 32, -1], [0]),
    ],
)
def test_conditions_hold_when_they_say(machine, op, value, mask, yes, no):
    rules = (CallRule(calls=("ioctl",), when=(When(argument=1, op=op, value=value, mask=mask),)),)
    program = seccomp.assemble(rules, machine)
    assert [decide(program, machine, "ioctl", 0, argument) for argument in yes] == [EPERM] * len(yes)
    assert [decide(program, machine, "ioctl", 0, argument) for argument in no] == [ALLOW] * len(no)


def test_an_unknown_processor_is_said_to_be_unknown(monkeypatch):
    monkeypatch.setattr("nbtools.confine.linux.machine", lambda: "riscv64")
    with pytest.raises(NotImplementedError, match="riscv64"):
        seccomp.compiled(seccomp.lock(network=False))
    assert not seccomp.is_available()
