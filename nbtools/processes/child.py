"""What a child of the warden does before it is what it was started for."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from nbtools import confine
from nbtools.confine.linux import LIBC
from nbtools.errors import of_the_system
from nbtools.processes import process_tree

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
_ABOVE_ALL = 200


def prctl(option: int, value: int | bytes) -> None:
    """Call Linux's ``prctl``; nothing happens elsewhere."""
    if sys.platform.startswith("linux") and LIBC is not None:
        LIBC.prctl(option, value, 0, 0, 0)


def become_subreaper(*, whether: bool) -> None:
    """Take in what loses its parent among all that this process started, or leave it to who started this process."""
    prctl(_PR_SET_CHILD_SUBREAPER, int(whether))


def end_with_parent() -> None:
    """End this process when the one that it is a child of ends, which has one thread."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def take_name(name: str) -> None:
    """Show a kernel's id as the name of this process; see `process_tree.kernel_of`."""
    prctl(_PR_SET_NAME, ("nbk" + name[:12]).encode())


def prepare(message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """In the child: folder, descriptors and confinement of a spawned program."""
    confinement = dict(message.get("confinement") or {})
    moved = [_out_of_the_way(descriptor) for descriptor in descriptors]
    if confinement.get("handover") is not None:
        confinement["handover"] = _out_of_the_way(confinement["handover"])
    for descriptor, target in zip(moved, message.get("targets", ()), strict=True):
        os.dup2(descriptor, target)
    if message.get("cwd"):
        os.chdir(message["cwd"])
    if message.get("confines_itself") is not None:
        # The program does it when it is ready for it; it needs only the way to its supervisor.
        if confinement.get("handover") is not None:
            os.dup2(confinement["handover"], message["confines_itself"])
    elif confinement:
        confine.apply(confine.Confinement.from_dict(confinement))


def _out_of_the_way(descriptor: int) -> int:
    """Move a descriptor above all that a program is given, where it ends with the exec."""
    import fcntl  # absent on Windows, which has no warden

    # Where few may be open there is little room above; what a program is given lies below ten.
    most = os.sysconf("SC_OPEN_MAX")
    above = _ABOVE_ALL if most < 0 else min(_ABOVE_ALL, most // 2)
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above)
    os.close(descriptor)
    return moved


def execute(message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """In the child: become the program."""
    environment = {**message["env"], process_tree.MARK: message["id"]}
    reason = _out_of_the_way(os.dup(2))
    try:
        prepare(message, descriptors)
        # Python ignores it, and a program would inherit that: `yes | head -1` is to end quietly.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvpe(message["argv"][0], message["argv"], environment)  # noqa: S606 - a list, no shell, on purpose
    except BaseException:
        # Why it did not become the program is for the owner, not for the program's own standard error.
        os.dup2(reason, 2)
        raise


def leave(body: Any) -> None:
    """In the child: run its body and end the process, whatever happens; reasons go to standard error."""
    code = 127
    try:
        body()
        code = 0
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
    except BaseException as exc:
        # No traceback machinery here: this process has none of its libraries in a known state.
        os.write(2, f"{of_the_system(exc) or f'{type(exc).__name__}: {exc}'}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)
