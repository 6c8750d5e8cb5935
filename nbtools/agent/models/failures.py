"""What goes wrong between a run and its model, as errors of ours."""

from __future__ import annotations

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
from nbtools.redaction import conceal_start

__all__ = ["as_error"]

_MAX_TOLD = 2_000


def as_error(exc: BaseException, model: str) -> NbtoolsError:
    """Return an error of a run as one of ours.

    Parameters
    ----------
    exc
        What was raised.
    model
        The model, as the message calls it.
    """
    if isinstance(exc, NbtoolsError):
        return exc
    told = conceal_start(str(exc), _MAX_TOLD)
    asked = f"asking {model}"
    if isinstance(exc, exceptions.ModelAuthenticationError):
        return ConfigMissing(f"{model} refused the key: {told}", hint="Check the key and what it may use.", tried=asked)
    if isinstance(exc, exceptions.ModelNotFoundError):
        return ConfigInvalid(f"the server does not know {model}: {told}", hint="Check the model's name.", tried=asked)
    if isinstance(exc, exceptions.ModelContextWindowExceededError):
        hint = "Start a new conversation, or use a model with a larger context window."
        return LimitExceeded(f"the conversation is longer than {model} can read: {told}", hint=hint, tried=asked)
    if isinstance(exc, exceptions.ModelConnectionError):
        hint = "Check the network and base_url; resume the run to try again."
        return NetworkError(f"{model} cannot be reached, or its answer broke off: {told}", hint=hint, tried=asked)
    if isinstance(exc, exceptions.ModelAPIError):
        passing = (
            exceptions.ModelRateLimitError,
            exceptions.ModelUnavailableError,
            exceptions.ModelServerError,
        )
        may_pass = isinstance(exc, passing)
        wait = f" The server asks to wait {exc.retry_after:g} s." if exc.retry_after else ""
        next_step = f"Resume the run to try again.{wait}" if may_pass else None
        return HttpError(f"{model} did not answer: {told}", hint=next_step, retryable=may_pass, tried=asked)
    if isinstance(exc, exceptions.UnexpectedModelBehavior):
        hint = "Resume the run to try again, or use another model."
        return ExecutionFailed(f"{model} answered what cannot be used: {told}", hint=hint, tried=asked)
    if type(exc).__name__ == "ConversationConflict":
        hint = "Look at the run again: somebody else goes on with it."
        return VersionConflict("the conversation was changed by another process meanwhile.", hint=hint, tried=asked)
    return InternalError(f"{type(exc).__name__}: {told}", hint="That is a fault of nbtools.", tried=asked)
