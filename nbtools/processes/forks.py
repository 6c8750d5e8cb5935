"""What each fork of a serving process does first, so that nothing of its parent's acts in it.

The numbers of descriptors are closed at once, whatever owns them. An object that still believed to own one would close
it once more when it is finalised, and the number is another file's by then: a socket of the kernel, or what a script
has just opened. So the objects are closed before the numbers are, and what the parent's collector had not looked at yet
is never finalised here.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable
from typing import Protocol

_MAX_DESCRIPTOR = 1 << 16


class _Owner(Protocol):
    """An object that owns descriptors."""

    def close(self) -> None: ...


def leave_behind(owners: Iterable[_Owner | int], *, keep: Iterable[int]) -> None:
    """In a fork, before all else: close what the parent owns, and every descriptor above the standard three.

    Parameters
    ----------
    owners
        The objects through which the parent owns descriptors, and descriptors that nothing owns.
    keep
        The descriptors that stay open.
    """
    gc.freeze()
    for owner in owners:
        if not isinstance(owner, int):
            owner.close()
    low = 3
    for descriptor in sorted({*keep} - {0, 1, 2}):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, _MAX_DESCRIPTOR)
