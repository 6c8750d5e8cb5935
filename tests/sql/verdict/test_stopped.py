"""A person who stops a cell while its SQL is parsed, or its rows are read, gets no mistake of the SQL."""

from __future__ import annotations

import collections
import signal
import sys
from typing import Any, NoReturn

import pytest

from nbtools.sql import Policy, SqlSession
from nbtools.sql.verdict.duckdb import parser

SQL = "select 1 as a, (select 2) from range(10) join range(20) on true"


@pytest.mark.races  # a signal comes when it comes
@pytest.mark.parametrize("is_first", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["later", "first"])
@pytest.mark.skipif(sys.platform == "win32", reason="it has no such timers")
def test_a_stop_while_a_statement_is_parsed_is_a_stop(is_first: bool) -> None:
    def stop(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    policy, seen = Policy(), collections.Counter[Any]()
    policy.check(SQL)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for number in range(100 if is_first else 400):
            try:
                if is_first:
                    parser._parser.cache_clear()
                signal.setitimer(signal.ITIMER_REAL, 0.00002 + number % 100 * (0.0001 if is_first else 0.00001))
                seen[policy.check(f"{SQL} limit {number}").reasons] += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                seen["stopped"] += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert {*seen} <= {(), "stopped"}, seen
    assert seen["stopped"]


@pytest.mark.slow
@pytest.mark.races
@pytest.mark.skipif(sys.platform == "win32", reason="it has no such timers")
def test_a_stop_while_pages_are_opened_is_a_stop() -> None:
    def stop(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    rows = "(select a.range from range(1000000) a join range(30) b on a.range % 7 = b.range order by 1)"
    seen = collections.Counter[str]()
    with SqlSession() as session:
        session.open_pages("(select 1)").close()
        before = signal.signal(signal.SIGALRM, stop)
        try:
            for number in range(60):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.001 + number * 0.001)
                    session.open_pages(rows if number % 2 else f"(select {number})").close()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    seen["opened"] += 1
                except (KeyboardInterrupt, OSError) as exc:
                    # Where it meets Python's own removal of a folder, that closes a descriptor a second time.
                    if not any(isinstance(one, KeyboardInterrupt) for one in (exc, exc.__context__)):
                        raise
                    seen["stopped"] += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert seen["stopped"]
