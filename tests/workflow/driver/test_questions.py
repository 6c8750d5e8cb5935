"""Each kind of question: its words, its form, the answers that fit, and how an answer ends the step that asked."""

from __future__ import annotations

from typing import Any

import pytest

from nbtools.errors import InvalidArguments
from nbtools.workflow.driver.questions import accept, ended_by, form_answer, question_form, question_of, question_text
from nbtools.workflow.spec import Workflow

PLAIN = {"type": "object", "properties": {"n": {"type": "integer", "title": "N", "x": 1}}, "required": ["n"]}
NESTED = {"type": "object", "properties": {"n": {"type": "array"}}}
ANSWER = {"type": "object", "required": ["answer"]}


def _one(field: dict[str, Any]) -> dict[str, Any]:
    return {**ANSWER, "properties": {"answer": {"type": "string", "title": "Answer", **field}}}


@pytest.mark.parametrize(
    ("question", "text", "form", "fields", "answer"),
    [
        ({"approve": "Go?"}, "Go? [yes/no]", _one({"enum": ["yes", "no"]}), {"answer": "No"}, False),
        ({"again": "Again?"}, "Again? [yes/no]", _one({"enum": ["yes", "no"]}), {"answer": "y"}, True),
        ({"choose": ["a", "2"]}, "Choose one. [a / 2]", _one({"enum": ["a", "2"]}), {"answer": "1"}, "a"),
        ({"choose": ["a", "2"], "question": "Which?"}, "Which? [a / 2]", None, {"answer": "2"}, "2"),
        (
            {"fill": PLAIN},
            "Fill in the form. [JSON with n]",
            {"type": "object", "properties": {"n": {"type": "integer", "title": "N"}}, "required": ["n"]},
            {"n": 3},
            {"n": 3},
        ),
        (
            {"fill": NESTED, "question": "What?"},
            "What? [JSON with n]",
            _one({"description": "JSON with n"}),
            {"answer": '{"n": [1]}'},
            {"n": [1]},
        ),
        ({"unknown": "Hm?"}, "Hm? [retry / done / fail]", _one({"enum": ["retry", "done", "fail"]}), None, None),
        (
            {"unknown": "Hm?", "needs_value": True},
            "Hm? [retry / done VALUE / fail]",
            _one({"description": "done VALUE says what it returned, as JSON"}),
            {"answer": 'done {"a": 1}'},
            {"done": {"a": 1}},
        ),
    ],
)
def test_a_question_has_its_words_its_form_and_its_answer(
    question: dict[str, Any], text: str, form: Any, fields: Any, answer: Any
) -> None:
    assert question_text(question) == text
    words, schema = question_form(question)
    assert words == text.partition(" [")[0]
    assert form is None or schema == form
    assert fields is None or form_answer(question, fields) == answer


@pytest.mark.parametrize(
    ("question", "wrong", "fitting"),
    [
        ({"approve": "Go?"}, "perhaps", "yes or no"),
        ({"choose": ["a", "b"]}, "0", "a, b"),
        ({"choose": ["a", "b"]}, "3", "a, b"),
        ({"choose": ["a", "b"]}, "\u00b2", "a, b"),
        ({"fill": PLAIN}, "no JSON", "Give a mapping"),
        ({"fill": PLAIN}, '{"n": "x"}', "whole number"),
        ({"fill": PLAIN}, {}, "lacks n"),
        ({"fill": {"properties": {"a": {"enum": ["x  y"]}}}}, {"a": "p  q"}, "a 'p  q' is not one of 'x  y'"),
        ({"unknown": "Hm?"}, "done {", "retry, done or fail"),
        ({"unknown": "Hm?"}, {"done": 1, "more": 2}, "retry, done or fail"),
        ({"unknown": "Hm?", "needs_value": True}, "done", "done VALUE"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(question: dict[str, Any], wrong: Any, fitting: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        accept(question, wrong)
    assert fitting in f"{caught.value.message} {caught.value.hint}"


def test_only_a_list_of_texts_can_be_chosen_from() -> None:
    nodes = [{"id": "a", "ask": {"choose": "${inputs.x}"}}]
    (node,) = Workflow.model_validate({"version": 1, "name": "w", "nodes": nodes}).nodes
    for choices in ("ab", [], ["a", 1]):
        with pytest.raises(InvalidArguments, match="not a list of texts"):
            question_of(node, {"ask": {"choose": choices}})  # type: ignore[arg-type] # it is one that asks
    assert question_of(node, {"ask": {"choose": ["a"]}}) == {"choose": ["a"], "question": ""}  # type: ignore[arg-type] # as above


def _end(was: str, question: dict[str, Any], answer: Any) -> tuple[Any, ...] | None:
    ended = ended_by(was, question, answer, "ann")
    if ended is None:
        return None
    result = ended["result"]
    return ended["state"], result["ok"], result.get("data"), (result["error"] or {}).get("code")


def test_an_answer_ends_its_step_or_lets_it_run() -> None:
    call = {"approve": "Go?", "digest": "d"}
    assert _end("waiting", {"approve": "Go?"}, True) == ("ok", True, True, None)
    assert _end("waiting", {"approve": "Go?"}, False) == ("declined", False, False, None)
    assert _end("waiting", call, True) is None
    assert _end("waiting", call, False) == ("declined", False, False, "APPROVAL_DENIED")
    assert _end("waiting", {"again": "Again?"}, False) is None
    assert _end("waiting", {"choose": ["a"]}, "a") == ("ok", True, "a", None)
    unknown = {"unknown": "Hm?"}
    assert _end("unknown", unknown, "retry") is None
    assert _end("unknown", unknown, "done") == ("ok", True, None, None)
    assert _end("unknown", unknown, {"done": [1]}) == ("ok", True, [1], None)
    assert _end("unknown", unknown, "fail") == ("failed", False, None, "EXECUTION_FAILED")
