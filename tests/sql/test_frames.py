"""Frames: what counts as one, and that a remembered one is never stale."""

from __future__ import annotations

import contextlib
import datetime as dt
import gc
import os
import weakref
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from nbtools.errors import MissingExtra, NbtoolsError, SqlFailed, SqlInvalid
from nbtools.sql import SqlSession
from nbtools.sql.engines.duckdb.frames import CursorPool
from nbtools.sql.frames import frame_columns, is_frame
from nbtools.sql.pages.source import FrameSource
from nbtools.sql.worker.shared_frames import SharedFrames
from nbtools.sql.worker.sheets import SheetOptions, read_workbook
from tests.conftest import wait_until


def _rename(frame: pd.DataFrame) -> None:
    frame.columns = ["b", "a", "s"]


def _swap(frame: pd.DataFrame) -> None:
    frame["a"], frame["b"] = frame["b"].copy(), frame["a"].copy()


def _set_text(frame: pd.DataFrame) -> None:
    frame.loc[0, "s"] = "changed"


CHANGES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "a cell by label": lambda frame: frame.__setitem__("a", frame["a"].where(frame["a"] != 1, 50)),
    "a cell in place": lambda frame: frame.loc.__setitem__((0, "a"), 99),
    "a cell by position": lambda frame: frame.iloc.__setitem__((1, 1), -5),
    "a cell by at": lambda frame: frame.at.__setitem__((2, "b"), 1_000),
    "a cell of text": _set_text,
    "a whole column": lambda frame: frame.__setitem__("a", [7, 8, 9]),
    "a new column": lambda frame: frame.__setitem__("c", 1),
    "a column less": lambda frame: frame.__delitem__("b"),
    "a popped column": lambda frame: frame.pop("s"),
    "a row more": lambda frame: frame.loc.__setitem__(3, [1, 2, "new"]),
    "an insert in front": lambda frame: frame.insert(0, "z", [4, 5, 6]),
    "other names": _rename,
    "columns exchanged": _swap,
    "another type": lambda frame: frame.__setitem__("a", frame["a"].astype(float) / 2),
    "arithmetic in place": lambda frame: frame.__iadd__(frame),
    "a mask": lambda frame: frame.mask(frame["a"] > 1, inplace=True),  # noqa: PD002 - the case
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_a_remembered_frame_is_read_anew_after(change: str) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6], "s": ["x", "y", "z"]})
    with SqlSession() as session:
        for _ in range(2):
            session.query("from frame", frames={"frame": frame})
        try:
            CHANGES[change](frame)
        except Warning as said:  # pandas deprecates some ways of changing a frame in place
            pytest.skip(str(said))
        found = session.query("from frame", frames={"frame": frame}).to_pandas()
        fresh = session.query("from other", frames={"other": frame.copy(deep=True)}).to_pandas()
        pd.testing.assert_frame_equal(found, fresh)


@pytest.mark.usefixtures("few_objects")
def test_a_remembered_frame_is_let_go_with_the_notebooks_own() -> None:
    frame = pd.DataFrame({"a": np.arange(100)})
    alive = weakref.ref(frame)
    with SqlSession() as session:
        session.query("select sum(a) from frame", frames={"frame": frame})
        del frame

        # The thread that ran the query lets go of its work a moment after the answer is there.
        def is_let_go() -> bool:
            gc.collect()
            return alive() is None

        wait_until(is_let_go)


@pytest.mark.usefixtures("few_objects")
def test_the_cursor_of_a_dropped_frame_is_closed() -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(duckdb.connect())
        return made[-1]

    pool = CursorPool(make)
    frame = pd.DataFrame({"a": np.arange(100)})
    with pool.borrow({"frame": frame}) as cursor:
        assert cursor.execute("select sum(a) from frame").fetchall() == [(4950,)]
    del frame
    gc.collect()
    with pool.borrow({}):
        pass
    with pytest.raises(duckdb.ConnectionException):
        made[0].execute("select 1")
    pool.close(0)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_frame_in_shared_memory_is_written_anew_after_a_change() -> None:
    with SqlSession() as session:
        for change in CHANGES.values():
            frame = pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6], "s": ["x", "y", "z"]})
            for _ in range(2):
                session.query("from frame", frames={"frame": frame}, isolated=True)
            try:
                change(frame)
            except Warning:  # pandas deprecates some ways of changing a frame in place
                continue
            found = session.query("from frame", frames={"frame": frame}, isolated=True).to_pandas()
            fresh = session.query("from other", frames={"other": frame.copy(deep=True)}).to_pandas()
            pd.testing.assert_frame_equal(found, fresh)


