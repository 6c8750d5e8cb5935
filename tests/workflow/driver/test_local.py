"""Runs of workflows from the YAML to the outputs, on the local driver: order, failure, retry, limits, questions."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from pathlib import Path

import pytest

from nbtools import Workbench, tool
from nbtools.errors import ConfigInvalid, InvalidArguments
from nbtools.workflow.runs.events import NodeOutput, NodeStarted, RetryPlanned
from tests.conftest import wait_until

HEAD = "version: 1\nname: w\n"
STEPS = ("node_started", "node_ended")


def in_a_kernel(*values):
    return pytest.param(*values, marks=pytest.mark.processes)


def states(run):
    return {name: node.state for name, node in run.progress.nodes.items()}


def test_values_go_from_node_to_node(wb):
    run = wb.workflows.run(
        HEAD
        + """
inputs: {n: {type: integer, default: 2}}
nodes:
  - {id: a, tool: look, args: {value: {x: ["${inputs.n}", 5]}}}
  - {id: b, code: "sum(nodes['a']['x']) * inputs['n']", needs: [a]}
  - {id: c, tool: look, args: {value: "${nodes.b.data}"}}
outputs: {all: "${nodes.c.data}", said: "n is ${inputs.n}"}
""",
        {"n": 3},
    ).raise_for_error()
    assert run.outputs == {"all": 24, "said": "n is 3"}
    assert states(run) == {"a": "ok", "b": "ok", "c": "ok"}


def test_tables_go_from_code_to_code_and_to_expressions(wb):
    run = wb.workflows.run(
        HEAD
        + """
nodes:
  - {id: a, code: "import pandas as pd\\npd.DataFrame({'x': range(3000)})"}
  - {id: b, code: "int(nodes['a']['x'].sum())", needs: [a]}
outputs: {sum: "${nodes.b.data}", rows: "${nodes.a.data.row_count}", first: "${nodes.a.data.rows[1][0]}"}
"""
    ).raise_for_error()
    assert run.outputs == {"sum": 4_498_500, "rows": 3000, "first": 1}
    parquet = Path(run.progress.nodes["a"].view()["data"]["parquet"])
    assert parquet.is_relative_to(run.folder / "artifacts" / "a")


def test_the_first_rows_of_a_table_are_not_taken_for_all(wb):
    run = wb.workflows.run(
        HEAD
        + """
nodes:
  - {id: a, code: "import pandas as pd; pd.DataFrame({'x': range(3000)})"}
  - {id: b, tool: look, args: {value: "${nodes.a.data.rows}"}}
"""
    )
    assert states(run) == {"a": "ok", "b": "failed"}
    assert "nodes.a.data.rows has the first 1,000 of 3,000 rows" in run.error["message"]


@pytest.mark.processes
def test_code_prints_draws_and_finds_relative_inputs(wb, folder):
    (folder / "data").mkdir()
    (folder / "data" / "a.txt").write_text("hello")
    seen = []
    run = wb.workflows.run(
        HEAD
        + """
inputs: {path: {type: string, default: data/a.txt}}
nodes:
  - id: a
    code: |
      import matplotlib.pyplot as plt
      print("working")
      plt.plot([1, 2])
      plt.show()
      open("left.txt", "w").write("left")
      open(inputs["path"]).read()
""",
        on_event=seen.append,
    ).raise_for_error()
    view = run.progress.nodes["a"].view()
    assert (view["data"], view["text"]) == ("hello", "working\n")
    names = sorted(Path(artifact["path"]).name for artifact in view["artifacts"])
    assert names == ["figure-1.png", "left.txt"]
    assert any(isinstance(event, NodeOutput) and event.text == "working\n" for event in seen)
    assert sorted(path.name for path in folder.iterdir()) == ["data"], "code leaves nothing in the working folder"


def test_an_exception_in_code_names_its_line_and_ends_the_run(wb):
    run = wb.workflows.run(
        HEAD
        + """
nodes:
  - {id: a, code: "x = 1\\n1 / 0"}
  - {id: b, tool: look, needs: [a]}
