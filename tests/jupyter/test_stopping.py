"""Stop in the middle of an import, and elsewhere in a cell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import Interrupted
from nbtools.jupyter.dispatch import Dispatcher
from tests.conftest import wait_until

FIRST_USE = """
import collections, itertools, signal, sys, threading
from IPython.core.interactiveshell import InteractiveShell
asked, turn = collections.Counter(), itertools.count()
class Stop:
    def find_spec(name, path=None, target=None):
        asked[name] += 1  # whichever thread is first: a query works in one of its own
        if threading.current_thread() is threading.main_thread() and next(turn) % 50 == 0:
            signal.raise_signal(signal.SIGINT)
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "nbtools")
shell.run_cell("1 / 0")  # what IPython itself imports late
sys.meta_path.insert(0, Stop)
for stops in range(20):
    done = shell.run_cell("%nbsql select 1 as a")
    if done.success:
        break
    print("lines:", len(done.error_in_exec._render_traceback_()))
sys.meta_path.remove(Stop)
print("lines:", stops, asked["pandas.core.frame"], asked["nbtools.jupyter.dispatch"])
saved = shell.run_cell("%memory save kept/item 1")
print("lines:", saved.success, shell.run_cell("%nbsql select 2 as b").success)
"""


@pytest.mark.slow
@pytest.mark.races
def test_a_stop_in_any_import_of_the_first_magic_breaks_nothing_and_shows_three_lines(tmp_path: Path) -> None:
    environment = {**os.environ, "NBTOOLS_HOME": f"{tmp_path}/home"}
    command = [sys.executable, "-c", FIRST_USE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path)
    *stopped, count, after = [line for line in done.stdout.splitlines() if line.startswith("lines:")]
    assert set(stopped) == {"lines: 3"}, done.stdout + done.stderr
    assert count == f"lines: {len(stopped)} 1 1", "a module was imported a second time"
    assert after == "lines: True True"
    assert "/nbtools/" not in done.stdout + done.stderr, "its own frames are shown"


def test_between_cells_an_interrupt_stops_what_widgets_were_asked_for(notebook: Any, monkeypatch: Any) -> None:
    from nbtools.jupyter.stopping import Stopping
    from nbtools.widgets.live.live_widget import LiveWidget

    kernel = types.SimpleNamespace(saved_sigint_handler=signal.SIG_IGN)  # what ipykernel puts back behind a message
    shell = types.SimpleNamespace(kernel=kernel, events=notebook.shell.events, run_code=notebook.shell.run_code)
    stopped = threading.Event()
    monkeypatch.setattr(LiveWidget, "interrupt", stopped.set)
    stopping = Stopping(shell)
    stopping.load()
    kernel.saved_sigint_handler(signal.SIGINT, None)
    assert stopped.wait(20)
    stopping.unload()
    assert kernel.saved_sigint_handler == signal.SIG_IGN


def _stop_in(notebook: Any, monkeypatch: pytest.MonkeyPatch, code: Any, cell: str = "%nbmemory list") -> Any:
    """Return the cell of a magic that does this instead of its own work."""
    monkeypatch.setattr(Dispatcher, "magic", lambda *_: code())
    return notebook.run(cell)


def test_an_import_is_whole_and_what_follows_it_is_not_done(
    notebook: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stopped_halfway.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\nEND = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    before, after = signal.getsignal(signal.SIGINT), threading.Event()

    def code() -> None:
        __import__("stopped_halfway")
        after.wait(20)
        after.set()

    cell = _stop_in(notebook, monkeypatch, code)
    assert isinstance(cell.error, Interrupted)
    assert sys.modules.pop("stopped_halfway").END == 1
    assert not after.is_set()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_stop_that_was_held_back_is_of_three_lines_where_the_magic_is_over_and_nothing_after_the_cell(
    notebook: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stopped_halfway.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def code() -> None:
        __import__("stopped_halfway")
        del sys.modules["stopped_halfway"]

    wait = "import threading\nthreading.Event().wait(20)\nraise ValueError('it did not come')"
    monkeypatch.setattr(Dispatcher, "run", lambda *_: code())
    cell = notebook.run(f"%nbmemory list\n{wait}")
    assert isinstance(cell.error, Interrupted)
    assert len(cell.lines) == 3

    came: list[bool] = []

    def wait_for_it() -> None:  # before the last event of a cell
        stopping: Any = signal.getsignal(signal.SIGINT).__self__  # type: ignore[union-attr]
        came.append(wait_until(lambda: stopping._held_since is None))

    notebook.shell.events.register("post_execute", wait_for_it)
    try:
        cell = notebook.run("%nbmemory list")
    finally:
        notebook.shell.events.unregister("post_execute", wait_for_it)
    assert (cell.error, cell.stdout, cell.stderr, came) == (None, "", "", [True])


def test_a_stop_that_is_sent_again_while_it_comes_through_comes_once(
    notebook: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stopped_halfway.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    monkeypatch.syspath_prepend(tmp_path)
    send, behind, late = signal.pthread_kill, threading.Event(), threading.Event()

    def send_late(*target: Any) -> None:
        send(*target)
        behind.wait(1)  # it cannot come: the one that was sent is through when this one is, too
        send(*target)
        late.set()

    monkeypatch.setattr(signal, "pthread_kill", send_late)

    def code() -> None:
        __import__("stopped_halfway")
        del sys.modules["stopped_halfway"]
        threading.Event().wait(20)

    notebook.shell.user_ns |= {"behind": behind, "late": late}
    handled = "except KeyboardInterrupt:\n    behind.set()\n    assert late.wait(20)"
    cell = _stop_in(notebook, monkeypatch, code, f"try:\n    %nbmemory list\n{handled}")
    assert cell.error is None


@pytest.mark.parametrize("error", [RuntimeError("Query interrupted"), KeyboardInterrupt()])
def test_what_a_library_makes_of_a_stop_is_a_stop(
    notebook: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def code() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise error from None

    assert isinstance(_stop_in(notebook, monkeypatch, code).error, Interrupted)
    assert isinstance(_stop_in(notebook, monkeypatch, lambda: 1 / 0).error, ZeroDivisionError)


def test_a_stop_in_the_code_of_a_cell_is_what_it_was(notebook: Any, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\nEND = 1\n")
    cell = notebook.run(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport theirs")
    assert type(cell.error) is KeyboardInterrupt
    assert "theirs" not in sys.modules


def test_loading_outside_a_cell_changes_no_handler(bare: Any) -> None:
    import nbtools

    before = signal.getsignal(signal.SIGINT)
    nbtools.load_ipython_extension(bare.shell)
    assert signal.getsignal(signal.SIGINT) is before
    bare.run("%unload_ext nbtools")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_that_a_cell_has_put_there_stays(notebook: Any) -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        for code in ("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)", "1"):
            notebook.run(code)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.races
@pytest.mark.skipif(os.name == "nt", reason="a console signal would reach pytest too")
def test_ctrl_c_ends_a_command_with_130_and_one_line(tmp_path: Path) -> None:
    code = """
        import signal, sys
        from nbtools import cli
        class Stop:
            def find_spec(name, path=None, target=None):
                if name == "nbtools.cli.tools":
                    signal.raise_signal(signal.SIGINT)
        sys.meta_path.insert(0, Stop)
        sys.argv = ["nbtools", "doctor"]
        sys.exit(cli.main())
    """
    environment = {**os.environ, "NBTOOLS_HOME": f"{tmp_path}/home"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")
