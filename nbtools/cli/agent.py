"""``nbtools agent``: ask a model that works with the tools; list, show and resume its runs."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from nbtools.errors import InvalidArguments
from nbtools.gate import AskTerminal, Reply
from nbtools.visible import visible
from nbtools.workbench import Workbench

if TYPE_CHECKING:
    from nbtools.agent import AgentRun
    from nbtools.agent.records.events import AgentEvent

__all__ = ["add_commands"]

_WAITS = 3
_SHOWN = 100


def add_commands(commands: Any) -> None:
    """Add ``agent`` to the parser's commands."""
    parser = commands.add_parser(
        "agent",
        help="let a model work with the tools; list, show and resume its runs",
        epilog="Exit codes: 0 done, 1 failed, stopped or out of budget, 2 wrong usage, 3 a call waits for approval.",
    )
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="what is to be done")
    parser.add_argument("--model", metavar="MODEL", help="PROVIDER:MODEL, a short name, or scripted:FILE")
    parser.add_argument("--profile", metavar="FILE", help="a file that says how the agent works")
    parser.add_argument("--tools", nargs="+", metavar="TOOL", help="the tools that are offered; all by default")
    parser.add_argument("--read-only", action="store_true", help="offer only tools that change nothing")
    parser.add_argument("--plan", action="store_true", help="change nothing, and end with a plan")
    parser.add_argument("--share", metavar="LEVEL", help="what the model sees: schema, sample, sample:N or values")
    parser.add_argument("--after", metavar="RUN", help="go on in the conversation of that run")
    parser.add_argument(
        "--budget", action="append", metavar="NAME=NUMBER", help="steps, tool_calls, tokens, seconds or usd"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--events", action="store_true", help="print each event as a line of JSON")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that waits, failed or was stopped")
    parser.add_argument("--answer", choices=("once", "tool", "content", "no"), help="what all calls that wait get")
    parser.add_argument("--set", action="append", metavar="NAME=JSON", help="with --answer once: change an argument")
    parser.add_argument("--reason", default="", help="with --answer: why; the model is told")
    parser.add_argument("--runs", action="store_true", help="list the newest runs")
    parser.add_argument("--show", metavar="RUN", help="show what happened in a run")
    parser.add_argument("--undo", metavar="RUN", help="take back what a run did to files and notes")
    parser.set_defaults(perform=_agent)


def _agent(arguments: argparse.Namespace) -> int:
    named = (arguments.prompt, arguments.resume, arguments.show, arguments.undo)
    wanted = [arguments.runs, *(value is not None for value in named)]
    if sum(wanted) != 1:
        hint = "Such as nbtools agent 'How many rows has data.csv?' --model claude."
        raise InvalidArguments("give one of PROMPT, --resume, --runs, --show and --undo.", hint=hint)
    with Workbench() as wb:
        if arguments.runs:
            return _list(wb, as_json=arguments.json)
        if arguments.show:
            return _show(wb, arguments.show, as_json=arguments.json)
        if arguments.undo:
            return _undo(wb, arguments.undo, as_json=arguments.json)
        run = _started(wb, arguments)
        _follow(run, arguments)
    return {"done": 0, "pending": _WAITS}.get(run.status, 1)


def _started(wb: Workbench, arguments: argparse.Namespace) -> AgentRun:
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    budgets = dict(_number(word) for word in arguments.budget or ())
    how: dict[str, Any] = {
        "model": arguments.model,
        "approver": AskTerminal() if is_terminal else None,
        "ask": _ask if is_terminal else None,
        "budgets": budgets or None,
    }
    if arguments.share:
        how["share"] = arguments.share
    if arguments.resume:
        return wb.agent.start_again(arguments.resume, _answers(wb, arguments), **how)
    if arguments.tools:
        how["tools"] = arguments.tools
    if arguments.read_only or arguments.plan:
        how |= {"read_only": arguments.read_only, "plan": arguments.plan}
    return wb.agent.start(arguments.prompt, profile=arguments.profile, after=arguments.after, **how)


def _answers(wb: Workbench, arguments: argparse.Namespace) -> dict[str, Reply] | None:
    """Return the same answer to every call that waits; changed arguments only where one does."""
    changes = dict(_pair(word) for word in arguments.set or ())
    if arguments.answer is None:
        if changes:
            raise InvalidArguments("--set changes what is approved.", hint="Add --answer once.")
        return None
    pending = wb.agent.get(arguments.resume).pending
    if changes and len(pending) != 1:
        raise InvalidArguments(f"--set needs one call that waits, and {len(pending)} do.")
    return {
        item.id: Reply(
            answer=arguments.answer,
            arguments={**item.arguments, **changes} if changes else None,
            reason=arguments.reason,
            by="command line",
        )
        for item in pending
    }


