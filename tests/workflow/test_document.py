"""YAML 1.2 core: what plain values mean, where everything stands, and files that want to do harm."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nbtools.workflow.document import Document

VALUES: list[tuple[str, Any]] = [
    *(
        (word, word)
        for word in ("on", "off", "yes", "no", "y", "12:30", "010", "-010", "1_000", "2001-01-01", "=", "0b1")
    ),
    *((word, word) for word in ("00.5", "1.2.3", "+", ".", "e5", "0o9", "0xg", "TrUe", "'1'"[1:2] + "x")),
    ("1", 1),
    ("-7", -7),
    ("+7", 7),
    ("0o17", 15),
    ("0x1F", 31),
    ("1.", 1.0),
    (".5", 0.5),
    ("1e3", 1000.0),
    ("-1.5E-2", -0.015),
    ("true", True),
    ("FALSE", False),
    ("~", None),
    ("null", None),
    ("", None),
    ("-.inf", float("-inf")),
    ("'1'", "1"),
    ('"true"', "true"),
    ("!!str 1", "1"),
    ("!!float 1", 1),
    ("|\n  1", "1\n"),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_plain_values_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    made = Document(f"a: {text}\n")
    assert not made.findings
    assert made.data == {"a": value}
    assert type(made.data["a"]) is type(value)


def test_keys_are_texts_whatever_they_look_like() -> None:
    assert Document("{on: 1, 2: b, null: c, true: d}").data == {"on": 1, "2": "b", "null": "c", "true": "d"}


def test_a_number_of_ten_thousand_digits_is_text() -> None:
    assert Document("a: " + "9" * 10_000).data["a"] == "9" * 10_000


def test_an_alias_repeats_its_value() -> None:
    assert Document("a: &x [1]\nb: *x\nc: &x 2\nd: *x\n").data == {"a": [1], "b": [1], "c": 2, "d": 2}


def test_the_python_loader_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parent / "mistakes" / "several_at_once.yaml").read_text("utf-8")
    quick = Document(text)
    monkeypatch.delattr(yaml, "CBaseLoader", raising=False)
    slow = Document(text)
    assert slow.data == quick.data
    assert slow.span(("nodes", 1, "prompt")) == quick.span(("nodes", 1, "prompt"))


PLACES = [
    ("a: x ${y}", "${y}"),
    ('a: "\\u00e9\\t\\"q\\" ${y}"', "${y}"),
    ("a: 'it''s\n\n  folded ${y}'", "${y}"),
    ("a: |2-\n    indented\n  ${y}", "${y}"),
    ("a: >+\n\n  one\n  two ${y}\n\n", "${y}"),
    ("a: &anchor !!str 'x ${y}'", "${y}"),
    ("a: plain\n  over lines ${y}", "${y}"),
    ('a: "continued \\\n  ${y}"', "${y}"),
    ("\ufeffa: 数据 ${y}", "${y}"),
    ("a: 😀 ${y}", "${y}"),
    ("b: 1\r\na: |\r\n  x\r\n  ${y}\r\n", "${y}"),
]


@pytest.mark.parametrize(("text", "part"), PLACES)
def test_a_part_of_a_text_is_found_in_its_source(text: str, part: str) -> None:
    made = Document(text)
    offset = made.data["a"].index(part)
    start, width = made.inner(("a",), offset, len(part))
    assert made.text[start : start + width] == part


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=60), st.data())
def test_every_visible_character_is_found_in_its_source(text: str, data: st.DataObject) -> None:
    style = data.draw(st.sampled_from(("'", '"', "|", ">")))
    source = yaml.safe_dump({"a": text}, default_style=style, allow_unicode=True, width=20)
    made = Document(source)
    assert made.data == {"a": text}
    for offset, char in enumerate(text):
        # An escape stands for what the source does not show.
        if not char.isspace() and char.isascii() and char not in "\\\"'":
            start, _ = made.inner(("a",), offset)
            assert made.text[start] == char


@pytest.mark.parametrize(
    ("text", "code", "line", "column", "width"),
    [
        ("a: b\nc: {{x}}: y\n", "WF010", 2, 4, 2),
        ("a: @{{x}}\n", "WF010", 1, 5, 2),
        ("a: x\n b: {{ y }}\n", "WF010", 2, 5, 2),
        ("a: {{x: 1}: 2}\n", "WF010", 1, 4, 2),
        ("a: { {x: 1}: 2}\n", "WF002", 1, 6, 1),
        ("k: v\na: ${b: c} d\n", "WF009", 2, 4, 7),
        ("a: b\nc: ${x: y\n", "WF009", 2, 4, 6),
        ("k: 1\na: !!int xyz\n", "WF008", 2, 4, 9),
        ("k: 1\na: [!!int xyz, 2]\n", "WF008", 2, 5, 9),
    ],
)
def test_what_is_no_yaml_is_found_where_it_stands(text: str, code: str, line: int, column: int, width: int) -> None:
    (found,) = Document(text).findings
    assert (found.code, found.line, found.column, found.width) == (code, line, column, width)


def test_a_text_that_needs_quotes_ends_with_its_line() -> None:
    (found,) = Document("a: b\nc: ${x: y\nd: }\n").findings
    assert found.hint == 'Write "${x: y".'


# Controls and halves of pairs are escaped in another way in JSON than in YAML.
_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")), max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(_JSON)
def test_json_is_read_as_json(value: Any) -> None:
    made = Document(json.dumps(value, ensure_ascii=False))
    assert not [finding for finding in made.findings if finding.code != "WF006"]
    assert made.data == json.loads(json.dumps(value))


@given(st.text(max_size=80))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    made = Document(text)
    for finding in made.findings:
        assert finding.line >= 1
        assert finding.column >= 1
        assert str(finding)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[" * 200_000, "WF002"),
        ("{a: " * 200_000, "WF002"),
        ("- " * 50_000, "WF002"),
        ("".join(f"{' ' * i}a:\n" for i in range(1_000)), "WF002"),
        ("a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)
        ), "WF007"),
        ("a: &a {b: *a}", "WF007"),
        ("a: \x00", "WF002"),
        ("? a", None),
        ("%TAG ! tag:x,2000:\n---\na: !y 1", "WF008"),
        ("--- a\n--- b", "WF004"),
    ],
)  # fmt: skip
def test_what_wants_to_do_harm_is_told_quickly(text: str, code: str | None) -> None:
    begun = time.thread_time()
    made = Document(text)
    assert time.thread_time() - begun < 5
    assert [finding.code for finding in made.findings][:1] == ([code] if code else [])


def test_a_file_of_ten_megabytes_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_text("a: " + "x" * 10_000_000, encoding="utf-8")
    made = Document.open(file)
    assert [finding.code for finding in made.findings] == ["WF001"]
    assert "10,000,003 bytes" in made.findings[0].message
    assert made.data is None


def test_a_file_in_another_encoding_says_which_byte(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes("name: caf\xe9".encode("latin-1"))
    assert "byte 9 is 0xe9" in Document.open(file).findings[0].message


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    found = Document.open(tmp_path).findings[0]
    assert (found.code, found.line, found.column) == ("WF001", 1, 1)
