"""Pages to look things up: all keys of a workflow file, made of the models that check them, and codes of failures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.errors import NbtoolsError
from nbtools.workflow.runs.state import NEVER_AGAIN
from nbtools.workflow.schemas import SchemaType, shown_value
from nbtools.workflow.spec import NodeFields, editor_schema

_INSIDE = {
    "limits": ("RunLimits",),
    "memory": ("MemorySettings",),
    "tools": ("ConfiguredTool", "ConfiguredWorkflow", "ConfiguredNode"),
    "retry of a node": ("Retry",),
    "ask of a node": ("Approve", "Choose", "Fill"),
    "code of a node, as a file": ("CodeFile",),
    "tools of a prompt, with more than a name": ("OfferedTool",),
}
_EXPRESSIONS = Path(__file__).with_name("expressions.txt").read_text(encoding="utf-8").rstrip()


def explain_failure(code: str) -> str:
    """Return what it means that a step of a run has failed by one of `nbtools.errors.CODES`, and what can be done."""
    kind = next(kind for kind in NbtoolsError.__subclasses__() if kind.code == code)
    again = (
        "Another attempt cannot succeed, so retry makes none."
        if code in NEVER_AGAIN
        else "With retry it is tried again."
    )
    return "\n\n".join(
        [
            f"{code}: a step of a run has failed",
            str(kind.__doc__).partition("\n")[0],
            f"{again} With on_error: continue the run goes on, and ${{nodes.ID.ok}} is false.",
            "`nbtools runs show RUN` shows the message and what was printed.",
            "`nbtools run --resume RUN` continues with the file as it is then; what is done and unchanged is kept.",
        ]
    )


def reference() -> str:
    """Return the page: each key with its type, its default and what it is for."""
    schema = editor_schema()
    models = schema["$defs"]
    nodes = {model.kind: models[model.__name__] for model in NodeFields.__subclasses__()}
    shared = set.intersection(*(set(node["properties"]) for node in nodes.values()))
    parts = [("Keys of a workflow file (* must be there)", _lines(schema, schema))]
    parts.append(("Every node", _lines(next(iter(nodes.values())), schema, only=shared)))
    for kind, node in nodes.items():
        about = str(node.get("description", "")).partition("\n")[0]
        parts.append((f"A node with {kind}: {about.rstrip('.')}", _lines(node, schema, but=shared)))
    for section, names in _INSIDE.items():
        lines = (line for name in names for line in _lines(models[name], schema))
        parts.append((f"In {section}", lines))
    sections = ["\n".join([f"{title}:", *dict.fromkeys(lines)]) for title, lines in parts]
    return "\n\n".join([*sections, _EXPRESSIONS])


def _lines(
    model: Mapping[str, Any], root: Mapping[str, Any], *, only: set[str] | None = None, but: set[str] | None = None
) -> Iterator[str]:
    required = model.get("required", ())
    for name, schema in model["properties"].items():
        if (only is not None and name not in only) or (but is not None and name in but):
            continue
        words = SchemaType(schema, root).words().replace(" or null", "").replace("null or ", "")
        default = schema.get("default")
        is_told = default not in (None, "", [], {}) and not isinstance(default, dict)
        about = f"{words}; {shown_value(default)} by default" if is_told else words
        head = f"  {name}{'*' * (name in required)}"
        text = f"{schema.get('description', '')} ({about})"
        yield textwrap.fill(text, 118, initial_indent=f"{head:<20} ", subsequent_indent=" " * 21)
