"""One process with loaded libraries serves all of a user, and each owner has what a process of its own would have."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from nbtools.jupyter.extension import _load_libraries_ahead
from nbtools.kernels import Kernels
from nbtools.kernels.forked.warm_client import LAST_SCRIPT
from tests.conftest import KILLS, wait_until

pytestmark = [
    pytest.mark.own_zygote,
    pytest.mark.races,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forked kernels need Linux"),
]

# An owner that runs the code it gets line by line, and prints how each ended as JSON.
OWNER = """
import ctypes, json, sys
from pathlib import Path
from nbtools.kernels import Kernels
from nbtools.kernels.forked import warm_client

warm_client._HEAD_START_S = 0
if "does not wait" in sys.argv:
    warm_client._ANSWER_S = 0.2
if "no_new_privs" in sys.argv:
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
with Kernels(home=Path(sys.argv[1]), preloads=("numpy",), warm_s=float(sys.argv[2]), spares=0) as kernels:
    for line in sys.stdin:
        done = kernels.run(json.loads(line))
        told = {"status": done.status, "stdout": done.stdout, "warm": kernels.describe()["warm"]}
        print(json.dumps(told), flush=True)
"""


class Owner:
    """Another process that has kernels."""

    def __init__(self, home: Path, *options: str, warm_s: float = 30, **popen: object) -> None:
        self._home = home
        command = [sys.executable, "-c", OWNER, str(home), str(warm_s), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **popen)

    def begin(self, code: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def result(self) -> dict[str, object]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def run(self, code: str) -> dict[str, object]:
        self.begin(code)
        return self.result()

    def warm_pid(self) -> int:
        """Return the id of the process that has loaded the libraries, once this owner is served by it."""

        def ask() -> str | bool:
            done = self.run("import sys; print('numpy' in sys.modules)")
            return done["stdout"] == "True\n" and str(done["warm"])

        # To ask all the time is to fork a kernel each time, beside what loads.
        return int(ask() or (wait_until(lambda: list(self._home.glob("warm/*/loaded"))) and wait_until(ask)))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Return the home of someone who has run a script lately."""
    (tmp_path / LAST_SCRIPT).touch()
    yield tmp_path
    _kill_warm(tmp_path)


@pytest.fixture
def owner(home: Path) -> Iterator[Callable[..., Owner]]:
    with _owners(home) as start:
        yield start


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the home of a process that tests share: they ask it, and leave it as it is."""
    home = tmp_path_factory.mktemp("home")
    (home / LAST_SCRIPT).touch()
    yield home
    _kill_warm(home)


@pytest.fixture
def shared(shared_home: Path) -> Iterator[Callable[..., Owner]]:
    with _owners(shared_home) as start:
        yield start


@contextlib.contextmanager
def _owners(home: Path) -> Iterator[Callable[..., Owner]]:
    with contextlib.ExitStack() as stack:

        def start(*options: str, **popen: object) -> Owner:
            made = Owner(home, *options, **popen)
            stack.callback(made.close)
            return made

        yield start


def _kill_warm(home: Path) -> None:
    for process in _warm_processes(home):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _warm_processes(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if (
                any(word.startswith(str(home / "warm")) for word in command)
                and "nbtools.kernels.forked.warm" in command
            ):
                found.append(process)
    return found


def _place(home: Path) -> Path:
    """Return the folder of the process with loaded libraries; beside it may be that of the one that runs commands."""
    return next(path for path in home.glob("warm/*") if not path.name.startswith("cli"))


def _env(**more: str) -> dict[str, str]:
    return {**os.environ, **more}


def test_while_libraries_load_scripts_run_without_them(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = home / "packages"
    packages.mkdir()
    go = home / "go"
    (packages / "slowpoke.py").write_text(
        f"import os, time\nend = time.monotonic() + 300\n"
        f"while not os.path.exists({str(go)!r}) and time.monotonic() < end:\n    time.sleep(0.02)"
    )
    monkeypatch.setenv("PYTHONPATH", str(packages))
    look = "import sys; print('slowpoke' in sys.modules)"
    with Kernels(home=home, preloads=("slowpoke",), warm_s=30, spares=1) as kernels:
        kernels.run("kept = 8", session="s")
        first = kernels.run(look).stdout
        go.touch()
        wait_until(lambda: list(home.glob("warm/*/loaded")))
        assert first == "False\n"
        wait_until(lambda: kernels.run(look).stdout == "True\n")
        assert kernels.run("print(kept)", session="s").stdout == "8\n"


@pytest.mark.slow
def test_a_script_that_stays_the_only_one_leaves_no_libraries_waiting(home: Path) -> None:
    (home / LAST_SCRIPT).unlink()
    look = "import sys; print('numpy' in sys.modules)"
    with Kernels(home=home, preloads=("numpy",), warm_s=30, spares=1) as kernels:
        assert kernels.run(look).stdout == "False\n"
        assert (kernels.describe()["warm"], list(home.glob("warm/*")), _warm_processes(home)) == (None, [], [])
        assert kernels.run("1").ok
        wait_until(lambda: list(home.glob("warm/*/loaded")))
        assert kernels.run(look).stdout == "True\n"
    # Another process finds that scripts are run here.
    with Kernels(home=home, preloads=("numpy",), warm_s=30, spares=0) as kernels:
        assert kernels.run(look).stdout == "True\n"


@pytest.mark.slow
def test_libraries_that_cannot_be_forked_with_are_reported_as_ever(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(home))
    (home / "badfork.py").write_text("import os\nos.register_at_fork(after_in_child=lambda: os._exit(3))")
    for _ in range(2):
        with Kernels(home=home, preloads=("badfork",), warm_s=30, spares=0) as kernels:
            assert kernels.run("print(1)").stdout == "1\n"
            told = kernels.describe()
        wait_until(lambda: list(home.glob("warm/*/problem")))
    assert told["backend"] == "spawned"
    assert "badfork" in told["fallback"]


# A function that asks for a zygote as an owner does, and returns why it is refused.
ASK = """
import socket, sys
from nbtools.processes.fd_socket import FdSocket
def ask(path):
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    pipe = FdSocket(line)
    pipe.send({"do": "join", "folder": "/"})
    (answer, *_) = pipe.wait() or [{"refused": ""}]
    line.close()
    return answer["refused"]
