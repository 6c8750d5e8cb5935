"""``memory`` inside a kernel: served by the owner, scoped to what was granted, over a handed-over socket."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.kernels import Kernels

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def kernels() -> Iterator[Kernels]:
    with Kernels(spares=1, preloads=()) as opened:
        yield opened


class Notes:
    """A memory as plain as can be, with the methods scripts use."""

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}

    def write(self, key: str, value: Any, *, tags: Any = ()) -> dict[str, Any]:
        self.items[key] = value
        return {"key": key, "tags": list(tags)}

    def read(self, key: str, default: Any = None) -> Any:
        return self.items.get(key, default)

    def list(self, prefix: str = "") -> list[str]:
        return sorted(key for key in self.items if key.startswith(prefix))

    def incr(self, key: str, by: int = 1) -> int:
        self.items[key] = self.items.get(key, 0) + by
        return int(self.items[key])

    def __getitem__(self, key: str) -> Any:
        return self.items[key]

    def __contains__(self, key: str) -> bool:
        return key in self.items

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)


def test_a_script_reads_and_writes_what_it_was_granted(kernels: Kernels) -> None:
    notes = Notes()
    notes.items["goal"] = {"kpi": "churn"}
    script = (
        "print(memory['goal'], memory.read('none', default=7), 'goal' in memory, len(memory), list(memory))\n"
        "print(memory.write('found', [1, 'ü'], tags=['t']))\n"
        "print(memory.incr('n', by=2), memory.list(prefix='f'))\n"
    )
    done = kernels.run(script, memory=notes)
    assert done.error is None
    assert done.stdout.splitlines() == [
        "{'kpi': 'churn'} 7 True 1 ['goal']",
        "{'key': 'found', 'tags': ['t']}",
        "2 ['found']",
    ]
    assert notes.items["found"] == [1, "ü"]


def test_errors_arrive_as_what_they_are(kernels: Kernels) -> None:
    done = kernels.run("memory['nothing']", memory=Notes())
    assert str(done.error) == "line 1: KeyError: 'nothing'"
    assert kernels.run("memory.write('x', object())", memory=Notes()).error is not None
    done = kernels.run("memory['x'] = 1", memory=Notes())
    assert "memory.write('x', value)" in str(done.error)


def test_what_memory_answers_arrives_as_plain_data(kernels: Kernels) -> None:
    @dataclasses.dataclass
    class Pair:
        left: int
        right: int

    class Record:
        def to_dict(self) -> dict[str, int]:
            return {"version": 3}

    notes = Notes()
    notes.items = {"record": Record(), "pair": Pair(1, 2), "set": {4}, "folder": Path("/a"), "type": Pair}
    code = "print([memory[key] for key in ('record', 'pair', 'set', 'folder')], 'Pair' in memory['type'], len(memory))"
    done = kernels.run(
        f"{code}\nprint(sorted(dir(memory)) == dir(memory), 'set' in memory, list(memory)[:2], memory)", memory=notes
    )
    first, second = done.stdout.splitlines()
    assert first == "[{'version': 3}, {'left': 1, 'right': 2}, [4], '/a'] True 5"
    assert second.startswith("True True ['record', 'pair'] <memory of this script: ")


def test_only_the_methods_of_memory_can_be_called(kernels: Kernels) -> None:
    done = kernels.run("memory.close()", memory=Notes())
    assert "AttributeError" in str(done.error)
    done = kernels.run("memory._call('__class__')", memory=Notes())
    assert "PermissionError" in str(done.error)


@pytest.mark.races
def test_without_a_grant_there_is_no_memory(kernels: Kernels) -> None:
    assert "NameError" in str(kernels.run("memory").error)
    kernels.run("kept = memory", session="s", memory=Notes())
    assert "no memory was granted" in str(kernels.run("kept.read('x')", session="s").error)
    kernels.stop("s")


def test_large_values_pass(kernels: Kernels) -> None:
    notes = Notes()
    done = kernels.run("memory.write('big', 'x' * 3_000_000)\nprint(len(memory['big']))", memory=notes)
    assert done.stdout == "3000000\n"


@pytest.mark.races
def test_threads_of_a_script_share_the_memory(kernels: Kernels) -> None:
    notes = Notes()
    script = (
        "import concurrent.futures\n"
        "with concurrent.futures.ThreadPoolExecutor(8) as pool:\n"
        "    list(pool.map(lambda n: memory.write(f'k{n}', n), range(100)))\n"
    )
    assert kernels.run(script, memory=notes).error is None
    assert len(notes.items) == 100


@pytest.mark.races
@pytest.mark.parametrize("is_late", [False, True])
def test_the_answer_to_an_interrupted_call_is_nobodys(kernels: Kernels, is_late: bool) -> None:
    session, over = kernels.session("s"), threading.Event()
    pid = int(session.run("import os; print(os.getpid())").stdout)

    class Slow(Notes):
        def read(self, key: str, default: Any = None) -> str:
            if key == "a":
                os.kill(pid, signal.SIGINT)
                over.wait(20 if is_late else 0)
            return f"the value of {key}"

    code = "try:\n    memory.read('a')\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    if not is_late:
        assert session.run(code + "print(memory.read('b'))", memory=Slow()).stdout.endswith("\nthe value of b\n")
    else:
        assert session.run(code, memory=Slow()).stdout == "interrupted\n"
        # It comes to a kernel that rests, and does not keep it from its copy.
        over.set()
        copy = session.fork("copy")
        for one in (session, copy):
            assert one.run("print(memory.read('b'))", memory=Slow()).stdout == "the value of b\n"
        kernels.stop("copy")
    kernels.stop("s")


@pytest.mark.slow
@pytest.mark.races
def test_it_works_on_a_spawned_kernel_too() -> None:
    notes = Notes()
    with Kernels("spawned", spares=0) as own:
        assert own.run("memory.write('a', 1)\nprint(memory['a'])", memory=notes).stdout == "1\n"
