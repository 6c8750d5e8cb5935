"""Whether a command line may run: every program in it has to be allowed, also one that another would start.

Programs are allowed by name, and a name stands for the program that is found on the search path, never for a file of
that name elsewhere. Programs whose purpose is to start another (``env``, ``xargs``, ``timeout``, ``find -exec``, …) are
looked through, and so is what they start. Allowing an interpreter (``bash``, ``python``, ``awk``) allows whatever it
can do.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence

from nbtools.errors import PermissionDenied
from nbtools.toolbox.command_line import Step, Word

__all__ = ["ANY", "check", "check_program", "search_path"]

ANY = "*"
"""The entry of an allow-list that allows everything."""

_KEYWORDS = frozenset(
    {
        *("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "function"),
        *("select", "time", "coproc", "[[", "{", "}", "!", "eval", "exec", "source", ".", "alias", "trap", "export"),
        *("set", "unset", "builtin", "command", "declare", "local", "readonly", "shopt", "hash", "enable"),
    }
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")
_EXECS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


class _Starter:
    """A program that starts another: which of its options stand alone, which take a value, what comes between."""

    def __init__(self, alone: str = "", valued: str = "", before: int = 0, digits: bool = False) -> None:
        self.alone = frozenset(alone.split())
        self.valued = frozenset(valued.split())
        self.before = before
        self.digits = digits


_STARTERS: Mapping[str, _Starter] = {
    "env": _Starter("-i -0 -v --ignore-environment --null --debug -", "-u --unset -C --chdir"),
    "xargs": _Starter(
        "-0 -r -t -x -o --null --no-run-if-empty --verbose --exit --open-tty",
        "-n -P -L -I -s -d -E --max-args --max-procs --max-lines --replace --max-chars --delimiter --eof",
    ),
    "nohup": _Starter(),
    "nice": _Starter("", "-n --adjustment", digits=True),
    "ionice": _Starter("-t --ignore", "-c -n --class --classdata"),
    "timeout": _Starter("--foreground --preserve-status -v --verbose", "-s -k --signal --kill-after", before=1),
    "stdbuf": _Starter("", "-i -o -e --input --output --error"),
    "setsid": _Starter("-w -c -f --wait --ctty --fork"),
    "chrt": _Starter("-b -f -i -o -r", "", before=1),
    "taskset": _Starter("", "", before=1),
    "sudo": _Starter("-n -H -E -S -k --non-interactive", "-u -g --user --group"),
    "doas": _Starter("-n", "-u"),
    "time": _Starter("-p -v --portability --verbose", ""),
    "watch": _Starter("-x -t -d -e -g --exec --no-title", "-n --interval"),
}
# They start others in ways that their arguments do not show plainly, and nobody allows them for that alone.
_HIDDEN = frozenset({"parallel", "busybox", "script", "unshare", "nsenter", "chroot", "runuser", "setpriv", "flock"})


def search_path(environment: Mapping[str, str]) -> str:
    """Return where programs are looked for: the absolute folders of PATH."""
    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if os.path.isabs(entry))  # noqa: PTH117 - entries are text


def check(steps: Sequence[Step], allowed: Sequence[str], path: str) -> None:
    """Return when every command may run.

    Parameters
    ----------
    steps
        A parsed command line.
    allowed
        Names, absolute paths, or `ANY`.
    path
        Where programs are looked for.

    Raises
    ------
    PermissionDenied
        A command is not allowed, or cannot be judged; the message says which, and where.
    """
    for step in steps:
        for command in step.commands:
            first = command.words[0]
            if first.literal == "cd" and len(step.commands) == 1:
                _check_cd(command.words)
            else:
                _check_words([word.literal for word in command.words], first, allowed, path)


def check_program(program: str, arguments: Sequence[str], allowed: Sequence[str], path: str) -> None:
    """Return when a program may be started with these arguments.

    Raises
    ------
    PermissionDenied
        It is not allowed, or would start what is not.
    """
    _check_words([program, *arguments], None, allowed, path)


def _check_cd(words: Sequence[Word]) -> None:
    if len(words) != 2 or words[1].literal is None or words[1].literal.startswith("-"):
        raise PermissionDenied(f"column {words[0].column}: cd takes one folder, written out.", hint="cd data && ls")


def _check_words(words: Sequence[str | None], first: Word | None, allowed: Sequence[str], path: str) -> None:
    """Judge a program and, where it starts another, that one; a word that is not written out is `None`."""
    where = f"column {first.column}: " if first is not None else ""
    name = words[0] if words else None
    if name is None or not name:
        raise PermissionDenied(
            f"{where}the command itself has to be written out, without variables and patterns.",
            hint="Write the name of the program.",
        )
    if first is not None and _ASSIGNMENT.match(first.bare):
        raise PermissionDenied(
            f"{where}{name.partition('=')[0]}=… would set a variable, and with it what a program does.",
            hint="Leave the assignment out.",
        )
    if first is not None and first.bare == name and name in _KEYWORDS:
        raise PermissionDenied(
            f"{where}{name!r} belongs to the language of shells, which is not offered here.",
            hint="Use code_execute with language='bash' for a script.",
        )
    if ANY in allowed:
        return
    if not _is_allowed(name, allowed, path):
        listed = ", ".join(allowed) or "nothing"
        raise PermissionDenied(
            f"{where}the command {name!r} is not allowed.", hint=f"ALLOWED_COMMANDS allows {listed}."
        )
    base = os.path.basename(name)  # noqa: PTH119 - a name, not a path
    for started in _started(base, words[1:], where):
        _check_words(started, None, allowed, path)
        if base == "xargs" and _can_start(started[0]):
            # What xargs reads would become the command that this one starts.
            raise PermissionDenied(f"{where}xargs may not start {started[0]}, which starts what xargs reads.")


def _is_allowed(name: str, allowed: Sequence[str], path: str) -> bool:
    if name in allowed:
        return True
    # The full path of an allowed program is that program, if the search path agrees.
    base = os.path.basename(name)  # noqa: PTH119 - a name, not a path
    return os.path.isabs(name) and base in allowed and shutil.which(base, path=path) == name  # noqa: PTH117 - same


def _can_start(word: str | None) -> bool:
    name = os.path.basename(word or "")  # noqa: PTH119 - a name, not a path
    return name == "find" or name in _STARTERS or name in _HIDDEN


def _started(name: str, arguments: Sequence[str | None], where: str) -> list[Sequence[str | None]]:
    """Return the commands that a program would start."""
    if name == "find":
        return [arguments[at + 1 :] for at, word in enumerate(arguments) if word in _EXECS]
    if name in _HIDDEN:
        raise PermissionDenied(
            f"{where}{name} starts other programs, which cannot be judged.", hint="Name them directly."
        )
    starter = _STARTERS.get(name)
    if starter is None:
        return []
    rest = _behind_options(name, starter, arguments, where)[starter.before :]
    # Without a command these print or echo, which is harmless.
    return [rest] if rest else []


def _behind_options(name: str, starter: _Starter, arguments: Sequence[str | None], where: str) -> Sequence[str | None]:
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word is None or not (word.startswith("-") or "=" in word):
            break
        if word == "--":
            return arguments[at + 1 :]
        if not word.startswith("-"):
            if name != "env":
                break
            raise PermissionDenied(f"{where}env would set {word.partition('=')[0]}, and with it what a program does.")
        at += _option_length(name, starter, word, where)
    return arguments[at:]


def _option_length(name: str, starter: _Starter, word: str, where: str) -> int:
    """Return how many words an option takes."""
    if word in starter.alone or word.partition("=")[0] in starter.valued - {word}:
        return 1
    if word in starter.valued:
        return 2
    if len(word) > 2 and word[:2] in starter.valued and not word.startswith("--"):
        return 1
    letters = [f"-{letter}" for letter in word[1:]]
    if not word.startswith("--") and all(letter in starter.alone for letter in letters):
        return 1
    if starter.digits and word[1:].lstrip("-").isdigit():
        return 1
    raise PermissionDenied(f"{where}{name} {word}: what it would start cannot be judged.", hint="Use plain options.")
