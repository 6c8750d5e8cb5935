"""The verdict on a text of SQL: whether it may run, and if not, where and why."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

from nbtools.errors import NbtoolsError, SqlInvalid, SqlNotAllowed

READ_ONLY = "nbtools SQL is read-only"
# Characters of a line that a message shows: more would wrap and part the caret from its place.
_SHOWN = 100

VerdictCode = Literal["SQL_INVALID", "SQL_NOT_ALLOWED"]


class Finding(NamedTuple):
    """Something in the text that must not be, with its place in characters; an offset of -1 is the whole text."""

    what: str
    offset: int = -1
    width: int = 1
    code: VerdictCode = "SQL_NOT_ALLOWED"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What `Policy.check` found.

    `tables`, `files`, `functions` and `parameters` are the names of an allowed statement as the text writes them;
    tables that the statement itself defines (``WITH``) are not among them, files that its views and macros read are.
    `readers` are the places of the text that read files: the function, empty where a file stands alone, the paths, and
    the place in characters, or -1. `kind` is the statement's first word in the engine's sense, such as ``"SELECT"``,
    ``"EXPLAIN"`` or ``"DELETE"``. `fixed` tells that the columns of the result follow from those of what is read, by no
    value and no option of a reader. `line` and `column` count from 1 and are `None` when nothing is wrong. `hint` says
    what to do in place of what was refused.
    """

    sql: str = dataclasses.field(repr=False)
    allowed: bool
    code: VerdictCode | None = None
    reasons: tuple[str, ...] = ()
    kind: str | None = None
    tables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    fixed: bool = True
    readers: tuple[tuple[str, tuple[str, ...], int], ...] = ()
    line: int | None = None
    column: int | None = None
    width: int = 1
    hint: str | None = dataclasses.field(default=None, compare=False)

    def caret(self, sql: str | None = None) -> str:
        """Return the line of the text that was refused, with carets below the place; empty when nothing is.

        Parameters
        ----------
        sql
            The text, when it differs from the one that was judged; `None` for that one.
        """
        if self.line is None or self.column is None:
            return ""
        return caret_below(self.sql if sql is None else sql, self.line, self.column, self.width)

    def error(self, sql: str | None = None, *, hint: str | None = None) -> NbtoolsError | None:
        """Return the refusal as an error whose message is three lines: why, the line, the caret; else `None`."""
        if self.allowed:
            return None
        kind = SqlInvalid if self.code == "SQL_INVALID" else SqlNotAllowed
        caret = self.caret(sql)
        data = {"line": self.line, "column": self.column, "reasons": list(self.reasons)}
        what = f"{self.reasons[0]}\n{caret}" if caret else self.reasons[0]
        return kind(what, hint=hint or self.hint, data=data)

    def raise_if_refused(self, sql: str | None = None, *, hint: str | None = None) -> None:
        """Raise the refusal, if it is one.

        Raises
        ------
        SqlInvalid
            The text is not a statement that the parser knows.
        SqlNotAllowed
            The statement is not read-only, or reads what it may not.
        """
        error = self.error(sql, hint=hint)
        if error is not None:
            raise error


def caret_below(sql: str, line: int, column: int, width: int = 1) -> str:
    """Return a line of the text with carets below a place; both count from 1. Empty when there is nothing to show."""
    # Only what every engine counts as the end of a line; str.splitlines knows more.
    lines = sql.replace("\r\n", "\n").split("\n")
    if not 1 <= line <= len(lines):
        return ""
    text = "".join(char if char.isprintable() else " " for char in lines[line - 1])
    if not text.strip():
        return ""
    # A long line is cut around the place, so that the caret stays in sight.
    start = max(0, column - 1 - _SHOWN // 2)
    excerpt = text[start : start + _SHOWN]
    at = column - 1 - start
    return f"    {excerpt}\n    {' ' * at}{'^' * max(1, min(width, len(excerpt) - at))}"


def refuse(sql: str, findings: list[Finding], *, kind: str | None = None) -> Verdict:
    """Return the refusal for what was found, the first place in the text first."""
    # Equal findings once. The sort is stable, and a set has no order: reasons at one place keep that of the tree.
    ordered = sorted(dict.fromkeys(findings), key=lambda finding: (finding.offset < 0, finding.offset))
    first = ordered[0]
    offset = max(0, first.offset)
    line, column = line_and_column(sql, offset)
    return Verdict(
        sql=sql,
        allowed=False,
        code=first.code,
        reasons=tuple(f"line {line_and_column(sql, max(0, finding.offset))[0]}: {finding.what}" for finding in ordered),
        kind=kind,
        line=line,
        column=column,
        width=first.width,
    )


def line_and_column(sql: str, offset: int) -> tuple[int, int]:
    """Return the line and the column, from 1, of a place in characters."""
    before = sql[:offset].replace("\r\n", "\n")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
