"""The checker of DuckDB's syntax tree: it judges a statement and collects what the statement reads.

It visits every node. Kinds and keys that `nodes` does not list are refused. Names are resolved with the scopes of
``WITH``, so that `Reads.tables` are exactly the tables that come from outside. Places are the engine's own, in bytes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nbtools.sql.verdict import guards
from nbtools.sql.verdict.duckdb import functions as known
from nbtools.sql.verdict.duckdb.files import Files, is_path_like
from nbtools.sql.verdict.duckdb.macros import DefinitionKey, Definitions
from nbtools.sql.verdict.duckdb.nodes import MODIFYING, PLAIN_KEYS, PLAIN_LEAVES, SHAPES, SHOWN, SHOWS
from nbtools.sql.verdict.duckdb.parser import Tree
from nbtools.sql.verdict.verdict import READ_ONLY

Scope = frozenset[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Violation:
    """A refused part: why, its place in bytes (`None` when the tree has none), or a word to find it by."""

    what: str
    at: int | None = None
    width: int = 1
    word: str = ""


class FileReader(NamedTuple):
    """A place that reads files: the function, empty where a file stands alone; the paths; bytes before it, or -1."""

    function: str
    paths: tuple[str, ...]
    at: int


@dataclasses.dataclass(kw_only=True)
class References:
    """What a statement reads and calls, and what is refused in it. Dictionaries keep the order of the text."""

    tables: dict[str, None] = dataclasses.field(default_factory=dict)
    files: dict[str, None] = dataclasses.field(default_factory=dict)
    functions: dict[str, None] = dataclasses.field(default_factory=dict)
    parameters: dict[str, None] = dataclasses.field(default_factory=dict)
    # Whether options tell a reader how to read, so that it may take values for names.
    has_options: bool = False
    readers: list[FileReader] = dataclasses.field(default_factory=list)
    sights: list[Violation] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckRules:
    """What a policy adds to the reviewed lists."""

    files: Files
    functions: frozenset[str] = frozenset()
    definitions: Definitions | None = None
    # Returns why a definition is refused, and the files that it reads; `judge` sets it, because only that module can
    # judge a text.
    follow: Callable[[DefinitionKey], tuple[str | None, Sequence[str]]] | None = None
    # What any query may call, though its text does not name it.
    always: Sequence[DefinitionKey] = ()
    # In a macro a bare name may be a parameter, which brings any text.
    bare_names: bool = True


def check_tree(statement: Tree, rules: CheckRules) -> References:
    """Visit every node of one statement that `parser.parse` returned."""
    walker = _Checker(rules)
    for key in rules.always:
        walker.follow(key, f"the database has a macro {key.name}() instead of the engine's own,", {"query_location": 0})
    walker.run(statement)
    return walker.reads


class _Checker:
    def __init__(self, rules: CheckRules) -> None:
        self.rules = rules
        self.reads = References()
        self._todo: list[tuple[Tree, Scope]] = []
        self._hooks: dict[str, Callable[[Tree, Scope], Scope | None]] = {
            "BASE_TABLE": self._table,
            "TABLE_FUNCTION": self._table_function,
            "SHOW_REF": self._show,
            "FUNCTION": self._function,
            "WINDOW": self._function,
            "PARAMETER": self._parameter,
        }

    def run(self, statement: Tree) -> None:
        # This loop runs for each node of each query, so it calls no function for a plain node, and compares classes
        # instead of asking isinstance.
        todo = self._todo
        hooks = self._hooks
        todo.append((statement, frozenset()))
        while todo:
            node, scope = todo.pop()
            kind = node.get("class") or node.get("type")
            if kind.__class__ is not str:
                self._visit_record(node, scope)
                continue
            # The engine gives the same name to a subquery in FROM and to one in an expression.
            if kind == "SUBQUERY" and "class" not in node:
                kind = "SUBQUERY_REF"
            shape = SHAPES.get(kind)
            if shape is None or not shape[1].issuperset(node):
                self._unknown(node, kind, shape)
                continue
            hook = hooks.get(kind)
            if hook is not None:
                if hook(node, scope) is None:
                    continue
            elif node.get("cte_map"):
                scope = self._with(node, scope)
            for key in shape[0]:
                child = node.get(key)
                if child:
                    self._push(child, scope)

    def _push(self, child: Any, scope: Scope) -> None:
        if child.__class__ is dict:
            self._todo.append((child, scope))
        elif child.__class__ is list:
            for item in child:
                if item.__class__ is dict:
                    self._todo.append((item, scope))
                elif item.__class__ is list:
                    self._push(item, scope)

    def _visit_record(self, node: Tree, scope: Scope) -> None:
        """Go on through a record without a kind: an argument, a branch, an entry of a pivot."""
        if not PLAIN_KEYS.issuperset(node):
            self._unknown(node, "record", None)
            return
        todo = self._todo
        for key, child in node.items():
            if key not in PLAIN_LEAVES:
                if child.__class__ is dict:
                    todo.append((child, scope))
                elif child.__class__ is list:
                    self._push(child, scope)

    def _refuse(self, what: str, node: Tree, word: str = "") -> None:
        self.reads.sights.append(
            Violation(what=what, at=node.get("query_location"), width=node.get("query_location_length", 1), word=word)
        )

    def _unknown(self, node: Tree, kind: str, shape: Any) -> None:
        if kind in MODIFYING:
            word = MODIFYING[kind]
            self._refuse(f"{word} writes; {READ_ONLY}", node, word)
            return
        keys = f" ({', '.join(sorted(node.keys() - shape[1]))})" if shape else f" ({', '.join(sorted(node))[:80]})"
        self._refuse(f"the syntax tree holds {kind}{keys}, which has not been reviewed", node)

    # -- scopes ------------------------------------------------------------------------------------------------------

    def _with(self, node: Tree, scope: Scope) -> Scope:
        """Visit the entries of WITH, each in the scope of those before it, and return the scope behind them."""
        entries = node["cte_map"]
        if not entries.keys() <= {"map"}:
            self._unknown(entries, "WITH", None)
        for entry in entries.get("map", ()):
            value = entry["value"]
            name = str(entry["key"]).lower()
            inner = value.get("query_node") or {}
            own = scope | {name} if inner.get("type") == "RECURSIVE_CTE_NODE" else scope
            self._todo.append((value, own))
            scope |= {name}
        return scope

    # -- tables ------------------------------------------------------------------------------------------------------

    def _table(self, node: Tree, scope: Scope) -> Scope:
        self._reads_table(_path_of(node), node, scope)
        return scope

    def _reads_table(self, path: Sequence[str], node: Tree, scope: Scope) -> None:
        name = ".".join(path)
        is_file = _is_file(path)
        if not is_file and len(path) == 1 and name.lower() in scope:
            return
        # A view may have the name of a file, and comes first.
        self.follow(DefinitionKey("view", path[-1].lower()), f"the view {name} is", node, name)
        if is_file:
            # A WITH entry of that name would win, but whether it is in sight is not worth being wrong about.
            self._file(name, node)
            self.reads.readers.append(FileReader("", (name,), _position(node)))
            return
        self.reads.tables[name] = None
        # Some of the engine's own functions are views too, without brackets.
        system = path[-1].lower()
        if system.startswith(("duckdb_", "pg_")) and (why := known.REFUSED.get(system)):
            self._refuse(f"{name} {why}; {READ_ONLY}", node, name)

    def follow(self, key: DefinitionKey, what: str, node: Tree, word: str = "") -> bool:
        """Judge what stands behind a name, if the catalog has it, and take over the files that it reads."""
        is_defined = self.rules.definitions is not None and self.rules.definitions.has(key)
        if is_defined and self.rules.follow is not None:
            reason, files = self.rules.follow(key)
            self.reads.files.update(dict.fromkeys(files))
            if reason is not None:
                self._refuse(f"{what} refused: {reason}", node, word)
        return is_defined

    def _file(self, path: str, node: Tree, *, listing: bool = False) -> None:
        self.reads.files[path] = None
        reason = self.rules.files.refusal(path, listing=listing)
        if reason is not None:
            self._refuse(reason, node, path)

    def _show(self, node: Tree, scope: Scope) -> Scope | None:
        kind = node.get("show_type")
        if kind not in SHOWS:
            self._refuse(f"SHOW of the kind {kind} has not been reviewed", node)
            return None
        path = _path_of(node)
        if kind == "SHOW_SPECIAL":
            if path != ("",) and path[-1] not in SHOWN:
                self._refuse(f"SHOW {path[-1]} has not been reviewed", node)
        elif kind in {"SHOW", "DESCRIBE", "SUMMARY"} and not node.get("query") and path != ("",):
            self._reads_table(path, node, scope)
        return scope

    # -- functions ---------------------------------------------------------------------------------------------------

    def _parameter(self, node: Tree, scope: Scope) -> Scope:
        self.reads.parameters[str(node.get("identifier", ""))] = None
        return scope

    def _function(self, node: Tree, scope: Scope) -> Scope:
        name = str(node.get("function_name", "")).lower()
        if not node.get("is_operator"):
            self.reads.functions[name] = None
        if name == "current_setting":
            self._setting(node)
        if self._is_macro(name, node):
            return scope
        if known.is_scalar(name) or name in self.rules.functions:
            return scope
        reason = known.REFUSED.get(name)
        if reason is not None:
            self._refuse(f"{name}() {reason}; {READ_ONLY}", node, name)
        elif known.sounds_dangerous(name) or name in known.FILE_READERS or not name.replace("_", "a").isalnum():
            self._refuse(_not_reviewed("function", name), node, name)
        return scope

    def _is_macro(self, name: str, node: Tree) -> bool:
        """Judge a macro of the catalog by its definition; tell whether the name can mean nothing else.

        A macro hides a built-in function of its name as an expression or in FROM only, and with its own arguments only:
        elsewhere the engine calls its own, so a name of the engine's is judged as the engine's too.
        """
        is_defined = self.follow(DefinitionKey("macro", name), f"the macro {name}() is", node, name)
        return is_defined and not known.is_built_in(name)

    def _setting(self, node: Tree) -> None:
        values = [text for argument in node.get("arguments", ()) for text in _texts(argument.get("expression")) or [""]]
        if len(values) != 1 or not values[0]:
            self._refuse("current_setting() takes one name, as a literal string", node)
        elif not known.is_setting_shown(values[0]):
            self._refuse(f"the setting {values[0]!r} is a secret or leads to one", node)

    def _table_function(self, node: Tree, scope: Scope) -> Scope | None:
        function = node.get("function") or {}
        shape = SHAPES["FUNCTION"]
        if function.get("class") != "FUNCTION" or not function.keys() <= shape[1]:
            self._unknown(function, "TABLE_FUNCTION", shape)
            return None
        name = str(function.get("function_name", "")).lower()
        self.reads.functions[name] = None
        if name in known.FILE_READERS:
            self._reader(name, function, node)
        elif name in known.TABLE_NAMING:
            self._naming(function, node, scope)
        elif name == "sql_auto_complete" and _is_suggestible(function):
            pass
        elif not self._is_macro(name, node) and name not in known.ROW_SOURCES and name not in self.rules.functions:
            reason = known.REFUSED.get(name)
            self._refuse(
                f"{name}() {reason}; {READ_ONLY}" if reason else _not_reviewed("table function", name), node, name
            )
        # The function itself is judged; its arguments are expressions like any other.
        for key in shape[0]:
            self._push(function.get(key), scope)
        return None

    def _reader(self, name: str, function: Tree, node: Tree) -> None:
        paths: list[Tree] = []
        positional: list[Tree] = []
        for option, value in _arguments(function):
            if option in known.REFUSED_OPTIONS:
                self._refuse(f"{option} {known.REFUSED_OPTIONS[option]}; {READ_ONLY}", node, option)
            elif option in known.PATH_OPTIONS:
                paths.append(value)
            elif not option:
                positional.append(value)
            else:
                self.reads.has_options = True
        paths += positional[:1] if name.startswith("parquet_") else positional
        if not paths:
            self._refuse(f"{name}() needs a path, written out", node)
        named: list[str] = []
        for value in paths:
            texts = _texts(value)
            if value.get("class") == "COLUMN_REF" and self.rules.bare_names:
                # The engine takes a bare name for the path; a column of that name is an error there.
                texts = [".".join(map(str, value.get("column_names", ())))]
            if texts is None:
                self._refuse(f"the path of {name}() must be a constant in the text", value or node)
            for text in texts or ():
                self._file(text, node if "query_location" not in value else value, listing=name == "glob")
            named += texts or ()
        self.reads.readers.append(FileReader(name, tuple(named), _position(node)))

    def _naming(self, function: Tree, node: Tree, scope: Scope) -> None:
        """Judge a macro whose first argument names a table: a bare name, or a text, which may name a file."""
        first = next((value for option, value in _arguments(function) if not option or option == "source"), None)
        if first is not None and first.get("class") == "COLUMN_REF" and self.rules.bare_names:
            paths = [[str(part) for part in first.get("column_names", ())] or [""]]
        else:
            paths = [[text] if is_path_like(text) else text.split(".") for text in _texts(first) or ()]
        # The engine reads the name once more: it takes quotes in it off, and the schema main away from a path.
        if not paths or any(_is_read_again(path) for path in paths):
            self._refuse("the table must be named in the text, and a file only by its path", node)
            return
        for path in paths:
            self._reads_table(path, node, scope)


def _is_read_again(path: Sequence[str]) -> bool:
    """Tell whether a name means something else once its parts are joined by dots and read as a name."""
    return any('"' in part or (len(path) > 1 and is_path_like(part)) for part in path) or path[0].lstrip()[:1] == "("


def _path_of(node: Tree) -> tuple[str, ...]:
    """Return the parts of the name of a table."""
    path = node.get("qualified_name", {}).get("path")
    return tuple(part for part in path if part) if path else (node.get("table_name") or "",)


def _position(node: Tree) -> int:
    """Return where a node stands, in bytes; -1 where the engine does not say."""
    at = int(node.get("query_location", -1))
    return at if at < guards.MAX_BYTES else -1


def _is_suggestible(function: Tree) -> bool:
    texts = [_texts(value) for _, value in _arguments(function)]
    return len(texts) == 1 and texts[0] is not None and all(known.is_suggestible(text) for text in texts[0])


def _not_reviewed(what: str, name: str) -> str:
    return f"the {what} {name}() is not on the reviewed list"


def _arguments(function: Mapping[str, Any]) -> Iterator[tuple[str, Tree]]:
    """Yield the arguments of a table function with their names: ``name := value``, or ``name = value``."""
    for argument in function.get("arguments", ()):
        value = argument.get("expression") or {}
        name = str(argument.get("name") or "").lower()
        left = value.get("left") or {}
        if not name and value.get("type") == "COMPARE_EQUAL" and left.get("class") == "COLUMN_REF":
            name = str((left.get("column_names") or [""])[-1]).lower()
            value = value.get("right") or {}
        yield name, value


def _texts(value: Tree | None) -> list[str] | None:
    """Return the constant texts of an expression: a literal, a list of literals, literals joined; else `None`.

    A cast is not a constant here: text cast to a list becomes other text.
    """
    if not value:
        return None
    kind = value.get("class")
    if kind == "CONSTANT":
        literal = value.get("literal") or {}
        return [str(literal.get("text", ""))] if literal.get("kind") == "STRING" else None
    name = value.get("function_name") if kind == "FUNCTION" else value.get("type")
    inner = [item.get("expression", item) for item in value.get("arguments") or value.get("children") or ()]
    if name in {"list_value", "array_value", "ARRAY_CONSTRUCTOR"}:
        parts = [_texts(item) for item in inner]
        return None if None in parts else [text for part in parts if part for text in part]
    if name == "||":
        # Only of texts: lists are joined by the same operator.
        pieces = [_texts(item) if item.get("class") == "CONSTANT" or _joins(item) else None for item in inner]
        return None if None in pieces else ["".join(piece[0] for piece in pieces if piece)]
    return None


def _joins(value: Tree) -> bool:
    return value.get("class") == "FUNCTION" and value.get("function_name") == "||"


_TWO_PART = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson", ".geojson", ".xlsx", ".avro", ".shp")
_PACKED = (".gz", ".zst", ".db", ".duckdb", ".ddb", ".vortex", ".lance", ".arrow", ".arrows", ".ipc", ".pq")


def _is_file(path: Sequence[str]) -> bool:
    """Tell whether a table's name could be taken for a file: the engine joins a qualified name with dots first."""
    if len(path) == 1:
        return is_path_like(path[0])
    name = ".".join(path)
    if any(mark in name for mark in "/\\*?[~|\0") or "://" in name:
        return True
    # A table called json in a schema is common; the engine looks for a file only where there is one.
    return name.lower().endswith((*_TWO_PART, *_PACKED)) and os.path.exists(name)  # noqa: PTH110 - may be no path
