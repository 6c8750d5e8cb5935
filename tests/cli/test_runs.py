"""``nbtools run`` and ``nbtools runs``: from the file to the outputs, with questions, plans, events and exit codes."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until

FLOW = """\
version: 1
name: flow
description: A flow
inputs:
  n: {type: integer, default: 1, description: A number}
  to_whom: {type: string, default: world}
nodes:
  - {id: a, tool: calculator, args: {expression: "${inputs.n} + 1"}}
  - {id: ask, ask: {approve: "Greet ${inputs.to_whom}?"}}
  - {id: b, tool: string_length, args: {text: "${inputs.to_whom}"}, needs: [ask]}
outputs: {sum: "${nodes.a.data.value}", length: "${nodes.b.data.characters | default(0)}"}
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW, encoding="utf-8")
    return file


def test_a_run_waits_is_answered_and_goes_on(nbtools: Callable[..., Any], flow: Path) -> None:
    done = nbtools("run", "flow.yaml", "--n", "4", "--to-whom", "Ann", "--json")
    assert done.code == 3
    run = done.json["run_id"]
    assert [asked["step"] for asked in done.json["questions"]] == ["ask"]
    shown = nbtools("runs", "show", run)
    assert "ask asks: Greet Ann? [yes/no]" in shown.out
    assert re.search(r"^b +pending +string_length +ask", shown.out, re.MULTILINE)
    wrong = nbtools("runs", "answer", run, "ask", "perhaps")
    assert (wrong.code, "neither yes nor no" in wrong.err) == (2, True)
    wrong = nbtools("runs", "answer", run, "aks", "yes")
    assert (wrong.code, "Did you mean 'ask'?" in wrong.err) == (2, True)
    answered = nbtools("runs", "answer", run[:-2], "ask", "yes")
    assert (answered.code, "--resume" in answered.err) == (0, True)
    resumed = nbtools("run", "--resume", run)
    assert (resumed.code, resumed.out) == (0, "sum: 5\nlength: 3\n")
    listed = nbtools("runs")
    assert (listed.code, run in listed.out, " ok " in listed.out) == (0, True, True)


def test_the_only_question_is_answered_without_its_name(nbtools: Callable[..., Any], flow: Path) -> None:
    assert "No run has an open question" in nbtools("runs", "answer", "yes").err
    first, second = (nbtools("run", "flow.yaml", "--json").json["run_id"] for _ in range(2))
    several = nbtools("runs", "answer", "yes")
    assert (several.code, f"{first} ask: " in several.err, f"{second} ask: " in several.err) == (2, True, True)
    assert nbtools("runs", "answer", second, "yes").err.startswith(f"answered ask of {second}")
    assert nbtools("runs", "answer", "ask", "no").err.startswith(f"answered ask of {first}")
    assert "no question is open" in nbtools("runs", "answer", "ask", "no").err


