"""States of sessions that an undo goes back to: what each has, when it is kept, and what is said when it ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from nbtools.errors import InvalidArguments, KernelDied
from nbtools.kernels import Kernels
from nbtools.kernels.pool import Lease
from nbtools.kernels.sessions import table
from tests.conftest import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="forks need Linux")]


def test_undo_goes_back_by_runs_and_says_what_stays(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.keep(3)
    with pytest.raises(InvalidArguments, match="last run was not kept") as refused:
        a.undo()
    assert refused.value.hint == "It keeps the state before its next run."
    a.run("import atexit, os; g = iter(range(9)); here = os.getcwd(); atexit.register(open, f'{here}/ends.txt', 'w')")
    for i in range(4):
        a.run(f"x = {i}; y = next(g); open('f{i}.txt', 'w').close()")
    assert a.undo(2) == ("f2.txt", "f3.txt")
    assert a.run("print(x, next(g))").stdout == "1 2\n"
    with pytest.raises(InvalidArguments, match="before its last 4 runs was not kept") as refused:
        a.undo(4)
    assert "1, 2" in str(refused.value.hint) or "2, 1" in str(refused.value.hint)
    assert len(kernels.list()) == 1
    ends = Path(a.run("print(here)").stdout.strip(), "ends.txt")
    b = a.fork("b")
    a.close()
    assert ends.exists()  # who took the place of the original does what that was to do at its end
    assert b.run("print(x)").stdout == "1\n"


@pytest.mark.races
def test_undo_takes_back_the_end_of_a_kernel_and_what_a_run_has_started(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.keep()
    a.run("x = 1")
    assert a.run("import os; os._exit(3)").status == "died"
    assert a.state == "dead"
    a.undo()
    code = "import subprocess, threading, time; child = subprocess.Popen(['sleep', '60']); print(child.pid)"
    child = int(a.run(f"{code}; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()").stdout)
    refused = a.run("x = 2")
    assert any(note.startswith("this run cannot be undone: ") for note in refused.notes)
    with pytest.raises(InvalidArguments, match="was not kept: Session 'a' cannot be copied: process"):
        a.undo()
    with pytest.raises(InvalidArguments, match="cannot be copied: process"):
        a.keep()
    a.undo(2)
    assert a.run("print(x)").stdout == "1\n"
    assert wait_until(lambda: not Path(f"/proc/{child}").exists())


@pytest.mark.slow
@pytest.mark.races
@pytest.mark.own_zygote
def test_the_oldest_states_go_where_memory_is_short_and_this_is_said() -> None:
    with Kernels("forked", spares=0, preloads=(), memory_bytes=1 << 30) as kernels:
        a = kernels.session("a")
        a.keep()
        for i in range(5):
            assert a.run(f"x = None; x = bytearray([{i + 1}]) * (250 << 20)").ok
        # It is looked for beside the runs, and told with the next one.
        given_up = "the oldest states for an undo were given up"
        assert wait_until(lambda: any(given_up in note for note in a.run("y = 1").notes))
        a.run("x = None")
        a.undo()
        assert a.run("print(x[0])").stdout == "5\n"


def test_what_a_copy_opens_for_itself_is_not_taken_for_files_of_the_session(kernels: Kernels) -> None:
    """Files that hold back text are looked for among all objects, which takes long where there are many."""
    a = kernels.session("a")
    a.run("from nbtools.kernels.inside.program_end import _writing; end = get_ipython().nbtools_hooks.end")
    a.keep()
    a.run("log = open('log.txt', 'w')")
    for session in (a.fork("b"), a):
        assert session.run("print(len(_writing() - end._descriptors))").stdout == "1\n"
    a.undo(2)
    assert a.run("print(len(_writing() - end._descriptors))").stdout == "0\n"


@pytest.mark.races
def test_a_state_is_kept_when_the_run_before_is_over_and_a_run_waits_for_none(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = kernels.session("a")
    a.run("import threading; x = 1; over = threading.Event()")
    a.keep(2)
    session = kernels._sessions.find("a")
    assert wait_until(lambda: session.is_kept)
    with monkeypatch.context() as patch:
        patch.setattr(table, "copy_kernel", None)
        assert a.run("x = 2; thread = threading.Thread(target=over.wait); thread.start()").notes == ()
        assert wait_until(lambda: session.ahead is not None and session.ahead.done())
    # What refused it then refuses it now, and it is told when it matters.
    assert "its thread 'Thread-" in a.run("over.set(); thread.join()").notes[0]
    assert wait_until(lambda: session.is_kept)
    assert [shown["undoable"] for shown in kernels.list()] == [1]
    a.run("x = 3")
    assert a.run("x = 4").notes == ()
    assert a.undo(2) == ()
    assert a.run("print(x)").stdout == "2\n"


@pytest.mark.races
def test_a_run_that_begins_while_its_state_settles_moves_no_file_in_it(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.run("import os; open('lines', 'w').write('01234'); lines = os.open('lines', os.O_RDONLY)")
    # So that each is made before its run, which does not wait for all of it.
    kernels._sessions.find("a").keeps = 5
    for runs in (1, 3):
        for line in range(runs):
            assert a.run("print(os.read(lines, 1).decode())").stdout == f"{line}\n"
        a.undo(runs)


@pytest.mark.races
def test_undo_takes_back_the_end_of_a_kernel_between_runs(kernels: Kernels, pid_of: Callable[[str], int]) -> None:
    a = kernels.session("a")
    a.keep()
    a.run("x = 1")
    assert wait_until(lambda: kernels._sessions.find("a").is_kept)
    os.kill(pid_of("a"), signal.SIGKILL)
    assert wait_until(lambda: a.state == "dead")
    assert a.run("x = 2").notes[0].startswith("began empty")
    a.undo()
    assert a.run("print(x)").stdout == "1\n"


@pytest.mark.races
def test_undo_to_a_state_that_has_ended_says_so_and_the_session_goes_on(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.keep()
    a.run("x = 1")
    a.run("x = 2")
    states = {state.runs: state for state in kernels._sessions.find("a").states}
    process = states[1].lease.kernel.process
    assert wait_until(process.ready.done)
    os.kill(process.pid, signal.SIGKILL)
    assert wait_until(process.exited.done)
    with pytest.raises(KernelDied, match="before its last run has ended: The kernel ended: killed by"):
        a.undo()
    assert a.run("print(x)").stdout == "2\n"
    # The states from before and after it are as they were.
    a.undo()
    assert a.run("print(x)").stdout == "2\n"
    a.undo(3)
    assert "NameError" in str(a.run("print(x)").error)


@pytest.mark.races
def test_a_state_that_has_ended_does_not_count_and_the_next_run_says_so(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.run("x = 1")
    a.keep(3)
    for x in (2, 3):
        a.run(f"x = {x}; open('{x}.txt', 'w').close()")
    session = kernels._sessions.find("a")
    assert wait_until(lambda: session.is_kept)
    for state in session.states[1:]:
        process = state.lease.kernel.process
        os.kill(process.pid, signal.SIGKILL)
        assert wait_until(process.exited.done)
    assert [shown["undoable"] for shown in kernels.list()] == [1]
    assert a.run("x = 4").notes == ("an undo cannot go back to 2 of the kept states, which have ended",)
    with pytest.raises(InvalidArguments, match="last 2 runs was not kept") as refused:
        a.undo(2)
    assert refused.value.hint == "It can be undone by these numbers of runs: 3, 1."
    a.undo()
    assert a.run("print(x)").stdout == "3\n"
    assert a.undo(3) == ("2.txt", "3.txt")
    assert a.run("print(x)").stdout == "1\n"


@pytest.mark.races
def test_a_state_does_not_bring_back_rights_that_the_session_has_no_more(kernels: Kernels) -> None:
    a = kernels.session("a")
    a.keep()
    a.run("x = 1", sandbox="limits")
    assert a.run("import os; os._exit(3)", sandbox="limits").status == "died"
    done = a.run("x = 2", sandbox="off")
    assert (done.sandbox, done.notes[0][:11]) == ("off", "began empty")
    with pytest.raises(InvalidArguments, match="was not kept"):
        a.undo(2)


@pytest.mark.races
@pytest.mark.parametrize("is_ahead", [True, False], ids=["after a run", "before a run"])
def test_a_session_that_is_stopped_while_it_keeps_a_state_leaves_no_copy(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch, is_ahead: bool
) -> None:
    copied, stops, leases = table.copy_kernel, list[asyncio.Task[None]](), list[Lease]()

    async def copied_while_it_is_stopped(session: table.NamedSession) -> Lease:
        stops.append(asyncio.ensure_future(kernels._sessions.stop(session.name)))
        await asyncio.sleep(0.02)
        leases.append(await copied(session))
        return leases[-1]

    a = kernels.session("a")
    a.run("import time")
    monkeypatch.setattr(table, "copy_kernel", copied_while_it_is_stopped)
    if is_ahead:
        a.keep()
    else:
        kernels._sessions.find("a").keeps = 5
        assert a.run("time.sleep(60)").status == "died"
    assert wait_until(lambda: bool(stops) and stops[0].done())
    assert not leases[0].kernel.alive


def test_to_keep_states_of_a_name_that_is_no_session_starts_none(kernels: Kernels) -> None:
    kernels.session("load").run("x = 1")
    with pytest.raises(InvalidArguments, match="There is no session 'laod'") as refused:
        kernels.keep("laod")
    assert "load" in str(refused.value.hint)
    assert [shown["name"] for shown in kernels.list()] == ["load"]
