"""Whole values: one cell as a person reads it in full, with the tree of what is nested, and pictures."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

_PICTURES = {b"\x89PNG\r\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp", b"BM": "bmp"}
_MOST_BYTES = 8 * 2**20  # of a picture that is shown
_MOST_TREE = 200_000  # characters of JSON that become a tree


def whole_value(text: str | None, value: Any) -> dict[str, Any]:
    """Return a cell in full.

    Parameters
    ----------
    text
        The cell as text.
    value
        What Python has for it; it matters for bytes alone.

    Returns
    -------
    dict
        The ``text``; ``tree``, JSON of what is nested; ``picture``, a data URI.

    Examples
    --------
    >>> whole_value('{"a": 1.50}', None)
    {'text': '{"a": 1.50}', 'tree': '{"a": 1.50}'}
    """
    whole = {"text": text}
    if isinstance(value, bytes | bytearray | memoryview):
        return {**whole, **_picture(bytes(value))}
    if text is not None and text[:1] in {"{", "["} and len(text) <= _MOST_TREE:
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(text, parse_constant=int)  # which refuses NaN, as browsers do
            return {**whole, "tree": text}
    return whole


def _picture(data: bytes) -> dict[str, str]:
    form = next((form for begin, form in _PICTURES.items() if data.startswith(begin)), None)
    if form is None or len(data) > _MOST_BYTES or (form == "webp" and data[8:12] != b"WEBP"):
        return {}
    return {"picture": f"data:image/{form};base64,{base64.b64encode(data).decode()}"}
