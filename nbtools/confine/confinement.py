"""The confinement of one process: a record that travels to the child, and the child's own steps to obey it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from nbtools.confine import landlock, linux, places, seccomp
from nbtools.errors import SandboxUnavailable

Level = Literal["off", "limits", "strict"]

_CAP_SYS_ADMIN, _CAP_SYS_RESOURCE, _CAP_PERFMON = 21, 24, 38
# Out of memory, the kernel takes the process with the highest number first.
_OOM_SCORE = "900"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confinement:
    """What a process may do; `None` in a limit sets none.

    Attributes
    ----------
    level
        ``"off"`` ignores all the rest; ``"limits"`` sets the resource limits; ``"strict"`` adds the sandbox.
    read
        Files and folders that may be read, besides the system and Python.
    write
        Files and folders that may be written, and so read too.
    folder
        One of `write`, the working folder. It is granted as the place where the process is, and a process that is
        elsewhere, because a link took the place of the folder, is refused.
    closed
        Folders that stay closed to a strict process, unless one of `read` or `write` lies within.
    programs
        The only files and folders that may be executed; `None` allows it of all that may be read. Landlock enforces it
        from level ``"limits"`` on.
    network
        Whether a strict process may reach the internet. Services of this machine behind local sockets stay closed.
    memory_bytes
        Of each process; what the family uses together is its owner's to watch.
    cpu_s
        Seconds of processor time of each process.
    file_bytes
        Size of any file it writes.
    open_files
        Descriptors of each process.
    sockets
        Whether the process will open its own local sockets and call `lock_network` after that; otherwise `apply`
        closes the network at once.
    supervised
        Whether a strict process asks a `Supervisor` before it changes a file's mode or times, or connects
        to its own local socket, which are refused otherwise: one must get `AppliedConfinement.listener`.
    own_shared_memory
        Whether a strict process gets its own ``/dev/shm``; otherwise it shares the one of
        all programs. `HostLimits.shared_memory` tells whether this host allows it. With it goes, where
        `HostLimits.own_processes` says so, a ``/proc`` that shows no processes but its own.
    handover
        Descriptor of a local socket over which `apply` hands the listener to the supervisor, before it closes it.
    required
        Whether a part that this host cannot enforce is an error; otherwise it is named in `AppliedConfinement.missing`.
    """

    level: Level = "limits"
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    folder: str | None = None
    closed: tuple[str, ...] = ()
    programs: tuple[str, ...] | None = None
    network: bool = False
    memory_bytes: int | None = None
    cpu_s: int | None = None
    file_bytes: int | None = None
    open_files: int | None = 4096
    sockets: bool = True
    supervised: bool = False
    own_shared_memory: bool = False
    handover: int | None = None
    required: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values, for the way to the child."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Confinement:
        """Rebuild what `to_dict` gave."""
        paths = {
            name: tuple(fields[name])
            for name in ("read", "write", "closed", "programs")
            if fields.get(name) is not None
        }
        return cls(**{**fields, **paths})


@dataclasses.dataclass(frozen=True, kw_only=True)
class AppliedConfinement:
    """What is in force in this process from now on.

    Attributes
    ----------
    level
        The level really in force. A strict one that lacks a part is ``"limits"``, though the other parts hold.
    missing
        What was asked for and is unavailable, a phrase each.
    listener
        Descriptor for a `Supervisor`; `None` unless asked for, and when it was handed over already.
    """

    level: Level
    missing: tuple[str, ...] = ()
    listener: int | None = None


def apply(confinement: Confinement) -> AppliedConfinement:
    """Put this process under a confinement, for good. Call it while there is only one thread.

    Raises
    ------
    SandboxUnavailable
        A part cannot be enforced here and `Confinement.required` is true. The process may be confined in part by
        then and is fit only to end.
    """
    if confinement.level == "off":
        return AppliedConfinement(level="off")
    missing: list[str] = []

    def attempt(part: str, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except (OSError, ValueError, NotImplementedError, ImportError) as exc:
            if confinement.required:
                raise SandboxUnavailable(
                    f"This host cannot enforce {part}: {exc}.",
                    hint="Ask for sandbox='limits', or see what `nbtools doctor` says about this host.",
                    tried=f"confining a process ({confinement.level})",
                ) from exc
            missing.append(f"{part}: {exc}")
            return None

    attempt("resource limits", lambda: _limit(confinement))
    floor: Level = "off" if missing else "limits"
    if confinement.level == "limits":
        if confinement.programs is not None:
            only = confinement.programs
            attempt("Landlock (programs)", lambda: landlock.restrict_programs(only))
        elif sys.platform.startswith("linux"):
            # The owner's environment holds what was taken out of this one. Older systems leave it open.
            with contextlib.suppress(OSError):
                landlock.restrict_tracing()
        return AppliedConfinement(level=floor, missing=tuple(missing))
    if not sys.platform.startswith("linux"):
        attempt("a sandbox", _no_sandbox)
        return AppliedConfinement(level=floor, missing=tuple(missing))
    if confinement.own_shared_memory:
        # With more room than the owner's watch allows, so that it is the watch which ends a script, with a reason.
        size = confinement.memory_bytes and 2 * confinement.memory_bytes
        devices = [path for path in (*confinement.read, *confinement.write) if path.startswith("/dev/shm/")]  # noqa: S108 - private folders in it
        attempt("its own /dev/shm", lambda: linux.own_shared_memory(size, devices))
        # Names and arguments of others; their environment and memory are closed by Landlock all the same.
        with contextlib.suppress(OSError):
            linux.hide_processes()
    attempt("the loss of capabilities", linux.drop_capabilities)
    attempt("Landlock (files and signals)", lambda: _landlock(confinement))
    listener = attempt("seccomp (network and system calls)", lambda: _seccomp(confinement))
    return AppliedConfinement(level=floor if missing else "strict", missing=tuple(missing), listener=listener)


def holds_programs(level: Level) -> bool:
    """Tell whether this host enforces `Confinement.programs` at a level."""
    return level != "off" and sys.platform.startswith("linux") and landlock.available_abi() >= 2


def prepare() -> None:
    """Do beforehand what is the same for every confinement, in a process that will fork many children."""
    if os.name == "posix":
        import resource  # noqa: F401 - so that the children find it loaded
    if sys.platform.startswith("linux") and linux.machine() in seccomp.NUMBERS:
        places.system_places(programs=True)  # as `_landlock` asks: the cache takes another spelling for another call
        abi = landlock.available_abi()
        for network in (False, True):
            for action in ("refuse", "notify"):
                connect = "notify" if action == "notify" and not network else None
                seccomp.compiled(seccomp.sandbox(network=network, metadata=action, abi=abi, connect=connect))
            seccomp.compiled(seccomp.lock(network=network))


def lock_network(*, network: bool = False, supervised: bool = False) -> None:
    """Close the network for all threads, once the process has opened the sockets it needs.

    With `network`, the internet stays open and only the services of this machine behind local sockets are closed.
    Call it after `apply` with level ``"strict"``, and with the confinement's own values: the supervisor of a process
    that has one lets it connect to sockets below the folders it may write, which nobody but itself has made.

    Raises
    ------
    OSError
        The kernel refused the filter.
    """
    if network or not supervised:
        seccomp.install(seccomp.lock(network=network))


def _no_sandbox() -> None:
    raise NotImplementedError(f"{sys.platform} has neither Landlock nor seccomp")


def _share_of_processes() -> int | None:
    """Return a quarter of all numbers that processes and threads of this machine can have."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text()) // 4
    except OSError:
        return None


