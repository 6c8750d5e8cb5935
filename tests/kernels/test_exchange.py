"""Tables and arrays on their way into a script, and its value on the way out: as themselves, without a pickle."""

from __future__ import annotations

import datetime as dt
import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nbtools.errors import InvalidArguments, LimitExceeded
from nbtools.kernels import Kernels
from nbtools.processes.runtime_dir import RuntimeDir, sweep

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

KINDS = pd.DataFrame(
    {
        "whole": [1, 2, 3],
        "part": [1.5, np.nan, -np.inf],
        "text": ["x", None, "z"],
        "zoned": pd.date_range("2020", periods=3, tz="Europe/Zurich"),
        "kind": pd.Categorical(["u", "v", "u"]),
        "nullable": pd.array([2**53 + 1, None, 3], dtype="Int64"),
        "flag": [True, False, True],
        "lists": [[1], [2, 3], None],
        "days": [dt.date(2020, 1, 1)] * 3,
        "moments": pd.to_datetime(["2020-01-01", None, "2020-01-03"]),
        "times": pd.to_timedelta([1, 2, 3], unit="s"),
    },
    index=pd.Index(["p", "q", "r"], name="k"),
)


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.processes), "fake"])
def kernels(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def there_and_back(kernels: Any, value: Any, **more: Any) -> Any:
    done = kernels.run("result = given", frames={"given": value}, wants_value=["result"], **more)
    assert done.ok, done.error
    return done.value


@pytest.mark.parametrize("sandbox", [None, pytest.param("strict", marks=pytest.mark.processes)])
def test_a_frame_comes_back_as_it_was(kernels: Any, sandbox: Any) -> None:
    pd.testing.assert_frame_equal(there_and_back(kernels, KINDS, sandbox=sandbox), KINDS)


@pytest.mark.parametrize(
    "make",
    [
        lambda: KINDS.groupby(["kind", "flag"], observed=True).agg({"whole": ["sum", "mean"]}),
        lambda: pd.DataFrame([[1, 2.5]], columns=["x", "x"]),
        lambda: pd.DataFrame({1: [1], ("a", 2): [2]}),
        lambda: pd.DataFrame({"x": [1, 2, 3]})[::2],
        lambda: pd.DataFrame({"x": pd.Series([], dtype="float64")}),
        lambda: pd.DataFrame(np.arange(12).reshape(3, 4, order="C"), columns=list("abcd")),
        lambda: KINDS.pivot_table(index="text", columns="days", values="whole"),
    ],
)
def test_frames_of_odd_shapes_come_back(kernels: Any, make: Callable[[], pd.DataFrame]) -> None:
    pd.testing.assert_frame_equal(there_and_back(kernels, make()), make(), check_column_type=False)


def test_frames_without_columns_keep_their_rows(kernels: Any) -> None:
    assert there_and_back(kernels, pd.DataFrame(index=range(3))).shape == (3, 0)
    assert there_and_back(kernels, pd.DataFrame()).shape == (0, 0)


def test_other_tables_and_arrays_come_back_as_what_they_are(kernels: Any) -> None:
    frame = pl.DataFrame({"a": [1, None], "b": ["x", "y"], "c": [[1], [2]]})
    assert there_and_back(kernels, frame).equals(frame)
    assert there_and_back(kernels, frame.lazy()).equals(frame)
    assert there_and_back(kernels, frame["b"]).to_list() == ["x", "y"]
    table = pa.table({"a": [1, 2], "s": [{"x": 1}, None]})
    assert there_and_back(kernels, table).equals(table)
    pd.testing.assert_series_equal(there_and_back(kernels, KINDS["part"]), KINDS["part"])
    for array in (np.arange(6.0).reshape(2, 3).T, np.array(["a", "bc"]), np.zeros((0, 2)), np.array(3)):
        np.testing.assert_array_equal(there_and_back(kernels, array), array)


def test_values_of_several_types_become_text_and_a_note_says_so(kernels: Any) -> None:
    mixed = pd.DataFrame({"o": [1, "a", None]})
    done = kernels.run("print(given.o.tolist()[:2])", frames={"given": mixed})
    assert done.stdout == "['1', 'a']\n"
    assert "column 'o' of given holds values that Arrow has no one type for" in done.notes[0]
    several = kernels.run("1", frames={"given": mixed.assign(p=mixed.o, q=1, r=mixed.o)}).notes
    assert [note.partition(" values")[0] for note in several] == ["column 'o', column 'p' and column 'r' of given hold"]


def test_what_the_script_changes_is_its_own(kernels: Any) -> None:
    frame, array = pd.DataFrame({"x": [1.0, 2.0]}), np.arange(3)
    code = "given.loc[0, 'x'] = 9\narray[0] = 9\nresult = [given.x[0], int(array[0])]"
    done = kernels.run(code, frames={"given": frame, "array": array}, wants_value=["result"])
    assert done.value == [9, 9]
    assert (frame.x[0], array[0]) == (1, 0)


def test_a_script_reads_on_what_it_was_given_whatever_the_notebook_does(tmp_path: Path, real: Kernels) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0]})

    def change(piece: Any) -> None:
        frame.loc[:, "x"] = 50.0
        del frame["x"]
        (tmp_path / "changed").touch()

    code = (
        "import os, time\nbefore = given.x.sum()\nprint('read', flush=True)\n"
        "while not os.path.exists(place): time.sleep(0.01)\nresult = [before, given.x.sum()]"
    )
    given = {"variables": {"place": str(tmp_path / "changed")}, "frames": {"given": frame}}
    done = real.run(code, on_output=change, wants_value=["result"], **given)
    assert done.value == [3.0, 3.0]
    assert frame.columns.tolist() == []


