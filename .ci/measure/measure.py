"""Prepare the measurement of the package in all processes (see hook.py), and read what they have marked.

``start``: let each process of this environment mark what it runs. ``save FILE``: write what is marked as a file of
coverage's, which judges which lines and branches there are. ``judge FILE``: print the share of each part of the package
by coverage's JSON, and fail where one is below what `.ci/coverage.toml` says. ``stop``: let nothing be marked any more.
"""

from __future__ import annotations

import dis
import json
import marshal
import shutil
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

_ROOT = Path(__file__).parents[2]
_HOOK = Path(sysconfig.get_path("purelib"), "nbtools_measured.py")
_MAP, _PLACES, _ARCS = (_HOOK.with_name(f"{_HOOK.name}.{kind}") for kind in ("map", "places", "arcs"))
_PTH = _HOOK.with_suffix(".pth")
_JUMPS = {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
Arc = tuple[int, int] | None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _ways(code: CodeType) -> Iterator[tuple[int, int, Arc, Arc]]:
    """Yield each branch: its place, that of the next instruction, and from which line to which both ways lead."""
    instructions = list(dis.get_instructions(code))
    at = {one.offset: number for number, one in enumerate(instructions)}

    def follow(line: int, number: int) -> Arc:
        passed = set[int]()
        while number < len(instructions) and number not in passed:
            passed.add(number)
            one = instructions[number]
            if one.positions and one.positions.lineno not in {None, line}:
                return line, one.positions.lineno
            if one.opname.startswith("RETURN_") and one.opname != "RETURN_GENERATOR":
                return line, -code.co_firstlineno
            if one.opname in _JUMPS:
                number = at[one.argval]
            elif one.opcode in dis.hasjrel or one.opname == "RERAISE":
                return None  # another branch, which has marks of its own
            else:
                number += 1
        return None

    for number, one in enumerate(instructions):
        line = one.positions and one.positions.lineno
        if line and one.opcode in dis.hasjrel and ("_IF_" in one.opname or one.opname == "FOR_ITER"):
            yield one.offset, instructions[number + 1].offset, follow(line, number + 1), follow(line, at[one.argval])


def start() -> None:
    """Give all lines and ways of the package numbers, make the map, and let each process import the hook."""
    files, arcs, size = {}, {}, 1
    for path in sorted((_ROOT / "nbtools").rglob("*.py")):
        text = path.read_bytes()
        lines = text.count(b"\n") + 1
        base, size = size, size + lines + 1
        places: dict[tuple[int, int], dict[int, tuple[int, int, int]]] = {}
        for code in _codes(compile(text, str(path), "exec", dont_inherit=True)):
            for offset, straight, here, there in _ways(code):
                branches = places.setdefault((code.co_firstlineno, len(code.co_code)), {})
                branches[offset] = (straight, size, size + 1)
                arcs[size], arcs[size + 1] = here, there
                size += 2
        files[str(path)] = (base, lines, places)
    _ARCS.write_bytes(marshal.dumps((arcs, files)))
    known = {path: (base, marshal.dumps(rest)) for path, (base, _, rest) in files.items()}
    # Under this name a kernel that may not have nbtools runs the text of a module.
    sent = {f"<{Path(path).relative_to(_ROOT).as_posix()}>": places for path, places in known.items()}
    _PLACES.write_bytes(marshal.dumps(known | sent))
    _MAP.write_bytes(bytes(size))
    _MAP.chmod(0o666)  # processes of other users too
    shutil.copyfile(Path(__file__).with_name("hook.py"), _HOOK)
    _PTH.write_text(f"import {_HOOK.stem}\n")


def save(path: str) -> None:
    """Write what was marked for `coverage report`."""
    from coverage import CoverageData

    marks = _MAP.read_bytes()
    arcs, files = marshal.loads(_ARCS.read_bytes())  # noqa: S302 - our own
    data = CoverageData(path)
    for name, (base, lines, places) in files.items():
        run = {(-1, number) for number in range(1, lines + 1) if marks[base + number]}
        slots = [slot for branches in places.values() for _, *both in branches.values() for slot in both]
        data.add_arcs({name: run | {arcs[slot] for slot in slots if marks[slot] and arcs[slot]}})
    data.touch_files(list(files))  # those that nothing runs too
    data.write()


def stop() -> None:
    """Take the hook away."""
    for file in (_PTH, _HOOK, _MAP, _PLACES, _ARCS):
        file.unlink(missing_ok=True)


def judge(path: str) -> None:
    """Print the share of each part, and fail where one is below its floor."""
    floors = tomllib.loads((_ROOT / ".ci" / "coverage.toml").read_text(encoding="utf-8"))
    parts: dict[str, list[int]] = {}
    for name, measured in json.loads(Path(path).read_text(encoding="utf-8"))["files"].items():
        summary, names = measured["summary"], name.partition("nbtools/")[2].split("/")
        part = parts.setdefault(names[0] if len(names) > 1 else "the top", [0, 0])
        part[0] += summary["covered_lines"] + summary["covered_branches"]
        part[1] += summary["num_statements"] + summary["num_branches"]
    low = []
    for name, (run, whole) in sorted(parts.items()):
        share, floor = 100 * run / whole, floors.get(name, {}).get("floor", 0)
        print(f"{share:5.1f} % of {name}, {whole - run} of {whole} left{f'; below {floor}' if share < floor else ''}")  # noqa: T201 - what it is for
        low += [name] if share < floor else []
    sys.exit(f"less is run than was: {', '.join(low)}" if low else 0)


if __name__ == "__main__":
    {"start": start, "save": save, "judge": judge, "stop": stop}[sys.argv[1]](*sys.argv[2:])
