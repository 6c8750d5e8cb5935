"""Labels of values of this process: from the value itself, else from where it was read, else unknown.

A frame does not say what it was read from: it may have been changed in place, or be made of others, and pandas hands
its attributes on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbtools.contract.approval.label_rules import label_of_files, of_unknown
from nbtools.contract.label import SEEN_NOW, Label
from nbtools.contract.record import CallRecorder
from nbtools.contract.tool import Services
from nbtools.errors import NbtoolsError
from nbtools.ground.paths import Roots
from nbtools.sql import QueryResult


def see_value(value: Any, services: Services) -> None:
    """Give the call or prompt that is made here the label of a value of this process."""
    if value is not None and (seen := SEEN_NOW.get()) is not None:
        seen.append(_label_of(value, services))


def _label_of(value: Any, services: Services) -> Label:
    for name in ("label", "seen"):  # of a result, and of a run
        if isinstance(own := getattr(value, name, None), Label):
            return own
    try:
        names = value.files if isinstance(value, QueryResult) else ()
        paths = [Path(path) for name in names for path in services[Roots]().matching(name)]
    except NbtoolsError:  # gone, or not allowed any more
        paths = []
    recorder: CallRecorder = services[CallRecorder]()
    return recorder.values | label_of_files(services, paths) if paths else of_unknown(services)
