"""Files are what their first bytes say: encodings, packed ones, workbooks, and forms that have no reader."""

from __future__ import annotations

import gzip
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbtools.sql.files
from nbtools.errors import FileMissing, LimitExceeded, NbtoolsError, SqlFailed, SqlInvalid
from nbtools.sql import SqlSession
from nbtools.sql.engines.duckdb.engine import DuckDBEngine
from nbtools.texts.sql_quotes import quote_text

pytestmark = pytest.mark.broad

openpyxl = pytest.importorskip("openpyxl")
pd = pytest.importorskip("pandas")

_TEXT = "name,n\nM\u00fcller,1\nMeier,N/A\n"
_ROWS = [["M\u00fcller", 1], ["Meier", None]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("forms")
    before = Path.cwd()
    os.chdir(made)
    _make_texts()
    _make_others()
    book = openpyxl.Workbook()
    book.active.title = "Sales"
    for row in (["May"], [None], ["code", "n", "mix"], ["NA", 1, "x"], ["DE", "N/A", 5], [None, 2.5, None]):
        book.active.append(row)
    for row in (["who", "k"], ["Ann", 1]):
        managers = book["Managers"] if "Managers" in book.sheetnames else book.create_sheet("Managers")
        managers.append(row)
    book.create_sheet("Empty")
    book.save("book.xlsx")
    yield made
    os.chdir(before)


def _make_texts() -> None:
    Path("be.csv").write_bytes(f"\ufeff{_TEXT}".encode("utf-16-be"))
    Path("le.csv").write_bytes(f"\ufeff{_TEXT}".encode("utf-16-le"))
    Path("bare.csv").write_bytes(_TEXT.encode("utf-16-le"))
    Path("bare_be.csv").write_bytes(_TEXT.encode("utf-16-be"))
    Path("packed.csv").write_bytes(gzip.compress(_TEXT.encode()))
    Path("wide.json").write_bytes('[{"name": "M\u00fcller", "n": 1}, {"name": "Meier", "n": null}]'.encode("utf-16"))
    Path("western.csv").write_bytes(_TEXT.encode("cp1252"))
    Path("japan.csv").write_bytes("\u540d\u524d,n\n\u5c71\u7530,1\n".encode("shift_jis"))
    Path("mixed.csv").write_bytes(_TEXT.encode() + "M\u00fcller,2\n".encode("latin-1"))


def _make_others() -> None:
    frame = pd.DataFrame({"a": [1]})
    frame.to_feather("x.feather")
    frame.to_feather("arrow.csv")
    frame.to_parquet("parquet.csv")
    with zipfile.ZipFile("x.zip", "w") as packed:
        packed.writestr("a.csv", "a\n1\n")
    Path("x.txt").write_text("a;b\n1;2\n")
    Path("x.html").write_text("<table></table>")
    Path("parts").mkdir()
    Path("d[1].csv").write_text("a\n1\n")
    Path("d1.csv").write_text("a\n99\n")
    frame.to_parquet("p[1].parquet")
    Path('it\'s\n odd "x".csv').write_text("a\n5\n")


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[SqlSession]:
    with SqlSession(allowed_paths=[folder]) as opened:
        yield opened


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize(
    "source",
    [
        *("'be.csv'", "'le.csv'", "'bare.csv'", "'bare_be.csv'", "'packed.csv'", "'wide.json'"),
        "read_csv('bare.csv', encoding = 'utf-16')",
        "read_csv('western.csv', encoding = 'cp1252')",
        "read_csv('western.csv', encoding = 'iso-8859-1')",
    ],
)
def test_a_text_is_read_in_the_encoding_that_it_tells_or_that_was_named(
    session: SqlSession, source: str, isolated: bool
) -> None:
    assert session.query(f"from {source}", isolated=isolated).to_rows() == _ROWS


def test_a_copy_in_utf_8_has_the_name_of_its_file(session: SqlSession, folder: Path) -> None:
    assert session.query("select distinct filename from 'be.csv'").to_rows() == [["be.csv"]]
    row = session.query("select * from read_csv('be.csv', filename = true) limit 1").to_rows()[0]
    assert row == ["M\u00fcller", 1, "be.csv"]
    with pytest.raises(NbtoolsError) as caught:
        session.query("select cast(name as int) from read_csv('be.csv', columns = {'name': 'INT', 'n': 'INT'})")
    assert "nbtools-sql-" not in caught.value.message


def test_a_file_that_has_changed_is_copied_anew(session: SqlSession) -> None:
    Path("grows.csv").write_bytes("a\n1\n".encode("utf-16"))
    assert session.query("from 'grows.csv'").to_rows() == [[1]]
    Path("grows.csv").write_bytes("a\n1\nx\n".encode("utf-16"))
    assert session.query("from 'grows.csv'").to_rows() == [["1"], ["x"]]


def test_a_copy_has_the_size_that_a_query_may_spill(folder: Path) -> None:
    with SqlSession(allowed_paths=[folder], spill_bytes=10) as small, pytest.raises(LimitExceeded, match="10 bytes"):
        small.query("from 'be.csv'")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("source", "error", "message", "hint"),
    [
        ("'western.csv'", SqlFailed, "is not UTF-8", "encoding = 'cp1252'"),
        ("'mixed.csv'", SqlFailed, "Line: 4: the file is not UTF-8", "encoding = 'cp1252'"),
        ("read_csv('japan.csv', encoding = 'utf-16')", SqlFailed, "japan.csv is not utf-16", "such as 'cp1252'"),
        ("read_csv('japan.csv', encoding = 'shift_jsi')", SqlInvalid, "no encoding 'shift_jsi'", "shift_jis"),
        ("read_csv('japan.csv', encoding = 'base64')", SqlInvalid, "no encoding 'base64'", "such as"),
        ("'parquet.csv'", SqlInvalid, "is a Parquet by its first bytes", "FROM read_parquet('parquet.csv')"),
        ("read_csv('book.xlsx')", SqlInvalid, "is a workbook by its first bytes", "FROM read_xlsx('book.xlsx')"),
        ("'arrow.csv'", SqlInvalid, "cannot be read by SQL", "%%data_analyze 'arrow.csv' reads what pandas reads"),
        ("'x.feather'", SqlInvalid, "cannot be read by SQL", "%%data_analyze 'x.feather' reads what pandas reads"),
        ("'x.zip'", SqlInvalid, "cannot be read by SQL", "%%data_analyze 'x.zip' reads what pandas reads"),
        ("'x.html'", SqlInvalid, "cannot be read by SQL", "%%data_analyze 'x.html' reads what pandas reads"),
        ("'x.txt'", SqlInvalid, "is a text", "FROM read_csv('x.txt')"),
        ("parts", SqlInvalid, "'parts' is a folder", "'parts/**/*.parquet'"),
        ("'none.feather'", SqlInvalid, "does not exist", "Tables are frames"),
        ("read_xlsx('absent.xlsx')", FileMissing, "does not exist", "start at"),
        ("read_xlsx('book.xlsx', sheet = 'Mangers')", SqlInvalid, "has no sheet 'Mangers'", "Managers"),
        (
            "read_xlsx('book.xlsx', sheet = 'Empty')",
            SqlInvalid,
            "sheet 'Empty' of book.xlsx is empty",
            "sheet = 'Sales'",
        ),
        ("read_xlsx('book.xlsx', range = 'B')", SqlInvalid, "'B' is not a range of cells", "B3:F20"),
        ("read_xlsx('book.xlsx', skip = 1)", SqlInvalid, "no option 'skip'", "header, nullstr, range, sheet"),
        ("read_xlsx('book.xlsx', header = 'x')", SqlInvalid, "does not accept header = 'x'", "true or 3"),
        ("read_xlsx('book.xlsx', sheet = 'a' || 'b')", SqlInvalid, "is not a constant", "value itself"),
    ],
)
@pytest.mark.parametrize("isolated", [False, True])
def test_what_cannot_be_read_is_told_with_the_way(
    session: SqlSession, source: str, error: type[Exception], message: str, hint: str, isolated: bool
) -> None:
    with pytest.raises(error) as caught:
        session.query(f"from {source}", isolated=isolated)
    assert message in caught.value.message
    assert hint.lower() in str(caught.value.hint).lower()


