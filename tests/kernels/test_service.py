"""Leases: a clean kernel for every script, what the script finds in it, and what comes back."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import (
    FileMissing,
    Interrupted,
    InvalidArguments,
    LanguageUnavailable,
    PathNotAllowed,
    WorkbenchClosed,
)
from nbtools.ground import aio
from nbtools.kernels import Execution, Kernels, OutputPiece
from nbtools.kernels.inside.writers import Writers
from tests.conftest import wait_until

pytestmark = pytest.mark.processes

PNG = b"\x89PNG"


def test_the_package_is_light_to_import() -> None:
    import subprocess

    script = (
        "import sys, nbtools.kernels\nprint([m for m in ('zmq', 'ipykernel', 'IPython', 'pandas') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


def test_every_lease_is_clean(kernels: Kernels) -> None:
    assert kernels.run("x = 1").ok
    done = kernels.run("x")
    assert done.error is not None
    assert str(done.error) == "line 1: NameError: name 'x' is not defined"
    assert done.session is None


def test_a_lease_reports_how_it_was_confined(kernels: Kernels) -> None:
    assert kernels.run("1").sandbox == "limits"
    assert kernels.run("1", sandbox="off").sandbox == "off"


def test_the_line_of_an_error_is_the_scripts_own(kernels: Kernels) -> None:
    script = "import json\ndef f(text):\n    return json.loads(text)\n\n\nf('no json')\n"
    done = kernels.run(script)
    assert done.error is not None
    assert (done.error.name, done.error.line) == ("JSONDecodeError", 3)


def test_a_syntax_error_tells_its_line(kernels: Kernels) -> None:
    done = kernels.run("x = 1\ny = = 2\n")
    assert str(done.error) == "line 2: SyntaxError: invalid syntax"


def test_variables_and_folder_are_there(kernels: Kernels, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("value = 'imported'")
    script = "import os, mine\nprint(input_file_path, inputs['a'], mine.value, os.getcwd())"
    done = kernels.run(script, cwd=tmp_path, variables={"input_file_path": "/data/x.csv", "inputs": {"a": [1]}})
    assert done.stdout == f"/data/x.csv [1] imported {tmp_path}\n"


def test_a_module_written_after_the_spare_was_made_is_found(kernels: Kernels, tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"fresh{n}.py").write_text(f"n = {n}")
        assert kernels.run(f"import fresh{n}; print(fresh{n}.n)", cwd=tmp_path).stdout == f"{n}\n"


def test_files_written_in_the_folder_are_artifacts(kernels: Kernels, tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("old")
    done = kernels.run("open('new.txt', 'w').write('x'); open('old.txt').read()", cwd=tmp_path)
    assert done.artifacts == (tmp_path / "new.txt",)


@pytest.mark.races
def test_a_file_that_another_program_wrote_meanwhile_is_not_claimed(kernels: Kernels, tmp_path: Path) -> None:
    if not (probe := Writers([str(tmp_path)]))._is_ours():
        pytest.skip("this system does not tell whose a change is")
    probe.close()
    script = "import time\nopen('own', 'w').close()\nopen('ready', 'w').close()\nwhile not {}: time.sleep(0.01)"
    wait = "__import__('os').path.exists('seen')"

    def write() -> None:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        (tmp_path / "other").touch()
        (tmp_path / "seen").touch()

    for code, artifacts, notes in (
        (script.format(wait), ["own", "ready"], ["changed meanwhile, by another program: other, seen"]),
        # What is of a process that the script started cannot be told from what is of others.
        (
            "import subprocess\nsubprocess.run(['true'])\n" + script.format(wait),
            ["other", "own", "ready", "seen"],
            ["changed meanwhile, by a process that this script started or by another program: other, seen"],
        ),
    ):
        for path in tmp_path.iterdir():
            path.unlink()
        with ThreadPoolExecutor(1) as beside:
            beside.submit(write)
            done = kernels.run(code, cwd=tmp_path, timeout=60)
        assert ([path.name for path in done.artifacts], list(done.notes)) == (artifacts, notes)
    kernels.run("1", cwd=tmp_path, session="s")
    (session,) = kernels.list()
    opened = [str(each.readlink()) for each in Path(f"/proc/{session['pid']}/fd").iterdir()]
    assert not any("fanotify" in each for each in opened)


@pytest.mark.races
def test_a_file_of_two_scripts_at_once_is_claimed_by_neither_that_may_not_have_written_it(
    kernels: Kernels, tmp_path: Path
) -> None:
    script = (
        "import os, pathlib, time\nos.system('true')\npathlib.Path('ready{0}').touch()\n"
        "while not pathlib.Path('ready{1}').exists(): time.sleep(0.01)\n"
        "time.sleep(0.1)\nos.system('touch out{0}')\ntime.sleep(0.1)"
    )
    with ThreadPoolExecutor(2) as both:
        work = [both.submit(kernels.run, script.format(*pair), cwd=tmp_path, timeout=60) for pair in ("ab", "ba")]
        ends = [one.result() for one in work]
    for done in ends:
        assert (done.status, [path.name for path in done.artifacts if path.name.startswith("out")]) == ("ok", [])
        (note,) = (note for note in done.notes if note.startswith("changed meanwhile"))
        assert "outa" in note
    done = kernels.run("open('alone', 'w').close()", cwd=tmp_path, timeout=60)
    assert (done.artifacts, done.notes) == ((tmp_path / "alone",), ())


@pytest.mark.races
def test_artifacts_of_an_own_folder_last_until_close() -> None:
    with Kernels(spares=0, preloads=()) as own:
        done = own.run("open('made.txt', 'w').write('kept')")
        (path,) = done.artifacts
        assert path.read_text() == "kept"
    assert not path.exists()


def test_figures_and_frames_are_shown_as_in_a_cell(kernels: Kernels) -> None:
    script = (
        "import pandas as pd, matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n"
        "plt.bar([1], [2])\npd.DataFrame({'a': [1]})"
    )
    done = kernels.run(script)
    assert [sorted(shown) for shown in done.displays] == [
        ["image/png", "text/plain"],
        ["text/html", "text/plain"],
        ["image/png", "text/plain"],
    ]


def test_pictures_survive_a_backend_that_shows_nothing(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    draw = "import matplotlib.pyplot as plt\nline = plt.plot([1, 2])"
    for script in (draw, f"import matplotlib\nmatplotlib.use('Agg')\n{draw}"):
        assert [sorted(shown) for shown in kernels.run(script).displays] == [["image/png", "text/plain"]]


@pytest.mark.parametrize(
    ("script", "begins"),
    [
        ("plt.plot([1, 2])", PNG),
        ("plt.plot([1, 2])\nplt.show()", PNG),
        ("import matplotlib\nmatplotlib.use('Agg')\nplt.plot([1])", PNG),
        ("fig, ax = plt.subplots()\nax.plot([1])\nfig.savefig(output_image_path)\nplt.close(fig)", PNG),
        ("open(output_image_path, 'w').write('by hand')", b"by hand"),
    ],
)
def test_the_open_figure_is_saved_unless_the_script_did(
    kernels: Kernels, tmp_path: Path, script: str, begins: bytes
) -> None:
    path = tmp_path / "out.png"
    code = "import matplotlib.pyplot as plt\n" + script
    done = kernels.run(code, figure_path=path, variables={"output_image_path": str(path)})
    assert done.ok
    assert path.read_bytes().startswith(begins)
    assert path in done.artifacts


@pytest.mark.parametrize(("suffix", "begins"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("jpg", b"\xff\xd8")])
def test_the_suffix_decides_the_format(kernels: Kernels, tmp_path: Path, suffix: str, begins: bytes) -> None:
    path = tmp_path / f"out.{suffix}"
    kernels.run("import matplotlib.pyplot as plt\nplt.plot([1])", figure_path=path)
    assert path.read_bytes().startswith(begins)


def test_a_script_that_draws_nothing_saves_nothing(kernels: Kernels, tmp_path: Path) -> None:
    done = kernels.run("print('no picture')", figure_path=tmp_path / "out.png")
    assert done.ok
    assert not (tmp_path / "out.png").exists()
    assert done.artifacts == ()


def test_a_format_that_does_not_exist_is_told(kernels: Kernels, tmp_path: Path) -> None:
    done = kernels.run("import matplotlib.pyplot as plt\nplt.plot([1])", figure_path=tmp_path / "out.xyz")
    assert "not supported" in done.notes[0]


def test_a_module_in_a_folder_made_after_it_was_looked_for_is_found(kernels: Kernels) -> None:
    with kernels.session("s") as session:
        look = "import importlib.util as u, os, sys; print([u.find_spec(n) is not None for n in ('late_a', 'late_b')])"
        session.run("import os, sys; sys.path += [os.path.abspath('a'), 'b']")
        assert session.run(look).stdout == "[False, False]\n"
        session.run("for n in 'ab': os.mkdir(n); open(f'{n}/late_{n}.py', 'w').close()")
        assert session.run(look).stdout == "[True, True]\n"


def test_forks_do_not_share_their_random_numbers(kernels: Kernels) -> None:
    script = "import numpy, random, uuid\nprint(numpy.random.rand(), random.random(), uuid.uuid4())"
    first, second = (kernels.run(script).stdout.split() for _ in range(2))
    assert all(a != b for a, b in zip(first, second, strict=True))


@pytest.mark.races
def test_what_breaks_when_it_is_looked_at_is_listed_with_its_type(kernels: Kernels) -> None:
    code = (
        "import pandas as pd\nclass Odd:\n    def __len__(self): raise OSError\n    def __repr__(self): raise OSError\n"
        "class Shy:\n    def __len__(self): return 3\n    def __repr__(self): return 'y' * 300\n"
        "odd, shy, frame, number = Odd(), Shy(), pd.DataFrame({'a': [1]}), 7"
    )
    session = kernels.session("looked at")
    assert session.run(code).ok
    shown = {one.pop("name"): one for one in session.variables()}
    session.close()
    assert (shown["odd"]["type"], shown["odd"]["size"], shown["odd"]["text"]) == ("Odd", None, "")
    assert (shown["shy"]["size"], shown["shy"]["text"]) == ("3", "y" * 199 + "…")
    assert (shown["frame"]["size"], shown["frame"]["text"]) == ("1 x 1", "")
    assert shown["number"]["text"] == "7"


def test_text_that_is_not_unicode_is_shown_as_python_writes_it(kernels: Kernels) -> None:
    done = kernels.run(
        "print('a\\ud800b'); display({'text/plain': 'c\\udfff'}, raw=True); raise ValueError('d\\ud800')"
    )
    assert done.stdout == "a\\ud800b\n"
    assert done.displays[0]["text/plain"] == "c\\udfff"
    assert done.error is not None
    assert done.error.value == "d\\ud800"


def test_a_link_to_an_input_file_is_renewed_and_a_file_of_the_session_stays(kernels: Kernels, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "in.txt").write_text(folder)
    session = kernels.session("links")
    one, two = ([tmp_path / folder / "in.txt"] for folder in ("one", "two"))
    code = "print(open('in.txt').read())"
    assert [session.run(code, inputs_paths=paths).stdout for paths in (one, two)] == ["one\n", "two\n"]
    session.run("import os; os.unlink('in.txt'); open('in.txt', 'w').write('own')")
    assert session.run(code, inputs_paths=one).stdout == "own\n"
    session.close()


def test_an_end_with_words_and_an_open_bracket_are_told_as_python_does(kernels: Kernels) -> None:
    ended = kernels.run("import sys\nsys.exit('no such month')")
    assert (ended.status, ended.exit_code, ended.stderr) == ("error", 1, "no such month\n")
    assert str(kernels.run("x = 1\nprint((x,").error) == "line 2: SyntaxError: '(' was never closed"


def test_a_message_that_a_script_makes_up_is_missed_and_ends_nothing(kernels: Kernels) -> None:
    code = (
        "kernel = get_ipython().kernel\n"
        "def send(kind, content):\n"
        "    kernel.session.send(kernel.iopub_socket, kind, content, parent=kernel.get_parent())\n"
        "print('before', flush=True)\nsend('stream', {'name': 'stdout'})\nsend('status', {})\nprint('after')"
    )
    done = kernels.run(code)
    assert (done.status, done.stdout) == ("ok", "before\nafter\n")
    assert done.truncated


def test_libraries_with_threads_work_in_a_fork(kernels: Kernels) -> None:
    script = (
        "import numpy as np, duckdb, concurrent.futures, subprocess, multiprocessing\n"
        "a = np.ones((300, 300)); assert (a @ a)[0, 0] == 300\n"
        "assert duckdb.sql('select sum(i) from range(1000) t(i)').fetchall() == [(499500,)]\n"
        "with concurrent.futures.ThreadPoolExecutor(3) as pool: assert list(pool.map(abs, [-1, -2])) == [1, 2]\n"
        "assert subprocess.run(['echo', 'sub'], capture_output=True).stdout == b'sub\\n'\n"
        "context = multiprocessing.get_context('fork')\n"
        "p = context.Process(target=print, args=('from a child',)); p.start(); p.join()\n"
        "import asyncio\nawait asyncio.sleep(0)\n"
        "!echo shell\n"
    )
    done = kernels.run(script)
    assert done.error is None
    assert sorted(done.stdout.split()) == sorted(["from", "a", "child", "shell"])


def test_the_time_zone_is_the_owners_at_that_moment(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert kernels.run("import time\nprint(time.strftime('%z'))").stdout == "+0900\n"


def test_secrets_are_not_in_the_kernel(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-not-for-scripts")
    script = "import os\nprint('SOME_API_KEY' in os.environ, 'sk-not' in open('/proc/self/environ').read())"
    assert kernels.run(script).stdout == "False False\n"
    assert kernels.run("import os\nprint('SOME_API_KEY' in os.environ)", sandbox="off").stdout == "True\n"


def test_exit_ends_the_script_and_tells_its_code(kernels: Kernels) -> None:
    for text, status, code in [("exit()", "ok", 0), ("import sys\nsys.exit(3)", "error", 3), ("quit(1)", "error", 1)]:
        done = kernels.run(text)
        assert (done.status, done.exit_code, done.stderr) == (status, code, "")


def test_a_script_may_delete_its_own_folder(kernels: Kernels) -> None:
    done = kernels.run("import os, shutil\nshutil.rmtree(os.getcwd())\nprint('gone')")
    assert (done.status, done.stdout, done.artifacts) == ("ok", "gone\n", ())
    assert kernels.run("print('next')").ok


def test_very_long_code_runs(kernels: Kernels) -> None:
    done = kernels.run("x = '" + "y" * 4_000_000 + "'\nprint(len(x))", timeout=120)
    assert done.stdout == "4000000\n"


@pytest.mark.races
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": 0}, InvalidArguments),
        ({"timeout": -1}, InvalidArguments),
        ({"timeout": 1e9}, InvalidArguments),
        ({"grace": -1}, InvalidArguments),
        ({"session": "a/b"}, InvalidArguments),
        ({"session": ""}, InvalidArguments),
        ({"sandbox": "tight"}, InvalidArguments),
        ({"cwd": "/no/such/folder"}, FileMissing),
        ({"variables": {"x": object()}}, InvalidArguments),
        ({"language": "kernel:nope"}, LanguageUnavailable),
        ({"language": " "}, LanguageUnavailable),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    kernels: Kernels, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        kernels.run("1", **options)


def test_a_working_folder_outside_the_roots_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with Kernels(allowed_paths=[tmp_path / "in"], preloads=()) as own, pytest.raises(PathNotAllowed):
        own.run("1", cwd=tmp_path)


@pytest.mark.races
def test_output_appears_while_the_script_runs(kernels: Kernels, tmp_path: Path) -> None:
    seen: list[str] = []
    mark = tmp_path / "seen"

    def look(output: OutputPiece) -> None:
        seen.append(output.text)
        mark.touch()

    script = (
        f"import os, time\nprint('early')\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.01)\nprint('late')"
    )
    assert kernels.run(script, on_output=look, timeout=30).ok
    assert seen == ["early\n", "late\n"]


@pytest.mark.races
def test_stop_returns_the_partial_output(kernels: Kernels) -> None:
    async def work() -> Execution:
        begun = asyncio.Event()
        script = "print('begun\\n', end='', flush=True)\nwhile True: pass"
        task = asyncio.ensure_future(kernels.arun(script, timeout=30, on_output=lambda _: begun.set()))
        await asyncio.wait_for(begun.wait(), 60)
        task.cancel()
        return await task

    done = aio.run(work())
    assert (done.status, done.stdout) == ("stopped", "begun\n")


@pytest.mark.races
def test_stop_works_from_another_loop_too(kernels: Kernels) -> None:
    async def work() -> Execution:
        here = asyncio.get_running_loop()
        begun = asyncio.Event()
        script = "print('begun\\n', end='', flush=True)\nwhile True: pass"
        # A stop that does not reach the kernel ends as "timeout".
        run = kernels.arun(script, timeout=30, on_output=lambda _: here.call_soon_threadsafe(begun.set))
        task = asyncio.ensure_future(run)
        await asyncio.wait_for(begun.wait(), 60)
        task.cancel()
        return await task

    done = asyncio.run(work())
    assert (done.status, done.stdout) == ("stopped", "begun\n")


@pytest.mark.races
def test_control_c_hands_over_the_partial_output(kernels: Kernels) -> None:
    import signal

    def press(_: OutputPiece) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(Interrupted) as caught:
        kernels.run("print('begun\\n', end='', flush=True)\nwhile True: pass", timeout=30, on_output=press)
    assert (caught.value.value.status, caught.value.value.stdout) == ("stopped", "begun\n")


@pytest.mark.races
def test_stop_before_the_code_began_returns_an_execution(kernels: Kernels) -> None:
    async def work() -> Execution:
        task = asyncio.ensure_future(kernels.arun("1", sandbox="off"))
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert aio.run(work()).status == "stopped"


@pytest.mark.races
@pytest.mark.own_zygote
def test_a_killed_zygote_is_started_anew() -> None:
    with Kernels("forked", spares=1, preloads=("numpy",)) as own:
        own.run("1")
        backend = own._backends._backends["forked"]  # type: ignore[union-attr]
        old = backend.zygotes.pid
        os.kill(old, 9)
        # The pool may have started another one already, to fill up its spares.
        wait_until(lambda: backend.zygotes.is_outdated() or backend.zygotes.pid != old)
        assert own.run("print('again')").stdout == "again\n"
        assert backend.zygotes.pid != old


@pytest.mark.own_zygote
def test_an_installed_package_is_seen_by_the_next_lease(tmp_path: Path) -> None:
    place = tmp_path / "site"
    place.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(place))
        with Kernels(spares=1, preloads=()) as own:
            assert own.run("import brandnew").error is not None
            (place / "brandnew.py").write_text("version = 1")
            assert own.run("import brandnew; print(brandnew.version)").stdout == "1\n"


@pytest.mark.races
def test_a_library_that_leaves_threads_is_told_once_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "busybee.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        with Kernels(spares=0, preloads=("busybee",)) as own:
            done = own.run("print('works')")
            again = own.run("import busybee, threading\nprint(threading.active_count() > 1)")
            told = own.describe()
    assert (done.stdout, again.stdout) == ("works\n", "True\n")
    assert ["busybee" in note for note in (*done.notes, *again.notes)] == [True]
    assert (told["backend"], told["left_out"], told["preloads"]) == ("forked", ["busybee"], [])


@pytest.mark.races
@pytest.mark.own_zygote
def test_nothing_is_left_after_close(no_leak: None) -> None:
    own = Kernels(spares=1, preloads=("numpy",))
    own.run("import subprocess\nsubprocess.Popen(['sleep', '600'])")
    own.run("x = 1", session="s")
    own.close()
    own.close()


@pytest.mark.races
@pytest.mark.parametrize("use", ["run", "run_in_session", "start", "warm"])
def test_closed_kernels_start_nothing_and_say_that_they_are_closed(use: str, no_leak: None) -> None:
    own = Kernels(spares=1, preloads=("numpy",))
    uses: dict[str, Callable[[], Any]] = {
        "run": lambda: own.run("1"),
        "run_in_session": lambda: own.run("1", session="s"),
        "start": lambda: own.start("s"),
        "warm": own.warm,
    }
    own.close()
    with pytest.raises(WorkbenchClosed, match="closed"):
        uses[use]()
    assert own.list() == []
