"""Tools by need: a model is sent a few of many tools, and finds the others by ``tool_search``.

What is sent follows only from the conversation: the tools of the run itself, those that fit what was asked first, then
those that the model searched for or called, in that order. So a run that continues elsewhere sends the same tools, and
earlier tools keep their places, for the provider's cache. A tool that is not sent can still be called: the
toolset has every tool, and the door judges each call.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from nbtools.agent.sharing import is_own
from nbtools.agent.tools.own_tools import OWN_TOOLS, tool_search
from nbtools.contract.registry import Registry
from nbtools.contract.tool import Tool, tool_of
from nbtools.memory.rules.fts5 import rank_texts

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

MOST_BYTES = 6_000
"""Bytes of definitions that a model is sent at the start, as a request has them."""

# What a wire puts around the name, the description and the parameters of a tool.
_FRAME_BYTES = 90
_MOST_FOUND = 5
# Relative to the best score; a tool below this shares a word with the question by chance.
_LEAST_SCORE = 0.25
_MOST_WORDS = 2_000
_MOST_NAMES = 900
_SEARCH = tool_of(tool_search)
_OF_RUN = tuple(tool_of(function).function for function in OWN_TOOLS)


def offered_by_need(tools: Registry, names: Sequence[str]) -> Registry:
    """Return the tools of a run, with ``tool_search`` if there are many and none were chosen by name.

    Parameters
    ----------
    tools
        All that the model may call.
    names
        Names and patterns by which they were chosen; a bare ``*`` does not count as a choice.
    """
    if tuple(names) != ("*",) or sum(map(_bytes_of, tools.values())) <= MOST_BYTES:
        return tools
    others = Registry(tool for tool in tools.values() if tool.name != _SEARCH.name)
    listed = _listed([name for name, tool in others.items() if not _is_of_run(tool)])
    return others.with_tool(dataclasses.replace(_SEARCH, note=f"There are {listed}."))


class ToolsByNeed:
    """Which of a run's tools the model is sent.

    Parameters
    ----------
    tools
        All that the model may call.
    """

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        # Another tool may have the same name.
        search = tools.get(_SEARCH.name)
        self._is_by_need = search is not None and search.function is _SEARCH.function
        self._others = [tool for tool in tools.values() if not _is_of_run(tool)]
        # Asked before each request; the tools of a run stay the same.
        self._find, self._first = functools.cache(self.find), functools.cache(self._begin)

    def find(self, words: str) -> list[Tool]:
        """Return the tools that words name or describe, the best first."""
        named = re.findall(r"[\w-]+", words)
        exact = [tool for tool in self._others if tool.name in named]
        ranked = [tool for tool in self._ranked(words) if tool not in exact]
        return [*exact, *ranked[: max(_MOST_FOUND - len(exact), 0)]]

    def names_for(self, messages: Iterable[ModelMessage], native: Collection[str] = ()) -> list[str]:
        """Return the names of the tools that the model is sent in a conversation, in their order.

        Parameters
        ----------
        messages
            The conversation so far.
        native
            Names of tools that the provider defines itself.
        """
        if not self._is_by_need:
            return list(self._tools)
        parts = [part for message in messages for part in message.parts]
        prompt = next((part.content for part in parts if part.part_kind == "user-prompt"), "")
        words = prompt if isinstance(prompt, str) else " ".join(item for item in prompt if isinstance(item, str))
        names = dict.fromkeys(self._first(words[:_MOST_WORDS], frozenset(native)))
        for part in parts:
            if part.part_kind != "tool-call":
                continue
            if part.tool_name == _SEARCH.name:
                searched = part.args_as_dict(raise_if_invalid=False).get("words")
                names |= dict.fromkeys(tool.name for tool in self._find(searched if isinstance(searched, str) else ""))
            elif part.tool_name in self._tools:
                names[part.tool_name] = None
        return list(names)

    def _begin(self, words: str, native: frozenset[str]) -> list[str]:
        """Return the tools sent from the start: as many as fit of those that match the prompt or that people added."""
        chosen = [tool for tool in self._tools.values() if _is_of_run(tool) or tool.name in native]
        room = MOST_BYTES - sum(_bytes_of(tool) for tool in chosen if tool.name not in native)
        for tool in (*self._ranked(words), *(tool for tool in self._others if not is_own(tool))):
            if tool not in chosen and (size := _bytes_of(tool)) <= room:
                chosen.append(tool)
                room -= size
        return [tool.name for tool in chosen]

    def _ranked(self, words: str) -> list[Tool]:
        ranked = rank_texts(words, [_text_of(tool) for tool in self._others])
        least = max((score for _, score in ranked), default=0.0) * _LEAST_SCORE
        return [self._others[index] for index, score in ranked if score >= least]


def _is_of_run(tool: Tool) -> bool:
    return any(tool.function is function for function in _OF_RUN)


def _bytes_of(tool: Tool) -> int:
    definition = json.dumps([tool.name, tool.description, tool.schema], ensure_ascii=False, separators=(",", ":"))
    return len(definition.encode("utf-8", "surrogatepass")) + _FRAME_BYTES


def _text_of(tool: Tool) -> str:
    parameters = tool.schema.get("properties", {})
    descriptions = (item.get("description", "") for item in parameters.values() if isinstance(item, Mapping))
    return " ".join(
        (tool.name.replace("_", " "), tool.title or "", tool.description, *parameters, *map(str, descriptions))
    )


def _listed(names: Sequence[str]) -> str:
    """Return names as a list, as far as there is room, and the number of the others."""
    count = len(names)
    while len(", ".join(names[:count])) > _MOST_NAMES:
        count -= 1
    more = len(names) - count
    return ", ".join(names[:count]) + (f" and {more:,} more" if more else "")
