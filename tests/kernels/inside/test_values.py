"""The value of a script as JSON: what is another value there is told."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from nbtools.kernels.inside.values import VALUE_CHANGED, json_report


@pytest.mark.parametrize(
    ("value", "data", "words"),
    [
        ({"a": math.nan}, {"a": None}, "NaN and infinity are null"),
        ([-math.inf], [None], "NaN and infinity are null"),
        (Decimal("1.10"), 1.1, "a Decimal is a plain number"),
        ([Fraction(1, 3)], ["1/3"], "a Fraction is a plain number, or a text"),
        ({None: 2}, {"None": 2}, "keys that are not text are text"),
        ([{1: {2: 3}}], [{"1": {"2": 3}}], "keys that are not text are text"),
    ],
)
def test_a_value_that_changes_on_its_way_says_so(value: Any, data: Any, words: str) -> None:
    report = json_report(value)
    assert report["data"] == data
    assert report["value_note"].startswith(VALUE_CHANGED)
    assert words in report["value_note"]


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, True, "x"]}, (1, 2), "nan", {"1": 1}])
def test_a_value_that_stays_the_same_says_nothing(value: Any) -> None:
    assert json_report(value).keys() == {"data"}
