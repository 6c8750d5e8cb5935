"""``nbtools agent``: ask a model that works with the tools; list, show, resume, export and undo its runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nbtools.assembly.workbench import Workbench
from nbtools.cli.command_parser import add_command
from nbtools.conduct.resumption import run_to_resume
from nbtools.contract.approval.gate import AskTerminal
from nbtools.errors import InvalidArguments, nearest
from nbtools.ground import aio
from nbtools.ground.option_values import declarations, json_or_text, pair
from nbtools.texts.visible import aligned, counted, in_commands, visible, wrapped

if TYPE_CHECKING:
    from nbtools.agent import AgentRun
    from nbtools.agent.records.events import AgentEvent
    from nbtools.agent.records.lines import RunLines
    from nbtools.contract.approval.gate import Reply

_WAITS = 3
_OTHER_WORDS = {"list": "runs"}  # of other commands
_USAGE = declarations(__file__)["agent"]["words"]["help"]


def add_commands(commands: Any) -> None:
    """Add ``agent`` to the parser's commands."""
    add_command(commands, __file__, "agent").set_defaults(perform=_agent)


def _agent(arguments: argparse.Namespace) -> int:
    verb, *rest = arguments.words or [""]
    least, most, perform = _VERBS.get(verb, (0, 0, _ask_model))
    # A slip in a verb must not become the prompt of a model.
    close = None if verb in _VERBS or " " in verb.strip() else _OTHER_WORDS.get(verb) or nearest(verb, _VERBS)
    if not verb.strip() or close or not least <= len(rest) <= most:
        problem = f"{counted(len(rest), 'word')} after {verb!r} {'does' if len(rest) == 1 else 'do'} not fit."
        problem = f"there is no command {verb!r}." if close else problem if verb.strip() else "there is nothing to do."
        if len(rest) < least:
            runs = "nbtools agent runs lists the runs, the newest first"
            raise InvalidArguments(f"{verb!r} needs a RUN.", hint=f"{runs}; nbtools agent {verb} RUN takes one.")
        did = f"Did you mean {close!r}? " if close else ""
        raise InvalidArguments(problem, hint=f"{did}Write {_USAGE}; put a prompt of several words in quotes.")
    with Workbench() as wb:
        return perform(wb, arguments, *rest)


def _ask_model(wb: Workbench, arguments: argparse.Namespace) -> int:
    how = _how(arguments)
    if arguments.tools:
        how["tools"] = arguments.tools
    if arguments.read_only or arguments.plan:
        how |= {"read_only": arguments.read_only, "plan": arguments.plan}
    prompt = arguments.words[0]
    how |= {"words": prompt, "profile": arguments.profile, "after": arguments.after}
    if arguments.tries is not None:
        runs = wb.agent.start_tries(prompt, arguments.tries, at_once=not arguments.in_turn, **how)
        return _follow_tries(runs, arguments)
    return _follow(wb.agent.start(prompt, **how), arguments)


def _follow_tries(runs: list[AgentRun], arguments: argparse.Namespace) -> int:
    """Print a line for what happens in each of several tries, then all side by side; return the exit code."""
    from nbtools.agent.records.lines import RunLines
    from nbtools.agent.tries import follow, in_columns

    lines = RunLines()

    def tell(number: int, event: AgentEvent) -> None:
        if arguments.events:
            print(json.dumps(event.to_dict(), ensure_ascii=False, default=str), flush=True)
        elif not arguments.json and (line := lines.line(event.to_dict())):
            print(f"[{number}] {line}", file=sys.stderr)

    aio.run(follow(runs, tell))
    if arguments.json:
        print(json.dumps([_as_dict(run) for run in runs], ensure_ascii=False, default=str))
    elif not arguments.events:
        print("\n".join(aligned(in_columns(runs))))
    states = {run.state for run in runs}
    return 0 if "done" in states else _WAITS if "pending" in states else 1


def _resume(wb: Workbench, arguments: argparse.Namespace, run_id: str | None = None) -> int:
    runs = ((run["run_id"], run["state"], run["prompt"]) for run in wb.agent.runs())
    run_id = run_id or run_to_resume(runs, "nbtools agent runs")
    return _follow(wb.agent.start_again(run_id, _answers(wb, arguments, run_id), **_how(arguments)), arguments)