_BOOK: dict[str, list[list[Any]]] = {
    "header = 3": [["NA", 1.0, "x"], ["DE", None, "5"], [None, 2.5, None]],
    "sheet = 'Managers'": [["Ann", 1]],
    "sheet = 2": [["Ann", 1]],
    "range = 'A3:B5'": [["NA", 1.0], ["DE", None]],
    "header = 3, nullstr = ''": [["NA", "1", "x"], ["DE", "N/A", "5"], [None, "2.5", None]],
    "range = 'B4:B6', header = false": [[1.0], [None], [2.5]],
}


@pytest.mark.processes
@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("options", _BOOK)
def test_a_sheet_a_range_and_a_header_row_can_be_named(session: SqlSession, options: str, isolated: bool) -> None:
    found = session.query(f"from read_xlsx('book.xlsx', {options})", isolated=isolated)
    assert found.to_rows() == _BOOK[options]
    assert found.columns[-1] == ("B" if "false" in options else {3: "mix", 2: found.columns[-1]}[len(found.columns)])


def test_other_sheets_and_missing_words_of_a_workbook_are_told(session: SqlSession) -> None:
    found = session.query("select count(*) from read_xlsx('book.xlsx', header = 3)")
    assert list(map(str, found.notes)) == [
        "book.xlsx: sheet 'Sales'; also in this workbook: 'Managers', 'Empty'",
        "book.xlsx: n: 1 \u00d7 'N/A' read as missing",
    ]
    assert session.query("from 'book.xlsx'").notes[0].text.startswith("sheet 'Sales'")


