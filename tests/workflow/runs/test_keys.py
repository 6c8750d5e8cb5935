"""What the result of a step depends on: parts that say whether it can be used again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nbtools.workflow.runs.keys import changes, digest, file_parts, parts_of, place_in
from nbtools.workflow.spec import CodeNode

INPUTS = {"year": 2025, "place": "x"}


def parts(source: str, **more: Any) -> dict[str, str]:
    node = CodeNode(id="b", code=source, needs=["a"])
    scope = {"inputs": more.pop("inputs", INPUTS), "nodes": {"a": {"data": more.pop("data", 1)}}}
    return parts_of(node, {}, scope, source=source, **more)


def test_a_hash_is_the_same_in_each_version_so_that_runs_of_before_go_on() -> None:
    value = {"b": [1, 2.5, None, True], "a": "ä € \ud800"}
    assert digest(value) == "127f6869e4de25a81b3804bbe43d92e2551bf39f0931be8022f519ee6322774e"
    assert digest(dict(sorted(value.items()))) == digest(value)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("inputs['year']", ["year"]),
        ("inputs.get('place')", ["place"]),
        ("1", []),
        ("dict(inputs)", ["place", "year"]),
        ("inputs[name]", ["place", "year"]),
    ],
)
def test_code_depends_on_the_inputs_that_it_can_read(source: str, names: list[str]) -> None:
    assert sorted(name for name in parts(source) if name.startswith("input ")) == [f"input {name}" for name in names]
    later = parts(source, inputs={name: f"{value}!" for name, value in INPUTS.items()})
    assert sorted(changes(parts(source), later)) == [f"input {name}" for name in names]


def test_code_depends_on_the_data_of_the_nodes_that_it_needs() -> None:
    assert changes(parts("nodes['a']"), parts("nodes['a']", data=2)) == ["result of a"]


@pytest.mark.parametrize(("source", "depends"), [("files['a']['x']", True), ("open('a/x')", True), ("'a'", False)])
def test_code_depends_on_what_the_files_of_nodes_hold_that_it_names(source: str, depends: bool, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("1")
    before = parts(source, files={"a": {"x": str(file)}})
    os.utime(file, (1, 1))
    assert parts(source, files={"a": {"x": str(file)}}) == before
    file.write_text("2")
    assert changes(before, parts(source, files={"a": {"x": str(file)}})) == ["files of a"] * depends


def test_code_depends_on_the_files_that_it_or_an_input_names(tmp_path: Path) -> None:
    for name in ("read.csv", "input.csv", "other.csv"):
        (tmp_path / name).write_text("1")
    source = "open('read.csv'); inputs['file']"
    before = parts(source, inputs={"file": "input.csv"}, folder=tmp_path)
    for name in ("read.csv", "input.csv", "other.csv"):
        (tmp_path / name).write_text("2")
    later = parts(source, inputs={"file": "input.csv"}, folder=tmp_path)
    assert sorted(changes(before, later)) == ["file input.csv", "file read.csv"]
    assert not [name for name in parts(source, inputs={"file": "input.csv"}) if name.startswith("file ")]


def test_a_file_too_large_to_be_read_is_another_once_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "large.csv"
    file.touch()
    os.truncate(file, 65 * 2**20)
    before = parts("open('large.csv')", folder=tmp_path)
    assert parts("open('large.csv')", folder=tmp_path) == before
    os.utime(file, (1, 1))
    assert changes(before, parts("open('large.csv')", folder=tmp_path)) == ["file large.csv"]


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("python", "duckdb.sql(\"select sum(a) from 'x.csv'\").fetchall()"),
        ("python", "sql('select * from \\'x.csv\\'')"),
        ("python", "subprocess.run('wc -l x.csv', shell=True)"),
        ("bash", "wc -l < x.csv"),
        ("bash", "sort names|uniq"),
        ("bash", "cat FOLDER/*"),
        ("python", "import helper"),
        ("python", "from pack.deep import it"),
        ("python", "import pack"),
    ],
)
def test_code_depends_on_each_file_that_it_reads_however_it_names_it(
    language: str, source: str, tmp_path: Path
) -> None:
    def now() -> dict[str, str]:
        node = CodeNode(id="b", code=source, language=language)
        return file_parts(node, {}, {"inputs": {}}, source=source.replace("FOLDER", str(tmp_path)), folder=tmp_path)

    (tmp_path / "pack").mkdir()
    (tmp_path / "helper.py").write_text("import other; open('read.csv')")
    files = [tmp_path / name for name in ("x.csv", "names", "other.py", "read.csv", "pack/deep.py")]
    for file in files:
        file.write_text("1")
    before = now()
    assert now() == before
    for file in files:
        file.write_text("2")
    assert changes(before, now())


def test_what_helpers_import_and_read_counts_too(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import other; open('read.csv')")
    (tmp_path / "other.py").write_text("import helper")
    (tmp_path / "read.csv").write_text("1")
    node = CodeNode(id="b", code="import helper")
    parts_now = file_parts(node, {}, {"inputs": {}}, source="import helper", folder=tmp_path)
    assert sorted(parts_now) == ["file helper.py", "file other.py", "file read.csv"]


def test_addresses_and_folders_are_places_that_no_part_stands_for(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for text, place in (
        ("open('https://x.example/a')", "an address"),
        ("os.listdir('a/b')", "the folder a/b"),
        ("'/'.join(names)", ""),
        ("open('a/x.csv')", ""),
    ):
        assert place_in([text], tmp_path) == place
