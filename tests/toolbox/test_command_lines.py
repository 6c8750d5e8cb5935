import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nbtools.confine import holds_programs
from nbtools.errors import FileMissing, ParseError, PermissionDenied
from nbtools.toolbox import CommandPolicy, SandboxPolicy
from nbtools.toolbox.commands.allow_list import Programs
from nbtools.toolbox.commands.command_line import parse
from nbtools.toolbox.commands.command_tools import TOOLS
from nbtools.toolbox.commands.pipelines import read
from tests.conftest import wait_until

PATH = os.environ["PATH"]
needs_landlock = pytest.mark.skipif(not holds_programs("limits"), reason="the kernel does not hold programs here")
ATTACKS = Path(__file__).resolve().parent.parent / "attacks"


@pytest.fixture
def call(commands):
    return commands


def run(call, command, **more):
    return call("shell", command=command, **more)


def argv(text):
    return [[list(command.words) for command in pipeline] for pipeline in parse(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ls -l", [[["ls", "-l"]]]),
        ("  ls\t-l \n", [[["ls", "-l"]]]),
        ("echo 'a b' \"c d\" e\\ f", [[["echo", "a b", "c d", "e f"]]]),
        ("echo ''", [[["echo", ""]]]),
        ("echo a'b'\"c\"d", [[["echo", "abcd"]]]),
        ("echo '$(rm)' '`rm`' '`' '\"' '*.csv' \\*", [[["echo", "$(rm)", "`rm`", "`", '"', "*.csv", "*"]]]),
        ('echo "\\\\ \\" \\n" "a | b" \'&&\'', [[["echo", '\\ " \\n', "a | b", "&&"]]]),
        ("git show HEAD~1 a#b", [[["git", "show", "HEAD~1", "a#b"]]]),
        ("ls | sort|wc", [[["ls"], ["sort"], ["wc"]]]),
        ("ls&&pwd && sort | wc", [[["ls"]], [["pwd"]], [["sort"], ["wc"]]]),
        ("echo {a,b} ! ]]", [[["echo", "{a,b}", "!", "]]"]]]),
        ("python -c 'a\nb'", [[["python", "-c", "a\nb"]]]),
    ],
)
def test_command_lines_are_cut_into_words_as_a_shell_would(text, words):
    assert argv(text) == words


@pytest.mark.processes
@pytest.mark.skipif(not Path("/bin/sh").exists(), reason="compares with a shell")
def test_words_are_what_a_shell_makes_of_them(call, folder):
    lines = [
        "printf '<%s>' a 'b c' \"d  e\" f\\ g '' '$PLAIN' a~ '~' \"~\" a#b",
        'printf \'<%s>\' \'*.csv\' "*.csv" \\*.csv \\$PLAIN "a\\\\b" "\\"" "\\n"',
        "printf '%s\\n' b a | sort",
        "false && echo no",
        "true && echo 'a | b' | cat && echo c",
    ]
    environment = {"PATH": PATH, "HOME": os.environ.get("HOME", "/"), "PLAIN": "seen", "EMPTY": ""}
    for line in lines:
        expected = subprocess.run(["/bin/sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True)
        assert run(call, line).data["stdout"] == expected.stdout, line


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("ls *.csv", 4),
        ("ls a[0-9]", 5),
        ("echo $HOME", 6),
        ('echo "$HOME"', 6),
        ("ls > x", 4),
        ("ls 2>&1", 5),
        ("ls; ls", 3),
        ("ls || ls", 4),
        ("ls\nls", 3),
        ("ls ~/x", 4),
        ("ls # all", 4),
        ("ls &", 4),
        ("(ls)", 1),
    ],
)
def test_what_only_a_shell_reads_is_refused_with_where_it_runs_instead(line, column):
    with pytest.raises(PermissionDenied) as caught:
        parse(line)
    assert caught.value.data == {"column": column}
    assert "code_execute(language='bash')" in caught.value.hint


