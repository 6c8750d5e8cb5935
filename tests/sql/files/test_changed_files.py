"""What is remembered of a file holds for the file as it is: however it is written once more, the answer is its own."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.ground.paths import identity_of
from nbtools.sql import SqlSession
from nbtools.sql.engines.duckdb.engine import DuckDBEngine
from nbtools.sql.files.reading import TextFiles, TextReading
from nbtools.texts.sql_quotes import quote_text

# Of one length, with columns of other types or names, or with other marks between them; the engine is asked about the
# first one.
CONTENTS = ("b;a\n1,5;200\n", "a,b\n100,200\n", "a,b\n1.5,007\n", "a,b\nN/A,2.5\n", 'a,b\n"x","y"\n')


def write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-16" if path.stem.endswith("wide") else "utf-8"))


def write_with_its_time(path: Path, text: str) -> None:
    before = path.stat()
    write(path, text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def rename_over(path: Path, text: str) -> None:
    before, other = path.stat(), path.with_name(f"new-{path.name}")
    write(other, text)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


def remove_and_write(path: Path, text: str) -> None:
    path.unlink()
    write(path, text)


def lead_elsewhere(path: Path, text: str) -> None:
    targets = path.parent / "targets"
    targets.mkdir(exist_ok=True)
    target = targets / f"{len([*targets.iterdir()])}-{path.name}"
    write(target, text)
    path.unlink()
    path.symlink_to(target)


WAYS: tuple[Callable[[Path, str], None], ...] = (
    *(write, write_with_its_time, rename_over, remove_and_write, lead_elsewhere),
)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlSession]:
    monkeypatch.chdir(tmp_path)
    with SqlSession(allowed_paths=[tmp_path]) as opened:
        yield opened


def answer(session: SqlSession, name: str) -> tuple[Any, ...]:
    result = session.query(f"from '{name}'")
    return result.columns, result.types, result.to_rows(), [note.text for note in result.notes]


def answers_of_new_files(session: SqlSession) -> dict[str, tuple[Any, ...]]:
    """Return the answers for the contents, each in a file of its own."""
    for number, text in enumerate(CONTENTS):
        write(Path(f"own-{number}.csv"), text)
    answers = {text: answer(session, f"own-{number}.csv") for number, text in enumerate(CONTENTS)}
    assert len({*map(len, CONTENTS)}) == 1
    assert len({*map(repr, answers.values())}) == len(CONTENTS)
    return answers


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what the engine is asked about files."""
    questions, ask = list[str](), DuckDBEngine.ask
    monkeypatch.setattr(
        DuckDBEngine, "ask", lambda engine, sql, control: questions.append(sql) or ask(engine, sql, control)
    )
    return questions


