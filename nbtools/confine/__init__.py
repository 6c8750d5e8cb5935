"""Confinement: what a child process does to itself before it runs untrusted code.

Three levels:

``off``
    Nothing.
``limits``
    Resource limits for the process and what it starts, no core dumps, first to go when memory is short; with
    `nbtools.texts.redaction.scrub_environment`, no secrets in the environment.
``strict``
    The above, and no capabilities, Landlock (reads the system, Python and what it was given; writes where it was told;
    signals and traces only what it started), and seccomp (connects to nothing, changes no metadata outside). No
    privileges are needed for it, and no way leads back.

A child calls `apply` while it has one thread, opens its own sockets, and calls `lock_network`. Its owner asks
`capabilities` first: what this host can enforce is tried out in a separate process, not assumed.
"""

from nbtools.confine.confinement import (
    AppliedConfinement,
    Confinement,
    Level,
    apply,
    holds_programs,
    lock_network,
    prepare,
)
from nbtools.confine.host import HostLimits, capabilities
from nbtools.confine.supervisor import Supervisor

__all__ = [
    "AppliedConfinement",
    "Confinement",
    "HostLimits",
    "Level",
    "Supervisor",
    "apply",
    "capabilities",
    "holds_programs",
    "lock_network",
    "prepare",
]
