"""What a script is given: a file, tables of the notebook by name, more files by name, plain values."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbtools.contract.tool import Context
from nbtools.errors import InvalidArguments, PermissionDenied, did_you_mean
from nbtools.ground.paths import Roots
from nbtools.texts.visible import kind_of_value
from nbtools.toolbox.policies import OfferedFrames


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScriptInputs:
    """The inputs of one script.

    Attributes
    ----------
    file
        The one that the script finds in ``input_file_path``; `None` for none.
    variables
        Global names and their JSON values, paths of files among them.
    frames
        Global names and the tables and arrays behind them.
    paths
        All files.
    """

    file: Path | None
    variables: Mapping[str, Any]
    frames: Mapping[str, Any]
    paths: tuple[Path, ...]

    @classmethod
    def gather(
        cls,
        ctx: Context,
        file: str | None,
        inputs: Mapping[str, str] | None,
        files: Mapping[str, str] | None,
        variables: Mapping[str, Any] | None,
        *,
        needs_input: bool = True,
    ) -> ScriptInputs:
        """Look up what a call names.

        Raises
        ------
        InvalidArguments
            A model gives nothing where it must, a name is given twice, or there is no table of a name.
        FileMissing, PathNotAllowed, PermissionDenied
            A file cannot be read.
        """
        if needs_input and ctx.by_model and not (file or inputs or files or variables):
            raise InvalidArguments(
                "this script has no input.",
                hint="Put the path of a data file into input_file_path, names of tables into inputs, or plain values "
                "into variables. To continue with what a session contains, name that session.",
            )
        if files and ctx.by_model:
            # Rules that a person wrote for input_file_path must not be gone around.
            raise InvalidArguments("a model names one file.", hint="Put its path into input_file_path.")
        names = [*(inputs or ()), *(files or ()), *(variables or ())]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidArguments(f"{twice!r} is defined twice.", hint="Give each its own name.")
        roots = ctx.use(Roots)
        main = None if file is None else input_file(roots, file)
        named = {name: input_file(roots, path) for name, path in (files or {}).items()}
        return cls(
            file=main,
            variables={
                **(variables or {}),
                **{name: str(path) for name, path in named.items()},
                **({} if main is None else {"input_file_path": str(main)}),
            },
            frames={name: _frame(ctx.use(OfferedFrames), source) for name, source in (inputs or {}).items()},
            paths=tuple(filter(None, (main, *named.values()))),
        )


def _frame(offered: OfferedFrames, name: str) -> Any:
    from nbtools.kernels.inside.stored import is_storable
    from nbtools.sql import QueryResult

    table = offered.lookup(name)
    if isinstance(table, QueryResult):
        return table.to_pandas
    if is_storable(table):
        return table
    hint = did_you_mean(name, offered.names(), "Tables of pandas, polars and Arrow, results of SQL, and arrays are.")
    what = "there is no such variable" if table is None else f"it is {kind_of_value(table)}"
    raise InvalidArguments(f"{name!r} is not a table that a script can receive: {what}.", hint=hint)


def input_file(roots: Roots, path: str) -> Path:
    """Return the resolved path of a data file that can be read.

    Raises
    ------
    FileMissing, PathNotAllowed, InvalidArguments, PermissionDenied
        It cannot.
    """
    real = roots.resolve(path)
    if real.is_dir():
        raise InvalidArguments(f"{path!r} is a folder, not a data file.", hint="file_list shows what is in it.")
    if not os.access(real, os.R_OK):
        raise PermissionDenied(f"{path!r} cannot be read: permission denied.", hint="Change its mode, or copy it.")
    return real
