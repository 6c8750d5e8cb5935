"""Transpiling a query from one dialect to another, or refusing where the result would not be exact."""

from __future__ import annotations

from typing import Any

from nbtools.errors import SqlInvalid
from nbtools.sql.verdict.policy import Policy
from nbtools.sql.verdict.reviewed import names, read
from nbtools.sql.verdict.sqlglot_parser import collect_warnings, read_tokens, read_trees
from nbtools.sql.verdict.verdict import Finding, refuse

_SQLGLOT = read("sqlglot")
_JOINS: dict[str, frozenset[str]] = {join: names(dialects) for join, dialects in _SQLGLOT["joins"].items()}
_STARS, _ALLS = names(_SQLGLOT["forms"]["star"]), names(_SQLGLOT["forms"]["all"])


def transpile(sql: str, read: str, write: str) -> str:
    """Return one query in another dialect.

    Parameters
    ----------
    sql
        One query; it is judged first, in its own dialect, and the translation should be judged again in its own.
    read
        The dialect of the text, one of `policy.DIALECTS`.
    write
        The dialect to write.

    Raises
    ------
    SqlInvalid
        The text cannot be parsed, or something in it has no exact counterpart.
    SqlNotAllowed
        The text is not a query that may run.

    Examples
    --------
    >>> transpile("select strftime(d, '%Y') from t", read="duckdb", write="postgres")
    "SELECT TO_CHAR(d, 'YYYY') FROM t"
    """
    from sqlglot import ErrorLevel
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import UnsupportedError

    source = Policy(read)
    target = Policy(write)
    source.check(sql).raise_if_refused()
    tokens = read_tokens(sql, source.dialect)
    trees = tokens if isinstance(tokens, Finding) else read_trees(sql, source.dialect, tokens)
    if isinstance(trees, Finding):
        refuse(sql, [trees]).raise_if_refused()
        trees = []
    tree = trees[0] if len(trees) == 1 else None
    if tree is None or type(tree).__name__ == "Command":
        raise SqlInvalid(
            f"the query cannot be translated from {source.dialect} to {target.dialect}: its form is not understood.",
            hint=f"Write it in {target.dialect}.",
        )
    with collect_warnings() as heard:
        heard.extend(_misread(tree, target.dialect))
        try:
            text = Dialect.get_or_raise(target.dialect).generate(tree, unsupported_level=ErrorLevel.RAISE)
        except UnsupportedError as exc:
            heard.append(str(exc))
    if not heard:
        # What is left over from the other dialect shows as a function or a form that this one does not know.
        heard = [reason.partition(": ")[2] for reason in target.check(text).reasons]
    if heard:
        what = "; ".join(dict.fromkeys(" ".join(word.split())[:200] for word in heard)).rstrip(".")
        raise SqlInvalid(
            f"the query has no exact counterpart in {target.dialect}: {what}.", hint=f"Write it in {target.dialect}."
        )
    return str(text)


def _misread(tree: Any, write: str) -> list[str]:
    """Return what sqlglot would write down without a word, and the other engine take for something else.

    ``t SEMI JOIN u`` is an ordinary join of ``t`` under the name ``semi`` where that kind of join is unknown.
    """
    misread: list[str] = []
    for node in tree.walk():
        name = type(node).__name__
        if name == "Join":
            words = {str(node.args.get(key) or "").upper() for key in ("method", "kind", "side")}
            misread += [f"{word} JOIN" for word in sorted(words & _JOINS.keys()) if write not in _JOINS[word]]
        elif name == "Star" and write not in _STARS and any(node.args.values()):
            misread.append("* with EXCLUDE, REPLACE or RENAME")
        elif name in {"Group", "Order"} and write not in _ALLS and _is_all(node):
            misread.append(f"{name.upper()} BY ALL")
        elif name == "Like" and write == "sqlite":
            misread.append("LIKE, which ignores case there")
    return misread


def _is_all(node: Any) -> bool:
    if node.args.get("all"):
        return True
    columns = [item.args.get("this") for item in node.expressions]
    bare = [column.this for column in columns if type(column).__name__ in {"Column", "Var"}]
    names = [name if isinstance(name, str) else name.name for name in bare if not getattr(name, "quoted", False)]
    return "ALL" in {name.upper() for name in names}
