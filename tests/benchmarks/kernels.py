"""Kernels: a script in a clean kernel, the smallest run, first output, stop, death, and what a spare costs."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import _kernel_sides as sides
from benchmarks.paired import row, take_turns

from nbtools.ground import aio
from nbtools.kernels import KernelOptions, Kernels
from nbtools.kernels.forked.backend import ForkedBackend

SPARE = "from a warmed spare"
DEMAND = "forked on demand"
WARM = "jupyter_client, its warm kernel (dirty state)"


def run(quick: bool) -> list[dict[str, Any]]:
    """Measure the kernels."""
    rounds = 3 if quick else 11
    with tempfile.TemporaryDirectory(prefix="nbbench-") as place:
        folder = Path(place)
        sides.make_csv(folder / "sales.csv")
        code = sides.SCRIPT.format(csv=str(folder / "sales.csv"))
        warm = sides.WarmKernel(code)
        try:
            with Kernels("forked", spares=1) as ready, Kernels("forked", spares=0) as bare:
                ready.warm()
                bare.run("1")
                return [
                    *a_script(ready, bare, warm, folder, code, rounds),
                    *the_smallest_run(ready, bare, warm, rounds),
                    *first_output(ready, warm, rounds),
                    *ends(ready, rounds),
                    *costs(warm, rounds),
                ]
        finally:
            warm.close()


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def a_script(
    ready: Kernels, bare: Kernels, warm: sides.WarmKernel, folder: Path, code: str, rounds: int
) -> list[dict[str, Any]]:
    """Read a CSV of 10,000 rows, describe it, draw one chart."""
    peers: dict[str, tuple[str, Callable[[], Callable[[], float]]]] = {
        "python script.py": ("sys", lambda: sides.plain_python(folder, code)),
        "jupyter_client, start + ready + run": ("jupyter_client", lambda: sides.jupyter_client_fresh(code)),
        WARM: ("jupyter_client", lambda: warm.runs(code)),
        "nbclient": ("nbclient", lambda: sides.nbclient_side(code)),
        "papermill": ("papermill", lambda: sides.papermill_side(folder, code)),
        "AutoGen's Jupyter executor": (
            "autogen_ext.code_executors.jupyter",
            lambda: sides.autogen_side(folder, code),
        ),
    }
    there = {name: make() for name, (module, make) in peers.items() if module == "sys" or _is_there(module)}
    measured = take_turns(
        {
            SPARE: sides.managed(ready, code),
            DEMAND: sides.managed(bare, code),
            **there,
        },
        rounds,
    )
    rows = []
    for ours in (SPARE, DEMAND):
        for name in peers:
            times = [1e3 * value for value in measured[name]] if name in measured else None
            mine = [1e3 * value for value in measured[ours]]
            rows.append(row(f"script in a clean kernel, {ours}", mine, name, times, unit="ms"))
    return rows


def the_smallest_run(ready: Kernels, bare: Kernels, warm: sides.WarmKernel, rounds: int) -> list[dict[str, Any]]:
    """``1+1`` in a fresh kernel, and in one that is there."""
    ready.run("1", session="round")
    measured = take_turns(
        {
            SPARE: sides.managed(ready, "1+1"),
            DEMAND: sides.managed(bare, "1+1"),
            "session": _repeated(lambda: ready.run("1+1", session="round")),
            "start": sides.jupyter_client_fresh(None),
            "warm": warm.runs("1+1"),
        },
        rounds,
    )
    ms = {name: [1e3 * value for value in values] for name, values in measured.items()}
    start = "jupyter_client, start to ready"
    return [
        row(f"1+1 in a fresh kernel, {SPARE}", ms[SPARE], start, ms["start"], unit="ms"),
        row(f"1+1 in a fresh kernel, {DEMAND}", ms[DEMAND], start, ms["start"], unit="ms"),
        row("1+1 in a session", ms["session"], WARM, ms["warm"], unit="ms"),
    ]


def _repeated(step: Callable[[], object], times: int = 5) -> Callable[[], float]:
    def measure() -> float:
        begun = time.perf_counter()
        for _ in range(times):
            step()
        return (time.perf_counter() - begun) / times

    return measure


def first_output(ready: Kernels, warm: sides.WarmKernel, rounds: int) -> list[dict[str, Any]]:
    """Until a print that is not flushed is seen, while the script goes on."""
    code = "import time\nprint('first')\ntime.sleep(0.4)"

    def ours() -> float:
        begun = time.perf_counter()
        seen: list[float] = []
        ready.run(code, session="round", on_output=lambda _: seen.append(time.perf_counter() - begun))
        return seen[0]

    measured = take_turns({"ours": ours, "theirs": lambda: warm.first_output(code)}, rounds)
    ms = {name: [1e3 * value for value in values] for name, values in measured.items()}
    return [row("first unflushed print is seen", ms["ours"], "jupyter_client", ms["theirs"], unit="ms", note="goal 50")]


def ends(ready: Kernels, rounds: int) -> list[dict[str, Any]]:
    """How soon a stop is done and a death is known."""
    busy = "print('on', flush=True)\nwhile True: pass"
    stops = [1e3 * sides.stop_seconds(ready, busy) for _ in range(rounds)]
    deaths = [1e3 * sides.death_seconds(ready) for _ in range(rounds)]
    return [
        row("Stop, busy loop, until the result is there", stops, unit="ms", note="goal 100"),
        row("death by SIGKILL is reported", deaths, unit="ms", note="goal 200"),
    ]


def costs(warm: sides.WarmKernel, rounds: int) -> list[dict[str, Any]]:
    """What a spare takes up, and what strict confinement adds."""

    async def measured() -> tuple[list[float], list[float], list[float], list[float]]:
        backend = ForkedBackend()
        sizes, cpu, limits, strict = [], [], [], []
        try:
            for number in range(rounds + 1):
                begun = time.perf_counter()
                plain = await backend.open(KernelOptions(sandbox="limits"))
                halfway = time.perf_counter()
                tight = await backend.open(KernelOptions(sandbox="strict", network=False))
                done = time.perf_counter()
                await plain.warm()
                if number and plain.pid is not None:
                    sizes.append(sides.private_bytes(plain.pid) / 1e6)
                    cpu.append(1e3 * sides.cpu_seconds(plain.pid))
                    limits.append(1e3 * (halfway - begun))
                    strict.append(1e3 * (done - halfway))
                await plain.close()
                await tight.close()
        finally:
            await backend.close()
        return sizes, cpu, limits, strict

    sizes, cpu, limits, strict = aio.run(measured())
    ordinary = [sides.private_bytes(warm.pid) / 1e6] * len(sizes)
    extra = [b - a for a, b in zip(limits, strict, strict=True)]
    return [
        row("private memory of a warmed spare", sizes, "an ordinary kernel with the libraries", ordinary, unit="MB"),
        row("processor time of a warmed spare", cpu, unit="ms", note="in steps of 10"),
        row("opening a kernel on demand, limits", limits, unit="ms"),
        row("opening a kernel on demand, strict", strict, unit="ms"),
        row("strict confinement adds", extra, unit="ms", note="goal 5"),
    ]
