"""What a client is told where something is missing, too much, or not for it; and how a server ends."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from mcp import types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from nbtools.assembly.workbench import Workbench
from nbtools.contract.result import Artifact, Output
from nbtools.contract.tool import Context, tool
from nbtools.errors import InvalidArguments
from nbtools.ground import aio
from nbtools.ground.config import Config
from nbtools.mcp_server import HttpServer, McpClient, approval, client_config, make_server, stdio
from nbtools.mcp_server.subscriptions import Subscriptions

pytestmark = pytest.mark.processes
_FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@tool(read_only=True)
def leave(path: str, content: str) -> Output:
    """Leave a file.

    Parameters
    ----------
    path
        Where.
    content
        What is in it; without any the file is gone at once.
    """
    file = Path(path)
    file.write_bytes(bytes.fromhex(content) or b"x")
    artifact = Artifact.from_path(path)
    if not content:
        file.unlink()
    return Output(data=None, artifacts=(artifact,))


@tool(read_only=True)
def scatter(folder: str, count: int) -> Output:
    """Leave many files.

    Parameters
    ----------
    folder
        Where.
    count
        How many.
    """
    paths = [Path(folder, f"{at}.txt") for at in range(count)]
    for path in paths:
        path.write_text("text")
    return Output(data=None, artifacts=tuple(map(Artifact.from_path, paths)))


@tool(read_only=True, on_error="fail")
def stumble() -> None:
    """Fail."""
    raise InvalidArguments("the floor is uneven.", hint="Look down.")


@tool(read_only=True)
def greet(*, ctx: Context) -> str:
    """Ask for a name, and greet it."""
    client = ctx.use(McpClient)
    if "who" in client.inputs:
        return f"hello {client.inputs['who'].content['name']}, {client.state}"
    params = types.ElicitRequestFormParams(message="Who?", requested_schema=_FORM)
    return client.require({"who": types.ElicitRequest(params=params)}, state="as before")


async def greet_by_prompt(*, ctx: Context) -> str:
    """Ask for a name, and greet it, in a prompt."""
    return greet(ctx=ctx)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    tools = [leave, scatter, stumble, greet]
    with Workbench(home=tmp_path / "home", memory_url=":memory:", allowed_paths=[tmp_path], tools=tools) as made:
        yield made


def _with_client(bench: Workbench, work: Any, **options: Any) -> Any:
    async def run() -> Any:
        async with Client(make_server(bench, prompts=[greet_by_prompt]), **options) as client:
            return await work(client)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the official package's, of the protocol's older era
        return aio.run(run(), timeout=60)


def test_a_failure_of_a_tool_that_ends_runs_is_a_result_too(bench: Workbench) -> None:
    said = _with_client(bench, lambda client: client.call_tool("stumble", {}))
    assert said.is_error
    assert "the floor is uneven." in said.content[0].text
    assert said.structured_content["error"]["code"] == "INVALID_ARGUMENTS"


@pytest.mark.parametrize(
    ("name", "content", "kinds"),
    [
        ("a.txt", b"text".hex(), ["text", "resource", "resource_link"]),
        ("a.bin", "00ff", ["text", "resource_link"]),
        ("a.txt", "ff00", ["text", "resource_link"]),
        ("a.txt", "", ["text", "resource_link"]),
    ],
)
def test_a_file_comes_with_its_text_where_it_is_one_and_is_linked_always(
    bench: Workbench, tmp_path: Path, name: str, content: str, kinds: list[str]
) -> None:
    arguments = {"path": str(tmp_path / name), "content": content}
    said = _with_client(bench, lambda client: client.call_tool("leave", arguments))
    assert [block.type for block in said.content] == kinds


def test_the_oldest_files_are_dropped(bench: Workbench, tmp_path: Path) -> None:
    async def work(client: Any) -> list[str]:
        said = await client.call_tool("scatter", {"folder": str(tmp_path), "count": 501})
        links = [block.uri for block in said.content if block.type == "resource_link"]
        assert base64.b64decode((await client.read_resource(links[-1])).contents[0].blob) == b"text"
        with pytest.raises(MCPError, match="Resource not found"):
            await client.read_resource(links[0])
        return [one.name for one in (await client.list_resources()).resources]

    assert _with_client(bench, work) == [f"{at}.txt" for at in range(1, 501)]


class _HttpClient:
    """A client of the older era over HTTP, with a session of its own."""

    def __init__(self, url: str) -> None:
        self._url, self._count = url, 0
        self._headers = {"Accept": "application/json, text/event-stream"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        self._headers["mcp-session-id"] = self._post("initialize", hello).headers["mcp-session-id"]

    def ask(self, method: str, **params: Any) -> Any:
        lines = self._post(method, params).text.splitlines()
        answers = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith(("data: {", "{"))]
        return next(answer for answer in answers if answer.get("id") == self._count)

    def _post(self, method: str, params: Any) -> requests.Response:
        self._count += 1
        message = {"jsonrpc": "2.0", "method": method, "params": params, "id": self._count}
        return requests.post(self._url, json=message, headers=self._headers, timeout=20)


def test_a_file_of_another_session_is_neither_listed_nor_read(bench: Workbench, tmp_path: Path) -> None:
    server = HttpServer(bench, token="")
    server.start()
    try:
        mine, other = _HttpClient(server.url), _HttpClient(server.url)
        mine.ask("tools/call", name="leave", arguments={"path": str(tmp_path / "a.txt"), "content": "61"})
        (listed,) = mine.ask("resources/list")["result"]["resources"]
        assert "result" in mine.ask("resources/read", uri=listed["uri"])
        assert other.ask("resources/list")["result"]["resources"] == []
        assert "Resource not found" in other.ask("resources/read", uri=listed["uri"])["error"]["message"]
    finally:
        server.close()


@pytest.mark.parametrize(
    "how", [{"policy": {"memory_retrieve": "deny"}}, {"config": Config(enabled_tools=("*", "!memory_retrieve"))}]
)
def test_where_the_memory_is_denied_or_not_enabled_files_are_listed_alone(tmp_path: Path, how: Any) -> None:
    async def work(client: Any) -> list[str]:
        await client.call_tool("leave", {"path": str(tmp_path / "a.txt"), "content": "61"})
        return [one.name for one in (await client.list_resources()).resources]

    with Workbench(
        home=tmp_path / "home", memory_url=":memory:", allowed_paths=[tmp_path], tools=[leave], **how
    ) as made:
        made.memory.write("note", 1)
        assert _with_client(made, work, mode="legacy") == ["a.txt"]
        refused = [record for record in made.call_records() if record["tool"] == "memory_list"]
        assert len(refused) == len(how.keys() & {"policy"}), "what is not enabled is not tried"


def test_a_tool_asks_its_client_and_is_answered_with_its_own_state(bench: Workbench) -> None:
    async def answer(context: Any, params: Any) -> Any:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    def call(client: Any) -> Any:
        return client.call_tool("greet", {})

    assert _with_client(bench, call, elicitation_callback=answer).content[0].text == "hello Ada, as before"
    prompt = _with_client(bench, lambda client: client.get_prompt("greet_by_prompt"), elicitation_callback=answer)
    assert prompt.messages[0].content.text == "hello Ada, as before"

    async def refused(client: Any) -> None:
        for asking in (call, lambda one: one.get_prompt("greet_by_prompt")):
            with pytest.raises(MCPError, match="needs a client that supports elicitation"):
                await asking(client)

    _with_client(bench, refused)


def test_ready_made_prompts_name_what_they_are_about(bench: Workbench) -> None:
    async def work(client: Any) -> list[str]:
        asked = {"ask_by_sql": {"question": "How many?", "path": "a.csv"}, "recall": {"topic": "tides"}}
        got = [await client.get_prompt(name, arguments) for name, arguments in asked.items()]
        got.append(await client.get_prompt("ask_by_sql", {"question": "How many?"}))
        return [one.messages[0].content.text for one in got]

    by_file, recalled, by_table = _with_client(bench, work)
    assert "from the file 'a.csv': How many?" in by_file
    assert "'tides'" in recalled
    assert "from the tables that are there" in by_table


def test_only_so_many_questions_are_open() -> None:
    questions = approval.Questions()
    states = [questions.ask(str(at), frozenset()) for at in range(approval._MAX_OPEN + 1)]
    assert questions.take(states[0]) == ("", frozenset())
    assert questions.take(states[1]) == ("1", frozenset())
    assert questions.take(states[1]) == ("", frozenset()), "a state holds once"


class _Session:
    """A client's session; one without a list is gone."""

    def __init__(self, heard: list[str] | None) -> None:
        self.heard = heard

    async def send_resource_updated(self, uri: str) -> None:
        if self.heard is None:
            raise BrokenPipeError
        self.heard.append(uri)


