"""Two tables compared, as pandas finds what differs."""

from __future__ import annotations

import duckdb
import pandas as pd
import pytest

from nbtools.errors import InvalidArguments
from nbtools.sql.pages.comparing import ComparedTable, comparison, counts_query, labels_of, summary
from nbtools.sql.pages.shape import Shape

OLD = pd.DataFrame(
    {"id": range(8), "city": ["Bern", "Chur", None, "Genf"] * 2, "amount": [1.5, None, float("nan"), 4, 5, 6, 7, 8]}
)
NEW = OLD.drop(index=[0, 5]).assign(
    city=lambda f: f["city"].where(f["id"] != 3, "Zug"), amount=lambda f: f["amount"].mask(f["id"].isin([3, 4]))
)
NEW = pd.concat([NEW, pd.DataFrame({"id": [99], "city": ["Olten"], "amount": [1.0]})], ignore_index=True)


def _table(name: str) -> ComparedTable:
    duckdb.register("old", OLD)
    duckdb.register("new", NEW)
    described = duckdb.sql(f"DESCRIBE {name}").fetchall()
    return ComparedTable(label=name, relation=f'"{name}"', types={row[0]: row[1] for row in described})


def test_rows_and_cells_that_differ_are_those_that_pandas_finds() -> None:
    rows = duckdb.sql(comparison(_table("old"), _table("new"), ["id"])).df()
    both = OLD.merge(NEW, on="id", how="outer", indicator=True, suffixes=("", " new"))
    assert set(rows.loc[rows["difference"] == "only in old", "id"]) == set(
        both.loc[both["_merge"] == "left_only", "id"]
    )
    assert set(rows.loc[rows["difference"] == "only in new", "id"]) == {99}
    inner = both[both["_merge"] == "both"].set_index("id")
    expected = {}
    for name in ("city", "amount"):
        left, right = inner[name], inner[f"{name} new"]
        for at in inner.index[~((left == right) | (left.isna() & right.isna()))]:
            expected.setdefault(int(at), []).append(name)
    changed = rows[rows["difference"] == "changed"].set_index("id")["changed"]
    assert {at: text.split(", ") for at, text in changed.items()} == expected == {3: ["city", "amount"], 4: ["amount"]}
    assert rows.set_index("id").loc[3, ["city (old)", "city (new)"]].tolist() == ["Genf", "Zug"]


def test_what_differs_is_counted_in_words() -> None:
    text = comparison(_table("old"), _table("new"), ["id"])
    told = _summary(text)
    assert sorted(told.split("; ")[0].split(", ")) == ["1 only in new", "2 changed", "2 only in old"]
    assert told.endswith("; changed: amount 2, city 1")
    same = comparison(_table("old"), _table("old"), ["id"])
    assert _summary(same) == "no row differs"


def _summary(text: str) -> str:
    rows = duckdb.sql(text)
    return summary(duckdb.sql(counts_query(text, rows.columns)).fetchall(), rows.columns, list(map(str, rows.types)))


def test_a_column_that_one_table_alone_has_is_named_though_no_row_differs() -> None:
    duckdb.sql("CREATE OR REPLACE TEMP TABLE left_side AS SELECT 1 AS k, 'it''s' AS \"what's (x)\"")
    duckdb.sql("CREATE OR REPLACE TEMP TABLE right_side AS SELECT 1 AS k, 5 AS extra, 6 AS more")
    text = comparison(_table("left_side"), _table("right_side"), ["k"])
    assert (
        _summary(text)
        == "no row differs; column only in left_side: what's (x); columns only in right_side: extra, more"
    )
    duckdb.sql("INSERT INTO right_side VALUES (2, 7, 8)")
    assert _summary(text).startswith("1 only in right_side; column only in left_side: ")
    assert duckdb.sql(text).fetchall() == [("only in right_side", 2, None, None, 7, 8)]


def test_a_number_and_its_text_are_the_same_and_a_missing_key_is_matched() -> None:
    duckdb.sql("CREATE OR REPLACE TEMP TABLE left_side AS SELECT * FROM (VALUES (NULL, 1), (2, 2)) AS t(id, n)")
    duckdb.sql("CREATE OR REPLACE TEMP TABLE right_side AS SELECT * FROM (VALUES (NULL, '1'), (2, 'x')) AS t(id, n)")
    text = comparison(_table("left_side"), _table("right_side"), ["id"])
    assert duckdb.sql(text).fetchall() == [("changed", 2, "n", 2, "x")]