def test_cells_that_a_merge_leaves_empty_are_told_where_they_are_read(session: SqlSession) -> None:
    book = openpyxl.Workbook()
    for row in (["region", "n", "x"], ["north", 1, 1], [None, 2, None], ["south", 3, 3], [None, 4, 4]):
        book.active.append(row)
    for cells in ("A2:A3", "A4:A5", "B1:C1"):
        book.active.merge_cells(cells)
    book.save("merged.xlsx")
    assert "cells A2:A3, A4:A5 are merged: those below" in session.query("from 'merged.xlsx'").footer()
    assert "cells A4:A5 are" in session.query("from read_xlsx('merged.xlsx', range = 'A4:B5', header = false)").footer()
    assert "merged:" not in session.query("from read_xlsx('merged.xlsx', range = 'B1:C5')").footer()


@pytest.mark.parametrize("above", [0, 2])
def test_the_row_of_names_below_a_merged_header_is_told(session: SqlSession, above: int) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (
        [["Report"]] * above,
        [["Region", None, "Sales", None]],
        [["name", "code", "q1", "q2"], ["N", "n", 1, 2]],
    ):
        for cells in row:
            sheet.append(cells)
    sheet.merge_cells(start_row=above + 1, end_row=above + 1, start_column=1, end_column=2)
    book.save("merged.xlsx")
    text = session.query("from 'merged.xlsx'").notes[0].text
    named = 1 if above else 2
    assert text == f"the header names {named} of 4 columns; header = {above + 2} makes row {above + 2} the header"
    found = session.query(f"from read_xlsx('merged.xlsx', header = {above + 2})")
    assert (found.columns, found.to_rows(), found.notes) == (("name", "code", "q1", "q2"), [["N", "n", 1, 2]], ())


def test_sheets_are_joined_and_looked_at_page_by_page(session: SqlSession) -> None:
    joined = "read_xlsx('book.xlsx', sheet = 'Managers') a, read_xlsx('book.xlsx', header = 3) as b, 'be.csv'"
    assert session.query(f"select a.who, b.n, be.n from {joined} limit 1").to_rows() == [["Ann", 1.0, 1]]
    with session.open_pages("read_xlsx('book.xlsx', header = 3)") as pages:
        assert pages.cells(0, 3, [0, 1]) == [["NA", "1.0"], ["DE", None], [None, "2.5"]]
        assert len(pages.source.notes) == 2
        assert not pages.is_changed()
    with session.open_pages(f"(select a.who, b.n, be.n as m from {joined})") as pages:
        pages.finish()
        assert pages.cells(0, 1, [0, 1, 2]) == [["Ann", "1.0", "1"]]


@pytest.mark.processes
@pytest.mark.parametrize("source", ["'d[1].csv'", "read_csv('d[1].csv')", "'p[1].parquet'", "read_csv(['d[1].csv'])"])
@pytest.mark.parametrize("isolated", [False, True])
def test_a_file_that_is_named_is_that_file(session: SqlSession, source: str, isolated: bool) -> None:
    assert session.query(f"from {source}", isolated=isolated).to_rows() == [[1]]


def test_a_pattern_is_one_where_no_file_has_its_name(session: SqlSession) -> None:
    assert session.query("from 'd[0-9].csv'").to_rows() == [[99]]
    assert session.query("from 'it''s\n odd \"x\".csv'").to_rows() == [[5]]
    with session.open_pages("'d[1].csv'") as pages:
        assert pages.cells(0, 1, [0]) == [["1"]]


