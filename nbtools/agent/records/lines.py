"""Events of a run, one line each, for cells, terminals and the list of past runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nbtools.texts.visible import brief, counted, visible

_LONGEST = 100


class RunLines:
    """Writes events, as `AgentEvent.to_dict` or the log has them, as lines; text of the model is left out.

    It remembers the arguments of calls, because the end of a call does not repeat them.
    """

    def __init__(self) -> None:
        self.arguments: dict[str, Mapping[str, Any]] = {}

    def line(self, event: Mapping[str, Any]) -> str:
        """Return an event as one line; an empty text for those of no interest."""
        method = getattr(self, f"_{event['kind']}", None)
        label = f"  · {event['label']}" if event.get("label") and event["kind"] in _LABELLED else ""
        return f"{method(event)}{label}" if method is not None else ""

    def called(self, event: Mapping[str, Any]) -> str:
        """Return a call with its arguments, written as in Python."""
        arguments = self.arguments.get(event["call_id"], {})
        values = {name: json.dumps(value, ensure_ascii=False, default=str) for name, value in arguments.items()}
        shown_arguments = ", ".join(f"{name}={brief(value, 40)}" for name, value in values.items())
        return brief(f"{event['tool']}({shown_arguments})", _LONGEST)

    def _run_started(self, event: Mapping[str, Any]) -> str:
        return f"▸ {event['model']}  (run {event['run_id'][:8]})"

    def _call_proposed(self, event: Mapping[str, Any]) -> str:
        self.arguments[event["call_id"]] = event["arguments"]
        return ""

    def _call_ended(self, event: Mapping[str, Any]) -> str:
        result = event["result"]
        error = result.get("error")
        outcome = f"{error['code']}: {error['message']}" if error else str(result.get("text") or "")
        sign, seconds = "✓" if result.get("ok") else "✗", result.get("duration_s") or 0.0
        return f"{sign} {self.called(event)}  {seconds:.2f} s  {brief(outcome)}".rstrip()

    def _approval_answered(self, event: Mapping[str, Any]) -> str:
        changed = event.get("arguments")
        if changed is not None:
            self.arguments[event["call_id"]] = changed
        who = f" by {visible(event['by'])}" if event.get("by") else ""
        outcome = "approved with changes" if changed is not None else _ANSWERS.get(event["answer"], event["answer"])
        why = f": {visible(event['reason'])}" if event.get("reason") else ""
        return f"• {event['tool']} is {outcome}{who}{why}"

    def _message_delivered(self, event: Mapping[str, Any]) -> str:
        return f"• the model has your message: {brief(event['text'])}"

    def _budget_reached(self, event: Mapping[str, Any]) -> str:
        return f"■ the budget of {event['budget']} ({event['allowed']:g}) is used up"


# Where a reader could mistake it for the work of a model.
_LABELLED = ("run_started", "call_ended")
_ANSWERS = {
    "once": "approved",
    "tool": "approved for this session",
    "content": "approved for this session, exactly so",
    "no": "not approved",
    "later": "left for later",
}


def usage_line(run: Any) -> str:
    """Return the outcome of an `nbtools.agent.AgentRun` and what it used, as one line."""
    return " · ".join([f"run {run.run_id[:8]} is {run.state}", *usage_words(run.usage), run.label or run.model])


def usage_words(usage: Mapping[str, Any]) -> list[str]:
    """Return the counts of a ledger in words; money where the price is known."""
    tokens = usage["input_tokens"] + usage["output_tokens"]
    words = [counted(usage["steps"], "step"), counted(usage["tool_calls"], "call"), counted(tokens, "token")]
    return [*words, f"{usage['seconds']:.1f} s", *([f"{usage['usd']:.4f} USD"] if usage["usd"] is not None else [])]