@pytest.mark.usefixtures("few_objects")
def test_shared_memory_is_sealed_used_again_and_let_go() -> None:
    shipped = SharedFrames(None)
    frame = pd.DataFrame({"x": [1.5, np.nan], "s": ["a", None]})
    with contextlib.ExitStack() as shared:
        descriptors: list[int] = []
        for _ in range(2):
            shipped.share(frame, shared, descriptors)
        assert os.fstat(descriptors[0]).st_ino == os.fstat(descriptors[1]).st_ino
        if hasattr(os, "memfd_create"):
            with pytest.raises(PermissionError):
                os.pwrite(descriptors[0], b"x", 0)
        again = shipped.descriptor_of(frame)
        assert again is not None
        os.close(again)
        assert shipped.descriptor_of(frame.copy()) is None
    del frame
    gc.collect()
    assert shipped.descriptor_of(pd.DataFrame({"x": [1]})) is None
    assert not shipped._copies
    shipped.close()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory that can be sealed is Linux's")
def test_frames_in_shared_memory_are_told_apart_by_who_they_are() -> None:
    shipped = SharedFrames(None)
    frames = [pd.DataFrame({"a": [1, 2]}) for _ in range(3)]
    with contextlib.ExitStack() as shared:
        for frame in frames:
            shipped.share(frame, shared, [])
        frames[2]["a"] = 7
        assert shipped.descriptor_of(frames[2]) is None
        shipped.share(frames[2], shared, [])
    again = [descriptor for frame in frames if (descriptor := shipped.descriptor_of(frame)) is not None]
    assert len(again) == len(frames)
    for descriptor in again:
        os.close(descriptor)
    shipped.close()


@pytest.mark.processes
def test_missing_numbers_are_null_isolated_or_not() -> None:
    frame = pd.DataFrame({"x": [1.5, np.nan, np.inf], "y": np.array([1, 2, 3], "float32"), "z": [-np.inf, np.inf, 0.0]})
    sql = "select count(x) as n, sum(y) as s, count(z) as m, max(x) as i from frame"
    with SqlSession() as session:
        for isolated in (False, True):
            found = session.query(sql, frames={"frame": frame}, isolated=isolated)
            assert found.to_rows() == [[2, 6.0, 3, "inf"]]


def test_another_frame_of_the_same_name_is_told_apart() -> None:
    with SqlSession() as session:
        for value in (1, 2, 1, 3):
            frame = pd.DataFrame({"a": [value]})
            assert session.query("from frame", frames={"frame": frame}).to_rows() == [[value]]


def test_frames_of_other_queries_are_not_left_behind() -> None:
    with SqlSession() as session:
        session.query("from a", frames={"a": pd.DataFrame({"x": [1]})})
        session.query("from a, b", frames={"a": pd.DataFrame({"x": [1]}), "b": pd.DataFrame({"y": [1]})})
        session.query("select 1")
        for sql in ("from a", "from b", "show tables"):
            if sql == "show tables":
                assert session.query(sql).to_rows() == []
            else:
                with pytest.raises(SqlInvalid):
                    session.query(sql)


def test_what_counts_as_a_frame() -> None:

    yes = (pd.DataFrame(), pd.Series([1]), pl.DataFrame(), pl.LazyFrame(), pa.table({"a": [1]}))
    no = (None, 1, "text", [1], {"a": [1]}, np.zeros(3), object(), pd.Index([1]))
    assert [is_frame(value) for value in yes] == [True] * len(yes)
    assert [is_frame(value) for value in no] == [False] * len(no)


def test_columns_are_told_for_every_kind_of_frame() -> None:

    assert frame_columns(pd.DataFrame({"a": [1], "b": ["x"]})) == [("a", "int64"), ("b", "str")]
    assert frame_columns(pd.Series([1.5], name="s")) == [("s", "float64")]
    assert frame_columns(pl.DataFrame({"a": [1]})) == [("a", "Int64")]
    assert frame_columns(pl.LazyFrame({"a": [1]})) == [("a", "Int64")]
    assert frame_columns(pa.table({"a": [1]})) == [("a", "int64")]
    with SqlSession() as session:
        assert frame_columns(session.query("select 1 as a")) == [("a", "INTEGER")]
    assert frame_columns(5) == []


def test_a_record_without_rows_says_that_it_has_no_columns() -> None:
    with SqlSession(tables={"nbtools.empty": list}) as session, pytest.raises(SqlInvalid, match=r"nbtools\.empty"):
        session.query("from nbtools.empty")