_LETTERS = {
    "cp1252": "name,n\nM\u00fcller,1\nGr\u00f6\u00dfe,2\n",
    "cp1250": "jm\u00e9no,n\nDvo\u0159\u00e1k,1\n\u017elu\u0165ou\u010dk\u00fd,2\n",
    "cp1251": "\u0438\u043c\u044f,n\n\u041f\u0440\u0438\u0432\u0435\u0442,1\n\u0418\u0432\u0430\u043d,2\n",
    "shift_jis": "\u540d\u524d,n\n\u5c71\u7530,1\n\u30c7\u30fc\u30bf,2\n",
    "euc_jp": "\u540d\u524d,n\n\u3084\u307e\u3060 \u305f\u308d\u3046,1\n\u6771\u4eac\u306e\u5929\u6c17,2\n",
    "euc_kr": "\uc774\ub984,n\n\uc548\ub155\ud558\uc138\uc694,1\n\uc548\ub155,2\n",
    "gb18030": "\u59d3\u540d,n\n\u5c71\u7530\u4e2d\u56fd,1\n\u4eba\u6c11,2\n",
    "big5": "\u59d3\u540d,n\n\u81fa\u5317\u5e02\u4e2d\u6b63\u5340,1\n\u91cd\u6176\u5357\u8def,2\n",
}


def test_the_file_of_a_pattern_that_cannot_be_read_is_named(session: SqlSession) -> None:
    Path("pattern").mkdir()
    Path("pattern/1.csv").write_text("a,b\n1,x\n")
    Path("pattern/2.csv").write_bytes(b"a,b\n1,x\n2,\xe9\n")
    with pytest.raises(SqlFailed, match=r"2\.csv: CSV Error on Line: 3: the file is not UTF-8") as caught:
        session.query("from 'pattern/*.csv'")
    assert "read_csv('pattern/2.csv', encoding = " in str(caught.value.hint)
    Path("pattern/2.csv").write_text("a,b\n" + "1,x\n" * 21_000 + "1,2,3\n")
    with pytest.raises(SqlFailed, match=r"2\.csv: CSV Error on Line: 21002"):
        session.query("from 'pattern/*.csv'")


@pytest.mark.parametrize("asked", ["sum({})", "{} * 2", "CAST({} AS DOUBLE)"])
def test_a_text_that_is_a_number_with_other_marks_is_told_with_the_way(session: SqlSession, asked: str) -> None:
    Path("marks.csv").write_text(
        "id;comma;point;either;neither;swiss;blank\n"
        "1;1.234,50;1,234.50;2,000;1.2.3;1'234.5;1 234\n2;3,25;3.25;3,000;1.2.4;3.5;7\n3;N/A;7;4,000;1.2.5;2;4\n"
    )
    ways = {
        "comma": ["read_csv('marks.csv', decimal_separator = ',', thousands = '.')"],
        "point": ["read_csv('marks.csv', decimal_separator = '.', thousands = ',')"],
        "neither": [],
        "swiss": ["read_csv('marks.csv', decimal_separator = '.', thousands = '''')"],
        "blank": ["read_csv('marks.csv', decimal_separator = ',', thousands = ' ')"],
    }
    ways["either"] = ways["point"] + ways["comma"]
    for column, calls in ways.items():
        with pytest.raises((SqlInvalid, SqlFailed)) as caught:
            session.query(f"select {asked.format(column)} from 'marks.csv'")
        hint = str(caught.value.hint)
        assert re.findall(r"read_csv\([^)]*\)", hint) == calls
        assert len(caught.value.message.split("\n")[0]) < 150
    for column, total in (("comma", 1237.75), ("point", 1244.75)):
        assert session.query(f"select sum({column}) from {ways[column][0]}").to_rows() == [[total]]


@pytest.mark.parametrize("encoding", _LETTERS)
def test_encodings_that_a_file_may_have_are_named_and_taken(session: SqlSession, encoding: str) -> None:
    Path("letters.csv").write_bytes(_LETTERS[encoding].encode(encoding))
    (options,) = session.file_options("select n from 'letters.csv' where n > 1")
    assert options.encodings[0] == encoding
    assert "not UTF-8" in options.problem
    sql = options.rewritten(encoding=encoding)
    assert sql == f"select n from read_csv('letters.csv', encoding = '{encoding}') AS \"letters\" where n > 1"
    assert session.query(sql).to_rows() == [[2]]


