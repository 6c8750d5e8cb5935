"""How a value is written: the text that every face shows for it, the JSON that it is handed on as, the name of a type.

A text has all of a value: a number all digits that tell it from its neighbours, those of a narrow float alone. Where
numbers stand below each other for people, `as_read` drops what a float has beyond its fifteenth digit; the whole is
a hover or a copy away there.
"""

from __future__ import annotations

import collections
import contextlib
import decimal
import functools
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from nbtools.ground.lazy import duckdb
from nbtools.texts.values import Pairs, text_of
from nbtools.texts.visible import visible

Kind = Literal["number", "time", "bool", "text"]
SHOWN = 300  # characters of a value in a page; the whole value comes when it is asked for

_NUMBERS = ("int", "bigint", "smallint", "tinyint", "hugeint", "dec", "float", "double", "real", "numeric")
_NESTED = ("[", "struct", "map", "list", "union", "json")
_MIDNIGHT = " 00:00:00"
Cell = str | tuple[str, str] | None
"""What a cell shows, `None` for a missing value; a pair has all of a number that is not shown whole, too."""

# What pandas, polars and Arrow call the types of SQL, and the names of those.
_PAIRS = (
    "str varchar string varchar object varchar large_string varchar utf8 varchar string[python] varchar int8 tinyint "
    "int16 smallint int32 integer int64 bigint int128 hugeint uint8 utinyint uint16 usmallint uint32 uinteger "
    "uint64 ubigint float32 float float64 double bool boolean binary blob date32[day] date"
)
_NAMES = dict(zip(_PAIRS.split()[::2], _PAIRS.split()[1::2], strict=True))
_FLOAT = re.compile(r"(?:nullable\()?(?:half)?(?:float|double|real)[\w ]*\)?(?:\[pyarrow\])?", re.IGNORECASE)
# A float tells numbers of so many digits apart; what it has beyond comes of its binary form.
_DIGITS = 15
NESTED = re.compile(r"(?:struct|map|union|list)\b|.*\[\d*\]\Z", re.IGNORECASE | re.DOTALL)
"""Names of types whose values have parts, of DuckDB, polars and Arrow."""
# Of a nested value as DuckDB writes it: a text, a text of JSON, a sign, anything else. Bare texts hold no quotes; a
# text that is cut has none at its end.
_TOKENS = re.compile(
    r"""('(?:[^'\\]|\\.)*['\\]?)|("(?:[^"\\]|\\.)*["\\]?)|([{}\[\],:=])|([^{}\[\],:='"]+)""", re.DOTALL
)
_CLOSING = {"[": "]", "{": "}"}
_CUT = "…"
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MOST_ZEROS = 400  # of a number inside of JSON
_MOST_DECIMALS = 6  # that others are filled up to


def kind_of(name: str) -> Kind:
    """Return what a type is to a person, by the name that DuckDB, pandas, polars or Arrow has for it.

    Examples
    --------
    >>> [kind_of(name) for name in ("BIGINT", "datetime64[us]", "Float64", "INTEGER[]", "bool", "interval")]
    ['number', 'time', 'number', 'text', 'bool', 'text']
    >>> [kind_of(name) for name in ("int64[pyarrow]", "Nullable(Int32)", "timedelta64[ns]", "DECIMAL(18,3)[]")]
    ['number', 'number', 'text', 'text']
    """
    low = name.lower().removesuffix("[pyarrow]").removeprefix("nullable(")
    if low.startswith(("datetime", "timestamp", "date", "time")) and not low.endswith("[]") and "delta" not in low:
        return "time"
    if any(mark in low for mark in _NESTED) or low.startswith("interval"):
        return "text"
    if low.startswith("bool"):
        return "bool"
    return "number" if low.lstrip("u").startswith(_NUMBERS) else "text"


def type_name(name: str) -> str:
    """Return the one name that people read for a type, by the name that whatever library has for it.

    Examples
    --------
    >>> [type_name(name) for name in ("BIGINT", "int64", "large_string", "datetime64[us]", "DECIMAL(9,2)", '"NULL"')]
    ['bigint', 'bigint', 'varchar', 'timestamp', 'decimal(9,2)', 'null']
    """
    low = name.lower().strip('"')  # DuckDB writes "NULL" so
    if low.startswith(("datetime", "timestamp[")):
        return "timestamp with time zone" if re.search(r",(?! *(?:time_zone=)?none)", low) else "timestamp"
    return _NAMES.get(low.removesuffix("[pyarrow]"), low)


