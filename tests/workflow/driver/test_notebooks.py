"""A step that runs a notebook: parameters, the notebook as it ran, and the kernel in which a cell has failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from nbtools.workflow.notebooks import Notebook, as_workflow

HEAD = "version: 1\nname: w\ninputs: {n: {default: 2}}\nnodes:\n"
STEP = "  - {id: report, notebook: sub/report.ipynb, parameters: {n: '${inputs.n}'}%s}\n"
CELLS = ("n = 1\nword = 'a'", "with open('log', 'a') as f: print('ran', file=f)\nm = n", "print(6 / (m - 3))", "m * 2")


def _write(*cells: str, tag: str = "parameters") -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    book.cells.insert(0, nbformat.v4.new_markdown_cell("# A report"))
    book.cells[1].metadata.tags = [tag]
    Path("sub").mkdir(exist_ok=True)
    nbformat.write(book, "sub/report.ipynb")


def _workflow(more: str = "", *, name: str = "n") -> str:
    return HEAD + STEP.replace("{n:", f"{{{name}:") % more


def _executed(run: Any) -> Any:
    """Return the notebook as it ran, which is the first artifact of the step."""
    (first, *_) = run.progress.nodes["report"].view()["artifacts"]
    return nbformat.read(first["path"], as_version=4)


def _texts(book: Any) -> list[str]:
    outputs = (output for cell in book.cells for output in cell.get("outputs", ()))
    return [output.get("text") or output.get("evalue") or output["data"]["text/plain"] for output in outputs]


def test_a_notebook_runs_with_its_parameters_and_gives_its_last_value(wb: Any, folder: Path) -> None:
    _write(*CELLS)
    run = wb.workflows.run(_workflow())
    node = run.progress.nodes["report"].view()
    assert (run.state, node["data"], node["text"]) == ("ok", 4, "-6.0\n")
    assert _texts(_executed(run)) == ["-6.0\n", "4"]
    assert _executed(run).cells[2].source == "n = 2"
    assert [Path(one["path"]).name for one in node["artifacts"]] == ["report.ipynb", "log"]
    assert wb.kernels.list() == []


def test_a_resumed_run_goes_on_at_the_cell_that_failed(wb: Any, folder: Path) -> None:
    _write(*CELLS)
    run = wb.workflows.run(_workflow(), {"n": 3})
    assert run.error["message"].startswith("cell 4, line 1: ZeroDivisionError")
    assert "continues at cell 4" in run.progress.nodes["report"].result["error"]["hint"]
    assert _texts(_executed(run)) == ["division by zero"]
    (kernel,) = wb.kernels.list()
    assert wb.kernels.run("print(m)", session=kernel["name"]).stdout == "3\n"
    _write(*CELLS[:2], "print(6 / m)", CELLS[3])
    again = wb.workflows.resume(run.run_id)
    assert (again.state, Path("log").read_text(), _texts(_executed(again))) == ("ok", "ran\n", ["2.0\n", "6"])
    assert wb.kernels.list() == []


def test_a_notebook_that_changed_before_the_cell_that_failed_begins_anew(wb: Any, folder: Path) -> None:
    _write(*CELLS)
    run = wb.workflows.run(_workflow(), {"n": 3})
    _write(CELLS[0], f"{CELLS[1]} + 1", *CELLS[2:])
    again = wb.workflows.resume(run.run_id)
    assert (again.state, Path("log").read_text(), again.progress.nodes["report"].view()["data"]) == (
        "ok",
        "ran\n" * 2,
        8,
    )
    assert "some have changed" in again.progress.nodes["report"].result["notes"][0]


def test_another_process_begins_anew_and_says_so(wb: Any, folder: Path) -> None:
    _write(*CELLS)
    run = wb.workflows.run(_workflow(), {"n": 3})
    assert "from another process all cells run again" in run.progress.nodes["report"].result["error"]["hint"]
    (kernel,) = wb.kernels.list()
    wb.kernels.stop(kernel["name"])  # as the end of its process does
    _write(*CELLS[:2], "print(6 / m)", CELLS[3])
    again = wb.workflows.resume(run.run_id)
    assert (again.state, Path("log").read_text()) == ("ok", "ran\n" * 2)
    notes = again.progress.nodes["report"].result["notes"]
    assert notes[0] == "begins at cell 1: the kernel of the attempt before has ended"


def test_a_kernel_is_kept_where_that_is_wanted(wb: Any, folder: Path) -> None:
    _write("n = 1", "m = n + 1")
    run = wb.workflows.run(_workflow(", keep_kernel: true"))
    (kernel,) = wb.kernels.list()
    assert kernel["name"] in str(run.progress.nodes["report"].result["notes"])
    assert wb.kernels.run("m", session=kernel["name"], wants_value=True).value == 3


def test_a_notebook_is_a_workflow_of_one_step(wb: Any, folder: Path) -> None:
    _write("n = 1\nwhen = len('ab')", "n * when")
    runs = [wb.workflows.run("sub/report.ipynb", inputs) for inputs in ({}, {"n": 5})]
    assert [run.progress.nodes["report"].view()["data"] for run in runs] == [2, 10]
    assert wb.workflows.validate("sub/report.ipynb").ok


def test_a_notebook_that_is_named_again_keeps_the_values_that_were_given(wb: Any, folder: Path) -> None:
    _write("n = 1\nm = 1", "m * n + missing")
    run = wb.workflows.run("sub/report.ipynb", {"n": 3})
    assert not run.ok
    _write("n = 1\nm = 1", "(m, n, missing)")
    assert not wb.workflows.resume(run.run_id, inputs={"m": 2}).ok
    _write("n = 1\nm = 1", "[m, n]")
    again = wb.workflows.resume(run.run_id, "sub/report.ipynb")
    assert again.progress.nodes["report"].view()["data"] == [2, 3]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("cell", "tag", "name", "message"),
    [
        ("n = 1", "parameters", "m", "has no parameter 'm'"),
        ("n = 1", "other", "n", "Give the cell that sets them the tag parameters"),
        (None, "", "n", "No such file"),
        ("", "", "n", "not a notebook"),
    ],
)
def test_what_a_notebook_does_not_have_is_told_before_it_runs(
    wb: Any, folder: Path, cell: str | None, tag: str, name: str, message: str
) -> None:
    if cell:
        _write(cell, tag=tag)
    elif cell is not None:
        Path("sub").mkdir()
        Path("sub/report.ipynb").write_text("print(1)")
    assert message in str(wb.workflows.validate(_workflow(name=name)))


@pytest.mark.unit
def test_the_inputs_of_a_notebook_are_the_names_of_its_cell(folder: Path) -> None:
    _write("n = 3\nday = today()\nwords: list = ['a']\nmost = 1e999\nfor i in words:\n    n += 1\nn += 1")
    inputs = Notebook(Path("sub/report.ipynb").read_text()).parameters()
    defaults = {name: schema["default"] for name, schema in inputs.items()}
    assert defaults == {"n": 3, "day": None, "words": ["a"], "most": None}
    text = as_workflow("sub/report.ipynb", ["day"])
    assert 'parameters: {"day": "${inputs.day}"}' in text


@pytest.mark.unit
def test_what_a_notebook_showed_before_is_nothing_that_a_step_depends_on(folder: Path) -> None:
    _write("n = 1")
    book = nbformat.read("sub/report.ipynb", as_version=4)
    before = Notebook(json.dumps(book)).bare_text()
    book.cells[1].execution_count = 7
    book.cells[1].outputs = [nbformat.v4.new_output("stream", text="1")]
    assert Notebook(json.dumps(book)).bare_text() == before
