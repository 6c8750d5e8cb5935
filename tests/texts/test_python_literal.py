"""A value as Python that we write into cells is read back by Python as the same value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbtools.texts.python_tree import python_literal

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.text(alphabet='ab"\\\n\r\t')
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(VALUES)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault of it
def test_python_reads_back_what_is_written(value: Any) -> None:
    assert repr(eval(python_literal(value), {})) == repr(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": "one\ntwo"}, '{\n    \'a\': """one\ntwo""",\n}'),
        ([float("nan")], "[\n    float('nan'),\n]"),
        ("\x00\n", "'\\x00\\n'"),
    ],
)
def test_it_can_be_read(value: Any, text: str) -> None:
    assert python_literal(value) == text
