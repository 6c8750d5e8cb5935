"""``%workflow`` and ``%%workflow``: from the cell to the outputs and back."""

from __future__ import annotations

import pytest

from nbtools.errors import NbtoolsError

CELL = """%%workflow {inputs}
version: 1
name: flow
inputs: {{n: {{type: integer, default: 1}}}}
nodes:
  - {{id: a, tool: calculator, args: {{expression: "${{inputs.n}} * 2"}}}}
  - {{id: b, code: "nodes['a']['value'] + 1", needs: [a]}}
outputs: {{b: "${{nodes.b.data}}"}}
"""
ASKING = """%%workflow
version: 1
name: asking
nodes:
  - {id: q, ask: {choose: [x, y]}}
outputs: {q: "${nodes.q.data}"}
"""


@pytest.mark.processes
def test_a_cell_runs_its_workflow(notebook):
    done = notebook.run(CELL.format(inputs="n=4 -o run"))
    assert notebook["run"].outputs == {"b": 9}
    assert "✓ a" in done.stdout


def test_a_cell_only_plans(notebook):
    plan = notebook.run(CELL.format(inputs="--plan")).value
    assert [str(node) for node in plan.nodes] == ["run     a  (never ran)", "run     b  (needs a)"]


def test_a_cell_whose_run_failed_shows_it_and_fails(notebook):
    body = "version: 1\nname: w\nnodes:\n  - {id: a, tool: json_parse, args: {json_string: '{'}}\n"
    done = notebook.run(f"%%workflow\n{body}")
    assert done.lines[0].startswith("ParseError")
    assert "a failed" in done.displayed[-1]["text/plain"]
    assert notebook.run(f"%%workflow -o run\n{body}").error is not None
    run = notebook["run"]
    assert done.lines[-1].startswith("→ %%workflow --resume w-")
    assert notebook.run(f"%workflow show {run.run_id}").error is None, "to look at one is not to run it"
    # By Python too a notebook is told its own words.
    notebook.shell.user_ns["run"] = run
    with pytest.raises(NbtoolsError) as failed:
        notebook.shell.run_cell("run.raise_for_error()").raise_error()
    assert failed.value._render_traceback_()[-1].endswith(f"continues with %workflow resume {run.run_id}")
    assert failed.value.three_lines()[-1].endswith(f"continues with nbtools run --resume {run.run_id}")


def test_where_nobody_can_be_asked_the_run_waits_and_is_answered_by_lines(notebook):
    run = notebook.run(ASKING).value
    assert run.state == "waiting"
    assert notebook.run(f"%workflow report {run.run_id}").value == run.folder / "report.html"
    assert notebook.run(f"%workflow export {run.run_id} again.ipynb").value.is_file()
    assert f"answered q of {run.run_id}" in notebook.run("%workflow answer y").stdout
    done = notebook.run(f"%workflow resume {run.run_id}").value
    assert done.outputs == {"q": "y"}
    assert "nothing is left to do" in notebook.run(f"%workflow resume {run.run_id}").stdout
    assert notebook.run(f"%workflow show {run.run_id}").value.state == "ok"
    assert run.run_id in str(notebook.run("%workflow").value)


def test_a_person_is_asked_until_the_answer_fits(notebook, monkeypatch):
    said = iter(["z", "2"])
    monkeypatch.setattr("builtins.input", lambda _: next(said))
    assert notebook.run(ASKING).value.outputs == {"q": "y"}


def test_a_cell_goes_on_where_a_person_said_no(notebook, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _: "no")
    said = notebook.run("%%workflow\nversion: 1\nname: w\nnodes:\n  - {id: q, ask: {approve: 'Send?'}}\n")
    assert (said.value.state, said.error) == ("declined", None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%workflow run missing.yaml", "missing.yaml"),
        ("%workflow show nothing", "there is no run"),
        ("%workflow rnu x", "Did you mean"),
        (CELL.format(inputs="n"), "Write NAME=VALUE"),
        (CELL.format(inputs="m=1"), "no input 'm'"),
        (CELL.format(inputs="n=x"), "a whole number is expected"),
    ],
)
def test_what_is_wrong_is_told(notebook, line, words):
    assert words in "\n".join(notebook.run(line).lines)


def test_what_may_be_left_out_is_not_said_to_be_required(notebook):
    assert notebook.run("%workflow plan").lines[1] == "the following arguments are required: FILE."
