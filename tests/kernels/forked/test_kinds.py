"""What each kind of object is in a copy of a session: the same as in the session itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nbtools.kernels import Kernels
from nbtools.kernels.handle import KernelSession

pytestmark = [pytest.mark.processes, pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="forks need Linux")]

# How one is made, and what is printed of it.
_KINDS = {
    "lambda": ("y = 2; f = lambda a: a * y", "f(21)"),
    "class of a cell": ("class Point: a = 7\np = Point()", "(p.a, type(p) is Point)"),
    "generator": ("g = (i * i for i in range(9)); next(g)", "next(g)"),
    "iterator": ("it = iter([1, 2]); next(it)", "next(it)"),
    "temporary file": (
        "import tempfile; temp = tempfile.TemporaryFile('w+'); temp.write('12'); temp.seek(1)",
        "temp.read()",
    ),
    "lock": ("import threading; lock = threading.Lock(); lock.acquire()", "lock.locked()"),
    "queue": ("import queue; q = queue.Queue(); q.put(5)", "q.get()"),
    "event loop": ("import asyncio; loop = asyncio.new_event_loop()", "loop.call_soon(print, 3), loop.is_closed()"),
    "context variable": ("import contextvars; var = contextvars.ContextVar('v'); var.set(3)", "var.get()"),
    "logger": (
        "import logging; log = logging.getLogger('one'); log.addHandler(logging.FileHandler('log.txt'))",
        "len(log.handlers)",
    ),
    "random numbers": ("import random; random.seed(1); random.random()", "random.random()"),
    "numpy's random numbers": (
        "import numpy as np; np.random.seed(1); rng = np.random.default_rng(1)",
        "(rng.random(), np.random.rand())",
    ),
    "memory map": ("import mmap; m = mmap.mmap(-1, 10, flags=mmap.MAP_PRIVATE); m[:2] = b'ab'", "m[:2]"),
    "view of an array": ("import numpy as np; b = np.arange(5); view = b[1:]; view[0] = 9", "(view.base is b, b[1])"),
    "frame of pandas": ("import pandas as pd; df = pd.DataFrame({'a': [1, 2]})", "df.a.sum()"),
    "table of Arrow": ("import pyarrow as pa; table = pa.table({'a': [1, 2]})", "table.num_rows"),
    "model": (
        "from sklearn.linear_model import LinearRegression as R; r = R().fit([[1], [2]], [2, 4])",
        "round(r.predict([[5]])[0])",
    ),
    "figure": (
        "import matplotlib.pyplot as plt; ax = plt.figure().gca(); line = ax.plot([1, 2])[0]; plt.close()",
        "ax.lines[0] is line",
    ),
    "relation of DuckDB": (
        "import duckdb; con = duckdb.connect(); rel = con.sql('select 6 i')",
        "rel.limit(1).fetchall()",
    ),
    "cursor of SQLite": (
        "import sqlite3; lite = sqlite3.connect(':memory:'); rows = lite.execute('values (1), (2)'); rows.fetchone()",
        "rows.fetchone()",
    ),
    "partial function": ("import re, functools; find = functools.partial(re.compile('a+').findall, 'caab')", "find()"),
    "traceback": ("try: 1 / 0\nexcept ZeroDivisionError as exc: error = exc", "error.__traceback__.tb_lineno"),
}


@pytest.fixture(scope="module")
def session() -> Iterator[KernelSession]:
    with Kernels("forked", spares=0, preloads=("numpy", "pandas", "matplotlib", "duckdb")) as kernels:
        yield kernels.session("a")


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [[kind for kind in _KINDS if kind != "model"], ["model"]], ids=["most", "model"])
def test_objects_are_in_a_copy_what_they_are_in_the_session(session: KernelSession, kinds: list[str]) -> None:
    for kind in kinds:
        done = session.run(_KINDS[kind][0])
        if done.error is not None and done.error.name == "ModuleNotFoundError":
            pytest.skip("not installed")
        assert done.ok, (kind, done)
    with session.fork("copy") as copy:
        for kind in kinds:
            look = f"print({_KINDS[kind][1]})"
            shown = copy.run(look)
            assert (shown.status, shown.stdout) == ("ok", session.run(look).stdout), kind
