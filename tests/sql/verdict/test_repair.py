"""What a refusal says to write: a text that then may run, and never another meaning of what may run already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import SqlInvalid, SqlNotAllowed
from nbtools.sql import SqlSession
from nbtools.sql.verdict.policy import Policy
from nbtools.sql.verdict.repair import find_repair
from nbtools.sql.verdict.transpile import transpile

pytestmark = pytest.mark.processes


def repaired(sql: str, dialect: str) -> str:
    policy = Policy(dialect)
    assert not policy.check(sql).allowed
    told = find_repair(
        sql, dialect, lambda text: policy.check(text).allowed, lambda text, d: transpile(text, d, dialect)
    )
    text = (told or "").partition(". Write: ")[2]
    assert not text or policy.check(text).allowed
    return text


@pytest.mark.parametrize(
    ("dialect", "sql", "text"),
    [
        ("sqlite", r"select a\_b, COUNT(\*) from t where a\_b = 1", "select a_b, COUNT(*) from t where a_b = 1"),
        ("sqlite", "```sql\nselect a from t\n```", "select a from t"),
        ("duckdb", r"select a\_b from t", "select a_b from t"),
        ("mysql", "select DIVIDE(SUM(a), SUBTRACT(b, 1)) from t", "select ((SUM(a)) * 1.0 / (((b) - (1)))) from t"),
        ("postgres", "select a from t where n = 'Women's'", "select a from t where n = 'Women''s'"),
        ("postgres", "select a from t where b > = 1", "select a from t where b >= 1"),
        ("sqlite", "select cast(a, real) from t", "select CAST(a AS real) from t"),
        (
            "mysql",
            "select count(distinct a where b = 1) from t",
            "select count(distinct CASE WHEN b = 1 THEN a END) from t",
        ),
        ("sqlite", "select (count(*) from t) - 1", "select (SELECT count(*) from t) - 1"),
        ("sqlite", "select (a + 1 from t", ""),
        ("sqlite", "select a from t where (b = 1;", "select a from t where (b = 1)"),
        ("sqlite", "select a from t; select b from t", "select a from t"),
        ("postgres", "select `T-CHO` from t", 'SELECT "T-CHO" FROM t'),
        ("postgres", "select array['01'::bit varying]", "select array['01'::VARBIT]"),
        ("sqlite", "delete from t", ""),
        ("duckdb", "select '\udce9'", ""),
        ("postgres", "I cannot answer that", ""),
        (
            "postgres",
            "select ts at local, 'at local' from t",
            "select ts AT TIME ZONE current_setting('TimeZone'), 'at local' from t",
        ),
        ("postgres", "select a from t order by a using >, b using <", "select a from t order by a DESC, b ASC"),
        ("postgres", "select 1 operator(pg_catalog.+) a from t", "select 1 + a from t"),
        ("postgres", "select a from t order by b using operator(pg_catalog.<)", "select a from t order by b ASC"),
        ("postgres", "select a operator(public.+) b from t", ""),
    ],
)
def test_a_refusal_says_what_may_run(dialect: str, sql: str, text: str) -> None:
    assert repaired(sql, dialect) == text


def test_the_repair_is_the_hint_of_the_error_for_people_and_models() -> None:
    with SqlSession() as session:
        for isolated in (False, True):
            with pytest.raises((SqlInvalid, SqlNotAllowed)) as caught:
                session.query(r"select 1 as a\_b", isolated=isolated)
            assert caught.value.hint == (
                "Markdown's marks (a backslash before _ or *, fences of code) are not SQL. Write: select 1 as a_b"
            )


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("select by from t", 'a name that is one of SQL\'s own words needs quotes. Write: SELECT "by" FROM t'),
        (
            "select id group from t",
            'a name that is one of SQL\'s own words needs quotes. Write: SELECT id AS "group" FROM t',
        ),
        ("select top 1 a from t", "this is tsql's SQL. Write: SELECT a FROM t LIMIT 1"),
    ],
)
def test_a_repair_that_only_adds_quotes_says_so(sql: str, hint: str) -> None:
    with SqlSession() as session, pytest.raises(SqlInvalid) as caught:
        session.query(sql)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("select nvl(a, 0) from '{}'", 5),
        ("select date_format(d, '%Y') from '{}'", "2024"),
        ("select charindex('b', t) from '{}' as f", 2),
        ("select isnull(a, 0) from '{}'", 5),
        ("select getdate() > d from '{}'", True),
        ("select top 1 t from '{}'", "ab"),
        ("select t from '{0}' join (select 1 as b) on true limit 0, 1", "ab"),
    ],
)
def test_a_function_of_another_dialect_is_named_in_words_that_run(tmp_path: Path, sql: str, value: Any) -> None:
    (tmp_path / "a.csv").write_text("a,d,t\n5,2024-01-02,ab\n")
    with SqlSession(allowed_paths=[tmp_path]) as session:
        with pytest.raises(SqlInvalid) as error:
            session.query(sql.format(tmp_path / "a.csv"))
        text = str(error.value.hint).partition("Write: ")[2]
        assert session.query(text).to_rows() == [[value]]


@pytest.mark.parametrize("sql", ["select nosuch(1)", "select lenght('a')", "select nvl(:a, 1)"])
def test_a_function_that_no_dialect_has_or_that_takes_parameters_keeps_the_engines_hint(sql: str) -> None:
    with SqlSession() as session, pytest.raises(SqlInvalid) as error:
        session.query(sql, params={"a": 1} if ":a" in sql else None)
    assert str(error.value.hint).startswith("Did you mean")
