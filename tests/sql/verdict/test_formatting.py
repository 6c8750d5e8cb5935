"""A formatted query is the same query: only blanks and line ends change, and each clause has a line of its own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import duckdb
import pytest

from nbtools.errors import SqlInvalid
from nbtools.sql.verdict.formatting import formatted

CORPUS = Path(__file__).resolve().parents[2] / "fixtures" / "sql_corpus.jsonl.gz"


def test_clauses_columns_and_conditions_stand_on_lines_of_their_own() -> None:
    query = (
        "-- top\nselect a, count(*) n, -- it's\n sum(case when x = 1 and y then 2 end) z "
        "from 'x.csv' t left join u on t.a = u.a where b = :b and c between 1 and 2 or left(c, 2) <> $c "
        "group by all order by 1, 2 limit 3 -- end"
    )
    assert formatted(query).split("\n") == [
        "-- top",
        "select",
        "  a,",
        "  count(*) n, -- it's",
        "  sum(case when x = 1 and y then 2 end) z",
        "from 'x.csv' t",
        "left join u on t.a = u.a",
        "where b = :b",
        "  and c between 1 and 2",
        "  or left(c, 2) <> $c",
        "group by all",
        "order by 1, 2",
        "limit 3 -- end",
    ]


def test_a_query_inside_is_indented_when_it_is_long() -> None:
    inner = f"select a, b from {'t' * 70}"
    query = f"with s as (select 1 as x), l as ({inner}) select * exclude (a) from l union all select 1;from s"
    assert formatted(query).split("\n") == [
        "with s as (select 1 as x),",
        "l as (",
        "  select",
        "    a,",
        "    b",
        f"  from {'t' * 70}",
        ")",
        "select * exclude (a)",
        "from l",
        "union all",
        "select 1;",
        "from s",
    ]


def test_a_text_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(SqlInvalid):
        formatted("select 'open")


def test_real_queries_stay_what_they_are_to_the_engine() -> None:
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        queries = [row["sql"] for row in map(json.loads, lines) if row["label"] == "select"][::60]
    connection = duckdb.connect()

    def tree(sql: str) -> object:
        text = connection.execute("select json_serialize_sql(?)", [sql]).fetchall()[0][0]
        return _without_places(json.loads(text))

    once = [formatted(query) for query in queries]
    changed = [query for query, text in zip(queries, once, strict=True) if tree(text) != tree(query)]
    assert changed == []
    assert len(queries) > 300
    assert [formatted(text) for text in once] == once


def _without_places(tree: object) -> object:
    if isinstance(tree, dict):
        places = ("span", "location", "length")
        return {name: _without_places(value) for name, value in tree.items() if not name.endswith(places)}
    return [_without_places(each) for each in tree] if isinstance(tree, list) else tree
