"""What engines complain about: the hint says how to go on, and nothing that does not help."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from nbtools.errors import NbtoolsError, SqlFailed
from nbtools.sql import SqlSession


@pytest.fixture(scope="module")
def session() -> SqlSession:
    return SqlSession(allowed_paths=[Path.cwd()])


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("+02:00", "Name it 'Etc/GMT-2'"),
        ("-5", "Name it 'Etc/GMT+5'"),
        ("+05:30", "name a place"),
        ("z", "Name it 'UTC'"),
        ("+00:00", "Name it 'UTC'"),
    ],
)
def test_a_zone_as_a_distance_from_utc_says_the_name_that_means_it(session: SqlSession, zone: str, hint: str) -> None:
    query = "select timestamp '2024-07-01 12:00' at time zone '{}' as t"
    with pytest.raises(NbtoolsError, match="Unknown TimeZone") as caught:
        session.query(query.format(zone))
    assert hint in str(caught.value.hint)
    assert "Candidate" not in str(caught.value)
    if "Etc" in hint:
        (name,) = [word for word in str(caught.value.hint).split("'") if word.startswith("Etc")]
        hour = 12 - int(zone.partition(":")[0])
        assert session.query(query.format(name)).to_rows() == [[f"2024-07-01 {hour:02}:00:00+00:00"]]


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("select sum(i) from (values (interval 1 day)) t(i)", "to_seconds(sum(epoch(x))) adds intervals."),
        ("select strptime('1.2.26', '%Y')", "try_strptime returns NULL for such a text"),
        ('select 1 from (values (1)) t(code) where code <> "Tot\'al"', "a text takes single quotes: 'Tot''al'."),
        ("from d/na.csv", "The name of a file needs quotes: from 'd/na.csv'."),
        (
            "select 1 from (values (1)) t join ./my-file.csv on true",
            "The name of a file needs quotes: join './my-file.csv'.",
        ),
    ],
)
def test_a_slip_is_answered_with_what_to_write(session: SqlSession, query: str, hint: str) -> None:
    with pytest.raises(NbtoolsError) as caught:
        session.query(query)
    assert hint in str(caught.value.hint)


def test_sqlite_and_json_say_what_they_need(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "s.sqlite").execute("create table t(x)").connection.close()
    twice = tmp_path / "twice.jsonl"
    twice.write_text('{"a": 1}\n{"a": 2, "a": 3}\n')
    with SqlSession(allowed_paths=[tmp_path]) as session:
        with pytest.raises(NbtoolsError) as caught:
            session.query("from t", connection=f"sqlite:///{tmp_path / 's.sqlite'}")
        assert caught.value.hint == "SQLite needs SELECT * before FROM."
        with pytest.raises(NbtoolsError) as caught:
            session.query(f"from '{twice}'")
        assert "auto_detect" not in caught.value.message
        before, _, way = str(caught.value.hint).partition("FROM ")
        assert "the first value of each key" in before
        assert session.query(f"from {way}").to_rows() == [[1], [2]]


def test_a_long_message_of_the_engine_ends_behind_a_word(session: SqlSession) -> None:
    with pytest.raises(SqlFailed) as caught:
        session.query("select error(repeat('these are some words ', 40))")
    *words, end = caught.value.message.split()
    assert ({*words}, end) == ({"these", "are", "some", "words"}, "\u2026")
