"""A real JupyterLab and a real Chromium, both on this machine alone.

The server has folders of its own, so nobody's settings are read or written. The browser aborts, and reports, every
request that would leave loopback: that is how a reference to a CDN is caught.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

from tests.conftest import free_port, wait_until

pytest.register_assert_rewrite("tests.browser.bare")  # its failures tell the difference

_ARGUMENTS = [
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--force-color-profile=srgb",
]
_MOST_S = 300  # for one test; the longest takes 40 on a quiet machine
_END_S = 30  # for its end, once nothing runs any more
_ABROAD = re.compile(r"^(https?|wss?)://(?!(127\.0\.0\.1|localhost)[:/])")  # all else goes on without this process


def _absent(what: str) -> NoReturn:
    """Skip where a person runs the tests, fail where nothing may be skipped."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing")
    pytest.skip(f"{what} is not installed")


@pytest.fixture(scope="session")
def chromium() -> str:
    for module in ("playwright", "jupyterlab"):
        if importlib.util.find_spec(module) is None:
            _absent(module)
    found = os.environ.get("CHROMIUM") or next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    return found or _absent("Chromium")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lab:
    """A running server."""

    url: str
    token: str
    root: Path
    place: str  # of notebooks


@pytest.fixture(scope="module")
def _browsers(chromium: str) -> Iterator[Callable[[], Any]]:
    """Return what gives Chromium, once for all tests of a module, or another where a test had to be ended."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        launched: list[Any] = []

        def running() -> Any:
            if not launched or not launched[-1].is_connected():
                launched.append(driver.chromium.launch(executable_path=chromium, headless=True, args=_ARGUMENTS))
            return launched[-1]

        yield running
        for each in launched:
            each.close()


@pytest.fixture
def browser(_browsers: Callable[[], Any]) -> Any:
    return _browsers()


def end_children() -> None:
    """End all that this process started but Playwright's driver: whatever a test waits for fails then."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if not child.name().startswith("node") or child.ppid() != os.getpid():
                child.kill()


