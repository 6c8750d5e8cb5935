"""Scripts that play a model: mistakes with line and column, conditions, and turns that repeat."""

from __future__ import annotations

import pytest

from nbtools import Workbench
from nbtools.agent.models.scripted import Script
from nbtools.errors import ParseError


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("turns: 3\n", "s:1:8: 'turns' is not a list."),
        ("turns: []\n", "s:1:8: a script is a list of turns."),
        ("[]\n", "s:1:1: a script is a list of turns."),
        ("", "s: a script is a list of turns."),
        ("turn:\n  - say: x\n", "s:1:1: 'turn' is not a key here."),
        ("turns:\n  - x\n", "s:2:5: this is not a mapping."),
        ("turns:\n  - {}\n", "s:2:5: a turn says something or calls something."),
        ("turns:\n  - say: [x]\n", "s:2:10: 'say' is not text."),
        ("turns:\n  - say: x\n    wait: true\n", "s:3:11: 'wait' is not a number."),
        ("turns:\n  - calls: [{arguments: {}}]\n", "s:2:13: a call names its tool."),
        ("turns:\n  - calls: [{tool: x, args: {}}]\n", "s:2:23: 'args' is not a key here."),
        ("turns:\n  - {say: x, when: {tol: x}}\n", "s:2:21: 'tol' is not a key here."),
        ("turns:\n  - say: 'x\n", "s: line 2, column 10: This quote is not closed."),
    ],
)
def test_a_mistake_is_told_with_line_and_column(text: str, told: str) -> None:
    with pytest.raises(ParseError) as raised:
        Script(text, "s")
    assert told in raised.value.message


def test_a_script_may_use_aliases_and_be_a_list(wb: Workbench) -> None:
    script = "- calls: [&look {tool: look, arguments: {name: a}}]\n- calls: [*look, *look]\n- say: Done.\n"
    run = wb.agent("Go!", script=script)
    assert ([call.sent for call in run.calls], run.text) == (["saw a"] * 3, "Done.")


def test_conditions_choose_the_turn_and_those_between_are_left_out(wb: Workbench) -> None:
    script = """
turns:
  - {calls: [{tool: look, arguments: {fail: true, name: a}}]}
  - {when: {tool: look, ok: true}, say: It worked.}
  - {when: {contains: penguins}, say: Penguins.}
  - {when: {tool: look, ok: false, contains: there is no a}, say: It failed.}
  - {say: Never.}
"""
    assert wb.agent("Go!", script=script).text == "It failed."


def test_an_answer_that_says_nothing_is_asked_for_again(wb: Workbench) -> None:
    run = wb.agent("Go!", script='- say: ""\n- say: Here I am.\n')
    assert (run.text, run.usage["steps"]) == ("Here I am.", 2)
    failed = wb.agent("Go!", script='- {say: "", repeat: true}\n')
    assert (failed.state, failed.error.code if failed.error else "") == ("incomplete", "EXECUTION_FAILED")


def test_a_word_that_yaml_takes_for_something_else_is_told(wb: Workbench) -> None:
    with pytest.raises(ParseError, match=r"'say' is not text") as caught:
        wb.agent("Go!", script="- say: 42\n")
    assert caught.value.hint == "Put it in quotes."
    assert wb.agent("Go!", script="- say: no\n").text == "no"


def test_a_script_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from nbtools.agent.settings import options_of
    from nbtools.errors import MissingExtra

    monkeypatch.setitem(__import__("sys").modules, "pydantic_ai", None)
    with pytest.raises(MissingExtra) as caught:
        options_of({"script": "turns:\n  - say: hello\n"})
    assert caught.value.hint == "pip install 'nbtools-kit[agent]'"
