"""What a fork has from the process that it comes from, and cannot take on later.

Interpreter, code, flags, and what libraries read from the environment while they are imported: where one of these
differs, a fork would be another process than one that is started here. Importing this module takes next to no time.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PLACE = "warm"
"""The folder in the user's own that has a folder for each process."""
SOCKET = "socket"
"""The name of a process's socket there."""

# What libraries read while they are imported. The rest of the environment each fork gets from its owner.
_AT_IMPORT = (
    *("HOME", "USER", "LOGNAME", "TZ", "LANGUAGE", "VIRTUAL_ENV", "JUPYTER_PLATFORM_DIRS"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
)
_AT_IMPORT_STARTS = (
    *("LANG", "LC_", "LD_", "PYTHON", "MPL", "NUMPY", "NPY_", "PANDAS", "OMP_", "MKL_", "OPENBLAS", "GOTO_", "BLIS_"),
    *("NUMEXPR", "VECLIB", "KMP_", "ARROW_", "DUCKDB", "POLARS", "SKLEARN", "JOBLIB", "LOKY", "MALLOC_"),
)
_CODE = Path(__file__).parents[2]
# All but how sys.path begins: a fork gets the path of whom it works for.
_FLAGS = ("optimize", "dev_mode", "utf8_mode", "isolated", "ignore_environment", "bytes_warning", "no_user_site")


def read_at_import(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that libraries read while they are imported.

    Without the backend that ipykernel names in each notebook: kernels get it anyway, and commands draw nothing.
    """
    variables = {name: value for name, value in env.items() if name in _AT_IMPORT or name.startswith(_AT_IMPORT_STARTS)}
    return {name: value for name, value in variables.items() if name != "MPLBACKEND" or "inline" not in value}


def newest_code() -> int:
    """Return when a file of this package was changed last: a checkout that someone works on has no version."""
    newest, folders = 0, [str(_CODE)]
    # As strings: with objects for paths it takes four times as long, and every first script and command waits for it.
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    newest = max(newest, entry.stat().st_mtime_ns)
                elif entry.is_dir() and entry.name != "__pycache__":
                    folders.append(entry.path)
    return newest


def name_of(*more: Any) -> str:
    """Return a name that differs where interpreter, code or `more` differ."""
    # An environment has several names for the same interpreter.
    parts = [os.path.realpath(sys.executable), sys.version, sys.prefix, str(_CODE), *more]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def commands_place(home: Path) -> Path:
    """Return the folder of the process in which commands run that are started as this process was."""
    flags = [getattr(sys.flags, name) for name in _FLAGS]
    return home.absolute() / PLACE / f"cli{name_of(flags, sys.warnoptions, read_at_import(os.environ))}"


def is_private(folder: Path) -> bool:
    """Tell whether a folder is this user's and closed to all others."""
    try:
        state = folder.lstat()
    except OSError:
        return False
    return state.st_uid == os.getuid() and not state.st_mode & 0o077
