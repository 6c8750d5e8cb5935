"""The line of a magic: words, filling, targets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nbtools.errors import InvalidArguments
from nbtools.jupyter.line.arguments import json_value
from nbtools.jupyter.line.input_transform import rewrite
from nbtools.jupyter.line.line_parser import Word, check_name, fill, split, take_target


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  a  b ", ["a", "b"]),
        ("save k 'two words'", ["save", "k", "two words"]),
        ('say "a \\"quoted\\" word"', ["say", 'a "quoted" word']),
        ('save k {"a": [1, 2], "b": "x y"} --tags t', ["save", "k", '{"a": [1, 2], "b": "x y"}', "--tags", "t"]),
        ("k [1, 2] [3]", ["k", "[1, 2]", "[3]"]),
        ("C:\\data\\new.csv", ["C:\\data\\new.csv"]),
        ("two\\ words", ["two words"]),
        ("--out=x", ["--out=x"]),
        ("{day:%d %b}", ["{day:%d %b}"]),
        ("k {rows['a b']} {len('x y')} t", ["k", "{rows['a b']}", "{len('x y')}", "t"]),
        ("k {'a': [1, {'b': 'x y'}]} t", ["k", "{'a': [1, {'b': 'x y'}]}", "t"]),
        ("k ['a b', 2] [draft] x", ["k", "['a b', 2]", "[draft]", "x"]),
        ('--x={"a": "b c"}', ['--x={"a": "b c"}']),
        ("café 日本", ["café", "日本"]),
    ],
)
def test_lines_split_like_a_shells_with_json_whole(line: str, words: list[str]) -> None:
    assert split(line) == words


@pytest.mark.parametrize("line", ["say 'never closed", 'a "b'])
def test_an_open_quote_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(InvalidArguments, match="never closed"):
        split(line)


def test_the_hint_of_an_open_quote_is_a_word_that_can_be_read() -> None:
    with pytest.raises(InvalidArguments) as refused:
        split("it's.csv --as e")
    assert split(str(refused.value.hint).rpartition(": ")[2]) == ["it's.csv"]


NAMES = {"year": 2024, "path": "a b.csv", "row": {"n": 7}, "items": [1, 2], "none": None, "o": SimpleNamespace(x=1.5)}


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ("{year}", "2024"),
        ("data/{year}.csv", "data/2024.csv"),
        ("{path}", "a b.csv"),
        ("{row['n']}-{o.x:.2f}", "7-1.50"),
        ("{items[1]}", "2"),
        ("{{year}}", "{year}"),
        ("{year!r:>6}", "  2024"),
        ("{}", "{}"),
        ("{len(path) + 1}.csv", "8.csv"),
        ("{','.join(str(i) for i in items)}", "1,2"),
        ("{row['n']:>3}", "  7"),
        ("{items[0:1]}", "[1]"),
        ("{[i * 2 for i in items if i > len(row)]}", "[4]"),
        ("a{2,3}{'b'}", "a{2,3}{'b'}"),
        ('{{"a"}}', '{"a"}'),
        ("é{", "é{"),
        ("postgresql://me:${year}@{row['n']}/x", "postgresql://me:${year}@7/x"),
    ],
)
def test_braces_are_filled_from_the_namespace(word: str, filled: str) -> None:
    assert fill(Word(word), NAMES) == filled


@pytest.mark.parametrize("name", ["row", "items", "none", "year", "o"])
def test_a_lone_name_stands_for_the_object_itself(name: str) -> None:
    assert json_value(fill(Word(f"{{{name}}}"), NAMES)) is NAMES[name]


def test_a_text_that_looks_like_a_number_stays_text_when_it_comes_from_a_variable() -> None:
    assert json_value(fill(Word("{code}"), {"code": "007"})) == "007"


QUOTED = ["regex [0-9]{4}", 'say {"a": 1}', "{'a': year}", "{print $1}", "{don't}", "{ and }", "{len(", '{"a":1,}']


@pytest.mark.parametrize("text", QUOTED)
def test_braces_in_quotes_that_name_nothing_stay_text(text: str) -> None:
    filled = fill(Word(text, quoted=True), NAMES)
    assert (filled, json_value(filled)) == (text, text)


@pytest.mark.parametrize("word", ["{list(items", "{'a': 1, b}", '{"a": tru e}', "{ and }", "{"])
def test_open_braces_that_are_nothing_are_refused(word: str) -> None:
    with pytest.raises(InvalidArguments, match="neither JSON nor an expression"):
        fill(split(word)[0], NAMES)


@pytest.mark.parametrize("text", ["{year: 1}", "{year:d}", "{items: 1}"])
def test_what_may_be_a_dict_or_a_value_in_a_format_is_neither_until_it_is_quoted(text: str) -> None:
    with pytest.raises(InvalidArguments, match="neither JSON nor an expression") as refused:
        fill(Word(text), {"year": 2024, "items": "x"})
    assert "Put the keys of a dict in quotes" in str(refused.value.hint)
    assert fill(Word("{year: 6}", quoted=True), {"year": 2024}) == "  2024"


def test_a_format_that_does_not_fit_its_value_is_told_with_the_text_as_it_was_typed() -> None:
    assert fill(Word("{year:>6}"), {"year": 2024}) == "  2024"
    with pytest.raises(InvalidArguments, match=r"\{items:>10\} cannot be filled in: TypeError") as refused:
        fill(Word("{items:>10}"), {"items": [1]})
    assert "{{items:>10}}" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("{list(row)}", ["n"]),
        ("{sum(items)}", 3),
        ("{6*7}", 42),
        ("{'a': year, 'b': [None]}", {"a": 2024, "b": [None]}),
        ("['a', None]", ["a", None]),
        ('{"a": true}', {"a": True}),
        ("{str(year)}", "2024"),
    ],
)
def test_a_word_of_one_expression_is_its_value(word: str, value: object) -> None:
    assert json_value(fill(split(word)[0], NAMES)) == value


@pytest.mark.parametrize(
    "word", ["{yaer}", "{row['m']}", "{o.y}", "{items[9]}", "{1/0 + year}", "{print}", "{fo(year)}"]
)
def test_what_cannot_be_filled_is_refused(word: str) -> None:
    with pytest.raises(InvalidArguments, match="cannot be filled"):
        fill(Word(word), NAMES)


def test_an_unknown_variable_gets_the_nearest_offered() -> None:
    with pytest.raises(InvalidArguments) as caught:
        fill(Word("{yaer}"), NAMES)
    assert "{year}" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (Word("5"), 5),
        (Word("true"), True),
        (Word("[1, 2]"), [1, 2]),
        (Word("plain"), "plain"),
        (Word("5", quoted=True), "5"),
    ],
)
def test_a_word_is_json_unless_it_is_quoted_or_is_not(word: Word, value: object) -> None:
    assert json_value(word) == value


def test_the_target_stands_before_two_angles() -> None:
    assert take_target("rows << select 1 << 2") == ("rows", "select 1 << 2")
    assert take_target("rows <<") == ("rows", "")
    assert take_target("select 1 << 2") == (None, "select 1 << 2")


@pytest.mark.parametrize("name", ["1x", "a b", "class", "", "a.b"])
def test_a_name_that_no_variable_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidArguments):
        check_name(name)


@pytest.mark.parametrize(
    ("cell", "rewritten"),
    [
        ("goal << %memory get goal\n", "%memory goal << get goal\n"),
        ("  goal<<%memory get goal\n", "  %memory goal << get goal\n"),
        ("rows << %%nbsql\nselect 1\n", "%%nbsql rows <<\nselect 1\n"),
        ("x = 1\ngoal << %memory get goal\n", "x = 1\n%memory goal << get goal\n"),
        ("%tool calculator?\n", "%tool calculator --help\n"),
        ("%%nbsql --help", "%%nbsql --help\n"),
        ("%%nbsql x.db -h\n", "%%nbsql x.db -h\n\n"),
        ("%%nbsql --help\nselect 1\n", "%%nbsql --help\nselect 1\n"),
        ("%%time --help\n", "%%time --help\n"),
        # These are other people's, or Python.
        ("x << %timeit 1\n", "x << %timeit 1\n"),
        ("x << y % memory\n", "x << y % memory\n"),
        ("text = '''\ngoal << %memory get goal\n'''\n", "text = '''\ngoal << %memory get goal\n'''\n"),
        ("%%html\ngoal << %memory get goal\n", "%%html\ngoal << %memory get goal\n"),
        ("%memory search what is it?\n", "%memory search what is it?\n"),
    ],
)
def test_only_our_forms_are_rewritten(cell: str, rewritten: str) -> None:
    assert "".join(rewrite(cell.splitlines(keepends=True), {"memory", "nbsql", "tool"})) == rewritten
