"""The command line, with a home of its own."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return variables that keep a command away from this machine's own settings."""
    # How many libraries are loaded ahead stays: three seconds in each process that runs a script.
    kept = {k: v for k, v in os.environ.items() if k == "NBTOOLS_PRELOADS" or not k.startswith("NBTOOLS_")}
    allowed = os.pathsep.join([str(tmp_path), str(ROOT / "notebooks")])
    # A process with loaded libraries for each test's home would outlive the test.
    return kept | {"NBTOOLS_HOME": str(tmp_path / "home"), "ALLOWED_PATHS": allowed, "NBTOOLS_KERNEL_WARM": "0"}


@pytest.fixture
def memory_file(processes: None) -> None:
    """Say that commands of a test share a memory, so that it lies in a file, and a process keeps it."""


@pytest.fixture
def stop_command(tmp_path: Path, environment: dict[str, str], processes: None) -> Callable[..., Done]:
    """Return a function that runs ``nbtools …``, and presses Ctrl-C once a line of its errors holds `at`."""

    def stop(*arguments: str, at: str) -> Done:
        command = [sys.executable, "-m", "nbtools", *arguments]
        how: dict[str, Any] = {"cwd": tmp_path, "env": environment, "start_new_session": True}
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **how)
        assert process.stderr is not None
        try:
            while at not in process.stderr.readline():
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=60)[1]
        finally:
            process.kill()
        return Done(code=process.returncode, out="", err=rest)

    return stop


@pytest.fixture
def nbtools(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Done]:
    """Return a function that runs ``nbtools …`` within this process, which saves a second each time."""
    from nbtools.cli import main

    if "memory_file" not in request.fixturenames:
        environment = environment | {"NBTOOLS_MEMORY_URL": ":memory:"}

    def run(*arguments: str, stdin: str = "", **variables: str) -> Done:
        with monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("NBTOOLS_")]:
                patch.delenv(name)
            for name, value in (environment | variables).items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            capsys.readouterr()
            try:
                code = main(arguments)
            except SystemExit as exc:
                code = exc.code if isinstance(exc.code, int) else 1
        out, err = capsys.readouterr()
        return Done(code=code, out=out, err=err)

    return run


@pytest.fixture
def nbtools_process(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Done]:
    """Return a function that runs ``nbtools …`` as a person does, in a process of its own."""

    def run(*arguments: str, stdin: str = "", timeout: float = 120, **variables: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "nbtools.cli", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=tmp_path,
            env=environment | variables,
        )
        return Done(code=done.returncode, out=done.stdout, err=done.stderr)

    return run


@pytest.fixture
def penguins() -> str:
    return str(ROOT / "notebooks" / "data" / "penguins.csv")
