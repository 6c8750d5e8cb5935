"""Suggestions: a name that nothing has is answered with the nearest that there is."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nbtools import Workbench
from nbtools.errors import InvalidArguments, SqlInvalid
from nbtools.sql import SqlSession
from nbtools.sql.pages.shape import Shape

PEOPLE = pd.DataFrame({"name": ["Ada"], "city": ["Bern"]})
NOTEBOOK = {"people": PEOPLE, "peple_count": 3, "_peple": PEOPLE}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with contextlib.closing(sqlite3.connect(tmp_path / "d.sqlite")) as connection:
        connection.execute("create table members(id int, name text)")
        connection.commit()
    return tmp_path


def hint_of(session: Any, sql: str, **more: Any) -> str:
    with pytest.raises(SqlInvalid) as caught:
        session.query(sql, **more)
    return caught.value.hint or ""


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_a_misspelt_frame_is_answered_with_the_nearest(isolated: bool) -> None:
    with SqlSession(frames=NOTEBOOK.get, tables={"nbtools.memory": lambda: PEOPLE}) as session:
        for sql, meant in (
            ("select * from peple", "people"),
            ("select * from people join Peoples using (name)", "people"),
            ("select * from nbtools.memry", "nbtools.memory"),
        ):
            assert hint_of(session, sql, isolated=isolated) == f"Did you mean {meant!r}?"
        given = {"invoices": PEOPLE}
        assert "'invoices'" in hint_of(session, "from invoice", frames=given, isolated=isolated)
        assert "'people'" not in hint_of(session, "select * from something_else", isolated=isolated)
        for name in ("f", "lst"):
            assert "Tables are frames" in hint_of(session, f"select * from {name}", isolated=isolated)
        assert hint_of(session, "select nme from people", isolated=isolated) == 'Candidate bindings: "name"'


def test_a_plan_of_a_misspelt_frame_is_answered_alike() -> None:
    with SqlSession(frames=NOTEBOOK.get) as session, pytest.raises(SqlInvalid) as caught:
        session.explain("select * from peple")
    assert caught.value.hint == "Did you mean 'people'?"


def test_a_lookup_that_cannot_tell_its_names_suggests_none() -> None:
    def lookup(name: str) -> Any:
        return NOTEBOOK.get(name)

    with SqlSession(frames=lookup) as session:
        assert "Tables are frames" in hint_of(session, "select * from peple")


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_a_misspelt_table_of_a_database_is_answered_with_the_nearest(place: Path, isolated: bool) -> None:
    url = f"sqlite:///{place / 'd.sqlite'}"
    with SqlSession(frames=NOTEBOOK.get, allowed_paths=[place]) as session:
        hint = hint_of(session, "select * from member", connection=url, isolated=isolated)
        assert hint == "Did you mean 'members'?"


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_a_misspelt_column_of_sqlite_is_answered_with_the_nearest(place: Path, isolated: bool) -> None:
    url = f"sqlite:///{place / 'd.sqlite'}"
    with SqlSession(allowed_paths=[place]) as session:
        for sql in ("select naem from members", "select m.naem from members m"):
            assert hint_of(session, sql, connection=url, isolated=isolated) == "Did you mean 'name'?"
        assert hint_of(session, "select xyz from members", connection=url, isolated=isolated) == ""


def test_a_statement_for_duckdb_is_told_whom_it_was_asked_of(place: Path) -> None:
    url = f"sqlite:///{place / 'd.sqlite'}"
    with SqlSession(connections={"club": url}) as session:
        for sql in ("select * from zebra", "select name, count(*) from members group by all"):
            assert "The query went to club" in hint_of(session, sql, connection="club")
        with pytest.raises(InvalidArguments) as caught:
            session.query("select 1", connection="other.db")
    assert "sqlite:///other.db" in str(caught.value.hint)


def test_the_workbench_suggests_frames_of_its_notebook() -> None:
    with Workbench(memory_url=":memory:") as wb:
        assert "'people'" not in hint_of(wb, "select * from peple")
        wb.use_frames(NOTEBOOK.get)
        assert hint_of(wb, "select * from peple") == "Did you mean 'people'?"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("select * from 'x.csv' whre n > 1", "Did you mean where for whre?"),
        ("select n, count(*) from 'x.csv' grup by n", "Did you mean group for grup?"),
        ("select (1", None),
    ],
)
def test_an_explorer_offers_the_word_that_was_meant(text: str, hint: str | None) -> None:
    with pytest.raises(SqlInvalid) as caught:
        Shape.from_text(text)
    assert caught.value.hint == hint


@pytest.mark.parametrize("function", ["sum", "avg", "abs"])
def test_a_number_of_texts_is_answered_with_the_cast(function: str) -> None:
    with SqlSession() as session:
        hint = hint_of(session, f"select {function}(t) from (select 'a' as t)")
        assert hint.startswith("TRY_CAST(x AS DOUBLE) turns a text x into a number")
        assert hint_of(session, "select list_sum('a')").startswith("It takes ")
