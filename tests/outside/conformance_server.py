"""The server that MCP's own conformance suite asks for: its tools go through our registry and door.

What nbtools does not offer (prompts, completion, templates, subscriptions, log levels) is added to the server here, so
that every scenario can be run.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import warnings
from pathlib import Path
from typing import Any

from mcp import types

from nbtools.errors import ExecutionFailed
from nbtools.mcp_server import HttpServer, McpClient, make_server
from nbtools.result import Artifact, Output
from nbtools.tool import Context, tool
from nbtools.workbench import Workbench

warnings.simplefilter("ignore")  # the newest protocol deprecates log messages and sampling, which the suite tries
FOLDER = Path(sys.argv[2])
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA==")


def written(name: str, content: bytes, mime: str) -> Artifact:
    (FOLDER / name).write_bytes(content)
    return Artifact(path=str(FOLDER / name), mime=mime, size=len(content))


@tool(read_only=True)
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@tool(read_only=True)
def test_image_content() -> Output:
    """Return a picture."""
    return Output(text="a picture", artifacts=(written("dot.png", PNG, "image/png"),))


@tool(read_only=True)
def test_audio_content() -> Output:
    """Return a sound."""
    return Output(text="a sound", artifacts=(written("click.wav", WAV, "audio/wav"),))


@tool(read_only=True)
def test_embedded_resource() -> Output:
    """Return a file."""
    file = written("file.txt", b"This is an embedded resource content.", "text/plain")
    return Output(text="a file", artifacts=(file,))


@tool(read_only=True)
def test_multiple_content_types() -> Output:
    """Return a text, a picture and a file."""
    data = written("data.json", b'{"test":"data","value":123}', "application/json")
    picture = written("dot.png", PNG, "image/png")
    return Output(text="Multiple content types test:", artifacts=(picture, data))


@tool(read_only=True)
async def test_tool_with_logging(*, ctx: Context) -> str:
    """Log three times."""
    client = ctx.use(McpClient)
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await client.session.send_log_message("info", text, related_request_id=client.request_id)
        await asyncio.sleep(0.05)
    return "logged"


@tool(read_only=True)
async def test_tool_with_progress(*, ctx: Context) -> str:
    """Tell the progress three times."""
    for done in (0, 50, 100):
        ctx.emit("progress", data={"progress": done, "total": 100})
        await asyncio.sleep(0.05)
    return "done"


@tool(read_only=True)
def test_error_handling() -> str:
    """Fail."""
    raise ExecutionFailed("This tool intentionally returns an error for testing")


@tool(read_only=True)
async def test_sampling(prompt: str, *, ctx: Context) -> str:
    """Ask the client's model.

    Parameters
    ----------
    prompt
        What it is asked.
    """
    client = ctx.use(McpClient)
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=prompt))
    said = await client.session.create_message([message], max_tokens=100, related_request_id=client.request_id)
    return f"LLM response: {said.content.text}"


async def elicited(ctx: Context, message: str, properties: dict[str, Any], required: tuple[str, ...] = ()) -> str:
    client = ctx.use(McpClient)
    schema = {"type": "object", "properties": properties, "required": list(required)}
    said = await client.session.elicit_form(message, schema, related_request_id=client.request_id)
    return f"Elicitation completed: action={said.action}, content={said.content}"


@tool(read_only=True)
async def test_elicitation(message: str, *, ctx: Context) -> str:
    """Ask the client's user.

    Parameters
    ----------
    message
        What the user is asked.
    """
    fields = {name: {"type": "string", "description": f"User's {name}"} for name in ("username", "email")}
    return await elicited(ctx, message, fields, ("username", "email"))


@tool(read_only=True)
async def test_elicitation_sep1034_defaults(*, ctx: Context) -> str:
    """Ask with defaults of every kind."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await elicited(ctx, "Please review the defaults", fields)


@tool(read_only=True)
async def test_elicitation_sep1330_enums(*, ctx: Context) -> str:
    """Ask for choices of every kind."""
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in ((1, "First"), (2, "Second"), (3, "Third"))
    ]
    names = ["option1", "option2", "option3"]
    fields = {
        "untitledSingle": {"type": "string", "enum": names},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": names}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await elicited(ctx, "Please choose", fields)


TOOLS = [value for name, value in list(globals().items()) if name.startswith("test_")]
PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
}


def said(content: Any) -> types.PromptMessage:
    return types.PromptMessage(role="user", content=content)


def text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


async def get_prompt(context: Any, params: Any) -> types.GetPromptResult:
    given = params.arguments or {}
    if params.name == "test_prompt_with_arguments":
        messages = [said(text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"))]
    elif params.name == "test_prompt_with_embedded_resource":
        content = types.TextResourceContents(uri=given["resourceUri"], mime_type="text/plain", text="Embedded.")
        messages = [said(types.EmbeddedResource(type="resource", resource=content)), said(text("Please process it."))]
    elif params.name == "test_prompt_with_image":
        picture = types.ImageContent(type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png")
        messages = [said(picture), said(text("Please analyze the image above."))]
    else:
        messages = [said(text("This is a simple prompt for testing."))]
    return types.GetPromptResult(messages=messages)


async def list_prompts(context: Any, params: Any) -> types.ListPromptsResult:
    found = [
        types.Prompt(
            name=name,
            description=f"Prompt {name}",
            arguments=[types.PromptArgument(name=argument, description=argument, required=True) for argument in given],
        )
        for name, given in PROMPTS.items()
    ]
    return types.ListPromptsResult(prompts=found)


async def complete(context: Any, params: Any) -> types.CompleteResult:
    values = [word for word in ("paris", "park", "party") if word.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


async def nothing(context: Any, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


def main() -> None:
    bench = Workbench(memory_url=":memory:", home=FOLDER / "home", tools=TOOLS, allowed_paths=[FOLDER])

    def extended(made: Workbench) -> Any:
        server = make_server(made)
        read_ours = server.get_request_handler("resources/read").handler

        async def read(context: Any, params: Any) -> Any:
            uri = str(params.uri)
            if uri == "test://static-binary":
                blob = base64.b64encode(PNG).decode()
                content: Any = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=blob)
            elif uri.startswith("test://"):
                words = f'{{"id":"{uri.split("/")[3]}"}}' if uri.startswith("test://template/") else "static text"
                content = types.TextResourceContents(uri=uri, mime_type="text/plain", text=words)
            else:
                return await read_ours(context, params)
            return types.ReadResourceResult(contents=[content])

        for method, kind, handler in (
            ("resources/read", types.ReadResourceRequestParams, read),
            ("resources/subscribe", types.SubscribeRequestParams, nothing),
            ("resources/unsubscribe", types.UnsubscribeRequestParams, nothing),
            ("prompts/list", types.PaginatedRequestParams, list_prompts),
            ("prompts/get", types.GetPromptRequestParams, get_prompt),
            ("completion/complete", types.CompleteRequestParams, complete),
            ("logging/setLevel", types.SetLevelRequestParams, nothing),
        ):
            server.add_request_handler(method, kind, handler)
        return server

    server = HttpServer(bench, port=int(sys.argv[1]), token="", make=extended)
    server.start()
    print(server.url, flush=True)
    sys.stdin.read()
    server.close()
    bench.close()


main()
