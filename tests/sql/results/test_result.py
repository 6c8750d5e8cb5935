"""Results: the same rows in every form, text that a model can afford, facts for the footer."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from nbtools.jupyter.display.query_frame import QueryFrame
from nbtools.sql import SqlSession
from nbtools.sql.engines.duckdb.statement import _PLAIN
from nbtools.sql.results.rows import ArrowRows, PythonRows, fold_name, unique_names
from nbtools.texts.values import jsonable

EVERY_TYPE = """
select 1::tinyint as i, 170141183460469231731687303715884105727::hugeint as h, 1.50::decimal(10, 2) as d,
    'nan'::double as nan, true as b, 'x' as s, date '2024-02-29' as day, time '10:00:01.5' as t,
    timestamp '2024-02-29 10:00:00' as ts, timestamptz '2024-02-29 10:00:00+00' as tz, interval 3 days as iv,
    [1, 2] as l, {'a': 1} as st, map {'k': 1} as m, 'ab'::blob as bl,
    uuid '00000000-0000-0000-0000-000000000001' as u, 'a'::enum('a', 'b') as e, null as n, '{"a": 1}'::json as js
"""


@pytest.fixture(scope="module")
def session() -> Iterator[SqlSession]:
    with SqlSession() as opened:
        yield opened


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_every_type_survives_in_every_form(session: SqlSession, isolated: bool) -> None:
    result = session.query(EVERY_TYPE, isolated=isolated)
    row = dict(zip(result.columns, result.to_rows()[0], strict=True))
    assert json.loads(json.dumps(row)) == row
    assert (row["i"], row["d"], row["nan"], row["b"], row["n"]) == (1, 1.5, "nan", True, None)
    assert (row["day"], row["t"], row["ts"]) == ("2024-02-29", "10:00:01.5", "2024-02-29 10:00:00")
    assert (row["l"], row["st"], row["e"], row["bl"]) == ([1, 2], {"a": 1}, "a", "0x6162")
    frame = result.to_pandas()
    assert frame["d"].dtype == "float64"
    assert str(frame["day"].dtype).startswith("datetime64")
    assert str(frame["tz"].dtype).endswith("UTC]")
    assert frame["iv"][0] == pd.Timedelta(days=3)
    assert frame["e"].dtype == "category"
    assert result.to_arrow().num_rows == 1
    assert result.to_polars().height == 1
    assert isinstance(result.text(), str)


def test_a_footer_begins_with_the_number_of_rows(session: SqlSession) -> None:
    footers = [session.query(f"from range({number})").footer() for number in (0, 1, 2_000)]
    assert [footer.partition(" · ")[0] for footer in footers] == ["0 rows", "1 row", "2,000 rows"]


def test_a_relation_goes_on_in_duckdb(session: SqlSession) -> None:
    import duckdb

    result = session.query("select range as n, 'x' as n from range(5)")
    assert result.to_relation().filter("n > 3").fetchall() == [(4, "x")]
    with duckdb.connect() as own:
        numbers = result.to_relation(own)
        assert numbers.columns == ["n", "n_1"]
        assert numbers.aggregate("sum(n)").fetchall() == [(10,)]
    same = session.query('select 1 as x, 2 as "X", 3 as x_1').to_relation()
    assert same.columns == ["x", "X_2", "x_1"]
    assert same.select("x_1, X_2, x").fetchall() == [(3, 2, 1)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select '101'::bit", "101"),
        ("select timetz '10:00:00+01'", "10:00:00+01"),
        ("select union_value(k := 5)", 5),
        ("select '290000-01-01'::date as d", None),
        ("select 'infinity'::timestamp as d", None),
    ],
)
def test_types_that_arrow_lacks_are_readable(session: SqlSession, sql: str, expected: Any) -> None:
    found = session.query(sql).to_rows()[0][0]
    assert found == expected if expected is not None else isinstance(found, str)


def test_moments_that_python_lacks_are_texts_of_iso_8601(session: SqlSession) -> None:
    first, second, last = "date '0001-12-31 (BC)'", "date '0002-01-01 (BC)'", "time '24:00:00'"
    moment = "timestamp '0001-01-01 (BC) 00:00:00'"
    result = session.query(f"select {first} as a, {moment} as b, [{first}, {second}] as c, {last} as d, [{last}] as e")
    years = ["0000-12-31", "0000-01-01 00:00:00", ["0000-12-31", "-0001-01-01"]]
    assert result.to_rows() == [[*years, "24:00:00", ["24:00:00"]]]


def test_names_that_occur_twice_are_kept(session: SqlSession) -> None:
    result = session.query("select 1 as a, 2 as a")
    assert result.columns == ("a", "a")
    assert list(result.to_pandas().columns) == ["a", "a"]
    assert result.to_polars().columns == ["a", "a_1"]
    assert unique_names(["a", "a", "a_1", "a"]) == ["a", "a_2", "a_1", "a_3"]
    assert unique_names(["a", "A", "ä", "Ä", "A_1"]) == ["a", "A", "ä", "Ä", "A_1"]
    assert unique_names(["a", "A", "ä", "Ä", "A_1", "a"], fold_name) == ["a", "A_2", "ä", "Ä", "A_1", "a_3"]


def test_json_keeps_what_it_can_exactly() -> None:
    cases = [
        (decimal.Decimal(5), 5),
        (decimal.Decimal("5.10"), 5.1),
        (decimal.Decimal("0.1234567890123456789012345"), "0.1234567890123456789012345"),
        (float("inf"), "inf"),
        (dt.datetime(2024, 1, 1, 12), "2024-01-01 12:00:00"),  # noqa: DTZ001 - a naive one is the case
        (dt.timedelta(days=1), "1 day"),
        (dt.timedelta(hours=-30), "-1 day -06:00:00"),
        (b"\x01", "0x01"),
        ({1: (2, None)}, {"1": [2, None]}),
    ]
    assert [jsonable(value) for value, _ in cases] == [expected for _, expected in cases]


def test_the_text_for_models_is_compact(session: SqlSession) -> None:
    text = session.query("select 1 as id, 'a|b' as s, null as n").text()
    assert text == "id (integer) | s (varchar) | n (null)\n1 | a¦b | NULL\n(1 row)"


def test_long_results_lose_their_middle_and_say_so(session: SqlSession) -> None:
    text = session.query("select range as id from range(1000)", limit=500).text(max_rows=10)
    lines = text.splitlines()
    assert lines[1:8] == [str(n) for n in range(7)]
    assert lines[8] == "… 490 rows not shown …"
    assert lines[9:12] == ["497", "498", "499"]
    assert lines[12] == "(500 rows; there are more, the result was cut)"


def test_long_cells_and_wide_tables_stay_below_the_budget(session: SqlSession) -> None:
    wide = ", ".join(f"repeat('x', 500) as column_{n}" for n in range(60))
    text = session.query(f"select {wide} from range(40)").text(max_chars=4_000)
    assert len(text) <= 4_500
    assert "…(+" in text
    assert "rows not shown" in text


def test_line_breaks_do_not_break_the_table(session: SqlSession) -> None:
    assert "a⏎b" in session.query("select 'a' || chr(10) || 'b' as s").text()


def test_a_result_shows_itself_in_a_notebook(session: SqlSession) -> None:
    result = session.query("select '<b>' as s")
    assert "&lt;b&gt;" in result._repr_html_()
    assert str(result) == result.text()
    assert len(result) == 1
    assert "rows" not in repr(result).replace("row_count", "")


def test_a_result_hands_its_rows_to_any_arrow_library(session: SqlSession) -> None:
    import pyarrow as pa

    assert pa.table(session.query("select 1 as a")).to_pydict() == {"a": [1]}


def test_python_rows_find_their_types() -> None:
    day = dt.date(2024, 1, 1)
    rows = PythonRows(
        ["d", "t", "n", "x"], [(day, dt.timedelta(1), decimal.Decimal("1.5"), 1), (None, None, None, "a")]
    )
    frame = rows.to_pandas()
    assert [str(kind)[:9] for kind in frame.dtypes] == ["datetime6", "timedelta", "float64", "object"]
    assert rows.to_arrow().column(3).to_pylist() == ["1", "a"]


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_whole_numbers_that_a_float_would_round_keep_all_their_digits(session: SqlSession, isolated: bool) -> None:
    sql = """
    select sum(i) as total, max(if(i % 2 = 1, i, null)) as largest, any_value(g) as gap, any_value(h) as huge,
           any_value(u) as unsigned, sum(i % 2) as small
    from (select 9007199254740993 + range as i, null::bigint as g, null::hugeint as h, null::ubigint as u from range(3))
    union all select null, null, 9007199254740993, 1180591620717411303424, 18446744073709551615, null
    """
    frame = session.query(sql, isolated=isolated).to_pandas()

    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        "total": "Int64",
        "largest": "Int64",
        "gap": "Int64",
        "huge": "object",
        "unsigned": "UInt64",
        "small": "float64",
    }
    assert frame["total"][0] == 9007199254740993 * 3 + 3
    assert frame["largest"][0] == 9007199254740995
    assert [frame["gap"][1], frame["huge"][1], frame["unsigned"][1]] == [2**53 + 1, 2**70, 2**64 - 1]
    whole = session.query("select sum(i) as s from (values (9007199254740993), (1)) t(i)", isolated=isolated)
    assert whole.to_pandas()["s"].tolist() == [9007199254740994]


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_the_sum_of_integers_is_an_integer(session: SqlSession, isolated: bool) -> None:
    frame = session.query("select sum(i) as s, sum(i / 2) as r from range(4) t(i)", isolated=isolated).to_pandas()
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {"s": "int64", "r": "float64"}
    assert frame["s"][0] == 6


def test_python_rows_keep_the_sum_of_integers_whole() -> None:
    rows = [(decimal.Decimal(6), decimal.Decimal("6.00"), decimal.Decimal(6)), (decimal.Decimal(7), None, None)]
    frame = PythonRows(["sum", "price", "gap"], rows).to_pandas()
    assert [str(kind) for kind in frame.dtypes] == ["int64", "float64", "float64"]


def test_python_rows_keep_all_digits_of_whole_numbers() -> None:
    rows = [
        (2**53 + 1, decimal.Decimal(2**53 + 1), 2**70, 1e300, decimal.Decimal("Infinity")),
        (None, decimal.Decimal(0), None, None, None),
    ]
    frame = PythonRows(["gap", "decimal", "huge", "real", "endless"], rows).to_pandas()

    assert [str(kind) for kind in frame.dtypes] == ["Int64", "int64", "object", "float64", "float64"]
    assert [frame["gap"][0], frame["decimal"][0], frame["huge"][0]] == [2**53 + 1, 2**53 + 1, 2**70]


EXACT = "123456789012345678901234567.89"


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (["99999999999999.9", "-99999999999999.9"], False),  # 15 digits
        (["123456789012345.7"], False),  # 16 digits, and a float shows them all
        (["900719925474099.3", "1.5"], True),
        (["-900719925474099.3"], True),
        (["0.1", None], False),
        ([None], False),
    ],
)
def test_a_column_of_decimals_stays_exact_where_one_of_them_needs_it(texts, kept) -> None:
    pa = pytest.importorskip("pyarrow")
    values = [text if text is None else decimal.Decimal(text) for text in texts]
    frame = ArrowRows(pa.table({"d": pa.array(values, pa.decimal128(30, 1))})).to_pandas()
    assert frame["d"].dtype == ("object" if kept else "float64")
    assert frame["d"].dropna().to_list() == [value if kept else float(value) for value in values if value is not None]


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_decimals_keep_digits_that_a_float_would_lose(session, isolated):
    given = f"select {EXACT}::decimal(30, 2) as d, 1.10::decimal(30, 2) as e union all select null, 2.25"
    frame = session.query(f"{given} order by d nulls last", isolated=isolated).to_pandas()
    assert frame["d"].to_list() == [decimal.Decimal(EXACT), None]
    assert (frame["e"].dtype, frame["e"].to_list()) == (float, [1.1, 2.25])
    python = PythonRows(
        ["d", "e"], [(decimal.Decimal(EXACT), decimal.Decimal("1.10")), (None, decimal.Decimal("2.25"))]
    )
    assert [python.to_pandas()[name].to_list() for name in "de"] == [frame[name].to_list() for name in "de"]


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ("1 month", "1 month"),
        ("2 years 3 days 4:05:06", "2 years 3 days 04:05:06"),
        ("-90 minutes", "-01:30:00"),
    ],
)
def test_an_interval_is_written_in_words_where_json_is_wanted(session, interval, text):
    assert session.query(f"select interval '{interval}' as i").to_rows() == [[text]]


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_lines_that_were_skipped_for_other_columns_are_told(tmp_path, isolated):
    (tmp_path / "ragged.csv").write_text("a,b\nx,y\nz\n4,5,6\n")
    (tmp_path / "plain.csv").write_text("a,b\n1,2\n")
    with SqlSession(allowed_paths=[tmp_path]) as opened:
        asked = [opened.query(f"select * from '{tmp_path / n}.csv'", isolated=isolated) for n in ("ragged", "plain")]
    assert [found.to_rows() for found in asked] == [[[4, 5, 6]], [[1, 2]]]
    assert ["without its first 3 lines, whose columns differ" in found.footer() for found in asked] == [True, False]


@pytest.mark.parametrize("kind", sorted(_PLAIN))
def test_values_that_are_only_shown_look_the_same_and_need_no_arrow(session: SqlSession, kind: str) -> None:
    values = {"BOOLEAN": "true", "VARCHAR": "'a|b\u00e9\n'", "DOUBLE": "0.1::float + 1e-7"}.get(kind, "100")
    query = f"select ({values})::{kind} as v union all select null union all select ('0')::{kind}"
    if kind == "DOUBLE":
        query += " union all select 'nan'::double union all select '-inf'::double union all select 1e300"
    kept = session.query(query)
    with SqlSession() as other:
        other.only_shown = True
        shown = other.query(query)
    assert isinstance(shown.rows, PythonRows)
    assert type(kept.rows) is not PythonRows
    assert (shown.text(), shown.types, shown.rows.to_lists()) == (kept.text(), kept.types, kept.rows.to_lists())


def _calls_to_show(columns: int) -> int:
    with SqlSession() as session:
        frame = QueryFrame.from_result(session.query(f"select {', '.join(f'{n} as c{n}' for n in range(columns))}"))
    calls: list[str] = []
    sys.setprofile(lambda _, event, __: calls.append(event) if event == "call" else None)
    try:
        repr(frame)
    finally:
        sys.setprofile(None)
    return len(calls)


def test_a_wide_frame_is_shown_without_a_look_at_all_names_for_each_column() -> None:
    assert _calls_to_show(2_000) - _calls_to_show(1_000) < 20_000


def test_a_column_that_a_person_sets_is_shown_as_it_was_set() -> None:
    with SqlSession() as session:
        frame = QueryFrame.from_result(session.query("select unnest([1, null]) as a, unnest([2, null]) as b"))
    assert "1.0" not in repr(frame)
    frame["a"] = [10.0, 20.0]
    assert "10.0" in repr(frame)
    assert "<NA>" in repr(frame)
