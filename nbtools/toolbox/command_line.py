"""A command line as data: parsed here, never by a shell, so that what is judged is what is run.

The language is the plain part of a shell's: words with quotes and backslashes, ``$NAME`` and ``${NAME}``, patterns,
``|``, ``&&``, ``||``, ``;``, new lines, and redirections to files. Whatever runs a command that cannot be seen in the
text (``$(…)``, backquotes, ``<(…)``, ``eval``'s kin) or changes what a word means (assignments, functions, loops) is
refused by name. Since no shell reads the text afterwards, there is no second opinion that quoting could exploit.
"""

from __future__ import annotations

import dataclasses
import glob
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from nbtools.errors import LimitExceeded, ParseError, PermissionDenied

__all__ = ["Command", "Piece", "Redirect", "Step", "Word", "parse"]

_MAX_LENGTH, _MAX_COMMANDS, _MAX_MATCHES = 10_000, 50, 1_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATTERN = re.compile(r"[*?\[]")
_ENDS_WORD = frozenset(" \t\n|&;<>()")
# Longest first: what begins alike must be told apart.
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
_OPERATORS = ("&&", "||", ">>", ">&", "|", ";", "<", ">")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a word: text as it is, or the value of a variable."""

    kind: Literal["text", "variable"]
    value: str
    quoted: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Word:
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
    def literal(self) -> str | None:
        """The word, when it says itself what it is: without variables, patterns and ``~``."""
        if any(piece.kind == "variable" for piece in self.pieces):
            return None
        bare = "".join(piece.value for piece in self.pieces if not piece.quoted)
        if _PATTERN.search(bare) or self._is_home():
            return None
        return "".join(piece.value for piece in self.pieces)

    @property
    def bare(self) -> str:
        """What stands at its beginning without quotes."""
        first = self.pieces[0] if self.pieces else None
        return first.value if first is not None and first.kind == "text" and not first.quoted else ""

    def _is_home(self) -> bool:
        return self.bare.startswith("~")

    def expanded(self, environment: Mapping[str, str], cwd: Path) -> list[str]:
        """Return what a program gets for it: variables replaced, patterns matched; never split at blanks."""
        parts = [environment.get(p.value, "") if p.kind == "variable" else p.value for p in self.pieces]
        if self._is_home() and parts[0][1:2] in {"", "/"}:
            parts[0] = environment.get("HOME", "~") + parts[0][1:]
        if not any(p.kind == "text" and not p.quoted and _PATTERN.search(p.value) for p in self.pieces):
            return ["".join(parts)]
        wild = (p.kind == "text" and not p.quoted for p in self.pieces)
        pattern = "".join(part if is_wild else glob.escape(part) for part, is_wild in zip(parts, wild, strict=True))
        found = sorted(glob.glob(pattern, root_dir=cwd))  # noqa: PTH207 - relative matches are wanted
        if len(found) > _MAX_MATCHES:
            raise LimitExceeded(f"the pattern {pattern!r} matches {len(found):,} files; {_MAX_MATCHES:,} are allowed.")
        # A name that looks like an option must not become one.
        return [f"./{name}" if name.startswith("-") else name for name in found] or ["".join(parts)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Redirect:
    """Where a descriptor of a command leads: a file, or what another descriptor leads to."""

    descriptor: int
    kind: Literal["<", ">", ">>", "copy"]
    file: Word | None = None
    copied: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One program with its arguments."""

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """A pipeline, and what the one before must have come to for it to run: ``;`` anything, ``&&`` 0, ``||`` else."""

    operator: Literal[";", "&&", "||"]
    commands: tuple[Command, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Sign:
    """An operator; `descriptor` is the number before a redirection."""

    text: str
    column: int
    descriptor: int | None = None


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
    return _Builder().build(_Scanner(text).tokens(), len(text))


class _Scanner:
    """Cuts a text into words and signs."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def tokens(self) -> Iterator[Word | _Sign]:
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            if character in " \t":
                self._at += 1
            elif text.startswith("\\\n", self._at):
                self._at += 2
            elif character == "#":
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            elif character in _ENDS_WORD:
                yield self._sign(None)
            else:
                yield self._word_or_redirect()

    def _word_or_redirect(self) -> Word | _Sign:
        word = self._word()
        if word.bare.isdigit() and len(word.pieces) == 1 and self._text[self._at : self._at + 1] in {"<", ">"}:
            return self._sign(int(word.bare[:4]))
        return word

    def _sign(self, descriptor: int | None) -> _Sign:
        begun = self._at
        if self._text[begun] == "\n":
            self._at += 1
            return _Sign(text="\n", column=begun + 1)
        for sign in _OPERATORS[:2]:
            if self._text.startswith(sign, begun):
                self._at += 2
                return _Sign(text=sign, column=begun + 1)
        for sign, what in _REFUSED.items():
            if self._text.startswith(sign, begun):
                raise _refused(what, begun)
        sign = next(sign for sign in _OPERATORS if self._text.startswith(sign, begun))
        self._at += len(sign)
        return _Sign(text=sign, column=begun + 1, descriptor=descriptor)

    def _word(self) -> Word:
        begun = self._at
        pieces: list[Piece] = []
        while self._at < len(self._text) and self._text[self._at] not in _ENDS_WORD:
            pieces += self._piece()
        return Word(pieces=_joined(pieces), column=begun + 1)

    def _piece(self) -> list[Piece]:
        character = self._text[self._at]
        if character == "'":
            end = self._closing("'")
            value, self._at = self._text[self._at + 1 : end], end + 1
            return [_quoted(self._plain(value))]
        if character == '"':
            return self._double()
        if character == "\\":
            return [_quoted(self._escaped())]
        if character == "$":
            return [self._dollar(quoted=False)]
        return [Piece(kind="text", value=self._character(), quoted=False)]

    def _closing(self, quote: str) -> int:
        end = self._text.find(quote, self._at + 1)
        if end < 0:
            raise _wrong(f"the quote {quote} is never closed", self._at)
        return end

    def _plain(self, value: str) -> str:
        """Return text that has nothing in it which works behind the reader's back."""
        found = re.search(r"[\x00-\x08\x0b-\x1f\x7f]", value)
        if found is not None:
            raise _refused(f"the control character {found[0]!r}", self._at)
        return value

    def _character(self) -> str:
        """Take a character that stands for itself."""
        value = self._plain(self._text[self._at])
        if value == "`":
            raise _refused("a backquote, which runs a command", self._at)
        self._at += 1
        return value

    def _escaped(self) -> str:
        value = self._text[self._at + 1 : self._at + 2]
        if not value:
            raise _wrong("a backslash stands at the end", self._at)
        self._at += 2
        return "" if value == "\n" else value

    def _double(self) -> list[Piece]:
        begun = self._at
        self._at += 1
        pieces = [_quoted("")]
        while True:
            character = self._text[self._at : self._at + 1]
            if not character:
                raise _wrong('the quote " is never closed', begun)
            if character == '"':
                self._at += 1
                return pieces
            pieces.append(self._within(character))

    def _within(self, character: str) -> Piece:
        """Return the next piece inside double quotes."""
        if character == "$":
            return self._dollar(quoted=True)
        if character == "\\" and self._text[self._at + 1 : self._at + 2] in {"$", "`", '"', "\\", "\n"}:
            return _quoted(self._escaped())
        return _quoted(self._character())

    def _dollar(self, *, quoted: bool) -> Piece:
        begun, rest = self._at, self._text[self._at + 1 :]
        inner = rest.removeprefix("{")
        name = _NAME.match(inner)
        if name is not None and (inner is rest or inner[name.end() :].startswith("}")):
            self._at += 1 + name.end() + (0 if inner is rest else 2)
            return Piece(kind="variable", value=name[0], quoted=quoted)
        if rest.startswith("("):
            raise _refused("$( … ), which runs a command or computes", begun)
        if (rest[:1] and rest[0] in "{?$!#@*-0123456789") or (rest[:1] in {"'", '"'} and not quoted):
            raise _refused(f"${rest[0]}, which a shell would work out", begun)
        self._at += 1
        return Piece(kind="text", value="$", quoted=quoted)


class _Builder:
    """Makes steps of tokens."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._commands: list[Command] = []
        self._words: list[Word] = []
        self._redirects: list[Redirect] = []
        self._operator: Literal[";", "&&", "||"] = ";"
        self._waiting = ""

    def build(self, tokens: Iterator[Word | _Sign], length: int) -> tuple[Step, ...]:
        for token in tokens:
            if isinstance(token, Word):
                self._words.append(token)
            elif token.text in {"<", ">", ">>", ">&"}:
                self._redirect(token, next(tokens, None))
            else:
                self._separate(token)
        self._end_step(length)
        if self._waiting:
            raise _wrong(f"nothing follows {self._waiting}", length)
        if not self._steps:
            raise _wrong("there is no command", 0)
        if sum(len(step.commands) for step in self._steps) > _MAX_COMMANDS:
            raise LimitExceeded(f"more than {_MAX_COMMANDS} commands in one line.")
        return tuple(self._steps)

    def _redirect(self, sign: _Sign, target: Word | _Sign | None) -> None:
        number = sign.descriptor if sign.descriptor is not None else 0 if sign.text == "<" else 1
        if number > 2:
            raise _refused(f"descriptor {number}", sign.column - 1)
        if not isinstance(target, Word):
            raise _wrong(f"nothing follows {sign.text}", sign.column)
        if sign.text == ">&":
            if target.literal not in {"0", "1", "2"}:
                raise _refused(">& with anything but a descriptor", sign.column - 1)
            self._redirects.append(Redirect(descriptor=number, kind="copy", copied=int(target.literal)))
        else:
            kinds: Mapping[str, Literal["<", ">", ">>"]] = {"<": "<", ">": ">", ">>": ">>"}
            self._redirects.append(Redirect(descriptor=number, kind=kinds[sign.text], file=target))

    def _separate(self, sign: _Sign) -> None:
        pending = bool(self._words or self._redirects)
        if sign.text == "\n":
            if pending:
                self._end_step(sign.column)
            return
        if not pending:
            raise _wrong(f"there is no command before {sign.text}", sign.column - 1)
        if sign.text == "|":
            self._end_command(sign.column)
            self._waiting = "|"
            return
        self._end_step(sign.column)
        self._operator = "&&" if sign.text == "&&" else "||" if sign.text == "||" else ";"
        self._waiting = "" if sign.text == ";" else sign.text

    def _end_command(self, at: int) -> None:
        if not self._words:
            raise _wrong("a redirection has no command", at)
        self._commands.append(Command(words=tuple(self._words), redirects=tuple(self._redirects)))
        self._words, self._redirects, self._waiting = [], [], ""

    def _end_step(self, at: int) -> None:
        if self._words or self._redirects:
            self._end_command(at)
        if self._waiting == "|" or not self._commands:
            return
        self._steps.append(Step(operator=self._operator, commands=tuple(self._commands)))
        self._commands, self._operator = [], ";"


def _quoted(value: str) -> Piece:
    return Piece(kind="text", value=value, quoted=True)


def _joined(pieces: list[Piece]) -> tuple[Piece, ...]:
    made: list[Piece] = []
    for piece in pieces:
        last = made[-1] if made else None
        if last is not None and last.kind == piece.kind == "text" and last.quoted == piece.quoted:
            made[-1] = dataclasses.replace(last, value=last.value + piece.value)
        else:
            made.append(piece)
    return tuple(made)


def _refused(what: str, at: int) -> PermissionDenied:
    return PermissionDenied(
        f"column {at + 1}: {what}, is not offered here: it cannot be judged before it runs.",
        hint="Write plain commands, joined by |, &&, || or ;. Use code_execute with language='bash' for a script.",
        data={"column": at + 1},
    )


def _wrong(problem: str, at: int) -> ParseError:
    return ParseError(f"column {at + 1}: {problem}.", data={"column": at + 1})
