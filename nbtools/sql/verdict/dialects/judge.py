"""The verdict for every dialect except DuckDB; for these, sqlglot's tree is the only one there is.

The tree may contain only reviewed kinds of nodes, and its root must be a query. The lists are files in ``reviewed``,
read at a dialect's first verdict (`rules`). EXPLAIN is judged by what it explains; SHOW is judged by its words, because
sqlglot keeps most of its forms as text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from nbtools.ground.lazy import exp
from nbtools.sql.verdict.dialects.ambiguity import find_ambiguity
from nbtools.sql.verdict.dialects.keywords import check_show, first_word, is_command, skip_explain
from nbtools.sql.verdict.dialects.rules import DialectRules, rules
from nbtools.sql.verdict.reviewed import names, read, reasons
from nbtools.sql.verdict.sqlglot_parser import find_changes, position, read_tokens, read_trees, word
from nbtools.sql.verdict.verdict import READ_ONLY, Finding, Verdict, refuse

_SQLGLOT = read("sqlglot")
_ROOTS, _QUERY_NODES, _DDL_NODES, _PLAIN_MODULES, _NEVER, _LOCKING_HINTS = (
    names(_SQLGLOT[key]) for key in ("roots", "query", "ddl", "plain_modules", "never", "locking_hints")
)
_REFUSED_ARGUMENTS: dict[str, str] = _SQLGLOT["refused_arguments"]
_REFUSED_FUNCTIONS = reasons(_SQLGLOT["refused_functions"])
_SCHEMAS = frozenset({"", "pg_catalog", "sys", "information_schema"})
# Characters of a name that a reason shows; a generated one can be as long as the text.
_SHOWN = 80


def judge(sql: str, dialect: str, functions: frozenset[str], row_functions: frozenset[str]) -> Verdict:
    """Return the verdict on a text in a sqlglot dialect; `functions` may be called in addition to the reviewed ones."""
    own = rules(dialect)._replace(
        row_functions=frozenset(name for name in row_functions if name.lstrip(".") not in functions)
    )
    first, at = first_word(sql, own)
    kind = first.upper() if first in {"show", "explain"} else None
    try:
        if first == "show":
            wrong = check_show(sql, at, own)
            return refuse(sql, [wrong], kind=kind) if wrong else Verdict(sql=sql, allowed=True, kind=kind)
        start = skip_explain(sql, at, own) if first == "explain" else at
        begin, start = first_word(" " * start + sql[start:], own)
        if is_command(begin) or begin == "explain":
            return refuse(sql, [_no_query(sql, start)], kind=begin.upper())
        # The words before the query become blanks, so that positions stay the same.
        tree = _parse(" " * start + sql[start:], own)
        return refuse(sql, [tree]) if isinstance(tree, Finding) else _judge_tree(sql, *tree, own, functions, kind)
    except RecursionError:
        return refuse(sql, [Finding("the statement is nested too deeply to be judged", 0)])


def _parse(query: str, rules: DialectRules) -> tuple[Any, list[Any]] | Finding:
    """Return the tree of the one statement and its tokens, or why there are none."""
    tokens = read_tokens(query, rules.parser)
    if isinstance(tokens, Finding):
        return tokens
    ambiguous = find_ambiguity(query, tokens, rules)
    if ambiguous is not None:
        return ambiguous
    if all(token.token_type.name == "SEMICOLON" for token in tokens):
        return Finding("there is no statement in the text", 0, 1, "SQL_INVALID")
    if rules.numbered_marks:
        tokens = _whole_marks(tokens)
    trees = read_trees(query, rules.parser, tokens)
    if isinstance(trees, Finding):
        return trees
    return (trees[0], tokens) if len(trees) == 1 else _second(tokens)


def _whole_marks(tokens: list[Any]) -> list[Any]:
    """Return the tokens without the numbers of placeholders such as ?1."""
    pairs = zip([None, *tokens], tokens, strict=False)
    return [
        token
        for before, token in pairs
        if before is None
        or token.token_type.name != "NUMBER"
        or before.token_type.name != "PLACEHOLDER"
        or before.end + 1 != token.start
    ]


def _judge_tree(
    sql: str, tree: Any, tokens: list[Any], rules: DialectRules, functions: frozenset[str], kind: str | None
) -> Verdict:
    kind = kind or word(tree)
    changes = find_changes(tree)
    if changes:
        return refuse(sql, [_point_at_word(sql, tokens, changes[0])], kind=kind)
    if type(tree).__name__ not in _ROOTS:
        return refuse(sql, [_no_query(sql, tokens[0].start)], kind=kind)
    findings = list(_objections(tree, rules, functions))
    if findings:
        return refuse(sql, findings, kind=kind)
    return Verdict(
        sql=sql,
        allowed=True,
        kind=kind if kind in {"EXPLAIN", "DESCRIBE"} else "SELECT",
        tables=_tables(tree),
        fixed=not any(type(node).__name__ == "Pivot" for node in tree.walk()),
        functions=tuple(sorted({name for node in tree.walk() if (name := _function_name(node)) is not None})),
        parameters=tuple(dict.fromkeys(str(node.name or "?") for node in _parameters(tree))),
    )


def _no_query(sql: str, at: int) -> Finding:
    raw = next(iter(sql[at : at + 40].split(maxsplit=1)), "this")
    return Finding(f"{raw.upper()} is not a query; {READ_ONLY}", at, len(raw))


def _second(tokens: list[Any]) -> Finding:
    at = next((at for at, token in enumerate(tokens[:-1]) if token.token_type.name == "SEMICOLON"), 0)
    following = tokens[min(at + 1, len(tokens) - 1)]
    width = following.end - following.start + 1
    return Finding("a second statement starts here; nbtools SQL runs one statement at a time", following.start, width)


def _point_at_word(sql: str, tokens: list[Any], finding: Finding) -> Finding:
    """Point at the word that a refusal begins with, where it stands in the text."""
    word = finding.what.split(" ")[0].lower()
    for token in tokens:
        if sql[token.start : token.end + 1].lower() == word:
            return finding._replace(offset=token.start, width=len(word))
    return finding


# -- the tree --------------------------------------------------------------------------------------------------------


@functools.cache
def _kind(node_class: type) -> str:
    """Return ``"function"``, ``"allowed"`` or ``"unknown"`` for a class of nodes."""
    name, module = node_class.__name__, node_class.__module__.rpartition(".")[2]
    if name in _NEVER:
        return "unknown"
    if issubclass(node_class, exp.Func):
        return "function"
    allowed = (
        module in _PLAIN_MODULES
        or (module in {"query", "constraints"} and name in _QUERY_NODES)
        or (module == "ddl" and name in _DDL_NODES)
    )
    return "allowed" if allowed else "unknown"


def _objections(tree: Any, rules: DialectRules, functions: frozenset[str]) -> Iterator[Finding]:
    for node in tree.walk():
        name = type(node).__name__
        kind = _kind(node.__class__)
        reason = None
        if kind == "unknown":
            reason = f"{word(node)} has not been reviewed"
        elif kind == "function":
            reason = _function(node, rules, functions)
        elif name in rules.refused_nodes:
            reason = rules.refused_nodes[name] if name != "Parameter" or not _is_fact(node) else None
        elif name == "Table":
            reason = _table(node, rules)
        elif name in {"TableAlias", "Dot", "Column", "Describe", "WithTableHint", "Hint"}:
            reason = _detail(node, name, rules)
        if reason is not None:
            yield Finding(reason, *position(node))
        for key, what in _REFUSED_ARGUMENTS.items():
            if name in {"Select", "Union"} and node.args.get(key):
                yield Finding(f"{what}; {READ_ONLY}", *position(node))


def _detail(node: Any, name: str, rules: DialectRules) -> str | None:
    if name == "TableAlias" and node.columns and not node.name and type(node.parent).__name__ == "Table":
        return "FROM contains a function that was not recognised"
    if name == "WithTableHint":
        hints = {hint.name.upper() for hint in node.expressions}
        return f"{min(hints & _LOCKING_HINTS)} takes locks; {READ_ONLY}" if hints & _LOCKING_HINTS else None
    if name == "Hint" and not rules.hints:
        return f"hints change settings; {READ_ONLY}"
    if name == "Describe" and type(node.this).__name__ == "Schema" and node.this.this.name not in rules.table_functions:
        return f"DESCRIBE runs the function {node.this.this.name[-_SHOWN:]}()"
    if name in {"Column", "Dot"} and _is_call(node, node.name.lower(), rules):
        called = node.name
        return f"the dot before {called} calls a database function, {called}, that is not on the reviewed list"
    if name == "Column" and node.table and node.name.lower() in rules.sequence_columns:
        return f"{node.table}.{node.name} advances a sequence; {READ_ONLY}"
    return None


def _is_call(node: Any, field: str, rules: DialectRules) -> bool:
    """Tell whether a dot calls the function behind it with what stands before it: t.f is f(t), (1).f is f(1)."""
    is_column = type(node).__name__ == "Column"
    if is_column and not node.table:
        return False
    if not is_column and type(node.expression).__name__ != "Identifier":
        return field in rules.row_functions
    # What stands in FROM may be a value too: from unnest(array['a']) as f.
    if rules.dotted_functions is not None and rules.dotted_functions.match(field):
        return True
    if f".{field}" in rules.row_functions:
        return not is_column or not _is_row(node)
    return field in rules.row_functions


def _is_row(column: Any) -> bool:
    """Tell whether what a column belongs to is a table or a query, not the value of a function in FROM."""
    sources = column.root().find_all(exp.Table, exp.Subquery)
    rows = [each for each in sources if isinstance(each, exp.Subquery) or isinstance(each.this, exp.Identifier)]
    return column.table.lower() in {each.alias_or_name.lower() for each in rows}


def _is_fact(node: Any) -> bool:
    """Tell whether one parameter is inside another, such as @@version."""
    return "Parameter" in {type(node.parent).__name__, type(node.this).__name__}


def _function_name(node: Any) -> str | None:
    """Return the name of a function that the tree calls, lower case; `None` for other nodes and for operators."""
    if not isinstance(node, exp.Func) or isinstance(node, exp.Connector | exp.Case | exp.Cast | exp.Binary):
        return None
    return _written_name(node) or node.sql_name().lower()


def _written_name(node: Any) -> str | None:
    """Return the name as written of a function without its own class, with what stands before its dots."""
    # An AnonymousAggFunc is an aggregate that sqlglot knows by name.
    if type(node).__name__ != "Anonymous":
        return None
    name = node.this if isinstance(node.this, str) else node.name
    parts = [name.lower()]
    above = node.parent
    below = node
    if type(above).__name__ == "NetFunc":
        parts.insert(0, "net")
    while type(above).__name__ == "Dot" and above.args.get("expression") is below:
        parts.insert(0, _qualified_name(above.this))
        below, above = above, above.parent
    if type(above).__name__ == "Table" and above.args.get("this") is below:
        parts = [part.lower() for part in (above.catalog, above.db) if part] + parts
    return ".".join(parts)


def _qualified_name(node: Any) -> str:
    """Return a name and what stands before its dots, lower case; not by sqlglot's own way, which recurses."""
    parts: list[str] = []
    while isinstance(node, exp.Dot):
        parts.append(_bare(node.expression))
        node = node.this
    parts.append(_bare(node))
    return ".".join(reversed(parts)).lower()


