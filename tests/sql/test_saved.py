"""Saved queries: judged with the query that uses them, in the order that they need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbtools.errors import InvalidArguments, SqlInvalid
from nbtools.sql import SqlSession
from nbtools.sql.saved import SavedQueries


@pytest.fixture(scope="module")
def session() -> Iterator[SqlSession]:
    with SqlSession() as opened:
        yield opened


@pytest.fixture
def saved(session: SqlSession) -> SavedQueries:
    made = SavedQueries()
    for name, sql in (
        ("numbers", "from range(5) t(n) -- all of them"),
        ("odd", "select n from Numbers where n % 2 = 1;"),
        ("high", "with x as (from odd) select n from x where n > 1"),
    ):
        made.save(name, sql, session.check(sql).tables)
    return made


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select * from high", [[3]]),
        ("FROM ODD", [[1], [3]]),
        (
            "-- high\nwith recursive y(n) as (select 7 union all select 8 from y where n < 8) from y, high",
            [[7, 3], [8, 3]],
        ),
        ("select 'odd' as word", [["odd"]]),
        ("with odd as (select 9 as n) from odd", [[9]]),
        ("select n from high union all select n from numbers order by 1 limit 2", [[0], [1]]),
        ("describe high", [["n", "BIGINT", "YES", None, None, None]]),
    ],
)
def test_queries_use_the_saved_ones(
    session: SqlSession, saved: SavedQueries, query: str, rows: list[list[object]]
) -> None:
    text = saved.expand(query, lambda sql: session.check(sql).tables)
    assert session.query(text).to_rows() == rows


def test_a_query_that_uses_none_stays_as_it_is(session: SqlSession, saved: SavedQueries) -> None:
    for query in ("select 1", "select 'odd'", "with odd as (select 9 as n) from odd"):
        assert saved.expand(query, lambda sql: session.check(sql).tables) == query


def test_circles_bad_names_and_doubles_are_refused(saved: SavedQueries) -> None:
    for name, tables, way in (("me", ("ME",), "me → ME"), ("numbers", ("high",), "numbers → high → odd → Numbers")):
        with pytest.raises(SqlInvalid, match=way):
            saved.save(name, "select 1", tables)
    with pytest.raises(InvalidArguments, match="is not a name"):
        saved.save("no name", "select 1", ())
    with pytest.raises(InvalidArguments, match="only a SELECT"):
        saved.save("plan", "explain select 1", ())
    with pytest.raises(InvalidArguments, match="'odd' is a saved query and a DataFrame"):
        saved.expand("from odd", lambda _: ("odd",), {"odd": 1}.get)
    assert [query.name for query in saved] == ["high", "numbers", "odd"]
