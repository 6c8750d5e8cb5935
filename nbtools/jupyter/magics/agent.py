"""``%%agent`` and ``%agent``: a model at work in the notebook, and its runs."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Mapping
from typing import Any

from nbtools.assembly.values_held import see_value
from nbtools.conduct.resumption import run_to_resume
from nbtools.contract.approval.gate import Approver, AskFunction, Nobody, Reply
from nbtools.errors import Cancelled, InvalidArguments
from nbtools.ground.option_values import pair
from nbtools.jupyter.display.blocks import Card, Listing, Table, moment
from nbtools.jupyter.line.arguments import declared_usage, json_value
from nbtools.jupyter.line.mentions import mentioned
from nbtools.jupyter.magic import Magic, MagicRequest
from nbtools.jupyter.session import NotebookSession, read_line
from nbtools.texts.visible import visible, wrapped

_BUDGETS = ("steps", "tool_calls", "tokens", "seconds", "usd")


def _run(request: MagicRequest) -> Any:
    if request.cell is None:
        return _COMMANDS[request.args.command](request)
    args, session = request.args, request.session
    options: dict[str, Any] = {
        name: value for name in ("script", "profile", "tools", "model") if (value := getattr(args, name)) is not None
    }
    if args.new:
        session.go_on_from(None)
    prompt = (request.cell or "").strip()
    if args.script is not None:
        session.play_again(str(args.script), prompt)
    if session.agent_run is not None:
        options["after"] = session.agent_run
        if session.workbench.agent.get(session.agent_run).state == "pending":
            message = (
                f"run {session.agent_run[:8]} still waits (%agent resume {session.agent_run[:8]}); this cell goes on"
            )
            request.note(f"{message} beside it, and %%agent --new starts afresh")
    options |= {name: True for name in ("read_only", "plan") if getattr(args, name)}
    # A function, because what the model may see of variables is known only when the model is.
    see = functools.partial(see_value, services=session.workbench.door.services)
    options["context"] = lambda sharing: mentioned(prompt, session.shell, sharing, see)
    agent = session.workbench.agent
    if args.tries is not None:
        how = {"words": prompt, "at_once": not args.in_turn, **options, **_how(request)}
        return _follow_tries(request, lambda: agent.astart_tries(prompt, args.tries, **how))
    return _follow(request, lambda how: agent.astart(prompt, words=prompt, **options, **how))


def _follow_tries(request: MagicRequest, start: Any) -> Any:
    """Start tries, show what each does as it does it, and return them; they are shown side by side."""
    from nbtools.agent.records.lines import RunLines
    from nbtools.agent.tries import follow, in_columns

    async def work(live: Any) -> Any:
        runs = await start()
        lines = RunLines()

        def tell(number: int, event: Any) -> None:
            if line := lines.line(event.to_dict()):
                live("stdout", f"[{number}] {line}\n")

        await follow(runs, tell)
        return runs

    runs = request.session.drive("agent", work, stopped=request.bind)[0]
    columns, *rows = in_columns(runs)
    footer = "→ %agent keep RUN keeps one: its sessions replace the originals, and the next cell continues from it"
    request.displayed = Table(columns=columns, rows=tuple(rows), footer=footer)
    if all(run.error is not None for run in runs):
        request.end_with(runs[0], "%agent show RUN shows what each of them did")
        request.bind(runs)
    return runs


def _follow(request: MagicRequest, start: Any) -> Any:
    """Start a run, show it as it goes on, and return its last line; the notebook goes on from it."""
    from nbtools.jupyter.display.agent_run import RunFooter, RunView

    session, how = request.session, _how(request)

    async def work(live: Any) -> Any:
        run = await start(how)
        # Before it is followed: a cell that is stopped still knows the run that it has to go on from.
        session.agent_run = run.run_id
        return await RunView(run, live).follow()

    try:
        run = session.drive("agent", work, stopped=request.bind)[0]
    except Cancelled as exc:
        exc.hint = "The next %%agent cell continues from here; %%agent --new starts afresh."
        if session.agent_run is not None and session.workbench.agent.get(session.agent_run).state == "pending":
            exc.hint = f"The call that was asked about waits: %agent resume {session.agent_run[:8]} asks again."
        raise
    other = "--model MODEL asks another one" if run.state == "refused" else "continues it"
    # The error of a budget says how the run goes on with more.
    request.end_with(run, "" if run.state == "budget" else f"%agent resume {run.run_id[:8]} {other}")
    # The cell is over, so a card can take clicks now, also on pages that hand none on while a cell runs.
    if run.state == "pending" and "ipykernel" in sys.modules:
        from nbtools.widgets.live.live_widget import has_person

        if has_person():
            session.show(session.workbench.pending_card(run))
    footer = RunFooter(run=run)
    if request.out is not None:
        request.note(str(footer))
    request.displayed = footer
    return run


def _how(request: MagicRequest) -> dict[str, Any]:
    """Return the settings that a new run and one that goes on both take."""
    from nbtools.agent.tools.own_tools import asked_at_line

    how: dict[str, Any] = {
        "ask": asked_at_line(read_line),
        "look": request.session.agent_look,
        "approver": _approver(request.args.approve, request.session),
    }
    if budgets := {name: most for name in _BUDGETS if (most := getattr(request.args, name)) is not None}:
        how["budgets"] = budgets
    if request.args.share is not None:
        how["share"] = request.args.share
    return how


def _approver(how: str, session: NotebookSession) -> Approver | None:
    """Return who is asked: `None` is the one whom the workbench asks, here the person at the cell."""
    if how == "auto":
        return AskFunction(lambda _: Reply(answer="once", by="--approve auto"))
    if how == "later":
        return AskFunction(lambda _: "later")
    if how == "never":
        return Nobody("--approve never refuses it")
    return Nobody() if session.is_alone else None


def _run_to_resume(session: NotebookSession) -> str:
    """Return this notebook's last run, or, where that is done or from before the kernel's start, the one that waits.

    Where none waits for an answer it is the one that the end of its kernel interrupted.
    """
    from nbtools.agent.records.run_record import this_place

    agent, last = session.workbench.agent, session.agent_run
    if last is not None and agent.get(last).state != "done":
        return last
    here = [run for run in agent.runs(None) if run["began_in"] == this_place()]
    runs = ((run["run_id"], run["state"], run["prompt"]) for run in here)
    return run_to_resume(runs, "%agent runs", " of this notebook")


def _resume(request: MagicRequest) -> Any:
    args, session = request.args, request.session
    agent, run_id = session.workbench.agent, args.run or _run_to_resume(session)
    answers = _answers(args, agent.get(run_id).pending)
    options = {"model": args.model} if args.model is not None else {}
    return _follow(request, lambda how: agent.astart_again(run_id, answers, **options, **how))


def _answers(args: argparse.Namespace, waiting: Any) -> Mapping[str, Reply] | None:
    """Return the answers that the line gives; `None` asks for each."""
    from nbtools.agent.approvals import same_reply

    if args.no is not None:
        return same_reply(waiting, "no", by="notebook", reason=args.no)
    changes = {name: json_value(text) for name, text in (pair(word, "--set ") for word in args.set)}
    return same_reply(waiting, "once", by="notebook", changes=changes) if changes or args.yes else None


def _runs(request: MagicRequest) -> Any:

    # Short enough that a terminal of 80 columns shows the label of a scripted run whole.
    rows = tuple(
        (
            *(run["run_id"][:8], run["state"], run["label"] or run["model"], moment(run["started_at"])[5:16]),
            *(run["ledger"]["steps"], run["prompt"]),
        )
        for run in request.session.workbench.agent.runs()
    )
    columns = ("run", "state", "model", "started", "steps", "prompt")
    return Table(columns=columns, rows=rows, empty="There are no runs yet: %%agent starts one.")


def _show(request: MagicRequest) -> Any:
    from nbtools.agent.records.lines import RunLines

    agent = request.session.workbench.agent
    run, lines = agent.get(request.args.run), RunLines()
    if request.args.sent:
        return Listing(text=visible("\n".join(agent.sent(run.run_id)), lines=True))
    log = agent.log(run.run_id)
    log_lines = [line for event in log if (line := _shown_event(lines, event))]
    used = {name.replace("_", " "): value for name, value in run.usage.items() if value is not None}
    facts = {"model": run.label or run.model, "asked": run.prompt, **used}
    facts |= {"error": run.error.message} if run.error else {}
    parts = [Listing(text="\n".join(log_lines)), *(Listing(text=wrapped(item.whole)) for item in run.pending)]
    answer = visible(run.text, lines=True)
    return Card(title=f"run {run.run_id}: {run.state}", facts=facts, about=answer, parts=tuple(parts))


def _shown_event(lines: Any, event: Mapping[str, Any]) -> str:
    is_text = event["kind"] == "text"
    return visible(str(event["text"]).rstrip(), lines=True) if is_text else str(lines.line(event))


def _cancel(request: MagicRequest) -> Any:
    run = request.session.workbench.agent.cancel(request.args.run)
    request.note(f"run {run.run_id[:8]} is {run.state}")


def _forget(request: MagicRequest) -> Any:
    run_id = request.session.workbench.agent.forget(request.args.run)
    # The next cell would go on from what no longer exists.
    if request.session.agent_run == run_id:
        request.session.go_on_from(None)
    request.note(f"run {run_id[:8]} is forgotten; cells and outputs of notebooks may still show it")


def _undo(request: MagicRequest) -> Any:

    run_id = request.args.run or request.session.agent_run
    if run_id is None:
        message = "no %%agent cell has run since this kernel began."
        raise InvalidArguments(message, hint="%agent runs lists earlier runs; %agent undo RUN takes one back.")
    rows = request.session.workbench.agent.undo(run_id)
    request.note(f"run {run_id[:8]}:")
    table_rows = tuple(
        (row["tool"], row["target"], (row["why"] or "taken back") if row["undone"] else f"not taken back: {row['why']}")
        for row in rows
    )
    return Table(columns=("tool", "target", "outcome"), rows=table_rows, empty="The run changed nothing.")


def _export(request: MagicRequest) -> Any:
    args = request.args
    if (args.file is None) is (args.workflow is None):
        raise InvalidArguments("give FILE.ipynb or --workflow FILE.yaml.", hint="%agent export RUN proof.ipynb --prove")
    options = {"as_workflow": args.workflow is not None, "prove": args.prove, "repeat": args.repeat, "caller": "magic"}
    return request.session.workbench.agent.export(args.run, args.workflow or args.file, **options)


def _branch(request: MagicRequest) -> Any:
    run = request.session.workbench.agent.get(request.args.run)
    request.session.go_on_from(run.run_id)
    request.note(f"the next %%agent cell continues from the end of run {run.run_id[:8]}")


def _keep(request: MagicRequest) -> Any:
    run = request.session.workbench.agent.keep(request.args.run)
    request.session.go_on_from(run.run_id)
    request.note(f"run {run.run_id[:8]} is kept, and the next cell continues from it; the other tries have ended")
    request.note("what the others wrote remains: %agent undo RUN takes it back")


_COMMANDS = {
    "keep": _keep,
    "runs": _runs,
    "show": _show,
    "resume": _resume,
    "cancel": _cancel,
    "branch": _branch,
    "undo": _undo,
    "forget": _forget,
    "export": _export,
}
MAGIC = Magic(usage=declared_usage(__file__), run=_run)
