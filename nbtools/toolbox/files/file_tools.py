"""Tools for files. Every path is judged and opened by `Roots`: below the allowed folders, and never through a link."""

from __future__ import annotations

import datetime as dt
import errno
import mimetypes
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from nbtools.contract import consequence
from nbtools.contract.approval.label_rules import see_names
from nbtools.contract.consequence import Consequence
from nbtools.contract.result import Output
from nbtools.contract.tool import Context, tool
from nbtools.errors import (
    FileAlreadyExists,
    FileMissing,
    InvalidArguments,
    NbtoolsError,
    ParseError,
    PathNotAllowed,
    PermissionDenied,
    did_you_mean,
)
from nbtools.ground.folder import Folder
from nbtools.ground.paths import EntryPath, FilePath, Place, Roots
from nbtools.texts.parsing import codec_of
from nbtools.toolbox.files.writing import put_file
from nbtools.toolbox.result_types import FileContent, FileDeleted, FileMatches, FileMoved, FileWritten, FolderEntries

_READ_BYTES = 1_000_000
_LISTED = 1_000
_LAST_BYTE = 1 << 43
_WIDE = ("utf-16", "utf-32", "utf_16", "utf_32")


@tool(
    title="Read a file",
    read_only=True,
    idempotent=True,
    examples=({"path": "notes.txt"}, {"path": "old.csv", "encoding": "latin-1"}),
)
def file_read(
    path: FilePath, encoding: str = "utf-8", offset: Annotated[int, Ge(0), Le(_LAST_BYTE)] = 0, *, ctx: Context
) -> Output[FileContent]:
    """Read a text file below the allowed folders.

    Returns path, content, size (bytes of the whole file) and truncated. At most 1,000,000 bytes are read at once; of a
    longer file the rest is read by giving next_offset as offset. A binary file is an error that says what it is.

    Parameters
    ----------
    path
        File to read, relative to the working folder or absolute.
    encoding
        Encoding of the file, such as "utf-8", "latin-1" or "utf-16".
    offset
        Byte at which to start.

    Raises
    ------
    PathNotAllowed
        The path leads outside the allowed folders, or to a device.
    FileMissing
        There is no such file.
    ParseError
        The file is not text in that encoding.
    InvalidArguments
        The encoding is none of documents, or the offset is behind the end.
    """
    roots = ctx.use(Roots)
    codec = _codec(encoding)
    with os.fdopen(roots.open_file(_file(roots, path)), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if 0 < size < offset:
            raise InvalidArguments(f"{path!r} has {size:,} bytes; the offset {offset:,} is past its end.")
        file.seek(offset)
        # Read rather than trusted: files of the system, and growing ones, have another size than they say.
        raw = file.read(_READ_BYTES)
        # One byte more tells whether that was all.
        truncated = bool(file.read(1))
    # Latin-1 decodes anything: without this a picture would come back as text.
    if b"\0" in raw[:8192] and not encoding.lower().startswith(_WIDE):
        raise _binary(path, size, "it contains NUL bytes")
    try:
        decoder = codec.incrementaldecoder()
        content = decoder.decode(raw, final=not truncated)
    except UnicodeError as exc:
        position = offset + getattr(exc, "start", 0)
        raise _binary(path, size, f"byte {position:,} is not valid {encoding}") from None
    data: dict[str, Any] = {"path": path, "content": content, "size": size, "truncated": truncated}
    if not truncated:
        return Output(data=data, text=content)
    # Where a character was cut, the next part begins with it.
    data["next_offset"] = offset + len(raw) - len(decoder.getstate()[0])
    return Output(data=data, text=f"{content}\n[cut: continue at offset {data['next_offset']} of {size:,} bytes]")


def _file(roots: Roots, path: str) -> Path:
    """Return the resolved path of an existing regular file."""
    real = roots.resolve(path)
    if real.is_dir():
        raise InvalidArguments(f"{path!r} is a folder.", hint="file_list shows what is in it.")
    return real


def _binary(path: str, size: int, why: str) -> ParseError:
    mime = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return ParseError(
        f"{path!r} is not text in that encoding: {why} ({mime}, {size:,} bytes).",
        hint="Name its encoding, or read it by a script with data_analyze.",
        data={"path": path, "size": size, "mime": mime, "binary": True},
    )


def _codec(name: str) -> Any:
    codec = codec_of(name)
    if codec is None:
        from encodings.aliases import aliases

        names = {*aliases, *(value.replace("_", "-") for value in aliases.values())}
        hint = did_you_mean(
            name[:40], [other for other in names if codec_of(other)], "Use 'utf-8', 'latin-1' or 'utf-16'."
        )
        raise InvalidArguments(f"{name[:40]!r} is not a text encoding.", hint=hint)
    return codec


def _resolved(path: str, ctx: Context) -> Path:
    return path.real if isinstance(path, Place) else ctx.use(Roots).resolve(path, must_exist=False)


def _written_file(values: Mapping[str, Any], ctx: Context) -> tuple[Consequence, ...]:
    return (consequence.whole_file(_resolved(values["path"], ctx), values["content"]),)


@tool(
    title="Write a file",
    destructive=True,
    idempotent=True,
    consequences_of=_written_file,
    examples=({"path": "out/notes.txt", "content": "Three things to do.\n"},),
)
def file_write(path: FilePath, content: str, encoding: str = "utf-8", *, ctx: Context) -> Output[FileWritten]:
    """Write a text file below the allowed folders, replacing an existing one.

    Missing folders are made. The file is put in place whole: a reader meanwhile sees the old content or the
    new. Returns path and bytes_written. At most 16,000,000 bytes.

    Parameters
    ----------
    path
        File to write, relative to the working folder or absolute.
    content
        The whole new content. Line ends are written as they are.
    encoding
        Encoding of the file, such as "utf-8", "latin-1" or "utf-16".

    Raises
    ------
    PathNotAllowed
        The path leads outside the allowed folders, is a folder, or may not be written.
    InvalidArguments
        The text has characters that the encoding has not.
    LimitExceeded
        The content is too large.
    """
    roots = ctx.use(Roots)
    _codec(encoding)
    try:
        raw = content.encode(encoding)
    except UnicodeError as exc:
        at = getattr(exc, "start", 0)
        raise InvalidArguments(
            f"character {at:,} of the content, {content[at : at + 1]!r}, does not exist in {encoding}.",
            hint="Use encoding='utf-8'.",
        ) from None
    return put_file(roots, path, raw, {"path": path, "bytes_written": len(raw)})


@tool(
    title="Find files",
    read_only=True,
    reads="what folders hold",
    idempotent=True,
    examples=({"pattern": "**/*.csv"}, {"pattern": "*.txt", "base_path": "out"}),
)
def file_glob(pattern: str, base_path: FilePath = ".", *, ctx: Context) -> Output[FileMatches]:
    """Find files and folders whose path matches a pattern.

    Returns pattern, matches (sorted paths that the other file tools take) and truncated. At most 1,000 matches are
    given and 100,000 entries looked at. Hidden names are left out unless the pattern names the dot; folders behind
    links are not entered.

    Parameters
    ----------
    pattern
        ``*`` and ``?`` stand for anything within a name, ``[abc]`` for one of these, ``**`` for any number of folders.
    base_path
        Folder in which to look, relative to the working folder or absolute.

    Raises
    ------
    PathNotAllowed
        The folder is outside the allowed ones, or the pattern leaves it.
    FileMissing
        There is no such folder.
    """
    from nbtools.toolbox.files.pattern import find_matching, parse_pattern

    roots = ctx.use(Roots)
    parts = parse_pattern(pattern)
    start = roots.resolve(base_path)
    if not start.is_dir():
        raise InvalidArguments(f"{base_path!r} is not a folder.", hint="Give the folder as base_path.")
    prefix = "" if base_path in {"", ".", "./"} else base_path.rstrip("/") + "/"
    paths: list[str] = []
    truncated = False
    for match in find_matching(parts, start, roots):
        # The walk gives nothing more where it had to give up, and that is told.
        if match is None or len(paths) == _LISTED:
            truncated = True
            break
        paths.append(prefix + _as_text(match))
    see_names(ctx, (start / path.removeprefix(prefix) for path in paths))
    paths.sort()
    data = {"pattern": pattern, "matches": paths, "truncated": truncated}
    text = "\n".join(paths) or f"Nothing in {base_path} matches {pattern}."
    return Output(data=data, text=text + ("\n[cut: there are more]" if truncated else ""))


def _as_text(name: str) -> str:
    """Return a file name as text; bytes that are not UTF-8 become escapes, because JSON has no place for them."""
    # Python holds such bytes as halves of characters, which no file of JSON takes.
    return os.fsencode(name).decode("utf-8", "backslashreplace")


@tool(title="List a folder", read_only=True, idempotent=True, reads="what folders hold", examples=({}, {"path": "out"}))
def file_list(path: FilePath = ".", *, ctx: Context) -> Output[FolderEntries]:
    """List the contents of a folder below the allowed ones.

    Returns path, entries (name, type: file, folder, link or other, size in bytes, modified in ISO 8601, UTC), sorted by
    name, and truncated. At most 1,000 entries; hidden ones are among them.

    Parameters
    ----------
    path
        Folder to list, relative to the working folder or absolute.

    Raises
    ------
    PathNotAllowed
        The folder is outside the allowed ones.
    FileMissing
        There is no such folder.
    """
    roots = ctx.use(Roots)
    real = roots.resolve(path)
    if not real.is_dir():
        raise InvalidArguments(f"{path!r} is not a folder.", hint="file_read reads a file.")
    with roots.folder(real) as folder:
        names = folder.names()
        statuses = [(name, folder.status(name)) for name in names[:_LISTED]]
    entries = [_entry(name, status) for name, status in statuses if status is not None]
    see_names(ctx, (real / name for name, _ in statuses))
    truncated = len(names) > _LISTED
    lines = [f"{entry['size']:>12,}  {entry['type']:<6}  {entry['name']}" for entry in entries]
    text = "\n".join(lines) or f"{path} is empty."
    data = {"path": path, "entries": entries, "truncated": truncated}
    return Output(data=data, text=text + (f"\n[cut: {len(names):,} entries in all]" if truncated else ""))


def _entry(name: str, status: os.stat_result) -> dict[str, Any]:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    modified = dt.datetime.fromtimestamp(int(status.st_mtime), dt.UTC)
    return {
        "name": _as_text(name),
        "type": kinds.get(stat.S_IFMT(status.st_mode), "other"),
        "size": status.st_size,
        "modified": modified.isoformat().replace("+00:00", "Z"),
    }


def _moved(values: Mapping[str, Any], ctx: Context) -> tuple[Consequence, ...]:
    return consequence.replaced(_resolved(values["dest"], ctx))


@tool(
    title="Move a file",
    destructive=True,
    consequences_of=_moved,
    examples=({"source": "draft.txt", "dest": "out/final.txt"},),
)
def file_move(source: EntryPath, dest: EntryPath, overwrite: bool = False, *, ctx: Context) -> Output[FileMoved]:
    """Move or rename a file or folder below the allowed folders.

    Nothing is ever replaced unless overwrite says so, and a folder that is not empty never is. Missing folders of
    the destination are made. A link is moved itself, not what it leads to. A file that a script left (artifacts/NAME)
    is copied. Returns source, dest and success.

    Parameters
    ----------
    source
        What to move.
    dest
        Its new path, name included: ``dest="old/"`` is not enough.
    overwrite
        Whether a file at dest may be replaced.

    Raises
    ------
    FileMissing
        There is no source.
    FileAlreadyExists
        There is something at dest.
    PathNotAllowed
        One of the paths leads outside the allowed folders.
    """
    roots = ctx.use(Roots)
    is_left = roots.is_left(roots.resolve(source, follow=False))
    start = roots.resolve(source, for_writing=not is_left, follow=False)
    end = roots.resolve(dest, must_exist=False, for_writing=True, follow=False)
    if dest.endswith(("/", os.sep)) or end.is_dir():
        raise FileAlreadyExists(f"{dest!r} is a folder.", hint=f"Name the file in it: {Path(dest, start.name)}.")
    with roots.folder(start.parent) as folder, roots.folder(end.parent, make=True) as target:
        try:
            if is_left:
                _copy(folder, start.name, target, end.name, overwrite=overwrite)
            else:
                _move(folder, start.name, target, end.name, overwrite=overwrite)
        except NbtoolsError:
            raise
        except FileExistsError:
            raise FileAlreadyExists(f"{dest!r} exists.", hint="Choose another name, or pass overwrite=true.") from None
        except OSError as exc:
            raise _os_failure(f"{source!r} cannot be moved to {dest!r}", exc) from exc
    data = {"source": source, "dest": dest, "success": True}
    return Output(data=data, text=f"{source} {'copied' if is_left else 'moved'} to {dest}")


def _move(folder: Folder, name: str, target: Folder, new_name: str, *, overwrite: bool) -> None:
    try:
        folder.move(name, target, new_name, overwrite=overwrite)
    except OSError as exc:
        # Another file system: only then is a copy made, which takes time and loses links.
        if exc.errno != errno.EXDEV:
            raise
        _copy(folder, name, target, new_name, overwrite=overwrite)
        folder.remove(name)


def _copy(folder: Folder, name: str, target: Folder, new_name: str, *, overwrite: bool) -> None:
    """Copy a file with its mode, also to another file system."""
    with (
        os.fdopen(folder.open_file(name), "rb") as source,
        target.draft(new_name, mode=0o600, overwrite=overwrite) as copy,
    ):
        shutil.copyfileobj(source, copy, 1 << 20)
        os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(source.fileno()).st_mode))