"""
    )
    assert run.state == "failed"
    assert run.error["code"] == "EXECUTION_FAILED"
    assert "line 2" in run.error["message"]
    assert "1 / 0" in run.error["message"]
    assert run.error["node"] == "a"
    assert states(run) == {"a": "failed", "b": "skipped"}
    with pytest.raises(Exception, match="division by zero"):
        run.raise_for_error()


def test_output_is_checked_against_its_schema(wb):
    text = (
        HEAD + "nodes:\n  - {id: a, code: \"{'n': 'x'}\", output: {type: object, properties: {n: {type: integer}}}}\n"
    )
    run = wb.workflows.run(text)
    assert run.state == "failed"
    assert "data['n'] does not fit output" in run.error["message"]


def test_a_node_is_tried_again_after_a_growing_wait(wb):
    seen = []
    text = (
        HEAD
        + "nodes:\n  - {id: a, tool: fail_until, args: {path: t, times: 2}, retry: {attempts: 3, backoff_s: 0.05}}\n"
    )
    run = wb.workflows.run(text, on_event=seen.append).raise_for_error()
    assert run.progress.nodes["a"].attempt == 3
    assert [event.wait_s for event in seen if isinstance(event, RetryPlanned)] == [0.05, 0.1]
    often = wb.workflows.run(text.replace("path: t, times: 2", "path: u, times: 3").replace("0.05", "0.01"))
    assert (often.state, often.progress.nodes["a"].attempt) == ("failed", 3)


def test_a_clock_that_is_set_back_delays_no_retry(wb, monkeypatch):
    real, planned = time.time, []
    monkeypatch.setattr(time, "time", lambda: real() - 3600 * bool(planned))
    text = (
        HEAD
        + "limits: {seconds: 20}\n"
        + "nodes:\n  - {id: a, tool: fail_until, args: {path: t, times: 1}, retry: {attempts: 2, backoff_s: 0.05}}\n"
    )
    run = wb.workflows.run(text, on_event=lambda event: planned.extend([event] * isinstance(event, RetryPlanned)))
    assert (run.state, len(planned)) == ("ok", 1)


def test_a_failure_ends_the_run_and_what_is_final_runs(wb, folder):
    run = wb.workflows.run(
        HEAD
        + """
nodes:
  - {id: a, tool: fail_until, args: {path: t, times: 9}}
  - {id: b, tool: note, args: {path: log, line: b}, needs: [a]}
  - {id: tidy, tool: note, args: {path: log, line: tidy}, finally: true}
"""
    )
    assert (run.state, states(run)) == ("failed", {"a": "failed", "b": "skipped", "tidy": "ok"})
    assert (folder / "log").read_text() == "tidy\n"


def test_items_run_side_by_side_and_keep_their_order(wb, folder):
    run = wb.workflows.run(
        HEAD
        + """
nodes:
  - {id: a, tool: note, for_each: [x, y, z], max_parallel: 3, args: {path: log, line: "${item}", lines: 3}}
"""
    ).raise_for_error()
    assert run.progress.nodes["a"].view()["data"] == ["x", "y", "z"]
    assert sorted((folder / "log").read_text().split()) == ["x", "y", "z"]


def test_a_limit_on_one_tool_holds(wb):
    seen = []
    wb.workflows.run(
        HEAD
        + """
limits: {parallel: {note: 1}}
nodes:
  - {id: a, tool: note, for_each: [x, y, z], args: {path: log, line: "${item}", wait_s: 0.02}}
""",
        on_event=seen.append,
    ).raise_for_error()
    steps = [event.kind for event in seen if getattr(event, "item", None) is not None and event.kind in STEPS]
    assert steps == [*STEPS] * 3, "each ends before the next begins"


@pytest.mark.parametrize(
    ("node", "code"),
    [
        ("code: 'while True: pass', timeout_s: 0.2", "TIMEOUT"),
        ("tool: note, args: {path: log, line: x, wait_s: 20}, timeout_s: 0.1", "TIMEOUT"),
    ],
)
def test_a_node_that_never_ends_is_ended(wb, node, code):
    run = wb.workflows.run(HEAD + f"nodes:\n  - {{id: a, {node}}}\n")
    assert (run.state, run.error["code"]) == ("failed", code)


def test_a_run_that_takes_too_long_is_ended_and_says_so(wb):
    text = HEAD + "limits: {seconds: 0.2}\nnodes:\n  - {id: a, tool: note, args: {path: l, line: x, wait_s: 20}}\n"
    run = wb.workflows.run(text)
    assert (run.state, run.error["code"]) == ("failed", "LIMIT_EXCEEDED")
    assert "more than 0.2 s" in run.error["message"]


def test_a_run_is_cancelled_from_elsewhere(wb, folder):
    seen = []
    text = (
        HEAD
        + """
