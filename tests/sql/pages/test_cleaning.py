"""Cleaning by its SQL, and the same rows by code that runs without nbtools."""

from __future__ import annotations

import dataclasses
from typing import Any

import duckdb
import pandas as pd
import pytest

from nbtools.errors import InvalidArguments
from nbtools.sql.files.numbers import NUMBERS
from nbtools.sql.pages.cleaning import (
    cleaned,
    completed,
    effect_of,
    effect_query,
    expression_of,
    offer,
    offer_query,
    whole_query,
)
from nbtools.sql.pages.shape import Shape
from nbtools.sql.pages.spelling import spelled
from nbtools.sql.session import SqlSession
from nbtools.texts.sql_quotes import quote_text

pytestmark = pytest.mark.broad

FRAME = pd.DataFrame(
    {
        "n": range(8),
        "amount": ["1", "2.5", "N/A", None, "4", "x", "-", "7"],
        "day": ["2024-01-02", "03.02.2024", None, "x", "04.02.2024", "2024-01-05", "2024-01-02", "31.12.2023"],
        "city": [" Bern", "Chur ", None, "Bern", "N/A", " Chur ", "-", "Genf"],
        "sum": ["1.234,5", "3,5", "2,25", None, "12,0", "x", "9.999,0", "1,0"],
        "short sum": ["1,234.5", ".5", "-.5", None, "1.", "x", ".", "+7.e1"],
        "short": ["3/2/26", "13/2/2026", None, "x", "4.2.26", "2026-01-05", "1.2.2026", "31/12/99"],
        "a b": ["1", "2", "3", "x", None, "6", "7", "9007199254740993"],
    }
)
Steps = list[tuple[str, dict[str, Any]]]
EACH: list[Steps] = [
    [("amount", {"op": "number"})],
    [("amount", {"op": "missing", "words": ["N/A", "-"]})],
    [("amount", {"op": "missing", "words": ["N/A"]}), ("amount", {"op": "fill", "value": "none"})],
    [("sum", {"op": "number", "form": "1.234,5"}), ("sum", {"op": "fill", "value": "-1.5"})],
    [("short sum", {"op": "number", "form": "1,234.5"})],
    [("a b", {"op": "number", "whole": True})],
    [("a b", {"op": "cast", "type": "BIGINT"}), ("n", {"op": "cast", "type": "VARCHAR"})],
    [("day", {"op": "date", "forms": ["%Y-%m-%d", "%d.%m.%Y"]})],
    [("short", {"op": "date", "forms": ["%d/%m/%Y", "%Y-%m-%d", "%d.%m.%Y"]})],
    [("day", {"op": "cast", "type": "DATE"}), ("city", {"op": "cast", "type": "DOUBLE"})],
    [("short", {"op": "cast", "type": "DATE"})],
    [("day", {"op": "cast", "type": "TIMESTAMP"})],
    [("day", {"op": "date", "forms": ["%Y-%m-%d %H:%M:%S", "%d.%m.%Y"]})],
    [("city", {"op": "trim"}), ("city", {"op": "lower"}), ("city", {"op": "missing", "words": ["n/a", "-"]})],
    [("city", {"op": "upper"}), ("amount", {"op": "number"}), ("city", {"op": "rename", "name": "a place"})],
]


def _after(steps: Steps, **parts: Any) -> Shape:
    shape = Shape(source='"sales"', **parts)
    for column, step in steps:
        types = dict(duckdb.sql(f"DESCRIBE ({_on_frame(shape)})").df()[["column_name", "column_type"]].to_numpy())
        rows = _on_frame(shape)
        whole = completed(step, column, types[column], lambda make, rows=rows: duckdb.sql(make(rows)).fetchall()[0])
        shape = cleaned(shape, column, types[column], whole)
    return shape


def _on_frame(shape: Shape) -> str:
    duckdb.sql("SET TimeZone = 'UTC'")
    duckdb.register("sales", FRAME)
    return shape.to_text()


def _cells(frame: Any) -> list[list[str]]:
    rows = frame.rows() if hasattr(frame, "rows") else frame.astype(object).itertuples(index=False)
    return [list(map(_cell, row)) for row in rows]


def _cell(value: Any) -> str:
    if pd.isna(value):
        return ""
    return str(pd.Timestamp(value)) if hasattr(value, "year") else str(value)


def _expected(shape: Shape) -> list[list[str]]:
    return [list(map(_cell, row)) for row in duckdb.sql(_on_frame(shape)).fetchall()]


