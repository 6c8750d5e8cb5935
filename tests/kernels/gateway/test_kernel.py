"""Kernels on real Jupyter servers over loopback."""

import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path

import pytest

from nbtools.errors import (
    HttpError,
    InvalidArguments,
    KernelDied,
    LanguageUnavailable,
    LimitExceeded,
    NbtoolsError,
    NetworkError,
    PermissionDenied,
    SandboxUnavailable,
)
from nbtools.ground import aio
from nbtools.kernels import KernelOptions, RunContext
from nbtools.kernels.gateway.client import GatewayClient, KernelSocket
from nbtools.kernels.gateway.kernel import GatewayBackend
from tests.conftest import with_enough_time

pytest.importorskip("websocket")
pytestmark = [pytest.mark.races, pytest.mark.slow]
OFF = KernelOptions(sandbox="off")


def open_backend(url, token=None, **options):
    async def make():
        return GatewayBackend(url, token, **options)

    return aio.run(make())


@pytest.fixture(scope="module")
def backend(any_gateway):
    made = open_backend(*any_gateway)
    yield made
    aio.run(made.close())
    with contextlib.suppress(PermissionDenied):  # a Kernel Gateway does not tell
        assert GatewayClient(*any_gateway).request("GET", "/api/kernels") == []


@pytest.fixture(scope="module")
def kernel(backend):
    """A kernel for tests that leave it whole."""
    opened = aio.run(backend.open(OFF))
    yield opened
    aio.run(opened.close())


@pytest.fixture
def fresh(backend):
    """A kernel for tests that break it."""
    opened = aio.run(backend.open(OFF))
    yield opened
    aio.run(opened.close())


def run(kernel, code, **options):
    return aio.run(kernel.run(code, **{"timeout": 30, **options}))


def test_a_script_answers_with_streams_displays_and_errors(kernel):
    done = run(
        kernel, "import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay({'text/plain': 'x'}, raw=True)\n6 * 7"
    )
    assert (done.status, done.stdout, done.stderr, done.sandbox) == ("ok", "out\n", "err\n", "off")
    assert [shown["text/plain"] for shown in done.displays] == ["x", "42"]
    done = run(kernel, "x = 1\n\n1 / 0")
    assert (done.status, str(done.error)) == ("error", "line 3: ZeroDivisionError: division by zero")
    assert run(kernel, "import sys; sys.exit(3)").exit_code == 3
    assert run(kernel, "print(x + 1)").stdout == "2\n"
    assert "x" in [variable["name"] for variable in aio.run(kernel.variables())]


def test_files_travel_there_and_back(kernel, tmp_path):
    sales = tmp_path / "data" / "sales.csv"
    sales.parent.mkdir()
    sales.write_bytes(b"a,b\n" + b"1,2\n" * 700_000)
    empty = tmp_path / "empty.txt"
    empty.touch()
    folder = tmp_path / "here"
    folder.mkdir()
    context = RunContext(
        cwd=folder,
        files=(sales, empty),
        variables={"input_file_path": str(sales), "more": {"empty": [str(empty)]}, "folder": str(folder), "n": 5},
    )
    code = f"""
import os, pathlib
data = pathlib.Path(input_file_path).read_bytes()
print(len(data), pathlib.Path(more['empty'][0]).stat().st_size, os.path.samefile(folder, '.'), n)
print(input_file_path.startswith({str(tmp_path)!r}))
pathlib.Path('made.txt').write_text('made')
pathlib.Path('deep/er').mkdir(parents=True)
pathlib.Path('deep/er/large.bin').write_bytes(bytes(12_500_000))
pathlib.Path('.hidden').touch()
"""
    done = run(kernel, code, context=context)
    assert done.stdout == f"{sales.stat().st_size} 0 True 5\nFalse\n", (done.error, done.notes)
    assert done.artifacts == (folder / "deep" / "er" / "large.bin", folder / "made.txt")
    assert (folder / "made.txt").read_text() == "made"
    assert (folder / "deep" / "er" / "large.bin").stat().st_size == 12_500_000
    assert run(kernel, "print(open('made.txt').read())", context=context).artifacts == ()


