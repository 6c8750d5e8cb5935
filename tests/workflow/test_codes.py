"""The table of codes: each example of what is wrong has its finding, and each example of what is right has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nbtools.errors import InvalidArguments
from nbtools.workflow.findings import explain, rules
from nbtools.workflow.validation import validate

SOURCES = Path(__file__).resolve().parents[2] / "nbtools" / "workflow"
HEAD = "version: 1\nname: example\n"
SOME_NODE = "nodes: [{id: spare, tool: calculator, args: {expression: '1'}}]\n"


def whole(example: str) -> str:
    """Return a file of an example, as the table says how they are shortened."""
    text = example.rstrip("\n") + "\n"
    if text.startswith("- "):
        text = "nodes:\n" + "".join(f"  {line}\n" for line in text.splitlines())
    if "version:" not in text:
        text = HEAD + text
    return text if re.search(r"^nodes:", text, re.MULTILINE) else text + SOME_NODE


@pytest.mark.parametrize("code", rules())
def test_the_wrong_example_of_a_code_has_its_finding_and_the_right_one_none(code: str, registry: object) -> None:
    rule = rules()[code]
    if rule.wrong:
        assert code in [found.code for found in validate(whole(rule.wrong), registry).findings]
    if rule.right:
        assert not str(validate(whole(rule.right), registry))


def test_codes_are_numbered_without_gaps_and_each_is_used() -> None:
    assert list(rules()) == [f"WF{number:03}" for number in range(1, len(rules()) + 1)]
    sources = [*SOURCES.rglob("*.py"), SOURCES.parent / "texts" / "yaml_tree.py"]
    used = {code for path in sources for code in re.findall(r'"(WF\d{3})"', path.read_text("utf-8"))}
    assert used == set(rules())


def test_an_explanation_shows_what_is_wrong_and_what_is_right() -> None:
    told = explain("wf041")
    assert told.startswith("WF041: Nodes that need each other\n")
    assert "Wrong:\n    - {id: a" in told
    assert "Right:\n" in told


def test_an_unknown_code_offers_the_nearest() -> None:
    with pytest.raises(InvalidArguments, match="is not a code of a finding"):
        explain("WF999")
