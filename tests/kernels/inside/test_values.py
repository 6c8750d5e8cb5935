"""The value of a script as JSON: what is another value there is told."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nbtools.kernels.inside.values import VALUE_CHANGED, is_lost, json_report, report, stored_value


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
    assert report["value_note"].startswith(f"the value of the last expression{VALUE_CHANGED}")
    assert words in report["value_note"]


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, True, "x"]}, (1, 2), "nan", {"1": 1}])
def test_a_value_that_stays_the_same_says_nothing(value: Any) -> None:
    assert json_report(value).keys() == {"data"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1: "x"}, "keys that are not text are text"),
        ([(1, 2)], "a tuple is a list"),
        ({"s": {1}}, "a set is a list"),
        (dt.datetime(2024, 1, 2, tzinfo=dt.UTC), "a datetime is a str"),
        ([Decimal("1.10")], "a Decimal is a plain number"),
        ([np.int64(3), np.float32(0.5), np.float64(2), True, {"a": [None, "x"]}], ""),
    ],
)
def test_a_value_for_a_notebook_is_equal_or_a_note_says_what_changed(tmp_path: Path, value: Any, words: str) -> None:
    made = report(value, str(tmp_path))
    assert (made["data"] == value) == (not words)
    assert words in made.get("value_note", "")
    assert ("value_note" in made) == bool(words)


def test_values_of_well_known_classes_have_a_form_and_tables_have_files(tmp_path: Path) -> None:
    @dataclasses.dataclass
    class Pair:
        left: int
        right: Path

    assert json_report([Pair(1, Path("/a")), dt.timedelta(1), pd.NaT])["data"] == [
        {"left": 1, "right": "/a"},
        "1 day, 0:00:00",
        None,
    ]
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="k"))
    made = [json_report(value, str(tmp_path))["data"] for value in (frame, frame["a"], pd.DataFrame({"b": [3]}))]
    assert [Path(one["parquet"]).name for one in made] == ["value.parquet", "value-2.parquet", "value-3.parquet"]
    assert [one["columns"] for one in made] == [["k", "a"], ["k", "a"], ["b"]]
    assert pd.read_parquet(made[0]["parquet"]).to_dict("list") == {"k": ["x", "y"], "a": [1, 2]}


@pytest.mark.parametrize("value", [math.inf, [-math.inf, {"x": math.nan}], [np.float32("inf"), 1.5]])
def test_numbers_that_json_lacks_reach_a_notebook_as_what_they_are(tmp_path: Path, value: Any) -> None:
    made = report(value, str(tmp_path))
    assert made.keys() == {"data"}
    assert repr(stored_value(json.loads(json.dumps(made["data"])), str(tmp_path))) == repr(value).replace(
        "np.float32(inf)", "inf"
    )


def test_a_mapping_that_would_lose_a_key_is_refused(tmp_path: Path) -> None:
    assert report([{1: "x", "1": "y"}], str(tmp_path)).keys() == {"value_note"}
    assert is_lost(report({1: "x", "1": "y"}, str(tmp_path))["value_note"])


@pytest.mark.parametrize(("value", "words"), [({"a": object()}, "it holds an object, "), (print, "it is a builtin_")])
def test_what_cannot_be_kept_says_of_which_name_and_why(tmp_path: Path, value: Any, words: str) -> None:
    for made in (report(value, str(tmp_path), "fit"), report(value, None, "fit")):
        assert made["value_note"].startswith("the value of fit ")
        assert words in made["value_note"]
