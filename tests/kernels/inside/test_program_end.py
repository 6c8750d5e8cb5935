"""The order in which the end of a script closes what it left open."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

from nbtools.kernels.inside.program_end import _layer


def test_a_file_is_closed_before_the_one_that_it_writes_to(tmp_path: Path) -> None:
    with (
        (tmp_path / "a.gz").open("wb") as buffer,
        gzip.GzipFile(fileobj=buffer, mode="wb") as packer,
        io.TextIOWrapper(packer) as text,
    ):
        assert sorted([buffer.raw, buffer, packer, text], key=_layer) == [text, packer, buffer, buffer.raw]
    with (tmp_path / "a.zip").open("wb") as buffer, zipfile.ZipFile(buffer, "w") as archive:
        assert sorted([buffer.raw, buffer, archive], key=_layer) == [archive, buffer, buffer.raw]