def _bare(node: Any) -> str:
    if isinstance(node, exp.Column | exp.Table):
        return ".".join(_bare(part) for part in node.parts)
    # An expression before a dot has no name, and is on no list.
    return str(node.name) if isinstance(node, exp.Identifier | exp.Var) else "(…)"


def _function(node: Any, rules: DialectRules, functions: frozenset[str]) -> str | None:
    class_name = type(node).__name__
    if class_name in _REFUSED_FUNCTIONS:
        return f"{class_name} {_REFUSED_FUNCTIONS[class_name]}; {READ_ONLY}"
    name = _written_name(node)
    if name is None or name in functions:
        return None
    schema, _, bare = name.rpartition(".")
    in_from = type(node.parent).__name__ in {"Table", "Lateral", "TableFromRows"}
    allowed = rules.table_functions if in_from else rules.functions
    if name in allowed or (bare.startswith(rules.prefixes) and schema in _SCHEMAS):
        return _setting(node, rules) if bare == "current_setting" else None
    if bare in allowed and schema in _SCHEMAS:
        return _setting(node, rules) if bare == "current_setting" else None
    return f"the function {name[-_SHOWN:]}() is not on the reviewed list of {rules.dialect}"


def _setting(node: Any, rules: DialectRules) -> str | None:
    first = node.expressions[0] if node.expressions else None
    if first is None or not first.is_string or len(node.expressions) > 2:
        return "current_setting() takes one name, as a literal string"
    return None if first.name.lower() in rules.settings else f"the setting {first.name!r} has not been reviewed"


