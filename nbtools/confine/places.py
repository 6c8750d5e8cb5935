"""Where a confined program may read: the system and Python, but no home, no secrets below /etc, no other data."""

from __future__ import annotations

import functools
import os
import site
import sys
from collections.abc import Iterable, Iterator

from nbtools.texts.parsing import word_lists

_LISTS = word_lists(__file__, "places.words")
SYSTEM = (*_LISTS["system"], *(f"/etc/{name}" for name in _LISTS["etc"]))
"""Files and folders of the system that every program may read."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices that every program may use. No terminals: a program that can make one can read the keys typed into others."""

CREDENTIALS = _LISTS["credentials"]
"""Files and folders below a home that are never opened, even where a folder that holds them is allowed."""


def python_places() -> list[str]:
    """Return the folders this Python imports from.

    A folder that holds the user's home (someone put ``~`` or ``/`` on the import path) is left out: it would open
    everything.
    """
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 - must not fail where there is no home
    candidates = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, site.USER_SITE or ""]
    candidates += [os.path.dirname(os.path.realpath(sys.executable or "")), *sys.path]  # noqa: PTH120 - strings all along
    real = dict.fromkeys(os.path.realpath(path) for path in candidates if path)
    return [path for path in real if path != "/" and not _holds(path, home)]


@functools.cache
def system_places(*, programs: bool = True) -> tuple[str, ...]:
    """Return `SYSTEM` and `python_places` without what does not exist and what lies below another of them.

    Without `programs`, folders of programs (``bin``, ``sbin``) are left out: the system's loader may be executed by
    all, and runs every program that it can read.
    """
    existing = dict.fromkeys(os.path.realpath(path) for path in (*SYSTEM, *python_places()) if os.path.exists(path))  # noqa: PTH110 - strings
    outermost = tuple(path for path in existing if not any(path != other and _holds(other, path) for other in existing))
    return outermost if programs else tuple(part for outer in outermost for part in _without_programs(outer))


def without_secrets(paths: Iterable[str], closed: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Return the files and folders that may be opened, and the folders whose names may only be listed.

    Landlock opens a folder with all below it. One that holds `CREDENTIALS` of this user, or a closed folder, is
    therefore replaced by what else lies in it; what is made in it later is not opened.

    Parameters
    ----------
    paths
        What is to be opened.
    closed
        Folders that stay closed, unless one of `paths` lies within.
    """
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 - must not fail where there is no home
    secret = [loc for name in CREDENTIALS if os.path.lexists(loc := f"{home}/{name}")]
    secret += [real for loc in secret if (real := os.path.realpath(loc)) != loc]
    shut, todo = [os.path.realpath(loc) for loc in closed], list[tuple[str, list[str]]]()
    for path in paths:
        real = os.path.realpath(path)
        todo.append((path, [*secret, *(loc for loc in shut if real == loc or not _holds(loc, real))]))
    opened, listed = list[str](), list[str]()
    while todo:
        path, hidden = todo.pop(0)
        real = os.path.realpath(path)
        if any(_holds(loc, real) for loc in hidden):
            continue
        if not any(_holds(real, loc) for loc in hidden):
            opened.append(path)
            continue
        listed.append(path)
        try:
            todo += [(f"{path}/{name}", hidden) for name in os.listdir(path)]  # noqa: PTH208 - strings all along
        except OSError:
            continue  # a file, or a folder that nobody may list
    return opened, listed


def _without_programs(folder: str) -> Iterator[str]:
    name = os.path.basename(folder)  # noqa: PTH119 - strings all along
    if name in {"bin", "sbin"}:
        return
    try:
        below = os.listdir(folder)  # noqa: PTH208 - same
    except OSError:
        below = []  # a file
    if not {"bin", "sbin"} & {*below}:
        yield folder
        return
    for part in below:
        yield from _without_programs(f"{folder}/{part}") if part in {"bin", "sbin", "local"} else (f"{folder}/{part}",)


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
