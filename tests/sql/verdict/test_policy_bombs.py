"""Texts that bomb parsers: judged in a process of its own, which must neither crash nor hang."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nbtools.sql.verdict.duckdb.judge import sqlglot_objections
from nbtools.sql.verdict.policy import DIALECTS
from nbtools.sql.verdict.sqlglot_parser import is_free_of_changes

_BOMBS = Path(__file__).with_name("_bombs.py")


def _survives(dialect, *more):
    done = subprocess.run(
        [sys.executable, str(_BOMBS), dialect, *more], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stdout[-200:], done.stderr[-600:])
    return dict(line.split("\t") for line in done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.processes
def test_bombs_without_brackets_end_no_process():
    told = _survives("postgres")
    assert len(told) > 12
    assert "have no condition" in told["joins"]
    assert "chains" in told["indexes"]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "postgres"])
def test_no_dialect_can_be_bombed(dialect):
    assert len(_survives(dialect)) > 12


@pytest.mark.slow
def test_further_bombs_end_no_process():
    assert len(_survives("spark", "all")) > 35


def _free_of_changes(rows):
    return [row["sql"] for row in rows if is_free_of_changes(row["sql"])]


def test_what_sqlglot_is_not_asked_about_it_has_nothing_against(sql_corpus):
    texts = _free_of_changes(sql_corpus[::20])
    assert len(texts) > 800
    assert not [(text, found) for text in texts if (found := sqlglot_objections(text))]


@pytest.mark.slow
def test_nothing_of_the_corpus_that_it_is_not_asked_about_changes_anything(sql_corpus):
    texts = _free_of_changes(sql_corpus)
    assert len(texts) > 15_000
    assert not [(text, found) for text in texts if (found := sqlglot_objections(text))]


def test_words_that_change_are_seen_wherever_they_hide():
    for text in (
        "select 1delete",
        "with a as (delete/**/from t) select 1",
        "select 1 \u017fet",
        "select * from t for update",
        "select 1; select 2",
        "INSERT\tINTO t values (1)",
    ):
        assert not is_free_of_changes(text), text
    assert is_free_of_changes("select updated, a.reset_at from t order by 1 desc;") is False
    assert is_free_of_changes("select updated, offset_at from t order by 1 desc;")


def test_every_word_that_begins_a_change_for_sqlglot_is_known() -> None:
    from sqlglot.dialects.duckdb import DuckDB

    harmless = {"CONNECT", "DESC", "DESCRIBE", "PIVOT", "SEMICOLON", "UNPIVOT"}
    tokenizer = DuckDB.tokenizer_class
    begin = {*DuckDB.parser_class.STATEMENT_PARSERS, *tokenizer.COMMANDS}
    kinds = {kind for kind in begin if kind.name not in harmless}
    written = [*(word for word, kind in tokenizer.KEYWORDS.items() if kind in kinds), *(kind.name for kind in kinds)]
    for word in {part for text in written for part in re.findall("[A-Z]+", text.upper())}:
        assert not is_free_of_changes(f"select {word} from t"), word
