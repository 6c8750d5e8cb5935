"""Notebooks that repeat runs: they are valid, run from top to bottom, and give what the run gave."""

from __future__ import annotations

import ast
import contextlib
import gc
import io
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from nbtools import Workbench
from nbtools.errors import ConfigInvalid, FileAlreadyExists, FileMissing, InvalidArguments
from nbtools.workflow.views.repeat import RepeatedSteps
from tests.workflow.driver.conftest import TOOLS

ROOT = Path(__file__).parents[3]
HEAD = "version: 1\nname: w\n"


@pytest.fixture
def book(wb, folder, monkeypatch):
    """Return a function that exports a run and reads the notebook."""

    def export(run) -> Any:
        path = wb.workflows.export_notebook(run.run_id, folder / "again.ipynb", overwrite=True)
        made = nbformat.read(path, as_version=4)
        nbformat.validate(made)
        return made

    return export


@pytest.fixture
def repeat(book, monkeypatch, tmp_path):
    """Return a function that runs the cells of a run's notebook in this process, and gives the names that they set."""
    monkeypatch.setenv("NBTOOLS_HOME", str(tmp_path / "home2"))
    monkeypatch.setenv("NBTOOLS_MEMORY_URL", ":memory:")
    monkeypatch.setattr("nbtools.Workbench", lambda: made.enter_context(Workbench(tools=TOOLS)), raising=False)

    def run_cells(run) -> dict[str, Any]:
        names: dict[str, Any] = {}
        for cell in book(run).cells:
            if cell.cell_type == "code":
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(cell.source, "<cell>", "exec"), names)
        return names

    with contextlib.ExitStack() as made:
        yield run_cells


@pytest.mark.processes
def test_values_tables_and_files_go_from_cell_to_cell(wb, repeat) -> None:
    run = wb.workflows.run(
        HEAD
        + """
inputs: {n: {type: integer, default: 3}}
nodes:
  - id: table
    code: |
      import pandas as pd
      pd.DataFrame({"x": range(inputs["n"])})
  - {id: sum, code: "int(nodes['table']['x'].sum())", needs: [table]}
  - {id: rows, tool: look, args: {value: "${nodes.table.data.rows[1][0]} of ${nodes.table.data.row_count}"}}
  - {id: file, code: "open('left.txt', 'w').write('left')"}
  - {id: name, tool: look, args: {value: "${nodes.file.artifacts | len}"}}
  - {id: nothing, code: "x = 1"}
  - {id: steps, code: "steps = wb = 5; steps + 1"}
outputs: {sum: "${nodes.sum.data}", rows: "${nodes.rows.data}", files: "${nodes.name.data}", six: "${nodes.steps.data}"}
""",
        {"n": 4},
    ).raise_for_error()
    assert repeat(run)["outputs"] == dict(run.outputs) == {"sum": 6, "rows": "1 of 4", "files": 1, "six": 6}


@pytest.mark.processes
def test_items_conditions_errors_and_other_languages_are_repeated(wb, repeat) -> None:
    run = wb.workflows.run(
        HEAD
        + """
nodes:
  - id: each
    for_each: [1, 0, 4]
    on_item_error: collect
    code: |
      text = f'''
      8 by {item}'''
      text, 8 / item
  - {id: calls, tool: look, for_each: "${nodes.each.data}", args: {value: "${item[1] | default('none')}"}}
  - {id: shell, code: "printf '%s' '{\\"a\\": 1}'", language: bash, output: {type: object}}
  - {id: broken, code: "1 / 0", on_error: continue}
  - {id: why, tool: look, when: "${nodes.broken.error}", args: {value: "${nodes.broken.error.code | default('')}"}}
  - {id: never, tool: look, when: "${nodes.broken.ok}"}
  - {id: after, tool: look, needs: [never]}
  - {id: always, code: "sorted(nodes)", needs: [never, why], when: always}
  - {id: tidy, tool: look, args: {value: tidied}, finally: true}
outputs:
  each: "${nodes.each.data}"
  calls: "${nodes.calls.data}"
  shell: "${nodes.shell.data.a}"
  why: "${nodes.why.data | default(null)}"
  after: "${nodes.after.data | default('skipped')}"
  always: "${nodes.always.data}"
"""
    ).raise_for_error()
    assert run.outputs["each"][0] == ["\n8 by 1", 8.0]
    assert run.outputs["each"][1] is None
    found = repeat(run)
    assert found["outputs"] == dict(run.outputs)
    assert found["steps"]["tidy"]["data"] == "tidied"
    assert {name: found["steps"][name]["state"] for name in ("never", "after", "broken")} == {
        "never": "skipped",
        "after": "skipped",
        "broken": "failed",
    }


