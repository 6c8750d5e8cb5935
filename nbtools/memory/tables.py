"""Tables and other values that JSON has no form for: Parquet files beside the records, named by their content.

A record holds what stands for a table: the SHA-256 of its file, the number of rows, names and types of the columns. So
the words of its schema are found by a search, and models read the schema and not the rows. A file is there once,
however many keys and versions mean it, and goes when the last key that means it is forgotten. Dates, decimals, numbers
of NumPy and what holds them are JSON that names their types. Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.errors import FileMissing, InvalidArguments, LimitExceeded
from nbtools.ground.folder import draft_in
from nbtools.ground.home import make_private
from nbtools.ground.lazy import class_among, need, pd
from nbtools.ground.trimming import trim
from nbtools.memory.exact.frames import columns_of, difference, exact_table, restore_frame, usual_table
from nbtools.memory.exact.values import from_json, to_json
from nbtools.memory.repository import Query
from nbtools.texts.values import text_of

if TYPE_CHECKING:
    from nbtools.memory.export import ImportCount
    from nbtools.memory.records import MemoryRecord
    from nbtools.memory.store import AgentMemory

_TABLE, _VALUE = "nbtools_table", "nbtools_value"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KINDS = {"pandas": {"DataFrame", "Series"}, "polars": {"DataFrame", "LazyFrame"}, "pyarrow": {"Table"}}
_MOST_COLUMNS = 2_000  # whose names and types the record tells


def in_words(value: Any) -> Any:
    """Return a value as lists of notes show it: tables by size and columns, other objects as in every list.

    Examples
    --------
    >>> in_words({"columns": {"id": "int64", "plan": "string"}, "rows": 1200, "nbtools_table": "ab"}).split()[:2]
    ['table,', '1,200']
    """
    if isinstance(value, Mapping) and value.keys() == {_VALUE}:
        with contextlib.suppress(Exception):  # a note of that form may be anyone's
            return text_of(from_json(value[_VALUE]))
    if not isinstance(value, Mapping) or _TABLE not in value or "rows" not in value:
        return value
    names = [each if isinstance(each, str) else each[0] for each in value.get("columns") or ()]
    return f"table, {value['rows']:,} \N{MULTIPLICATION SIGN} {value.get('width', len(names)):,}: {', '.join(names)}"


class TableFolder:
    """The files of tables that memory items mean.

    Parameters
    ----------
    folder
        Where they lie; it is made when the first one is saved.
    limit
        Bytes that a table may have as Arrow.
    bounds
        Seconds that a table stays which no note means as it is now, but an earlier version or a deleted one, and the
        bytes that all may take; `None` keeps all.
    memory
        Returns a memory of the store; asked only where something may have to go.
    """

    def __init__(
        self,
        folder: Path,
        *,
        limit: int = 1_000_000_000,
        bounds: tuple[float, int] | None = None,
        memory: Callable[[], AgentMemory] | None = None,
    ) -> None:
        self._folder = folder
        self._limit = limit
        self._bounds, self._memory = bounds, memory

    def pack(self, value: Any, record_id: str) -> Any:
        """Return the JSON that stands for a value; the file of a table is written first.

        Parameters
        ----------
        value
            What is to be saved.
        record_id
            Of the item that will mean it.

        Raises
        ------
        LimitExceeded
            The table is too large, or there is no room for it.
        InvalidArguments
            A column holds values of several types, two columns have one name, or there is none; or the value is
            neither a table nor one that JSON can stand for.
        """
        kind = class_among(value, _KINDS)
        if not kind:
            try:
                return {_VALUE: to_json(value)}
            except (TypeError, RecursionError) as exc:
                way = "Memory keeps JSON, tables, dates, decimals, NumPy's numbers and arrays; write others to a file."
                raise InvalidArguments(f"The value cannot be kept: {_reason(exc)}.", hint=way) from None
        self._trim()
        try:
            table, sha256 = self._keep(value, kind, _to_arrow)
        except InvalidArguments:
            if not kind.startswith("pandas"):
                raise
            table, sha256 = self._keep(value, kind, lambda value, _: exact_table(_as_frame(value)))
        self._means(sha256).mkdir(exist_ok=True)
        (self._means(sha256) / _name_of(record_id)).touch()
        columns = columns_of(table, _as_frame(value).shape[1] if kind.startswith("pandas") else table.num_columns)
        types: Any = dict(columns[:_MOST_COLUMNS])
        if len(types) < len(columns[:_MOST_COLUMNS]):  # a name occurs twice
            types = columns[:_MOST_COLUMNS]
        width = {"width": len(columns)} if len(types) < len(columns) else {}
        return {"columns": types, **width, "rows": table.num_rows, "class": kind, _TABLE: sha256}

    def _keep(self, value: Any, kind: str, make: Callable[[Any, str], Any]) -> tuple[Any, str]:
        need("pyarrow", extra="engines", why="Tables in memory")
        try:
            table = make(value, kind)
        except Exception as exc:  # of Arrow, pandas or polars, for a type that it has no form for
            raise _not_kept(exc) from exc
        if not table.num_columns:
            has_rows = getattr(value, "shape", [0])[0] > 0
            way = "frame.reset_index() has its index as one." if has_rows else "Save it when it has some."
            raise InvalidArguments("the table has no columns.", hint=way)
        if table.nbytes > self._limit:
            raise LimitExceeded(
                f"the table has {table.nbytes:,} bytes, and a table in memory may have {self._limit:,}.",
                hint="Save fewer rows or columns, or write it to a file (%%nbsql --out-file) and save its name.",
            )
        return table, self._write(table, lambda back: difference(value, _from_arrow(back, kind)))

    def _trim(self) -> None:
        """Remove the tables of earlier versions that are old, or too much; once in the life of this object."""
        bounds, self._bounds = self._bounds, None
        if bounds is not None:
            seconds, most = bounds
            trim(self._folder, seconds=seconds, most_bytes=most, may_go=lambda path: path.stem not in self._referenced)

    @functools.cached_property
    def _referenced(self) -> frozenset[str]:
        """The tables that notes mean as they are now."""
        assert self._memory is not None, "which is asked for what it means"
        values = self._memory().table(is_pandas=True)["value"]
        return frozenset(_hashes(json.loads(text) for text in values if f'"{_TABLE}"' in text))

    def _write(self, table: Any, differs: Callable[[Any], InvalidArguments | None]) -> str:
        parquet = need("pyarrow.parquet", extra="engines", why="Tables in memory")
        with _draft_in(self._folder) as draft:
            # What is said to be kept can be read again, and is what it was.
            try:
                parquet.write_table(table, draft, compression="zstd")
                why = differs(_read(draft))
            except OSError:
                raise
            except Exception as exc:  # of Arrow, pandas or polars: it cannot be written, or not be read again
                raise _not_kept(exc) from exc
            if why is not None:
                raise _not_kept(why)
            sha256 = _sha256_of(draft)
            draft.replace(self._file(sha256))
        return sha256

    def unpack(self, value: Any) -> Any:
        """Return what a value of an item stands for; any other value as it is.

        Raises
        ------
        FileMissing
            The file is not on this machine.
        """
        if not isinstance(value, Mapping):
            return value
        if value.keys() == {_VALUE}:
            return from_json(value[_VALUE])
        sha256 = value.get(_TABLE)
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            return value
        file = self._file(sha256)
        if not file.is_file():
            raise FileMissing(
                f"the table of this item ({value.get('rows', 0):,} rows) is not on this machine.",
                hint=f"Its file was {file.name}, in the folder of the memory where it was saved.",
            )
        kind = str(value.get("class"))
        if kind.startswith("pandas"):
            # Makes periods and intervals known to Arrow, which the process that wrote them did.
            importlib.import_module("pandas.core.arrays.arrow.extension_types")
        return _from_arrow(_read(file), kind)

    def forget(self, memory: AgentMemory, key: str) -> int:
        """Erase a key for ever, and the files that its versions meant and no other key does; return its versions."""
        hashes = set(_hashes(record.value for record in memory.history(key)))
        count = memory.forget(key)
        for sha256 in hashes if count else ():
            means = self._means(sha256)
            (means / _name_of(memory.scope.record_id(key))).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # there are others, or someone was faster
                means.rmdir()
                self._file(sha256).unlink(missing_ok=True)
        return count

    def export_to(
        self, memory: AgentMemory, path: str | os.PathLike[str], *, all_scopes: bool = False, overwrite: bool = False
    ) -> int:
        """Write the items to a file, and their tables into the folder ``FILE.tables``; return the number of items.

        Raises
        ------
        LimitExceeded
            There is no room for a table.
        """
        count = memory.export_to(path, all_scopes=all_scopes, overwrite=overwrite)
        for sha256 in set(_hashes(record.value for record in _records(memory, all_scopes))):
            if self._file(sha256).is_file():
                _copy(self._file(sha256), _beside(path) / f"{sha256}.parquet")
        return count

    def import_from(
        self, memory: AgentMemory, path: str | os.PathLike[str], *, all_scopes: bool = False
    ) -> ImportCount:
        """Read such a file and the tables beside it; return the number of items.

        A table whose content is not what its name says is left out, and the items that mean it say that it is missing.
        """
        for file in sorted(_beside(path).glob("*.parquet")):
            if _SHA256.fullmatch(file.stem) and not self._file(file.stem).exists() and _sha256_of(file) == file.stem:
                _copy(file, self._file(file.stem))
        count = memory.import_from(path, all_scopes=all_scopes)
        for record in _records(memory, all_scopes):
            for sha256 in _hashes([record.value]):
                if self._file(sha256).is_file():
                    self._means(sha256).mkdir(exist_ok=True)
                    (self._means(sha256) / _name_of(record.id)).touch()
        return count

    def _file(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.parquet"

    def _means(self, sha256: str) -> Path:
        """Return the folder with an empty file for each item that means a table."""
        return self._folder / f"{sha256}.items"


def _beside(path: str | os.PathLike[str]) -> Path:
    target = Path(path).expanduser()
    return target.with_name(f"{target.name}.tables")


def _records(memory: AgentMemory, all_scopes: bool) -> Iterable[MemoryRecord]:
    return memory.repository.query(Query(scope=None if all_scopes else memory.scope)).records


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: Path, target: Path) -> None:
    """Copy a file, whole or not at all."""
    with _draft_in(target.parent) as draft:
        shutil.copyfile(source, draft)
        draft.replace(target)


@contextlib.contextmanager
def _draft_in(folder: Path) -> Iterator[Path]:
    """Give an empty file that the block fills and moves; nothing is left of it otherwise."""
    try:
        make_private(folder)
        with draft_in(folder) as draft:
            yield draft
    except OSError as exc:
        raise LimitExceeded(
            f"the table cannot be written to {folder}: {os.strerror(exc.errno) if exc.errno else exc}.",
            hint="Check the permissions and free space there, or choose another place.",
        ) from exc


def _hashes(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        sha256 = value.get(_TABLE) if isinstance(value, Mapping) else None
        if isinstance(sha256, str) and _SHA256.fullmatch(sha256):
            yield sha256


def _name_of(record_id: str) -> str:
    return hashlib.sha256(record_id.encode()).hexdigest()[:32]


def _read(file: Path) -> Any:
    parquet = need("pyarrow.parquet", extra="engines", why="Tables in memory")
    # As a file and not as a data set, which knows no two columns of one name.
    with parquet.ParquetFile(file) as opened:
        return opened.read()


def _to_arrow(value: Any, kind: str) -> Any:
    if kind == "pyarrow.Table":
        return value
    if kind.startswith("polars"):
        return (value.collect() if kind.endswith("LazyFrame") else value).to_arrow()
    return usual_table(_as_frame(value))


def _as_frame(value: Any) -> Any:
    """Return a table of pandas with its rows: a series is a frame of one column, with the name that it has."""
    if not hasattr(value, "to_frame"):
        return value
    kind = None if isinstance(value.name, str) else object
    return value.to_frame().set_axis(pd.Index([value.name], dtype=kind, tupleize_cols=False), axis="columns")


def _not_kept(why: Exception) -> InvalidArguments:
    hint = getattr(why, "hint", None) or "Write it to a file and save its name."
    return InvalidArguments(f"the table cannot be kept as it is: {_reason(why)}.", hint=hint)


def _reason(exc: Exception) -> str:
    text = " ".join(" ".join(map(str, exc.args)).split())[:300]
    return "it nests too deep" if isinstance(exc, RecursionError) else text


def _from_arrow(table: Any, kind: str) -> Any:
    if kind == "pyarrow.Table":
        return table
    if kind.startswith("polars"):
        return importlib.import_module("polars").from_arrow(table)
    frame = restore_frame(table)
    return frame.iloc[:, 0] if kind.endswith("Series") else frame
