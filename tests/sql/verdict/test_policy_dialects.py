"""The verdict for the dialects of sqlglot, and translation between them: cases as data, and what a refusal says."""

import json
from pathlib import Path

import pytest

from nbtools.errors import InvalidArguments, SqlInvalid, SqlNotAllowed
from nbtools.sql import Policy
from nbtools.sql.verdict.dialects.rules import rules
from nbtools.sql.verdict.policy import DIALECTS
from nbtools.sql.verdict.transpile import transpile

_LINES = (Path(__file__).parents[2] / "fixtures" / "sql_dialects.jsonl").read_text(encoding="utf-8").splitlines()
CASES = [json.loads(line) for line in _LINES]
_DRESSED = Path(__file__).parents[2] / "attacks" / "sql_dress.jsonl"


@pytest.mark.parametrize("dialect", DIALECTS[1:])
def test_cases_of_a_dialect_are_judged_as_listed(dialect, caplog):
    policy = Policy(dialect)
    cases = [case for case in CASES if case["dialect"] == dialect]
    wrong = [case for case in cases if policy.check(case["sql"]).allowed != case["allowed"]]
    assert len(cases) > 30, f"add more than 30 cases of {dialect} to tests/fixtures/sql_dialects.jsonl"
    assert not wrong
    assert "sqlglot" not in [record.name for record in caplog.records]


@pytest.mark.parametrize("dialect", DIALECTS[1:])
def test_every_refusal_of_a_dialect_names_place_and_reason(dialect):
    policy = Policy(dialect)
    for case in CASES:
        if case["dialect"] == dialect and not case["allowed"]:
            verdict = policy.check(case["sql"])
            assert verdict.reasons[0].startswith("line ")
            assert len(verdict.reasons[0]) < 400
            assert verdict.line >= 1


@pytest.mark.parametrize(
    ("dialect", "sql", "why"),
    [
        ("postgres", "with d as (\n delete from t returning *) select 1", "line 2: DELETE writes"),
        ("postgres", "select pg_read_file('x')", "pg_read_file() is not on the reviewed list of postgres"),
        ("postgres", "select * into x from t", "INTO writes"),
        ("postgres", "select * from t for update", "LOCK writes"),
        ("postgres", "call f()", "CALL is not a query"),
        ("postgres", "explain analyze\ndelete from t", "line 2: DELETE is not a query"),
        ("postgres", "select 1;\nselect 2", "line 2: a second statement starts here"),
        ("postgres", "select current_setting('data_directory')", "the setting 'data_directory' has not been reviewed"),
        ("postgres", "select * from pg_shadow", "pg_shadow holds secrets"),
        ("postgres", "select 1 /* /* */ 2 */", "is a comment or a blank for some parsers only"),
        ("snowflake", "select 1 ->> delete from t", "->> begins a second statement"),
        ("clickhouse", "describe url('x')", "DESCRIBE runs the function url()"),
        ("spark", "select * from text.`a.txt`", "'a.txt' is a file, not a table"),
        ("mysql", "select /*! 1 */", "is a comment or a blank for some parsers only"),
        ("mysql", "select /*+ set_var(a = 1) */ 1", "hints change settings"),
        ("mysql", "select @a", "variables of the session"),
        ("clickhouse", "select 1 settings max_threads = 1", "SETTINGS change the engine"),
        ("tsql", "select 1 delete from t", "DELETE begins its own statement"),
        ("tsql", "select * from a.b.c.d", "is on a linked server"),
        ("snowflake", "select s.nextval", "s.nextval advances a sequence"),
        ("snowflake", "select * from @stage", "is a file stage"),
        ("spark", "select * from csv.`/etc/passwd`", "'/etc/passwd' is a file, not a table"),
        ("spark", "select transform(a) using 'bash' as (b) from t", "QUERY TRANSFORM has not been reviewed"),
        ("bigquery", "select * from external_query('c', 'x')", "external_query() is not on the reviewed list"),
        (
            "trino",
            "select * from table(pg.system.query(query => 'x'))",
            "pg.system.query() is not on the reviewed list",
        ),
        ("sqlite", "pragma table_info(t)", "PRAGMA is not a query"),
        ("sqlite", "", "there is no statement"),
        ("sqlite", "select (", "line 1: "),
    ],
)
def test_refusal_says_what_and_where(dialect, sql, why):
    assert why in Policy(dialect).check(sql).reasons[0]


