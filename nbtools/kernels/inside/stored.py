"""Objects on their way between a notebook and a script: tables as Arrow files, arrays as ``.npy``, all else as JSON.

Nothing is pickled. A file is written once and never changed. Readers map it into memory privately: pages are copied
when they are written to, so a script can change its variables without any other reader seeing it. Each column of a
pandas frame is a separate stream in the file, so that no more than one column is ever converted at a time, and a column
of numbers without gaps is used in place, without a copy.

A stored object is a mapping ``{"__stored__": PATH, "kind": …}`` in JSON; for NaN and infinity, which JSON lacks, their
name stands there. Like `nbtools.kernels.inside.hooks`, this
module may import nothing of ours, and finds everything but the standard library when it is called.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import io
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

STORED = "__stored__"
"""The key that tells a stored object."""
_TABLES = {
    "pandas": {"DataFrame", "Series"},
    "polars": {"DataFrame", "LazyFrame", "Series"},
    "pyarrow": {"Table", "RecordBatch"},
    "numpy": {"ndarray"},
}
_FIGURES = {"matplotlib", "seaborn", "plotly", "altair"}


def is_storable(value: Any) -> bool:
    """Tell whether a value is a table or an array, which are stored as files."""
    return bool(_kind(value))


def _kind(value: Any) -> str:
    """Return the package of a table or an array; empty for all else."""
    for kind in type(value).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ in _TABLES.get(package, ()):
            return package
    return ""


# -- writing -----------------------------------------------------------------------------------------------------------


def store(value: Any, folder: str, name: str, notes: list[str]) -> dict[str, Any]:
    """Write an object into a folder and return what stands for it.

    Parameters
    ----------
    value
        A table of pandas, polars or Arrow, an array of numpy, or a figure of matplotlib, seaborn, plotly or altair.
    folder
        Where the file is made.
    name
        What the object is called where it comes from, for `notes`.
    notes
        Gets a sentence about each thing that the other side sees in another form.

    Raises
    ------
    TypeError
        It is none of these, or an array of objects.
    OSError
        There is no room for it.
    """
    write, facts = _writer(value, name, notes)
    path, count = os.path.join(folder, ".nbtools-value"), 0  # noqa: PTH118 - no pathlib where this module is sent to
    while True:
        count += 1
        try:
            handle = os.open(f"{path}-{count}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            break
        except FileExistsError:
            continue
    os.close(handle)
    path = f"{path}-{count}"
    try:
        write(path)
        os.chmod(path, 0o400)  # noqa: PTH101 - same
    except BaseException:
        os.unlink(path)  # noqa: PTH108 - same
        raise
    return {STORED: path, **facts}


def _writer(value: Any, name: str, notes: list[str]) -> tuple[Callable[[str], None], dict[str, Any]]:
    kind = _kind(value)
    if kind == "numpy":
        return _array_writer(value, name)
    if kind == "pandas":
        return _pandas_writer(value, name, notes)
    if kind:
        return _arrow_writer(value, kind)
    return _figure_writer(value)


def _array_writer(value: Any, name: str) -> tuple[Callable[[str], None], dict[str, Any]]:
    numpy: Any = importlib.import_module("numpy")
    if value.dtype.hasobject:
        raise TypeError(f"{name} is an array of Python objects; convert it to numbers or text first")
    whole = numpy.ascontiguousarray(value).reshape(value.shape)

    def write(path: str) -> None:
        with open(path, "wb") as file:  # noqa: PTH123 - same
            numpy.lib.format.write_array(file, whole, version=(1, 0), allow_pickle=False)

    return write, {"kind": "array"}


def _pandas_writer(value: Any, name: str, notes: list[str]) -> tuple[Callable[[str], None], dict[str, Any]]:
    is_series = not hasattr(type(value), "columns")
    frame = value.to_frame() if is_series else value
    columns = [frame.iloc[:, at] for at in range(frame.shape[1])]
    index, levels = _index_facts(frame.index)
    labels = [_label(label) for label in frame.columns]
    facts = {
        "kind": "series" if is_series else "pandas",
        "columns": [None] if is_series and value.name is None else labels,
        "column_names": [_label(one) for one in frame.columns.names],
        "dtypes": [str(one.dtype) for one in (*columns, *levels)],
        "index": index,
        "rows": len(frame),
    }
    if not _has_arrow():
        return _parquet_writer(frame), {**facts, "kind": "parquet"}

    def write(path: str) -> None:
        pa: Any = importlib.import_module("pyarrow")
        mixed: list[str] = []
        with pa.OSFile(path, "wb") as sink:
            for at, column in enumerate((*columns, *levels)):
                label = f"column {labels[at]!r}" if at < len(labels) else "the index"
                batch = pa.record_batch([_arrow_column(column, label, mixed)], names=["c"])
                with pa.ipc.new_stream(sink, batch.schema) as writer:
                    writer.write_batch(batch)
        if mixed:
            which = " and ".join(filter(None, (", ".join(mixed[:-1]), mixed[-1])))
            holds = "holds" if len(mixed) == 1 else "hold"
            notes.append(
                f"{which} of {name} {holds} values that Arrow has no one type for; they are handed over as text"
            )

    return write, facts


def _index_facts(index: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return what tells an index: its range, or its names, with its levels as columns."""
    names = [_label(one) for one in index.names]
    if type(index).__name__ == "RangeIndex":
        return {"names": names, "range": [index.start, index.stop, index.step]}, []
    levels = [index.get_level_values(level).to_series() for level in range(index.nlevels)]
    return {"names": names, "levels": len(levels)}, levels