def test_a_value_that_is_no_table_says_what_it_is() -> None:
    with SqlSession() as session, pytest.raises(SqlInvalid, match="a dict"):
        session.query("from x", frames={"x": {"a": 1}})


@pytest.mark.processes
def test_mixed_columns_read_the_same_isolated_or_not() -> None:
    frame = pd.DataFrame({"mixed": [1, "two", None], "lists": [[1], [2, 3], None]})
    with SqlSession() as session:
        here = session.query("from frame", frames={"frame": frame}).to_rows()
        assert session.query("from frame", frames={"frame": frame}, isolated=True).to_rows() == here


def test_a_broken_workbook_is_said_so(tmp_path: Any) -> None:
    (tmp_path / "a.xlsx").write_text("is not a workbook")
    with pytest.raises(NbtoolsError):
        read_workbook(tmp_path / "a.xlsx", SheetOptions())
    with zipfile.ZipFile(tmp_path / "parts.xlsx", "w") as packed:
        packed.writestr("xl\\\\workbook.xml", "<workbook/>")
    with pytest.raises(NbtoolsError, match="a zip without the parts") as caught:
        read_workbook(tmp_path / "parts.xlsx", SheetOptions())
    assert "again from Excel" in str(caught.value.hint)
    with pytest.raises((MissingExtra, NbtoolsError)):
        read_workbook(tmp_path / "missing.ods", SheetOptions())


class _Swapped(type(Path())):
    """A path to a file that someone else writes again as soon as anybody has looked at it."""

    def stat(self, **more: Any) -> os.stat_result:
        found = super().stat(**more)
        self.write_bytes(b"PK\3\4 half of a workbook" + bytes(found.st_size))
        return found


def test_columns_of_a_workbook_whose_names_differ_in_case_alone_are_each_read(tmp_path: Path) -> None:
    pd.DataFrame(_SAME_BUT_FOR_CASE).to_excel(tmp_path / "case.xlsx", index=False)
    with SqlSession(allowed_paths=[tmp_path]) as session:
        result = session.query(f"from '{tmp_path / 'case.xlsx'}'")
    assert (result.columns, result.to_rows()) == (("x", "X_2", "x_1"), [[1, 2, 3]])
    assert "columns with the same name: X as X_2" in str(result.notes)


def test_a_workbook_that_changes_while_it_is_read_can_be_asked_for_again(tmp_path: Path) -> None:
    place = _Swapped(tmp_path / "a.xlsx")
    pd.DataFrame({"a": [1]}).to_excel(str(place), index=False)
    with pytest.raises(SqlFailed, match="was changed while the query read it") as caught:
        read_workbook(place, SheetOptions())
    assert caught.value.retryable
    with pytest.raises(SqlInvalid, match="is not a workbook that can be read"):
        read_workbook(Path(place), SheetOptions())


def test_a_frame_without_columns_is_named() -> None:
    with SqlSession() as opened, pytest.raises(SqlInvalid, match="the frame sales cannot be read: ") as caught:
        opened.query("select * from sales", frames={"sales": pd.DataFrame()})
    assert "sales.reset_index()" in caught.value.hint


_ODD = {
    "interval": (pd.cut([1, 5], [0, 3, 6]), ["(0, 3]", "(3, 6]"]),
    "period": (pd.period_range("2024-01", periods=2, freq="M"), ["2024-01", "2024-02"]),
    "sparse": (pd.arrays.SparseArray([0, 1]), [0, 1]),
    "complex": ([1 + 2j, 2], ["(1+2j)", "(2+0j)"]),
    "mixed": ([1, "a"], ["1", "a"]),
    "times and days": (pd.Series([dt.time(10, 30), dt.date(2024, 1, 31)], dtype=object), ["10:30:00", "2024-01-31"]),
    "lists": (pd.Series([[1], [2, 3]], dtype=object), [[1], [2, 3]]),
}


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_a_column_that_the_engine_has_no_type_for_leaves_the_others_alone(isolated: bool) -> None:
    frames = {f"f{at}": pd.DataFrame({"n": [1, 2], "odd": values}) for at, (values, _) in enumerate(_ODD.values())}
    with SqlSession(frames=frames) as opened:
        for frame, (name, (_, texts)) in zip(frames, _ODD.items(), strict=True):
            found = opened.query(f"select n, odd from {frame}", isolated=isolated)
            assert found.to_rows() == [[1, texts[0]], [2, texts[1]]], name


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        ([("k", dt.datetime(2024, 1, 1))], "MAP(VARCHAR, TIMESTAMP)", {"k": "2024-01-01 00:00:00"}),  # noqa: DTZ001
        ([("k", 1), ("l", 2)], "MAP(VARCHAR, BIGINT)", {"k": 1, "l": 2}),
        ([1, dt.date(2024, 1, 1)], "VARCHAR", '[1, "2024-01-01"]'),
        (np.zeros((1, 2)), "VARCHAR", "[[0.0, 0.0]]"),
    ],
)
def test_objects_are_maps_or_told_as_text_and_stop_no_other_column(value: Any, kind: str, shown: Any) -> None:
    frame = pd.DataFrame({"n": [1, 2], "odd": pd.Series([value, None], dtype=object)})
    with SqlSession(frames={"frame": frame}) as opened:
        result = opened.query("select n, typeof(odd), odd from frame")
        assert result.to_rows()[0] == [1, kind, shown]
        assert ("as text: odd" in result.footer()) is (kind == "VARCHAR")


