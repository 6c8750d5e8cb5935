"""What a call costs: how many functions of ours a call of a tool enters that only returns its argument."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.functions_entered import functions_entered

pytestmark = pytest.mark.processes

MOST = 45

CALL = """
@nbtools.tool(read_only=True)
def same(x: int) -> int:
    '''Return it.'''
    return x


with nbtools.Workbench(memory_url=":memory:", tools=[same]) as bench:
    call = nbtools.contract.tool.ToolCall(tool="same", arguments={"x": 1})
    count(lambda: bench.executor.call(call))
    assert bench.executor.call(call).ok
"""


def test_a_call_that_only_reads_enters_few_functions(tmp_path: Path) -> None:
    entered = functions_entered(CALL, cwd=tmp_path)
    assert "contract/door.py Door.admit" in entered, "the profiler sees the loop's thread"
    assert len(entered) <= MOST, entered
