"""How many different functions a call passes through: each is a place that a reader must visit to follow it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from nbtools.kernels.forked.backend import ForkedBackend

pytestmark = pytest.mark.processes

CALL = """
import json, pathlib, sys, threading
import nbtools

root = str(pathlib.Path(nbtools.__file__).parent) + "/"
entered = set()
is_counting = False


def note(frame, event, argument):
    code = frame.f_code
    # A comprehension or a lambda is read where it stands, so it is not a step of its own.
    if is_counting and event == "call" and code.co_filename.startswith(root) and not code.co_name.startswith("<"):
        entered.add(f"{code.co_filename[len(root):]}:{code.co_name}:{code.co_firstlineno}")


# Before the loop's thread starts: a profile function reaches only threads that start after it.
threading.setprofile(note)
sys.setprofile(note)
pathlib.Path("data.csv").write_text("a,b\\n1,2\\n")
script = "import pandas as pd; print(pd.read_csv(input_file_path).sum())"
with nbtools.Workbench() as bench:
    analyze = lambda: bench.tools.data_analyze(input_file_path="data.csv", analysis_script=script)
    rounds = []
    for _ in range(20):
        assert analyze().ok
        # The making of spares is not a part of a call. On a busy machine it reaches into some rounds, so a step of the
        # call is what every round passes through.
        bench.kernels.warm()
        entered.clear()
        is_counting = True
        assert analyze().ok
        is_counting = False
        rounds.append(set(entered))
print(json.dumps(sorted(set.intersection(*rounds))))
"""


@pytest.mark.skipif(not ForkedBackend.is_supported(), reason="the steps are those of forked kernels")
def test_a_warm_analysis_passes_through_few_functions(tmp_path: Path) -> None:
    env = {**os.environ, "NBTOOLS_HOME": str(tmp_path / "home"), "ALLOWED_PATHS": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", CALL], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    entered = json.loads(done.stdout.splitlines()[-1])
    parts = Counter(name.split("/")[0].split(":")[0] for name in entered)
    assert parts["kernels"] <= 62, sorted(name for name in entered if name.startswith("kernels"))
    assert len(entered) <= 175, parts
