"""How many functions of ours a call enters: each is a place that a reader must visit to follow it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_COUNTING = """
import json, pathlib, sys, threading
import nbtools

root = str(pathlib.Path(nbtools.__file__).parent) + "/"
entered, is_counting = set(), False


def note(frame, event, argument):
    code = frame.f_code
    # A comprehension or a lambda is read where it stands, so it is not a step of its own.
    if is_counting and event == "call" and code.co_filename.startswith(root) and code.co_name[0] != "<":
        entered.add(f"{code.co_filename[len(root):]} {code.co_qualname}")


def count(call, before=lambda: None):
    '''Print what every round of a call enters: on a busy machine others' work reaches into some rounds.'''
    global entered, is_counting
    rounds = []
    for _ in range(10):
        before()
        entered, is_counting = set(), True
        call()
        is_counting = False
        rounds.append(entered)
    print(json.dumps(sorted(set.intersection(*rounds))))


# Before the loop's thread starts: a profile function reaches only threads that start after it.
threading.setprofile(note)
sys.setprofile(note)
"""


def functions_entered(program: str, *, cwd: Path, env: Mapping[str, str] | None = None) -> list[str]:
    """Return the functions, each after its file, that every round of a call enters, which a program counts by `count`.

    It runs in a process of its own: a thread that other tests have started cannot be watched.
    """
    done = subprocess.run([sys.executable, "-c", _COUNTING + program], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return names
