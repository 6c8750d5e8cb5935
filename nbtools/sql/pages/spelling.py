"""Spelling: a query in parts as code for pandas or polars; what they have no plain words for stays SQL."""

from __future__ import annotations

import keyword
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from nbtools.ground.lazy import exp, sqlglot
from nbtools.sql.pages.cleaning import layers
from nbtools.sql.pages.expressions import Words, _NoWords, spelled_expression, words_of
from nbtools.sql.pages.grouping import groups_of
from nbtools.sql.pages.shape import Shape

Language = Literal["sql", "pandas", "polars"]

# Options of read_csv that are looked at, see `_options`.
_OPTIONS_SPELLED = frozenset(
    {"auto_detect", "comment", "decimal_separator", "delim", "encoding", "escape"}
    | {"header", "nullstr", "quote", "sep", "skip", "thousands"}
)
_USUAL = {"delim": ",", "skip": 0, "encoding": "utf-8"}
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
        return "\n".join([*_lines(shape, words_of(language), worded, reading), "df"])
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


def _lines(shape: Shape, words: Words, worded: Sequence[str], reading: Mapping[str, Any]) -> list[str]:
    """Return the lines that make the rows of a query, under the name ``df``."""
    groups = groups_of(shape)
    if groups is None:
        lines = [f"{words.forms['import']}\n", _reading_line(shape, words, reading)]
        if worded:
            lines.append(words.code("numbers", list(worded)))
    else:
        forms, key = words.forms["measures"], groups.keys[0]
        computed = (forms[of if column else "rows"].format(name, column, key) for name, of, column in groups.measures)
        lines = _lines(groups.rows, words, worded, reading)
        lines.append(words.code("group", groups.keys, ", ".join(computed)))
        shape = shape.but(source="df", alias=None)
    for step in _steps(shape):
        lines += [words.code("filter", spelled_expression(each, words)) for each in step.conditions]
        if step.replaced:
            lines.append(words.code("assign", _named(step.replaced, words)))
        if step.renamed:
            lines.append(words.code("rename", step.renamed))
    if shape.order:
        names, down = ([each[at] for each in shape.order] for at in (0, 1))
        lines.append(words.code("sort", names, [not each for each in down], down))
    if shape.columns:
        lines.append(words.code("select", list(shape.columns)))
    return lines


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


def _reading_line(shape: Shape, words: Words, reading: Mapping[str, Any]) -> str:
    """Return the line that reads the innermost source."""
    source = layers(shape.source)[1]
    call = source.this if isinstance(source, exp.Table) else None
    if isinstance(call, exp.ReadCSV) and isinstance(call.this, exp.Literal) and reading:
        names = {each.this.name.lower() for each in call.expressions}
        if names - _OPTIONS_SPELLED or ("nullstr" in names and reading.get("nullstr") not in ("", [""])):
            raise _NoWords
        return f"df = {words.forms['module']}.read_csv({call.this.name!r}{_options(words, reading)})"
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
        raise _NoWords
    name, is_quoted = source.name, source.this.args.get("quoted")
    if [*filter(None, (source.args.get(each) for each in ("db", "catalog", "joins", "sample")))] or not name:
        raise _NoWords
    if is_quoted and ("." in name or "/" in name):
        form = _READERS.get(re.sub(r"csv\.gz$", "csv", name.lower()).rpartition(".")[2])  # both unpack it
        if form is None or "*" in name:
            raise _NoWords
        # Words such as NA stay what they are in columns of text, as they do in SQL.
        options = _options(words, reading) if form == "csv" else ""
        return f"df = {words.forms['module']}.read_{form}({name!r}{options})"
    if not name.isidentifier():
        raise _NoWords
    return f"df = {words.code('frame', name)}"


def _options(words: Words, reading: Mapping[str, Any]) -> str:
    """Return the options of a reader of CSV that say what a file is read by here, where it is not the usual."""
    is_odd = reading.get("header") is False or {reading.get("quote"), reading.get("escape")} - {None, "", '"'}
    if is_odd or any(map(reading.get, ("thousands", "comment", "null_padding"))):
        raise _NoWords
    forms = words.forms["options"]
    texts = [forms[key].format(reading[key]) for key, usual in _USUAL.items() if reading.get(key, usual) != usual]
    decimal = forms["decimal"] if reading.get("decimal_separator") == "," else ""
    return "".join([*texts, decimal, forms["always"]])


def _parsed(condition: str) -> Any:
    return sqlglot.parse_one(condition, read="duckdb")
