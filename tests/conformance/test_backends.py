"""One suite for every way to have kernels: what a backend promises, whatever it is made of.

A backend enters by a line in ``BACKENDS``: how to make it, and the dialect its code is written in.
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import LanguageUnavailable
from nbtools.ground import aio
from nbtools.kernels import Backend, Execution, Kernel, KernelOptions, OutputLimits, OutputPiece, RunContext
from nbtools.kernels.fake import FakeBackend
from nbtools.kernels.forked.backend import ForkedBackend
from nbtools.kernels.gateway.kernel import GatewayBackend
from nbtools.kernels.jupyter.spawned import SpawnedBackend
from nbtools.kernels.programs.kernel import ProcessBackend
from tests.conftest import is_running, wait_until, with_enough_time

pytestmark = pytest.mark.processes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dialect:
    """The same small programs in one language."""

    language: str = "python"
    hello: str = "print('hello')"
    two_streams: str = "import sys\nprint('out')\nprint('err', file=sys.stderr)"
    umlauts: str = "print('Grüße, 世界 🎈')"
    fails: str = "print('before')\nx = 1\nraise ValueError('no good')"
    loops: str = "print('begun', flush=True)\nwhile True:\n    pass"
    deaf: str = (
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\n"
        "while True:\n    try:\n        time.sleep(60)\n    except BaseException:\n        pass"
    )
    early_and_late: str = (
        "import os, time\nprint('early', flush=True)\nwhile not os.path.exists('SEEN'): time.sleep(0.01)\nprint('late')"
    )
    """Prints the second line once there is a file SEEN."""
    floods: str = "while True:\n    print('x' * 10_000)"
    prints_much: str = "print('y' * 3_000_000)"
    exits: str = "import sys\nprint('bye')\nsys.exit(3)"
    dies: str = "import os\nprint('last words', flush=True)\nimport time\ntime.sleep(0.3)\nos._exit(7)"
    killed: str = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    writes: str = "open('made.txt', 'w').write('content')"
    sets: str = "kept = 41"
    gets: str = "print(kept + 1)"
    variable: str = "print(given['text'], given['number'] + 1)"
    reads_input: str = "print(input('name? '))"
    child: str = (
        "import subprocess, time\np = subprocess.Popen(['sleep', '600'])\nprint(p.pid, flush=True)\ntime.sleep(600)"
    )
    has_errors: bool = True
    """Whether an exception is told with its name and line, or only by an exit code."""
    lives_on: bool = True
    """Whether the kernel survives an exit of the code, so that there is no exit code."""
    is_remote: bool = False
    """Whether it runs on another machine, which tells neither process ids nor signals."""


BASH = Dialect(
    language="bash",
    hello="echo hello",
    two_streams="echo out; echo err >&2",
    umlauts="echo 'Grüße, 世界 🎈'",
    fails="echo before\nx=1\nfalse",
    loops="echo begun; while :; do :; done",
    deaf="trap '' INT; echo deaf; while :; do sleep 1; done",
    early_and_late="echo early; until [ -e SEEN ]; do sleep 0.01; done; echo late",
    floods="yes $(printf 'x%.0s' {1..1000})",
    prints_much="head -c 3000000 /dev/zero | tr '\\0' y",
    exits="echo bye; exit 3",
    dies="echo 'last words'; sleep 0.3; exit 7",
    killed="kill -KILL $$",
    writes="printf content > made.txt",
    sets="kept=41",
    gets="echo $((kept + 1))",
    variable=r'''t=${given#*: \"}; t=${t%%\"*}; n=${given##*: }; n=${n%\}}; echo "$t $((n + 1))"''',
    reads_input="read -r x; echo $x",
    child="sleep 600 & echo $!; wait",
    has_errors=False,
    lives_on=False,
)
NODE = Dialect(
    language="node",
    hello="console.log('hello')",
    two_streams="console.log('out'); console.error('err')",
    umlauts="console.log('Grüße, 世界 🎈')",
    fails="console.log('before');\nlet x = 1;\nthrow Object.assign(new Error('no good'), {name: 'ValueError'});",
    loops="console.log('begun'); for (;;) {}",
    deaf="require('net').createServer().listen(0); process.on('SIGINT', () => {}); console.log('deaf')",
    early_and_late=(
        "console.log('early'); const seen = () => require('fs').existsSync('SEEN')"
        " ? console.log('late') : setTimeout(seen, 10); seen()"
    ),
    floods="for (;;) console.log('x'.repeat(10_000))",
    prints_much="process.stdout.write('y'.repeat(3_000_000))",
    exits="console.log('bye'); process.exit(3)",
    dies="console.log('last words'); setTimeout(() => process.exit(7), 300)",
    killed="process.kill(process.pid, 'SIGKILL')",
    writes="require('fs').writeFileSync('made.txt', 'content')",
    sets="const kept = 41",
    gets="console.log(kept + 1)",
    variable="console.log(given.text, given.number + 1)",
    reads_input="console.log(require('fs').readFileSync(0, 'utf8'))",
    child="const p = require('child_process').spawn('sleep', ['600']); console.log(p.pid)",
    lives_on=False,
)
BACKENDS: dict[str, tuple[Callable[[], Backend], Dialect]] = {
    "spawned": (SpawnedBackend, Dialect()),
    "process-bash": (ProcessBackend, BASH),
    "process-node": (ProcessBackend, NODE),
}
# A fake is not a process of its own: what would end one, would end the tests.
NOT_OF_FAKES = {
    "test_a_stop_takes_the_children_of_the_code_along": "what the code starts in this process is this process's own",
    "test_a_script_goes_on_after_its_last_statement": "its thread is one of the tests",
    "test_the_end_of_the_process_is_told_with_its_code": "os._exit would end the tests",
    "test_the_end_of_the_process_is_told_with_its_signal": "the signal would end the tests",
    "test_secrets_of_the_owner_are_not_in_the_environment": "it has the environment of the tests",
}
# It gives up code that does not listen, and cannot end its thread: that one ends by itself.
FAKE = Dialect(deaf="import time\nprint('deaf')\ntime.sleep(3)")
BACKENDS["fake"] = (FakeBackend, FAKE)
# They need a server, whose address comes when they are made.
GATEWAYS = ("gateway",)
# An ordinary kernel takes a second to start: thirty of them belong to the slow part.
SLOW = {"spawned", "gateway"}
if ForkedBackend.is_supported():
    BACKENDS["forked"] = (lambda: ForkedBackend(preloads=("numpy",)), Dialect())


def _parameters() -> list[Any]:
    names = sorted([*BACKENDS, *GATEWAYS])
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in names]


def _parts(request: pytest.FixtureRequest) -> tuple[Callable[[], Backend], Dialect]:
    if request.param in GATEWAYS:
        pytest.importorskip("websocket")
        url, token = request.getfixturevalue("kernel_gateway")
        return lambda: GatewayBackend(url, token), Dialect(is_remote=True)
    make, dialect = BACKENDS[request.param]
    if dialect.language != "python" and shutil.which(dialect.language) is None:
        pytest.skip(f"{dialect.language} is not installed")
    return make, dialect


@pytest.fixture(autouse=True)
def _within_reach(request: pytest.FixtureRequest, made: tuple[Backend, Dialect]) -> None:
    reason = NOT_OF_FAKES.get(request.node.originalname)
    if made[0].name == "fake" and reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module", params=_parameters())
def made(request: pytest.FixtureRequest) -> Iterator[tuple[Backend, Dialect]]:
    make, dialect = _parts(request)

    async def construct() -> Backend:
        return make()

    backend = aio.run(construct())
    yield backend, dialect
    aio.run(backend.close())


@pytest.fixture(scope="module")
def opened(made: tuple[Backend, Dialect]) -> Iterator[list[Kernel]]:
    """The kernels that were opened for tests; the last one is the next test's, too, if it lives."""
    kernels: list[Kernel] = []
    yield kernels
    for kernel in kernels:
        aio.run(kernel.close())


