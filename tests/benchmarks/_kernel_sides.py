"""The ways to run one script, each as a function that returns seconds; what has to be ready before is not timed."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbtools.ground import aio
from nbtools.kernels import Kernels

SCRIPT = """
import pandas as pd
import matplotlib.pyplot as plt
df = pd.read_csv({csv!r})
print(df.describe().to_string())
ax = df.groupby("region")["units"].mean().plot.bar()
plt.show()
"""


def make_csv(path: Path, rows: int = 10_000) -> None:
    """Write the table that every script reads."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    pd.DataFrame(
        {
            "day": pd.date_range("2025-01-01", periods=rows, freq="min").astype(str),
            "region": rng.choice(["north", "south", "east", "west"], rows),
            "units": rng.integers(1, 50, rows),
            "price": rng.normal(20, 4, rows).round(2),
        }
    ).to_csv(path, index=False)


def wait_for_spare(kernels: Kernels) -> None:
    """Wait until a spare stands ready, so that one run does not pay for the last."""
    kernels.warm()
    time.sleep(0.05)


def managed(kernels: Kernels, code: str) -> Callable[[], float]:
    """Our side: a clean kernel by lease, a spare where `kernels` holds some."""

    def measure() -> float:
        wait_for_spare(kernels)
        begun = time.perf_counter()
        done = kernels.run(code)
        taken = time.perf_counter() - begun
        assert done.ok, done
        # Whoever has the next turn must pay neither for the new spare nor for the end of this kernel.
        wait_for_spare(kernels)
        return taken

    return measure


def plain_python(folder: Path, code: str) -> Callable[[], float]:
    """``python script.py``, the picture written to a file."""
    script = folder / "script.py"
    script.write_text(code.replace("plt.show()", f"plt.savefig({str(folder / 'out.png')!r})"))
    env = {**os.environ, "MPLBACKEND": "Agg"}

    def measure() -> float:
        begun = time.perf_counter()
        subprocess.run([sys.executable, str(script)], check=True, stdout=subprocess.PIPE, env=env)
        return time.perf_counter() - begun

    return measure


def _started() -> tuple[Any, Any]:
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    return manager, client


def _ended(manager: Any, client: Any) -> None:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()


def _execute(client: Any, code: str, look: Callable[[Any], None] = lambda _: None) -> None:
    reply = client.execute_interactive(code, timeout=60, output_hook=look, allow_stdin=False)
    assert reply["content"]["status"] == "ok", reply["content"]


def jupyter_client_fresh(code: str | None) -> Callable[[], float]:
    """jupyter_client: start, wait until ready, run; `None` runs nothing."""

    def measure() -> float:
        begun = time.perf_counter()
        manager, client = _started()
        if code is not None:
            _execute(client, code)
        taken = time.perf_counter() - begun
        _ended(manager, client)
        return taken

    return measure


class WarmKernel:
    """jupyter_client's kernel that has run the script before: quick, and not clean."""

    def __init__(self, code: str) -> None:
        self.manager, self.client = _started()
        _execute(self.client, code)

    @property
    def pid(self) -> int:
        """Its process id."""
        return int(self.manager.provisioner.pid)

    def runs(self, code: str) -> Callable[[], float]:
        """Measure a run in it."""

        def measure() -> float:
            begun = time.perf_counter()
            _execute(self.client, code)
            return time.perf_counter() - begun

        return measure

    def first_output(self, code: str) -> float:
        """Return seconds until the first output is seen."""
        begun = time.perf_counter()
        seen: list[float] = []

        def look(message: Any) -> None:
            # The hook hears of states and inputs too.
            if message["header"]["msg_type"] == "stream":
                seen.append(time.perf_counter() - begun)

        _execute(self.client, code, look)
        return seen[0]

    def close(self) -> None:
        """End it."""
        _ended(self.manager, self.client)


def nbclient_side(code: str) -> Callable[[], float]:
    """A one-cell notebook through nbclient."""
    import nbformat
    from nbclient import NotebookClient

    def measure() -> float:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
        begun = time.perf_counter()
        with _quiet():
            NotebookClient(notebook, kernel_name="python3").execute()
        return time.perf_counter() - begun

    return measure


def papermill_side(folder: Path, code: str) -> Callable[[], float]:
    """A one-cell notebook through papermill."""
    import nbformat
    import papermill

    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)], metadata={"kernelspec": spec})
    nbformat.write(notebook, folder / "in.ipynb")

    def measure() -> float:
        begun = time.perf_counter()
        with _quiet():
            papermill.execute_notebook(
                str(folder / "in.ipynb"), str(folder / "out.ipynb"), progress_bar=False, log_output=False
            )
        return time.perf_counter() - begun

    return measure


def autogen_side(folder: Path, code: str) -> Callable[[], float]:
    """AutoGen's Jupyter executor: started, one block, stopped."""
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock
    from autogen_ext.code_executors.jupyter import JupyterCodeExecutor

    async def once() -> float:
        begun = time.perf_counter()
        async with JupyterCodeExecutor(output_dir=folder) as executor:
            blocks = [CodeBlock(code=code, language="python")]
            result = await executor.execute_code_blocks(blocks, cancellation_token=CancellationToken())
            taken = time.perf_counter() - begun
        assert result.exit_code == 0, result
        return taken

    def measure() -> float:
        with _quiet():
            return asyncio.run(once())

    return measure


@contextlib.contextmanager
def _quiet() -> Any:
    """Keep warnings of the peers out of the table."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def stop_seconds(kernels: Kernels, code: str) -> float:
    """Return seconds from the cancellation of a busy run to its result."""

    async def once() -> float:
        begun = asyncio.Event()
        task = asyncio.ensure_future(kernels.arun(code, session="stop", on_output=lambda _: begun.set()))
        await begun.wait()
        at = time.perf_counter()
        task.cancel()
        done = await task
        assert done.status == "stopped", done
        return time.perf_counter() - at

    return aio.run(once())


def death_seconds(kernels: Kernels) -> float:
    """Return seconds from the SIGKILL of a busy kernel to the result."""

    async def once() -> float:
        begun = asyncio.Event()
        code = "print('on', flush=True)\nwhile True: pass"
        task = asyncio.ensure_future(kernels.arun(code, session="death", on_output=lambda _: begun.set()))
        await begun.wait()
        pid = next(shown["pid"] for shown in kernels.list() if shown["name"] == "death")
        at = time.perf_counter()
        os.kill(pid, 9)
        done = await task
        assert done.status == "died", done
        return time.perf_counter() - at

    return aio.run(once())


def private_bytes(pid: int) -> int:
    """Return the memory that a process shares with nobody."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
