"""Attacks tried apart: by an ordinary user, in namespaces that end with the test whatever is left in them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

__all__ = ["run_apart"]

REPOSITORY = Path(__file__).resolve().parents[1]
_NOBODY = "65534"
_FIRST = """
import json, os, pathlib, sys, tempfile, time
HOME = pathlib.Path(os.environ["HOME"])
# The system takes it from programs that lose rights when they are started.
os.environ["TMPDIR"] = tempfile.tempdir = str(HOME.parent)
from nbtools.kernels import Kernels
def others():
    "Return the processes that are neither this one nor zombies."
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in (1, os.getpid()):
            try:
                state = (entry / "stat").read_text().rpartition(") ")[2][:1]
            except OSError:
                continue
            if state not in "ZX":
                found.append(int(entry.name))
    return found
def settle(condition, seconds=10):
    "Wait until a condition is true, and return its value."
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()
"""
_LAST = "\nprint('ANSWER' + json.dumps(answer), flush=True)\n"


@functools.cache
def _way_apart() -> tuple[tuple[str, ...], bool]:
    """Return the command that starts another one apart, and whether that runs as nobody."""
    if shutil.which("unshare") is None:
        pytest.skip("attacks are tried in a namespace of their own, and unshare is not installed")
    # Its processes and its shared memory are its own: what other tests do meanwhile is not seen.
    spaces = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    own_memory = ("sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh")
    # In a namespace of users nobody has a right outside of it, whoever starts it.
    user = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    ways: list[tuple[tuple[str, ...], bool]] = [((*spaces, "--map-root-user", *own_memory, *user), False)]
    if os.getuid() == 0 and shutil.which("setpriv"):
        who = ("setpriv", "--reuid", _NOBODY, "--regid", _NOBODY, "--clear-groups", "--bounding-set=-all")
        ways.append(((*spaces, *own_memory, *who), True))
    said = ""
    for way, is_nobody in ways:
        trial = "import subprocess, sys, zmq; sys.exit(subprocess.call([sys.executable, '-c', '']))"
        tried = subprocess.run([*way, sys.executable, "-c", trial], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return way, is_nobody
        said = tried.stderr.strip().splitlines()[-1:] and tried.stderr.strip().splitlines()[-1]
    pytest.skip(f"attacks are tried in a namespace of their own, which cannot be had here: {said}")


def run_apart(code: str, *, seconds: float = 90.0, **names: Any) -> dict[str, Any]:
    """Run Python text in a namespace of its own, as someone without rights; return its dict ``answer``.

    Where this host makes no such namespace the test is skipped, and says so.
    """
    own, is_nobody = _way_apart()
    with tempfile.TemporaryDirectory(prefix="nba-") as place:
        home = Path(place) / "home"
        home.mkdir()
        if is_nobody:
            for path in (Path(place), home):
                os.chown(path, int(_NOBODY), int(_NOBODY))
        env = {
            **{name: os.environ[name] for name in ("PATH", "LANG", "NBTOOLS_PRELOADS") if name in os.environ},
            "HOME": str(home),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MPLCONFIGDIR": place,
            "SECRET_OF_OWNER": "sk-hidden",
        }
        head = f"names = {names!r}\nglobals().update(names)\n"
        done = subprocess.run(
            [*own, sys.executable, "-c", _FIRST + head + code + _LAST],
            capture_output=True,
            text=True,
            timeout=seconds,
            cwd=home,
            env=env,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    assert lines, (done.returncode, done.stdout[-2000:], done.stderr[-4000:])
    answer: dict[str, Any] = json.loads(lines[-1].removeprefix("ANSWER"))
    return answer