def _pair(word: str) -> tuple[str, Any]:
    name, sign, value = word.partition("=")
    if not sign:
        raise InvalidArguments(f"{word!r} has no value.", hint="Write NAME=VALUE.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _number(word: str) -> tuple[str, Any]:
    name, value = _pair(word)
    return name.replace("-", "_"), value


def _ask(question: str, choices: tuple[str, ...]) -> str | None:
    told = f" ({', '.join(map(visible, choices))})" if choices else ""
    try:
        return input(f"{visible(question)}{told} ")
    except EOFError:
        return None


def _follow(run: AgentRun, arguments: argparse.Namespace) -> None:
    """Print what the model writes as it comes, and a line for each call."""
    is_quiet = arguments.json
    try:
        for event in run:
            if arguments.events:
                print(json.dumps(event.to_dict(), ensure_ascii=False, default=str), flush=True)
            elif not is_quiet:
                _print(event)
    except KeyboardInterrupt:
        run.cancel()
        run.wait(5.0)
        raise
    if arguments.json:
        print(json.dumps(_as_dict(run), ensure_ascii=False, default=str))
    elif not arguments.events:
        print(f"\n{_footer(run)}", file=sys.stderr)


def _print(event: AgentEvent) -> None:
    from nbtools.agent.records.events import CallEnded, TextDelta

    if isinstance(event, TextDelta):
        print(visible(event.text, lines=True), end="", flush=True)
    elif isinstance(event, CallEnded):
        sys.stdout.flush()
        print(f"\n{_line_of(event.tool, event.result.to_dict())}", file=sys.stderr)


def _line_of(tool: str, result: dict[str, Any]) -> str:
    error = result.get("error")
    text = f"{error['code']}: {error['message']}" if error else result["text"]
    line = visible(" ".join(str(text).split()))
    shown = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
    return f"· {visible(tool)} {result['duration_s']:.1f} s {'failed ' if error else ''}→ {shown}"


def _footer(run: AgentRun) -> str:
    """Return how the run ended, without the answer, which has been printed."""
    lines = str(run).splitlines()[:1]
    if run.error:
        lines.append(f"{run.error.code}: {run.error.message}" + (f" ({run.error.hint})" if run.error.hint else ""))
    lines += [item.text for item in run.pending]
    if run.pending:
        lines.append(f"nbtools agent --resume {run.run_id} --answer once|no answers.")
    return "\n".join(lines)


def _as_dict(run: AgentRun) -> dict[str, Any]:
    made = {
        name: getattr(run, name) for name in ("run_id", "conversation_id", "status", "model", "label", "text", "value")
    }
    error = run.error.to_dict() if run.error else None
    return {**made, "usage": run.usage, "error": error, "pending": [item.to_dict() for item in run.pending]}


def _list(wb: Workbench, *, as_json: bool) -> int:
    found = wb.agent.runs()
    if as_json:
        print(json.dumps(found, ensure_ascii=False, default=str))
        return 0
    for record in found:
        prompt = visible(" ".join(record["prompt"].split()))[:60]
        print(f"{record['run_id']}  {record['state']:<11}  {record['label'] or record['model']}  {prompt}")
    return 0


def _show(wb: Workbench, run_id: str, *, as_json: bool) -> int:
    run, log = wb.agent.get(run_id), wb.agent.log(run_id)
    if as_json:
        print(json.dumps({**_as_dict(run), "events": log}, ensure_ascii=False, default=str))
        return 0
    print(f"> {visible(run.prompt, lines=True)}")
    for event in log:
        if event["kind"] == "text":
            print(visible(event["text"], lines=True))
        elif event["kind"] == "call_ended":
            print(_line_of(event["tool"], event["result"]))
    print(_footer(run))
    return 0


def _undo(wb: Workbench, run_id: str, *, as_json: bool) -> int:
    rows = wb.agent.undo(run_id)
    if as_json:
        print(json.dumps(rows, ensure_ascii=False))
    else:
        for row in rows:
            told = "taken back" if row["undone"] else f"not taken back: {row['why']}"
            print(f"{visible(row['tool'])} {visible(row['target'])} {told}")
    return 0 if all(row["undone"] for row in rows) else 1
