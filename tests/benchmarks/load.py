"""Loading: CPU that ``%load_ext`` adds to a fresh kernel, ours against other extensions and against eager imports.

Each measurement is a kernel of its own, started by jupyter_client; the CPU is that of the kernel's process.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable
from typing import Any

from benchmarks.paired import row, take_turns

# Name to what is loaded, the module that shows whether it is installed, and how to get it.
PEERS = {
    "jupysql": ("%load_ext sql", "sql", "jupysql"),
    "magic_duckdb": ("%load_ext magic_duckdb", "magic_duckdb", "magic_duckdb"),
    "quak": ("%load_ext quak", "quak", "quak"),
    "jupyter-ai magics": ("%load_ext jupyter_ai_magics", "jupyter_ai_magics", "jupyter-ai-magics"),
    "all of our core libraries, eagerly": (
        "import bs4, duckdb, ipywidgets, jupyter_client, matplotlib.pyplot, pandas, pydantic, requests, sqlglot",
        "pandas",
        "pandas",
    ),
}
_MEASURE = """
import os, sys, time
_modules, _begun = len(sys.modules), time.process_time()
{what}
print("CPU", 1000 * (time.process_time() - _begun), len(sys.modules) - _modules)
"""


def kernel_cpu(what: str) -> tuple[float, int]:
    """Return CPU milliseconds and new modules that a line costs in a fresh kernel."""
    from jupyter_client.manager import start_new_kernel

    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "IPYTHONDIR": home, "NBTOOLS_HOME": home, "PLOOMBER_STATS_ENABLED": "false"}
        manager, client = start_new_kernel(kernel_name="python3", env=environment, cwd=home, stderr=-3)
        told: list[str] = []
        try:
            client.execute_interactive(
                _MEASURE.format(what=what),
                timeout=120,
                output_hook=lambda m: told.append(m["content"].get("text", "")) if m["msg_type"] == "stream" else None,
            )
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    figures = [line.split() for text in told for line in text.splitlines() if line.startswith("CPU ")]
    if not figures:
        raise RuntimeError(f"{what!r} failed in a fresh kernel: {''.join(told)}")
    return float(figures[-1][1]), int(figures[-1][2])


def run(quick: bool) -> list[dict[str, Any]]:
    """Measure loading."""
    modules: dict[str, int] = {}

    def side(name: str, what: str) -> Callable[[], float]:
        def measure() -> float:
            milliseconds, modules[name] = kernel_cpu(what)
            return milliseconds

        return measure

    ours = "%load_ext nbtools"
    sides = {ours: side(ours, ours), "import nbtools": side("import nbtools", "import nbtools")}
    there = {name: what for name, (what, module, _) in PEERS.items() if importlib.util.find_spec(module)}
    sides |= {name: side(name, what) for name, what in there.items()}
    values = take_turns(sides, 3 if quick else 9)
    rows = [
        row(ours, values[ours], unit="ms CPU", note=f"{modules[ours]} modules; goal: at most 50"),
        row("import nbtools", values["import nbtools"], unit="ms CPU", note=f"{modules['import nbtools']} modules"),
    ]
    for name, (_, _, install) in PEERS.items():
        found = values.get(name)
        note = f"{modules[name]} modules" if found else f"not installed: pip install {install}"
        rows.append(row(ours, values[ours], name, found, unit="ms CPU", note=note))
    return rows
