"""Spelling: a query in parts as code for pandas or polars; what they have no plain words for stays SQL."""

from __future__ import annotations

import keyword
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from nbtools.sql.pages.cleaning import layers
from nbtools.sql.pages.expressions import Pandas, Polars, Words, _NoWords, spelled_expression
from nbtools.sql.pages.grouping import groups_of
from nbtools.sql.pages.shape import Shape

Language = Literal["sql", "pandas", "polars"]

# Where nothing is there, a sum of SQL is missing.
_PANDAS = {"sum": "lambda v: v.sum(min_count=1)"}
_POLARS = {
    **{name: f"pl.col({{0}}).{name}()" for name in ("count", "mean", "min", "max")},
    "sum": "pl.when(pl.col({0}).count() > 0).then(pl.col({0}).sum())",
    "rows": "pl.len()",
}
# Options of read_csv that are looked at, see `_options`.
_OPTIONS_SPELLED = frozenset(
    {"auto_detect", "comment", "decimal_separator", "delim", "encoding", "escape"}
    | {"header", "nullstr", "quote", "sep", "skip", "thousands"}
)
_READERS = {"parquet": "parquet", "csv": "csv", "json": "json"}


def spelled(
    shape: Shape,
    language: Language,
    connection: str | None = None,
    worded: Sequence[str] = (),
    reading: Mapping[str, Any] = types.MappingProxyType({}),
) -> str:
    """Return a cell that makes the rows of a query, on a connection where one is named.

    Parameters
    ----------
    worded
        Columns of numbers of a text file in which words stand for what is missing.
    reading
        The options by which a text file is read, where they are known.

    Examples
    --------
    >>> print(spelled(Shape.from_text("from 'a.csv' where x > 1 order by y desc"), "pandas"))
    import pandas as pd
    <BLANKLINE>
    df = pd.read_csv('a.csv', keep_default_na=False, na_values=[""])
    df = df[(df['x'] > 1)]
    df = df.sort_values(['y'], ascending=[False])
    df
    """
    if language == "sql":
        return f"{' '.join(filter(None, ['%%nbsql', connection]))}\n{shape.to_text()}"
    try:
        if connection is not None:
            raise _NoWords
        return (_pandas if language == "pandas" else _polars)(shape, worded, reading)
    except _NoWords:
        ending = "sql" if language == "pandas" else "query"
        rest = "" if language == "pandas" else ".to_polars()"
        argument = "" if connection is None else f", connection={connection!r}"
        why = f"# {language} has no plain words for this query: the engine makes the rows.\n"
        return (
            f"{why}import nbtools\n\ndf = nbtools.workbench().{ending}({quoted(shape.to_text())}{argument}){rest}\ndf"
        )


def quoted(text: str) -> str:
    """Return a text as Python writes it, over several lines where nothing in it forbids that."""
    return repr(text) if '"""' in text or "\\" in text else f'"""\n{text}\n"""'


def _pandas(shape: Shape, worded: Sequence[str], reading: Mapping[str, Any]) -> str:
    groups = groups_of(shape)
    if groups is not None:
        computed = ", ".join(
            f"{name!r}: ({column!r}, {_PANDAS.get(function, repr(function))})"
            if column
            else f"{name!r}: ({groups.keys[0]!r}, 'size')"
            for name, function, column in groups.measures
        )
        by = f"df.groupby({groups.keys!r}, dropna=False, as_index=False).agg(**{{{computed}}})"
        lines = [*_pandas(groups.rows, worded, reading).split("\n")[:-1], f"df = {by}"]
        shape, worded = shape.but(source="df", alias=None), ()
    else:
        lines = ["import pandas as pd\n", *_begin(shape, "pd", reading)]
    if worded:
        names = list(worded)
        lines.append(f'df[{names!r}] = df[{names!r}].apply(pd.to_numeric, errors="coerce")')
    for step in _steps(shape):
        words = Pandas("df")
        lines += [f"df = df[{spelled_expression(each, words)}]" for each in step.conditions]
        if step.replaced:
            lines.append(f"df = df.assign({_named(step.replaced, words)})")
        if step.renamed:
            lines.append(f"df = df.rename(columns={step.renamed!r})")
    if shape.order:
        names, up = [each[0] for each in shape.order], [not each[1] for each in shape.order]
        lines.append(f"df = df.sort_values({names!r}, ascending={up!r})")
    if shape.columns:
        lines.append(f"df = df[{list(shape.columns)!r}]")
    return "\n".join([*lines, "df"])


