"""A run that has ended goes on: what is done and unchanged is kept, and nothing that has an effect is done twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from nbtools.contract.tool import tool
from nbtools.errors import ConfigInvalid, FileMissing, InvalidArguments, PermissionDenied
from nbtools.workflow.runs.log import RunLog
from tests.conftest import wait_until

pytestmark = pytest.mark.in_memory

HEAD = "version: 1\nname: w\nnodes:\n"
A = "  - {id: a, tool: note, args: {path: log, line: a}}\n"
B = "  - {id: b, tool: note, args: {path: log, line: 'b ${nodes.a.data}'}}\n"
C = "  - {id: c, tool: fail_until, args: {path: count, times: 1}, needs: [b]}\n"
EACH = "  - {id: a, tool: note, args: {path: log, line: '${item}'}, for_each: %s}\n"
LAST = "  - {id: c, tool: fail_until, args: {path: count, times: 1}, needs: [a]}\n"


def _appended(path: str, line: str) -> int:
    with Path(path).open("a") as handle:
        handle.write(f"{line}\n")
    return Path(path).read_text().split().count(line)


@tool
async def stall(path: str, line: str, times: int = 1) -> str:
    """Append a line to a file, and wait for ever the first times."""
    if await asyncio.to_thread(_appended, path, line) <= times:
        await asyncio.sleep(3600)
    return line


@pytest.fixture
def wb(open_wb):
    with open_wb(stall) as made:
        yield made


def lines() -> list[str]:
    return Path("log").read_text().splitlines()


def write(*nodes: str) -> str:
    Path("w.yaml").write_text(HEAD + "".join(nodes))
    return "w.yaml"


def failed(wb, *nodes: str):
    run = wb.workflows.run(write(*nodes))
    assert run.state == "failed", run
    return run


def asked(run) -> list[str]:
    return [one.step for one in run.questions]


UNCHANGED = {
    "nothing": (A, B, C),
    "order of the nodes": (C, B, A),
    "a description": (A.replace("tool:", "description: now, tool:"), B, C),
    "retry and timeout": (A, B.replace("tool:", "retry: {attempts: 2}, timeout_s: 9, tool:"), C),
    "the node that failed": (A, B, C.replace("times: 1", "times: 0")),
    "the node that failed is gone": (A, B),
    "a node that reads is new": (A, B, C, "  - {id: d, tool: look, args: {value: '${nodes.a.data}'}}\n"),
    "an effect is read from elsewhere": ("  - {id: a, tool: look, args: {value: a}}\n", B, C),
    "an effect is gone": (A, C.replace("needs: [b]", "needs: [a]")),
    "a condition": (A, B.replace("tool:", "when: '${nodes.a.ok}', tool:"), C),
}


@pytest.mark.parametrize("change", UNCHANGED)
def test_effects_that_are_done_and_unchanged_are_not_done_again(wb, change):
    run = failed(wb, A, B, C)
    write(*UNCHANGED[change])
    done = wb.workflows.resume(run.run_id).raise_for_error()
    assert (done.run_id, lines()) == (run.run_id, ["a", "b a"])
    assert wb.workflows.resume(run.run_id).state == "ok"
    assert lines() == ["a", "b a"]


CHANGED = {
    "arguments": ((A.replace("line: a", "line: z"), B, C), "a"),
    "another tool": ((A.replace("note", "wreck"), B, C), "a"),
    "another kind": (("  - {id: a, code: '1'}\n", B, C), "a"),
    "a new name": ((A.replace("id: a", "id: z"), B.replace("nodes.a", "nodes.z"), C), "z"),
    "items": ((A.replace("tool:", "for_each: [a], tool:"), B.replace("${nodes.a.data}", "a"), C), "a[0]"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_an_effect_that_has_changed_asks_before_it_is_done_again(wb, change):
    run = failed(wb, A, B, C)
    nodes, step = CHANGED[change]
    write(*nodes)
    plan = {one.label: one.action for one in wb.workflows.plan(resume=run.run_id).nodes}
    waiting = wb.workflows.resume(run.run_id)
    assert (waiting.state, asked(waiting), lines()) == ("waiting", [step], ["a", "b a"])
    assert plan.get(step, plan.get("a")) in {"ask", "run"}
    wb.workflows.answer(run.run_id, step, "no", by="ann")
    done = wb.workflows.resume(run.run_id)
    for one in done.questions:  # what read it has changed, too
        wb.workflows.answer(run.run_id, one.step, "no")
    done = wb.workflows.resume(run.run_id)
    assert (done.state, lines()) == ("ok", ["a", "b a"]), done


def test_a_yes_does_it_again_and_only_once(wb):
    run = failed(wb, A, B, C.replace("times: 1", "times: 2"))
    write(A.replace("line: a", "line: z"), B, C.replace("times: 1", "times: 2"))
    wb.workflows.resume(run.run_id)
    wb.workflows.answer(run.run_id, "a", "yes")
    again = wb.workflows.resume(run.run_id)
    assert (asked(again), lines()) == (["b"], ["a", "b a", "z"])
    wb.workflows.answer(run.run_id, "b", "yes")
    assert wb.workflows.resume(run.run_id).state == "failed"
    assert wb.workflows.resume(run.run_id).state == "ok"
    assert lines() == ["a", "b a", "z", "b z"]


@pytest.mark.parametrize(
    ("items", "done", "steps"),
    [
        ("[p, q]", ["p", "q"], []),
        ("[q, p]", ["p", "q"], []),
        ("[p]", ["p", "q"], []),
        ("[p, q, r]", ["p", "q", "r"], []),
        ("[p, q, q]", ["p", "q", "q"], []),
        ("[p, r]", ["p", "q"], ["a[1]"]),
    ],
)
def test_items_are_known_by_their_values(wb, items, done, steps):
    run = failed(wb, EACH % "[p, q]", LAST)
    write(EACH % items, LAST)
    again = wb.workflows.resume(run.run_id)
    assert (asked(again), sorted(lines())) == (steps, done)  # items run side by side


def stopped(wb, *nodes: str) -> str:
    """Return a run that was stopped while its step `b` was at work."""
    import threading

    runs = []
    thread = threading.Thread(target=lambda: runs.append(wb.workflows.run(write(*nodes))))
    thread.start()
    wait_until(lambda: Path("log").exists() and "b" in lines())
    wb.workflows.cancel(wb.workflows.runs()[0].run_id, by="ann")
    thread.join()
    assert runs[0].state == "cancelled"
    return runs[0].run_id


STALL = "  - {id: b, tool: stall, args: {path: log, line: b}, needs: [a]}\n"
D = "  - {id: d, tool: note, args: {path: log, line: d}, needs: [b]}\n"


@pytest.mark.parametrize(
    ("answer", "state", "done"),
    [("done", "ok", ["a", "b", "d"]), ("retry", "ok", ["a", "b", "b", "d"]), ("fail", "failed", ["a", "b"])],
)
def test_a_step_that_was_stopped_in_the_middle_asks_what_became_of_it(wb, answer, state, done):
    name = stopped(wb, A, STALL, D)
    write(A, STALL.replace("line: b", "line: b, times: 1"), D)
    for _ in range(2):  # asking twice does nothing twice
        run = wb.workflows.resume(name)
        assert (run.state, asked(run), lines()) == ("unknown", ["b"], ["a", "b"])
    assert "stopped in the middle" in run.questions[0].text
    wb.workflows.answer(name, "b", answer)
    assert (wb.workflows.resume(name).state, lines()) == (state, done)


def test_a_script_that_was_stopped_has_not_ended_well(wb):
    path = str(Path("log").absolute())
    code = f"import time; open({path!r}, 'a').write('b\\n'); [time.sleep(0.01) for _ in range(6000)]"
    name = stopped(wb, A, f"  - {{id: b, needs: [a], code: {json.dumps(code)}}}\n")
    assert "stopped in the middle" in wb.workflows.resume(name).questions[0].text
    records = {call["tool"]: (call["ok"], call["code"]) for call in wb.call_records()}
    assert records["workflow_code"] == (False, "CANCELLED")


def test_done_needs_a_value_where_one_is_read(wb):
    name = stopped(wb, A, STALL, D.replace("line: d", "line: '${nodes.b.data}'"))
    run = wb.workflows.resume(name)
    assert run.questions[0].text.endswith("[retry / done VALUE / fail]")
    (card,) = wb.workflows.view(run).questions
    assert ([answer for answer, _ in card["answers"]], card["gives"]) == (["retry", "done", "fail"], True)
    with pytest.raises(InvalidArguments, match="other nodes read what this one returned"):
        wb.workflows.answer(name, "b", "done")
    wb.workflows.answer(name, "b", 'done "sent"')
    assert wb.workflows.resume(name).state == "ok"
    assert lines() == ["a", "b", "sent"]


def test_a_workflow_inside_goes_on_where_it_failed(wb):
    Path("inner.yaml").write_text(HEAD.replace("w", "inner") + A + B + C)
    node = "  - {id: x, workflow: inner.yaml, for_each: [1, 2], max_parallel: 1}\n"
    run = failed(wb, node, "  - {id: y, tool: look, args: {value: 1}, needs: [x]}\n")
    assert lines() == ["a", "b a"]
    Path("inner.yaml").write_text(HEAD.replace("w", "inner") + A + B + C.replace("times: 1", "times: 0"))
    assert wb.workflows.resume(run.run_id).state == "ok"
    assert lines() == ["a", "b a", "a", "b a"]


def test_a_workflow_in_a_workflow_that_is_tried_again_goes_on_where_it_failed(wb):
    Path("inner.yaml").write_text(HEAD.replace("w", "inner") + A + LAST)
    Path("middle.yaml").write_text(HEAD.replace("w", "middle") + "  - {id: s, workflow: inner.yaml}\n")
    run = wb.workflows.run(
        write("  - {id: x, workflow: middle.yaml, retry: {attempts: 2, backoff_s: 0}}\n"), cached=True
    )
    assert (run.state, lines()) == ("ok", ["a"]), run


def test_an_answer_to_an_unchanged_question_holds_and_a_changed_one_is_asked(wb):
    ask = "  - {id: q, ask: {approve: 'Go?'}}\n"
    run = wb.workflows.run(write(ask, A.replace("tool:", "needs: [q], tool:"), LAST))
    wb.workflows.answer(run.run_id, "q", "yes")
    assert wb.workflows.resume(run.run_id).state == "failed"
    write(ask.replace("Go?", "Really?"), A.replace("tool:", "needs: [q], tool:"), LAST)
    again = wb.workflows.resume(run.run_id)
    assert (asked(again), lines()) == (["q"], ["a"])
    wb.workflows.cancel(run.run_id)
    write(ask, A.replace("tool:", "needs: [q], tool:"), LAST)
    assert (wb.workflows.resume(run.run_id).state, lines()) == ("ok", ["a"])


def test_a_file_that_the_run_itself_wrote_is_not_a_change(wb):
    Path("mine").write_text("before\n")
    own = "  - {id: a, tool: note, args: {path: mine, line: a}}\n"
    run = failed(wb, own, LAST)
    assert wb.workflows.resume(run.run_id).state == "ok"
    assert Path("mine").read_text() == "before\na\n"


def test_a_file_that_somebody_else_changed_is_one(wb):
    Path("mine").write_text("before\n")
    run = failed(wb, "  - {id: a, tool: note, args: {path: mine, line: a}}\n", LAST)
    Path("mine").write_text("mine\n")
    again = wb.workflows.resume(run.run_id)
    assert asked(again) == ["a"]
    assert "changed: file mine" in again.questions[0].text


def test_a_run_is_gone_on_with_by_one_alone(wb):
    run = failed(wb, A, B, C)
    other = RunLog(run.folder)
    try:
        with pytest.raises(PermissionDenied, match="still runs, in process"):
            wb.workflows.resume(run.run_id)
    finally:
        other.close()
    assert not (run.folder / "files-2").exists()
    assert wb.workflows.resume(run.run_id).state == "ok"
    assert lines() == ["a", "b a"]


def test_a_file_that_is_gone_or_wrong_leaves_the_run_as_it_is(wb):
    run = failed(wb, A, B, C)
    Path("w.yaml").rename("moved.yaml")
    with pytest.raises(FileMissing, match="is gone"):
        wb.workflows.resume(run.run_id)
    Path("w.yaml").write_text("version: 1\nname: w\nnodes: []\n")
    with pytest.raises(ConfigInvalid):
        wb.workflows.resume(run.run_id)
    assert wb.workflows.show(run.run_id).state == "failed"
    assert wb.workflows.resume(run.run_id, "moved.yaml").state == "ok"
    assert lines() == ["a", "b a"]


def test_inputs_hold_on_and_new_ones_are_taken(wb):
    Path("w.yaml").write_text(
        HEAD.replace("nodes:", "inputs: {x: {type: string}}\nnodes:")
        + A.replace("line: a", "line: '${inputs.x}'")
        + LAST
    )
    run = wb.workflows.run("w.yaml", {"x": "one"})
    Path("w.yaml").write_text(
        Path("w.yaml")
        .read_text()
        .replace("nodes:", "  y: {type: string}\nnodes:", 1)
        .replace("inputs: {x: {type: string}}\n", "inputs:\n  x: {type: string}\n")
    )
    with pytest.raises(InvalidArguments, match="'y' of w is not given"):
        wb.workflows.resume(run.run_id)
    assert wb.workflows.resume(run.run_id, inputs={"y": "two"}).state == "ok"
    assert lines() == ["one"]


def test_a_run_that_waits_keeps_the_file_of_its_start(wb):
    run = wb.workflows.run(write("  - {id: q, ask: {approve: 'Go?'}}\n", A.replace("tool:", "needs: [q], tool:")))
    with pytest.raises(InvalidArguments, match="has not ended"):
        wb.workflows.resume(run.run_id, "w.yaml")
    write(A.replace("line: a", "line: z"))
    wb.workflows.answer(run.run_id, "q", "yes")
    assert wb.workflows.resume(run.run_id).state == "ok"
    assert lines() == ["a"]


def test_a_folder_of_a_newer_version_is_refused(wb):
    run = failed(wb, A, B, C)
    facts = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps({**facts, "format": 99}))
    with pytest.raises(ConfigInvalid, match="made by a newer nbtools"):
        wb.workflows.resume(run.run_id)
