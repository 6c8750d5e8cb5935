"""What goes wrong between a run and its model, as errors of nbtools."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from pydantic_ai import exceptions

from nbtools import errors
from nbtools.errors import NbtoolsError
from nbtools.texts.parsing import from_json
from nbtools.texts.redaction import conceal_start
from nbtools.texts.secret_values import MASK
from nbtools.texts.visible import brief

_MAX_TOLD = 2_000
_MAX_SAID = 600
_MARKUP = re.compile(r"<(?:script|style|head)\b.*?</(?:script|style|head)>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_MAY_PASS = (exceptions.ModelRateLimitError, exceptions.ModelUnavailableError, exceptions.ModelServerError)
_AGAIN = "Resume the run to try again."
_NETWORK = f"Check the network and base_url. {_AGAIN}"
_KEY = "Check the key and its permissions."
_LONG = "Start a new conversation, or use a model with a larger context window."
# The first that fits: the error, ours, what it means, what to do next.
_KNOWN: tuple[tuple[type[BaseException], type[NbtoolsError], str, str | None], ...] = (
    (exceptions.ModelAuthenticationError, errors.ConfigMissing, "{} refused the key", _KEY),
    (exceptions.ModelNotFoundError, errors.ConfigInvalid, "the server does not know {}", "Check the model's name."),
    (exceptions.ModelContextWindowExceededError, errors.LimitExceeded, "the conversation is too long for {}", _LONG),
    (exceptions.ModelConnectionError, errors.NetworkError, "{} cannot be reached, or its answer broke off", _NETWORK),
    *((kind, errors.HttpError, "{} did not answer", _AGAIN) for kind in _MAY_PASS),
    (exceptions.ModelAPIError, errors.HttpError, "{} did not answer", None),
    (exceptions.UnexpectedModelBehavior, errors.ExecutionFailed, "{} gave an answer that cannot be used", _AGAIN),
)


def as_error(exc: BaseException, model: str, key: str | None = None) -> NbtoolsError:
    """Return an error from a run as an nbtools error.

    Parameters
    ----------
    exc
        What was raised.
    model
        The model's name, as used in the message.
    key
        Its key, which no message may show.
    """
    if isinstance(exc, NbtoolsError):
        return exc
    action, reason = f"asking {model}", reason_of(exc, key)
    for kind, ours, meaning, hint in _KNOWN:
        if isinstance(exc, kind):
            wait = getattr(exc, "retry_after", None)
            hint_text = f"{hint} The server asks you to wait {wait:g} s." if hint and wait else hint
            may_pass = hint is not None if ours is errors.HttpError else None
            return ours(f"{meaning.format(model)}: {reason}", hint=hint_text, retryable=may_pass, tried=action)
    return errors.InternalError(f"{type(exc).__name__}: {reason}", hint="This is a fault in nbtools.", tried=action)


def reason_of(exc: BaseException, key: str | None = None) -> str:
    """Return what the provider says went wrong, in its own words for people, without the key."""
    status, text = getattr(exc, "status_code", None), str(getattr(exc, "message", exc))
    if status is not None:
        sentence = _sentence(getattr(exc, "body", None))
        text = f"status {status}{f', {sentence}' if sentence else ''}"
    return conceal_start(text.replace(key, MASK) if key else text, _MAX_TOLD)


def _sentence(body: Any) -> str:
    """Return the message in the body of an error, nothing where there is none."""
    with contextlib.suppress(NbtoolsError):
        body = from_json(body) if isinstance(body, str) else body
    body = next(iter(body), None) if isinstance(body, list) else body
    inner = (body.get("error") or body) if isinstance(body, Mapping) else body
    if isinstance(inner, Mapping):
        inner = inner.get("message") or inner.get("detail")
    return "" if inner is None else brief(_MARKUP.sub(" ", inner) if isinstance(inner, str) else inner, _MAX_SAID)
