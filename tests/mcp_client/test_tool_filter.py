"""What is left out of a list of tools, before the official package reads it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio

from nbtools.ground import aio
from nbtools.mcp_client.tool_filter import _FilteredStream

GOOD, BAD = {"name": "a", "inputSchema": {"type": "object"}}, {"name": 7}


def test_a_tool_that_is_declared_badly_is_left_out_and_told_of() -> None:
    problems: list[str] = []

    async def run() -> Any:
        sender, receiver = anyio.create_memory_object_stream[Any](1)
        async with sender, _FilteredStream(receiver, lambda: "2025-06-18", problems) as stream:
            await sender.send(SimpleNamespace(message=SimpleNamespace(result={"tools": [GOOD, BAD]})))
            item = await stream.receive()
            await stream.aclose()
            return item.message.result["tools"]

    assert aio.run(run()) == [GOOD]
    assert problems == ["the tool 7 has an invalid declaration and is left out: inputSchema: Field required"]
