"""Small files of names, numbers and quotes are not looked at by DuckDB: what is found in them is what it would find."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from nbtools.sql.files.cells import plain_columns
from nbtools.sql.files.csv import MISSING_WORDS
from nbtools.texts.sql_quotes import quote_text

WORDS = "Ada x t f y n yes on e E5 inf nanx infinite epochs today jan May_5 true id n1 d1 1d 0x1f 1_000 a.b a/b - . NA"
NAMES = ["id", "name", "Year", "t", "date", "null", "e5", "inf", "column0", "id_1", "nation", "Name", "_a", "may"]

CELLS: tuple[Callable[[random.Random], str], ...] = (
    lambda chance: str(chance.randint(-5, 900)),
    lambda chance: str(chance.randint(0, 1)),
    lambda chance: str(10 ** chance.randint(0, 20) + chance.randint(0, 9)),
    lambda chance: f"{chance.uniform(-99, 99):.{chance.randint(0, 15)}f}",
    lambda chance: f"{chance.randint(1, 9)}e{chance.randint(-5, 5)}",
    lambda chance: f"{chance.randint(0, 40):03d}",
    lambda chance: f"{chance.randint(1900, 2100)}{chance.randint(1, 12):02d}{chance.randint(1, 28):02d}",
    lambda chance: chance.choice(("{2}-{1:02d}-{0:02d}", "{0}.{1}.{2}", "{1}/{0}/{2}", "{2}.{1:02d}")).format(
        chance.randint(1, 28), chance.randint(1, 12), 2024
    ),
    lambda chance: chance.choice(WORDS.split()),
    lambda chance: f"n{chance.randint(0, 50)}",
    lambda chance: f"{chance.choice(WORDS.split())} {chance.randint(0, 9)}",
    lambda chance: "".join(chance.choices("019.-+e/ _ax", k=chance.randint(1, 6))),
    lambda chance: f"{chance.choice(WORDS.split())}§ {chance.choice(WORDS.split())}",
    lambda chance: "".join(chance.choices("01.-e x&(§", k=chance.randint(1, 6))),
)


def text_of(chance: random.Random) -> str:
    """Return a text of a few columns, most of them of one kind, some with a few other cells, words or gaps."""
    kinds = chance.choices(CELLS, weights=[9, 3, 1, 9, 1, 3, 1, 1, 9, 9, 1, 1, 3, 1], k=chance.randint(1, 4))
    mark, quoted = chance.choice(",,,;|\t"), [chance.choice([0, 0, 0.1, 1]) for _ in kinds]
    lines = [chance.sample(NAMES, len(kinds))] if chance.random() < 0.98 else []
    for _ in range(chance.choice([1, 2, 5, 60])):
        others = [chance.choice(["", *MISSING_WORDS, chance.choice(CELLS)(chance)]) for _ in kinds]
        cells = [cell if chance.random() < 0.02 else kind(chance) for kind, cell in zip(kinds, others, strict=True)]
        pairs = zip([cell.replace("§", mark) for cell in cells], quoted, strict=True)
        lines.append([f'"{cell}"' if mark in cell or chance.random() < share else cell for cell, share in pairs])
    return "\n".join(map(mark.join, lines)) + chance.choice(["\n", "\n", ""])


@pytest.mark.parametrize("words", [MISSING_WORDS, ()])
def test_columns_are_those_that_duckdb_finds_in_all_lines(tmp_path: Path, words: tuple[str, ...]) -> None:
    chance, path, found = random.Random(len(words)), tmp_path / "some.csv", 0
    gaps = ", ".join(map(quote_text, ["", *words]))
    with duckdb.connect() as connection:
        for _ in range(800):
            text = text_of(chance)
            if (plain := plain_columns(text.encode(), words)) is None:
                continue
            found += '"' in text
            path.write_text(text)
            sniffed = f"FROM sniff_csv({quote_text(str(path))}, sample_size = -1, nullstr = [{gaps}])"
            row = connection.execute(f"SELECT Columns, Delimiter, SkipRows, HasHeader, Comment {sniffed}").fetchone()
            assert row is not None
            types = {column["name"]: column["type"] for column in row[0]}
            assert (types, *row[1:]) == (plain.types, plain.mark, 0, True, "(empty)"), text
    assert found > 50


@pytest.mark.parametrize(
    "text",
    [
        *("id,name\n", "id\n1\n", "id,id\n1,2\n", "id,ID\n1,2\n", "1,2\n3,4\n", "id,\n1,2\n", "id,name\n1,Ada,x\n"),
        *('id,name\n1,"a ""b"""\n', 'id,name\n1,""\n', 'id,name\n"+1",Ada\n', 'id,name\n1,"Ada; Bob"\n'),
        *("id,name\r\n1,Ada\r\n", "id;x,name\n1;2,Ada\n", "id,name\n\n1,Ada\n", "id,name\n1,Zoë\n"),
        *("id,day\n1,2024-01-31\n", "id,ok\n1,true\n", "name,town\nAda,Paris\n", "id,name\n#1,Ada\n", "id,gap\n1,\n"),
    ],
)
def test_what_is_not_plain_is_left_to_duckdb(text: str) -> None:
    assert plain_columns(text.encode(), MISSING_WORDS) is None
