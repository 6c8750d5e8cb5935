"""How a refusal shows its place, and what is refused before a parser sees it."""

from __future__ import annotations

import pytest

from nbtools.errors import SqlInvalid, SqlNotAllowed
from nbtools.sql.verdict.guards import find_explained, first_bad_character, nesting, scan, size
from nbtools.sql.verdict.verdict import Finding, Verdict, caret_below, refuse


@pytest.mark.parametrize(
    ("text", "place", "shown"),
    [
        ("select a\r\nfrom t", (2, 6, 1), "    from t\n         ^"),
        ("a\tb", (1, 3, 9), "    a b\n      ^"),
        ("abc", (1, 2, 2), "    abc\n     ^^"),
        ("abc", (1, 2, 0), "    abc\n     ^"),
        ("abc", (0, 1, 1), ""),
        ("abc", (2, 1, 1), ""),
        ("a\n \nb", (2, 1, 1), ""),
        ("x" * 50 + "y" + "z" * 200, (1, 51, 1), f"    {'x' * 50}y{'z' * 49}\n    {' ' * 50}^"),
        ("x" * 150 + "y" + "z" * 200, (1, 151, 1), f"    {'x' * 50}y{'z' * 49}\n    {' ' * 50}^"),
    ],
)
def test_carets_stand_below_the_place(text: str, place: tuple[int, int, int], shown: str) -> None:
    assert caret_below(text, *place) == shown


def test_the_first_place_of_a_text_is_the_reason_and_all_are_told_once() -> None:
    late, first, whole = Finding("late", 9, 2, "SQL_INVALID"), Finding("first", 0, 3), Finding("whole")
    verdict = refuse("select\na b", [whole, late, first, late])
    assert verdict.reasons == ("line 1: first", "line 2: late", "line 1: whole")
    assert (verdict.line, verdict.column, verdict.width, verdict.code) == (1, 1, 3, "SQL_NOT_ALLOWED")
    with pytest.raises(SqlNotAllowed, match="line 1: first\n    select\n    \\^\\^\\^"):
        verdict.raise_if_refused()
    invalid = refuse("select\na b", [late])
    assert (invalid.line, invalid.column) == (2, 3)
    with pytest.raises(SqlInvalid, match="line 2: late\n    a b\n      \\^"):
        invalid.raise_if_refused()
    allowed = Verdict(sql="select 1", allowed=True)
    assert (allowed.error(), allowed.caret()) == (None, "")
    assert [
        Verdict(sql="a", allowed=False, line=line, column=1 if not line else None).caret() for line in (1, None)
    ] == [
        "",
        "",
    ]


def test_a_character_that_parsers_read_differently_has_its_place() -> None:
    assert first_bad_character("\0a") == Finding("the text contains a NUL character", 0, 1, "SQL_INVALID")
    half = first_bad_character("ab\ud800")
    assert half is not None
    assert (half.offset, half.width, half.code) == (2, 1, "SQL_INVALID")
    assert first_bad_character("ä") is None


def test_a_text_may_have_so_many_bytes() -> None:
    assert [size("é" * count) is None for count in (12_500, 50_000, 50_001)] == [True, True, False]


@pytest.mark.parametrize("word", ["(", "- ", "NOT "])
def test_what_nests_has_a_most_and_a_place(word: str) -> None:
    end = ")" if word == "(" else ""
    assert nesting(f"select {word * 64}1{end * 64}") is None
    deep = nesting(f"select {word * 65}1")
    assert deep is not None
    assert deep.what == ("brackets nest deeper than 64" if word == "(" else "more than 64 operators in a row")
    assert deep.offset == 7 + 64 * len(word)


def test_brackets_beside_each_other_do_not_nest() -> None:
    assert nesting(f"select {'(1), ' * 70}1") is None
    assert nesting(f"select {'()' * 70}") is None
    assert nesting(f"select {')' * 70}{'(' * 64} -1") is None
    assert nesting(f"select {'(' * 64}){'(' * 2}") is not None
    assert nesting(f"select '{'(' * 70}'") is None


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("explain select 1", 8),
        ("EXPLAIN analyze select 1", 16),
        ("explain (analyze, format 'json') select 1", 33),
        ("explain (format 1) select 1", 19),
        ("explain (select 1)", 8),
        ("explain (analyze", None),
        ("explain (analyze + 1) select 1", None),
        ("explain (format 'json')", None),
        ("explain", None),
        ("explain analyze", None),
        ("explain (", 8),
        ('"explain" select 1', None),
        ("select 1", None),
        ("", None),
    ],
)
def test_the_statement_that_is_explained_has_its_place(text: str, at: int | None) -> None:
    assert find_explained(scan(text)) == at