def test_no_room_for_a_frame_is_told_and_leaves_nothing(
    kernels: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __init__(self, *_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pa, "OSFile", Full)
    with pytest.raises(LimitExceeded, match="given cannot be passed to the script"):
        kernels.run("1", frames={"given": KINDS})
    monkeypatch.undo()
    assert kernels.run("result = len(given)", frames={"given": KINDS}, wants_value=["result"]).value == len(KINDS)


@pytest.mark.processes
def test_nothing_is_left_of_what_was_exchanged(tmp_path: Path) -> None:
    with Kernels(spares=0, preloads=()) as kernels:
        value = there_and_back(kernels, KINDS, cwd=tmp_path)
        kept = there_and_back(kernels, KINDS, cwd=tmp_path, sandbox="strict")
        folder = kernels._folder.path
        in_memory = (folder / "memory").resolve()
        assert [path.name for path in (*in_memory.iterdir(), *tmp_path.iterdir())] in ([], ["owner"])
    assert not in_memory.exists()
    assert not folder.exists()
    # The pages live as long as the frame does.
    pd.testing.assert_frame_equal(value, KINDS)
    pd.testing.assert_frame_equal(kept, KINDS)


def test_a_folder_in_memory_goes_when_its_owners_folder_is_gone(tmp_path: Path) -> None:
    owner = RuntimeDir()
    in_memory = owner.hold_in_memory()
    if not (owner.path / "memory").is_symlink():
        pytest.skip("the system has no folder in memory, or no room there")
    shutil.rmtree(owner.path)
    sweep(tmp_path)
    assert not in_memory.exists()


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("result = 1\n2", 1),
        ("2", 2),
        ("summary = {'a': [1]}\nresult = 3", {"a": [1]}),
        ("x = 1", None),
        ("{'frame': given, 'n': 1}", {"frame": None, "n": 1}),
    ],
)
def test_the_value_is_what_was_assigned_or_else_the_last(kernels: Any, code: str, value: Any) -> None:
    frame = pd.DataFrame({"x": [1]})
    found = kernels.run(code, frames={"given": frame}, wants_value=["summary", "result"]).value
    if isinstance(value, dict) and "frame" in value:
        pd.testing.assert_frame_equal(found.pop("frame"), frame)
        value = {"n": 1}
    assert found == value


def test_a_session_keeps_its_frames_and_gives_what_the_run_assigned(real: Kernels) -> None:
    real.run("result = 1", session="s", frames={"df": KINDS})
    assert real.run("df.shape[0]", session="s", wants_value=["result"]).value == 3
    assert real.run("result = df.shape[1]", session="s", wants_value=["result"]).value == 11


def test_what_is_handed_over_as_a_value_and_is_none_is_told(kernels: Any) -> None:
    forged = kernels.run("v = {'__stored__': '/etc/passwd', 'kind': 'array'}", wants_value=["v"])
    assert (forged.status, forged.value) == ("ok", None)
    assert forged.notes[-1].startswith("the value cannot be read: ")
    with pytest.raises(InvalidArguments, match="f is an array of Python objects") as caught:
        kernels.run("f", frames={"f": np.array([object()])})
    assert caught.value.tried == "handing f to a script"


def test_a_value_that_is_none_is_told(kernels: Any) -> None:
    done = kernels.run("object()", wants_value=["result"])
    assert done.value is None
    assert "it is an object, which JSON has no form for" in done.notes[0]
    with pytest.raises(InvalidArguments, match="array of Python objects"):
        kernels.run("1", frames={"a": np.array([object()])})
    with pytest.raises(InvalidArguments, match="cannot be the name"):
        kernels.run("1", frames={"no name": KINDS})


def test_figures_come_as_pictures(real: Kernels) -> None:
    code = "import matplotlib.pyplot as plt\nresult = plt.figure()\nplt.plot([1, 2])"
    picture = real.run(code, wants_value=["result"]).value
    assert picture.data.startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.processes
def test_a_kernel_that_is_sent_the_text_exchanges_too() -> None:
    with Kernels("spawned") as kernels:
        pd.testing.assert_frame_equal(there_and_back(kernels, KINDS), KINDS)


@pytest.mark.slow
def test_a_large_frame_takes_no_second_copy_in_the_owner() -> None:
    def own_bytes() -> int:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        # Not of files: the share of a library grows when another process that has loaded it ends.
        return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) * 1024

    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("the system tells no share of memory")
    frame = pd.DataFrame({name: np.random.default_rng(1).random(4_000_000) for name in "abcde"})
    seen: list[int] = []
    with Kernels() as kernels:
        kernels.run("1")
        before = own_bytes()
        kernels.run("print('here')", frames={"df": frame}, on_output=lambda _: seen.append(own_bytes()))
    assert max(seen) - before < 40_000_000, "160 MB were given to the script"