"""
LOOK = """
import json, os, resource, sys
print(json.dumps({
    "mine": os.environ.get("MINE"), "path": os.environ["PATH"], "umask": os.umask(0), "nice": os.nice(0),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE), "loaded": "numpy" in sys.modules,
    "seen": "MINE" in open("/proc/self/environ").read(), "processors": sorted(os.sched_getaffinity(0)),
}))
"""


def test_owners_share_it_and_each_has_its_own_environment_and_limits(shared: Callable[..., Owner]) -> None:
    def limit() -> None:
        os.umask(0o027)
        os.nice(3)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 600))

    one = shared(env=_env(MINE="secret of one"))
    two = shared(env=_env(PATH=f"/opt/two:{os.environ['PATH']}"), preexec_fn=limit)
    assert one.warm_pid() == two.warm_pid() != one.process.pid
    first, second = one.run(LOOK), two.run(LOOK)
    seen, other = json.loads(str(first["stdout"])), json.loads(str(second["stdout"]))
    assert seen["loaded"]
    assert (seen["mine"], other["mine"]) == ("secret of one", None)
    assert not seen["seen"]
    assert not other["seen"]
    assert other["path"].startswith("/opt/two:")
    assert not seen["path"].startswith("/opt/two:")
    assert (other["umask"], other["nice"] - seen["nice"], other["files"][1]) == (0o027, 3, 600)
    assert (seen["umask"], seen["files"][1]) != (0o027, 600)
    assert len(other["processors"]) == 1


@pytest.mark.slow
def test_pages_of_libraries_that_only_loading_needed_are_given_back(home: Path) -> None:
    draw = "import os, pandas as pd\npd.DataFrame({'a': [1.5, 2]}).plot()\nprint(os.getppid())"
    with Kernels(home=home, preloads=("pandas", "matplotlib"), warm_s=0, spares=0) as kernels:
        kept = Path(f"/proc/{int(kernels.run(draw).stdout)}/status").read_text()
    # The code that was mapped is some 75 MB; what the kernel needed of it, it got.
    assert int(next(line.split()[1] for line in kept.splitlines() if line.startswith("RssFile:"))) < 25_000


def _wait_for(path: Path) -> str:
    """Return code that waits until there is a file."""
    return f"import os, time\nwhile not os.path.exists({str(path)!r}): time.sleep(0.01)"


def test_the_death_of_an_owner_ends_its_kernels_and_no_others(shared: Callable[..., Owner], tmp_path: Path) -> None:
    lives, dies = shared(), shared()
    assert lives.warm_pid() == dies.warm_pid()
    files, go = [tmp_path / "a", tmp_path / "b"], tmp_path / "go"
    for who, file in ((lives, files[0]), (dies, files[1])):
        who.begin(f"import os\nopen({str(file)!r}, 'w').write(str(os.getpid()))\n{_wait_for(go)}\nprint('done')")
    pids = [int(wait_until(lambda f=file: f.exists() and f.read_text())) for file in files]
    dies.close()
    wait_until(lambda: not psutil.pid_exists(pids[1]))
    assert psutil.pid_exists(pids[0])
    go.touch()
    assert lives.result()["stdout"] == "done\n"


@pytest.mark.slow
def test_its_own_death_ends_no_script_and_the_next_owner_starts_another_as_for_one_without_its_socket(
    owner: Callable[..., Owner], home: Path, tmp_path: Path
) -> None:
    one = owner()
    pid = one.warm_pid()
    one.begin(f"open({str(tmp_path / 'on')!r}, 'w')\n{_wait_for(tmp_path / 'go')}\nprint('done')")
    wait_until((tmp_path / "on").exists)
    os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert one.result()["stdout"] == "done\n"
    assert one.run("print(2)")["stdout"] == "2\n"
    two = owner()
    done = two.run("print(3)")
    assert done["stdout"] == "3\n"
    assert done["warm"] not in (None, pid)
    second = two.warm_pid()
    (_place(home) / "socket").unlink()
    assert owner().run("1")["warm"] not in (None, second)
    wait_until(lambda: not psutil.pid_exists(second))


def test_one_that_does_not_answer_is_done_without(shared: Callable[..., Owner]) -> None:
    pid = shared().warm_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        done = shared("does not wait").run("print(4)")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (done["stdout"], done["warm"]) == ("4\n", None)


@pytest.mark.slow
def test_changed_packages_start_another(owner: Callable[..., Owner], tmp_path: Path) -> None:
    packages, project = tmp_path / "packages", tmp_path / "project"
    project.mkdir()
    (packages / "old-1.dist-info").mkdir(parents=True)
    env = _env(PYTHONPATH=f"{packages}:{project}")
    pid = owner(env=env).warm_pid()
    # A project's own files are not packages: whatever is written there, the libraries stay loaded.
    (project / "notes.py").write_text("y = 6")
    done = owner(env=env).run("import notes; print(notes.y)")
    assert (done["stdout"], done["warm"]) == ("6\n", pid)
    (packages / "fresh.py").write_text("x = 7")
    done = owner(env=env).run("import fresh; print(fresh.x)")
    assert done["stdout"] == "7\n"
    assert done["warm"] not in (None, pid)


def test_an_owner_with_fewer_rights_is_not_served(shared: Callable[..., Owner]) -> None:
    shared().warm_pid()
    done = shared("no_new_privs").run("print(open('/proc/self/status').read().split('NoNewPrivs:')[1].split()[0])")
    assert done["status"] == "ok"
    assert done["warm"] is None


def test_who_has_less_memory_than_the_libraries_take_is_not_served(shared: Callable[..., Owner]) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (size, size))

    warm = psutil.Process(shared().warm_pid())
    size = warm.memory_info().vms + (440 << 20)
    done = shared(preexec_fn=limit).run("import resource; print(resource.getrlimit(resource.RLIMIT_AS)[0])")
    assert (done["status"], done["stdout"], done["warm"]) == ("ok", f"{size}\n", None)


@pytest.mark.slow
def test_it_leaves_when_nobody_uses_it_and_who_is_refused_does_not_keep_it(
    owner: Callable[..., Owner], home: Path
) -> None:
    one = owner(warm_s=0.7)
    warm = psutil.Process(one.warm_pid())
    time.sleep(1.4)
    assert warm.is_running(), "it is in use"
    one.close()
    # Asks far more often than once in the time after which an unused process leaves.
    code = f"""