@pytest.fixture(autouse=True)
def _ends_in_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that takes too long, under its name. A wait in a page itself has no limit of Playwright's.

    Should the test go on without a browser and a server too, its process ends, which xdist tells with the test's name.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        end_children()
        if not ended.wait(_END_S):
            os.write(2, f"{request.node.nodeid} took more than {_MOST_S + _END_S} s\n".encode())
            os._exit(1)

    ended = threading.Event()
    timer = threading.Timer(_MOST_S, end)
    timer.daemon = True
    timer.start()
    yield
    ended.set()
    timer.cancel()
    assert not late.is_set(), f"it took more than {_MOST_S} s"


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Open an empty page, and fail when anything on it was reported as an error."""
    made = browser.new_page()
    made.set_default_timeout(60_000)
    problems: list[str] = []
    made.on("pageerror", lambda problem: problems.append(str(problem)))
    made.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    yield made
    made.close()
    assert problems == []


_DEFAULTS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}


def _wait_until_it_answers(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    def answers() -> bool:
        assert server.poll() is None, f"the server ended: {log.read_text(errors='replace')[-2_000:]}"
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=2).read()
            return True
        return False

    wait_until(answers)


class _Server:
    """JupyterLab, which has Notebook 7 beside it; that of another Python where a variable names one."""

    def __init__(self, base: Path, home: Path) -> None:
        self.base, self.home, self.python = base, home, os.environ.get("LAB_PYTHON", sys.executable)
        (home / "config" / "labconfig").mkdir(parents=True)
        (home / "config" / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(_DEFAULTS))
        port, self.token, self.url = free_port(), secrets.token_hex(16), ""
        options = [
            "--no-browser",
            "--allow-root",
            "--LabApp.expose_app_in_browser=True",
            "--JupyterNotebookApp.expose_app_in_browser=True",
            "--ip=127.0.0.1",
            f"--port={port}",
            "--ServerApp.port_retries=0",
            f"--IdentityProvider.token={self.token}",
            f"--ServerApp.root_dir={base}",
            "--LabApp.news_url=",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]
        folders = ("config", "data", "runtime")
        named = {f"JUPYTER_{each.upper()}_DIR": each for each in folders} | {"HOME": "user"}
        named |= {"JUPYTER_PATH": "data"}  # first, before the kernels of the environment
        named |= {f"JUPYTERLAB_{each.upper()}_DIR": each for each in ("settings", "workspaces")}
        log = home / "server.log"
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [self.python, "-m", "jupyterlab", *options],
                env={**os.environ, **{name: str(home / folder) for name, folder in named.items()}},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.url = f"http://127.0.0.1:{port}"
        _wait_until_it_answers(self.process, f"{self.url}/api/status?token={self.token}", log)

    def set_up(self, home: Path, theme: str) -> None:
        """Show what comes in a theme, and give the kernels that come a home of their own."""
        settings = self.home / "settings" / "@jupyterlab" / "apputils-extension" / "themes.jupyterlab-settings"
        settings.parent.mkdir(parents=True, exist_ok=True)
        name = f"JupyterLab {'Dark' if theme == 'dark' else 'Light'}"
        settings.write_text(json.dumps({"theme": name, "adaptive-theme": False}))
        folders = {"HOME": "user", "IPYTHONDIR": "ipython", "NBTOOLS_HOME": "nbtools"}
        environment = {name: value for name, value in os.environ.items() if name.startswith("NBTOOLS_")}
        environment |= {name: str(home / folder) for name, folder in folders.items()}
        (home / "user").mkdir()
        kernel = self.home / "data" / "kernels" / "python3" / "kernel.json"
        kernel.parent.mkdir(parents=True, exist_ok=True)
        argv = [self.python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "env": environment, "display_name": "Python 3", "language": "python"}
        kernel.write_text(json.dumps(spec))

    def end_kernels(self) -> None:
        """End what a test left, where the server still runs."""
        kernels = f"{self.url}/api/kernels"
        with contextlib.suppress(OSError):
            for each in json.load(urllib.request.urlopen(f"{kernels}?token={self.token}", timeout=60)):
                ending = urllib.request.Request(f"{kernels}/{each['id']}?token={self.token}", method="DELETE")
                urllib.request.urlopen(ending, timeout=60).close()

    def end(self) -> None:
        # The group is ours alone; a polite end lets the server shut its kernels down.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(scope="session")
def _servers(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], _Server]]:
    """Return what gives a server, once for all tests, or another where a test had to be ended."""
    begun: list[_Server] = []

    def running() -> _Server:
        if not begun or begun[-1].process.poll() is not None:
            begun.append(_Server(tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp("server")))
        return begun[-1]

    yield running
    for each in begun:
        each.end()


@pytest.fixture(params=["light", "dark"])
def lab(request: pytest.FixtureRequest, _servers: Callable[[], _Server], tmp_path: Path) -> Iterator[Lab]:
    """Give JupyterLab in a theme, or Notebook 7 in its own, with a folder for the notebooks of one test."""
    place = "notebooks" if request.param == "notebook" else "doc/tree"
    if place == "notebooks" and importlib.util.find_spec("notebook") is None:
        _absent("notebook")
    server = _servers()
    server.set_up(tmp_path, request.param)
    root = tmp_path / "root"
    root.mkdir()
    yield Lab(url=server.url, token=server.token, root=root, place=f"{place}/{root.relative_to(server.base)}")
    server.end_kernels()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Notebook:
    """A notebook that is open in the browser."""

    page: Any
    abroad: list[str]

    def run_all(self) -> None:
        """Run every cell through JupyterLab itself, and wait for the last answer."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        self.page.wait_for_function(
            """() => window.tested.content.widgets
                .filter(cell => cell.model.type === 'code' && cell.model.sharedModel.getSource().trim())
                .every(cell => cell.model.executionCount !== null)""",
            timeout=90_000,
        )


@pytest.fixture
def open_notebook(lab: Lab, browser: Any) -> Iterator[Any]:
    """Return a function that opens a notebook of the server's folder and waits for its kernel."""
    abroad: list[str] = []

    def guard(route: Any) -> None:
        abroad.append(route.request.url)
        route.abort()

    context = browser.new_context(viewport={"width": 1200, "height": 1700}, device_scale_factor=2)
    context.route(_ABROAD, guard)
    page = context.new_page()
    page.set_default_timeout(60_000)

    def opened(name: str) -> Notebook:
        page.goto(f"{lab.url}/{lab.place}/{name}?token={lab.token}&reset", wait_until="domcontentloaded")
        page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.wait_for_function(
            """() => {
                const found = [...window.jupyterapp.shell.widgets('main')].find(each => each.sessionContext);
                window.tested = found;
                const kernel = found && found.sessionContext.session && found.sessionContext.session.kernel;
                return kernel && kernel.status === 'idle' && kernel.connectionStatus === 'connected';
            }"""
        )
        return Notebook(page=page, abroad=abroad)

    try:
        yield opened
    finally:
        with contextlib.suppress(Exception):  # it is gone where the test was ended
            context.close()
