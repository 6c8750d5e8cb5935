"""Commands on data: the memory and SQL."""

from __future__ import annotations

import argparse
import io
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from nbtools.assembly.workbench import Workbench
from nbtools.cli.command_parser import add_command
from nbtools.contract.tool import ToolCall
from nbtools.errors import InternalError, InvalidArguments, MemoryNotFound, SqlInvalid, SqlNotAllowed
from nbtools.ground.option_values import json_or_text, note_on_text, pair
from nbtools.texts.values import text_of
from nbtools.texts.visible import aligned, counted
from nbtools.toolbox.memory_tools import ACTS

if TYPE_CHECKING:
    from nbtools.memory import AgentMemory
    from nbtools.memory.export import ImportCount
    from nbtools.memory.tables import TableFolder

# Verbs that the door knows by another name, and the parts of a command line that are not their arguments.
_NAMES = {"get": "retrieve", "find": "retrieve"}
_NOT_TOLD = {"command", "verb", "perform", "version", "json"}
_TERMINAL_ROWS = 50


def add_commands(commands: Any) -> None:
    """Add ``memory`` and ``sql`` to the parser's commands."""
    add_command(commands, __file__, "memory").set_defaults(perform=_memory)
    add_command(commands, __file__, "sql").set_defaults(perform=_sql)


def _memory(arguments: argparse.Namespace) -> int:
    name = f"memory_{_NAMES.get(arguments.verb, arguments.verb)}"
    fields = {key: value for key, value in vars(arguments).items() if key not in _NOT_TOLD and value not in (None, [])}
    # The scope is chosen inside of the call, so that the record has the memory that was asked for.
    with Workbench(agent_id=arguments.agent) as wb:

        def work() -> str:
            memory = wb.memory
            if arguments.workflow or arguments.node:
                scope: Any = "node" if arguments.node else "workflow"
                memory = memory.scoped(workflow_id=arguments.workflow, node_id=arguments.node, scope=scope)
            if arguments.verb in _WITH_TABLES:
                return _WITH_TABLES[arguments.verb](memory, arguments, wb.memory_tables)
            return _VERBS[arguments.verb](memory, arguments)

        try:
            text, _ = wb.perform(ToolCall(tool=name, arguments=fields, caller="cli"), work, **ACTS[name])
        except MemoryNotFound as exc:
            whose = f"--agent {shlex.quote(arguments.agent)} " if arguments.agent else ""
            exc.hint = exc.hint or f"nbtools memory {whose}list shows what there is."
            raise
        # The door takes any unknown error for a fault of ours; a full disk is reported in its own words.
        except InternalError as exc:
            if isinstance(exc.__cause__, OSError):
                raise exc.__cause__ from None
            raise
    if text:
        print(text)
    return 0


def _get(memory: AgentMemory, arguments: argparse.Namespace, tables: TableFolder) -> str:
    from nbtools.memory.tables import in_words

    value = memory.need(arguments.key).value
    if in_words(value) is not value and not arguments.json:
        return _as_text(tables.unpack(value))
    return value if isinstance(value, str) and not arguments.json else json.dumps(value, ensure_ascii=False)


def _as_text(value: Any) -> str:
    """Return all rows of a table, or at a terminal the first ones and their number; anything else as text."""
    table = value.to_pandas() if hasattr(value, "to_pandas") else value
    if not hasattr(table, "to_string"):
        return text_of(value)
    if len(table) <= _TERMINAL_ROWS or not sys.stdout.isatty():
        return str(table.to_string())
    more = f"the first {_TERMINAL_ROWS} of {len(table):,} rows; a pipe, such as | less, gets them all"
    return f"{table.head(_TERMINAL_ROWS).to_string()}\n{more}"


def _find(memory: AgentMemory, arguments: argparse.Namespace) -> str:
    from nbtools.memory.records import tags_of

    return _as_items(memory.find(tags=tags_of(arguments.tags) or [], match=arguments.match), arguments)


def _save(memory: AgentMemory, arguments: argparse.Namespace) -> str:
    from nbtools.memory.records import tags_of, ttl_of

    tags, ttl = tags_of(arguments.tags), ttl_of(arguments.ttl)
    text = sys.stdin.read() if arguments.value == "-" else arguments.value
    record = memory.write(arguments.key, json_or_text(text), tags=tags, ttl=ttl)
    if note := note_on_text(text):
        print(note, file=sys.stderr)
    return f"saved {record.key} (version {record.version})"


def _restore(memory: AgentMemory, arguments: argparse.Namespace) -> str:
    record = memory.restore(arguments.key, arguments.number)
    return f"restored {record.key} (version {record.version})"


def _delete(memory: AgentMemory, arguments: argparse.Namespace) -> str:
    memory.need(arguments.key)
    memory.delete(arguments.key)
    return f"deleted {arguments.key}"