@pytest.mark.parametrize("kind", [pd.Timestamp, dt.datetime])
def test_moments_with_a_zone_beside_others_without_are_told_as_text(kind: Any) -> None:
    """As moments, the others would be some hours off."""
    values = [kind(2024, 1, 1, 10), kind(2024, 1, 1, 10, tzinfo=dt.timezone(dt.timedelta(hours=2)))]
    with SqlSession(frames={"frame": pd.DataFrame({"t": pd.Series(values, dtype=object)})}) as opened:
        result = opened.query("select t from frame")
        assert result.to_rows() == [["2024-01-01 10:00:00"], ["2024-01-01 10:00:00+02:00"]]
        assert "as text: t" in result.footer()


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_thirty_hours_are_thirty_hours_wherever_a_frame_is_read(isolated: bool) -> None:
    frame = pd.DataFrame({"t": pd.to_timedelta(["30:00:00", None])})
    with SqlSession(frames={"frame": frame}) as opened:
        assert opened.query("from frame", isolated=isolated).to_rows() == [["30:00:00"], [None]]


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("others", [{}, {"t": pd.to_timedelta(["1h", "30h", None])}])
def test_categories_have_their_order_and_wide_numbers_their_type_wherever_a_frame_is_read(
    others: dict[str, Any], isolated: bool
) -> None:
    sizes = pd.Categorical(["low", "it's high", "mid"], categories=["low", "mid", "it's high"])
    frame = pd.DataFrame({"c": sizes, "n": [2**64, 2**70, -1], **others})
    with SqlSession(frames={"f": frame}) as session:
        found = session.query("select c, n from f order by c", isolated=isolated)
    assert found.types == ("ENUM('low', 'mid', 'it''s high')", "HUGEINT")
    assert found.to_rows() == [["low", 2**64], ["mid", -1], ["it's high", 2**70]]


def test_numbers_of_two_bytes_are_read_beside_intervals() -> None:
    frame = pd.DataFrame({"t": pd.to_timedelta(["1h"]), "half": pd.Series([1.5], dtype="float16")})
    with SqlSession(frames={"frame": frame}) as opened:
        assert opened.query("select half from frame").to_rows() == [[1.5]]


def test_truth_values_behind_many_numbers_are_read() -> None:
    frame = pd.DataFrame({"o": pd.Series([*range(3000), True], dtype=object)})
    with SqlSession(frames={"frame": frame}) as opened:
        assert opened.query("select o from frame offset 2999").to_rows() == [["2999"], ["true"]]


def test_the_widest_numbers_of_polars_are_texts() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": polars.Series([2**100], dtype=polars.Int128), "b": [1]})
    with SqlSession(frames={"frame": frame}) as opened:
        assert opened.query("from frame").to_rows() == [[str(2**100), 1]]


def test_columns_that_duckdb_has_no_type_for_are_text_and_the_footer_says_so() -> None:
    polars = pytest.importorskip("polars")
    frames = {
        "odd": pd.DataFrame({"n": [1, 5], "bin": pd.cut([1, 5], [0, 3, 6]), "mixed": [1, "a"]}),
        "objects": polars.DataFrame({"n": [1], "o": polars.Series([Path("x")], dtype=polars.Object)}),
        "plain": pd.DataFrame({"n": [1]}),
        "facts": {"a": 1},
    }
    with SqlSession(frames=frames) as opened:
        result = opened.query("select n, bin from odd")
        assert result.to_rows() == [[1, "(0, 3]"], [5, "(3, 6]"]]
        assert "read frame odd (as text: bin, mixed)" in result.footer()
        assert opened.query("select n, o from objects").to_rows() == [[1, "x"]]
        assert opened.query("from plain").notes == ()
        with pytest.raises(SqlInvalid, match="'facts' is a dict; SQL reads frames"):
            opened.query("from facts")


