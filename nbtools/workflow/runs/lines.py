"""What happens in a run, in a line each, for terminals and cells."""

from __future__ import annotations

from nbtools.workflow.runs.events import RunEvent
from nbtools.workflow.runs.state import is_taken_over

_SIGNS = {"ok": "✓", "failed": "✗", "cancelled": "■", "declined": "⊘", "unknown": "?"}


def event_line(event: RunEvent) -> str:
    """Return what an event means, in a line; nothing for those of no interest."""
    fields = event.to_dict()
    item = fields.get("item")
    name = str(fields.get("node", "")) + ("" if item is None else f"[{item}]")
    match event.kind:
        case "run_started":
            again = "  continues, with its files as they are now" if fields.get("nodes") is not None else ""
            return f"▸ {fields['workflow']}  ({fields['run_id']}){again}"
        case "node_started":
            why = fields.get("why") or ""
            return f"▸ {name}" + (f"  ({why})" if why else "")
        case "node_output" if fields["stream"] in {"waits", "cell"}:
            return f"  {name}  {fields['text']}"
        case "node_ended":
            error = fields["result"].get("error")
            notes = [fields.get("why", ""), *fields["result"].get("notes", ())]
            detail = f"{error['code']}: {error['message']}" if error else "; ".join(filter(None, notes))
            sign = "=" if is_taken_over(fields.get("why", "")) else _SIGNS[fields["state"]]
            return f"{sign} {name}  {fields['result'].get('duration_s', 0):.2f} s  {detail}".rstrip()
        case "node_skipped":
            return f"- {name}  ({fields['why']})"
        case "retry_planned":
            return f"↻ {name} again in {fields['wait_s']:g} s: {fields['error']['message']}"
        case "question_answered":
            answer = fields["answer"]
            word = ("no", "yes")[answer] if isinstance(answer, bool) else answer
            return f"✓ {name} is answered: {word}"
    return ""
