"""Sessions of shell and Node.js: state lasts, interrupts leave it whole, exits end it."""

import asyncio
import shutil

import pytest

from nbtools.ground import aio
from nbtools.kernels import KernelOptions, RunContext

pytestmark = pytest.mark.processes

LANGUAGES = ["bash", "sh", pytest.param("node", marks=pytest.mark.skipif(not shutil.which("node"), reason="no node"))]


@pytest.fixture
def session(backend, tmp_path):
    """Return a function that opens a session and returns a function that runs code in it."""
    opened = []

    def start(language):
        kernel = aio.run(backend.open(KernelOptions(language=language, cwd=tmp_path, lasting=True)))
        opened.append(kernel)

        def run(code, **options):
            return aio.run(kernel.run(code, **{"timeout": 20, "grace": 1.0, **options}))

        run.kernel = kernel
        return run

    yield start
    for kernel in opened:
        aio.run(kernel.close())


def test_a_shell_keeps_variables_functions_folder_and_options(session, tmp_path):
    (tmp_path / "inner").mkdir()
    run = session("bash")
    done = run('x=5; cd inner; greet() { echo "hi $1"; }; shopt -s nullglob')
    assert (done.status, done.stdout, done.stderr, done.exit_code) == ("ok", "", "", 0)
    assert run("greet $x; basename $PWD; echo *.none").stdout == "hi 5\ninner\n\n"


def test_a_shell_tells_the_code_of_the_last_command_and_goes_on(session):
    run = session("bash")
    done = run("echo one; (exit 7)")
    assert (done.status, done.exit_code, done.stdout) == ("error", 7, "one\n")
    done = run("no_such_command")
    assert (done.exit_code, str(done.error)) == (127, "exit code 127: bash: no_such_command: command not found")
    done = run("if then")
    assert (done.status, done.exit_code) == ("error", 2)
    assert "syntax error" in done.stderr
    assert run("echo still").stdout == "still\n"


@pytest.mark.races
@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_printed_after_a_stop_in_the_middle_of_printing_arrives(session, language):
    loops, prints = (
        ("for (;;) console.log('x')", "console.log('after')")
        if language == "node"
        else (
            "while :; do echo x; done",
            "echo after",
        )
    )

    async def stopped_at_once(kernel):
        begun = asyncio.Event()
        task = asyncio.ensure_future(kernel.run(loops, on_output=lambda _: begun.set(), timeout=20))
        await begun.wait()
        task.cancel()
        return await task

    for _ in range(4):
        run = session(language)
        assert aio.run(stopped_at_once(run.kernel)).status == "stopped"
        assert run(prints).stdout == "after\n"


@pytest.mark.races
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_timeout_leaves_the_state_whole(session, language):
    run = session(language)
    sets, loops, waits, gets = {
        "node": ("const x = 5", "for (;;) {}", "await new Promise((r) => setTimeout(r, 60_000))", "console.log(x)"),
    }.get(language, ("x=5", "while :; do :; done", "sleep 60", "echo $x"))
    run(sets)
    for code in (loops, waits):
        done = run(code, timeout=0.5)
        assert done.status == "timeout"
        assert done.duration_s < 30
    assert run(gets).stdout == "5\n"
    assert run.kernel.alive


@pytest.mark.races
def test_an_interrupt_ends_all_of_a_shell_script(session):
    run = session("bash")
    done = run("f() { sleep 60; echo wrong; }; f; echo wrong; for i in 1 2; do sleep 60; done; echo wrong", timeout=0.5)
    assert (done.status, done.stdout) == ("timeout", "")
    done = run("echo a | (sleep 60; cat); echo wrong", timeout=0.5)
    assert (done.status, done.stdout) == ("timeout", "")
    assert run("echo fine").stdout == "fine\n"


@pytest.mark.races
@pytest.mark.parametrize(("language", "code"), [("bash", "exit 9"), ("sh", "exit 9"), ("node", "process.exit(9)")])
def test_an_exit_ends_the_session_with_its_code(session, language, code):
    if not shutil.which(language):
        pytest.skip(f"{language} is not installed")
    run = session(language)
    done = run(code)
    assert (done.status, done.exit_code, done.stderr) == ("error", 9, "")
    assert not run.kernel.alive
    assert run("1").status == "died"


def test_node_keeps_names_and_lets_them_be_declared_again(session):
    run = session("node")
    assert run("const a = 1; let b = 2; class C {}; function f() { return a + b; }").status == "ok"
    assert run("console.log(f(), typeof C)").stdout == "3 function\n"
    assert run("const a = 10; class C { v = 1 }\nconsole.log(a, new C().v)").stdout == "10 1\n"
    assert run("const late = await Promise.resolve(7)").status == "ok"
    assert run("console.log(late)").stdout == "7\n"


def test_node_waits_for_what_a_script_began(session):
    run = session("node")
    assert run("setTimeout(() => console.log('later'), 60); console.log('now')").stdout == "now\nlater\n"
    done = run("let n = 0; const i = setInterval(() => { console.log(++n); if (n === 3) clearInterval(i); }, 10)")
    assert done.stdout == "1\n2\n3\n"
    assert run("console.log('next')").stdout == "next\n"


