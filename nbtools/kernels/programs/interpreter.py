"""Languages other than Python: which program runs them, and how it gets a script.

A program is started ahead and waits for a request: a line or two on a descriptor that name the file with the script,
so that its length does not matter. For one script the program then behaves as if the script had been its argument. In
a session it answers and waits again.

Shells keep a session as an interactive shell reading its commands from a pipe: only an interactive shell survives an
interrupt with its state, wherever in a script it strikes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from nbtools.errors import LanguageUnavailable
from nbtools.kernels.interface import RunContext
from nbtools.kernels.languages import Family, language_named

# Scripts use lower descriptors, and a plain shell knows no higher ones.
REQUESTS = 8
"""The descriptor on which the child waits for requests."""
ANSWERS = 9
"""The descriptor on which the child answers."""

_DRIVERS = Path(__file__).with_name("drivers")
# Characters in one argument or variable: the system takes 131,072 bytes.
_MAX_EXPORT = 30_000


def find(language: str) -> Interpreter:
    """Return what runs a language.

    Raises
    ------
    LanguageUnavailable
        The language is unknown, or no program for it is on the path.
    """
    language_row = language_named(language)
    if language_row is None or language_row.family is None:
        raise LanguageUnavailable(f"{language!r} runs in a Jupyter kernel, not in a program.")
    for name in language_row.programs:
        program = shutil.which(name)
        if program is not None:
            return Interpreter(family=language_row.family, program=program)
    raise LanguageUnavailable(
        f"{language_row.title} is not installed: there is no {' or '.join(language_row.programs)} on the path.",
        hint=language_row.remedy,
        tried=f"running {language}",
        data={"language": language, "programs": list(language_row.programs)},
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A program and how to talk to it."""

    family: Family
    program: str

    @property
    def forgets(self) -> bool:
        """Whether an interrupt makes a session forget the question that `ask` put: plain shells drop their input."""
        return self.family == "shell" and not self.is_bash

    @property
    def is_bash(self) -> bool:
        """Whether the program is bash, which ``shell`` may mean too."""
        return Path(self.program).name == "bash"

    def places(self) -> tuple[str, ...]:
        """Return the folders that it must be able to read: it may be installed in someone's home."""
        real = Path(os.path.realpath(self.program))
        # …/bin/node has its library beside bin, but what lies in a bin of the home folder brings only itself.
        above = real.parent.parent if real.parent.name == "bin" else real.parent
        home = Path(os.path.expanduser("~"))  # noqa: PTH111 - a user may have none
        if above in (home, *home.parents, home / ".local"):
            above = real
        return (str(above), str(_DRIVERS))

    def command(self, *, lasting: bool) -> list[str]:
        """Return the command that waits for requests: for one script, or for a session of them."""
        if self.family == "node":
            return [self.program, str(_DRIVERS / ("session.cjs" if lasting else "script.cjs"))]
        if self.family == "powershell":
            options = ["-NoLogo", "-NoProfile", "-NonInteractive", "-File", str(_DRIVERS / "script.ps1")]
            return [self.program, *options, "session" if lasting else "once"]
        bare = [self.program, "--noprofile", "--norc"] if self.is_bash else [self.program]
        if lasting:
            return [*bare, *(["--noediting"] if self.is_bash else []), "-i"]
        return [self.program, str(_DRIVERS / "script.sh"), *bare]

    def requests_on(self, *, lasting: bool) -> int:
        """Return the descriptor on which it waits."""
        return 0 if lasting and self.family == "shell" else REQUESTS

    def environment(self) -> dict[str, str]:
        """Return variables that make programs print plainly and at once."""
        # Programs look at these before they colour, page or buffer what they print.
        quiet = {"NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
        if self.family == "shell":
            return {**quiet, "PS1": "", "PS2": "", "HISTFILE": "/dev/null"}
        if self.family == "powershell":
            return {**quiet, "POWERSHELL_TELEMETRY_OPTOUT": "1", "POWERSHELL_UPDATECHECK": "Off"}
        return quiet

    def greeting(self) -> bytes:
        """Return the first text for a session, which makes it say when it is ready."""
        if self.family != "shell":
            return b""
        # Job control would print its own lines, and history expansion would change a script with "!" in it.
        quiet = "set +m +H; unset PROMPT_COMMAND; " if self.is_bash else ""
        return f"{quiet}PS1= PS2=; command printf 'ready\\n' >&{ANSWERS}\n".encode()

    def request(self, code: str, context: RunContext, folder: Path, number: int, *, lasting: bool) -> bytes:
        """Write a script into a folder and return the request to run it."""
        suffix = {"shell": "sh", "node": "js", "powershell": "ps1"}[self.family]
        file = folder / f"script{number}.{suffix}"
        # No translation of line ends: a script with Windows' own fails in the same way as from a file.
        file.write_text(code, "utf-8", "surrogatepass", newline="")
        if self.family == "node":
            facts = {"cwd": str(context.cwd) if context.cwd else None, "variables": dict(context.variables)}
            around = folder / f"world{number}.json"
            around.write_text(json.dumps(facts), "utf-8")
            return json.dumps({"file": str(file), "world": str(around)}).encode() + b"\n"
        begin = folder / f"begin{number}.{suffix}"
        begin.write_text(
            _shell_context(context) if self.family == "shell" else _powershell_context(context, file), "utf-8"
        )
        if self.family == "powershell":
            return f"{begin}\n".encode()
        if not lasting:
            size = "short" if len(code) < _MAX_EXPORT else "long"
            if any(len(_as_text(value)) >= _MAX_EXPORT for value in context.variables.values()):
                size = "here"
            return f"{begin}\n{file}\n{size}\n".encode()
        # Redirected only for the script: its own input is empty, and it cannot forge an answer by accident.
        run = f". {shlex.quote(str(begin))} && . {shlex.quote(str(file))} </dev/null {ANSWERS}>&-"
        return f"{run}\n".encode() + self.ask(number)

    def ask(self, number: int) -> bytes:
        """Return what makes a shell session say that the script of that number has ended, and how.

        In two commands: bash that was interrupted while it started a program leaves the script, and waits for the
        program after the next command. The line is whole only when nothing of the script is waited for any more.
        """
        command = f"command printf '\\ndone %d {number}' \"$?\" >&{ANSWERS}\n"
        return f"{command}command printf '\\n' >&{ANSWERS}\n".encode()


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shell_context(context: RunContext) -> str:
    lines = []
    for name, value in context.variables.items():
        text = _as_text(value)
        # No program could be started with an environment that is too long.
        lines.append(f"{'export ' if len(text) < _MAX_EXPORT else ''}{name}={shlex.quote(text)}")
    if context.cwd is not None:
        lines.append(f"cd -- {shlex.quote(str(context.cwd))}")
    return "\n".join([*lines, ""])


def _powershell_context(context: RunContext, file: Path) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    lines = []
    for name, value in context.variables.items():
        text = quoted(_as_text(value))
        lines.append(
            f"${name} = {text if isinstance(value, str) else f'ConvertFrom-Json {text}'}; $env:{name} = {text}"
        )
    if context.cwd is not None:
        lines.append(f"Set-Location -LiteralPath {quoted(str(context.cwd))}")
    return "\n".join([*lines, f". {quoted(str(file))}", ""])
