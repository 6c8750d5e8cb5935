"""Text files are looked at whole: no value is changed in silence, missing words are told, and carets stay in place."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import SqlFailed, SqlInvalid
from nbtools.sql import SqlSession
from nbtools.sql.engines.duckdb.engine import DuckDBEngine
from nbtools.sql.engines.protocol import EngineOptions, QueryControl, QueryRequest
from nbtools.sql.files import cell_texts, csv, reading
from nbtools.sql.files.reading import TextFiles
from nbtools.sql.preparation import Preparation
from nbtools.sql.verdict.reviewed import names
from nbtools.sql.verdict.sqlglot_parser import is_free_of_changes

pytestmark = pytest.mark.broad

_MANY = 21_000  # more lines than DuckDB looks at


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("texts")
    before = Path.cwd()
    os.chdir(made)
    yield made
    os.chdir(before)


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[SqlSession]:
    with SqlSession(allowed_paths=[folder]) as opened:
        yield opened


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_values_behind_the_sample_stay_as_the_json_file_has_them(session: SqlSession, isolated: bool) -> None:
    many = {"a": 1, "b": 1, "c": [1], "d": None, "e": {"x": 1}, "f": "10:00:00"}
    last = {"a": 1.5, "b": True, "c": [1.5], "d": 7, "e": {"x": 1.5}, "f": "2024-01-01 10:00:00"}
    Path("late.json").write_text(f"{json.dumps(many)}\n" * _MANY + json.dumps(last) + "\n")
    row = session.query(f"select * from 'late.json' offset {_MANY}", isolated=isolated).to_rows()[0]
    assert row == [1.5, "true", [1.5], 7, {"x": 1.5}, "2024-01-01 10:00:00"]


def test_whole_numbers_of_json_beyond_64_bits_keep_their_digits(session: SqlSession) -> None:
    Path("wide.json").write_text(
        '[{"id": 9007199254740993, "u": {"x": 1.5}}, {"id": 12345678901234567890123, "u": {"x": 123456789012345678}}]'
    )
    found = session.query("from 'wide.json'")
    assert found.types == ("HUGEINT", "JSON")
    assert found.to_rows() == [
        [9007199254740993, '{"x":1.5}'],
        [12345678901234567890123, '{"x":123456789012345678}'],
    ]
    assert "a float would round" in found.footer()


@pytest.fixture(scope="module")
def words(folder: Path) -> str:
    (folder / "words.csv").write_text(
        "year,code,day,on\n1999,NA,01/02/2024,true\nN/A,DE,31/12/2023,-\n2001,CH,-,false\n"
    )
    return "words.csv"


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
def test_missing_words_leave_numbers_dates_and_booleans_and_stay_in_texts(
    session: SqlSession, words: str, isolated: bool
) -> None:
    found = session.query(f"select * from '{words}'", isolated=isolated)
    assert found.types == ("BIGINT", "VARCHAR", "DATE", "BOOLEAN")
    assert [row[0] for row in found.to_rows()] == [1999, None, 2001]
    assert [row[1] for row in found.to_rows()] == ["NA", "DE", "CH"]
    assert [row[2:] for row in found.to_rows()] == [["2024-02-01", True], ["2023-12-31", None], [None, False]]
    assert "year: 1 \u00d7 'N/A' read as missing; day: 1 \u00d7 '-' read as missing" in found.footer()


@pytest.mark.parametrize(
    ("days", "kind"),
    [
        ("3/2/26 4/2/26 13/12/2026", "VARCHAR"),
        ("03.02.26 04.02.2026", "VARCHAR"),
        ("3/2/26 13/2/26", "DATE"),
        ("01.01.0001 31.12.2026", "DATE"),
    ],
)
def test_a_year_of_two_digits_among_those_of_four_is_not_one_of_antiquity(
    session: SqlSession, folder: Path, days: str, kind: str
) -> None:
    (folder / "days.csv").write_text("\n".join(["day", *days.split()]))
    assert session.query("from 'days.csv'").types == (kind,)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select avg(year) from 'words.csv'", [[2000.0]]),
        ("select words.year from 'words.csv' order by 1 limit 1", [[1999]]),
        ("select w.year from 'words.csv' as w order by 1 limit 1", [[1999]]),
        ('select "w".year from \'words.csv\' "w" order by 1 limit 1', [[1999]]),
        ("select max(a.year), max(b.year) from words.csv a, read_csv('words.csv', delim = ',') as b", [[2001, 2001]]),
        ("select filename, max(year) from 'words.csv' group by all", [["words.csv", 2001]]),
        ("select column_type from (describe 'words.csv') limit 1", [["BIGINT"]]),
        ("with q as (from 'words.csv') select sum(year) from q", [[4000]]),
        ("select 'words.csv', (select max(year) from 'words.csv')", [["words.csv", 2001]]),
        ("select max(year) from read_csv(['words.csv', 'words.csv'])", [[2001]]),
        ("select max(year) from read_csv('words.csv', nullstr = '')", [["N/A"]]),
        ("select max(year) from read_csv('words.csv', nullstr = 'N/A')", [[2001]]),
        ("select max(year) from read_csv('words.csv', nullstr = ['', 'N/A'])", [[2001]]),
        ("select max(year) from read_csv('words.csv', all_varchar = true)", [["N/A"]]),
        ("unpivot (select year from 'words.csv') on year order by all", [["year", 1999], ["year", 2001]]),
    ],
)
def test_a_file_is_read_so_wherever_a_query_names_it(session: SqlSession, words: str, query: str, rows: Any) -> None:
    assert session.query(query).to_rows() == rows


def test_an_error_points_into_the_text_that_was_written(session: SqlSession, words: str) -> None:
    with pytest.raises(SqlInvalid) as caught:
        session.query(f"select max(year) as \u00e9 from '{words}'\nwhere foo = 1 and '{words}' = 'x'")
    assert caught.value.message.split("\n")[1:] == [f"    where foo = 1 and '{words}' = 'x'", "          ^"]


_SKIPPED = {
    "grow.csv": ("a,b\n" + "1,2\n" * 100 + "1,2,3\n" * 3000, "its rows have different numbers of fields"),
    "loose.csv": ("x,y\n" * 100 + "1,2,3\n" * 3000, "without its first 100 lines"),
    "price.csv": ("a\n50%\n$1,000.50\n", "without its first 2 lines"),
    "padded.csv": ("Sales,,\nof May,,\nregion,n,note\nN,1,a\nS,2,b\n", "1 of 3 columns; skip = 2 makes"),
    "wide.csv": (
        f"Sales{',' * 11}\n" + "".join(f"{','.join(f'{row}{at}' for at in range(12))}\n" for row in ("n", 1, 2)),
        "1 of 12 columns; skip = 1 makes",
    ),
    "twice.csv": ("a b,A B,x,x,x_1\n1,2,3,4,5\n", "(columns with the same name: A B as A B_1, x as x_1, x_1 as x_1_1)"),
    "title.csv": ("a,b\n1,2\n3,4\nx,y,z\n5,6,7\n", "without its first 3 lines"),
}


@pytest.mark.parametrize("query", ["select count(*) from '{}'", "select * from '{}' limit 1", "from read_csv('{}')"])
@pytest.mark.parametrize("name", _SKIPPED)
def test_skipped_lines_are_told_whatever_is_asked(session: SqlSession, name: str, query: str) -> None:
    text, told = _SKIPPED[name]
    Path(name).write_text(text)
    assert told in session.query(query.format(name)).footer()


@pytest.mark.parametrize(
    "rows", list(itertools.product([["1", "a"], ["1", "a", "2.5"], ["1", "a", "2.5", "x"]], repeat=4))
)
def test_a_header_that_surely_is_one_is_kept_with_all_rows_whatever_their_length(
    session: SqlSession, rows: tuple[list[str], ...]
) -> None:
    Path("lengths.csv").write_text("".join(f"{','.join(row)}\n" for row in (["id", "name", "amount"], *rows)))
    result = session.query("from 'lengths.csv'")
    assert result.columns[:3] == ("id", "name", "amount")
    assert result.row_count == len(rows)
    for found, row in zip(result.to_rows(), rows, strict=True):
        values = [1, "a", *([2.5] if len(row) > 2 else []), *row[3:]]
        assert found == values + [None] * (len(found) - len(values))
    assert ("different numbers of fields" in result.footer()) is (len({len(row) for row in (*rows, "abc")}) > 1)


@pytest.mark.parametrize("many", [20, 20_000])
@pytest.mark.parametrize("text", [None, "NA", "n/a", "", "x"])
def test_a_word_for_a_missing_number_stays_in_columns_of_texts(
    session: SqlSession, text: str | None, many: int
) -> None:
    others = "" if text is None else ",code"
    lines = [
        f"{'NA' if at % 3 else at},{'n/a' if at % 4 else at / 2}{'' if text is None else f',{text or at}'}"
        for at in range(many)
    ]
    Path("words_in.csv").write_text("\n".join([f"n,m{others}", *lines]) + "\n")
    result = session.query("from 'words_in.csv'")
    expected = [
        [None if at % 3 else at, None if at % 4 else at / 2, *([] if text is None else [text or at])]
        for at in range(many)
    ]
    assert result.to_rows() == expected
    told = [str(note) for note in result.notes]
    assert [each.partition(": ")[2].split(":")[0] for each in told] == ["n", "m"]


@pytest.mark.parametrize("blanks", [0, 1, 2])
@pytest.mark.parametrize("titles", ["Report;;;\n", "Report;;;\nAs of: 1.1.2025;;;\n"])
def test_the_skip_that_is_advised_gives_the_header_below(session: SqlSession, titles: str, blanks: int) -> None:
    name = f"titled{len(titles)}_{blanks}.csv"
    Path(name).write_text(titles + "\n" * blanks + "place;amount;n;year\nBern;1.234,50;1;2024\nChur;2.000,00;2;2024\n")
    advised = re.search(r"skip = \d+", session.query(f"from '{name}'").footer())
    assert advised
    rows = session.query(f"from read_csv('{name}', {advised[0]})")
    assert rows.columns == ("place", "amount", "n", "year")
    assert rows.to_rows() == [["Bern", "1.234,50", 1, 2024], ["Chur", "2.000,00", 2, 2024]]


def test_columns_whose_own_names_have_numbers_are_not_called_renamed(session: SqlSession) -> None:
    Path("own.csv").write_text("x,x_1,X_2\n1,2,3\n")
    assert session.query("from 'own.csv'").footer().endswith("read file own.csv")


def test_a_column_of_missing_words_alone_stays_text(session: SqlSession) -> None:
    Path("gaps.csv").write_text("N/A,b\nNA,1\n-,2\n")
    assert session.query("from 'gaps.csv'").to_rows() == [["NA", 1], ["-", 2]]


def test_files_above_the_limit_are_read_by_a_sample_and_that_is_told(
    session: SqlSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SEARCHED_BYTES", 0)
    Path("above.csv").write_text("a\n" + "1\n" * 100)
    Path("few.csv").write_text("a\n" + "1.5\n" * 100 + "N/A\n")
    Path("above.json").write_text('{"a": 1}\n' * 100)
    engine = DuckDBEngine(options=EngineOptions(roots=(folder,)))
    notes = []
    for name in ("above.csv", "above.json", "few.csv"):
        if name == "few.csv":  # of a file that is never looked at whole
            monkeypatch.setattr(reading, "WHOLE_BYTES", 100)
        read = TextFiles().read(session.check(f"from '{name}'"), engine, QueryControl(), most_bytes=100)
        notes += list(map(str, read.notes))
    engine.close()
    assert notes[0] == "above.csv: types by its first lines (20,480 at most), of 0.0 MB"
    assert notes[-1].startswith("few.csv: a: text, because at least 1 cell is not a number, such as 'N/A'; ")
    assert notes[1].startswith(
        "above.json: types by its first objects (20,480 at most), of 0.0 MB, to which later values are cast"
    )


@pytest.mark.parametrize(
    ("usual", "late"),
    [("1", "19.99"), ("1", "007"), ("2024-01-01", "2024-01-01 10:00:00"), ("true", "7"), ("1.5", "007"), ("1", "N/A")],
)
def test_a_value_behind_the_sample_of_a_large_file_is_an_error(
    session: SqlSession, folder: Path, monkeypatch: pytest.MonkeyPatch, usual: str, late: str
) -> None:
    Path("late.csv").write_text("it's,b\n" + f"{usual},x\n" * _MANY + f"{late},y\n")
    monkeypatch.setattr("nbtools.sql.files.reading.WHOLE_BYTES", 1000)
    engine = DuckDBEngine(options=EngineOptions(roots=(folder,)))
    texts = TextFiles()

    def run(query: str) -> list[list[object]]:
        text = texts.read(session.check(query), engine, QueryControl(), most_bytes=1000).sql
        return engine.run(QueryRequest(sql=text), QueryControl()).rows.to_lists()

    try:
        for names in ("late.csv", "late*.csv"):
            assert run(f"select count(*), count(b) from '{names}'") == [[_MANY + 1, _MANY + 1]]
            assert len(run(f"select * from '{names}' limit 5")) == 5
            with pytest.raises((SqlFailed, SqlInvalid), match=f"(?s){late}.*(?:types =|is not)|Could not convert"):
                run(f"select max(\"it's\") from '{names}'")
            way = f"select \"it's\" from read_csv('{names}', types = {{'it''s': 'VARCHAR'}}) where b = 'y'"
            assert run(way) == [[late]]
        with pytest.raises((SqlFailed, SqlInvalid), match=r"one of 2 files contains|is not|Could not convert"):
            run("select max(\"it's\") from read_csv(['late.csv', 'late.csv'])")
    finally:
        engine.close()


@pytest.mark.parametrize(("cell", "kind"), [("yes", "VARCHAR"), ("007", "VARCHAR"), ("true", "BOOLEAN")])
def test_the_first_lines_of_a_large_file_hold_for_their_own_types(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch, cell: str, kind: str
) -> None:
    Path("codes.csv").write_text("a,b\n" + f"{cell},1\n" * 2_000)
    monkeypatch.setattr(reading, "WHOLE_BYTES", 1_000)
    monkeypatch.setitem(TextFiles.read.__kwdefaults__ or {}, "most_bytes", 1_000)
    monkeypatch.setitem(Preparation.prepare.__kwdefaults__ or {}, "most_bytes", 1_000)
    found = session.query("from 'codes.csv' limit 1")
    assert found.types == (kind, "BIGINT")
    assert found.to_rows() == [[cell == "true" or cell, 1]]


def test_the_first_rows_of_a_file_are_seen_whatever_a_sample_says_of_them(session: SqlSession) -> None:
    Path("first.csv").write_text("a,b\n" + "007,yes\n" * 20_000)
    with session.open_pages("'first.csv'") as pages:
        assert (pages.row_count, pages.source.is_whole) == (200, False)
        pages.finish()
        assert pages.cells(19_999, 20_000, [0, 1]) == [["007", "yes"]]


def test_a_file_that_was_looked_at_is_read_without_another_look(session: SqlSession, folder: Path) -> None:
    Path("year=2024").mkdir()
    Path("year=2024/seen.csv").write_text('id;it\'s {day}\r\n1;31/12/2024\r\n2;N/A\r\n3;"01/01/2025"\r\n')
    query = "from 'year=2024/seen.csv'"
    engine = DuckDBEngine(options=EngineOptions(roots=(folder,)))
    text = TextFiles().read(session.check(query), engine, QueryControl()).sql
    Path("wide.csv").write_text("\n".join(",".join(f"{mark}{at}" for at in range(1, 600)) for mark in ("c", "")))
    wide = TextFiles().read(session.check("from 'wide.csv'"), engine, QueryControl()).sql
    engine.close()
    assert "auto_detect = false" in text
    assert "auto_detect = false" in wide
    assert "nullstr = ['', 'N/A'], dateformat = '%d/%m/%Y'" in text  # no column of texts has the word
    found = session.query(query)
    assert found.types == ("BIGINT", "DATE", "BIGINT")
    assert found.to_rows() == [[1, "2024-12-31", 2024], [2, None, 2024], [3, "2025-01-01", 2024]]
    # With an option of another kind DuckDB looks itself.
    assert session.query("from read_csv('year=2024/seen.csv', normalize_names = true)").columns[0] == "id"


@pytest.mark.parametrize(
    ("last", "rows"),
    [
        ('"y",2\n"z ""w""",3\n', [["y", 2], ['z "w"', 3]]),
        ('"two\nlines",2\n', [["two\nlines", 2]]),
        ('5" pipe,"2"\n', [['5" pipe', 2]]),
        ('"half,2\n', [['"half', 2]]),
    ],
)
def test_quotes_behind_the_sample_are_no_part_of_a_cell(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch, last: str, rows: list[list[Any]]
) -> None:
    monkeypatch.setattr(reading, "SEARCHED_BYTES", 1_000)
    Path("behind.csv").write_text("a,b\n" + "x,1\n" * _MANY + last)
    assert session.query(f"from 'behind.csv' offset {_MANY}").to_rows() == rows