@pytest.mark.parametrize(
    ("left", "right", "differ", "types"),
    [
        ("DATE '2026-01-01'", "TIMESTAMP '2026-01-01'", "", "date|timestamp"),
        ("DATE '2026-01-01'", "TIMESTAMP_S '2026-01-01'", "", "date|timestamp_s"),
        ("DATE '2026-01-01'", "TIMESTAMP '2026-01-01 00:00:01'", "v", "date|timestamp"),
        ("DATE '300000-01-01'", "NULL::TIMESTAMP", "v", "date|timestamp"),
        ("1", "'1'", "", "integer|varchar"),
        ("10000000000000000", "1e16::DOUBLE", "", ""),
        ("9007199254740993", "9007199254740992::DOUBLE", "v", ""),
        ("1.50::DECIMAL(9,2)", "1.5::DOUBLE", "", ""),
        ("100::DECIMAL(9,2)", "100", "", ""),
        ("100", "100.01::DECIMAL(9,2)", "v", ""),
        ("0", "1e-12::DOUBLE", "v", ""),
        ("NULL::INTEGER", "'nan'::DOUBLE", "v", ""),
    ],
)
def test_values_of_two_types_are_the_same_where_they_mean_the_same(
    left: str, right: str, differ: str, types: str
) -> None:
    for name, value in (("left_side", left), ("right_side", right)):
        duckdb.sql(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT 1 AS id, {value} AS v")
    for a, b, names in (
        ("left_side", "right_side", types),
        ("right_side", "left_side", "|".join(types.split("|")[::-1])),
    ):
        text = comparison(_table(a), _table(b), ["id"])
        assert [row[2] for row in duckdb.sql(text).fetchall()] == [differ] * bool(differ)
        told = _summary(text).partition("; types differ: ")[2]
        assert told == (f"v ({a}) {names.replace('|', f', v ({b}) ')}" if names else "")


def test_a_key_that_is_not_there_or_not_a_key_is_told() -> None:
    with pytest.raises(InvalidArguments, match="no column 'ids'"):
        comparison(_table("old"), _table("new"), ["ids"])
    with pytest.raises(InvalidArguments, match="matched by a key"):
        comparison(_table("old"), _table("new"), [])
    assert _summary(comparison(_table("old"), _table("new"), ["city"])).endswith(
        "city is not a key in old: 4 of them have several rows; city is not a key in new: 1 of them has several rows"
    )


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [
        ([(1, 1), (1, 2), (2, 3)], [(1, 1), (2, 3)], "2 not compared in a, 1 not compared in b; {a}1 of them has"),
        ([(1, 1), (1, 1), (2, 3)], [(2, 4)], "2 not compared in a, 1 changed; changed: v 1; {a}1 of them has"),
        ([(2, 3)], [(None, 1), (None, 1), (2, 3)], "2 not compared in b; {b}1 of them has"),
        (
            [(1, 1)] * 100 + [(2, 2)] * 2,
            [(1, 1)] * 99,
            "102 not compared in a, 99 not compared in b; {a}2 of them have",
        ),
    ],
)
def test_a_key_of_several_rows_on_either_side_is_told_and_not_compared(
    left: list[tuple[int | None, int]], right: list[tuple[int | None, int]], told: str
) -> None:
    for name, rows in (("a", left), ("b", right)):
        duckdb.sql(f"CREATE OR REPLACE TEMP TABLE {name} (k INTEGER, v INTEGER)")
        duckdb.executemany(f"INSERT INTO {name} VALUES (?, ?)", rows)
    text = comparison(_table("a"), _table("b"), ["k"])
    expected = told.format(a="k is not a key in a: ", b="k is not a key in b: ")
    assert _summary(text).startswith(f"{expected} several rows")
    one = {row[0] for row in {*left, *right} if left.count(row) <= 1 >= right.count(row)}
    assert all(row[0] != "changed" or row[1] in one for row in duckdb.sql(text).fetchall())


def test_lists_that_are_written_alike_and_signs_of_nothing_are_compared_as_values() -> None:
    duckdb.sql("CREATE OR REPLACE TEMP TABLE left_side AS SELECT 1 AS id, [[1], [2]] AS v, 0.0::DOUBLE AS n")
    duckdb.sql("CREATE OR REPLACE TEMP TABLE right_side AS SELECT 1 AS id, [[1, 2]] AS v, -0.0::DOUBLE AS n")
    assert duckdb.sql(comparison(_table("left_side"), _table("right_side"), ["id"])).fetchall()[0][2] == "v"


@pytest.mark.parametrize(
    ("one", "other", "labels"),
    [
        ("from 'a/u.csv'", "from 'b/u.csv'", ("a/u.csv", "b/u.csv")),
        ("from '/x/a/it''s.csv'", "from read_csv('a/u.csv', delim = ';')", ("it's.csv", "u.csv")),
        ("from 'u.csv' where n > 1", "from 'u.csv' where n > 2", ("u.csv where n > 1", "u.csv where n > 2")),
        ("from u", "from 'u.csv'", ("u", "u.csv")),
        ("from u", "select id, n + 1 as n from u", ("u", "SELECT id, n + 1 AS n FROM u")),
        ("from u", "from u", ("u 1", "u 2")),
    ],
)
def test_two_sources_of_one_name_are_told_apart_by_what_differs(one: str, other: str, labels: tuple[str, str]) -> None:
    assert labels_of(Shape.from_text(one), Shape.from_text(other)) == labels