@pytest.mark.slow
def test_files_and_attempts_are_repeated(wb, folder, repeat, book) -> None:
    """A cell tries as often as the run did, and gives up at once what no attempt can mend."""
    run = wb.workflows.run(
        HEAD
        + """
nodes:
  - {id: make, code: "open('made.txt', 'w').write('made')"}
  - {id: read, needs: [make], code: "open(files['make']['made.txt']).read()"}
  - {id: tool, tool: fail_until, args: {path: tried, times: 1}, retry: {attempts: 3, backoff_s: 0.01}}
  - {id: never, tool: fail_until, args: {path: other, times: 9}, retry: {attempts: 2}, on_error: continue}
outputs: {read: "${nodes.read.data}", tool: "${nodes.tool.data}", never: "${nodes.never.ok}"}
"""
    ).raise_for_error()
    assert run.outputs == {"read": "made", "tool": 2, "never": False}
    (folder / "tried").unlink()
    (folder / "other").unlink()
    names = repeat(run)
    assert names["outputs"] == {"read": "made", "tool": 2, "never": False}
    assert (folder / "other").read_text() == "xx"
    text = "\n".join(cell.source for cell in book(run).cells)
    assert "tried up to 3 times; the run needed 2" in text


def test_answers_of_runs_inside_are_given_again(wb, folder, repeat) -> None:
    (folder / "deep.yaml").write_text(
        "version: 1\nname: deep\ninputs: {n: {type: integer}, twice: {type: boolean, default: true}}\n"
        "nodes:\n  - {id: q, ask: {choose: [a, b], question: 'Which for ${inputs.n}?'}}\n"
        "outputs: {said: '${nodes.q.data}${inputs.n}'}\n"
    )
    (folder / "inner.yaml").write_text(
        "version: 1\nname: inner\ninputs: {n: {type: integer}}\n"
        "nodes:\n  - {id: go, ask: {approve: 'Go?'}}\n"
        "  - {id: down, workflow: deep.yaml, args: {n: '${inputs.n}'}, needs: [go]}\n"
        "outputs: {said: \"${nodes.down.data.said | default('no')}\"}\n"
    )
    (folder / "outer.yaml").write_text(
        "version: 1\nname: outer\n"
        "nodes:\n  - {id: each, workflow: inner.yaml, for_each: [1, 2, 3], args: {n: '${item}'}}\n"
        "outputs: {all: '${nodes.each.data}'}\n"
    )
    said = {"each[0]/go": "yes", "each[1]/go": "no", "each[2]/go": "yes", "each[0]/down/q": "a", "each[2]/down/q": "b"}
    run = wb.workflows.run("outer.yaml")
    while run.questions:
        for question in run.questions:
            wb.workflows.answer(run.run_id, question.step, said[question.step])
        run = wb.workflows.resume(run.run_id)
    assert [found["said"] for found in run.raise_for_error().outputs["all"]] == ["a1", "no", "b3"]
    assert repeat(run)["outputs"] == dict(run.outputs)


def test_what_the_run_was_not_asked_is_told(wb, repeat) -> None:
    run = wb.workflows.run(HEAD + "nodes:\n  - {id: q, ask: {approve: Go?}}\n")
    with pytest.raises(InvalidArguments, match="no answer to q"):
        repeat(run)


