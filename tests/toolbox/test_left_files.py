"""Files that confined scripts leave, and those that they are given: through the whole workbench, by its real tools."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools import Workbench
from nbtools.confine import capabilities
from nbtools.contract.result import Artifact, ToolResult
from nbtools.ground.paths import Roots
from nbtools.kernels import Kernels, artifacts
from tests.conftest import repeated

pytestmark = pytest.mark.processes

strict = pytest.mark.skipif(not capabilities().can("strict"), reason="this host cannot confine strictly")
CALLERS = [pytest.param("model", marks=strict), "python"]
CSV = "species,mass\nAdelie,3700\nGentoo,5000\n,\n"
CLEAN = "import pandas as pd\npd.read_csv(input_file_path).dropna().to_csv('clean.csv', index=False)"
PLOT = "import pandas as pd\npd.read_csv(input_file_path).mass.plot()"
SECRET = "the key of someone"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("work").resolve()
    (made.parent / "outside").mkdir(exist_ok=True)
    (made.parent / "outside" / "key.txt").write_text(SECRET)
    return made


@pytest.fixture(scope="module")
def secret(root: Path) -> Path:
    return root.parent / "outside" / "key.txt"


@pytest.fixture(scope="module")
def shared(root: Path) -> Iterator[Workbench]:
    with Workbench(memory_url=":memory:", home=root.parent / "home", allowed_paths=[root]) as opened:
        yield opened


@pytest.fixture
def bench(shared: Workbench, root: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    monkeypatch.chdir(root)
    (root / "data.csv").write_text(CSV)
    for picture in root.rglob("*.png"):
        picture.unlink()  # replacing one would be asked for
    return shared


def analyze(bench: Workbench, script: str, caller: Any = "model", **more: Any) -> ToolResult:
    return bench.call("data_analyze", {"input_file_path": "data.csv", "analysis_script": script, **more}, caller=caller)


def draw(bench: Workbench, script: str, path: str = "chart.png", file: str = "data.csv", caller: Any = "model") -> Any:
    given = {"input_file_path": file, "visualization_script": script, "output_image_path": path}
    return bench.call("data_visualize", given, caller=caller)


# -- three calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("tool", ["sql_query", "file_read"])
def test_a_file_is_cleaned_plotted_and_asked_in_three_calls(bench, root, caller, tool) -> None:
    cleaned = analyze(bench, CLEAN, caller).raise_for_error()
    (name,) = cleaned.data["artifacts"]
    assert name == (str(root / "clean.csv") if caller == "python" else "artifacts/clean.csv")
    assert cleaned.text == ("" if caller == "python" else f"wrote {name}\n")
    draw(bench, PLOT, file=name, caller=caller).raise_for_error()
    question = {"query": f"select sum(mass) as n from '{name}'"} if tool == "sql_query" else {"path": name}
    assert ("8700" in bench.call(tool, question, caller=caller).text) is (tool == "sql_query")
    assert bench.call(tool, question, caller=caller).ok


@strict
def test_what_a_model_left_is_listed_found_and_asked(bench) -> None:
    analyze(bench, "import os\nos.makedirs('out')\nopen('out/a.csv', 'w').write('n\\n1\\n')").raise_for_error()
    assert "a.csv" in bench.call("file_list", {"path": "artifacts/out"}).text
    assert bench.call("file_glob", {"pattern": "**/a.csv", "base_path": "artifacts"}).text == "artifacts/out/a.csv"
    for file in ("artifacts/out/a.csv", "artifacts/out/*.csv"):
        assert bench.call("sql_query", {"query": f"select * from '{file}'"}, caller="model").data["rows"] == [[1]]


@strict
def test_a_name_without_the_folder_gets_the_hint(bench) -> None:
    analyze(bench, "open('left.csv', 'w').write('n\\n1\\n')").raise_for_error()
    missing = bench.call("file_read", {"path": "left.csv"}, caller="model")
    assert missing.error.hint == "A script left it: it is read as artifacts/left.csv."


@strict
def test_what_scripts_left_is_never_written_nor_worked_in(bench) -> None:
    analyze(bench, "open('left.csv', 'w').write('n\\n1\\n')").raise_for_error()
    place = bench.artifacts
    for tool, given in (
        ("file_write", {"path": str(place / "left.csv"), "content": "x"}),
        ("file_delete", {"path": str(place / "left.csv")}),
        ("code_execute", {"code": "1", "working_dir": "artifacts"}),
        ("code_execute", {"code": "1", "working_dir": str(place)}),
    ):
        assert bench.call(tool, given).error.code == "PATH_NOT_ALLOWED"
    refused = analyze(bench, f"open({str(place / 'left.csv')!r}, 'w')")
    assert "PermissionError" in refused.error.message
    assert (place / "left.csv").read_text() == "n\n1\n"
    bench.call("file_write", {"path": "artifacts/mine.txt", "content": "x"}).raise_for_error()
    assert Path("artifacts/mine.txt").read_text() == "x"


# -- what a model does naturally -------------------------------------------------------------------------------------


@strict
def test_the_input_is_in_the_scripts_folder_under_its_own_name_and_read_only(bench, root) -> None:
    result = analyze(bench, "print(open('data.csv').readline().strip())\nopen('data.csv', 'a')")
    assert result.data["stdout"] == "species,mass\n"
    assert "PermissionError" in result.error.message
    assert "own folder" in result.error.hint
    assert (root / "data.csv").read_text() == CSV


@strict
def test_a_refused_read_is_told_what_may_be_read(bench) -> None:
    result = analyze(bench, "open('/etc/shadow').read()")
    assert result.error.hint.startswith("A script reads only below the allowed folders")


@strict
@pytest.mark.parametrize("path", ["chart.png", "charts/new.png"])
@pytest.mark.parametrize("saved", ["{path}", "{name}"])
def test_a_picture_saved_under_the_given_name_is_the_picture(bench, root, path, saved) -> None:
    name = saved.format(path=path, name=Path(path).name)
    script = f"import matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig({name!r})\nplt.close('all')"
    result = draw(bench, script, path).raise_for_error()
    assert result.data["artifacts"] == [str(root / path)]
    assert (root / path).read_bytes().startswith(b"\x89PNG")


@strict
def test_a_picture_saved_where_it_may_not_be_gets_the_hint(bench, root) -> None:
    script = f"import matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig({str(root / 'there.png')!r})"
    assert "output_image_path" in draw(bench, script, "there.png").error.hint


# -- what a script put in place of a file --------------------------------------------------------------------------


def swaps(tmp_path: Path) -> dict[str, Any]:
    """Return what may be put in place of a file, by name."""
    target = tmp_path / "secret.txt"
    target.write_text(SECRET)

    def folder(path: Path) -> None:
        path.mkdir()
        (path / "inner").symlink_to(target)

    def device(path: Path) -> None:
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # zeros without end
        except OSError:
            pytest.skip("devices cannot be made here")

    return {
        "link": lambda path: path.symlink_to(target),
        "loop": lambda path: path.symlink_to(path),
        "pipe": os.mkfifo,
        "socket": lambda path: socket.socket(socket.AF_UNIX).bind(os.path.relpath(path)),
        "device": device,
        "folder": folder,
    }


SWAPS = ["link", "loop", "pipe", "socket", "device", "folder"]


@pytest.mark.parametrize("kind", SWAPS)
@pytest.mark.parametrize("move", [True, False])
def test_what_is_no_file_any_more_is_not_kept(tmp_path, kind, move) -> None:
    """Found as files, then swapped before they are taken: the moment that a process left running waits for."""
    folder, place = tmp_path / "script", tmp_path / "place"
    (folder / "deep").mkdir(parents=True)
    for name in ("good.txt", "bad.txt", "deep/lost.txt"):
        (folder / name).write_text("harmless")
    found = [folder / name for name in ("good.txt", "bad.txt", "deep/lost.txt")]
    (folder / "bad.txt").unlink()
    swaps(tmp_path)[kind](folder / "bad.txt")
    (folder / "deep").rename(folder / "other")
    (folder / "deep").symlink_to(tmp_path)
    (tmp_path / "lost.txt").write_text(SECRET)
    kept, notes = artifacts.keep(found, folder, place, move=move)
    assert list(kept.values()) == [place / "good.txt"]
    assert "2 of the files" in notes[0]
    assert [path.name for path in place.rglob("*") if not path.is_dir()] == ["good.txt"]
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", SWAPS)
def test_an_artifact_is_read_through_no_link_later_on(tmp_path, kind) -> None:
    path = tmp_path.resolve() / "x.txt"
    path.write_text("harmless")
    artifact = Artifact.from_path(path)
    assert artifact.read() == b"harmless"
    path.unlink()
    swaps(tmp_path)[kind](path)
    with pytest.raises(OSError, match=r"x\.txt"):
        artifact.read()


# Whatever a script can leave beside its files; devices only where it may make them.
LEAVINGS = """
import contextlib, os, socket, stat
os.mkfifo('pipe.csv')
socket.socket(socket.AF_UNIX).bind('socket.csv')
os.symlink('loop.csv', 'loop.csv')
os.mkdir('sub'); os.symlink('..', 'sub/up'); os.symlink('/dev/zero', 'zeros.csv')
with contextlib.suppress(OSError):
    os.mknod('device.csv', 0o666 | stat.S_IFCHR, os.makedev(1, 5))
