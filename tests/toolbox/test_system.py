import asyncio
import os
import subprocess
import sys
import textwrap
import threading

import psutil
import pytest

from nbtools.assembly.workbench import Workbench
from nbtools.contract.tool import ToolCall
from nbtools.errors import ParseError
from nbtools.ground import aio
from nbtools.ground.paths import Roots
from nbtools.toolbox import CommandPolicy, SandboxPolicy
from nbtools.toolbox.commands.command_line import parse
from nbtools.toolbox.commands.command_tools import TOOLS
from nbtools.toolbox.commands.processes import Processes
from tests.conftest import wait_until, with_enough_time


@pytest.fixture
def call(commands):
    return commands


def run(call, command, **more):
    return call("shell", command=command, **more)


@pytest.mark.processes
def test_a_command_gives_both_streams_and_its_return_code(call, folder):
    (folder / "a").touch()
    result = run(call, "ls . nowhere")
    assert result.ok
    assert result.data["stdout"] == ".:\na\n"
    assert "nowhere" in result.data["stderr"]
    assert result.data["returncode"] == 2
    assert "[exit code 2]" in result.text
    assert run(call, "true").text == "[no output, exit code 0]"


def test_a_program_that_is_missing_stops_the_line_before_it_starts(call, folder):
    call.provide(CommandPolicy(allowed=("*",)))
    error = run(call, "touch made && no-such-program-here").error
    assert (error.code, "column 15: there is no program 'no-such-program-here'" in error.message) == (
        "FILE_NOT_FOUND",
        True,
    )
    assert not (folder / "made").exists()


@pytest.mark.processes
def test_commands_run_in_the_root_and_the_second_only_after_success(call, folder):
    assert run(call, "pwd").data["stdout"] == f"{folder}\n"
    assert run(call, "ls nowhere && touch made").data["returncode"] == 2
    assert not (folder / "made").exists()
    assert run(call, "ls nowhere | cat && touch made").data["returncode"] == 0
    assert (folder / "made").exists()


@pytest.mark.processes
def test_pipelines_end_when_their_reader_does(call):
    result = run(call, "yes | head -2", timeout=20)
    assert result.data == {"stdout": "y\ny\n", "stderr": "", "returncode": 0}
    assert run(call, "seq 1 100000 | sort -n | wc -l", timeout=20).data["stdout"].strip() == "100000"


@pytest.mark.processes
def test_the_environment_of_commands_has_no_secrets(call):
    shown = run(call, "env").data["stdout"]
    assert "PLAIN=seen" in shown
    assert "hidden" not in shown
    assert "me:pw" not in shown


def marked(text):
    return [p for p in psutil.process_iter(["cmdline"]) if text in " ".join(p.info["cmdline"] or ())]


@pytest.mark.processes
def test_a_timeout_ends_the_whole_family_and_keeps_the_output(call):
    command = "echo so far && timeout 300 sleep 271.5 | sleep 272.5"
    seconds, result = with_enough_time(lambda s: run(call, command, timeout=s), lambda it: it.data["stdout"])
    assert result.error.code == "TIMEOUT"
    assert result.error.message == f"timed out after {seconds} s"
    assert result.data["returncode"] == 124
    assert result.data["stdout"] == "so far\n"
    wait_until(lambda: not marked("sleep 271.5") and not marked("sleep 272.5"))


@pytest.mark.slow
@pytest.mark.processes
def test_a_command_that_does_not_want_to_end_is_killed(call, folder):
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(273)"
    )
    (folder / "stubborn.py").write_text(script)
    command = f"{sys.executable} {folder}/stubborn.py"
    _, result = with_enough_time(lambda s: run(call, command, timeout=s), lambda it: it.data["stdout"])
    assert (result.error.code, result.data["stdout"]) == ("TIMEOUT", "on\n")
    wait_until(lambda: not marked(f"{folder}/stubborn.py"))


@pytest.mark.processes
def test_daemons_that_slip_away_are_ended_too(call, folder):
    (folder / "daemon.py").write_text(
        textwrap.dedent("""
        import os, sys, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                sys.argv = ["x"]
                time.sleep(274)
            os._exit(0)
        print("started")
        """)
    )
    assert run(call, f"{sys.executable} {folder}/daemon.py").data["stdout"] == "started\n"
    run(call, "setsid sleep 275.5", timeout=5)
    wait_until(lambda: not marked(f"{folder}/daemon.py") and not marked("sleep 275.5"))


@pytest.mark.processes
def test_endless_output_is_ended_at_the_cap(call):
    result = run(call, "yes marker-of-this-test", timeout=30)
    assert result.error.code == "LIMIT_EXCEEDED"
    assert len(result.data["stdout"]) == 100_000
    wait_until(lambda: not marked("marker-of-this-test"))


