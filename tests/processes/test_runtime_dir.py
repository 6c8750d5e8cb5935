"""The folder of one owner: it goes with the owner, and those of dead owners are swept."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from nbtools.processes.runtime_dir import RuntimeDir, remove, sweep
from tests.conftest import wait_until


def test_a_folder_goes_with_its_owner(tmp_path: Path) -> None:
    folder = RuntimeDir()
    inside = folder.make("k")
    assert inside.stat().st_mode & 0o777 == 0o700
    folder.close()
    folder.close()
    assert not folder.path.exists()


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="locks of files are different there")
def test_only_folders_of_dead_owners_are_swept(tmp_path: Path) -> None:
    living = RuntimeDir()
    script = (
        "import sys, time, pathlib\nfrom nbtools.processes.runtime_dir import RuntimeDir\n"
        "print(RuntimeDir().path, flush=True)\nimport os\nos._exit(0)"
    )
    dead = Path(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip())
    assert dead.is_dir()
    assert sweep(dead.parent) == 0
    for path in (dead, living.path):
        os.utime(path, (time.time() - 120,) * 2)
    sweep(dead.parent)
    assert not dead.exists()
    assert living.path.exists()
    living.close()


@pytest.mark.skipif(sys.platform == "win32", reason="locks of files are different there")
def test_a_new_owner_sweeps_beside_its_work_also_what_was_swept_in_part(monkeypatch: Any) -> None:
    place = Path(tempfile.mkdtemp(prefix="nbt-"))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    dead = [place / "nbk-whole", place / "nbk-part"]
    for path in dead:
        path.mkdir(mode=0o700)
        (path / "left").touch()
    (dead[0] / "owner").touch()
    for path in dead:
        os.utime(path, (time.time() - 120,) * 2)
    living = RuntimeDir()
    wait_until(lambda: not any(path.exists() for path in dead))
    assert [*place.iterdir()] == [living.path]
    living.close()
    place.rmdir()


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
def test_another_users_folders_stand_in_nobodys_way(tmp_path: Path) -> None:
    owner = RuntimeDir()
    owner.hold_in_memory()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            sweep(owner.path.parent)
        except OSError:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert (owner.path / "memory").exists()
    owner.close()


@pytest.mark.skipif(sys.platform == "win32", reason="locks of files are different there")
def test_what_a_cleaner_removes_of_a_living_owner_is_made_again_and_swept_by_nobody() -> None:
    living = RuntimeDir(holding="held")
    memory = living.hold_in_memory()
    # A cleaner that goes by age takes the files first.
    (living.path / "owner").unlink()
    os.utime(living.path, (time.time() - 120,) * 2)
    sweep(living.path.parent)
    assert (living.path / "held").is_dir()
    for place in {living.path, memory}:
        remove(place)
    assert living.make("k").is_dir()
    assert (living.path / "held").is_dir()
    assert (memory.is_dir(), living.hold_in_memory()) == (True, memory)
    os.utime(living.path, (time.time() - 120,) * 2)
    sweep(living.path.parent)
    assert (living.path / "k").is_dir()
    living.close()
    assert [place for place in (living.path, memory) if place.exists()] == []
