"""Mark what this process runs of a package, in a map that all processes share: lines, and both ways of each branch.

A file of the environment (``.pth``) imports it in each process, whatever its variables are. Forks inherit the map,
what is killed leaves its marks, and there is nothing to save. A line is asked for once, a branch until both of
its ways were taken: it costs little. Only processes that may not write the map are missing.
"""

from __future__ import annotations

import marshal
import mmap
import sys
from types import CodeType

_TOOL = 4  # a number that no profiler, debugger or other measurement has reserved
_events = sys.monitoring.events
_files: dict[str, tuple[int, bytes]] = {}
_places: dict[str, dict[tuple[int, int], dict[int, tuple[int, int, int]]]] = {}
_branches: dict[int, tuple[CodeType, dict[int, tuple[int, int, int]]]] = {}


def _start() -> None:
    try:
        with open(f"{__file__}.map", "r+b") as file:  # noqa: PTH123 - pathlib is not loaded in each process
            marks = mmap.mmap(file.fileno(), 0)
        with open(f"{__file__}.places", "rb") as file:  # noqa: PTH123 - same
            _files.update(marshal.load(file))  # noqa: S302 - written by `measure.py start`
    except OSError:
        return  # another user, or a confined process

    def begin(code: CodeType, offset: int) -> object:
        if (name := code.co_filename) in _files:
            places = _places.get(name) or _places.setdefault(name, marshal.loads(_files[name][1]))  # noqa: S302 - same
            branches = places.get((code.co_firstlineno, len(code.co_code)), {})
            _branches[id(code)] = (code, branches)  # with the code, so that no other gets its number
            sys.monitoring.set_local_events(_TOOL, code, _events.LINE | _events.BRANCH)
        return sys.monitoring.DISABLE

    def line(code: CodeType, number: int) -> object:
        marks[_files[code.co_filename][0] + number] = 1
        return sys.monitoring.DISABLE

    def branch(code: CodeType, source: int, target: int) -> object:
        places = _branches[id(code)][1].get(source)
        if places is None:
            return sys.monitoring.DISABLE
        straight, here, there = places
        marks[here if target == straight else there] = 1
        return sys.monitoring.DISABLE if marks[here] and marks[there] else None

    sys.monitoring.use_tool_id(_TOOL, "nbtools-measured")
    sys.monitoring.register_callback(_TOOL, _events.PY_START, begin)
    sys.monitoring.register_callback(_TOOL, _events.LINE, line)
    sys.monitoring.register_callback(_TOOL, _events.BRANCH, branch)
    sys.monitoring.set_events(_TOOL, _events.PY_START)


_start()
