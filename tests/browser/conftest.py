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
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

from tests.conftest import wait_until

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
_LOOPBACK = {"127.0.0.1", "localhost"}


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
    made.set_default_timeout(20_000)
    problems: list[str] = []
    made.on("pageerror", lambda problem: problems.append(str(problem)))
    made.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    yield made
    made.close()
    assert problems == []


def _settings(config: Path, theme: str) -> None:
    folder = config / "labconfig"
    folder.mkdir(parents=True)
    overrides = {
        "@jupyterlab/apputils-extension:themes": {
            "theme": f"JupyterLab {'Dark' if theme == 'dark' else 'Light'}",
            "adaptive-theme": False,
        },
        "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
        "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
        "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
    }
    (folder / "default_setting_overrides.json").write_text(json.dumps(overrides), encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_it_answers(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    def answers() -> bool:
        assert server.poll() is None, f"the server ended: {log.read_text(errors='replace')[-2_000:]}"
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=2).read()
            return True
        return False

    wait_until(answers)


@contextlib.contextmanager
def _serving(home: Path, theme: str) -> Iterator[Lab]:
    """Serve JupyterLab in a theme, or Notebook 7 in its own; that of another Python where a variable names one."""
    module, place = ("notebook", "notebooks") if theme == "notebook" else ("jupyterlab", "doc/tree")
    if importlib.util.find_spec(module) is None:
        _absent(module)
    root = home / "root"
    root.mkdir()
    _settings(home / "config", theme)
    named = {
        "HOME": "user",
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
        "NBTOOLS_HOME": "nbtools",
    }
    environment = {**os.environ, **{name: str(home / folder) for name, folder in named.items()}}
    (home / "user").mkdir()
    port, token, log = _free_port(), secrets.token_hex(16), home / "server.log"
    options = [
        "--no-browser",
        "--allow-root",
        "--expose-app-in-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={root}",
        "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    with log.open("wb") as out:
        server = subprocess.Popen(
            [os.environ.get("LAB_PYTHON", sys.executable), "-m", module, *options],
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_it_answers(server, f"{url}/api/status?token={token}", log)
        yield Lab(url=url, token=token, root=root, place=place)
    finally:
        # The group is ours alone; a polite end lets the server shut its kernels down.
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


@pytest.fixture(params=["light", "dark"])
def lab(request: pytest.FixtureRequest, chromium: str, tmp_path: Path) -> Iterator[Lab]:
    with _serving(tmp_path, request.param) as running:
        yield running


@dataclasses.dataclass(frozen=True, kw_only=True)
class Notebook:
    """A notebook that is open in the browser."""

    page: Any
    abroad: list[str]

    def run_all(self, *, timeout_s: float = 90) -> None:
        """Run every cell through JupyterLab itself, and wait for the last answer."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        self.page.wait_for_function(
            """() => window.tested.content.widgets
                .filter(cell => cell.model.type === 'code' && cell.model.sharedModel.getSource().trim())
                .every(cell => cell.model.executionCount !== null)""",
            timeout=1000 * timeout_s,
        )


@pytest.fixture
def open_notebook(lab: Lab, browser: Any) -> Iterator[Any]:
    """Return a function that opens a notebook of the server's folder and waits for its kernel."""
    abroad: list[str] = []

    def guard(route: Any) -> None:
        host = re.sub(r"^\w+://([^/:]+).*", r"\1", route.request.url)
        if host in _LOOPBACK:
            route.continue_()
        else:
            abroad.append(route.request.url)
            route.abort()

    context = browser.new_context(viewport={"width": 1200, "height": 1700}, device_scale_factor=2)
    context.route(re.compile(r"^(https?|wss?)://"), guard)
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
