"""Settings files are code: what one of them may say before its person has looked at it.

A file comes with the folder that someone works in, by a clone or an archive. So a file of someone else, or one that
others may write, is refused. What in a file runs, opens or redirects holds only once the person has said yes to this
very content in this very folder (`SettingsFile.trust`, kept in the home); the rest of it holds at once. What does so is
declared with each setting, see `nbtools.ground.config`. The file in the home, and one that ``NBTOOLS_CONFIG`` names,
are the person's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nbtools.errors import ConfigInvalid, ConfigMissing
from nbtools.ground.home import default_home, not_written, private
from nbtools.texts.visible import visible

_NAME = "nbtools.toml"
_VARIABLE = "NBTOOLS_CONFIG"
_TRUSTED = "trusted"
# Reading TOML takes a second for 600,000 bytes, and the square of the parts of a name.
_MOST_BYTES, _MOST_PARTS, _MOST_NAMES = 2**16, 30, 50
_PART = rb"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP = rb"(?<![\w-])%b(?:[ \t]*+\.[ \t]*+%b){%d}" % (_PART, _PART, _MOST_PARTS)
_QUESTION = "Trust this file as it is now? [y]es, anything else is a no: "


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingsFile:
    """A settings file as it was read, once.

    Attributes
    ----------
    path
        Where it lies.
    home
        Where it is stored which files are trusted; `None` where there is no home.
    content
        What it holds.
    refusal
        Why nothing of it holds; empty where it may.
    is_own
        Whether it lies in the home, or was named by the person.
    left_out
        What does not hold of it, by name, each with what it would do.
    below
        The file of the home, over which it is laid.
    """

    path: Path
    home: Path | None
    content: bytes = dataclasses.field(default=b"", repr=False)
    refusal: str = ""
    is_own: bool = False
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    below: SettingsFile | None = None

    def is_at(self, path: str) -> bool:
        """Tell whether a path, as a person wrote it, is that of this file."""
        return os.path.realpath(Path(path).expanduser()) == os.path.realpath(self.path)

    @classmethod
    def find(cls, start: Path, environ: Mapping[str, str], home: Any = None) -> SettingsFile | None:
        """Return the file that is named, or that of the nearest folder from `start` upward, over that of the home.

        Where there is no other, it is that of the home itself, which always holds.

        Parameters
        ----------
        start
            The working folder.
        environ
            Variables, of which NBTOOLS_CONFIG may name the file, and NBTOOLS_HOME the home.
        home
            The home, where it is an argument.

        Raises
        ------
        ConfigInvalid
            The file cannot be read.
        """
        # A home that is not a path is refused when it is parsed, with the other settings.
        state = home if isinstance(home, str | os.PathLike) else environ.get("NBTOOLS_HOME")
        state_folder = None
        with contextlib.suppress(ConfigMissing):  # the code that needs the home says that there is none
            state_folder = Path(state).expanduser() if state else default_home()
        own = None
        if state_folder is not None and os.path.isfile(state_folder / _NAME):  # noqa: PTH113 - in a folder that is closed there is none
            own = cls._read(state_folder / _NAME, state_folder, is_own=True)
        if named := environ.get(_VARIABLE):
            file = cls._read(Path(named).expanduser().absolute(), None, is_own=True)
            below = own if own is None or not file.path.samefile(own.path) else None
            return dataclasses.replace(file, refusal="", below=below)
        refused = None
        for folder in (start, *start.parents):
            if state_folder is not None and os.path.realpath(folder) == os.path.realpath(state_folder):
                continue
            if os.path.isfile(folder / _NAME):  # noqa: PTH113 - same
                file = dataclasses.replace(cls._read(folder / _NAME, state_folder, is_own=False), below=own)
                if not file.refusal:
                    return file
                refused = refused or file
        return refused or own

    @classmethod
    def _read(cls, path: Path, home: Path | None, *, is_own: bool) -> SettingsFile:
        try:
            with path.open("rb") as file:
                facts, content = os.fstat(file.fileno()), file.read(_MOST_BYTES + 1)
            refusal = _refusal(facts) or _refusal(path.lstat())
        except OSError as exc:
            hint = "Make it readable, or move it away."
            raise ConfigInvalid(f"{path} cannot be read: {exc.strerror}", hint=hint, tried=_READING) from None
        wrong = f"more than {_MOST_BYTES:,} bytes" if len(content) > _MOST_BYTES else ""
        if not wrong and re.search(_DEEP, content):
            wrong = f"a name of more than {_MOST_PARTS} parts"
        if wrong and not refusal:
            raise ConfigInvalid(f"{path} has {wrong}", hint="Shorten the file, or move it away.", tried=_READING)
        return cls(path=path, home=home, content=content, refusal=refusal, is_own=is_own)

    def settings(self) -> dict[str, Any]:
        """Return what it says; nothing where it is refused.

        Raises
        ------
        ConfigInvalid
            It is not TOML.
        """
        import tomllib  # most folders have no file of settings

        if self.refusal:
            return {}
        try:
            settings = tomllib.loads(self.content.decode("utf-8"))
            json.dumps(settings, default=str)  # it is shown before it is trusted
        except (ValueError, RecursionError) as exc:  # a number may have too many digits, and tables lie too deep
            hint = "Correct the file, or move it away."
            raise ConfigInvalid(f"{self.path} is not valid TOML: {exc}", hint=hint, tried=_READING) from None
        if "class" in settings:  # a word of Python's, which no attribute can be called
            settings["classroom"] = settings.pop("class")
        if isinstance(urls := settings.get("connections"), dict):
            settings["connections"] = {name: _from_here(url) for name, url in urls.items()}
        return settings

    def place_of(self, *names: str) -> str:
        """Return the file and, where it can be found, the line of a name of it, which stands in others."""
        at, lines = 0, self.content.decode("utf-8", "replace").splitlines()
        for name in names:
            word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
            match = (number for number, line in enumerate(lines[at:], at) if word.search(line.partition("#")[0]))
            if (at := next(match, -1)) < 0:
                return str(self.path)
        return f"{self.path}, line {at + 1}"

    @property
    def is_trusted(self) -> bool:
        """Whether all of it holds: it is the person's own, or they said so of this content in this folder."""
        if self.is_own or self._note is None:
            return self.is_own
        try:
            return not _refusal(self._note.stat()) and self._note.read_text(encoding="ascii") == self._digest
        except (OSError, UnicodeDecodeError):
            return False

    @property
    def _digest(self) -> str:
        import hashlib  # most folders have no file of settings

        return hashlib.sha256(self.content).hexdigest()

    @property
    def _note(self) -> Path | None:
        """Where the yes to it is stored: by the folder in which it was found, wherever a link there leads."""
        import hashlib

        real = os.path.join(os.path.realpath(self.path.parent), self.path.name)  # noqa: PTH118 - of a text
        name = hashlib.sha256(os.fsencode(real)).hexdigest()
        return None if self.home is None else self.home / _TRUSTED / name

    def trust(self) -> None:
        """Let all of it hold, as it was read: what it becomes later is asked for again.

        Raises
        ------
        PermissionDenied, LimitExceeded
            The home cannot be written.
        """
        if self._note is None:
            default_home()  # says why there is none
            return
        try:
            private(self._note.parent)
            partial = self._note.with_suffix(f".{os.getpid()}")
            partial.write_text(self._digest, encoding="ascii")
            partial.replace(self._note)
        except OSError as exc:
            raise not_written(exc) from exc

    @property
    def summary(self) -> str:
        """What of it is left out, and how to look at it, in a line; empty where all of it holds."""
        if self.refusal:
            return f"left out, because {self.refusal}"
        more = len(self.left_out) - _MOST_NAMES
        listed = ", ".join(name if len(name) <= 80 else f"{name[:80]}…" for name in [*self.left_out][:_MOST_NAMES])
        names = visible(listed) + (f" and {more:,} more are" if more > 0 else "")
        return f"{names} left out until you trust it; nbtools trust shows what it would do" if names else ""

    def waiting(self, setting: str) -> str:
        """Return which entries of a setting wait until the file is trusted, in a sentence; empty where none does."""
        if self.refusal:
            return f"{visible(str(self.path))} is {self.summary}"
        names = [name.removeprefix(f"{setting}.") for name in self.left_out if f"{name}.".startswith(f"{setting}.")]
        listed = visible(", ".join(names))
        return (
            f"{listed} {'waits' if len(names) == 1 else 'wait'} until you trust {self.path.name}: nbtools trust"
            if names
            else ""
        )

    def tell(self) -> None:
        """Say it once in a process, on standard error."""
        if self.summary:
            _tell(f"{visible(str(self.path))}: {self.summary}")

    def ask(
        self,
        show: Callable[[str], None],
        reader: Callable[[str], str],
        trust: Callable[[], object] | None = None,
        faults: Iterable[str] = (),
    ) -> str:
        """Show what is wrong, and what does not hold yet; ask whether it may, and return what came of it.

        Parameters
        ----------
        show
            Shows a text.
        reader
            Shows a prompt and returns a line; one that has no person raises `EOFError`.
        trust
            Does what `trust` does; `None` is that itself.
        faults
            What is wrong in it, a line each.
        """
        faults = [*faults]
        for fault in faults:
            show(f"wrong: {visible(fault)}")
        name = visible(str(self.path))
        if faults and self.left_out and not self.refusal:
            return f"{name} is not trusted: correct what is wrong first, and ask again"
        if self.refusal or not self.left_out:
            return f"{name}: {self.summary or 'all of its settings are in force already'}"
        show("\n".join([f"{name} would do this:", *self.left_out.values(), "Its other settings are in force already."]))
        try:
            answer = reader(_QUESTION).strip().lower()
        except EOFError:
            return "nothing has changed: no one is here to approve it. Read the file, then run this at a terminal"
        if answer not in {"y", "yes"}:
            return "nothing has changed"
        with contextlib.suppress(ConfigInvalid):
            if self._read(self.path, self.home, is_own=self.is_own).content == self.content:
                (trust or self.trust)()
                later = "Its settings are in force from the next start; after a change, you are asked again"
                return f"{name} is trusted as it is now. {later}"
        return f"{name} changed while you were asked, so nothing in it is trusted: read it and ask again"


