"""A formatted query is the same query: to the engine, in its comments, and in how files and parameters are written."""

from __future__ import annotations

import pytest

from nbtools.errors import SqlInvalid
from nbtools.sql.verdict.formatting import formatted


def test_clauses_stand_on_lines_of_their_own() -> None:
    assert formatted("select a, count(*) n from 'x.csv' where b = :b and c <> $c -- it's\ngroup by all") == (
        "SELECT\n  a,\n  COUNT(*) AS n\nFROM 'x.csv'\nWHERE\n  b = :b AND c <> $c /* it's */\nGROUP BY ALL"
    )
    assert formatted("select 1;select 2;") == "SELECT\n  1;\n\nSELECT\n  2;"
    assert formatted('select "a b" from "a b"') == 'SELECT\n  "a b"\nFROM "a b"'


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("select a from t where b = {limit}", "duckdb"),  # a struct it is not
        ("select a, -- one */ two\n b from t", "duckdb"),  # the comment would end too early
        ("select datediff('day', a, b)", "mysql"),  # an argument would be lost
        ("select from where", "duckdb"),
    ],
)
def test_what_would_not_be_the_same_is_refused(sql: str, dialect: str) -> None:
    with pytest.raises(SqlInvalid):
        formatted(sql, dialect)
