"""Results as files: written as they come, whole, and read back the same."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from nbtools.door import CallLimits
from nbtools.errors import CallTimeout, InvalidArguments, LimitExceeded, PathNotAllowed, SqlFailed
from nbtools.sql import SqlSession
from nbtools.workbench import Workbench

KINDS = """
select range as n, if(range = 1, null, range) as gap, 'a,"b"\u00fc' as s, true as b, date '2024-02-29' as d,
    [1, 2] as l,
    9007199254740993 as big, 0.1::decimal(3, 1) as "x,y" from range(3)
"""
ROW = {
    "n": 1,
    "gap": None,
    "s": 'a,"b"\u00fc',
    "b": True,
    "d": "2024-02-29",
    "l": [1, 2],
    "big": 9007199254740993,
    "x,y": 0.1,
}


@pytest.fixture
def session() -> Iterator[SqlSession]:
    with SqlSession(max_bytes=100_000) as opened:
        yield opened


def written(session: SqlSession, sql: str, form: str, **more: Any) -> str:
    file = io.BytesIO()
    session.export(sql, file, form=form, **more)
    return file.getvalue().decode()


@pytest.mark.parametrize("isolated", [False, True])
def test_values_of_every_kind_read_back(session: SqlSession, isolated: bool) -> None:
    assert json.loads(written(session, KINDS, "json", isolated=isolated))[1] == ROW
    rows = list(csv.DictReader(io.StringIO(written(session, KINDS, "csv", isolated=isolated))))
    assert rows[1] == {
        **{name: str(value) for name, value in ROW.items()},
        "gap": "",
        "l": "[1, 2]",
    }


@pytest.mark.parametrize("isolated", [False, True])
def test_rows_beyond_all_memory_that_is_allowed_are_written(session: SqlSession, isolated: bool) -> None:
    sql = "select range as n from range(200_000)"
    with pytest.raises(LimitExceeded):
        session.query(sql, isolated=isolated)
    assert written(session, sql, "csv", isolated=isolated).splitlines() == ["n", *map(str, range(200_000))]
    assert written(session, sql, "csv", isolated=isolated, limit=2) == "n\n0\n1\n"


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("column", ["1 as a", "timetz '10:00:00+01' as a"])
def test_a_result_without_rows_has_its_columns(session: SqlSession, isolated: bool, column: str) -> None:
    empty = f"select {column}, 2 as a where 1 = 0"
    assert written(session, empty, "csv", isolated=isolated) == "a,a\n"
    assert json.loads(written(session, empty, "json", isolated=isolated)) == []


def test_names_that_occur_twice_lose_no_value(session: SqlSession) -> None:
    assert json.loads(written(session, "select 1 as a, 2 as a", "json")) == [{"a": 1, "a_1": 2}]


class _Full(io.BytesIO):
    def write(self, data: Any) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("isolated", [False, True])
def test_what_goes_wrong_in_writing_is_raised_and_harms_nothing(session: SqlSession, isolated: bool) -> None:
    full: BinaryIO = _Full()
    with pytest.raises(OSError, match="No space"):
        session.export("from range(1_000_000)", full, isolated=isolated)
    assert session.query("select 1", isolated=isolated).to_rows() == [[1]]


class _Last(io.BytesIO):
    """Takes the rows, and has no room for what ends the file."""

    def write(self, data: Any) -> int:
        if data == b"]\n":
            raise OSError(28, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("file", [_Full, _Last])
def test_a_full_disk_is_an_error_of_the_query_with_a_hint(session: SqlSession, file: Callable[[], BinaryIO]) -> None:
    with pytest.raises(SqlFailed, match="the rows could not be written: No space left on device") as caught:
        session.export("from range(10)", file(), form="json")
    assert "free space" in str(caught.value.hint)


def test_a_closed_pipe_stays_what_it_is(session: SqlSession) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError), os.fdopen(writer, "wb", buffering=0) as file:
        session.export("from range(10)", file)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    with Workbench(memory_url=":memory:", allowed_paths=[tmp_path], sql_max_bytes=100_000) as opened:
        yield opened


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_file_is_written_whole_below_the_folders(bench: Workbench, tmp_path: Path, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    place = tmp_path / "new" / f"rows.{form}"
    assert bench.export("select range as n from range(:m)", place, params={"m": 70_000}) == 70_000
    assert bench.sql(f"select count(*) as c, sum(n) as s from '{place}'").to_numpy().tolist() == [
        [70_000, 70_000 * 69_999 // 2]
    ]
    (last,) = (call for call in bench.call_records() if call["tool"] == "sql_export")
    assert (last["tool"], last["ok"], last["arguments"]["to"]) == ("sql_export", True, str(place))


def test_a_query_has_the_time_that_it_is_given(bench: Workbench, tmp_path: Path) -> None:
    bench.door.limits = CallLimits(timeout=0.1)
    endless = "select count(*) from range(100000000) a, range(100000000) b where a.range + b.range < 5"
    for ask in (bench.query, lambda sql, **more: bench.export(sql, tmp_path / "rows.csv", **more)):
        with pytest.raises(CallTimeout, match="the query outlived its time"):
            ask(endless, timeout=0.6)
        for nonsense in (0, -5, float("nan")):
            with pytest.raises(InvalidArguments, match=f"timeout={nonsense!r}"):
                ask("select 1", timeout=nonsense)


def test_a_file_that_cannot_be_written_stays_as_it_was(bench: Workbench, tmp_path: Path) -> None:
    place = tmp_path / "rows.csv"
    place.write_text("mine")
    with pytest.raises(InvalidArguments, match="no file that rows can be written to"):
        bench.export("select 1", tmp_path / "rows.txt")
    with pytest.raises(PathNotAllowed):
        bench.export("select 1", tmp_path.parent / "rows.csv")
    with pytest.raises(Exception, match="no"):
        bench.export("select if(range > 100_000, error('no'), 1) as n from range(200_000)", place)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("rows.csv", "mine")]