@pytest.fixture
def fine_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the clock of this file system, whose steps are far finer than those of the coarsest one."""
    monkeypatch.setattr("nbtools.ground.paths.COARSEST_CLOCK_NS", 50_000_000)


def wait_until_remembered(paths: list[Path]) -> None:
    while not all(identity_of(path)[1] for path in paths):
        time.sleep(0.01)


@pytest.mark.usefixtures("fine_clock")
def test_a_file_that_stays_is_looked_at_once_and_one_that_changes_again(session: SqlSession, asked: list[str]) -> None:
    expected = answers_of_new_files(session)
    first, *others = CONTENTS
    paths = [Path(f"{way.__name__}{end}.csv") for way in WAYS for end in ("", "-wide")]
    for path in paths:
        write(path, first)
    wait_until_remembered(paths)
    for path, way in zip(paths, itertools.chain.from_iterable(zip(WAYS, WAYS, strict=True)), strict=True):
        assert answer(session, path.name) == expected[first]
        assert asked
        asked.clear()
        assert answer(session, path.name) == expected[first]
        assert not asked, path
        for text in others:
            way(path, text)
            assert answer(session, path.name) == expected[text], path


def test_a_file_whose_times_may_come_again_is_not_remembered(session: SqlSession, asked: list[str]) -> None:
    path = Path("young.csv")
    write(path, CONTENTS[0])
    os.utime(path, (later := time.time() + 3_600, later))
    for _ in range(2):
        asked.clear()
        answer(session, path.name)
        assert asked


@pytest.mark.parametrize("name", ["again.csv", "again-wide.csv"])
def test_a_file_that_is_written_again_and_again_is_never_taken_for_what_it_was(session: SqlSession, name: str) -> None:
    expected, chance, path = answers_of_new_files(session), random.Random(7), Path(name)
    write(path, CONTENTS[0])
    for number in range(40):
        text = chance.choice(CONTENTS)
        chance.choice(WAYS)(path, text)
        assert answer(session, name) == expected[text], number


@pytest.mark.usefixtures("fine_clock")
def test_a_pattern_is_looked_at_again_when_a_file_comes_goes_or_changes(session: SqlSession) -> None:
    parts = [Path(f"part-{number}.csv") for number in range(3)]
    for path in parts[:2]:
        write(path, "n,m\n1,2\n")
    wait_until_remembered(parts[:2])
    for _ in range(2):
        assert answer(session, "part-*.csv")[1:3] == (("BIGINT", "BIGINT"), [[1, 2], [1, 2]])
    write(parts[2], "n,m\nx,y\n")
    assert answer(session, "part-*.csv")[1] == ("VARCHAR", "VARCHAR")
    parts[2].unlink()
    assert answer(session, "part-*.csv")[1] == ("BIGINT", "BIGINT")
    write_with_its_time(parts[1], "n,m\n.5,0\n")
    assert answer(session, "part-*.csv")[1:3] == (("DOUBLE", "BIGINT"), [[1.0, 2], [0.5, 0]])


def test_a_text_that_is_not_judged_again_is_one_that_may_run(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings, read = list[TextReading](), TextFiles.read

    def remember(files: TextFiles, *args: Any, **options: Any) -> TextReading:
        readings.append(read(files, *args, **options))
        return readings[-1]

    monkeypatch.setattr(TextFiles, "read", remember)
    odd = ("it's", "', x = 1)", "'); drop table t; --", "{'a': 'b'}", "[1]", "a\tb", "$1", "\\", "--", "/*", "a''b")
    for number, name in enumerate(odd):
        text = f'"{name}",day,n\nx,2024-01-02,{number}\ny,N/A,7\n'
        for file in (f"odd-{number}.csv", f"{name.replace('/', '_').replace(chr(92), '_')}.csv"):
            write(Path(file), text)
            result = session.query(f"select * from {quote_text(file)}")
            assert (result.columns, len(result)) == ((name, "day", "n"), 2)
    plain = [reading for reading in readings if reading.is_plain and reading.edits]
    assert len(plain) >= len(odd)
    for reading in plain:
        assert session.policy().check(reading.sql).allowed, reading.sql


@pytest.mark.parametrize("files", ["'a.csv' -- c\n", "'a.csv' /* c */ -- c\n", "['a.csv' -- c\n] -- c\n"])
@pytest.mark.parametrize("options", ["", ", encoding = 'latin1'", ", delim = ',' -- c\n", ", types = {'a': 'DOUBLE'}"])
def test_a_comment_in_a_call_takes_nothing_of_the_text_behind_it(session: SqlSession, files: str, options: str) -> None:
    write(Path("a.csv"), "a,b\n1,x\n")
    rest = ") UNION ALL SELECT value FROM duckdb_settings() --"
    text = f"select b from read_csv({files}{options}) where b <> '\n{rest}'"
    assert session.query(text).rows.to_lists() == [["x"]]


@pytest.mark.parametrize(
    "text",
    [
        *("FROM'a.csv'", 'FROM"a.csv"', "SELECT * FROM'a.csv'WHERE a>0", "SELECT * FROM read_csv('a.csv')WHERE a>0"),
        *("DESCRIBE'a.csv'", "SELECT * FROM'a.csv'JOIN'a.csv'y USING(a, b)", "SELECT y.* FROM read_csv('a.csv')y"),
    ],
)
def test_a_file_is_read_where_no_blank_divides_it_from_the_words_beside_it(session: SqlSession, text: str) -> None:
    write(Path("a.csv"), "a,b\n1,x\n")
    assert session.query(text).rows