nodes:
  - {id: a, tool: note, args: {path: log, line: x, wait_s: 20}}
  - {id: b, tool: look, needs: [a]}
  - {id: tidy, tool: note, args: {path: log, line: tidy}, finally: true}
"""
    )

    def cancel() -> None:
        wait_until((folder / "log").exists)
        wb.workflows.cancel(wb.workflows.runs()[0].run_id, by="me")

    threading.Thread(target=cancel).start()
    run = wb.workflows.run(text, on_event=seen.append)
    assert (run.state, states(run)) == ("cancelled", {"a": "cancelled", "b": "skipped", "tidy": "ok"})
    assert "cancelled by me" in run.error["message"]


def test_a_destructive_node_is_never_left_out(wb, folder):
    text = (
        HEAD
        + """
nodes:
  - {id: a, tool: look, args: {value: 4}}
  - {id: b, tool: wreck, args: {path: log, line: "n=${nodes.a.data}"}}
"""
    )
    wb.workflows.run(text).raise_for_error()
    assert [(node.action, node.why) for node in wb.workflows.plan(text).nodes][1:] == [("run", "it is destructive")]
    again = wb.workflows.run(text, cached=True).raise_for_error()
    assert again.progress.nodes["a"].why.startswith("reused from")
    assert (folder / "log").read_text() == "n=4\nn=4\n"


@pytest.mark.processes
def test_what_has_not_changed_is_used_again_and_the_plan_says_why(wb, folder):
    (folder / "in.csv").write_text("a\n1\n")
    text = (
        HEAD
        + """
inputs: {path: {type: string, default: in.csv}}
nodes:
  - {id: a, code: "len(open(inputs['path']).read())"}
  - {id: b, tool: look, args: {value: "${nodes.a.data}"}}
  - {id: c, tool: wreck, args: {path: log, line: "n=${nodes.b.data}"}}
"""
    )
    assert [(node.node, node.action, node.why) for node in wb.workflows.plan(text).nodes] == [
        ("a", "run", "never ran"),
        ("b", "run", "needs a"),
        ("c", "run", "needs b"),
    ]
    first = wb.workflows.run(text).raise_for_error()
    plan = wb.workflows.plan(text)
    assert [(node.node, node.action, node.why) for node in plan.nodes] == [
        ("a", "reuse", f"of {first.run_id}"),
        ("b", "reuse", f"of {first.run_id}"),
        ("c", "run", "it is destructive"),
    ]
    again = wb.workflows.run(text, cached=True).raise_for_error()
    assert [again.progress.nodes[name].why for name in "ab"] == [f"reused from {first.run_id}"] * 2
    assert (folder / "log").read_text() == "n=4\nn=4\n", "a destructive node is never left out"
    (folder / "in.csv").write_text("a\n12\n")
    assert wb.workflows.plan(text).nodes[0].why == "changed: file in.csv"
    changed = text.replace("len(open", "1 + len(open")
    (folder / "in.csv").write_text("a\n1\n")
    assert wb.workflows.plan(changed).nodes[0].why == "changed: code"


def test_a_question_is_answered_here(wb):
    asked = []

    async def ask(step, question):
        asked.append((step, question))
        return {"pick": "2", "go": "yes"}[step]

    run = wb.workflows.run(
        HEAD
        + """
nodes:
  - {id: pick, ask: {choose: [comma, semicolon], question: Which?}}
  - {id: go, ask: {approve: "Use ${nodes.pick.data}?"}}
  - {id: b, tool: look, args: {value: "${nodes.pick.data}"}, needs: [go]}