def _label(label: Any) -> Any:
    """Return a label of a column as JSON."""
    if isinstance(label, tuple):
        return {"parts": [_label(part) for part in label]}
    if hasattr(label, "isoformat"):
        return {"time" if hasattr(label, "hour") else "date": label.isoformat()}
    if hasattr(label, "item"):
        label = label.item()
    return label if label is None or isinstance(label, str | int | float | bool) else str(label)


def _arrow_column(column: Any, label: str, mixed: list[str]) -> Any:
    """Turn a column into an Arrow array; values of several types become text, and its label joins `mixed`."""
    pa: Any = importlib.import_module("pyarrow")
    # Numbers as they lie there, NaN among them: looking for missing ones would take another pass, and a mask.
    is_number = getattr(column.dtype, "kind", "") in "iuf" and hasattr(column.dtype, "newbyteorder")
    try:
        array = pa.array(column.to_numpy()) if is_number else pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        # What can be made from texts again, such as complex numbers, comes back as what it was.
        mixed.append(label)
        missing = column.isna()
        array = pa.array([None if gone else str(one) for one, gone in zip(column, missing, strict=True)], pa.string())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _arrow_writer(value: Any, kind: str) -> tuple[Callable[[str], None], dict[str, Any]]:
    pa: Any = importlib.import_module("pyarrow")
    is_series = kind == "polars" and type(value).__name__ == "Series"
    if kind == "polars":
        frame = value.collect() if hasattr(value, "collect") else value.to_frame() if is_series else value
        table = frame.to_arrow()
    else:
        table = pa.Table.from_batches([value]) if isinstance(value, pa.RecordBatch) else value

    def write(path: str) -> None:
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)

    return write, {"kind": "polars_series" if is_series else "arrow" if kind == "pyarrow" else kind}


def _parquet_writer(frame: Any) -> Callable[[str], None]:
    """Write a frame by DuckDB, where there is no pyarrow."""

    def write(path: str) -> None:
        duckdb: Any = importlib.import_module("duckdb")
        flat = frame.reset_index(drop=type(frame.index).__name__ == "RangeIndex")
        flat.columns = [str(one) for one in flat.columns]
        with duckdb.connect() as connection:
            connection.register("plain", flat)
            text = path.replace("'", "''")
            connection.execute(f"COPY (FROM plain) TO '{text}' (FORMAT parquet, USE_TMP_FILE false)")

    return write


def _figure_writer(value: Any) -> tuple[Callable[[str], None], dict[str, Any]]:
    package = type(value).__module__.partition(".")[0]
    figure = getattr(value, "figure", value) if package in {"matplotlib", "seaborn"} else value
    # A plot of seaborn.objects is not a figure yet, and draws itself where it is saved.
    save = getattr(figure, "savefig", None) or (getattr(figure, "save", None) if package == "seaborn" else None)
    if package not in _FIGURES or not (save or hasattr(figure, "to_json")):
        raise TypeError(f"a {type(value).__name__} is not a table, array or figure")

    def write(path: str) -> None:
        with open(path, "wb") as file:  # noqa: PTH123 - same
            if save:
                save(file, format="png", bbox_inches="tight")
            else:
                file.write(figure.to_json().encode())

    return write, {"kind": "png" if save else package}


def _has_arrow() -> bool:
    try:
        importlib.import_module("pyarrow")
    except ImportError:
        return False
    return True


# -- reading -----------------------------------------------------------------------------------------------------------


def load(node: Mapping[str, Any], folder: str | None = None, *, trusted: bool = True) -> Any:
    """Return the object that a mapping stands for.

    Parameters
    ----------
    node
        What `store` returned.
    folder
        The folder that the file must lie in, whatever the mapping says; `None` takes its path as it is.
    trusted
        Whether the file may be mapped into memory and believed; otherwise it is copied and checked first.
    """
    path = str(node[STORED])
    if node["kind"] == "float":
        return float(path)
    if folder is not None:
        path = os.path.join(folder, os.path.basename(path))  # noqa: PTH118, PTH119 - no pathlib here
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        kind = str(node["kind"])
        if kind == "parquet":
            return importlib.import_module("duckdb").read_parquet(path).df()
        memory = _mapped(handle) if trusted and status.st_size else bytearray(file.read())
    if kind == "array":
        return _array(memory)
    if kind in {"png", "plotly", "altair"}:
        return _figure(kind, bytes(memory))
    return _table(kind, memory, node, trusted=trusted)