def test_options_tell_what_stands_in_a_file(session: SqlSession) -> None:
    Path("preamble.csv").write_text("Report of May\n\nname;n\nA;1\nB;N/A\n")
    text, book = session.file_options("from 'preamble.csv' p, read_xlsx('book.xlsx', sheet = 'Managers', header = 1) b")
    assert {name: text.options[name] for name in ("delim", "skip", "header", "encoding")} == {
        "delim": ";",
        "skip": 2,
        "header": True,
        "encoding": "utf-8",
    }
    assert (text.explicit, text.missing) == ((), (("n", 1, ("N/A",)),))
    assert book.sheets == ("Sales", "Managers", "Empty")
    assert (book.options["sheet"], book.explicit) == ("Managers", ("sheet", "header"))
    assert "read_xlsx('book.xlsx', sheet = 'Sales', range = 'A3:C6') b" in book.rewritten(
        sheet="Sales", range="A3:C6", header=None
    )
    rows = session.query(text.rewritten(nullstr="").replace("from", "select p.n from")).to_rows()
    assert rows == [["1"], ["N/A"]]
    with pytest.raises(SqlInvalid, match="takes no float"):
        text.rewritten(skip=1.5)


def test_the_examples_of_the_help_page_run(session: SqlSession) -> None:
    frame = pd.DataFrame({"code": ["007", "NA"], "n": [1, 2]})
    frame.to_csv("sales.csv", index=False)
    frame.to_csv("sales.csv.gz", index=False)
    Path("parts").mkdir(exist_ok=True)
    frame.to_csv("parts/one.csv", index=False)
    Path("report.csv").write_text("May\n\nname;n\nA;1,5\n")
    Path("umsatz.csv").write_text("id;n\n1;1.234\n2;950\n")
    Path("notes.txt").write_text("a|b\n1|2\n")
    queries = re.findall(r"^    (FROM .+)$", nbtools.sql.files.__doc__ or "", re.MULTILINE)
    assert len(queries) > 10
    assert all(len(session.query(query)) for query in queries)
    assert session.query("FROM read_csv('report.csv', skip = 2, delim = ';', decimal_separator = ',')").to_rows() == [
        ["A", 1.5]
    ]
    german = session.query("FROM read_csv('umsatz.csv', decimal_separator = ',', thousands = '.')")
    assert german.to_rows() == [[1, 1234], [2, 950]]


def test_the_way_past_a_bad_line_keeps_what_the_query_says_of_the_file(session: SqlSession) -> None:
    Path("typed.csv").write_text("a,b\n1,2\n3,x\n")
    with pytest.raises(SqlFailed, match="Could not convert") as caught:
        session.query("from read_csv('typed.csv', types = {'b': 'INTEGER'})")
    way = str(caught.value.hint).partition("leave out such lines: ")[2].partition(";")[0]
    assert session.query(way).to_rows() == [[1, 2]]


@pytest.mark.parametrize(
    "use", ["t > 1", "t between 1 and 2", "coalesce(t, 1)", "case when true then t else 1 end", "t + 1"]
)
def test_a_text_that_is_used_as_a_number_is_answered_with_the_way(session: SqlSession, use: str) -> None:
    Path("t.csv").write_text("t\nx\n3\n4\n")
    with pytest.raises(SqlInvalid, match="explicit") as caught:
        session.query(f"select {use} from 't.csv'")
    assert caught.value.hint == "TRY_CAST(\"t\" AS DOUBLE) reads t as a number, and 'x' as missing"
    if "+" not in use:
        with pytest.raises(SqlInvalid, match="explicit cast") as caught:
            session.query(f"select {use} from (select 'x' || 'y' as t)")
        assert str(caught.value.hint).startswith("TRY_CAST(x AS DOUBLE) turns a text x into a number")


@pytest.mark.parametrize("lines", [50, 50_000])
def test_one_strange_text_among_numbers_is_named_with_the_way_on(session: SqlSession, lines: int) -> None:
    Path("strange.csv").write_text("id,amount\n" + "".join(f"{at},{at}.5\n" for at in range(lines)) + "7,soon\n")
    with pytest.raises(SqlInvalid, match="No function matches") as caught:
        session.query("select sum(amount) from 'strange.csv'")
    assert caught.value.hint == "TRY_CAST(\"amount\" AS DOUBLE) reads amount as a number, and 'soon' as missing"
    asked = session.query("select sum(TRY_CAST(\"amount\" AS DOUBLE)) from 'strange.csv'")
    assert asked.to_rows() == [[sum(at + 0.5 for at in range(lines))]]


