"""Which encodings the tools take for text: those of documents, whose work grows with the length of the text alone.

Python's list holds others: of domain names (``punycode`` and ``idna`` take time with the square of the length), of
source code (``unicode_escape``), of bytes (``zlib``), and what packages add.
"""

from __future__ import annotations

import codecs
import re

_DOCUMENTS = re.compile(
    r"utf-8(-sig)?|utf-(16|32)(-[bl]e)?|ascii|iso8859-\d+|iso2022_\w+|cp\d+|koi8-\w|mac-\w+|gb\w+|big5\w*|hz"
    r"|shift_jis\w*|euc_\w+|johab|tis-620|kz1048|ptcp154|hp-roman8"
)


def codec_of(name: str) -> codecs.CodecInfo | None:
    """Return the codec of an encoding by any of its names; `None` when it is none that documents have."""
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        return None
    return codec if _DOCUMENTS.fullmatch(codec.name) else None
