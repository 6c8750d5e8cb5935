"""Each rule of the house fails on a small tree that breaks it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import has_none_of
from tests.source_tree import (
    Source,
    circles,
    code_lines,
    crowded_packages,
    imports,
    meaningless_names,
    read,
    repeated_classes,
    replaced_private_names,
    returned_names,
    unnamed_things,
    wrong_room_imports,
)

LEVELS = ("records", "duckdb postgres", "keeper")


@pytest.fixture
def tree(tmp_path):
    """Return a function that writes a package and reads it: texts by paths below the package `p.memory`."""

    def write(texts):
        here = tmp_path / "p" / "memory"
        rooms = {f"{name}/__init__.py": "" for name in ("duckdb", "postgres", "keeper")}
        for name, text in ({"../__init__.py": "", "__init__.py": "", "records.py": ""} | rooms | texts).items():
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            (here / name).write_text(text)
        return read(tmp_path / "p")

    return write


def rooms_of(sources, levels):
    return wrong_room_imports(imports(sources), sources, "p.memory", levels)


def test_imports_that_lead_down_break_no_rule(tree):
    texts = {"keeper/server.py": "from p.memory.duckdb import engine", "duckdb/engine.py": "import p.memory.records"}
    assert rooms_of(tree(texts), LEVELS) == []


@pytest.mark.parametrize("text", ["from p.memory.keeper import server", "def f():\n    import p.memory.keeper.server"])
def test_an_import_that_leads_up_between_rooms_is_found(tree, text):
    sources = tree({"keeper/server.py": "", "duckdb/engine.py": text})
    (problem,) = rooms_of(sources, LEVELS)
    assert "engine.py" in problem
    assert "leads up from duckdb" in problem


def test_a_relative_import_from_a_neighbour_is_found(tree):
    (problem,) = rooms_of(tree({"duckdb/engine.py": "from ..postgres import x"}), LEVELS)
    assert "leads sideways from duckdb" in problem


def test_a_module_without_a_level_forms_no_circle_with_a_room(tree):
    texts = {"store.py": "from p.memory import duckdb", "duckdb/engine.py": "from p.memory.store import Store"}
    (problem,) = rooms_of(tree(texts), LEVELS)
    assert "duckdb → store → duckdb" in problem


def test_a_room_does_not_import_its_own_package_when_that_imports_the_room(tree):
    texts = {"__init__.py": "from p.memory.keeper.server import S", "keeper/server.py": "import p.memory"}
    (problem,) = rooms_of(tree(texts), LEVELS)
    assert " → keeper → " in problem


def test_a_new_room_and_one_that_is_gone_are_found(tree):
    problems = rooms_of(tree({"bridges/__init__.py": ""}), (*LEVELS, "files"))
    assert sorted(problems) == [
        "p.memory.bridges has no level in ROOMS",
        "p.memory.files exists no more: take it out of ROOMS",
    ]


def test_a_package_with_too_many_modules_is_found(tree):
    sources = tree({"store.py": "", "rows.py": ""})
    assert crowded_packages(sources, ["p.memory"], 3) == []
    (problem,) = crowded_packages(sources, ["p.memory"], 2)
    assert "3 modules" in problem


def test_a_class_name_that_occurs_twice_is_found_with_underscores_too(tree):
    texts = {"duckdb/engine.py": "class Limits: ...", "keeper/server.py": "def f():\n    class _Limits: ..."}
    assert repeated_classes(tree(texts)) == {"Limits": ["p/memory/duckdb/engine.py:1", "p/memory/keeper/server.py:2"]}


def test_names_of_before_are_found_in_their_part_only(tree):
    sources = tree({"duckdb/place.py": "class Words: ..."})
    retired = {"memory.place": "directory", "memory.Words": "Postings"}
    assert len(returned_names(sources, retired)) == 2
    assert returned_names(sources, {"sql.place": "directory"}) == []


def test_names_that_say_nothing_are_found_in_files_and_folders():
    paths = [Path("p/sql/utils.py"), Path("p/base/rows.py"), Path("p/database.py"), Path("p/core_types.py")]
    assert len(meaningless_names(paths, {"utils", "base", "core"})) == 3


def test_a_function_a_parameter_and_a_variable_that_say_nothing_are_named():
    text = (
        "def _told(given, path):\n"
        "    for found in path:\n        path.kept = found_by = found.read()\n    return given\n"
        "class _Fetched:\n    pass\n\n\nclass Found:\n    pass\n\n\nclass FetchedRows:\n    pass\n"
    )
    source = Source(name="pkg.part", place="pkg/part.py", text=text, tree=ast.parse(text))
    problems = unnamed_things({"pkg.part": source}, {"told", "given", "found", "kept"})
    names = {problem.partition(": ")[2].split(" ")[0].strip("'") for problem in problems}
    assert names == {"_told", "given", "found", "kept", "_Fetched", "Found"}


def test_a_test_that_replaces_something_private_is_found():
    text = """
monkeypatch.setattr(journal, "_sync", refuse)
monkeypatch.setattr("nbtools.memory.journal._sync", refuse)
monkeypatch.setattr(os, "fsync", refuse)
monkeypatch.setattr("nbtools.memory._journal.size", "_none")
"""
    assert replaced_private_names(ast.parse(text)) == [2, 3]


def test_lines_of_code_leave_out_docstrings_comments_and_blanks():
    text = '"""Say what.\n\nTwo more.\n"""\n\n# why\ndef f():\n    """Do it."""\n    return """a\n\n# b"""  # so\n'
    assert code_lines(text) == 4


def test_a_circle_is_shown_whole():
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b → c → b"]


@pytest.mark.parametrize(
    ("marks", "left_out_of"),
    [
        ("pytest.mark.slow", {"unit", "not slow"}),
        ("[\n    pytest.mark.races,\n    pytest.mark.skipif(True, reason='so'),\n]", {"unit"}),
        ("pytest.mark.processes", {"unit"}),
        ("pytest.mark.broad", {"unit"}),
        ("pytest.mark.skipif(True, reason='so')", set()),
    ],
)
def test_only_files_without_a_chosen_test_are_not_imported(marks, left_out_of):
    text = f"import pytest\n\npytestmark = {marks}\n\n\n@pytest.mark.slow\ndef test_one():\n    pass\n"
    expressions = {"", "unit", "slow", "not slow", "not slow and not unit"}
    assert {each for each in expressions if has_none_of(each, text)} - {"not slow and not unit"} == left_out_of
    assert not has_none_of("unit", text.replace("pytestmark", "marks"))
