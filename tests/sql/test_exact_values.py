"""The same values from DuckDB, SQLite and PostgreSQL, for a person and for a model, with every digit."""

from __future__ import annotations

import itertools
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas.testing
import pytest

from nbtools.sql import SqlSession

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore:connection 'p")]

# A statement, its rows, and what pandas calls its columns.
Cases = dict[str, tuple[list[list[Any]], list[str]]]
BIG = 9007199254740993
ALL: Cases = {
    f"select a from (select {BIG} as a, 1 as n union all select null, 2) as t order by n": ([[BIG], [None]], ["Int64"]),
    "select 9223372036854775807 as a, -9223372036854775807 as b": (
        [[9223372036854775807, -9223372036854775807]],
        ["int64", "int64"],
    ),
    "select 'x' as a, 1.5 as c, cast(2 as integer) as d, cast('7' as smallint) as e": (
        [["x", 1.5, 2, 7]],
        ["str", "float64", "int32", "int16"],
    ),
    "select sum(a) as a, count(*) as n from (select 9007199254740992 as a union all select 1) as t": (
        [[BIG, 2]],
        ["int64", "int64"],
    ),
    "select cast(0.1 as double precision) as a, cast(null as integer) as b, cast(null as text) as c": (
        [[0.1, None, None]],
        ["float64", "float64", "str"],
    ),
    "select cast(1 as integer) as a, cast('x' as text) as b, cast(1 as bigint) as c where 1 = 0": (
        [],
        ["int32", "str", "int64"],
    ),
}
DATED: Cases = {
    "select date 'infinity' as a, date '-infinity' as b, date '2024-02-29' as c": (
        [["infinity", "-infinity", "2024-02-29"]],
        ["object", "object", "datetime64[ms]"],
    ),
    "select timestamp 'infinity' as a, timestamp '2024-02-29 10:00:00.5' as b": (
        [["infinity", "2024-02-29 10:00:00.5"]],
        ["object", "datetime64[us]"],
    ),
    "select * from (values (date 'infinity'), ('2024-01-01'), (null)) as t(a)": (
        [["infinity"], ["2024-01-01"], [None]],
        ["object"],
    ),
    "select timestamptz '2024-02-29 10:00:00+02' as a": ([["2024-02-29 08:00:00+00:00"]], ["datetime64[us, Etc/UTC]"]),
    "select time '24:00:00' as a, time '12:30:00' as b union all select time '01:00:00', null": (
        [["24:00:00", "12:30:00"], ["01:00:00", None]],
        ["object", "object"],
    ),
    "select date '0001-01-01' as a, date '10000-01-01' as b, timestamp '294246-12-31' as c": (
        [["0001-01-01", "10000-01-01", "294246-12-31 00:00:00"]],
        ["datetime64[ms]", "datetime64[ms]", "datetime64[us]"],
    ),
    "select date '0001-01-01' - 15000 as a": ([["-0041-12-08"]], ["datetime64[ms]"]),
    "select array[date 'infinity', null] as a, array[time '24:00:00'] as b": (
        [[["infinity", None], ["24:00:00"]]],
        ["object", "object"],
    ),
    "select interval '3 days 4 hours' as a, interval '-20 hours' as b": (
        [["3 days 04:00:00", "-20:00:00"]],
        ["timedelta64[us]", "timedelta64[us]"],
    ),
    "select cast(null as numeric(20, 3)) as a, cast(12345678901234567.125 as numeric(20, 3)) as b": (
        [[None, "12345678901234567.125"]],
        ["float64", "object"],
    ),
    "select uuid '12345678-1234-1234-1234-123456789012' as a, cast(1 as real) / cast(3 as real) as b, true as c": (
        [["12345678-1234-1234-1234-123456789012", 0.33333334, True]],
        ["str", "float32", "bool"],
    ),
}
RANGES: Cases = {
    f"select int8range(1, {BIG}) as a, daterange('2024-01-01', 'infinity') as b, 'empty'::numrange as c": (
        [[f"[1,{BIG})", "[2024-01-01,infinity)", "empty"]],
        ["str", "str", "str"],
    ),
    "select array[int4range(1, 5)] as a, int4multirange(int4range(1, 2)) as b": (
        [[["[1,5)"], "{[1,2)}"]],
        ["object", "str"],
    ),
    "select 'infinity'::interval as a, 'NaN'::numeric as b, 'Infinity'::numeric as c, 1e38::numeric(39) as d": (
        [["infinity", "NaN", "Infinity", 10**38]],
        ["str", "float64", "float64", "object"],
    ),
}
# Moments at any depth, which DuckDB's conversion to Python values would change.
NESTED: dict[str, Any] = {
    "[date 'infinity', null, date '2024-01-02']": ["infinity", None, "2024-01-02"],
    "{'x': date '-infinity', 'a \"b': [timestamp 'infinity', timestamp '2024-01-02 10:00:00.5']}": {
        "x": "-infinity",
        'a "b': ["infinity", "2024-01-02 10:00:00.5"],
    },
    "map {'a': date 'infinity', 'b': null}": {"a": "infinity", "b": None},
    "map {date 'infinity': 1, date '2024-01-01': 2}": {"infinity": 1, "2024-01-01": 2},
    "map {[date 'infinity']: {'d': date '2024-01-01'}}": {'["infinity"]': {"d": "2024-01-01"}},
    "map {[1]: '{\"a\": [1.50]}'::json}": {"[1]": {"a": [1.5]}},
    "array_value(date 'infinity', date '2024-01-01')": ["infinity", "2024-01-01"],
    "[union_value(d := date 'infinity')]": ["infinity"],
    "[timestamp_ns '2024-01-01 00:00:00.123456789']": ["2024-01-01 00:00:00.123456789"],
    "[timestamptz '2024-01-01 02:00:00+02', timestamptz 'infinity']": ["2024-01-01 00:00:00+00:00", "infinity"],
    "[date '0044-01-01 (BC)', date '-290000-01-01']": ["-0043-01-01", "-290000-01-01"],
    "[[time '24:00:00']]": [["24:00:00"]],
}
# SQLite has one kind of integer and one of float, and no types where there are no values.
_SQLITE = {"int16": "int64", "int32": "int64", "float32": "float64"}


