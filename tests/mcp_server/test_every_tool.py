"""The official client calls every tool of the shelf, on a server as people start it, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import os
import subprocess
import sys
import threading

import jsonschema
import pytest
import requests
from mcp import types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

pytestmark = [pytest.mark.processes, pytest.mark.slow]
PAGE = b"<html><head><title>Birds</title></head><body><p>Penguins swim.</p></body></html>"


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def page():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join(10)


@contextlib.contextmanager
def served(transport, folder):
    """Start `nbtools mcp` in a folder and yield what the official client connects to."""
    keys = {name for name in os.environ if name.startswith(("SERPER", "TAVILY", "NBTOOLS_"))}
    environment = {name: value for name, value in os.environ.items() if name not in keys} | {
        "NBTOOLS_HOME": str(folder / "home"),
        "NBTOOLS_ALLOW_PRIVATE": "1",
        "ALLOWED_COMMANDS": "echo",
    }
    command = [sys.executable, "-m", "nbtools.cli", "mcp"]
    if transport == "stdio":
        yield stdio_client(
            StdioServerParameters(command=command[0], args=command[1:], env=environment, cwd=str(folder))
        )
        return
    process = subprocess.Popen(
        [*command, "--http", "0", "--no-token"], env=environment, cwd=folder, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process.stderr.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


def test_an_empty_variable_is_no_token_but_none_given(tmp_path):
    """`NBTOOLS_MCP_TOKEN=` in an env file must not open the door."""
    environment = {**os.environ, "NBTOOLS_HOME": str(tmp_path / "home"), "NBTOOLS_MCP_TOKEN": " "}
    command = [sys.executable, "-m", "nbtools.cli", "mcp", "--http", "0"]
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        try:
            address = process.stderr.readline().split()[-1]
            assert requests.post(address, json={}, timeout=20).status_code == 401
        finally:
            process.terminate()


def calls(page):
    """Return each tool with arguments that work, in an order in which they work."""
    yield "memory_save", {"key": "birds/note", "value": {"swims": True}, "tags": ["birds"]}
    yield "memory_retrieve", {"key": "birds/note"}
    yield "memory_search", {"query": "birds"}
    yield "memory_delete", {"key": "birds/note"}
    yield "memory", {"command": "create", "path": "/memories/a.txt", "file_text": "hello"}
    yield "dataframe_to_csv", {"data": [{"x": 1, "y": 2}, {"x": 2, "y": 4}], "path": "t.csv"}
    script = "print(open(input_file_path).read())"
    yield "data_analyze", {"input_file_path": "t.csv", "analysis_script": script, "session": "counted"}
    yield "session_keep", {"session": "counted"}
    drawing = "import pandas as pd; pd.read_csv(input_file_path).plot(x='x').figure.savefig(output_image_path)"
    yield (
        "data_visualize",
        {"input_file_path": "t.csv", "visualization_script": drawing, "output_image_path": "t.png"},
    )
    yield "code_execute", {"code": "print(6 * 7)", "session": "counted"}
    yield "session_fork", {"session": "counted", "copy": "attempt"}
    yield "session_undo", {"session": "counted"}
    yield "sql_query", {"query": "select sum(y) as s from 't.csv'"}
    yield "file_write", {"path": "a.txt", "content": "hello"}
    yield "file_read", {"path": "a.txt"}
    yield "file_glob", {"pattern": "*.txt"}
    yield "file_list", {"path": "."}
    yield "file_move", {"source": "a.txt", "dest": "b.txt"}
    yield "file_delete", {"path": "b.txt"}
    yield "json_parse", {"json_string": '{"a": [1]}'}
    yield "yaml_parse", {"yaml_string": "a: [1]"}
    yield "web_search", {"query": "penguins"}
    yield "web_scrape", {"url": page}
    yield "http_client", {"method": "GET", "url": page}
    yield "shell", {"command": "echo hello"}
    yield "process", {"action": "list"}
    yield "env_vars", {"pattern": "PATH"}
    yield "calculator", {"expression": "6*7"}
    yield "get_current_datetime", {"timezone": "Europe/Paris"}
    yield "string_length", {"text": "abc"}


SAID = {
    "memory_save": "Memory item 'birds/note' saved successfully.",
    "data_analyze": "x,y\n1,2\n2,4",
    "code_execute": "42",
    "sql_query": "6",
    "file_read": "hello",
    "web_scrape": "Penguins swim.",
    "shell": "hello",
    "calculator": "42",
}


@pytest.mark.parametrize(("transport", "mode"), [("stdio", "auto"), ("http", "legacy")])
def test_the_official_client_lists_and_calls_every_tool(transport, mode, page, tmp_path):
    asked = []

    async def agree(context, params):
        asked.append(params.message.partition(" ")[0])
        return types.ElicitResult(action="accept", content={"answer": "yes, once"})

    async def everything():
        with served(transport, tmp_path) as place:
            async with Client(place, mode=mode, elicitation_callback=agree, read_timeout_seconds=None) as client:
                listed = {found.name: found for found in (await client.list_tools()).tools}
                return listed, {name: await client.call_tool(name, given) for name, given in calls(page)}

    listed, said = asyncio.run(asyncio.wait_for(everything(), 200))
    # Those of open notebooks are another matter: see test_notebooks.
    assert all(listed.pop(name).annotations.read_only_hint for name in ("notebook_read", "notebook_propose"))
    # Without a key it can do nothing: a model is not offered it, and who calls it anyway is told why.
    assert {*listed, "web_search"} == set(said)
    assert "web_search" not in listed
    failed = {name: found.content[0].text for name, found in said.items() if found.is_error}
    assert list(failed) == ["web_search"], failed
    assert said["web_search"].structured_content["error"]["code"] == "CONFIG_MISSING"
    assert "SERPER_API_KEY" in failed["web_search"]
    for name, words in SAID.items():
        assert words in said[name].content[0].text, name
    kinds = [block.type for block in said["data_visualize"].content]
    assert kinds == ["text", "image", "resource_link"]
    assert said["data_visualize"].content[1].mime_type == "image/png"
    for name, found in listed.items():
        jsonschema.Draft202012Validator.check_schema(found.output_schema)
        jsonschema.validate(said[name].structured_content, found.output_schema)
    # What a note holds may be anything, and the memory's files answer in text alone.
    assert {n for n, found in listed.items() if found.output_schema == {"type": "object"}} == {
        "memory",
        "memory_retrieve",
    }
    destructive = {name for name, found in listed.items() if found.annotations.destructive_hint}
    # These three destroy by some of their values, which are not among the calls. The web can carry away what was read.
    never = {"memory", "memory_save", "data_visualize"}
    assert set(asked) == (destructive - never) | {"web_search", "web_scrape"}
