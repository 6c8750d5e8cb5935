"""What every program may expect: streams that are descriptors, a file of its own, loops; and words before a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nbtools.kernels import Kernels

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", params=["forked", pytest.param("spawned", marks=pytest.mark.slow)])
def kernels(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    with Kernels(request.param, spares=1, preloads=("numpy",)) as opened:
        yield opened


CRASHES = {
    "abort": "os.abort()",
    "segmentation fault": "ctypes.string_at(0)",
    "kill": "os.kill(os.getpid(), 9)",
    "exit": "os._exit(3)",
}


@pytest.mark.races
@pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES)
def test_a_crash_keeps_all_that_was_written_before(kernels: Kernels, crash: str) -> None:
    script = "import ctypes, os, sys\nfor n in range(30_000): print(f'line {n}')\nsys.stderr.write('é\\udcff\\n')\n"
    done = kernels.run(script + crash)
    assert done.status == "died"
    assert done.stdout == "".join(f"line {n}\n" for n in range(30_000))
    assert done.stderr == "é\\udcff\n"


@pytest.mark.races
def test_a_session_that_crashes_tells_its_last_run_alone(kernels: Kernels) -> None:
    kernels.run("print('earlier')", session="s")
    assert kernels.run("print('last')\nimport os\nos.abort()", session="s").stdout == "last\n"
    kernels.stop("s")


@pytest.mark.races
def test_a_crash_after_more_than_is_stored_says_that_some_is_missing(kernels: Kernels) -> None:
    done = kernels.run("import os\nprint('x' * 3_000_000 + 'the end')\nos.kill(os.getpid(), 9)")
    assert done.stdout.endswith("the end\n")
    assert done.truncated == (len(done.stdout) < 3_000_000)


def test_children_are_heard_in_order_however_they_got_the_stream(kernels: Kernels) -> None:
    done = kernels.run(
        "import os, subprocess, sys\nprint('one')\nsubprocess.run(['echo', 'two'], stdout=sys.stdout)\nprint('three')\n"
        "subprocess.run(['echo', 'four'])\nprint('five')\nos.write(1, b'six\\n')\nprint('seven')\n"
        "sys.stdout.buffer.write(b'eight\\n')\nprint('nine')\nsubprocess.run(['ls', 'ten'], stderr=sys.stdout)"
    )
    assert "ten" in done.stdout.split("\n", 9)[9]
    assert done.stdout.split()[:9] == ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def test_raw_output_comes_before_what_is_printed_or_shown_after_it(kernels: Kernels) -> None:
    raw = "    os.write(1, f'{%s}\\n'.encode())\n"
    done = kernels.run(
        f"import os\nfor i in range(0, 200, 4):\n{raw % 'i'}    print(i + 1)\n{raw % 'i + 2'}    display(i + 3)\n"
    )
    assert done.text().split() == [str(i) for i in range(200)]


def test_bytes_that_are_no_text_lose_nothing_else(kernels: Kernels) -> None:
    done = kernels.run(
        "import io, sys\nsys.stdout.buffer.write(b'before \\xff\\xfe after\\n')\n"
        "sys.stdout.reconfigure(encoding='utf-8')\n"
        "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='latin-1')\nprint('é')"
    )
    assert (done.status, done.stdout) == ("ok", "before \ufffd\ufffd after\n\ufffd\n")


def test_a_script_is_a_file_that_names_its_place(kernels: Kernels, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("content")
    done = kernels.run(
        "import os, sys\nfrom pathlib import Path\nassert __name__ == '__main__' and sys.argv == [__file__]\n"
        "print(Path(__file__).read_text() == In[-1], Path(__file__).with_name('data.csv').read_text())",
        cwd=tmp_path,
    )
    assert done.stdout == "True content\n"
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_functions_reach_children_that_are_started_anew(kernels: Kernels, tmp_path: Path) -> None:
    done = kernels.run(
        "import multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor\ndef double(n): return 2 * n\n"
        "if __name__ == '__main__':\n    way = multiprocessing.get_context('spawn')\n"
        "    with ProcessPoolExecutor(1, mp_context=way) as pool: print(list(pool.map(double, [1, 2])))",
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == ("[2, 4]\n", "")


LOOPS = {
    "run": "asyncio.run(double(1))",
    "runner": "asyncio.Runner().run(double(1))",
    "new loop": "asyncio.new_event_loop().run_until_complete(double(1))",
    "the loop there is": "asyncio.get_event_loop().run_until_complete(double(1))",
}


@pytest.mark.races
@pytest.mark.parametrize("way", LOOPS.values(), ids=LOOPS)
def test_loops_run_beside_await_at_the_top(kernels: Kernels, way: str) -> None:
    done = kernels.run(
        "import asyncio\nasync def double(n):\n    await asyncio.sleep(0)\n    return 2 * n\n"
        f"task = asyncio.create_task(double(2))\nprint(await double(0), {way}, {way})\nprint(await task)\n{way}\n"
        "print(asyncio.current_task() is not None)"
    )
    assert (done.status, done.stdout) == ("ok", "0 2 2\n4\nTrue\n")


@pytest.mark.races
def test_a_loop_in_a_loop_is_refused_as_everywhere(kernels: Kernels) -> None:
    done = kernels.run("import asyncio\nasync def main():\n    asyncio.run(asyncio.sleep(0))\nasyncio.run(main())")
    assert done.error is not None
    assert "cannot be called from a running event loop" in done.error.value


@pytest.mark.parametrize("question", ["input('name? ')", "__import__('getpass').getpass('name? ')"])
def test_a_question_says_that_nobody_can_be_asked(kernels: Kernels, question: str) -> None:
    done = kernels.run(question)
    assert done.error is not None
    assert done.error.name == "EOFError"
    assert done.error.value.startswith("no one can be asked for 'name?'")