@pytest.mark.parametrize("language", ["pandas", "polars"])
@pytest.mark.parametrize("steps", EACH)
def test_code_that_runs_by_itself_makes_the_rows_of_the_query(steps: Steps, language: Any) -> None:
    shape = _after(steps)
    code = spelled(shape, language)
    assert "nbtools" not in code
    before = FRAME.copy()
    names: dict[str, Any] = {"sales": FRAME}
    exec(code, names)
    assert list(names["df"].columns) == duckdb.sql(_on_frame(shape)).columns
    assert _cells(names["df"]) == _expected(shape), code
    pd.testing.assert_frame_equal(FRAME, before)


@pytest.mark.parametrize("language", ["pandas", "polars"])
def test_what_another_language_reads_or_rounds_otherwise_is_made_by_the_engine_or_told(language: Any) -> None:
    types = {"x": "DOUBLE", "n": "BIGINT", "day": "DATE", "text": "VARCHAR"}
    whole, kept = {"op": "cast", "type": "BIGINT"}, {"op": "trim"}
    odd: list[tuple[str, dict[str, Any]]] = [("x", whole), ("day", {"op": "fill", "value": "2024-12-31"})]
    for column, step in odd:
        code = spelled(cleaned(Shape(source="sales"), column, types[column], step), language, types=types)
        assert "the engine makes the rows" in code
    for column, step, is_told in (("text", whole, True), ("n", whole, True), ("text", kept, False)):
        code = spelled(cleaned(Shape(source="sales"), column, types[column], step), language, types=types)
        assert "the engine makes the rows" not in code
        assert code.startswith("# Texts that are odd") is is_told


@pytest.mark.parametrize(
    "conditions",
    [
        ("\"city\" IN ('Bern', 'Genf')", "NOT contains(lower(\"city\"), 'ern')"),
        ("contains(lower(\"city\"), 'chur')", "(n > 1 OR n = 0)"),
        ("(starts_with(lower(\"city\"), 'b') OR city IS NULL)", "city <> 'x'"),
        ("CAST(\"amount\" AS VARCHAR) = 'N/A' OR amount IS NOT NULL",),
    ],
)
@pytest.mark.parametrize("language", ["pandas", "polars"])
def test_filters_are_code_too(conditions: tuple[str, ...], language: Any) -> None:
    shape = _after([("city", {"op": "trim"})]).but(conditions=conditions, order=(("n", True),), columns=("n", "city"))
    names: dict[str, Any] = {"sales": FRAME}
    exec(spelled(shape, language), names)
    assert _cells(names["df"]) == _expected(shape)


def test_filters_of_the_column_as_it_was_go_below_and_the_text_is_read_again() -> None:
    before = Shape.of_file("a b.csv").but(conditions=("amount = 'N/A'", "n > 2"), order=(("amount", True),))
    shape = cleaned(before, "amount", "VARCHAR", {"op": "number"})
    assert shape.to_text() == (
        'SELECT *\nFROM (SELECT * REPLACE (TRY_CAST(TRIM("amount") AS DOUBLE) AS "amount") FROM \'a b.csv\''
        " WHERE (amount = 'N/A'))\nWHERE n > 2\nORDER BY \"amount\" DESC"
    )
    assert Shape.from_text(shape.to_text()) == shape
    renamed = cleaned(shape.but(columns=("n", "amount")), "amount", "DOUBLE", {"op": "rename", "name": "sum"})
    assert (renamed.columns, renamed.order) == (("n", "sum"), (("sum", True),))


def test_what_a_step_does_is_counted() -> None:
    rows = _on_frame(Shape(source='"sales"'))
    sql = expression_of('"amount"', "VARCHAR", {"op": "number"})
    there, lost, changed, examples, _ = duckdb.sql(effect_query(rows, "amount", sql)).fetchall()[0]
    assert (there, lost, examples) == (7, 3, [["-", "1"], ["N/A", "1"], ["x", "1"]])
    assert changed == 6  # 1 is 1.0
    whole = expression_of('"a b"', "VARCHAR", {"op": "number"})
    assert duckdb.sql(whole_query(rows, whole)).fetchall() == [(True,)]
    assert duckdb.sql(whole_query(rows, sql)).fetchall() == [(False,)]


