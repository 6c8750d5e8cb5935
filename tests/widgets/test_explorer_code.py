"""What the explorer inserts as pandas or polars makes the rows that it shows, or says that it has no words."""

from __future__ import annotations

import datetime as dt
import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from nbtools.assembly.workbench import Workbench
from tests.conftest import mostly_slow

pytestmark = pytest.mark.broad

LANGUAGES = ("pandas", "polars")
REFUSED = "might give other values or types"
# Of each file: its bytes, a column to filter and sort by, a comparison with it, and what refuses it.
FILES: dict[str, tuple[bytes, str, tuple[str, str], tuple[str, ...]]] = {
    **{
        f"dates {form}": (
            "\n".join(["id;day", *(f"{at};{dt.date(2024, at, 28 - at):{form}}" for at in (5, 2, 3, 1)), ""]).encode(),
            "day",
            ("≥", "2024-03-01"),
            (),
        )
        for form in ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%y", "%d-%m-%Y")
    },
    "times": (
        b"id,at\n1,2024-02-01 10:00:00\n2,2024-02-01 09:30:05\n3,\n4,2023-01-01 00:00:00\n",
        "at",
        ("≥", "2024-02-01 09:30"),
        (),
    ),
    "times of a form": (b"id;at\n1;13.02.2024 10:00\n2;\n3;12.02.2024 07:05\n", "at", ("<", "2024-02-13"), ()),
    "two orders": (b"a,b\n13/02/2024,02/13/2024\n01/02/2024,02/01/2024\n", "b", ("<", "2024-02-05"), ()),
    "zones": (b"id,at\n1,2024-03-31T01:30:00+01:00\n2,2024-03-31T03:30:00+02:00\n", "id", ("≥", "1"), LANGUAGES),
    "times of day": (b"id,at\n1,10:30:00\n2,07:00:00\n", "id", ("≥", "1"), LANGUAGES),
    "zeros": (b"zip,n\n00123,1\n04567,2\n,3\n00123,4\n", "zip", ("=", "00123"), ()),
    "names": (b"id,value,value,Value,id\n1,10,20,30,a\n2,11,21,31,b\n", "value_1", (">", "20"), ()),
    "no names": (b"1,10,x\n2,11,y\n", "column1", (">", "10"), ()),
    "years": (b"country,2019,2020\nDE,1,2\nFR,3,4\n", "2019", (">", "1"), ()),
    "a first row": (b"anna,bonn,12\nben,ulm,13\ncarl,bonn,x\ndora,bonn,14\n", "column1", ("=", "bonn"), ()),
    "booleans": (b"a,ok\n1,true\n2,N/A\n3,FALSE\n4,\n5,True\n", "ok", ("=", "true"), ()),
    "words": (b"a,n,x,t\n1,N/A,1.5,N/A\n2,3,-,b\n3,9007199254740993,2.25,\n", "n", ("≥", "3"), ()),
    "dates and words": (b"a;d\n1;13.04.2024\n2;N/A\n3;01.02.2024\n", "d", ("=", "2024-04-13"), ()),
    "comma": ("Kunde;Betrag;Satz\nMüller;1.234,50;0,5\nWeiß;99,90;1,25\n".encode("cp1252"), "Kunde", ("≠", "Weiß"), ()),
    "preamble": (b"Export from ERP\nCreated: 2024-05-01\n\nid,name\n1,x\n2,y\n3,\n", "id", ("≥", "2"), ()),
    "quotes": (b'id,t,u\n1,"a ""b"" c",""\n2,"x,\ny",z\n3,plain,"0"\n', "t", ("contains", "x"), ()),
    "blank lines": (b"id,t\n1,a\n\n2,b\n\n", "id", ("≥", "1"), ("polars",)),
    "one column": (b"id\n3\n\n1\n2\n", "id", ("≥", "2"), LANGUAGES),
    "ragged": (b"a,b,c\n1,2,x\n3\n4,5\n", "a", (">", "1"), LANGUAGES),
    "too many fields": (b"a,b\n1,2\n3,4,5\n6,7\n", "", ("", ""), LANGUAGES),
    "empty columns": (b"id,none,t\n1,,a\n2,,b\n", "none", ("is there", ""), ()),
    "large": (b"id,acct\n1,12345678901234567890\n2,98765432109876543210\n", "id", (">", "1"), LANGUAGES),
    "codes": (b"code,v\n007,1\nNA,2\n1e5,3\n", "code", ("=", "NA"), ()),
    "exponents": (b"a,x\n1,1e3\n2,-0.1\n3,1234567.891011\n4,\n", "x", ("<", "1000"), ()),
    "spaces": (b"id, b,c \n1, x,2\n2,y , 3\n", "id", ("≥", "1"), ()),
    "mark": ("\ufeffid\tä\n1\tö\n2\t\n".encode(), "ä", ("starts with", "Ö"), ()),
    "packed": (gzip.compress(b"n,city\n1,Bern\n2,Chur\n"), "n", (">", "1"), ()),
    "utf-16": ("id,t\n1,ä\n2,b\n".encode("utf-16"), "t", ("=", "ä"), ("polars",)),
}  # fmt: skip

