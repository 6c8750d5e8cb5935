"""Results as files: written as they come, whole, and read back the same."""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import io
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import pytest

from nbtools.assembly.workbench import Workbench
from nbtools.contract.door import CallLimits
from nbtools.errors import (
    CallTimeout,
    FileAlreadyExists,
    InvalidArguments,
    LimitExceeded,
    PathNotAllowed,
    SqlFailed,
    SqlInvalid,
    SqlNotAllowed,
)
from nbtools.ground import aio
from nbtools.sql import SqlSession
from nbtools.sql.results.export import FORMS, RowSink
from nbtools.sql.results.rows import PythonRows

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


@pytest.fixture(scope="module")
def session() -> Iterator[SqlSession]:
    with SqlSession(max_bytes=100_000) as opened:
        yield opened


def written(session: SqlSession, sql: str, form: str, **more: Any) -> str:
    file = io.BytesIO()
    session.export(sql, file, form=form, **more)
    return file.getvalue().decode()


def test_the_rows_of_all_parts_are_counted() -> None:
    file = io.BytesIO()
    sink = RowSink(FORMS["csv"](file))
    with sink.finishing():
        for part in ([(1,), (2,)], [(3,)]):
            sink(("n",), PythonRows(("n",), part))
    assert (sink.parts, sink.rows, file.getvalue()) == (2, 3, b"n\n1\n2\n3\n")


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_values_of_every_kind_read_back(session: SqlSession, isolated: bool) -> None:
    assert json.loads(written(session, KINDS, "json", isolated=isolated))[1] == ROW
    rows = list(csv.DictReader(io.StringIO(written(session, KINDS, "csv", isolated=isolated))))
    assert rows[1] == {
        **{name: str(value) for name, value in ROW.items()},
        "gap": "",
        "b": "true",
        "l": "[1,2]",
    }


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_rows_beyond_all_memory_that_is_allowed_are_written(session: SqlSession, isolated: bool) -> None:
    sql = "select range as n from range(200_000)"
    with pytest.raises(LimitExceeded):
        session.query(sql, isolated=isolated)
    assert written(session, sql, "csv", isolated=isolated).splitlines() == ["n", *map(str, range(200_000))]
    assert written(session, sql, "csv", isolated=isolated, limit=2) == "n\n0\n1\n"


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("column", ["1 as a", "timetz '10:00:00+01' as a"])
def test_a_result_without_rows_has_its_columns(session: SqlSession, isolated: bool, column: str) -> None:
    empty = f"select {column}, 2 as a where 1 = 0"
    assert written(session, empty, "csv", isolated=isolated) == "a,a_1\n"
    assert json.loads(written(session, empty, "json", isolated=isolated)) == []


def test_names_that_occur_twice_lose_no_value(session: SqlSession) -> None:
    assert json.loads(written(session, "select 1 as a, 2 as a", "json")) == [{"a": 1, "a_1": 2}]


class _Full(io.BytesIO):
    def write(self, data: Any) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.processes
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
    endless = "select count(*) from range(100000000) a, range(100000000) b where a.range + b.range < 5"
    asks = (bench.query, lambda sql, **more: bench.export(sql, tmp_path / "rows.csv", **more))
    for ask in asks:
        for nonsense in (0, -5, float("nan")):
            with pytest.raises(InvalidArguments, match=f"timeout={nonsense!r}"):
                ask("select 1", timeout=nonsense)
    # What a call may take at most, without a time of its own, does not end one that has more.
    bench.door.limits = CallLimits(timeout=0.1)
    for ask in asks:
        with pytest.raises(CallTimeout, match="the query exceeded its time"):
            ask(endless, timeout=0.2)


def test_a_file_that_cannot_be_written_stays_as_it_was(bench: Workbench, tmp_path: Path) -> None:
    place = tmp_path / "rows.csv"
    place.write_text("mine")
    with pytest.raises(InvalidArguments, match="not a file that rows can be written to"):
        bench.export("select 1", tmp_path / "rows.txt")
    with pytest.raises(PathNotAllowed):
        bench.export("select 1", tmp_path.parent / "rows.csv")
    with pytest.raises(Exception, match="no"):
        bench.export("select if(range > 100_000, error('no'), 1) as n from range(200_000)", place, overwrite=True)
    with pytest.raises(FileAlreadyExists, match="exists already") as caught:
        bench.export("select 1 as one", place)
    assert "overwrite" in str(caught.value.hint)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("rows.csv", "mine")]
    bench.export("select 1 as one", place, overwrite=True)
    assert place.read_text() == "one\n1\n"


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_a_file_on_disk_has_the_values_that_a_file_in_memory_has(
    bench: Workbench, tmp_path: Path, isolated: bool
) -> None:
    odd = "'nan'::double as nan, '-inf'::double as inf, 1.5 as f, {'k': 1} as st, 1 as a, 2 as a, 'x' as \"q\"\"\""
    query = f"select *, {odd} from ({KINDS})"
    for form in ("csv", "json"):
        bench.export(query, tmp_path / f"rows.{form}", isolated=isolated)
    in_memory = written(bench.sql_session, query, "json")
    assert json.loads((tmp_path / "rows.json").read_text()) == json.loads(in_memory)
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert lines[0] == 'n,gap,s,b,d,l,big,"x,y",nan,inf,f,st,a,a_1,"q"""'
    assert lines[2].endswith('9007199254740993,0.1,nan,-inf,1.5,"{""k"":1}",1,2,x')


