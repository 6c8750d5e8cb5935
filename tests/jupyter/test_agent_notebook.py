"""What a model sees of the notebook: its variables by ``notebook_look``, and what a prompt mentions by ``@``."""

from __future__ import annotations

import time

import pytest

from nbtools.agent.sharing import Sharing
from nbtools.errors import ConfigMissing
from nbtools.jupyter.namespace import NotebookLook, names_made
from tests.conftest import wait_until

SCHEMA, SAMPLE, VALUES = map(Sharing.of, ("schema", "sample", "values"))
TURNS = """
turns:
  - calls: [{tool: notebook_look}]
  - when: {tool: notebook_look}
    say: Seen.
  - calls: [{tool: notebook_look}]
  - when: {tool: notebook_look, contains: second}
    say: Seen again.
  - say: Nothing new.
"""


@pytest.fixture
def cell(notebook, folder):
    (folder / "turns.yaml").write_text(TURNS)

    def run(text):
        done = notebook.shell.run_cell(text, store_history=True)
        return done.result if done.success else done.error_in_exec

    return run


def told(run):
    return run.calls[0].sent


def test_a_look_tells_type_shape_memory_and_cell(notebook, cell):
    cell("import pandas as pd\nfrom math import sqrt")
    cell("frame = pd.DataFrame({'city': ['Bern', 'Chur'], 'amount': [10, 32]})\nnumber = 4711")
    cell("%%sql --out found\nselect 1 as one")
    cell("def double(x):\n    inner = x\n    return 2 * inner")
    lines = dict(line.split(": ", 1) for line in NotebookLook(notebook.shell)(SCHEMA).splitlines())
    assert lines["frame"].startswith("DataFrame of 2 rows with 2 columns (city: ")
    assert "amount: int64" in lines["frame"]
    assert lines["frame"].endswith(" B, made in cell 2")
    assert lines["number"] == "int, made in cell 2"
    assert lines["found"].endswith("made in cell 3")
    assert lines["double"] == "function double, made in cell 4"
    assert lines["pd"] == "module pandas, made in cell 1"
    assert not lines.keys() & {"In", "Out", "exit", "inner", "get_ipython"}


def test_a_value_is_told_where_the_level_allows_and_secrets_never(notebook, cell):
    cell("number, words, api_key = 4711, 'some words', 'sk-ant-4k2j5h6g7f8d9s0a'")
    look = NotebookLook(notebook.shell)
    assert "4711" not in look(SCHEMA)
    assert "some words" not in look(SCHEMA, ["words"])
    shown = look(VALUES)
    assert "4711" in shown
    assert "str of 10 some words" in shown
    assert "sk-ant" not in shown


def test_later_looks_tell_what_changed(notebook, cell):
    cell("one, two = [1], [2]")
    look = NotebookLook(notebook.shell)
    look(SCHEMA)
    assert look(SCHEMA) == "Nothing has changed since you looked last."
    cell("two = 'other'\ndel one\nthree = {}")
    assert {line.partition(":")[0] for line in look(SCHEMA).splitlines()} == {"one", "two", "three"}
    assert look(SCHEMA, ["one"]) == "one: there is no such variable"


def test_a_look_stays_within_its_budget_and_names_the_rest(notebook, cell):
    cell("for n in range(3_000): globals()[f'a_rather_long_name_{n}'] = [n]")
    look = NotebookLook(notebook.shell)
    begun = time.thread_time()
    shown = look(SCHEMA)
    assert len(shown) <= 4 * 15_000
    assert time.thread_time() - begun < 2
    assert "more variables are not shown" in shown
    assert look(SCHEMA, ["a_rather_long_name_2999"]).startswith("a_rather_long_name_2999: list of 1")


def test_an_object_that_cannot_be_looked_at_is_named(notebook, cell):
    cell("class Bad:\n    @property\n    def shape(self): raise RuntimeError('no')\nbad = Bad()")
    assert "bad: Bad, which cannot be shown (RuntimeError)" in NotebookLook(notebook.shell)(VALUES)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("a = b = 1; c, (d, *e) = f", "abcde"),
        ("for i in x:\n    with y as j: k: int = 2", "ijk"),
        ("import p.q\nfrom r import s as t", "pt"),
        ("if (u := 1): v += 1", "uv"),
        ("get_ipython().run_cell_magic('sql', '--out w', 'select z')", "w"),
        ("not python at all", ""),
    ],
)
def test_names_of_a_cell_are_those_that_it_gives_a_value(source, names):
    assert set(names) <= set(names_made(source)) <= {*names, "out"}


def test_the_model_looks_and_later_sees_what_is_new(notebook, cell):
    cell("first = 1")
    assert "first: int 1, made in cell 1" in told(cell("%%agent --script turns.yaml\nLook.").run)
    cell("second = 2")
    again = cell("%%agent --script turns.yaml\nLook again.").run
    assert again.text == "Seen again."
    assert "first" not in told(again)
    assert "first: int, made" in told(cell("%%agent --script turns.yaml --new --share schema\nLook.").run)


def test_history_cell_and_output_are_what_the_person_wrote_and_got(notebook, cell):
    cell("first = 1")
    cell("second = 2\nsecond")
    run = cell("%%agent --script turns.yaml\nSee @history, @history[1], @cell and @out[2].").run
    sent = str(cell(f"%agent show {run.run_id} --sent"))
    assert "@history is this code:\n# cell 1\nfirst = 1\n\n# cell 2\nsecond = 2\nsecond" in sent
    assert "@history[1] is this code:\n# cell 2\nsecond = 2\nsecond\n\n" in sent
    assert "@cell is this code:\n# cell 2\n" in sent
    assert "@out[2] is a int:\n2" in sent
    assert "%%agent" not in sent


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("Look at @frme.", "there is no 'frme' in the notebook. (Did you mean 'frame'?"),
        ("Look at @out[9].", "cell 9 has no output."),
        ("Look at @out.", "@out is the output of a cell."),
    ],
)
def test_an_unknown_mention_is_one_clear_error_before_anything_runs(notebook, cell, prompt, told):
    cell("frame = 1")
    error = cell(f"%%agent --script turns.yaml\n{prompt}")
    assert told in str(error)
    assert "no runs yet" in str(cell("%agent runs"))


def test_what_a_person_makes_of_a_proposal_is_recorded_with_the_call(notebook, cell):
    session = notebook.shell.meta["nbtools"].dispatcher.session
    question = {"notebook": "a.ipynb", "action": "insert", "cell": None, "source": "1", "proposal": "p"}
    session._record_outcome(
        {**question, "call": {"run_id": "run", "call_id": "call"}}, {"outcome": "accepted", "at": "now"}
    )

    def records():
        return [each for each in session.workbench.call_records() if each["tool"] == "notebook_propose"]

    wait_until(records)
    record = records()[0]
    assert (record["caller"], record["run_id"], record["parent_id"]) == ("form", "run", "call")
    assert record["arguments"] == question


def test_without_a_page_the_notebook_says_so_at_once_and_agents_go_without(notebook, cell):
    page = notebook.shell.meta["nbtools"].dispatcher.session.page
    with pytest.raises(ConfigMissing, match="JupyterLab's extension of nbtools does not answer"):
        page.ask({"ask": "who"})
    assert not page.answers()
    assert page.ask({"ask": "outcome", "proposal": "none"})["outcome"] == "unknown"