def test_a_folder_of_inputs_travels_whole(kernel, tmp_path):
    (tmp_path / "set" / "sub").mkdir(parents=True)
    (tmp_path / "set" / "sub" / "a.txt").write_text("A")
    context = RunContext(files=(tmp_path / "set",), variables={"path": str(tmp_path / "set" / "sub" / "a.txt")})
    assert run(kernel, "print(open(path).read())", context=context).stdout == "A\n"


def test_the_open_figure_comes_back(kernel, tmp_path):
    figure = tmp_path / "plot.png"
    context = RunContext(cwd=tmp_path, figure_path=figure, variables={"output_image_path": str(figure)})
    done = run(kernel, "import matplotlib.pyplot as plt\nplt.plot([1, 2])", context=context)
    assert done.status == "ok"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert figure in done.artifacts
    assert run(kernel, "open(output_image_path, 'wb').write(b'own')", context=context).artifacts == (figure,)
    assert figure.read_bytes() == b"own"


def test_a_remote_kernel_cannot_write_outside_the_working_folder(fresh, tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    lie = (
        "made={'work/../../escaped': 1, 'work/out/escaped': 1, '../escaped': 1, '/escaped': 1, 'in/0/x': 1, 'work': 1}"
    )
    answer = f"lambda: p.json.dumps({{'changed': {lie}}})"
    code = f"import sys; p = sys.modules['nbtools_file_transfer']; p.list_changed = {answer}"
    context = RunContext(cwd=folder)
    assert run(fresh, code, context=context).artifacts == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]


def test_a_remote_kernel_that_lies_about_its_files_is_told_and_the_output_stays(fresh, tmp_path):
    break_it = "import sys; p = sys.modules['nbtools_file_transfer']; p.{} = lambda *a, **k: {}\nprint('out')"
    context = RunContext(cwd=tmp_path)
    huge = f"p.json.dumps({{'changed': {{'work/a': {10**15}}}}})"
    for answer, note in (
        (huge, "work/a and what follows was left on the gateway: too large"),
        ("1 / 0", "division by"),
    ):
        done = run(fresh, break_it.format("list_changed", answer), context=context)
        assert (done.status, done.stdout, done.artifacts) == ("ok", "out\n", ())
        assert any(note in one for one in done.notes), done.notes
    run(fresh, break_it.format("begin", "1 / 0"), context=context)
    assert run(fresh, "1", context=context).notes[0].startswith("The remote kernel refused a step: ZeroDivisionError")
    run(fresh, break_it.format("put", "1 / 0"))
    given = tmp_path / "given.txt"
    given.write_text("x")
    done = run(fresh, "1", context=RunContext(files=(given,)))
    assert (done.status, fresh.alive) == ("died", False)
    assert "refused a step: ZeroDivisionError" in done.notes[0]


def test_what_a_session_writes_at_its_end_comes_back(fresh, tmp_path):
    code = "import atexit, pathlib; atexit.register(lambda: pathlib.Path('end.txt').write_text('x'))"
    assert run(fresh, code, context=RunContext(cwd=tmp_path)).artifacts == ()
    aio.run(fresh.finish(timeout=30))
    assert (tmp_path / "end.txt").read_text() == "x"
    assert fresh.pid is None


def test_output_streams_as_it_appears(kernel, tmp_path):
    seen, mark = [], tmp_path / "seen"

    def look(output):
        seen.append(output.text)
        mark.touch()

    wait = f"import os, time\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.01)"
    code = f"print('early', flush=True)\n{wait}\nprint('late')"
    assert run(kernel, code, on_output=look).status == "ok"
    assert "".join(seen) == "early\nlate\n"


def test_a_timeout_interrupts_and_the_kernel_lives_on(kernel):
    run(kernel, "kept = 41")
    code = "print('begun\\n', end='', flush=True)\nwhile True: pass"
    _, done = with_enough_time(lambda s: run(kernel, code, timeout=s), lambda it: it.stdout)
    assert (done.status, done.stdout) == ("timeout", "begun\n")
    assert run(kernel, "print(kept + 1)").stdout == "42\n"


