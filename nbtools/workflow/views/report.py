"""The report of a run: one HTML file that needs nothing beside itself and loads nothing.

It has the graph, the times, the inputs and outputs, each step with why it ran or was reused, its result, error, files
and pictures, the runs inside, and the files of the workflow as they were. Values of the environment that the workflow
reads, and what looks like a credential, are masked.
"""

from __future__ import annotations

import contextlib
import html
import json
import string
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.errors import NbtoolsError
from nbtools.texts import html_parts
from nbtools.texts.redaction import conceal, redact
from nbtools.texts.visible import visible
from nbtools.workflow.graph import edges
from nbtools.workflow.runs.environment import variables_of, without_variables
from nbtools.workflow.runs.log import FrozenRun
from nbtools.workflow.runs.state import NodeState, RunState, StepState
from nbtools.workflow.spec import NodeFields, Workflow
from nbtools.workflow.views.cards import graph_part, headline, output_part, question_part
from nbtools.workflow.views.graph import graph_svg
from nbtools.workflow.views.pictures import PictureBudget
from nbtools.workflow.views.saved import read_progress
from nbtools.workflow.views.signs import seconds_of, shown_state, sign_svg, stated, what_runs, words_of
from nbtools.workflow.views.waterfall import waterfall_svg

_PICTURES = 16 * 2**20
_LONGEST = 20_000
_MOST_ITEMS, _MOST_INSIDE = 50, 20
_PAGE = string.Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))


def report_html(
    run: FrozenRun,
    state: str,
    progress: RunState,
    workflow: Workflow | None,
    questions: Iterable[tuple[str, str, Mapping[str, Any]]] = (),
) -> str:
    """Return the report of a run.

    Parameters
    ----------
    run
        Its folder.
    state
        Its state in a word.
    progress
        The states of its nodes.
    workflow
        What runs; `None` where its file can no longer be read.
    questions
        Open questions: step, text, and the question as data.
    """
    variables = frozenset() if workflow is None else variables_of(workflow)
    report = _ReportParts(run, variables, PictureBudget(_PICTURES), run.folder)
    # Once more over the whole: a secret may stand in a question, a reason, or the name of a file.
    body = report.redacted("".join(report.parts(state, progress, workflow, questions)))
    return _PAGE.substitute(title=html.escape(f"{run.facts['workflow']} {state}"), body=body)


