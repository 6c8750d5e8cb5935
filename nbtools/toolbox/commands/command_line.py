"""A command line as data: parsed here, never by a shell, so that what is judged is what is run.

The language is the plain part of a shell's: words with quotes and backslashes, ``$NAME`` and ``${NAME}``, patterns,
``|``, ``&&``, ``||``, ``;``, new lines, and redirections to files. Whatever runs a command that cannot be seen in the
text (``$(…)``, backquotes, ``<(…)``, ``eval``'s kin) or changes what a word means (assignments, functions, loops) is
refused by name. Since no shell reads the text afterwards, there is no second opinion that quoting could exploit.
"""

from __future__ import annotations

import dataclasses
import glob
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, cast

from nbtools.errors import LimitExceeded, ParseError, PermissionDenied

__all__ = ["Command", "Piece", "Redirect", "ShellWord", "Step", "parse"]

_MAX_LENGTH, _MAX_COMMANDS, _MAX_MATCHES = 10_000, 50, 1_000
_REFUSED = {
    "<<": "a here-document",
    "<(": "a process substitution, which runs a command",
    ">(": "a process substitution, which runs a command",
    "<>": "a file opened for both",
    "<&": "a copied descriptor",
    ">|": "a forced redirection",
    "&>": "a redirection of both streams (write > file 2>&1)",
    "|&": "a pipe of both streams (write 2>&1 |)",
    ";;": "a case",
    "(": "a subshell",
    ")": "a subshell",
    "&": "a background command (the tool process starts one)",
}
# They change how a shell reads the lines after them: without one, `if false; then rm x; fi` would run what it guards.
_KEYWORDS = frozenset(
    {
        *("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "function"),
        *("select", "time", "coproc", "[[", "{", "}", "!", "eval", "exec", "source", ".", "alias", "trap", "export"),
        *("set", "unset", "builtin", "command", "declare", "local", "readonly", "shopt", "hash", "enable"),
    }
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")
_PATTERN = re.compile(r"[*?\[]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NOTHING = re.compile(r"(?:[ \t]|\\\n)+|#[^\n]*")
_REFUSED_SIGN = re.compile(r"\d{0,4}(<<|<\(|>\(|<>|<&|>\||&>|\|&|;;|[()]|&(?!&))")
_SIGN = re.compile(r"\n|&&|\|\||(?P<descriptor>\d{0,4})(?P<redirect>>>|>&|<|>)|[|;]")
_VARIABLE = r"\$(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\})"
_PIECE = re.compile(
    r"'(?P<single>[^']*)'" + r'|"(?P<double>(?:[^"\\]|\\.)*)"' + rf"|\\(?P<escaped>.)|{_VARIABLE}"
    r"""|(?P<plain>[^ \t\n|&;<>()'"\\$`]+|\$(?![({?$!#@*0-9'"-]))""",
    re.DOTALL,
)
_INNER = re.compile(rf'\\(?P<escaped>[$`"\\\n])|{_VARIABLE}' + r"|(?P<plain>[^\\$`]+|\\|\$(?![({?$!#@*0-9-]))")


class Piece(NamedTuple):
    """A part of a word: text as it is, or the name of a variable."""

    value: str
    variable: bool = False
    quoted: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShellWord:
    """One word of a command.

    Attributes
    ----------
    pieces
        Its parts.
    column
        Where it begins, counted from 1.
    """

    pieces: tuple[Piece, ...]
    column: int

    @property
    def bare(self) -> str:
        """What stands at its beginning without quotes and variables."""
        return "".join(p.value for p in itertools.takewhile(lambda p: not p.quoted and not p.variable, self.pieces))

    @property
    def literal(self) -> str | None:
        """The whole word, when no part of it is quoted or a variable."""
        return None if any(piece.quoted or piece.variable for piece in self.pieces) else self.bare

    def expand(self, environment: Mapping[str, str], cwd: Path) -> list[str]:
        """Return what a program gets for it: variables replaced, patterns matched; never split at blanks.

        Raises
        ------
        PermissionDenied
            A variable is not set: what the command would be is not what was written.
        LimitExceeded
            A pattern matches too much.
        """
        parts = self._parts(environment)
        text = "".join(parts)
        wild = [not piece.variable and not piece.quoted for piece in self.pieces]
        if not any(is_wild and _PATTERN.search(part) for part, is_wild in zip(parts, wild, strict=True)):
            return [text] if text or any(piece.quoted for piece in self.pieces) else []
        pattern = "".join(part if is_wild else glob.escape(part) for part, is_wild in zip(parts, wild, strict=True))
        matches = glob.iglob(pattern, root_dir=cwd)  # noqa: PTH207 - relative matches are wanted
        found = sorted(itertools.islice(matches, _MAX_MATCHES + 1))
        if len(found) > _MAX_MATCHES:
            raise LimitExceeded(f"the pattern {pattern!r} matches more than {_MAX_MATCHES:,} files.")
        # A name that looks like an option must not become one.
        return [f"./{name}" if name.startswith("-") else name for name in found] or [text]

    def written(self, environment: Mapping[str, str]) -> str:
        """Return the word without quotes, variables replaced, patterns as they are."""
        return "".join(self._parts(environment))

    def _parts(self, environment: Mapping[str, str]) -> list[str]:
        parts = [self._value(piece, environment) for piece in self.pieces]
        if self.bare.startswith("~") and parts[0][1:2] in {"", "/"}:
            parts[0] = environment.get("HOME", "~") + parts[0][1:]
        return parts

    def _value(self, piece: Piece, environment: Mapping[str, str]) -> str:
        if not piece.variable:
            return piece.value
        if piece.value not in environment:
            raise PermissionDenied(
                f"column {self.column}: the variable {piece.value} is not set here.",
                hint="Write its value. Variables that look secret are never handed to commands.",
                data={"column": self.column},
            )
        return environment[piece.value]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Redirect:
    """Where a descriptor of a command leads: a file, or what another descriptor leads to."""

    descriptor: int
    kind: Literal["<", ">", ">>", "copy"]
    file: ShellWord | None = None
    copied: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One program with its arguments."""

    words: tuple[ShellWord, ...]
    redirects: tuple[Redirect, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """A pipeline, and what the one before must have come to for it to run: ``;`` anything, ``&&`` 0, ``||`` else."""

    operator: Literal[";", "&&", "||"]
    commands: tuple[Command, ...]


class _Sign(NamedTuple):
    """An operator; `descriptor` is the number before a redirection."""

    text: str
    column: int
    descriptor: str = ""


def parse(text: str) -> tuple[Step, ...]:
    """Return the pipelines of a command line.

    Raises
    ------
    ParseError
        It is no command line: a quote is open, or something is missing; ``data`` holds the column.
    PermissionDenied
        It uses what cannot be judged; the message says what, and where.
    LimitExceeded
        It is too long.
    """
    if len(text) > _MAX_LENGTH:
        raise LimitExceeded(f"the command has {len(text):,} characters; {_MAX_LENGTH:,} are allowed.")
    found = _CONTROL.search(text)
    if found is not None:
        raise _refusal(f"the control character {found[0]!r}", found.start())
    steps = _steps(itertools.chain(_tokens(text), [_Sign("\n", len(text))]))
    if not steps:
        raise _syntax_error("there is no command", 0)
    if sum(len(step.commands) for step in steps) > _MAX_COMMANDS:
        raise LimitExceeded(f"more than {_MAX_COMMANDS} commands in one line.")
    return tuple(steps)


def _tokens(text: str) -> Iterator[ShellWord | _Sign]:
    at = 0
    while at < len(text):
        nothing = _NOTHING.match(text, at)
        if nothing is not None:
            at = nothing.end()
            continue
        refused = _REFUSED_SIGN.match(text, at)
        if refused is not None:
            raise _refusal(_REFUSED[refused[1]], refused.start(1))
        sign = _SIGN.match(text, at)
        if sign is not None:
            yield _Sign(sign["redirect"] or sign[0], at + 1, sign["descriptor"] or "")
            at = sign.end()
            continue
        pieces, end = _pieces(_PIECE, text, at, len(text))
        if end == at or (end < len(text) and text[end] in "'\"\\$`"):
            raise _unreadable(text, end)
        yield ShellWord(pieces=tuple(pieces), column=at + 1)
        at = end


def _pieces(pattern: re.Pattern[str], text: str, at: int, end: int) -> tuple[list[Piece], int]:
    """Return the pieces from a place on, and where the next is none."""
    pieces: list[Piece] = []
    while at < end and (found := pattern.match(text, at, end)) is not None:
        kind, value = str(found.lastgroup), str(found[str(found.lastgroup)])
        if kind == "double":
            inner, stop = _pieces(_INNER, text, found.start(kind), found.end(kind))
            if stop < found.end(kind):
                raise _unreadable(text, stop)
            pieces += [Piece("", quoted=True), *(piece._replace(quoted=True) for piece in inner)]
        elif kind == "escaped":
            pieces.append(Piece("" if value == "\n" else value, quoted=True))
        else:
            pieces.append(Piece(value, variable=kind in {"name", "braced"}, quoted=kind == "single"))
        at = found.end()
    return pieces, at


def _unreadable(text: str, at: int) -> ParseError | PermissionDenied:
    character, after = text[at], text[at + 1 : at + 2]
    if character == "`":
        return _refusal("a backquote, which runs a command", at)
    if character == "$":
        what = "$( … ), which runs a command or computes" if after == "(" else f"${after}, which a shell would work out"
        return _refusal(what, at)
    if character == "\\":
        return _syntax_error("a backslash stands at the end", at)
    return _syntax_error(f"the quote {character} is never closed", at)


def _steps(tokens: Iterator[ShellWord | _Sign]) -> list[Step]:
    steps: list[Step] = []
    commands: list[Command] = []
    words: list[ShellWord] = []
    redirects: list[Redirect] = []
    operator = waiting = ""
    end = 0
    for token in tokens:
        if isinstance(token, ShellWord):
            words.append(token)
            continue
        end = token.column
        if token.text in {"<", ">", ">>", ">&"}:
            redirects.append(_redirect(token, next(tokens)))
        elif words:
            commands.append(_command(words, redirects))
            words, redirects = [], []
            waiting = "" if token.text in {";", "\n"} else token.text
            if token.text != "|":
                steps.append(Step(operator=cast("Literal[';']", operator or ";"), commands=tuple(commands)))
                commands, operator = [], waiting
        elif redirects:
            raise _syntax_error("a redirection has no command", token.column - 1)
        elif token.text != "\n":
            raise _syntax_error(f"there is no command before {token.text}", token.column - 1)
    if waiting:
        raise _syntax_error(f"nothing follows {waiting}", end)
    return steps


def _redirect(sign: _Sign, target: ShellWord | _Sign) -> Redirect:
    number = int(sign.descriptor or (0 if sign.text == "<" else 1))
    if number > 2:
        raise _refusal(f"descriptor {number}", sign.column - 1)
    if not isinstance(target, ShellWord):
        raise _syntax_error(f"nothing follows {sign.text}", sign.column)
    if sign.text != ">&":
        return Redirect(descriptor=number, kind=cast("Literal['<']", sign.text), file=target)
    if target.literal not in {"0", "1", "2"}:
        raise _refusal(">& with anything but a descriptor", sign.column - 1)
    return Redirect(descriptor=number, kind="copy", copied=int(target.literal))


def _command(words: Sequence[ShellWord], redirects: Sequence[Redirect]) -> Command:
    first = words[0]
    if _ASSIGNMENT.match(first.bare):
        raise _refusal(f"{first.bare.partition('=')[0]}=…, which sets what programs go by", first.column - 1)
    if first.literal in _KEYWORDS:
        raise _refusal(f"{first.literal!r}, which belongs to the language of shells", first.column - 1)
    return Command(words=tuple(words), redirects=tuple(redirects))


def _refusal(what: str, at: int) -> PermissionDenied:
    return PermissionDenied(
        f"column {at + 1}: {what}, is not offered here: it cannot be judged before it runs.",
        hint="Write plain commands, joined by |, &&, || or ;. Use code_execute with language='bash' for a script.",
        data={"column": at + 1},
    )


def _syntax_error(problem: str, at: int) -> ParseError:
    return ParseError(f"column {at + 1}: {problem}.", data={"column": at + 1})