def _os_failure(what: str, exc: OSError) -> NbtoolsError:
    if exc.errno == errno.EINVAL:
        return InvalidArguments(f"{what}: a folder cannot be placed inside itself.")
    if exc.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.EISDIR, errno.ENOTDIR}:
        return FileAlreadyExists(f"{what}: {exc.strerror}.", hint="A folder that is not empty is never replaced.")
    return PermissionDenied(f"{what}: {exc.strerror}.")


def _deleted(values: Mapping[str, Any], ctx: Context) -> tuple[Consequence, ...]:
    return (consequence.deleted(_resolved(values["path"], ctx)),)


@tool(title="Delete a file", destructive=True, consequences_of=_deleted, examples=({"path": "out/notes.txt"},))
def file_delete(path: EntryPath, *, ctx: Context) -> Output[FileDeleted]:
    """Delete a file, a link or an empty folder below the allowed folders. It cannot be taken back.

    Returns path and deleted. A link is deleted itself, not what it leads to. A folder that is not empty is refused.

    Parameters
    ----------
    path
        What to delete.

    Raises
    ------
    FileMissing
        There is nothing of that name.
    PathNotAllowed
        The path leads outside the allowed folders, or is one of them.
    PermissionDenied
        It is a folder that is not empty, or may not be deleted.
    """
    roots = ctx.use(Roots)
    real = roots.resolve(path, for_writing=True, follow=False)
    with roots.folder(real.parent) as folder:
        try:
            folder.remove(real.name)
        except FileNotFoundError:
            raise FileMissing(f"{path!r} does not exist (any more).") from None
        except PathNotAllowed:
            raise
        except OSError as exc:
            full = exc.errno in {errno.ENOTEMPTY, errno.EEXIST}
            raise PermissionDenied(
                f"{path!r} cannot be deleted: {exc.strerror}.", hint="Delete its contents first." if full else None
            ) from exc
    return Output(data={"path": path, "deleted": True}, text=f"{path} deleted")


TOOLS = (file_read, file_write, file_glob, file_list, file_move, file_delete)
"""The tools of this module."""
