"""Calls that failed: what becomes of an error, of any kind, in the result of its call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from nbtools.contract.result import Artifact, ErrorInfo, ToolResult
from nbtools.contract.tool import Tool, ToolCall
from nbtools.contract.wire.json_values import JsonValues
from nbtools.errors import CODES, InternalError, NbtoolsError, of_the_system
from nbtools.ground.aio import NOT_CARRIED
from nbtools.texts.redaction import conceal, conceal_start, redact

_MAX_KEPT = 8 * 2**20
_MAX_SAID = 4_000
_MAX_ERROR = 20_000
_MAX_TRACED = 8_000


def failure(call: ToolCall, error: NbtoolsError) -> ToolResult:
    """Return the result of a call that failed; what the error keeps of the attempt becomes its data."""
    artifacts = tuple(a for a in error.data.get("artifacts", ()) if isinstance(a, Artifact))
    data = {key: value for key, value in error.data.items() if key != "artifacts"}
    if artifacts:
        data["artifacts"] = [artifact.to_dict() for artifact in artifacts]
    info = _error_info(error)
    return ToolResult(
        ok=False,
        tool=call.tool,
        call_id=call.call_id,
        data=redact(_json_or_repr(data)) if data else None,
        text=f"{info.message} ({info.hint})" if info.hint else info.message,
        error=info,
        artifacts=artifacts,
    )


def refusal(call: ToolCall, error: NbtoolsError) -> ToolResult:
    """Return the result of a call whose tool did not run."""
    result = failure(call, error)
    return result.but(said_by_door=str(result))


def fault_of(tool: Tool, exc: BaseException) -> NbtoolsError:
    """Return the error for what a tool raised that is not one of ours."""
    if isinstance(exc, RuntimeError) and isinstance(exc.__cause__, NOT_CARRIED):
        exc = exc.__cause__  # as it was in the tool's thread, which must not hand it on as it is
    if (circumstance := of_the_system(exc)) is not None:
        circumstance.message = f"{tool.name}: {circumstance.message}"
        return circumstance
    text = _shorten(exc, str)
    return InternalError(
        f"{tool.name} raised {type(exc).__name__}{f': {text}' if text else ''}",
        hint="That is a fault of the tool's own code.",
        data={"traceback": _traceback(exc)},
    )


def error_of(result: ToolResult) -> ErrorInfo | None:
    """Return the error of a result that a tool made itself, one of ours also where it is none of ours."""
    if result.ok and result.error is None:
        return None
    error = result.error or ErrorInfo(code="INTERNAL", message="the tool said that it failed, but not why.")
    return _error_info(error if error.code in CODES else dataclasses.replace(error, code="INTERNAL"))


def _error_info(error: NbtoolsError | ErrorInfo) -> ErrorInfo:
    # Others wrote parts of it: a server, a script, the author of a tool's name.
    message = conceal_start(error.message, _MAX_ERROR)
    hint = conceal_start(error.hint, _MAX_SAID) if error.hint else error.hint
    return ErrorInfo(code=error.code, message=message, hint=hint, retryable=error.retryable)


def _traceback(exc: BaseException) -> str:
    import traceback

    # The second cut takes the rest of a secret that the first one went through.
    return str(conceal("".join(traceback.format_exception(exc))[-2 * _MAX_TRACED :]))[-_MAX_TRACED:]


def _json_or_repr(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an error keeps as JSON, and what is not JSON by its ``repr``: an error must always be told."""
    values = {}
    for key, value in data.items():
        try:
            values[key] = JsonValues(_MAX_KEPT).of(value)
        except NbtoolsError:
            values[key] = _shorten(value, repr)
    return values


def _shorten(value: Any, form: Callable[[Any], str]) -> str:
    try:
        return form(value)[:_MAX_SAID]
    except BaseException:  # nested too deeply, or a class whose own form fails, in whatever way
        return f"<{type(value).__name__}>"
