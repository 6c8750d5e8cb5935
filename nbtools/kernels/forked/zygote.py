"""A warden that has loaded the libraries already and forks ready kernels.

``python -m nbtools.kernels.forked.zygote FD FOLDER PRELOADS`` is started by exec with a scrubbed environment, never
forked from the owner: what it forks inherits its memory and its ``/proc/self/environ``. It imports ipykernel, IPython
and the preloads, exercises pandas, numpy and matplotlib once (nothing else: a library that ran OpenMP or Polars
before the fork hangs in the child), proves by a canary that a fork of it works, and serves.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import json
import mmap
import os
import re
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools.kernels.forked.packages import LEAVES_THREADS, installed_in
from nbtools.kernels.inside import forked_kernel, pictures
from nbtools.processes import control_group
from nbtools.processes.fd_socket import FdSocket
from nbtools.processes.process import Warden

# What is known to leave none is not tried first.
_KNOWN = frozenset({"pandas", "numpy", "matplotlib", "duckdb", "sklearn"})

_CANARY_S = 20
# Of the system's list: a private mapping of a file that cannot be written, of which no page is the process' own.
_MAPPING = r"^([0-9a-f]+)-([0-9a-f]+) r-[-x]p [^\n]* /[^\n]*\n(?:(?!Anonymous:)[A-Z][^\n]*\n)*Anonymous: +0 kB$"
# Threads that their libraries end before a fork and start again after it.
_FORK_AWARE = frozenset({"jemalloc_bg_thd"})


class Zygote(Warden):
    """A warden that can also ``fork``."""

    _has_forked = False

    def _enter_early(self) -> None:
        """Do nothing: entering takes 10 ms, in which the first kernel can make itself ready."""

    def handle(self, message: Mapping[str, Any], descriptors: list[int]) -> None:
        """Do what the owner says."""
        if message["do"] != "fork":
            super().handle(message, descriptors)
            return
        ready_r, ready_w = os.pipe()
        self.begin(message, [*descriptors, ready_w], lambda: forked_kernel.main(message, descriptors, ready_w))
        os.close(ready_w)
        if not self._has_forked:
            self._has_forked = True
            self._enter_group()
            # It runs nothing before its owner is told, by the loop that goes on behind this, that it is ready.
            control_group.move(self.kernels[message["id"]].pid, self._group)
        for descriptor in descriptors:
            os.close(descriptor)
        self._selector.register(ready_r, selectors.EVENT_READ, lambda: self._ready(ready_r, message["id"]))

    def _ready(self, descriptor: int, name: str) -> None:
        data = os.read(descriptor, 1 << 16)
        self._selector.unregister(descriptor)
        os.close(descriptor)
        if data:
            self.pipe.send({"event": "ready", "id": name, **json.loads(data)})


def _load(names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Import what is installed; return what was loaded, and why the rest was not."""
    loaded, failed = [], {}
    for name in names:
        try:
            if name not in _KNOWN and _leaves_threads(name):
                failed[name] = LEAVES_THREADS
                continue
            importlib.import_module("matplotlib.pyplot" if name == "matplotlib" else name)
            loaded.append(name)
        except ModuleNotFoundError:
            failed[name] = "not installed"
        except Exception as exc:
            failed[name] = f"{type(exc).__name__}: {exc}"
    return loaded, failed