def test_strange_texts_are_looked_for_once_in_the_columns_that_a_query_names(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = DuckDBEngine.ask
    monkeypatch.setattr(DuckDBEngine, "ask", lambda *each: asked.append(each[1]) or ask(*each))
    Path("wide.csv").write_text("a,sum a,b,code,m\n" + "1,1,1,007,1\n" * 50 + "soon,x,y,008,N/A\nN/A,x,y,009,z\n")
    with pytest.raises(SqlInvalid, match="No function matches") as caught:
        session.query("select sum(\"sum a\"), sum(a), max(m), min(code) from 'wide.csv'")
    assert caught.value.hint == ", or ".join(
        f'TRY_CAST("{name}" AS DOUBLE) reads {name} as a number, and {cell!r} as missing'
        for name, cell in (("a", "soon"), ("sum a", "x"), ("m", "z"))
    )
    assert sum("min(" in sql and "all_varchar" in sql for sql in asked) == 1
    assert not any('TRY_CAST("b"' in sql for sql in asked)


def test_short_rows_are_filled_up_where_cells_hold_line_ends(session: SqlSession) -> None:
    Path("lines.csv").write_text('a,b,c\n1,"x\ny",3\n2,3\n')
    rows = [[1, "x\ny", 3], [2, "3", None]]
    whole = session.query("from 'lines.csv'")
    assert (whole.to_rows(), "have different numbers of fields" in whole.footer()) == (rows, True)
    assert session.query("from read_csv('lines.csv', null_padding = true)").to_rows() == rows
    with pytest.raises(SqlFailed, match="sniffing") as caught:
        session.query("from read_csv('lines.csv', header = true, delim = ',')")
    assert session.query(str(caught.value.hint).removeprefix("Read it this way: ")).to_rows() == rows
    with pytest.raises(SqlFailed, match="sniffing") as caught:
        session.query(
            "from read_csv('lines.csv', delim = ',', columns = {a: 'INT', b: 'TEXT', c: 'INT'}, null_padding = true)"
        )
    hint = str(caught.value.hint).removeprefix("Read it this way: ")
    assert "delim = ',', columns = {a: 'INT', b: 'TEXT', c: 'INT'}, null_padding = true, " in hint
    assert session.query(hint).to_rows() == rows
    Path("lines.csv").write_text('Beleg;Betrag;x\n1;"1.234,56";3\n2;200,00\n')
    assert session.query("from 'lines.csv'").to_rows() == [[1, "1.234,56", 3], [2, "200,00", None]]


def test_bad_lines_and_cells_are_told_with_the_way_on(session: SqlSession) -> None:
    Path("short.csv").write_text("a,b,c\nx,y,z\np,q,r\nv,w\n")
    footer = session.query("from 'short.csv'").footer()
    assert "as a single column, because its rows have different numbers" in footer
    assert len(session.query(f"from {footer[footer.index('read_csv') : footer.index(' splits them')]}").columns) == 3
    Path("quote.csv").write_text('id,txt\n1,"a ""b"" c"\n2,"line\nbreak"\n3,"unclosed\n4,x\n')
    unclosed = session.query("from 'quote.csv'").footer()
    assert "as a single column, because line 5 opens a quote and does not close it; close it" in unclosed
    Path("ends.csv").write_bytes(b'"a","b"\r\n"x","y"\n"z","w"')
    with pytest.raises(SqlFailed, match="sniffing") as caught:
        session.query("select a from 'ends.csv'")
    assert caught.value.hint == "Read it this way: FROM read_csv('ends.csv', strict_mode = false)"
    assert session.query("FROM read_csv('ends.csv', strict_mode = false)").to_rows() == [["x", "y"], ["z", "w"]]
    Path("two.csv").write_bytes(b"a,b\n" + "\u00e9,1\n".encode() * 50 + "\u00e9,2\n".encode("latin-1") * 50)
    with pytest.raises(SqlFailed, match="not UTF-8") as caught:
        session.query("from 'two.csv'")
    assert "FROM read_csv('two.csv', encoding = 'cp1252')" in str(caught.value.hint)
    Path("log.jsonl").write_text('{"a": 1}\nnot json\n{"a": 2}\n')
    with pytest.raises(SqlFailed, match=r"Malformed JSON.* in line 2") as caught:
        session.query("select sum(a) from 'log.jsonl'")
    assert str(caught.value.hint).endswith("FROM read_json('log.jsonl', ignore_errors = true)")
    passed = session.query("select sum(a) FROM read_json('log.jsonl', ignore_errors = true)")
    assert passed.to_rows() == [[3]]
    assert "log.jsonl (1 line that holds no object read as missing values)" in passed.footer()
    assert "single" not in session.query("from read_csv('short.csv', delim = '|')").footer()
    with pytest.raises(SqlInvalid) as caught:
        session.query("from read_csv('short.csv', thousands = '.')")
    assert caught.value.hint == "Name both: thousands = '.', decimal_separator = ','."
    Path("late.csv").write_text("id,v\n" + "1,1\n" * 30_000 + "oops,1,2,3\n")
    with pytest.raises(SqlFailed, match=r"Line: 30002 .*oops,1,2,3") as caught:
        session.query("select max(id) from 'late.csv'")
    assert "ignore_errors = true" in str(caught.value.hint)
    assert "null_padding" not in str(caught.value.hint)
    Path("ragged.csv").write_text("id,v\n" + "1,100000000\n" * 100_000 + "2\n")
    with pytest.raises(SqlFailed, match="Found: 1") as caught:
        session.query("select count(*) from read_csv('ragged.csv', header = true)")
    ways = re.findall(r"FROM read_csv\([^)]*\)", str(caught.value.hint))
    assert [session.query(f"select count(*), max(id) {way}").to_rows() for way in ways] == [
        [[100_001, 2]],
        [[100_000, 1]],
    ]
    book = openpyxl.Workbook()
    for row in (["x", "y"], [1, "=A2+1"]):
        book.active.append(row)
    book.save("formulas.xlsx")
    assert "formulas without a stored value" in session.query("from 'formulas.xlsx'").footer()
    book.create_sheet("errors").append(["name", "#N/A"])
    book["errors"].append(["a", "#N/A"])
    book.save("formulas.xlsx")
    assert "formulas whose" not in session.query("from read_xlsx('formulas.xlsx', sheet = 'errors')").footer()
    Path("locked.xlsx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2_000))
    with pytest.raises(SqlInvalid, match="protected by a password"):
        session.query("from 'locked.xlsx'")


@pytest.mark.parametrize("name", ["q'uo\"te.csv", "br[1].csv", "li\nne.csv", "\u540d.csv"])
def test_a_file_has_any_name(session: SqlSession, name: str) -> None:
    Path(name).write_text("N/A,NA,null\n1,N/A,3\n")
    found = session.query(f"from {quote_text(name)}")
    assert (found.columns, found.to_rows()) == (("N/A", "NA", "null"), [[1, "N/A", 3]])


def test_a_hint_names_the_likeliest_encoding(session: SqlSession) -> None:
    for name, encoding in (("japan.csv", "'shift_jis'"), ("western.csv", "'cp1252'"), ("mixed.csv", "mixes encodings")):
        with pytest.raises(SqlFailed) as caught:
            session.query(f"from '{name}'")
        assert encoding in str(caught.value.hint).partition(";")[0 if encoding != "mixes encodings" else 2]


def test_the_page_on_files_is_a_page_of_help() -> None:
    from nbtools.jupyter.help_pages import help_page

    assert "read_xlsx('book.xlsx', sheet = 'Managers')" in help_page("files", {})
    assert "Files in SQL" in help_page(None, {})


@pytest.mark.processes
def test_cells_of_a_workbook_are_what_they_say_and_texts_stay_texts(session: SqlSession) -> None:
    book = openpyxl.Workbook()
    for row in (
        ("code", "word", "n", "f", "b", "mixed"),
        ("007", "true", 1, 1.5, True, "7"),
        ("010", "false", None, 2, False, 7),
        (None, "N/A", 3, None, None, None),
    ):
        book.active.append(row)
    book.save("kinds.xlsx")
    for isolated in (False, True):
        found = session.query("from 'kinds.xlsx'", isolated=isolated)
        assert found.types[:2] == ("VARCHAR", "VARCHAR")
        assert found.to_rows() == [
            ["007", "true", 1, 1.5, True, "7"],
            ["010", "false", None, 2.0, False, "7"],
            [None, "N/A", 3, None, None, None],
        ]


@pytest.mark.parametrize("query", ["from 'citys.csv'", "from read_csv('Citys.csv')", "from read_xlsx('citys.xlsx')"])
def test_a_mistyped_name_of_a_file_is_offered_the_one_beside_it(session: SqlSession, query: str) -> None:
    Path("cities.csv").write_text("a\n1\n")
    with pytest.raises(FileMissing) as refused:
        session.query(query)
    assert refused.value.hint == "Did you mean 'cities.csv'?"


def test_of_many_sheets_the_nearest_is_named_or_a_few(session: SqlSession) -> None:
    book = openpyxl.Workbook()
    for number in range(40):
        book.create_sheet(f"Month {number}")
    book.save("months.xlsx")
    with pytest.raises(SqlInvalid) as refused:
        session.query("from read_xlsx('months.xlsx', sheet = 'Mnth 39')")
    assert refused.value.hint == "Did you mean 'Month 39'?"
    book.create_sheet("It's")
    book.save("sheets.xlsx")
    with pytest.raises(SqlInvalid) as refused:
        session.query("from read_xlsx('sheets.xlsx', sheet = 'Its')")
    assert refused.value.hint == "Did you mean 'It''s'?"
    with pytest.raises(SqlInvalid) as refused:
        session.query("from read_xlsx('months.xlsx', sheet = 'Totals')")
    assert str(refused.value.hint).endswith("'Month 18' and 21 more.")


def test_values_of_several_kinds_in_json_are_told_with_the_way_to_numbers(session: SqlSession) -> None:
    lines = [*(f'{{"id": {at}, "v": {at / 2}}}\n' for at in range(900)), '{"id": 1, "v": "7"}\n{"id": 2, "v": null}\n']
    Path("events.jsonl").write_text("".join(lines))
    told = [note.text for note in session.query("select v from 'events.jsonl'").notes]
    assert told == ["v: as JSON; \"v\"->>'$' gives each value as text"]
    for number in ("sum(v)", "v + 1"):
        with pytest.raises(SqlInvalid) as caught:
            session.query(f"select {number} from 'events.jsonl'")
        assert caught.value.hint == "TRY_CAST(COLUMN->>'$' AS DOUBLE) reads a column of JSON as numbers."
    numbers = session.query("select sum(TRY_CAST(v->>'$' AS DOUBLE)) from 'events.jsonl'")
    assert numbers.to_rows() == [[sum(at / 2 for at in range(900)) + 7]]


def test_a_hint_was_tried_on_the_file_in_the_encoding_that_was_named(session: SqlSession) -> None:
    Path("regions.csv").write_bytes('a;"b\n(\xe9)"\rx;y\r\nz;w\n'.encode("cp1252"))
    with pytest.raises(SqlFailed) as caught:
        session.query("from 'regions.csv'")
    assert "encoding = '" in str(caught.value.hint)
    named = "read_csv('regions.csv', encoding = 'cp1252'"
    with pytest.raises(SqlFailed) as caught:
        session.query(f"from {named})")
    assert caught.value.hint == f"Read it this way: FROM {named}, strict_mode = false)"
    assert session.query(f"from {named}, strict_mode = false)").row_count >= 2


def test_the_way_to_the_numbers_of_shares_and_currencies_reads_them(session: SqlSession) -> None:
    columns = {"share": ["12%", "12.5%"], "dollars": ["$12", "$1,250.25"], "euros": ["1.250,50 \u20ac", "3 \u20ac"]}
    columns |= {"unit": ["12,50 EUR", "1.200,00 EUR"], "minus": ["1.234,56", "200,00-"], "mass": ["5 g", "7 kg"]}
    lines = [";".join([*columns, "last"]), *map(";".join, zip(*columns.values(), ["1", "2"], strict=True))]
    Path("signs.csv").write_text("\n".join([*lines, ";".join(row[1] for row in columns.values())]))  # a short line
    values = {"share": [12, 12.5], "dollars": [12, 1250.25], "euros": [1250.5, 3], "unit": [12.5, 1200]}
    for column, pair in {**values, "minus": [1234.56, -200]}.items():
        numbers = [*pair, pair[1]]
        with pytest.raises(SqlInvalid) as caught:
            session.query(f"select sum({column}) from 'signs.csv'")
        way = str(caught.value.hint).removesuffix(f" reads {column} as a number")
        text = f"select {column} {way}" if way.startswith("FROM") else f"select {way} from 'signs.csv'"
        assert session.query(text).to_rows() == [[number] for number in numbers]
    for column, what in (("mass", "mass holds numbers with different units, such as '5 g'"),):
        with pytest.raises(SqlInvalid) as caught:
            session.query(f"select sum({column}) from 'signs.csv'")
        assert caught.value.hint == what


@pytest.mark.parametrize("options", ["encoding = 'cp1252'", "encoding = 'cp1252', decimal_separator = ','"])
def test_the_way_to_numbers_is_found_in_the_encoding_that_was_named(session: SqlSession, options: str) -> None:
    Path("sales.csv").write_bytes("id;sum (\u20ac)\n1;1.234,56\n2;1.000,50\n".encode("cp1252"))
    with pytest.raises(SqlInvalid) as caught:
        session.query(f"select sum(\"sum (\u20ac)\") from read_csv('sales.csv', {options})")
    way = str(caught.value.hint).removesuffix(" reads sum (\u20ac) as a number")
    assert session.query(f'select sum("sum (\u20ac)") {way}').to_rows() == [[2235.06]]