class _ReportParts:
    """Makes the parts of one report, which share the bytes for pictures and what is masked."""

    def __init__(self, run: FrozenRun, variables: frozenset[str], pictures: PictureBudget, base: Path) -> None:
        self._run = run
        self._variables = variables
        self._pictures = pictures
        self._base = base

    def parts(
        self,
        state: str,
        progress: RunState,
        workflow: Workflow | None,
        questions: Iterable[tuple[str, str, Mapping[str, Any]]],
    ) -> Iterator[str]:
        run = self._run
        yield headline(str(run.facts["workflow"]), state, run.folder.name, progress)
        if workflow is not None and workflow.description:
            yield f"<p>{html.escape(workflow.description)}</p>"
        if progress.error is not None:
            error = conceal(without_variables(self._variables, dict(progress.error)))
            yield html_parts.error_block(str(error.get("code", "")), str(error.get("message", "")), error.get("hint"))
        for question in questions:
            yield question_part(run.folder.name, *question)
        for line in run.drift():
            yield f"<div>Note: {html.escape(line)}; this run used it as it was.</div>"
        yield html_parts.card("", "", self._facts(progress))
        if workflow is not None:
            yield f"<h2>Graph</h2>{graph_part(graph_svg(workflow, progress))}"
        yield f"<h2>Times</h2>{graph_part(waterfall_svg(progress))}"
        yield _section("Inputs", output_part(conceal(without_variables(self._variables, dict(progress.inputs)))))
        yield _section("Outputs", output_part(self.redacted(dict(progress.outputs or {}))))
        yield "<h2>Steps</h2>"
        yield from self._steps(progress, workflow)
        yield _section("Runs inside", "".join(self._inside()))
        yield "<h2>Files</h2>"
        for name in run.facts["files"]:
            yield _folded(html.escape(str(name)), self._source(run.folder / "files" / str(name)))

    def _facts(self, progress: RunState) -> dict[str, str]:
        facts = {"file": str(self._run.facts["source"]), "driver": progress.driver}
        facts["resumed"] = f"{progress.fence - 1} times" if progress.fence > 1 else ""
        for name, when in (("started", progress.started_at), ("ended", progress.ended_at)):
            facts[name] = "" if when is None else time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(when))
        return {name: value for name, value in facts.items() if value}

    def redacted(self, value: Any) -> Any:
        """Return a value without secrets of the environment."""
        return redact(without_variables(self._variables, value))

    def _node(self, node: NodeFields, of: NodeState) -> str:
        needs = ", ".join(dict.fromkeys(edge.target for edge in edges(node)))
        facts = {
            "what": f"{node.kind}: {what_runs(node)}",
            "needs": needs,
            "when": "" if node.when is None else str(node.when),
        }
        body = [html_parts.footer(node.description), html_parts.card("", "", {k: v for k, v in facts.items() if v})]
        if of.items is None:
            body += self._step(of)
        else:
            body.append(html_parts.footer(str(of.view()["text"])))
            for i, step in enumerate(of.steps[:_MOST_ITEMS]):
                item = html_parts.footer(f"item: {words_of({'data': conceal(of.items[i])}, 200)}")
                body.append(_folded(self._summary(f"{node.id}[{i}]", step), [item, *self._step(step)]))
            if len(of.steps) > _MOST_ITEMS:
                body.append(html_parts.footer(f"… {len(of.steps) - _MOST_ITEMS:,} more items"))
        # A reader of the report looks for what went wrong, and for the charts.
        is_open = of.state in {"failed", "declined", "unknown", "waiting"} or any("<img" in part for part in body)
        return _folded(self._summary(node.id, of), body, is_open=is_open)

    def _summary(self, name: str, step: StepState) -> str:
        seconds = seconds_of(step)
        why = [stated(step), "" if seconds is None else f"{seconds:.2f} s", step.why]
        return f"{sign_svg(shown_state(step))} <b>{html.escape(name)}</b> {html.escape(' · '.join(filter(None, why)))}"

    def _step(self, step: StepState) -> Iterator[str]:
        """Yield what there is to say of a step: attempts, the answer, error, text, data, pictures and files."""
        view = self.redacted(step.view())
        if step.attempt > 1:
            yield html_parts.footer(f"{step.attempt} attempts")
        if step.answered_by or step.answer is not None:
            yield html_parts.footer(
                f"answered {words_of({'data': step.answer}, 200)} by {step.answered_by or 'someone'}"
            )
        if error := view["error"]:
            yield html_parts.error_block(error["code"], error["message"], error.get("hint"))
        text = str(view["text"])
        if text and not view["error"] and text != view["data"]:
            yield _text(text)
        if view["data"] is not None:
            data = view["data"]
            yield _text(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=1, default=repr))
        yield from self._pictures.images(step.view()["artifacts"])
        for artifact in step.view()["artifacts"]:
            yield self._file(artifact)

    def _file(self, artifact: Mapping[str, Any]) -> str:
        path = Path(artifact["path"])
        name = html.escape(path.name)
        size = f" ({artifact.get('size', 0):,} bytes)"
        with contextlib.suppress(ValueError):
            # Relative, so that the links hold where the folder is copied or packed.
            inside = html.escape(path.relative_to(self._base).as_posix(), quote=True)
            return f"<div><a href='{inside}'>{name}</a>{size}</div>"
        return f"<div>{html.escape(str(path))}{size}</div>"

    def _steps(self, progress: RunState, workflow: Workflow | None) -> Iterator[str]:
        for node in () if workflow is None else workflow.nodes:
            yield self._node(node, progress.nodes[node.id])

    def _inside(self) -> Iterator[str]:
        """Yield the runs inside of this one."""
        folders = sorted((self._run.folder / "sub").glob("*"))
        for folder in folders[:_MOST_INSIDE]:
            with contextlib.suppress(NbtoolsError):
                inner = FrozenRun(folder)
                progress, workflow = read_progress(inner)
                variables = frozenset() if workflow is None else variables_of(workflow)
                # The budget of pictures is one for the whole page, and a secret of the outer run may be an input of the
                # inner one.
                inner_report = _ReportParts(inner, self._variables | variables, self._pictures, self._base)
                body = [] if workflow is None else [graph_part(graph_svg(workflow, progress))]
                body += [*inner_report._steps(progress, workflow), *inner_report._inside()]
                yield _folded(f"{sign_svg(progress.state)} <b>{html.escape(folder.name)}</b> {progress.state}", body)
        if len(folders) > _MOST_INSIDE:
            yield html_parts.footer(f"… {len(folders) - _MOST_INSIDE:,} more runs")

    def _source(self, path: Path) -> list[str]:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return [html_parts.footer("It is gone.")]
        return [_text(conceal(without_variables(self._variables, text[: 5 * _LONGEST])), 5 * _LONGEST)]


def _section(title: str, body: str) -> str:
    return f"<h2>{title}</h2>{body}" if body else ""


def _folded(summary: str, body: Iterable[str], *, is_open: bool = False) -> str:
    return f"<details{' open' * is_open}><summary>{summary}</summary><div>{''.join(body)}</div></details>"


def _text(text: str, longest: int = _LONGEST) -> str:
    cut = text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"
    return html_parts.preformatted(visible(cut, lines=True))
