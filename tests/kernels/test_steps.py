"""How many different functions a script in a warm kernel passes through."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from nbtools.kernels.forked.backend import ForkedBackend
from tests.functions_entered import functions_entered

pytestmark = pytest.mark.processes

CALL = """
pathlib.Path("data.csv").write_text("a,b\\n1,2\\n")
script = "import pandas as pd; print(pd.read_csv(input_file_path).sum())"
with nbtools.Workbench() as bench:
    def analyze():
        assert bench.tools.data_analyze(input_file_path="data.csv", analysis_script=script).ok
    def prepare():
        # The making of spares is not a part of a call.
        analyze()
        bench.kernels.warm()
    count(analyze, prepare)
"""


@pytest.mark.slow
@pytest.mark.skipif(not ForkedBackend.is_supported(), reason="the steps are those of forked kernels")
def test_a_warm_analysis_passes_through_few_functions(tmp_path: Path) -> None:
    own = {"NBTOOLS_HOME": str(tmp_path / "home"), "ALLOWED_PATHS": str(tmp_path), "NBTOOLS_PRELOADS": "pandas"}
    env = {**os.environ, **own}
    entered = functions_entered(CALL, cwd=tmp_path, env=env)
    parts = Counter(name.split("/")[0].split(" ")[0] for name in entered)
    assert parts["kernels"] <= 66, sorted(name for name in entered if name.startswith("kernels"))
    assert len(entered) <= 180, parts
