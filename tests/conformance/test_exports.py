"""The matrix of sources and exports: a file has each value that the source has, or its entry in the table."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import functools
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nbtools.errors import NbtoolsError, SqlInvalid
from nbtools.sql import SqlSession, open_frame
from nbtools.texts.values import text_of
from tests.conformance.leaves import DOCUMENT, LEAVES, NESTINGS, WKB, query, read_back, texts_of, type_of
from tests.conftest import mostly_slow

pytestmark = pytest.mark.broad

pytest.importorskip("polars")

# Of each form, the leaves that it holds otherwise, and why.
OTHERWISE = {
    ("xlsx", "VARCHAR"): "Excel has no empty text: its empty cell is read as a missing value",
    ("xlsx", "BLOB"): "Excel has no bytes: they are a text of 0x and hexadecimal digits",
    ("xlsx", "TIME"): "Excel keeps times to the millisecond and drops what is finer",
    ("xlsx", "TIMESTAMP"): "Excel keeps times to the millisecond and drops what is finer",
    ("xlsx", "INTERVAL"): "Excel keeps times to the millisecond and drops what is finer",
    ("json", "BLOB"): "JSON has no bytes: they are the text that DuckDB shows for them",
    ("json", "GEOMETRY"): WKB,
    ("json", "JSON"): DOCUMENT,
    ("csv", "GEOMETRY"): WKB,
    ("xlsx", "GEOMETRY"): WKB,
}
# What PostgreSQL calls the types that it calls otherwise, and those that it has.
_PG_NAMES = {"FLOAT": "real", "DOUBLE": "double precision", "BIT": "varbit"}
_PG_TYPES = {
    *("SMALLINT", "INTEGER", "BIGINT", "DECIMAL(4,2)", "DECIMAL(38,10)", "FLOAT", "DOUBLE", "VARCHAR", "DATE", "TIME"),
    *("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIME WITH TIME ZONE", "UUID", "BIT", "BOOLEAN", "JSON"),
}
PG_LEAVES = tuple(leaf for leaf in LEAVES if type_of(leaf) in _PG_TYPES)


def pg_query(nesting: str) -> str:
    return query(nesting, PG_LEAVES, lambda leaf: _PG_NAMES.get(type_of(leaf), type_of(leaf)), "ARRAY")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSession]:
    folder = tmp_path_factory.mktemp("exports")
    with contextlib.chdir(folder), SqlSession(allowed_paths=[folder]) as opened:
        yield opened


def _frame(library: str) -> Callable[[SqlSession], tuple[str, dict[str, Any]]]:
    def source(session: SqlSession) -> tuple[str, dict[str, Any]]:
        result = session.query(f"SELECT * EXCLUDE n FROM ({query('bare')})")
        return "FROM f", {"frames": {"f": getattr(result, f"to_{library}")()}}

    return source


def _file(form: str) -> Callable[[SqlSession], tuple[str, dict[str, Any]]]:
    def source(session: SqlSession) -> tuple[str, dict[str, Any]]:
        with Path(f"source.{form}").open("wb") as file:
            session.export(f"SELECT * EXCLUDE n FROM ({query('bare')})", file, form=form)
        options = {"csv": ", all_varchar = true, allow_quoted_nulls = false", "xlsx": ", nullstr = ''"}.get(form, "")
        return f"FROM read_{form}('source.{form}'{options})", {}

    return source


def _sqlite(session: SqlSession) -> tuple[str, dict[str, Any]]:
    columns = [f"c{at}" for at in range(len(LEAVES))]
    rows = zip(*texts_of("bare").values(), strict=True)
    with contextlib.closing(sqlite3.connect("source.db")) as connection, connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS t ({', '.join(columns)})")
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(columns))})", rows)
    return "SELECT * FROM t LIMIT 3", {"connection": f"sqlite:///{Path('source.db').absolute()}"}


SOURCES = {
    "duckdb": lambda _: (f"SELECT * EXCLUDE n FROM ({query('bare')})", {}),
    **{name: _frame(name) for name in ("pandas", "polars", "arrow")},
    **{form: _file(form) for form in ("csv", "json", "parquet", "xlsx")},
    "sqlite": _sqlite,
}


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_written_of_a_source_is_what_the_source_has(session: SqlSession, source: str) -> None:
    sql, options = SOURCES[source](session)
    # Of JSON these are floats and parts of it already.
    leaves = tuple(leaf for leaf in LEAVES if source != "json" or leaf not in {"DECIMAL(38,10)", "JSON"})
    wrong = _differences(session, sql, tuple(LEAVES), options)
    assert not {(form, leaf): texts for (form, leaf), texts in wrong.items() if leaf in leaves}


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*superuser")
def test_what_is_written_of_postgres_is_what_the_server_has(session: SqlSession, postgres_url: str) -> None:
    assert not _differences(session, pg_query("bare"), PG_LEAVES, {"connection": postgres_url})


def _differences(session: SqlSession, sql: str, leaves: tuple[str, ...], options: dict[str, Any]) -> dict[Any, Any]:
    """Return what a form of file holds otherwise than the source, by the form and the leaf."""
    expected = read_back(session.query(sql, **options).to_arrow(), leaves, "bare")
    wrong = {}
    for form in ("csv", "json", "parquet", "xlsx"):
        with Path(f"x.{form}").open("wb") as file:
            session.export(sql, file, form=form, **options)
        found = read_back(_columns_of_file(session, form), leaves, "bare")
        wrong |= {
            (form, leaf): (found[leaf], texts)
            for leaf, texts in expected.items()
            # What cannot be read back from the source itself, such as bytes of SQLite's texts, proves nothing.
            if found[leaf] != texts and (form, type_of(leaf)) not in OTHERWISE and "Exception" not in str(texts)
        }
    return wrong


def _columns_of_file(session: SqlSession, form: str) -> Any:
    if form == "json":
        rows = json.loads(Path("x.json").read_text(), parse_float=str, parse_constant=pytest.fail)
        texts = [[None if each is None else text_of(each) for each in row.values()] for row in rows]
        return pa.table({name: list(column) for name, column in zip(rows[0], zip(*texts, strict=True), strict=True)})
    if form == "xlsx":
        return session.query("FROM read_xlsx('x.xlsx', nullstr = '')").to_arrow()
    options = ", all_varchar = true, allow_quoted_nulls = false" if form == "csv" else ""
    return duckdb.sql(f"FROM read_{form}('x.{form}'{options})").to_arrow_table()


@pytest.mark.processes
@pytest.mark.parametrize("nesting", ["bare", "list", "list with a gap"])
def test_a_postgres_server_hands_on_each_value(session: SqlSession, postgres_url: str, nesting: str) -> None:
    result = session.query(pg_query(nesting), connection=postgres_url)
    expected = texts_of(nesting, PG_LEAVES)
    found = read_back(result.to_arrow(), PG_LEAVES, nesting)
    assert {leaf: (found[leaf], texts) for leaf, texts in expected.items() if found[leaf] != texts} == {}


@pytest.mark.processes
def test_numbers_inside_of_the_json_of_a_server_keep_their_digits(session: SqlSession, postgres_url: str) -> None:
    sql = "SELECT '{\"a\": 12345678901234567890123.10}'::jsonb AS j, '10.0.0.1/8'::inet AS i, interval '14 months' AS m"
    result = session.query(sql, connection=postgres_url)
    assert result.to_rows() == [['{"a": 12345678901234567890123.10}', "10.0.0.1/8", "420 days"]]
    assert result.to_arrow().column("j").to_pylist() == ['{"a": 12345678901234567890123.10}']


@pytest.mark.parametrize("nesting", [name for name in NESTINGS if name != "map"])
def test_nested_values_are_valid_json_whatever_they_hold(session: SqlSession, nesting: str) -> None:
    leaves = tuple(leaf for leaf in LEAVES if type_of(leaf) not in {"BLOB", "GEOMETRY", "JSON", "DECIMAL(38,10)"})
    asked = f"SELECT * EXCLUDE n FROM ({query(nesting, leaves)})"
    result = session.query(asked)
    expected, sources = _of_moments(result.to_rows()), ((asked, {}), ("FROM f", {"f": result.to_arrow()}))
    for form in ("json",) if nesting == "bare" else ("json", "csv", "xlsx"):
        for sql, frames in sources:
            with Path(f"x.{form}").open("wb") as file:
                session.export(sql, file, form=form, frames=frames)
            if form == "json":
                rows = [
                    list(row.values()) for row in json.loads(Path("x.json").read_text(), parse_constant=pytest.fail)
                ]
            else:
                texts = zip(*_columns_of_file(session, form).to_pydict().values(), strict=True)
                rows = [[text and json.loads(text, parse_constant=pytest.fail) for text in row] for row in texts]
            assert _of_moments(rows) == expected, form


@pytest.mark.parametrize(
    "beside", ["1.5::FLOAT", "'nan'::DOUBLE", "union_value(n := 1)", "5::UHUGEINT", "'2024-01-01'::DATE"]
)
@pytest.mark.parametrize("nesting", [name for name in NESTINGS if name != "bare"])
def test_decimals_keep_their_digits_whatever_stands_beside_them(session: SqlSession, nesting: str, beside: str) -> None:
    digits = LEAVES["DECIMAL(38,10)"][0]
    inner = f"{{'d': {digits}::DECIMAL(38,10), 'u': union_value(n := {digits}::DECIMAL(38,10)), 'b': {beside}}}"
    sql = f"SELECT {NESTINGS[nesting](inner, inner)} AS v, '{{\"d\": {digits}}}'::JSON AS j"
    expected = 2 * NESTINGS[nesting]("#", "#").count("#") + 1
    for form in ("json", "csv", "xlsx"):
        with Path(f"x.{form}").open("wb") as file:
            session.export(sql, file, form=form)
        assert str(_columns_of_file(session, form).to_pydict()).count(digits) == expected, form


def test_what_excel_cuts_is_told_by_the_number_of_rows(session: SqlSession) -> None:
    sql = "SELECT timestamp '2024-01-01 10:00:00.123456' AS t, 0.30000000000000004::DOUBLE AS d, 'x' AS s"
    for form, notes in (("xlsx", ("t: 1 moment cut to the millisecond, as Excel does",)), ("csv", ())):
        with Path(f"cut.{form}").open("wb") as file:
            written = session.export(sql, file, form=form)
        assert (written, written.notes) == (1, notes)
    assert repr(written) == "1"
    assert session.query("FROM 'cut.xlsx'").to_rows() == [["2024-01-01 10:00:00.123", 0.30000000000000004, "x"]]


# What our own reader makes of a file, whose values are there: see `OTHERWISE` for what the file itself holds.
_READ_OTHERWISE = {
    ("parquet", "TIMESTAMP_S"): "Parquet counts microseconds here: the moment is the same, its type is finer",
    ("parquet", "TIMESTAMP_MS"): "Parquet counts microseconds here: the moment is the same, its type is finer",
    ("json", "DECIMAL(38,10)"): "a number with a decimal point is read as a float, of about 15 digits",
    ("json", "HUGEINT"): "inside lists and structs, numbers that a float would round are read as JSON",
    ("json", "FLOAT"): "JSON has no NaN or infinity: they are texts, and texts beside numbers are JSON",
    ("json", "DOUBLE"): "JSON has no NaN or infinity: they are texts, and texts beside numbers are JSON",
    ("json", "JSON"): "documents with the same keys are read as structs",
    ("csv", "DECIMAL(38,10)"): "numbers of more digits than a float has are read as texts",
    ("csv", "DOUBLE"): "nan in a column of numbers is read as a missing value, with a note",
    ("csv", "VARCHAR"): "an empty text is read as a missing value",
    ("csv", "VARCHAR AS WORDS"): "CSV has no types: the words true and false are read as truth values",
    ("xlsx", "VARCHAR"): "an empty cell is read as a missing value",
}


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("form", ["csv", "json", "parquet", "xlsx"])
def test_what_is_another_when_a_file_is_read_again_is_told(session: SqlSession, form: str, nesting: str) -> None:
    asked = f"SELECT * EXCLUDE n FROM ({query(nesting)}) WHERE n > 0"
    result = session.query(asked)
    with Path(f"told.{form}").open("wb") as file:
        told = {note.partition(":")[0] for note in session.export(asked, file, form=form).notes}
    again = session.query(f"FROM 'told.{form}'")
    columns, columns_again = (zip(*each.to_rows(), strict=True) for each in (result, again))
    changed = set()
    for at, (leaf, before, after) in enumerate(zip(LEAVES, columns, columns_again, strict=True)):
        is_equal = before == after and (form != "parquet" or result.types[at] == again.types[at])
        if not is_equal and f"c{at}" not in told and (form, leaf) not in _READ_OTHERWISE:
            changed.add((leaf, str(before)[:60], str(after)[:60]))
    assert changed == set()


@pytest.mark.parametrize(
    ("column", "form", "note"),
    [
        (pd.Series(["a", "b"], dtype="category"), "parquet", "x: written as text, because Parquet has no type ENUM"),
        (
            pd.Series(pd.to_datetime(["2024-01-01", None]).tz_localize("Europe/Berlin")),
            "parquet",
            "x: written in UTC, because Parquet keeps no time zone such as Europe/Berlin",
        ),
        (pd.Series(pd.to_datetime(["2024-01-01", None]).tz_localize("UTC")), "parquet", ""),
        (pd.Series([[1], None]), "csv", "x: written as JSON, because CSV has no type BIGINT[]"),
        (pd.Series([[1], None]), "xlsx", "x: 1 value written as JSON, because a cell of Excel has no lists"),
        (pd.Series([b"a", None]), "json", "x: written as text, because JSON has no type BLOB"),
    ],
)
def test_what_a_file_has_no_type_for_in_a_frame_is_told(session: SqlSession, column: Any, form: str, note: str) -> None:
    with Path(f"frame.{form}").open("wb") as file:
        written = session.export("FROM f", file, form=form, frames={"f": pd.DataFrame({"x": column})})
    assert written.notes == ((note,) if note else ())


def _of_moments(rows: list[list[Any]]) -> str:
    return json.dumps(rows).replace("+00:00", "+00").replace(' 00:00:00"', '"')


def test_floats_inside_of_maps_are_valid_json(session: SqlSession) -> None:
    sql = "SELECT MAP {'k': 'nan'::DOUBLE, 'l': 0.1::FLOAT} AS m, {'a': ['-inf'::FLOAT, 0.1, NULL]} AS s"
    for form in ("json", "csv"):
        with Path(f"m.{form}").open("wb") as file:
            session.export(sql, file, form=form)
    row = {"m": {"k": "nan", "l": 0.1}, "s": {"a": ["-inf", 0.1, None]}}
    row["m"]["l"] = pytest.approx(0.1)  # type: ignore[index]  # widened by the map's own type
    assert json.loads(Path("m.json").read_text(), parse_constant=pytest.fail) == [row]
    back = pd.read_csv("m.csv")
    assert [json.loads(back[name][0], parse_constant=pytest.fail) for name in row] == [*row.values()]


def test_intervals_in_parquet_are_text_where_no_file_is_open_either(session: SqlSession) -> None:
    file = io.BytesIO()
    session.export("SELECT interval '3 seconds 4 microseconds' AS i", file, form="parquet")
    assert pq.read_table(file).to_pylist() == [{"i": "00:00:03.000004"}]


def test_a_time_of_day_keeps_its_zone_outside_of_duckdb(session: SqlSession) -> None:
    result = session.query("SELECT '10:30:00+02'::TIMETZ AS t, ['10:30:00+02'::TIMETZ] AS l")
    assert result.to_arrow().to_pylist() == [{"t": "10:30:00+02", "l": ["10:30:00+02"]}]


def test_a_workbook_that_other_programs_wrote_has_cells_of_their_kinds(session: SqlSession) -> None:
    book = openpyxl.Workbook()
    columns = {
        "n": [1, None, 2.5],
        "t": ["007", None, "true"],
        "d": [pd.Timestamp("2024-02-29 10:30").to_pydatetime(), None, pd.Timestamp("2024-01-01").to_pydatetime()],
        "b": [True, None, False],
        "c": [dt.time(10, 30), None, dt.time(23, 59, 59)],
        "i": [dt.timedelta(days=3, seconds=3), None, "x"],
    }
    for row in [list(columns), *zip(*columns.values(), strict=True)]:
        book.active.append(row)
    book.save("kinds.xlsx")
    found = session.query("FROM 'kinds.xlsx'").to_rows()
    assert found == [
        [1.0, "007", "2024-02-29 10:30:00", True, "10:30:00", "3 days 00:00:03"],
        [None] * 6,
        [2.5, "true", "2024-01-01 00:00:00", False, "23:59:59", "x"],
    ]


_NANOS = pd.Timestamp("2024-01-01 00:00:00.123456789")
_MONTH = pa.array([(1, 2, 3000)], pa.month_day_nano_interval()).to_pylist()[0]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ([[_NANOS, pd.NaT], None], [["2024-01-01 00:00:00.123456789", None], None]),
        ([_NANOS, None], ["2024-01-01 00:00:00.123456789", None]),
        ([{"a": [float("nan"), 1.0, None]}, float("nan")], [{"a": ["nan", 1.0, None]}, None]),
        ([{"a": _MONTH}, None], [{"a": "1 month 2 days 00:00:00.000003"}, None]),
        ([{"a": float("nan")}, {"b": 2.5}], [{"a": "nan"}, {"b": 2.5}]),
        ([[{"x": 1}, {"y": 2}]], [[{"x": 1}, {"y": 2}]]),
        ([2**70, None], [2**70, None]),
        ([[pd.NA, 1]], [[None, 1]]),
    ],
)
def test_objects_inside_of_pandas_are_whole_isolated_or_not(session: SqlSession, values: Any, rows: Any) -> None:
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    for isolated in (False, True):
        assert session.query("FROM f", frames={"f": frame}, isolated=isolated).to_rows() == [[row] for row in rows]


# Of types that SQL lacks, or of which it has a coarser one: an Arrow array of a value, and its text.
_ODD: dict[str, tuple[Any, str]] = {
    "duration": (pa.array([1, None], pa.duration("ns")), "00:00:00.000000001"),
    "long duration": (pa.array([2**40, None], pa.duration("s")), "12725829 days 00:36:16"),
    "interval": (pa.array([(1, 2, 3), None], pa.month_day_nano_interval()), "1 month 2 days 00:00:00.000000003"),
    "decimal": (pa.array([decimal.Decimal(10) ** 60, None], pa.decimal256(70, 2)), f"1{'0' * 60}.00"),
    "half float": (pa.array(np.array([0.5, 1.5], "float16")), "0.5"),
    "time": (pa.array([1, None], pa.time64("ns")), "00:00:00.000000001"),
    "moment": (pa.array([1, None], pa.timestamp("ns", "UTC")), "1970-01-01 00:00:00.000000001+00:00"),
}


def _odd_frames(name: str) -> Iterator[Any]:
    array, polars = _ODD[name][0], pytest.importorskip("polars")
    lists = pa.ListArray.from_arrays([0, 1, 2], array)
    yield pa.table({"other": [1, 2], "x": array, "l": lists})
    yield pd.DataFrame({"other": [1, 2]}).assign(x=pd.arrays.ArrowExtensionArray(pa.chunked_array([array])), l=None)
    if name in {"duration", "time", "moment"}:
        frame = polars.from_arrow(pa.table({"other": [1, 2], "x": array, "l": lists}))
        yield from (frame, frame.lazy())
    if name in {"duration", "moment"}:
        yield pd.DataFrame({"other": [1, 2], "x": array.to_pandas(), "l": None})


@pytest.mark.processes
@pytest.mark.parametrize("name", _ODD)
def test_an_odd_column_of_a_frame_is_whole_and_the_others_can_be_asked(session: SqlSession, name: str) -> None:
    text = _ODD[name][1]
    for frame in _odd_frames(name):
        for isolated in (False, True):
            asked = functools.partial(session.query, frames={"f": frame}, isolated=isolated)
            assert asked("SELECT other, count(*) OVER () FROM f").to_rows() == [[1, 2], [2, 2]]
            result = asked("SELECT x, l FROM f LIMIT 1")
            value, values = result.to_rows()[0]
            assert str(value) == text
            assert values in (None, [value])
            if hasattr(frame, "collect"):  # of which nothing is known before it is asked
                continue
            is_text = result.types[0] == "VARCHAR"
            assert [note.text for note in result.notes if "text" in note.text] == ["as text: x"] * is_text
        if not hasattr(frame, "collect"):
            with open_frame(frame) as pages:
                assert pages.cells(0, 1, [1]) == [[text]]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (decimal.Decimal("1." + "1" * 45), "1." + "1" * 45),
        (dt.time(1, 2, 3, tzinfo=dt.UTC), "01:02:03+00:00"),
        (np.longdouble("0.5"), "0.5"),
        (1j, "1j"),
        ([1, "x"], '[1, "x"]'),
        ([{"a": 1}, {"a": "x"}], '[{"a": 1}, {"a": "x"}]'),
    ],
)
def test_what_no_type_of_sql_holds_is_text_isolated_or_not(session: SqlSession, value: Any, text: str) -> None:
    frame = pd.DataFrame({"other": [1], "x": pd.Series([value], dtype=object if isinstance(value, list) else None)})
    for isolated in (False, True):
        assert session.query("FROM f", frames={"f": frame}, isolated=isolated).to_rows() == [[1, text]]
    with open_frame(frame) as pages:
        assert pages.cells(0, 1, [1]) == [[text]]


def test_a_column_of_objects_is_what_they_are_or_their_text(session: SqlSession) -> None:
    for value, kind, text in (
        ([("k", pd.Timestamp("2024").to_pydatetime())], "MAP(VARCHAR, TIMESTAMP)", "{k='2024-01-01 00:00:00'}"),
        ({1, 2}, "VARCHAR", "{1, 2}"),
    ):
        frames = {"f": pd.DataFrame({"x": pd.Series([value], dtype=object)})}
        assert session.query("FROM f", frames=frames).types == (kind,)
        assert session.query("SELECT CAST(x AS VARCHAR) FROM f", frames=frames).to_rows() == [[text]]


def test_a_column_of_objects_without_a_type_is_refused_by_its_name(session: SqlSession) -> None:
    # Of the first values each has a type, and all are text where one has none; what comes later is refused.
    values = [[1]] * 200 + [[1, pd.Timestamp("2024").to_pydatetime()]]
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    with pytest.raises(SqlInvalid, match="the column x contains objects"):
        session.query("FROM f", frames={"f": frame})


# What DuckDB has beside the leaves; of the second ones Parquet has no form for the ends.
_RARE = ("union_value(x := 1)", "union_value(y := 'a')", "5::UHUGEINT", "'-0.1'::DECIMAL(20,3)", f"{'9' * 60}::BIGNUM")
_ENDS = ("170141183460469231731687303715884105727::HUGEINT", "340282366920938463463374607431768211455::UHUGEINT")


@pytest.mark.processes
@pytest.mark.parametrize("nesting", mostly_slow(NESTINGS, 3))
@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_file_is_the_same_wherever_it_lies(session: SqlSession, tmp_path: Path, form: str, nesting: str) -> None:
    """Below an allowed folder DuckDB's own COPY writes it, elsewhere rows of Arrow do, or Python."""
    rare = (*_RARE, *(_ENDS if form != "parquet" else ()))
    columns = ", ".join(f"{NESTINGS[nesting](value, value)} AS r{at}" for at, value in enumerate(rare))
    sql = f"SELECT * EXCLUDE n, {columns} FROM ({query(nesting)})"
    files = [Path(f"same.{form}"), tmp_path / f"same.{form}", tmp_path / f"isolated.{form}"]
    for path in files:
        with path.open("wb") as file:
            session.export(sql, file, form=form, isolated=path.stem == "isolated")
    own, *others = (_types_and_rows(path.read_bytes(), path) for path in files)
    assert [own == each for each in others] == [True, True], _first_difference(own, others)
    if form != "parquet":
        held = io.BytesIO()
        session.export(sql, held, form=form)
        by_python = _types_and_rows(held.getvalue(), files[0])
        assert by_python == own


def _types_and_rows(data: bytes, path: Path) -> Any:
    if path.suffix == ".parquet":
        read = duckdb.sql(f"FROM '{path}'")
        return [*map(str, read.types)], read.columns, str(read.fetchall())
    return json.loads(data, parse_float=str, parse_constant=pytest.fail) if path.suffix == ".json" else data.decode()


def _first_difference(own: Any, others: list[Any]) -> str:
    other = str(next(each for each in others if each != own))
    at = next((at for at, (a, b) in enumerate(zip(str(own), other, strict=False)) if a != b), 0)
    return f"{str(own)[max(0, at - 80) : at + 80]!r} is {other[max(0, at - 80) : at + 80]!r}"


@pytest.mark.processes
@pytest.mark.parametrize("value", _ENDS)
def test_numbers_that_parquet_cannot_hold_are_refused_wherever_the_file_lies(
    session: SqlSession, tmp_path: Path, value: str
) -> None:
    for path, isolated in ((Path("e.parquet"), False), (tmp_path / "e", False), (tmp_path / "e", True)):
        with path.open("wb") as file, pytest.raises(NbtoolsError, match="too wide for a Parquet file"):
            session.export(f"SELECT {value} AS c", file, form="parquet", isolated=isolated)
