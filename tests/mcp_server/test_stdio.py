"""The wire of standard input and output, line by line: what a client may send, and how it may leave."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.races

SERVER = """
    import os, subprocess, sys, time
    from nbtools.mcp_server import serve_stdio
    from nbtools.contract.tool import tool
    from nbtools.assembly.workbench import Workbench

    @tool(read_only=True)
    def chatter() -> str:
        '''Write wherever a tool can.'''
        print("by print", flush=True)
        os.write(1, b"by descriptor\\n")
        subprocess.run(["echo", "by a child"])
        return f"read {sys.stdin.read()!r}"

    @tool(read_only=True)
    def repeat(text: str, times: int) -> str:
        '''Say it again.'''
        return text * times

    @tool(read_only=True)
    def half() -> str:
        '''Return half a character.'''
        return "\\ud83d"

    @tool(read_only=True)
    def sleep(seconds: float) -> str:
        '''Do nothing, in a thread.'''
        time.sleep(seconds)
        return "slept"

    with Workbench(memory_url=":memory:", tools=[chatter, repeat, half, sleep]) as bench:
        serve_stdio(bench)
    print("after the wire")
"""
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def line(method, number=None, **params):
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if number is None else {**message, "id": number}).encode() + b"\n"


def call(number, tool, **arguments):
    return line("tools/call", number, name=tool, arguments=arguments)


OPENING = line("initialize", 0, **HELLO) + line("notifications/initialized")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server for all tests that do not end it."""
    with started(tmp_path_factory.mktemp("server")) as process:
        yield process


@pytest.fixture
def own_server(tmp_path):
    with started(tmp_path) as process:
        yield process


@contextlib.contextmanager
def started(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"NBTOOLS_HOME": str(tmp_path)},
        cwd=tmp_path,
    )
    process.stdin.write(OPENING)
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "nbtools"
    yield process
    process.kill()
    process.wait(20)
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()


def send(server, *lines):
    server.stdin.write(b"".join(lines))
    server.stdin.flush()


def answers(server, count):
    """Return the next answers by the id of their calls."""
    read = [json.loads(server.stdout.readline()) for _ in range(count)]
    return {found["id"]: found.get("result", found.get("error")) for found in read}


def texts(server, count):
    return {number: found["content"][0]["text"] for number, found in answers(server, count).items()}


def test_what_a_tool_writes_and_reads_misses_the_wire(own_server):
    send(own_server, call(1, "chatter"), call(2, "repeat", text="a", times=3))
    assert texts(own_server, 2) == {1: "read ''", 2: "aaa"}
    own_server.stdin.close()
    assert own_server.stdout.read() == b"after the wire\n", "the descriptors are given back"
    said = own_server.stderr.read()
    assert all(words in said for words in (b"by print", b"by descriptor", b"by a child"))
    assert own_server.wait(20) == 0


@pytest.mark.parametrize("junk", [b"no json\n", b"\n", b"[]\n", b'{"jsonrpc": "2.0"\n', b"\xff\xfe\n"])
def test_a_line_that_is_no_message_does_not_stop_the_next(server, junk):
    send(server, junk, call(1, "repeat", text="a", times=1))
    assert texts(server, 1) == {1: "a"}


def test_bytes_that_are_no_text_come_as_replacement_characters(server):
    send(server, call(1, "repeat", text="@", times=1).replace(b"@", b"a\xffb"))
    assert texts(server, 1) == {1: "a\ufffdb"}


def test_a_long_message_comes_whole_and_so_does_its_answer(server):
    send(server, call(1, "repeat", text="ä" * 3_000_000, times=1))
    assert texts(server, 1) == {1: "ä" * 3_000_000}


def test_messages_may_come_in_pieces_and_together(server):
    whole = call(1, "repeat", text="é", times=1) + call(2, "repeat", text="b", times=2)
    for at in range(len(whole)):
        send(server, whole[at : at + 1])
    assert texts(server, 2) == {1: "é", 2: "bb"}


def test_a_client_that_sends_much_and_reads_late_gets_everything(server):
    # Answers of 20 MB: far more than a pipe holds.
    send(server, *(call(number, "repeat", text="x", times=100_000) for number in range(1, 201)))
    assert {number: len(text) for number, text in texts(server, 200).items()} == dict.fromkeys(range(1, 201), 100_000)


def test_half_a_character_is_answered_and_the_server_lives(server):
    send(server, call(1, "half"), call(2, "repeat", text="a", times=1))
    found = answers(server, 2)
    assert found[1]["content"][0]["text"] == "?"
    assert found[2]["content"][0]["text"] == "a"


def test_a_client_that_stops_reading_ends_the_server(own_server):
    own_server.stdout.close()
    send(own_server, *(call(number, "repeat", text="x", times=100_000) for number in range(1, 5)))
    assert own_server.wait(30) is not None


def test_files_and_devices_serve_as_well(tmp_path):
    (tmp_path / "in").write_bytes(OPENING + call(1, "repeat", text="a", times=2))
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as taken:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(SERVER)],
            stdin=given,
            stdout=taken,
            stderr=subprocess.PIPE,
            env=os.environ | {"NBTOOLS_HOME": str(tmp_path)},
            cwd=tmp_path,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    first, *_ = (tmp_path / "out").read_bytes().splitlines()
    assert json.loads(first)["result"]["serverInfo"]["name"] == "nbtools"


@pytest.mark.slow
def test_a_client_that_leaves_in_the_middle_of_a_call_ends_the_server(own_server):
    send(own_server, call(1, "sleep", seconds=600), call(2, "repeat", text="a", times=1))
    assert texts(own_server, 1) == {2: "a"}, "a call that takes its time holds up no other"
    own_server.stdin.close()
    assert own_server.wait(30) == 0
