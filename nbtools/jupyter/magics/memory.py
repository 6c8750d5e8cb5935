"""``%memory`` and ``%%memory``: notes that outlive the kernel."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools.contract.wire.json_values import find_nested, replace_nested
from nbtools.errors import FileMissing, InvalidArguments, MemoryNotFound
from nbtools.ground.option_values import note_on_text
from nbtools.jupyter.display.blocks import Card, Records, Table, moment, outline
from nbtools.jupyter.line.arguments import declared_usage, json_value
from nbtools.jupyter.magic import Magic, MagicRequest
from nbtools.memory.records import tags_of, ttl_of
from nbtools.memory.tables import in_words
from nbtools.texts.visible import counted
from nbtools.toolbox.memory_tools import ACTS

_MOST_LISTED = 1_000


def _run(request: MagicRequest) -> Any:
    if request.cell is not None:
        return _save(request, request.args.key, _cell_value(request))
    try:
        return _COMMANDS[request.args.command](request)
    except MemoryNotFound as exc:
        exc.hint = exc.hint or f"See {_prog(request)} list."
        raise
    except FileMissing as exc:
        exc.hint = exc.hint or f"Relative paths start at {Path.cwd()}."
        raise


def _cell_value(request: MagicRequest) -> Any:
    text = (request.cell or "").removesuffix("\n")
    if not request.args.json:
        return text
    try:
        return json.loads(text)
    except ValueError as exc:
        raise InvalidArguments(f"the cell is not JSON: {exc}.", hint="Leave out --json to save the text.") from None


def _save(request: MagicRequest, key: str, value: Any) -> Any:

    args, memory = request.args, request.session.memory
    tags = tags_of(args.tags)
    # Only outlined in the record: a DataFrame is kept once, in the memory, and not again with each call.
    arguments = {"key": key, "value": replace_nested(value, _outlined), "tags": tags, "ttl": args.ttl}
    return _change(
        request,
        "memory_save",
        lambda: memory.write(key, value, tags=tags, ttl=ttl_of(args.ttl)),
        lambda record: f"Memory item '{record.key}' saved successfully.",
        **arguments,
    )


def _outlined(value: Any) -> Any:
    """Return a value as the record of a call holds it: kind and size of what is not JSON."""
    return value if value is None or isinstance(value, str | int | float | Mapping | list | tuple) else outline(value)


def _save_line(request: MagicRequest) -> Any:
    words: Sequence[str] = request.args.value
    value = json_value(words[0]) if len(words) == 1 else _text(words)
    result = _save(request, request.args.key, value)
    if kinds := _kinds_of_lists(value):
        stored = (*_kinds_of_lists(request.session.memory[request.args.key]),)
        # A frame that a query gave comes back as the DataFrame that it is.
        if lost := sorted(kind.__name__ for kind in kinds if not issubclass(kind, stored)):
            request.note(f"saved as JSON: {' and '.join(lost)} comes back as list")
    if isinstance(value, str) and not getattr(words[0], "quoted", False):
        request.note(note) if (note := _note_on(request, value)) else None
    return result


def _kinds_of_lists(value: Any) -> set[type]:
    """Return the classes of tuples and arrays in a value, for which JSON has lists."""
    nested = find_nested(value, lambda one: isinstance(one, tuple) or bool(getattr(one, "ndim", 0)))
    return {type(one) for _, one in nested}


def _note_on(request: MagicRequest, text: str) -> str:
    """Return what to tell of a text that was saved as it stood in the line, though something else may be meant."""
    names = request.session.shell
    is_variable = text in names.user_ns and text not in names.user_ns_hidden
    return f"saved the text {text!r}; write {{{text}}} for the variable" if is_variable else note_on_text(text)


def _text(words: Sequence[str]) -> str:
    """Return several words as one text; a lone JSON value among them stays text too."""
    return " ".join(str(word) for word in words)


def _get(request: MagicRequest) -> Any:
    key, memory = request.args.key, request.session.memory
    return _read(request, "memory_retrieve", lambda: memory[key], key=key)


def _list(request: MagicRequest) -> Any:
    prefix, memory = request.args.prefix, request.session.memory
    # One more than is shown, which tells whether there are more without counting them.
    records = _read(request, "memory_list", lambda: memory.list(prefix, limit=_MOST_LISTED + 1), prefix=prefix)
    whose = _whose(memory.scope)
    if len(records) > _MOST_LISTED:
        records.pop()
        whose += f": the first {_MOST_LISTED:,}; a prefix, find and search name others"
    return _records(request, records, whose)


def _whose(scope: Any) -> str:
    """Return whose memory this is, in words."""
    parts = [("agent", scope.agent_id), ("workflow", scope.workflow_id), ("node", scope.node_id)]
    return "memory of " + ", ".join(f"{level} {name}" for level, name in parts if name is not None)


def _find(request: MagicRequest) -> Any:

    args, memory = request.args, request.session.memory
    tags = tags_of(args.tags) or []
    records = _read(request, "memory_retrieve", lambda: memory.find(tags, match=args.match), tags=tags)
    return _records(request, records, f"tagged {' '.join(tags)}")


def _search(request: MagicRequest) -> Any:

    args, memory = request.args, request.session.memory
    words, tags = _text(args.words), tags_of(args.tags) or []
    records = _read(request, "memory_search", lambda: memory.search(words, limit=args.limit, tags=tags), query=words)
    return _records(request, records, f"best for {words!r}")


def _history(request: MagicRequest) -> Any:
    key, memory = request.args.key, request.session.memory
    versions = _read(request, "memory_history", lambda: memory.history(key), key=key)
    if not versions:
        raise MemoryNotFound(f"There is no history of {key!r}.", hint=f"See {_prog(request)} list.")
    return _records(request, versions, f"versions of {key}", _version_table)


def _restore(request: MagicRequest) -> Any:
    key, version, memory = request.args.key, request.args.version, request.session.memory
    return _change(
        request,
        "memory_restore",
        lambda: memory.restore(key, version),
        lambda record: f"Memory item '{key}' is restored; it is version {record.version} now.",
        key=key,
        version=version,
    )


def _delete(request: MagicRequest) -> Any:
    key, memory = request.args.key, request.session.memory

    def work() -> str:
        if not memory.delete(key):
            memory.need(key)  # raises, with the nearest key
        return str(key)

    message = f"Memory item '{key}' deleted successfully."
    return _change(request, "memory_delete", work, lambda _: message, key=key)


def _forget(request: MagicRequest) -> Any:
    key, memory = request.args.key, request.session.memory

    def work() -> int:
        count = request.session.workbench.memory_tables.forget(memory, key)
        if not count:
            memory.need(key)  # raises, with the nearest key: a secret that stays for a slip in its name must be told
        return count

    return _change(
        request,
        "memory_forget",
        work,
        lambda n: f"Memory item '{key}' erased, versions: {n:,}. Cells and outputs of notebooks may still show it.",
        key=key,
    )


def _move(request: MagicRequest) -> Any:
    args, memory = request.args, request.session.memory
    tables = request.session.workbench.memory_tables
    move: Callable[..., Any] = tables.import_from
    done = "read from"
    if args.command == "export":
        move, done = functools.partial(tables.export_to, overwrite=args.overwrite), "written to"
    count, result = request.perform(
        f"memory_{args.command}",
        lambda: move(memory, args.file, all_scopes=args.all),
        arguments={"file": args.file},
        text_of=lambda number: f"{number:,} memory items {done} {args.file}.",
        **ACTS[f"memory_{args.command}"],
    )
    if args.command == "import" and (note := count.note(f"{_prog(request)} history KEY")):
        request.note(note)
    return result


def _scope(request: MagicRequest) -> Any:
    level, ids = request.args.level, request.args.ids
    if level is not None:
        ids_needed = {"agent": (), "workflow": ("workflow_id",), "node": ("workflow_id", "node_id")}[level]
        if len(ids) != len(ids_needed):
            usage = {"agent": "no id", "workflow": "WORKFLOW", "node": "WORKFLOW NODE"}[level]
            hint = f"{_prog(request)} scope --help"
            raise InvalidArguments(f"scope {level} takes {usage}, found {len(ids)} ids.", hint=hint)
        request.session.choose_scope(**({"scope": level, **dict(zip(ids_needed, ids, strict=True))} if ids else {}))
    scope = request.session.memory.scope
    facts = {"level": scope.name, "agent": scope.agent_id, "workflow": scope.workflow_id, "node": scope.node_id}
    return Card(title="memory scope", facts={name: value for name, value in facts.items() if value is not None})


def _prog(request: MagicRequest) -> str:
    name: str = request.session.short_names()["memory"]
    return f"%{name}"


def _read(request: MagicRequest, name: str, work: Callable[[], Any], **arguments: Any) -> Any:
    return request.perform(name, work, arguments=arguments, **ACTS[name])[0]


def _change(
    request: MagicRequest, name: str, work: Callable[[], Any], text_of: Callable[[Any], str], **arguments: Any
) -> Any:
    return request.perform(name, work, arguments=arguments, text_of=text_of, **ACTS[name])[1]


def _records(
    request: MagicRequest, records: Sequence[Any], title: str, table: Callable[..., Table] | None = None
) -> Records:
    make = table or _record_table
    most = request.session.options.max_rows
    count = counted(len(records), "item") if records else ""
    return Records(records, lambda some: make(some, title, count), most=most)


def _record_table(records: Sequence[Any], title: str, footer: str) -> Table:
    scored = any(record.score is not None for record in records)
    columns = ("key", "value", "tags", "version", "updated", "expires", *(("score",) if scored else ()))
    rows: list[tuple[Any, ...]] = []
    for record in records:
        when = (moment(record.updated_at), moment(record.expires_at))
        score = (f"{record.score or 0:.2g}",) if scored else ()
        value = "null" if record.value is None else in_words(record.value)
        rows.append((record.key, value, " ".join(record.tags), record.version, *when, *score))
    return Table(columns=columns, rows=tuple(rows), title=title, footer=footer, empty="no items")


def _version_table(records: Sequence[Any], title: str, footer: str) -> Table:
    rows = tuple((r.version, r.change, in_words(r.value), " ".join(r.tags), moment(r.updated_at)) for r in records)
    return Table(columns=("version", "change", "value", "tags", "when"), rows=rows, title=title, footer=footer)


_COMMANDS: dict[str, Callable[[MagicRequest], Any]] = {
    "save": _save_line,
    "get": _get,
    "list": _list,
    "find": _find,
    "search": _search,
    "history": _history,
    "restore": _restore,
    "delete": _delete,
    "forget": _forget,
    "export": _move,
    "import": _move,
    "scope": _scope,
    "browse": lambda request: request.session.workbench.browse_memory(request.session.memory),
}
MAGIC = Magic(usage=declared_usage(__file__), run=_run)