def test_dates_that_become_missing_and_fit_the_other_order_are_told() -> None:
    days = "(select unnest(['13/02/2024', '02/13/2024', '02/14/24', 'soon']) as day)"
    step = {"op": "date", "forms": ["%d/%m/%Y"]}
    sql = expression_of('"day"', "VARCHAR", step)
    effect = effect_of(step, "day", "VARCHAR", sql, lambda make: duckdb.sql(make(f"from {days}")).fetchall()[0])
    assert effect == {
        "there": 4,
        "lost": 3,
        "changed": 4,
        "examples": '1 \u00d7 "02/13/2024", 1 \u00d7 "02/14/24", 1 \u00d7 "soon"; '
        "2 of them are dates such as 12/31/2024",
    }


def test_a_mark_says_that_more_values_become_missing_than_are_named() -> None:
    words = "(select unnest(['x', 'x', '1'] || ['y' || n for n in range(9)]) as word)"
    step = {"op": "number"}
    sql = expression_of('"word"', "VARCHAR", step)
    effect = effect_of(step, "word", "VARCHAR", sql, lambda make: duckdb.sql(make(f"from {words}")).fetchall()[0])
    assert (effect["there"], effect["lost"]) == (12, 11)
    assert effect["examples"].startswith('2 \u00d7 "x", 1 \u00d7 "y0", ')
    assert effect["examples"].endswith('", …')