def _limit(confinement: Confinement) -> None:
    import resource  # absent on Windows: then `attempt` names the limits as missing

    def below_hard(which: int, value: int) -> int:
        hard = resource.getrlimit(which)[1]
        return value if hard == resource.RLIM_INFINITY else min(value, hard)

    limits = {
        # Not the whole address space, to which shared libraries and the stacks of threads count too. Darwin counts
        # neither; the owner's watch remains.
        getattr(resource, "RLIMIT_DATA", None): confinement.memory_bytes,
        resource.RLIMIT_FSIZE: confinement.file_bytes,
        resource.RLIMIT_NOFILE: confinement.open_files,
        resource.RLIMIT_CORE: 0,
        # It counts all that the user runs, and nothing for root: so it keeps a part of all numbers for others, no more.
        resource.RLIMIT_NPROC: _share_of_processes(),
    }
    for which, value in limits.items():
        if which is not None and value is not None:
            resource.setrlimit(which, (below_hard(which, value),) * 2)
    if confinement.cpu_s is not None:
        # A signal first, which leaves a reason; the kill two seconds later.
        last = below_hard(resource.RLIMIT_CPU, confinement.cpu_s + 2)
        resource.setrlimit(resource.RLIMIT_CPU, (min(confinement.cpu_s, last), last))
    if sys.platform.startswith("linux"):
        # Raising it is always allowed; some containers have no such file, or have it read-only, and lose a nicety.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
        if confinement.level == "limits":
            # Root could raise its own limits again, and look into processes that Landlock closes.
            linux.drop_capabilities((_CAP_SYS_ADMIN, _CAP_SYS_RESOURCE, _CAP_PERFMON))


def _landlock(confinement: Confinement) -> None:
    folder = confinement.folder
    if folder is not None and os.getcwd() != folder:  # noqa: PTH109 - a text is compared
        raise OSError(errno.ENOTDIR, "the working folder leads elsewhere than when it was judged", folder)
    readable, listed = places.without_secrets(confinement.read, confinement.closed)
    # By its name the folder could be another one a moment later.
    places_to_write = ("." if path == folder else path for path in confinement.write)
    write, also_listed = places.without_secrets(places_to_write, confinement.closed)
    landlock.restrict(
        read=(*places.system_places(programs=confinement.programs is None), *readable),
        write=(*write, "/dev/shm"),  # noqa: S108 - named semaphores, without which there is no multiprocessing
        listed=(*listed, *also_listed),
        devices=places.DEVICES,
        programs=confinement.programs,
        network=confinement.network,
    )


def _seccomp(confinement: Confinement) -> int | None:
    action: seccomp.Action = "notify" if confinement.supervised else "refuse"
    connect: seccomp.Action | None = "notify" if confinement.supervised and not confinement.network else None
    abi = landlock.available_abi()
    rules = seccomp.sandbox(network=confinement.network, metadata=action, abi=abi, connect=connect)
    listener = seccomp.install(rules, listen=confinement.supervised)
    if listener is not None and confinement.handover is not None:
        with socket.socket(fileno=confinement.handover) as far:
            socket.send_fds(far, [b"!"], [listener])
        os.close(listener)
        listener = None
    if not confinement.sockets:
        lock_network(network=confinement.network, supervised=confinement.supervised)
    return listener
