import os
import subprocess
from pathlib import Path

import pytest

from nbtools.errors import PermissionDenied
from nbtools.toolbox import CommandPolicy, Confinements
from nbtools.toolbox.command_line import parse
from nbtools.toolbox.command_rules import check, check_program
from nbtools.toolbox.system import TOOLS

PATH = os.environ["PATH"]


@pytest.fixture
def call(commands):
    return commands


def run(call, command, **more):
    return call("shell", command=command, **more)


def argv(text):
    return [["".join(p.value for p in w.pieces) for w in c.words] for step in parse(text) for c in step.commands]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ls -l", [["ls", "-l"]]),
        ("  ls\t-l  ", [["ls", "-l"]]),
        ("echo 'a b' \"c d\" e\\ f", [["echo", "a b", "c d", "e f"]]),
        ("echo ''", [["echo", ""]]),
        ("echo a'b'\"c\"d", [["echo", "abcd"]]),
        ("echo '$(rm)' '`rm`' '`' '\"'", [["echo", "$(rm)", "`rm`", "`", '"']]),
        ('echo "\\$x \\` \\\\ \\" \\n"', [["echo", '$x ` \\ " \\n']]),
        ("echo a # rm -rf", [["echo", "a"]]),
        ("echo a#b", [["echo", "a#b"]]),
        ("echo a\\\nb", [["echo", "ab"]]),
        ("ls | sort|wc", [["ls"], ["sort"], ["wc"]]),
        ("ls&&pwd||pwd;pwd\npwd\n\n", [["ls"], ["pwd"], ["pwd"], ["pwd"], ["pwd"]]),
        ("ls |\nsort", [["ls"], ["sort"]]),
        ("ls &&\n pwd", [["ls"], ["pwd"]]),
        ("echo 2 2>&1 >x", [["echo", "2"]]),
        ("echo $ $, a$", [["echo", "$", "$,", "a$"]]),
        ("echo {a,b} ! ]]", [["echo", "{a,b}", "!", "]]"]]),
    ],
)
def test_command_lines_are_cut_into_words_as_a_shell_would(text, words):
    assert argv(text) == words


