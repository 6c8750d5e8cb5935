"""Questions to people: what is asked, and which answers fit."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nbtools.errors import InvalidArguments, did_you_mean
from nbtools.texts.visible import visible, wrapped
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
        What is to be chosen from is not a list of texts.
    """
    ask = values.get("ask", {})
    if isinstance(node.ask, Approve):
        return {"approve": ask["approve"]}
    if isinstance(node.ask, Choose):
        choices = ask["choose"]
        if not isinstance(choices, list) or not choices or not all(isinstance(one, str) for one in choices):
            raise InvalidArguments(
                f"choose is {choices!r:.80}, not a list of texts.", hint="Give texts, or an expression for a list."
            )
        return {"choose": choices, "question": ask.get("question", "")}
    return {"fill": node.ask.fill, "question": ask.get("question", "")}


def unknown_result(message: str, *, needs_value: bool) -> dict[str, Any]:
    """Return the result of a step whose outcome is unknown: it has the question that a person has to answer.

    `needs_value` says that something reads what the step gave, so that done alone does not tell enough.
    """
    done = "done VALUE, with what it returned as JSON" if needs_value else "done"
    text = f"{message} Run it again (retry), count it as done ({done}), or as failed (fail)?"
    question = {"unknown": text, **({"needs_value": True} if needs_value else {})}
    return {**failure_result("CANCELLED", message), "question": question}


def question_text(question: Mapping[str, Any]) -> str:
    """Return a question as a person reads it, with the answers that fit."""
    words, answers = question_words(question)
    return f"{words} [{answers}]"


def question_words(question: Mapping[str, Any]) -> tuple[str, str]:
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
    outcomes = ("retry", "done VALUE", "fail") if question.get("needs_value") else _OUTCOMES
    return question.get("unknown", ""), " / ".join(outcomes)


def question_form(question: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the words of a question, and the JSON Schema of a flat form for its answer."""
    words, answers = question_words(question)
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
        field = {**field, "description": "done VALUE says what it returned, as JSON"}
        del field["enum"]
    return words, {"type": "object", "properties": {"answer": field}, "required": ["answer"]}


def form_answer(question: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
    """Return the answer that the fields of a form of `question_form` give.

    Raises
    ------
    InvalidArguments
        They do not fit.
    """
    raw = dict(fields) if _plain_fields(question) is not None else fields.get("answer", "")
    return accept(question, raw)


def _plain_fields(question: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the part of a form's schema that every client shows; `None` where a field is more than plain."""
    schema = question.get("fill", {})
    properties = schema.get("properties", {})
    # Forms of MCP know these types alone; anything else is asked for as JSON in one field.
    if not properties or any(field.get("type") not in _PLAIN for field in properties.values()):
        return None
    fields = {name: {k: v for k, v in field.items() if k in _SHOWN} for name, field in properties.items()}
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
    text = answer.strip() if isinstance(answer, str) else answer
    if "approve" in question or "again" in question:
        # A closed list: what is not clearly a yes is asked again, and never taken for one.
        verdict = text if isinstance(text, bool) else _YES.get(str(text).lower())
        if verdict is None:
            raise InvalidArguments(f"{text!r} is neither yes nor no.", hint="Answer yes or no.")
        return verdict
    if "choose" in question:
        choices = question["choose"]
        # A choice that is itself a number is meant as such.
        numbered = dict(zip(map(str, range(1, len(choices) + 1)), choices, strict=True))
        if isinstance(text, str) and text not in choices:
            text = numbered.get(text, text)
        if text not in choices:
            raise InvalidArguments(
                f"{text!r} is not one of the choices.",
                hint=did_you_mean(str(text), choices, f"Choices are {', '.join(choices)}."),
            )
        return text
    if "fill" in question:
        return _form(question["fill"], text)
    # Text that is not JSON stays as it was typed, so that the refusal shows what people wrote.
    if isinstance(text, str) and text.startswith("done "):
        with contextlib.suppress(ValueError):
            text = {"done": json.loads(text.removeprefix("done "))}
    # Null would be read as a value by the nodes that follow.
    if text == "done" and question.get("needs_value"):
        hint = "Answer done VALUE with its data as JSON, such as done {} or done null; or retry, or fail."
        raise InvalidArguments("other nodes read what this one returned, and done does not say it.", hint=hint)
    if text not in _OUTCOMES and not (isinstance(text, dict) and [*text] == ["done"]):
        hint = "Answer retry, done or fail; done VALUE says what it returned, as JSON."
        raise InvalidArguments(f"{text!r} is not an answer.", hint=hint)
    return text


async def answer_at_line(step: str, question: Mapping[str, Any], read: Callable[[str], Awaitable[str | None]]) -> Any:
    """Ask a person at a line until an answer fits; `None` where no line comes.

    Parameters
    ----------
    step
        Name of the step that asks.
    question
        The question as data.
    read
        Shows a text and returns the line that is typed; `None` without a person.
    """
    prompt = wrapped(f"{step} asks: {question_text(question)}")
    while (line := await read(prompt)) is not None:
        try:
            return accept(question, line)
        except InvalidArguments as exc:
            prompt = "\n".join(exc.three_lines())
    return None


def ended_by(was: str, question: Mapping[str, Any], answer: Any, who: str) -> dict[str, Any] | None:
    """Return how an answer ends its step; `None` where it lets the step run. The data of a no are false.

    Parameters
    ----------
    was
        The state of the step: ``"waiting"`` or ``"unknown"``.
    question
        The question as data.
    answer
        The answer as `accept` returns it.
    who
        Who answered.
    """
    result: dict[str, Any] = {"ok": True, "data": answer, "error": None, "artifacts": [], "duration_s": 0.0}
    if was == "unknown":
        if answer == "fail":
            return {"state": "failed", "result": failure_result("EXECUTION_FAILED", f"{who} said that it has failed.")}
        # A bare done gives null, which `accept` lets through only where nothing reads the value.
        result |= {"text": "done", "data": answer["done"] if isinstance(answer, dict) else None}
        return None if answer == "retry" else {"state": "ok", "result": result, "why": f"{who} said that it was done"}
    if "again" in question:
        return None
    if answer is False:
        why = f"{who} said no"
        result |= {"ok": False, "text": "no", "error": None}
        # A call that was refused has failed for those that need it. A no to a question of the file is an answer like
        # another.
        if "digest" in question:
            result["error"] = {"code": "APPROVAL_DENIED", "message": f"{why}.", "hint": None}
        return {"state": "declined", "result": result, "why": why}
    result["text"] = answer if isinstance(answer, str) else str(answer)
    return None if "digest" in question else {"state": "ok", "result": result, "why": f"answered by {who}"}


def _form(schema: Mapping[str, Any], value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as exc:
            raise InvalidArguments(
                f"the answer is not JSON: {exc}.", hint='Give a mapping: {"name": "value"}.'
            ) from None
    for misfit in SchemaType(schema).misfits(value, infer=lambda _: None):
        where = ".".join(map(str, misfit.loc)) or "the answer"
        verb = {"missing": "lacks", "unknown": "has the unknown"}.get(misfit.what, "")
        raise InvalidArguments(" ".join(filter(None, (where, verb, misfit.message))), hint=misfit.hint or None)
    return value
