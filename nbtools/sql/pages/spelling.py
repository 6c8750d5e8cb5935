"""Spelling: a query in parts as code for pandas or polars; what they have no plain words for stays SQL."""

from __future__ import annotations

import re
from typing import Any, Literal

from nbtools.sql.pages.shape import Shape

Language = Literal["sql", "pandas", "polars"]

_SIGNS = {"EQ": "==", "NEQ": "!=", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<="}
_READERS = {"parquet": "parquet", "csv": "csv", "json": "json"}


class _NoWords(Exception):
    pass


def spelled(shape: Shape, language: Language, connection: str | None = None) -> str:
    """Return a cell that makes the rows of a query, on a connection where one is named.

    Examples
    --------
    >>> print(spelled(Shape.from_text("from 'a.csv' where x > 1 order by y desc"), "pandas"))
    import pandas as pd
    <BLANKLINE>
    df = pd.read_csv('a.csv')
    df = df[df['x'] > 1]
    df = df.sort_values(['y'], ascending=[False])
    df
    """
    if language == "sql":
        return f"{' '.join(filter(None, ['%%nbsql', connection]))}\n{shape.to_text()}"
    try:
        if connection is not None:
            raise _NoWords
        return _pandas(shape) if language == "pandas" else _polars(shape)
    except _NoWords:
        # Only SQL can say this: the rows come from the engine, in the type that was asked for.
        ending = "sql" if language == "pandas" else "query"
        rest = "" if language == "pandas" else ".to_polars()"
        argument = "" if connection is None else f", connection={connection!r}"
        return f"import nbtools\n\ndf = nbtools.workbench().{ending}({quoted(shape.to_text())}{argument}){rest}\ndf"


def quoted(text: str) -> str:
    """Return a text as Python writes it, over several lines where nothing in it forbids that."""
    return repr(text) if '"""' in text or "\\" in text else f'"""\n{text}\n"""'


def _pandas(shape: Shape) -> str:
    lines, name = _begin(shape, "pd", "read_{form}")
    for condition in map(_parsed, shape.conditions):
        lines.append(f"{name} = {name}[{_pandas_condition(condition, name)}]")
    if shape.order:
        names, up = [each[0] for each in shape.order], [not each[1] for each in shape.order]
        lines.append(f"{name} = {name}.sort_values({names!r}, ascending={up!r})")
    if shape.columns:
        lines.append(f"{name} = {name}[{list(shape.columns)!r}]")
    return "\n".join(["import pandas as pd\n", *lines, name])


def _polars(shape: Shape) -> str:
    lines, name = _begin(shape, "pl", "read_{form}")
    conditions = [_polars_condition(_parsed(each)) for each in shape.conditions]
    if conditions:
        lines.append(f"{name} = {name}.filter({', '.join(conditions)})")
    if shape.order:
        names, down = [each[0] for each in shape.order], [each[1] for each in shape.order]
        lines.append(f"{name} = {name}.sort({names!r}, descending={down!r}, nulls_last=True)")
    if shape.columns:
        lines.append(f"{name} = {name}.select({list(shape.columns)!r})")
    return "\n".join(["import polars as pl\n", *lines, name])


def _begin(shape: Shape, module: str, reader: str) -> tuple[list[str], str]:
    """Return the lines that read the source, and the name of the frame."""
    quoted = re.fullmatch(r"'((?:[^']|'')*)'", shape.source)
    if quoted:
        path = quoted[1].replace("''", "'")
        form = _READERS.get(path.rpartition(".")[2].lower())
        if form is None or "*" in path:
            raise _NoWords
        return [f"df = {module}.{reader.format(form=form)}({path!r})"], "df"
    if not re.fullmatch(r"[^\W\d]\w*", shape.source):
        raise _NoWords
    return [f"df = {shape.source}"] if module == "pd" else [f"df = pl.DataFrame({shape.source})"], "df"


def _parsed(condition: str) -> Any:
    import sqlglot

    return sqlglot.parse_one(condition, read="duckdb")


def _comparison(node: Any) -> tuple[str, str, Any]:
    """Return the column, the sign and the value of a comparison."""
    from sqlglot import exp

    sign = _SIGNS.get(type(node).__name__)
    if sign is None:
        raise _NoWords
    left = node.this
    if isinstance(left, exp.Cast) and left.to.is_type("text", "varchar") and isinstance(node.expression, exp.Literal):
        if not node.expression.is_string:
            raise _NoWords
        left = left.this
    if not isinstance(left, exp.Column):
        raise _NoWords
    return left.name, sign, _value(node.expression)


def _value(node: Any) -> Any:
    from sqlglot import exp

    if isinstance(node, exp.Neg):
        return -_value(node.this)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return node.name
        return float(node.name) if re.search(r"[.eE]", node.name) else int(node.name)
    raise _NoWords


def _missing(node: Any) -> tuple[str, bool] | None:
    """Return the column of IS NULL or IS NOT NULL, and whether it is to be missing."""
    from sqlglot import exp

    inner = node.this if isinstance(node, exp.Not) else node
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null) and isinstance(inner.this, exp.Column):
        return inner.this.name, inner is node
    return None


def _pandas_condition(node: Any, frame: str) -> str:
    condition = _missing(node)
    if condition:
        return f"{frame}[{condition[0]!r}].{'isna' if condition[1] else 'notna'}()"
    column, sign, value = _comparison(node)
    # In SQL nothing is unequal to what is missing either.
    there = f" & {frame}[{column!r}].notna()" if sign == "!=" else ""
    compared = f"{frame}[{column!r}] {sign} {value!r}"
    return f"({compared}){there}" if there else compared


def _polars_condition(node: Any) -> str:
    condition = _missing(node)
    if condition:
        return f"pl.col({condition[0]!r}).{'is_null' if condition[1] else 'is_not_null'}()"
    column, sign, value = _comparison(node)
    return f"pl.col({column!r}) {sign} {value!r}"