def test_forms_that_a_column_has_are_offered() -> None:
    rows = _on_frame(Shape(source='"sales"'))

    def offered(column: str) -> dict[str, Any]:
        return offer(duckdb.sql(offer_query(rows, column)).fetchall()[0])

    assert offered("day")["dates"] == [("%Y-%m-%d", 3), ("%d.%m.%Y", 3)]
    assert offered("sum")["numbers"][0] == ("1.234,5", 6)  # with a sign between thousands or without
    assert offered("amount")["words"] == [("N/A", 1), ("-", 1), ("x", 1)]  # most of the others are numbers
    assert offered("city")["numbers"] == []


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("DOUBLE", {"op": "fill", "value": "many"}),
        ("BOOLEAN", {"op": "fill", "value": "perhaps"}),
        ("VARCHAR", {"op": "date", "forms": []}),
        ("VARCHAR", {"op": "missing", "words": []}),
        ("VARCHAR", {"op": "cast", "type": "INT); DROP"}),
        ("VARCHAR", {"op": "rename", "name": " "}),
    ],
)
def test_a_step_that_does_not_fit_is_refused(kind: str, step: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        cleaned(Shape.of_file("a.csv"), "x", kind, step)


def test_rows_of_another_database_are_not_cleaned_here() -> None:
    with pytest.raises(InvalidArguments, match="another database"):
        cleaned(Shape(source="orders", dialect="sqlite"), "x", "TEXT", {"op": "trim"})


def test_a_filter_beside_one_with_or_keeps_its_meaning_in_the_text() -> None:
    shape = Shape.from_text("from t where a = 1 or b = 2")
    assert shape.but(conditions=(*shape.conditions, "c = 3")).to_text().endswith("WHERE (a = 1 OR b = 2)\n  AND c = 3")


@pytest.mark.parametrize("language", ["pandas", "polars"])
def test_a_file_whose_options_code_has_no_words_for_is_read_by_the_engine(language: Any, tmp_path: Any) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("stadt;betrag\nZürich;1,5\nGenf;2,25\n".encode("cp1252"))
    text = f"FROM read_csv('{path}', encoding = 'cp1252')"
    more = [f"{text[:-1]}, {option})" for option in ("types = {'betrag': 'VARCHAR'}", "nullstr = 'x'")]
    with SqlSession(allowed_paths=[tmp_path]) as session:
        file, *others = (session.file_options(each)[0] for each in (text, *more))
    assert "nbtools" not in spelled(Shape.from_text(text), language, None, file)
    for each, other in zip(more, others, strict=True):
        assert "the engine makes the rows" in spelled(Shape.from_text(each), language, None, other)
    for options in ({"quote": "'"}, {"thousands": "."}, {"comment": "#"}):
        other = dataclasses.replace(file, options={**file.options, **options})
        assert "the engine makes the rows" in spelled(Shape.from_text(text), language, None, other)


def test_a_comma_before_three_digits_is_decimal_where_a_zero_stands_before_one() -> None:
    texts = duckdb.sql("SELECT unnest(['12,345', '7,250', '0,125', 'n.b.']) AS v")
    found = offer(duckdb.sql(offer_query(texts.sql_query(), "v")).fetchall()[0])
    assert found["numbers"][0] == ("1234,5", 3)


@pytest.mark.parametrize(
    ("texts", "dates"),
    [
        (["3/2/26", "4/2/26", "01.02.2026"], ["2026-02-03", "2026-02-04", "2026-02-01"]),
        (["3/2/26", "2/25/2026"], ["2026-03-02", "2026-02-25"]),
        (["03-02-26", "2026-02-05", "2026-02-06"], ["2026-02-03", "2026-02-05", "2026-02-06"]),
        (["3 Feb 26", "20260204", "260205"], ["2026-02-03", "2026-02-04", "None"]),
    ],
)
def test_a_year_of_two_digits_is_of_this_time_in_the_order_of_the_others(texts: list[str], dates: list[str]) -> None:
    rows = duckdb.sql(f"SELECT unnest({texts}) AS v").sql_query()
    forms = [form for form, _ in offer(duckdb.sql(offer_query(rows, "v")).fetchall()[0])["dates"]]
    day = expression_of("v", "VARCHAR", {"op": "date", "forms": forms})
    assert [str(each) for (each,) in duckdb.sql(f"SELECT {day} FROM ({rows})").fetchall()] == dates


@pytest.mark.parametrize("mark", [" ", "T"])
@pytest.mark.parametrize("fraction", ["", ".5", ".123456"])
@pytest.mark.parametrize(("zone", "hour"), [("", 10), ("Z", 10), ("+02:00", 8), ("-0330", 13), ("+05", 5)])
@pytest.mark.parametrize("kind", ["TIMESTAMP", "DATE"])
def test_a_moment_in_a_form_of_iso_is_cast(mark: str, fraction: str, zone: str, hour: int, kind: str) -> None:
    duckdb.sql("SET TimeZone = 'UTC'")
    rows = duckdb.sql(f"SELECT '2024-01-02{mark}10:00:00{fraction}{zone}' AS v").sql_query()
    step = {"op": "cast", "type": kind}
    step = completed(step, "v", "VARCHAR", lambda make: duckdb.sql(make(rows)).fetchall()[0])
    value = duckdb.sql(f"SELECT {expression_of('v', 'VARCHAR', step)} FROM ({rows})").fetchall()[0][0]
    moment = f"2024-01-02 {hour:02}:{30 if zone == '-0330' else 0:02}:00{fraction and f'{fraction:0<7}'}"
    assert str(value) == (moment if kind == "TIMESTAMP" else "2024-01-02")


@pytest.mark.parametrize("form", NUMBERS)
def test_a_text_of_another_form_is_missing_and_not_another_number(form: str) -> None:
    thousands, decimal = NUMBERS[form]
    digits = ["0", "7", "1", "12", "123", "1234", "1234567"]
    wholes = {text for each in digits for mark in ",.' " for text in (each, f"{int(each):,}".replace(",", mark))}
    ends = ("", ".5", ",5", ",25", ".250", ",", ".")
    texts = [f"{sign}{whole}{end}" for sign in ("", "-") for whole in (*wholes, "") for end in ends]
    number = expression_of("v", "VARCHAR", {"op": "number", "form": form})
    read = dict(
        duckdb.sql(f"SELECT v, {number} FROM (SELECT unnest([{', '.join(map(quote_text, texts))}]) AS v)").fetchall()
    )
    for text in texts:
        whole, _, rest = text.partition(decimal)
        plain = whole.replace(thousands, "")
        has_digits = plain.lstrip("-").isdigit()
        is_whole = has_digits and whole in {plain, f"{int(plain):,}".replace(",", thousands or ",")}
        fits = (is_whole or (whole in {"", "-"} and rest)) and f"{rest or 0}".isdigit()
        assert read[text] == (float(f"{plain}.{rest or 0}") if fits else None), text


def test_the_form_that_reads_the_most_numbers_is_offered_first() -> None:
    texts = duckdb.sql("SELECT unnest(['1.234,50', '99,9', '1,5', 'k.A.']) AS v")
    assert offer(duckdb.sql(offer_query(texts.sql_query(), "v")).fetchall()[0])["numbers"][0] == ("1.234,5", 3)


def test_words_of_any_language_between_numbers_are_offered_as_missing() -> None:
    texts = duckdb.sql("SELECT unnest(['1', '2', '3', '4', '5', 'k.A.', 'k.A.', 'k. A.']) AS v")
    assert offer(duckdb.sql(offer_query(texts.sql_query(), "v")).fetchall()[0])["words"] == [("k.A.", 2), ("k. A.", 1)]
    names = duckdb.sql("SELECT unnest(['Bern', 'Genf', 'N/A', '7']) AS v")
    assert offer(duckdb.sql(offer_query(names.sql_query(), "v")).fetchall()[0])["words"] == [("N/A", 1)]
