"""Prompts: models that are there, and names in braces that are meant as expressions."""

from __future__ import annotations

import re
from collections.abc import Callable

from nbtools.errors import ConfigInvalid
from nbtools.workflow.checks.subject import Subject
from nbtools.workflow.spec import NodeFields, PromptNode

FindModel = Callable[[str], object]
"""Finds a model by its name, and raises `nbtools.errors.ConfigInvalid` where there is none."""

_BRACED = re.compile(r"(?<![{$\\])\{\s*([A-Za-z_][\w-]*)\s*\}(?!\})")


def check_prompts(subject: Subject, find_model: FindModel | None) -> None:
    """Report unknown models, and names in braces that are not filled in."""
    for _, node in subject.nodes.values():
        if isinstance(node, PromptNode):
            _check_model(subject, node, find_model)
            _check_names(subject, node)


def _check_model(subject: Subject, node: PromptNode, find_model: FindModel | None) -> None:
    if node.model is None or find_model is None or "${" in node.model:
        return
    try:
        find_model(node.model)
    except ConfigInvalid as exc:
        subject.tell("WF057", subject.loc_of(node, "model"), f"There is no model {node.model!r}.", exc.hint or "")


def _check_names(subject: Subject, node: PromptNode) -> None:
    instructions = [node.instructions] if isinstance(node.instructions, str) else list(node.instructions or ())
    places: list[tuple[tuple[str | int, ...], str]] = [(("prompt",), node.prompt)]
    for i, text in enumerate(instructions):
        places.append((("instructions",) if isinstance(node.instructions, str) else ("instructions", i), text))
    for loc, text in places:
        for match in _BRACED.finditer(text):
            if path := meant_path(subject, node, match[1]):
                message, hint = f"{match[0]} stays as it is.", f"Write ${{{path}}} for its value."
                where = subject.loc_of(node, *loc)
                subject.tell_within("WF058", where, match.start(), len(match[0]), message, hint)


def meant_path(subject: Subject, node: NodeFields, name: str) -> str:
    """Return the path of an expression for a bare name: an input, a node, or the item; empty where it is none."""
    if name in subject.workflow.inputs:
        return f"inputs.{name}"
    if name in subject.ids and name != node.id:
        return f"nodes.{name}.text"
    return "item" if name == "item" and node.for_each is not None else ""
