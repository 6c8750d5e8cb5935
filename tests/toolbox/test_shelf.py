import json
import subprocess
import sys

import pytest

from nbtools.contract.registry import Registry
from nbtools.contract.schema import FORMATS
from nbtools.kernels.interface import Execution
from nbtools.toolbox import STANDARD, CommandPolicy, Processes, SandboxPolicy, WebPolicy

REGISTRY = Registry(function for toolset in STANDARD for function in toolset)
# What each tool of the shelf does to the world; an empty text where it adds or changes something, and destroys nothing.
SHELF = {
    "memory_save": "destructive",
    "memory_retrieve": "read_only",
    "memory_delete": "destructive",
    "memory_search": "read_only",
    "memory": "destructive",
    "data_analyze": "",
    "data_visualize": "destructive",
    "code_execute": "destructive",
    "sql_query": "read_only",
    "session_fork": "",
    "session_keep": "",
    "session_undo": "destructive",
    "file_read": "read_only",
    "file_write": "destructive",
    "file_glob": "read_only",
    "file_list": "read_only",
    "file_move": "destructive",
    "file_delete": "destructive",
    "dataframe_to_csv": "destructive",
    "json_parse": "read_only",
    "yaml_parse": "read_only",
    "web_search": "read_only",
    "web_scrape": "read_only",
    "http_client": "destructive",
    "shell": "destructive",
    "process": "destructive",
    "env_vars": "read_only",
    "calculator": "read_only",
    "get_current_datetime": "read_only",
    "string_length": "read_only",
}


def test_the_shelf_has_every_tool_once_with_its_effects():
    declared = {
        name: "destructive" * tool.effects.destructive or "read_only" * tool.effects.read_only
        for name, tool in REGISTRY.items()
    }
    assert declared == SHELF, "each tool has a row in SHELF of this file, which says what it does to the world"


def test_declarations_and_implementations_agree():
    assert REGISTRY.check() == []


@pytest.mark.parametrize("name", SHELF)
def test_every_tool_has_valid_examples_a_title_and_words_about_its_errors(name):
    found = REGISTRY[name]
    assert found.examples
    assert found.title
    for example in found.examples:
        found.parameters.validate(example)
    assert len(found.description) < 1_500


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_every_schema_is_json_in_every_form(form):
    assert json.loads(json.dumps(REGISTRY.render(form)))


@pytest.mark.processes
def test_the_shelf_is_imported_without_the_libraries_it_stands_on():
    heavy = ("pandas", "numpy", "duckdb", "requests", "bs4", "lxml", "yaml", "pydantic", "sqlglot", "zmq", "matplotlib")
    code = f"import sys; from nbtools.toolbox import STANDARD; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


RUN_AS_THEY_ARE = {
    *("file_write", "file_list", "dataframe_to_csv", "json_parse", "yaml_parse", "calculator"),
    *("get_current_datetime", "string_length", "env_vars"),
}


@pytest.mark.parametrize("name", sorted(RUN_AS_THEY_ARE))
def test_examples_that_harm_nothing_run(shelf, folder, name):
    (folder / "out").mkdir()
    call = shelf(*(fn for toolset in STANDARD for fn in toolset), commands=CommandPolicy())
    for example in REGISTRY[name].examples:
        result = call(name, **example)
        assert result.ok, result
        assert result.text


def test_examples_of_files_run_where_the_files_are(shelf, folder):
    (folder / "notes.txt").write_text("x")
    (folder / "old.csv").write_text("x")
    (folder / "draft.txt").write_text("x")
    call = shelf(*(fn for toolset in STANDARD for fn in toolset))
    for name in ("file_read", "file_glob", "file_move"):
        (folder / "out").mkdir(exist_ok=True)
        for example in REGISTRY[name].examples:
            assert call(name, **example).ok


def test_policies_have_careful_defaults():
    assert CommandPolicy().allowed == ()
    assert WebPolicy().allow_private is False
    assert SandboxPolicy().model == "strict"
    assert Processes.__doc__


def test_executions_without_details_are_told_all_the_same():
    assert Execution(status="error", exit_code=3).error_message() == "the script ended with exit code 3."
    failed = Execution(status="error", exit_code=3, stderr="a\nb\n")
    assert failed.error_message() == "the script ended with exit code 3: b"
    assert "for no known reason" in Execution(status="died").to_error().message