def test_tools_that_the_files_configure_are_there(wb, folder, repeat) -> None:
    inner = "tools: {t: {tool: calculator, fixed_config: {expression: '1'}}}\nnodes:\n  - {id: a, tool: t}\n"
    (folder / "inner.yaml").write_text(f"{HEAD}{inner}outputs: {{one: '${{nodes.a.data.value}}'}}\n")
    run = wb.workflows.run(
        HEAD
        + """
tools:
  t: {tool: calculator, fixed_config: {expression: 6*7}}
  again: {node: b}
nodes:
  - {id: a, tool: t}
  - {id: b, tool: calculator, args: {expression: "3"}}
  - {id: c, tool: again, finally: true}
  - {id: d, workflow: inner.yaml}
outputs: {a: "${nodes.a.data.value}", c: "${nodes.c.data.value}", d: "${nodes.d.data.one}"}
"""
    ).raise_for_error()
    assert repeat(run)["outputs"] == dict(run.outputs) == {"a": 42, "c": 3, "d": 1}


def test_a_cell_that_was_changed_runs_again_from_what_the_others_gave(wb, repeat) -> None:
    nodes = (
        "nodes:\n  - {id: a, tool: look, args: {value: 2}}\n  - {id: b, tool: look, args: {value: '${nodes.a.data}'}}"
    )
    steps = repeat(wb.workflows.run(HEAD + nodes + "\n").raise_for_error())["steps"]
    with pytest.raises(ConfigInvalid, match="no node 'c'"):
        steps.run({"id": "b", "tool": "look", "args": {"value": "${nodes.c.data}"}})
    assert str(steps.run({"id": "b", "tool": "look", "args": {"value": "${nodes.a.data} of ${nodes.a.state}"}})) == (
        "b: ok 2 of ok"
    )
    assert steps["b"]["data"] == "2 of ok"


def test_no_secret_is_in_a_notebook(wb, book, monkeypatch) -> None:
    monkeypatch.setenv("PLAIN_VALUE", "quartz-owl-77")
    text = (
        HEAD
        + 'inputs: {password: {type: string}}\nnodes:\n  - {id: a, tool: look, args: {value: "${env.PLAIN_VALUE}"}}\n'
        + 'outputs: {a: "${nodes.a.data}"}\n'
    )
    run = wb.workflows.run(text, {"password": "quartz-owl-77 and more"}).raise_for_error()
    made = json.dumps(book(run))
    assert "quartz-owl" not in made
    assert "*** stands for a secret" in made
    assert "${env.PLAIN_VALUE}" in made


def test_no_secret_of_a_named_file_is_in_a_notebook(wb, folder, book, monkeypatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "quartz-owl-77")
    (folder / "c.py").write_text("key = 'quartz-owl-77'\n")
    cell = nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output("stream", text="left by an earlier run")])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / "n.ipynb")
    run = wb.workflows.run(
        HEAD
        + "inputs: {really: {type: boolean, default: false}}\nnodes:\n"
        + '  - {id: a, when: "${inputs.really}", code: {file: c.py}}\n'
        + '  - {id: b, when: "${inputs.really}", notebook: n.ipynb}\n'
    ).raise_for_error()
    made = json.dumps(book(run))
    assert "key = '***'" in made
    assert "quartz-owl" not in made
    assert "left by an earlier run" not in made


def test_texts_of_a_file_become_no_code(wb, folder, book) -> None:
    hostile = "x\\nraise SystemExit\\n"
    (folder / "inner.yaml").write_text(
        f'version: 1\nname: inner\ndescription: "{hostile}"\n'
        f'nodes:\n  - {{id: p, prompt: "{hostile}", model: "openai:{hostile}"}}\n'
    )
    (folder / "w.yaml").write_text(HEAD + "nodes:\n  - {id: b, workflow: inner.yaml, on_error: continue}\n")
    run = wb.workflows.run("w.yaml")
    for cell in book(run).cells:
        if cell.cell_type == "code":
            assert not any(isinstance(node, ast.Raise) for node in ast.walk(ast.parse(cell.source)))