def test_at_a_terminal_an_answer_that_does_not_fit_is_asked_for_again(
    nbtools: Callable[..., Any], flow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbtools("run", "flow.yaml", "--json")
    terminal = type("Terminal", (io.StringIO,), {"isatty": lambda _: True})
    monkeypatch.setattr("io.StringIO", terminal)
    answered = nbtools("runs", "answer", "maybe", stdin="perhaps\nyes\n")
    assert (answered.code, answered.err.count("neither yes nor no")) == (0, 2)


def test_a_run_that_waits_for_an_answer_from_elsewhere_says_what_it_asks(
    nbtools: Callable[..., Any], flow: Path
) -> None:
    told = nbtools("run", "flow.yaml", "--wait", "0.1").err
    asked = f"ask asks: Greet world? [yes/no]\n→ nbtools runs answer {nbtools('runs').out.split()[0]} ask ANSWER\n"
    assert told.count(asked) == 2, "once while it waits, once at the end"
    assert nbtools("run", "flow.yaml").err.count("ask asks: ") == 1


@pytest.mark.processes
def test_a_run_has_a_report_and_becomes_a_notebook(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text("version: 1\nname: plain\nnodes:\n  - {id: a, code: '6 * 7'}\n")
    run = nbtools("run", "plain.yaml", "--json").json["run_id"]
    report = Path(nbtools("runs", "report", run).out.strip())
    assert report.name == "report.html"
    assert report.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert nbtools("runs", "export", run, "again.ipynb").out == "again.ipynb\n"
    assert json.loads((tmp_path / "again.ipynb").read_text(encoding="utf-8"))["nbformat"] == 4
    again = nbtools("runs", "export", run, "again.ipynb")
    assert (again.code, "exists already" in again.err) == (1, True)
    assert nbtools("runs", "report", "nothing").code != 0


def test_events_are_lines_of_json(nbtools: Callable[..., Any], flow: Path) -> None:
    done = nbtools("run", "flow.yaml", "--events")
    kinds = [json.loads(line)["kind"] for line in done.out.splitlines()]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_ended"
    assert "question_asked" in kinds


@pytest.mark.processes
def test_a_plan_runs_nothing_and_names_what_changed(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text("1 + 1\n")
    (tmp_path / "coded.yaml").write_text(
        "version: 1\nname: coded\nnodes:\n"
        "  - {id: a, code: {file: step.py}}\n"
        '  - {id: b, tool: calculator, args: {expression: "${nodes.a.data} * 2"}}\n'
    )
    planned = nbtools("run", "coded.yaml", "--plan")
    assert planned.out.splitlines() == ["coded:", "  run     a  (never ran)", "  run     b  (needs a)"]
    assert nbtools("runs").out == "There are no runs yet.\n"
    assert nbtools("run", "coded.yaml").code == 0
    told = nbtools("run", "coded.yaml", "--plan").out
    assert "reuse   a" in told
    assert "reuses results" in told
    (tmp_path / "step.py").write_text("1 + 2\n")
    planned = nbtools("run", "coded.yaml", "--plan")
    assert planned.out.splitlines() == ["coded:", "  run     a  (changed: code)", "  run     b  (needs a)"]
    cached = nbtools("run", "coded.yaml", "--cached", "--json")
    assert cached.json["nodes"]["b"]["data"]["value"] == 6


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("flow.yaml", "--n", "x"), 2, "a whole number is expected"),
        (("flow.yaml", "--n", '"x"'), 2, "does not fit"),
        (("flow.yaml", "--m", "1"), 2, "unrecognized arguments: --m"),
        (("flow.yaml", "--input", "n"), 2, "has no value"),
        (("missing.yaml",), 1, "missing.yaml"),
        ((), 2, "name a file, or --resume RUN"),
        (("--resume", "nothing"), 1, "there is no run 'nothing'"),
        (("--resume", "../x"), 2, "cannot be the name of a run"),
    ],
)
def test_wrong_usage_is_told(
    nbtools: Callable[..., Any], flow: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    done = nbtools("run", *words)
    assert done.code == code
    assert told in done.err
    assert nbtools("runs").out == "There are no runs yet.\n"


def test_a_broken_file_shows_its_mistakes(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("version: 1\nname: x\nnodes:\n  - {id: a, tool: calculater}\n")
    done = nbtools("run", "broken.yaml")
    assert done.code == 1
    assert "broken.yaml:4:19: WF036" in done.err


def test_a_run_that_fails_says_why(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(
        "version: 1\nname: f\nnodes:\n  - {id: a, tool: calculator, args: {expression: 1/0}}\n"
    )
    done = nbtools("run", "f.yaml")
    assert done.code == 1
    assert "f failed:" in done.err
    run = json.loads(nbtools("runs", "--json").out)[0]
    assert run["error"]["node"] == "a"


def test_an_executor_that_is_none_is_told(nbtools: Callable[..., Any], flow: Path) -> None:
    done = nbtools("run", "flow.yaml", "--executor", "spark")
    assert (done.code, "'spark' is not an executor" in done.err, "dask://local" in done.err) == (2, True, True)


@pytest.mark.slow
def test_a_cluster_on_this_machine_gives_the_same_outputs(nbtools: Callable[..., Any], flow: Path) -> None:
    pytest.importorskip("distributed")
    flow.write_text(
        FLOW.replace('  - {id: ask, ask: {approve: "Greet ${inputs.to_whom}?"}}\n', "").replace(", needs: [ask]", "")
    )
    here, there = (nbtools("run", "flow.yaml", "--executor", where) for where in ("local", "dask://local"))
    assert (here.code, there.code) == (0, 0), there.err
    assert here.out == there.out == "sum: 2\nlength: 5\n"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "--n VALUE on a command line"),
        (["--n", "x"], "the input n is 'x', but a whole number is expected"),
        (["--n", "null"], "It is null, but a whole number is expected"),
        (["--n", "1", "--flag", "maybe"], "but true or false is expected"),
        (["--n", "1", "--tags", "[true]"], "true is true or false, but text is expected"),
    ],
)
def test_inputs_that_do_not_fit_are_told_in_the_words_of_yaml(
    nbtools: Callable[..., Any], tmp_path: Path, given: list[str], told: str
) -> None:
    (tmp_path / "w.yaml").write_text(
        "version: 1\nname: w\ninputs:\n  n: {type: integer}\n  flag: {type: boolean, default: true}\n"
        "  tags: {type: array, items: {type: string}, default: []}\nnodes:\n  - {id: a, code: '1'}\n"
    )
    done = nbtools("run", "w.yaml", *given)
    assert (done.code, told in done.err) == (2, True), done.err
    assert "None" not in done.err
    assert "True" not in done.err


