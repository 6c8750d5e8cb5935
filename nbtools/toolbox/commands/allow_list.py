"""Which programs may run: those on a list, and nothing that they would start besides.

A name stands for the program that is found on the search path, never for a file of that name elsewhere. A command is
judged by its first word. What an allowed program starts in its turn
(``find -exec``, ``xargs``, a hook) is judged by the kernel, through Landlock's right to execute: only the allowed
programs have it, with what they cannot run without, which is their loader, the interpreter of a script, and the
folders of helpers that bear their name (``/usr/lib/git-core`` is git's). Many start their helpers through ``sh``
(``tar -z``, ``git clone``), so they may, and what ``sh`` starts is kept to the list in its turn; programs whose purpose
is to start what their arguments name may not. Where there is no such kernel, those are refused.

Allowing an interpreter (``bash``, ``python``, ``awk``) allows whatever it can do without starting anything. To the
kernel, a program with many names (busybox) is one program. And the system's loader, which all need, runs any program
that it can read: in the sandbox that is none of the system's ``bin`` folders; at level ``"limits"`` it is any.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nbtools.errors import FileMissing, LimitExceeded, PermissionDenied
from nbtools.texts.parsing import word_lists

ANY = "*"
"""The entry of an allow-list that allows everything."""

_STARTERS = frozenset(word_lists(__file__, "programs.words")["starters"])
_HELPERS = ("/usr/lib", "/usr/libexec", "/usr/local/lib", "/usr/local/libexec")
_LOADER = re.compile(rb"(/[\w./+-]*/ld[\w.+-]*\.so[.\d]*)\0")
_HEAD = 8192
_MAX_STARTED = 200


def search_path(environment: Mapping[str, str]) -> str:
    """Return where programs are looked for: the absolute folders of PATH."""
    # An entry that is relative would let a file of the working folder stand for a program.
    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if os.path.isabs(entry))  # noqa: PTH117 - entries are text


def names_of(words: Sequence[str]) -> list[str]:
    """Return a command's other names: its program without folders, and what a starter of programs may start.

    Raises
    ------
    LimitExceeded
        A starter of programs has too many words to be read.
    """
    begins = [0]
    if os.path.basename(words[0]) in _STARTERS:  # noqa: PTH119 - a name, not a path
        # Every word may begin the command that is started, and each of them is judged with all that follows.
        if len(words) > _MAX_STARTED:
            raise LimitExceeded(f"{words[0]} with {len(words):,} words; {_MAX_STARTED} are allowed.")
        begins = list(range(len(words)))
    bare = (" ".join([os.path.basename(words[at]), *words[at + 1 :]]) for at in begins)  # noqa: PTH119 - same
    return [*bare, *(" ".join(words[at:]) for at in begins[1:])]


class Programs:
    """The programs of an allow-list.

    Parameters
    ----------
    allowed
        Names, absolute paths of programs or of folders of them (what a version manager's shims start), or `ANY`.
    path
        Where programs are looked for.
    installed_only
        Whether the kernel keeps what is started to `files`.
    """

    def __init__(self, allowed: Sequence[str], path: str, *, installed_only: bool) -> None:
        self._allowed = allowed
        self._path = path
        self._installed_only = installed_only or ANY in allowed

    def find(self, name: str) -> str | None:
        """Return the absolute path of a program; `None` when there is none."""
        if os.path.isabs(name):  # noqa: PTH117 - a name, not a path
            return name
        return None if "/" in name else shutil.which(name, path=self._path)

    def check(self, words: Sequence[str], column: int | None = None) -> str:
        """Return the absolute path of a command's program when the command may run.

        Parameters
        ----------
        words
            The program and its arguments, as it would get them.
        column
            Where it stands in a command line.

        Raises
        ------
        PermissionDenied
            It is not allowed; the message says which, and where.
        FileMissing
            There is no such program.
        """
        where = "" if column is None else f"column {column}: "
        name = words[0] if words else ""
        if not name:
            raise PermissionDenied(f"{where}there is no command.", hint="Write the name of the program.")
        if not self._is_allowed(name):
            listed = ", ".join(self._allowed) or "nothing"
            raise PermissionDenied(
                f"{where}the command {name!r} is not allowed.",
                hint=f"ALLOWED_COMMANDS allows {listed}. What a shell does by itself (cd, A=b, loops) runs with "
                "code_execute(language='bash').",
            )
        base = os.path.basename(name)  # noqa: PTH119 - a name, not a path
        starts = base != "find" or any(word.startswith(("-exec", "-ok")) for word in words)
        if base in _STARTERS and starts and not self._installed_only:
            raise PermissionDenied(
                f"{where}{base} starts other programs, and this system cannot restrict those to the list.",
                hint="Name the program directly.",
            )
        program = self.find(name)
        if program is None or shutil.which(program) is None:
            raise FileMissing(f"{where}there is no program {name!r}.", hint="Check its name, or install it.")
        return program

    def _is_allowed(self, name: str) -> bool:
        if ANY in self._allowed or name in self._allowed:
            return True
        base = os.path.basename(name)  # noqa: PTH119 - a name, not a path
        if base == name or not os.path.isabs(name):  # noqa: PTH117 - same
            return False
        # The full path of an allowed program is that program, if the search path agrees.
        real = Path(os.path.realpath(name))
        folders = (Path(entry).resolve() for entry in self._allowed if os.path.isabs(entry))  # noqa: PTH117 - same
        return (base in self._allowed and self.find(base) == name) or any(folder in real.parents for folder in folders)

    def files(self, program: str) -> tuple[str, ...] | None:
        """Return the only files and folders that a program may execute; `None` when that is not restricted."""
        if ANY in self._allowed or not self._installed_only:
            return None
        own = os.path.basename(program) not in _STARTERS  # noqa: PTH119 - a name, not a path
        # Many programs start others by the shell, such as a pager or an editor; a starter of programs must not.
        return (*self._allowed_files, *self._files_needed(self.find("sh"), 0)) if own else self._allowed_files

    @functools.cached_property
    def _allowed_files(self) -> tuple[str, ...]:
        files: list[str] = []
        for name in self._allowed:
            base = os.path.basename(name)  # noqa: PTH119 - a name, not a path
            if os.path.isabs(name) and Path(name).is_dir():  # noqa: PTH117 - same
                files.append(name)
                continue
            files += self._files_needed(self.find(name), 4)
            files += [str(helper) for folder in _HELPERS for helper in _helper_folders(folder, base)]
        return tuple(dict.fromkeys(files))

    def _files_needed(self, program: str | None, depth: int) -> Iterator[str]:
        """Return a program, its loader or interpreter, and what that needs."""
        try:
            with open(program or "", "rb") as file:  # noqa: PTH123 - text all along
                head = file.read(_HEAD)
        except OSError:
            return
        yield str(program)
        loader = _LOADER.search(head) if head.startswith(b"\x7fELF") else None
        if loader is not None:
            yield os.fsdecode(loader[1])
        if head.startswith(b"#!") and depth:
            words = os.fsdecode(head[2:].partition(b"\n")[0]).split()
            # `#!/usr/bin/env python3`: both are needed.
            for word in (w for w in words[:3] if not w.startswith("-")):
                yield from self._files_needed(self.find(word), depth - 1)


def _helper_folders(folder: str, base: str) -> list[Path]:
    return [path for path in (Path(folder, base), *Path(folder).glob(f"{base}-*")) if path.is_dir()] if base else []