def test_a_client_that_is_gone_keeps_no_notice_from_the_others_and_who_leaves_hears_nothing() -> None:
    version, told = 1, asyncio.Event()
    heard: dict[str, list[str]] = {"oldest": [], "left": [], "here": []}

    async def versions(uris: frozenset[str], state: Any = None) -> tuple[Any, dict[str, Any]]:
        return version, dict.fromkeys(uris, version)

    class Last(_Session):
        async def send_resource_updated(self, uri: str) -> None:
            await super().send_resource_updated(uri)
            told.set()

    async def work() -> None:
        nonlocal version
        watched = Subscriptions(versions, interval=0.001)
        await watched.subscribe("oldest", _Session(heard["oldest"]), "u")
        for at in range(998):
            await watched.subscribe(f"gone {at}", _Session(None), "u")
        await watched.subscribe("left", _Session(heard["left"]), "u")
        await watched.subscribe("here", Last(heard["here"]), "u")
        watched.unsubscribe("left", "u")
        watched.unsubscribe("nobody", "u")
        version = 2
        async with asyncio.timeout(20):
            await told.wait()
        watched.close()

    asyncio.run(work())
    assert heard == {"oldest": [], "left": [], "here": ["u"]}


def test_the_configuration_for_a_server_that_runs_has_its_token() -> None:
    url = "http://127.0.0.1:1/mcp"
    shown = {"type": "http", "url": url}
    assert client_config(url=url) == {"mcpServers": {"nbtools": shown}}
    headers = {"Authorization": "Bearer secret"}
    assert client_config(url=url, token="secret") == {"mcpServers": {"nbtools": {**shown, "headers": headers}}}


