"""Sheets of workbooks, or parts of them, as frames: ``read_xlsx(file, sheet =, range =, header =)`` in SQL."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Self

from nbtools.errors import FileMissing, LimitExceeded, MissingExtra, NbtoolsError, SqlFailed, SqlInvalid, did_you_mean
from nbtools.ground.lazy import need
from nbtools.ground.paths import stamp_of
from nbtools.sql.files.cells import Strays, strays_among
from nbtools.sql.files.doubts import few_strays
from nbtools.sql.files.headings import LIKE_ROWS, PERHAPS_ROW, is_row, may_be_row
from nbtools.sql.frames import NOTES, as_query_sees
from nbtools.texts.sql_quotes import quote_text
from nbtools.texts.values import text_of

# What pandas calls columns of one kind that is not text.
_ONE_KIND = frozenset({"integer", "floating", "mixed-integer-float", "decimal", "boolean", "date", "datetime", "time"})
# A workbook unpacks to many times its size.
_MOST_BYTES = 64_000_000
_RANGE = re.compile(r"([A-Z]{1,3})?(\d+)?:([A-Z]{1,3})?(\d+)?", re.IGNORECASE)
_UNNAMED = re.compile(r"Unnamed: \d+")  # pandas' name for a column that has none
_TITLE_ROWS = 8  # above a header
# An archive; and what files of Excel before 2007 and those with a password are in.
_BEGIN = (b"PK", b"\xd0\xcf\x11\xe0", b"\x09")
_TOLD, _LISTED = 3, 20  # names of other sheets, and of those in an error


@dataclasses.dataclass(frozen=True, kw_only=True)
class SheetOptions:
    """Which part of a workbook is read.

    Attributes
    ----------
    sheet
        Name of the sheet, or its number, counted from 1; `None` for the first.
    range
        Such as ``"B3:F20"``; a side without a letter or a number is open.
    header
        Whether the first row holds the names, or the number of the row that does.
    words
        The words for missing values in columns that are not text.
    """

    sheet: str | int | None = None
    range: str | None = None
    header: bool | int = True
    words: tuple[str, ...] = ()

    @classmethod
    def from_values(cls, options: dict[str, Any], words: Sequence[str]) -> Self:
        """Return the options of a call in SQL; `words` are those for missing values if the call gives none.

        Raises
        ------
        SqlInvalid
            There is no such option, or it does not take that value.
        """
        kinds = {"sheet": (str, int), "range": str, "header": (bool, int), "nullstr": (str, list)}
        for name, value in options.items():
            if name not in kinds:
                hint = did_you_mean(name, kinds, f"It takes {', '.join(sorted(kinds))}.")
                raise SqlInvalid(f"read_xlsx() has no option {name!r}.", hint=hint, tried="running SQL")
            if not isinstance(value, kinds[name]):  # type: ignore[arg-type]  # each is a class or some
                hint = "For example: sheet = 'Sales', range = 'B3:F20', header = true or 3 (the row), nullstr = ['-']."
                raise SqlInvalid(f"read_xlsx() does not accept {name} = {value!r}.", hint=hint, tried="running SQL")
        own = options.get("nullstr", words)
        fields = {name: value for name, value in options.items() if name != "nullstr"}
        sheet_options = cls(**fields, words=tuple(filter(None, [own] if isinstance(own, str) else own)))
        sheet_options.cut()
        return sheet_options

    def cut(self) -> dict[str, Any]:
        """Return the pandas arguments for the range and the header.

        Raises
        ------
        SqlInvalid
            It is not a range of cells.
        """
        match = _RANGE.fullmatch(self.range or ":")
        if match is None or (match[1] is None) != (match[3] is None):
            hint = "Write 'B3:F20', 'B:F' for whole columns, or '3:20' for rows."
            raise SqlInvalid(f"{self.range!r} is not a range of cells.", hint=hint, tried="reading a workbook")
        top = int(match[2] or 1) if isinstance(self.header, bool) else self.header
        rows = int(match[4]) - top + (not self.header) if match[4] else None
        return {
            "skiprows": top - 1,
            "header": 0 if self.header else None,
            "usecols": f"{match[1]}:{match[3]}" if match[1] else None,
            "nrows": None if rows is None else max(rows, 0),
        }


def read_workbook(path: Path, options: SheetOptions) -> Any:
    """Read a sheet through pandas.

    Raises
    ------
    MissingExtra
        The package that reads the format is not installed.
    LimitExceeded
        The workbook is larger than 64 MB.
    SqlFailed
        It was changed while it was read; the same query may succeed when it is tried again.
    SqlInvalid
        It is not a workbook, has no such sheet, or there is nothing there.
    """
    try:
        before, size = stamp_of(path), path.stat().st_size
    except OSError as exc:
        raise FileMissing(f"{str(path)!r} cannot be read: {exc.strerror}.", tried="running SQL") from exc
    if size > _MOST_BYTES:
        what = f"{path.name} has {size:,} bytes; a workbook may have at most {_MOST_BYTES:,}."
        raise LimitExceeded(what, hint="Save the sheet as CSV or Parquet.")
    if path.suffix.lower() in {".xlsx", ".xlsm"}:
        need("openpyxl", extra="engines", why="Reading Excel files")
    try:
        return _frame(path, options)
    except SqlInvalid:
        raise
    except Exception as exc:  # the readers raise errors of zip, XML and their own formats
        raise _unread(path, before, exc) from exc


def _unread(path: Path, before: tuple[int, int, int], exc: Exception) -> NbtoolsError:
    """Return why a workbook was not read."""
    with path.open("rb") as file:
        head = file.read(8)
    # Office packs what it locks into the container of its old formats.
    is_locked = path.suffix.lower() in {".xlsx", ".xlsm"} and head.startswith(_BEGIN[1])
    if isinstance(exc, ImportError) and not is_locked:
        package = (re.search(r"`Import ([\w-]+)` failed", str(exc)) or {1: exc.name or str(exc)})[1]
        what = f"Reading {path.suffix} files needs the package {package!r}, which is not installed."
        return MissingExtra(what, hint=f"pip install {package}, or save the sheet as CSV or .xlsx.")
    if stamp_of(path) != before:
        what, hint = (
            f"{str(path)!r} was changed while the query read it.",
            "Run the query again once it has been saved.",
        )
        return SqlFailed(what, hint=hint, tried="running SQL", retryable=True)
    way = "Save it again from Excel or LibreOffice, or save the sheet as CSV."
    why = (str(exc) or type(exc).__name__).rstrip(".")
    if not head.startswith(_BEGIN):
        why = "its first bytes are not those of a workbook"
        way = f"If it is a text table despite its name, use FROM read_csv({quote_text(str(path))})."
    if is_locked:
        way, why = (
            "Save it without its password; if it is an old workbook, name it .xls.",
            "it is protected by a password",
        )
    elif isinstance(exc, KeyError):  # what pandas took it for
        why = f"it is a {exc.args[0]} without the parts that a workbook has"
    return SqlInvalid(f"{str(path)!r} is not a workbook that can be read: {why}.", hint=way)


def _frame(path: Path, options: SheetOptions) -> Any:
    import pandas as pd

    with pd.ExcelFile(path) as book:
        names = [str(name) for name in book.sheet_names]
        sheet = _sheet(path, options.sheet, names)
        # Each cell says what it is: the text 007 is not a number. Only an empty one is missing.
        own = {"keep_default_na": False, "na_values": [""], "dtype": object}
        frame = pd.read_excel(book, sheet_name=sheet, **own, **options.cut()).infer_objects()
    others = [name for name in names if name != sheet]
    if not len(frame.columns):
        arguments = ", sheet = ".join(map(quote_text, (path.name, *others[:1])))
        hint = f"Name another one: FROM read_xlsx({arguments})" if others else None
        raise SqlInvalid(f"sheet {sheet!r} of {path.name} is empty.", hint=hint, tried="reading a workbook")
    if not options.header:
        first = _column_index((options.range or "").partition(":")[0].rstrip("0123456789"))
        frame.columns = [_letters(first + column) for column in range(len(frame.columns))]
    notes = []
    if others and options.sheet is None:
        sheets = ", ".join(map(quote_text, others[:_TOLD])) + (", …" if len(others) > _TOLD else "")
        notes = [f"sheet {quote_text(sheet)}; also in this workbook: {sheets}"]
    texts = _xml_of(path, names.index(sheet)) if frame.isna().to_numpy().any() else []
    if any(re.search(rb"</f>(?:<v ?/>|<v></v>)?</c>", text) for text in texts):
        notes.append(
            "formulas without a stored value are read as missing; Excel stores the values when it saves the file"
        )
    if len(texts) == 1 and (merged := [*_merged_below(texts[0], frame, options)]):
        listed = ", ".join(merged[:_TOLD]) + (f" and {len(merged) - _TOLD:,} more" if len(merged) > _TOLD else "")
        notes.append(f"cells {listed} are merged: those below the first are read as missing, as the file stores them")
    if options.header is True and (row := _row_of_names(frame)) is not None:
        named = sum(not _UNNAMED.fullmatch(str(name)) for name in frame.columns)
        what = f"the header names {named} of {len(frame.columns)} columns"
        below = options.cut()["skiprows"] + 2 + row
        notes.append(f"{what}; header = {below} makes row {below} the header")
    if options.header is True and may_be_row(labels := [*map(text_of, frame.columns)]):
        rows = [[*map(text_of, row)] for row in frame.head(LIKE_ROWS).itertuples(index=False)]
        notes += [] if is_row(labels, rows) is False else [PERHAPS_ROW]
    frame, renames = as_query_sees(frame)
    notes += renames
    missing = _take_words(frame, options.words)
    notes += few_strays(_strays_of(frame, options.words))
    frame.attrs[NOTES] = {"told": notes, "missing": missing}
    return frame


def _strays_of(frame: Any, words: Sequence[str]) -> dict[str, Strays | None]:
    """Return what makes texts of columns that hold other values too, by their names."""
    strays_of = {}
    for name, column in frame.items():
        if str(column.dtype) != "object":
            continue
        there = column[column.notna() & ~column.isin(words)]
        texts = Counter(cell for cell in there if isinstance(cell, str))
        others = [cell for cell in there if not isinstance(cell, str)]
        kinds = {_kind_of(cell) for cell in others}
        strays_of[name] = strays_among(kinds.pop(), texts, len(others)) if len(kinds) == 1 else None
    return strays_of


def _kind_of(cell: object) -> str:
    kinds = {bool: "BOOLEAN", int: "DOUBLE", float: "DOUBLE", date: "TIMESTAMP"}
    return next((kind for type_, kind in kinds.items() if isinstance(cell, type_)), "")


def _row_of_names(frame: Any) -> int | None:
    """Return the first row that names all columns, of which the header, merged cells perhaps, names half at most."""
    if 2 * sum(bool(_UNNAMED.fullmatch(str(name))) for name in frame.columns) < max(len(frame.columns), 2):
        return None
    for row, cells in enumerate(frame.head(_TITLE_ROWS).itertuples(index=False)):
        if all(isinstance(cell, str) for cell in cells) and len({*cells}) == len(cells):
            return row
    return None


def _merged_below(text: bytes, frame: Any, options: SheetOptions) -> Iterator[str]:
    """Give the cells of a sheet, such as A2:A5, that are merged and missing in its frame, but for the first of them."""
    top = options.cut()["skiprows"] + 1 + bool(options.header)
    left = _column_index((options.range or "").partition(":")[0].rstrip("0123456789"))
    cells = re.findall(r'<(?:\w+:)?mergeCell [^>]*?\bref="([A-Z]+)(\d+):([A-Z]+)(\d+)"', text.decode(errors="replace"))
    for first, upper, last, lower in sorted(cells, key=lambda each: (int(each[1]), each[0])):
        column = _column_index(first) - left
        rows = range(max(int(upper) + 1 - top, 0), min(int(lower) + 1 - top, len(frame)))
        if rows and 0 <= column < frame.shape[1] and frame.iloc[rows, column].isna().all():
            yield f"{first}{upper}:{last}{lower}"


def _xml_of(path: Path, at: int) -> list[bytes]:
    """Return how a sheet, by its place, is written in its workbook; all sheets where it is not known which."""
    import zipfile

    if not zipfile.is_zipfile(path):
        return []
    with zipfile.ZipFile(path) as packed:
        sheets = [name for name in packed.namelist() if name.startswith("xl/worksheets/")]
        with contextlib.suppress(KeyError, IndexError):  # a workbook names its sheets' files by ids
            key = re.findall(rb'<(?:\w+:)?sheet [^>]*?\br:id="([^"]+)"', packed.read("xl/workbook.xml"))[at]
            links = re.findall(rb"<Relationship [^>]*>", packed.read("xl/_rels/workbook.xml.rels"))
            [target] = [re.findall(rb'Target="([^"]+)"', link)[0] for link in links if b'Id="%b"' % key in link]
            sheets = [name for name in sheets if target.decode().endswith(name.removeprefix("xl/"))] or sheets
        return [*map(packed.read, sheets)]


def _sheet(path: Path, asked_sheet: str | int | None, names: list[str]) -> str:
    if asked_sheet is None:
        return names[0]
    if asked_sheet in names:
        return str(asked_sheet)
    if isinstance(asked_sheet, int) and 1 <= asked_sheet <= len(names):
        return names[asked_sheet - 1]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    listed = f"Its sheets are {', '.join(map(quote_text, names[:_LISTED]))}{more}."
    hint = did_you_mean(str(asked_sheet), map(quote_text, names), listed, form="{}")
    raise SqlInvalid(f"{path.name} has no sheet {asked_sheet!r}.", hint=hint, tried="reading a workbook")


def _letters(index: int) -> str:
    """Return what Excel calls a column, counted from 0.

    Examples
    --------
    >>> [_letters(place) for place in (0, 25, 26, 701, 702)]
    ['A', 'Z', 'AA', 'ZZ', 'AAA']
    """
    before, last = divmod(index, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + last)


def _column_index(letters: str) -> int:
    """Return which column, counted from 0, Excel calls so; none are the first."""
    index = 0
    for letter in letters.upper():
        index = 26 * index + ord(letter) - ord("A") + 1
    return max(index - 1, 0)


def _take_words(frame: Any, words: Sequence[str]) -> list[tuple[str, int, list[str]]]:
    """Make missing ones of the words for that in columns of numbers, dates or truth values; return what was done."""
    from pandas.api.types import infer_dtype

    notes = []
    for column_index, name in enumerate(frame.columns):
        column = frame.iloc[:, column_index]
        is_word = column.isin(words)
        rest = column[~is_word & column.notna()]
        if str(column.dtype) == "object" and is_word.any() and infer_dtype(rest, skipna=True) in _ONE_KIND:
            notes.append((name, int(is_word.sum()), sorted(set(column[is_word]))))
            frame.isetitem(column_index, column.where(~is_word, None).infer_objects())
    return notes
