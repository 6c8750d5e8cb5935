"""Commands in forks of a process that has imported what they need: the same as in a process of their own."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import KILLS, mostly_slow, wait_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forked kernels need Linux"),
]

# A command that says by its exit code when it was not forwarded.
NOT_FORWARDED = 99
ONE = ("call", "calculator", "--json", '{"expression": "1"}')
CLIENT = """
import os, sys
from nbtools.cli import forwarding
forwarding._ANSWER_S = float(os.environ["ANSWER"])
code = forwarding.forward(sys.argv[1:])
sys.exit(99 if code is None else code)
"""


class Served:
    """A home in which a process runs commands, and a folder to run them in."""

    def __init__(self, place: Path) -> None:
        self.place = place
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NBTOOLS_")}
        own = {"NBTOOLS_HOME": f"{place}/home", "NBTOOLS_PRELOADS": "numpy", "ALLOWED_PATHS": str(place)}
        self.env = {**kept, **own, "NBTOOLS_KERNEL_WARM": "600", "ANSWER": "60"}

    def start(self, *arguments: str, flags: tuple[str, ...] = (), env: Mapping[str, str] = {}, **popen: Any) -> Any:
        """Start a command that is to be forwarded."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, *flags, "-c", CLIENT, *arguments]
        return subprocess.Popen(
            command, **{**pipes, "cwd": self.place, "env": {**self.env, **env}, "text": True, **popen}
        )

    def run(self, *arguments: str, given: str = "", **how: Any) -> tuple[int, str, str]:
        """Return exit code, output and errors of a command that is to be forwarded."""
        process = self.start(*arguments, **how)
        out, err = process.communicate(given, timeout=120)
        return process.returncode, out, err

    def run_alone(self, *arguments: str, given: str = "") -> tuple[int, str, str]:
        """Return the same of one that runs in its own process."""
        done = subprocess.run(
            [sys.executable, "-m", "nbtools.cli", *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.place,
            env={**self.env, "NBTOOLS_KERNEL_WARM": "0"},
        )
        return done.returncode, done.stdout, done.stderr

    def begin_script(self, name: str, **how: Any) -> tuple[Any, int]:
        """Start a script that takes long; return the process of the command, and the id of the script's."""
        told = self.place / name
        code = f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(300)"
        process = self.start("call", "code_execute", "--json", json.dumps({"code": code}), **how)
        return process, int(wait_until(lambda: told.exists() and told.read_text()))

    def load(self) -> None:
        """Start the process, and wait until it runs commands."""
        subprocess.run([sys.executable, "-m", "nbtools.kernels.forked.warm_client"], env=self.env, check=True)
        wait_until(self._listens)
        wait_until(lambda: not self.server.children())

    def _listens(self) -> bool:
        # Its name is there a moment before it listens.
        with contextlib.suppress(StopIteration, ConnectionRefusedError):
            return self.server.is_running()
        return False

    def end(self) -> None:
        """End all that was started."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if f"{self.place}/home" in " ".join(process.cmdline()):
                    process.kill()

    @functools.cached_property
    def server(self) -> psutil.Process:
        """The process that runs commands; its children are the commands."""
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(next(self.place.glob("home/warm/cli*/socket"))))
            size = struct.calcsize("3i")
            return psutil.Process(struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    try:
        first = made.run("call", "calculator", "--json", '{"expression": "1"}')
        assert first[0] == NOT_FORWARDED, "nobody is there yet"
        made.load()
        yield made
    finally:
        made.end()


def _without_chance(out: str) -> Any:
    try:
        told = json.loads(out)
    except ValueError:
        return out
    if not isinstance(told, dict):
        return told
    return {name: value for name, value in told.items() if name not in {"call_id", "duration_s"}}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "given"),
    mostly_slow(
        [
            (("call", "calculator", "--json", '{"expression": "6*7"}'), ""),
            (("call", "calculator", "--json", "-"), '{"expression": "1/0"}'),
            (("call", "kalculator"), ""),
            (("call", "calculator", "--json", "[1]"), ""),
            (("call", "calculator", "--jsn", "{}"), ""),
            (("sql", "select 'é→' as s, 1 as n", "--format", "json"), ""),
            (("sql", "-"), "select nonsense"),
            (("sql", "select * from 'rows.csv'", "--format", "csv"), ""),
            (("memory", "get", "nothing"), ""),
        ],
        2,
    ),
)
def test_a_command_does_the_same_as_in_a_process_of_its_own(
    served: Served, arguments: tuple[str, ...], given: str
) -> None:
    (served.place / "rows.csv").write_text("a,b\n1,x\n")
    code, out, err = served.run(*arguments, given=given)
    alone = served.run_alone(*arguments, given=given)
    assert (code, _without_chance(out), err) == (alone[0], _without_chance(alone[1]), alone[2])


def test_it_has_the_folder_environment_and_limits_of_its_caller(served: Served) -> None:
    def limit() -> None:
        import resource

        os.umask(0o027)
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 600))

    code = "import os, resource; print(os.environ['MINE'], os.umask(0), resource.getrlimit(resource.RLIMIT_NOFILE)[1])"
    arguments = ("call", "code_execute", "--json", json.dumps({"code": code}))
    told = served.run(*arguments, env={"MINE": "this one's"}, preexec_fn=limit)
    assert json.loads(told[1])["data"]["stdout"] == "this one's 23 600\n"
    inner = served.place / "inner"
    inner.mkdir()
    (inner / "here.csv").write_text("n\n5\n")
    assert served.run("sql", "select n from 'here.csv'", "--format", "csv", cwd=inner)[1] == "n\n5\n"


def test_who_is_not_like_it_runs_commands_without_it(served: Served) -> None:
    calculator = ("call", "calculator", "--json", '{"expression": "1"}')

    def give_up() -> None:
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)

    assert served.run(*calculator)[0] == 0
    assert served.run(*calculator, preexec_fn=give_up)[0] == NOT_FORWARDED
    assert served.run(*calculator, flags=("-O",))[0] == NOT_FORWARDED
    assert served.run(*calculator, env={"PYTHONHASHSEED": "3"})[0] == NOT_FORWARDED
    assert served.run(*calculator, env={"NBTOOLS_KERNEL_WARM": "0"})[0] == NOT_FORWARDED
    assert served.run("doctor")[0] == NOT_FORWARDED
    assert served.run(*calculator, stdin=None, preexec_fn=lambda: os.close(0))[0] == NOT_FORWARDED
    apart = served.place / "apart"
    apart.mkdir()
    (apart / "nbtools.toml").write_text("kernel_warm = 0\n")
    env = {name: value for name, value in served.env.items() if name != "NBTOOLS_KERNEL_WARM"}
    done = subprocess.run([sys.executable, "-c", CLIENT, *calculator], cwd=apart, env=env, check=False)
    assert done.returncode == NOT_FORWARDED


@pytest.mark.races
def test_ctrl_c_reaches_the_command(served: Served) -> None:
    process, script = served.begin_script("interrupted")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode in (1, 130)
    wait_until(lambda: not psutil.pid_exists(script))


@pytest.mark.races
def test_a_command_ends_with_its_process(served: Served) -> None:
    process, script = served.begin_script("killed")
    process.kill()
    process.communicate()
    wait_until(lambda: not psutil.pid_exists(script))
    wait_until(lambda: not served.server.children())


@pytest.mark.races
def test_its_caller_is_told_when_it_is_killed(served: Served) -> None:
    process, script = served.begin_script("ended")
    (running,) = [child for child in served.server.children() if child.status() != psutil.STATUS_ZOMBIE]
    running.kill()
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert "was ended" in err
    wait_until(lambda: not psutil.pid_exists(script))
    assert served.run("call", "calculator", "--json", '{"expression": "1"}')[0] == 0


def test_a_folder_that_was_removed_is_told_in_a_line(served: Served) -> None:
    gone = served.place / "gone"
    gone.mkdir()
    code = (
        "import os, sys; from nbtools import cli; os.rmdir(os.getcwd())\n"
        "sys.exit(cli.main(['call', 'calculator', '--json', '{}']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=gone, env=served.env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "was removed" in done.stderr


@pytest.mark.races
@pytest.mark.slow
def test_kills_in_mid_call_are_told_and_stop_no_later_call(served: Served) -> None:
    for number in range(KILLS):
        process, script = served.begin_script(f"kill{number}")
        running = [child for child in served.server.children() if child.status() != psutil.STATUS_ZOMBIE]
        (command,) = running
        # By turns the fork that runs the command, and what keeps its kernels, which is not a child of anybody here.
        victim = command if number % 2 else psutil.Process(psutil.Process(script).ppid())
        victim.kill()
        out, err = process.communicate(timeout=120)
        if number % 2:
            assert process.returncode == 1
            assert "was ended" in err
        else:
            assert json.loads(out)["data"]["exit_code"] == 137
        wait_until(lambda pid=script: not psutil.pid_exists(pid))
        assert served.run(*ONE)[0] == 0
    wait_until(lambda: not served.server.children())


@pytest.mark.slow
def test_thirty_callers_at_once_are_all_served(served: Served) -> None:
    expressions = [f"{number} * 7" for number in range(30)]
    with ThreadPoolExecutor(30) as threads:
        done = list(
            threads.map(
                lambda it: served.run("call", "calculator", "--json", json.dumps({"expression": it})), expressions
            )
        )
    assert [one for one in done if one[0] != 0] == []
    assert [json.loads(out)["data"]["value"] for _, out, _ in done] == [number * 7 for number in range(30)]


@pytest.mark.slow
def test_one_that_does_not_answer_in_time_never_runs_what_its_caller_then_runs(served: Served) -> None:
    server = served.server
    server.suspend()
    try:
        assert served.run("memory", "save", "twice", "1", env={"ANSWER": "1"})[0] == NOT_FORWARDED
    finally:
        server.resume()
    wait_until(lambda: not server.children())
    assert served.run("memory", "get", "twice")[0] == 1
    assert served.run("memory", "save", "twice", "2")[1] == "saved twice (version 1)\n"


# The last of this file: the process that the tests share ends by it.
@pytest.mark.slow
def test_where_its_socket_was_removed_commands_run_without_it(served: Served) -> None:
    assert served.run(*ONE)[0] == 0
    process = served.server
    next(served.place.glob("home/warm/cli*/socket")).unlink()
    assert served.run(*ONE)[0] == NOT_FORWARDED
    wait_until(lambda: not process.is_running())