def _forget(memory: AgentMemory, arguments: argparse.Namespace, tables: TableFolder) -> str:
    count = tables.forget(memory, arguments.key)
    if not count:
        memory.need(arguments.key)  # raises, with the nearest key
    return f"erased {arguments.key} (versions: {count})"


def _as_items(records: Iterable[Any], arguments: argparse.Namespace) -> str:
    """Return the items as a table on a terminal, as lines of JSON elsewhere, or as one array."""
    from nbtools.memory.tables import in_words

    records = list(records)
    if records and sys.stdout.isatty() and not arguments.json:
        first = "change" if arguments.verb == "history" else "key"
        whens = [f"{record.updated_at.astimezone():%Y-%m-%d %H:%M}" for record in records]
        rows = [
            (getattr(record, first), in_words(record.value), " ".join(record.tags), record.version, when)
            for record, when in zip(records, whens, strict=True)
        ]
        return "\n".join(aligned([(first, "value", "tags", "version", "updated"), *rows]))
    items = [json.dumps(record.to_dict(), ensure_ascii=False, default=str) for record in records]
    if not items and not arguments.json:
        print("no note matches", file=sys.stderr)
    return f"[{', '.join(items)}]" if arguments.json else "\n".join(items)


def _import(count: ImportCount, file: str) -> str:
    if note := count.note("nbtools memory history KEY"):
        print(note, file=sys.stderr)
    return f"{counted(count, 'item')} read from {file}"


_VERBS: Mapping[str, Callable[[AgentMemory, argparse.Namespace], str]] = {
    "save": _save,
    "restore": _restore,
    "delete": _delete,
    "list": lambda memory, a: _as_items(memory.list(a.prefix), a),
    "find": _find,
    "search": lambda memory, a: _as_items(memory.search(" ".join(a.words), limit=a.limit), a),
    "history": lambda memory, a: _as_items(memory.history(a.key), a),
}
_WITH_TABLES: Mapping[str, Callable[[AgentMemory, argparse.Namespace, TableFolder], str]] = {
    "get": _get,
    "forget": _forget,
    "export": lambda memory, a, tables: (
        f"{counted(tables.export_to(memory, a.file, overwrite=a.overwrite), 'item')} written to {a.file}"
    ),
    "import": lambda memory, a, tables: _import(tables.import_from(memory, a.file), a.file),
}


def _parameters(pairs: list[str]) -> dict[str, Any]:
    values = {}
    for item in pairs:
        name, value = pair(item, "--param ")
        if not name.isidentifier():
            raise InvalidArguments(f"--param {item!r} is not NAME=VALUE.", hint="Write --param low=3.")
        values[name] = json_or_text(value)
    return values


def _sql(arguments: argparse.Namespace) -> int:
    from nbtools.sql.parameters import name_without_value

    query = sys.stdin.read() if arguments.query == "-" else arguments.query
    options: dict[str, Any] = {
        "params": _parameters(arguments.param) or None,
        "connection": arguments.connection,
        "limit": arguments.limit,
        "isolated": arguments.isolated,
        "timeout": arguments.timeout,
    }
    with Workbench() as wb:
        try:
            return _verdict(wb, query, options) if arguments.check else _ask(wb, query, arguments, options)
        except (SqlInvalid, SqlNotAllowed) as exc:
            name = name_without_value(query, options["params"]) if isinstance(exc, SqlInvalid) else None
            exc.hint = f"If :{name} is a parameter, give it a value: --param {name}=…" if name else exc.hint
            if not arguments.check:
                raise
            print("\n".join(exc.three_lines()), file=sys.stderr)
            return 1


def _ask(wb: Workbench, query: str, arguments: argparse.Namespace, options: Mapping[str, Any]) -> int:
    if arguments.out_file:
        rows = wb.export(query, arguments.out_file, overwrite=arguments.overwrite, caller="cli", **options)
        print(rows.text(arguments.out_file), file=sys.stderr)
    elif arguments.format == "table":
        wb.sql_session.only_shown = True
        result = wb.query(query, caller="cli", **options)
        print(result.text() if sys.stdout.isatty() else result.text(max_chars=None, max_rows=None))
        print(result.footer(), file=sys.stderr)
    else:
        _export(wb, query, {"form": arguments.format, **options})
    return 0


def _export(wb: Workbench, query: str, options: Mapping[str, Any]) -> None:
    """Print all rows once they have arrived: a reader gets all of them, or only the error."""
    with tempfile.TemporaryFile() as file:
        rows = wb.export(query, file, caller="cli", **options)
        file.seek(0)
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        shutil.copyfileobj(text, sys.stdout)
    for note in rows.notes:
        print(note, file=sys.stderr)


def _verdict(wb: Workbench, query: str, options: Mapping[str, Any]) -> int:
    verdict = wb.sql_session.check(query, **options)
    verdict.raise_if_refused(query)
    print(f"allowed: reads {', '.join(wb.sql_session.names_read(verdict)) or 'no table and no file'}")
    return 0
