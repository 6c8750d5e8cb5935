"""What a caller asks of kernels is checked before anything starts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nbtools import Workbench
from nbtools.errors import FileMissing, InvalidArguments, LimitExceeded, PathNotAllowed
from nbtools.ground.paths import Roots
from nbtools.kernels import Kernels, OutputLimits, validation


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e12, "300", True, None])
def test_a_timeout_that_makes_no_sense_is_refused(value: object) -> None:
    with pytest.raises(InvalidArguments):
        validation.check_seconds(value, "timeout")


@pytest.mark.parametrize("code", [b"print(1)", None, 3, "a\0b", "print('\ud800')", "x\n\udcff"])
def test_code_that_is_no_text_is_refused(code: object) -> None:
    with pytest.raises(InvalidArguments):
        validation.check_code(code)


def test_code_that_is_too_long_says_by_how_much() -> None:
    with pytest.raises(LimitExceeded, match=f"is {validation._MAX_CODE + 1:,} characters long"):
        validation.check_code("#" * (validation._MAX_CODE + 1))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("limits", OutputLimits(text_bytes="20 MB"), "text_bytes='20 MB'"),
        ("limits", OutputLimits(display_bytes=-1), "display_bytes=-1"),
        ("limits", 20, "limits=20 is int, not OutputLimits"),
        ("memory_bytes", "4G", "memory_bytes='4G'"),
        ("memory_bytes", -1, "memory_bytes=-1"),
        ("processes", 0, "processes=0"),
        ("cpu_s", 0, "cpu_s=0"),
        ("file_bytes", 1.5, "file_bytes=1.5"),
        ("spares", "x", "spares='x'"),
        ("spares", None, "spares=None"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_before_a_kernel_starts(name: str, value: object, said: str) -> None:
    with pytest.raises(InvalidArguments, match=said):
        Kernels(**{name: value})


@pytest.mark.parametrize("name", ["", " a", "a/b", "a\nb", "x" * 65, "..", "a\0", None])
def test_odd_names_of_sessions_are_refused(name: object) -> None:
    with pytest.raises(InvalidArguments):
        validation.check_name(name)


@pytest.mark.parametrize("name", ["analysis", "Umsätze 2026", "a.b_c-d:e@f+1"])
def test_ordinary_names_of_sessions_are_taken(name: str) -> None:
    assert validation.check_name(name) == name


def test_a_working_folder_must_exist_and_be_allowed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "file").write_text("")
    roots = Roots([tmp_path / "in"])
    assert validation.check_folder(tmp_path / "in", roots) == tmp_path / "in"
    with pytest.raises(PathNotAllowed):
        validation.check_folder(tmp_path, roots)
    with pytest.raises(FileMissing):
        validation.check_folder(tmp_path / "absent", None)
    with pytest.raises(InvalidArguments):
        validation.check_folder(tmp_path / "file", None)
    with pytest.raises(InvalidArguments):
        validation.check_folder("a\0b", None)


@pytest.mark.parametrize("folder", [3, None, "a\0b"])
def test_what_names_no_folder_is_refused(folder: object) -> None:
    with pytest.raises(InvalidArguments):
        validation.check_folder(folder, None)


def test_variables_must_be_json_under_usable_names(tmp_path: Path) -> None:
    assert validation.check_variables({"path": tmp_path, "n": 1}) == {"path": str(tmp_path), "n": 1}
    for wrong in ({"a b": 1}, {"x": object()}, {"": 1}, {"x": [{1: "one", "1": "uno"}]}):
        with pytest.raises(InvalidArguments):
            validation.check_variables(wrong)


def test_a_variable_that_json_makes_another_value_of_is_told(tmp_path: Path) -> None:
    given = {"same": [1, {"a": math.nan}], "path": tmp_path, "keys": {1: "one"}, "pair": [(1, 2)]}
    notes = validation.changed_variables(given, validation.check_variables(given))
    assert [note.partition(" ")[0] for note in notes] == ["keys", "pair"]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(InvalidArguments):
        validation.check_level("tight")


def test_a_refused_working_folder_names_no_way_in_where_there_is_none(tmp_path):
    (tmp_path / "a").mkdir()
    for allow_more in (True, False):
        how = {"memory_url": ":memory:", "home": tmp_path / "home", "allowed_paths": [tmp_path / "a"]}
        with Workbench(allow_more=allow_more, **how) as bench, pytest.raises(PathNotAllowed) as refused:
            bench.kernels.run("1", cwd=tmp_path)
        assert ("ALLOWED_PATHS" in str(refused.value.hint)) is allow_more
