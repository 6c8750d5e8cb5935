"""One loop thread: blocking names, deadlines, Ctrl-C, other loops, threads, forks."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings

import pytest

from nbtools.errors import CallTimeout, InvalidArguments
from nbtools.ground import aio

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


def _script(code: str) -> subprocess.Popen[str]:
    source = textwrap.dedent(code)
    return subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _interrupted(code: str) -> tuple[str, str]:
    """Run a script, send Ctrl-C once it says that it is ready, and return what it printed."""
    with _script(code) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "ready"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert child.returncode == 0, err
    return out, err


def test_run_returns_what_the_coroutine_returns() -> None:
    async def double(x: int) -> int:
        await asyncio.sleep(0)
        return 2 * x

    assert aio.run(double(21)) == 42


def test_run_raises_what_the_coroutine_raises() -> None:
    async def fail() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        aio.run(fail())


def test_everything_runs_on_one_daemon_thread() -> None:
    async def where() -> tuple[int, bool]:
        return threading.get_ident(), threading.current_thread().daemon

    first, daemon = aio.run(where())
    assert aio.run(where()) == (first, True)
    assert daemon
    assert first != threading.get_ident()


def test_run_uses_the_callers_context_variables() -> None:
    async def who() -> str:
        return WHO.get()

    token = WHO.set("caller")
    try:
        assert aio.run(who()) == "caller"
    finally:
        WHO.reset(token)
    assert aio.run(who()) == "nobody"


def test_a_deadline_cancels_the_work_and_says_so() -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(CallTimeout, match=r"timed out after 0\.02 s"):
        aio.run(wait(), timeout=0.02)
    assert cancelled.is_set()


def test_a_timeout_that_the_work_met_itself_is_not_taken_for_the_deadline() -> None:
    async def slow_socket() -> None:
        raise TimeoutError("the server did not answer")

    with pytest.raises(TimeoutError, match="the server did not answer") as caught:
        aio.run(slow_socket(), timeout=60)
    assert not isinstance(caught.value, CallTimeout)


def test_work_that_answers_its_cancellation_hands_over_a_value() -> None:
    async def partial() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "half"
        return "whole"

    assert aio.run(partial(), timeout=0.02) == "half"


def test_blocking_on_the_loops_own_thread_is_refused() -> None:
    async def inner() -> None: ...

    async def outer() -> None:
        aio.run(inner())

    with pytest.raises(RuntimeError, match="await its async twin"):
        aio.run(outer())


def test_run_works_below_a_loop_that_is_already_running() -> None:
    async def inner() -> str:
        return "inner"

    async def cell() -> str:
        return aio.run(inner())  # what a notebook cell does: its own loop runs while it blocks

    assert asyncio.run(cell()) == "inner"


@pytest.mark.processes
@pytest.mark.skipif(os.name == "nt", reason="a console signal would reach pytest too")
def test_ctrl_c_cancels_and_carries_the_last_words() -> None:
    out, _ = _interrupted("""
        import asyncio
        from nbtools.ground import aio
        async def work():
            print("ready", flush=True)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return ["first half"]
        try:
            aio.run(work())
        except KeyboardInterrupt as exc:
            print(type(exc).__name__, exc.value)
    """)
    assert out.strip() == "Interrupted ['first half']"


@pytest.mark.processes
@pytest.mark.skipif(os.name == "nt", reason="a console signal would reach pytest too")
def test_ctrl_c_ends_the_work_when_another_thread_is_handed_the_signal() -> None:
    code = """
    import asyncio, signal, threading, time
    from nbtools.ground import aio
    from nbtools.errors import Interrupted

    begun = threading.Event()

    def press() -> None:
        begun.wait()
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    async def work() -> None:
        begun.set()
        await asyncio.sleep(30)

    threading.Thread(target=press).start()
    try:
        aio.run(work())
    except Interrupted:
        print("stopped", flush=True)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=20)
    assert done.stdout == "stopped\n", done.stderr


@pytest.mark.processes
def test_ctrl_c_without_last_words_carries_none_and_leaves_the_loop_usable() -> None:
    out, _ = _interrupted("""
        import asyncio
        from nbtools.ground import aio
        from nbtools.errors import Interrupted
        async def work():
            print("ready", flush=True)
            await asyncio.Event().wait()
        async def again():
            return "usable"
        try:
            aio.run(work(), timeout=60)
        except Interrupted as exc:
            print(exc.value, aio.run(again()))
    """)
    assert out.strip() == "None usable"


