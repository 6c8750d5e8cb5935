"""What happens to kernels while nobody looks: their folders are cleaned away, they are idle, they are killed."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from nbtools.kernels import Kernels

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="what is open cannot be removed there")


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder for temporary files that is short, and this test's own."""
    with tempfile.TemporaryDirectory(prefix="nbt-", ignore_cleanup_errors=True) as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        yield Path(place)


def test_kernels_go_on_when_the_folder_for_temporary_files_is_cleaned(cleaned: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    write = "import tempfile\nopen('f', 'w').write('x')\ntempfile.TemporaryFile()\n"
    with Kernels(spares=1, preloads=()) as kernels:
        assert kernels.run("q = 5", session="s").ok
        assert kernels.run("x=7", session="b", language="bash").ok
        kernels.warm()
        for entry in cleaned.iterdir():
            shutil.rmtree(entry, ignore_errors=True)
        done = kernels.run(f"{write}print(q)", session="s")
        assert (done.status, done.stdout, [path.name for path in done.artifacts]) == ("ok", "5\n", ["f"])
        assert "removed by somebody else" in done.notes[-1]
        assert kernels.run("touch g; echo $x", session="b", language="bash").stdout == "7\n"
        for _ in range(2):
            done = kernels.run(f"{write}print(len(df))\nresult = df", frames={"df": frame}, wants_value=("result",))
            assert (done.status, done.stdout, [path.name for path in done.artifacts]) == ("ok", "2\n", ["f"])
            assert len(done.value) == 2
        assert kernels.run("q", session="s").notes == ()
    assert not list(cleaned.iterdir())
