"""A web page as text: its encoding, its title, what a reader would read, and what a selector picks out."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

from nbtools.errors import InvalidArguments, LimitExceeded, ParseError
from nbtools.texts.parsing import codec_of, word_lists

_MAX_TAGS = 100_000
_MAX_TEXT = 200_000
_MAX_SELECTOR, _MAX_BRACKETS, _MAX_SELECTED = 300, 4, 1_000
_SELECT_S = 5.0
_LISTS = word_lists(__file__, "web.words")
_SILENT, _BLOCKS = frozenset(_LISTS["silent"]), frozenset(_LISTS["blocks"])
_CELLS = frozenset({"td", "th"})
# Stand for a blank that is kept, in code for one, and for the end of the element that keeps them.
_BLANK, _END = "\ue000", object()
_TEXTUAL = re.compile(
    r"text/|application/(json|javascript|xml|yaml|x-yaml|x-www-form-urlencoded|graphql|sql)|.*\+(json|xml)"
)
_IS_PLAIN = re.compile(r"text/(plain|csv|markdown)|application/(.*\+)?(json|yaml|x-yaml)")
# What pages call Latin-1 or ASCII is Windows-1252, says the HTML standard, and browsers read it so.
_REALLY = {"iso8859-1": "cp1252", "ascii": "cp1252", "latin-1": "cp1252"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Page:
    """What a page says.

    Attributes
    ----------
    title
        Of the page; empty when it has none.
    content
        The readable text, blocks on their own lines.
    extracted_text
        The text of what the selector matches, a line between matches; all of it without a selector.
    matches
        How many elements the selector matches; `None` without one.
    truncated
        Whether something was cut.
    """

    title: str
    content: str
    extracted_text: str
    matches: int | None = None
    truncated: bool = False


def is_text(content_type: str) -> bool:
    """Tell whether a content type is one that people could read; an absent one may be."""
    return not content_type or _TEXTUAL.match(content_type.strip().lower()) is not None


def charset_of(content_type: str) -> str | None:
    """Return the charset that a Content-Type header declares, if it is one of documents."""
    match = re.search(r"charset\s*=\s*[\"']?([^\s\"';]+)", content_type, re.IGNORECASE)
    return _charset_name(match[1]) if match else None


def _charset_name(name: str) -> str | None:
    codec = codec_of(name)
    return _REALLY.get(codec.name, codec.name) if codec is not None else None


def decode(body: bytes, declared: str | None) -> str:
    """Return a body as text: by its byte order mark, the declared charset, UTF-8 or Windows-1252, in this order.

    A charset that does not fit the bytes is passed over; where none fits, what cannot be read becomes a mark.
    """
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if body.startswith(mark):
            return body.decode(name, "replace")
    for charset in dict.fromkeys((declared or "utf-8", "utf-8", "cp1252")):
        with contextlib.suppress(UnicodeError, LookupError):
            return body.decode(charset)
    return body.decode(declared or "utf-8", "replace")


def declared_inside(body: bytes) -> str | None:
    """Return the charset that the page itself declares near its start."""
    match = re.search(
        rb"<(?:meta|\?xml)\b[^>]{0,300}?(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)", body[:4096], re.IGNORECASE
    )
    return _charset_name(match[1].decode("ascii", "replace")) if match else None


def read_page(body: bytes, content_type: str, selector: str | None) -> Page:
    """Return what a page says.

    Raises
    ------
    InvalidArguments
        The selector is not a CSS selector.
    ParseError
        It is not a page but a picture, an archive or the like.
    LimitExceeded
        The selector is too costly.
    """
    wide = body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or "utf-16" in content_type.lower()
    if not is_text(content_type) or (b"\0" in body[:1024] and not wide):
        raise ParseError(
            f"this is {content_type.partition(';')[0] or 'binary content'}, not a page with text.",
            hint="http_client fetches it as it is.",
        )
    body, cut = _cut_tags(body)
    text = decode(body, charset_of(content_type) or declared_inside(body))
    if selector is not None:
        _check_selector(selector)
    if "<" not in text or _IS_PLAIN.match(content_type.strip().lower()):
        return _page_of_text(text, selector, cut=cut)
    return _page_of_html(text, selector, cut=cut)


def _cut_tags(body: bytes) -> tuple[bytes, bool]:
    """Cut a page that has more tags than a tree should: each costs hundreds of bytes and some time."""
    if body.count(b"<") <= _MAX_TAGS:
        return body, False
    return b"<".join(body.split(b"<", _MAX_TAGS)[:_MAX_TAGS]), True


def _page_of_text(text: str, selector: str | None, *, cut: bool) -> Page:
    content = text[:_MAX_TEXT]
    cut = cut or len(content) < len(text)
    extracted = content if selector is None else ""
    return Page(
        title="", content=content, extracted_text=extracted, matches=None if selector is None else 0, truncated=cut
    )


def _page_of_html(text: str, selector: str | None, *, cut: bool) -> Page:
    from bs4 import BeautifulSoup

    # Read as HTML whatever it says it is; the XML declaration would only make the parser warn.
    soup = BeautifulSoup(re.sub(r"^\s*<\?xml[^>]*>", "", text, count=1), "lxml")
    title = " ".join(soup.title.get_text().split())[:500] if soup.title else ""
    content = _readable_text([soup])
    elements = _select(soup, selector) if selector is not None else None
    extracted = content if elements is None else _readable_text(elements)
    return Page(
        title=title,
        content=content[:_MAX_TEXT],
        extracted_text=extracted[:_MAX_TEXT],
        matches=None if elements is None else len(elements),
        truncated=cut or len(content) > _MAX_TEXT or len(extracted) > _MAX_TEXT,
    )


def _check_selector(selector: str) -> None:
    if len(selector) > _MAX_SELECTOR or selector.count("(") > _MAX_BRACKETS:
        raise LimitExceeded(
            f"the selector has more than {_MAX_SELECTOR} characters or {_MAX_BRACKETS} brackets.",
            hint="Use a simple one, such as 'article p' or '#prices td.total'.",
        )


def _select(soup: Any, selector: str) -> list[Any]:
    """Return what a selector matches, asking element by element, so that a costly selector can be ended."""
    import soupsieve

    elements: list[Any] = []
    begun = time.monotonic()
    try:
        compiled = soupsieve.compile(selector)
        for element in soup.find_all(True):
            if compiled.match(element):
                elements.append(element)
            if len(elements) >= _MAX_SELECTED:
                break
            if time.monotonic() - begun > _SELECT_S:
                raise LimitExceeded(
                    "the selector is too costly for this page.", hint="Use a simpler one, without ~ or :has()."
                )
    except (soupsieve.SelectorSyntaxError, NotImplementedError, ValueError) as exc:
        reason = str(exc).partition("\n")[0].rstrip(".")
        raise InvalidArguments(
            f"{selector!r} is not a CSS selector: {reason}.", hint="Try 'h1', '.price' or 'a[href]'."
        ) from None
    except RecursionError:
        raise LimitExceeded("the page is nested too deep for this selector.") from None
    return elements


def _readable_text(elements: Iterable[Any]) -> str:
    lines: list[str] = []
    for element in elements:
        text = "".join(_pieces(element))
        lines += (" ".join(line.split()).replace(_BLANK, " ").rstrip() for line in text.split("\n"))
        lines.append("")
    # At most one empty line in a row.
    lines_left = [line for at, line in enumerate(lines) if line or (at and lines[at - 1])]
    return "\n".join(lines_left).strip()


def _pieces(element: Any) -> Iterator[str]:
    """Yield the visible text of an element, with line breaks around blocks; a stack, because pages nest deep."""
    from bs4.element import NavigableString, PreformattedString, Tag

    todo: list[Any] = [element]
    keeping = 0
    while todo:
        node = todo.pop()
        if node is _END:
            keeping -= 1
        elif isinstance(node, Tag):
            if node.name in _SILENT:
                continue
            edge = "\n" if node.name in _BLOCKS else "\t" if node.name in _CELLS else ""
            if edge:
                todo.append(edge)
            if node.name == "pre":
                keeping += 1
                todo.append(_END)
            todo += reversed(node.contents)
            if edge == "\n":
                yield edge
        elif isinstance(node, NavigableString):
            # Comments, declarations and the like are strings too.
            if not isinstance(node, PreformattedString):
                yield node.expandtabs().replace(" ", _BLANK) if keeping else re.sub(r"\s+", " ", node)
        else:
            yield node
