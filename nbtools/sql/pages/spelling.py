"""Spelling: a query in parts as code for pandas or polars; what they have no plain words for stays SQL."""

from __future__ import annotations

import functools
import keyword
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from nbtools.ground.lazy import exp, sqlglot
from nbtools.sql.files.options import OptionsOfFile
from nbtools.sql.pages.cleaning import layers
from nbtools.sql.pages.expressions import Words, _NoWords, spelled_expression, type_of, words_of
from nbtools.sql.pages.grouping import groups_of
from nbtools.sql.pages.shape import Shape

Language = Literal["sql", "pandas", "polars"]

# Options of read_csv that pandas and polars have too, and values that one may have where they have not.
_OPTIONS = frozenset({"decimal_separator", "delim", "encoding", "header", "nullstr", "skip"})
_ODD_VALUES = (
    "# Texts that are odd for their new type, such as numbers of 20 digits, may get other values here than by SQL."
)
_ONLY = {"comment": {""}, "escape": {"", '"'}, "quote": {"", '"'}, "thousands": {""}}


def spelled(
    shape: Shape,
    language: Language,
    connection: str | None = None,
    file: OptionsOfFile | None = None,
    types: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return a cell that makes the rows of a query, on a connection where one is named.

    Parameters
    ----------
    shape
        The query.
    language
        The language of the cell.
    connection
        Name of the connection; `None` for frames and files.
    file
        How the one text file of the query is read, which the cell says: pandas and polars would guess otherwise.
    types
        Those of the columns of any other source, below its steps and groups, where they are known.

    Examples
    --------
    >>> print(spelled(Shape.from_text("from 'a.parquet' where x > 1 order by y desc"), "pandas"))
    import pandas as pd
    <BLANKLINE>
    df = pd.read_parquet('a.parquet')
    df = df[(df['x'] > 1)]
    df = df.sort_values(['y'], ascending=[False], kind="stable")
    df
    """
    if language == "sql":
        return f"{' '.join(filter(None, ['%%nbsql', connection]))}\n{shape.to_text()}"
    try:
        if connection is not None:
            raise _NoWords
        words = words_of(language)._replace(types=types if file is None else file.types)
        # Each language reads a text as a number or a date by its own rules.
        note = [_ODD_VALUES] if "TRY_" in shape.source else []
        return "\n".join([*note, *_lines(shape, words, file), "df"])
    except _NoWords:
        ending = "sql" if language == "pandas" else "query"
        rest = "" if language == "pandas" else ".to_polars()"
        argument = "" if connection is None else f", connection={connection!r}"
        why = f"# In {language} this query might give other values or types: the engine makes the rows.\n"
        return (
            f"{why}import nbtools\n\ndf = nbtools.workbench().{ending}({quoted(shape.to_text())}{argument}){rest}\ndf"
        )


def quoted(text: str) -> str:
    """Return a text as Python writes it, over several lines where nothing in it forbids that."""
    return repr(text) if '"""' in text or "\\" in text else f'"""\n{text}\n"""'


def _lines(shape: Shape, words: Words, file: OptionsOfFile | None) -> list[str]:
    """Return the lines that make the rows of a query, under the name ``df``."""
    groups = groups_of(shape)
    if groups is None:
        lines = [f"{words.forms['import']}\n", *_reading_lines(shape, words, file)]
    else:
        forms, key = words.forms["measures"], groups.keys[0]
        computed = (forms[of if column else "rows"].format(name, column, key) for name, of, column in groups.measures)
        lines = _lines(groups.rows, words, file)
        lines.append(words.code("group", groups.keys, ", ".join(computed)))
        shape, kinds = shape.but(source="df", alias=None), words.types
        pairs = [(key, key) for key in groups.keys]
        pairs += [(name, str(column) if of in {"min", "max"} else "") for name, of, column in groups.measures]
        words = words._replace(types={name: kinds.get(column, "") for name, column in pairs} if kinds else {})
    for step in _steps(shape):
        lines += [words.code("filter", spelled_expression(each, words)) for each in step.conditions]
        if step.replaced:
            lines.append(words.code("assign", _named(step.replaced, words)))
        if step.renamed:
            lines.append(words.code("rename", step.renamed))
        if words.types:
            kinds = {**words.types, **{name: type_of(node, words) for name, node in step.replaced.items()}}
            words = words._replace(types={step.renamed.get(name, name): kind for name, kind in kinds.items()})
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
    steps = [_Step([sqlglot.parse_one(each, read="duckdb") for each in shape.conditions], {}, {})]
    for query in layers(shape.source)[0]:
        star = query.expressions[0]
        where = query.args.get("where")
        replaced = {each.alias: each.this for each in star.args.get("replace") or ()}
        renamed = {each.this.name: each.alias for each in star.args.get("rename") or ()}
        steps.append(_Step([where.this] if where else [], replaced, renamed))
    return steps[::-1]


def _reading_lines(shape: Shape, words: Words, file: OptionsOfFile | None) -> list[str]:
    """Return the lines that read the innermost source."""
    source = layers(shape.source)[1]
    is_odd = [*filter(None, (source.args.get(each) for each in ("db", "catalog", "joins", "sample")))]
    if is_odd or not isinstance(source, exp.Table):
        raise _NoWords
    if file is not None and file.form == "csv" and (isinstance(source.this, exp.ReadCSV) or source.name == file.file):
        return _text_lines(words, file)
    if not isinstance(source.this, exp.Identifier):
        raise _NoWords
    if source.this.args.get("quoted") and "*" not in source.name and source.name.lower().endswith(".parquet"):
        line = f"df = {words.forms['module']}.read_parquet({source.name!r})"
    elif source.name.isidentifier():
        line = f"df = {words.code('frame', source.name)}"
    else:
        raise _NoWords
    dates = (words.code("dates", name) for name, kind in words.types.items() if kind.lower() == "date")
    return [line, *filter(None, dates)]


def _text_lines(words: Words, file: OptionsOfFile) -> list[str]:
    """Return the lines that read a CSV file as it is read here: its form, names, types, and words for missing ones."""
    missing = {each.column: list(each.words) for each in file.missing}
    read, types, lines = words.forms["read"], list[str](), list[str]()
    for name, kind in file.types.items():
        is_text = name in missing or kind not in read
        types.append(f"{name!r}: {read['VARCHAR' if is_text else kind]}")
        if is_text:
            code = words.code("column", name)
            code = words.code("without", code, missing[name]) if name in missing else code
            lines.append(words.code("put", name, _of_text(code, kind, words, file, name)))
    line = f"columns = {{{', '.join(types)}}}"
    return [line, f"df = {words.forms['module']}.read_csv({file.file!r}{_options(words, file)})", *lines]


def _of_text(code: str, kind: str, words: Words, file: OptionsOfFile, name: str) -> str:
    """Return the code of texts as values of a type."""
    form = file.own_forms.get(name) or file.formats.get(kind, "%Y-%m-%d" if kind == "DATE" else "")
    rule = words.forms["made"].get("ISO" if kind == "TIMESTAMP" and not form else kind)
    if rule is None or "%f" in form:  # of a second, which each language writes in its own way
        raise _NoWords
    if kind == "DOUBLE" and file.options["decimal_separator"] == ",":
        code = words.code("replace", code, ",", ".")
    return str(rule.format(code, form))


def _options(words: Words, file: OptionsOfFile) -> str:
    """Return the options of a reader of CSV that say how a file is read here, where it is not the usual way."""
    names, is_polars = list(file.types), words.forms["module"] == "pl"
    is_odd = any(value not in _ONLY.get(name, ()) for name, value in file.options.items() if name not in _OPTIONS)
    # Polars makes a row of a blank line, pandas none, not even in a single column.
    has_gaps = (file.has_gaps and (is_polars or len(names) == 1)) or any("\n" in name for name in names)
    if is_odd or has_gaps or not names or "nullstr" in file.explicit or len(file.options["delim"]) != 1:
        raise _NoWords
    skip, header, quote = (file.options[name] for name in ("skip", "header", "quote"))
    # Where quotes are looked for in vain, they count all the same, but for a file that has lines above its rows.
    bare = not quote and (skip or any('"' in name for name in names))
    text: str = words.forms["options"].format(
        **file.options, lines=skip + header, row=0 if header else None, quoting=None if bare else '"',
        comma=file.options["decimal_separator"] == ",", number=3 if bare else 0
    )  # fmt: skip
    return functools.reduce(lambda rest, usual: rest.replace(usual, ""), words.forms["usual"], text)
