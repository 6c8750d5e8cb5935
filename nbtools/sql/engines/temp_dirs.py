"""Temporary folders: an engine makes one and removes it; the next one removes those of processes that were killed."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from nbtools.errors import circumstances

_PREFIX = "nbtools-sql-"
_NAME = re.compile(rf"{_PREFIX}(\d{{1,9}})-\w+\Z")


def make_temp_dir() -> Path:
    """Make a folder of this process, after removing those of processes that were killed."""
    # To look through a full folder takes longer than to make another one in it.
    _remove_left(tempfile.gettempdir(), int(time.monotonic() // 60))
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def remove_temp_dir(folder: Path) -> None:
    """Remove a folder with all that lies in it, as far as that can be done; a Stop meanwhile stays a Stop."""
    with circumstances():
        shutil.rmtree(folder, ignore_errors=True)


@functools.lru_cache(maxsize=1)
def _remove_left(parent: str, _minute: int) -> None:
    """Remove the folders of processes that were killed; one look a minute is enough."""
    import psutil

    with contextlib.suppress(OSError):
        for path in Path(parent).glob(f"{_PREFIX}*"):
            match = _NAME.match(path.name)
            if match and not psutil.pid_exists(int(match[1])):
                # Only the owner's own can be removed; what belongs to others stays for them.
                remove_temp_dir(path)
