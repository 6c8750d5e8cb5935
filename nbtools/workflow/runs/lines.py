"""What happens in a run, in a line each, for terminals and cells."""

from __future__ import annotations

from nbtools.workflow.runs.events import RunEvent

_SIGNS = {"ok": "✓", "failed": "✗", "cancelled": "■", "declined": "⊘", "unknown": "?"}


def event_line(event: RunEvent) -> str:
    """Return what an event means, in a line; nothing for those of no interest."""
    made = event.to_dict()
    item = made.get("item")
    name = str(made.get("node", "")) + ("" if item is None else f"[{item}]")
    match event.kind:
        case "run_started":
            again = "  goes on, with its files as they are now" if made.get("nodes") is not None else ""
            return f"▸ {made['workflow']}  ({made['run_id']}){again}"
        case "node_started":
            why = made.get("why") or ""
            return f"▸ {name}" + (f"  ({why})" if why else "")
        case "node_output" if made["stream"] == "waits":
            return f"  {name}  {made['text']}"
        case "node_ended":
            error = made["result"].get("error")
            notes = [made.get("why", ""), *made["result"].get("notes", ())]
            told = f"{error['code']}: {error['message']}" if error else "; ".join(filter(None, notes))
            sign = "=" if made.get("why", "").startswith(("reused from ", "kept")) else _SIGNS[made["state"]]
            return f"{sign} {name}  {made['result'].get('duration_s', 0):.2f} s  {told}".rstrip()
        case "node_skipped":
            return f"- {name}  ({made['why']})"
        case "retry_planned":
            return f"↻ {name} again in {made['wait_s']:g} s: {made['error']['message']}"
        case "question_answered":
            answer = made["answer"]
            shown = ("no", "yes")[answer] if isinstance(answer, bool) else answer
            return f"✓ {name} is answered: {shown}"
    return ""
