"""First bytes: what a file is, whatever its name says, and how its text is encoded where they tell."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast

from nbtools.errors import SqlInvalid
from nbtools.texts.sql_quotes import quote_text

_HEAD = 4_096
_FORMS = {
    b"\x1f\x8b": "gzip",
    b"(\xb5/\xfd": "zstd",
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"\xd0\xcf\x11\xe0": "workbook",
    b"SQLite": "SQLite",
    b"ORC": "ORC",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x93NUMPY": "NumPy",
    b"\x89HDF": "HDF5",
    b"%PDF": "PDF",
    b"PK\x03\x04": "zip",
}
_MARKS = {b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
# What reads a form, given the name of the file in quotes.
_READERS = {
    "Parquet": "FROM read_parquet({})",
    "workbook": "FROM read_xlsx({})",
    "SQLite": "%sql sqlite:///FILE, and then its tables",
    **dict.fromkeys(("gzip", "zstd", "text"), "FROM read_csv({})"),
}
# Texts that are not tables of lines.
_OTHERS = re.compile(r"\.(?:html?|xml|xpt|ya?ml|kml|gpx|md|ipynb|py|sql)$", re.IGNORECASE)
# Of the bytes at odd or even places: so many are zero in UTF-16 of European languages, and so few in the others.
_MANY, _FEW = 0.4, 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstBytes:
    """What the first bytes of a file say.

    Attributes
    ----------
    form
        Such as ``"Parquet"``, ``"gzip"`` or ``"text"``; empty for what is not known.
    encoding
        Of its text, where they tell; empty otherwise.
    """

    form: str
    encoding: str

    def reader_error(self, name: str) -> SqlInvalid:
        """Return the error for a file that is not read by its name, with what reads it."""
        reader = None if self.form == "text" and _OTHERS.search(name) else _READERS.get(self.form)
        if reader is None:
            hint = f"%%data_analyze {name!r} reads what pandas reads."
            return SqlInvalid(f"{name!r} cannot be read by SQL.", hint=hint, tried="running SQL")
        what = f"{name!r} is a {self.form} by its first bytes, despite its name."
        if self.form == "text":
            what = f"{name!r} is a text, and its name does not say how to read it."
        query = reader.format(quote_text(name))
        return SqlInvalid(what, hint=f"Read it this way: {query}", tried="running SQL", data={"reader": query})


def look_at(path: Path, *, is_copied: bool = False) -> FirstBytes:
    """Return what the first bytes of a file say; of a packed one, those of what is in it tell the encoding.

    Of one that is to be copied in any case, the encoding is always named.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD)
    form = _named(head, _FORMS)
    form = "workbook" if form == "zip" and _is_workbook(path) else form
    if form == "gzip":
        with contextlib.suppress(OSError, EOFError), open_packed(path, form) as file:
            head = file.read(_HEAD)
    encoding = _named(head, _MARKS)
    # Without a mark: zeros at every second place are half of letters, and no text in UTF-8 has them.
    even, odd = (part.count(0) / max(len(part), 1) for part in (head[::2], head[1::2]))
    if not encoding and max(even, odd) > _MANY and min(even, odd) < _FEW:
        encoding = "utf-16-le" if odd > even else "utf-16-be"
    # The last letter may be cut.
    is_text = encoding or (b"\0" not in head and "\ufffd" not in head[:-4].decode("utf-8", "replace")[:-1])
    encoding = encoding or "utf-8" * (is_copied and not form)
    return FirstBytes(form=form or ("text" if is_text else ""), encoding=encoding)


def _named(head: bytes, marks: Mapping[bytes, str]) -> str:
    """Return the name of the first mark that the bytes begin with; empty for none."""
    return next((name for mark, name in marks.items() if head.startswith(mark)), "")


def open_packed(path: Path, form: str) -> IO[bytes]:
    """Open what is in a file that is packed as gzip; any other as it is."""
    return cast("IO[bytes]", gzip.open(path)) if form == "gzip" else path.open("rb")


def has_gaps(path: Path, skip: int) -> bool | None:
    """Tell whether a text has blank lines, but for its first ones; `None` where other readers skip them otherwise."""
    look = look_at(path)
    if look.form not in {"", "text", "gzip"}:
        return None
    with contextlib.suppress(OSError, EOFError), open_packed(path, look.form) as file:
        head = [file.readline() for _ in range(skip)]
        if any(b'"' in line for line in head):  # an open quote would take the lines behind it
            return None
        # In other encodings a line ends with other bytes; a line that ends with a return alone is not divided here.
        return bool(look.encoding) or any(not line.strip(b"\r\n") or b"\r" in line[:-2] for line in file)
    return None


def _is_workbook(path: Path) -> bool:
    import zipfile

    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as packed:
        return not {"xl/workbook.xml", "xl/workbook.bin", "content.xml"}.isdisjoint(packed.namelist())
    return False
