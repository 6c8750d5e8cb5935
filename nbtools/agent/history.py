"""What a model reads again of a long conversation: old results become handles, everything else stays as it was.

Nothing is summarised: a number that a model retold could be another number. What a result was replaced by stays the
same from then on, so that the beginning of the conversation can be kept in a provider's cache.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart

_HEAD = 600
# Results that are shorter than their handle would be are left alone, and so are those of the last steps.
_SHORT = 1_200
_LAST = 4
_CHARACTERS_OF_A_TOKEN = 4


class History:
    """Shortens conversations that come near the end of a model's context window.

    Parameters
    ----------
    keep
        Stores a text, and returns the name under which ``artifact_read`` finds it.
    tokens
        Above so many, results are shortened to half of it.
    """

    def __init__(self, keep: Callable[[str], Awaitable[str]], tokens: int) -> None:
        self._keep = keep
        self._most = tokens * _CHARACTERS_OF_A_TOKEN
        self._handles: dict[str, str] = {}

    async def shortened(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return the messages as the model is sent them."""
        # What was shortened once stays so: a text that came back in full would confuse the model and its cache.
        shortened_messages = [self._with_handles(message) for message in messages]
        size = sum(map(characters_of, shortened_messages))
        if size <= self._most:
            return shortened_messages
        # From the oldest: the model is at work with the newest.
        for number, message in enumerate(shortened_messages[:-_LAST]):
            # Down to a half, so that it is not shortened again at each step: a provider's cache of the beginning is
            # lost each time.
            if size <= self._most // 2:
                break
            shorter = await self._shorten(message)
            size += characters_of(shorter) - characters_of(message)
            shortened_messages[number] = shorter
        return shortened_messages

    def _with_handles(self, message: ModelMessage) -> ModelMessage:
        if not self._handles or not isinstance(message, ModelRequest):
            return message
        return dataclasses.replace(message, parts=[self._replaced(part) for part in message.parts])

    def _replaced(self, part: Any) -> Any:
        if isinstance(part, ToolReturnPart) and part.tool_call_id in self._handles:
            return dataclasses.replace(part, content=self._handles[part.tool_call_id])
        return part

    async def _shorten(self, message: ModelMessage) -> ModelMessage:
        if not isinstance(message, ModelRequest):
            return message
        for part in message.parts:
            if isinstance(part, ToolReturnPart) and part.tool_call_id not in self._handles:
                text = part.model_response_str()
                if len(text) > _SHORT:
                    name = await self._keep(text)
                    note = f"[… {_HEAD:,} of {len(text):,} characters of this older result; artifact_read reads more:"
                    self._handles[part.tool_call_id] = f"{text[:_HEAD]}\n{note} name={name!r}]"
        return self._with_handles(message)


def characters_of(message: ModelMessage) -> int:
    """Return about how many characters a message has; a picture counts as 4,000."""
    size = 0
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            size += len(part.model_response_str())
        elif isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            size += sum(len(item) if isinstance(item, str) else 4_000 for item in part.content)
        else:
            size += len(str(getattr(part, "content", None) or getattr(part, "args", "")))
    return size


def sent_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """Return what a model was sent in a conversation, a heading and the text of each part, in order.

    What it answered is sent again with each request, so it is told too.
    """
    texts: list[str] = []
    instructions: str | None = None
    for message in messages:
        if isinstance(message, ModelRequest) and message.instructions and message.instructions != instructions:
            instructions = message.instructions
            texts += ["— instructions", instructions]
        whose = "" if isinstance(message, ModelRequest) else " of the model, sent again"
        for part in message.parts:
            name = getattr(part, "tool_name", None)
            texts.append(f"— {part.part_kind}{f' of {name}' if name else ''}{whose}")
            content = getattr(part, "content", None)
            parts = content if isinstance(content, list | tuple) else [content]
            texts += [_as_text(item) for item in parts if item is not None]
            if (arguments := getattr(part, "args", None)) is not None:
                texts.append(_as_text(arguments))
    return texts


def _as_text(item: Any) -> str:
    if isinstance(item, str):
        return item
    data = getattr(item, "data", None)
    if isinstance(data, bytes):
        return f"[{item.media_type}, {len(data):,} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}]"
    return json.dumps(item, ensure_ascii=False, default=repr)
