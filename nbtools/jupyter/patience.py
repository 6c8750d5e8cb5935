"""Patience: what a slow source may cost a person who waits for a completion."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["within"]


T = TypeVar("T")


def within(seconds: float, source: Callable[[], Iterable[T]]) -> list[T]:
    """Return what a source says within its time; nothing when it is slower or fails.

    A source that is late goes on in its thread, so the next question finds it warm.
    """
    kept: list[T] = []

    def ask() -> None:
        try:
            kept.extend(source())
        except Exception:
            return  # an editor must never show an error for a completion

    thread = threading.Thread(target=ask, name="nbtools-completion", daemon=True)
    thread.start()
    thread.join(seconds)
    return list(kept)
