"""``%kernels``: the managed kernels that keep their state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nbtools.contract.tool import Effects
from nbtools.ground.option_values import seconds
from nbtools.jupyter.display.blocks import Records, Table, duration, size
from nbtools.jupyter.line.arguments import MagicParser
from nbtools.jupyter.magic import READS, Magic, MagicRequest
from nbtools.jupyter.magics.scripts import run_code, timeout_of
from nbtools.kernels.sessions import CHANGES
from nbtools.processes.process_tree import descendants, own_bytes


def _usage(prog: str, cell: bool) -> MagicParser:
    parser = MagicParser(prog, description="List and control sessions: managed kernels that keep their variables.")
    parser.leaf("list", "list the sessions", default=True)
    start = parser.leaf("start", "start a session before its first use")
    start.take("name", metavar="NAME")
    start.take("--language", default="python", metavar="LANGUAGE", kind="language")
    for name, about in (
        ("stop", "end a session; its variables are lost"),
        ("restart", "end a session and start it again, empty"),
        ("interrupt", "stop the code that a session runs; its variables stay"),
        ("variables", "list the variables of a session"),
    ):
        parser.leaf(name, about).take("name", metavar="NAME", kind="session")
    fork = parser.leaf("fork", "copy a session with all its variables to a new one, which goes its own way")
    fork.take("name", metavar="NAME", kind="session")
    fork.take("copy", metavar="COPY")
    fork.epilog = "Both work in one folder. What a copy would lack, such as a thread, is named, and nothing is copied."
    keep = parser.leaf("keep", "keep the state before each run of a session from now on, for undo")
    keep.take("name", metavar="NAME", kind="session")
    keep.take("states", metavar="N", type=int, nargs="?", default=5, help="of the last N runs (5); 0 keeps none")
    undo = parser.leaf("undo", "take a session back to its state before its last N runs; files and calls stay")
    undo.take("name", metavar="NAME", kind="session")
    undo.take("runs", metavar="N", type=int, nargs="?", default=1, help="how many runs to go back (1)")
    parser.leaf("tree", "show which session was copied from which, with the memory that is its own")
    parser.leaf("monitor", "show the sessions as they change, with buttons")
    execute = parser.leaf("exec", "run the rest of the line in a session")
    execute.take("name", metavar="NAME", kind="session")
    execute.take("--timeout", type=seconds, metavar="TIME")
    execute.epilog = "Write the code without quotes: exec NAME x = 6 * 7; print(x)"
    return parser


def _free_from(session: Any, parser: MagicParser, line: str) -> int:
    """Return where the code after ``exec NAME`` begins."""
    is_exec = line.split(maxsplit=1)[:1] == ["exec"]
    return parser.leaves["exec"].free_from(line, words=2) if is_exec else len(line)


def _run(request: MagicRequest) -> Any:
    return _COMMANDS[request.args.command](request)


def _list(request: MagicRequest) -> Records:
    kernels = request.session.workbench.kernels
    kernels_listed = _read(request, "kernels_list", kernels.list)
    # Kernels that a test or a user hands in need no more than what the magics call.
    warm = kernels.describe().get("warm") if hasattr(kernels, "describe") else None
    title = "managed kernels" + (f"; process {warm} keeps the libraries loaded for all your notebooks" if warm else "")
    return Records(kernels_listed, lambda rows: _table(rows, title), most=request.session.options.max_rows)


def _table(kernels: Sequence[dict[str, Any]], title: str) -> Table:
    columns = ("name", "language", "state", "pid", "age", "idle", "CPU", "memory", "last call")
    rows = tuple(
        (
            k["name"],
            k.get("language"),
            k.get("state"),
            k.get("pid") or "",
            duration(k.get("age_s")),
            duration(k.get("idle_s")),
            duration(k.get("cpu_s")),
            size(k.get("memory_bytes")),
            k.get("last_call") or "",
        )
        for k in kernels
    )
    empty = "none yet; a script runs in a new kernel each time, with --session NAME in one that keeps its variables"
    return Table(columns=columns, rows=rows, title=title, empty=empty)


def _change(request: MagicRequest) -> Any:
    verb, name = request.args.command, request.args.name
    outcome, effects = CHANGES[verb]
    options = {"language": request.args.language} if verb == "start" else {}
    return _act(request, name, effects, lambda _: f"Session '{name}' {outcome}.", **options)


def _fork(request: MagicRequest) -> Any:
    name, copy = request.args.name, request.args.copy
    return _act(request, name, Effects(), lambda _: f"Session '{copy}' is a copy of '{name}'.", copy=copy)


def _keep(request: MagicRequest) -> Any:
    name, states = request.args.name, request.args.states
    text = f"Session '{name}' keeps its state before each of its last {states} runs: %kernels undo {name}"
    return _act(request, name, Effects(), lambda _: text if states else f"'{name}' keeps none.", states=states)


def _undo(request: MagicRequest) -> Any:
    name, runs = request.args.name, request.args.runs

    def text_of(files: Sequence[str]) -> str:
        wrote = f" What was written stays: {', '.join(files)}." if files else ""
        last = "run" if runs == 1 else f"{runs:,} runs"
        return f"Session '{name}' is as it was before its last {last}.{wrote}"

    return _act(request, name, Effects(destructive=True), text_of, runs=runs)


def _act(request: MagicRequest, name: str, effects: Effects, text_of: Callable[[Any], str], **arguments: Any) -> Any:
    """Do with a session what the command says; `arguments` are those beside its name."""
    verb, kernels = request.args.command, request.session.workbench.kernels
    return request.perform(
        f"kernels_{verb}",
        lambda: getattr(kernels, verb)(name, **arguments),
        arguments={"name": name, **arguments},
        effects=effects,
        text_of=text_of,
    )[1]


def _tree(request: MagicRequest) -> Records:
    kernels = _read(request, "kernels_list", request.session.workbench.kernels.list)
    return Records(tuple(_branches(kernels)), _tree_table, most=request.session.options.max_rows)


def _branches(kernels: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the sessions, each with its copies below it, how deep it lies, and the memory that is its own."""
    names = {kernel["name"] for kernel in kernels}

    def below(parent: str | None, depth: int) -> Iterator[dict[str, Any]]:
        for kernel in kernels:
            # What is left of a session that has ended stands by itself.
            above = kernel.get("copy_of") if kernel.get("copy_of") in names else None
            if above == parent:
                pids = descendants([kernel["pid"]]) if kernel.get("pid") else []
                yield {**kernel, "depth": depth, "own_bytes": own_bytes(pids)}
                yield from below(kernel["name"], depth + 1)

    return below(None, 0)


