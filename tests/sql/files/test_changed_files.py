"""What is remembered of a file holds for the file as it is: however it is written once more, the answer is its own."""

from __future__ import annotations

import io
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import SqlFailed, SqlInvalid
from nbtools.ground.paths import identity_of
from nbtools.sql import SqlSession
from nbtools.sql.engines.duckdb.engine import DuckDBEngine
from nbtools.sql.files.changes import TextReading
from nbtools.sql.files.reading import TextFiles
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


def write_other_rows(path: Path, number: int) -> None:
    path.write_text("k,v\n" + "1,3000\n" * (number % 2 + 1))


def replace_by_other_rows(path: Path, number: int) -> None:
    write_other_rows(path.with_suffix(".new"), number)
    path.with_suffix(".new").replace(path)


def append_half_a_line(path: Path, number: int) -> None:
    with path.open("a") as file:
        file.write("00\n1,30")


@pytest.fixture
def while_read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What changes ``moving.csv`` before and after each statement that reads it, a number of times."""

    def start(change: Callable[[Path, int], None], times: int) -> None:
        numbers, run = itertools.count(), DuckDBEngine.run

        def run_and_change(engine: DuckDBEngine, request: Any, control: Any) -> Any:
            is_asked = request.sql.startswith("select count")
            try:
                if is_asked and change is append_half_a_line and next(numbers) < times:
                    change(Path("moving.csv"), 0)
                return run(engine, request, control)
            finally:
                if is_asked and change is not append_half_a_line and (number := next(numbers)) < times:
                    change(Path("moving.csv"), number)

        monkeypatch.setattr(DuckDBEngine, "run", run_and_change)

    return start


ASKED = "select count(*) n, min(v) from 'moving.csv'"


@pytest.mark.parametrize("change", [write_other_rows, replace_by_other_rows, append_half_a_line])
def test_a_file_that_changes_while_it_is_read_is_read_once_more(
    session: SqlSession, while_read: Callable[..., None], change: Callable[[Path, int], None]
) -> None:
    Path("moving.csv").write_text("k,v\n" + "1,3000\n" * 99 + "1,30")
    while_read(change, 1)
    result = session.query(ASKED)
    is_log = change is append_half_a_line
    assert (result.to_rows(), result.notes) == ([[101, 30]] if is_log else [[1, 3000]], ())


def test_a_file_that_changes_in_place_again_is_an_error(session: SqlSession, while_read: Callable[..., None]) -> None:
    write_other_rows(Path("moving.csv"), 1)
    while_read(write_other_rows, 99)
    with pytest.raises(SqlFailed, match=r"Read twice: moving\.csv changed while it was read") as caught:
        session.query(ASKED)
    assert caught.value.retryable
    assert "renames it" in str(caught.value.hint)
    with pytest.raises(SqlFailed, match=r"changed while it was read"):
        session.export(ASKED, io.BytesIO())


def test_an_error_of_a_file_that_changes_says_so_once(session: SqlSession, while_read: Callable[..., None]) -> None:
    write_other_rows(Path("moving.csv"), 1)
    while_read(write_other_rows, 99)
    with pytest.raises(SqlInvalid, match=r"^Read twice: moving\.csv changed while it was read\. line 1: .*\bz\b"):
        session.query("select count(*), z from 'moving.csv'")


def test_a_file_that_is_replaced_each_time_is_whole(session: SqlSession, while_read: Callable[..., None]) -> None:
    write_other_rows(Path("moving.csv"), 1)
    while_read(replace_by_other_rows, 99)
    result = session.query(ASKED)
    assert result.to_rows() == [[1, 3000]]
    assert list(map(str, result.notes)) == ["moving.csv: was replaced while it was read"]


@pytest.mark.parametrize("source", ["'moving.csv'", "read_csv('moving.csv', encoding = 'latin1')", "'mov*.csv'"])
def test_the_whole_lines_of_a_log_are_read(session: SqlSession, while_read: Callable[..., None], source: str) -> None:
    Path("moving.csv").write_text("k,v\n" + "1,3000\n" * 99 + "1,30")
    while_read(append_half_a_line, 99)
    result = session.query(f"select count(*) n, min(v) from {source}")
    assert result.to_rows() == [[101, 3000]]
    assert [note.text for note in result.notes] == ["grows while it is read: its whole lines were copied first"]


def test_a_text_that_grows_and_is_not_divided_into_lines_is_an_error(
    session: SqlSession, while_read: Callable[..., None]
) -> None:
    Path("moving.csv").write_text("k,v\n" + "1,3000\n" * 99)
    while_read(append_half_a_line, 99)
    with pytest.raises(SqlFailed, match=r"moving\.csv grew while it was read"):
        session.query("select count(*), max(size) from read_text('moving.csv')")