import ctypes, time
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
{ASK}
refused, end = 0, time.monotonic() + 60
while time.monotonic() < end:
    try:
        refused += "rights differ" in ask(sys.argv[1])
    except OSError:
        break
    time.sleep(0.1)
print(refused)
"""
    told = subprocess.check_output([sys.executable, "-c", code, _place(home) / "socket"], text=True, timeout=50)
    assert int(told) >= 3
    wait_until(lambda: not warm.is_running())
    wait_until(lambda: not _warm_processes(home))
    assert owner("no_new_privs").run("1")["warm"] not in (None, warm.pid), "the next process is one that serves them"


def test_an_environment_has_one_process_whatever_its_interpreter_is_called(tmp_path: Path) -> None:
    code = "from nbtools.kernels.forked.sameness import commands_place; from pathlib import Path; "
    code += "print(commands_place(Path('home')))"
    other = Path(sys.executable).with_name(f"python{sys.version_info.major}.{sys.version_info.minor}")
    other = other if other.exists() else Path(sys.executable)
    notebook = _env(MPLBACKEND="module://matplotlib_inline.backend_inline")
    places = {
        subprocess.check_output([name, "-c", code], env=env, cwd=tmp_path)
        for name, env in ((sys.executable, _env()), (other, _env()), (sys.executable, notebook))
    }
    assert len(places) == 1
    assert subprocess.check_output([sys.executable, "-c", code], env=_env(MPLBACKEND="svg"), cwd=tmp_path) not in places


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_open_it_and_is_refused_where_he_can(
    shared: Callable[..., Owner], shared_home: Path
) -> None:
    shared().warm_pid()
    place = _place(shared_home)
    # In its folder and loaded before: another user may not pass the folders above, nor read the interpreter's own.
    code = f"{ASK}\nimport os; os.setgroups([]); os.setgid(65534); os.setuid(65534)\nprint(ask('socket'))"

    def ask() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=False)

    assert "PermissionError" in ask().stderr
    before = {each: stat.S_IMODE(each.stat().st_mode) for each in (place, place / "socket")}
    try:
        for each in before:
            each.chmod(0o777)
        told = ask()
    finally:
        for each, mode in before.items():
            each.chmod(mode)
    assert "another user's" in told.stdout, told.stderr


def test_a_folder_that_others_may_write_to_is_not_used(shared: Callable[..., Owner], shared_home: Path) -> None:
    shared().warm_pid()
    place = _place(shared_home)
    place.chmod(0o777)
    try:
        assert shared().run("1")["warm"] is None
    finally:
        place.chmod(0o700)


def test_a_strict_script_cannot_reach_it(shared_home: Path) -> None:
    with Kernels(home=shared_home, preloads=("numpy",), warm_s=30, spares=0) as kernels:
        assert kernels.run("1").status == "ok"
        assert kernels.describe()["warm"]
        path = str(_place(shared_home) / "socket")
        code = f"import socket\nwith socket.socket(socket.AF_UNIX) as s:\n    s.connect({path!r})\nprint('reached')"
        assert "reached" not in kernels.run(code, sandbox="strict").stdout


def test_a_notebook_has_the_libraries_loaded_where_scripts_were_run_before(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBTOOLS_HOME", str(home))
    monkeypatch.setenv("NBTOOLS_PRELOADS", "numpy")
    assert _load_libraries_ahead() is None
    monkeypatch.setenv("NBTOOLS_KERNEL_WARM", "30")
    assert _load_libraries_ahead() is None
    (home / "warm").mkdir(mode=0o700)
    helper = _load_libraries_ahead()
    assert helper is not None
    assert helper.wait(30) == 0
    wait_until(lambda: list(home.glob("warm/*/loaded")))
    # The one that served while they were loaded hands over, and leaves; beside it is the one that runs commands.
    wait_until(lambda: len(_warm_processes(home)) == 2)
    with Kernels(home=home, preloads=("numpy",), warm_s=30, spares=0) as kernels:
        assert kernels.run("1").ok
        told = wait_until(lambda: (facts := kernels.describe())["commands"] and facts)
    # Whoever asks for its number is answered by a fork that ends at once.
    both = {told["warm"], told["commands"]}
    wait_until(lambda: both == {process.pid for process in _warm_processes(home)})


@pytest.mark.slow
def test_kills_in_mid_script_end_no_script_and_stop_no_later_one(
    owner: Callable[..., Owner], home: Path, tmp_path: Path
) -> None:
    for number in range(KILLS):
        one, go, on = owner(), tmp_path / f"go{number}", tmp_path / f"on{number}"
        one.begin(f"import os\nopen({str(on)!r}, 'w').write(str(os.getpid()))\n{_wait_for(go)}\nprint('done')")
        script = psutil.Process(int(wait_until(lambda on=on: on.exists() and on.read_text())))
        # What loads, what has loaded, and what runs commands; the script's own zygote is the owner's.
        for process in _warm_processes(home):
            if process.pid not in (script.pid, script.ppid()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        go.touch()
        assert one.result()["stdout"] == "done\n"
        assert one.run("print(2)")["stdout"] == "2\n"
        one.close()


@pytest.mark.slow
def test_thirty_owners_at_once_get_one(owner: Callable[..., Owner], home: Path) -> None:
    owners = [owner() for _ in range(30)]
    with ThreadPoolExecutor(30) as threads:
        results = list(threads.map(lambda one: one.run("print(6 * 7)"), owners))
    assert {result["stdout"] for result in results} == {"42\n"}
    # The one that has no libraries yet, and the one that has.
    assert 1 <= len({result["warm"] for result in results} - {None}) <= 2
    # The one that has loaded, the one for commands, and a zygote of each owner; a kernel that has answered ends.
    wait_until(lambda: len(_warm_processes(home)) <= 2 + len(owners))