def test_allowed_verdict_tells_tables_and_functions():
    verdict = Policy("postgres").check("with a as (select * from s.t) select lower(x), now() from a join u using (id)")
    assert verdict.tables == ("s.t", "u")
    assert {"lower"} <= set(verdict.functions)
    assert Policy("postgres").check("explain analyze select 1").kind == "EXPLAIN"
    assert Policy("mysql").check("show tables").kind == "SHOW"


def test_functions_in_another_dress_are_judged_as_listed():
    cases = [json.loads(line) for line in _DRESSED.read_text(encoding="utf-8").splitlines()]
    wrong = [case for case in cases if Policy(case["dialect"]).check(case["sql"]).allowed != case["allowed"]]
    assert not wrong
    assert {case["dialect"] for case in cases} == set(DIALECTS)


def test_own_functions_are_allowed_by_name():
    assert not Policy("postgres").check("select my_score(a) from t").allowed
    assert Policy("postgres", functions=["my_score"]).check("select my_score(a) from t").allowed


def test_deep_brackets_and_types_are_refused_before_they_are_parsed():
    for dialect in DIALECTS[1:]:
        policy = Policy(dialect)
        assert "deeper" in policy.check("select " + "(" * 3_000 + "1" + ")" * 3_000).reasons[0]
        assert not policy.check("select " + "array[" * 60 + "1" + "]" * 60).allowed
        assert not policy.check("select cast(null as " + "array<" * 60 + "int" + ">" * 60 + ")").allowed
        assert not policy.check("select " + "date(" * 60 + "1" + ")" * 60).allowed


def test_lists_of_functions_hold_nothing_that_leads_out():
    feared = {
        "pg_read_file",
        "load_file",
        "sleep",
        "pg_sleep",
        "dblink",
        "readfile",
        "load_extension",
        "reflect",
        "url",
    }
    feared |= {
        "system",
        "shell",
        "query",
        "nextval",
        "setval",
        "set_config",
        "lo_import",
        "openrowset",
        "external_query",
    }
    for dialect in DIALECTS[1:]:
        assert not rules(dialect).functions & feared


def test_queries_are_translated_when_that_is_exact():
    assert transpile("select len(a), b::int from t limit 3", read="duckdb", write="postgres").startswith("SELECT ")
    assert transpile("select top 3 a from t", read="tsql", write="duckdb") == "SELECT a FROM t LIMIT 3"
    assert transpile("from t", read="duckdb", write="sqlite") == "SELECT * FROM t"


def test_translation_that_would_not_be_exact_is_refused():
    for sql, write in [
        ("select * from t using sample 10%", "sqlite"),
        ("from t asof join u using (a)", "postgres"),
        ("from t semi join u using (a)", "mysql"),
        ("from t positional join u", "mysql"),
        ("select * exclude (a) from t", "postgres"),
        ("select a, sum(b) from t group by all", "postgres"),
        ("select * from t order by all", "postgres"),
        ("from t where a like 'x%'", "sqlite"),
    ]:
        with pytest.raises(SqlInvalid, match=f"no exact counterpart in {write}"):
            transpile(sql, read="duckdb", write=write)
    assert "semi" in transpile("from t semi join u using (a)", read="duckdb", write="spark").lower()
    with pytest.raises(SqlInvalid, match="SUMMARIZE is not a query"):
        transpile("summarize t", read="duckdb", write="sqlite")
    with pytest.raises(SqlInvalid, match="its form is not understood"):
        transpile("explain select 1", read="duckdb", write="sqlite")
    with pytest.raises(SqlNotAllowed, match="DROP"):
        transpile("drop table t", read="duckdb", write="postgres")
    with pytest.raises(InvalidArguments, match="not a dialect"):
        transpile("select 1", read="duckdb", write="cobol")


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_numbers_may_have_underscores(dialect: str) -> None:
    verdict = Policy(dialect).check("select 1_000.5 from staff where salary > 19_990")
    assert verdict.allowed
    assert verdict.tables == ("staff",)
    assert not Policy(dialect).check("select 1_000; drop table staff").allowed
    assert not Policy(dialect).check("select 1_000 from staff where pg_read_file(1_0) = load_extension(1_0)").allowed