def test_later_decimals_may_have_more_digits_than_the_first(tmp_path: Path) -> None:
    with (tmp_path / "rows.parquet").open("wb") as file:
        sink = RowSink(FORMS["parquet"](file))
        with sink.finishing():
            for value in ("1.37", "98765432109876.55"):
                sink(("amount",), PythonRows(("amount",), [(Decimal(value),)]))
    found = duckdb.sql(f"from '{tmp_path / 'rows.parquet'}'").fetchall()
    assert found == [(Decimal("1.37"),), (Decimal("98765432109876.55"),)]


def test_what_a_parquet_file_has_no_type_for_is_told(bench: Workbench, tmp_path: Path) -> None:
    count = bench.export(
        "select interval 3 second as i, [interval 1 day] as l, 1 as n, null as e", tmp_path / "i.parquet"
    )
    assert count.notes == (
        "i: written as text, because Parquet has no type INTERVAL",
        "l: written as text, because Parquet has no type INTERVAL[]",
    )
    number = 2**127 - 1
    with pytest.raises(SqlFailed, match=rf"^{number} is too wide for a Parquet file") as refused:
        bench.export(f"select {number}::hugeint as h", tmp_path / "h.parquet")
    assert "CAST(COLUMN AS VARCHAR)" in str(refused.value.hint)


