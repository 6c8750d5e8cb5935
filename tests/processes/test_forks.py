"""What crosses a fork: no object that owns a descriptor, and none is left open in the process that forks."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.kernels import Kernels
from nbtools.processes.file_count import FileCount
from tests.conftest import wait_until

pytestmark = [
    pytest.mark.own_zygote,
    pytest.mark.processes,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kernels are forked on Linux"),
]

_OWNERS = """
import collections, gc, io, os, selectors, socket
gc.unfreeze()
claimed, found = collections.defaultdict(list), gc.get_objects()
for one in found:
    if isinstance(one, (socket.socket, io.FileIO, selectors.EpollSelector)) and not getattr(one, 'closed', False):
        try:
            claimed[one.fileno()].append(type(one).__name__)
        except ValueError:
            pass
is_open = {int(name) for name in os.listdir('/proc/self/fd')}
print({n: who for n, who in claimed.items() if n > 2 and (len(who) > 1 or n not in is_open)})
print([one for one in found if type(one).__name__ == 'generator' and one.gi_code.co_name == '_look' and one.gi_frame])
"""
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "prints": ("print(1)", {}),
    "fails": ("1/0", {}),
    "leaves files": ("for n in range(100): open(str(n), 'w').close()", {}),
    "exits": ("import os; os._exit(3)", {}),
    "crashes": ("import os; os.abort()", {}),
    "is killed": ("import os; os.kill(os.getpid(), 9)", {}),
    "is stopped": ("while True: pass", {"timeout": 0.3, "grace": 0.1}),
    "is deaf": (
        "import signal\nsignal.signal(2, signal.SIG_IGN)\nwhile True: pass",
        {"timeout": 0.1, "grace": 0.05},
    ),
    "leaves a child": ("import subprocess; subprocess.Popen(['sleep', '60'])", {}),
    "is confined": ("import os; open('f', 'w').close(); os.chmod('f', 0o600)", {"sandbox": "strict"}),
}
_ENDS = ("ok", "error", "ok", "died", "died", "died", "timeout", "timeout", "ok", "ok")


@pytest.fixture(scope="module")
def forked() -> Iterator[Kernels]:
    with Kernels("forked", spares=1, preloads=()) as opened:
        yield opened


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder so full that a look into it is interrupted, and would go on when the kernel has ended."""
    place = tmp_path_factory.mktemp("full")
    first = place / "0"
    first.touch()
    for number in range(1, 5_000):
        os.link(first, place / str(number))
    return place


def _descriptors(kernels: Kernels) -> dict[str, int]:
    """Return what the forking process has open, by kind."""
    opened = collections.Counter[str]()
    assert kernels._backends is not None
    backend: object = kernels._backends._backends["forked"]
    pid = backend.zygotes.pid  # type: ignore[attr-defined]
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            opened[entry.readlink().name.partition(":")[0]] += 1
    return opened


def test_a_look_that_was_interrupted_lets_go_of_its_folder(full: Path) -> None:
    files = FileCount([str(full)], 1)
    assert not files.is_beyond(())
    assert sum(_leads_to(entry, full) for entry in Path("/proc/self/fd").iterdir()) == 1
    files.close()
    assert not any(_leads_to(entry, full) for entry in Path("/proc/self/fd").iterdir())


def _leads_to(entry: Path, place: Path) -> bool:
    try:
        return entry.readlink() == place
    except OSError:
        return False


def test_no_object_of_the_forking_process_owns_a_descriptor_in_a_fork(forked: Kernels, full: Path) -> None:
    held = [forked.session(name) for name in ("one", "two")]
    for session in held:
        assert session.run("held = 1", sandbox="strict", write_paths=[full]).ok
    assert forked.run(_OWNERS).stdout == "{}\n[]\n"
    for session in held:
        session.close()


@pytest.mark.slow
def test_the_forking_process_has_no_more_open_after_a_hundred_scripts(forked: Kernels, full: Path) -> None:
    async def run(rounds: int) -> None:
        for _ in range(rounds):
            done = await asyncio.gather(*(forked.arun(script, **options) for script, options in _KINDS.values()))
            assert tuple(one.status for one in done) == _ENDS
            assert forked.run("1", sandbox="strict", write_paths=[full]).ok

    asyncio.run(run(1))
    # The last spare's first look ends some time after it.
    wait_until(lambda: full.name not in _descriptors(forked))
    before = _settled(forked)
    asyncio.run(run(9))  # one that stays open in each is seen after the first
    wait_until(lambda: _settled(forked) == before)
    assert forked.run("rows = [[n] for n in range(100_000)]\nprint(len(rows))").stdout == "100000\n"


def _settled(kernels: Kernels) -> dict[str, int]:
    """Return what is open once it stays the same: kernels end, and spares are made, after a run has ended."""
    seen = collections.deque([_descriptors(kernels)], maxlen=5)
    while len(seen) < 5 or any(one != seen[0] for one in seen):
        time.sleep(0.1)
        seen.append(_descriptors(kernels))
    return seen[0]
