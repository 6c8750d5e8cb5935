"""What carries files into and out of a remote Python kernel; its text is sent over the wire and run there.

Standard library only. Every function returns JSON text, which travels in the reply to the request: displays are
subject to the limits that servers set to output.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import tempfile

# Lists, because these functions change them and the module runs as text, where `global` reads badly.
_FOLDER: list[pathlib.Path] = []
_BEFORE: list[dict[str, tuple[int, int, int, int]]] = []
_MOST_FILES = 1_000
_SKIPPED = frozenset({"__pycache__", "node_modules"})


def begin() -> str:
    """Make the missing folders of this kernel, return where they are, and store what lies in them."""
    if not _FOLDER or not _FOLDER[0].is_dir():
        _FOLDER[:] = [pathlib.Path(tempfile.mkdtemp(prefix="nbtools-"))]
    # A session keeps its working folder, but a script may have removed any of the three.
    for name in ("in", "out", "work"):
        (_FOLDER[0] / name).mkdir(exist_ok=True)
    # No clock tells what was written later: that of file systems is behind or ahead of the processor's.
    _BEFORE[:] = [_states()]
    return json.dumps({"folder": str(_FOLDER[0])})


def put(name: str, data: str, *, append: bool) -> str:
    """Write a piece of a file, given in base64."""
    path = _FOLDER[0] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab" if append else "wb") as file:
        file.write(base64.b64decode(data))
    return json.dumps({"size": path.stat().st_size})


def list_changed() -> str:
    """List which files of the working and the output folder were changed since `begin`, with their sizes."""
    changed: dict[str, int] = {}
    for name, state in _states().items():
        if state != _BEFORE[0].get(name) and len(changed) < _MOST_FILES:
            changed[name] = state[0]
    return json.dumps({"changed": changed})


def _states() -> dict[str, tuple[int, int, int, int]]:
    """Return the size, inode and times of each file of the working and the output folder."""
    states = {}
    for top in ("work", "out"):
        for folder, folders, files in os.walk(_FOLDER[0] / top):
            folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
            for name in files:
                path = pathlib.Path(folder, name)
                if not name.startswith(".") and path.is_file() and not path.is_symlink():
                    state = path.stat()
                    key = path.relative_to(_FOLDER[0]).as_posix()
                    states[key] = (state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)
    return states


def get(name: str, at: int, size: int) -> str:
    """Send a piece of a file in base64."""
    with (_FOLDER[0] / name).open("rb") as file:
        file.seek(at)
        return json.dumps({"data": base64.b64encode(file.read(size)).decode()})


def clean() -> str:
    """Remove the folders."""
    # What the script made unreadable stays; the server's own temporary folder is swept by its system.
    while _FOLDER:
        shutil.rmtree(_FOLDER.pop(), ignore_errors=True)
    return json.dumps({})
