"""``%kernels``: the managed kernels that keep their state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.jupyter.display.blocks import Records, Table, duration, size
from nbtools.jupyter.line.arguments import MagicParser, declared_usage
from nbtools.jupyter.magic import READS, Magic, MagicRequest
from nbtools.jupyter.magics.scripts import run_code, timeout_of
from nbtools.kernels.sessions.table import CHANGES
from nbtools.processes.process_tree import descendants, own_bytes


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
    empty = "none yet; each script runs in a new kernel, or with --session NAME in one that keeps its variables"
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


def _undo(request: MagicRequest) -> Any:
    """Take back runs of the session that is named, else of the only one that keeps states."""
    args, kernels = request.args, request.session.workbench.kernels
    listed = {kernel["name"]: kernel["undoable"] for kernel in kernels.list()}
    if args.name is not None and args.name.isdecimal() and args.name not in listed:
        args.name, args.runs = None, int(args.name)
    if args.name is None:
        undoable = {name: count for name, count in listed.items() if count}
        if len(undoable) != 1:
            counts = ", ".join(f"{name} ({count})" for name, count in undoable.items())
            what = (
                f"These sessions can be undone, by this many runs: {counts}." if counts else "No session can be undone."
            )
            hint = "%kernels undo NAME" if counts else "Run this first: %kernels keep NAME"
            raise InvalidArguments(what, hint=hint, tried="reading %kernels undo")
        (args.name,) = undoable
    return _call(request)


def _tree(request: MagicRequest) -> Records:
    kernels = _read(request, "kernels_list", request.session.workbench.kernels.list)
    return Records(_branches(kernels), _tree_table, most=request.session.options.max_rows)


def _branches(kernels: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the sessions, each with its copies below it, how deep it lies, and the memory that is its own."""
    names = {kernel["name"] for kernel in kernels}

    def below(parent: str | None, depth: int) -> Iterator[dict[str, Any]]:
        for kernel in kernels:
            # What is left of a session that has ended stands by itself.
            above = kernel.get("copy_of") if kernel.get("copy_of") in names else None
            if above == parent:
                pids = descendants([kernel["pid"]]) if kernel.get("pid") else []
                yield {**kernel, "depth": depth, "own_bytes": max(own_bytes(pids), kernel["own_bytes"])}
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
    **dict.fromkeys(("fork", "keep"), _call),
    "undo": _undo,
    "tree": _tree,
    "variables": _variables,
    "monitor": lambda request: request.session.workbench.monitor(),
    "exec": _execute,
}
MAGIC = Magic(usage=declared_usage(__file__), run=_run, free_from=_free_from)