@pytest.fixture
def kernel(made: tuple[Backend, Dialect], opened: list[Kernel], tmp_path: Path) -> Kernel:
    backend, dialect = made
    if not opened or not opened[-1].alive:
        opened.append(aio.run(backend.open(KernelOptions(language=dialect.language, cwd=tmp_path, lasting=True))))
    return opened[-1]


@pytest.fixture
def code(made: tuple[Backend, Dialect]) -> Dialect:
    return made[1]


def run(kernel: Kernel, text: str, **options: Any) -> Execution:
    options.setdefault("timeout", 30)
    return aio.run(kernel.run(text, **options))


def stop(kernel: Kernel, text: str, when: Callable[[str], bool], **options: Any) -> Execution:
    """Run, and cancel as soon as the output so far fits."""

    async def work() -> Execution:
        seen: list[str] = []
        said = asyncio.Event()

        def look(output: OutputPiece) -> None:
            seen.append(output.text)
            if when("".join(seen)):
                said.set()

        task = asyncio.ensure_future(kernel.run(text, on_output=look, timeout=30, **options))
        await asyncio.wait_for(said.wait(), 60)
        task.cancel()
        return await task

    return aio.run(work())


def test_a_kernel_and_its_backend_keep_to_the_protocols(made: tuple[Backend, Dialect], kernel: Kernel) -> None:
    assert isinstance(made[0], Backend)
    assert isinstance(kernel, Kernel)
    assert kernel.alive