def test_rows_of_a_database_without_types_become_parquet_and_excel(bench: Workbench, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("openpyxl")
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("create table t (a, b)")
        shop.executemany("insert into t values (?, ?)", [(1, None), (2, "=1+1"), (3, "x\x07")])
        shop.execute("create table s as select * from t where a < 3")
        shop.execute("create table mixed (a)")
        shop.executemany("insert into mixed values (?)", [(n if n < 9_000 else "late",) for n in range(9_001)])
        shop.commit()
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    assert bench.export("select * from t", tmp_path / "rows.parquet", connection=url) == 3
    assert bench.export("select * from s", tmp_path / "rows.xlsx", connection=url) == 2
    assert bench.sql(f"from '{tmp_path / 'rows.parquet'}'")["b"].tolist()[1:] == ["=1+1", "x\x07"]
    assert bench.sql(f"from '{tmp_path / 'rows.xlsx'}'")["b"].tolist()[1:] == ["=1+1"]
    with pytest.raises(InvalidArguments, match="values of several types"):
        bench.export("select * from mixed", tmp_path / "mixed.parquet", connection=url)
    assert not (tmp_path / "mixed.parquet").exists()


def test_cells_of_excel_have_the_kinds_of_their_values(bench: Workbench, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    count = bench.export(
        "select date '2024-02-29' as d, timestamp '2024-02-29 10:30:00.5' as t, time '10:30:00' as h,"
        " 1.50::decimal(9,2) as n, true as b, '=1+1' as f, 9007199254740993 as w, date '1850-01-01' as o,"
        " interval '26 hours' as i, timestamptz '2024-01-01 00:00:00+00' as z, [1, 2] as l, 'nan'::double as x,"
        " 0.1::float as r, -interval '1 hour' as j",
        tmp_path / "rows.xlsx",
    )
    sheet = openpyxl.load_workbook(tmp_path / "rows.xlsx").active
    head, row = sheet.rows
    assert [cell.value for cell in row] == [
        *(dt.datetime.fromisoformat("2024-02-29"), dt.datetime.fromisoformat("2024-02-29T10:30:00.500")),
        *(dt.time(10, 30), 1.5, True, "=1+1"),
        *(
            "9007199254740993",
            "1850-01-01",
            dt.timedelta(hours=26),
            "2024-01-01 00:00:00+00:00",
            "[1, 2]",
            "nan",
            0.1,
            "-01:00:00",
        ),
    ]
    assert [row[at].data_type for at in (0, 5)] == ["d", "s"]
    assert (head[0].font.b, sheet.freeze_panes, sheet.column_dimensions["B"].width > 20) == (True, "A2", True)
    reasons = {
        "w": "numbers of Excel have 15 digits",
        "o": "dates of Excel begin in 1900",
        "z": "dates and times of Excel have no time zone",
        "x": "Excel has no such number",
        "j": "Excel has no times below zero",
    }
    text = "1 value written as text, which sums of Excel skip:"
    lists = "l: 1 value written as JSON, because a cell of Excel has no lists"
    assert {*count.notes} == {lists, *(f"{name}: {text} {why}" for name, why in reasons.items())}


def test_the_first_days_that_excel_has_are_dates_of_it(bench: Workbench, tmp_path: Path) -> None:
    """Excel counts a day too many, the 29th of February 1900, which is day 60."""
    openpyxl = pytest.importorskip("openpyxl")
    days = ["1900-01-01 12:00:00", "1900-02-28 23:59:59", "1900-03-01 00:00:00"]
    sql = f"select unnest({days})::timestamp as t"
    assert bench.export(sql, tmp_path / "rows.xlsx").notes == ()
    sheet = openpyxl.load_workbook(tmp_path / "rows.xlsx").active
    assert [str(cell.value) for cell in sheet["A"][1:]] == days
    assert bench.sql(f"select t::varchar as t from '{tmp_path}/rows.xlsx' order by t")["t"].to_list() == days


@pytest.mark.parametrize(
    ("value", "change"), [("repeat('x', 40000)", "left(x, 32767)"), ("'a' || chr(11)", "replace(x, chr(11), '')")]
)
def test_what_a_cell_of_excel_cannot_hold_is_refused(bench: Workbench, tmp_path: Path, value: str, change: str) -> None:
    pytest.importorskip("openpyxl")
    with pytest.raises(InvalidArguments, match=r"row 1 of 'v' has .*which a cell of Excel cannot hold") as refused:
        bench.export(f"select {value} as v", tmp_path / "rows.xlsx")
    assert change in str(refused.value.hint)
    assert bench.export(f"select {change} as v from (select {value} as x)", tmp_path / "rows.xlsx") == 1


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_a_single_column_of_csv_loses_no_row(bench: Workbench, tmp_path: Path, isolated: bool) -> None:
    bench.export("select * from (values (1), (null), (3)) as t(a)", tmp_path / "one.csv", isolated=isolated)
    assert (tmp_path / "one.csv").read_text() == 'a\n1\n""\n3\n'


def test_a_sheet_of_excel_has_an_end(bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openpyxl")
    monkeypatch.setattr("nbtools.sql.results.export.MOST_SHEET_ROWS", 11)
    assert bench.export("from range(10)", tmp_path / "rows.xlsx") == 10
    with pytest.raises(LimitExceeded, match="than a sheet of Excel can hold"):
        bench.export("from range(11)", tmp_path / "more.xlsx")
    assert not (tmp_path / "more.xlsx").exists()


def test_what_writes_a_form_is_imported_beside_the_loop(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    make = FORMS["csv"]
    monkeypatch.setitem(FORMS, "csv", lambda file: seen.append(threading.get_ident()) or make(file))

    async def loops_own() -> int:
        return threading.get_ident()

    assert bench.export("select 1 as a", tmp_path / "rows.csv") == 1
    assert seen
    assert aio.run(loops_own()) not in seen


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_a_disk_that_is_full_leaves_nothing(bench: Workbench, tmp_path: Path, isolated: bool) -> None:
    pytest.importorskip("pyarrow")
    script = (
        "import resource, signal, sys; from nbtools.assembly.workbench import Workbench\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"with Workbench(memory_url=':memory:', allowed_paths=[{str(tmp_path)!r}]) as wb:\n"
        f"    wb.query('select 1', isolated={isolated})\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "    for name, rows in (('x.parquet', 1_000_000), ('x.xlsx', 20_000)):\n"
        "        try:\n"
        f"            place = {str(tmp_path)!r} + '/' + name\n"
        f"            wb.export(f'select random() as x from range({{rows}})', place, isolated={isolated})\n"
        "        except Exception as exc:\n"
        "            print(type(exc).__name__, exc)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    told = ended.stdout.splitlines()
    assert told[0].startswith(("SqlFailed", "_WriteFailed"))
    assert "rows could not be written: File too large" in told[0]
    assert "File too large" in told[1]
    assert ended.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_python_ends_while_a_file_is_written(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    script = (
        "import sys, time, pyarrow as pa; from nbtools.sql.results.engine_copy import EngineCopy\n"
        "class Late:\n"
        "    def __del__(self, sleep=time.sleep): sleep(0.3)\n"
        "table = pa.table({'c0': range(200_000)})\n"
        "copy = EngineCopy(sys.argv[1], 'csv', ('a',), table.schema)\n"
        "copy.take(table); copy.take(table)\n"
        "while not copy._waiting.empty(): time.sleep(0.01)\n"
        "sys.late = Late()\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "x.csv"], check=True, timeout=30)


def test_what_is_copied_is_the_very_query_that_was_judged(bench: Workbench, tmp_path: Path) -> None:
    place = tmp_path / "rows.csv"
    for query in ("select 1 as a -- the end", "select 1 as a;", "select 1 as a /* x */ ;", "from (values (1)) t(a)"):
        assert bench.export(query, place, overwrite=True) == 1
        assert place.read_text() == "a\n1\n"
    for query in (
        f"select 1) to '{tmp_path}/other.csv' --",
        f"select 1); copy (select 2) to '{tmp_path}/other.csv' --",
        f"copy (select 1) to '{tmp_path}/other.csv'",
        "with a as (delete from t returning *) from a",
    ):
        with pytest.raises((SqlInvalid, SqlNotAllowed)):
            bench.export(query, place, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
    # In order, and without a word of what the query was bound to.
    bench.export("select i from range($n::int) t(i) order by i desc", place, params={"n": 200_000}, overwrite=True)
    assert place.read_text().splitlines()[1:] == [str(n) for n in range(199_999, -1, -1)]
