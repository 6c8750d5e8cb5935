"""Prompts, completion, templates, subscriptions and log levels, asked for by the official client."""

from __future__ import annotations

import asyncio
import warnings

import pytest
import requests
from mcp import types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from nbtools.assembly.workbench import Workbench
from nbtools.contract.tool import Context, tool
from nbtools.ground import aio
from nbtools.mcp_server import HttpServer, make_server, subscriptions, tool_server
from nbtools.mcp_server.subscriptions import Subscriptions

pytestmark = pytest.mark.processes


@tool(read_only=True)
def grumble(*, ctx: Context) -> str:
    """Complain."""
    ctx.emit("stdout", "one\n")
    ctx.emit("stderr", "two\n")
    return "done"


def greet(name: str, *, politely: bool = True) -> str:
    """Greet someone.

    Parameters
    ----------
    name
        Who.
    politely
        Or not.
    """
    return f"Good day, {name}" if politely else f"Hi {name}"


@pytest.fixture
def bench(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with Workbench(home=tmp_path / "home", memory_url=":memory:", allowed_paths=[tmp_path], tools=[grumble]) as made:
        yield made


def with_client(bench, work, **options):
    async def run():
        async with Client(make_server(bench, prompts=[greet]), **options) as client:
            return await work(client)

    return aio.run(run(), timeout=60)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_ready_made_prompts_and_those_of_a_user_are_offered_and_filled_in(bench, mode):
    async def work(client):
        listed = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        made = await client.get_prompt("analyze_file", {"path": "sales.csv", "question": ""})
        return listed, made, await client.get_prompt("greet", {"name": "Ada"})

    listed, made, greeting = with_client(bench, work, mode=mode)
    assert set(listed) == {"analyze_file", "ask_by_sql", "recall", "greet"}
    path, question = listed["analyze_file"].arguments
    assert (path.name, path.required, question.required) == ("path", True, False)
    assert path.description == "The file, below the allowed folders."
    assert made.messages[0].role == "user"
    assert "'sales.csv'" in made.messages[0].content.text
    assert "What stands out?" in made.messages[0].content.text, "what a person leaves empty is not given"
    assert greeting.messages[0].content.text == "Good day, Ada"


def test_a_prompt_that_is_asked_for_wrongly_says_why(bench):
    async def work(client):
        with pytest.raises(MCPError, match="Unknown prompt: nope"):
            await client.get_prompt("nope")
        with pytest.raises(MCPError, match="path"):
            await client.get_prompt("analyze_file", {})
        reference = types.PromptReference(type="ref/prompt", name="greet")
        with pytest.raises(MCPError, match="Unknown argument: nme"):
            await client.complete(reference, {"name": "nme", "value": ""})

    with_client(bench, work)


def test_arguments_complete_to_files_and_keys(bench, tmp_path):
    (tmp_path / "sales_2024.csv").write_text("a\n1\n")
    (tmp_path / "other.csv").write_text("a\n1\n")
    bench.memory.write("notes/one", 1)
    bench.memory.write("else", 2)

    async def work(client):
        found = []
        for reference, name, value in (
            (types.PromptReference(type="ref/prompt", name="analyze_file"), "path", "sales"),
            (types.PromptReference(type="ref/prompt", name="recall"), "topic", "notes/"),
            (types.ResourceTemplateReference(type="ref/resource", uri="nbtools://memory/{key}"), "key", "no"),
            (types.PromptReference(type="ref/prompt", name="greet"), "name", "A"),
        ):
            found.append((await client.complete(reference, {"name": name, "value": value})).completion.values)
        return found

    assert with_client(bench, work) == [["sales_2024.csv"], ["notes/one"], ["notes/one"], []]


def test_templates_tell_how_items_are_addressed(bench):
    async def work(client):
        return await client.list_resource_templates()

    found = {t.uri_template for t in with_client(bench, work).resource_templates}
    assert found == {"nbtools://memory/{key}", "nbtools://artifacts/{id}/{name}"}


def test_a_subscriber_of_the_older_era_hears_of_changes_alone(bench):
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.put_nowait(str(message.params.uri))

    async def work(client):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            await client.session.subscribe_resource("nbtools://memory/a")
        await aio.in_thread(bench.memory.write, "b", 1)
        await aio.in_thread(bench.memory.write, "a", 2)
        async with asyncio.timeout(20):
            return await heard.get()

    bench.memory.write("a", 1)
    assert with_client(bench, work, mode="legacy", message_handler=hear) == "nbtools://memory/a"


def test_subscriptions_end_with_the_session(bench, monkeypatch: pytest.MonkeyPatch):
    made: list[Subscriptions] = []

    class Seen(Subscriptions):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(tool_server, "Subscriptions", Seen)
    server = HttpServer(bench, token="")
    server.start()
    try:
        headers = {"Accept": "application/json, text/event-stream"}

        def post(method, number=None, **params):
            message = {"jsonrpc": "2.0", "method": method, "params": params, **({"id": number} if number else {})}
            return requests.post(server.url, json=message, headers=headers, timeout=10)

        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        headers["mcp-session-id"] = post("initialize", 1, **hello).headers["mcp-session-id"]
        post("notifications/initialized")
        assert post("logging/setLevel", 2, level="info").ok
        assert post("resources/subscribe", 3, uri="nbtools://memory/a").ok
        assert post("resources/subscribe", 4, uri="nbtools://memory/b").ok
        assert made[0]._uris() == {"nbtools://memory/a", "nbtools://memory/b"}
        assert post("resources/unsubscribe", 5, uri="nbtools://memory/b").ok
        assert made[0]._uris() == {"nbtools://memory/a"}
        assert requests.delete(server.url, headers=headers, timeout=10).ok
        aio.run(over(made[0]._task), timeout=20)
        assert made[0]._uris() == frozenset()
    finally:
        server.close()


async def over(task):
    await task


def test_a_client_subscribes_to_so_many_resources_and_no_more(bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subscriptions, "_MAX_RESOURCES", 2)

    async def older(client):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for key in "abb":
                await client.session.subscribe_resource(f"nbtools://memory/{key}")
            with pytest.raises(MCPError, match="2 resources at once"):
                await client.session.subscribe_resource("nbtools://memory/c")

    async def newer(client):
        with pytest.raises(MCPError, match="2 resources at once"):
            async with client.listen(resource_subscriptions=[f"nbtools://memory/{key}" for key in "abc"]):
                pass

    with_client(bench, older, mode="legacy")
    with_client(bench, newer)


def test_a_listener_of_the_newer_era_hears_of_changes(bench):
    async def work(client):
        async with client.listen(resource_subscriptions=["nbtools://memory/a"]) as events:
            await aio.in_thread(bench.memory.write, "a", 1)
            async with asyncio.timeout(20):
                return await anext(aiter(events))

    assert with_client(bench, work).uri == "nbtools://memory/a"


def test_output_is_logged_from_the_level_that_a_client_sets(bench):
    logged: list[tuple[str, str]] = []

    async def log(params) -> None:
        logged.append((params.level, params.data))

    async def work(client):
        await client.call_tool("grumble", {})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for level in ("warning", "debug"):
                await client.set_logging_level(level)
                await client.call_tool("grumble", {})

    with_client(bench, work, mode="legacy", logging_callback=log)
    assert logged == [("warning", "two\n"), ("info", "one\n"), ("warning", "two\n")]
