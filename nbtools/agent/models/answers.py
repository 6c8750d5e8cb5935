"""How an answer of a model ended, and what that means for the run.

A provider says with the last event of an answer why it ended: it is whole, it reached a limit of its length, it was
refused. Where nothing is said, the answer broke off, however cleanly the connection was closed. A run acts only on
whole answers: what half an answer asks for is not called.
"""

from __future__ import annotations

from typing import Literal

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart, UserPromptPart

from nbtools.agent.models.failures import as_error, reason_of
from nbtools.errors import ExecutionFailed, LimitExceeded, NbtoolsError, NetworkError
from nbtools.texts.visible import counted

AnswerEnd = Literal["whole", "cut", "broken", "refused", "empty"]

GO_ON = (
    "Your last answer reached the limit of its length and was cut; calls in it were not made. "
    "Go on exactly where it stopped, and repeat nothing."
)


def error_of(
    end: AnswerEnd, response: ModelResponse, model: str, *, cause: Exception | None = None, key: str | None = None
) -> NbtoolsError:
    """Return why an answer is none, as an error of ours; its data has ``end`` and the ``text`` that came.

    Parameters
    ----------
    end
        How the answer ended.
    response
        What arrived of it.
    model
        The model, as the message calls it.
    cause
        The error that broke it off; `None` where it simply ended.
    key
        The key of the model, which no message may show.
    """
    kind: type[NbtoolsError] = ExecutionFailed
    reason, hint = str((response.provider_details or {}).get("finish_reason") or ""), "Resume the run to ask again."
    if cause is not None:
        kind, message = type(as_error(cause, model)), f"the answer of {model} broke off: {reason_of(cause, key)}"
    elif end == "refused":
        message, hint = f"{model} refused to answer{_refusal(response)}.", "Ask in another way, or use another model."
    elif end == "cut":
        at = f" after {counted(response.usage.output_tokens, 'token')}" if response.usage.output_tokens else ""
        kind, message = LimitExceeded, f"the answer of {model} was cut{at} ({reason or 'length'})."
        hint = "Resume the run to let the answer go on; model_settings: {max_tokens: N} allows longer ones."
    elif end == "empty":
        message = f"{model} gave no answer, several times."
    elif reason:
        message = f"the answer of {model} was ended by its server ({reason})."
    else:
        kind, message = NetworkError, f"the answer of {model} broke off: its server did not say that it was complete."
        if response.finish_reason == "stop":  # taken for granted: some local servers never say it
            hint += " If its server never says so, set stream = false for the model."
    return kind(message, hint=hint, tried=f"asking {model}", data={"end": end, "text": text_of(response)})


def end_of(response: ModelResponse, *, must_say: bool = False) -> AnswerEnd:
    """Return how an answer ended.

    Parameters
    ----------
    response
        The answer.
    must_say
        Whether a whole answer says that it is: it came piece by piece, and a piece may be missing.
    """
    reason = (response.provider_details or {}).get("finish_reason")
    if response.finish_reason == "content_filter":
        return "refused"
    if response.finish_reason == "length":
        return "cut"
    if response.state in {"incomplete", "interrupted"} or (must_say and reason is None):
        return "broken"
    if not any(_is_content(part) for part in response.parts):
        return "empty"
    is_unusual = response.finish_reason == "error" or (reason is not None and response.finish_reason is None)
    return "broken" if is_unusual else "whole"


def text_of(response: ModelResponse) -> str:
    """Return the text of an answer."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def end_of_last(messages: list[ModelMessage]) -> str:
    """Return how the answer ended with which a conversation ends, nothing where it ends with none."""
    return end_of(messages[-1]) if messages and isinstance(messages[-1], ModelResponse) else ""


def whole_answer(messages: list[ModelMessage]) -> str:
    """Return the text with which a conversation ends, nothing where it ends with calls, or with no whole answer."""
    if end_of_last(messages) != "whole" or any(isinstance(part, ToolCallPart) for part in messages[-1].parts):
        return ""
    return last_text(messages)


def last_text(messages: list[ModelMessage]) -> str:
    """Return what the model said last, since the last message of the person."""
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            if text := text_of(message):
                return text
        elif any(isinstance(part, UserPromptPart) for part in message.parts):
            break
    return ""


def _is_content(part: object) -> bool:
    return not isinstance(part, ThinkingPart) and (not isinstance(part, TextPart) or bool(part.content))


def _refusal(response: ModelResponse) -> str:
    """Return why an answer was refused, as the provider says it: in a sentence of the model, or in a word."""
    details = response.provider_details or {}
    detail = next((details[name] for name in ("refusal", "block_reason", "finish_reason") if details.get(name)), "")
    text = " ".join(str(detail).split()).rstrip(".")
    return f": {text}" if text and text != "refusal" else ""
