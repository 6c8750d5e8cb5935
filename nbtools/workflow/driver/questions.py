"""Questions to people: what is asked, and which answers fit."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from nbtools.errors import InvalidArguments, did_you_mean
from nbtools.visible import visible
from nbtools.workflow.runs.state import failure_result
from nbtools.workflow.schemas import SchemaType
from nbtools.workflow.spec import Approve, AskNode, Choose

_YES = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
_OUTCOMES = ("retry", "done", "fail")
_PLAIN = frozenset({"string", "number", "integer", "boolean"})
_SHOWN = frozenset(
    {"type", "title", "description", "enum", "default", "minimum", "maximum", "minLength", "maxLength", "format"}
)


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


def unknown_result(told: str, *, needs_value: bool) -> dict[str, Any]:
    """Return the result of a step whose outcome is unknown: it has the question that a person has to answer.

    `needs_value` says that something reads what the step gave, so that done alone does not tell enough.
    """
    done = "done VALUE, with what it gave as JSON" if needs_value else "done"
    asked = f"{told} Run it again (retry), count it as done ({done}), or as failed (fail)?"
    question = {"unknown": asked, **({"needs_value": True} if needs_value else {})}
    return {**failure_result("CANCELLED", told), "question": question}


def question_text(question: Mapping[str, Any]) -> str:
    """Return a question as a person reads it, with the answers that fit."""
    words, answers = _words(question)
    return f"{words} [{answers}]"


def _words(question: Mapping[str, Any]) -> tuple[str, str]:
    """Return the question and its answers, in which whatever cannot be seen is spelled out: a model may have a part."""
    words, answers = _raw_words(question)
    return visible(words, lines=True), visible(answers)


def _raw_words(question: Mapping[str, Any]) -> tuple[str, str]:
    if yes_no := question.get("approve") or question.get("again"):
        return yes_no, "yes/no"
    if "choose" in question:
        return question.get("question") or "Choose one.", " / ".join(question["choose"])
    if "fill" in question:
        names = ", ".join(question["fill"].get("properties", {}))
        return question.get("question") or "Fill in the form.", f"JSON with {names}"
    return question.get("unknown", ""), " / ".join(_outcomes(question))


def _outcomes(question: Mapping[str, Any]) -> tuple[str, ...]:
    return ("retry", "done VALUE", "fail") if question.get("needs_value") else _OUTCOMES


def question_form(question: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the words of a question, and the JSON Schema of a flat form for its answer."""
    words, answers = _words(question)
    fields = _plain_fields(question)
    if fields is not None:
        return words, {**fields, "type": "object"}
    field: dict[str, Any] = {"type": "string", "title": "Answer"}
    if "fill" in question:
        field["description"] = answers
    else:
        is_yes_no = "approve" in question or "again" in question
        field["enum"] = ["yes", "no"] if is_yes_no else list(question.get("choose", _OUTCOMES))
    if question.get("needs_value"):
        field = {**field, "description": "done VALUE tells what it gave, as JSON"}
        del field["enum"]
    return words, {"type": "object", "properties": {"answer": field}, "required": ["answer"]}


def form_answer(question: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
    """Return the answer that the fields of a form of `question_form` give.

    Raises
    ------
    InvalidArguments
        They do not fit.
    """
    given = dict(fields) if _plain_fields(question) is not None else fields.get("answer", "")
    return accept(question, given)


def _plain_fields(question: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the part of a form's schema that every client shows; `None` where a field is more than plain."""
    schema = question.get("fill", {})
    found = schema.get("properties", {})
    if not found or any(field.get("type") not in _PLAIN for field in found.values()):
        return None
    fields = {name: {k: v for k, v in field.items() if k in _SHOWN} for name, field in found.items()}
    return {"properties": fields, "required": list(schema.get("required", ()))}


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
    if "approve" in question or "again" in question:
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
    if said == "done" and question.get("needs_value"):
        hint = "Answer done VALUE with its data as JSON, such as done {} or done null; or retry, or fail."
        raise InvalidArguments("other nodes read what this one gave, and done does not tell it.", hint=hint)
    if said not in _OUTCOMES and not (isinstance(said, dict) and [*said] == ["done"]):
        hint = "Answer retry, done or fail; done VALUE tells what it gave, as JSON."
        raise InvalidArguments(f"{said!r} is no answer.", hint=hint)
    return said


def ended_by(was: str, question: Mapping[str, Any], taken: Any, who: str) -> dict[str, Any] | None:
    """Return how an answer ends its step; `None` where it lets the step run. The data of a no are false.

    Parameters
    ----------
    was
        The state of the step: ``"waiting"`` or ``"unknown"``.
    question, taken
        What was asked, and the answer as `accept` returns it.
    who
        Who answered.
    """
    result: dict[str, Any] = {"ok": True, "data": taken, "error": None, "artifacts": [], "duration_s": 0.0}
    if was == "unknown":
        if taken == "fail":
            return {"state": "failed", "result": failure_result("EXECUTION_FAILED", f"{who} said that it has failed.")}
        result |= {"text": "done", "data": taken["done"] if isinstance(taken, dict) else None}
        return None if taken == "retry" else {"state": "ok", "result": result, "why": f"{who} said that it was done"}
    if "again" in question:
        return None
    if taken is False:
        why = f"{who} said no"
        result |= {"ok": False, "text": "no", "error": None}
        if "digest" in question:
            result["error"] = {"code": "APPROVAL_DENIED", "message": f"{why}.", "hint": None}
        return {"state": "declined", "result": result, "why": why}
    result["text"] = taken if isinstance(taken, str) else str(taken)
    return None if "digest" in question else {"state": "ok", "result": result, "why": f"answered by {who}"}


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