def test_standard_output_comes_back_with_status_ok(kernel: Kernel, code: Dialect) -> None:
    done = run(kernel, code.hello)
    assert (done.status, done.stdout, done.stderr) == ("ok", "hello\n", "")
    assert done.duration_s > 0


def test_both_streams_are_kept_apart(kernel: Kernel, code: Dialect) -> None:
    done = run(kernel, code.two_streams)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


def test_text_of_every_script_survives_the_way(kernel: Kernel, code: Dialect) -> None:
    assert run(kernel, code.umlauts).stdout == "Grüße, 世界 🎈\n"


def test_code_that_is_empty_does_nothing_well(kernel: Kernel) -> None:
    done = run(kernel, "")
    assert (done.status, done.stdout) == ("ok", "")


def test_an_error_keeps_the_output_before_it(kernel: Kernel, code: Dialect) -> None:
    done = run(kernel, code.fails)
    assert done.status == "error"
    assert done.stdout == "before\n"
    if code.has_errors:
        assert done.error is not None
        assert str(done.error) == "line 3: ValueError: no good"
        assert "\x1b" not in done.error.traceback


def test_output_streams_while_the_code_runs(kernel: Kernel, code: Dialect, tmp_path: Path) -> None:
    seen: list[str] = []

    def look(output: OutputPiece) -> None:
        seen.append(output.text)
        if "".join(seen).startswith("early"):
            (tmp_path / "seen").touch()

    # The code waits for someone to have seen its first line: where it comes at the end, there is no end.
    done = run(kernel, code.early_and_late.replace("SEEN", str(tmp_path / "seen")), on_output=look)
    assert (done.status, "".join(seen)) == ("ok", "early\nlate\n")


def test_output_is_handed_on_from_the_loop_thread(kernel: Kernel, code: Dialect) -> None:
    threads: list[str] = []
    run(kernel, code.hello, on_output=lambda _: threads.append(threading.current_thread().name))
    assert set(threads) == {"nbtools-loop"}


def test_a_failing_listener_does_not_end_the_script(kernel: Kernel, code: Dialect) -> None:
    def broken(_: OutputPiece) -> None:
        raise RuntimeError("the display is gone")

    assert run(kernel, code.hello, on_output=broken).stdout == "hello\n"


def test_a_timeout_interrupts_and_keeps_the_partial_output(kernel: Kernel, code: Dialect) -> None:
    # It keeps a processor busy, so at first it gets little time.
    seconds, done = with_enough_time(lambda s: run(kernel, code.loops, timeout=s), lambda it: it.stdout, 0.25)
    assert (done.status, done.stdout, done.error) == ("timeout", "begun\n", None)
    assert seconds <= done.duration_s < seconds + 9