@pytest.mark.processes
@pytest.mark.skipif(os.name == "nt", reason="a console signal would reach pytest too")
def test_ctrl_c_before_the_work_was_handed_over_closes_it() -> None:
    with _script("""
        import signal
        from nbtools.ground import aio
        from nbtools.errors import Interrupted
        async def work():
            return "never"
        loop = aio.loop()
        hand_over = loop.call_soon_threadsafe
        def early(callback, *args):
            loop.call_soon_threadsafe = hand_over
            raise KeyboardInterrupt
        loop.call_soon_threadsafe = early
        try:
            aio.run(work())
        except Interrupted as exc:
            print(exc.value)
    """) as child:
        out, err = child.communicate(timeout=30)
    assert (out.strip(), err) == ("None", "")


class _Asker:
    async def aask(self, why: str | None) -> None:
        raise InvalidArguments("no.", tried=why)

    ask = aio.blocking(aask)


@pytest.mark.parametrize(("why", "tried"), [(None, "_Asker.ask"), ("asking twice", "asking twice")])
def test_an_error_of_a_blocking_name_says_what_was_called(why: str | None, tried: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        _Asker().ask(why)
    assert caught.value.three_lines() == [f"InvalidArguments: {tried}", "no."]


def test_a_blocking_name_is_derived_for_functions_and_methods() -> None:
    async def agreet(name: str, *, mark: str = "!") -> str:
        """Say hello."""
        return f"hello {name}{mark}"

    class Greeter:
        def __init__(self, name: str) -> None:
            self.name = name

        async def agreet(self, mark: str) -> str:
            return await agreet(self.name, mark=mark)

        greet = aio.blocking(agreet)

    greet = aio.blocking(agreet)
    assert greet("you", mark="?") == "hello you?"
    assert Greeter("me").greet(".") == "hello me."
    assert (greet.__name__, greet.__doc__, str(inspect.signature(greet))) == (
        "greet",
        "Say hello.",
        "(name: 'str', *, mark: 'str' = '!') -> 'str'",
    )
    assert not inspect.iscoroutinefunction(greet)


def test_here_awaits_from_another_loop_and_from_its_own() -> None:
    async def where() -> int:
        return threading.get_ident()

    own = aio.run(where())
    assert asyncio.run(aio.here(where())) == own
    assert aio.run(aio.here(where())) == own


def test_cancelling_here_cancels_the_work_on_the_loop() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def cell() -> None:
        task = asyncio.ensure_future(aio.here(work()))
        await aio.in_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cell())
    assert ended.wait(10)


def test_here_uses_the_callers_context_variables() -> None:
    async def who() -> str:
        return WHO.get()

    async def cell() -> str:
        WHO.set("cell")
        return await aio.here(who())

    assert asyncio.run(cell()) == "cell"


def test_blocking_work_runs_beside_the_loop_with_the_callers_context() -> None:
    def work(factor: int, *, plus: int) -> tuple[int, str, bool]:
        return 20 * factor + plus, WHO.get(), threading.current_thread().daemon

    async def main() -> tuple[tuple[int, str, bool], bool]:
        WHO.set("worker")
        return await aio.in_thread(work, 2, plus=2), threading.get_ident() == main_thread

    main_thread = threading.get_ident()
    assert aio.run(main()) == ((42, "worker", True), False)


def test_what_a_thread_raises_reaches_the_awaiter() -> None:
    def work() -> None:
        raise ValueError("no")

    async def main() -> None:
        await aio.in_thread(work)

    with pytest.raises(ValueError, match="no"):
        aio.run(main())


@pytest.mark.parametrize("raised", [StopIteration(), GeneratorExit(), SystemExit(3), KeyboardInterrupt()])
def test_what_would_end_the_loop_becomes_an_ordinary_error(raised: BaseException) -> None:
    def work() -> None:
        raise raised

    async def main() -> None:
        await aio.in_thread(work)

    with pytest.raises(RuntimeError, match=f"work raised {type(raised).__name__}") as caught:
        aio.run(main())
    assert caught.value.__cause__ is raised


