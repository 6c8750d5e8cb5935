"""What a call costs: how many functions of ours a call of a tool enters that only returns its argument."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

MOST = 45

CALL = """
import json, pathlib, sys, threading
import nbtools

root = str(pathlib.Path(nbtools.__file__).parent) + "/"
entered, is_counting, fewest = set(), False, None


def note(frame, event, argument):
    code = frame.f_code
    if is_counting and event == "call" and code.co_filename.startswith(root) and code.co_name[0] != "<":
        entered.add(f"{code.co_filename[len(root):]} {code.co_qualname}")


# Before the loop's thread starts: a profile function reaches only threads that start after it.
threading.setprofile(note)
sys.setprofile(note)


@nbtools.tool(read_only=True)
def same(x: int) -> int:
    '''Return it.'''
    return x


with nbtools.Workbench(memory_url=":memory:", tools=[same]) as bench:
    # On a busy machine threads wait for each other here and there, each time elsewhere: the shortest way counts.
    for number in range(10):
        call = nbtools.contract.tool.ToolCall(tool="same", arguments={"x": number})
        entered, is_counting = set(), True
        assert bench.executor.call(call).ok
        is_counting = False
        fewest = entered if fewest is None or len(entered) < len(fewest) else fewest
print(json.dumps(sorted(fewest)))
"""


def test_a_call_that_only_reads_enters_few_functions(tmp_path):
    # In a process of its own: a thread that other tests have started cannot be watched.
    done = subprocess.run([sys.executable, "-c", CALL], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    entered = json.loads(done.stdout.splitlines()[-1])
    assert "contract/door.py Door.admit" in entered, "the profiler sees the loop's thread"
    assert len(entered) <= MOST, entered