def _polars(shape: Shape, worded: Sequence[str], reading: Mapping[str, Any]) -> str:
    groups = groups_of(shape)
    if groups is not None:
        computed = ", ".join(
            f"{_POLARS[function if column else 'rows'].format(repr(column))}.alias({name!r})"
            for name, function, column in groups.measures
        )
        lines = [
            *_polars(groups.rows, worded, reading).split("\n")[:-1],
            f"df = df.group_by({groups.keys!r}).agg({computed})",
        ]
        shape, worded = shape.but(source="df", alias=None), ()
    else:
        lines = ["import polars as pl\n", *_begin(shape, "pl", reading)]
    if worded:
        lines.append(f"df = df.with_columns(pl.col({list(worded)!r}).cast(pl.Float64, strict=False))")
    words = Polars()
    for step in _steps(shape):
        if step.conditions:
            lines.append(f"df = df.filter({', '.join(spelled_expression(each, words) for each in step.conditions)})")
        if step.replaced:
            lines.append(f"df = df.with_columns({_named(step.replaced, words)})")
        if step.renamed:
            lines.append(f"df = df.rename({step.renamed!r})")
    if shape.order:
        names, down = [each[0] for each in shape.order], [each[1] for each in shape.order]
        lines.append(f"df = df.sort({names!r}, descending={down!r}, nulls_last=True)")
    if shape.columns:
        lines.append(f"df = df.select({list(shape.columns)!r})")
    return "\n".join([*lines, "df"])


def _named(expressions: Mapping[str, Any], words: Words) -> str:
    codes = {name: spelled_expression(node, words) for name, node in expressions.items()}
    are_words = all(name.isidentifier() and not keyword.iskeyword(name) for name in codes)
    items = [f"{name}={code}" if are_words else f"{name!r}: {code}" for name, code in codes.items()]
    text = items[0] if len(items) == 1 else "".join(f"\n    {item}," for item in items) + "\n"
    return text if are_words else f"**{{{text}}}"


class _Step(NamedTuple):
    """What a query does to the rows of the one below it, in this order."""

    conditions: list[Any]
    replaced: dict[str, Any]
    renamed: dict[str, str]


def _steps(shape: Shape) -> list[_Step]:
    """Return what a query does to its innermost source, the first first."""
    steps = [_Step(list(map(_parsed, shape.conditions)), {}, {})]
    for query in layers(shape.source)[0]:
        star = query.expressions[0]
        where = query.args.get("where")
        replaced = {each.alias: each.this for each in star.args.get("replace") or ()}
        renamed = {each.this.name: each.alias for each in star.args.get("rename") or ()}
        steps.append(_Step([where.this] if where else [], replaced, renamed))
    return steps[::-1]


def _begin(shape: Shape, module: str, reading: Mapping[str, Any]) -> list[str]:
    """Return the lines that read the innermost source."""
    from sqlglot import exp

    source = layers(shape.source)[1]
    call = source.this if isinstance(source, exp.Table) else None
    if isinstance(call, exp.ReadCSV) and isinstance(call.this, exp.Literal) and reading:
        names = {each.this.name.lower() for each in call.expressions}
        if names - _OPTIONS_SPELLED or ("nullstr" in names and reading.get("nullstr") not in ("", [""])):
            raise _NoWords
        return [f"df = {module}.read_csv({call.this.name!r}{_options(module, reading)})"]
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
        raise _NoWords
    name, is_quoted = source.name, source.this.args.get("quoted")
    if [*filter(None, (source.args.get(each) for each in ("db", "catalog", "joins", "sample")))] or not name:
        raise _NoWords
    if is_quoted and ("." in name or "/" in name):
        form = _READERS.get(name.rpartition(".")[2].lower())
        if form is None or "*" in name:
            raise _NoWords
        # Words such as NA stay what they are in columns of text, as they do in SQL.
        return [f"df = {module}.read_{form}({name!r}{_options(module, reading) if form == 'csv' else ''})"]
    if not name.isidentifier():
        raise _NoWords
    return [f"df = {name}"] if module == "pd" else [f"df = pl.DataFrame({name})"]


def _options(module: str, reading: Mapping[str, Any]) -> str:
    """Return the options of a reader of CSV that say what a file is read by here, where it is not the usual."""
    is_odd = reading.get("header") is False or {reading.get("quote"), reading.get("escape")} - {None, "", '"'}
    if is_odd or reading.get("thousands") or reading.get("comment"):
        raise _NoWords
    is_pandas = module == "pd"
    usual = ', keep_default_na=False, na_values=[""]' if is_pandas else ", infer_schema_length=None"
    names = (
        ("delim", "sep" if is_pandas else "separator", ","),
        ("skip", "skiprows" if is_pandas else "skip_rows", 0),
        ("encoding", "encoding", "utf-8"),
    )
    texts = [f", {name}={reading[key]!r}" for key, name, default in names if reading.get(key, default) != default]
    decimal = ", decimal=','" if is_pandas else ", decimal_comma=True"
    return "".join([*texts, decimal if reading.get("decimal_separator") == "," else "", usual])


def _parsed(condition: str) -> Any:
    import sqlglot

    return sqlglot.parse_one(condition, read="duckdb")
