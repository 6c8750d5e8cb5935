"""A session in the hand: what its handle does, and what is left when it is closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbtools.errors import CallTimeout, ExecutionFailed, InvalidArguments, KernelDied, LimitExceeded
from nbtools.ground import aio
from nbtools.kernels import ErrorDetail, Execution, FakeKernels


@pytest.fixture
def kernels() -> Iterator[FakeKernels]:
    with FakeKernels() as made:
        yield made


def test_a_session_keeps_its_variables_from_run_to_run(kernels: FakeKernels) -> None:
    session = kernels.session("a")
    assert repr(session) == "<session 'a': python, not started>"
    session.run("x = 41")
    assert session.run("print(x + 1)").stdout == "42\n"
    assert kernels.session("a").run("x + 1").displays == ({"text/plain": "42"},)
    assert (session.state, session.run("x").session) == ("idle", "a")
    assert "x" in {variable["name"] for variable in session.variables()}


def test_a_restarted_session_has_forgotten_its_variables(kernels: FakeKernels) -> None:
    session = kernels.session("a")
    session.run("x = 1")
    session.restart()
    assert session.state == "idle"
    assert str(session.run("x").error) == "line 1: NameError: name 'x' is not defined"


def test_a_session_is_interrupted_by_its_handle(kernels: FakeKernels) -> None:
    session = kernels.session("a")
    tasks = []

    def interrupt(_: object) -> None:
        tasks.append(aio.loop().create_task(session.ainterrupt()))

    execution = session.run("print('begun')\nwhile True: pass", on_output=interrupt, timeout=20)
    assert execution.stdout == "begun\n"
    assert execution.error is not None
    assert execution.error.name == "KeyboardInterrupt"
    assert session.state == "idle"


def test_a_block_ends_its_session_and_closing_again_does_no_harm(kernels: FakeKernels) -> None:
    with kernels.session("a") as session:
        session.run("x = 1")
    assert kernels.list() == []
    session.close()
    session.interrupt()
    assert session.variables() == []


def test_the_async_twins_do_the_same(kernels: FakeKernels) -> None:
    async def work() -> str:
        async with kernels.session("a") as session:
            await session.arun("x = 1")
            await session.arestart()
            return str((await session.arun("x")).error)

    assert "NameError" in aio.run(work())
    assert kernels.list() == []


def test_a_name_that_no_session_may_have_is_refused_at_once(kernels: FakeKernels) -> None:
    with pytest.raises(InvalidArguments, match="not a name for a session"):
        kernels.session("../a")


STATUSES: dict[str, tuple[Execution, type[Exception], str]] = {
    "error": (
        Execution(status="error", error=ErrorDetail(name="ValueError", value="no good", line=3)),
        ExecutionFailed,
        "line 3: ValueError: no good",
    ),
    "exit": (
        Execution(status="error", exit_code=3, stderr="oh\nlast\n"),
        ExecutionFailed,
        "the script ended with exit code 3: last",
    ),
    "timeout": (Execution(status="timeout", stdout="so far", duration_s=1.5), CallTimeout, "timed out after 1.5 s"),
    "died": (Execution(status="died", signal="SIGKILL"), KernelDied, "the kernel died, by SIGKILL."),
    "crash": (Execution(status="died", signal="SIGSEGV"), KernelDied, "the script crashed: SIGSEGV ended its process."),
    "died, nobody knows why": (Execution(status="died"), KernelDied, "the kernel died, for no known reason."),
    "ended itself": (
        Execution(status="died", exit_code=3),
        KernelDied,
        "the script ended its process, with exit code 3.",
    ),
    "memory_limit": (Execution(status="memory_limit"), LimitExceeded, "the script reached its memory limit"),
}


@pytest.mark.parametrize("name", sorted(STATUSES))
def test_an_execution_raises_what_its_status_stands_for(name: str) -> None:
    execution, kind, message = STATUSES[name]
    with pytest.raises(kind) as caught:
        execution.raise_for_error()
    assert str(getattr(caught.value, "message", "")).startswith(message)
    assert getattr(caught.value, "data", {})["stdout"] == execution.stdout


def test_an_execution_that_went_well_returns_itself() -> None:
    done = Execution(status="ok", stdout="42\n")
    assert done.raise_for_error() is done


def test_the_forms_of_an_execution_are_short_and_escaped() -> None:
    done = Execution(status="error", stdout="<b>&" + "x" * 100_000, error=ErrorDetail(name="E", value="<script>"))
    assert len(repr(done)) < 300
    page = done._repr_html_()
    assert len(page) < 25_000
    assert "&lt;b&gt;&amp;" in page
    assert "<script>" not in page
    assert "80,004 more characters" in page
