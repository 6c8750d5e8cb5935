"""A workbench with tools that leave a trace, in a folder of its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.contract.tool import tool
from nbtools.errors import ExecutionFailed
from nbtools.kernels import FakeKernels
from tests.conftest import stays_in_its_process, wait_until


@tool(read_only=True)
def look(value: Any = None) -> Any:
    """Return a value."""
    return value


@tool
def note(path: str, line: str, wait_s: float = 0.0, lines: int = 0) -> str:
    """Append a line to a file, and wait: some time, and until others have written so many lines in all."""
    with Path(path).open("a") as handle:
        handle.write(f"{line}\n")
    time.sleep(wait_s)
    wait_until(lambda: len(Path(path).read_text().splitlines()) >= lines)
    return line


@tool(destructive=True)
def wreck(path: str, line: str) -> str:
    """Append a line to a file, as a destructive tool would."""
    with Path(path).open("a") as handle:
        handle.write(f"{line}\n")
    return line


@tool(idempotent=True)
def fail_until(path: str, times: int) -> int:
    """Fail the first times."""
    with Path(path).open("a") as handle:
        handle.write("x")
    tried = len(Path(path).read_text())
    if tried <= times:
        raise ExecutionFailed(f"attempt {tried} fails")
    return tried


TOOLS = (look, note, wreck, fail_until)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def kernels(request):
    """What runs the code of steps: this process where a test may start no other, else the workbench's own kernels."""
    if not stays_in_its_process(request.node):
        yield None
        return
    with FakeKernels() as opened:
        yield opened


@pytest.fixture
def open_wb(tmp_path, folder, kernels):
    """Return a function that opens a workbench with these tools and more."""

    def open_one(*tools, **options):
        options = {"home": tmp_path / "home", "memory_url": ":memory:", **options}
        return Workbench(allowed_paths=[folder], kernels=kernels, tools=(*TOOLS, *tools), **options)

    return open_one


@pytest.fixture
def wb(open_wb):
    with open_wb() as made:
        yield made