@pytest.mark.processes
def test_stop_ends_the_command_and_keeps_the_output(call):
    began = threading.Event()

    async def stopped():
        asked = ToolCall(
            tool="shell", arguments={"command": "echo so far && sleep 276.5"}, on_output=lambda *_: began.set()
        )
        task = asyncio.ensure_future(call.executor.acall(asked))
        await aio.in_thread(began.wait, 60)
        task.cancel()
        return await task

    result = aio.run(stopped(), timeout=30)
    assert (result.error.code, result.data["stdout"]) == ("CANCELLED", "so far\n")
    wait_until(lambda: not marked("sleep 276.5"))


@pytest.mark.processes
def test_output_is_shown_as_it_appears(call):
    seen = []
    result = run(call, "echo one && ls nowhere", _on_output=lambda *piece: seen.append(piece[:2]))
    assert result.ok
    assert ("stdout", "one\n") in seen
    assert any(kind == "stderr" for kind, _ in seen)


@pytest.mark.processes
def test_odd_bytes_come_out_as_text(call):
    assert run(call, "printf '\\377\\303\\274'").data["stdout"] == "\ufffdü"


@pytest.mark.parametrize("timeout", [0, -1, 10_000, float("nan")])
def test_timeouts_have_bounds(call, timeout):
    assert run(call, "ls", timeout=timeout).error.code == "INVALID_ARGUMENTS"


def test_a_line_has_bounds(call):
    assert run(call, "echo " + "x" * 20_000).error.code == "INVALID_ARGUMENTS"
    assert run(call, "&&".join(["true"] * 51)).error.code == "LIMIT_EXCEEDED"
    with pytest.raises(ParseError):
        parse("")


def test_the_description_says_what_is_allowed_here(tmp_path):
    with Workbench(home=tmp_path, allowed_commands=("ls", "git")) as wb:
        for name in ("shell", "process"):
            assert wb.registry[name].description.endswith("\n\nAllowed here: ls, git.")
    with Workbench(home=tmp_path, allowed_commands=()) as wb:
        assert "Allowed here: nothing, until ALLOWED_COMMANDS" in wb.registry["shell"].description


def test_a_model_needs_approval(call):
    assert run(call, "ls", _caller="model").error.code == "APPROVAL_DENIED"


@pytest.mark.processes
def test_a_background_process_is_started_watched_and_stopped(call, folder):
    (folder / "serve.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(277)")
    started = call("process", command=sys.executable, args=["serve.py"])
    assert (started.data["status"], started.data["returncode"]) == ("running", None)
    pid = started.data["pid"]
    wait_until(lambda: call.data("process", action="status", pid=pid)["stdout"] == "up\n")
    assert pid in [p["pid"] for p in call.data("process", action="list")["processes"]]
    stopped = call.data("process", action="stop", pid=pid)
    assert (stopped["status"], stopped["returncode"]) == ("stopped", 143)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert call.data("process", action="stop", pid=pid)["status"] == "stopped"


def finished(call, command, *args):
    """Start a process and return its status when it has ended: how soon that is depends on the machine."""
    pid = call.data("process", command=command, args=list(args))["pid"]
    wait_until(lambda: call.data("process", action="status", pid=pid)["status"] == "exited")
    return call("process", action="status", pid=pid)


@pytest.mark.processes
def test_a_process_that_ends_at_once_says_how(call):
    done = finished(call, "ls", "nowhere")
    assert done.data["returncode"] == 2
    assert "nowhere" in done.data["stderr"]
    assert "exit code 2" in done.text


@pytest.mark.processes
def test_arguments_are_not_read_by_a_shell(call, folder):
    done = finished(call, "echo", "$(touch EVIL)", "; touch EVIL", "*", "$PLAIN")
    assert done.data["stdout"] == "$(touch EVIL) ; touch EVIL * $PLAIN\n"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"command": "rm", "args": ["x"]}, "PERMISSION_DENIED"),
        ({"command": "./ls"}, "PERMISSION_DENIED"),
        ({"command": "ls -l"}, "PERMISSION_DENIED"),
        ({"command": "ls; rm"}, "PERMISSION_DENIED"),
        ({"command": "ls", "args": ["a\0b"]}, "INVALID_ARGUMENTS"),
        ({"command": ""}, "INVALID_ARGUMENTS"),
        ({}, "INVALID_ARGUMENTS"),
        ({"action": "status"}, "INVALID_ARGUMENTS"),
        ({"action": "status", "pid": 1}, "INVALID_ARGUMENTS"),
        ({"action": "stop", "pid": os.getpid()}, "INVALID_ARGUMENTS"),
        ({"action": "kill", "pid": 1}, "INVALID_ARGUMENTS"),
    ],
)
def test_processes_that_may_not_be_are_refused(call, arguments, code):
    assert call.code("process", **arguments) == code


def test_a_program_that_is_missing_is_not_found(call):
    call.provide(CommandPolicy(allowed=("*",)))
    assert call.code("process", command="no-such-program-here") == "FILE_NOT_FOUND"