def test_a_server_that_never_started_closes_and_one_that_closes_ends_the_waiting_for_it(bench: Workbench) -> None:
    HttpServer(bench).close()
    server = HttpServer(bench)
    server.start()

    async def work() -> None:
        waiting = asyncio.ensure_future(server.await_end())
        await asyncio.sleep(0)
        assert not waiting.done()
        await server.aclose()
        async with asyncio.timeout(20):
            await waiting

    aio.run(work(), timeout=60)


def test_the_loop_serves_two_pipes_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = os.pipe(), os.pipe()
    state = {number: os.fstat(end) for number, end in enumerate((ends[0][0], ends[1][1]))}
    for end in (*ends[0], *ends[1]):
        os.close(end)
    numbers = [0, 1]
    stdin, stdout = (SimpleNamespace(fileno=functools.partial(numbers.__getitem__, at)) for at in (0, 1))
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(sys, "stdout", stdout)
    system = SimpleNamespace(name="posix", fstat=state.__getitem__)
    monkeypatch.setattr(stdio, "os", system)  # the descriptors of the tests are what they are
    assert stdio._loop_can_serve()
    system.name = "nt"
    assert not stdio._loop_can_serve()
    system.name, numbers[1] = "posix", 5
    assert not stdio._loop_can_serve()
    numbers[1], state[1] = 1, state[0]  # one and the same socket
    assert not stdio._loop_can_serve()
    monkeypatch.setattr(sys, "stdin", None)
    assert not stdio._loop_can_serve()