def test_a_doubled_quote_behind_the_sample_ends_no_cell(session: SqlSession) -> None:
    Path("doubled.csv").write_text("2024-01-02\n" * 100_000 + 'N/A\n"a""b"\nabc\n')
    assert session.query("from 'doubled.csv' offset 100000").to_rows() == [["N/A"], ['a"b'], ["abc"]]


def test_quotes_in_a_small_file_that_duckdb_overlooks_are_no_part_of_a_cell(session: SqlSession) -> None:
    Path("overlooked.csv").write_text('a,b,c\n#N/A,2,"1"\n10,INF,"2"\n20.5,- ,+infinity\n')
    assert session.query("select c from 'overlooked.csv'").to_rows() == [["1"], ["2"], ["+infinity"]]


@pytest.mark.parametrize("day", ["10000-01-01", "2024-01-02 (BC)"])
def test_a_small_file_with_a_day_that_no_form_reads_is_read_as_text(session: SqlSession, day: str) -> None:
    Path("far.csv").write_text(f"a,b\nx,2024-01-02\ny,{day}\n")
    assert session.query("select b from 'far.csv'").to_rows() == [["2024-01-02"], [day]]


@pytest.mark.parametrize("head", ['"a"x,b', '"of 2024\na,b', '"12" disks\na,b', '# "of 2024\na,b'])
def test_a_quote_before_the_first_row_takes_no_rows(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    monkeypatch.setattr(reading, "SEARCHED_BYTES", 1)
    Path("inches.csv").write_text(f"{head}\nabc,2\nd,3\n")
    assert session.query("from 'inches.csv'").to_rows() == [["abc", 2], ["d", 3]]


def test_a_quote_behind_the_sample_divides_no_cell(session: SqlSession) -> None:
    Path("quoted.csv").write_text("a,b\n" + "007,x\n" * _MANY + '008,"x,y"\n')
    found = session.query(f"from 'quoted.csv' offset {_MANY}")
    assert (found.types, found.to_rows()) == (("VARCHAR", "VARCHAR"), [["008", "x,y"]])


def test_a_bad_last_line_is_an_error_that_names_it(session: SqlSession) -> None:
    Path("bad.csv").write_text("a,b\n" + "1,x\n" * _MANY + "1,2,3\n")
    with pytest.raises(SqlFailed, match="Line: 21002"):
        session.query("from 'bad.csv'")


@pytest.mark.parametrize(
    "source",
    ["'moving.csv'", "'mov*.csv'", "read_csv(['moving.csv'])", "read_text('moving.csv')", "read_parquet('moving.csv')"],
)
def test_a_file_that_changes_while_it_is_read_is_told(session: SqlSession, folder: Path, source: str) -> None:
    Path("moving.csv").write_text("a\n1\n")
    engine = DuckDBEngine(options=EngineOptions(roots=(folder,)))
    reading = TextFiles().read(session.check(f"from {source}"), engine, QueryControl())
    engine.close()
    assert reading.changes() == ()
    Path("moving.csv").write_text("b,a\n1,2\n")
    assert list(map(str, reading.changes())) == ["moving.csv: changed while it was read"]
    Path("moving.csv").unlink()
    assert len(reading.changes()) == 1


def test_pages_of_a_file_that_has_other_columns_meanwhile_say_so(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbtools.sql.pages.opening.SMALL_BYTES", 0)  # all rows of a small one are there at once
    Path("columns.csv").write_text("a,b\n" + "1,2\n" * 1_000)
    with session.open_pages("'columns.csv'") as pages:
        Path("columns.csv").write_text("z\n1\n")
        with pytest.raises(SqlFailed, match="2 columns before, 1 now: its source changed"):
            pages.finish()


def test_pages_of_a_pattern_know_that_one_of_its_files_has_changed(session: SqlSession) -> None:
    for name in ("part1.csv", "part2.csv"):
        Path(name).write_text("a,b\n1,2\n")
    with session.open_pages("'part*.csv'") as pages:
        assert not pages.is_changed()
        Path("part2.csv").write_text("a,b\n1,2\n3,4\n")
        assert pages.is_changed()


def test_a_file_that_changes_is_looked_at_again(session: SqlSession) -> None:
    Path("grows.csv").write_text("a\n1\n")
    assert session.query("from 'grows.csv'").types == ("BIGINT",)
    Path("grows.csv").write_text("a\n1\nN/A\n2.5\n")
    assert session.query("from 'grows.csv'").to_rows() == [[1.0], [None], [2.5]]


def test_pages_have_the_types_of_all_lines_once_all_are_read(
    session: SqlSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("pages.csv").write_text("v\n" + "1\n" * _MANY + "19.99\nN/A\n")
    monkeypatch.setattr("nbtools.sql.session.SMALL_BYTES", 1_000)
    with session.open_pages("'pages.csv'") as pages:
        assert (pages.source.types, pages.cells(0, 1, [0])) == (("BIGINT",), [["1"]])
        pages.finish()
        assert pages.source.types == ("DOUBLE",)
        assert pages.cells(_MANY - 1, _MANY + 2, [0]) == [["1.0"], ["19.99"], [None]]
        assert [(note.text, note.words) for note in pages.source.notes] == [
            ("v: 1 \u00d7 'N/A' read as missing", "v"),
            ("v: double by all rows, bigint by the first ones", ""),
        ]


def test_the_marks_of_numbers_are_those_that_were_named(session: SqlSession) -> None:
    Path("marks.csv").write_text("a;b;c\n1,5;2.000;NA\nN/A;1.234;DE\n2.000,5;-;x\n")
    found = session.query("from read_csv('marks.csv', decimal_separator = ',', thousands = '.')")
    assert found.to_rows() == [[1.5, 2000, "NA"], [None, 1234, "DE"], [2000.5, None, "x"]]
    assert all(note.words for note in found.notes)


def test_missing_words_can_be_turned_off_for_a_session(words: str, folder: Path) -> None:
    with SqlSession(allowed_paths=[folder], missing_words=False) as opened:
        found = opened.query(f"select max(year) from '{words}'")
    assert (found.to_rows(), found.notes) == ([["N/A"]], ())


def test_notes_reach_each_form_of_an_answer(session: SqlSession, words: str) -> None:
    told = [f"{words}: year: 1 \u00d7 'N/A' read as missing", f"{words}: day: 1 \u00d7 '-' read as missing"]
    counted = session.query(f"select count(*) from '{words}'")
    assert counted.to_dict()["notes"][:2] == told
    assert "N/A" in counted.footer()
    profile = session.profile(words)
    assert told[0] in str(profile)
    assert profile.to_dict()["notes"][:2] == told
    with session.open_pages(f"'{words}'") as pages:
        assert list(map(str, pages.source.notes))[:2] == told


@pytest.mark.parametrize(
    "query",
    [
        "select try_cast(a as double) from 'dirty.csv'",
        "select v from (select try_cast(a as double) as v, b from 'dirty.csv') where b <> ''",
        "from (select try_cast(a as double) from read_csv('dirty.csv', all_varchar = true))",
        "select try_cast(a as double) from 'dirty.json'",
    ],
)
def test_try_cast_of_a_column_of_a_file_is_missing_where_it_is_not_a_number(session: SqlSession, query: str) -> None:
    Path("dirty.csv").write_text("a,b\n1,x\n2,y\nfoo,z\n")
    Path("dirty.json").write_text("\n".join(json.dumps({"a": value}) for value in ("1", "2", "foo")))
    assert session.query(query).to_rows() == [[1.0], [2.0], [None]]


_ODD = names(
    "007 -01 5. 1e3 1_000 0x1F 12345678901234567 123456789012345.5 9223372036854775808 N/A - nan null inf -Infinity"
    " epoch 2021-12-31T10:00 31.12.2020 12/31/2020 2020-1-2 10:30 true yes 1,5"
)


@pytest.mark.parametrize("odd", ["", *sorted(_ODD)])
def test_a_small_file_is_read_alike_by_the_three_ways_to_look_at_it(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    passes: list[int] = []
    counted = cell_texts.Cells.counted
    monkeypatch.setattr(cell_texts.Cells, "counted", lambda *cells: passes.append(1) or counted(*cells))
    rows = ["1|1.5|2020-01-01|x", "-22|0.25|2021-12-31|name 0", "|".join([odd] * 4), "0|2.0|2020-05-06|Nancy"]
    ways = []
    for name, module, bound in (
        ("here", csv, ""),
        ("searched", csv, "SMALL_BYTES"),
        ("counted", reading, "SEARCHED_BYTES"),
    ):
        if bound:
            monkeypatch.setattr(module, bound, 0)
        Path(f"{name}.csv").write_text("\n".join(["a|b|c|d", *rows]))
        ways.append(session.query(f"from '{name}.csv'"))
        assert odd or bool(passes) == (name == "counted")
    assert len({str((way.types, way.to_rows(), [note.text for note in way.notes])) for way in ways}) == 1


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('1,"abc\n2,c\n', [[1, '"abc'], [2, "c"]]),
        ('1,"a"b\n2,c\n', [[1, '"a"b'], [2, "c"]]),
        ('1,"5"" disk"\n2,"a, b"\n', [[1, '5" disk'], [2, "a, b"]]),
        ('1,"it\'s"\n2,"a, b"\n', [[1, "it's"], [2, "a, b"]]),
    ],
)
def test_quotes_of_a_small_file_are_quotes_where_that_divides_it(
    session: SqlSession, text: str, rows: list[Any]
) -> None:
    Path("some_quotes.csv").write_text(f"id,b\n{text}")
    assert session.query("from 'some_quotes.csv'").to_rows() == rows


@pytest.mark.parametrize(
    ("text", "is_quoted"), [("a,b\n1,ü\n", False), ('a,b\n1,"ü"\n', False), ("a,b\n1,'x'\n", True)]
)
def test_quotes_are_looked_for_where_a_small_file_may_have_other_ones(
    session: SqlSession, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_quoted: bool
) -> None:
    texts: list[str] = []
    ask = DuckDBEngine.ask
    monkeypatch.setattr(DuckDBEngine, "ask", lambda *each: texts.append(each[1]) or ask(*each))
    Path("marks.csv").write_text(text)
    engine = DuckDBEngine(options=EngineOptions(roots=(folder,)))
    runs = TextFiles().read(session.check("from 'marks.csv'"), engine, QueryControl()).sql
    engine.close()
    look = next(sql for sql in texts if "sniff_csv" in sql)
    assert ("quote = " in look) != is_quoted
    assert is_free_of_changes(runs)  # a second parser would take as long as the verdict on the text itself


def test_missing_words_may_be_names_of_columns(session: SqlSession) -> None:
    Path("header.csv").write_text("id,NA,-\n1,N/A,x\n2,3,-\nnan,4,y\n")
    found = session.query("from 'header.csv'")
    assert (found.columns, found.types) == (("id", "NA", "-"), ("BIGINT", "BIGINT", "VARCHAR"))
    assert found.to_rows() == [[1, None, "x"], [2, 3, "-"], [None, 4, "y"]]
    assert [note.text for note in found.notes] == [
        "id: 1 \u00d7 'nan' read as missing",
        "NA: 1 \u00d7 'N/A' read as missing",
    ]


@pytest.mark.parametrize("first", ["1", "x"])
def test_quotes_behind_the_sample_of_a_large_file_are_no_part_of_a_cell(
    session: SqlSession, folder: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    Path("quotes.csv").write_text("a,b\n" + f"{first},x\n" * _MANY + f'{first},"y"\n{first},"z, z"\n')
    monkeypatch.setattr("nbtools.sql.files.reading.WHOLE_BYTES", 1000)
    engine = DuckDBEngine(options=EngineOptions(roots=(folder,)))
    query = f"select b from 'quotes.csv' offset {_MANY}"
    text = TextFiles().read(session.check(query), engine, QueryControl(), most_bytes=1000).sql
    rows = engine.run(QueryRequest(sql=text), QueryControl()).rows.to_lists()
    engine.close()
    assert rows == [["y"], ["z, z"]]


@pytest.mark.slow
@pytest.mark.broad
def test_words_in_a_large_file_of_very_many_columns_stay_and_that_is_told(session: SqlSession) -> None:
    lines = [
        ",".join([first, *("1" if first != "a" else f"c{at}" for at in range(600))]) for first in ("a", "2", "N/A")
    ]
    Path("many.csv").write_text("\n".join(lines))
    assert session.query("select a from 'many.csv'").to_rows() == [[2], [None]]
    Path("many.csv").write_text("\n".join(lines * 50))
    found = session.query("select a from 'many.csv' limit 2")
    assert found.to_rows() == [["2"], ["N/A"]]
    assert "words such as N/A are not read as missing" in found.footer()


def test_groups_of_a_text_that_was_read_whole_tell_no_sample(session: SqlSession) -> None:
    Path("long.csv").write_text("a,b\n" + "1,2\n" * 260_000)
    with session.open_pages("(select a, count(*) from 'long.csv' group by a)") as pager:
        assert (pager.source.is_whole, pager.source.notes) == (True, ())


@pytest.mark.parametrize("query", ["describe kinds.csv", "summarize kinds.csv", "pragma table_info('kinds.csv')"])
def test_a_file_without_quotes_is_described_as_it_is_read(session: SqlSession, query: str) -> None:
    Path("kinds.csv").write_text("n\n1\nN/A\n")
    assert session.query(query).to_rows()[0][:2] == ["n", "BIGINT"]


def test_a_line_behind_the_sample_that_ends_the_look_at_all_lines_is_told_where_a_query_does_not_reach_it(
    session: SqlSession,
) -> None:
    lines = "".join(f"{at},x,3\n" for at in range(100_000, 160_000))
    Path("late.csv").write_text(f"a,b,c\n{lines}1,2\n{lines}")
    first = session.query("from 'late.csv' limit 1")
    why = "types by its first lines, because all lines could not be examined: "
    assert (first.to_rows(), first.notes[0].text.startswith(why)) == ([[100_000, "x", 3]], True)
    assert "Expected Number of Columns: 3" in first.notes[0].text
    with pytest.raises(SqlFailed, match="Line: 60002"):
        session.query("select count(*) from 'late.csv'")
