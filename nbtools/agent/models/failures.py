"""What goes wrong between a run and its model, as errors of ours."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from pydantic_ai import exceptions

from nbtools.errors import (
    ConfigInvalid,
    ConfigMissing,
    ExecutionFailed,
    HttpError,
    InternalError,
    LimitExceeded,
    NbtoolsError,
    NetworkError,
    VersionConflict,
)
from nbtools.parsing import from_json
from nbtools.redaction import conceal_start
from nbtools.secret_values import MASK
from nbtools.visible import brief

__all__ = ["as_error", "told"]

_MAX_TOLD = 2_000
_MAX_SAID = 600
_MARKUP = re.compile(r"<(?:script|style|head)\b.*?</(?:script|style|head)>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def as_error(exc: BaseException, model: str, key: str | None = None) -> NbtoolsError:
    """Return an error of a run as one of ours.

    Parameters
    ----------
    exc
        What was raised.
    model
        The model, as the message calls it.
    key
        Its key, which no message may show.
    """
    if isinstance(exc, NbtoolsError):
        return exc
    said = told(exc, key)
    asked = f"asking {model}"
    if isinstance(exc, exceptions.ModelAuthenticationError):
        return ConfigMissing(f"{model} refused the key: {said}", hint="Check the key and what it may use.", tried=asked)
    if isinstance(exc, exceptions.ModelNotFoundError):
        return ConfigInvalid(f"the server does not know {model}: {said}", hint="Check the model's name.", tried=asked)
    if isinstance(exc, exceptions.ModelContextWindowExceededError):
        hint = "Start a new conversation, or use a model with a larger context window."
        return LimitExceeded(f"the conversation is longer than {model} can read: {said}", hint=hint, tried=asked)
    if isinstance(exc, exceptions.ModelConnectionError):
        hint = "Check the network and base_url; resume the run to try again."
        return NetworkError(f"{model} cannot be reached, or its answer broke off: {said}", hint=hint, tried=asked)
    if isinstance(exc, exceptions.ModelAPIError):
        passing = (
            exceptions.ModelRateLimitError,
            exceptions.ModelUnavailableError,
            exceptions.ModelServerError,
        )
        may_pass = isinstance(exc, passing)
        wait = f" The server asks to wait {exc.retry_after:g} s." if exc.retry_after else ""
        next_step = f"Resume the run to try again.{wait}" if may_pass else None
        return HttpError(f"{model} did not answer: {said}", hint=next_step, retryable=may_pass, tried=asked)
    if isinstance(exc, exceptions.UnexpectedModelBehavior):
        hint = "Resume the run to try again, or use another model."
        return ExecutionFailed(f"{model} answered what cannot be used: {said}", hint=hint, tried=asked)
    if type(exc).__name__ == "ConversationConflict":
        hint = "Look at the run again: somebody else goes on with it."
        return VersionConflict("the conversation was changed by another process meanwhile.", hint=hint, tried=asked)
    return InternalError(f"{type(exc).__name__}: {said}", hint="That is a fault of nbtools.", tried=asked)


def told(exc: BaseException, key: str | None = None) -> str:
    """Return what a provider says went wrong, as it says it to people, without a key."""
    said = _said(exc)
    return conceal_start(said.replace(key, MASK) if key else said, _MAX_TOLD)


def _said(exc: BaseException) -> str:
    status, body = getattr(exc, "status_code", None), getattr(exc, "body", None)
    if not isinstance(exc, exceptions.ModelAPIError):
        return str(getattr(exc, "message", exc))  # without the answer, which may be long
    said = _sentence(body) or ("" if status else str(exc))
    return f"status {status}{f', {said}' if said else ''}" if status else said


def _sentence(body: Any) -> str:
    """Return the message in the body of an error, nothing where there is none."""
    with contextlib.suppress(NbtoolsError):
        body = from_json(body) if isinstance(body, str) else body
    body = next(iter(body), None) if isinstance(body, list) else body
    inner = (body.get("error") or body) if isinstance(body, Mapping) else body
    if isinstance(inner, Mapping):
        inner = inner.get("message") or inner.get("detail")
    return "" if inner is None else brief(_MARKUP.sub(" ", inner) if isinstance(inner, str) else inner, _MAX_SAID)
