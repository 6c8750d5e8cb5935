"""Plain return values of tools: frames and pictures, which become data, text and files.

A tool returns a DataFrame, a figure, a picture, or a tuple of such beside JSON values. What a thing is, its class says
by the methods that front ends ask for too; no library is imported to find out.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbtools.contract.result import Artifact, Output

_STARTS = {b"\x89PNG\r\n": "png", b"\xff\xd8\xff": "jpg", b"GIF8": "gif"}
_SHOWN_ROWS = 20


class ArtifactFolder:
    """The service that says where files lie which tools made.

    Parameters
    ----------
    path
        Returns the folder.
    """

    def __init__(self, path: Callable[[], Path] = lambda: Path(tempfile.mkdtemp(prefix="nbtools-"))) -> None:
        self.path = path


def output_of(returned: Any, name: str, folder: ArtifactFolder) -> Output[Any]:
    """Return what a tool returned as data, text and files.

    Parameters
    ----------
    returned
        A value, or a tuple of several; with neither a frame nor a picture in it, it is data as it stands.
    name
        What the files are called, without an ending.
    folder
        Where they are written.
    """
    parts = returned if type(returned) is tuple else (returned,)
    pictures = [part for part in parts if _is_picture(part)]
    rest = [part for part in parts if not _is_picture(part)]
    frames = [part for part in rest if _is_frame(part)]
    if not pictures and not frames:
        return Output(data=returned)
    artifacts = tuple(_write(picture, folder.path() / f"{name}-{i}") for i, picture in enumerate(pictures, 1))
    texts = [_table(part) if _is_frame(part) else str(part) for part in rest]
    texts += [f"[picture: {Path(artifact.path).name}]" for artifact in artifacts]
    data = rest[0] if len(rest) == 1 else rest or None
    return Output(data=data, text="\n".join(texts), artifacts=artifacts, value=frames[0] if len(frames) == 1 else None)


def _is_frame(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "columns") and (hasattr(kind, "iloc") or hasattr(kind, "to_dicts"))


def _is_picture(value: Any) -> bool:
    if isinstance(value, bytes):
        return value.startswith(tuple(_STARTS))
    return hasattr(type(value), "savefig") or hasattr(type(value), "_repr_png_")


def _table(frame: Any) -> str:
    rows = frame.head(_SHOWN_ROWS)
    text = rows.to_string() if hasattr(rows, "to_string") else str(rows)
    return text if len(frame) <= _SHOWN_ROWS else f"{text}\n{len(frame):,} rows; the first {_SHOWN_ROWS} are shown"


def _write(picture: Any, stem: Path) -> Artifact:
    if isinstance(picture, bytes):
        ending = next(ending for start, ending in _STARTS.items() if picture.startswith(start))
        content = picture
    elif hasattr(type(picture), "savefig"):
        path = stem.with_name(f"{stem.name}.png")
        picture.savefig(path, format="png")
        if pyplot := sys.modules.get("matplotlib.pyplot"):
            pyplot.close(picture)  # a notebook would show it once more, as one that its cell drew
        return Artifact.from_path(path)
    else:
        ending, content = "png", picture._repr_png_()
    path = stem.with_name(f"{stem.name}.{ending}")
    path.write_bytes(content)
    return Artifact.from_path(path)
