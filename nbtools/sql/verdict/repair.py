"""Repairs: what a refused text may have meant, offered only where the changed text may run.

Each rule takes one habit out of a text: Markdown's marks, quotes and operators of other languages, functions that no
database has. A text is never changed for its author: the error tells what to write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from nbtools.errors import NbtoolsError
from nbtools.sql.verdict.guards import Token, first_bad_character, scan

_Rule = Callable[[str], str]
_FENCE = re.compile(r"\A\s*```\s*(?:\w+\n?)?|```\s*\Z|\A\s*(?:sqlite|sql|mysql|postgresql)\s*\n", re.IGNORECASE)
_BACKSLASH = re.compile(r"\\+([_*()\[\]<>#&|~.=+-])")
_SPLIT_OPERATOR = re.compile(r"([<>!])\s+=")
_APOSTROPHE = re.compile(r"(?<=\w)'(?=(?:s|t|ll|re|ve)\b)")
# What PostgreSQL writes in two ways, and the parser reads in one.
_LONG_FORMS = (
    (re.compile(r"\bAT\s+LOCAL\b", re.IGNORECASE), "AT TIME ZONE current_setting('TimeZone')"),
    (re.compile(r"\bUSING\s+(?:OPERATOR\s*\(\s*(?:pg_catalog\s*\.)?\s*<\s*\)|<(?![<=>~@&|]))", re.IGNORECASE), "ASC"),
    (re.compile(r"\bUSING\s+(?:OPERATOR\s*\(\s*(?:pg_catalog\s*\.)?\s*>\s*\)|>(?![<=>~@&|]))", re.IGNORECASE), "DESC"),
    (re.compile(r"\bOPERATOR\s*\(\s*pg_catalog\s*\.\s*([^\s()]+)\s*\)", re.IGNORECASE), r"\1"),
    (re.compile(r"\bBIT\s+VARYING\b", re.IGNORECASE), "VARBIT"),
)
_TEXTS = re.compile(r"('(?:[^']|'')*'|\"[^\"]*\")")
_ARITHMETIC = {"divide": "* 1.0 /", "subtract": "-", "multiply": "*", "add": "+"}
_AGGREGATES = frozenset({"count", "sum", "avg", "min", "max"})
# Tried in turn as the language that the author may have had in mind.
_OTHERS = ("sqlite", "mysql", "postgres", "duckdb", "tsql", "snowflake")
_WITH_COLONS = frozenset({"postgres", "duckdb", "snowflake"})  # they write a cast so
_WRITTEN = re.compile(r"""["\s;]|\bas\b""", re.IGNORECASE)
_MOST_ROUNDS = 20
_LONGEST = 4_000


def find_repair(
    sql: str, dialect: str, allows: Callable[[str], bool], translate: Callable[[str, str], str]
) -> str | None:
    """Return what to say of a refused text: what is wrong in it, and how it may run; `None` where nothing helps.

    Parameters
    ----------
    sql
        The text that was refused.
    dialect
        The dialect that it was read as.
    allows
        Tells whether a text may run.
    translate
        Returns a text, given the dialect that it is in, in the dialect of the connection; it raises where it cannot.
    """
    if len(sql) > _LONGEST or first_bad_character(sql):
        return None
    text, advice = sql, []
    for what, rule in _RULES:
        changed = rule(text)
        if changed != text:
            text = changed
            advice.append(what)
            if allows(text):
                return _advice(advice, text)
    for other in _OTHERS:
        is_other = other == dialect or ("::" in text and other not in _WITH_COLONS)
        try:
            translated = "" if is_other else translate(text, other)
        except NbtoolsError:
            continue
        if translated and allows(translated):
            # What differs by quotes alone is no other dialect.
            is_same = _WRITTEN.sub("", translated).casefold() == _WRITTEN.sub("", text).casefold()
            what = "a name that is one of SQL's own words needs quotes" if is_same else f"this is {other}'s SQL"
            return _advice([*advice, what], translated)
    alone = next((part for part in _statements(text) if part != text and allows(part)), None)
    return None if alone is None else _advice([*advice, "one statement runs at a time"], alone)


def _advice(advice: Sequence[str], text: str) -> str:
    return f"{'; '.join(advice)}. Write: {text.strip()}"


def _bare_sql(sql: str) -> str:
    return _BACKSLASH.sub(r"\1", _FENCE.sub("", _FENCE.sub("", sql)))


def _short_forms(sql: str) -> str:
    parts = _TEXTS.split(sql)
    for long, short in _LONG_FORMS:
        parts[::2] = [long.sub(short, part) for part in parts[::2]]
    return "".join(parts)


