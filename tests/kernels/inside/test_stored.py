"""Objects on their way between a notebook and a script: what arrives is what was sent, or a note says what is not."""

from __future__ import annotations

import datetime as dt
import os
import sys
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import polars as pl
import pyarrow as pa
import pytest
import seaborn.objects as so
from matplotlib.figure import Figure

from nbtools.kernels.inside.stored import STORED, load, store

pytestmark = pytest.mark.broad

_DAY, _MOMENT = dt.date(2024, 1, 2), pd.Timestamp("2024-01-02 03:04")
FRAMES = {
    "numbers": pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan]}),
    "texts and gaps": pd.DataFrame({"a": ["x", None], "b": pd.array([1, None], dtype="Int64")}),
    "categories": pd.DataFrame({"a": pd.Categorical(["x", "y", "x"])}),
    "moments": pd.DataFrame({"a": pd.to_datetime(["2024-01-01", None])}),
    "complex numbers": pd.DataFrame({"a": [1 + 2j, 3 - 1j]}),
    "columns named by days and moments": pd.DataFrame([[1, 2]], columns=pd.Index([_DAY, _MOMENT], dtype=object)),
    "columns named by numbers": pd.DataFrame([[1, 2]], columns=np.array([10, 20])),
    "columns on two levels": pd.DataFrame(
        [[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["x", "y"])
    ),
    "the same name twice": pd.DataFrame([[1, 2]], columns=["a", "a"]),
    "names of rows": pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="k")),
    "names of rows on two levels": pd.DataFrame({"a": [1, 2]}, index=pd.MultiIndex.from_tuples([("x", 1), ("y", 2)])),
    "no columns": pd.DataFrame(index=pd.RangeIndex(3)),
    "no rows": pd.DataFrame({"a": np.array([], dtype="int64")}),
}


def _there_and_back(value: Any, folder: Path, **options: Any) -> tuple[Any, list[str]]:
    notes: list[str] = []
    return load(store(value, str(folder), "v", notes), str(folder), **options), notes


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_arrives_as_it_was(tmp_path: Path, name: str, trusted: bool) -> None:
    came, _ = _there_and_back(FRAMES[name], tmp_path, trusted=trusted)
    pd.testing.assert_frame_equal(came, FRAMES[name], check_column_type=False)
    assert list(came.columns) == list(FRAMES[name].columns)


def test_a_series_arrives_with_its_name_or_without_one(tmp_path: Path) -> None:
    for sent in (pd.Series([1, 2], name="s"), pd.Series(["a", None])):
        pd.testing.assert_series_equal(_there_and_back(sent, tmp_path)[0], sent)


def test_values_of_several_types_arrive_as_text_and_a_note_names_their_columns(tmp_path: Path) -> None:
    mixed = [1, "a", None]
    came, notes = _there_and_back(pd.DataFrame({"m": mixed, "n": mixed}), tmp_path)
    assert came["m"].tolist()[:2] == ["1", "a"]
    assert came["m"].isna().tolist() == [False, False, True]
    assert notes == [
        "column 'm' and column 'n' of v hold values that Arrow has no one type for; they are handed over as text"
    ]
    _, notes = _there_and_back(pd.DataFrame({"a": [1, 2]}, index=pd.Index([1, "x"], dtype=object)), tmp_path)
    assert notes == ["the index of v holds values that Arrow has no one type for; they are handed over as text"]


def test_tables_of_other_packages_arrive_as_their_own(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1, None], "b": ["x", "y"]})
    assert _there_and_back(frame, tmp_path)[0].equals(frame)
    assert _there_and_back(frame.lazy(), tmp_path)[0].equals(frame)
    assert _there_and_back(frame["a"], tmp_path)[0].equals(frame["a"])
    table = pa.table({"a": [1, 2]})
    assert _there_and_back(table, tmp_path, trusted=False)[0].equals(table)
    assert _there_and_back(table.to_batches()[0], tmp_path)[0].equals(table)


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3), np.asfortranarray(np.eye(3)), np.array(5.0), np.array([])]
)
def test_an_array_arrives_with_its_shape(tmp_path: Path, array: Any, trusted: bool) -> None:
    came, _ = _there_and_back(array, tmp_path, trusted=trusted)
    assert came.dtype == array.dtype
    np.testing.assert_array_equal(came, array, strict=True)