@pytest.mark.processes
def test_no_more_run_than_may_and_all_end_with_the_service(shelf, folder, allowed):
    own = Processes(CommandPolicy(processes=2), Roots([folder]))
    call = shelf(*TOOLS, policy=CommandPolicy(allowed=allowed), confinements=SandboxPolicy(), processes=own)
    for _ in range(2):
        call("process", command="sleep", args=["278.5"]).raise_for_error()
    assert call.code("process", command="sleep", args=["278.5"]) == "LIMIT_EXCEEDED"
    own.close()
    wait_until(lambda: not marked("sleep 278.5"))
    own.close()
    assert call.data("process", action="list") == {"processes": []}
    call("process", command="true").raise_for_error()
    own.close()


@pytest.mark.processes
def test_the_output_of_a_long_running_process_keeps_its_end(call, folder):
    (folder / "talk.py").write_text("for i in range(30000): print(i)\nprint('end')")
    pid = call.data("process", command=sys.executable, args=["talk.py"])["pid"]
    wait_until(lambda: call.data("process", action="status", pid=pid)["status"] == "exited")
    told = call.data("process", action="status", pid=pid)["stdout"]
    assert told.endswith("29999\nend\n")
    assert len(told) <= 100_000


@pytest.mark.races
def test_nothing_is_left_when_the_owner_is_killed(folder):
    """As when the notebook's kernel dies: what it had started in the background dies with it."""
    code = f"""
        import time
        from nbtools.contract.door import Door
        from nbtools.contract.execute import LocalExecutor
        from nbtools.ground.paths import Roots
        from nbtools.contract.tool import ToolCall
        from nbtools.toolbox import CommandPolicy, SandboxPolicy
        from nbtools.toolbox.commands.processes import Processes
        from nbtools.toolbox.commands.command_tools import TOOLS
        policy, roots = CommandPolicy(allowed=("*",)), Roots([{str(folder)!r}])
        processes = Processes(policy, roots)
        services = {{CommandPolicy: lambda: policy, Roots: lambda: roots, SandboxPolicy: SandboxPolicy,
                    Processes: lambda: processes}}
        executor = LocalExecutor(TOOLS, door=Door(services=services))
        result = executor.call(ToolCall(tool="process", arguments={{"command": "sleep", "args": ["279.5"]}}))
        print(result.data["pid"], flush=True)
        time.sleep(300)
    """
    owner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    try:
        assert int(owner.stdout.readline()) > 0
        assert marked("sleep 279.5")
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    wait_until(lambda: not marked("sleep 279.5"))


def test_variables_are_listed_without_secrets(shelf):
    secrets = {
        "OPENAI_API_KEY": "sk-1",
        "MY_SECRET": "s",
        "GITHUB_TOKEN": "t",
        "DB_PASSWORD": "p",
        "aws_secret_access_key": "a",
        "GOOGLE_APPLICATION_CREDENTIALS": "/c.json",
        "DATABASE_URL": "postgres://me:pw@host/db",
        "INNOCENT": "ghp_0123456789abcdefghijABCDEFGHIJ",
        "SSH_AUTH_SOCK": "/agent",
    }
    plain = {"PATH": "/bin", "PATH_EXTRA": "/x", "LANG": "C", "EMPTY": ""}
    call = shelf(*TOOLS, policy=CommandPolicy(environment={**secrets, **plain}))
    assert call.data("env_vars") == {"vars": plain}
    assert call.data("env_vars", pattern="PATH*") == {"vars": {"PATH": "/bin", "PATH_EXTRA": "/x"}}
    assert call.data("env_vars", pattern="*KEY*") == {"vars": {}}
    assert call.data("env_vars", pattern="[") == {"vars": {}}
    assert call("env_vars", pattern="LANG").text == "LANG=C"


def test_variables_of_this_process_are_read_when_asked(shelf, monkeypatch):
    call = shelf(*TOOLS, policy=CommandPolicy())
    monkeypatch.setenv("NEW_VARIABLE_HERE", "1")
    assert call.data("env_vars", pattern="NEW_*") == {"vars": {"NEW_VARIABLE_HERE": "1"}}


@pytest.mark.processes
def test_strictly_confined_commands_see_the_roots_and_no_more(shelf, folder):
    from nbtools import confine

    if not confine.capabilities().can("strict"):
        pytest.skip("this host cannot confine")
    (folder / "mine.txt").write_text("mine")
    own = Processes(CommandPolicy(), Roots([folder]))
    policy = CommandPolicy(allowed=("cat", "touch", "ls", "chmod"))
    call = shelf(*TOOLS, policy=policy, confinements=SandboxPolicy(person="strict"), processes=own)
    try:
        secret = folder.parent / "outside" / "secret.txt"
        assert run(call, "cat mine.txt").data["stdout"] == "mine"
        refused = run(call, f"cat {secret}")
        assert (refused.data["stdout"], refused.data["returncode"]) == ("", 1)
        assert run(call, f"touch {secret.parent}/new").data["returncode"] != 0
        run(call, "touch made").raise_for_error()
        assert (folder / "made").exists()
        done = finished(call, "cat", str(secret))
        assert (done.data["stdout"], done.data["returncode"]) == ("", 1)
    finally:
        own.close()
