#!/usr/bin/env python
"""Benchmarks against the peers that are installed: ``run.py load|kernels|memory|sql|… [--quick] [--json FILE]``.

Each benchmark is a module of this folder with ``run(quick) -> list[dict]``. A row has ``case``, ``ours``, ``peer``,
``peer_value``, ``ratio`` (peer / ours, the median of paired rounds), ``unit`` and ``note``; a peer that is not
installed has no value. The modules are loaded as the package ``benchmarks``, so that a file here called ``sql.py`` does
not stand in the way of a peer's package of that name.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import platform
import sys
import time
import types
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
PLANNED = ("load", "kernels", "memory", "sql", "workflow", "agent", "mcp")
COLUMNS = ("case", "ours", "peer", "peer_value", "ratio", "unit", "note")


def prepare() -> None:
    """Make this folder the package ``benchmarks``, and take it off the path that Python put it on."""
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != FOLDER]
    package = types.ModuleType("benchmarks")
    package.__path__ = [str(FOLDER)]
    sys.modules["benchmarks"] = package


def shown(value: Any) -> str:
    """Return a cell of the table: numbers with three figures that mean something."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as aligned text."""
    cells = [[shown(row.get(column)) if row.get(column) != "" else "" for column in COLUMNS] for row in rows]
    heads = ["case", "ours", "peer", "peer's", "ratio", "unit", "note"]
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(COLUMNS))]
    numbers = {1, 3, 4}
    lines = [
        "  ".join(
            cell.rjust(width) if i in numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [heads, ["-" * width for width in widths], *cells]
    ]
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {"python": platform.python_version(), "system": platform.platform(), "cpus": os.cpu_count(), "load": load}


def main() -> int:
    """Run one benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", help=" | ".join(PLANNED))
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here as well")
    arguments = parser.parse_args()
    own = {"run", "paired"}
    there = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in own and not path.stem.startswith("_"))
    name = arguments.benchmark
    if name not in there:
        close = difflib.get_close_matches(name, [*there, *PLANNED], n=1)
        kind = "is planned, but not written yet" if name in PLANNED else "is not a benchmark"
        hint = f"; did you mean {close[0]!r}?" if close and close[0] != name else ""
        print(f"{name!r} {kind}{hint}\nthere are: {', '.join(there)}", file=sys.stderr)
        return 2
    prepare()
    begun = time.perf_counter()
    rows: list[dict[str, Any]] = importlib.import_module(f"benchmarks.{name}").run(arguments.quick)
    facts = machine()
    print(f"\n{name}: medians, ratio = peer / ours by paired rounds; {facts['cpus']} CPUs, load {facts['load']:.1f}")
    print(table(rows))
    absent = sorted({row["peer"] for row in rows if row.get("peer") and row.get("peer_value") is None})
    print(f"\nnot measured here: {', '.join(absent)}" if absent else "\nevery peer was measured")
    print(f"{time.perf_counter() - begun:.0f} s{', quick' if arguments.quick else ''}")
    if arguments.json:
        told = {"benchmark": name, "quick": arguments.quick, "machine": facts, "rows": rows}
        arguments.json.write_text(json.dumps(told, indent=2, ensure_ascii=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
