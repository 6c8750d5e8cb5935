"""Files that one step leaves and another one reads: by code, by tools, in SQL, in runs inside; and frozen scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbtools import Workbench
from nbtools.workflow.validation import validate

HEAD = "version: 1\nname: w\n"
MADE = """
nodes:
  - id: make
    code: |
      import pathlib
      pathlib.Path("sub").mkdir()
      pathlib.Path("sub/t.csv").write_text("a\\n1\\n2\\n")
      pathlib.Path("note.txt").write_text(f"from {inputs['who']}")
"""


@pytest.mark.processes
def test_code_and_tools_read_the_files_of_nodes_that_they_need(wb, folder):
    run = wb.workflows.run(
        HEAD
        + "inputs: {who: {type: string, default: make}}"
        + MADE
        + """
  - id: items
    for_each: [x, y]
    code: "open('chart.txt', 'w').write(item)"
  - id: code
    needs: [make, items]
    code: |
      open("note.txt", "w").write("a file of its own")
      [sorted(files["make"]), open(files["make"]["note.txt"]).read(), open(files["items"]["1/chart.txt"]).read()]
  - {id: shell, language: bash, needs: [make], code: 'printf "%s" "$files" | grep -o "sub/t.csv" | head -1'}
  - id: read
    tool: file_read
    args: {path: "${nodes.make.artifacts[0].path}"}
  - id: sum
    tool: sql_query
    args: {query: "select sum(a) as s from '${nodes.make.artifacts[1].path}'"}
  - {id: table, code: "import pandas as pd; pd.DataFrame({'x': [1, 2, 3]})"}
  - {id: rows, tool: sql_query, args: {query: "select count(*) as n from '${nodes.table.data.parquet}'"}}
outputs:
  code: "${nodes.code.data}"
  shell: "${nodes.shell.text}"
  read: "${nodes.read.text}"
  sum: "${nodes.sum.data.rows}"
  rows: "${nodes.rows.data.rows}"
"""
    ).raise_for_error()
    assert run.outputs["code"] == [["note.txt", "sub/t.csv"], "from make", "y"]
    assert run.outputs["shell"].strip() == "sub/t.csv"
    assert "from make" in run.outputs["read"]
    assert (run.outputs["sum"], run.outputs["rows"]) == ([[3]], [[3]])
    note = run.folder / "artifacts" / "make" / "note.txt"
    assert note.read_text() == "from make", "what another node writes under the same name is another file"


def test_a_file_of_a_run_that_no_needed_node_left_stays_out_of_reach(wb, folder):
    first = wb.workflows.run(HEAD + "inputs: {who: {type: string, default: me}}" + MADE).raise_for_error()
    note = first.folder / "artifacts" / "make" / "note.txt"
    text = "inputs: {path: {type: string}}\nnodes:\n  - {id: a, tool: file_read, args: {path: '${inputs.path}'}}\n"
    run = wb.workflows.run(HEAD + text, {"path": str(note)})
    assert run.error["code"] == "PATH_NOT_ALLOWED"


@pytest.mark.processes
def test_a_run_inside_reads_the_files_that_it_is_given(wb, folder):
    (folder / "inner.yaml").write_text(
        "version: 1\nname: inner\ninputs: {path: {type: string}}\nnodes:\n"
        "  - {id: read, tool: file_read, args: {path: '${inputs.path}'}}\n"
        "  - {id: code, code: 'open(inputs[\"path\"]).read()'}\n"
        'outputs: {read: "${nodes.read.text}", code: "${nodes.code.data}"}\n'
    )
    (folder / "outer.yaml").write_text(
        HEAD
        + "inputs: {who: {type: string, default: me}}"
        + MADE
        + '  - {id: in, workflow: inner.yaml, args: {path: "${nodes.make.artifacts[0].path}"}}\n'
        + 'outputs: {all: "${nodes.in.data}"}\n'
    )
    run = wb.workflows.run("outer.yaml").raise_for_error()
    assert "from me" in run.outputs["all"]["read"]
    assert run.outputs["all"]["code"] == "from me"


@pytest.mark.processes
def test_files_of_tools_are_kept_with_the_run_and_read_after_a_resume(tmp_path, folder):
    flow = (
        HEAD
        + """
