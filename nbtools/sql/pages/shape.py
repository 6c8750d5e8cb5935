"""`Shape`: the text of a query as its source, columns, conditions and order, and back.

The text is the state of an explorer. What a person clicks changes one part of it; what a person writes is read into the
parts again. A query of any other form, with groups, joins or a limit, is a source itself: it stands in brackets.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from nbtools.errors import SqlInvalid
from nbtools.ground.lazy import exp, sqlglot
from nbtools.sql.engines.errors import from_position
from nbtools.sql.suggestions import nearest_word
from nbtools.sql.verdict.guards import nesting
from nbtools.sql.verdict.sqlglot_parser import read_tokens, read_trees
from nbtools.sql.verdict.verdict import Finding, line_and_column
from nbtools.texts.sql_quotes import quote_text

_FILE = re.compile(r"(?:read_\w+\('((?:[^']|'')*)'[^()]*\)(?: AS \"\w+\")?|'((?:[^']|'')*)')\Z", re.IGNORECASE)
# What DuckDB takes for a query, in brackets too, and sqlglot does not call one.
_QUERIES = frozenset({"Describe", "Pivot", "Summarize", "Values"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """A query in parts.

    Attributes
    ----------
    source
        The FROM clause, without its alias.
    alias
        The alias; `None` for none.
    columns
        Names of the columns to show; `None` for all.
    conditions
        SQL conditions that all hold.
    order
        Names of columns, and whether the greatest value comes first.
    dialect
        Of the source and of the whole text. Conditions are kept as DuckDB writes them, because it filters the rows.
    """

    source: str
    alias: str | None = None
    columns: tuple[str, ...] | None = None
    conditions: tuple[str, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    dialect: str = "duckdb"

    @classmethod
    def of_file(cls, path: str) -> Self:
        """Return all of a file.

        Examples
        --------
        >>> Shape.of_file("*.csv").source
        "'*.csv'"
        """
        return cls(source=quote_text(path))

    @classmethod
    def from_text(cls, text: str, dialect: str = "duckdb", is_here: Callable[[str], bool] = bool) -> Self:
        """Read a query.

        Parameters
        ----------
        text
            The query.
        dialect
            The dialect of the query.
        is_here
            Tells whether the rows of what stands behind FROM are here. Where they are not, a query with conditions
            stays whole: its database filters them, and fewer travel.

        Raises
        ------
        SqlInvalid
            It is not SQL, or not one SELECT.

        Examples
        --------
        >>> Shape.from_text("from 'a.csv' where x > 1 and y = 'b' order by x desc").order
        (('x', True),)
        >>> Shape.from_text("select x, count(*) from t group by x").source
        '(SELECT x, COUNT(*) FROM t GROUP BY x)'
        """
        # Depth is counted first: a text that nests too deep would end the process, not only the parser.
        tokens = nesting(text) or read_tokens(text, dialect)
        tree = tokens if isinstance(tokens, Finding) else read_trees(text, dialect, tokens)
        if isinstance(tree, Finding):
            what = f"this is not SQL that can be read: {tree.what}."
            if tree.offset < 0:
                raise SqlInvalid(what)
            line, column = line_and_column(text, tree.offset)

            def is_sql(other: str) -> bool:
                tokens = nesting(other) or read_tokens(other, dialect)
                return not isinstance(tokens, Finding) and not isinstance(read_trees(other, dialect, tokens), Finding)

            hint = nearest_word(text, line, column, is_sql)
            raise from_position(SqlInvalid, what, text, line, column, tree.width, hint=hint)
        if len(tree) == 1 and dialect == "duckdb" and type(tree[0]).__name__ in _QUERIES:
            return cls(source=f"({text.strip().rstrip(';')})", alias="q")
        if len(tree) != 1 or not isinstance(tree[0], exp.Query):
            raise SqlInvalid("an explorer shows one SELECT.")
        try:
            parts = _parts(tree[0], dialect)
            shape = cls(dialect=dialect, **parts) if parts else None
            if shape is None or (shape.conditions and not is_here(shape.relation)):
                # In most dialects a query in brackets needs another name.
                return cls(source=f"({text_of(tree[0], dialect)})", alias="q", dialect=dialect)
        except RecursionError:
            raise SqlInvalid("the query nests too deep to be taken apart.") from None
        return shape

    def but(self, **changes: Any) -> Self:
        """Return the same query with some parts changed."""
        return dataclasses.replace(self, **changes)

    def fitting(self, names: Iterable[str]) -> tuple[Self, tuple[str, ...]]:
        """Return the query without what it says of columns that its source does not have, and their names.

        Examples
        --------
        >>> shape, gone = Shape.from_text("from t where a > 1 and b = 2 order by a").fitting(["b"])
        >>> shape.conditions, shape.order, gone
        (('b = 2',), (), ('a',))
        """
        here = {name.casefold() for name in [*names, *filter(None, [self.alias])]}
        gone: dict[str, None] = {}

        def fits(*columns: Sequence[str]) -> bool:
            # A column may be named with its table, and a field with its column.
            absent = [column[-1] for column in columns if not here & {part.casefold() for part in column}]
            gone.update(dict.fromkeys(absent))
            return not absent

        def columns_of(condition: str) -> list[list[str]]:
            tree = sqlglot.parse_one(condition, read="duckdb")
            return [[part.name for part in each.parts] for each in tree.find_all(sqlglot.exp.Column)]

        remaining = self.but(
            conditions=tuple(each for each in self.conditions if fits(*columns_of(each))),
            order=tuple(each for each in self.order if fits([each[0]])),
            columns=tuple(each for each in self.columns or () if fits([each])) or None,
        )
        return remaining, tuple(gone)

    @property
    def relation(self) -> str:
        """What stands behind FROM, with its other name."""
        return self.source if self.alias is None else f"{self.source} AS {self.quoted(self.alias)}"

    def quoted(self, name: str) -> str:
        """Return an identifier as the dialect writes it."""
        return str(exp.to_identifier(name, quoted=True).sql(self.dialect))

    def _condition(self, text: str) -> str:
        if self.dialect == "duckdb":
            return text
        # Translated as late as here: all the while DuckDB filters, its own text is exact.
        parsed = sqlglot.parse_one(text, read="duckdb").transform(_plain_function)
        return str(parsed.sql(self.dialect))

    @property
    def where(self) -> str:
        """The conditions as one, one per line."""
        return "\n  AND ".join(map(self._condition, self.conditions))

    def to_text(self) -> str:
        """Return the query, a line for each part."""
        columns = "*" if self.columns is None else ", ".join(map(self.quoted, self.columns))
        lines = [f"SELECT {columns}", f"FROM {self.relation}"]
        if self.conditions:
            lines.append(f"WHERE {self.where}")
        if self.order:
            keys = (f"{self.quoted(name)}{' DESC' if down else ''}" for name, down in self.order)
            lines.append(f"ORDER BY {', '.join(keys)}")
        return "\n".join(lines)


def _plain_function(node: Any) -> Any:
    """Rewrite a DuckDB-only function in portable SQL."""
    if isinstance(node, exp.Contains):
        return exp.GT(this=exp.StrPosition(this=node.this, substr=node.expression), expression=exp.Literal.number(0))
    return node


def _parts(query: Any, dialect: str) -> dict[str, Any] | None:
    """Return the parts of a SELECT of columns from one source, filtered and sorted; `None` for any other query."""
    usual = {"expressions", "from_", "where", "order", "kind"}
    if not isinstance(query, exp.Select) or any(value for name, value in query.args.items() if name not in usual):
        return None
    table, columns, order = below(query), _columns(query.expressions), _order(query.args.get("order"))
    if columns is False or order is None:
        return None
    if not isinstance(table, exp.Table | exp.Subquery) or table.args.get("joins") or table.args.get("sample"):
        return None
    alias = table.alias or None
    bare = table.copy()
    bare.set("alias", None)
    where = query.args["where"].this if query.args.get("where") else None
    # One by one, so that a click can take away the one that a click made.
    conditions = where.flatten(unnest=False) if isinstance(where, exp.And) else filter(None, [where])
    return {
        "source": text_of(bare, dialect),
        "alias": alias,
        "columns": columns or None,
        "conditions": tuple(map(_bracketed, conditions)),
        "order": order,
    }


def text_of(tree: Any, dialect: str = "duckdb") -> str:
    """Return the text of a tree; a name in it that ends like a file is one, in single quotes."""

    def named(node: Any) -> Any:
        name = node.name if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) else ""
        is_file = (
            node.this.args.get("quoted") and not node.args.get("db") and ("/" in name or "." in name) if name else 0
        )
        if is_file:
            node.set("this", exp.Var(this=quote_text(name)))
        return node

    text: str = (tree.copy().transform(named) if dialect == "duckdb" else tree).sql(dialect)
    return text


def parsed_source(source: str) -> Any:
    """Return the tree of what stands behind FROM, in the dialect of DuckDB."""
    return below(sqlglot.parse_one(f"SELECT * FROM {source}", read="duckdb"))


def below(query: Any) -> Any:
    """Return the tree of what stands behind FROM of a query; `None` where nothing does."""
    origin = query.args.get("from_")
    return None if origin is None else origin.this


def _columns(items: list[Any]) -> Any:
    if len(items) == 1 and isinstance(items[0], exp.Star) and not any(items[0].args.values()):
        return ()
    are_columns = all(isinstance(each, exp.Column) and isinstance(each.this, exp.Identifier) for each in items)
    names = tuple(each.name for each in items)
    # Two columns of one name could not be told apart by a click on a header.
    return names if are_columns and len(set(names)) == len(names) else False


def _order(order: Any) -> tuple[tuple[str, bool], ...] | None:
    if order is None:
        return ()
    are_columns = all(isinstance(each.this, exp.Column) for each in order.expressions)
    return tuple((each.this.name, bool(each.args.get("desc"))) for each in order.expressions) if are_columns else None


def _bracketed(condition: Any) -> str:
    """Return the text of a condition as it stands beside others."""
    text: str = condition.sql("duckdb")
    return f"({text})" if isinstance(condition, exp.Or) else text


def file_in(source: str) -> str | None:
    """Return the path of the one file that stands behind FROM, by itself or in a function; `None` for anything else.

    Examples
    --------
    >>> file_in("read_csv('a/b.csv', delim = ';')"), file_in('"t"')
    ('a/b.csv', None)
    """
    match = _FILE.match(source)
    return match and (match[1] or match[2] or "").replace("''", "'")