with open('sparse.bin', 'wb') as file:
    file.truncate(8 << 30)
open('good.csv', 'w').write('a')
"""


@strict
@pytest.mark.parametrize("session", [None, "leaving"])
def test_nothing_that_is_left_holds_up_the_workbench(bench, session) -> None:
    before = set(bench.artifacts.rglob("*")) if bench.artifacts.exists() else set()
    result = analyze(bench, LEAVINGS, session=session, timeout=60)
    assert result.ok, result
    left = {Path(artifact.path).name: artifact.size for artifact in result.artifacts}
    # A session keeps its folder, and a copy of 8 GiB is more than is copied.
    assert left == {"good.csv": 1} | ({} if session else {"sparse.bin": 8 << 30})
    kept = set(bench.artifacts.rglob("*")) - before
    assert all(path.is_file() and not path.is_symlink() for path in kept)
    assert {path.name for path in kept} <= set(left)
    assert sum(path.lstat().st_blocks * 512 for path in kept) < 1 << 20
    # Other tests of this workbench read all that it has kept.
    (bench.artifacts / "sparse.bin").unlink(missing_ok=True)
    assert bench.call("calculator", {"expression": "1"}).ok


@pytest.mark.parametrize(
    "left",
    [
        "os.mkfifo(output_image_path)",
        "import socket; socket.socket(socket.AF_UNIX).bind(os.path.relpath(output_image_path))",
        "os.symlink(output_image_path, output_image_path)",
        "os.symlink('/dev/zero', output_image_path)",
    ],
)
def test_a_picture_that_is_no_file_is_no_picture(bench, left) -> None:
    result = draw(bench, f"import os\n{left}", "odd.png", caller="python")
    assert not result.ok
    assert result.artifacts == ()
    assert bench.call("calculator", {"expression": "1"}).ok


@strict
def test_a_session_that_swaps_its_file_for_a_link_gives_what_it_left(bench, secret) -> None:
    first = analyze(bench, "open('x.txt', 'w').write('harmless')", session="swap").raise_for_error()
    linked = analyze(
        bench, f"import os\nos.remove('x.txt'); os.symlink({str(secret)!r}, 'x.txt')", session="swap"
    ).raise_for_error()
    assert linked.artifacts == ()
    assert first.artifacts[0].read() == b"harmless"
    assert bench.call("file_read", {"path": "artifacts/x.txt"}, caller="model").text == "harmless"


FLIPPING = """
import os, threading, time
if 'flipping' not in globals():
    def flip():
        while True:
            try:
                open('t1', 'w').write('harmless'); os.replace('t1', 'x.txt')
                time.sleep(0.001)
                os.symlink({secret!r}, 't2'); os.replace('t2', 'x.txt')
                time.sleep(0.001)
                os.mkfifo('t3'); os.replace('t3', 'x.txt')
                time.sleep(0.001)
            except OSError:
                pass
    flipping = threading.Thread(target=flip, daemon=True); flipping.start()
