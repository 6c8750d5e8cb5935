"""Temporary folders: an engine makes one and removes it; the next one removes those of processes that were killed."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
from pathlib import Path

_PREFIX = "nbtools-sql-"
_NAME = re.compile(rf"{_PREFIX}(\d+)-\w+\Z")


def make_temp_dir() -> Path:
    """Make a folder of this process, after removing those of processes that were killed."""
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            match = _NAME.match(path.name)
            if match and not _runs(int(match[1])):
                # Only the owner's own can be removed; what belongs to others stays for them.
                shutil.rmtree(path, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def _runs(pid: int) -> bool:
    if os.name == "nt":
        # os.kill would end it there.
        import psutil

        return bool(psutil.pid_exists(pid))
    try:
        os.kill(pid, 0)
    except OverflowError:
        return False
    except OSError as exc:
        return exc.errno == errno.EPERM  # it runs, and is another user's
    return True