nodes:
  - {id: make, tool: code_execute, args: {code: "open('left.txt', 'w').write('left')"}}
  - {id: go, ask: {approve: Go on?}, needs: [make]}
  - {id: read, code: "open(files['make']['left.txt']).read()", needs: [make, go]}
outputs: {read: "${nodes.read.data | default('')}"}
"""
    )
    settings = {"home": tmp_path / "home", "allowed_paths": [folder], "memory_url": ":memory:", "sandbox": "strict"}
    with Workbench(**settings) as wb:
        run = wb.workflows.run(flow)
        assert run.state == "waiting"
        [kept] = run.progress.nodes["make"].view()["artifacts"]
        assert Path(kept["path"]).is_relative_to(run.folder)
        wb.workflows.answer(run.run_id, "go", "yes")
    with Workbench(**settings) as wb:
        assert wb.workflows.resume(run.run_id).raise_for_error().outputs == {"read": "left"}


@pytest.mark.processes
def test_what_a_file_holds_decides_about_reuse(wb, folder):
    (folder / "flow.yaml").write_text(
        HEAD
        + "inputs: {who: {type: string, default: a}}"
        + MADE
        + "  - {id: use, needs: [make], code: \"len(open(files['make']['note.txt']).read())\"}\n"
    )
    wb.workflows.run("flow.yaml").raise_for_error()
    again = wb.workflows.run("flow.yaml", cached=True).raise_for_error()
    assert again.progress.nodes["use"].why.startswith("reused from")
    changed = wb.workflows.run("flow.yaml", {"who": "b"}, cached=True).raise_for_error()
    assert "files of make" in changed.progress.nodes["use"].why


@pytest.mark.parametrize("is_text", [True, False])
def test_scripts_are_frozen_by_whatever_path_they_are_named(wb, folder, is_text):
    (folder / "lib").mkdir()
    script = folder / "lib" / "a b.py"
    script.write_text("40 + 2")
    text = f"""version: 1
name: w
nodes:
  - {{id: go, ask: {{approve: Go on?}}}}
  - {{id: near, code: {{file: lib/a b.py}}, needs: [go]}}
  - {{id: far, code: {{file: "{script}"}}, needs: [go]}}
  - id: block
    code:
      file: {script}
    needs: [go]
outputs:
  all: "${{nodes.near.data | default(0)}} ${{nodes.far.data | default(0)}} ${{nodes.block.data | default(0)}}"
"""
    (folder / "flow.yaml").write_text(text)
    run = wb.workflows.run(text if is_text else "flow.yaml")
    wb.workflows.answer(run.run_id, "go", "yes")
    script.unlink()
    done = wb.workflows.resume(run.run_id).raise_for_error()
    assert done.outputs == {"all": "42 42 42"}
    assert done.drift == ("lib/a b.py is gone since the run began",)


def test_names_of_files_in_code_are_validated():
    text = HEAD + "nodes:\n  - {id: a, code: '1'}\n  - {id: b, code: 'files[\"a\"], files[\"c\"]'}\n"
    assert [found.code for found in validate(text).findings] == ["WF048", "WF026"]


def test_patterns_in_queries_are_found_from_the_working_folder(wb, folder):
    (folder / "data").mkdir()
    for name in "ab":
        (folder / "data" / f"p{name}.csv").write_text("n\n1\n")
    query = "select sum(n) as s from 'data/p*.csv'"
    run = wb.workflows.run(HEAD + f'nodes:\n  - {{id: q, tool: sql_query, args: {{query: "{query}"}}}}\n')
    assert run.raise_for_error().progress.nodes["q"].view()["data"]["rows"] == [[2]]
