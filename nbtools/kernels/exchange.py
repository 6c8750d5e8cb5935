"""What goes between a notebook and one run besides text: its frames into the script, the script's value out.

Files are in memory if the system has such a folder with room (``/dev/shm``), otherwise beside the kernels' own folders,
and are removed when the run has ended: a process that mapped one keeps its pages for as long as it needs them.
"""

from __future__ import annotations

import dataclasses
import errno
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbtools.errors import InvalidArguments, LimitExceeded
from nbtools.kernels.inside import stored, values
from nbtools.kernels.interface import Execution, RunContext


class Exchange:
    """The objects of one run.

    Parameters
    ----------
    folder
        A folder that the kernel may read; one for this run is made in it.
    frames
        Tables and arrays by the name that they have in the script, or functions that return them.
    names
        Variables of the script of which the first that it assigned is its value; the last expression is, where it
        assigned none. `None` wants no value.
    """

    def __init__(self, folder: Path, frames: Mapping[str, Any], names: tuple[str, ...] | None) -> None:
        self._folder = folder / f"x{secrets.token_hex(6)}"
        self._frames = frames
        self._names = names
        self._taken_from: Path | None = None
        self.notes: list[str] = []
        self._folder.mkdir(mode=0o700)

    def into(self, context: RunContext, *, writable: bool, is_elsewhere: bool) -> RunContext:
        """Store the frames and return the context with them.

        Parameters
        ----------
        context
            Of the run.
        writable
            Whether the kernel may write into our folder; otherwise its value comes by its working folder.
        is_elsewhere
            Whether it runs on another machine, which sends its value as JSON and Parquet.

        Raises
        ------
        InvalidArguments
            A frame is none, or cannot be stored.
        LimitExceeded
            There is no room for one.
        """
        nodes = {name: self._store(name, frame) for name, frame in self._frames.items()}
        files = tuple(Path(node[stored.STORED]) for node in nodes.values() if isinstance(node, dict))
        if self._names is not None and not is_elsewhere:
            self._taken_from = self._folder if writable else context.cwd
        return dataclasses.replace(
            context,
            variables={**context.variables, **nodes},
            files=(*context.files, *files),
            wants_value=self._names is not None or context.wants_value,
            value_names=self._names or (),
            value_folder=self._taken_from,
        )

    def _store(self, name: str, frame: Any) -> Any:
        value = frame() if callable(frame) else frame
        try:
            return stored.store(value, str(self._folder), name, self.notes)
        except OSError as exc:
            if exc.errno != errno.ENOSPC:
                raise
            raise LimitExceeded(
                f"{name} cannot be passed to the script: no space left in {self._folder.parent.parent}.",
                hint="Pass fewer rows or columns, or a file.",
            ) from exc
        except (TypeError, ValueError) as exc:
            hint = "A script gets tables of pandas, polars and Arrow, and arrays of numbers or text."
            raise InvalidArguments(f"{exc}.", hint=hint, tried=f"handing {name} to a script") from exc

    def take(self, execution: Execution) -> Execution:
        """Return the execution with the script's value as itself."""
        notes = (*execution.notes, *self.notes)
        if self._names is None:
            return dataclasses.replace(execution, notes=notes)
        value = execution.value
        try:
            if self._taken_from is not None:
                # What a strictly confined script wrote may be anything, and may still change.
                trusted = execution.sandbox != "strict"
                value = values.stored_value(value, str(self._taken_from), trusted=trusted)
            elif isinstance(value, dict) and "parquet" in value:
                value = values.loaded({"value": {"__parquet__": value["parquet"]}}, tables=True)["value"]
        except Exception as exc:  # readers of Arrow, DuckDB and plotly raise their own errors
            return dataclasses.replace(execution, value=None, notes=(*notes, f"the value cannot be read: {exc}"))
        return dataclasses.replace(execution, value=value, notes=notes)

    def close(self) -> None:
        """Remove the files; what is mapped stays."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._taken_from not in {None, self._folder}:
            for path in Path(str(self._taken_from)).glob(".nbtools-value-*"):
                path.unlink(missing_ok=True)