@pytest.mark.processes
def test_what_can_be_done_with_a_run_is_told(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(
        "version: 1\nname: w\nnodes:\n"
        "  - {id: each, for_each: [1, 0], on_item_error: collect,\n"
        "     code: \"print('\\\\x1bx' * 999); print('so far'); 1 / item\"}\n"
    )
    done = nbtools("run", "w.yaml", "--json")
    run = done.json["run_id"]
    shown = nbtools("runs", "show", run).out
    assert "ok 2/2, 1 failed" in shown, shown
    assert f"each[1] printed:\n  {'<U+001B>x' * 200}…\n  so far" in shown, "a long line is cut, and no line draws"
    ended = nbtools("run", "--resume", run)
    assert (ended.code, "there is nothing left to do" in ended.err) == (0, True)
    assert nbtools("run", "--resume", run, "--input", "m=3", "--plan").code == 2, "an input is never left out"
    file.write_text(file.read_text().replace("1 / item", "2 / item") + "  - {id: new, code: '1'}\n")
    shown = nbtools("runs", "show", run).out
    assert "note: node added: new\nnote: node changed: each\n" in shown
    assert "→ nbtools run w.yaml --plan says what a new run would do" in shown
    log = Path(done.json["folder"]) / "log.jsonl"
    log.write_text("\n".join(log.read_text().splitlines()[:2]) + "\n")  # as if its driver had been killed
    assert f"→ nbtools run --resume {run}" in nbtools("runs", "show", run).out


def test_a_file_that_changed_is_said_to_be_used_as_it_was(nbtools: Callable[..., Any], flow: Path) -> None:
    run = nbtools("run", "flow.yaml", "--json").json["run_id"]
    flow.write_text(FLOW.replace("A flow", "Another flow"), encoding="utf-8")
    note = "note: flow.yaml was changed since the run began; this run uses it as it was\n"
    assert note in nbtools("runs", "show", run).out
    nbtools("runs", "answer", run, "ask", "yes")
    nbtools("run", "--resume", run)
    assert note in nbtools("runs", "show", run).out


@pytest.mark.races
def test_a_run_that_was_stopped_by_ctrl_c_goes_on_and_does_nothing_twice(
    nbtools: Callable[..., Any], environment: dict[str, str], tmp_path: Path
) -> None:
    """The second of three steps with effects is stopped while it waits for its server; then the third is mended."""
    seen: list[str] = []
    holds = threading.Event()

    class Server(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.path)
            if self.path == "/two" and not holds.is_set():
                holds.wait(60)
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            with contextlib.suppress(OSError):  # whoever has asked may be gone
                self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    url, file = f"http://127.0.0.1:{server.server_port}", tmp_path / "order.yaml"
    node = "  - {{id: {0}, tool: http_client, args: {{method: POST, url: '{1}/{0}'}}, needs: [{2}]}}\n"
    file.write_text(
        "version: 1\nname: order\nnodes:\n"
        + "".join(node.format(one, url, needs) for one, needs in (("one", ""), ("two", "one"), ("tree", "two")))
    )
    more = {"NBTOOLS_ALLOW_PRIVATE": "1"}
    command = [sys.executable, "-m", "nbtools", "run", "order.yaml"]
    piped: dict[str, Any] = {"stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment | more, **piped)
    try:
        wait_until(lambda: "/two" in seen, 60)
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        holds.set()
    assert process.returncode == 130
    advised = re.search(r"→ nbtools run --resume (\S+)", told)
    assert advised, told
    assert re.findall(r"not known how (\S+) ended", told) == ["two"]
    file.write_text(file.read_text().replace("tree", "three"))
    asked = nbtools("run", "--resume", advised[1], **more)
    assert (asked.code, "two asks: It was stopped in the middle" in asked.err) == (3, True), asked.err
    assert nbtools("runs", "answer", advised[1], "two", "done").code == 0
    done = nbtools("run", "--resume", advised[1], **more)
    server.shutdown()
    assert (done.code, seen) == (0, ["/one", "/two", "/three"]), done.err


def test_a_call_that_needs_approval_waits_for_an_answer_from_elsewhere(
    nbtools: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "nbtools.toml").write_text('[policy]\nfile_write = "ask"\n')
    nodes = '  - {id: w, tool: file_write, args: {path: out.txt, content: "a\\e[2Kb"}}\n'
    (tmp_path / "write.yaml").write_text(f"version: 1\nname: write\nnodes:\n{nodes}")
    done = nbtools("run", "write.yaml")
    assert (done.code, (tmp_path / "out.txt").exists()) == (3, False)
    assert "w asks: file_write (" in done.err
    assert "content: a<U+001B>[2Kb" in done.err
    run = nbtools("runs").out.split()[0]
    assert nbtools("runs", "answer", run, "w", "yes").code == 0
    assert nbtools("run", "--resume", run).code == 0
    assert (tmp_path / "out.txt").read_text() == "a\x1b[2Kb"


def _notebook(path: Path, *cells: str) -> None:
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    book.cells[0].metadata.tags = ["parameters"]
    nbformat.write(book, path)


@pytest.mark.processes
def test_a_notebook_runs_as_a_workflow_does(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    _notebook(tmp_path / "report.ipynb", "n = 1\nwords = 'a'", "print(n, words)")
    done = nbtools("run", "report.ipynb", "--n", "3", "-p", "words=b c")
    assert done.code == 0
    assert "[ 3/3] print(n, words)" in done.err
    ran = json.loads((tmp_path / "report.executed.ipynb").read_text(encoding="utf-8"))
    assert [cell["outputs"][0]["text"] for cell in ran["cells"] if cell["outputs"]] == ["3 b c\n"]
    papermill = nbtools("run", "report.ipynb", "out.ipynb", "-p", "n", "4", "--plan")
    assert (papermill.code, "report" in papermill.out) == (0, True)
    assert "--help lists" in nbtools("run", "report.ipynb", "--help-notebook").err
    wrong = nbtools("run", "report.ipynb", "-p", "m=3")
    assert (wrong.code, "Inputs are n, words." in wrong.err) == (2, True)
    nowhere = nbtools("run", "report.ipynb", "-p", "n", "4", "-p", "words", "b", "--out", "gone/out.ipynb")
    assert (nowhere.code, "there is no folder 'gone'" in nowhere.err) == (2, True)
    onto = nbtools("run", "report.ipynb", "--out", "report.ipynb")
    assert (onto.code, "itself would be replaced" in onto.err) == (2, True)


@pytest.mark.slow
def test_stopping_a_notebook_ends_it_without_a_traceback(tmp_path: Path, stop_command: Callable[..., Any]) -> None:
    _notebook(tmp_path / "a.ipynb", "n = 1", "print('in it', flush=True)\nimport time\ntime.sleep(60)")
    stopped = stop_command("run", "a.ipynb", at="[ 2/2]")
    assert stopped.code == 130
    assert "Traceback" not in stopped.err
    assert (tmp_path / "a.executed.ipynb").exists()
