"""Marked values, and the search for them in whatever form they may have been sent."""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Iterator
from urllib.parse import unquote

__all__ = ["NUMBER", "WORD", "forms_of", "marks_in"]

WORD = "Quetzal7fox"
NUMBER = 918273645
_MARKS = (WORD.casefold().encode(), str(NUMBER).encode(), f"{NUMBER:,}".encode(), b"918_273_645")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{12,}={0,2}")
_HEX = re.compile(rb"(?:[0-9a-fA-F]{2}){8,}")
_DEEPEST = 5


def forms_of(data: bytes, depth: int = 0) -> Iterator[bytes]:
    """Yield data and all that can be decoded of it: escapes, base64, hex, gzip, zlib, per cent, in one another."""
    yield data
    if depth >= _DEEPEST or not data:
        return
    inner: set[bytes] = set()
    if data[:2] == b"\x1f\x8b":
        inner.add(_tried(gzip.decompress, data))
    for at in [found.start() for found in re.finditer(rb"\x78[\x01\x5e\x9c\xda]", data)][:20]:
        inner.add(_tried(lambda part: zlib.decompressobj().decompress(part), data[at:]))
    for found in _BASE64.findall(data):
        plain = found.translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
        inner.add(_tried(base64.b64decode, plain + b"=" * (-len(plain) % 4)))
    inner.update(_tried(binascii.unhexlify, found) for found in _HEX.findall(data))
    if b"%" in data:
        inner.add(unquote(data.decode("latin-1")).encode("latin-1", "replace"))
    if b"\\" in data:
        inner.add(_unescaped(data))
    for form in inner - {data, b""}:
        yield from forms_of(form, depth + 1)


def _unescaped(data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    text = re.sub(r"\\+u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    return re.sub(r'\\+(["/])', r"\1", text).encode("utf-8", "replace")


def _tried(decode: object, data: bytes) -> bytes:
    try:
        return bytes(decode(data))  # type: ignore[operator]
    except (ValueError, OSError, EOFError, zlib.error):
        return b""


def marks_in(data: bytes) -> list[str]:
    """Return where marked values stand, each with what is around it."""
    found: dict[str, None] = {}
    for form in forms_of(data):
        for text in {form.lower(), form.lower()[::-1]}:
            for mark in _MARKS:
                at = text.find(mark)
                if at >= 0:
                    found[text[max(at - 80, 0) : at + 60].decode("utf-8", "replace")] = None
    return list(found)