def test_a_file_that_is_there_is_not_replaced(wb, folder) -> None:
    run = wb.workflows.run(HEAD + "nodes:\n  - {id: a, tool: look}\n").raise_for_error()
    path = folder / "mine.ipynb"
    path.write_text("mine")
    with pytest.raises(FileAlreadyExists, match="exists already"):
        wb.workflows.export_notebook(run.run_id, path)
    assert path.read_text() == "mine"
    with pytest.raises(FileMissing, match="no run 'nothing'"):
        wb.workflows.export_notebook("nothing", folder / "new.ipynb")
    with pytest.raises(FileMissing, match="folder of"):
        wb.workflows.export_notebook(run.run_id, folder / "none" / "new.ipynb")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report", "islands", "question", "tolerant", "notes", "briefing"])
def test_the_notebook_of_each_example_runs_and_gives_the_same(tmp_path, monkeypatch, name) -> None:
    if name == "briefing":
        pytest.importorskip("pydantic_ai")
    for part in ("data", "workflows"):
        shutil.copytree(ROOT / "notebooks" / part, tmp_path / "notebooks" / part)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()

    async def ask(step, question):
        return {"form": "semicolon", "agree": "yes"}[step]

    with Workbench(home=tmp_path / "home", allowed_paths=[tmp_path], memory_url=":memory:") as wb:
        run = wb.workflows.run(f"notebooks/workflows/{name}.yaml", ask=ask).raise_for_error()
        path = wb.workflows.export_notebook(run.run_id, tmp_path / "books" / f"{name}.ipynb")
    made = nbformat.read(path, as_version=4)
    nbformat.validate(made)
    made.cells.append(nbformat.v4.new_code_cell("import json\nprint(json.dumps(outputs))"))
    environment = {"NBTOOLS_HOME": str(tmp_path / "home2"), "NBTOOLS_MEMORY_URL": ":memory:"}
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    NotebookClient(made, timeout=120, iopub_timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    found = json.loads(made.cells[-1].outputs[-1]["text"])
    wanted = json.loads(json.dumps(dict(run.outputs)))
    if name == "notes":  # it has the time in it
        found["found"], wanted["found"] = len(json.loads(found["found"])), len(json.loads(wanted["found"]))
    assert found == wanted
    assert str(tmp_path) not in path.read_text(), "no path of this machine is in it"
    if name == "report":
        assert sum("image/png" in str(cell.get("outputs")) for cell in made.cells) == 2
    if name == "question":
        assert (tmp_path / "driest.csv").read_text().startswith("weather;days;rain")


@pytest.mark.processes
def test_a_step_that_runs_a_notebook_runs_it_again(wb, folder, repeat) -> None:
    cells = [nbformat.v4.new_code_cell("n = 1", metadata={"tags": ["parameters"]}), nbformat.v4.new_code_cell("n * 2")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "double.ipynb")
    nodes = "nodes:\n  - {id: a, notebook: double.ipynb, parameters: {n: '${inputs.n}'}}\n"
    text = f"{HEAD}inputs: {{n: {{default: 4}}}}\n{nodes}outputs: {{a: '${{nodes.a.data}}'}}\n"
    run = wb.workflows.run(text, {"n": 5})
    assert run.outputs == {"a": 10}
    assert repeat(run)["outputs"] == {"a": 10}


def test_the_folder_of_steps_that_are_repeated_goes_with_them_and_warns_of_nothing(wb) -> None:
    steps = RepeatedSteps(wb.workflows.host, {"version": 1, "name": "w"}, {})
    folder = steps._folder
    assert folder.is_dir()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del steps
        gc.collect()
    assert not folder.exists()
    assert [str(one.message) for one in caught if str(folder) in str(one.message)] == []
