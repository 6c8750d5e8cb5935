"""Spans: nesting, outcome, facts, secrets, OpenTelemetry."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from nbtools.errors import SqlNotAllowed
from nbtools.ground import aio, telemetry
from nbtools.ground.telemetry import recent, span
from nbtools.texts.secret_values import MASK


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Connect OpenTelemetry to a list in memory, and disconnect it afterwards."""
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    monkeypatch.setattr(telemetry, "_RECORDER", telemetry._Recorder())
    exporter = memory.InMemorySpanExporter()
    telemetry.connect_opentelemetry(exporter)
    yield exporter
    exporter.shutdown()


def _last(name: str) -> telemetry.Span:
    return next(found for found in reversed(recent()) if found.name == name)


def test_a_span_has_duration_facts_and_ids() -> None:
    with span("measured", path="/memories/a") as open_span:
        open_span.facts["lines"] = 3
    found = _last("measured")
    assert found.facts == {"path": "/memories/a", "lines": 3}
    assert (found.outcome, len(found.trace_id), len(found.span_id), found.parent_id) == ("ok", 32, 16, None)
    assert found.duration_s > 0
    assert found.started_at > 1_700_000_000


def test_spans_opened_inside_become_children_of_one_trace() -> None:
    with span("outer"):
        with span("first"):
            pass
        with span("second"), span("deep"):
            pass
    outer, first, second, deep = (_last(name) for name in ("outer", "first", "second", "deep"))
    assert {s.trace_id for s in (outer, first, second, deep)} == {outer.trace_id}
    assert (first.parent_id, second.parent_id, deep.parent_id) == (outer.span_id, outer.span_id, second.span_id)
    with span("after"):
        pass
    assert _last("after").trace_id != outer.trace_id


def test_nesting_holds_across_the_loop_and_its_threads() -> None:
    def beside() -> None:
        with span("in thread"):
            pass

    async def work() -> None:
        with span("on loop"):
            await aio.in_thread(beside)

    with span("caller"):
        aio.run(work())
    assert _last("on loop").parent_id == _last("caller").span_id
    assert _last("in thread").parent_id == _last("on loop").span_id


def test_tasks_side_by_side_do_not_mix_their_spans() -> None:
    async def one(name: str) -> None:
        with span(name):
            await asyncio.sleep(0)
            with span(f"{name} child"):
                await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(one("left"), one("right"))

    aio.run(both())
    for name in ("left", "right"):
        assert _last(f"{name} child").parent_id == _last(name).span_id


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (SqlNotAllowed("no"), "SQL_NOT_ALLOWED"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (SystemExit(3), "SystemExit"),  # its own `code` is another thing
    ],
)
def test_the_outcome_is_the_code_or_the_class_of_what_was_raised(raised: BaseException, outcome: str) -> None:
    with pytest.raises(type(raised)), span("failing"):
        raise raised
    assert _last("failing").outcome == outcome


def test_recent_returns_the_newest_last() -> None:
    for name in ("one", "two", "three"):
        with span(name):
            pass
    assert [found.name for found in recent(2)] == ["two", "three"]
    assert len(recent()) <= 2_000


def test_facts_are_recorded_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-12345678")
    with span("secretive", url="https://x/?k=sk-12345678"):
        pass
    assert _last("secretive").facts == {"url": f"https://x/?k={MASK}"}


def test_opentelemetry_sees_the_same_spans(exported: Any) -> None:
    with span("execute_tool sql_query", caller="python", rows=3, ok=True), span("tool.memory.view", place=("a", 1)):
        pass
    inner, outer = exported.get_finished_spans()
    assert (outer.name, inner.name) == ("execute_tool sql_query", "tool.memory.view")
    assert dict(outer.attributes) == {"caller": "python", "rows": 3, "ok": True, "outcome": "ok"}
    assert dict(inner.attributes) == {"place": "('a', 1)", "outcome": "ok"}
    assert inner.parent.span_id == outer.context.span_id
    recorded = recent()
    assert [(s.trace_id, s.span_id) for s in recorded] == [
        (f"{s.context.trace_id:032x}", f"{s.context.span_id:016x}") for s in (inner, outer)
    ]
    assert recorded[0].parent_id == recorded[1].span_id


def test_opentelemetry_learns_of_failures_but_not_of_secrets(exported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-12345678")
    with pytest.raises(SqlNotAllowed), span("failing"):
        raise SqlNotAllowed("refused sk-12345678")
    (found,) = exported.get_finished_spans()
    assert found.status.status_code.name == "ERROR"
    assert found.attributes["outcome"] == found.attributes["error.type"] == "SQL_NOT_ALLOWED"
    assert "sk-12345678" not in found.to_json()


def test_opentelemetry_is_an_extra_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from nbtools.errors import MissingExtra

    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(MissingExtra) as caught:
        telemetry.connect_opentelemetry()
    assert caught.value.hint == "pip install 'nbtools-kit[otel]'"


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX forks")
def test_ids_differ_in_a_process_that_was_forked_and_after_seeding() -> None:
    code = """
        import os, random
        from nbtools.ground.telemetry import fresh_id
        fresh_id()
        random.seed(0)
        first = fresh_id()
        random.seed(0)
        print(first, fresh_id(), len(fresh_id(32)), flush=True)
        if os.fork() == 0:
            print(fresh_id(), flush=True)
            os._exit(0)
        os.wait()
        print(fresh_id())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    first, second, length, *others = done.stdout.split()
    assert length == "32"
    assert len({first, second, *others}) == 4
