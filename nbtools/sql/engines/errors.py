"""Turn engine errors into nbtools errors that give the place and the remedy."""

from __future__ import annotations

import os
import re
from typing import Any

from nbtools.errors import CallTimeout, FileMissing, LimitExceeded, NbtoolsError, SqlFailed, SqlInvalid, SqlNotAllowed
from nbtools.sql.verdict.verdict import caret_below
from nbtools.texts.sql_quotes import quote_text
from nbtools.texts.visible import brief

# DuckDB ends its message with the line in question and a caret below it.
_PLACE = re.compile(r"\n*^LINE (\d+): (.*)\n( *)\^", re.MULTILINE)
# What DuckDB says of a file that took no more.
_UNWRITTEN = re.compile(r'Could not write file .*"errno":"(\d+)"', re.DOTALL)
_HEAD = re.compile(r"\A[A-Z][A-Za-z ]* Error: ")
# The engine's own tables, which it offers for any name.
_OWN = r'"(?:pg_|duckdb_|sqlite_|information_schema\.)'
_HINTS = re.compile(rf"^(Did you mean (?!{_OWN}).*|Candidate (?:bindings|tables|functions):.*|HINT: .*)$", re.MULTILINE)
# What the reader of CSV files adds to its message: the whole file as it tried to read it, a page long.
_ADVICE = re.compile(r"\s*(?:Original Line:|The search space used was:|Possible (?:fix|Solution)).*", re.DOTALL)
# What a function takes, which has a line for each of its forms.
_FORMS = re.compile(r"\s*Candidate functions:((?:\n\t.*)+)\s*")
_MOST_FORMS = 2
# Which of the files it is, in that page.
_OF_FILE = re.compile(r"^ +file = (.+)$", re.MULTILINE)
# What follows the line and what is wrong with it.
_LATER = re.compile(r"\n\s*(?:\n|Possible|file = |Column \S+ is )")
# What DuckDB advises besides: settings, which are locked here, and pages about them.
_SETTINGS = re.compile(
    r"\n\s*(?:Possible solutions:.*|This limit was set by the '.*|Launch the database with a persistent.*"
    r"|Try setting 'auto_detect' [^\n]*|See also https?:.*|[^\n]*\b(?:SET|PRAGMA) \w+ ?=[^\n]*)",
    re.DOTALL,
)
_CAST = "TRY_CAST(x AS DOUBLE) turns a text x into a number, or null where that fails; CAST(x AS VARCHAR) makes text."
_OF_TEXT = re.compile(r"'\w+\(VARCHAR\)'")  # a function of one text
_ZONE = re.compile(r"Unknown TimeZone '(?:(Z)|([+-])(\d{1,2})(?::?(\d\d))?)'", re.IGNORECASE)
_QUOTED_NAME = re.compile(r'"([^"]+)"')
_MISFIT = re.compile(r'(Could not parse string .* according to format specifier "[^\n]*").*', re.DOTALL)
_LONG = 400
_UNKNOWN = re.compile(r"Table with name (.+) does not exist")


def from_position(
    kind: type[NbtoolsError], what: str, sql: str, line: int, column: int, width: int = 1, **more: Any
) -> NbtoolsError:
    """Return an error that points into the text."""
    message = f"line {line}: {what}\n{caret_below(sql, line, column, width)}"
    return kind(message, data={"line": line, "column": column}, **more)


def server_timeout() -> CallTimeout:
    """Return the error for a statement that the server ended by its ``statement_timeout``."""
    return CallTimeout(
        "the query exceeded its time, and the server ended it.",
        hint="Ask for less (fewer rows, a filter, an aggregate), or allow more time.",
    )


def from_duckdb(exc: Exception, sql: str, *, skip_lines: int = 0) -> NbtoolsError:
    """Return the error that fits one of DuckDB's; `skip_lines` were put before the text.

    The class decides: what the parser, binder or catalog refuses is `SqlInvalid`, a permission `SqlNotAllowed`,
    memory `LimitExceeded`, anything else `SqlFailed`.
    """
    import duckdb

    kind: type[NbtoolsError] = SqlFailed
    hint: str | None = None
    if isinstance(exc, duckdb.ParserException | duckdb.SyntaxException | duckdb.BinderException):
        kind = SqlInvalid
        hint = "Name both: thousands = '.', decimal_separator = ','." if "THOUSANDS must not" in str(exc) else None
        hint = _CAST if "VARCHAR" in str(exc) and "explicit cast is required" in str(exc) else hint
    elif isinstance(exc, duckdb.CatalogException):
        kind = SqlInvalid
        hint = (
            "Tables are frames of the notebook, files in quotes, or tables of a connection such as shop.orders. "
            "A file without an ending such as .csv is read by FROM read_csv('FILE')."
        )
    elif match := _UNWRITTEN.search(str(exc)):
        return SqlFailed(
            f"the rows could not be written: {os.strerror(int(match[1]))}.",
            hint="Check the permissions and free space there, or choose another place.",
        )
    elif isinstance(exc, duckdb.PermissionException):
        kind, hint = SqlNotAllowed, "Only files below the allowed folders can be read."
    elif isinstance(exc, duckdb.OutOfMemoryException) or "failed to allocate" in str(exc):
        kind, hint = LimitExceeded, "Ask for less at once: filter, aggregate, or fewer columns."
    elif "No files found" in str(exc):
        kind, hint = FileMissing, "Paths are relative to the working folder, or absolute."
    elif "magic bytes" in str(exc):
        hint = (
            "The file is truncated or not a Parquet file, despite its name: get it again, or read it in its own format."
        )
    elif "CSV Error on Line" in str(exc) or (isinstance(exc, duckdb.InvalidInputException) and "CSV" in str(exc)):
        return _csv_fault(str(exc))
    error = _from_message(kind, str(exc), sql, hint, skip_lines)
    unknown = _UNKNOWN.search(str(exc)) if isinstance(exc, duckdb.CatalogException) else None
    error.data = {**error.data, "unknown_table": unknown[1]} if unknown else error.data
    return error