outputs: {b: "${nodes.b.data | default(null)}"}
""",
        ask=ask,
    ).raise_for_error()
    assert run.outputs == {"b": "semicolon"}
    assert asked[1] == ("go", {"approve": "Use semicolon?"})


def test_a_question_waits_is_answered_from_elsewhere_and_the_run_goes_on(wb):
    text = HEAD + "nodes:\n  - {id: q, ask: {approve: Go?}}\n  - {id: b, tool: look, args: {value: 1}, needs: [q]}\n"
    run = wb.workflows.run(text)
    assert (run.state, states(run)) == ("waiting", {"q": "waiting", "b": "pending"})
    [question] = run.questions
    assert str(run).splitlines()[-1].startswith(f"  → nbtools runs answer {run.run_id} {question.step} ")
    assert question.text == "Go? [yes/no]"
    with pytest.raises(InvalidArguments, match="neither yes nor no"):
        wb.workflows.answer(run.run_id, "q", "maybe")
    with pytest.raises(InvalidArguments, match="has no open question"):
        wb.workflows.answer(run.run_id, "b", "yes")
    wb.workflows.answer(run.run_id, "q", "yes", by="me")
    done = wb.workflows.resume(run.run_id).raise_for_error()
    assert done.progress.nodes["q"].why == "answered by me"


def test_no_skips_who_needs_the_answer(wb):
    text = HEAD + "nodes:\n  - {id: q, ask: {approve: Go?}}\n  - {id: b, tool: look, needs: [q]}\n"
    run = wb.workflows.run(text)
    wb.workflows.answer(run.run_id, "q", "no")
    done = wb.workflows.resume(run.run_id)
    assert (done.state, states(done)) == ("declined", {"q": "declined", "b": "skipped"})


def test_nobody_answers_in_time(wb):
    text = HEAD + "nodes:\n  - {id: q, ask: {approve: Go?, timeout_s: 0.1}}\n"
    run = wb.workflows.run(text, wait_s=None)
    assert (run.state, run.error["code"]) == ("failed", "TIMEOUT")


def test_a_question_inside_of_a_workflow_is_answered_by_its_path(wb, folder):
    (folder / "inner.yaml").write_text(
        "version: 1\nname: inner\ninputs: {n: {type: integer}}\n"
        "nodes:\n  - {id: q, ask: {approve: 'Go ${inputs.n}?'}}\n"
        "outputs: {n: '${inputs.n}', ok: '${nodes.q.ok}'}\n"
    )
    (folder / "outer.yaml").write_text(
        "version: 1\nname: outer\n"
        "nodes:\n  - {id: each, workflow: inner.yaml, for_each: [1, 2], args: {n: '${item}'}}\n"
        "outputs: {all: '${nodes.each.data}'}\n"
    )
    run = wb.workflows.run("outer.yaml")
    assert run.state == "waiting"
    assert [question.step for question in run.questions] == ["each[0]/q", "each[1]/q"]
    wb.workflows.answer(run.run_id, "each[0]/q", "yes")
    wb.workflows.answer(run.run_id, "each[1]/q", True)
    (folder / "inner.yaml").unlink()
    done = wb.workflows.resume(run.run_id).raise_for_error()
    assert done.outputs == {"all": [{"n": 1, "ok": True}, {"n": 2, "ok": True}]}
    assert done.drift == ("inner.yaml is gone since the run began",)


def test_values_of_the_environment_are_in_no_log(wb, monkeypatch):
    monkeypatch.setenv("PLAIN_VALUE", "quartz-owl-77")
    text = HEAD + 'nodes:\n  - {id: a, tool: look, args: {value: "${env.PLAIN_VALUE}"}}\n'
    run = wb.workflows.run(text).raise_for_error()
    assert run.progress.nodes["a"].view()["data"] == "***"
    for path in run.folder.rglob("*"):
        assert not path.is_file() or b"quartz-owl" not in path.read_bytes()


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "'n' of w is not given"),
        ({"n": "x"}, "does not fit"),
        ({"n": 1, "m": 2}, "has no input 'm'"),
        ({"nn": 1}, r"has no input 'nn'. \(Did you mean 'n'\?\)"),
    ],
)
def test_inputs_that_do_not_fit_start_nothing(wb, inputs, words):
    with pytest.raises(InvalidArguments, match=words):
        wb.workflows.run(HEAD + "inputs: {n: {type: integer}}\nnodes:\n  - {id: a, tool: look}\n", inputs)
    assert wb.workflows.runs() == []


def test_a_workflow_with_mistakes_starts_nothing(wb):
    with pytest.raises(ConfigInvalid, match="WF"):
        wb.workflows.run(HEAD + "nodes:\n  - {id: a, tool: lok}\n")
    assert wb.workflows.runs() == []


def test_two_runs_of_one_workflow_at_once(wb):
    text = HEAD + "nodes:\n  - {id: a, tool: note, args: {path: log, line: x, lines: 2}}\n"

    async def both():
        return await asyncio.gather(wb.workflows.arun(text), wb.workflows.arun(text))

    first, second = asyncio.run(both())
    assert first.ok
    assert second.ok
    assert first.run_id != second.run_id


def test_items_start_in_their_order(wb):
    seen = []
    text = (
        HEAD
        + "nodes:\n  - {id: a, tool: note, for_each: [x, y, z], max_parallel: 1, args: {path: l, line: '${item}'}}\n"
    )
    wb.workflows.run(text, on_event=seen.append).raise_for_error()
    assert [event.item for event in seen if isinstance(event, NodeStarted)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("node", "code", "words"),
    [
        ("""code: "'x' * 9_000_000\"""", "LIMIT_EXCEEDED", "too large"),
        in_a_kernel('code: "import os, signal\\nos.kill(os.getpid(), signal.SIGKILL)"', "KERNEL_DIED", "SIGKILL"),
        in_a_kernel('code: "echo hi", language: bash, output: {type: array}', "INVALID_ARGUMENTS", "not JSON"),
        in_a_kernel('code: "echo hi; exit 4", language: bash', "EXECUTION_FAILED", "exit code 4"),
        ("""code: "open('nope.csv')\"""", "EXECUTION_FAILED", "FileNotFoundError"),
        ("tool: string_length, for_each: '${inputs.n}', args: {text: x}", "INVALID_ARGUMENTS", "not a list"),
    ],
)
def test_what_goes_wrong_in_a_node_is_told(wb, node, code, words):
    run = wb.workflows.run(HEAD + f"inputs: {{n: {{default: {{}}}}}}\nnodes:\n  - {{id: a, {node}}}\n")
    assert (run.state, run.error["code"]) == ("failed", code)
    assert words in run.error["message"]


