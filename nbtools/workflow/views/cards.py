"""A run as a card in a notebook: its graph, its nodes, what it returned, and what it asks."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from nbtools.texts import html_parts
from nbtools.texts.redaction import redact
from nbtools.texts.visible import in_magics, visible
from nbtools.workflow.runs.state import RunState
from nbtools.workflow.spec import Workflow
from nbtools.workflow.views.graph import graph_svg
from nbtools.workflow.views.pictures import PictureBudget, artifacts_of
from nbtools.workflow.views.signs import SIGNS, sign_svg
from nbtools.workflow.views.table import COLUMNS, rows_of

_PICTURES = 4 * 2**20
_LONGEST = 4_000


def run_card(
    run_id: str,
    state: str,
    progress: RunState,
    workflow: Workflow | None,
    questions: Iterable[tuple[str, str, Mapping[str, Any]]] = (),
    *,
    error: Mapping[str, Any] | None = None,
    drift: Iterable[str] = (),
) -> str:
    """Return the card of a run.

    Parameters
    ----------
    run_id
        Id of the run.
    state
        Its state in a word.
    progress
        The states of its nodes.
    workflow
        What runs; `None` where its file can no longer be read.
    questions
        Open questions: step, text, and the question as data.
    error
        Why it failed.
    drift
        What is different from the files of now.
    """
    parts = [headline(progress.workflow, state, run_id, progress)]
    if error is not None:
        code, message, hint = (str(error.get(name) or "") for name in ("code", "message", "hint"))
        parts.append(html_parts.error_block(code, message, in_magics(hint)))
    parts += [question_part(run_id, *question, reworded=in_magics) for question in questions]
    parts += progress_parts(progress, "" if workflow is None else graph_svg(workflow, progress))
    parts.append(output_part(progress.outputs or {}))
    parts += PictureBudget(_PICTURES).images(artifacts_of(progress))
    parts += [html_parts.footer(line) for line in drift]
    return f"<div>{redact(''.join(parts))}</div>"


def headline(name: str, state: str, run_id: str, progress: RunState) -> str:
    """Return what ran, with its state, the seconds of driving, and what models took."""
    facts = [run_id, *used_words(progress)]
    line = f"{sign_svg(state)} <b>{html.escape(name)}</b> {html.escape(state)}"
    return f"<div>{line}{html_parts.footer(' · '.join(facts))}</div>"


def used_words(progress: RunState) -> list[str]:
    """Return the seconds of driving, and what models took."""
    words = [f"{progress.seconds:.2f} s", *([f"{progress.tokens:,} tokens"] if progress.tokens else [])]
    return [*words, *([f"{progress.usd:.4f} USD"] if progress.usd else [])]


def progress_parts(progress: RunState, svg: str) -> list[str]:
    """Return the graph and the table of the nodes."""
    return [graph_part(svg), html_parts.table(COLUMNS, rows_of(progress))]


def graph_part(svg: str) -> str:
    """Return the graph in a frame that scrolls where it is too large."""
    return f"<div style='overflow:auto;max-height:480px;margin:6px 0'>{svg}</div>" if svg else ""


def output_part(outputs: Mapping[str, Any]) -> str:
    """Return what a run returned; nothing where that is nothing."""
    if not outputs:
        return ""
    rows = []
    for name, value in outputs.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)
        cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"
        body = html_parts.preformatted(visible(cut, lines=True))
        rows.append(f"<tr><th style='text-align:left;vertical-align:top'>{html.escape(name)}</th><td>{body}</td></tr>")
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def question_part(
    run_id: str, step: str, text: str, question: Mapping[str, Any], *, reworded: Callable[[str], str] = str
) -> str:
    """Return an open question as it was asked, and the command that answers it, as `reworded` says it."""
    words = f"<div><b>{html.escape(step)}</b> asks: {html.escape(visible(text, lines=True))}</div>"
    command = html.escape(reworded(answer_command(run_id, step, question)))
    style = f"border-left:3px solid {SIGNS['waiting'].colour};padding-left:8px;margin:4px 0"
    return f"<div style='{style}'>{words}<code>{command}</code></div>"


def answer_command(run_id: str, step: str, question: Mapping[str, Any]) -> str:
    """Return the command that answers a question, with an answer that fits."""
    return shlex.join(["nbtools", "runs", "answer", run_id, step, next(_answers(question))])


def _answers(question: Mapping[str, Any]) -> Iterator[str]:
    if "approve" in question or "again" in question:
        yield "yes"
    elif "choose" in question:
        yield str(question["choose"][0])
    elif "fill" in question:
        yield json.dumps(dict.fromkeys(question["fill"].get("properties", {}), "…"), ensure_ascii=False)
    else:
        yield "retry"
