"""``%kernels``: the managed kernels that keep their state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

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
        ("adopt", "let a copy take the place and the name of the session that it was copied from, which ends"),
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
    verb, name, kernels = request.args.command, request.args.name, request.session.workbench.kernels
    outcome, effects = CHANGES[verb]
    options = {"language": request.args.language} if verb == "start" else {}
    return request.perform(
        f"kernels_{verb}",
        lambda: getattr(kernels, verb)(name, **options),
        arguments={"name": name, **options},
        effects=effects,
        text_of=lambda _: f"Session '{name}' {outcome}.",
    )[1]


def _call(request: MagicRequest) -> Any:
    """Do what models do by a tool of that name."""
    arguments = {name: getattr(request.args, name, None) for name in ("copy", "states", "runs")}
    return request.call(f"session_{request.args.command}", {"session": request.args.name, **arguments})


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
    **dict.fromkeys(("fork", "keep", "undo"), _call),
    "tree": _tree,
    "variables": _variables,
    "monitor": lambda request: request.session.workbench.monitor(),
    "exec": _execute,
}
MAGIC = Magic(usage=_usage, run=_run, free_from=_free_from)