def test_code_is_judged_and_recorded_like_a_call(wb, tmp_path, folder):
    text = HEAD + 'nodes:\n  - {id: a, code: "print(6 * 7)"}\n'
    run = wb.workflows.run(text).raise_for_error()
    (call,) = [call for call in wb.call_records() if call["tool"] == "workflow_code"]
    assert (call["run_id"], call["arguments"]["node"], call["ok"]) == (run.run_id, "a", True)
    policy = {"code_execute": "deny"}
    with Workbench(home=tmp_path / "other", allowed_paths=[folder], memory_url=":memory:", policy=policy) as strict:
        refused = strict.workflows.run(text)
    assert refused.error["code"] == "PERMISSION_DENIED"


def test_a_workflow_inside_that_takes_too_long_is_ended_in_order(wb, folder):
    (folder / "inner.yaml").write_text(
        HEAD
        + "nodes:\n  - {id: a, tool: note, args: {path: log, line: a, wait_s: 20}}\n"
        + "  - {id: tidy, tool: note, args: {path: log, line: tidy}, finally: true}\n"
    )
    (folder / "outer.yaml").write_text(
        "version: 1\nname: outer\nnodes:\n  - {id: slow, workflow: inner.yaml, timeout_s: 0.5}\n"
    )
    run = wb.workflows.run("outer.yaml")
    assert (run.state, run.error["code"]) == ("failed", "TIMEOUT")
    assert (folder / "log").read_text() == "a\ntidy\n"


