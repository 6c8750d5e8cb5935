"""A folder that is held open, whose entries are touched by their names and never through a link."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from nbtools.errors import FileAlreadyExists, FileMissing, LimitExceeded, NbtoolsError, PathNotAllowed
from nbtools.ground.lazy import ClosedAtEnd

_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# A folder on the way need not be readable, only passable.
_WAY_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class Folder(ClosedAtEnd):
    """An open folder below a root, whose entries are touched by name and never through a link.

    Parameters
    ----------
    path
        Where it was when it was opened.
    handle
        Its descriptor; `None` where the system has no calls relative to a folder.
    """

    def __init__(self, path: Path, handle: int | None) -> None:
        self.path = path
        self._handle = handle

    def close(self) -> None:
        """Release the descriptor. Harmless when repeated."""
        handle, self._handle = self._handle, None
        _close(handle)

    def _entry(self, name: str) -> str:
        if name in {"", ".", ".."} or "/" in name or os.sep in name:
            raise PathNotAllowed(f"{name!r} is not a name of an entry.")
        return name if self._handle is not None else str(self.path / name)

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        return sorted(os.listdir(self.path if self._handle is None else self._handle))  # noqa: PTH208 - a descriptor

    def status(self, name: str) -> os.stat_result | None:
        """Return what the system knows about an entry, a link not followed; `None` when there is none."""
        try:
            return os.stat(self._entry(name), dir_fd=self._handle, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_file(self, name: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Open an entry that is a regular file and return its descriptor.

        Raises
        ------
        PathNotAllowed
            It is a link, folder, device, socket or pipe, or may not be opened.
        FileMissing
            It does not exist.
        """
        # Non-blocking, so that a pipe swapped in cannot hold the caller before it is recognised.
        flags |= _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        try:
            handle = os.open(self._entry(name), flags, mode, dir_fd=self._handle)
        except FileNotFoundError:
            raise FileMissing(f"{str(self.path / name)!r} does not exist.") from None
        except FileExistsError:
            raise
        except OSError as exc:
            raise PathNotAllowed(f"{str(self.path / name)!r} cannot be opened: {exc.strerror}.") from exc
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise PathNotAllowed(f"{str(self.path / name)!r} is not a regular file.")
        return handle

    def replace(self, name: str, content: bytes | BinaryIO, *, mode: int | None = None, overwrite: bool = True) -> None:
        """Put a file in place by writing a temporary one beside it and renaming that.

        Parameters
        ----------
        name
            Its name.
        content
            The whole of it.
        mode
            Who may read and write it; `None` keeps what the file that was there allowed.
        overwrite
            Whether a file of that name is replaced.

        Raises
        ------
        PathNotAllowed
            A folder has that name, or the file may not be written or replaced.
        """
        with self.draft(name, mode=mode, overwrite=overwrite) as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                shutil.copyfileobj(content, file)

    @contextlib.contextmanager
    def draft(self, name: str, *, mode: int | None = None, overwrite: bool = True) -> Iterator[BinaryIO]:
        """Open a temporary file that takes the place of `name` when the block ends, and goes when it fails.

        The parameters and errors are those of `replace`.
        """
        try:
            before = self.may_write(name, overwrite=overwrite)
            draft = f".nbtools-{secrets.token_hex(8)}.tmp"
            handle = self.open_file(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
            try:
                with os.fdopen(handle, "wb") as file:
                    try:
                        yield file
                    except BaseException:
                        file.raw.close()  # what waits to be written would fail once more, in place of the error
                        raise
                    file.flush()
                    if mode is None and before is not None and stat.S_ISREG(before.st_mode) and hasattr(os, "fchmod"):
                        os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
                    os.fsync(file.fileno())
                self.move(draft, self, name, overwrite=overwrite)
            except BaseException:
                self.remove(draft)
                raise
        except NbtoolsError:
            raise
        except FileExistsError:
            raise _exists_error(self.path / name) from None
        except OSError as exc:
            kind = LimitExceeded if exc.errno == errno.ENOSPC else PathNotAllowed
            raise kind(f"{str(self.path / name)!r} cannot be written: {exc.strerror}.") from exc

    def may_write(self, name: str, *, overwrite: bool = True) -> os.stat_result | None:
        """Return what there is where a file is to be written, as far as that is known before.

        The parameters and errors are those of `replace`.
        """
        before = self.status(name)
        if before is not None and not overwrite:
            raise _exists_error(self.path / name)
        if before is not None and stat.S_ISDIR(before.st_mode):
            raise PathNotAllowed(f"{str(self.path / name)!r} is a folder.", hint="Name a file in it.")
        # Renaming needs no right to the file itself, so a file that is marked read-only has to be asked for its own.
        if before is not None and not os.access(self._entry(name), os.W_OK, dir_fd=self._handle):
            raise PathNotAllowed(f"{str(self.path / name)!r} is read-only.")
        return before

    def remove(self, name: str) -> None:
        """Remove a file or link, or an empty folder.

        Raises
        ------
        OSError
            It is a folder that is not empty, or may not be removed.
        """
        status = self.status(name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            os.rmdir(self._entry(name), dir_fd=self._handle)
        else:
            os.unlink(self._entry(name), dir_fd=self._handle)

    def move(self, name: str, target: Folder, new_name: str, *, overwrite: bool = False) -> None:
        """Move an entry to another folder of the same file system, without ever replacing one by accident.

        The new name is reserved first, with an empty file or folder: that fails if it is taken, and renaming replaces
        the reservation, so that there is no moment between looking and acting.

        Raises
        ------
        FileExistsError
            The name is taken and `overwrite` is false.
        OSError
            It cannot be moved, for example because the file system is another one (``EXDEV``).
        """
        status = self.status(name)
        if status is None:
            raise FileMissing(f"{str(self.path / name)!r} does not exist.")
        reserved = not overwrite
        if reserved:
            target._reserve(new_name, folder=stat.S_ISDIR(status.st_mode))
        try:
            os.replace(self._entry(name), target._entry(new_name), src_dir_fd=self._handle, dst_dir_fd=target._handle)
        except BaseException:
            if reserved:
                with contextlib.suppress(OSError):
                    target.remove(new_name)
            raise

    def _reserve(self, name: str, *, folder: bool) -> None:
        if folder:
            os.mkdir(self._entry(name), dir_fd=self._handle)
        else:
            os.close(self.open_file(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


@contextlib.contextmanager
def draft_in(folder: Path, *, mode: int = 0o600) -> Iterator[Path]:
    """Give an empty file that the block fills and moves to its place; nothing is left of it otherwise."""
    draft = folder / f".{secrets.token_hex(8)}"
    try:
        draft.touch(mode=mode, exist_ok=False)
        yield draft
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def open_below(root: Path, real: Path, *, make: bool = False, mode: int = 0o777) -> int:
    """Return the descriptor of a folder, reached from a folder above it through no link."""
    handle, parts = None, real.relative_to(root).parts
    try:
        handle = os.open(root, _WAY_FLAGS if parts else _FOLDER_FLAGS)
        for left, part in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, mode, dir_fd=handle)
            below = os.open(part, (_WAY_FLAGS if left else _FOLDER_FLAGS) | _NO_LINK, dir_fd=handle)
            os.close(handle)
            handle = below
    except FileNotFoundError:
        _close(handle)
        raise FileMissing(f"the folder {str(real)!r} does not exist.") from None
    except OSError as exc:
        _close(handle)
        raise PathNotAllowed(
            f"the folder {str(real)!r} cannot be opened: {exc.strerror}.",
            hint="A part of the path is not a folder, may not be entered, or changed meanwhile.",
        ) from exc
    return handle


def _exists_error(path: Path) -> FileAlreadyExists:
    hint = "Choose another name, or say that it may be replaced (--overwrite, overwrite=True)."
    return FileAlreadyExists(f"{str(path)!r} exists already.", hint=hint)


def _close(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)