def test_an_array_of_objects_is_refused_on_both_sides(tmp_path: Path) -> None:
    objects = np.array([object()])
    with pytest.raises(TypeError, match="v is an array of Python objects"):
        store(objects, str(tmp_path), "v", [])
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    with pytest.raises(ValueError, match="holds Python objects"):
        load({STORED: str(tmp_path / "a.npy"), "kind": "array"})


@pytest.mark.filterwarnings("ignore:The copy keyword")  # seaborn uses it
def test_a_figure_arrives_as_one_that_can_be_shown(tmp_path: Path) -> None:
    drawn = Figure()
    drawn.add_subplot().plot([1, 2])
    for figure in (drawn, drawn.axes[0], so.Plot(x=[1, 2], y=[1, 2]).add(so.Line())):
        assert _there_and_back(figure, tmp_path)[0].data.startswith(b"\x89PNG")
    lines = go.Figure(go.Scatter(y=[1, 3]))
    assert _there_and_back(lines, tmp_path)[0] == lines
    chart = alt.Chart(alt.Data(values=[{"x": 1}])).mark_point().encode(x="x:Q")
    came = _there_and_back(chart, tmp_path)[0].to_dict()
    assert (came["mark"], came["encoding"]) == (chart.to_dict()["mark"], chart.to_dict()["encoding"])
    assert list(came["datasets"].values()) == [[{"x": 1}]]


def test_what_is_neither_table_nor_array_nor_figure_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a dict is not a table, array or figure"):
        store({}, str(tmp_path), "v", [])

    class Unready(go.Figure):  # type: ignore[misc]
        def to_json(self, *_: Any, **__: Any) -> str:
            raise OSError("no room")

    Unready.__module__ = "plotly.own"
    with pytest.raises(OSError, match="no room"):
        store(Unready(), str(tmp_path), "v", [])
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_a_frame_goes_through_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    came, _ = _there_and_back(pd.DataFrame({"a": [1, 2], 3: pd.Series(["x", "y"], dtype=object)}), tmp_path)
    assert came.to_dict("list") == {"a": [1, 2], "3": ["x", "y"]}


def test_a_file_is_read_in_its_folder_alone_and_what_took_its_place_is_refused(tmp_path: Path) -> None:
    node = store(np.arange(2), str(tmp_path), "v", [])
    own = Path(node[STORED])
    with pytest.raises(FileNotFoundError):
        load(node, str(tmp_path / "elsewhere"))
    own.unlink()
    os.mkfifo(own)
    with pytest.raises(OSError, match="is not a regular file"):
        load(node)
    own.unlink()
    own.symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic link"):
        load(node)


@pytest.mark.parametrize(
    "table", [pd.DataFrame({"a": ["x", "y"]}), pa.table({"a": ["x", "y"]})], ids=["pandas", "arrow"]
)
def test_a_table_whose_texts_lie_outside_of_it_is_refused(tmp_path: Path, table: Any) -> None:
    node = store(table, str(tmp_path), "v", [])
    # The end of the last text is in order: only who looks at each of them finds what is not.
    texts = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\x40\0\0\0\x02\0\0\0"), pa.py_buffer(b"xy"))
    batch = pa.record_batch([texts], names=["a"])
    Path(node[STORED]).unlink()
    with pa.OSFile(node[STORED], "wb") as file, pa.ipc.new_stream(file, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(pa.ArrowInvalid):
        load(node, str(tmp_path), trusted=False)


def test_numbers_that_json_lacks_are_read_by_their_names() -> None:
    assert load({STORED: "-inf", "kind": "float"}) == -np.inf
