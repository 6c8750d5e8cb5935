"""Text from elsewhere as a person is shown it: what cannot be seen, or would move what is seen, is spelled out."""

from __future__ import annotations

import json
import re
import shutil
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TextIO

# Controls but for the ends of lines and tabs, and what changes the direction of writing.
_DRIVES = re.compile(r"\r(?!\n)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_JOINERS, _LATIN = "\u200c\u200d", "\u024f"
_KEYCAP = re.compile("[#*0-9]\ufe0f\u20e3")
_GOES_ON = "  ┊ "
_LONGEST_WORD = 12
# Letters and marks that count as printable and show nothing: fillers, joiners, selectors of variants.
_SELECTS = re.compile("[\u180b-\u180d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def visible(text: str, *, lines: bool = False, signs: bool = False) -> str:
    r"""Return a text in which every control, escape, bidirectional, zero-width or blank character is spelled out.

    Parameters
    ----------
    text
        What someone else wrote.
    lines
        Whether line ends and tabs stay what they are.
    signs
        Whether a sign beyond Latin letters keeps its variant and its joiner, which emoji and many scripts are written
        with; they hide nothing there, but where a text is a command they could.

    Examples
    --------
    >>> visible("a\x1b[2K\u202eb"), visible("a\nb"), visible("a\nb", lines=True)
    ('a<U+001B>[2K<U+202E>b', 'a<U+000A>b', 'a\nb')
    >>> visible("❤\ufe0f 1\ufe0f\u20e3 a\ufe0f 1\ufe0f", signs=True)
    '❤️ 1️⃣ a<U+FE0F> 1<U+FE0F>'
    """
    unescaped = "\n\t" if lines else ""
    if text.isascii() and text.isprintable():
        return text
    chars, room = [], 0  # for a variant and a joiner (2), or for a joiner alone
    for at, char in enumerate(text):
        part = (2 if _SELECTS.match(char) else int(char in _JOINERS)) if signs else 0
        is_seen = char in unescaped or (char.isprintable() and not _BLANK.match(char))
        is_kept = part <= room if part else is_seen
        is_sign = char > _LATIN or char in "©®" or _KEYCAP.match(text, at) is not None
        room = (part - 1 if part else 2 * is_sign) if is_kept else 0
        chars.append(char if is_kept else f"<U+{ord(char):04X}>")
    return "".join(chars)


def harmless(text: str) -> str:
    r"""Return a text that cannot drive a terminal: controls, escapes and changes of direction are spelled out.

    Joiners and selectors of variants stay, which emoji and many scripts are written with; see `visible` for questions.

    Examples
    --------
    >>> harmless("a\x1b]0;b\x07\u202e\tc\n"), harmless("❤\ufe0f")
    ('a<U+001B>]0;b<U+0007><U+202E>\tc\n', '❤️')
    """
    if text.isascii() and text.isprintable():
        return text
    return _DRIVES.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)


class ShownStream:
    """A terminal that no data can drive: whatever is written to it goes through `harmless`.

    Parameters
    ----------
    stream
        The terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @classmethod
    def of(cls, stream: TextIO | None) -> Any:
        """Return the stream itself where it is not a terminal: files and pipes get what there is."""
        return cls(stream) if stream is not None and stream.isatty() else stream

    def write(self, text: str) -> int:
        """Write a text, and return its length."""
        self._stream.write(harmless(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy is asked for such names before it has a stream
            raise AttributeError(name)
        return getattr(self._stream, name)


def brief(value: Any, longest: int = 80) -> str:
    """Return a value on one line, as text or JSON, cut to a number of characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    flat = visible(" ".join(text.split()), signs=True)
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def counted(number: int, thing: str) -> str:
    """Return a number with its thing, such as ``1 step`` and ``2 steps``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def kind_of_value(value: Any) -> str:
    """Return the name of a value's type with its article.

    Examples
    --------
    >>> kind_of_value(1), kind_of_value([])
    ('an int', 'a list')
    """
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def wrapped(text: str, width: int | None = None) -> str:
    r"""Return a text in which each line that goes on below itself begins with ``┊`` there.

    Blanks that fill a line of a narrow terminal would let the rest of it look like another line.

    Parameters
    ----------
    text
        Lines, made visible already.
    width
        Columns of a line at the most; `None` asks the terminal.

    Examples
    --------
    >>> print(wrapped("code: a" + 20 * " " + "(allowed)", 22))
    code: a
      ┊       (allowed)
    """
    most = max(width or shutil.get_terminal_size().columns, 20) - 1  # the last column moves some cursors on
    return "\n".join(part.rstrip() for line in text.split("\n") for part in _parts(line.expandtabs(), most))


def _parts(line: str, most: int) -> list[str]:
    parts, used, part = [], 0, ""
    for char in line:
        columns = width_of(char)
        if used + columns > most:
            # Between words, where there is a word to keep whole.
            head, _, word = part.rpartition(" ")
            is_word = 0 < len(word) < _LONGEST_WORD and bool(head.strip()) and char != " "
            parts.append(head if is_word else part)
            part = _GOES_ON + (word if is_word else "")
            used = len(_GOES_ON) + (width_of(word) if is_word else 0)
        used, part = used + columns, part + char
    return [*parts, part]


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    wide, over = (unicodedata.east_asian_width(char) in "WF" for char in text), map(unicodedata.combining, text)
    return len(text) + sum(wide) - sum(map(bool, over))


def aligned(
    rows: Sequence[Sequence[Any]],
    width: int | None = None,
    right: Collection[int] = (),
    whole: Collection[int] = (),
) -> list[str]:
    """Return rows as lines with their columns below each other, nothing for `None`; the widest column gives way.

    Parameters
    ----------
    rows
        At least one, all with as many values.
    width
        Characters of a line at the most; `None` asks the terminal.
    right
        The columns that end below each other: those of numbers.
    whole
        The columns that are never cut.
    """
    cells = [["" if value is None else brief(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    spare = (width or shutil.get_terminal_size((120, 24)).columns) - 2 * (len(widths) - 1)
    others = [index for index in range(len(widths)) if index not in whole]
    while sum(widths) > spare and widths[widest := max(others, key=widths.__getitem__)] > 12:
        widths[widest] -= 1
    sides = [str.rjust if index in right else str.ljust for index in range(len(widths))]
    return [
        "  ".join(side(brief(text, w), w) for text, w, side in zip(row, widths, sides, strict=True)).rstrip()
        for row in cells
    ]


# -- commands

# A hint names one as a command line or as a magic, since who makes an error does not know who will read it: the face
# that shows it says its own. What stands in quotes, and a part of a path or of a name, is the person's.

# The words of a command line, and those of a magic.
_COMMANDS = (
    ("nbtools run --resume", "%workflow resume"),
    *((f"nbtools runs {verb}", f"%workflow {verb}") for verb in ("answer", "cancel", "export", "report", "show")),
    *((f"nbtools {verb}", f"%nbtools {verb}") for verb in ("doctor", "trust")),
    ("nbtools agent", "%agent"),
    ("nbtools memory", "%memory"),
)
_TO_MAGICS, _TO_COMMANDS = dict(_COMMANDS), {magic: command for command, magic in _COMMANDS}
_IN_QUOTES = r"(?<!\w)(['\"]).*?\1(?!\w)"
_EACH_COMMAND, _EACH_MAGIC = (
    re.compile(rf"(?s:{_IN_QUOTES})|(?<![^\s(`])(?:{'|'.join(map(re.escape, names))})(?=[.,;:?!)`]*(?:\s|$))")
    for names in (_TO_MAGICS, _TO_COMMANDS)
)


def in_magics(text: str) -> str:
    """Return a hint of ours, or a command, for a notebook.

    Examples
    --------
    >>> in_magics("It goes on: nbtools run --resume tour-1. See `nbtools doctor`, and nbtools explain WF001.")
    'It goes on: %workflow resume tour-1. See `%nbtools doctor`, and nbtools explain WF001.'
    >>> in_magics("There is 'nbtools agent.txt'.")
    "There is 'nbtools agent.txt'."
    """
    return _EACH_COMMAND.sub(lambda match: _TO_MAGICS.get(match[0], match[0]), text)


def in_commands(text: str) -> str:
    """Return a hint of ours that names magics, for a terminal.

    Examples
    --------
    >>> in_commands("Raise it: %agent resume 1 --max-time N; a cell has %%agent --new")
    'Raise it: nbtools agent resume 1 --max-time N; a cell has %%agent --new'
    """
    return _EACH_MAGIC.sub(lambda match: _TO_COMMANDS.get(match[0], match[0]), text)
