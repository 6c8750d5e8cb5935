"""SQL: what a session costs over plain DuckDB, against the peers; the verdict; the worker."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import _sql_sides as sides
from benchmarks.paired import row, take_turns

THOUSAND = "select range as i, range * 1.5 as x, 'name ' || range as s from range(1000)"
MILLION = "select range as i, range::double * 1.5 as x, range % 1000 as g from range(1000000)"
SUM = "select sum(x) as s, count(*) as n from frame"
PEERS = (("jupysql", sides.jupysql), ("magic_duckdb", sides.magic_duckdb))


def timed(work: Callable[[], Any], times: int) -> Callable[[], float]:
    """Return what measures a call in milliseconds, the median of several."""

    def measure() -> float:
        values = []
        for _ in range(times):
            begun = time.perf_counter()
            work()
            values.append(time.perf_counter() - begun)
        return statistics.median(values) * 1_000

    return measure


def queries(rounds: int) -> list[dict[str, Any]]:
    """Compare whole queries: text in, DataFrame out."""
    import pandas as pd

    from nbtools.sql import SqlSession

    frame = pd.DataFrame({"x": [n * 1.5 for n in range(10_000)], "s": ["text"] * 10_000})
    frames = {"frame": frame}
    rows = []
    with SqlSession(frames=frames.get) as session:

        def ours(sql: str) -> Any:
            return session.query(sql, limit=2_000_000, max_bytes=1_000_000_000).to_pandas()

        def isolated(sql: str) -> Any:
            return session.query(sql, limit=2_000_000, max_bytes=1_000_000_000, isolated=True).to_pandas()

        plain = sides.raw({})
        cases = (
            ("select 1", "select 1 as a", 40, plain, "raw duckdb"),
            ("1,000 rows", THOUSAND, 20, plain, "raw duckdb"),
            ("one million rows", MILLION, 1, plain, "raw duckdb"),
            ("a named DataFrame", SUM, 20, sides.scanning(frames), "raw duckdb, scanning variables"),
            ("a named DataFrame", SUM, 20, sides.raw(frames), "raw duckdb, registered once"),
        )
        for case, sql, times, base, name in cases:
            measured = {"ours": timed(lambda s=sql: ours(s), times), name: timed(lambda s=sql, b=base: b(s), times)}
            with_frame = "frame" in sql
            for peer, make in PEERS:
                ask = None if with_frame else make({})
                if ask is not None:
                    measured[peer] = timed(lambda s=sql, a=ask: a(s), times)
            values = take_turns(measured, rounds)
            over = statistics.median(a - b for a, b in zip(values["ours"], values[name], strict=True))
            for peer in measured:
                if peer != "ours":
                    note = f"{over:+.2f} ms over it" if peer == name else ""
                    rows.append(row(case, values["ours"], peer, values[peer], unit="ms", note=note))
            for peer, _ in PEERS:
                if peer not in measured:
                    why = "cannot name a DataFrame on DuckDB 2" if with_frame else "not installed"
                    rows.append(row(case, values["ours"], peer, None, unit="ms", note=why))
            apart = take_turns({"isolated": timed(lambda s=sql: isolated(s), times)}, max(1, rounds // 2))["isolated"]
            rows.append(row(f"{case}, isolated", apart, unit="ms"))
    return rows


def small_files(rounds: int) -> list[dict[str, Any]]:
    """Compare queries of CSV files of 3 kB, each looked at whole: a new file each time, and one that stays."""
    from nbtools.ground.paths import identity_of
    from nbtools.sql import SqlSession

    rows, times = [], 20
    with tempfile.TemporaryDirectory() as folder, SqlSession(allowed_paths=[folder]) as session:
        plain = sides.raw({})
        for kind, cells in sides.KINDS.items():
            text = "id,name,amount\n" + "".join(f"{i},{cells(i)}\n" for i in range(210))
            names = [
                Path(folder, f"{kind.replace(' ', '-')}-{number}.csv") for number in range(2 * times * (rounds + 1))
            ]
            for name in names:
                name.write_text(text)
            while not identity_of(names[-1])[1]:
                time.sleep(0.05)
            ours, theirs = iter(names[::2]), iter(names[1::2])
            measured = {
                "new": timed(lambda n=ours: session.query(f"from '{next(n)}'").to_pandas(), times),
                "again": timed(lambda n=names[0]: session.query(f"from '{n}'").to_pandas(), times),
                "raw": timed(lambda n=theirs: plain(f"from read_csv('{next(n)}', sample_size = -1)"), times),
            }
            values = take_turns(measured, rounds)
            for which in ("new", "again"):
                over = statistics.median(a / b for a, b in zip(values[which], values["raw"], strict=True))
                case = f"3 kB of CSV, {kind}, {which}"
                note = f"{over:.2f} times it, goal 1.3"
                rows.append(row(case, values[which], "raw duckdb, all lines", values["raw"], unit="ms", note=note))
    return rows


def verdicts(rounds: int) -> list[dict[str, Any]]:
    """Measure the verdict on texts of three sizes, new ones and a repeated one."""
    from nbtools.sql import Policy

    rows = []
    for case, text, goal in (("small", sides.SMALL, 0.5), ("TPC-H", sides.TPC_H, 1), ("TPC-DS", sides.TPC_DS, 2)):
        policy = Policy()
        numbers = iter(range(10_000_000))
        verdict = policy.check(text)
        assert verdict.allowed, verdict.reasons
        # A comment makes each text a new one.
        new = timed(lambda p=policy, t=text, n=numbers: p.check(f"{t} -- {next(n)}"), 40)
        values = take_turns({"new": new, "again": timed(lambda p=policy, t=text: p.check(t), 200)}, rounds)
        rows.append(row(f"verdict, {case}", values["new"], unit="ms", note=f"goal {goal} ms"))
        again = [value * 1_000 for value in values["again"]]
        rows.append(row(f"verdict, {case}, repeated", again, unit="µs", note="goal 10 µs"))
    return rows


def worker(rounds: int, *, quick: bool) -> list[dict[str, Any]]:
    """Measure what the worker costs: start, a query, frames."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from nbtools.sql.engines.duckdb.engine import DuckDBEngine
    from nbtools.sql.engines.protocol import EngineOptions, QueryControl, QueryRequest
    from nbtools.sql.worker.client import IsolatedEngine

    def spawn() -> float:
        with contextlib.closing(IsolatedEngine(None, EngineOptions())) as fresh:
            begun = time.perf_counter()
            fresh.warm()
            return time.perf_counter() - begun

    rows = [row("worker, spawn", take_turns({"spawn": spawn}, rounds)["spawn"], unit="s", note="goal 0.3 s")]
    one = QueryRequest(sql="select 1")
    here, there = DuckDBEngine(), IsolatedEngine(None, EngineOptions())
    with contextlib.closing(here), contextlib.closing(there):
        measured = {
            "here": timed(lambda: here.run(one, QueryControl()), 50),
            "there": timed(lambda: there.run(one, QueryControl()), 50),
        }
        values = take_turns(measured, rounds)
        added = [b - a for a, b in zip(values["here"], values["there"], strict=True)]
        rows.append(row("worker, added to a query", added, unit="ms", note="goal 0.5 ms"))
        count = 1_000_000 if quick else 5_000_000
        numbers = {f"c{n}": np.random.default_rng(n).random(count) for n in range(5)}
        texts = pa.array([f"text number {n}" for n in range(count // 5)])
        for name, frame in (
            ("a DataFrame of numbers", pd.DataFrame(numbers)),
            ("an Arrow table of numbers", pa.table(numbers)),
            ("a DataFrame of text", pd.DataFrame({"s": texts.to_pandas()})),
        ):
            size = int(frame.memory_usage(deep=True).sum()) if hasattr(frame, "memory_usage") else frame.nbytes
            copied = getattr(frame, "copy", None)

            def ask(new: bool, frame: Any = frame, copied: Any = copied) -> Any:
                # A copy that shares all values is a frame that was never shipped.
                asked = copied(deep=False) if new and copied is not None else frame
                return there.run(
                    QueryRequest(sql="select count(*) from frame", frames={"frame": asked}), QueryControl()
                )

            measured = {"new": timed(lambda a=ask: a(True), 1)}
            if copied is not None:
                measured["again"] = timed(lambda a=ask: a(False), 1)
            for which, times in take_turns(measured, rounds).items():
                rates = [size / value / 1e6 for value in times]
                case = f"worker, {name}" + (", again" if which == "again" else "")
                rows.append(row(case, rates, unit="GB/s", note="goal 0.8 GB/s"))
    return rows


def capped(rounds: int) -> list[dict[str, Any]]:
    """Measure a result of a thousand million rows that the cap cuts."""
    import psutil

    from nbtools.sql import SqlSession

    process = psutil.Process(os.getpid())
    rows = []
    with SqlSession() as session:
        session.query("select 1")
        for isolated in (False, True):
            session.query("select 1", isolated=isolated)
            before = process.memory_info().rss
            values = [
                timed(lambda i=isolated: session.query("from range(1000000000)", whole=False, isolated=i), 1)()
                for _ in range(rounds)
            ]
            grown = (process.memory_info().rss - before) / 1e6
            where = "isolated" if isolated else "in process"
            note = f"goal 200 ms, 50 MB; memory grew by {grown:.0f} MB"
            rows.append(row(f"1e9 rows, capped, {where}", values, unit="ms", note=note))
    return rows


def run(quick: bool) -> list[dict[str, Any]]:
    """Measure SQL."""
    rounds = 3 if quick else 9
    return [*queries(rounds), *small_files(rounds), *verdicts(rounds), *worker(rounds, quick=quick), *capped(rounds)]