def test_code_that_ignores_the_interrupt_is_killed_after_the_grace(kernel: Kernel, code: Dialect) -> None:
    done = run(kernel, code.deaf, timeout=1.0, grace=0.4)
    assert (done.status, done.stdout) == ("timeout", "deaf\n")
    assert not kernel.alive


def test_a_cancelled_run_returns_what_was_printed(kernel: Kernel, code: Dialect) -> None:
    done = stop(kernel, code.loops, lambda text: "begun" in text)
    assert (done.status, done.stdout) == ("stopped", "begun\n")


def test_a_stop_takes_the_children_of_the_code_along(kernel: Kernel, code: Dialect) -> None:
    done = stop(kernel, code.child, lambda text: "\n" in text, grace=0.5)
    assert done.status == "stopped"
    aio.run(kernel.close())
    wait_until(lambda: not is_running(int(done.stdout.split()[0])))


def test_the_end_of_the_process_is_told_with_its_code(kernel: Kernel, code: Dialect) -> None:
    done = run(kernel, code.dies)
    assert done.stdout == "last words\n"
    assert done.exit_code == (None if code.is_remote else 7)
    assert done.signal is None
    if code.lives_on:
        assert done.status == "died"
        assert not kernel.alive


@pytest.mark.races
def test_the_end_of_the_process_is_told_with_its_signal(kernel: Kernel, code: Dialect) -> None:
    done = run(kernel, code.killed)
    assert done.status == "died"
    assert done.signal == (None if code.is_remote else "SIGKILL")


def test_the_codes_own_exit_tells_its_number(kernel: Kernel, code: Dialect) -> None:
    done = run(kernel, code.exits)
    assert (done.status, done.stdout, done.exit_code) == ("error", "bye\n", 3)
    assert done.stderr == ""


def test_a_script_goes_on_after_its_last_statement(kernel: Kernel, code: Dialect, tmp_path: Path) -> None:
    if code.language != "python":
        pytest.skip("a program for one script is that script's own process")
    script = (
        "import threading, time\nfile = open('late.txt', 'w')\nfile.write('lat')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), file.write('e'), print('late'))).start()"
    )
    done = run(kernel, script, context=RunContext(cwd=tmp_path, ends="script"))
    assert (done.status, done.stdout) == ("ok", "late\n")
    assert (tmp_path / "late.txt").read_text() == "late"


def test_output_beyond_the_cap_is_cut_and_said_to_be(kernel: Kernel, code: Dialect) -> None:
    done = run(kernel, code.prints_much, limits=OutputLimits(text_bytes=1_000_000))
    assert done.status == "ok"
    assert done.truncated
    if not code.is_remote:  # a server drops what comes too fast
        assert done.stdout == "y" * 1_000_000


def test_a_cap_above_the_usual_one_is_kept_to_as_well(kernel: Kernel, code: Dialect) -> None:
    # More than the four million that are kept where nothing else is said.
    much = code.prints_much.replace("3_000_000", "6_000_000").replace("3000000", "6000000")
    for allowed in (20_000_000, 5_000_000):
        done = run(kernel, much, limits=OutputLimits(text_bytes=allowed))
        if code.is_remote and done.truncated:  # a server drops what comes too fast
            return
        assert (len(done.stdout.rstrip()), done.truncated) == (min(allowed, 6_000_000), allowed < 6_000_000)


def test_output_without_end_is_ended(kernel: Kernel, code: Dialect) -> None:
    done = run(kernel, code.floods, limits=OutputLimits(text_bytes=1_000_000), timeout=5 if code.is_remote else 60)
    assert done.truncated
    assert len(done.stdout) <= 1_000_000
    # A server drops what comes too fast, and then there is no flood to be seen.
    assert done.status == "output_limit" or (code.is_remote and done.status == "timeout")


