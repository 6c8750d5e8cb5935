"""Mutants of queries and attacks: none that is dangerous may be accepted, and nothing may make the verdict raise."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

_MUTANTS = Path(__file__).with_name("_mutants.py")


def _bred(counts):
    """Judge that many mutants in each of several processes; return what each found."""
    started = [
        subprocess.Popen([sys.executable, str(_MUTANTS), str(seed), str(count)], stdout=subprocess.PIPE)
        for seed, count in counts
    ]
    try:
        said = [process.communicate(timeout=500)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [json.loads(text) for text in said]


def _assert_harmless(found, mutants):
    assert sum(part["mutants"] for part in found) >= mutants
    assert not [wrong for part in found for wrong in part["wrong"]]
    # A fuzzer whose mutants are all nonsense proves nothing.
    assert sum(part["accepted"] for part in found) > mutants / 40


def test_two_thousand_mutants_are_harmless():
    _assert_harmless(_bred([(0, 2_000)]), 2_000)


@pytest.mark.slow
def test_many_more_mutants_are_harmless():
    """``TEST_MUTANTS=200000`` looks more closely, for some minutes."""
    mutants, processes = int(os.environ.get("TEST_MUTANTS", "16000")), max(2, min(8, os.cpu_count() or 2))
    each = -(-mutants // processes)
    _assert_harmless(_bred([(seed, each) for seed in range(1, processes + 1)]), mutants)