def _leaves_threads(name: str) -> bool:
    """Tell whether an import leaves threads running, by a fork that tries it: no thread can be taken back."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(_CANARY_S)
        with contextlib.suppress(BaseException):
            importlib.import_module(name)
        os._exit(bool(threading.active_count() > 1 or _threads() - _FORK_AWARE))
    return os.waitpid(pid, 0)[1] != 0


def _exercise_pandas() -> None:
    import pandas as pd

    rows = "".join(f"2025-01-0{i % 9 + 1},{'ab'[i % 2]},{i * 1.5}\n" for i in range(40))
    frame = pd.read_csv(io.StringIO("day,g,v\n" + rows))
    frame.describe().to_string()
    frame._repr_html_()
    frame.groupby("g")["v"].mean()


def _exercise_matplotlib() -> None:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots()
    axes.bar(["a", "b"], [1.0, 2.0])
    axes.plot([0, 1], [1, 2], label="warm")
    axes.set_title("warm")
    axes.legend()
    if "pandas" in sys.modules:
        # pandas loads its plotting part with the first plot.
        sys.modules["pandas"].Series([1.0, 2.0], index=["a", "b"]).plot.bar(ax=axes)
    pictures.print_figure(figure)
    plt.close("all")


def _canary(loaded: Sequence[str]) -> str | None:
    """Fork, use the libraries in the child, and return what went wrong; `None` when all is well."""
    pid = os.fork()
    if pid == 0:
        # A fork that hangs in a lock of a library cannot end itself in any other way.
        signal.alarm(_CANARY_S)
        os._exit(_sing(loaded))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == -signal.SIGALRM:
        return f"a fork hung for {_CANARY_S} s after preloading {', '.join(loaded)}"
    if status:
        return f"a fork failed with {status} after preloading {', '.join(loaded)}"
    left = sorted(_threads() - _FORK_AWARE)
    if threading.active_count() > 1 or left:
        return f"preloading {', '.join(loaded)} left threads running ({', '.join(left) or 'Python'})"
    return None


def _sing(loaded: Sequence[str]) -> int:
    try:
        if "numpy" in loaded:
            import numpy as np

            (np.ones((64, 64)) @ np.ones((64, 64))).sum()
        if "pandas" in loaded:
            _exercise_pandas()
        if "duckdb" in loaded:
            import duckdb

            duckdb.connect(":memory:").execute("select 42").fetchall()
    except Exception:
        return 1
    return 0


def _give_back_pages() -> None:
    """Give back the pages of libraries' files that loading needed: half of them are not needed again.

    What is needed is mapped again from the system's cache. Forks do that anyway, since they inherit no such page. Where
    a page was written into (an address that the loader put there, for example), its whole mapping is left as it is.
    """
    with contextlib.suppress(OSError, AttributeError, ValueError):
        advise = ctypes.CDLL(None, use_errno=True).madvise
        mappings = re.findall(_MAPPING, Path("/proc/self/smaps").read_text(), re.MULTILINE | re.DOTALL)
        for start, end in ((int(start, 16), int(end, 16)) for start, end in mappings):
            advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def _threads() -> set[str]:
    """Return the names of the native threads beside this one."""
    names = set()
    for task in Path("/proc/self/task").iterdir():
        if task.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                names.add((task / "comm").read_text().strip())
    return names


def load(preloads: Sequence[str]) -> dict[str, Any]:
    """Import libraries once all that kernels need is made, and try a fork; return what is told with the hello."""
    forked_kernel.fail_once()
    with forked_kernel.as_in_a_cell():
        loaded, failed = _load(preloads)
    # The common paths are walked once, so that no kernel pays for the first time.
    if "pandas" in loaded:
        _exercise_pandas()
    if "matplotlib" in loaded:
        forked_kernel.use_inline_figures()
        _exercise_matplotlib()
    gc.collect()
    gc.freeze()  # as in `build`
    problem = _canary(loaded)
    _give_back_pages()
    return {**without_libraries(), "loaded": loaded, "failed": failed, "problem": problem}


def without_libraries() -> dict[str, Any]:
    """Return what is told with the hello before anything is loaded: there is nothing yet that breaks in a fork."""
    return {"loaded": [], "failed": {}, "problem": None, "path": installed_in(sys.path)}


def serve() -> None:
    """Run the process: ``FD FOLDER PRELOADS`` are its arguments, the preloads a JSON list."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    folder, preloads = sys.argv[2], json.loads(sys.argv[3])
    # A script sees it, and libraries parse what stands there.
    sys.argv = ["nbtools-kernel"]
    forked_kernel.build()
    message = load(preloads)
    # From here on the process only forks, and no library is used in it any more.
    Zygote(FdSocket(sock), folder).run(message)


if __name__ == "__main__":
    serve()
