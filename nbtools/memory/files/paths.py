"""Virtual paths of the memory tool, of which only the text is checked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from nbtools.errors import PathNotAllowed

ROOT = "/memories"
_MAX_PATH = 512
_MAX_PART = 255
_LEVELS = 2  # of a folder that are shown
# Clients decode paths: one that decodes to another path is refused, not guessed at.
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_HIDDEN = ("node_modules",)


def check_path(path: str) -> str:
    """Return a path in its plain form: ``/memories`` or something below it, no trailing slash.

    Raises
    ------
    PathNotAllowed
        It leads outside, in the protocol's words: it begins elsewhere, or has ``..``, backslashes or percent-encoding.
        Or no file can have that name: it is too long, has control characters, or is not composed (NFC).
    """
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise _not_allowed(f"Path must start with {ROOT}, got: {path}")
    below = path[len(ROOT) + 1 :].rstrip("/")
    parts = below.split("/") if below else []
    if ".." in parts or "\\" in path or _ENCODED.search(path):
        raise _not_allowed(f"Path {path} would escape {ROOT} directory")
    path_text = "/".join([ROOT, *parts])
    strange = any(unicodedata.category(char) in {"Cc", "Cs", "Cf", "Zl", "Zp"} for char in path)
    if strange or unicodedata.normalize("NFC", path) != path:
        raise _not_allowed(f"Path {path!a} has characters that are not printed, or not composed (NFC).")
    if any(part in {"", "."} or part != part.strip() for part in parts):
        raise _not_allowed(f"Path {path!r} has a part that is empty, a dot, or begins or ends with a blank.")
    if len(path_text.encode()) > _MAX_PATH or any(len(part.encode()) > _MAX_PART for part in parts):
        raise _not_allowed(f"Path {path[:60]}… is too long: at most {_MAX_PATH} bytes, {_MAX_PART} in each part.")
    return path_text


def _not_allowed(message: str) -> PathNotAllowed:
    return PathNotAllowed(message, hint=f"Paths are {ROOT} or below it.")


def is_hidden(part: str) -> bool:
    """Return whether a file or folder of that name is left out of listings."""
    return part.startswith(".") or part in _HIDDEN


def size_text(size: int) -> str:
    """Return a size as the protocol prints it.

    Examples
    --------
    >>> size_text(0), size_text(4), size_text(1536), size_text(2 * 2**20)
    ('0B', '4B', '1.5K', '2M')
    """
    unit = 0
    scaled = float(size)
    while scaled >= 1024 and unit < 3:
        scaled /= 1024
        unit += 1
    return f"{scaled:.1f}".removesuffix(".0") + "BKMG"[unit]


def tree_lines(folder: str, sizes: Mapping[str, int]) -> list[str]:
    """Return the lines of a folder's listing: itself, then two levels below it, hidden things left out.

    Parameters
    ----------
    folder
        The folder.
    sizes
        Path of every file below it to its size in bytes.
    """
    totals: dict[tuple[str, ...], int] = {(): 0}
    files: set[tuple[str, ...]] = set()
    for path, size in sizes.items():
        parts = tuple(path.removeprefix(f"{folder}/").split("/"))
        # Hidden folders are left out with all that is in them, and do not count for the sizes above.
        if any(is_hidden(part) for part in parts):
            continue
        files.add(parts)
        for length in range(len(parts) + 1):
            totals[parts[:length]] = totals.get(parts[:length], 0) + size
    return [_line(folder, parts, totals[parts], parts in files) for parts in sorted(totals) if len(parts) <= _LEVELS]


def _line(folder: str, parts: tuple[str, ...], size: int, is_file: bool) -> str:
    line = "/".join([folder, *parts])
    return f"{size_text(size)}\t{line}{'' if is_file or not parts else '/'}"
