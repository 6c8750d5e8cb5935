"""Putting a file in place on behalf of a tool, and saying so."""

from __future__ import annotations

import os
from typing import Any

from nbtools.contract.result import Artifact, Output
from nbtools.errors import InvalidArguments, LimitExceeded
from nbtools.ground.paths import Roots

_MAX_BYTES = 16_000_000


def put_file(roots: Roots, path: str, content: bytes, data: dict[str, Any]) -> Output[Any]:
    """Write a file whole, missing folders included, and return the output of the tool that did it.

    Parameters
    ----------
    roots
        The allowed folders.
    path
        As the caller gave it.
    content
        What the file will hold.
    data
        Structured result of the tool.

    Raises
    ------
    PathNotAllowed
        The path leads outside the allowed folders, is a folder, or may not be written.
    InvalidArguments
        The path ends like that of a folder.
    LimitExceeded
        The content is too large.
    """
    if len(content) > _MAX_BYTES:
        raise LimitExceeded(f"the content has {len(content):,} bytes; {_MAX_BYTES:,} are allowed.")
    if path.endswith(("/", os.sep)):
        raise InvalidArguments(f"{path!r} names a folder.", hint="Name a file in it.")
    real = roots.resolve(path, must_exist=False, for_writing=True)
    roots.write_file(real, content)
    # A link that was put in its place meanwhile is not described.
    artifact = Artifact.from_path(real, follow_no_links=True)
    return Output(data=data, text=f"{len(content):,} bytes written to {path}", artifacts=(artifact,))
