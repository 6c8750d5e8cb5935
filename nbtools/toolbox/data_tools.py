"""Tools for data in texts: JSON and YAML in, CSV out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any

from nbtools.contract.result import Output
from nbtools.contract.tool import Context, tool
from nbtools.errors import InvalidArguments, LimitExceeded
from nbtools.ground.paths import FilePath, Roots
from nbtools.texts.parsing import from_json, from_yaml
from nbtools.texts.visible import counted
from nbtools.toolbox.files.writing import put_file
from nbtools.toolbox.result_types import ParsedText, TableWritten

# What spreadsheets take for a formula; a signed number is one to nobody.
_FORMULA = re.compile(r"[\t\r ]*(?![+-][\d.,]+%?\s*$)[=+\-@]|[\t\r]")


class _TakesFrames:
    """Makes a parameter take DataFrames (pandas, polars) too, by their columns."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(_frame_as_lists, handler(source))


def _frame_as_lists(value: Any) -> Any:
    kind = type(value)
    if kind.__name__ != "DataFrame" or kind.__module__.partition(".")[0] not in {"pandas", "polars"}:
        return value
    names = [str(name) for name in value.columns]
    if len(set(names)) < len(names):
        raise InvalidArguments(f"the DataFrame has two columns of one name: {', '.join(names)[:200]}.")
    if kind.__module__.startswith("polars"):
        columns = [column.to_list() for column in value.get_columns()]
    else:
        columns = [column.tolist() for _, column in value.items()]
    return dict(zip(names, columns, strict=True))


@tool(
    title="Write a table as CSV",
    destructive=True,
    idempotent=True,
    examples=(
        {"data": [{"city": "Bern", "people": 134794}, {"city": "Chur", "people": 38293}], "path": "cities.csv"},
        {"data": {"x": [1, 2], "y": [1.5, None]}, "path": "points.csv"},
    ),
)
def dataframe_to_csv(
    data: Annotated[list[dict[str, Any]] | dict[str, list[Any]], _TakesFrames()],
    path: FilePath,
    escape_formulas: bool = False,
    *,
    ctx: Context,
) -> Output[TableWritten]:
    """Write a table as a CSV file below the allowed folders, replacing an existing one.

    Columns are in order of first appearance. Missing values and null become empty fields, true and false True and
    False, lists and objects JSON text; UTF-8, a comma between fields, a header line. Returns path, rows_written, and
    formulas: how many texts begin so that a spreadsheet would compute them (=, +, -, @). At most 16,000,000 bytes.

    Parameters
    ----------
    data
        Rows as a list of objects, or columns as an object of lists of one length; in Python a DataFrame too.
    path
        File to write, relative to the working folder or absolute; missing folders are made.
    escape_formulas
        Whether such texts get an apostrophe in front, so that a spreadsheet shows them as they are.

    Raises
    ------
    PathNotAllowed
        The path leads outside the allowed folders, is a folder, or may not be written.
    InvalidArguments
        The columns are of different lengths, or there is no column.
    LimitExceeded
        The table is too large.
    """
    columns, count = _columns(data)
    texts = [text for name, values in columns.items() for text in (name, *values)]
    formulas = sum(map(_is_formula, texts))
    if escape_formulas:
        columns = {
            _escape_formula(name): [_escape_formula(value) for value in values] for name, values in columns.items()
        }
    import pandas as pd

    # Objects, not numbers: a column of whole numbers with a gap would be written as 1.0, 2.0 otherwise.
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    try:
        text = frame.to_csv(index=False, lineterminator="\n") if columns else ""
    except ValueError as exc:  # a whole number of more digits than Python writes
        raise InvalidArguments(f"the table cannot be written: {exc}") from None
    try:
        content = text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidArguments(f"{text[exc.start : exc.end]!r} is not a character that UTF-8 can write.") from None
    output = put_file(ctx.use(Roots), path, content, {"path": path, "rows_written": count, "formulas": formulas})
    summary = f"{counted(count, 'row')} written to {path}"
    if formulas and not escape_formulas:
        summary += f"; a spreadsheet would compute {formulas:,} of the texts (escape_formulas=true prevents it)"
    return Output(data=output.data, text=summary, artifacts=output.artifacts)


def _is_formula(value: Any) -> bool:
    return isinstance(value, str) and _FORMULA.match(value) is not None


def _escape_formula(value: Any) -> Any:
    return f"'{value}" if _is_formula(value) else value


def _columns(data: list[dict[str, Any]] | dict[str, list[Any]]) -> tuple[dict[str, list[Any]], int]:
    if isinstance(data, list):
        names = list(dict.fromkeys(name for row in data for name in row))
        if data and not names:
            raise InvalidArguments("the rows have no columns.", hint="Give each row as an object of name to value.")
        return {name: [_field(row.get(name)) for row in data] for name in names}, len(data)
    lengths = {name: len(values) for name, values in data.items()}
    if len(set(lengths.values())) > 1:
        columns = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise InvalidArguments(f"the columns are of different lengths ({columns[:500]}).")
    return {name: [_field(value) for value in values] for name, values in data.items()}, max(
        lengths.values(), default=0
    )


def _field(value: Any) -> Any:
    if not isinstance(value, dict | list):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise LimitExceeded("a field is nested too deep to be written as JSON.") from None


@tool(
    title="Parse JSON",
    read_only=True,
    idempotent=True,
    public=True,
    examples=({"json_string": '{"a": [1, 2.5, null]}'},),
)
def json_parse(json_string: str) -> ParsedText:
    """Read a JSON text; returns parsed.

    Strictly JSON: NaN, comments, single quotes, trailing commas and a key that occurs twice in an object are mistakes,
    reported with line and column. At most 10,000,000 characters and 100 levels.

    Parameters
    ----------
    json_string
        The text to read.

    Raises
    ------
    ParseError
        It is not JSON; data has line and column.
    LimitExceeded
        It is too long, nested too deep, or has a number with too many digits.
    """
    return {"parsed": from_json(json_string)}


@tool(
    title="Parse YAML",
    read_only=True,
    idempotent=True,
    public=True,
    examples=({"yaml_string": "name: tour\nsteps: [1, 2]\n"},),
)
def yaml_parse(yaml_string: str) -> ParsedText:
    """Read a YAML text (version 1.2, one document); returns parsed.

    Dates, yes, on, 010 and 12:30 are text, and so are keys, .inf and .nan; << merges mappings. Errors name the line
    and the column. At most 1,000,000 characters, 100 levels and 200,000 values.

    Parameters
    ----------
    yaml_string
        The text to read.

    Raises
    ------
    ParseError
        It is not YAML, or has tags that would make objects; data has line and column.
    LimitExceeded
        It is too long, nested too deep, or its aliases stand for too much.
    """
    return {"parsed": from_yaml(yaml_string)}


TOOLS = (dataframe_to_csv, json_parse, yaml_parse)
"""The tools of this module."""
