"""Calls: the places of a text that read CSV, JSON or several Parquet files, and the text with other calls there."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Literal, NamedTuple, Self

from nbtools.errors import SqlInvalid
from nbtools.sql.verdict.guards import Token, scan
from nbtools.sql.verdict.verdict import Verdict
from nbtools.texts.sql_quotes import quote_identifier, quote_text

Form = Literal["csv", "json", "workbook", "other"]

_BARE: tuple[tuple[Form, re.Pattern[str]], ...] = (
    ("csv", re.compile(r"\.(?:csv|tsv)(?:\.(?:gz|zst))?$", re.IGNORECASE)),
    ("workbook", re.compile(r"\.(?:xls[xm]?|ods)$", re.IGNORECASE)),
    ("json", re.compile(r"\.(?:json|jsonl|ndjson|geojson)(?:\.(?:gz|zst))?$", re.IGNORECASE)),
)
_FUNCTIONS: dict[str, Form] = {
    **dict.fromkeys(("read_csv", "read_csv_auto"), "csv"),
    **dict.fromkeys(("read_json", "read_json_auto", "read_ndjson", "read_ndjson_auto"), "json"),
    "read_xlsx": "workbook",
}
_PARQUET = frozenset({"read_parquet", "parquet_scan"})
PATTERN = re.compile(r"[*?\[]")
"""What makes a pattern of a path, unless a file has that very name."""
_ONE = r"'(?:[^']|'')*'"
_TEXT = re.compile(_ONE)
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
# These take the name of a table; a function stands behind FROM.
_SHOWS = frozenset({"describe", "desc", "summarize", "show", "table"})


class FileCall(NamedTuple):
    """A place that reads files of one form.

    Attributes
    ----------
    form
        What the files are.
    function
        What reads them.
    paths
        As the text writes them.
    files
        The text of the first argument.
    options
        The other arguments: their texts, by name.
    start
        Where the call begins in the text, in characters from 0.
    end
        Where it ends, the character behind its last one.
    head
        Text that another call in its place needs before it, to be the same table by the same name.
    tail
        Text that another call in its place needs behind it, such as the name of the table.
    names_files
        Whether the query names the column ``filename`` that DuckDB has beside those of a file.
    """

    form: Form
    function: str
    paths: tuple[str, ...]
    files: str
    options: Mapping[str, str]
    start: int
    end: int
    head: str = ""
    tail: str = ""
    names_files: bool = False

    def renamed(self, names: Sequence[str]) -> Self:
        """Return the call with other files."""
        listed = ", ".join(map(quote_text, names))
        return self._replace(files=f"[{listed}]" if len(names) > 1 else listed)

    def text(self, changes: Mapping[str, str], *, function: str = "") -> str:
        """Return the call with further or other options."""
        options = (f", {name} = {value}" for name, value in {**self.options, **changes}.items())
        return f"{function or self.function}({self.files}{''.join(options)})"


def constant(text: str) -> str | bool | int | list[str]:
    """Return the value of an option, as its text in SQL.

    Raises
    ------
    SqlInvalid
        It is not one that stands in the text.

    Examples
    --------
    >>> constant("'it''s'"), constant("TRUE"), constant("3"), constant("['a', 'b']")
    ("it's", True, 3, ['a', 'b'])
    """
    text = text.strip()
    if _TEXT.fullmatch(text):
        return _unquoted(text)
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if text.isdecimal():
        return int(text)
    items = _TEXT.findall(text)
    if text != "[]" and not (items and re.fullmatch(rf"(?s)\[\s*{_ONE}(?:\s*,\s*{_ONE})*\s*\]", text)):
        raise SqlInvalid(f"the option {text} is not a constant.", hint="Write the value itself.", tried="running SQL")
    return [_unquoted(item) for item in items]


def form_of(function: str, paths: Sequence[str]) -> Form:
    """Return what a place of a text reads, by its function, or by the name of the file that stands there alone."""
    if function:
        return _FUNCTIONS.get(function, "other")
    return next((form for form, ending in _BARE if ending.search(paths[0])), "other")


def reads_several(paths: Sequence[str]) -> bool:
    """Tell whether paths may be those of several files."""
    return len(paths) > 1 or any(map(PATTERN.search, paths))


def find_calls(verdict: Verdict, is_named: Callable[[str], bool] = lambda _: False) -> list[FileCall]:
    """Return the calls of an allowed text that can be rewritten.

    Parameters
    ----------
    verdict
        The verdict that allowed the text.
    is_named
        Tells whether a path is that of one file though it looks like a pattern; then any reader's call is returned.
    """
    hits = [
        (function, tuple(paths), at)
        for function, paths, at in verdict.readers
        if form_of(function, paths) != "other"
        or (function != "glob" and any(map(is_named, paths)))
        or ((not function or function in _PARQUET) and reads_several(paths))
    ]
    if not hits:
        return []
    tokens = scan(verdict.sql)
    calls: list[FileCall] = []
    for function, paths, at in hits:
        index = _index(tokens, at, paths, [call.start for call in calls])
        edit = None if index is None else _bare(tokens, index, paths[0]) if not function else None
        if index is not None and function:
            edit = _called(verdict.sql, tokens, index, function, paths)
        if edit is not None:
            calls.append(edit)
    calls = [_apart(call, verdict.sql) for call in calls]
    if "filename" in {token.word for token in tokens}:
        calls = [call._replace(names_files="filename" not in call.options) for call in calls]
    return calls


def _apart(call: FileCall, sql: str) -> FileCall:
    """Return a call that a word before or behind it, which a quote or bracket ends, does not run into."""
    before, behind = sql[call.start - 1 : call.start], sql[call.end : call.end + 1]
    head = " " * (before.isalnum() or before == "_") + call.head
    return call._replace(head=head, tail=call.tail + " " * (call.tail != "" and behind.isalnum()))


def _index(tokens: list[Token], at: int, paths: tuple[str, ...], starts: list[int]) -> int | None:
    if at >= 0:
        return next((index for index, token in enumerate(tokens) if token.start == at), None)
    # The engine does not say where the table of DESCRIBE stands.
    for index, token in enumerate(tokens[1:], 1):
        is_shown = tokens[index - 1].word in _SHOWS and token.start not in starts
        if is_shown and _bare(tokens, index, paths[0]) is not None:
            return index
    return None


def _unquoted(text: str) -> str:
    mark = text[:1]
    return text[1:-1].replace(mark * 2, mark) if mark in {"'", '"'} and len(text) > 1 else text


def _bare(tokens: list[Token], index: int, path: str) -> FileCall | None:
    """Return the call that stands for a file behind FROM; what follows it tells whether it has another name."""
    last = index
    while _plain_name(tokens, index, last) != path:
        if last + 2 >= len(tokens) or tokens[last + 1].text != ".":
            return None
        last += 2
    before, after = tokens[index - 1] if index else None, tokens[last + 1] if last + 1 < len(tokens) else None
    form = form_of("", [path])
    name = PurePath(path).name.partition(".")[0]
    is_shown = before is not None and before.word in _SHOWS
    return FileCall(
        form=form,
        function="read_parquet" if form == "other" else f"read_{form}",
        paths=(path,),
        files=quote_text(path),
        options={},
        start=tokens[index].start,
        end=tokens[last].start + len(tokens[last].text),
        head="FROM " if is_shown and before is not None and before.word != "table" else "",
        tail="" if _is_name(after) else f" AS {quote_identifier(name)}",
    )


def _plain_name(tokens: list[Token], first: int, last: int) -> str:
    return ".".join(_unquoted(token.text) for token in tokens[first : last + 1 : 2])


def _is_name(token: Token | None) -> bool:
    """Tell whether a token gives another name to what stands before it."""
    if token is None:
        return False
    return token.word == "as" or token.kind == "identifier" or token.text[:1] == '"'


def _called(sql: str, tokens: list[Token], index: int, function: str, paths: tuple[str, ...]) -> FileCall | None:
    if tokens[index].text.lower().strip('"') != function or index + 1 >= len(tokens) or tokens[index + 1].text != "(":
        return None
    depth, marks = 0, [index + 1]
    for index_at in range(index + 1, len(tokens)):
        depth += (tokens[index_at].text in _OPEN) - (tokens[index_at].text in _CLOSE)
        if depth == 1 and tokens[index_at].text == ",":
            marks.append(index_at)
        if depth == 0:
            marks.append(index_at)
            break
    else:
        return None
    # From token to token: behind a comment that ends one, what is added would be part of the comment.
    edges = ((tokens[left + 1], tokens[right - 1]) for left, right in itertools.pairwise(marks))
    parts = [sql[first.start : last.start + len(last.text)] for first, last in edges]
    named = [re.fullmatch(r"(?s)\"?(\w+)\"?\s*(?::=|=>|=)\s*(.+)", part) for part in parts]
    positional = [part for part, match in zip(parts, named, strict=True) if match is None]
    if len(positional) != 1 or named[0] is not None or "$" in sql[tokens[index].start : tokens[marks[-1]].start]:
        return None
    after = tokens[marks[-1] + 1] if marks[-1] + 1 < len(tokens) else None
    return FileCall(
        form=form_of(function, paths),
        function=function,
        paths=paths,
        files=positional[0],
        options={match[1].lower(): match[2] for match in named if match is not None},
        start=tokens[index].start,
        end=tokens[marks[-1]].start + 1,
        tail="" if _is_name(after) else f" AS {function}",
    )
