"""A command line as data: parsed here, never by a shell, so that what is judged is what is run.

A line is allowed programs with their arguments, joined by ``|`` and ``&&``. Arguments are quoted as for a shell, and
`shlex` takes the quotes off. Every other sign that a shell reads (patterns, variables, redirections, substitutions,
comments, ``;``, new lines) is refused where it stands outside of quotes: such a line belongs to
``code_execute(language="bash")``, whose sandbox holds whatever a line does. Since no shell reads the text afterwards,
there is no second opinion that quoting could exploit.
"""

from __future__ import annotations

import dataclasses
import re
import shlex

from nbtools.errors import LimitExceeded, ParseError, PermissionDenied

_MAX_LENGTH, _MAX_COMMANDS = 10_000, 50
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_JOIN = re.compile(r"&&|\|(?![|&])")
# What `shlex` and a shell read alike. A shell would still read `$`, a backquote and a line's end between double quotes.
_COMMAND = re.compile(
    r"""(?:[^\n'"\\|&;<>()$`*?\[~\#] | (?<=[^\s|&])[~\#] | \\[^\n] | '[^']*' | "(?:[^"\\$`]|\\[^$`\n])*")*""",
    re.VERBOSE,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One program with its arguments.

    Attributes
    ----------
    words
        As the program gets them.
    column
        Where it begins, counted from 1.
    """

    words: tuple[str, ...]
    column: int


def parse(text: str) -> tuple[tuple[Command, ...], ...]:
    """Return the pipelines of a command line; each runs when the one before came to 0.

    Raises
    ------
    ParseError
        It is not a command line: a quote is open, or a command is missing; ``data`` holds the column.
    PermissionDenied
        It uses what cannot be judged; the message says what, and where.
    LimitExceeded
        It is too long.
    """
    if len(text) > _MAX_LENGTH:
        raise LimitExceeded(f"the command has {len(text):,} characters; {_MAX_LENGTH:,} are allowed.")
    line = text.rstrip(" \t\n")
    control = _CONTROL.search(line)
    if control is not None:
        raise _refusal(line, control.start())
    pipelines: list[list[Command]] = [[]]
    start = 0
    while True:
        command = _COMMAND.match(line, start)
        end = command.end() if command else start
        join = _JOIN.match(line, end)
        if join is None and end < len(line):
            raise _refusal(line, end)
        segment = line[start:end]
        if not segment.strip():
            raise ParseError(f"column {end + 1}: there is no command.", data={"column": end + 1})
        column = end - len(segment.lstrip()) + 1
        pipelines[-1].append(Command(words=tuple(shlex.split(segment)), column=column))
        if sum(map(len, pipelines)) > _MAX_COMMANDS:
            raise LimitExceeded(f"more than {_MAX_COMMANDS} commands in one line.")
        if join is None:
            return tuple(map(tuple, pipelines))
        start = join.end()
        if join[0] == "&&":
            pipelines.append([])


def _refusal(line: str, at: int) -> ParseError | PermissionDenied:
    sign, where = line[at], {"column": at + 1}
    if sign in "'\"" and sign not in line[at + 1 :]:
        return ParseError(f"column {at + 1}: the quote {sign} is never closed.", data=where)
    what = '$, a backquote or a backslash at a line\'s end within "…"' if sign == '"' else repr(sign)
    return PermissionDenied(
        f"column {at + 1}: {what} is not offered here: shell runs programs with arguments, a | b and a && b.",
        hint="Write it between '…' to pass it to a program. Patterns, variables, redirections, cd, ; and the rest "
        "of a shell's language run with code_execute(language='bash').",
        data=where,
    )
