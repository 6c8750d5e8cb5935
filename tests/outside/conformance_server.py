"""The server that MCP's own conformance suite asks for: the product with the suite's test tools, prompts and resources.

Everything is answered by the product; only addresses that begin with ``test://`` are read here.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

from mcp import types
from pydantic import Field

from nbtools.assembly.workbench import Workbench
from nbtools.contract.result import Artifact, Output
from nbtools.contract.signature.parameters import SchemaParameters
from nbtools.contract.tool import Context, Effects, Tool, tool
from nbtools.errors import ExecutionFailed
from nbtools.mcp_server import HttpServer, McpClient, make_server

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


def form(message: str, **properties: Any) -> types.ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(words: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=words))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=100))


NAME = {"name": {"type": "string"}}


@tool(read_only=True)
def test_input_required_result_elicitation(*, ctx: Context) -> str:
    """Ask for a name."""
    client = ctx.use(McpClient)
    if "user_name" not in client.inputs:
        client.require({"user_name": form("What is your name?", **NAME)})
    return f"Hello, {(client.inputs['user_name'].content or {}).get('name')}!"


@tool(read_only=True)
def test_input_required_result_sampling(*, ctx: Context) -> str:
    """Ask the client's model."""
    client = ctx.use(McpClient)
    if "capital_question" not in client.inputs:
        client.require({"capital_question": sampling("What is the capital of France?")})
    return str(client.inputs["capital_question"].content.text)


@tool(read_only=True)
def test_input_required_result_list_roots(*, ctx: Context) -> str:
    """Ask for the client's roots."""
    client = ctx.use(McpClient)
    if "client_roots" not in client.inputs:
        client.require({"client_roots": types.ListRootsRequest()})
    return ", ".join(str(root.uri) for root in client.inputs["client_roots"].roots)


@tool(read_only=True)
def test_input_required_result_request_state(*, ctx: Context) -> str:
    """Ask with a state."""
    client = ctx.use(McpClient)
    if client.state is None or "confirm" not in client.inputs:
        client.require({"confirm": form("Please confirm", ok={"type": "boolean"})}, state="begun")
    return "state-ok" if client.state == "begun" else "state-lost"


@tool(read_only=True)
def test_input_required_result_multiple_inputs(*, ctx: Context) -> str:
    """Ask for three things at once."""
    client = ctx.use(McpClient)
    if not {"user_name", "greeting", "client_roots"} <= client.inputs.keys():
        asked = {"user_name": form("What is your name?", **NAME), "greeting": sampling("Generate a greeting")}
        client.require({**asked, "client_roots": types.ListRootsRequest()}, state="begun")
    return f"all there, {client.state}"


@tool(read_only=True)
def test_input_required_result_multi_round(*, ctx: Context) -> str:
    """Ask twice."""
    client = ctx.use(McpClient)
    if client.state is None:
        client.require({"step1": form("Step 1: What is your name?", **NAME)}, state="round 1")
    if client.state == "round 1":
        colour = form("Step 2: What is your favorite color?", color={"type": "string"})
        client.require({"step2": colour}, state="round 2")
    return "done"


@tool(read_only=True)
def test_input_required_result_tampered_state(*, ctx: Context) -> str:
    """Ask with a state that nobody may change."""
    client = ctx.use(McpClient)
    if client.state is None:
        client.require({"confirm": form("Please confirm", ok={"type": "boolean"})}, state="mine")
    return "done"


@tool(read_only=True)
def test_input_required_result_capabilities(*, ctx: Context) -> str:
    """Ask for what the client can give."""
    client = ctx.use(McpClient)
    client.require({"user_name": form("Name?", **NAME)} if client.can_elicit else {"greeting": sampling("Greet")})


@tool(read_only=True)
def test_missing_capability(*, ctx: Context) -> str:
    """Ask for a model, whoever the client is."""
    client = ctx.use(McpClient)
    client.require({"greeting": sampling("Greet")})


@tool(read_only=True)
def test_streaming_elicitation(*, ctx: Context) -> str:
    """Show something, then ask."""
    ctx.emit("progress", data={"progress": 1, "total": 2})
    return test_input_required_result_elicitation(ctx=ctx)


@tool(read_only=True)
def test_custom_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Return an argument that a client repeats in a header.

    Parameters
    ----------
    region
        Any text.
    """
    return region


ADDRESS = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
KEYWORDS = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": ADDRESS},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def keep(**given: Any) -> dict[str, Any]:
    return given


json_schema_2020_12_tool = Tool(
    name="json_schema_2020_12_tool",
    function=keep,
    parameters=SchemaParameters(KEYWORDS),
    effects=Effects(read_only=True),
    about="Take arguments whose schema has many keywords.",
)


@tool(read_only=True)
def test_logging_tool(*, ctx: Context) -> str:
    """Print something to standard error, which clients may have as log messages."""
    ctx.emit("stderr", "a warning")
    return "logged"


TOOLS = [value for name, value in list(globals().items()) if name.startswith(("test_", "json_schema_"))]


def test_simple_prompt() -> str:
    """Return a text."""
    return "This is a simple prompt for testing."


def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Return the arguments.

    Parameters
    ----------
    arg1, arg2
        Anything.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


def test_prompt_with_embedded_resource(resourceUri: str) -> Output:  # noqa: N803 - the suite's name
    """Return a file.

    Parameters
    ----------
    resourceUri
        Its address.
    """
    file = written("embedded.txt", f"Embedded {resourceUri}".encode(), "text/plain")
    return Output(text="Please process it.", artifacts=(file,))


def test_prompt_with_image() -> Output:
    """Return a picture."""
    return Output(text="Please analyze the image above.", artifacts=(written("dot.png", PNG, "image/png"),))


def test_input_required_result_prompt(*, ctx: Context) -> str:
    """Ask first."""
    client = ctx.use(McpClient)
    if "user_context" not in client.inputs:
        client.require({"user_context": form("What context should the prompt use?", context={"type": "string"})})
    return f"In the context of {(client.inputs['user_context'].content or {}).get('context')}"


PROMPTS = (
    test_simple_prompt,
    test_prompt_with_arguments,
    test_prompt_with_embedded_resource,
    test_prompt_with_image,
    test_input_required_result_prompt,
)


def main() -> None:
    bench = Workbench(memory_url=":memory:", home=FOLDER / "home", tools=TOOLS, allowed_paths=[FOLDER])

    def extended(made: Workbench) -> Any:
        server = make_server(made, prompts=PROMPTS)
        read_ours = server.get_request_handler("resources/read").handler

        async def read(context: Any, params: Any) -> Any:
            uri = str(params.uri)
            if uri == "test://static-binary":
                blob = base64.b64encode(PNG).decode()
                content: Any = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=blob)
            elif uri.startswith(("test://static", "test://template/", "test://watched")):
                words = f'{{"id":"{uri.split("/")[3]}"}}' if uri.startswith("test://template/") else "static text"
                content = types.TextResourceContents(uri=uri, mime_type="text/plain", text=words)
            else:
                return await read_ours(context, params)
            return types.ReadResourceResult(contents=[content])

        server.add_request_handler("resources/read", types.ReadResourceRequestParams, read)
        return server

    server = HttpServer(bench, port=int(sys.argv[1]), token="", make=extended)
    server.start()
    print(server.url, flush=True)
    sys.stdin.read()
    server.close()
    bench.close()


main()
