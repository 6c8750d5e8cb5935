"""A picture that follows a run: in a real kernel, in a process without one, under many events at once."""

from __future__ import annotations

import os
import queue
import textwrap
import threading
import time

import pytest
from jupyter_client import KernelManager

from nbtools.workflow.runs.events import NodeStarted, RunEnded, RunStarted
from nbtools.workflow.spec import Workflow
from nbtools.workflow.views.live import LiveView
from tests.conftest import wait_until

WORKFLOW = Workflow.model_validate(
    {"version": 1, "name": "w", "nodes": [{"id": "a", "tool": "t"}, {"id": "b", "tool": "t"}]}
)


def test_without_a_notebook_each_event_is_a_line(wb) -> None:
    source = (
        "version: 1\nname: w\ninputs: {go: {type: boolean, default: false}}\n"
        "nodes:\n  - {id: a, tool: look}\n  - {id: b, tool: look, when: '${inputs.go}'}\n"
    )
    lines: list[str] = []
    view = LiveView(wb.workflows.validate(source).workflow, write=lines.append)
    wb.workflows.run(source, on_event=view).raise_for_error()
    assert lines[0].startswith("▸ w")
    assert sorted(line.split("  ")[0] for line in lines[1:]) == ["- b", "▸ a", "✓ a"]


def test_lines_are_printed_where_nobody_takes_them(capsys) -> None:
    LiveView(WORKFLOW)(RunStarted(run_id="r", workflow="w", fence=1))
    assert capsys.readouterr().out == "▸ w  (r)\n"


class Shell:
    """A notebook's shell as far as a view needs it: what was published, when."""

    kernel = True

    def __init__(self) -> None:
        self.shown: list[tuple[float, dict, dict]] = []
        self.display_pub = self

    def publish(self, data, metadata, **how) -> None:
        self.shown.append((time.monotonic(), data, how))


@pytest.fixture
def shell(monkeypatch) -> Shell:
    made = Shell()
    monkeypatch.setattr("IPython.get_ipython", lambda: made)
    return made


def test_a_storm_of_events_from_several_threads_is_drawn_five_times_a_second(shell) -> None:
    view = LiveView(WORKFLOW)
    view(RunStarted(run_id="r", workflow="w", fence=1))
    begun = time.monotonic()

    def storm() -> None:
        while time.monotonic() - begun < 0.4:
            view(NodeStarted(node="a", attempt=1, fence=1))

    threads = [threading.Thread(target=storm) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    view(RunEnded(state="failed"))
    assert 2 <= len(shell.shown) <= 3 + (time.monotonic() - begun) / 0.2
    assert {how["transient"]["display_id"] for *_, how in shell.shown} == {view._display_id}
    assert [how["update"] for *_, how in shell.shown] == [False] + [True] * (len(shell.shown) - 1)
    assert 'data-state="running"' in shell.shown[-1][1]["text/html"]
    assert shell.shown[-1][1]["text/plain"].startswith("w: failed")
    last = len(shell.shown)
    # Its own: a worker of another test may have a timer that lasts for minutes.
    wait_until(lambda: not any(getattr(one, "function", None) == view._draw_in_time for one in threading.enumerate()))
    assert len(shell.shown) == last, "nothing is drawn after the end"


def test_a_run_that_never_began_is_not_shown(shell) -> None:
    LiveView(WORKFLOW).end()
    assert shell.shown == []


def test_a_resumed_run_is_shown_from_where_it_stands(wb, shell) -> None:
    source = "version: 1\nname: w\nnodes:\n  - {id: a, tool: look}\n  - {id: q, ask: {approve: Go?}, needs: [a]}\n"
    run = wb.workflows.run(source)
    wb.workflows.answer(run.run_id, "q", "yes")
    done = wb.workflows.resume(run.run_id, on_event=LiveView(run.definition, run.progress)).raise_for_error()
    html = shell.shown[-1][1]["text/html"]
    assert html.count('data-state="ok"') == 2
    assert run.progress.nodes["q"].state == "waiting", "the view has a state of its own"
    assert done.ok


def test_steps_of_runs_inside_and_their_output_are_seen(wb, folder, shell) -> None:
    seen = folder / "seen"
    (folder / "inner.yaml").write_text(f"""\
version: 1
name: inner
nodes:
  - id: deep
    timeout_s: 60
    code: |
      import os, time
      print('halfway', flush=True)
      while not os.path.exists({str(seen)!r}): time.sleep(0.01)
""")
    (folder / "outer.yaml").write_text("version: 1\nname: outer\nnodes:\n  - {id: each, workflow: inner.yaml}\n")
    view = LiveView(wb.workflows.validate("outer.yaml").workflow)

    def look() -> None:
        wait_until(lambda: any("each/deep halfway" in data["text/html"] for _, data, _ in [*shell.shown]))
        seen.touch()

    looking = threading.Thread(target=look)
    looking.start()
    wb.workflows.run("outer.yaml", on_event=view).raise_for_error()
    looking.join()
    assert "each/deep" not in shell.shown[-1][1]["text/html"]


@pytest.mark.slow
def test_a_real_kernel_shows_one_display_that_ends_with_the_end(tmp_path) -> None:
    """The events come on a thread of their own, and the displays reach the cell that asked."""
    code = textwrap.dedent("""
        from nbtools import Workbench
        from nbtools.workflow import LiveView
        source = '''version: 1
        name: w
        nodes:
          - {id: a, code: "import time; time.sleep(0.8)"}
          - {id: b, tool: calculator, args: {expression: 6*7}, needs: [a]}
        '''
        with Workbench(memory_url=":memory:") as wb:
            run = wb.workflows.run(source, on_event=LiveView(wb.workflows.validate(source).workflow))
    """)
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path), env={**os.environ, "NBTOOLS_HOME": str(tmp_path / "home")})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        asked = client.execute(code)
        shown, ended = [], False
        deadline = time.monotonic() + 90
        while not ended and time.monotonic() < deadline:
            try:
                message = client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            assert message["msg_type"] != "error", message["content"]
            if message["msg_type"] in {"display_data", "update_display_data"}:
                shown.append(message)
            ended = message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert [message["msg_type"] for message in shown[:2]] == ["display_data", "update_display_data"]
    assert len({message["content"]["transient"]["display_id"] for message in shown}) == 1
    assert any('data-state="running"' in message["content"]["data"]["text/html"] for message in shown)
    assert shown[-1]["content"]["data"]["text/html"].count('data-state="ok"') == 2
