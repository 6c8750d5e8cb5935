"""Prompts: requests that a person picks in a client and fills in.

A prompt is a typed, documented function like a tool: its name, description and arguments are derived from it. It
returns the text of the request, or an `nbtools.contract.result.Output` whose files go with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from nbtools.contract.result import Output
from nbtools.contract.tool import Context as ToolContext
from nbtools.contract.tool import Tool, ToolCall, tool_of
from nbtools.errors import NbtoolsError
from nbtools.ground.lazy import need
from nbtools.mcp_server.approval import McpClient

_WHY = "Serving tools over MCP"
_MOST_VALUES = 100


def analyze_file(path: str, question: str = "What stands out?") -> str:
    """Ask for a step-by-step analysis of a data file, based on computed numbers.

    Parameters
    ----------
    path
        The file, below the allowed folders.
    question
        The question to answer.
    """
    return (
        f"Analyse the data file {path!r}. The question: {question}\n\n"
        "First look at its columns, types and missing values (sql_query: DESCRIBE and SUMMARIZE FROM the file). Then "
        "compute what answers the question, by sql_query for counts and sums, by data_analyze for anything else, and "
        "draw one chart with data_visualize if it says more than the numbers. State only numbers that a tool gave you, "
        "each with the query or script it came from, and say what the data cannot answer."
    )


def ask_by_sql(question: str, path: str | None = None) -> str:
    """Ask a question that read-only SQL over files and tables answers.

    Parameters
    ----------
    question
        The question, in plain words.
    path
        The file with the answer; omit it when the answer is in tables of the notebook or of a connection.
    """
    source = f"the file {path!r}" if path else "the tables that are there (sql_query: SHOW TABLES)"
    return (
        f"Answer by sql_query, from {source}: {question}\n\n"
        "Look at the columns before you ask. Show the query that you ran, the rows that answer the question, and how "
        "many rows they were computed from."
    )


def recall(topic: str) -> str:
    """Ask what the memory knows about a topic.

    Parameters
    ----------
    topic
        The topic: words, or the key of a note.
    """
    return (
        f"What do my notes say about {topic!r}? Search by memory_search, read what fits by memory_retrieve, and answer "
        "only from the notes: name the key of each note that you use, and say so when they do not answer it."
    )


PROMPTS: tuple[Callable[..., str | Output[Any]], ...] = (analyze_file, ask_by_sql, recall)
"""The prompts that every server offers."""


class Prompts:
    """Answers what clients ask of prompts.

    Parameters
    ----------
    functions
        The prompts.
    blocks
        Returns the content of what a prompt returned: its text, and a block for each file.
    completions
        Name of an argument to what may be meant by its beginning. Arguments with a closed set of values need none.
    client
        Returns the client of a request; a prompt gets it by ``ctx.use(McpClient)``.
    """

    def __init__(
        self,
        functions: Iterable[Callable[..., str | Output[Any]]],
        *,
        blocks: Callable[[Any, Output[Any]], list[Any]],
        completions: Mapping[str, Callable[[Any, str], Awaitable[Iterable[str]]]],
        client: Callable[[Any, Any], McpClient],
    ) -> None:
        self._types = need("mcp.types", extra="mcp", why=_WHY)
        self._error = need("mcp", extra="mcp", why=_WHY).MCPError
        self._prompts = {prompt.name: prompt for prompt in map(tool_of, functions)}
        self._blocks = blocks
        self._client = client
        self._completions = completions

    async def list(self, context: Any, params: Any) -> Any:
        """Answer ``prompts/list``."""
        return self._types.ListPromptsResult(prompts=[self._describe(prompt) for prompt in self._prompts.values()])

    def _describe(self, prompt: Tool) -> Any:
        required = prompt.schema.get("required", ())
        arguments = [
            self._types.PromptArgument(name=name, description=part.get("description"), required=name in required)
            for name, part in prompt.schema["properties"].items()
        ]
        title = prompt.title or prompt.name.replace("_", " ").capitalize()
        return self._types.Prompt(name=prompt.name, title=title, description=prompt.description, arguments=arguments)

    async def get(self, context: Any, params: Any) -> Any:
        """Answer ``prompts/get``."""
        prompt, client = self._prompt(params.name), self._client(context, params)
        try:
            # An argument that a person left empty was not given.
            arguments = {name: value for name, value in (params.arguments or {}).items() if value}
            call = ToolCall(tool=prompt.name, caller="mcp")
            tools_context = ToolContext(call=call, services={McpClient: lambda: client})
            result = prompt.invoke(prompt.parameters.validate(arguments), tools_context)
            if inspect.isawaitable(result):
                result = await result
        except NbtoolsError as exc:
            if (required := client.asked_for()) is not None:
                return required
            raise self._error(self._types.INVALID_PARAMS, str(exc)) from None
        output = result if isinstance(result, Output) else Output(text=result)
        messages = [self._types.PromptMessage(role="user", content=block) for block in self._blocks(context, output)]
        return self._types.GetPromptResult(description=prompt.description, messages=messages)

    def _prompt(self, name: str) -> Tool:
        if name not in self._prompts:
            raise self._error(self._types.INVALID_PARAMS, f"Unknown prompt: {name}")
        return self._prompts[name]

    async def complete(self, context: Any, params: Any) -> Any:
        """Answer ``completion/complete``, for prompts and for templates of resources."""
        name, begun = params.argument.name, params.argument.value
        candidates: Iterable[str] = ()
        if params.ref.type == "ref/prompt":
            part = self._prompt(params.ref.name).schema["properties"].get(name)
            if part is None:
                raise self._error(self._types.INVALID_PARAMS, f"Unknown argument: {name}")
            candidates = [str(value) for value in part.get("enum", ()) if str(value).startswith(begun)]
        if not candidates and name in self._completions:
            candidates = await self._completions[name](context, begun)
        values = list(candidates)
        first = values[:_MOST_VALUES]
        completion = self._types.Completion(values=first, total=len(values), has_more=len(values) > len(first))
        return self._types.CompleteResult(completion=completion)