@pytest.mark.skipif(not Path("/bin/sh").exists(), reason="compares with a shell")
def test_words_are_what_a_shell_makes_of_them(call, folder):
    for name in ("a.csv", "b.csv", "-rf", "c d.txt"):
        (folder / name).touch()
    lines = [
        "printf '<%s>' a 'b c' \"d  e\" f\\ g '' \"$PLAIN\" $PLAIN \"${PLAIN}x\" '$PLAIN' x$PLAIN",
        "printf '<%s>' *.csv nothing* [ab].csv ?.csv '*.csv' \"*.csv\" \\*.csv c*",
        "printf '<%s>' ~ ~/x '~' a~ \"~\"",
        'printf \'<%s>\' $UNSET"" a"$UNSET"b',
        "printf '%s\n' b a | sort",
        "false && echo no || echo yes; true || echo no",
        "false; true && echo ran",
        "echo err 2>&1 1>/dev/null; echo out",
        "printf 'a\\nb\\n' > made.txt; cat < made.txt; echo c >> made.txt; wc -l made.txt",
    ]
    environment = {"PATH": PATH, "HOME": os.environ.get("HOME", "/"), "PLAIN": "seen"}
    for line in lines:
        expected = subprocess.run(["/bin/sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True)
        assert run(call, line).data["stdout"] == expected.stdout, line


EVASIONS = [
    "rm -rf x",
    "'rm' x",
    '"rm" x',
    "r''m x",
    'r"m" x',
    "\\rm x",
    "r\\m x",
    "r\\\nm x",
    "ls; rm x",
    "ls;rm x",
    "ls\nrm x",
    "ls && rm x",
    "false || rm x",
    "ls | rm x",
    "ls & rm x",
    "rm x & ls",
    "ls |& rm",
    "echo $(rm x)",
    'echo "$(rm x)"',
    "echo `rm x`",
    'echo "`rm x`"',
    "echo ${x:-$(rm x)}",
    "echo $((1+1))",
    "echo $'rm'",
    'echo $"rm"',
    "cat <(rm x)",
    "ls >(rm x)",
    "cat <<EOF\nrm\nEOF",
    "cat <<< rm",
    "(rm x)",
    "( ls )",
    "{ rm x; }",
    "f() { rm x; }; f",
    "if true; then rm x; fi",
    "for i in 1; do rm x; done",
    "while true; do rm x; done",
    "case x in x) rm x;; esac",
    "! rm x",
    "time rm x",
    "eval 'rm x'",
    "eval rm x",
    "exec rm x",
    "source evil.sh",
    ". evil.sh",
    "command rm x",
    "builtin echo x",
    "alias ls=rm",
    "trap 'rm x' EXIT",
    "set -e",
    "export PATH=.",
    "PATH=. ls",
    "LD_PRELOAD=./evil.so ls",
    "IFS=x ls",
    "A=b",
    "A+=b ls",
    "$PLAIN x",
    "$SHELL -c rm",
    "${SHELL} -c rm",
    '"$SHELL" -c rm',
    "l* x",
    "/bin/l? x",
    "[l]s x",
    "~/ls",
    "./ls",
    "../ls",
    "bin/ls",
    "/tmp/ls",
    "/bin/rm x",
    "/usr/bin/../bin/rm x",
    "//bin/rm x",
    "ls/../rm",
    "LS",
    "Ls",
    "ls\u00a0-l",
    "\u006cs\u200b",
    "ls\r",
    "ls\x00",
    "ls \x1b[0m",
    "env rm x",
    "env -i rm x",
    "env -u PATH rm x",
    "env -- rm x",
    "env PATH=. ls",
    "env LD_PRELOAD=./evil.so ls",
    "env -S 'rm x'",
    "env --split-string='rm x'",
    "env -vS 'rm x'",
    "env env env rm x",
    "env 'rm' x",
    "env $PLAIN rm",
    "env ls; rm x",
    "xargs rm",
    "echo x | xargs rm",
    "echo x | xargs -n1 rm",
    "echo x | xargs -n 1 -P 4 rm",
    "echo x | xargs -I{} rm {}",
    "echo rm x | xargs env",
    "echo rm x | xargs nice",
    "echo rm x | xargs timeout 5",
    "echo rm x | xargs xargs",
    "echo rm x | xargs find",
    "echo rm | xargs -I{} {} x",
    "echo x | xargs -a file rm",
    "echo x | xargs --arg-file=y rm",
    "find . -exec rm {} ;",
    "find . -exec rm {} +",
    "find . '-exec' rm {} \\;",
    'find . -ex"ec" rm {} \\;',
    "find . -execdir rm {} \\;",
    "find . -ok rm {} \\;",
    "find . -exec ls {} \\; -exec rm {} \\;",
    "find . -exec env rm {} \\;",
    "timeout 5 rm x",
    "timeout -k 1 5 rm x",
    "timeout -s KILL 5 rm x",
    "timeout --signal=KILL 5 rm x",
    "timeout $PLAIN rm x",
    "nice rm x",
    "nice -n 5 rm x",
    "nice -5 rm x",
    "nohup rm x",
    "setsid rm x",
    "nice timeout 5 env rm x",
    "sh -c 'rm x'",
    "bash -c 'rm x'",
    "python -c 'import os'",
    "busybox rm x",
    "sudo rm x",
    "parallel rm",
    "cd / && ls ; rm x",
    "ls > x | rm",
    "2>x rm",
    "> x",
    "ls 9> x",
    "ls >& x",
    "ls &> x",
    "ls >| x",
    "ls <> x",
    "cat <& 3",
    "",
    "   ",
    "# rm",
    "|",
    "ls |",
    "ls &&",
    "&& ls",
    "ls ;; ls",
    "'ls",
    '"ls',
    "ls '",
    "ls \\",
    "; ls",
    "ls | | ls",
    "ls >",
    "ls > > x",
    "ls < | cat",
]


@pytest.mark.parametrize("command", EVASIONS)
def test_nothing_runs_that_is_not_on_the_list(call, folder, command):
    """Every form in which a shell would run something else, or run it otherwise than it reads."""
    (folder / "x").write_text("x")
    for name in ("rm", "ls", "evil.sh"):
        (folder / name).write_text("#!/bin/sh\ntouch EVIL\n")
        (folder / name).chmod(0o755)
    result = run(call, command)
    assert not result.ok, result
    assert result.error.code in {"PERMISSION_DENIED", "PARSE_ERROR", "INVALID_ARGUMENTS"}, result
    assert sorted(p.name for p in folder.iterdir()) == ["evil.sh", "ls", "rm", "x"]


def test_the_refusal_says_what_where_and_what_is_allowed(call):
    error = run(call, "ls; rm x").error
    assert "'rm'" in error.message
    assert "column 5" in error.message
    assert "ls" in error.hint
    assert "column 6" in run(call, "echo $(rm)").error.message


@pytest.mark.parametrize(
    "command",
    [
        "env ls",
        "env",
        "env -i ls",
        "timeout 5 ls",
        "timeout -k 1 -s KILL 5s env -u A nice -n 5 ls",
        "nice -5 ls",
        "echo . | xargs ls",
        "echo . | xargs -n1 -P 2 ls",
        "echo . | xargs -I{} ls {}",
        "find . -name '*.py' -exec cat {} +",
        "find . -type f",
        "'ls'",
        'l"s"',
        "nohup ls",
        "echo rm; echo 'rm -rf /' | cat",
        "cat /dev/null > /dev/null 2>&1",
    ],
)
def test_what_is_allowed_may_be_written_in_many_ways(allowed, command):
    check(parse(command), allowed, PATH)


@pytest.mark.parametrize(
    "command",
    [
        "parallel ls",
        "busybox ls",
        "unshare ls",
        "script -c ls",
        "xargs busybox",
        "timeout --strange 5 ls",
        "nice -x ls",
        "env -z ls",
    ],
)
def test_programs_that_start_others_unseen_are_not_looked_through(allowed, command):
    with pytest.raises(PermissionDenied):
        check(parse(command), (*allowed, "parallel", "busybox", "unshare", "script"), PATH)


def test_options_of_programs_that_start_others_are_understood(allowed):
    for command in ("env --chdir=/tmp ls", "xargs -rt0 ls", "env -", "timeout --signal KILL 5 ls", "xargs -- ls"):
        check(parse(command), allowed, PATH)


def test_nothing_is_allowed_until_something_is(call):
    call.provide(CommandPolicy())
    result = run(call, "ls")
    assert result.error.code == "PERMISSION_DENIED"
    assert "ALLOWED_COMMANDS" in result.error.hint


def test_a_star_allows_every_program_but_no_shell_language(call, folder):
    call.provide(CommandPolicy(allowed=("*",)))
    assert run(call, "touch made && ls").data["stdout"] == "made\n"
    assert run(call, "echo $(ls)").error.code == "PERMISSION_DENIED"
    assert run(call, "A=b ls").error.code == "PERMISSION_DENIED"


def test_full_paths_stand_for_the_program_that_the_search_path_finds(call, folder):
    import shutil

    found = shutil.which("ls", path=PATH)
    assert run(call, found).ok
    check_program(found, [], ("ls",), PATH)
    with pytest.raises(PermissionDenied):
        check_program("/nowhere/ls", [], ("ls",), PATH)
    with pytest.raises(PermissionDenied):
        check_program("rm", [], ("ls",), PATH)
    check_program("/opt/tool", [], ("/opt/tool",), PATH)


def test_relative_folders_of_the_search_path_are_not_looked_in(shelf, folder, keeping):
    (folder / "ls").write_text("#!/bin/sh\necho EVIL\n")
    (folder / "ls").chmod(0o755)
    environment = {**os.environ, "PATH": f".:{PATH}:"}
    policy = CommandPolicy(allowed=("ls",), environment=environment)
    call = shelf(*TOOLS, policy=policy, confinements=Confinements(), processes=keeping)
    assert run(call, "ls").data["stdout"] == "ls\n"