@pytest.mark.processes
def test_moments_of_a_frame_are_shown_in_its_own_time_zone() -> None:

    moments = pd.to_datetime(["2024-01-01 22:00", "2024-07-01 22:00"]).tz_localize("America/New_York")
    frame = pd.DataFrame({"t": moments})
    with SqlSession() as session:
        for each in (frame, pl.from_pandas(frame), pl.from_pandas(frame).lazy(), pa.Table.from_pandas(frame)):
            for isolated in (False, True):
                query = "select t, t::date as day, max(t) over () as last from d where t > '2024-07-01'"
                found = session.query(query, frames={"d": each}, isolated=isolated)
                assert found.to_rows() == [["2024-07-01 22:00:00-04:00", "2024-07-01", "2024-07-01 22:00:00-04:00"]]
                assert str(found.to_pandas()["t"].dtype).endswith("America/New_York]")
        with session.open_pages("(select t from d)", frames={"d": frame}) as pages:
            assert pages.cells(0, 1, [0]) == [["2024-01-01 22:00:00-05"]]
            assert pages.zone(0) == "America/New_York"
        zone = session.query("select current_setting('TimeZone')").to_rows()
        frame["utc"] = frame["t"].dt.tz_convert("UTC")
        query = "select current_setting('TimeZone') from d limit 1"
        assert session.query(query, frames={"d": frame}).to_rows() == zone  # they have two
        for hours, is_named in ((14, True), (15, False), (-12, True), (-13, False)):
            far = pd.DataFrame(
                {"t": pd.to_datetime(["2024-01-01"]).tz_localize(dt.timezone(dt.timedelta(hours=hours)))}
            )
            notes = session.query("from d", frames={"d": far}).notes
            assert any("in the time zone of the session" in note.text for note in notes) is not is_named


def test_decimals_that_are_no_numbers_cost_the_others_no_digit() -> None:
    digits = Decimal("123456789012.34")
    for values in ([digits, Decimal("NaN"), None], [Decimal("sNaN"), digits, None]):
        frame = pd.DataFrame({"d": values, "took": pd.to_timedelta(["1D", None, "2h"])})
        for one in (frame, frame[["d"]]):
            with SqlSession(frames={"f": one}.get) as session:
                asked = session.query("select d, typeof(d) from f order by d")
                assert asked.to_rows() == [[123456789012.34, "DECIMAL(14,2)"]] + [[None, "DECIMAL(14,2)"]] * 2
            shown = FrameSource(one).cells(None, range(3), [0])
            assert sorted(map(str, *zip(*shown, strict=True))) == ["123456789012.34", "None", "None"]
    with SqlSession(frames={"f": pd.DataFrame({"d": [digits, Decimal("Infinity")]})}.get) as session:
        asked = session.query("select d from f")
        assert asked.to_rows() == [["123456789012.34"], ["Infinity"]]
        assert "as text: d" in asked.footer()


_SAME_BUT_FOR_CASE = {"x": [1], "X": [2], "x_1": [3]}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table, pa.record_batch])
def test_columns_whose_names_differ_in_case_alone_are_each_read_and_the_renaming_is_told(make: Any) -> None:
    frame = make(_SAME_BUT_FOR_CASE)
    with SqlSession() as session:
        assert session.query("select x_1 from p", frames={"p": frame}).to_rows() == [[3]]
        result = session.query("from p", frames={"p": frame})
        assert (result.columns, result.to_rows()) == (("x", "X_2", "x_1"), [[1, 2, 3]])
        assert [str(note) for note in result.notes] == ["p: columns with the same name: X as X_2"]
        again = session.query("from r", frames={"r": session.query('select 1 as x, 2 as "X"')})
        assert again.columns == ("x", "X_1")
    assert [name for name, _ in frame_columns(frame)] == ["x", "X_2", "x_1"]


def test_names_that_are_one_to_sql_alone_stay_in_other_letters() -> None:
    frame = pd.DataFrame([[1, 2, 3, 4]], columns=["Ä", "ä", "v", "v"])
    with SqlSession() as session:
        result = session.query("from p", frames={"p": frame})
    assert result.columns == ("Ä", "ä", "v", "v_1")
    assert "v as v_1" in str(result.notes)