def cell_text(value: Any, longest: int | None = SHOWN) -> str | None:
    r"""Return a value as text, `None` for a missing one; a longer text ends in ``…``.

    Examples
    --------
    >>> cell_text(2**60 + 1), cell_text(float("nan")), cell_text(b"\x00\xff"), cell_text([1, None]), cell_text("a\x1b")
    ('1152921504606846977', 'nan', '\\x00\\xFF', '[1, null]', 'a<U+001B>')
    """
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return None
    return spell(text_of(value), longest)


def spell(text: str, longest: int | None = SHOWN) -> str:
    """Return a text whose controls are spelled out; one that is longer than `longest` characters ends in ``…``."""
    cut = text if longest is None or len(text) <= longest else f"{text[:longest]}{_CUT}"
    return visible(cut, lines=True, signs=True)


def documents_in(kind: str) -> Callable[[Any], Any] | None:
    """Return what puts documents of JSON inside of a value of a type of DuckDB, which has texts; `None` for no change.

    A column of JSON itself stays the text of its documents.

    Examples
    --------
    >>> documents_in("JSON[]")(['"a"', "1", None]), documents_in("JSON")
    (['a', 1, None], None)
    """
    if kind == "JSON" or "JSON" not in kind:
        return None
    shape = _shape_of(kind)
    return functools.partial(_with_documents, shape) if shape.has_documents else None


def _with_documents(shape: _NestedForm, value: Any) -> Any:
    if value is None or not shape.has_documents:
        return value
    if shape.form == "document":
        return document(value)
    if shape.form == "struct":
        return {name: _with_documents(shape.part("struct", name), each) for name, each in value.items()}
    if shape.form == "map":
        pairs = value if isinstance(value, Pairs) else value.items()  # keys of pairs may be lists
        return type(value)((key, _with_documents(shape.part("map", "value"), each)) for key, each in pairs)
    return [_with_documents(shape.part("list", "child"), each) for each in value]


