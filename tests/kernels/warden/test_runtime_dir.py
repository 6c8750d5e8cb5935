"""The folder of one owner: it goes with the owner, and those of dead owners are swept."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nbtools.kernels.warden.runtime_dir import RuntimeDir, sweep


def test_a_folder_goes_with_its_owner(tmp_path: Path) -> None:
    folder = RuntimeDir()
    inside = folder.make("k")
    assert inside.stat().st_mode & 0o777 == 0o700
    folder.close()
    folder.close()
    assert not folder.path.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="locks of files are different there")
def test_only_folders_of_dead_owners_are_swept(tmp_path: Path) -> None:
    living = RuntimeDir()
    script = (
        "import sys, time, pathlib\nfrom nbtools.kernels.warden.runtime_dir import RuntimeDir\n"
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
