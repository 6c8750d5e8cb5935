"""Pages of help: each topic has one, examples on it run or parse, and nothing is said twice."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbtools
from nbtools import Config, Registry, Workbench
from nbtools.agent.models.choice import choose_model
from nbtools.cli import _parser
from nbtools.jupyter import help_pages
from nbtools.jupyter.catalogue import CATALOGUE
from nbtools.jupyter.help_pages import grid_keys, help_page, variables_of
from nbtools.toolbox import STANDARD
from tests.test_other_words import parse

TOOLS = Registry([function for tools in STANDARD for function in tools])
COMMANDS: dict[str, Any] = next(a for a in _parser("help")._actions if hasattr(a, "_name_parser_map")).choices  # type: ignore[assignment]
PAGES = ("class", "extending", "files", "ideas", "models", "python", "settings", "workflow")
FOLDER = Path(help_pages.__file__).parent / "pages"


def page(topic: str) -> str:
    return help_page(topic, TOOLS, COMMANDS)


@pytest.mark.parametrize("name", Config.settings())
def test_each_setting_has_a_page_with_default_variable_and_example(name: str) -> None:
    text = page(name)
    assert re.search(rf"^{name}: |^usage: ", text, re.MULTILINE)
    assert "  default   " in text
    for variable in variables_of(name):
        assert variable in text
        assert f"{name}: {Config.settings()[name].metadata['doc']}" in page(variable)
    key = "class" if name == "classroom" else name
    assert re.search(rf"in nbtools.toml:\n  (\[{key}[.\]]|{key} = )", text)


def test_the_examples_of_settings_are_a_file_that_is_read(tmp_path: Path) -> None:
    text = (FOLDER / "settings.toml").read_text(encoding="utf-8")
    (tmp_path / "nbtools.toml").write_text(text, encoding="utf-8")
    assert {"classroom" if name == "class" else name for name in tomllib.loads(text)} == set(Config.settings())
    config = Config.load(environ={}, start=tmp_path, home=tmp_path)
    assert config.kernel_timeout == 300.0
    for name, value in tomllib.loads(text.replace("\nclass =", "\nclassroom =")).items():
        Config.settings()[name].metadata["parse"](value)


def test_each_magic_tool_and_command_has_an_example_that_parses() -> None:
    examples = tomllib.loads((FOLDER / "examples.toml").read_text(encoding="utf-8"))
    topics = {entry.name for entry in CATALOGUE} | set(COMMANDS)
    assert set(examples) == topics, "each magic and command has an example in nbtools/jupyter/pages/examples.toml"
    for topic, lines in examples.items():
        for line in lines:
            if line.startswith(("%", "nbtools ")):
                parse(line)
            assert f"  {line}" in page(topic)
    assert [entry.always for entry in CATALOGUE if "examples:" not in page(entry.always)] == []
    assert [name for name, tool in TOOLS.items() if not tool.examples and tool.schema.get("required")] == []


def blocks(text: str) -> Iterator[str]:
    for is_code, lines in itertools.groupby(text.splitlines(), lambda line: not line or line.startswith("    ")):
        code = "\n".join(line[4:] for line in lines).strip("\n")
        if is_code and code:
            yield code


@pytest.mark.parametrize("name", ["class", "extending", "ideas", "models", "python"])
def test_the_examples_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Workbench(memory_url=":memory:") as wb:
        names: dict[str, Any] = {"nbtools": nbtools, "wb": wb}
        for block in blocks(page(name).partition(f"\n{name}: ")[0]):
            if block.startswith(("%", "nbtools ")):
                for line in block.splitlines():
                    parse(line)
            elif block.startswith(("[", "class =")):
                assert tomllib.loads(block)
            elif block.startswith("turns:"):
                answer = wb.agent.run("How many are there?", script=block)
                assert (answer.state, answer.usage["tool_calls"]) == ("done", 1)
            else:
                exec(block, names)
        names["wb"].close()


@pytest.mark.processes
def test_the_workflow_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page("workflow").partition("\nusage: ")[0]
    flow, *rest = blocks(text)
    steps = [block for block in rest if block.startswith("- ")]
    for line in "\n".join(block for block in rest if block not in steps).splitlines():
        parse(line.partition(" --factor")[0])
    monkeypatch.chdir(tmp_path)
    cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "n = 1", "outputs": []}
    book = {"cells": [{**cell, "execution_count": None}], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    Path("report.ipynb").write_text(json.dumps(book), encoding="utf-8")
    with Workbench(memory_url=":memory:") as wb:
        for step in steps:
            assert not wb.workflows.validate(flow.replace("outputs: {", f"  {step.strip()}\noutputs: {{")).findings
        run = wb.workflows.run(flow, {"factor": 3})
        assert run.outputs == {"total": 18}
        notes = wb.sql("select agent_id, workflow_id from nbtools.memory where key = 'total'")
        assert notes.to_numpy().tolist() == [["report", "report"]], "whose note it is, the page says"


def test_no_page_says_a_paragraph_twice() -> None:
    for topic in (*PAGES, *(entry.name for entry in CATALOGUE), *TOOLS, *COMMANDS, *Config.settings()):
        paragraphs = page(topic).split("\n\n")
        assert len(paragraphs) == len(set(paragraphs)), topic


def test_the_list_names_the_pages_and_the_explorer_its_keys() -> None:
    listed = help_page(None, TOOLS, COMMANDS)
    for name in PAGES:
        assert re.search(rf"^  {name} +\w", listed, re.MULTILINE)
    assert len(grid_keys()) > 3
    for key in grid_keys():
        assert key in page("explore")


def test_a_model_of_a_server_of_ones_own_needs_no_provider() -> None:
    for model in ("tiny", "qwen3:8b"):
        choice = choose_model(
            "mine", {"mine": {"base_url": "http://127.0.0.1:1/v1", "model": model, "api_key": "k"}}, {}
        )
        assert (choice.provider, choice.model) == ("openai-chat", model)
