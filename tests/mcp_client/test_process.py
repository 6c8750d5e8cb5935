"""A server that is started for a connection: how it is ended, and what it may write."""

from __future__ import annotations

import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from nbtools.contract.tool import ToolCall
from nbtools.contract.wire import mcp_lines
from nbtools.errors import NetworkError
from nbtools.mcp_client import McpExecutor

pytestmark = pytest.mark.processes

SERVER = """
import json, os, signal, subprocess, sys

def answer(asked, **result):
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)

def serve():
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("method") == "initialize":
            info = {"name": "plain", "version": "1"}
            answer(asked, protocolVersion="2025-06-18", capabilities={"tools": {}}, serverInfo=info)
        elif asked.get("method") == "tools/list":
            answer(asked, tools=[{"name": "long", "inputSchema": {"type": "object"}}])
        elif asked.get("method") == "tools/call":
            answer(asked, content=[{"type": "text", "text": "ä" * 2_000_000}])
        elif "id" in asked:
            error = {"code": -32601, "message": "unknown"}
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)

"""


def started(tmp_path, text):
    path = tmp_path / "server.py"
    path.write_text(textwrap.dedent(SERVER) + textwrap.dedent(text), encoding="utf-8")
    executor = McpExecutor("plain", {"command": sys.executable, "args": [str(path)], "trusted": True})
    before = set(psutil.Process().children())
    executor.connect()
    return executor, list(set(psutil.Process().children()) - before)


def is_gone(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


MANNERS = {
    "polite": "serve()",
    "slow to leave": "serve()\nimport time\ntime.sleep(600)",
    "deaf": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nserve()\nimport time\ntime.sleep(600)",
}


@pytest.mark.slow
def test_a_server_is_gone_after_its_connection_however_it_behaves(tmp_path):
    servers = {}
    for name, manners in MANNERS.items():
        (tmp_path / name).mkdir()
        servers[name] = started(tmp_path / name, manners)
        assert len(servers[name][1]) == 1

    def is_gone_when_closed(name):
        executor, processes = servers[name]
        executor.close()
        return all(is_gone(process) for process in processes)

    with ThreadPoolExecutor() as threads:
        gone = dict(zip(servers, threads.map(is_gone_when_closed, servers), strict=True))
    assert gone == dict.fromkeys(MANNERS, True)


def test_what_a_server_started_is_ended_with_it(tmp_path):
    executor, (server,) = started(tmp_path, "subprocess.Popen(['sleep', '600'])\nserve()")
    (left,) = server.children()
    executor.close()
    psutil.wait_procs([left], timeout=10)
    assert is_gone(left)


def test_a_long_answer_comes_whole(tmp_path):
    executor, _ = started(tmp_path, "serve()")
    assert executor.call(ToolCall(tool="plain__long")).text == "ä" * 2_000_000
    executor.close()


def test_an_answer_without_end_ends_the_connection_and_not_the_memory(tmp_path, monkeypatch):
    executor, _ = started(tmp_path, "serve()")
    monkeypatch.setattr(mcp_lines.LineReader, "max_bytes", 1_000_000)
    assert executor.call(ToolCall(tool="plain__long")).error.code == "NETWORK_ERROR"
    monkeypatch.undo()
    assert executor.call(ToolCall(tool="plain__long")).ok, "it was started again"
    executor.close()


def test_noise_among_the_answers_is_passed_over(tmp_path):
    executor, _ = started(tmp_path, "print('welcome!\\n\\n[]', flush=True)\nserve()")
    assert executor.call(ToolCall(tool="plain__long")).ok
    executor.close()


def test_a_server_that_leaves_before_it_answers_is_no_server(tmp_path):
    with pytest.raises(NetworkError, match="plain"):
        started(tmp_path, "sys.exit(3)")