OPTIONS = {"comma": "encoding = 'cp1252', decimal_separator = ','"}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    folder = tmp_path_factory.mktemp("code")
    with Workbench(home=folder / "home", memory_url=":memory:", allowed_paths=[folder]) as made:
        yield made


@pytest.fixture
def workbench(opened: Workbench, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    """The workbench of all, in a folder of each test's own."""
    monkeypatch.chdir(tempfile.mkdtemp(dir=opened.config.allowed_paths[0]))
    return opened


def _value(value: Any) -> str:
    if pd.isna(value):
        return ""
    if isinstance(value, dt.date):
        return str(pd.Timestamp(value))
    return repr(float(value)) if isinstance(value, float) else str(value)


def _rows(frame: Any) -> list[list[str]]:
    rows = frame.rows() if type(frame).__module__.startswith("polars") else frame.astype(object).itertuples(index=False)
    return [[*frame.columns], *(list(map(_value, row)) for row in rows)]


def _made(view: Any, language: str, **names: Any) -> tuple[str, Any]:
    code = view.ask("code", language=language)
    if REFUSED not in code:
        exec(code, names)  # the cell that a person would run
    return code, names.get("df")


@pytest.mark.parametrize("name", mostly_slow(FILES, 3))
def test_code_of_a_text_file_makes_the_rows_that_are_shown(workbench: Any, front_end: Any, name: str) -> None:
    content, column, (op, value), refused = FILES[name]
    path = Path("a.csv.gz" if content.startswith(b"\x1f\x8b") else "a.csv")
    path.write_bytes(content)
    explorer = workbench.explore(f"FROM read_csv('a.csv', {OPTIONS[name]})" if name in OPTIONS else str(path))
    view = front_end(explorer)
    columns = list(explorer.data().columns)
    at = columns.index(column) if column else 0
    for step in ("", "sort", "down", "filter", "group"):
        if step and not column:
            continue
        if step in {"sort", "down"}:
            view.ask("sort", order=[[column, step == "down"]])
        elif step == "filter":
            view.ask("filter", add={"column": at, "op": op, "value": value})
        elif step == "group":
            view.ask("group", keys=[column], measures=[["count", None], ["max", columns[0]]], across="")
        shown = _rows(explorer.data())
        for language in LANGUAGES:
            code, made = _made(view, language)
            assert (REFUSED in code) == (language in refused), (step, code)
            if made is not None:
                rows = _rows(made)
                assert (sorted(rows) == sorted(shown)) if step == "group" else rows == shown, (step, code)


def test_a_file_that_could_be_read_by_no_guess_has_rows_and_code_once_its_encoding_is_chosen(
    workbench: Any, front_end: Any
) -> None:
    Path("old.csv").write_bytes("name,n\nZürich,1\n".encode("cp1252"))
    explorer = workbench.explore("old.csv", caller="magic")
    view = front_end(explorer)
    assert "UTF-8" in explorer.problem
    view.ask("rewrite", at=0, changes={"encoding": "cp1252"})
    assert explorer.problem == ""
    for language in LANGUAGES:
        assert _rows(_made(view, language)[1]) == _rows(explorer.data()) == [["name", "n"], ["Zürich", "1"]]


CONDITIONS: list[tuple[str, dict[str, Any]]] = [
    ("day", {"op": "in", "values": ["2024-03-01", None]}),
    ("day", {"op": "between", "value": "2024-02-04", "to": "2025-01-01"}),
    ("day", {"op": "=", "value": "2024-03-01"}),
    ("day", {"op": "contains", "value": "2024"}),
    ("at", {"op": "≥", "value": "2024-02-03 10:00"}),
    ("at", {"op": "between", "low": 1.70e15, "high": 1.72e15, "last": True}),
    ("ok", {"op": "in", "values": ["false"]}),
    ("id", {"op": "≥", "value": "1.5"}),
    ("id", {"op": "in", "values": ["1", "3"]}),
]


@pytest.mark.parametrize("source", mostly_slow(["csv", "parquet", "frame"], 3))
def test_conditions_mean_the_same_in_code(workbench: Any, front_end: Any, source: str) -> None:
    Path("a.csv").write_text(
        "id,day,at,ok\n1,2024-02-03,2024-02-03 10:00:00,true\n2,2024-03-01,2024-03-01 00:00:00,false\n3,,,\n"
        "4,2025-01-01,2025-01-01 10:30:00,true\n"
    )
    duckdb.sql("COPY (FROM 'a.csv') TO 'a.parquet'")
    frame = pd.read_parquet("a.parquet")  # whose days are objects
    explorer = workbench.explore(frame if source == "frame" else f"a.{source}")
    view, begin = front_end(explorer), explorer.sql
    columns = list(explorer.data().columns)
    for column, condition in CONDITIONS:
        view.ask("query", text=begin)
        view.ask("filter", add={"column": columns.index(column), **condition})
        for is_grouped in (False, True):
            if is_grouped:
                view.ask("group", keys=["id"], measures=[["count", "day"]], across="")
            shown = sorted(_rows(explorer.data()))
            assert len(shown) > 1, "one condition alone leaves rows besides the names"
            for language in LANGUAGES:
                code, made = _made(view, language, frame=frame)
                if made is None:  # pandas writes a truth value as another text
                    assert (source, column) == ("frame", "ok")
                    continue
                assert sorted(_rows(made)) == shown, code


@pytest.mark.parametrize("condition", ["zip = 123", "n = '1'"])
def test_a_text_is_compared_with_a_number_by_the_engine(workbench: Any, front_end: Any, condition: str) -> None:
    Path("a.csv").write_text("zip,n\n00123,1\n04567,2\n")
    explorer = workbench.explore(f"FROM 'a.csv' WHERE {condition}")
    assert len(explorer.data()) == 1
    view = front_end(explorer)
    assert all(REFUSED in view.ask("code", language=language) for language in LANGUAGES)


def test_columns_whose_names_differ_in_case_alone_are_filtered_and_handed_back_each(
    workbench: Any, front_end: Any
) -> None:
    frame = pd.DataFrame({"Name": ["a", "c"], "name": ["b", "d"], "Name_1": [1, 2]})
    explorer = workbench.explore(frame)
    assert explorer.data().to_dict("list") == {"Name": ["a", "c"], "name_2": ["b", "d"], "Name_1": [1, 2]}
    view = front_end(explorer)
    view.ask("filter", add={"column": 1, "op": "=", "value": "b"})
    assert explorer.relation().fetchall() == [("a", "b", 1)]
    assert "columns with the same name: name as name_2" in explorer.plain_text()


def test_a_column_is_chosen_by_its_name_as_sql_takes_it(workbench: Any) -> None:
    explorer = workbench.explore(pd.DataFrame({"Ä": ["a"], "ä": ["b"]}))
    explorer.sql = explorer.sql.replace("*", '"ä"')
    assert (explorer.data().to_dict("list"), explorer.state["shown"]) == ({"ä": ["b"]}, [1])
