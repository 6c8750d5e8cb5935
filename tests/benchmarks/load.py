"""Loading: CPU that ``%load_ext`` adds to a fresh kernel, and what the first script or command of a process waits for.

Loading is measured against other extensions and against eager imports, each in a kernel of its own, started by
jupyter_client; the CPU is that of the kernel's process. First scripts and commands are whole processes, by the clock.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._kernel_sides import SCRIPT, make_csv, plain_python
from benchmarks.paired import row, take_turns
from psutil import process_iter

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
    return rows + first_ones(5 if quick else 15)


_SCRIPT = "import pandas as pd; d = pd.read_csv({csv!r}); print(d.groupby('region')['units'].mean())"
_KERNELS = """
import sys
from pathlib import Path
from time import perf_counter
from nbtools.kernels import Kernels
begun = perf_counter()
with Kernels(home=Path(sys.argv[1]), warm_s=float(sys.argv[2])) as kernels:
    assert kernels.run(sys.argv[3]).ok
print(1000 * (perf_counter() - begun))
"""

_CHART = "first script, describes and draws"
_PAIRS = (
    ("first script, nothing running", "python script.py", "with start and import of nbtools"),
    ("first script, nothing running, nbtools imported", "python script.py", "goal: at least 0.77"),
    ("first script, libraries loaded", "python script.py", "with start and import of nbtools"),
    ("first script, libraries loaded, nbtools imported", "python script.py", "goal: at least 4"),
    (f"{_CHART}, nothing running", "python chart.py", "with start and import of nbtools"),
    (f"{_CHART}, nothing running, nbtools imported", "python chart.py", "goal: at least 0.77"),
    (f"{_CHART}, libraries loaded, nbtools imported", "python chart.py", "goal: at least 4"),
    ("nbtools call data_analyze", "python script.py", "goal: at least 1.7"),
    ("nbtools call calculator", "python -c pass", "goal: at most 250 ms"),
    ("nbtools sql 'select 1'", "python -c, bare duckdb", "goal: at least 0.5"),
)


def first_ones(rounds: int) -> list[dict[str, Any]]:
    """Measure the first script and the small commands of a process against Python and the bare libraries."""
    with tempfile.TemporaryDirectory(prefix="nbbench-") as place:
        csv = Path(place, "sales.csv")
        make_csv(csv)
        code, chart = (text.format(csv=str(csv)) for text in (_SCRIPT, SCRIPT))
        script = Path(place, "script.py")
        script.write_text(code)
        # As installed: packages come with compiled modules, and a checkout gets them in the first round.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = {**kept, "NBTOOLS_HOME": f"{place}/home", "NBTOOLS_KERNEL_WARM": "30s"}

        def timed(*command: str) -> Callable[[], float]:
            def measure() -> float:
                begun = time.perf_counter()
                subprocess.run(command, env=environment, cwd=place, check=True, capture_output=True)
                return 1000 * (time.perf_counter() - begun)

            return measure

        def told(*command: str) -> Callable[[], float]:
            # What the process measures itself, once it has imported nbtools: what a notebook waits for.
            return lambda: float(subprocess.check_output(command, env=environment, cwd=place))

        def cold(how: Callable[..., Callable[[], float]], code: str) -> Callable[[], float]:
            def measure() -> float:
                # A home of its own: nothing runs there, and what is started leaves before the next round.
                with tempfile.TemporaryDirectory(prefix="nbbench-") as home:
                    taken = how(sys.executable, "-c", _KERNELS, home, "0.1", code)()
                    while any(home in " ".join(process.info["cmdline"] or ()) for process in process_iter(["cmdline"])):
                        time.sleep(0.1)
                    return taken

            return measure

        nbtools = [sys.executable, "-m", "nbtools.cli"]
        warm = [sys.executable, "-c", _KERNELS, f"{place}/home", "30"]
        charts = Path(place, "charts")
        charts.mkdir()
        in_python = plain_python(charts, chart)
        arguments = json.dumps({"input_file_path": str(csv), "analysis_script": code})
        sides = {
            "python script.py": timed(sys.executable, str(script)),
            "first script, nothing running": cold(timed, code),
            "first script, nothing running, nbtools imported": cold(told, code),
            "first script, libraries loaded": timed(*warm, code),
            "first script, libraries loaded, nbtools imported": told(*warm, code),
            "python chart.py": lambda: 1000 * in_python(),
            f"{_CHART}, nothing running": cold(timed, chart),
            f"{_CHART}, nothing running, nbtools imported": cold(told, chart),
            f"{_CHART}, libraries loaded, nbtools imported": told(*warm, chart),
            "nbtools call data_analyze": timed(*nbtools, "call", "data_analyze", "--json", arguments),
            "python -c pass": timed(sys.executable, "-c", "pass"),
            "nbtools call calculator": timed(*nbtools, "call", "calculator", "--json", '{"expression": "1 + 1"}'),
            "python -c, bare duckdb": timed(sys.executable, "-c", "import duckdb; print(duckdb.sql('select 1'))"),
            "nbtools sql 'select 1'": timed(*nbtools, "sql", "select 1"),
        }
        values = take_turns(sides, rounds)
    return [row(ours, values[ours], peer, values[peer], unit="ms", note=note) for ours, peer, note in _PAIRS]
