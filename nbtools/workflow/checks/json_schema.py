"""Mistakes in the JSON Schemas that people write: words that do not exist, types, bounds, references."""

from __future__ import annotations

from typing import Any

from nbtools.contract.signature.schema_mistakes import mistakes_in
from nbtools.workflow.checks.subject import Subject
from nbtools.workflow.document import Place
from nbtools.workflow.schemas import ANY, SchemaType
from nbtools.workflow.spec import AskNode, Fill, PromptNode


def check_schemas(subject: Subject) -> None:
    """Tell what is wrong with the schemas of inputs, results and forms, and of defaults that do not fit them."""
    for name, schema in subject.workflow.inputs.items():
        loc: Place = ("inputs", name)
        if not _check(subject, schema, loc) and "default" in schema:
            _check_default(subject, schema, loc)
    for _, node in subject.nodes.values():
        if node.output is not None:
            _check(subject, node.output, subject.loc_of(node, "output"))
        if isinstance(node, PromptNode) and node.output_schema is not None:
            _check(subject, node.output_schema, subject.loc_of(node, "output_schema"))
            if node.output is not None:
                message = "output and output_schema say the same."
                subject.tell("WF020", subject.loc_of(node, "output_schema"), message, "Keep one of them.", key=True)
        if isinstance(node, AskNode) and isinstance(node.ask, Fill):
            loc = subject.loc_of(node, "ask", "fill")
            if not _check(subject, node.ask.fill, loc) and node.ask.fill.get("type") != "object":
                message = "A form is a schema of type object."
                subject.tell("WF053", loc, message, "Write {type: object, properties: {…}}.", key=True)


def _check_default(subject: Subject, schema: dict[str, Any], loc: Place) -> None:
    for misfit in SchemaType(schema).misfits(schema["default"], lambda _: ANY):
        message = misfit.message
        if misfit.what in {"missing", "unknown"}:
            message = f"It has {'no' if misfit.what == 'missing' else 'a surplus'} {message!r}."
        where = (*loc, "default", *misfit.loc)
        subject.tell("WF054", where, f"The default does not fit: {message}", misfit.hint)


def _check(subject: Subject, schema: Any, loc: Place) -> bool:
    """Tell what is wrong with a schema; return whether anything is."""
    mistakes = list(mistakes_in(schema))
    for inner, message, hint in mistakes:
        is_word = inner and isinstance(inner[-1], str) and message.startswith("JSON Schema has no keyword")
        subject.tell("WF053", (*loc, *inner), message, hint, key=bool(is_word))
    return bool(mistakes)