def _calls(tokens: Sequence[Token], names: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Yield the places, among the tokens, of names that are called and of their closing brackets, the last first."""
    for at in reversed(range(len(tokens) - 1)):
        if tokens[at].text.lower() in names and tokens[at + 1].text == "(":
            end = _closing(tokens, at + 1)
            if end is not None:
                yield at, end


def _closing(tokens: Sequence[Token], at: int) -> int | None:
    depth = 0
    for index in range(at, len(tokens)):
        depth += (tokens[index].text == "(") - (tokens[index].text == ")")
        if not depth:
            return index
    return None


def _within(tokens: Sequence[Token], start: int, end: int, word: str) -> list[int]:
    """Return where a word stands between two brackets, and in no brackets inside of them."""
    depth, places = 0, []
    for index in range(start + 1, end):
        depth += (tokens[index].text == "(") - (tokens[index].text == ")")
        if not depth and tokens[index].text.lower() == word:
            places.append(index)
    return places


def _rewritten(sql: str, names: frozenset[str], change: Callable[[str, list[Token], int, int], str | None]) -> str:
    """Return a text in which a change was made to calls, one after the other, until there is none to be made."""
    for _ in range(_MOST_ROUNDS):
        tokens = scan(sql)
        for at, end in _calls(tokens, names):
            changed = change(sql, tokens, at, end)
            if changed is not None:
                sql = f"{sql[: tokens[at].start]}{changed}{sql[tokens[end].start + 1 :]}"
                break
        else:
            return sql
    return sql


def _arithmetic(sql: str, tokens: list[Token], at: int, end: int) -> str | None:
    commas = _within(tokens, at + 1, end, ",")
    if len(commas) != 1:
        return None
    first = sql[tokens[at + 1].start + 1 : tokens[commas[0]].start].strip()
    second = sql[tokens[commas[0]].start + 1 : tokens[end].start].strip()
    return f"(({first}) {_ARITHMETIC[tokens[at].text.lower()]} ({second}))"


def _conditional(sql: str, tokens: list[Token], at: int, end: int) -> str | None:
    where = _within(tokens, at + 1, end, "where")
    if len(where) != 1 or _within(tokens, at + 1, end, "from"):
        return None
    value = sql[tokens[at + 1].start + 1 : tokens[where[0]].start].strip()
    condition = sql[tokens[where[0]].start + len("where") : tokens[end].start].strip()
    word, _, rest = value.partition(" ")
    every, counted = (f"{word} ", rest) if word.lower() == "distinct" else ("", value)
    return f"{tokens[at].text}({every}CASE WHEN {condition} THEN {'1' if counted == '*' else counted} END)"


def _cast(sql: str, tokens: list[Token], at: int, end: int) -> str | None:
    commas = _within(tokens, at + 1, end, ",")
    if not commas or _within(tokens, at + 1, end, "as"):
        return None
    comma = tokens[commas[-1]].start
    return f"CAST{sql[tokens[at + 1].start : comma]} AS {sql[comma + 1 : tokens[end].start].strip()})"


def _subqueries(sql: str) -> str:
    """Return a text in which a bracket that holds an aggregate and its FROM is a query."""
    tokens = scan(sql)
    for at in reversed(range(len(tokens) - 1)):
        end = _closing(tokens, at) if tokens[at].text == "(" else None
        if end and tokens[at + 1].word in _AGGREGATES and _within(tokens, at, end, "from"):
            sql = f"{sql[: tokens[at].start + 1]}SELECT {sql[tokens[at].start + 1 :]}"
    return sql


def _balanced(sql: str) -> str:
    tokens = scan(sql)
    depth, surplus = 0, []
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")")
        if depth < 0:
            surplus.append(token.start)
            depth = 0
    for index in reversed(surplus):
        sql = sql[:index] + sql[index + 1 :]
    return sql.rstrip().rstrip(";") + ")" * depth if depth else sql


def _statements(sql: str) -> Iterator[str]:
    begin = 0
    for token in scan(sql):
        if token.text == ";":
            yield sql[begin : token.start].strip()
            begin = token.start + 1
    yield sql[begin:].strip()


_RULES: tuple[tuple[str, _Rule], ...] = (
    ("Markdown's marks (a backslash before _ or *, fences of code) are not SQL", _bare_sql),
    ("a quote inside a text is doubled", lambda sql: _APOSTROPHE.sub("''", sql.replace("\\'", "''"))),
    ("an operator cannot contain a blank", lambda sql: _SPLIT_OPERATOR.sub(r"\1=", sql)),
    ("AT LOCAL, USING, OPERATOR and BIT VARYING are written in their usual forms", _short_forms),
    ("arithmetic has operators", lambda sql: _rewritten(sql, frozenset(_ARITHMETIC), _arithmetic)),
    ("CAST takes AS", lambda sql: _rewritten(sql, frozenset({"cast"}), _cast)),
    ("a condition belongs in CASE, not in an aggregate", lambda sql: _rewritten(sql, _AGGREGATES, _conditional)),
    ("a query in brackets begins with SELECT", _subqueries),
    ("brackets do not match", _balanced),
)