def _mapped(handle: int) -> mmap.mmap:
    try:
        return mmap.mmap(handle, 0, access=mmap.ACCESS_COPY)
    except OSError:
        # Pages that may be written to count as the process's own, and it may have fewer than the table needs.
        return mmap.mmap(handle, 0, access=mmap.ACCESS_READ)


def _array(memory: Any) -> Any:
    numpy: Any = importlib.import_module("numpy")
    head = io.BytesIO(memory[: 1 << 16])
    numpy.lib.format.read_magic(head)
    shape, is_fortran, dtype = numpy.lib.format.read_array_header_1_0(head)
    if dtype.hasobject:
        raise ValueError("the array holds Python objects")
    order = "F" if is_fortran else "C"
    return numpy.ndarray(shape, dtype, buffer=memory, offset=head.tell(), order=order)


def _figure(kind: str, content: bytes) -> Any:
    if kind == "png":
        return importlib.import_module("IPython.display").Image(data=content, format="png")
    if kind == "plotly":
        return importlib.import_module("plotly.io").from_json(content.decode())
    return importlib.import_module("altair").Chart.from_json(content.decode())


def _table(kind: str, memory: Any, node: Mapping[str, Any], *, trusted: bool) -> Any:
    pa: Any = importlib.import_module("pyarrow")
    buffer = pa.py_buffer(memory)
    source = pa.BufferReader(buffer)
    if kind in {"pandas", "series"}:
        return _frame(_columns(source, len(node["dtypes"]), trusted=trusted), memory, buffer.address, node)
    table = pa.ipc.open_stream(source).read_all()
    if not trusted:
        table.validate(full=True)
    if kind == "arrow":
        return table
    frame = importlib.import_module("polars").from_arrow(table)
    return frame.to_series(0) if kind == "polars_series" else frame


def _columns(source: Any, count: int, *, trusted: bool) -> Iterator[Any]:
    pa: Any = importlib.import_module("pyarrow")
    for _ in range(count):
        column = pa.ipc.open_stream(source).read_all().column(0)
        if not trusted:
            column.validate(full=True)
        yield column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _frame(columns: Iterator[Any], memory: Any, start: int, node: Mapping[str, Any]) -> Any:
    pd: Any = importlib.import_module("pandas")
    series = [_values(pd, one, dtype, memory, start) for one, dtype in zip(columns, node["dtypes"], strict=True)]
    index_node, rows = node["index"], int(node["rows"])
    names = [_from_label(pd, one) for one in index_node["names"]]
    if "range" in index_node:
        index = pd.RangeIndex(*index_node["range"], name=names[0])
    else:
        levels = [series.pop() for _ in range(index_node["levels"])][::-1]
        index = (
            pd.Index(levels[0], name=names[0]) if len(levels) == 1 else pd.MultiIndex.from_arrays(levels, names=names)
        )
    labels = [_from_label(pd, one) for one in node["columns"]]
    if node["kind"] == "series":
        return pd.Series(series[0], index=index, name=labels[0], copy=False)
    # By place, because names may occur twice.
    frame = pd.DataFrame(dict(enumerate(series)), index=index if rows or not series else None, copy=False)
    if labels and all(isinstance(one, tuple) for one in labels):
        frame.columns = pd.MultiIndex.from_tuples(labels, names=[_from_label(pd, one) for one in node["column_names"]])
    else:
        frame.columns = pd.Index(
            labels, name=_from_label(pd, node["column_names"][0]), dtype=None if labels else object
        )
    return frame.set_axis(index, axis="index") if len(frame) == len(index) else frame


def _from_label(pd: Any, label: Any) -> Any:
    if not isinstance(label, dict):
        return label
    if "parts" in label:
        return tuple(_from_label(pd, one) for one in label["parts"])
    return pd.Timestamp(label["time"]) if "time" in label else dt.date.fromisoformat(label["date"])


def _values(pd: Any, column: Any, dtype: str, memory: Any, start: int) -> Any:
    """Return the values of a column, with the dtype that it had where pandas here knows that."""
    numpy: Any = importlib.import_module("numpy")
    target: Any = None
    with contextlib.suppress(TypeError, ValueError, ImportError):
        target = pd.api.types.pandas_dtype(dtype)
    if isinstance(target, numpy.dtype) and target.kind in "iufmM" and column.null_count == 0 and len(column):
        width = getattr(column.type, "bit_width", 0)
        if width == 8 * target.itemsize:
            offset = column.buffers()[1].address - start + column.offset * target.itemsize
            return numpy.frombuffer(memory, dtype=target, count=len(column), offset=offset)
    if hasattr(target, "__from_arrow__"):
        with contextlib.suppress(Exception):
            return target.__from_arrow__(column)
    series = column.to_pandas()
    if str(series.dtype) == dtype or target is None:
        return series.array
    with contextlib.suppress(Exception):
        series = series.astype(target)
    return series.array