def attacks(name):
    return [json.loads(line) for line in (ATTACKS / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def evil(folder):
    """Programs in the working folder that leave a trace, under the names of others."""
    (folder / "x").write_text("x")
    for name in ("rm", "ls", "evil.sh"):
        (folder / name).write_text("#!/bin/sh\ntouch EVIL\n")
        (folder / name).chmod(0o755)
    yield
    assert sorted(p.name for p in folder.iterdir()) == ["evil.sh", "ls", "rm", "x"]


@pytest.mark.parametrize("command", attacks("command_lines.jsonl"))
def test_nothing_runs_that_is_not_on_the_list(call, evil, command):
    """Every form in which a shell would run something else, or run it otherwise than it reads."""
    result = run(call, command)
    assert not result.ok, result
    codes = {"PERMISSION_DENIED", "PARSE_ERROR", "INVALID_ARGUMENTS", "PATH_NOT_ALLOWED"}
    assert result.error.code in codes, result


@pytest.mark.processes
@needs_landlock
@pytest.mark.parametrize("level", ["limits", "strict"])
@pytest.mark.parametrize("command", attacks("command_starts.jsonl"))
def test_nothing_is_started_that_is_not_on_the_list(call, evil, command, level):
    """Whatever the options and the data of a program make it start, the kernel has the list."""
    call.provide(SandboxPolicy(person=level))
    result = run(call, command, timeout=20)
    assert result.ok or result.error.code in {"PERMISSION_DENIED", "PARSE_ERROR"}, result


@pytest.mark.processes
@needs_landlock
def test_the_kernel_keeps_interpreters_and_their_children_to_the_list(call, folder):
    """What Python starts is judged too; an allowed script may run, with the interpreter that it needs."""
    code = "import subprocess; print(subprocess.run(['ls']).returncode); subprocess.run(['rm', 'x'])"
    (folder / "x").touch()
    result = run(call, f'{sys.executable} -c "{code}"')
    assert result.data["stdout"].endswith("0\n")
    assert "Permission" in result.data["stderr"]
    assert (folder / "x").exists()
    script = folder / "tool"
    script.write_text(f"#!{sys.executable}\nprint('ran')\n")
    script.chmod(0o755)
    assert "[exit code 126]\n[programs start only programs that are allowed]" in run(call, f"env {script}").text
    call.provide(CommandPolicy(allowed=("env", str(script)), environment=dict(os.environ)))
    for command in (str(script), f"env {script}"):
        assert run(call, command).data["stdout"] == "ran\n"
    assert run(call, f"env {shutil.which('ls')}").data["returncode"] == 126
    pid = call.data("process", command="env", args=["rm", "x"])["pid"]
    wait_until(lambda: call.data("process", action="status", pid=pid)["status"] == "exited")
    assert call.data("process", action="status", pid=pid)["returncode"] == 126
    assert (folder / "x").exists()


@pytest.mark.processes
@needs_landlock
@pytest.mark.skipif(not (shutil.which("tar") and shutil.which("gzip")), reason="tries tar with gzip")
@pytest.mark.parametrize("level", ["limits", "strict"])
def test_programs_may_start_their_helpers_through_sh_but_no_others(call, folder, level):
    call.provide(CommandPolicy(allowed=("tar", "gzip", "env"), environment=dict(os.environ)))
    call.provide(SandboxPolicy(person=level))
    (folder / "x").write_text("x")
    assert run(call, "tar -c -f a.tgz -z x").data["returncode"] == 0
    (folder / "x").unlink()
    assert run(call, "tar -x -f a.tgz -I 'gzip -d'").data["returncode"] == 0
    assert (folder / "x").read_text() == "x"
    result = run(call, "tar -c -f b.tgz -I 'touch EVIL; gzip' x")
    assert "programs start only programs that are allowed" in result.text
    assert run(call, "sh -c 'ls'").error.code == "PERMISSION_DENIED"
    assert run(call, "env sh -c 'echo > EVIL'").data["returncode"] == 126
    assert not (folder / "EVIL").exists()


@pytest.mark.processes
@needs_landlock
@pytest.mark.parametrize("level", ["limits", "strict"])
def test_a_folder_on_the_list_allows_what_lies_in_it(call, folder, tmp_path, level):
    """As for the shims of a version manager, which start programs that are on no search path."""
    real, shims = tmp_path / "versions" / "bin" / "tool", tmp_path / "shims" / "tool"
    for script, text in ((real, "echo real"), (shims, f"exec {real}")):
        script.parent.mkdir(parents=True)
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
    environment = {"PATH": f"{shims.parent}:{PATH}"}
    call.provide(SandboxPolicy(person=level))
    call.provide(CommandPolicy(allowed=("tool",), environment=environment))
    assert run(call, "tool").data["returncode"] == 126
    call.provide(CommandPolicy(allowed=("tool", str(tmp_path / "versions")), environment=environment))
    assert run(call, "tool").data["stdout"] == "real\n"
    assert run(call, str(real)).data["stdout"] == "real\n"
    assert run(call, f"{tmp_path}/versions/../shims/other").error.code == "PERMISSION_DENIED"


@pytest.mark.processes
@needs_landlock
@pytest.mark.parametrize("level", ["limits", "strict"])
def test_files_move_between_folders_as_ever(call, folder, level):
    """A kernel that governs anything refuses that, unless it is told otherwise."""
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    (folder / "a" / "x").touch()
    call.provide(SandboxPolicy(person=level))
    code = "import os; os.rename('a/x', 'b/x'); os.link('b/x', 'a/y')"
    run(call, f'{sys.executable} -c "{code}"').raise_for_error()
    assert (folder / "b" / "x").exists()
    assert (folder / "a" / "y").exists()


@pytest.mark.processes
@needs_landlock
def test_the_loader_runs_no_other_program_in_the_sandbox(call):
    """Every program needs the loader, so it may be executed; but it cannot read what it should not run."""
    call.provide(SandboxPolicy(person="strict"))
    loaders = [file for file in Programs(("ls",), PATH, installed_only=True).files("ls") if "ld" in Path(file).name]
    assert loaders
    result = run(call, f"env {loaders[0]} {shutil.which('id')}")
    assert result.data["stdout"] == ""
    assert result.data["returncode"] != 0


@pytest.mark.parametrize("command", [line for line in attacks("command_starts.jsonl") if "*" not in line[:3]])
def test_programs_that_start_others_are_refused_where_no_kernel_holds_them(allowed, folder, command):
    programs = Programs(allowed, PATH, installed_only=False)
    with pytest.raises((PermissionDenied, ParseError)):
        read(parse(command), programs)


def test_the_refusal_says_what_where_and_what_is_allowed(call):
    error = run(call, "ls &&  rm x").error
    assert "'rm'" in error.message
    assert "column 8" in error.message
    assert "ls" in error.hint
    assert "column 6" in run(call, "echo $(rm)").error.message


@pytest.mark.processes
@needs_landlock
@pytest.mark.parametrize(
    "command",
    [
        "env ls",
        "env A=b ls",
        "env -S 'ls x'",
        "timeout 5 ls",
        "timeout -k 1 -s KILL 5s env -u A nice -n 5 ls",
        "nice -5 ls",
        "echo . | xargs ls",
        "echo . | xargs -n1 -P 2 ls",
        "echo . | xargs -I{} ls {}",
        "find . -name x -exec ls {} +",
        "'ls'",
        'l"s"',
        "nohup ls",
        "echo 'rm -rf /' | true && echo x",
    ],
)
@pytest.mark.parametrize("level", ["limits", "strict"])
def test_what_is_allowed_may_be_written_and_started_in_many_ways(call, folder, command, level):
    (folder / "x").touch()
    call.provide(SandboxPolicy(person=level))
    result = run(call, command)
    assert (result.data["returncode"], result.data["stdout"].strip().removeprefix("./")) == (0, "x"), result


def test_nothing_is_allowed_until_something_is(call):
    call.provide(CommandPolicy())
    result = run(call, "ls")
    assert result.error.code == "PERMISSION_DENIED"
    assert "ALLOWED_COMMANDS" in result.error.hint


@pytest.mark.processes
def test_a_star_allows_every_program_but_no_shell_language(call, folder):
    call.provide(CommandPolicy(allowed=("*",)))
    assert run(call, "touch made && ls").data["stdout"] == "made\n"
    assert run(call, "echo $(ls)").error.code == "PERMISSION_DENIED"
    for line in ("A=b ls", "cd sub && ls", "if true"):
        assert run(call, line).error.code == "FILE_NOT_FOUND"


@pytest.mark.processes
def test_full_paths_stand_for_the_program_that_the_search_path_finds(call, folder):
    found = shutil.which("ls", path=PATH)
    assert run(call, found).ok
    programs = Programs(("ls", "/opt/tool"), PATH, installed_only=True)
    assert programs.check([found]) == programs.check(["ls"]) == found
    with pytest.raises(FileMissing):
        programs.check(["/opt/tool"])
    for other in ("/nowhere/ls", "rm", "/opt/ls"):
        with pytest.raises(PermissionDenied):
            programs.check([other])


def test_the_files_of_a_script_are_itself_and_its_interpreters_and_end_where_these_go_in_a_circle(tmp_path):
    for name, line in (("run", "#!/usr/bin/env inner -x"), ("inner", "#!/bin/sh"), ("own", f"#!{tmp_path}/own")):
        (tmp_path / name).write_text(f"{line}\n")
        (tmp_path / name).chmod(0o755)
    programs = Programs(("run", "own"), f"{tmp_path}:{PATH}", installed_only=True)
    files = programs.files("/usr/bin/env")
    assert {str(tmp_path / name) for name in ("run", "inner", "own")} | {"/usr/bin/env", "/bin/sh"} <= set(files)
    assert all(Path(file).exists() for file in files)


@pytest.mark.processes
def test_relative_folders_of_the_search_path_are_not_looked_in(shelf, folder, keeping):
    (folder / "ls").write_text("#!/bin/sh\necho EVIL\n")
    (folder / "ls").chmod(0o755)
    environment = {**os.environ, "PATH": f".:{PATH}:"}
    policy = CommandPolicy(allowed=("ls",), environment=environment)
    call = shelf(*TOOLS, policy=policy, confinements=SandboxPolicy(), processes=keeping)
    assert run(call, "ls").data["stdout"] == "ls\n"
