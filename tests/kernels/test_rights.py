"""Whose rights a run has: in a session, for callers of other folders, and where a level cannot be had."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from nbtools.errors import InvalidArguments, PathNotAllowed, WorkbenchClosed
from nbtools.kernels import FakeKernels, KernelOptions, RunContext
from nbtools.kernels.other_folders import KernelsForFolders
from nbtools.kernels.runs.requests import RunRequest, settled_level, within

_STRICT = KernelOptions(sandbox="strict")


def _request(**options: object) -> RunRequest:
    asked = dataclasses.replace(_STRICT, **options)  # type: ignore[arg-type]
    context = RunContext(cwd=Path("/mine"), memory=object())
    return RunRequest(code="1", options=asked, context=context, timeout=None, grace=1, on_output=None, session="s")


@pytest.mark.parametrize(
    ("language", "is_elsewhere", "level", "why"),
    [
        ("python", True, "off", "the gateway runs the kernel"),
        ("kernel:ir", False, "limits", "such a kernel opens its sockets by itself"),
    ],
)
def test_where_nobody_named_the_level_a_lower_one_is_taken_and_said(
    language: str, is_elsewhere: bool, level: str, why: str
) -> None:
    settled = asyncio.run(settled_level(_request(language=language), explicit=False, is_elsewhere=is_elsewhere))
    assert settled.options.sandbox == level
    assert settled.is_guarded
    assert settled.notes[0].startswith(f"sandbox='strict' is not in force here: {why}")


def test_a_run_in_a_strict_session_has_the_rights_of_that_alone() -> None:
    asked = _request(sandbox="limits")
    assert within(asked, asked.options) is asked
    narrowed = within(asked, dataclasses.replace(_STRICT, cwd=Path("/its")))
    assert (narrowed.options.sandbox, narrowed.context.cwd, narrowed.context.memory) == ("strict", Path("/its"), None)
    assert narrowed.is_guarded
    assert narrowed.notes == ("session 's' is strict: this ran with its rights, in /its and without the memory",)
    assert within(asked, _STRICT).notes == (
        "session 's' is strict: this ran with its rights, in its own folder and without the memory",
    )


def test_a_session_gives_no_more_than_its_level_and_the_open_folders(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    with FakeKernels(allowed_paths=[inside]) as kernels:
        kernels.run("1", session="s", cwd=inside)
        assert kernels.gives_rights_of("s", None)
        assert not kernels.gives_rights_of("s", "strict")
        with pytest.raises(PathNotAllowed):
            kernels.run("1", cwd=outside)
        kernels.allow(outside)
        assert kernels.run("1", cwd=outside).ok


def test_a_session_that_took_strangers_texts_keeps_that() -> None:
    with FakeKernels() as kernels:
        assert not kernels.is_theirs("s", from_now=True)
        kernels.run("1", session="s")
        assert not kernels.is_theirs("s")
        assert kernels.is_theirs("s", from_now=True)
        assert kernels.is_theirs("s")


def test_callers_of_other_folders_see_the_same_sessions_in_their_own_folders(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    theirs.mkdir()
    kernels = FakeKernels(allowed_paths=[mine])
    others = KernelsForFolders(kernels, [theirs], may_grow=False)
    with others:
        assert others.run("x = 1", session="s", cwd=theirs).ok
        assert others.run("print(x)", session="s", cwd=theirs).stdout == "1\n"
        assert [shown["name"] for shown in kernels.list()] == ["s"]
        with pytest.raises(PathNotAllowed):
            others.run("1", cwd=mine)
        with pytest.raises(PathNotAllowed):
            kernels.run("1", cwd=theirs)
    with pytest.raises(WorkbenchClosed):
        kernels.run("1")


def test_a_session_is_of_one_language_and_of_one_level() -> None:
    with FakeKernels({"ls": ""}) as kernels:
        kernels.run("ls", language="bash", session="s")
        with pytest.raises(InvalidArguments, match="Session 's' speaks bash, not python"):
            kernels.run("1", session="s")
        kernels.run("1", session="p", sandbox="limits")
        with pytest.raises(InvalidArguments, match=r"was started with other rights \(sandbox='limits'\)"):
            kernels.run("1", session="p", sandbox="off")


def test_what_cannot_be_copied_says_why() -> None:
    with FakeKernels() as kernels:
        kernels.run("1", session="s")
        with pytest.raises(InvalidArguments, match="Session 's' cannot be copied: its kernel is not a fork"):
            kernels.session("s").fork("t")
        with pytest.raises(InvalidArguments, match="There is no session 'z'"):
            kernels.session("z").fork("t")
        with pytest.raises(InvalidArguments, match="A session 's' already exists"):
            kernels.session("s").fork("s")
        with pytest.raises(InvalidArguments, match="Session 's' is not a copy"):
            kernels.adopt("s")
        with pytest.raises(InvalidArguments, match="before its last run was not kept") as caught:
            kernels.undo("s")
        assert "%kernels keep s" in str(caught.value.hint)
        kernels._sessions.find("s").lease.kernel.alive = False  # type: ignore[union-attr]
        with pytest.raises(InvalidArguments, match="Session 's' has no kernel to copy"):
            kernels.session("s").fork("t")