time.sleep(0.02)
"""


@strict
def test_a_thread_that_flips_a_file_gets_nothing_through(bench, secret) -> None:
    script = FLIPPING.format(secret=str(secret))
    for _ in range(25):
        result = analyze(bench, script, session="flip", timeout=20)
        assert result.ok, result
        read = [artifact.read() for artifact in result.artifacts if Path(artifact.path).name == "x.txt"]
        assert read in ([], [b"harmless"], [b""])
    assert SECRET.encode() not in b"".join(p.read_bytes() for p in bench.artifacts.rglob("*") if p.is_file())


# -- what a script is given --------------------------------------------------------------------------------------------


@strict
def test_an_input_that_became_a_link_is_not_opened_for_the_script(root, secret) -> None:
    """What is named below a root was judged there; where it leads now is not asked again."""
    (root / "folder").symlink_to(secret.parent)
    given = root / "folder" / "key.txt"
    with Kernels(spares=0, preloads=(), allowed_paths=[root], sandbox="strict") as kernels:
        done = kernels.run(f"print(open({str(given)!r}).read())", inputs_paths=[given])
    (root / "folder").unlink()
    assert done.error is not None
    assert done.error.name == "PermissionError"
    assert SECRET not in done.stdout


# -- load --------------------------------------------------------------------------------------------------------------


def test_large_files_hold_up_nobody_and_it_is_told_that_they_are_not_hashed(bench) -> None:
    waits: list[float] = []

    def ask() -> None:
        begun = time.monotonic()
        bench.call("calculator", {"expression": "1"})
        waits.append(time.monotonic() - begun)

    sparse = "for i in range(60): open(f'b{i}.bin', 'wb').truncate(1900 * 2**20)"
    with repeated(ask):
        begun = time.monotonic()
        result = analyze(bench, sparse)
        took = time.monotonic() - begun
    assert result.ok, result
    assert len(result.artifacts) == 60
    assert any("60 of the files have no SHA-256" in note for note in result.data["notes"])
    assert took < 40, "to hash them takes minutes"
    assert max(waits) < 20


def test_more_files_than_are_told_are_said_to_be_more(bench) -> None:
    result = analyze(bench, "for i in range(1_100): open(f'n{i}.txt', 'w').close()")
    assert len(result.artifacts) == len(result.data["artifacts"]) == 1_000
    assert "there may be more" in result.data["notes"][0]
    assert sum(1 for _ in bench.artifacts.rglob("*.*")) <= 1_000


def test_only_roots_are_written_when_nothing_was_left(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    roots = Roots([tmp_path], artifacts=lambda: tmp_path.parent / "none")
    assert roots.resolve("artifacts/x", must_exist=False, for_writing=True) == roots.start() / "artifacts" / "x"


@strict
def test_a_file_that_a_script_left_is_copied_to_where_it_is_wanted(bench, root) -> None:
    analyze(bench, CLEAN).raise_for_error()
    (root / "kept.csv").unlink(missing_ok=True)
    moved = bench.call("file_move", {"source": "artifacts/clean.csv", "dest": "kept.csv"}).raise_for_error()
    assert moved.text == "artifacts/clean.csv copied to kept.csv"
    assert (root / "kept.csv").read_text() == (bench.artifacts / "clean.csv").read_text()
    again = bench.call("file_move", {"source": "artifacts/clean.csv", "dest": "kept.csv"})
    assert again.error.code == "FILE_EXISTS"
    back = bench.call("file_move", {"source": "kept.csv", "dest": str(bench.artifacts / "new.csv")})
    assert back.error.code == "PATH_NOT_ALLOWED"
    assert (root / "kept.csv").exists()
