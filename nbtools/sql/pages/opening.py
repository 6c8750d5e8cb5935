"""Opening: from what stands behind FROM to the pages of its rows."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import glob
import itertools
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.ground.paths import stamp_of
from nbtools.sql.engines.duckdb.engine import DuckDBEngine
from nbtools.sql.engines.duckdb.zones import common_zone, types_of, zones_of
from nbtools.sql.engines.protocol import EngineOptions, QueryControl
from nbtools.sql.engines.temp_dirs import make_temp_dir, remove_temp_dir
from nbtools.sql.files.calls import PATTERN
from nbtools.sql.files.cells import SMALL_BYTES
from nbtools.sql.files.changes import TextReading
from nbtools.sql.files.csv import PACKED
from nbtools.sql.files.dictionary import meanings_of
from nbtools.sql.files.reading import MOST_WATCHED
from nbtools.sql.pages.pager import Pager, watched
from nbtools.sql.pages.source import AskedSource, CopiedSource, FrameSource, ParquetSource, TableSource
from nbtools.sql.results.result import FileNote, QueryResult

_QUOTED = re.compile(r"\s*'((?:[^']|'')*)'\s*\Z")
_NAME = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^\W\d]\w*(?:\.\w+)?))\s*\Z')


def open_frame(frame: Any, options: EngineOptions | None = None, is_changed: Callable[[], bool] = bool) -> Pager:
    """Return the pages of a DataFrame of pandas or polars, an Arrow table, or a result of a query.

    Parameters
    ----------
    frame
        It is not copied.
    options
        How much memory is taken.
    is_changed
        See `watch`.

    Raises
    ------
    SqlInvalid
        It is not a table.
    """
    return Pager(FrameSource(frame), DuckDBEngine(options=_with_room(options or EngineOptions())), is_changed)


def open_pager(
    source: str,
    frames: Mapping[str, Any],
    files: Sequence[Path],
    options: EngineOptions,
    is_changed: Callable[[], bool],
    control: QueryControl,
    settle: Callable[..., TextReading],
    notes: Sequence[FileNote] = (),
    renames: Sequence[FileNote] = (),
    *,
    has_more: bool = False,
) -> Pager:
    """Return the pages of what stands behind FROM, which was judged.

    Parameters
    ----------
    source
        A file in quotes, the name of a frame, or a query in brackets.
    frames
        The frames that it names, by name.
    files
        The files that it names.
    options
        What files may be read, and how much memory is taken.
    is_changed
        See `watch`.
    control
        Stops the reading of the first rows.
    settle
        Looks at all of its text files and returns how they are read.
    notes
        What is to be told of its files now.
    renames
        Those that tell of new names of columns of frames.
    has_more
        Whether it names other files too, by patterns or addresses.
    """
    quoted, name = _QUOTED.match(source), _NAME.match(source)
    alone = quoted[1].replace("''", "'") if quoted else str(name[1] or name[2]) if name else ""
    # A frame gives its cells itself: nothing is copied for the first page.
    if alone in frames and not files:
        pager = open_frame(frames[alone], options, is_changed)
        pager.source.notes = tuple(renames)
        return pager
    zone = common_zone(map(zones_of, map(types_of, frames.values())))
    options = dataclasses.replace(options, zone=zone)
    folder, engine, remove = _engine_with_folder(options)
    try:
        with contextlib.closing(engine.fresh_cursor()) as cursor, watched(cursor, control):
            # A Parquet file knows how many rows it has and finds each of them; all else is copied to one.
            if (quoted or name) and len(files) == 1 and files[0].suffix.lower() == ".parquet":
                opened_source: TableSource = ParquetSource.from_file(files[0], cursor)
                opened_source.notes = tuple(notes)
            else:
                query, target = f"SELECT * FROM {source}", folder / "rows.parquet"
                # Files of which there is so little were looked at whole.
                is_little = 0 < sum(path.stat().st_size for path in files) <= SMALL_BYTES
                is_small = is_little and not (frames or has_more or any(PACKED.search(path.name) for path in files))
                opened_source = CopiedSource(query, frames, cursor, target, settle, control, notes, is_small=is_small)
    except BaseException:
        engine.close()
        remove()
        raise
    if len(files) == 1:
        try:
            opened_source.meanings = meanings_of(files[0])
        except InvalidArguments as exc:
            opened_source.notes += (FileNote(file=files[0].name, text=exc.message),)
    return Pager(opened_source, engine, is_changed, remove)


def open_answer(
    head: QueryResult,
    copy: Callable[[Path, QueryControl], object],
    is_changed: Callable[[], bool],
    options: EngineOptions,
) -> Pager:
    """Return the pages of what a database answers.

    Parameters
    ----------
    head
        The first rows.
    copy
        Asks again and writes all rows to a Parquet file.
    is_changed
        See `watch`.
    options
        How much memory is taken.
    """
    folder, engine, remove = _engine_with_folder(options)
    return Pager(AskedSource(head, copy, folder / "rows.parquet"), engine, is_changed, remove)


def _engine_with_folder(options: EngineOptions) -> tuple[Path, DuckDBEngine, Callable[[], object]]:
    """Return a new folder, an engine that may use it, and what removes it, which goes with the engine at the latest."""
    shared = _folder_of_pages(os.getpid())
    if not shared.is_dir():  # the system cleans up folders where nothing happens for days
        _folder_of_pages.cache_clear()
        shared = _folder_of_pages(os.getpid())
    folder = Path(tempfile.mkdtemp(dir=shared))
    room = _with_room(options)
    engine = DuckDBEngine(options=dataclasses.replace(room, roots=(*room.roots, shared)), spill=shared)
    # A pager that nobody closed, and nobody holds any more, takes its copy of the rows along.
    return folder, engine, weakref.finalize(engine, remove_temp_dir, folder)


@functools.lru_cache(maxsize=1)
def _folder_of_pages(process: int) -> Path:
    """Make the folder that all pages of a process share, and with it the instances that read them."""
    folder = make_temp_dir()

    def remove() -> None:
        if os.getpid() == process:  # one that forked off leaves it alone
            remove_temp_dir(folder)

    atexit.register(remove)
    return folder


def watch(
    files: Sequence[Path], names: Iterable[str], frames: Iterable[str], lookup: Callable[[str], Any] | None
) -> Callable[[], bool]:
    """Return what tells whether files are not as they are now, or names stand for other frames.

    Parameters
    ----------
    files
        Those that are read, of databases too.
    names
        Of files, as queries and views write them: those that a pattern finds are watched, and new ones among them.
    frames
        Their names; what changes inside of a frame cannot be seen.
    lookup
        Returns the notebook's variable of a name at any time.
    """
    patterns = [name for name in names if PATTERN.search(name) and "://" not in name]
    deep = [name for name in patterns if "**" in name]
    folders: dict[str, tuple[int, int, int]] = {}
    below: list[str] = []

    def stamps() -> dict[str, tuple[int, int, int]]:
        # Below all folders there may be so many files that to look takes long: again where a folder has changed.
        if not folders or any(stamp_of(path) != stamp for path, stamp in folders.items()):
            folders.clear()
            heads = (f"{name.partition('**')[0] or './'}**/" for name in deep)
            folders.update((path, stamp_of(path)) for path in _files_of(heads))
            below[:] = _files_of(deep)
            folders.update((str(above), stamp_of(above)) for path in below for above in Path(path).parents)
        flat = _files_of(name for name in patterns if "**" not in name)
        return {path: stamp_of(path) for path in (*map(str, files), *flat, *below)}

    before, look = stamps(), lookup or dict[str, Any]().get
    seen = {name: frame for name in frames if (frame := look(name)) is not None}
    return lambda: stamps() != before or any(look(name) is not frame for name, frame in seen.items())


def _files_of(patterns: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        yield from itertools.islice(glob.iglob(pattern, recursive=True), MOST_WATCHED)  # noqa: PTH207 - of any folder


def _with_room(options: EngineOptions) -> EngineOptions:
    """Return the options with half of the free disk for sorting: a hundred million rows take more than a query may."""
    free = shutil.disk_usage(tempfile.gettempdir()).free // 2
    # A power of two: pages of the next minute share the instance of these.
    return dataclasses.replace(options, spill_bytes=max(options.spill_bytes, 1 << free.bit_length() - 1))
