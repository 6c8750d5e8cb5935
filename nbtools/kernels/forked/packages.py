"""What tells that packages have changed since a process has loaded them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

LEAVES_THREADS = "its import leaves threads running, which no fork may have"
"""Why a library is not loaded before a fork."""

Fingerprint: TypeAlias = tuple[tuple[str, int, int], ...]


def fingerprint(path: Sequence[str]) -> Fingerprint:
    """Return what changes when a package is installed, upgraded or removed, or the interpreter is replaced.

    Parameters
    ----------
    path
        The folders in which packages are looked for.
    """
    entries = []
    for entry in (sys.executable, *path):
        with contextlib.suppress(OSError):
            state = Path(entry).stat()
            entries.append((entry, state.st_mtime_ns, state.st_ino))
    return tuple(entries)


def installed_in(path: Sequence[str]) -> list[str]:
    """Return the folders of an import path in which packages are installed.

    A project's own folder changes with every file that is written there, and what lies in it is not a reason to load
    the libraries again.
    """
    entries = []
    for entry in filter(None, path):
        with contextlib.suppress(OSError):
            if any(name.endswith(".dist-info") for name in os.listdir(entry)):  # noqa: PTH208 - strings all along
                entries.append(entry)
    return entries