@pytest.fixture(scope="module")
def session(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSession]:
    file = tmp_path_factory.mktemp("exact") / "a.sqlite"
    sqlite3.connect(file).close()
    urls = {"pg": postgres_url, "psycopg": postgres_url.replace("postgresql", "postgresql+psycopg", 1)}
    with SqlSession(connections={**urls, "lite": f"sqlite:///{file}"}) as opened:
        yield opened


def _known(connection: str | None) -> Cases:
    if connection == "lite":
        return ALL
    return {**ALL, **DATED, **({} if connection is None else RANGES)}


def _in_sqlite(dtype: str, rows: list[list[Any]], at: int) -> str:
    return "object" if all(row[at] is None for row in rows) else _SQLITE.get(dtype, dtype)


@pytest.mark.parametrize("connection", [None, "lite", "pg", "psycopg"])
def test_one_select_has_equal_values_and_exact_types_everywhere_for_a_person_and_a_model(
    session: SqlSession, connection: str | None
) -> None:
    for sql, (rows, exact) in _known(connection).items():
        mine, theirs = (session.query(sql, connection=connection, isolated=isolated) for isolated in (False, True))
        assert mine.types == theirs.types, sql
        dtypes = exact if connection != "lite" else [_in_sqlite(name, rows, at) for at, name in enumerate(exact)]
        for found in (mine, theirs):
            assert found.to_rows() == rows, sql
            frame = found.to_pandas()
            assert list(map(str, frame.dtypes)) == dtypes, sql
            for at, row in enumerate(rows):
                for index, value in enumerate(row):
                    cell = frame.iloc[at, index]
                    if isinstance(value, int) or "infinity" in str(value) or value == "24:00:00":
                        assert cell == value or list(cell) == value, sql
        pandas.testing.assert_frame_equal(mine.to_pandas(), theirs.to_pandas())
        assert mine.to_arrow().equals(theirs.to_arrow()), sql
        assert mine.to_polars().equals(theirs.to_polars()), sql


