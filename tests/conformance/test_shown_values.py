"""What people and models see of a value: each type, bare and nested, through every face, as DuckDB writes it.

A face that writes it otherwise stands in a table with its sentence; an entry that nothing needs is wrong as well.
"""

from __future__ import annotations

import contextlib
import decimal
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from nbtools.cli import main
from nbtools.sql import QueryResult, SqlSession, open_frame
from nbtools.widgets.table import TableView
from tests.conformance.leaves import DOCUMENT, DURATIONS, LEAVES, NAN, NESTINGS, WKB, query, read_back, texts_of

pytestmark = pytest.mark.broad

pytest.importorskip("pyarrow")
pytest.importorskip("polars")

# The leaves whose text a face writes otherwise, by a pattern of faces, and why.
OTHERWISE: dict[tuple[str, str], str] = {
    ("json", "BLOB"): "JSON has no bytes: they are a text of 0x and hexadecimal digits",
    ("json|arrow|polars|pandas", "GEOMETRY"): WKB,
    ("json|arrow|polars|pandas", "TIMESTAMP WITH TIME ZONE"): "an offset has minutes: +00:00 for +00",
    ("json|json file", "DECIMAL(4,2)"): "numbers of JSON keep no zeros at their end: 1.1",
    ("json file", "JSON"): DOCUMENT,
    ("json|json file", "DECIMAL(38,10)"): "numbers of JSON keep no zeros at their end: 0",
    ("pandas", "DOUBLE"): NAN,
    ("polars|pandas", "INTERVAL OF MONTHS"): DURATIONS,
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSession]:
    # Pages that stay open keep the instance of all that follow.
    with SqlSession(allowed_paths=[tmp_path_factory.mktemp("values")]) as opened, opened.open_pages("(SELECT 1)"):
        yield opened


def _differences(face: str, found: dict[str, list[Any]], expected: dict[str, list[Any]]) -> dict[str, Any]:
    wrong = {leaf: (found[leaf], texts) for leaf, texts in expected.items() if found[leaf] != texts}
    for faces, leaf in OTHERWISE:
        if re.fullmatch(faces, face) and wrong.pop(leaf, None) is None:
            wrong[leaf] = "is written like that, and stands in the table"
    return wrong


def _by_leaf(rows: list[list[Any]]) -> dict[str, list[Any]]:
    return {leaf: [row[at] for row in rows] for at, leaf in enumerate(LEAVES)}


def _grid(pager: Any) -> dict[str, list[str | None]]:
    with contextlib.closing(TableView(pager)) as table:
        page = table._page(0, 3, list(range(len(LEAVES))), 0)
        return _by_leaf([[_whole(cell) for cell in row] for row in page])


@pytest.mark.parametrize("nesting", NESTINGS)
def test_the_grid_shows_what_duckdb_writes_and_nested_values_as_text_does(session: SqlSession, nesting: str) -> None:
    asked = f"SELECT * EXCLUDE n FROM ({query(nesting)})"
    grid = _grid(session.open_pages(f"({asked})"))
    if nesting == "bare":
        assert grid == texts_of(nesting)
        return
    rows = json.loads(json.dumps(session.query(asked).to_rows()))
    text = _by_leaf([[None if cell is None else _text(cell) for cell in row] for row in rows])
    assert not _differences("json", grid, text)


@pytest.mark.parametrize("nesting", NESTINGS)
def test_what_is_saved_equals_what_the_grid_shows(session: SqlSession, nesting: str) -> None:
    leaves = tuple(LEAVES)
    for at in range(0, len(leaves), 4):  # as many as a page is wide
        text = f"(SELECT * EXCLUDE n FROM ({query(nesting, leaves[at : at + 4])}))"
        with contextlib.closing(TableView(session.open_pages(text))) as table:
            cells = [cell for row in table.state["first"]["rows"] for cell in row]
            saved = re.findall(r"<td([^>]*)>(.*?)</td>", table.plain_html(), flags=re.DOTALL)
        assert [html.unescape(text) for _, text in saved] == [
            " ".join(("null" if cell is None else _read(cell)).split()) for cell in cells
        ]
        for (attributes, _), cell in zip(saved, cells, strict=True):
            assert not isinstance(cell, tuple) or f"title='{cell[1]}'" in html.unescape(attributes)


