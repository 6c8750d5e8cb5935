"""Dates and numbers that can be read in two ways: what proves one of them, and what is said where nothing does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nbtools.errors import SqlFailed, SqlInvalid
from nbtools.sql import SqlSession

pytestmark = pytest.mark.broad


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlSession]:
    monkeypatch.chdir(tmp_path)
    with SqlSession(allowed_paths=[tmp_path]) as opened:
        yield opened


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("d,x\n13.12.23,1\n14.12.23,2\n", "d: dates read as %d.%m.%y, though %y.%m.%d fits too"),
        ("d,x\n31.12.98,1\n14.11.23,2\n", None),
        ("d,x\n01/02/2023,1\nN/A,2\n", "d: dates read as %d/%m/%Y, though %m/%d/%Y fits too"),
        ("d,x\n31.12.2023,1\n02.12.2023,2\n", None),
        ("d,x\n02/02/2023,1\n", None),
        ("a,b\n3,4\n#5,z\n6,7\n", "without lines that begin with '#'"),
        ("# lab\n# mg\na,b\nx,1.5\ny,<0.1\nz,2.5\n", "without lines that begin with '#'"),
        ("id;n\n1;1.234\n2;950\n", "n: . read as the decimal sign"),
        ("id;n\n1;1.234\n2;950.5\n", None),
        ("id;n;x\n1;1.234;0.25\n", None),
        ("id\tn\n1\t1.234\n2\t95.250\n", None),
        ('n,p\n"1.234","1,234"\n"950","2,345"\n', "n: . read as the decimal sign"),
        ('n,p\n"1.234","1,5"\n"950","2,5"\n', "n: 1.234 read as 1234, because the decimal sign of p is a comma"),
        ("n;p;q\n1.234;1,5;0.25\n950;2,5;0.5\n", None),
        (
            "a,b\n13/02/2024,02/13/2024\n14/03/2024,03/14/2024\n",
            "b: dates read as %m/%d/%Y",
        ),
        (
            "a,b\n2024-02-13,13.02.2024\n2024-03-14,N/A\n",
            "b: dates read as %d.%m.%Y",
        ),
        ("a,b\n2024-02-13,01.02.2024\n", "b: dates as text, because %d.%m.%Y and %m.%d.%Y fit"),
        ("a,b\n2024-02-13,13.02.2024\n2024-02-13,13.02.24\n", None),
        ("a,b\n2024-02-13,1.2.3\n", None),
        ("t\n2024-01-01 10:00\n2024-01-01 10:00+02:00\n", "t: some times have no zone and others have one"),
        ("d\n31/12/25\n15/01/26\n", "d: dates read as %d/%m/%y, though %y/%m/%d fits too"),
        ("d\n12/31/25\n01/15/26\n", None),
        ("d\n01/02/26\n03/04/26\n", "d: dates read as %d/%m/%y, though %m/%d/%y and %y/%m/%d fit too"),
        ("d\n01/02/26 10:00:00\n", "d: dates read as %d/%m/%y %H:%M:%S, though %m/%d/%y %H:%M:%S and"),
        ("t\n2024-01-01 10:00Z\n2024-01-01 10:00+02:00\n", None),
    ],
)
def test_what_could_be_other_dates_or_numbers_and_what_is_left_out_as_a_comment_is_told(
    session: SqlSession, content: str, note: str | None
) -> None:
    name = f"doubt_{abs(hash(content))}.csv"
    for rows in (1,) if "#" in content else (1, 20_000):  # cells of small files are counted without the engine
        Path(name).write_text(content + content.partition("\n")[2] * (rows - 1))
        notes = [each.text for each in session.query(f"from '{name}'").notes if not each.words]
        assert [each.partition(";")[0].startswith(str(note)) for each in notes] == [True] * bool(note)


@pytest.mark.parametrize("rows", [1, 5_000, 40_000])
def test_each_column_of_dates_is_read_in_the_order_that_its_own_cells_prove(session: SqlSession, rows: int) -> None:
    lines = (
        "13/02/2024,02/13/2024,2/13/24 9:05,01/02/2024,8\n",
        "01/02/2024,02/01/2024,N/A,02/03/2024,8\n",
    )
    Path("orders.csv").write_text("a,b,c,d,n\n" + "".join(lines) * rows)
    found = session.query("select a::text, b::text, c::text, typeof(d), n from 'orders.csv' limit 2")
    expected = [["2024-02-13", "2024-02-13", "2024-02-13 09:05:00"], ["2024-02-01", "2024-02-01", None]]
    assert [row[:3] for row in found.to_rows()] == expected
    assert "b: dates read as %m/%d/%Y; those of a are written in another form" in found.footer()
    assert "'N/A' read as missing" in found.footer()


@pytest.mark.parametrize("empty", [100, 12_000, 40_000, pytest.param(400_000, marks=pytest.mark.slow)])
def test_a_column_of_dates_that_is_empty_for_long_is_read_as_dates(session: SqlSession, empty: int) -> None:
    Path("late.csv").write_text("n,a,b\n" + "1,,N/A\n" * empty + "2,13.02.2024,02/13/2024\n")
    found = session.query("select max(a)::text, max(b)::text from 'late.csv'")
    assert found.to_rows() == [["2024-02-13", "2024-02-13"]]
    assert "b: dates read as %m/%d/%Y; those of a are written in another form" in found.footer()


def test_a_late_date_that_proves_another_order_than_the_first_ones_is_followed(session: SqlSession) -> None:
    """The engine takes dates that fit both for those with the day first."""
    Path("late.csv").write_text("d\n" + "01/02/2024\n" * 30_000 + "01/13/2024\n")
    assert session.query("select min(d)::text, max(d)::text from 'late.csv'").to_rows() == [
        ["2024-01-02", "2024-01-13"]
    ]


@pytest.mark.parametrize("rows", [1, pytest.param(20_000, marks=pytest.mark.slow)])
def test_points_stand_between_thousands_where_another_column_has_decimal_commas(session: SqlSession, rows: int) -> None:
    """What no comma proves keeps its text: versions, addresses, codes."""
    lines = "1.000;0,00;1.00;10.0.0.1;007;01.02.2024\n50.813;1.234,50;2.5.1;10.0.0.2;008;13.02.2024\nN/A;-3;1;::1;9;\n"
    Path("menge.csv").write_text("menge;preis;version;ip;code;day\n" + lines * rows)
    query = "select sum(menge), sum(preis), min(version), min(ip), min(code), max(day)::text from "
    found = session.query(query + "'menge.csv'")
    assert found.to_rows() == [[51_813 * rows, 1231.5 * rows, "1", "10.0.0.1", "007", "2024-02-13"]]
    assert "menge: 1.234 read as 1234, because the decimal sign of preis is a comma" in found.footer()
    options = session.file_options("from 'menge.csv'")[0].options
    assert (options["decimal_separator"], options["thousands"]) == (",", ".")
    points = session.query("select max(menge), min(preis) from read_csv('menge.csv', decimal_separator = '.')")
    assert points.to_rows() == [[50.813, "-3"]]


@pytest.mark.parametrize("rows", [30, 8_000, 50_000])  # counted without the engine, looked at whole, by a sample first
@pytest.mark.parametrize("is_late", [False, True])
def test_few_cells_that_make_texts_of_a_column_are_named_and_codes_are_not(
    session: SqlSession, rows: int, is_late: bool
) -> None:
    lines = ["7,2024-01-31,true,10115,5"] * rows
    lines.insert(rows if is_late else 5, "oops,soon,maybe,01067,A5")
    Path("few.csv").write_text("\n".join(["n,d,b,zip,id", *lines, "N/A,,,,", ""]))
    found = session.query('select sum(TRY_CAST("n" AS DOUBLE)), count(TRY_CAST("d" AS DATE)) from \'few.csv\'')
    assert found.to_rows() == [[7 * rows, rows]]
    assert [note.text for note in found.notes] == [
        "n: text, because 1 cell is not a number, such as 'oops'; TRY_CAST(\"n\" AS DOUBLE) reads the others",
        "d: text, because 1 cell is not a date, such as 'soon'; TRY_CAST(\"d\" AS DATE) reads the others",
        "b: text, because 1 cell is not true or false, such as 'maybe'; TRY_CAST(\"b\" AS BOOLEAN) reads the others",
    ]


@pytest.mark.parametrize(
    ("cells", "count"),
    [
        (["EUR", *["19.99"] * 19], 1),
        ([*["19.99"] * 38, "a", "b"], 2),
        ([*["19.99"] * 37, "a", "b"], 0),
        ([*["5"] * 9, "a"], 0),
        ([*["5"] * 40, "a", "007"], 0),
        ([*["5"] * 40, "9b"], 0),
    ],
)
def test_the_cells_that_make_a_text_of_a_column_are_few_beside_many(
    session: SqlSession, cells: list[str], count: int
) -> None:
    Path("share.csv").write_text("x,n\n" + "".join(f"a,{cell}\n" for cell in cells))
    texts = [note.text for note in session.query("from 'share.csv'").notes]
    assert [text.startswith(f"n: text, because {count} cell") for text in texts] == [True] * bool(count)


def test_where_a_point_may_stand_between_thousands_the_way_says_how_it_reads_one(session: SqlSession) -> None:
    Path("german.csv").write_text("a;n\n" + "x;1.234\n" * 40 + "x;oops\n")
    (note,) = session.query("from 'german.csv'").notes
    assert note.text.endswith('TRY_CAST("n" AS DOUBLE) reads the others, with . as the decimal sign')


def test_with_dots_and_a_year_of_two_digits_the_day_stands_first(session: SqlSession) -> None:
    Path("dots.csv").write_text("d;x\n01.02.26;1\n31.12.25;2\n")
    days = [["2026-02-01"], ["2025-12-31"]]
    assert session.query("select d::text from 'dots.csv'").to_rows() == days
    own = session.query("select d::text from read_csv('dots.csv', dateformat = '%y.%m.%d')")
    assert own.to_rows() == [["2001-02-26"], ["2031-12-25"]]
    Path("later.csv").write_text("d,x\n" + "01.02.26,1\n" * 150_000 + "31.12.25,2\n")
    assert session.query("select distinct d::text from 'later.csv' order by 1 desc").to_rows() == days


@pytest.mark.parametrize(
    ("lines", "rows", "note"),
    [
        (
            ["2026-11-01T10:00:00 INFO up", "2026-11-01T10:00:01 WARN disk is full", "2026-11-02T10:00:01 INFO up"],
            3,
            "row",
        ),
        (["[01/Nov/2026:10:00:00] GET /", "[01/Nov/2026:10:00:01] GET /a b"], 2, "row"),
        (["anna,bonn,12", "ben,ulm,13", "carl,bonn,x", "dora,bonn,14"], 4, "row"),
        (["x,5", "1,6", "2,7"], 2, "header"),
        (["The first line says a lot.", "So do all those below it.", "And this is the end."], 2, "header"),
        (["city,2019,2020", "bonn,a,b", "ulm,c,d"], 2, ""),
        (["city,2020-01-22,2020-01-23", "Bonn,x,1", "Ulm,2,y"], 2, ""),
        (["What do you think of it, in a few words?", "much", "little"], 2, ""),
        (["anna,bonn", "ben,ulm"], 1, ""),
    ],
)
def test_a_first_line_that_looks_like_the_lines_below_it_is_a_row_or_is_told(
    session: SqlSession, lines: list[str], rows: int, note: str
) -> None:
    for times in (1, 20_000):
        name = f"first_{times}_{abs(hash(lines[0]))}.csv"
        Path(name).write_text("\n".join([lines[0], *lines[1:] * times, ""]))
        result = session.query(f"select count(*) from '{name}'")
        expected = (rows - len(lines) + 1) + (len(lines) - 1) * times
        said = [each.text.partition(",")[0] for each in result.notes if "first line" in each.text]
        said = [text.replace("as a row", "as the row") for text in said]
        assert (result.to_rows(), said) == ([[expected]], [f"its first line is read as the {note}"] * bool(note))
    whole = session.query(f"from read_csv('{name}', header = {str(note != 'header').lower()})")
    assert not any("first line" in each.text for each in whole.notes)


@pytest.mark.parametrize(("count", "is_told"), [(8, True), (9, False)])
def test_a_header_is_looked_for_below_eight_titles_and_no_more(session: SqlSession, count: int, is_told: bool) -> None:
    titles = "".join(f"Line {number},,\n" for number in range(count))
    Path("titles.csv").write_text(f"{titles}region,n,note\nN,1,a\nS,2,b\n")
    assert (f"skip = {count} makes" in session.query("from 'titles.csv'").footer()) is is_told


@pytest.mark.parametrize(
    ("lines", "header"),
    [
        (["country,2019,2020", "Chad,1,3", "Mali,2,4"], True),
        (["2019;2021;2023", "1;2;3"], True),
        (["country,1990,2000,2010", "Chad,1.5,3,0", "Mali,2.5,,1"], True),
        (["Chad,2019,2020", "Mali,2018,2021", "Niger,2000,2001"], False),
        (["1,2,3", "4,5,6"], False),
        (["2019,5", "2020,6"], False),
    ],
)
def test_years_in_equal_steps_above_numbers_are_the_header(session: SqlSession, lines: list[str], header: bool) -> None:
    for times in (1, 20_000):
        name = f"years_{times}.csv"
        Path(name).write_text("\n".join([lines[0], *lines[1:] * times, ""]))
        result = session.query(f"from '{name}'")
        assert (len(result.to_rows()) - (len(lines) - 1) * times, [*result.columns][-1]) == (
            (0, re.split("[,;]", lines[0])[-1]) if header else (1, f"column{len(result.columns) - 1}")
        )
        assert any("years in equal steps" in note.text for note in result.notes) == header
        own = session.query(f"select count(*) from read_csv('{name}', header = false)")
        assert (own.to_rows(), own.notes) == ([[(len(lines) - 1) * times + 1]], ())


def test_few_cells_that_make_a_text_are_told_of_workbooks_wide_and_large_files_and_decimal_commas(
    session: SqlSession,
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["v", "d", "b", "mix", "code"])
    for row in range(40):
        cells = [
            row / 4,
            datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None),
            True,
            "t" if row % 2 else 1,
            "A7" if row == 3 else row,
        ]
        book.active.append([*(["n.a.", "soon", "maybe"] if row == 20 else cells[:3]), *cells[3:]])
    book.save("few.xlsx")
    lines = [f"t,{','.join(f'c{column}' for column in range(600))}"]
    lines += [f"{row}," + ",".join(["n.a." if row == 20 else f"{row}.5", *["x"] * 599]) for row in range(40)]
    Path("wide.csv").write_text("\n".join(lines))
    Path("comma.csv").write_text(
        "n;v\n" + "".join(f"{row};{'n.a.' if row == 20 else f'1.{row + 100},5'}\n" for row in range(40))
    )
    commas = "TRY_CAST(replace(replace(\"v\", '.', ''), ',', '.') AS DOUBLE)"
    for source, ways in {
        "'few.xlsx'": {
            "v": 'TRY_CAST("v" AS DOUBLE)',
            "d": 'TRY_CAST("d" AS TIMESTAMP)',
            "b": 'TRY_CAST("b" AS BOOLEAN)',
        },
        "'wide.csv'": {"c0": 'TRY_CAST("c0" AS DOUBLE)'},
        "'comma.csv'": {"v": commas},
        "read_csv('comma.csv', decimal_separator = ',')": {"v": commas},
    }.items():
        told = [note.text for note in session.query(f"from {source}").notes]
        texts = {
            name: next(
                text
                for text in told
                if text.startswith((f"{name}: text, because 1 cell is not", f"{name}: text, because at least 1 cell"))
            )
            for name in ways
        }
        assert len([text for text in told if "text, because" in text]) == len(ways)
        for name, way in ways.items():
            assert f"; {way} reads the others" in texts[name]
            assert session.query(f"select count({way}) from {source}").to_rows() == [[39]]


@pytest.mark.parametrize(
    ("cells", "hint"),
    [
        ([*map(str, range(50)), "x300000"], "TRY_CAST(\"v\" AS DOUBLE) reads v as a number, and 'x300000' as missing"),
        (["1.5", "a-1", "x3"], "TRY_CAST(\"v\" AS DOUBLE) reads 1 of 3 cells of v; the rest, such as 'a-1', is null"),
        (["A-1", "A-2"], "v holds no numbers, but texts, such as 'A-1'"),
        (
            ["2.500", "3", "4 \u20ac", "5 \u20ac"],
            "TRY_CAST(regexp_replace(\"v\", '[^0-9.-]', '', 'g') AS DOUBLE) reads v as a number",
        ),
    ],
)
def test_a_way_to_numbers_changes_none_that_sql_reads(session: SqlSession, cells: list[str], hint: str) -> None:
    Path("codes.csv").write_text("v;w\n" + "".join(f"{cell};1\n" for cell in cells))
    with pytest.raises(SqlInvalid) as caught:
        session.query("select sum(v) from 'codes.csv'")
    assert caught.value.hint == hint


@pytest.mark.parametrize("mark", [";", "|", "\t"])
def test_a_mark_that_divides_all_lines_is_taken_before_one_that_skips_some(session: SqlSession, mark: str) -> None:
    Path("eu.csv").write_text(f"a{mark}b\n1,5{mark}2,5\n3,5{mark}4,5\n")
    result = session.query("from 'eu.csv'")
    assert (result.columns, result.to_rows(), result.notes) == (("a", "b"), [["1,5", "2,5"], ["3,5", "4,5"]], ())
    table = ["day;temp;note", "2024-01-01;1,5;cold", "2024-01-02;2,5;wet"]
    Path("title.csv").write_text("\n".join(["Report;of;weather", "x;y", *table]).replace(";", mark))
    result = session.query("select day::varchar, temp, note from 'title.csv'")
    assert result.to_rows() == [line.split(";") for line in table[1:]]
    assert [note.text for note in result.notes] == ["without its first 2 lines, whose columns differ"]


def test_the_way_to_read_doubled_quotes_changes_no_value(session: SqlSession) -> None:
    Path("names.csv").write_bytes(b'"a""b","l\nn"\r\n1,"a ""q"" b"\r\n')
    with pytest.raises(SqlFailed, match="sniffing") as caught:
        session.query("from 'names.csv'")
    result = session.query(str(caught.value.hint).partition(": ")[2])
    assert (result.columns, result.to_rows()) == (('a"b', "l\nn"), [[1, 'a "q" b']])


def test_a_word_for_a_missing_value_in_a_named_type_is_named_in_the_way_on(session: SqlSession) -> None:
    Path("gaps.csv").write_text("name,year\nx,2001\ny,N/A\n")
    with pytest.raises(SqlFailed, match="N/A") as caught:
        session.query("from read_csv('gaps.csv', types = {'year': 'DOUBLE'})")
    assert "nullstr = ['', 'N/A']" in str(caught.value.hint)
    way = str(caught.value.hint).partition(": ")[2]
    assert session.query(way).to_rows() == [["x", 2001.0], ["y", None]]


def test_all_lines_that_a_call_asks_for_are_read_by_the_same_rules(session: SqlSession) -> None:
    Path("gaps.csv").write_text("name,year\nx,2001\ny,N/A\n")
    result = session.query("from read_csv('gaps.csv', sample_size = -1)")
    assert (result.types, result.to_rows()) == (("VARCHAR", "BIGINT"), [["x", 2001], ["y", None]])
    assert [note.words for note in result.notes] == ["year"]
