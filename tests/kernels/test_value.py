"""The value of the last expression of a script: JSON as it is, tables as Parquet files, all else told."""

from __future__ import annotations

import re

import duckdb
import pytest

TABLE = "import pandas as pd\npd.DataFrame({'x': range(2000), 'day': pd.date_range('2020-01-01', periods=2000)})"


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.processes), "fake"])
def kernels(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("import numpy as np\nnp.arange(3)", [0, 1, 2]),
        ("import datetime as dt\n(dt.date(2020, 1, 2), {'x'})", ["2020-01-02", ["x"]]),
        ("x = 3", None),
        ("print('shown')", None),
    ],
)
def test_the_value_of_the_last_expression_is_returned_as_json(kernels, code, value):
    done = kernels.run(code, wants_value=True).raise_for_error()
    assert (done.value, done.notes) == (value, ())


_DECIMALS = "a Decimal is a plain number, or a text where that is not exact"


@pytest.mark.parametrize(
    ("code", "value", "changes"),
    [
        (
            "{'a': [1, 2.5, float('nan')], 3: None}",
            {"a": [1, 2.5, None], "3": None},
            "NaN and infinity are null; keys that are not text are text",
        ),
        (
            "from decimal import Decimal\n[Decimal('1.5'), Decimal('NaN')]",
            [1.5, None],
            f"{_DECIMALS}; NaN and infinity are null",
        ),
        ("from decimal import Decimal\nDecimal('123456789012345678.25')", "123456789012345678.25", _DECIMALS),
        (
            "from fractions import Fraction\n[Fraction(1, 2), Fraction(1, 3)]",
            [0.5, "1/3"],
            _DECIMALS.replace("Decimal", "Fraction"),
        ),
    ],
)
def test_a_value_that_is_another_one_as_json_is_told_how_it_changed(kernels, code, value, changes):
    done = kernels.run(code, wants_value=True).raise_for_error()
    assert done.value == value
    assert done.notes == (f"the value of the last expression is not the same as JSON: {changes}",)


def test_nothing_is_returned_that_was_not_asked_for(kernels):
    assert kernels.run("{'a': 1}").value is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("object()", "it is an object, which JSON has no form for"),
        ("{1: 'a', '1': 'b'}", "two keys of a mapping are the same as text"),
        ("'x' * 9_000_000", "too large: it has 9,000,002 bytes as JSON, and 8,388,608 are allowed"),
        ("a = []\nfor _ in range(200): a = [a]\na", "more than 100 levels deep"),
    ],
)
def test_a_value_that_cannot_be_kept_is_told(kernels, code, words):
    done = kernels.run(code, wants_value=True).raise_for_error()
    assert done.value is None
    [note] = done.notes
    assert re.search(words, note)


def test_a_table_is_a_file_that_the_next_script_reads(kernels, tmp_path):
    made = kernels.run(TABLE, wants_value=True, artifacts_folder=tmp_path / "kept").raise_for_error()
    told = made.value
    assert (told["columns"], told["row_count"], len(told["rows"]), told["truncated"]) == (
        ["x", "day"],
        2000,
        1000,
        True,
    )
    assert told["rows"][1] == [1, "2020-01-02T00:00:00"]
    last = duckdb.read_parquet(told["parquet"]).fetchall()[-1]
    assert last[1].isoformat() == "2025-06-22T00:00:00"
    given = {"before": {"deep": [{"__parquet__": told["parquet"]}]}}
    read = kernels.run("before['deep'][0]['x'].sum()", wants_value=True, variables=given).raise_for_error()
    assert read.value == 1_999_000


def test_the_file_of_a_table_is_taken_to_the_given_place(tmp_path, real):
    place = tmp_path / "kept"
    made = real.run("import pandas as pd\npd.Series([1, 2], name='q')", wants_value=True, artifacts_folder=place)
    assert made.value["parquet"] == str(place / "value.parquet")
    assert made.artifacts == (place / "value.parquet",)
    assert made.value["rows"] == [[1], [2]]


@pytest.mark.parametrize(
    ("frame", "rows"),
    [
        ("pd.DataFrame({'n': [1, 3]}, index=['x', 'y'])", [["x", 1], ["y", 3]]),
        ("pd.DataFrame({'g': ['x', 'x'], 'n': [1, 3]}).groupby('g').sum()", [["x", 4]]),
        ("pd.DataFrame({'n': [1, 3]})[lambda frame: frame.n > 1]", [[3]]),
        ("pd.DataFrame({'n': []})", []),
    ],
)
def test_the_names_of_rows_are_kept_and_their_numbers_are_not(kernels, frame, rows):
    assert kernels.run(f"import pandas as pd\n{frame}", wants_value=True).raise_for_error().value["rows"] == rows


def test_a_relative_input_is_found_under_its_path_and_its_name(tmp_path, monkeypatch, real):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("here")
    monkeypatch.chdir(tmp_path)
    code = "[open(p).read() for p in ('a.txt', 'data/a.txt')]"
    done = real.run(code, inputs_paths=["data/a.txt"], wants_value=True).raise_for_error()
    assert (done.value, done.artifacts) == (["here", "here"], ())