def _how(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that a new run and one that goes on both take."""
    from nbtools.agent.tools.own_tools import asked_at_line

    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    how: dict[str, Any] = {
        "model": arguments.model,
        "approver": AskTerminal() if is_terminal else None,
        "ask": asked_at_line(input) if is_terminal else None,
        "budgets": {name.replace("-", "_"): json_or_text(n) for name, n in map(pair, arguments.budget or ())} or None,
    }
    return how | ({"share": arguments.share} if arguments.share else {})


def _answers(wb: Workbench, arguments: argparse.Namespace, run_id: str) -> dict[str, Reply] | None:
    """Return the same answer to every call that waits; changed arguments only where one does."""
    changes = {name: json_or_text(value) for name, value in map(pair, arguments.set or ())}
    if arguments.answer is None:
        if changes:
            raise InvalidArguments("--set changes what is approved.", hint="Add --answer once.")
        return None
    from nbtools.agent.approvals import same_reply

    pending = wb.agent.get(run_id).pending
    return same_reply(pending, arguments.answer, by="command line", reason=arguments.reason, changes=changes)


def _follow(run: AgentRun, arguments: argparse.Namespace) -> int:
    """Print what the model writes as it comes, and a line for what else happens; return the exit code."""
    from nbtools.agent.records.lines import RunLines

    lines = RunLines()
    try:
        for event in run:
            if arguments.events:
                print(json.dumps(event.to_dict(), ensure_ascii=False, default=str), flush=True)
            elif not arguments.json:
                _print(event.to_dict(), lines)
    except KeyboardInterrupt:
        run.interrupt()
        run.wait(5.0)
        # A run that waits for approval has stored all: Ctrl-C then only leaves the question.
        if run.state != "pending":
            raise
    if arguments.json:
        print(json.dumps(_as_dict(run), ensure_ascii=False, default=str))
    elif not arguments.events:
        print(f"\n{_footer(run)}", file=sys.stderr)
    return {"done": 0, "pending": _WAITS}.get(run.state, 1)


def _print(event: dict[str, Any], lines: RunLines) -> None:
    if event["kind"] == "text":
        print(visible(event["text"], lines=True), end="", flush=True)
    elif line := lines.line(event):
        # The line goes to the other stream, and would overtake the text before it.
        sys.stdout.flush()
        print(f"\n{line}", file=sys.stderr)


def _footer(run: AgentRun, *, whole: bool = False) -> str:
    """Return how the run ended, without the answer, which has been printed; and what waits, if wanted the `whole`."""
    from nbtools.agent.records.lines import usage_line

    lines = [usage_line(run)]
    if run.error:
        hint = f" ({in_commands(run.error.hint)})" if run.error.hint else ""
        lines.append(f"{run.error.code}: {run.error.message}{hint}")
    lines += [wrapped(item.whole if whole else item.text) for item in run.pending]
    if run.pending:
        lines.append(f"nbtools agent resume {run.run_id} asks again, or answers with --answer once or no.")
    return "\n".join(lines)


def _as_dict(run: AgentRun) -> dict[str, Any]:
    record = {
        name: getattr(run, name) for name in ("run_id", "conversation_id", "state", "model", "label", "text", "value")
    }
    error = run.error.to_dict() if run.error else None
    return {**record, "usage": run.usage, "error": error, "pending": [item.to_dict() for item in run.pending]}


def _list(wb: Workbench, arguments: argparse.Namespace) -> int:
    runs = wb.agent.runs()
    if arguments.json:
        print(json.dumps(runs, ensure_ascii=False, default=str))
        return 0
    if not runs:
        print("There are no runs yet.")
    for record in runs:
        prompt = visible(" ".join(record["prompt"].split()))[:60]
        print(f"{record['run_id']}  {record['state']:<11}  {record['label'] or record['model']}  {prompt}")
    return 0


def _show(wb: Workbench, arguments: argparse.Namespace, run_id: str) -> int:
    from nbtools.agent.records.lines import RunLines

    run, lines = wb.agent.get(run_id), RunLines()
    if arguments.sent:
        sent = wb.agent.sent(run.run_id)
        print(json.dumps(sent, ensure_ascii=False) if arguments.json else visible("\n".join(sent), lines=True))
        return 0
    log = wb.agent.log(run.run_id)
    if arguments.json:
        print(json.dumps({**_as_dict(run), "events": log}, ensure_ascii=False, default=str))
        return 0
    print(f"> {visible(run.prompt, lines=True)}")
    for event in log:
        line = visible(event["text"], lines=True) if event["kind"] == "text" else lines.line(event)
        if line:
            print(line)
    print(_footer(run, whole=True))
    return 0


def _export(wb: Workbench, arguments: argparse.Namespace, run_id: str, path: str | None = None) -> int:
    if (path is None) is (arguments.workflow is None):
        raise InvalidArguments("give FILE.ipynb or --workflow FILE.yaml.", hint="nbtools agent export RUN proof.ipynb")
    is_workflow = path is None
    how: dict[str, Any] = {"as_workflow": is_workflow, "prove": arguments.prove, "repeat": arguments.repeat}
    export = wb.agent.export(run_id, path or arguments.workflow, **how, caller="cli")
    print(json.dumps(export.to_dict(), ensure_ascii=False) if arguments.json else visible(str(export), lines=True))
    return 0 if export.is_good else 1


def _cancel(wb: Workbench, arguments: argparse.Namespace, run_id: str) -> int:
    run = wb.agent.cancel(run_id)
    print(f"run {run.run_id} is {run.state}")
    return 0


def _keep(wb: Workbench, arguments: argparse.Namespace, run_id: str) -> int:
    print(f"run {wb.agent.keep(run_id).run_id} is kept, and the other tries have ended")
    return 0


def _undo(wb: Workbench, arguments: argparse.Namespace, run_id: str) -> int:
    rows = wb.agent.undo(run_id)
    if arguments.json:
        print(json.dumps(rows, ensure_ascii=False))
    else:
        for row in rows:
            outcome = (row["why"] or "taken back") if row["undone"] else f"not taken back: {row['why']}"
            print(f"{visible(row['tool'])} {visible(row['target'])} {outcome}")
    return 0 if all(row["undone"] for row in rows) else 1


def _forget(wb: Workbench, arguments: argparse.Namespace, run_id: str) -> int:
    print(f"run {wb.agent.forget(run_id)} is forgotten")
    return 0


# How many words may follow, and what is done.
_VERBS: dict[str, tuple[int, int, Callable[..., int]]] = {
    "runs": (0, 0, _list),
    "show": (1, 1, _show),
    "resume": (0, 1, _resume),
    "export": (1, 2, _export),
    "cancel": (1, 1, _cancel),
    "keep": (1, 1, _keep),
    "undo": (1, 1, _undo),
    "forget": (1, 1, _forget),
}
