import json
import subprocess
import sys

import pytest

from nbtools.contract.registry import Registry
from nbtools.contract.schema import FORMATS
from nbtools.kernels.interface import Execution
from nbtools.toolbox import STANDARD, CommandPolicy, Processes, SandboxPolicy, WebPolicy

REGISTRY = Registry(function for toolset in STANDARD for function in toolset)
NAMES = (
    *("memory_save", "memory_retrieve", "memory_delete", "memory_search", "memory"),
    *("data_analyze", "data_visualize", "code_execute", "sql_query"),
    *("session_fork", "session_keep", "session_undo"),
    *("file_read", "file_write", "file_glob", "file_list", "file_move", "file_delete"),
    *("dataframe_to_csv", "json_parse", "yaml_parse", "web_search", "web_scrape", "http_client"),
    *("shell", "process", "env_vars", "calculator", "get_current_datetime", "string_length"),
)
DESTRUCTIVE = {
    *("memory_delete", "code_execute", "file_write", "file_move", "file_delete", "dataframe_to_csv"),
    *("http_client", "shell", "process", "memory", "memory_save", "data_visualize", "session_undo"),
}
READ_ONLY = {
    *("memory_retrieve", "memory_search", "sql_query", "file_read", "file_glob", "file_list", "json_parse"),
    *("yaml_parse", "web_search", "web_scrape", "env_vars", "calculator", "get_current_datetime", "string_length"),
}


def test_the_shelf_has_every_tool_once():
    assert sorted(REGISTRY) == sorted(NAMES)


def test_declarations_and_implementations_agree():
    assert REGISTRY.check() == []


@pytest.mark.parametrize("name", NAMES)
def test_every_tool_has_valid_examples_a_title_and_words_about_its_errors(name):
    found = REGISTRY[name]
    assert found.examples
    assert found.title
    for example in found.examples:
        found.parameters.validate(example)
    assert len(found.description) < 1_500


def test_effects_are_declared():
    assert {name for name, found in REGISTRY.items() if found.effects.destructive} == DESTRUCTIVE
    assert {name for name, found in REGISTRY.items() if found.effects.read_only} == READ_ONLY


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
