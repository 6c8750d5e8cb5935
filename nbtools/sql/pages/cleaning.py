"""Cleaning: what a person chose for a column becomes an expression of the query, below its filters.

The query says it all: ``SELECT * REPLACE (TRY_CAST(TRIM("amount") AS DOUBLE) AS "amount") FROM …`` stands behind
FROM, in brackets. Filters that look at the column as it was go into the brackets too, where they see what they were
made for.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.ground.lazy import exp, sqlglot
from nbtools.sql.files.cells import other_orders
from nbtools.sql.files.csv import MISSING_WORDS
from nbtools.sql.files.numbers import NUMBERS, number_pattern
from nbtools.sql.pages.shape import Shape, below, parsed_source, text_of
from nbtools.sql.results.texts import kind_of
from nbtools.texts.sql_quotes import quote_identifier, quote_text

TYPES = ("BIGINT", "DOUBLE", "DECIMAL(18,2)", "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP")
"""What a column can be cast to by a click."""
# A text becomes one of these by the forms that its dates have: DuckDB's own cast takes 3/2/26 for the year 3.
_MOMENTS = frozenset({"DATE", "TIMESTAMP"})
DATES = (
    *("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y%m%d"),
    *("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%d.%m.%Y %H:%M"),
    *(f"%Y-%m-%d{mark}%H:%M{rest}" for mark in " T" for rest in ("", ":%S", ":%S.%f")),
    *(f"%Y-%m-%d{mark}%H:%M:%S{rest}{zone}" for mark in " T" for rest in ("", ".%f") for zone in ("Z", "%z")),
)
"""Forms of dates that are looked for, with years of two digits too where they stand last."""
_LOOKED_AT = 100_000  # rows in which forms are looked for
_EXAMPLES, _SOME_DAY = 3, dt.datetime(2024, 12, 31, 18, 30, tzinfo=dt.UTC)
_OFFERED = 12  # words that stand between numbers or dates


def cleaned(shape: Shape, column: str, type_name: str, step: Mapping[str, Any]) -> Shape:
    """Return the query with a column cleaned.

    Parameters
    ----------
    shape
        The query.
    column
        Name of the column as it is now.
    type_name
        The engine's name of its type as it is now.
    step
        ``op``, one of number, date, missing, trim, lower, upper, fill, cast and rename, and what it needs: see
        `expression_of`; ``name`` for rename.

    Examples
    --------
    >>> print(cleaned(Shape.of_file("a.csv"), "city", "VARCHAR", {"op": "lower"}).source)
    (SELECT * REPLACE (LOWER("city") AS "city") FROM 'a.csv')
    """
    if shape.dialect != "duckdb":
        hint = "Fetch the rows first: %nbsql CONNECTION -o name SELECT …, then %explore name."
        raise InvalidArguments("columns of another database cannot be cleaned here.", hint=hint)
    pushed = tuple(each for each in shape.conditions if _names(each, column))
    inner = shape.but(conditions=pushed, columns=None, order=())
    outer = {"conditions": tuple(each for each in shape.conditions if each not in pushed)}
    if step["op"] == "rename":
        return _renamed(shape, inner, column, str(step["name"]).strip(), outer)
    steps, relation = ({}, inner.relation) if pushed else _replaced(shape)
    spelling = next((name for name in steps if name.casefold() == column.casefold()), column)
    steps[spelling] = expression_of(steps.get(spelling, quote_identifier(column)), type_name, step)
    items = ", ".join(f"{text} AS {quote_identifier(name)}" for name, text in steps.items())
    return shape.but(source=_layer(f"REPLACE ({items})", relation, pushed), **outer)


def _layer(star: str, relation: str, conditions: Sequence[str] = ()) -> str:
    where = f" WHERE {' AND '.join(f'({each})' for each in conditions)}" if conditions else ""
    return text_of(parsed_source(f"(SELECT * {star} FROM {relation}{where})"))


def _renamed(shape: Shape, inner: Shape, column: str, name: str, outer: dict[str, Any]) -> Shape:
    if not name:
        raise InvalidArguments("a column needs a name.")

    def new(old: str) -> str:
        return name if old.casefold() == column.casefold() else old

    star = f"RENAME ({quote_identifier(column)} AS {quote_identifier(name)})"
    return shape.but(
        source=_layer(star, inner.relation, inner.conditions),
        columns=None if shape.columns is None else tuple(map(new, shape.columns)),
        order=tuple((new(each), down) for each, down in shape.order),
        **outer,
    )


def layers(source: str) -> tuple[list[Any], Any]:
    """Return the steps of cleaning in what stands behind FROM, the outermost first, and the tree of what is below."""
    steps, tree = [], parsed_source(source)
    usual = {"expressions", "from_", "where"}
    while isinstance(tree, exp.Subquery):
        query = tree.this
        star = query.expressions[0] if isinstance(query, exp.Select) and len(query.expressions) == 1 else None
        others = {name for name, value in query.args.items() if value} - usual
        if not isinstance(star, exp.Star) or star.args.get("except_") or others:
            break
        steps.append(query)
        tree = below(query)
    return steps, tree


def _replaced(shape: Shape) -> tuple[dict[str, str], str]:
    """Return the expressions of the outermost step and the relation below it: the next one goes into the same."""
    steps, _ = layers(shape.source)
    star = steps[0].expressions[0] if steps else None
    if star is None or not star.args.get("replace") or steps[0].args.get("where"):
        return {}, shape.relation
    return {each.alias: text_of(each.this) for each in star.args["replace"]}, text_of(below(steps[0]))


def _names(condition: str, column: str) -> bool:
    columns = sqlglot.parse_one(condition, read="duckdb").find_all(sqlglot.exp.Column)
    return any(part.name.casefold() == column.casefold() for each in columns for part in each.parts)


def expression_of(value: str, type_name: str, step: Mapping[str, Any]) -> str:
    r"""Return the SQL of what becomes of a value.

    Parameters
    ----------
    value
        Its SQL.
    type_name
        Of the value.
    step
        ``op`` and, for number, ``form`` of `NUMBERS` and ``whole``; for date the ``forms``; for missing the
        ``words``; for fill the ``value``; for cast the ``type``, and for one from text to a date or a time the
        forms too.

    Examples
    --------
    >>> expression_of('"x"', "VARCHAR", {"op": "date", "forms": ["%d.%m.%Y"]})
    'CAST(TRY_STRPTIME("x", [\'%d.%m.%y\', \'%d.%m.%Y\']) AS DATE)'
    """
    op = step["op"]
    text = value if kind_of(type_name) == "text" else f"CAST({value} AS VARCHAR)"
    if op in {"trim", "lower", "upper"}:
        return f"{op.upper()}({text})"
    if op == "number":
        return _number(f"TRIM({text})", step.get("form", "1234.5"), "BIGINT" if step.get("whole") else "DOUBLE")
    kind = next((each for each in TYPES if each == step.get("type")), None)
    if op == "date" or (kind in _MOMENTS and text == value):
        if not step.get("forms"):
            raise InvalidArguments("no form of a date is chosen.")
        forms = _of_any_year(step["forms"])
        return f"CAST(TRY_STRPTIME({text}, {forms}) AS {kind or ('TIMESTAMP' if '%H' in forms else 'DATE')})"
    if op == "missing":
        words = list(map(quote_text, step["words"]))
        if not words:
            raise InvalidArguments("no word is chosen.")
        if len(words) == 1:
            return f"NULLIF({text}, {words[0]})"
        return f"CASE WHEN {text} IN ({', '.join(words)}) THEN NULL ELSE {text} END"
    if op == "fill":
        return f"COALESCE({value}, {_filling(str(step['value']), type_name)})"
    if op != "cast" or kind is None:
        raise InvalidArguments(f"there is no step {op!r} with {dict(step)!r}.")
    # DuckDB hands a try_cast of a bare column on to its reader of CSV, which is strict: the query would fail.
    return f"TRY_CAST({f'TRIM({value})' if text == value and kind != 'VARCHAR' else value} AS {kind})"


def _number(text: str, form: str, kind: str) -> str:
    thousands, decimal = NUMBERS[form]
    if form != "1234.5":  # in a text of another form, such as 1.5, the signs mean something else
        text = f"CASE WHEN REGEXP_FULL_MATCH({text}, {quote_text(number_pattern(form))}) THEN {text} END"
    text = f"REPLACE({text}, {quote_text(thousands)}, '')" if thousands else text
    text = f"REPLACE({text}, {quote_text(decimal)}, '.')" if decimal != "." else text
    return f"TRY_CAST({text} AS {kind})"


def _of_any_year(forms: Sequence[str]) -> str:
    """Return a list in SQL of forms, before them those of years of two digits: %Y takes 26 for the year 26."""
    short = (re.sub("%Y(?!%)", "%y", form) for form in sorted(forms, key=lambda form: form.startswith("%Y")))
    return f"[{', '.join(map(quote_text, dict.fromkeys((*short, *forms))))}]"


def _filling(text: str, type_name: str) -> str:
    kind, bare = kind_of(type_name), text.strip()
    if kind == "number" and not re.fullmatch(number_pattern("1234.5"), bare):
        raise InvalidArguments(f"{text!r} is not a number.", hint="The column contains numbers.")
    if kind == "bool" and bare.lower() not in {"true", "false"}:
        raise InvalidArguments(f"{text!r} is neither true nor false.")
    return {"number": bare, "bool": bare.lower()}.get(kind) or quote_text(text)


def effect_query(rows: str, column: str, expression: str, forms: Sequence[str] = ()) -> str:
    """Return the query that tells what a step does.

    Parameters
    ----------
    rows
        A SELECT of the rows as they are.
    column
        Its name.
    expression
        The SQL of the new value.
    forms
        Other forms of dates than those of the step.

    Returns
    -------
    str
        How many values there are, how many of them become missing, how many change, those that become missing most
        often, each with its count, and how many of all that do are dates in each of the forms.
    """
    old = quote_identifier(column)
    lost = "before IS NOT NULL AND after IS NULL"
    fits = (
        f"count(*) FILTER (WHERE {lost} AND try_strptime(before, {_of_any_year([form])}) IS NOT NULL)" for form in forms
    )
    changes = "CAST(before AS VARCHAR) IS DISTINCT FROM CAST(after AS VARCHAR)"
    return (
        f"WITH r AS (SELECT {old} AS before, {expression} AS after FROM ({rows})) "
        f"SELECT count(before), count(*) FILTER (WHERE {lost}), count(*) FILTER (WHERE {changes}), "
        f"(SELECT list([t, c::VARCHAR]) FROM (SELECT CAST(before AS VARCHAR) AS t, count(*) AS c FROM r "
        f"WHERE {lost} GROUP BY ALL ORDER BY c DESC, t LIMIT {_EXAMPLES})), [{', '.join(fits)}] FROM r"
    )


def effect_of(
    step: Mapping[str, Any], column: str, type_name: str, expression: str, ask: Callable[[Callable[[str], str]], Any]
) -> dict[str, Any]:
    """Return what a step does, and the values that become missing in words; for the parameters see `completed`."""
    chosen = step.get("forms") or () if kind_of(type_name) == "text" else ()
    forms = [other for form in chosen for other in other_orders(form) if other not in chosen]
    there, lost, changed, examples, fits = ask(lambda rows: effect_query(rows, column, expression, forms))
    pairs = [(text, int(count)) for text, count in examples or ()]
    texts = [f"{count:,} \u00d7 {json.dumps(text, ensure_ascii=False)}" for text, count in pairs]
    texts += ["…"] if lost > sum(count for _, count in pairs) else []
    others = (
        f"{count:,} of them are dates such as {_SOME_DAY.strftime(form)}"
        for form, count in zip(forms, fits or (), strict=True)
        if count
    )
    return {"there": there, "lost": lost, "changed": changed, "examples": "; ".join([", ".join(texts), *others])}


def completed(
    step: Mapping[str, Any], column: str, type_name: str, ask: Callable[[Callable[[str], str]], Sequence[Any]]
) -> dict[str, Any]:
    """Return a step with what the values say: whether all numbers are whole, and how dates to be cast are written.

    Parameters
    ----------
    step
        As for `expression_of`.
    column
        Name of the column.
    type_name
        The engine's name of its type.
    ask
        Makes a query of a SELECT of the rows, and returns the first row of its answer.
    """
    if step["op"] == "number":
        expression = expression_of(quote_identifier(column), type_name, {**step, "whole": False})
        return {**step, "whole": ask(lambda rows: whole_query(rows, expression))[0]}
    if step["op"] == "cast" and step.get("type") in _MOMENTS and kind_of(type_name) == "text":
        forms = [form for form, _ in offer(ask(lambda rows: offer_query(rows, column)))["dates"]]
        if not forms:
            raise InvalidArguments(
                f"{column!r} has no dates in a known form.", hint="Choose another form in 'To date'."
            )
        return {**step, "forms": forms}
    return dict(step)


def whole_query(rows: str, expression: str) -> str:
    """Return the query that tells whether all numbers of a column are whole, given a cast of it to DOUBLE."""
    text = expression.removeprefix("TRY_CAST(").removesuffix(" AS DOUBLE)")
    whole = f"TRY_CAST({text} AS BIGINT) IS NOT NULL AND NOT regexp_matches({text}, '[.eE]')"
    return f"SELECT coalesce(bool_and({whole}), false) FROM ({rows}) WHERE {expression} IS NOT NULL"


def offer_query(rows: str, column: str) -> str:
    """Return the query that counts what forms a text column has: of numbers, of dates, of words for missing values.

    Returns
    -------
    str
        One row: how many values were looked at, a count for each of `NUMBERS`, `DATES` and `MISSING_WORDS`, then the
        most frequent values without a digit, each with its count.
    """
    texts = f"SELECT CAST({quote_identifier(column)} AS VARCHAR) AS v FROM ({rows}) LIMIT {_LOOKED_AT}"
    numbers = (quote_text(number_pattern(form)) for form in NUMBERS)
    # 03-02-26 is not offered as one of 2003, which begins with its year.
    dates = (quote_text(form) if form.startswith("%Y") else _of_any_year([form]) for form in DATES)
    counts = [
        *(f"count(*) FILTER (WHERE regexp_full_match(trim(v), {each}))" for each in numbers),
        *(f"count(*) FILTER (WHERE year(try_strptime(v, {each})) > 99)" for each in dates),
        *(f"count(*) FILTER (WHERE v = {quote_text(word)})" for word in MISSING_WORDS),
    ]
    bare = "NOT regexp_matches(v, '[0-9]') AND trim(v) <> ''"
    each = f"(SELECT v, count(*) AS c FROM t WHERE {bare} GROUP BY v ORDER BY c DESC, v LIMIT {_OFFERED})"
    return (
        f"WITH t AS ({texts}) SELECT count(v), {', '.join(counts)}, (SELECT list([v, c::VARCHAR]) FROM {each}) FROM t"
    )


def offer(row: Sequence[Any]) -> dict[str, Any]:
    """Return what is offered for a text column, given the row of `offer_query`.

    Returns
    -------
    dict
        ``rows`` looked at; ``numbers``, ``dates`` and ``words``, each with its count, the most frequent first. Of two
        forms that differ only in the places of day and month, only the more frequent one is there. Where most values
        are numbers or dates, any word that stands between them is one for a missing value.
    """
    rows, *rest = map(int, row[:-1])
    numbers, rest = rest[: len(NUMBERS)], rest[len(NUMBERS) :]
    dates, words = rest[: len(DATES)], rest[len(DATES) :]
    by_shape: dict[tuple[Any, ...], tuple[str, int]] = {}
    for form, count in _frequent(DATES, dates):
        by_shape.setdefault((form.startswith("%Y"), *sorted(form)), (form, count))
    is_mostly_one = 2 * max(*numbers, *dates) > rows
    between = {word: int(count) for word, count in row[-1] or () if is_mostly_one}
    return {
        "rows": rows,
        "numbers": _frequent(tuple(NUMBERS), numbers),
        "dates": list(by_shape.values()),
        "words": sorted((dict(_frequent(MISSING_WORDS, words)) | between).items(), key=lambda pair: -pair[1]),
    }


def _frequent(names: Sequence[str], counts: Sequence[int]) -> list[tuple[str, int]]:
    pairs = [(name, count) for name, count in zip(names, counts, strict=True) if count]
    return sorted(pairs, key=lambda pair: -pair[1])