def test_a_stop_returns_what_was_printed(kernel):
    async def work():
        begun = asyncio.Event()
        task = asyncio.ensure_future(
            kernel.run("print('begun\\n', end='', flush=True)\nwhile True: pass", on_output=lambda _: begun.set())
        )
        await asyncio.wait_for(begun.wait(), 60)
        task.cancel()
        return await task

    done = aio.run(work())
    assert (done.status, done.stdout) == ("stopped", "begun\n")
    assert kernel.alive


def test_a_deaf_kernel_is_ended_by_its_server(fresh):
    code = (
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(60)"
    )
    done = run(fresh, code, timeout=1, grace=0.5)
    assert (done.status, done.stdout) == ("timeout", "deaf\n")
    assert not fresh.alive


def test_the_death_of_a_kernel_is_told(fresh):
    done = run(fresh, "import os\nprint('last', flush=True)\nimport time\ntime.sleep(0.3)\nos._exit(1)")
    assert (done.status, done.stdout) == ("died", "last\n")
    assert any("died" in note for note in done.notes)
    assert not fresh.alive
    assert run(fresh, "1").status == "died"


def test_a_lost_connection_comes_back_with_all_the_output(fresh):
    async def work():
        begun = asyncio.Event()
        code = "import time\nfor i in range(8):\n    print(i, flush=True)\n    time.sleep(0.2)"
        task = asyncio.ensure_future(fresh.run(code, timeout=30, on_output=lambda _: begun.set()))
        await asyncio.wait_for(begun.wait(), 60)
        fresh.socket.drop()
        return await task

    done = aio.run(work())
    assert done.status == "ok"
    assert done.stdout == "".join(f"{i}\n" for i in range(8))
    assert "the connection to the gateway was lost and came back" in done.notes
    assert run(fresh, "print('next')").notes == ()


def test_a_kernel_that_vanishes_while_nobody_listens_is_told(fresh, any_gateway):
    # Its server interrupts it before it ends it, and the error of that might be faster.
    code = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint(1, flush=True)\ntime.sleep(60)"

    async def work():
        begun = asyncio.Event()
        task = asyncio.ensure_future(fresh.run(code, timeout=60, on_output=lambda _: begun.set()))
        await asyncio.wait_for(begun.wait(), 60)
        await aio.in_thread(GatewayClient(*any_gateway).request, "DELETE", f"/api/kernels/{fresh.id}")
        return await task

    done = aio.run(work())
    assert (done.status, done.stdout) == ("died", "1\n")


@pytest.mark.parametrize("kind", ["kernel_gateway", "jupyter_server"])
def test_the_death_of_the_server_is_told(start_jupyter_server, kind):
    with start_jupyter_server(kind) as (url, token, process):
        backend = open_backend(url, token)
        kernel = aio.run(backend.open(OFF))

        async def work():
            begun = asyncio.Event()
            task = asyncio.ensure_future(
                kernel.run(
                    "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(300)", on_output=lambda _: begun.set()
                )
            )
            await asyncio.wait_for(begun.wait(), 60)
            os.kill(process.pid, signal.SIGKILL)
            return await task

        done = aio.run(work())
        with contextlib.suppress(ProcessLookupError):  # it may have noticed by itself
            os.kill(int(done.stdout), signal.SIGKILL)
        assert done.status == "died"
        assert "connection to the gateway" in done.notes[0]
        assert not kernel.alive
        with pytest.raises(NetworkError):
            aio.run(backend.open(OFF))
        aio.run(backend.close())


def test_neither_logs_nor_errors_hold_the_token(any_gateway, caplog, capfd):
    url, token = any_gateway
    caplog.set_level(logging.DEBUG)
    backend = open_backend(f"{url}/lab?token={token}")
    kernel = aio.run(backend.open(OFF))
    run(kernel, "print('hello')")
    kernel.socket.drop()
    run(kernel, "1 / 0")
    failures = []
    for options in (KernelOptions(language="kernel:none", sandbox="off"), KernelOptions(sandbox="strict")):
        with pytest.raises(NbtoolsError) as caught:
            aio.run(backend.open(options))
        failures.append(
            repr(caught.value) + str(caught.value.to_dict()) + str(caught.value.data) + str(caught.value.tried)
        )
    aio.run(backend.close())
    with pytest.raises(NbtoolsError) as caught:
        GatewayClient(f"http://user:{token}@127.0.0.1:1/?token={token}").request("GET", "/api")
    failures.append(str(caught.value) + str(caught.value.tried) + str(caught.value.data))
    out = capfd.readouterr()
    assert token not in caplog.text + out.out + out.err + "".join(failures)


