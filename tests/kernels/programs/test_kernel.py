"""One script, one process: shell, Node.js and PowerShell."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nbtools.confine import capabilities
from nbtools.errors import InvalidArguments, KernelDied, LanguageUnavailable, SandboxUnavailable
from nbtools.ground import aio
from nbtools.kernels import KernelOptions, OutputLimits, RunContext
from nbtools.kernels.languages import LANGUAGES, language_of, spellings
from nbtools.kernels.programs.kernel import ProcessBackend
from nbtools.processes import process_tree
from tests.conftest import is_running, wait_until, with_enough_time

pytestmark = pytest.mark.processes

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")


@pytest.fixture
def run(backend, tmp_path):
    """Return a function that runs one script in a process of its own."""

    def once(code, language="bash", *, timeout=30, context=None, on_output=None, limits=None, grace=1.0, **options):
        async def work():
            kernel = await backend.open(KernelOptions(language=language, **{"cwd": tmp_path} | options))
            try:
                return await kernel.run(
                    code,
                    timeout=timeout,
                    grace=grace,
                    context=context or RunContext(),
                    on_output=on_output,
                    limits=limits or OutputLimits(),
                )
            finally:
                await kernel.close()

        return aio.run(work())

    return once


def test_a_program_that_could_not_be_started_says_why_instead_of_an_exit_code(run, tmp_path):
    with pytest.raises(KernelDied, match=r"exit code 127\. It said: FileNotFoundError"):
        run("echo hi", cwd=tmp_path / "gone")


def test_a_shell_script_runs_where_few_files_may_be_open():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from nbtools.kernels import Kernels\n"
        "with Kernels(spares=0) as kernels: print(kernels.run('echo hi; ls / | wc -l', language='bash').stdout)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout[:3], done.stderr) == ("hi\n", "")


# A program that prints 42, in each language of the table but Python.
FORTY_TWO = {
    "bash": "echo $((6*7))",
    "shell": "echo $((6*7))",
    "node": "console.log(6*7)",
    "powershell": '[Console]::Write("42`n")',
}


@pytest.mark.parametrize("spelling", sorted({*spellings()} - {"python", "python3", "py"}))
def test_a_script_answers_with_its_output_and_exit_code(run, spelling):
    language = LANGUAGES[language_of(spelling)]
    if not any(map(shutil.which, language.programs)):
        pytest.skip(f"{language.title} is not installed")
    assert language.name in FORTY_TWO, f"add a program in {language.name} that prints 42 to FORTY_TWO"
    done = run(FORTY_TWO[language.name], spelling)
    assert (done.status, done.stdout, done.stderr, done.exit_code, done.signal) == ("ok", "42\n", "", 0, None)
    assert done.duration_s > 0


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("bash", "echo out; echo err >&2; exit 3"),
        ("sh", "echo out; echo err >&2; exit 3"),
        pytest.param("node", "console.log('out'); console.error('err'); process.exitCode = 3", marks=needs_node),
    ],
)
def test_an_exit_code_is_an_error_that_shows_the_last_complaint(run, language, code):
    done = run(code, language)
    assert (done.status, done.stdout, done.stderr, done.exit_code) == ("error", "out\n", "err\n", 3)
    assert str(done.error) == "exit code 3: err"


def test_a_shell_script_behaves_as_on_a_command_line(run):
    done = run("set -e\necho $0 $#\nfalse\necho not reached")
    assert (done.stdout, done.exit_code) == ("bash 0\n", 1)
    done = run("true\nno_such_command")
    assert done.stderr == "bash: line 2: no_such_command: command not found\n"
    assert run("trap 'echo bye' EXIT\nexit 4").stdout == "bye\n"
    assert run("cat; echo end").stdout == "end\n"


@needs_node
def test_an_exception_of_node_has_name_message_and_line(run):
    done = run("\nfunction f() {\n  throw new TypeError('boo');\n}\nf();", "node")
    assert (done.status, done.exit_code) == ("error", 1)
    assert str(done.error) == "line 3: TypeError: boo"
    assert "drivers" not in done.error.traceback
    assert "TypeError: boo" in done.stderr
    done = run("let a = 1;\nconst b = ;", "node")
    assert (done.error.name, done.error.line) == ("SyntaxError", 2)
    assert run("throw 'text'", "node").error.value == "text"
    assert run("Promise.reject(new RangeError('late'))", "node").error.name == "RangeError"


@needs_node
def test_node_takes_scripts_and_modules(run, tmp_path):
    (tmp_path / "mine.js").write_text("module.exports = {answer: 42};")
    (tmp_path / "theirs.mjs").write_text("export const answer = 43;")
    assert run("console.log(require('./mine').answer, __dirname === process.cwd())", "node").stdout == "42 true\n"
    assert run("import('./theirs.mjs').then((m) => console.log(m.answer))", "node").stdout == "43\n"
    module = (
        "import {answer} from './theirs.mjs';\nconsole.log(await Promise.resolve(answer), require('./mine').answer)"
    )
    assert run(module, "node").stdout == "43 42\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.js", "theirs.mjs"]
    assert run("setTimeout(() => console.log('later'), 50); console.log('now')", "node").stdout == "now\nlater\n"


def test_variables_and_folder_reach_the_script(run, tmp_path):
    inner = tmp_path / "a 'strange' name"
    inner.mkdir()
    context = RunContext(
        cwd=inner, variables={"text": 'it\'s\n"so" $HOME', "data": {"a": [1, "ü"]}, "big": "x" * 200_000}
    )
    done = run('printf "%s|%s|%s|" "$text" "$data" "${#big}"; basename "$PWD"; env | grep -c "^text="', context=context)
    assert done.stdout == 'it\'s\n"so" $HOME|{"a": [1, "ü"]}|200000|a \'strange\' name\n1\n'


@needs_node
def test_variables_reach_node_as_values(run, tmp_path):
    context = RunContext(cwd=tmp_path, variables={"data": {"a": [1, "ü"]}, "big": "x" * 200_000})
    assert run("console.log(data.a[0] + 1, data.a[1], big.length)", "node", context=context).stdout == "2 ü 200000\n"


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_the_length_of_a_script_does_not_matter(run, size):
    code = "x=1\n" * (size // 4) + "echo end $x"
    assert run(code).stdout == "end 1\n"


@needs_node
def test_the_length_of_a_node_script_does_not_matter(run):
    assert run("let x = 1;\n" + "x += 1;\n" * 300_000 + "console.log(x)", "node").stdout == "300001\n"


def test_code_that_is_not_text_or_has_nul_is_refused(run):
    for code in ("echo \0", b"echo", None):
        with pytest.raises(InvalidArguments):
            run(code)


def test_lone_surrogates_and_line_ends_survive(run):
    assert run("echo 'Grüße 🎈'\r\n").stdout.startswith("Grüße 🎈")
    assert run("echo ok # \udc80").stdout == "ok\n"


def test_a_missing_interpreter_says_how_to_get_it(run, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LanguageUnavailable, match=r"Node\.js is not installed") as caught:
        run("1", "node")
    assert "apt install nodejs" in caught.value.hint


def test_an_unknown_language_is_refused_with_the_nearest_name(run):
    with pytest.raises(LanguageUnavailable) as caught:
        run("1", "javascrip")
    assert "Did you mean javascript?" in caught.value.hint
    with pytest.raises(LanguageUnavailable):
        run("1", "kernel:ir")


def test_a_powershell_that_is_missing_is_named(run):
    if shutil.which("pwsh") or shutil.which("powershell"):
        done = run("Write-Output (6*7)", "powershell")
        assert (done.status, done.stdout.strip(), done.exit_code) == ("ok", "42", 0)
        assert run("throw 'no'", "powershell").exit_code == 1
    else:
        with pytest.raises(LanguageUnavailable, match="PowerShell is not installed"):
            run("1", "powershell")


@pytest.mark.races
def test_output_streams_as_it_appears(run, tmp_path):
    seen = []

    def look(output):
        seen.append(output.text)
        (tmp_path / "seen").touch()

    run("echo early; until [ -e seen ]; do sleep 0.01; done; echo late", on_output=look)
    assert seen == ["early\n", "late\n"]


@pytest.mark.races
@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("bash", "echo begun; while :; do :; done"),
        ("bash", "echo begun; sleep 100"),
        pytest.param("node", "console.log('begun'); for (;;) {}", marks=needs_node),
        pytest.param("node", "console.log('begun'); setInterval(() => {}, 1000)", marks=needs_node),
    ],
)
def test_an_endless_script_times_out_with_its_output(run, language, code):
    seconds, done = with_enough_time(lambda s: run(code, language, timeout=s), lambda it: it.stdout, 0.25)
    assert (done.status, done.stdout, done.signal) == ("timeout", "begun\n", "SIGINT")
    assert seconds <= done.duration_s < seconds + 29


@pytest.mark.races
def test_a_script_that_ignores_the_interrupt_is_killed_with_its_children(run):
    code = "trap '' INT; (trap '' INT; exec sleep 300) & echo $!; while :; do sleep 1; done"
    _, done = with_enough_time(lambda s: run(code, timeout=s, grace=0.3), lambda it: it.stdout, 0.5)
    assert (done.status, done.signal) == ("timeout", "SIGKILL")
    wait_until(lambda: not is_running(int(done.stdout)))


@pytest.mark.races
def test_daemons_die_with_the_script(run):
    done = run("setsid sh -c 'setsid sleep 300 >/dev/null 2>&1 & echo $!' & wait")
    assert done.status == "ok"
    wait_until(lambda: not is_running(int(done.stdout)))


@pytest.mark.races
def test_a_stopped_script_returns_what_it_printed(backend, tmp_path):
    async def work():
        kernel = await backend.open(KernelOptions(language="bash", cwd=tmp_path))
        begun = asyncio.Event()
        task = asyncio.ensure_future(kernel.run("echo begun; sleep 100", on_output=lambda _: begun.set()))
        await asyncio.wait_for(begun.wait(), 60)
        task.cancel()
        done = await task
        await kernel.close()
        return done

    done = aio.run(work())
    assert (done.status, done.stdout) == ("stopped", "begun\n")


@pytest.mark.races
def test_output_is_capped_and_endless_output_ended(run):
    done = run("head -c 300000 /dev/zero | tr '\\0' y", limits=OutputLimits(text_bytes=100_000))
    assert (done.status, done.stdout, done.truncated) == ("ok", "y" * 100_000, True)
    done = run("yes", limits=OutputLimits(text_bytes=100_000))
    assert (done.status, len(done.stdout), done.truncated) == ("output_limit", 100_000, True)


@pytest.mark.races
@needs_node
def test_endless_output_of_node_is_ended(run):
    done = run("for (;;) console.log('x'.repeat(10_000))", "node", limits=OutputLimits(text_bytes=1_000_000))
    assert (done.status, len(done.stdout), done.truncated) == ("output_limit", 1_000_000, True)


@pytest.mark.races
def test_a_script_killed_by_a_signal_says_which(run):
    done = run("kill -SEGV $$")
    assert (done.status, done.signal, done.exit_code) == ("died", "SIGSEGV", None)


@pytest.mark.races
@pytest.mark.slow
def test_a_fork_bomb_is_ended(run):
    # Doubles seven times and no further: a failure of this test must not be the end of the machine that runs it.
    bomb = 'bomb() { [ "$1" -gt 6 ] || { bomb $(($1 + 1)) & bomb $(($1 + 1)) & }; sleep 20; }; bomb 0'
    done = run(bomb, timeout=20, processes=40)
    assert done.status == "process_limit"


@pytest.mark.races
@pytest.mark.slow
def test_too_much_memory_is_ended(run):
    code = "for i in 1 2 3; do tail /dev/zero & done; wait"
    done = run(code, timeout=20, memory_bytes=300 << 20, sandbox="limits")
    # Each of the three may come to its own limit before the watch has seen them together.
    assert done.status in {"memory_limit", "error"} or done.stderr.count("memory exhausted") == 3
    if shutil.which("node"):
        done = run("const a = []; for (;;) a.push(new Array(1e6).fill(7))", "node", memory_bytes=1 << 30, timeout=60)
        assert done.status == "memory_limit"


def test_a_file_beyond_its_size_is_not_written(run, tmp_path):
    done = run("head -c 3000000 /dev/zero > big; echo $?", file_bytes=1_000_000)
    assert (tmp_path / "big").stat().st_size <= 1_000_000
    assert done.stdout != "0\n"


def test_secrets_are_not_in_the_environment(run, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "hidden")
    monkeypatch.setenv("PLAIN", "shown")
    assert run("echo $SOME_API_KEY-$PLAIN").stdout == "-shown\n"
    assert run("echo $SOME_API_KEY", sandbox="off").stdout == "hidden\n"


@pytest.mark.races
@pytest.mark.skipif(not capabilities().can("strict"), reason="this host cannot enforce it")
def test_strict_scripts_reach_nothing_outside(run, tmp_path):
    code = """