def _whole(cell: Any) -> str | None:
    text = cell[1] if isinstance(cell, tuple) else cell
    return text if text is None else text.replace("<U+000A>", "\n")


def _read(cell: Any) -> str:
    return cell[0] if isinstance(cell, tuple) else cell


@pytest.mark.parametrize("face", ["arrow", "polars", "pandas"])
def test_the_grid_shows_a_frame_as_it_shows_the_query(session: SqlSession, face: str) -> None:
    result = session.query(f"SELECT * EXCLUDE n FROM ({query('bare')}) WHERE n > 0")
    grid = _grid(open_frame(getattr(result, f"to_{face}")()))
    assert not _differences(face, grid, {leaf: [row[0], row[2]] for leaf, row in texts_of("bare").items()})


@pytest.mark.parametrize("nesting", NESTINGS)
def test_text_and_json_have_each_value(session: SqlSession, nesting: str) -> None:
    result = session.query(f"SELECT * EXCLUDE n FROM ({query(nesting)})")
    lines = result.text(None, None).splitlines()[1:-1]
    rows = json.loads(json.dumps(result.to_rows()))
    told = [["NULL" if cell is None else _text(cell) for cell in row] for row in rows]
    assert lines == [" | ".join(cell.replace("|", "¦").replace("\n", "⏎") for cell in row) for row in told]
    if nesting == "bare":
        found = _by_leaf([[None if cell is None else _text(cell) for cell in row] for row in rows])
        assert not _differences("json", found, texts_of(nesting))


def _text(cell: Any) -> str:
    return str(cell) if isinstance(cell, str | decimal.Decimal) else json.dumps(cell, ensure_ascii=False)


@pytest.mark.processes
def test_the_command_line_prints_what_the_other_faces_have(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = f"SELECT * EXCLUDE n FROM ({query('bare')})"

    def printed(form: str) -> str:
        assert main(["sql", asked, "--format", form]) == 0
        return capsys.readouterr().out

    with SqlSession() as opened:
        result: QueryResult = opened.query(asked)
    assert printed("table").splitlines() == result.text(None, None).splitlines()
    Path("x.csv").write_text(printed("csv"))
    table = duckdb.sql("FROM read_csv('x.csv', all_varchar = true, allow_quoted_nulls = false)").to_arrow_table()
    assert read_back(table, tuple(LEAVES), "bare") == texts_of("bare")
    rows = json.loads(printed("json"), parse_float=decimal.Decimal)
    found = _by_leaf([[None if cell is None else _text(cell) for cell in row.values()] for row in rows])
    assert not _differences("json file", found, texts_of("bare"))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("12345678900.5::double", "12345678900.5"),
        ("123456789012.55::double", "123456789012.55"),
        ("9007199254740993::bigint", "9007199254740993"),
        ("1e300::double", "1e+300"),
        ("0.1::real", "0.1"),
        ("0.1::double + 0.2::double", "0.3"),
        ("1234567890123456789012345678.0000000001::decimal(38,10)", "1234567890123456789012345678.0000000001"),
        ("1234567890123456.8::double", "1234567890123456.8"),
    ],
)
def test_no_whole_digit_of_a_number_is_rounded_away(session: SqlSession, value: str, shown: str) -> None:
    with contextlib.closing(TableView(session.open_pages(f"(select {value} as x)"))) as table:
        assert f">{shown}<" in table.plain_html()
        assert shown in table.plain_text()
    result = session.query(f"select {value} as x")
    assert f">{shown}<" in result._repr_html_()
    exact = duckdb.sql(f"select ({value})::varchar").fetchall()[0][0]
    assert result.text().splitlines()[1] == exact
