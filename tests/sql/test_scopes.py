"""Whose records a query sees: a person all of them, a model its own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pandas as pd
import pytest

from nbtools.assembly.workbench import Workbench
from nbtools.contract.tool import ToolCall
from nbtools.ground import aio
from nbtools.sql import SqlSession

pytestmark = pytest.mark.processes


@pytest.fixture
def bench() -> Iterator[Workbench]:
    with Workbench(memory_url=":memory:", agent_id="me") as opened:
        opened.memory.write("mine", 1)
        opened.memory.scoped(workflow_id="w").write("of a workflow", 2)
        opened.memory.scoped(agent_id="other").write("not mine", 3)
        yield opened


def asked(bench: Workbench, query: str, **who: Any) -> list[Any]:
    call = ToolCall(tool="sql_query", arguments={"query": query}, **who)
    result = aio.run(bench.executor.acall(call)).raise_for_error()
    return [row[0] for row in result.data["rows"]]


@pytest.mark.parametrize("name", ["nbtools.memory", "NBTools.Memory", '"nbtools"."memory"'])
def test_a_model_sees_the_memory_of_its_own_scope(bench: Workbench, name: str) -> None:
    query = f"select key from {name} order by key"
    assert asked(bench, query, caller="model") == asked(bench, query, caller="mcp") == ["mine"]
    assert asked(bench, query) == ["mine", "not mine", "of a workflow"]
    assert bench.sql(query)["key"].tolist() == ["mine", "not mine", "of a workflow"]


def test_what_agents_keep_of_their_runs_is_nobodys_note(bench: Workbench) -> None:
    pytest.importorskip("pydantic_ai")
    run = bench.agent.run("hi", model="scripted", script="turns:\n- say: done\n")
    assert (run.state, len(bench.agent.runs())) == ("done", 1)
    assert asked(bench, "select key from nbtools.memory order by key") == ["mine", "not mine", "of a workflow"]


def test_queries_at_once_have_their_own_rows_each() -> None:
    name, counts = "nbtools.calls", (1, 20, 300, 4000)
    with SqlSession(tables={name: pd.DataFrame}) as session:

        def count(rows: int) -> Any:
            own = {name: pd.DataFrame({"n": range(rows)})}
            return session.query(f"select count(*) from {name}", frames=own).to_rows()[0][0]

        with ThreadPoolExecutor(len(counts)) as pool:
            for _ in range(20):
                assert tuple(pool.map(count, counts)) == counts


def test_a_store_of_a_node_leads_to_its_workflow_and_its_agent(bench: Workbench) -> None:
    node = bench.memory.scoped(workflow_id="w", node_id="n")
    node.write("of a node", 4)
    keys = [sorted(found.snapshot("memory", own=True)["key"]) for found in (bench.memory, node)]
    assert keys == [["mine"], ["mine", "of a node", "of a workflow"]]


def test_a_model_sees_the_calls_of_its_own_run(bench: Workbench) -> None:
    bench.call("calculator", {"expression": "1"})
    for run, session in (("r1", "s1"), ("r1", "s2"), ("r2", "s1")):
        call = {"caller": "model", "run_id": run, "session": session}
        asked(bench, f"select '{run} {session}'", **call)
        # A query that takes longer is on record before it has ended, and sees itself.
        ended = "select arguments->>'query' from nbtools.calls where ok is not null"
        assert asked(bench, ended, **call) == [f"select '{run} {session}'"]
    assert len(asked(bench, "select tool from nbtools.calls where ok is not null")) == 7
    kept = asked(bench, "select session from nbtools.calls")
    assert not {"s1", "s2"} & set(kept), "the id of a session may open it"


def test_nothing_of_a_persons_query_is_left_for_a_model(bench: Workbench) -> None:
    for name in ("nbtools.main.memory", "nbtools.main.calls", "memory", "main.memory"):
        for table in ("memory", "calls"):
            assert bench.query(f"select * from nbtools.{table}", isolated=True).row_count >= 1
        result = bench.call("sql_query", {"query": f"select * from {name}"}, caller="model")
        assert result.error is not None, result.data
        assert result.error.code in {"SQL_INVALID", "SQL_NOT_ALLOWED"}, name
        both = bench.call("sql_query", {"query": f"from {name} union all by name from nbtools.memory"}, caller="model")
        assert "not mine" not in both.text, name