@pytest.mark.parametrize("token", ["wrong", None])
def test_a_refused_token_is_told(any_gateway, token):
    backend = open_backend(any_gateway[0], token)
    with pytest.raises(PermissionDenied) as caught:
        aio.run(backend.open(OFF))
    assert "NBTOOLS_GATEWAY_TOKEN" in caught.value.hint
    aio.run(backend.close())


def test_a_kernelspec_that_does_not_exist_is_told_with_those_that_do(backend):
    with pytest.raises(LanguageUnavailable) as caught:
        aio.run(backend.open(KernelOptions(language="kernel:pyton3", sandbox="off")))
    assert "python3" in caught.value.hint
    with pytest.raises(LanguageUnavailable):
        aio.run(backend.open(KernelOptions(language="cobol", sandbox="off")))


def test_a_kernelspec_can_be_named(backend):
    opened = aio.run(backend.open(KernelOptions(language="kernel:python3", sandbox="off")))
    assert run(opened, "print(1)").stdout == "1\n"
    aio.run(opened.close())


def test_strict_is_refused_because_the_server_runs_the_kernel(backend):
    with pytest.raises(SandboxUnavailable, match="gateway"):
        aio.run(backend.open(KernelOptions(sandbox="strict")))


def test_a_wrong_path_on_the_server_is_told(any_gateway):
    url, token = any_gateway
    with pytest.raises((HttpError, NetworkError, PermissionDenied)):
        aio.run(open_backend(f"{url}/nowhere", token).open(OFF))


def test_input_that_is_missing_or_too_large_is_refused(kernel, tmp_path):
    with pytest.raises(NbtoolsError):
        run(kernel, "1", context=RunContext(files=(tmp_path / "absent.csv",)))
    huge = tmp_path / "huge.bin"
    with huge.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(LimitExceeded):
        run(kernel, "1", context=RunContext(files=(huge,)))
    with pytest.raises(LimitExceeded):
        run(kernel, "#" * (5 << 20))
    with pytest.raises(InvalidArguments):
        run(kernel, b"1")
    assert run(kernel, "print(1)").stdout == "1\n"


def test_output_that_the_server_drops_is_said_to_be_missing(kernel):
    done = run(kernel, "for i in range(12): print('x' * 1_000_000, flush=True)")
    assert done.status == "ok"
    assert done.truncated
    assert "rate" not in done.stderr


def test_code_of_megabytes_arrives(kernel):
    code = "x = '" + "y" * 3_000_000 + "'\nprint(len(x))"
    assert run(kernel, code).stdout == "3000000\n"


def test_memory_is_said_to_be_missing(kernel):
    assert "memory is not available on a gateway" in run(kernel, "1", context=RunContext(memory=object())).notes


def test_remote_files_are_removed_with_the_kernel(backend, tmp_path):
    opened = aio.run(backend.open(OFF))
    folder = Path(run(opened, "import os; print(os.getcwd())", context=RunContext(cwd=tmp_path)).stdout.strip())
    assert folder.is_dir()
    aio.run(opened.close())
    aio.run(opened.close())
    assert not folder.exists()


def test_a_kernel_that_died_before_it_answered_is_an_error(any_gateway, monkeypatch):
    # Some servers answer at once: nothing that this kernel is sent arrives.
    monkeypatch.setattr(KernelSocket, "send", lambda *_: None)
    backend = open_backend(*any_gateway, start_timeout=0.1)
    with pytest.raises(KernelDied, match="did not answer"):
        aio.run(backend.open(OFF))
    aio.run(backend.close())
