"""What a notebook and a prompt show of runs and previews."""

from __future__ import annotations

import html
import re

import pytest

HEAD = "version: 1\nname: w\n"


class Printer:
    """IPython's printer, as far as a run needs it."""

    def __init__(self) -> None:
        self.said = ""

    def text(self, text: str) -> None:
        self.said += text


@pytest.mark.processes
def test_a_run_shows_its_graph_nodes_outputs_and_pictures(wb) -> None:
    run = wb.workflows.run(
        HEAD
        + """
nodes:
  - id: draw
    code: |
      import matplotlib.pyplot as plt
      plt.plot([1, 2])
      plt.show()
      "<b>drawn</b>"
  - {id: use, tool: look, args: {value: "${nodes.draw.data}"}}
outputs: {said: "${nodes.use.data}"}
"""
    ).raise_for_error()
    shown = run._repr_html_()
    assert shown.count("<svg") == 2
    assert "data:image/png;base64," in shown
    assert "&lt;b&gt;drawn&lt;/b&gt;" in shown
    assert "<b>drawn" not in shown
    printer = Printer()
    run._repr_pretty_(printer, cycle=False)
    assert re.search(r"^use +ok +1 ", printer.said, re.MULTILINE)
    assert re.search(r"^use .* draw +drawn|^use .* draw ", run.table(), re.MULTILINE)


def test_an_open_question_comes_with_the_command_that_answers_it(wb, folder) -> None:
    (folder / "inner.yaml").write_text(
        "version: 1\nname: inner\nnodes:\n  - {id: q, ask: {choose: [a b, c], question: Which?}}\n"
    )
    (folder / "outer.yaml").write_text(
        "version: 1\nname: outer\nnodes:\n  - {id: each, workflow: inner.yaml, for_each: [1]}\n"
    )
    run = wb.workflows.run("outer.yaml")
    assert f"%workflow answer {run.run_id} &#x27;each[0]/q&#x27; &#x27;a b&#x27;" in run._repr_html_(), "in a notebook"
    assert f"nbtools runs answer {run.run_id} 'each[0]/q' 'a b'" in str(run)


def test_a_question_is_shown_as_it_was_asked(wb) -> None:
    step = "nodes:\n  - {id: q, ask: {choose: [nbtools agent, nbtools doctor], question: Run nbtools agent 7?}}\n"
    run = wb.workflows.run(HEAD + step)
    shown = html.unescape(run._repr_html_())
    assert "q</b> asks: Run nbtools agent 7?" in shown
    assert f"<code>%workflow answer {run.run_id} q 'nbtools agent'</code>" in shown


def test_a_failed_run_shows_why_and_what_to_do(wb) -> None:
    run = wb.workflows.run(HEAD + "nodes:\n  - {id: a, code: '1 / 0'}\n")
    shown = run._repr_html_()
    assert "EXECUTION_FAILED" in shown
    assert "division by zero" in shown
    assert 'data-state="failed"' in shown


def test_a_preview_is_a_table_with_reasons(wb) -> None:
    text = HEAD + "nodes:\n  - {id: a, tool: look}\n  - {id: b, tool: look, needs: [a]}\n"
    shown = wb.workflows.plan(text)._repr_html_()
    assert "never ran" in shown
    assert "2 run" in shown