def test_files_named_in_queries_and_code_are_looked_at(wb, folder):
    (folder / "data.csv").write_text("a\n1\n")
    text = (
        HEAD
        + """
nodes:
  - {id: q, tool: sql_query, args: {query: "select count(*) as n from read_csv('data.csv')"}}
  - {id: p, tool: sql_query, args: {query: "select count(*) as n from read_csv('FOLDER/d*.csv')"}}
outputs: {q: "${nodes.q.data.rows[0][0]}"}
"""
    ).replace("FOLDER", str(folder))
    wb.workflows.run(text).raise_for_error()
    assert [node.action for node in wb.workflows.plan(text).nodes] == ["reuse", "reuse"]
    (folder / "data.csv").write_text("a\n1\n2\n")
    whys = [node.why for node in wb.workflows.plan(text).nodes]
    assert whys == ["changed: file data.csv", f"changed: file {folder}/data.csv"]
    assert wb.workflows.run(text, cached=True).outputs == {"q": 2}


def test_a_second_answer_is_refused_and_says_who_gave_the_first(wb):
    run = wb.workflows.run(HEAD + "nodes:\n  - {id: q, ask: {approve: Go?}}\n")
    wb.workflows.answer(run.run_id, "q", "no", by="ann")
    with pytest.raises(InvalidArguments, match="answered with 'no' by ann"):
        wb.workflows.answer(run.run_id, "q", "yes", by="bob")


def test_a_run_goes_on_in_the_folder_where_it_began(wb, folder, monkeypatch, tmp_path):
    run = wb.workflows.run(HEAD + "nodes:\n  - {id: q, ask: {approve: Go?}}\n")
    wb.workflows.answer(run.run_id, "q", "yes")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArguments, match="the run began in"):
        wb.workflows.resume(run.run_id)
    monkeypatch.chdir(folder)
    assert wb.workflows.resume(run.run_id).ok


def test_a_value_that_cannot_be_kept_fails_and_a_figure_as_the_last_line_does_not(wb):
    lost = wb.workflows.run(HEAD + "nodes:\n  - {id: a, code: \"{'rows': 3, 'x': object()}\"}\n")
    assert (lost.state, lost.error["code"]) == ("failed", "LIMIT_EXCEEDED")
    drawn = wb.workflows.run(HEAD + 'nodes:\n  - {id: a, code: "import matplotlib.pyplot as plt\\nplt.plot([1])[0]"}\n')
    assert drawn.ok
    assert "is not kept" in drawn.progress.nodes["a"].result["notes"][0]


def test_a_step_whose_numbers_became_null_says_so(open_wb):
    @tool(read_only=True)
    def mean() -> float:
        """Return the mean of what is beyond all numbers."""
        return float("inf")

    with open_wb(mean) as wb:
        run = wb.workflows.run(HEAD + "nodes:\n  - {id: a, tool: mean}\noutputs: {m: '${nodes.a.data}'}\n")
        result = wb.tools.mean()
    assert run.outputs == {"m": None}
    assert run.progress.nodes["a"].result["notes"] == ["NaN and infinity are null"]
    assert (result.data, result.value) == (None, float("inf"))


def test_a_run_that_waits_is_cancelled_at_once_and_a_run_that_ended_is_not(wb):
    run = wb.workflows.run(HEAD + "nodes:\n  - {id: q, ask: {approve: Go?}}\n")
    wb.workflows.cancel(run.run_id)
    assert wb.workflows.show(run.run_id).state == "cancelled"
    with pytest.raises(InvalidArguments, match="has ended already"):
        wb.workflows.cancel(run.run_id)


def test_the_start_of_a_name_that_fits_several_runs_is_refused(wb):
    for _ in range(2):
        wb.workflows.run(HEAD + "nodes:\n  - {id: a, tool: look}\n")
    with pytest.raises(InvalidArguments, match="'w' could be w-"):
        wb.workflows.show("w")


def test_a_stop_while_a_question_is_open_leaves_it_open(wb):
    asked = threading.Event()

    async def stopped():
        text = HEAD + "nodes:\n  - {id: q, ask: {approve: Go?}}\n"
        look = lambda event: event.kind == "question_asked" and asked.set()  # noqa: E731
        running = asyncio.ensure_future(wb.workflows.arun(text, wait_s=None, on_event=look))
        assert await asyncio.to_thread(asked.wait, 60)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(stopped())
    wait_until(lambda: wb.workflows.runs()[0].state == "waiting")
