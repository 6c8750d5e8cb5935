"""Which run goes on where none is named."""

from __future__ import annotations

import pytest

from nbtools.conduct.resumption import run_to_resume
from nbtools.errors import InvalidArguments

Run = tuple[str, str, str]


@pytest.mark.parametrize(
    "runs",
    [
        [("over", "ok", ""), ("other", "failed", ""), ("one", "pending", "")],
        [("cut", "interrupted", ""), ("one", "waiting", ""), ("gone", "lost", "")],
        [("one", "unknown", ""), ("cut", "interrupted", "")],
        [("other", "failed", ""), ("one", "lost", "")],
    ],
)
def test_the_one_that_waits_goes_on_before_one_that_was_interrupted(runs: list[Run]) -> None:
    assert run_to_resume(runs, "%agent runs") == "one"


@pytest.mark.parametrize(
    ("runs", "problem"),
    [
        ([], "no run of 'f' waits."),
        ([("a", "ok", "x"), ("b", "done", "x"), ("c", "running", "x")], "no run of 'f' waits."),
        ([("a", "failed", "sum"), ("b", "ok", "x")], "no run of 'f' waits; 1 run can continue: a (failed) sum."),
        (
            [("a", "failed", "x"), ("b", "pending", "sum"), ("c", "unknown", "mean")],
            "more than one run of 'f' waits; 2 runs can continue: b (pending) sum; c (unknown) mean.",
        ),
        (
            [(str(number), "lost", "x") for number in range(6)],
            f"more than one run of 'f' waits; 6 runs can continue: {'; '.join(f'{n} (lost) x' for n in range(5))}.",
        ),
    ],
)
def test_where_none_or_several_wait_those_that_can_continue_are_named(runs: list[Run], problem: str) -> None:
    with pytest.raises(InvalidArguments) as raised:
        run_to_resume(runs, "nbtools workflow runs", " of 'f'")
    assert raised.value.message == problem
    assert raised.value.hint == "nbtools workflow runs lists all; nbtools workflow resume RUN continues one."
