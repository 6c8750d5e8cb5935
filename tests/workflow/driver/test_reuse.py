"""Which steps a run takes from earlier runs: those all of whose sources are compared, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

HEAD = "version: 1\nname: w\n"


def why(wb, nodes: str) -> str:
    text = HEAD + "nodes:\n" + nodes
    wb.workflows.run(text)
    [*_, last] = wb.workflows.plan(text).nodes
    return f"{last.action}: {last.why}"


@pytest.mark.parametrize(
    ("args", "reads"),
    [
        ("tool: sql_query, args: {query: select sum(id) s from t3}", "t3"),
        ("tool: sql_query, args: {query: select 1, connection: 'sqlite:///x.db'}", "a database"),
        ("tool: sql_query, args: {query: select count(*) n from nbtools.memory}", "the memory"),
        ("tool: sql_query, args: {query: select now()}", "the clock"),
        ("tool: memory_retrieve, args: {tags: [x]}", "the memory"),
        ("tool: memory_search, args: {query: x}", "the memory"),
        ("tool: file_glob, args: {pattern: '*'}", "what folders hold"),
        ("tool: file_list", "what folders hold"),
        ("tool: look, args: {value: 'sub/folder'}", "the folder sub/folder"),
        ("tool: data_analyze, args: {analysis_script: 'memory'}", "the memory"),
        ("tool: data_analyze, args: {analysis_script: '1', session: s}", "a session"),
        ("tool: data_analyze, args: {analysis_script: '1', inputs: {a: a}}", "tables of the notebook"),
        ("code: memory.read('k')", "the memory"),
        ("code: 'datetime.datetime.now()'", "the clock"),
        ("code: random.random()", "chance"),
    ],
)
def test_what_reads_something_that_is_not_compared_runs_again_and_says_why(
    wb, folder: Path, args: str, reads: str
) -> None:
    (folder / "sub" / "folder").mkdir(parents=True)
    text = HEAD + "nodes:\n  - {id: a, " + args + "}\n"
    assert [str(node) for node in wb.workflows.plan(text).nodes] == [
        f"run     a  (it reads {reads}, which is not compared)"
    ]


def test_tools_that_read_only_what_their_arguments_name_are_reused(wb, folder: Path) -> None:
    (folder / "x.csv").write_text("a\n1\n")
    for args in (
        "tool: look, args: {value: 1}",
        "tool: sql_query, args: {query: \"with w as (select a from 'x.csv') select * from w\"}",
        "tool: file_read, args: {path: x.csv}",
        "tool: json_parse, args: {json_string: '\"https://x.example\"'}",
    ):
        assert why(wb, "  - {id: a, " + args + "}\n").startswith("reuse: of ")
        (folder / "x.csv").write_text("a\n1\n")


def test_what_names_more_files_than_are_compared_runs_again(wb, folder: Path) -> None:
    for i in range(200):
        (folder / f"x{i}.csv").write_text(f"a\n{i}\n")
    assert "not all are compared" in why(
        wb, "  - {id: a, tool: sql_query, args: {query: \"select sum(a) from 'x*.csv'\"}}\n"
    )


def test_a_workflow_inside_is_reused_only_where_each_of_its_steps_is(wb, folder: Path) -> None:
    inner = folder / "inner.yaml"
    inner.write_text("version: 1\nname: i\nnodes:\n  - {id: a, tool: file_read, args: {path: x.csv}}\n")
    (folder / "x.csv").write_text("a\n1\n")
    nodes = "  - {id: sub, workflow: inner.yaml}\n"
    (folder / "flow.yaml").write_text(HEAD + "nodes:\n" + nodes)
    wb.workflows.run("flow.yaml").raise_for_error()
    assert wb.workflows.plan("flow.yaml").nodes[0].action == "reuse"
    (folder / "x.csv").write_text("a\n2\n")
    assert wb.workflows.plan("flow.yaml").nodes[0].why == "changed: file x.csv"
    inner.write_text(inner.read_text().replace("file_read, args: {path: x.csv}", "file_list"))
    words = "a in it: it reads what folders hold, which is not compared"
    assert wb.workflows.plan("flow.yaml").nodes[0].why == words


FINAL = """
nodes:
  - {id: make, tool: note, args: {path: log, line: make}}
  - {id: work, tool: file_read, args: {path: fixed}, needs: [make]}
  - {id: tidy, tool: note, args: {path: log, line: tidy}, finally: true}
"""


def test_what_tidies_up_runs_again_where_other_steps_of_a_resumed_run_did(wb, folder: Path) -> None:
    (folder / "flow.yaml").write_text(HEAD + FINAL)
    run = wb.workflows.run("flow.yaml")
    assert (run.state, (folder / "log").read_text()) == ("failed", "make\ntidy\n")
    (folder / "fixed").write_text("x")
    again = wb.workflows.resume(run.run_id).raise_for_error()
    assert (folder / "log").read_text() == "make\ntidy\ntidy\n"
    assert again.progress.nodes["tidy"].why == "other steps have run"
    assert again.progress.nodes["make"].why == "kept"


def test_what_tidied_up_is_kept_where_nothing_else_ran(wb, folder: Path) -> None:
    text = (
        HEAD
        + """
nodes:
  - {id: make, tool: note, args: {path: log, line: make}}
  - {id: tidy, tool: note, args: {path: log, line: tidy}, finally: true}
  - {id: last, tool: file_read, args: {path: fixed}, finally: true}
"""
    )
    (folder / "flow.yaml").write_text(text)
    run = wb.workflows.run("flow.yaml")
    (folder / "fixed").write_text("x")
    wb.workflows.resume(run.run_id).raise_for_error()
    assert sorted((folder / "log").read_text().split()) == ["make", "tidy"]


def test_a_workflow_inside_that_changed_a_file_itself_is_kept(wb, folder: Path) -> None:
    (folder / "log.txt").write_text("old\n")
    (folder / "inner.yaml").write_text(
        "version: 1\nname: i\nnodes:\n  - {id: a, tool: note, args: {path: log.txt, line: inner}}\n"
    )
    nodes = "nodes:\n  - {id: sub, workflow: inner.yaml}\n  - {id: b, tool: file_read, args: {path: x}, needs: [sub]}\n"
    (folder / "flow.yaml").write_text(HEAD + nodes)
    run = wb.workflows.run("flow.yaml")
    assert run.state == "failed"
    (folder / "x").write_text("x")
    again = wb.workflows.resume(run.run_id).raise_for_error()
    assert again.progress.nodes["sub"].why == "kept"
    assert (folder / "log.txt").read_text() == "old\ninner\n"


@pytest.mark.processes
def test_code_that_names_a_file_within_two_quotes_is_not_kept_where_it_changed(wb, folder: Path) -> None:
    file = folder / "x.csv"
    file.write_text("a\n1\n")
    code = f"f = \"'{file}'\"; open(f[1:-1]).read()"
    nodes = (
        f"nodes:\n  - id: c\n    code: |\n      {code}\n  - {{id: b, tool: file_read, args: {{path: x}}, needs: [c]}}\n"
    )
    (folder / "flow.yaml").write_text(HEAD + nodes + 'outputs: {c: "${nodes.c.data}"}\n')
    run = wb.workflows.run("flow.yaml")
    assert (run.state, run.progress.nodes["c"].state) == ("failed", "ok")
    (folder / "x").write_text("x")
    file.write_text("a\n2\n")
    again = wb.workflows.resume(run.run_id, ask=None)
    assert again.progress.nodes["c"].why != "kept"