def _tree_table(rows: Sequence[dict[str, Any]]) -> Table:
    cells = tuple(
        (
            "    " * k["depth"] + k["name"],
            k.get("copy_of") or "",
            k.get("state"),
            size(k.get("own_bytes")),
            size(k.get("memory_bytes")),
            k.get("undoable") or "",
            k.get("last_call") or "",
        )
        for k in rows
    )
    columns = ("session", "copy of", "state", "own memory", "memory", "undo", "last call")
    return Table(columns=columns, rows=cells, title="sessions and their copies", empty="no sessions yet")


def _variables(request: MagicRequest) -> Records:
    name, kernels = request.args.name, request.session.workbench.kernels
    variables = _read(request, "kernels_variables", lambda: kernels.variables(name), session=name)
    return Records(variables, lambda rows: _variable_table(rows, name), most=request.session.options.max_rows)


def _variable_table(rows: Sequence[dict[str, Any]], name: str) -> Table:
    columns = tuple(rows[0]) if rows else ("name",)
    cells = tuple(tuple(row.get(column, "") for column in columns) for row in rows)
    return Table(columns=columns, rows=cells, title=f"variables of {name}", empty="nothing is defined")


def _execute(request: MagicRequest) -> Any:
    return run_code(request, request.text, None, request.args.name, timeout_of(request))


def _read(request: MagicRequest, name: str, work: Callable[[], Any], **arguments: Any) -> Any:
    return request.perform(name, work, arguments=arguments, effects=READS)[0]


_COMMANDS: dict[str, Callable[[MagicRequest], Any]] = {
    "list": _list,
    **dict.fromkeys(CHANGES, _change),
    "fork": _fork,
    "keep": _keep,
    "undo": _undo,
    "tree": _tree,
    "variables": _variables,
    "monitor": lambda request: request.session.workbench.monitor(),
    "exec": _execute,
}
MAGIC = Magic(usage=_usage, run=_run, free_from=_free_from)