def test_threads_are_used_again_and_carry_nothing_over() -> None:
    def work(name: str) -> tuple[int, str]:
        before = WHO.get()
        WHO.set(name)
        return threading.get_ident(), before

    async def main() -> list[tuple[int, str]]:
        return [await aio.in_thread(work, f"call {number}") for number in range(20)]

    results = aio.run(main())
    assert {before for _, before in results} == {"nobody"}
    assert len({thread for thread, _ in results}) < 20


def test_many_threads_run_at_once() -> None:
    together = threading.Barrier(12, timeout=20)

    async def main() -> int:
        return len(await asyncio.gather(*(aio.in_thread(together.wait) for _ in range(12))))

    assert aio.run(main()) == 12


def test_a_cancelled_awaiter_abandons_its_thread_quietly() -> None:
    go, ended = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(10)
        ended.set()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await aio.in_thread(work)
        go.set()

    aio.run(main())
    assert ended.wait(10)


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_gets_a_loop_of_its_own() -> None:
    with _script("""
        import os, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        from nbtools.ground import aio
        async def pid():
            return os.getpid()
        parent = aio.run(pid())
        child = os.fork()
        if child == 0:
            os._exit(0 if aio.run(pid(), timeout=20) == os.getpid() != parent else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), aio.run(pid()) == parent)
    """) as child:
        out, err = child.communicate(timeout=60)
    assert (out.strip(), err) == ("0 True", "")


@pytest.mark.processes
def test_the_loop_does_not_hold_up_the_end_of_the_process() -> None:
    with _script("""
        import asyncio, threading
        from nbtools.ground import aio
        asyncio.run_coroutine_threadsafe(asyncio.Event().wait(), aio.loop())
        async def main():
            aio.in_thread(threading.Event().wait)
        aio.run(main())
        print("end")
    """) as child:
        out, _ = child.communicate(timeout=30)
    assert (child.returncode, out.strip()) == (0, "end")


@pytest.mark.parametrize("ending", [SystemExit(3), KeyboardInterrupt()])
def test_a_task_that_ends_programs_does_not_end_the_loop(
    ending: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave() -> None:
        raise ending

    async def outer() -> str:
        try:
            await asyncio.gather(leave())
        except BaseException as exc:
            return type(exc).__name__
        return "nothing"

    before = aio.loop()
    assert aio.run(outer(), timeout=30) == type(ending).__name__
    assert aio.loop() is before
    assert "goes on" in caplog.text


def test_a_stopped_loop_goes_on() -> None:
    async def stop() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)

    aio.run(stop(), timeout=30)


def test_a_broken_loop_is_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    broken = aio.loop()
    (thread,) = [t for t in threading.enumerate() if t.name == "nbtools-loop" and t.is_alive()]
    broken.call_soon_threadsafe(broken._selector.close)  # type: ignore[attr-defined]  # as a tool that closes all files
    thread.join(30)

    async def here() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert aio.run(here(), timeout=30) is not broken
    assert "made again" in caplog.text


def test_whoever_holds_the_loop_up_is_named_with_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    noticed = threading.Event()

    def show(message: Warning, *_: object) -> None:
        told.append(str(message))
        noticed.set()

    async def block() -> bool:
        with aio.watched("outer"), aio.watched("slow"):
            return noticed.wait(30)

    monkeypatch.setattr(aio.watched, "seconds", 0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        assert aio.run(block())
    assert told[0].startswith("slow keeps nbtools' loop")
    assert f"{__file__}:" in told[0]
    assert "in block" in told[0]


def test_a_method_that_runs_once_comes_to_its_end_whoever_is_cancelled() -> None:
    class Thing:
        steps: tuple[str, ...] = ()

        @aio.once
        async def release(self) -> int:
            self.steps += ("begun",)
            await asyncio.sleep(0.02)
            self.steps += ("over",)
            return len(self.steps)

    async def work() -> tuple[int, tuple[str, ...]]:
        thing = Thing()
        first = asyncio.ensure_future(thing.release())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first})
        assert first.cancelled()
        assert thing.steps in ((), ("begun",))
        assert await asyncio.gather(thing.release(), thing.release()) == [2, 2]
        return await thing.release(), thing.steps

    assert aio.run(work()) == (2, ("begun", "over"))
