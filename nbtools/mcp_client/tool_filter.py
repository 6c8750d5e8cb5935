"""Lists of tools as a server sends them, without tools that would make the official package refuse the whole list."""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

from nbtools.ground.lazy import need

_WHY = "Using tools of an MCP server"
_MAX_WORDS = 8_000
MAX_TOOLS = 1_000
"""How many tools of one server are used."""
_MAX_BLOCKS = 1_000


def plain_words(value: Any) -> Any:
    """Return the description and the schema of a tool in a form that is safe to show to people and models.

    Texts are cut at 8,000 characters, and invisible characters are left out: controls and escapes, marks of
    direction, spaces without width. A description may not move a cursor, hide a word or turn one around.
    """
    if isinstance(value, str):
        return "".join(
            c for c in value[:_MAX_WORDS] if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cf", "Cs"}
        )
    if isinstance(value, dict):
        return {key: plain_words(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain_words(item) for item in value)
    return value


class _FilteredStream:
    """A stream of messages, with invalid tools left out of lists and long answers shortened."""

    def __init__(self, stream: Any, version: Callable[[], str | None], problems: list[str]) -> None:
        self._stream = stream
        self._version = version
        self._problems = problems
        self._validate = need("mcp_types.methods", extra="mcp", why=_WHY).validate_server_result

    @property
    def last_context(self) -> Any:
        """The context that the official package asks a stream for, where there is one."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return self._filter(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._filter(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        return await self._stream.__aexit__(*exc)

    def _filter(self, item: Any) -> Any:
        result = getattr(getattr(item, "message", None), "result", None)
        version = self._version()
        if isinstance(result, dict) and isinstance(result.get("tools"), list) and version is not None:
            if len(result["tools"]) > MAX_TOOLS:
                self._problems.append(
                    f"it lists {len(result['tools']):,} tools at once; only the first {MAX_TOOLS:,} are used"
                )
            result["tools"] = [tool for tool in result["tools"][:MAX_TOOLS] if self._is_good(tool, result, version)]
        if isinstance(result, dict) and isinstance(result.get("content"), list):
            result["content"] = _shortened(result["content"])
        return item

    def _is_good(self, tool: Any, result: dict[str, Any], version: str) -> bool:
        try:
            self._validate("tools/list", version, {**result, "tools": [tool]})
        except KeyError:
            return True
        except ValueError as exc:
            error: Any = exc
            first = error.errors(include_url=False)[0] if hasattr(exc, "errors") else {"loc": (), "msg": str(exc)}
            key = ".".join(str(step) for step in first["loc"][2:])
            name = tool.get("name") if isinstance(tool, dict) else tool
            self._problems.append(
                f"the tool {name!r:.80} has an invalid declaration and is left out: {key}: {first['msg']}"
            )
            return False
        return True


def _shortened(blocks: list[Any]) -> list[Any]:
    """Return the blocks of an answer, or the first of them: each costs the official package time."""
    if len(blocks) <= _MAX_BLOCKS:
        return blocks
    note = f"[the answer has {len(blocks):,} blocks; the first {_MAX_BLOCKS:,} end here]"
    return [*blocks[:_MAX_BLOCKS], {"type": "text", "text": note}]


@contextlib.asynccontextmanager
async def filter_tools(
    transport: Any, version: Callable[[], str | None], problems: list[str]
) -> AsyncIterator[tuple[Any, Any]]:
    """Open a transport and yield its streams, bad tools left out of what is read.

    Parameters
    ----------
    transport
        The official package's: an asynchronous context that yields two streams.
    version
        Returns the version of the protocol that was agreed on, `None` before.
    problems
        Gets a sentence for each tool that is left out.
    """
    async with transport as (reader, writer):
        yield _FilteredStream(reader, version, problems), writer
