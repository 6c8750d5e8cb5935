"""Agents: what a turn of the loop costs, how soon text is shown, and how soon a run stops.

A turn is one answer of the model and the call that it makes; the tool does nothing and no model is at work, so what is
measured is the loop. Ours holds budgets, validates, judges and records each call at the door, and stores every answer
before its calls are made; the peers keep nothing, but LangGraph with its checkpoints.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from benchmarks import _agent_sides as sides
from benchmarks.paired import row, take_turns

TURNS = 20


def run(quick: bool) -> list[dict[str, Any]]:
    """Measure turns, first texts and ends of runs."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        return [*_turns(quick, folder), *_moments(quick, folder)]


def _turns(quick: bool, folder: Path) -> list[dict[str, Any]]:
    durable = f"duckdb:///{folder}/memory.duckdb"
    with contextlib.ExitStack() as stack:
        ours = {
            "a turn, runs in memory": sides.nbtools(TURNS, folder / "a", ":memory:"),
            "a turn, runs in DuckDB": sides.nbtools(TURNS, folder / "b", durable),
            "a turn with effects, runs in DuckDB": sides.nbtools(TURNS, folder / "c", durable, effects=True),
        }
        measured: dict[str, Callable[[], float]] = {case: stack.enter_context(side) for case, side in ours.items()}
        for peer, side in sides.PEERS.items():
            with contextlib.suppress(ImportError):
                measured[peer] = stack.enter_context(side(TURNS))
        with contextlib.suppress(ImportError):
            measured[sides.KEEPER] = stack.enter_context(sides.langgraph(TURNS, folder))
        rounds = take_turns(measured, rounds=5 if quick else 21)
    pairs = [(case, peer) for case in ours for peer in (*sides.PEERS, sides.KEEPER)]
    return [row(case, rounds[case], peer, rounds.get(peer), unit="ms") for case, peer in pairs]


def _moments(quick: bool, folder: Path) -> list[dict[str, Any]]:
    """Measure from the first text of a model to the cell, and from Stop to the end of a run; the thread goes on."""
    from nbtools import Workbench, tool

    @tool(read_only=True)
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return "waited"

    @tool(read_only=True)
    def block() -> str:
        """Wait in a thread."""
        time.sleep(0.5)
        return "waited"

    @tool(read_only=True)
    def look() -> str:
        """Do nothing."""
        return "seen"

    silent = "turns: [{calls: [{tool: look}]}, {say: late, wait: 60}]"
    with Workbench(home=folder / "d", memory_url=":memory:", tools=[wait, block, look]) as wb:
        measured = {
            "first text in the cell": lambda: _first_text(wb),
            "stop, in a call that waits": lambda: _stop(wb, "turns: [{calls: [{tool: wait}]}]", "call_started"),
            "stop, in a call that blocks": lambda: _stop(wb, "turns: [{calls: [{tool: block}]}]", "call_started"),
            "stop, while the model is silent": lambda: _stop(wb, silent, "call_ended"),
        }
        rounds = take_turns(measured, rounds=5 if quick else 21)
    return [row(case, values, unit="ms") for case, values in rounds.items()]


def _first_text(wb: Any) -> float:
    from pydantic_ai.models.function import FunctionModel

    from nbtools.jupyter.display.agent_run import RunView

    said: list[float] = []
    shown: list[float] = []

    async def answer(messages: Any, info: Any) -> AsyncIterator[str]:
        said.append(time.perf_counter())
        yield "Hello."

    def live(kind: str, text: str = "", **_: Any) -> None:
        if "Hello." in text:
            shown.append(time.perf_counter())

    async def show() -> None:
        run = await wb.agent.astart("Go!", model=FunctionModel(stream_function=answer))
        await RunView(run, live).follow()

    asyncio.run(show())
    return 1000 * (shown[0] - said[0])


def _stop(wb: Any, script: str, until: str) -> float:
    run = wb.agent.start("Go!", script=f"{script}\n")
    next(event for event in run if event.kind == until)
    time.sleep(0.02)
    begun = time.perf_counter()
    run.cancel()
    assert run.wait(30).state == "cancelled"
    ended = 1000 * (time.perf_counter() - begun)
    after = wb.agent("And?", script="turns:\n- {when: {prompt: 'And?'}, say: Here.}", after=run)
    assert after.text == "Here."
    return ended
