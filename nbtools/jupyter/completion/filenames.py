"""File names that a beginning may become."""

from __future__ import annotations

from pathlib import Path

_MOST = 2_000


def matching_files(fragment: str) -> list[str]:
    """Return the files and folders of the folder that is being written, hidden ones only when asked for."""
    head, slash, tail = fragment.rpartition("/")
    folder = Path(head + slash).expanduser() if head + slash else Path()
    try:
        entries = sorted(folder.iterdir(), key=lambda path: path.name)[:_MOST]
    except OSError:
        return []
    listed = [path for path in entries if tail.startswith(".") or not path.name.startswith(".")]
    return [f"{head}{slash}{path.name}" + ("/" if path.is_dir() else "") for path in listed]


def quote(text: str) -> str:
    """Return a text as one word of a line."""
    return f'"{text}"' if any(sign.isspace() for sign in text) else text
