"""``nbtools validate | explain | workflow-schema``: a line of address for each mistake, and nothing else on stdout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

EXAMPLES = Path(__file__).resolve().parents[2] / "notebooks" / "workflows"
BROKEN = """\
version: 1
name: broken
nodes:
  - {id: a, tool: calculater, args: {expression: "${inputs.x}"}}
  - {id: b, prompt: Hello, modle: anthropic}
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    file = tmp_path / "broken.yaml"
    file.write_text(BROKEN, encoding="utf-8")
    return file


def test_the_shipped_examples_are_valid_and_a_person_is_told_so(nbtools: Callable[..., Any]) -> None:
    files = [str(file) for file in EXAMPLES.glob("*.yaml")]
    assert len(files) >= 6
    done = nbtools("validate", *files)
    assert (done.code, done.out, done.err.count("no mistakes")) == (0, "", len(files))


def test_a_broken_file_shows_every_mistake_with_its_caret(nbtools: Callable[..., Any], broken: Path) -> None:
    done = nbtools("validate", "broken.yaml")
    assert (done.code, done.err) == (1, "")
    assert done.out.splitlines() == [
        "broken.yaml:4:19: WF036 There is no tool 'calculater'. Did you mean 'calculator'?",
        '      - {id: a, tool: calculater, args: {expression: "${inputs.x}"}}',
        "                      ^^^^^^^^^^",
        "broken.yaml:4:60: WF025 There is no input 'x'. There are no inputs.",
        '      - {id: a, tool: calculater, args: {expression: "${inputs.x}"}}',
        "                                                               ^",
        "broken.yaml:5:28: WF015 'modle' is not a key here. Did you mean 'model'?",
        "      - {id: b, prompt: Hello, modle: anthropic}",
        "                               ^^^^^",
    ]


def test_findings_are_written_for_programs(nbtools: Callable[..., Any], broken: Path) -> None:
    done = nbtools("validate", "--format", "json", str(broken))
    assert done.code == 1
    first = {key: done.json[0][key] for key in ("code", "line", "column", "width", "level", "path")}
    assert first == {"code": "WF036", "line": 4, "column": 19, "width": 10, "level": "error", "path": str(broken)}
    told = nbtools("validate", "--format", "github", "broken.yaml").out.splitlines()
    place = "file=broken.yaml,line=5,col=28,endColumn=33"
    assert told[2] == f"::error {place},title=WF015::'modle' is not a key here. Did you mean 'model'?"
    run = nbtools("validate", "--format", "sarif", "broken.yaml").json["runs"][0]
    assert [result["ruleId"] for result in run["results"]] == ["WF036", "WF025", "WF015"]


def test_a_right_file_is_an_empty_list_for_programs(nbtools: Callable[..., Any]) -> None:
    done = nbtools("validate", "--format", "json", str(EXAMPLES / "report.yaml"))
    assert (done.code, done.json) == (0, [])


def test_a_file_that_several_others_run_is_told_once(nbtools: Callable[..., Any], broken: Path) -> None:
    parent = "version: 1\nname: parent\nnodes: [{id: a, workflow: broken.yaml}]\n"
    for name in ("one.yaml", "two.yaml"):
        (broken.parent / name).write_text(parent, encoding="utf-8")
    done = nbtools("validate", "one.yaml", "two.yaml")
    assert done.code == 1
    assert done.out.count("WF036") == 1


def test_a_file_that_is_not_there_is_told(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    done = nbtools("validate", "missing.yaml")
    assert done.code == 1
    assert done.out.startswith("missing.yaml:1:1: WF001 The file cannot be read: No such file or directory.")
    (tmp_path / "wf.yaml").write_text("name: a\n")
    assert "Did you mean 'wf.yaml'?" in nbtools("validate", "wf.yml").out
    assert nbtools("validate", ".").out.startswith(".:1:1: WF001 The file cannot be read")


@pytest.mark.parametrize("arguments", [["validate"], ["validate", "--format", "xml", "a.yaml"], ["explain", "WF999"]])
def test_wrong_usage_has_a_code_of_its_own(nbtools: Callable[..., Any], arguments: list[str]) -> None:
    done = nbtools(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err


def test_a_code_is_explained_by_an_example(nbtools: Callable[..., Any]) -> None:
    done = nbtools("explain", "wf036")
    assert done.code == 0
    assert done.out.startswith("WF036: An unknown tool\n")
    assert "calculater" in done.out
    assert "WF055  A condition that is none" in nbtools("explain").out


def test_the_schema_for_editors_accepts_every_example_and_marks_unknown_keys(nbtools: Callable[..., Any]) -> None:
    schema = nbtools("workflow-schema").json
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for file in EXAMPLES.glob("*.yaml"):
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
        validator.validate(given)
        given["nodes"][0]["surplus"] = 1
        assert not validator.is_valid(given)
        assert json.dumps(given)


def test_all_keys_of_a_file_are_on_one_page(nbtools: Callable[..., Any]) -> None:
    page = nbtools("explain", "workflow").out
    for key in ("version*", "for_each", "on_item_error", "backoff_s", "approve*", "fixed_config", "max_parallel"):
        assert f"\n  {key} " in page
    assert 'files["ID"]["NAME"]' in page
    assert max(map(len, page.splitlines())) <= 120


def test_codes_of_runs_are_explained(nbtools: Callable[..., Any]) -> None:
    assert "With retry it is tried again" in nbtools("explain", "file_not_found").out
    assert "retry makes none" in nbtools("explain", "INVALID_ARGUMENTS").out
    assert "Did you mean TIMEOUT?" in nbtools("explain", "TIMEOUTS").err


def test_what_other_programs_call_a_key_is_known(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(
        'version: 1\nname: w\nsteps: []\nnodes:\n  - {id: a, ask: "Sure?"}\n  - {id: b, code: "1", retry: 3, if: x}\n'
    )
    told = nbtools("validate", "other.yaml").out
    for hint in ("Did you mean 'nodes'?", 'Write {approve: "Sure?"}.', "Write {attempts: 3}.", "Did you mean 'when'?"):
        assert hint in told
