"""DuckDB's verdict: guards, the engine's tree, sqlglot's second opinion.

Two kinds of query have no tree. EXPLAIN is judged by what it explains: its head is blanked out, so that
places stay. A dynamic PIVOT, whose columns come from the data, is judged as the same PIVOT over a constant column, and
a query that would tell the columns is judged beside it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from nbtools.sql.verdict import guards
from nbtools.sql.verdict.duckdb.checker import CheckRules, References, Violation, check_tree
from nbtools.sql.verdict.duckdb.macros import DefinitionKey, Kind
from nbtools.sql.verdict.duckdb.parser import Tree, kinds, parse
from nbtools.sql.verdict.duckdb.pivots import Part, rewrite_dynamic_pivots
from nbtools.sql.verdict.reviewed import names, read, reasons
from nbtools.sql.verdict.sqlglot_parser import find_changes, is_free_of_changes, read_tokens, read_trees
from nbtools.sql.verdict.verdict import READ_ONLY, Finding, Verdict, refuse

_ONE = "nbtools SQL runs one statement at a time"
# What a statement does that begins with a word.
_WHY = reasons(read("duckdb_tree")["statements"])
_QUERIES = names("DESC DESCRIBE EXPLAIN FROM PIVOT SELECT SHOW SUMMARIZE TABLE UNPIVOT VALUES WITH")


def begins_statement(word: str) -> bool:
    """Tell whether a word begins a statement, be it one that may run or not.

    Examples
    --------
    >>> begins_statement("begin"), begins_statement("shop")
    (True, False)
    """
    first = word.rstrip(";").upper()
    return first in _WHY or first in _QUERIES or first.lower() in guards.WRITES


def judge_duckdb(sql: str, rules: CheckRules) -> Verdict:
    """Return the verdict on a text for DuckDB."""
    if rules.definitions is not None and rules.follow is None:
        follow = functools.partial(rules.definitions.follow, judge=functools.partial(_judge_definition, rules))
        rules = dataclasses.replace(rules, follow=follow, always=rules.definitions.hiding)
    deep = guards.nesting(sql)
    if deep is not None:
        return refuse(sql, [deep])
    try:
        tree = parse(sql)
        if tree["error"]:
            return _without_tree(sql, tree, rules)
        statements = tree["statements"]
        if len(statements) != 1:
            return _not_one(sql, len(statements))
        return _conclude(sql, sql, _kind_of(statements[0]), [check_tree(statements[0], rules)])
    except RecursionError:
        return refuse(sql, [Finding("the statement is nested too deeply to be judged", 0)])
    except Exception as exc:  # a parser that stumbles has not understood the text: refused
        message = (str(exc).splitlines() or [type(exc).__name__])[0][:200]
        return refuse(sql, [Finding(f"the engine cannot parse it: {message}", 0, 1, "SQL_INVALID")])


def _judge_definition(rules: CheckRules, body: str, kind: Kind) -> tuple[Verdict, Sequence[DefinitionKey]]:
    """Judge a definition by itself: what it uses of the catalog counts as allowed and is followed by the caller."""
    finding = guards.first_bad_character(body) or guards.size(body)
    if finding is not None:
        return refuse(body, [finding]), ()
    used: dict[DefinitionKey, None] = {}
    alone = dataclasses.replace(rules, follow=lambda key: (used.setdefault(key), ()), bare_names=kind == "view")
    return judge_duckdb(body, alone), tuple(used)


def _kind_of(statement: Tree) -> str:
    verbs = {"DESCRIBE": "DESCRIBE", "SUMMARY": "SUMMARIZE"}
    table = statement.get("node", {}).get("from_table", {})
    return verbs.get(table.get("show_type"), "SHOW") if table.get("type") == "SHOW_REF" else "SELECT"


# -- statements that are not a plain SELECT ----------------------------------------------------------------------------


def _without_tree(sql: str, tree: Tree, rules: CheckRules) -> Verdict:
    if tree.get("error_type") != "not implemented":
        return refuse(sql, [_mistake(sql, tree)])
    all_kinds = kinds(sql)
    if len(all_kinds) != 1:
        return _not_one(sql, len(all_kinds))
    if all_kinds[0] not in {"EXPLAIN", "MULTI"}:
        return refuse(sql, [_forbidden(sql, all_kinds[0])], kind=all_kinds[0])
    tokens = guards.scan(sql)
    start = guards.find_explained(tokens)
    inner = sql if start is None else " " * len(sql[:start].encode()) + sql[start:]
    if start == len(sql) or (all_kinds[0] == "EXPLAIN" and start is None):
        return refuse(sql, [Finding("only a query can be explained", 0, 7)], kind=all_kinds[0])
    kind = "EXPLAIN" if start is not None else "PIVOT"
    return _inner(sql, inner, kind, rules)


def _inner(sql: str, inner: str, kind: str, rules: CheckRules) -> Verdict:
    """Judge what an EXPLAIN explains, or a dynamic PIVOT, by the trees of the texts that stand for it."""
    parts = [Part(inner)]
    tree = parse(inner)
    if tree["error"] and tree.get("error_type") == "not implemented":
        inner_kinds = kinds(inner)
        if inner_kinds != ["MULTI"]:
            return refuse(sql, [_forbidden(inner, inner_kinds[0] if inner_kinds else "NOTHING")], kind=kind)
        parts = rewrite_dynamic_pivots(inner)
        if not parts:
            return refuse(sql, [_forbidden(inner, "MULTI")], kind=kind)
    reads: list[References] = []
    for part in parts:
        tree = parse(part.sql)
        if tree["error"] or len(tree["statements"]) != 1:
            if not tree["error"]:
                return _not_one(sql, len(tree["statements"]))
            return refuse(sql, [_forbidden(inner, "MULTI")], kind=kind)
        seen = check_tree(tree["statements"][0], rules)
        seen.sights = [
            sight if sight.at is None else dataclasses.replace(sight, at=part.origin(sight.at)) for sight in seen.sights
        ]
        seen.readers = [each._replace(at=part.origin(each.at)) if each.at > 0 else each for each in seen.readers]
        reads.append(seen)
    return _conclude(sql, inner, kind, reads)


# -- refusals --------------------------------------------------------------------------------------------------------


def _mistake(sql: str, tree: Tree) -> Finding:
    what = str(tree.get("error_message") or "the text is not SQL").split("\n")[0][:300]
    position = str(tree.get("position") or "")
    at = len(sql.encode()[: int(position)].decode(errors="ignore")) if position.isdigit() else len(sql)
    width = next((len(token.text.split("\n")[0]) for token in guards.scan(sql) if token.start == at), 1)
    return Finding(what, at, width, "SQL_INVALID")


def _not_one(sql: str, count: int) -> Verdict:
    tokens = guards.scan(sql)
    if count == 0 or not tokens:
        return refuse(sql, [Finding("there is no statement in the text", 0, 1, "SQL_INVALID")])
    depth_free = [i for i, token in enumerate(tokens) if token.text == ";" and i + 1 < len(tokens)]
    second = next((tokens[i + 1] for i in depth_free if tokens[i + 1].text != ";" and i > 0), tokens[0])
    return refuse(sql, [Finding(f"a second statement starts here; {_ONE}", second.start, len(second.text))])


def _forbidden(sql: str, kind: str) -> Finding:
    tokens = guards.scan(sql)
    first = next((token for token in tokens if token.word), None)
    at, width = (first.start, len(first.text)) if first else (0, 1)
    # The first word is the statement's, unless WITH or EXPLAIN stand before it.
    is_named = first is not None and (first.word.upper() in _WHY or kind in {"UNKNOWN", "MULTI", "EXPLAIN", "NOTHING"})
    verb = first.word.upper() if is_named and first else kind.partition("_")[0]
    placed = next((token for token in tokens if token.word.upper() == verb), None)
    if placed is not None:
        at, width = placed.start, len(placed.text)
    return Finding(f"{verb} {_WHY.get(verb, 'writes')}; {READ_ONLY}", at, width)


# -- the end ---------------------------------------------------------------------------------------------------------


def _conclude(sql: str, query: str, kind: str, reads: list[References]) -> Verdict:
    findings = [_finding(sql, sight) for seen in reads for sight in seen.sights]
    if not findings and kind != "SHOW":
        # sqlglot knows no SHOW of DuckDB; what the engine's tree refused needs no second opinion.
        findings = second_opinion(query)
    files = tuple(dict.fromkeys(name for seen in reads for name in seen.files))
    if findings:
        return dataclasses.replace(refuse(sql, findings, kind=kind), files=files)
    return Verdict(
        sql=sql,
        allowed=True,
        kind=kind,
        tables=tuple(dict.fromkeys(name for seen in reads for name in seen.tables)),
        files=files,
        functions=tuple(sorted({name for seen in reads for name in seen.functions})),
        fixed=kind != "PIVOT" and not any(seen.has_options for seen in reads),
        parameters=tuple(dict.fromkeys(name for seen in reads for name in seen.parameters)),
        # The queries that tell the columns of a pivot read what the pivot reads.
        readers=tuple((each.function, each.paths, _characters(sql, each.at)) for each in reads[0].readers),
    )


def _characters(sql: str, at: int) -> int:
    return at if at < 0 or sql.isascii() else len(sql.encode()[:at].decode(errors="ignore"))


def _finding(sql: str, sight: Violation) -> Finding:
    if sight.at is not None:
        data = sql.encode()
        at = len(data[: sight.at].decode(errors="ignore"))
        width = len(data[sight.at : sight.at + max(1, sight.width)].decode(errors="ignore").split("\n")[0])
        return Finding(sight.what, at, max(1, width))
    if sight.word:
        word = sight.word.lower()
        for token in guards.scan(sql):
            if token.text.strip("'\"`").lower() == word:
                return Finding(sight.what, token.start, len(token.text))
    return Finding(sight.what)


def second_opinion(sql: str) -> list[Finding]:
    """Return what sqlglot objects to; nothing when it cannot parse what the engine can, or has nothing to look for."""
    if is_free_of_changes(sql):
        return []
    return sqlglot_objections(sql)


def sqlglot_objections(sql: str) -> list[Finding]:
    """Return what sqlglot's own tree shows, whether or not there can be anything in it."""
    tokens = read_tokens(sql, "duckdb")
    trees = tokens if isinstance(tokens, Finding) else read_trees(sql, "duckdb", tokens)
    if isinstance(trees, Finding):
        # Too deep is a separate refusal; what sqlglot does not know the engine's tree has judged.
        return [trees] if trees.code == "SQL_NOT_ALLOWED" else []
    if len(trees) != 1:
        return [Finding(f"a second parser sees {len(trees)} statements; {_ONE}", 0)]
    if type(trees[0]).__name__ == "Command":
        return []
    return find_changes(trees[0])
