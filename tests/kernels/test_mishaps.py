"""What goes wrong beside the script: showing, sending, leaving. None of it is silent or takes the script along."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbtools.kernels import Execution, Kernels
from nbtools.kernels.forked.backend import ForkedBackend
from tests.conftest import mostly_slow, with_enough_time

pytestmark = pytest.mark.processes

BACKENDS = ["forked", "spawned"] if ForkedBackend.is_supported() else ["spawned"]
PLOT = "import matplotlib.pyplot as plt\nplt.plot([3, 1])\n"
UNDRAWABLE = PLOT + "plt.title(r'$\\frac{$')\n"
UNSHOWABLE = "class Odd:\n    def __repr__(self):\n        raise RuntimeError('no repr')\n"
SECONDS = 60.0
Run = Callable[..., Execution]


@pytest.fixture(scope="module", params=mostly_slow(BACKENDS, every=2))
def kernels(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    # What is started again for each script loads what the script asks for, and no more.
    preloads = ("numpy", "matplotlib") if request.param == "forked" else ()
    with Kernels(request.param, spares=1, preloads=preloads) as opened:
        yield opened


@pytest.fixture
def run(kernels: Kernels) -> Iterator[Run]:
    """Run scripts one after the other in one kernel: one that is started again, and loads matplotlib, takes seconds."""
    yield functools.partial(kernels.run, session="one", timeout=SECONDS)
    kernels.run("import matplotlib.pyplot as plt\nplt.close('all')", session="one")


@pytest.mark.slow
def test_what_could_not_be_shown_is_told_in_stderr(run: Run) -> None:
    for script, said in (
        (f"{UNSHOWABLE}display(Odd())", "RuntimeError: no repr"),
        (f"{UNDRAWABLE}plt.show()", "ParseSyntaxException"),
        (UNDRAWABLE, "ParseSyntaxException"),
        ("get_ipython().events.register('post_execute', lambda: [].pop())", "IndexError: pop from empty list"),
    ):
        done = run(f"{script}\nprint('went on')")
        assert (done.status, done.error) == ("ok", None), script
        assert "went on" in done.stdout, script
        assert said in done.stderr, script
    run("get_ipython().events.callbacks['post_execute'].pop()")  # others run in this kernel


@pytest.mark.slow
def test_who_takes_the_output_slowly_gets_all_of_it(run: Run) -> None:
    shown = []
    done = run("for i in range(150): display(i)", on_output=lambda piece: (shown.append(piece.text), time.sleep(0.02)))
    assert (done.status, shown) == ("ok", [str(i) for i in range(150)])


def test_the_scripts_own_error_is_the_error_whatever_else_goes_wrong(run: Run) -> None:
    done = run(f"{UNSHOWABLE}display(Odd())\n{UNDRAWABLE}1/0")
    assert done.error is not None
    assert str(done.error) == "line 8: ZeroDivisionError: division by zero"
    assert "no repr" in done.stderr
    assert "ParseSyntaxException" in done.stderr
    assert "ZeroDivisionError" not in done.stderr


def test_a_last_value_that_cannot_be_shown_is_an_error_told_once(run: Run) -> None:
    done = run(f"{UNSHOWABLE}Odd()")
    assert (str(done.error), done.stderr) == ("RuntimeError: no repr", "")


def test_a_text_that_is_larger_than_any_message_comes_cut(run: Run) -> None:
    done = run("print('x' * 140_000_000)\nprint('after')", timeout=5 * SECONDS)
    assert (done.truncated, len(done.stdout)) == (True, 4_000_000)


def test_what_is_printed_is_kept_nowhere_in_the_kernel(run: Run) -> None:
    outputs = "getattr(get_ipython().history_manager, 'outputs', {})"
    done = run(f"print('a')\nprint('b')\nprint({outputs})")
    assert done.stdout.splitlines()[:2] == ["a", "b"]
    assert "out_stream" not in done.stdout


def test_text_that_no_message_can_hold_arrives_as_python_writes_it(run: Run) -> None:
    for half in (r"\ud800", r"\udcff"):
        said = run(f"print('{half}'); print('after')")
        assert (said.status, said.stdout) == ("ok", f"{half}\nafter\n")
        failed = run(f"raise ValueError('{half}')")
        assert str(failed.error) == f"line 1: ValueError: {half}"
        shown = run(f"display({{'text/plain': '{half}'}}, raw=True)")
        assert shown.displays == ({"text/plain": half},)


@pytest.mark.parametrize("ending", ["1/0", "raise SystemExit(3)"])
def test_a_half_drawn_figure_does_not_replace_a_picture(run: Run, tmp_path: Path, ending: str) -> None:
    picture = tmp_path / "chart.png"
    picture.write_bytes(b"good")
    assert run(f"{PLOT}{ending}", figure_path=picture).status == "error"
    assert picture.read_bytes() == b"good"


def test_a_figure_is_saved_when_the_script_leaves_early(run: Run, tmp_path: Path) -> None:
    assert run(f"{PLOT}exit()", figure_path=tmp_path / "chart.png").ok
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_that_cannot_be_drawn_leaves_the_picture_as_it_was(run: Run, tmp_path: Path) -> None:
    for suffix in ("png", "svg", "pdf"):
        picture = tmp_path / f"chart.{suffix}"
        picture.write_bytes(b"good")
        done = run(UNDRAWABLE, figure_path=picture)
        assert any("ParseSyntaxException" in note for note in done.notes), suffix
        assert picture.read_bytes() == b"good"


def test_warnings_of_a_drawing_point_at_no_code_of_ours(run: Run, tmp_path: Path) -> None:
    script = f"{PLOT}plt.title('\\u0c85')"
    done = run(script, figure_path=tmp_path / "chart.png")
    assert "missing from font" in done.stderr
    assert "nbtools" not in "".join(line for line in done.stderr.splitlines() if "/site-packages/" not in line)
    assert "hooks.py" not in done.stderr


def test_a_drawing_does_not_make_python_repeat_its_warnings(run: Run) -> None:
    loop = "import warnings\nfor _ in range(3):\n    warnings.warn('once')\n    plt.plot([1])\n    plt.show()"
    assert run(PLOT + loop).stderr.count("UserWarning: once") == 1


@pytest.mark.races
@pytest.mark.skipif("forked" not in BACKENDS, reason="kernels of this platform are started again")
def test_what_was_printed_before_an_abrupt_end_arrives() -> None:
    scripts = {
        "import os\nprint('a', flush=True)\nos._exit(5)": "a\n",
        "import os\nprint('b' * 300_000)\nos.write(1, b'c')\nos._exit(5)": "b" * 300_000 + "\nc",
        # A process of the script's own leaves as ever, and takes nobody's output along.
        "import os\nprint('d')\nif os.fork() == 0: os._exit(0)\nos.wait()\nos._exit(5)": "d\n",
    }
    with Kernels("forked", spares=2, preloads=()) as opened:
        for _, (script, expected) in itertools.product(range(2), scripts.items()):
            done = opened.run(script, timeout=SECONDS)
            assert (done.status, done.exit_code, done.stdout) == ("died", 5, expected)


@pytest.mark.races
@pytest.mark.skipif("forked" not in BACKENDS, reason="kernels of this platform are started again")
def test_an_abrupt_end_does_not_wait_for_a_sender_that_hangs() -> None:
    script = (
        "import os, sys, time\nsys.stdout.pub_thread.schedule(lambda: time.sleep(60))\n"
        "time.sleep(0.1)\nprint('lost')\nos._exit(5)"
    )
    with Kernels("forked", spares=1, preloads=()) as opened:
        opened.run("1")
        begun = time.monotonic()
        assert opened.run(script, timeout=SECONDS).exit_code == 5
        assert time.monotonic() - begun < 20


@pytest.mark.races
def test_the_second_interrupt_does_not_meet_the_report_of_a_cell_that_is_over(kernels: Kernels) -> None:
    slow = """
import sys, time
class Slow:
    def __init__(self, stream): self.stream = stream
    def settle(self): time.sleep(2.2)
    def __getattr__(self, name): return getattr(self.stream, name)
sys.stdout = Slow(sys.stdout)
print("so far", flush=True)
while True: pass
"""
    # The interrupts come after 1 and 3 seconds, the report lasts until 3.2, and the kernel would be killed after 5.
    # On a busy machine the first would come before the text is written, or in the middle of it.
    _, done = with_enough_time(lambda s: kernels.run(slow, timeout=s, grace=4.0), lambda it: it.stdout.endswith("\n"))
    assert (done.status, done.stdout, done.stderr) == ("timeout", "so far\n", "")


@pytest.mark.slow
@pytest.mark.races
def test_an_interrupt_that_comes_before_the_code_ends_its_run(kernels: Kernels) -> None:
    struck = "import os, signal\n"
    struck += "get_ipython().kernel._publish_execute_input = lambda *_: os.kill(os.getpid(), signal.SIGINT)"
    assert kernels.run(struck, session="struck").ok
    done = kernels.run("x = 1", session="struck", timeout=SECONDS)
    assert (done.status, done.error and done.error.name) == ("error", "KeyboardInterrupt")
    kernels.stop("struck")
