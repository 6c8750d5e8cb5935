"""What happens to kernels while nobody looks: their folders are cleaned away, they are idle, they are killed."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from nbtools.kernels import Kernels
from nbtools.kernels.interface import OutputPiece
from tests.conftest import wait_until

pytestmark = [
    pytest.mark.races,
    pytest.mark.skipif(sys.platform == "win32", reason="what is open cannot be removed there"),
]


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder for temporary files that is short, and this test's own."""
    with tempfile.TemporaryDirectory(prefix="nbt-", ignore_cleanup_errors=True) as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        yield Path(place)


@pytest.mark.slow
@pytest.mark.own_zygote
def test_kernels_go_on_when_the_folder_for_temporary_files_is_cleaned(cleaned: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    write = "import tempfile\nopen('f', 'w').write('x')\ntempfile.TemporaryFile()\n"
    with Kernels(spares=1, preloads=()) as kernels:
        assert kernels.run("q = 5", session="s").ok
        assert kernels.run("x=7", session="b", language="bash").ok
        kernels.warm()
        for entry in cleaned.iterdir():
            shutil.rmtree(entry, ignore_errors=True)
        done = kernels.run(f"{write}print(q)", session="s")
        assert (done.status, done.stdout, [path.name for path in done.artifacts]) == ("ok", "5\n", ["f"])
        assert "removed by another program" in done.notes[-1]
        assert kernels.run("touch g; echo $x", session="b", language="bash").stdout == "7\n"
        for _ in range(2):
            done = kernels.run(f"{write}print(len(df))\nresult = df", frames={"df": frame}, wants_value=("result",))
            assert (done.status, done.stdout, [path.name for path in done.artifacts]) == ("ok", "2\n", ["f"])
            assert len(done.value) == 2
        assert kernels.run("q", session="s").notes == ()
    assert not list(cleaned.iterdir())


@pytest.mark.slow
@pytest.mark.own_zygote
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kernels are forked on Linux")
def test_the_forking_process_of_an_idle_notebook_sleeps(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Kernels("forked", spares=1, preloads=()) as kernels:
        kernels.run("x = 1", session="s")
        kernels.warm()
        assert kernels._backends is not None
        backend: Any = kernels._backends._backends["forked"]
        process = psutil.Process(backend.zygotes.pid)

        def used(seconds: float) -> tuple[float, int]:
            before = process.cpu_times(), process.num_ctx_switches().voluntary
            time.sleep(seconds)
            after = process.cpu_times(), process.num_ctx_switches().voluntary
            return sum(after[0][:2]) - sum(before[0][:2]), after[1] - before[1]

        # Sixty a minute; while something runs there are ten a second.
        wait_until(lambda: used(1.0)[1] <= 2)
        spent, wakes = used(2.0)
        assert (spent <= 0.03, wakes <= 4) == (True, True), (spent, wakes)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(
                kernels.run, f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)", session="s"
            )
            try:
                wait_until(lambda: used(0.5)[1] >= 3)
            finally:
                go.touch()
            assert running.result().ok


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kernels are forked on Linux")
def test_many_undos_leave_nothing() -> None:
    with Kernels("forked", spares=0, preloads=()) as kernels:
        a = kernels.session("a")
        a.keep()
        listed = ", ".join(f"len(os.listdir('/proc/self/{name}'))" for name in ("task", "fd"))
        a.run("import os, inspect; count = 0")
        session = kernels._sessions.find("a")

        def undo() -> str:
            """Return what the kernel holds, once that is undone and the next state is ready."""
            held = a.run(f"print(count, len(inspect.stack()), {listed})").stdout
            a.undo()
            assert wait_until(lambda: session.is_kept)
            return held

        def owned() -> tuple[int, ...]:
            # Unlike `rglob`, a walk passes over a folder that goes meanwhile.
            files = sum(len(each) for _, *lists in os.walk(session.lease.kernel._folder.parent) for each in lists)
            return len(psutil.Process().children(recursive=True)), len(list(Path("/proc/self/fd").iterdir())), files

        undo()
        first, before = undo(), owned()
        for _ in range(8):
            assert a.run("count += 1").ok
            a.undo()
        assert undo() == first
        # What was undone ends beside what follows.
        assert wait_until(lambda: all(now <= then for now, then in zip(owned(), before, strict=True)))


FLOOD = """
import json
from ipykernel.kernelapp import IPKernelApp
app = IPKernelApp.instance()
parent = json.dumps(get_ipython().kernel.get_parent()["header"], default=str).encode()
header = json.dumps({"msg_id": "q", "msg_type": KIND, "session": "s", "username": "u", "version": "5.3"}).encode()
content = b'{"metadata": {}, "data": {"text/plain": "' + b"x" * 20_000_000 + b'"}}'
parts = [header, parent, b"{}", content]
parts = [b"x", b"<IDS|MSG>", app.session.sign(parts), *parts]
while True:
    app.iopub_thread.send_multipart(parts)
"""


FULL = """
full = []
try:
    while True:
        full.append(bytearray(1_000_000))
except MemoryError:
    del full[-10:]
"""


@pytest.mark.own_zygote
@pytest.mark.parametrize("kind", [pytest.param("comm_msg", marks=pytest.mark.slow), "display_data"])
def test_a_kernel_that_has_no_memory_for_its_messages_ends_by_that_limit(kind: str) -> None:
    flood = FLOOD.replace("while True:\n    app", f"{FULL}while True:\n    app")
    with Kernels(spares=0, preloads=(), memory_bytes=1 << 30) as kernels:
        done = kernels.run(flood, variables={"KIND": kind}, timeout=60.0)
    assert (done.status, done.signal) == ("memory_limit", "SIGABRT")


@pytest.mark.slow
def test_a_long_display_is_taken_beside_the_loop_and_in_its_place(kernels: Kernels) -> None:
    pieces: list[tuple[str, int, str]] = []

    def show(piece: OutputPiece) -> None:
        pieces.append((piece.kind, len(piece.text), threading.current_thread().name))

    long = "display({'text/plain': 'x' * 5_000_000}, raw=True)"
    done = kernels.run(f"print(1)\n{long}\nprint(2)\n{long}\n1 / 0", on_output=show)
    assert [piece[:2] for piece in pieces[:4]] == [("stdout", 2), ("display", 5_000_000)] * 2
    assert {kind for kind, _, thread in pieces if thread == "nbtools-loop"} == {"stdout", "error"}
    assert (done.status, done.stdout, len(done.displays)) == ("error", "1\n2\n", 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["comm_msg", "stream", "display_data"])
def test_a_flood_of_messages_ends_its_run_and_keeps_no_other_waiting(kind: str) -> None:
    waits: list[float] = []
    with Kernels(spares=0, preloads=(), memory_bytes=2 << 30) as kernels, ThreadPoolExecutor(1) as pool:
        kernels.run("1", session="other")
        before = psutil.Process().memory_info().rss
        flood = pool.submit(kernels.run, FLOOD, variables={"KIND": kind}, timeout=60.0)
        most = 0
        while not flood.done():
            began = time.monotonic()
            assert kernels.run("1", session="other").ok
            waits.append(time.monotonic() - began)
            most = max(most, psutil.Process().memory_info().rss - before)
        # By its owner, who hears no more of it; or by the limit of memory, where what is not heard yet lies in it.
        assert flood.result().status in ("output_limit", "memory_limit")
    assert most < 200 << 20
    assert max(waits) < 5.0
