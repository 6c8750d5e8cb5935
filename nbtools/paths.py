"""Allowed roots: which files a call may touch, decided on the resolved path.

`Roots.resolve` follows every link first and judges where the path really leads. A link that is swapped in after the
judgement is caught by `Roots.open_file`, which walks from the root down with ``O_NOFOLLOW``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from nbtools.errors import FileMissing, InvalidArguments, PathNotAllowed

__all__ = ["Roots"]

_MAX_PATH = 4_096


class Roots:
    """The folders below which files may be read and written.

    Parameters
    ----------
    roots
        Folders; they are resolved once. Relative paths given to `resolve` are taken from the first root that is the
        working folder or, when the working folder is no root, from the first root.
    """

    def __init__(self, roots: Iterable[str | os.PathLike[str]]) -> None:
        self.roots: tuple[Path, ...] = tuple(dict.fromkeys(Path(os.path.realpath(root)) for root in roots))
        if not self.roots:
            raise InvalidArguments("no allowed root was given", hint="Set ALLOWED_PATHS, or pass allowed_paths=[…].")

    def __repr__(self) -> str:
        return f"Roots({[str(root) for root in self.roots]!r})"

    def root_of(self, path: Path) -> Path | None:
        """Return the root that holds an already resolved path, or `None`."""
        return next((root for root in self.roots if path == root or root in path.parents), None)

    def allows(self, path: str | os.PathLike[str]) -> bool:
        """Tell whether a path leads below a root, whether or not it exists."""
        try:
            return self.root_of(self._real(path)) is not None
        except (InvalidArguments, PathNotAllowed):
            return False

    def _real(self, path: str | os.PathLike[str]) -> Path:
        text = os.fspath(path)
        if not text or "\0" in text or len(text) > _MAX_PATH:
            raise InvalidArguments(
                f"{text[:60]!r} is no path: it is empty, too long or holds a NUL character.",
                hint="Give the path of a file below an allowed root.",
            )
        text = os.path.expanduser(text)  # noqa: PTH111 - Path would normalise what realpath must see
        here = Path(os.path.realpath(Path.cwd()))
        start = here if self.root_of(here) else self.roots[0]
        return Path(os.path.realpath(start / text))

    def resolve(self, path: str | os.PathLike[str], *, must_exist: bool = True, for_writing: bool = False) -> Path:
        """Return the absolute path with every link followed, if it lies below a root.

        Parameters
        ----------
        path
            Absolute, or relative to the working folder; ``~`` is the home folder.
        must_exist
            Whether a path that leads nowhere is an error.
        for_writing
            Whether the path is to be written: then it may not be a root itself.

        Raises
        ------
        PathNotAllowed
            It leads outside the roots, or to a device, socket or pipe.
        FileMissing
            It does not exist and `must_exist` is true.
        InvalidArguments
            It is empty, over-long or holds NUL.
        """
        real = self._real(path)
        if self.root_of(real) is None:
            allowed = ", ".join(str(root) for root in self.roots)
            raise PathNotAllowed(
                f"{os.fspath(path)!r} is outside the allowed folders.",
                hint=f"Use a path below {allowed}, or add its folder to ALLOWED_PATHS.",
            )
        if for_writing and real in self.roots:
            raise PathNotAllowed(f"{os.fspath(path)!r} is an allowed folder itself.", hint="Name a file below it.")
        try:
            mode = real.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            if must_exist:
                raise FileMissing(
                    f"{os.fspath(path)!r} does not exist.", hint=f"Relative paths start at {Path.cwd()}."
                ) from None
            return real
        except OSError as exc:
            raise FileMissing(f"{os.fspath(path)!r} cannot be reached: {exc.strerror}.") from exc
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise PathNotAllowed(
                f"{os.fspath(path)!r} is a device, socket or pipe.", hint="Only regular files and folders are touched."
            )
        return real

    def open_parent(self, real: Path, *, make: bool = False) -> int:
        """Open the folder of a resolved path without following any link below its root.

        Parameters
        ----------
        real
            A path from `resolve`.
        make
            Whether missing folders are created.

        Returns
        -------
        int
            A descriptor of the folder; the caller closes it.

        Raises
        ------
        PathNotAllowed
            A part of the path became a link, or is no folder.
        """
        root = self.root_of(real)
        if root is None:
            raise PathNotAllowed(f"{str(real)!r} is outside the allowed folders.")
        flags = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
        handle = os.open(root, flags)
        try:
            for part in real.parent.relative_to(root).parts:
                if make:
                    _make_folder(part, handle)
                below = os.open(part, flags | getattr(os, "O_NOFOLLOW", 0), dir_fd=handle)
                os.close(handle)
                handle = below
        except FileNotFoundError:
            os.close(handle)
            raise FileMissing(f"the folder {str(real.parent)!r} does not exist.") from None
        except OSError as exc:
            os.close(handle)
            raise PathNotAllowed(f"{str(real.parent)!r} changed while it was opened: {exc.strerror}.") from exc
        return handle

    def open_file(self, real: Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Open a resolved path and return its descriptor, refusing a link that was swapped in since.

        Raises
        ------
        PathNotAllowed
            The path, or a part of it, became a link, a device, a socket or a pipe.
        FileMissing
            It does not exist (any more).
        """
        parent = self.open_parent(real)
        # Non-blocking, so that a pipe swapped in cannot hold the caller before it is recognised.
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            handle = os.open(real.name, flags, mode, dir_fd=parent)
        except FileNotFoundError:
            raise FileMissing(f"{str(real)!r} does not exist.") from None
        except OSError as exc:
            raise PathNotAllowed(f"{str(real)!r} cannot be opened: {exc.strerror}.") from exc
        finally:
            os.close(parent)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise PathNotAllowed(f"{str(real)!r} is no regular file.")
        return handle


def _make_folder(name: str, parent: int) -> None:
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        return
