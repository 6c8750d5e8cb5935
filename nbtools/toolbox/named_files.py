"""The files that commands and code name: scripts that they run, and what these source in turn, as they are now."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from nbtools.contract.consequence import Consequence, text_of
from nbtools.texts.visible import counted

_MOST_FILES, _MOST_WORDS, _MOST_SHOWN = 20, 2_000, 64_000
_STARTS = "__main__.py"
_ENDS = (".py", f"/{_STARTS}", "/__init__.py")
_WORD = re.compile(r"[^\s'\"`;|&()<>{}\[\],=]+")
_UNKNOWN = "what else it runs cannot be known: files that it finds by itself, names that it computes, what it fetches"


def named_files(words: Iterable[str], folder: Path, whose: str) -> Iterator[Consequence]:
    """Yield each file that words name, with its text, and then what these name; the last part says what is not known.

    Parameters
    ----------
    words
        Of a command, or of a program's text.
    folder
        Where relative names start; names in a file start at its own folder as well.
    whose
        What the words stand in.
    """
    first: tuple[Path, ...] = (folder,)
    # A word of a command may be a command itself, as of ``sh -c``.
    pieces = (part for word in words for part in dict.fromkeys([word, *words_of(word)]))
    waiting, seen = [(word, whose, first) for word in itertools.islice(pieces, _MOST_WORDS)], set[Path]()
    is_any = bool(waiting)
    while waiting:
        word, where, folders = waiting.pop(0)
        file = _file_of(word, folders)
        if file is None or file in seen:
            continue
        if file.name == _STARTS:  # of a package, beside what is imported before it
            waiting.insert(0, (str(file.with_name("__init__.py")), where, folders))
        if len(seen) == _MOST_FILES:
            yield Consequence(f"more than {_MOST_FILES} files are named: the others are not examined")
            break
        seen.add(file)
        text = text_of(file)
        if not isinstance(text, str):
            size = counted(text or 0, "byte")
            yield Consequence(f"{file.name}, named in {where} ({size}, too large to show or not text)", "", (file,))
            continue
        lines = text.splitlines()
        title, is_short = f"{file.name}, named in {where}: {counted(len(lines), 'line')}", len(text) <= _MOST_SHOWN
        body = "\n".join(f" {line}" for line in lines) if is_short else ""
        yield Consequence(title if is_short else f"{title}, too long to be shown here", body, (file,))
        inner = itertools.islice(words_of(text), _MOST_WORDS)
        waiting += [(word, file.name, (*folders, file.parent)) for word in inner]
    if is_any:
        yield Consequence(_UNKNOWN)


def words_of(text: str) -> Iterator[str]:
    """Return the words of a program's text, each once."""
    return iter(dict.fromkeys(_WORD.findall(text)))


def _file_of(word: str, folders: Iterable[Path]) -> Path | None:
    """Return the file that a word names by its path, or as a module or a package of Python, or a folder of one."""
    module = word.strip(".").replace(".", "/")
    for folder, name in itertools.product(dict.fromkeys(folders), (word, *(f"{module}{end}" for end in _ENDS))):
        try:
            path = Path(folder, name)
            if path.is_file():
                return path.resolve()
        except (OSError, ValueError):  # a name that cannot be one
            continue
    return None
