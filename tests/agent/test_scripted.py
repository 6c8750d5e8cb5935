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
        ("turn:\n  - say: x\n", "s:1:1: 'turn' is no key here."),
        ("turns:\n  - x\n", "s:2:5: this is no mapping."),
        ("turns:\n  - {}\n", "s:2:5: a turn says something or calls something."),
        ("turns:\n  - say: [x]\n", "s:2:10: 'say' is not text."),
        ("turns:\n  - say: x\n    wait: true\n", "s:3:11: 'wait' is not a number."),
        ("turns:\n  - calls: [{arguments: {}}]\n", "s:2:13: a call names its tool."),
        ("turns:\n  - calls: [{tool: x, args: {}}]\n", "s:2:23: 'args' is no key here."),
        ("turns:\n  - {say: x, when: {tol: x}}\n", "s:2:21: 'tol' is no key here."),
        ("turns:\n  - say: 'x\n", "s"),
    ],
)
def test_a_mistake_is_told_with_line_and_column(text: str, told: str) -> None:
    with pytest.raises(ParseError) as raised:
        Script(text, "s")
    assert told in raised.value.message or told == "s"


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