def document(text: str) -> Any:
    """Return what a text of JSON stands for; the text itself where Python would lose a part of it."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text, parse_float=_exact_float, object_pairs_hook=_of_pairs)
    return text


def _exact_float(digits: str) -> float | decimal.Decimal:
    exact = decimal.Decimal(digits)
    if abs(exact.adjusted()) > _MOST_ZEROS:
        raise ValueError("written out, it has too many zeros")
    return float(digits) if decimal.Decimal(repr(float(digits))) == exact else exact


def _of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > len(dict(pairs)):
        raise ValueError("a key occurs twice")
    return dict(pairs)


# -- a column, as people read it -------------------------------------------------------------------------------------


def as_read(texts: Sequence[str | None], kind: str) -> list[Cell]:
    r"""Return the texts of a column as people read them, by its type: floats without noise, as many decimals each.

    Moments are without their time of day where all of them are midnights, which is how dates are kept.
    A number that has more digits comes as a pair: what is read, and all of it. So do texts of several lines, whose ends
    are marked.

    Examples
    --------
    >>> as_read(["5614.880000000001", "12.5", None, "7.0"], "DOUBLE")
    [('5614.88', '5614.880000000001'), '12.50', None, '7.00']
    >>> as_read(["288818.9999999999"], "DOUBLE"), as_read(["one\ntwo", "three"], "VARCHAR")
    ([('288819.0', '288818.9999999999')], [('one⏎two', 'one\ntwo'), 'three'])
    >>> as_read(["5614.880000000001", "12.5"], "DECIMAL(18,12)")
    ['5614.880000000001', '12.5']
    """
    if NESTED.match(kind):
        return [*as_whole(texts, kind)]
    if kind_of(kind) == "time" and all(text is None or text.endswith(_MIDNIGHT) for text in texts):
        return [None if text is None else text.removesuffix(_MIDNIGHT) for text in texts]
    if not _FLOAT.fullmatch(kind):
        return [text if text is None or "\n" not in text else (text.replace("\n", "⏎"), text) for text in texts]
    short = [None if text is None else _without_noise(text) for text in texts]
    decimals = max((len(text.partition(".")[2]) for text in short if text and _is_fixed(text)), default=0)
    if decimals <= _MOST_DECIMALS:
        widths = [text.index(".") + 1 + decimals if text and _is_fixed(text) else 0 for text in short]
        short = [text and text.ljust(width, "0") for text, width in zip(short, widths, strict=True)]
    return [
        text if text is None or whole is None or text.startswith(whole) else (text, whole)
        for text, whole in zip(short, texts, strict=True)
    ]


def as_whole(texts: Sequence[str | None], kind: str) -> list[str | None]:
    r"""Return the texts of a column whole, as people read and copy them: nested values are JSON.

    Examples
    --------
    >>> as_whole(["['\"a\"', 1, '{\"b\": 2}']", None], "JSON[]"), as_whole(["[1, true, x]"], "VARCHAR[]")
    (['["a", 1, {"b": 2}]', None], ['["1", "true", "x"]'])
    """
    return [text and _json_form(text, kind) for text in texts] if NESTED.match(kind) else list(texts)


class _NestedForm(NamedTuple):
    """What a value of a nested type has: the form of each part, by which alone ``1`` is a number or a text."""

    form: str
    parts: Mapping[str, _NestedForm] = types.MappingProxyType({})
    has_documents: bool = False

    def part(self, form: str, name: str) -> _NestedForm:
        return self.parts.get(name, _ANY) if self.form == form else _ANY


_ANY, _TEXT = _NestedForm("any"), _NestedForm("text")


@functools.lru_cache(maxsize=1_000)
def _shape_of(kind: str) -> _NestedForm:
    with contextlib.suppress(duckdb.Error):  # a type that only the database has, or no engine
        return _shape(duckdb.sqltype(kind))
    return _ANY


def _shape(kind: Any) -> _NestedForm:
    form = {"array": "list"}.get(kind.id, kind.id)
    if form in {"list", "struct", "map"}:
        parts = {name: _shape(child) for name, child in kind.children if name != "size" or form != "list"}
        has_documents = any(part.has_documents for name, part in parts.items() if name != "key" or form != "map")
        return _NestedForm(form, parts, has_documents)
    if form in {"union", "variant"}:
        return _ANY
    if str(kind) == "JSON":
        return _NestedForm("document", has_documents=True)
    return _ANY if kind_of(str(kind)) in {"number", "bool"} else _TEXT


def _json_form(text: str, kind: str) -> str:
    """Return the JSON of a nested value that DuckDB has written, or that is JSON; of a cut one the beginning."""
    is_cut = text.endswith(_CUT)
    matches = _TOKENS.findall(text.removesuffix(_CUT) if is_cut else text)
    tokens = collections.deque(token for token in matches if any(map(str.strip, token)))
    parts: list[str] = []
    with contextlib.suppress(RecursionError, ValueError):
        try:
            parts.extend(_json_parts(tokens, _shape_of(kind), is_cut=is_cut))
        except IndexError:
            return f"{''.join(parts)[: len(text) - 1]}{_CUT}" if is_cut else text
        form = "".join(parts)
        return form if not tokens and _is_json(form) else text
    return text


def _json_parts(tokens: collections.deque[tuple[str, ...]], shape: _NestedForm, *, is_cut: bool) -> Iterator[str]:
    """Take the tokens of a value, and yield it as JSON, part by part."""
    token = tokens.popleft()
    sign = token[2]
    if sign not in _CLOSING:
        yield _json_leaf(token, shape.form, is_cut=is_cut and not tokens)
        return
    yield sign
    before = ""
    while tokens[0][2] != _CLOSING[sign]:
        if before:
            tokens.popleft()  # the comma
        part = shape.part("list", "child")
        if sign == "{":
            key = "".join(_json_parts(tokens, shape.part("map", "key") if shape.form == "map" else _TEXT, is_cut=False))
            tokens.popleft()
            name = json.loads(key) if key.startswith('"') else key
            before = f"{before}{json.dumps(name, ensure_ascii=False)}: "
            part = shape.part("map", "value") if shape.form == "map" else shape.part("struct", name)
        yield before
        yield from _json_parts(tokens, part, is_cut=is_cut)
        before = ", "
    yield tokens.popleft()[2]


def _json_leaf(token: tuple[str, ...], form: str, *, is_cut: bool) -> str:
    quoted, string, _, bare = token
    word = bare.strip()
    if string or word in {"NULL", "null"}:
        return string or "null"
    if form != "text" and ((is_cut and not quoted) or word in {"true", "false"} or _NUMBER.fullmatch(word)):
        return word
    inside = re.sub(r"\\(.?)", r"\1", quoted[1:].removesuffix("'"), flags=re.DOTALL) if quoted else word
    if form == "document" and (is_cut or _is_json(inside)):
        return _json_form(f"{inside}{_CUT}", "").removesuffix(_CUT) if is_cut else _json_form(inside, "")
    whole = json.dumps(inside, ensure_ascii=False)
    return whole[:-1] if is_cut else whole


def _is_json(text: str) -> bool:
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(text)
        return True
    return False


def _is_fixed(text: str) -> bool:
    return "." in text and text.lstrip("-").replace(".", "", 1).isdigit()


def _without_noise(text: str) -> str:
    if sum(map(str.isdigit, text.partition("e")[0])) <= _DIGITS:
        return text
    short = f"{float(text):.{_DIGITS}g}"
    if "." not in short and "e" not in short and len(short.lstrip("-")) < _DIGITS:
        return f"{short}.0"  # 288818.9999999999
    # Whole digits are never dropped.
    return text if "." not in short or ("e" in short and "e" not in text) else short