_FIELDS = re.compile(r"Expected Number of Columns: (\d+) Found: (\d+)")


def _csv_fault(text: str) -> SqlFailed:
    """Return what is wrong with a CSV file, in a line."""
    what = " ".join(_ADVICE.sub("", _HEAD.sub("", text)).split())
    file = _OF_FILE.search(text)
    where = f"{file[1]}: " if file else ""
    if "not utf-8" in text:
        return SqlFailed(
            f"{where}{what.partition(' Invalid unicode')[0].rstrip('.')}: the file is not UTF-8.",
            hint="Name its encoding: FROM read_csv('FILE', encoding = 'cp1252'), or 'shift_jis', 'gb18030', 'utf-16' "
            "or any other that Python knows; a file that mixes encodings needs a script: %%data_analyze 'FILE'.",
            data={"file": file[1]} if file else {},
        )
    if "Line: " in text:
        what = _in_brief(_LATER.split(_HEAD.sub("", text))[0])
        way = "FROM read_csv('FILE', ignore_errors = true)"
        counts = _FIELDS.search(text)
        is_short = counts is not None and int(counts[2]) < int(counts[1])
        fill = "or fill short ones with missing values: FROM read_csv('FILE', null_padding = true), " * is_short
        hint = f"Correct that line, {fill}or leave out such lines: {way}; delim = ';' says what separates cells."
        return SqlFailed(where + what, hint=hint)
    return SqlFailed(
        what, hint="If it is a table, say how it is written, by the options delim, quote, header and skip."
    )


def _from_message(kind: type[NbtoolsError], text: str, sql: str, hint: str | None, skip_lines: int) -> NbtoolsError:
    match = _PLACE.search(text)
    message = _HEAD.sub("", (text[: match.start()] if match else text).strip())
    message = _SETTINGS.sub("", message)
    if forms := _FORMS.search(message):
        message, listed = message[: forms.start()], forms[1].split("\n\t")[1:]
        hint = _forms_hint(message, [each.strip() for each in listed])
    if misfit := _MISFIT.fullmatch(message):
        message = f"{misfit[1]}."
        hint = "try_strptime returns NULL for such a text; it also takes several formats: ['%Y-%m-%d', '%d.%m.%Y']."
    offered = _HINTS.search(message)
    message = re.sub(rf"Did you mean {_OWN}.*", "", message)
    if offered:
        hint = offered[0].strip()
        message = (message[: offered.start()] + message[offered.end() :]).strip()
    what = _in_brief(message)
    if zone := _ZONE.search(what):
        # The zones that it offers are those whose names look alike.
        hint, what = _zone_hint(*zone.groups()), what.partition("!")[0]
    if match is None:
        return kind(what, hint=hint)
    line = int(match[1]) - skip_lines
    column = _column(sql, line, match[2], len(match[3]) - len(f"LINE {match[1]}: "))
    there = "".join(sql.split("\n")[line - 1 : line])
    word = _QUOTED_NAME.match(there, column - 1) if "Referenced column" in what else None
    if word is not None:
        hint = f"{hint or 'Double quotes are for names'}; a text takes single quotes: {quote_text(word[1])}."
    return from_position(kind, what, sql, line, column, hint=hint)


def _in_brief(text: str) -> str:
    """Return what an engine says on one line, of which the end may be left out, but not in the middle of a word."""
    return re.sub(r" \S{,30}\u2026$", " \u2026", brief(text, _LONG))


def _forms_hint(message: str, forms: list[str]) -> str:
    """Return what to do where no form of a function takes what it was given."""
    if "JSON" in message:
        return "TRY_CAST(COLUMN->>'$' AS DOUBLE) reads a column of JSON as numbers."
    listed = " ".join(forms)
    if _OF_TEXT.search(message) and "DOUBLE" in listed and "VARCHAR" not in listed:
        return _CAST
    if "'sum(INTERVAL)'" in message:
        return "to_seconds(sum(epoch(x))) adds intervals."
    if forms[0][0] == '"':  # a sign such as +, which a person does not write as a function
        return "Cast what is text, as in CAST('2' AS INTEGER) + 1; || joins texts."
    more = f" and {len(forms) - _MOST_FORMS} more forms" if len(forms) > _MOST_FORMS else ""
    return f"It takes {', '.join(forms[:_MOST_FORMS])}{more}."


def _zone_hint(utc: str | None, sign: str | None, hours: str | None, minutes: str | None) -> str:
    """Return how a zone is named that was given as its distance from UTC."""
    if utc or sign is None or hours is None or not int(hours) + int(minutes or 0):
        return "Name it 'UTC'."
    if int(minutes or 0):
        return "Only offsets of whole hours are zones; name a place, such as 'Asia/Kolkata'."
    # As POSIX has it: hours to the west.
    return f"Name it 'Etc/GMT{'-' if sign == '+' else '+'}{int(hours)}' (with the opposite sign), or a place."


def _column(sql: str, line: int, excerpt: str, offset: int) -> int:
    """Find the column in the text; DuckDB shortens long lines with dots on either side."""
    lines = sql.split("\n")
    if not 1 <= line <= len(lines) or not excerpt.startswith("..."):
        return max(1, offset + 1)
    inner = excerpt[3:].removesuffix("...")
    position = lines[line - 1].find(inner)
    return max(1, max(position, 0) + offset - 2)
