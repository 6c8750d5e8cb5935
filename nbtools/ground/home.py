"""Where the user's state is by default: known without the settings, which take longer to import."""

from __future__ import annotations

import contextlib
import errno
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nbtools.errors import ConfigMissing, LimitExceeded, NbtoolsError, PermissionDenied


def default_home() -> Path:
    """Return the folder of the user's state when nothing else is said: the platform's user data folder.

    Raises
    ------
    ConfigMissing
        There is no home folder.
    """
    import platformdirs

    try:
        return Path(platformdirs.user_data_dir("nbtools", appauthor=False))
    except RuntimeError as exc:
        message = "you have no home folder here."
        raise ConfigMissing(message, hint="Set NBTOOLS_HOME to a folder that you may write.") from exc


def not_written(exc: OSError) -> NbtoolsError:
    """Return the error for state in the home that cannot be written or read."""
    kind = LimitExceeded if exc.errno == errno.ENOSPC else PermissionDenied
    hint = "Make room there, or set NBTOOLS_HOME to a folder that you may write."
    return kind(f"{exc.filename or 'the home'} cannot be used: {exc.strerror}.", hint=hint)


def facts_in(lock: Path) -> dict[str, Any]:
    """Return what the holder of a lock has written into its file, or an empty dict."""
    try:
        facts = json.loads(lock.read_bytes())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def make_private(folder: Path) -> None:
    """Make a folder where it is missing, and the missing ones above it, only for their owner.

    `Path.mkdir` gives those above it the mode of the umask, so that others could look in, or swap what lies there.
    """
    for missing in reversed([above for above in (folder, *folder.parents) if not above.exists()]):
        missing.mkdir(0o700, exist_ok=True)


def folder_name(text: str) -> str:
    """Return the name of a folder for any text; dots at its end can be another folder, and Windows drops them."""
    return re.sub(r"\.(?=\.*\Z)", "%2E", quote(text, safe=""))


def private(home: Path) -> None:
    """Make the home; where it cannot be made, what needs it says so."""
    with contextlib.suppress(OSError):
        make_private(home)
