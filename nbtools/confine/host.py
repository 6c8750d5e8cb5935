"""What this host can enforce: tried out by a child that confines itself and then misbehaves."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from pathlib import Path
from typing import Any

from nbtools.confine.confinement import Level
from nbtools.errors import SandboxUnavailable

_PROBE_S = 30.0
_MEASURED = ("landlock_abi", "seccomp", "supervision", "limits", "shared_memory", "own_processes")
# What a strict child must be refused, by the name under which the probe reports it.
_STRICT = {
    "files": "files outside are closed",
    "signals": "other processes cannot be signalled",
    "environ": "other processes' environment and memory are closed",
    "network": "no connection can be made",
    "metadata": "modes and times of files outside cannot be changed",
    "trace": "nothing can be traced",
    "namespaces": "no namespace can be made",
    "terminals": "no terminal can be opened",
    "sockets": "no socket without a connection can be made",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostLimits:
    """What was measured on this host.

    Attributes
    ----------
    platform
        System, release and processor.
    level
        The highest level that can be enforced in full.
    landlock_abi
        0 when the kernel has no Landlock.
    seccomp
        Whether system calls can be filtered.
    supervision
        Whether system calls can be handed to a supervisor.
    limits
        Whether resource limits can be set.
    shared_memory
        Whether a strict child can have its own ``/dev/shm``; otherwise it sees that of all programs.
    own_processes
        Whether a strict child sees only its own processes; otherwise it can read names and arguments of all.
    refused
        What a strict child was refused, by short name.
    missing
        What cannot be enforced here, a phrase each.
    remedies
        What would help, a sentence each.
    """

    platform: str
    level: Level
    landlock_abi: int = 0
    seccomp: bool = False
    supervision: bool = False
    limits: bool = False
    shared_memory: bool = False
    own_processes: bool = False
    refused: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the level, what makes it up, and what is missing."""
        parts = {
            f"Landlock {self.landlock_abi}": bool(self.landlock_abi),
            "seccomp": self.seccomp,
            "supervision": self.supervision,
            "resource limits": self.limits,
            "its own /dev/shm": self.shared_memory,
            "no sight of others' processes": self.own_processes,
        }
        present = ", ".join(name for name, there in parts.items() if there) or "none of its parts"
        missing = f"missing: {'; '.join(self.missing)}" if self.missing else "nothing is missing"
        return f"up to {self.level} on {self.platform} ({present}); {missing}"

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements as JSON values."""
        return dataclasses.asdict(self)

    def can(self, level: Level) -> bool:
        """Tell whether a level can be enforced in full."""
        order: tuple[Level, ...] = ("off", "limits", "strict")
        return order.index(level) <= order.index(self.level)

    def settle(self, level: Level, *, explicit: bool) -> Level:
        """Return the level to use when `level` is wanted.

        Parameters
        ----------
        level
            The level wanted.
        explicit
            Whether someone asked for exactly this; otherwise the best available one is taken.

        Raises
        ------
        SandboxUnavailable
            It was asked for and cannot be enforced.
        """
        if self.can(level):
            return level
        if explicit:
            raise SandboxUnavailable(
                f"sandbox={level!r} cannot be enforced on this host: {'; '.join(self.missing)}.",
                hint=" ".join(self.remedies) or f"Ask for sandbox={self.level!r}.",
                data={"level": level, "available": self.level, "missing": list(self.missing)},
            )
        return self.level


@functools.cache
def capabilities() -> HostLimits:
    """Measure what this host can enforce, once; it takes a tenth of a second, in a separate process."""
    platform = _platform()
    try:
        measured = _measure()
    except (OSError, ValueError) as exc:
        return HostLimits(
            platform=platform,
            level="off",
            missing=(f"any confinement (the trial failed: {exc})",),
            remedies=(f"Check that {sys.executable or 'python'!r} can be started from here.",),
        )
    return _judge(platform, measured)


def _platform() -> str:
    if hasattr(os, "uname"):
        name = os.uname()
        return f"{name.sysname} {name.release} {name.machine}"
    return sys.platform


def _judge(platform: str, facts: dict[str, Any]) -> HostLimits:
    refused = tuple(name for name in _STRICT if facts["refused"].get(name))
    missing = facts["failed"] or [f"that {reason}" for name, reason in _STRICT.items() if name not in refused]
    level: Level = "off" if not facts["limits"] else "limits" if missing else "strict"
    measured = {name: facts[name] for name in _MEASURED}
    remedies = _remedies(facts)
    return HostLimits(
        platform=platform, level=level, refused=refused, missing=tuple(missing), remedies=remedies, **measured
    )


def _remedies(facts: dict[str, Any]) -> tuple[str, ...]:
    if not sys.platform.startswith("linux"):
        return ("Run in Linux (a container, WSL 2 or a gateway) for sandbox='strict'.",)
    needed = {
        "Landlock needs Linux 5.13 or newer with `landlock` in the boot parameter lsm=.": not facts["landlock_abi"],
        "Linux 6.12 or newer also keeps signals apart exactly; here elder processes are shielded by number.": (
            1 <= facts["landlock_abi"] < 6
        ),
        "Without the right to mount, here or in a user namespace, strict kernels share /dev/shm with all programs.": (
            not facts["shared_memory"]
        ),
        "Without the right to mount /proc, strict kernels can read names and arguments of other processes.": (
            not facts["own_processes"]
        ),
        "seccomp needs a kernel with CONFIG_SECCOMP_FILTER and an x86_64 or aarch64 processor.": not facts["seccomp"],
    }
    return tuple(remedy for remedy, is_needed in needed.items() if is_needed)


def _measure() -> dict[str, Any]:
    # Imported here because the child that confines itself imports this package too and needs none of them.
    import json
    import subprocess
    import tempfile

    package = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory(prefix="nbtools-probe-") as folder:
        outside = Path(folder, "outside")
        outside.write_text("x")
        inside = Path(folder, "inside")
        inside.mkdir()
        # -I: neither the working folder nor PYTHONPATH has a say in what the probe imports.
        probe = Path(__file__).with_name("probe.py")
        command = [sys.executable, "-I", "-S", *map(str, (probe, package, inside, outside))]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_PROBE_S, check=False, env={"PATH": os.defpath}
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"no answer within {_PROBE_S:g} s") from None
    if done.returncode or not done.stdout.startswith("{"):
        raise ValueError(done.stderr.strip()[-300:] or f"exit code {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result