def test_node_tells_exceptions_and_goes_on(session):
    run = session("node")
    done = run("\nfunction f() {\n  throw new TypeError('boo');\n}\nf();")
    assert (done.status, done.exit_code, str(done.error)) == ("error", 1, "line 3: TypeError: boo")
    assert "TypeError: boo" in done.stderr
    assert "session.cjs" not in done.error.traceback
    assert run("const x = ;").error.name == "SyntaxError"
    assert run("throw 5").error.value == "5"
    assert run("throw undefined").status == "error"
    assert run("Promise.reject(new RangeError('late'))").error.name == "RangeError"
    assert run("setTimeout(() => { throw new Error('from a timer'); }, 10)").error.value == "from a timer"
    assert run("console.log('fine')").stdout == "fine\n"


def test_node_finds_modules_from_the_working_folder(session, tmp_path):
    (tmp_path / "mine.js").write_text("module.exports = 42;")
    run = session("node")
    assert run("console.log(require('./mine'), require('path').basename(__dirname) !== '')").stdout == "42 true\n"


def test_the_world_of_each_run_reaches_the_session(session, tmp_path):
    (tmp_path / "here").mkdir()
    run = session("bash")
    context = RunContext(cwd=tmp_path / "here", variables={"given": "a b"})
    assert run('echo "$given"; basename "$PWD"', context=context).stdout == "a b\nhere\n"
    done = run("echo not reached", context=RunContext(cwd=tmp_path / "gone"))
    assert done.status == "error"
    assert "gone" in done.stderr


def test_a_script_cannot_forge_an_answer_or_eat_the_next_request(session):
    run = session("bash")
    done = run("cat; read x; echo 'done 5' >&9; exec 5<&0; echo end")
    assert done.stdout == "end\n"
    assert "Bad file descriptor" in done.stderr
    assert run("echo $?; echo next").stdout.endswith("next\n")


def test_nonsense_on_the_answer_pipe_is_dropped(session):
    if not shutil.which("node"):
        pytest.skip("Node.js is not installed")
    run = session("node")
    run("const w = (text) => require('fs').writeSync(9, text)")
    noise = r"w('{broken\n'); w('\xff\xfe\n'); w('[1]\n'); w('done done\n'); w('x'.repeat(9e5))"
    assert run(f"{noise}; w('\\n')").status == "ok"
    assert run("console.log('next')").stdout == "next\n"


async def _begun(kernel, code):
    """Start code, and return the run once it has printed something."""
    begun = asyncio.Event()
    task = asyncio.ensure_future(kernel.run(code, on_output=lambda _: begun.set()))
    await asyncio.wait_for(begun.wait(), 60)
    return task


@pytest.mark.races
def test_stop_and_kill_reach_a_session(backend, tmp_path):
    async def work():
        kernel = await backend.open(KernelOptions(language="bash", cwd=tmp_path, lasting=True))
        try:
            task = await _begun(kernel, "x=3; echo begun; sleep 60")
            task.cancel()
            assert (await asyncio.wait({task}, timeout=30))[0], "the stop did not reach the kernel"
            stopped = await task
            after = await kernel.run("echo $x")
            task = await _begun(kernel, "echo begun; sleep 60")
            await kernel.kill()
            return stopped, after, await task
        finally:
            await kernel.close()

    stopped, after, killed = aio.run(work())
    assert (stopped.status, stopped.stdout) == ("stopped", "begun\n")
    assert after.stdout == "3\n"
    assert (killed.status, killed.signal) == ("died", "SIGKILL")


@pytest.mark.races
@pytest.mark.slow
def test_bash_waits_for_no_program_that_it_was_starting_when_it_was_stopped(backend, tmp_path):
    """The signal meets bash between its own command and the start of the next program once in about twenty times."""

    async def stopped_run():
        kernel = await backend.open(KernelOptions(language="bash", cwd=tmp_path, lasting=True))
        try:
            task = await _begun(kernel, "x=3; echo begun; sleep 60")
            task.cancel()
            await task
            return await asyncio.wait_for(kernel.run("echo $x"), 20)
        finally:
            await kernel.close()

    async def work():
        return [await asyncio.gather(*(stopped_run() for _ in range(4))) for _ in range(15)]

    assert {done.stdout for row in aio.run(work()) for done in row} == {"3\n"}


@pytest.mark.races
def test_a_session_killed_from_outside_is_noticed(session):
    run = session("bash")
    done = run("kill -9 $$; sleep 20")
    assert (done.status, done.signal) == ("died", "SIGKILL")
    assert done.duration_s < 15, "what runs behind the end takes 20 s"


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_a_session_does_at_its_end_is_done(session, tmp_path, language):
    run = session(language)
    node = "process.on('exit', () => require('fs').writeFileSync('late.txt', 'late'))"
    assert run(node if language == "node" else "trap 'printf late > late.txt' EXIT").ok
    aio.run(run.kernel.finish(timeout=20))
    assert (tmp_path / "late.txt").read_text() == "late"
