"""Questions to people: what is asked, and which answers fit."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from nbtools.errors import InvalidArguments, did_you_mean
from nbtools.workflow.runs.state import failure_result
from nbtools.workflow.schemas import SchemaType
from nbtools.workflow.spec import Approve, AskNode, Choose, NodeFields

__all__ = ["accept", "question_of", "question_text", "unknown_result"]

_YES = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
_OUTCOMES = ("retry", "done", "fail")


def question_of(node: AskNode, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a node asks, with expressions filled in.

    Raises
    ------
    InvalidArguments
        What is to be chosen from is no list of texts.
    """
    asked = values.get("ask", {})
    if isinstance(node.ask, Approve):
        return {"approve": asked["approve"]}
    if isinstance(node.ask, Choose):
        choices = asked["choose"]
        if not isinstance(choices, list) or not choices or not all(isinstance(one, str) for one in choices):
            raise InvalidArguments(
                f"choose is {choices!r:.80}, not a list of texts.", hint="Give texts, or an expression for a list."
            )
        return {"choose": choices, "question": asked.get("question", "")}
    return {"fill": node.ask.fill, "question": asked.get("question", "")}


def unknown_result(node: NodeFields, told: str) -> dict[str, Any]:
    """Return the result of a step whose outcome is unknown: it has the question that a person has to answer."""
    asked = f"{node.id}: {told} Run it again (retry), count it as done (done), or as failed (fail)?"
    return {**failure_result("CANCELLED", told), "question": {"unknown": asked}}


def question_text(question: Mapping[str, Any]) -> str:
    """Return a question as a person reads it, with the answers that fit."""
    if "approve" in question:
        return f"{question['approve']} [yes/no]"
    if "choose" in question:
        return f"{question.get('question') or 'Choose one.'} [{' / '.join(question['choose'])}]"
    if "fill" in question:
        names = ", ".join(question["fill"].get("properties", {}))
        return f"{question.get('question') or 'Fill in the form.'} [JSON with {names}]"
    return f"{question.get('unknown', '')} [{'/'.join(_OUTCOMES)}]"


def accept(question: Mapping[str, Any], answer: Any) -> Any:
    """Return an answer as the run takes it.

    Parameters
    ----------
    question
        See `nbtools.workflow.runs.events.QuestionAsked`.
    answer
        A value, or the text that a person typed: ``yes``, a choice or its number from 1, JSON for a form; of a step
        whose outcome is unknown also ``{"done": VALUE}``, where its data are known.

    Raises
    ------
    InvalidArguments
        It does not fit; the hint says what does.
    """
    said = answer.strip() if isinstance(answer, str) else answer
    if "approve" in question:
        taken = said if isinstance(said, bool) else _YES.get(str(said).lower())
        if taken is None:
            raise InvalidArguments(f"{said!r} is neither yes nor no.", hint="Answer yes or no.")
        return taken
    if "choose" in question:
        choices = question["choose"]
        if isinstance(said, str) and said.isdigit() and said not in choices and 1 <= int(said) <= len(choices):
            return choices[int(said) - 1]
        if said not in choices:
            raise InvalidArguments(
                f"{said!r} is no choice.", hint=did_you_mean(str(said), choices, f"Choices are {', '.join(choices)}.")
            )
        return said
    if "fill" in question:
        return _form(question["fill"], said)
    if isinstance(said, str) and said.startswith("done "):
        with contextlib.suppress(ValueError):
            said = {"done": json.loads(said.removeprefix("done "))}
    if said not in _OUTCOMES and not (isinstance(said, dict) and [*said] == ["done"]):
        hint = "Answer retry, done or fail; done VALUE tells what it gave, as JSON."
        raise InvalidArguments(f"{said!r} is no answer.", hint=hint)
    return said


def _form(schema: Mapping[str, Any], said: Any) -> Any:
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except ValueError as exc:
            raise InvalidArguments(
                f"the answer is not JSON: {exc}.", hint='Give a mapping: {"name": "value"}.'
            ) from None
    for misfit in SchemaType(schema).misfits(said, infer=lambda _: None):
        where = ".".join(map(str, misfit.place)) or "the answer"
        told = {"missing": "lacks", "unknown": "has the unknown"}.get(misfit.what, "")
        raise InvalidArguments(f"{where} {told} {misfit.message}".replace("  ", " "), hint=misfit.hint or None)
    return said
