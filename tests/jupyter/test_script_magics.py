"""``%%data_analyze``, ``%%data_visualize``, ``%%code`` and ``%kernels``, in real kernels."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from IPython.lib.pretty import RepresentationPrinter

import nbtools
from nbtools.errors import Cancelled, ExecutionFailed, FileMissing, InvalidArguments
from tests.conftest import wait_until
from tests.jupyter.conftest import Notebook, open_shell

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """One notebook for all tests here, because its first kernel takes its time."""
    with pytest.MonkeyPatch.context() as patch, open_shell(tmp_path_factory.mktemp("scripts"), patch) as opened:
        patch.setenv("NBTOOLS_MEMORY_URL", ":memory:")
        opened.run("%load_ext nbtools")
        yield opened


def stop_when_printed(text: str) -> Callable[[io.StringIO], None]:
    """Return what presses Stop as soon as the cell has printed a text."""

    def arm(out: io.StringIO) -> None:
        def press() -> None:
            with contextlib.suppress(AssertionError):  # the run is stopped all the same, so that the test can fail
                wait_until(lambda: text in out.getvalue())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press, daemon=True).start()

    return arm


def test_the_script_sees_the_file_and_its_output_is_shown_once(notebook) -> None:
    cell = notebook.run("%%data_analyze sales.csv\nprint(open(input_file_path).readline())\n")
    assert cell.stdout.count("city,amount") == 1
    assert cell.value.text == "city,amount\n\n"
    assert cell.value.footer.startswith("data_analyze")
    assert "city,amount" not in cell.value._repr_html_()


def test_a_value_that_cannot_be_bound_is_named_with_the_reason_and_the_old_one_stays(notebook) -> None:
    notebook.run("fit = 1")
    cell = notebook.run("%%data_analyze -o fit sales.csv\nfit = {'a': object()}\n")
    why = "the value of fit cannot be kept: it holds an object, which JSON has no form for"
    assert f"fit is not bound, and stays as it was: {why}" in cell.stdout
    assert cell.stdout.count(why) == 1
    assert notebook.shell.user_ns["fit"] == 1


def test_infinity_and_nan_are_bound_as_what_they_are(notebook) -> None:
    cell = notebook.run("%%data_analyze -o q sales.csv\nq = [float('inf'), {'a': float('-inf')}]\n")
    assert notebook.shell.user_ns["q"] == [float("inf"), {"a": -float("inf")}]
    assert "null" not in cell.stdout
    assert "not bound" not in cell.stdout


def test_a_run_without_a_value_binds_nothing_and_keeps_its_text(notebook) -> None:
    cell = notebook.run("r << %%data_analyze sales.csv\nprint(6 * 7)\n")
    assert "r is not bound: the script assigned neither r nor result to a value" in cell.stdout
    assert cell.value.text == "42\n"
    assert "r" not in notebook.shell.user_ns


def test_a_bound_result_that_lost_output_says_so(notebook) -> None:
    cell = notebook.run("r << %%data_analyze sales.csv\nprint('x' * 5_000_000)\nr = 6 * 7\n")
    assert cell.stdout.endswith("r: output cut at its cap: the rest was not kept\n")
    assert notebook["r"] == 42


def test_a_script_that_prints_nothing_says_what_it_left_in_the_plain_form_too(notebook) -> None:
    cell = notebook.run("%%data_analyze sales.csv\nopen('left.txt', 'w').write('x');\n")
    printer = io.StringIO()
    RepresentationPrinter(printer).pretty(cell.value)
    assert "left.txt (1 B)" in printer.getvalue()


def test_a_file_name_is_filled_in(notebook) -> None:
    notebook.run("where = 'sales.csv'")
    assert notebook.run("%%data_analyze {where}\nprint(1)\n").error is None
    assert isinstance(notebook.run("%%data_analyze nowhere.csv\nprint(1)\n").error, FileMissing)


def test_a_script_that_raises_shows_its_own_line(notebook) -> None:
    cell = notebook.run("%%data_analyze sales.csv\nprint('before')\n1/0\n")
    assert isinstance(cell.error, ExecutionFailed)
    assert "before" in cell.stdout
    assert len(cell.lines) == 3
    assert "line 2: ZeroDivisionError" in cell.lines[1]


def test_its_own_traceback_is_shown_on_request(notebook) -> None:
    cell = notebook.run("%%data_analyze sales.csv --traceback\ndef f():\n    1/0\nf()\n")
    assert "1/0" in cell.lines[0]
    assert "nbtools" not in cell.lines[0]


def test_a_session_keeps_its_variables(notebook) -> None:
    notebook.run("%%data_analyze sales.csv --session kept\nx = 41\n")
    assert "42" in notebook.run("%kernels exec kept print(x + 1)").stdout
    assert [kernel["name"] for kernel in notebook.run("%kernels").value] == ["kept"]
    assert "x" in [row["name"] for row in notebook.run("%kernels variables kept").value]
    notebook.run("%kernels restart kept")
    assert isinstance(notebook.run("%kernels exec kept print(x)").error, ExecutionFailed)
    assert notebook.run("%kernels stop kept").value.ok
    assert len(notebook.run("%kernels").value) == 0
    assert isinstance(notebook.run("%kernels stop kept").error, InvalidArguments)


def test_a_session_is_copied_and_taken_back(notebook) -> None:
    notebook.run("%%data_analyze sales.csv --session loaded\nx = 41\n")
    assert notebook.run("%kernels fork loaded try").value.text == "Session 'try' is a copy of 'loaded'."
    notebook.run("%kernels exec try x = 0")
    assert "41" in notebook.run("%%code --session loaded\nprint(x)\n").stdout
    rows = notebook.run("%kernels tree").value
    assert [(row["name"], row["copy_of"], row["depth"]) for row in rows] == [("loaded", None, 0), ("try", "loaded", 1)]
    assert all(row["own_bytes"] > 0 for row in rows)
    assert str(notebook.run("%kernels undo").error).startswith("No session can be undone.")
    assert notebook.run("%kernels keep loaded 2").value.ok
    notebook.run("%kernels exec loaded x = 7; open('x.txt', 'w').close()")
    undone = notebook.run("%kernels undo loaded").value.text
    assert undone == "Session 'loaded' is as it was before its last run. Files that were written remain: x.txt."
    assert "41" in notebook.run("%kernels exec loaded print(x)").stdout
    assert isinstance(notebook.run("%kernels undo loaded 3").error, InvalidArguments)
    # Without a name where one alone can go back.
    assert "'loaded' is as it was before its last run" in notebook.run("%kernels undo 1").value.text
    notebook.run("%kernels keep try")
    for name in ("loaded", "try"):
        notebook.run(f"%kernels exec {name} x = 7")
    assert "by this many runs: loaded (1), try (1)." in str(notebook.run("%kernels undo").error)
    assert isinstance(notebook.run("%kernels fork nobody try").error, InvalidArguments)
    for name in ("loaded", "try"):
        notebook.run(f"%kernels stop {name}")


def test_a_run_that_cannot_be_undone_says_so_once_and_keep_says_it_at_once(notebook) -> None:
    notebook.run("%kernels exec busy x = 1")
    notebook.run("%kernels keep busy")
    notebook.run("%kernels exec busy import subprocess; child = subprocess.Popen(['sleep', '60'])")
    cell = notebook.run("%kernels exec busy x = 2")
    assert (cell.stdout + cell.stderr).count("this run cannot be undone: Session 'busy' cannot be copied: process") == 1
    for line in ("%kernels undo busy", "%kernels keep busy"):
        assert "Session 'busy' cannot be copied: process" in str(notebook.run(line).error)
    notebook.run("%kernels exec busy child.kill()")
    notebook.run("%kernels stop busy")


def test_a_run_is_tried_in_a_copy_and_taken_or_dropped(notebook) -> None:
    notebook.run("%%data_analyze sales.csv --session loaded\nx = 41\n")
    notebook.run("%kernels keep loaded")
    for code in ("x += 1", "x = 0"):
        cell = notebook.run(f"%%data_analyze --session loaded --try\n{code}\nprint(x)\n")
    assert "%kernels adopt loaded-try2" in cell.stdout
    failed = notebook.run("%%code --session loaded --try\nx = 7\n1/0\n").error
    assert isinstance(failed, ExecutionFailed)
    assert "is as it was before" in failed.hint
    assert "41" in notebook.run("%kernels exec loaded print(x)").stdout
    # The original has run since: what it did would be lost.
    assert "has run since" in str(notebook.run("%kernels adopt loaded-try1").error)
    for copy in ("loaded-try1", "loaded-try2"):
        assert notebook.run(f"%kernels stop {copy}").value.ok
    notebook.run("%%data_analyze --session loaded --try\nx += 1\n")
    assert notebook.run("%kernels adopt loaded-try1").value.ok
    assert [row["name"] for row in notebook.run("%kernels").value] == ["loaded"]
    assert "42" in notebook.run("%kernels exec loaded print(x)").stdout
    notebook.run("%kernels undo loaded 2")
    assert "41" in notebook.run("%kernels exec loaded print(x)").stdout
    assert isinstance(notebook.run("%kernels adopt loaded").error, InvalidArguments)
    assert isinstance(notebook.run("%%data_analyze --session nobody --try\n1\n").error, InvalidArguments)
    assert isinstance(notebook.run("%%data_analyze --try\n1\n").error, InvalidArguments)
    notebook.run("%kernels stop loaded")


def test_time_runs_out_and_the_output_stays(notebook) -> None:
    notebook.shell.user_ns["r"] = "held"
    cell = notebook.run(
        "r << %%data_analyze sales.csv --timeout 1s\nimport time\nprint('so far', flush=True)\ntime.sleep(600)\n"
    )
    assert cell.error.code == "TIMEOUT"
    assert "so far" in cell.stdout
    assert cell.error.data["stdout"] == "so far\n"
    assert notebook.shell.user_ns["r"] == "held"


def test_stop_ends_the_script_and_the_notebook_goes_on(notebook) -> None:
    script = "r << %%data_analyze sales.csv\nimport os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)\n"
    notebook.shell.user_ns["r"] = "held"
    begun = time.monotonic()
    cell = notebook.run(script, while_running=stop_when_printed("pid"))
    assert time.monotonic() - begun < 60
    assert isinstance(cell.error, Cancelled)
    assert len(cell.lines) == 3
    assert cell.error.data["stdout"].startswith("pid")
    assert notebook.shell.user_ns["r"] == "held"
    assert notebook.run("%%data_analyze sales.csv\nprint('again')\n").stdout.startswith("again")


def test_a_picture_is_shown_once_and_as_a_picture(notebook) -> None:
    cell = notebook.run("%%data_visualize sales.csv -i a.png\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);\n")
    assert sum("image/png" in bundle for bundle in cell.displayed) == 1
    assert cell.value.text == "Visualization saved to: a.png"
    assert "<img" not in cell.value._repr_html_()
    saving = "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.savefig(output_image_path); plt.close()\n"
    cell = notebook.run(f"%%data_visualize sales.csv -i b.svg\n{saving}")
    (bundle,) = cell.displayed
    assert bundle["text/html"].startswith('<img alt="b.svg" src="data:image/svg+xml;base64,'), "no part of the page"
    assert "image/svg+xml" not in bundle


def test_a_chart_that_draws_nothing_is_told(notebook) -> None:
    cell = notebook.run("%%data_visualize sales.csv -i none.png\nx = 1\n")
    assert isinstance(cell.error, ExecutionFailed)


def test_a_shown_value_is_not_shown_again(notebook) -> None:
    cell = notebook.run("%%data_analyze sales.csv\n600_000 * 7\n")
    assert [bundle["text/plain"] for bundle in cell.displayed] == ["4200000"]
    assert "4200000" not in cell.value._repr_html_()
    assert cell.value.text == "4200000\n"


def test_python_code_that_raises_shows_its_own_line_and_its_traceback_on_request(notebook) -> None:
    cell = notebook.run("%%code python\nx = 0\n1 / x\n")
    assert cell.lines == [
        "ExecutionFailed: running python",
        "line 2: ZeroDivisionError: division by zero (in: 1 / x)",
        "→ Add --traceback to the first line to see where, in full.",
    ]
    assert "----> 2 1 / x" in notebook.run("%%code python --traceback\nx = 0\n1 / x\n").lines[0]


def test_code_runs_in_other_languages_and_its_failure_is_an_error(notebook) -> None:
    assert notebook.run("%%code bash\necho $((6 * 7))\n").stdout.startswith("42\n")
    cell = notebook.run("r << %%code bash\necho so far; exit 3\n")
    assert "exit code 3" in cell.lines[1]
    assert cell.error.data["exit_code"] == 3
    assert notebook.run("%%code pyhton\n1\n").error.code == "LANGUAGE_UNAVAILABLE"


def test_rich_values_are_shown_as_in_a_cell(notebook) -> None:
    cell = notebook.run("%%data_analyze sales.csv\nimport pandas as pd\npd.read_csv(input_file_path)\n")
    assert any("text/html" in bundle for bundle in cell.displayed)


def test_the_doctor_finds_working_kernels(notebook) -> None:
    found = notebook.run("%nbtools doctor").value
    assert {check.name: check.ok for check in found.checks}["kernels"] is True
    assert "✔ kernels" in found.to_text()
    assert "<table" in found.to_html()


def test_a_picture_is_drawn_in_no_session(notebook) -> None:
    error = notebook.run("%%data_visualize sales.csv --session s -i out.png\n1\n").error
    assert isinstance(error, InvalidArguments)
    assert "--session" in error.message


@pytest.mark.processes
def test_a_reset_names_the_sessions_that_end(notebook) -> None:
    notebook.run("%%code --session kept\nx = 41\n")
    # A home that keeps nothing is left as it is.
    (nbtools.workbench().config.home / "downloads").mkdir(parents=True, exist_ok=True)
    told = notebook.run("%nbtools reset --yes").value.to_text()
    assert re.search(r"Sessions that end, with their variables: .*\bkept\b", told)
    assert "All of it was removed" in told
    assert "NameError" in str(notebook.run("%%code --session kept\nprint(x)\n").error)


@pytest.mark.parametrize(
    ("code", "words"),
    [("import os; os._exit(3)", "It printed nothing."), ("import sys; print(1); sys.exit(3)", "Its output is above.")],
)
def test_a_script_that_ends_with_a_code_says_what_it_said(notebook, code: str, words: str) -> None:
    assert words in str(notebook.run(f"%%code\n{code}\n").stdout + notebook.run(f"%%code\n{code}\n").stderr)


def test_an_open_bracket_is_named_as_python_names_it(notebook) -> None:
    assert "'(' was never closed" in str(notebook.run('%%code\nprint("x"*3\n').error)


def test_a_new_session_with_a_name_like_another_one_s_says_that_it_began_empty(notebook) -> None:
    notebook.run("%%code --session rates\nx = 1\n")
    assert "began empty: session 'rate'; there is 'rates' too" in notebook.run("%%code --session rate\ny = 1\n").stdout
    assert "began empty" not in notebook.run("%%code --session rate\ny = 1\n").stdout
    for name in ("rate", "rates"):
        notebook.run(f"%kernels stop {name}")