def test_special_moments_reach_arrow_and_polars_as_text(session: SqlSession) -> None:
    sql = "select date 'infinity' as a, time '24:00:00' as b, {'x': [timestamp '-infinity', null]} as c"
    for isolated in (False, True):
        found = session.query(sql, isolated=isolated)
        expected = {"a": "infinity", "b": "24:00:00", "c": {"x": ["-infinity", None]}}
        assert found.to_arrow().to_pylist() == [expected]
        assert found.to_polars().to_dicts() == [expected]
        # DuckDB reads its own numbers again: a later query sees dates.
        again = session.query("select isinf(a) as a, typeof(a) as b from f", frames={"f": found}).to_rows()
        assert again == [[True, "DATE"]]


def test_values_are_exact_without_pyarrow() -> None:
    checked = """
import json, sys
sys.modules["pyarrow"] = None
from nbtools.sql import SqlSession
told = []
with SqlSession() as session:
    for sql in json.loads(sys.argv[1]):
        for isolated in (False, True):
            found = session.query(sql, isolated=isolated)
            told.append([found.to_rows(), [str(kind) for kind in found.to_pandas().dtypes]])
print(json.dumps(told))
"""
    # UTC has another name.
    cases = {sql: case for sql, case in {**ALL, **DATED}.items() if "timestamptz" not in sql}
    cases |= {f"select {value} as a": ([[rows]], ["object"]) for value, rows in NESTED.items()}
    done = subprocess.run(
        [sys.executable, "-c", checked, json.dumps(list(cases))],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    expected = [list(case) for case in cases.values() for _ in range(2)]
    assert json.loads(done.stdout) == expected


def test_moments_inside_of_values_are_exact() -> None:
    with SqlSession() as session:
        for value, isolated in itertools.product(NESTED, (False, True)):
            assert session.query(f"select {value} as a", isolated=isolated).to_rows() == [[NESTED[value]]], value


def test_integers_in_lists_and_maps_keep_all_digits() -> None:
    big = 9007199254740993
    with SqlSession() as session:
        frame = session.query(
            f"select [{big}, null] as a, map {{'x': {big}, 'y': null}} as b, {{'c': [{big}, null]}} as c, [1, 2] as d"
        ).to_pandas()
    assert list(frame["a"][0]) == [big, None]
    assert dict(frame["b"][0]) == {"x": big, "y": None}
    assert list(frame["c"][0]["c"]) == [big, None]
    assert list(frame["d"][0]) == [1, 2]


def test_full_text_and_r_tree_tables_of_sqlite_are_read(tmp_path: Path) -> None:
    file = tmp_path / "f.sqlite"
    connection = sqlite3.connect(file)
    connection.execute("create virtual table notes using fts5(body)")
    connection.execute("create virtual table boxes using rtree(id, x0, x1)")
    connection.execute("insert into notes values ('green apples'), ('red pears')")
    connection.execute("insert into boxes values (1, 0, 10), (2, 20, 30)")
    connection.commit()
    connection.close()
    with SqlSession(connections={"f": f"sqlite:///{file}"}) as session:
        for isolated in (False, True):
            ask = {"connection": "f", "isolated": isolated}
            assert session.query("select body from notes where notes match 'apples'", **ask).to_rows() == [
                ["green apples"]
            ]
            assert session.query("select id from boxes where x0 < 5", **ask).to_rows() == [[1]]
            assert session.query("select highlight(notes, 0, '<', '>') as h from notes where notes match 'red'", **ask)
