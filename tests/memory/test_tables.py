"""Tables and other values in memory: files by content, found by their schema, forgotten with the last item."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nbtools.errors import FileMissing, InvalidArguments, LimitExceeded
from nbtools.memory import AgentMemory, InMemoryRepository
from nbtools.memory.exact.frames import difference
from nbtools.memory.tables import TableFolder, in_words

pytestmark = pytest.mark.in_memory

pa = pytest.importorskip("pyarrow")
FRAME = pd.DataFrame(
    {"city": pd.Categorical(["Bern", "Chur"]), "when": pd.date_range("2020", periods=2, tz="UTC"), "n": [1.5, None]},
    index=pd.Index(["a", "b"], name="k"),
)


@pytest.fixture
def memory() -> AgentMemory:
    return AgentMemory(InMemoryRepository(), agent_id="a")


def save(tables: TableFolder, memory: AgentMemory, key: str, value: object) -> None:
    memory.write(key, tables.pack(value, memory.scope.record_id(key)))


def test_a_table_comes_back_and_is_found_by_its_columns(tmp_path: Path, memory: AgentMemory) -> None:
    tables = TableFolder(tmp_path / "t")
    save(tables, memory, "sales", FRAME)
    pd.testing.assert_frame_equal(tables.unpack(memory["sales"]), FRAME)
    assert [record.key for record in memory.search("city")] == ["sales"]
    assert memory["sales"]["rows"] == 2
    pd.testing.assert_series_equal(tables.unpack(tables.pack(FRAME["n"], "x")), FRAME["n"])
    polars = pytest.importorskip("polars")
    other = polars.DataFrame({"a": [1, None]})
    assert tables.unpack(tables.pack(other, "x")).equals(other)
    assert tables.unpack(tables.pack(other.to_arrow(), "x")).equals(other.to_arrow())


_NUMBER = decimal.Decimal("1.10")


@pytest.mark.parametrize(
    "value",
    [
        pd.Timestamp("2020-01-01", tz="UTC"),
        dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        dt.date(2020, 1, 1),
        dt.time(10, 30),
        np.int64(2**60 + 1),
        np.float32(0.1),
        np.array([1, 2**60 + 1]),
        _NUMBER,
        b"x",
        {"when": dt.date(2020, 1, 1), "how much": [_NUMBER, (1, float("inf"))]},
        {1: "a", "1": None},
        pd.Timedelta(seconds=1),
    ],
    ids=repr,
)
def test_what_json_has_no_form_for_is_written_and_read_as_what_it_was(tmp_path: Path, value: object) -> None:
    tables = TableFolder(tmp_path)
    memory = AgentMemory(InMemoryRepository(), tables=lambda: tables)
    memory.write("k", value)
    for back in (memory["k"], memory.read("k"), memory.scoped(agent_id="default")["k"], *memory.values()):
        # A number of NumPy is written as the number that it is, which models read too.
        assert repr(back) == repr(value.tolist() if isinstance(value, np.generic | np.ndarray) else value)
    json.dumps(memory.need("k").value, allow_nan=False)


def test_frames_are_written_and_read_and_other_objects_refused_by_name(tmp_path: Path) -> None:
    tables = TableFolder(tmp_path)
    memory = AgentMemory(InMemoryRepository(), tables=lambda: tables)
    memory.write("k", FRAME)
    pd.testing.assert_frame_equal(memory["k"], FRAME)
    assert memory.need("k").value["rows"] == 2
    with pytest.raises(InvalidArguments, match="cannot be kept: memory has no form for the type object"):
        memory.write("k", object())
    for odd in (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1.5], mask=[1]), np.ma.masked, np.longdouble(1) / 3):
        for value in (odd, [odd], {1: odd}):
            with pytest.raises(InvalidArguments, match=r"has no form for (the type Masked|NumPy's float)"):
                memory.write("k", value)
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(InvalidArguments, match="nests too deep"):
        memory.write("k", endless)
    assert len(memory.history("k")) == 1


def test_a_file_is_there_once_and_goes_with_the_last_item(tmp_path: Path, memory: AgentMemory) -> None:
    tables = TableFolder(tmp_path)
    for key in ("one", "two"):
        save(tables, memory, key, FRAME)
    save(tables, memory, "two", FRAME.head(1))
    assert len([*tmp_path.glob("*.parquet")]) == 2
    assert tables.forget(memory, "two") == 2
    assert len([*tmp_path.iterdir()]) == 2, "the file and who means it"
    pd.testing.assert_frame_equal(tables.unpack(memory["one"]), FRAME)
    assert tables.forget(memory, "one") == 1
    assert [*tmp_path.iterdir()] == []
    assert tables.forget(memory, "one") == 0


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_tables_go_with_an_export_and_come_back_elsewhere(tmp_path: Path, memory: AgentMemory, ending: str) -> None:
    tables, file = TableFolder(tmp_path / "here"), tmp_path / "out" / f"all.{ending}"
    save(tables, memory, "sales", FRAME)
    save(tables, memory, "gone", FRAME.head(1))
    (tmp_path / "here" / f"{memory['gone']['nbtools_table']}.parquet").unlink()
    memory.write("note", 1)
    assert tables.export_to(memory, file) == 3
    (there,) = file.with_name(f"{file.name}.tables").iterdir()
    (there.parent / f"{'0' * 64}.parquet").write_bytes(there.read_bytes())  # no table of that content
    other, elsewhere = AgentMemory(InMemoryRepository()), TableFolder(tmp_path / "elsewhere")
    assert elsewhere.import_from(other, file) == 3
    pd.testing.assert_frame_equal(elsewhere.unpack(other["sales"]), FRAME)
    with pytest.raises(FileMissing, match="1 rows"):
        elsewhere.unpack(other["gone"])
    assert [path.stem for path in (tmp_path / "elsewhere").glob("*.parquet")] == [there.stem]
    # It is meant here, too: another item that is forgotten takes no file away.
    save(elsewhere, other, "same", FRAME)
    elsewhere.forget(other, "same")
    assert len(elsewhere.unpack(other["sales"])) == 2
    elsewhere.forget(other, "sales")
    assert not [*(tmp_path / "elsewhere").glob("*.parquet")]


def test_an_export_without_room_for_tables_is_told(tmp_path: Path, memory: AgentMemory) -> None:
    tables = TableFolder(tmp_path / "here")
    save(tables, memory, "sales", FRAME)
    (tmp_path / "all.jsonl.tables").write_text("a file is in the way")
    with pytest.raises(LimitExceeded, match="cannot be written to"):
        tables.export_to(memory, tmp_path / "all.jsonl")


def test_what_cannot_be_kept_is_told_and_leaves_nothing(tmp_path: Path, memory: AgentMemory) -> None:
    with pytest.raises(LimitExceeded, match="a table in memory may have 10"):
        TableFolder(tmp_path / "t", limit=10).pack(FRAME, "x")
    with pytest.raises(InvalidArguments, match="the table cannot be kept as it is: in the column 'a', memory has"):
        TableFolder(tmp_path / "t").pack(pd.DataFrame({"a": [1, object()]}), "x")
    with pytest.raises(InvalidArguments, match="has no columns"):
        TableFolder(tmp_path / "t").pack(pd.DataFrame(index=range(3)), "x")
    assert not (tmp_path / "t").exists()
    (tmp_path / "t").write_text("a file is in the way")
    with pytest.raises(LimitExceeded, match=r"the table cannot be written to .*: (File exists|Not a directory)"):
        TableFolder(tmp_path / "t").pack(FRAME, "x")
    (tmp_path / "t").unlink()
    save(TableFolder(tmp_path), memory, "sales", FRAME)
    with pytest.raises(FileMissing, match=r"2 rows.* is not on this machine"):
        TableFolder(tmp_path / "other").unpack(memory["sales"])
    # A value that someone wrote by hand names no other file.
    forged = {"nbtools_table": "../../etc/passwd", "rows": 1}
    assert TableFolder(tmp_path).unpack(forged) == forged


def _of_arrow(values: list[object], kind: pa.DataType) -> pd.DataFrame:
    return pd.DataFrame(
        {"a": pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(values, type=kind)])))}
    )


def _objects(*values: object) -> pd.DataFrame:
    return pd.DataFrame({"a": pd.Series(values, dtype=object)})


class _Derived(pd.DataFrame):
    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return _Derived


def _labelled(labels: pd.Index) -> pd.DataFrame:
    return pd.DataFrame([[1, 2]], columns=labels)


_TREE = pd.MultiIndex.from_arrays(
    [pd.Categorical(["b", "a"], categories=["b", "a", "c"], ordered=True), pd.date_range("2024", periods=2)]
)
_ODD = {
    "list of Arrow": (_of_arrow([[1, 2], None], pa.list_(pa.int64())), True),
    "struct of Arrow": (_of_arrow([{"x": 1}, None], pa.struct([("x", pa.int64())])), True),
    "dictionary of Arrow": (_of_arrow(["x", None], pa.dictionary(pa.int8(), pa.string())), True),
    "two Arrow columns of one name": (pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), True),
    "int beside None": (_objects(9007199254740993, None), True),
    "list with a gap": (_objects([2**60 + 1, None], None), True),
    "list of NumPy": (_objects(np.array([1, 2])), True),
    "date and datetime": (_objects(dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 5)), True),  # noqa: DTZ001 - no zone
    "dictionaries of other keys": (_objects({"x": 1}, {"y": 2}), True),
    "labels that are equal": (pd.DataFrame([[1, 2]], columns=[True, False]), True),
    "NaN beside a gap": (
        pd.DataFrame({"a": pd.arrays.FloatingArray(np.array([np.nan, 1.0]), np.array([False, True]))}),
        False,
    ),
    "mixed zones": (
        _objects(pd.Timestamp("2024-01-01", tz="UTC"), pd.Timestamp("2024-01-01", tz="Europe/Zurich")),
        True,
    ),
    "bytes and text": (_objects(b"x", "y"), True),
    "sparse": (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), True),
    "beyond 64 bits": (_objects(2**70), True),
    "categories of numbers": (pd.DataFrame({"a": pd.Categorical([1, None, 3])}), True),
    "categories of texts": (pd.DataFrame({"a": pd.Categorical(["x", None])}), True),
    "interval": (pd.DataFrame({"a": pd.cut([1, 5], [0, 3, 6])}), True),
    "levels": (pd.DataFrame({("a", 1): [1], ("b", 2): [2]}), True),
    "decimals": (_objects(decimal.Decimal("1.10"), None), True),
    "times": (_objects(dt.time(1, 2, 3), None), True),
    "texts and gaps": (pd.DataFrame({"a": ["x", None], "b": pd.array([1, None], dtype="Int64")}), True),
    "missing words of three kinds": (_objects(None, float("nan"), pd.NA, pd.NaT), True),
    "a truth value among numbers": (_objects(1, True, 1.0, np.int64(1)), True),
    "index of periods": (pd.DataFrame({"a": [1]}, index=pd.period_range("2024", periods=1, freq="M")), True),
    "index of days": (pd.DataFrame({"a": [1, 2]}, index=pd.date_range("2024", periods=2)), True),
    "index of steps": (
        pd.DataFrame({"a": [1, 2]}, index=pd.timedelta_range("1h", periods=2, freq="h", name="t")),
        True,
    ),
    "index of intervals": (pd.DataFrame({"a": [1]}, index=pd.IntervalIndex.from_breaks([0, 1])), True),
    "complex": (pd.DataFrame({"a": [1 + 2j]}), True),
    "seconds": (pd.DataFrame({"a": np.array(["2024-01-01", "NaT"], dtype="datetime64[s]")}), True),
    "a function": (_objects(len), False),
    "two columns of a name": (pd.DataFrame([[1, "x"]], columns=["a", "a"]), True),
    "labels of ordered categories": (
        _labelled(pd.CategoricalIndex(["b", "a"], categories=["b", "a", "c"], ordered=True)),
        True,
    ),
    "labels of objects": (_labelled(pd.Index(["a", "b"], dtype=object)), True),
    "labels of texts and gaps": (_labelled(pd.Index(["a", "b"], dtype="string")), True),
    "labels half of which is missing": (_labelled(pd.Index(["a", pd.NA], dtype="string")), True),
    "labels of days": (_labelled(pd.date_range("2024", periods=2, tz="Europe/Zurich")), True),
    "labels of nanoseconds": (_labelled(pd.DatetimeIndex([1, 2])), True),
    "labels with a surrogate": (_labelled(pd.Index(["a", "\ud800"], dtype=object)), True),
    "labels of fractions": (_labelled(pd.Index([fractions.Fraction(1, 3), 1], dtype=object)), False),
    "numbered labels": (pd.DataFrame([[1, [1, None]]], columns=range(2)), True),
    "tree of one level": (_labelled(pd.MultiIndex.from_tuples([("a",), ("b",)])), True),
    "tree of categories and days": (_labelled(_TREE), True),
    "tree of rows": (pd.DataFrame({"a": [1, 2]}, index=_TREE), True),
    "tree with more in it than is there": (
        pd.DataFrame({"a": [1, 2]}, index=pd.MultiIndex.from_product([["b", "a"], [1, None]], names=["k", 1])[:2]),
        True,
    ),
    "tree that groups what is missing": (
        pd.DataFrame({"g": [None, "a"], "h": ["x", "y"], "v": [1, 2]}).groupby(["g", "h"], dropna=False).sum(),
        True,
    ),
    "categories of objects": (pd.DataFrame({"a": pd.Categorical(["b"], pd.Index(["b", "a"], dtype=object))}), True),
    "texts without Arrow": (pd.DataFrame({"a": pd.array(["a", None], dtype=pd.StringDtype("python"))}), False),
    "sparse beside sevens": (pd.DataFrame({"a": pd.arrays.SparseArray([7, 1], fill_value=7)}), False),
    "longest floats": (pd.DataFrame({"a": np.array([1], dtype=np.clongdouble)}), False),
    "no two labels alike": (_objects(1).set_flags(allows_duplicate_labels=False), True),
    "of a class of its own": (_Derived({"a": [1]}), False),
}


@pytest.mark.parametrize("name", _ODD)
def test_a_table_comes_back_as_it_was_or_is_refused_when_it_is_saved(tmp_path: Path, name: str) -> None:
    table, is_kept = _ODD[name]
    tables = TableFolder(tmp_path)
    if not is_kept:
        with pytest.raises(InvalidArguments, match="cannot be kept as it is"):
            tables.pack(table, "x")
        assert not [*tmp_path.glob("*")]
        return
    if isinstance(table, pd.DataFrame):
        table.attrs = {"unit": ("mg", 1), 1: dt.date(2024, 1, 1), None: [b"x", float("nan")]}
    note = tables.pack(table, "x")
    back = tables.unpack(note)
    assert difference(table, back) is None
    if isinstance(table, pd.DataFrame):
        assert repr(back.attrs) == repr(table.attrs)
        pd.testing.assert_frame_equal(back, table, check_column_type="exact", check_flags=True)
        assert repr(back.columns) == repr(table.columns)
        size, _, names = in_words(note).partition(": ")
        assert size == f"table, {len(table):,} \N{MULTIPLICATION SIGN} {table.shape[1]:,}"
        assert names == ", ".join(map(_shown, table.columns)) or table.columns.nlevels > 1
        assert getattr(back.index, "freq", None) == getattr(table.index, "freq", None)
        assert list(map(_plain, back.iloc[:, 0])) == list(map(_plain, table.iloc[:, 0]))
        assert not any(kind.categories.name for kind in back.dtypes if isinstance(kind, pd.CategoricalDtype))


@pytest.mark.parametrize("name", [None, "x", 1, ("a", 1), True, dt.date(2024, 1, 1)], ids=repr)
def test_a_series_comes_back_with_its_name_and_what_belongs_to_it(tmp_path: Path, name: object) -> None:
    series = pd.Series([1, None], name=name, dtype="Int8").set_flags(allows_duplicate_labels=False)
    series.attrs = {"at": (1, dt.date(2024, 1, 1))}
    back = TableFolder(tmp_path).unpack(TableFolder(tmp_path).pack(series, "x"))
    pd.testing.assert_series_equal(back, series, check_flags=True)
    assert (type(back.name), back.attrs) == (type(name), series.attrs)


@pytest.mark.parametrize("attrs", [{"unit": ("mg", 1)}, {1: "one"}], ids=repr)
def test_attrs_that_would_be_others_in_json_come_back_as_they_were(tmp_path: Path, attrs: dict[object, object]) -> None:
    frame = pd.DataFrame({"x": [1]})
    frame.attrs = attrs
    back = TableFolder(tmp_path).unpack(TableFolder(tmp_path).pack(frame, "x"))
    assert repr(back.attrs) == repr(attrs)


class _Shown(pd.DataFrame):
    """What pandas makes of it is a plain frame."""


def test_a_refusal_names_the_part_and_what_to_do_with_it(tmp_path: Path) -> None:
    plain = pd.DataFrame({"x": [1]})
    about = plain.copy()
    about.attrs = {"f": len}
    for frame, why in (
        (_ODD["a function"][0], r"in the column 'a', .*frame\.astype\({'a': str}\)"),
        (_ODD["texts without Arrow"][0], r"the type of the column 'a' .*storage='python'.*frame\.drop\(columns='a'\)"),
        (_ODD["sparse beside sevens"][0], r"the type of the column 'a' .*Sparse\[int64, 7\]"),
        (_ODD["labels of fractions"][0], r"in its column labels, .*Fraction.*frame\.columns ="),
        (_ODD["of a class of its own"][0], r"its class .*_Derived.*pandas\.DataFrame\(frame\)"),
        (about, r"in its attrs, .*frame\.attrs = {}"),
        (plain.set_index(pd.Index([len])), r"in its index, .*frame\.reset_index\(\)"),
        (pd.DataFrame(), "has no columns.*Save it when it has some"),
    ):
        with pytest.raises(InvalidArguments, match=why):
            TableFolder(tmp_path).pack(frame, "x")
    about.attrs = {"day": dt.date(2024, 1, 1)}
    with warnings.catch_warnings(action="error"):  # nothing is said to be lost that is kept
        TableFolder(tmp_path).pack(about, "x")
    for way in (
        _ODD["a function"][0].astype({"a": str}),
        pd.DataFrame(_ODD["of a class of its own"][0]),
        _Shown(plain),
    ):
        back = TableFolder(tmp_path).unpack(TableFolder(tmp_path).pack(way, "x"))
        pd.testing.assert_frame_equal(back, pd.DataFrame(way))


@pytest.mark.parametrize("step", [pd.offsets.CustomBusinessDay(holidays=["2024-01-02"]), pd.DateOffset(days=2)])
def test_a_step_without_a_name_is_refused_with_the_way_to_drop_it(tmp_path: Path, step: object) -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.date_range("2024-01-01", periods=2, freq=step))
    with pytest.raises(InvalidArguments, match=r"the step of its index .* as <.*index\.freq = None drops"):
        TableFolder(tmp_path).pack(frame, "x")
    frame.index.freq = None
    assert difference(frame, TableFolder(tmp_path).unpack(TableFolder(tmp_path).pack(frame, "x"))) is None


def _shown(label: object) -> str:
    return str(label).encode(errors="backslashreplace").decode()


def _plain(value: object) -> str:
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)


@pytest.mark.processes
def test_odd_frames_are_the_same_in_another_process(tmp_path: Path) -> None:
    """Periods and intervals are known to Arrow only where pandas has made them known."""
    tables = TableFolder(tmp_path)
    frames = {name: table for name, (table, is_kept) in _ODD.items() if is_kept and isinstance(table, pd.DataFrame)}
    kept = {name: tables.pack(table, name) for name, table in frames.items()}
    script = (
        "import json, pathlib, sys; from nbtools.memory.tables import TableFolder\n"
        "tables = TableFolder(pathlib.Path(sys.argv[1]))\n"
        "frames = {name: tables.unpack(value) for name, value in json.loads(sys.stdin.read()).items()}\n"
        "print(json.dumps({name: [frame.to_string(), str(frame.dtypes.tolist()), str(frame.index.dtype)] "
        "for name, frame in frames.items()}))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)],
        input=json.dumps(kept),
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    for name, frame in frames.items():
        dtypes = str(frame.dtypes.tolist()).replace("item:", "element:")
        assert told[name] == [frame.to_string(), dtypes, str(frame.index.dtype)], name


def test_objects_of_polars_are_refused(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(InvalidArguments, match="cannot be kept"):
        TableFolder(tmp_path).pack(polars.DataFrame({"a": polars.Series([object()], dtype=polars.Object)}), "x")


def test_old_tables_go_where_no_note_means_them_any_more(tmp_path: Path, memory: AgentMemory) -> None:
    tables = TableFolder(tmp_path)
    for number in range(60):
        save(tables, memory, f"k{number % 20}", pd.DataFrame({"n": [number]}))
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    later = TableFolder(tmp_path, bounds=(86_400.0, 2**30), memory=lambda: memory)
    save(later, memory, "new", FRAME)
    assert len([*tmp_path.glob("*.parquet")]) == 21
    for number in range(20):
        assert later.unpack(memory[f"k{number}"])["n"].tolist() == [40 + number]
    with pytest.raises(FileMissing, match="not on this machine"):
        later.unpack(memory.history("k3")[0].value)


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_forked_after_a_table_was_made_ends() -> None:
    program = """
import os, sys
from nbtools.memory import AgentMemory, InMemoryRepository
memory = AgentMemory(InMemoryRepository())
for key in "ab":
    memory.write(key, 1)
assert len(memory.table()) == 2
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert len(memory.table()) == 2
sys.exit(3)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (dt.date(2024, 1, 2), "2024-01-02"),
        (decimal.Decimal("1.10"), "1.10"),
        ([dt.date(2024, 1, 2), True], '["2024-01-02", true]'),
        (pd.Timedelta(days=1), "1 day"),
        (np.array([1.5, 2.0]), "[1.5, 2.0]"),
    ],
)
def test_lists_of_notes_show_a_value_as_tables_do(tmp_path: Path, value: object, text: str) -> None:
    assert in_words(TableFolder(tmp_path).pack(value, "x")) == text