def test_the_working_folder_is_where_it_was_asked_to_be(kernel: Kernel, code: Dialect, tmp_path: Path) -> None:
    assert run(kernel, code.writes, context=RunContext(cwd=tmp_path)).status == "ok"
    assert (tmp_path / "made.txt").read_text() == "content"


def test_state_lasts_from_one_run_to_the_next(kernel: Kernel, code: Dialect) -> None:
    run(kernel, code.sets)
    assert run(kernel, code.gets).stdout == "42\n"


def test_two_kernels_know_nothing_of_each_other(made: tuple[Backend, Dialect], kernel: Kernel, code: Dialect) -> None:
    run(kernel, code.sets)
    other = aio.run(made[0].open(KernelOptions(language=code.language)))
    try:
        assert "42" not in run(other, code.gets).stdout
    finally:
        aio.run(other.close())


def test_given_variables_are_there_before_the_code(kernel: Kernel, code: Dialect) -> None:
    context = RunContext(variables={"given": {"text": "tëxt", "number": 41}})
    assert run(kernel, code.variable, context=context).stdout == "tëxt 42\n"


def test_a_kernel_goes_on_after_an_interrupt_that_worked(kernel: Kernel, code: Dialect) -> None:
    run(kernel, code.sets)
    with_enough_time(lambda s: run(kernel, code.loops, timeout=s), lambda it: it.stdout, 0.2)
    assert run(kernel, code.gets).stdout == "42\n"


def test_interrupting_an_idle_kernel_does_no_harm(kernel: Kernel, code: Dialect) -> None:
    run(kernel, code.sets)
    aio.run(kernel.interrupt())
    assert run(kernel, code.gets).stdout == "42\n"


def test_code_that_wants_input_does_not_wait_for_ever(kernel: Kernel, code: Dialect) -> None:
    done = run(kernel, code.reads_input, timeout=15)
    assert done.status in ("ok", "error")


@pytest.mark.races
def test_kill_ends_a_run_under_way(kernel: Kernel, code: Dialect) -> None:
    async def work() -> Execution:
        begun = asyncio.Event()
        task = asyncio.ensure_future(kernel.run(code.loops, timeout=30, on_output=lambda _: begun.set()))
        await asyncio.wait_for(begun.wait(), 60)
        await kernel.kill()
        return await task

    assert aio.run(work()).status == "died"
    assert not kernel.alive


def test_closing_twice_does_no_harm(kernel: Kernel) -> None:
    aio.run(kernel.close())
    aio.run(kernel.close())
    assert not kernel.alive


def test_closing_goes_on_when_a_caller_is_cancelled(kernel: Kernel) -> None:
    async def work() -> None:
        closing = asyncio.ensure_future(kernel.close())
        for _ in range(3):  # it waits for the process
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        await kernel.close()

    aio.run(work())
    temporary = getattr(kernel, "temporary", None)
    assert temporary is None or not temporary.exists()
    assert not kernel.alive


def test_a_closed_kernel_has_no_process(kernel: Kernel) -> None:
    pid = kernel.pid
    aio.run(kernel.close())
    wait_until(lambda: pid is None or not is_running(pid))


def test_an_unknown_language_is_refused_with_a_hint(made: tuple[Backend, Dialect]) -> None:
    with pytest.raises(LanguageUnavailable):
        aio.run(made[0].open(KernelOptions(language="kernel:there-is-no-such-kernel")))


@pytest.mark.skipif(sys.platform == "win32", reason="environment of children is looked at through /proc")
def test_secrets_of_the_owner_are_not_in_the_environment(
    made: tuple[Backend, Dialect], code: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    if code.is_remote:
        pytest.skip("the environment of a remote kernel is its server's")
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-value")
    opened = aio.run(made[0].open(KernelOptions(language=code.language)))
    try:
        assert opened.pid is not None
        # Until the program has taken its place, the process is a fork that has run nothing yet.
        environment = Path(f"/proc/{opened.pid}/environ")
        wait_until(lambda: b"very-secret" not in environment.read_bytes())
    finally:
        aio.run(opened.close())