cat /etc/shadow; cat ~root/.bashrc; echo x > /tmp/nbtools-outside; kill -9 $OWNER; exec 3<>/dev/tcp/127.0.0.1/1
cat /proc/$OWNER/environ; chmod 777 /usr/bin/env; unshare -r true; ulimit -n 99999
echo y > made; chmod 750 made; stat -c %a made; git --version >/dev/null; mktemp -u | cut -c1-9
"""
    done = run(code, sandbox="strict", network=False, context=RunContext(variables={"OWNER": str(os.getpid())}))
    assert done.stdout == "750\n/tmp/nbk-\n"
    assert done.stderr.count("denied") + done.stderr.count("permitted") >= 8
    assert done.sandbox == "strict"
    assert not Path("/tmp/nbtools-outside").exists()


@pytest.mark.races
@needs_node
@pytest.mark.skipif(not capabilities().can("strict"), reason="this host cannot enforce it")
def test_strict_node_works_and_reaches_nothing_outside(run):
    code = """
const fs = require('fs'), net = require('net'), dns = require('dns'), {execSync} = require('child_process');
const refused = (f) => { try { f(); return 'done'; } catch (error) { return error.code; } };
console.log(refused(() => fs.readFileSync('/etc/shadow')), refused(() => process.kill(+OWNER, 0)));
console.log(refused(() => fs.writeFileSync('/tmp/nbtools-outside', '')));
fs.writeFileSync('own.txt', 'x'); fs.chmodSync('own.txt', 0o600); console.log(String(execSync('cat own.txt')));
net.connect(1, '127.0.0.1').on('error', (error) => console.log(error.code));
"""
    context = RunContext(variables={"OWNER": str(os.getpid())})
    done = run(code, "node", sandbox="strict", network=False, context=context)
    assert done.stdout == "EACCES EPERM\nEACCES\nx\nEPERM\n", done.stderr


def test_strict_is_refused_where_it_cannot_be_had(run, monkeypatch):
    import nbtools.confine

    cannot = nbtools.confine.HostLimits(platform="x", level="limits", missing=("Landlock: none",))
    monkeypatch.setattr(nbtools.confine, "capabilities", lambda: cannot)
    with pytest.raises(SandboxUnavailable, match="Landlock: none"):
        run("true", sandbox="strict")


@pytest.mark.races
def test_nothing_is_left_when_the_backend_closes(tmp_path):
    async def work():
        backend = ProcessBackend()
        kernel = await backend.open(KernelOptions(language="bash", cwd=tmp_path, lasting=True))
        await kernel.run("sleep 300 & echo $!")
        folder = backend.folder.path
        pids = process_tree.descendants([(await backend.warden()).pid])
        await backend.close()
        await backend.close()
        return folder, pids

    before = len(list(Path("/proc/self/fd").iterdir()))
    folder, pids = aio.run(work())
    assert not folder.exists()
    assert len(pids) >= 3
    wait_until(lambda: not any(map(is_running, pids)))
    wait_until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before + 1)
