"""What a value of this process may hold: what it says itself, else what it is, was read from, and may be made of."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from nbtools.contract.approval.label_rules import label_of_files, marks_of
from nbtools.contract.label import SEEN_NOW, Label
from nbtools.contract.record import CallRecorder
from nbtools.contract.tool import Services
from nbtools.errors import NbtoolsError
from nbtools.ground.paths import Roots
from nbtools.sql.frames import files_of

_PLAIN = (str, list, tuple, dict)


def see_value(value: Any, services: Services) -> None:
    """Let what the call, or the prompt, that is made here holds have the label of a value of this process."""
    if value is not None and (seen := SEEN_NOW.get()) is not None:
        seen.append(_label_of(value, services))


def _label_of(value: Any, services: Services) -> Label:
    for name in ("label", "seen"):  # of a result, and of a run
        if isinstance(own := getattr(value, name, None), Label):
            return own
    paths: list[Path] = []
    for name in files_of(value):
        with contextlib.suppress(NbtoolsError):  # gone, or not allowed any more
            paths += map(Path, services[Roots]().matching(name))
    is_theirs = isinstance(value, _PLAIN) and marks_of(services).knows_value(value)
    recorder: CallRecorder = services[CallRecorder]()
    return recorder.values | label_of_files(services, paths) | Label(strangers=is_theirs)