_READING = "reading the settings"


def _from_here(url: Any) -> Any:
    """Return the URL of a database file from the working folder as it is now, where its path is relative."""
    scheme, slashes, path = url.partition(":///") if isinstance(url, str) else ("", "", "")
    if not slashes or scheme.lower() not in {"sqlite", "duckdb"} or not path or path[0] in "/~$:":
        return url
    return f"{scheme}:///{quote(str(Path.cwd()), safe='/ :')}/{path}"


def _refusal(facts: os.stat_result) -> str:
    """Return why nothing of a settings file may hold: it can start programs, so it is its reader's own or nobody's."""
    if not hasattr(os, "getuid"):
        return ""
    if facts.st_uid not in {0, os.getuid()}:
        return "it belongs to another user"
    is_open = facts.st_mode & stat.S_IWOTH or (facts.st_mode & stat.S_IWGRP and facts.st_gid != os.getgid())
    return "other users may write it" if is_open and not stat.S_ISLNK(facts.st_mode) else ""


@functools.cache
def _tell(line: str) -> None:
    sys.stderr.write(f"nbtools: {line}\n")


def action_of(rule: Any) -> Any:
    """Return what a rule of a policy does."""
    return rule.get("action") if isinstance(rule, Mapping) else rule


def laid_over(
    name: str, own: Mapping[str, Any], accepted: Mapping[str, Any], left: dict[str, str], file: SettingsFile
) -> tuple[Any, str]:
    """Return what holds of a setting, and whose it is: the home's own wins until the person trusts the other file."""
    if file.below is None or name not in own:
        return accepted[name], str(file.path)
    if name not in accepted:
        return own[name], str(file.below.path)
    first, second, is_table = own[name], accepted[name], isinstance(own[name], Mapping)
    losers = {key for key in second if key in first and second[key] != first[key]} if is_table else {""}
    if name == "policy":  # one that asks, of a tool, would beat one that denies, of its kind
        losers |= {key for key, rule in second.items() if action_of(rule) != "deny"}
    if not file.is_trusted:
        line = f"  changes what {visible(str(file.below.path))} says"
        for key in losers if second != first else ():
            setting = f"{name}.{key}" if is_table else name
            line_of = f"{line}: {visible(f'{setting} = {second[key] if is_table else second}')}"
            left[setting] = f"{left[setting]}\n{line_of}" if setting in left else line_of
        second = {key: second[key] for key in second if key not in losers} if is_table else first
    source = f"{file.below.path}, {file.path}" if is_table else str((file if file.is_trusted else file.below).path)
    return {**first, **second} if is_table else second, source
