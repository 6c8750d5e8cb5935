"""Paths in a query: which files it may read, judged on where they really lead.

Only a path that stands in the text as a constant can be judged. It must be local, and every link on the way is
followed first. A pattern is expanded here, as the engine would, so that a link inside an allowed folder cannot lead
the engine out. Relative paths start at the working folder, as they do in the engine.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from nbtools.errors import PathNotAllowed
from nbtools.ground.paths import real_name

_GLOB = re.compile(r"[*?\[]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
# What the engine, or pandas for workbooks, takes for a file when no table of that name exists. Unknown endings are
# included on purpose: an extension may bring their reader, and then the name must have been judged.
_ENDINGS = re.compile(
    r"\.(?:csv|tsv|psv|tbl|txt|parquet|pq|json|jsonl|ndjson|geojson|avro|arrow|arrows|ipc|feather|orc|vortex|lance|xls"
    r"|xlsx|xlsm|ods|shp|fgb|gpkg|gpx|kml|gdb|osm|pbf|db|ddb|duckdb|sqlite3?|gz|zst|bz2|xz|zip|lz4|snappy)"
    r"(?:[?#].*)?\s*$",
    re.IGNORECASE,
)
_DATABASE = re.compile(r"\.(?:db|ddb|duckdb|sqlite3?)$", re.IGNORECASE)
# Names of databases elsewhere, which an extension may answer, need no slashes.
_REMOTE = r"^(?:ducklake|md|motherduck|mysql|postgres|quack|sqlite):"
_PATHLIKE = re.compile(rf"[/\\*?\[\0]|^~|://|{_REMOTE}", re.IGNORECASE)
# Files of the system tell secrets of processes, or never end; no allowed folder opens these.
_NEVER = ("/proc", "/dev", "/sys")
# A pattern that matches more is refused: judging it would take longer than most queries.
_MOST_ENTRIES = 100_000


def is_path_like(name: str) -> bool:
    """Tell whether the engine could take a table's name for a file."""
    return _PATHLIKE.search(name) is not None or _ENDINGS.search(name) is not None


class Files:
    """The folders below which a query may read files; none means no files at all."""

    def __init__(self, allowed_paths: Iterable[str | os.PathLike[str]]) -> None:
        self.roots: tuple[str, ...] = tuple(dict.fromkeys(os.path.realpath(root) for root in allowed_paths))

    def refusal(self, path: str, *, listing: bool = False) -> str | None:
        """Return why a path, or a pattern of paths, may not be read; `None` when it may.

        Parameters
        ----------
        path
            As the query writes it.
        listing
            Whether only names are listed: then a link that leads out may be among them, and is not followed.
        """
        quoted = f"'{path[:80]}'"
        path = _from_home(path)
        reason = _odd(path)
        if reason is not None:
            return f"{quoted} {reason}"
        if not self.roots:
            return f"{quoted} is a file, and no folder is allowed"
        if _DATABASE.search(path):
            return f"{quoted} is a database file; ask it by a connection such as sqlite:///FILE or duckdb:///FILE"
        match = _GLOB.search(path)
        try:
            if match is None:
                return self._single(path, quoted)
            return self._pattern(path, match.start(), quoted, listing=listing)
        except PathNotAllowed:
            return f"{quoted} leads through a link that changes while it is judged"

    def _single(self, path: str, quoted: str) -> str | None:
        real = real_name(path)
        if not self._below(real):
            return f"{quoted} is outside the allowed folders"
        try:
            mode = os.stat(real).st_mode  # noqa: PTH116 - a str is what realpath gave
        except (OSError, ValueError):
            return None  # the engine says best that it is not there
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return f"{quoted} is a device, socket or pipe"
        return None

    def _below(self, real: str) -> bool:
        if any(real == never or real.startswith(never + os.sep) for never in _NEVER):
            return False
        return any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in self.roots)

    def _pattern(self, path: str, at: int, quoted: str, *, listing: bool) -> str | None:
        cut = path.rfind("/", 0, at) + 1
        folder, rest = path[:cut] or ".", path[cut:]
        if ".." in rest.split("/"):
            return f"{quoted} climbs out of a pattern"
        if not self._below(real_name(folder)):
            return f"{quoted} is outside the allowed folders"
        outside = self._escapes(folder, [part for part in rest.split("/") if part not in {"", "."}], listing=listing)
        return None if outside is None else f"{quoted} {outside}"

    def _escapes(self, folder: str, pattern: list[str], *, listing: bool) -> str | None:
        """Walk what a pattern matches; only links can lead out, so only they are resolved."""
        seen = 0
        todo = [(folder, pattern)]
        while todo:
            here, rest = todo.pop()
            for entry in _entries(here):
                seen += 1
                if seen > _MOST_ENTRIES:
                    return "matches too many files to be judged"
                link = entry.is_symlink()
                deeper = _continue(entry.name, rest, link=link)
                if listing:
                    deeper = [left for left in deeper if left]
                if not deeper:
                    continue
                if link and not self._below(real_name(entry.path)):
                    return f"matches {entry.name!r}, a link that leads outside the allowed folders"
                if entry.is_dir():
                    todo += [(entry.path, left) for left in deeper if left]
        return None


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []  # the engine cannot list it either


def _continue(name: str, parts: list[str], *, link: bool) -> list[list[str]]:
    """Return what is left of a pattern once an entry's name has matched its first part; nothing when it did not."""
    if not parts:
        return []
    if parts[0] == "**":
        # Like the engine: two stars do not go through links.
        through = [] if link else [parts]
        return [*through, *_continue(name, parts[1:], link=link)]
    # A name that only looks like a pattern is matched too.
    if name == parts[0] or fnmatch.fnmatchcase(name, parts[0]):
        return [parts[1:]]
    return []


def _odd(path: str) -> str | None:
    """Return what is wrong with the text of a path, wherever it leads."""
    if not path.strip():
        return "is not a path"
    if "\0" in path or len(path) > 4096:
        return "is not a path"
    if "://" in path or (_SCHEME.match(path) and not _is_drive(path)):
        return "is a URL; only local files are read"
    if path.startswith("~"):
        return "starts at a home folder; write the path out"
    if "|" in path:
        return "is a command, not a file"
    if "\\" in path and os.sep != "\\":
        return "contains a backslash; write / between folders, or rename the file"
    # Characters that only look like dots and slashes.
    normal = unicodedata.normalize("NFKC", path)
    if normal != path and (normal.count("..") > path.count("..") or normal.count("/") > path.count("/")):
        return "contains characters that only look like dots or slashes"
    return None


def _from_home(path: str) -> str:
    """Return a path that begins with ``~/`` written out, as the engine reads it: by the variable HOME alone."""
    home = os.environ.get("HOME", "")
    return home.rstrip("/") + path[1:] if path.startswith("~/") and os.path.isabs(home) else path  # noqa: PTH117 - text


def _is_drive(path: str) -> bool:
    return os.name == "nt" and len(path) > 2 and path[1] == ":" and Path(path).drive == path[:2]