def _table(node: Any, rules: DialectRules) -> str | None:
    name = node.name
    if isinstance(node.this, exp.Var) or name.startswith("@") or node.args.get("format"):
        return f"{name} is a file stage"
    if isinstance(node.this, exp.Literal) or "/" in name or "\\" in name or "://" in name:
        return f"{name!r} is a file, not a table"
    if rules.file_formats and _file_format(node) in rules.file_formats:
        return f"{name!r} is a file, not a table"
    if rules.linked_servers and isinstance(node.this, exp.Dot):
        return f"{_qualified_name(node.this)!r} is on a linked server"
    low = name.lower()
    if rules.setting_prefix and low.startswith(rules.setting_prefix) and low not in rules.table_functions:
        return f"{name} may change settings"
    # Between two dots an empty name is the schema that the server finds.
    schemas = {"", node.db.lower(), rules.secret_schema if node.catalog and not node.db else ""}
    # A table of the user's may share the name of one of the server's own, in its own schema.
    is_foreign = not rules.secret_schema and node.db.lower() not in _SCHEMAS
    if low in rules.secret_tables and rules.secret_schema in schemas and not is_foreign:
        return f"{name} holds secrets"
    return None


def _file_format(node: Any) -> str:
    """Return what stands before the last dot of a table's name, without what stands before other dots."""
    return _bare(node).rpartition(".")[0].rpartition(".")[2].lower() if "." not in node.name else node.db.lower()


def _tables(tree: Any) -> tuple[str, ...]:
    """Return the names of tables from outside, in the order of the text, without those that WITH defines."""
    defined = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    names: dict[str, None] = {}
    for table in sorted(tree.find_all(exp.Table), key=lambda table_node: position(table_node)[0]):
        parts = [part.name for part in table.parts if isinstance(part, exp.Identifier)]
        if parts and not (len(parts) == 1 and parts[0].lower() in defined):
            names[".".join(parts)] = None
    return tuple(names)


def _parameters(tree: Any) -> Iterable[Any]:
    nodes: Iterable[Any] = tree.find_all(exp.Placeholder, exp.Parameter, bfs=False)
    return nodes
