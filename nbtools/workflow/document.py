"""YAML 1.2 core with the place of every key and value.

PyYAML's parser (the C one where it is installed) gives events; a small composer makes a tree of `Leaf` and `Branch`
from them, without recursion, because the C composer crashes on deep nesting. Plain values are read as YAML 1.2 has
them: ``on``, ``no``, ``12:30`` and ``010`` are text. Everything that a reader of the file could misunderstand is a
finding: a key given twice, a merge key, an alias that leads back into itself or makes the file explode.

A place inside a text is found by matching its visible characters with those of the source, so that it is exact in
block texts, folded texts and quotes with escapes too.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nbtools.workflow.findings import WorkflowFinding

__all__ = ["Branch", "Document", "Leaf", "Place", "SourceText"]

Place = tuple[str | int, ...]
"""Keys and indices that lead from the top of a file to a value."""

_MAX_BYTES = 1_048_576
_MAX_DEPTH = 60
_MAX_VALUES = 100_000
_BREAK = re.compile(r"\r\n|\n|\r")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,400})|0o[0-7]{1,200}|0x[0-9a-fA-F]{1,200}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_CORE = "tag:yaml.org,2002:"
_STARTS = frozenset("-+.0123456789~ntfNTF")
_ESCAPES = dict(zip('0abtnvfre"/\\N_LP \t', '\0\a\b\t\n\v\f\r\x1b"/\\\x85\xa0\u2028\u2029 \t', strict=True))
_TAGGED: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}
_HEX = {"x": 2, "u": 4, "U": 8}


class Leaf:
    """A scalar: its text, its value, where it begins and ends in the source, and how it is quoted."""

    __slots__ = ("end", "start", "style", "text", "value")

    def __init__(self, text: str, value: Any, start: int, end: int, style: str) -> None:
        self.text, self.value, self.start, self.end, self.style = text, value, start, end, style


class Branch:
    """A mapping (with `keys`) or a list (without): its items, and where it begins and ends in the source."""

    __slots__ = ("end", "items", "keys", "start")

    def __init__(self, start: int, keys: list[Leaf] | None) -> None:
        self.start = self.end = start
        self.keys = keys
        self.items: list[Leaf | Branch] = []


def _plain(text: str) -> Any:
    """Return the value of a plain scalar in the core schema."""
    if text[:1] not in _STARTS and text:
        return text
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INT.fullmatch(text):
        return int(text, 0)
    # A number that a float cannot hold stays as it is written.
    return made if _FLOAT.fullmatch(text) and math.isfinite(made := float(text)) else text


class SourceText:
    """A text with its lines, and the findings in it.

    Parameters
    ----------
    text
        The source.
    path
        The file as findings name it.

    Attributes
    ----------
    findings
        What is wrong in it.
    """

    def __init__(self, text: str, path: str = "<text>") -> None:
        self.path = path
        self.text = text
        self.findings: list[WorkflowFinding] = []
        self._starts = [0, *(found.end() for found in _BREAK.finditer(text))]

    def tell(self, code: str, span: tuple[int, int], message: str, hint: str = "") -> None:
        """Add a finding at a span of the source: where it begins, and its width."""
        line, column = self.line_column(span[0])
        self.findings.append(
            WorkflowFinding(
                code=code,
                message=message,
                hint=hint,
                path=self.path,
                line=line,
                column=column,
                width=max(1, min(span[1], len(self.line(line)) - column + 1)),
                excerpt=self.line(line),
            )
        )

    def line_column(self, at: int) -> tuple[int, int]:
        """Return line and column, from 1, of a place in the source."""
        at = max(0, min(at, len(self.text)))
        line = bisect.bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return a line of the source without its end."""
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end].rstrip("\r\n")


class Document(SourceText):
    """One YAML file: its data, the findings of reading it, and the place of everything.

    Attributes
    ----------
    data
        Dicts, lists, texts, numbers, truth values and nulls; `None` too where the source is no YAML.
    root
        The tree with places; `None` where the source is no YAML or is empty.
    """

    def __init__(self, text: str, path: str = "<text>") -> None:
        super().__init__(text.removeprefix("\ufeff"), path)
        if text.startswith("\ufeff"):
            self.tell("WF011", (0, 1), "The file begins with a byte order mark.", "Save it as UTF-8 without BOM.")
        if (at := self.text.find("\r")) >= 0:
            self.tell("WF012", (at, 1), "Lines end with CR.", "Save the file with LF line ends.")
        self.root = _Composer(self).compose()
        self.data = None if self.root is None else self._data(self.root)

    @classmethod
    def open(cls, file: Path, path: str | None = None) -> Document:
        """Return the document of a file; one that cannot be read has a finding and no data."""
        name = str(file) if path is None else path
        try:
            size = file.stat().st_size
            if size > _MAX_BYTES:
                return cls._unread(name, f"The file has {size:,} bytes; a workflow has {_MAX_BYTES:,} at the most.")
            return cls(file.read_bytes().decode("utf-8"), name)
        except UnicodeDecodeError as exc:
            return cls._unread(name, f"The file is no UTF-8: byte {exc.start} is {exc.object[exc.start]:#04x}.")
        except OSError as exc:
            return cls._unread(name, f"The file cannot be read: {exc.strerror or exc}.")

    @classmethod
    def _unread(cls, name: str, message: str) -> Document:
        made = cls("", name)
        made.tell("WF001", (0, 1), message)
        return made

    def _data(self, node: Leaf | Branch) -> Any:
        if isinstance(node, Leaf):
            return node.value
        if node.keys is None:
            return [self._data(item) for item in node.items]
        return {key.text: self._data(item) for key, item in zip(node.keys, node.items, strict=True)}

    def at(self, place: Place) -> tuple[Leaf | None, Leaf | Branch | None]:
        """Return the key and the value at a place; of a place that is not there, the nearest one above it."""
        key, node = None, self.root
        for part in place:
            if not isinstance(node, Branch):
                break
            if node.keys is None:
                if not (isinstance(part, int) and part < len(node.items)):
                    break
                key, node = None, node.items[part]
            else:
                names = [key.text for key in node.keys]
                if str(part) not in names:
                    break
                i = len(names) - 1 - names[::-1].index(str(part))
                key, node = node.keys[i], node.items[i]
        return key, node

    def span(self, place: Place, *, key: bool = False) -> tuple[int, int]:
        """Return where the value at a place stands, or its key: its beginning and its width."""
        name, node = self.at(place)
        found: Leaf | Branch | None = name if key and name is not None else node
        if found is None:
            return 0, 1
        # An empty value has no width of its own: its key is shown.
        if found.start == found.end and name is not None:
            found = name
        return found.start, (found.end if isinstance(found, Leaf) else found.start + 1) - found.start

    def inner(self, place: Place, offset: int, width: int = 1) -> tuple[int, int]:
        """Return where a part of the text at a place stands in the source, given its offset in the text."""
        node = self.at(place)[1]
        if not isinstance(node, Leaf):
            return self.span(place)
        start = self._source(node, offset)
        last = self._source(node, offset + width - 1) if width > 1 else start
        return start, max(1, last - start + 1)

    def _source(self, leaf: Leaf, offset: int) -> int:
        """Return where a character of a leaf's text stands in the source.

        White space is taken from its neighbours: folding and indentation change it.
        """
        text = leaf.text
        at = min(offset, len(text) - 1)
        back = 0
        while at > 0 and text[at].isspace() and (text[at] != "\n" or not back):
            at, back = at - 1, back + 1
        if at < 0 or text[at].isspace():
            after = next((i for i in range(max(at, 0), len(text)) if not text[i].isspace()), None)
            if after is None:
                return leaf.start
            return self._source(leaf, after) - (after - offset)
        visible = sum(not char.isspace() for char in text[:at])
        for i, (start, _) in enumerate(_visible(self.text, leaf)):
            if i == visible:
                return start + offset - at if offset < len(text) else start + max(1, back)
        return leaf.start


def _visible(source: str, leaf: Leaf) -> Iterator[tuple[int, str]]:
    """Yield the visible characters of a leaf with their places in the source."""
    at, end = leaf.start, leaf.end
    while at < end and source[at] in "&!":  # the value's anchor or tag
        at += len(source[at:end].split(maxsplit=1)[0])
        at += len(source[at:end]) - len(source[at:end].lstrip())
    if leaf.style in {"|", ">"}:
        at = source.find("\n", at) % (end + 1)
    elif leaf.style in {"'", '"'}:
        at, end = at + 1, end - 1
    while at < end:
        char, width = source[at], 1
        if leaf.style == '"' and char == "\\":
            kind = source[at + 1 : at + 2]
            size = _HEX.get(kind, 0)
            width = 2 + size
            char = chr(int(source[at + 2 : at + width], 16)) if size else _ESCAPES.get(kind, " ")
        elif leaf.style == "'" and source.startswith("''", at):
            width = 2
        if not char.isspace():
            yield at, char
        at += width


class _Composer:
    """Makes the tree of a document from the parser's events."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._anchors: dict[str, Leaf | Branch] = {}
        self._sizes: dict[int, int] = {}
        self._open: list[Branch] = []
        self._key: list[Leaf | None] = []
        self._documents = 0
        self._root: Leaf | Branch | None = None

    def compose(self) -> Leaf | Branch | None:
        """Return the tree; `None` where the source is no YAML, has no document, or has more than one."""
        import yaml

        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        takers: dict[type, Callable[[Any], bool]] = {
            yaml.ScalarEvent: self._scalar,
            yaml.AliasEvent: self._alias,
            yaml.MappingStartEvent: lambda event: self._begin(event, []),
            yaml.SequenceStartEvent: lambda event: self._begin(event, None),
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
            yaml.DocumentStartEvent: self._document_start,
        }
        try:
            for event in yaml.parse(self._document.text, Loader=loader):
                take = takers.get(type(event))
                if take is not None and not take(event):
                    return None
        except yaml.YAMLError as exc:
            self._broken(exc)
            return None
        return self._root

    def _document_start(self, event: Any) -> bool:
        self._documents += 1
        if self._documents > 1:
            span = (event.start_mark.index, 3)
            self._document.tell("WF004", span, "A second document begins here.", "Write one workflow to a file.")
        return self._documents == 1

    def _scalar(self, event: Any) -> bool:
        style = event.style or ""
        text, tag = event.value, event.tag
        start, end = event.start_mark.index, event.end_mark.index
        value = _plain(text) if not style else text
        if tag and tag != "!":
            value = self._tagged(tag, text, (start, end - start))
        elif tag:
            value = text
        return self._add(Leaf(text, value, start, end, style), event.anchor)

    def _tagged(self, tag: str, text: str, span: tuple[int, int]) -> Any:
        kind = tag.removeprefix(_CORE)
        value = _plain(text)
        if kind == "str":
            return text
        if not isinstance(value, _TAGGED.get(kind, ())):
            self._document.tell("WF008", span, f"The tag {tag.replace(_CORE, '!!')!r} means nothing here.", "Drop it.")
        return value

    def _begin(self, event: Any, keys: list[Leaf] | None) -> bool:
        start = event.start_mark.index
        if len(self._open) >= _MAX_DEPTH:
            self._document.tell("WF002", (start, 1), f"Values are nested more than {_MAX_DEPTH} deep.")
            return False
        if event.tag and event.tag not in {"!", f"{_CORE}map", f"{_CORE}seq"}:
            shown = event.tag.replace(_CORE, "!!")
            self._document.tell("WF008", (start, 1), f"The tag {shown!r} means nothing here.", "Drop it.")
        branch = Branch(start, keys)
        if not self._add(branch, event.anchor):
            return False
        self._open.append(branch)
        self._key.append(None)
        return True

    def _end(self, event: Any) -> bool:
        branch = self._open.pop()
        self._key.pop()
        branch.end = event.end_mark.index
        self._sizes[id(branch)] = 1 + sum(self._sizes.get(id(item), 1) for item in branch.items)
        if self._sizes[id(branch)] > _MAX_VALUES:
            self._document.tell(
                "WF007", (branch.start, 1), f"With its aliases the file has over {_MAX_VALUES:,} values."
            )
            return False
        return True

    def _alias(self, event: Any) -> bool:
        span = (event.start_mark.index, event.end_mark.index - event.start_mark.index)
        target = self._anchors.get(event.anchor)
        if target is None:
            self._document.tell("WF007", span, f"No value has the anchor &{event.anchor}.")
            return False
        if any(target is branch for branch in self._open):
            self._document.tell("WF007", span, f"The alias *{event.anchor} stands inside of its own value.")
            return False
        return self._add(target, None, span)

    def _add(self, node: Leaf | Branch, anchor: str | None, span: tuple[int, int] | None = None) -> bool:
        """Put a node where it belongs: at the top, in a list, or as a mapping's next key or value."""
        if anchor:
            self._anchors[anchor] = node
        if not self._open:
            self._root = node
            return True
        parent = self._open[-1]
        if parent.keys is None:
            parent.items.append(node)
        elif self._key[-1] is None:
            return self._add_key(parent.keys, node, span)
        else:
            parent.items.append(node)
            self._key[-1] = None
        return True

    def _add_key(self, keys: list[Leaf], node: Leaf | Branch, span: tuple[int, int] | None) -> bool:
        if not isinstance(node, Leaf):
            text = self._document.text
            if text.startswith("{", node.start) and text.startswith("{", node.start - 1):
                hint = 'Expressions are written "${…}", in quotes.'
                self._document.tell("WF010", (node.start - 1, 2), "{{ is no expression.", hint)
            else:
                self._document.tell("WF002", (node.start, 1), "A key is no text.", "Write KEY: VALUE.")
            return False
        place = span or (node.start, node.end - node.start)
        if node.text == "<<" and not node.style:
            hint = "YAML 1.2 has none: write the keys out."
            self._document.tell("WF006", place, "The merge key << is not merged.", hint)
        first = next((key for key in keys if key.text == node.text), None)
        if first is not None:
            line = self._document.line_column(first.start)[0]
            hint = f"It stands in line {line} too; remove one."
            self._document.tell("WF005", place, f"The key {node.text!r} is given twice.", hint)
        keys.append(node)
        self._key[-1] = node
        return True

    def _broken(self, exc: Any) -> None:
        """Tell why the source is no YAML, with a hint for the usual causes."""
        document, text = self._document, self._document.text
        mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
        if "quoted scalar" in str(getattr(exc, "context", "")) and "unexpected" in str(exc.problem):
            span = exc.context_mark.index, 1
            document.tell("WF002", span, "This quote is not closed.", "Close it, or put the other quotes around it.")
            return
        problem = " ".join(str(getattr(exc, "problem", None) or getattr(exc, "reason", None) or exc).split())
        if mark is None:
            at = next((i for i, char in enumerate(text) if not (char.isprintable() or char in "\t\n\r\x85")), 0)
            document.tell("WF002", (at, 1), f"The character {text[at : at + 1]!r} may not stand in YAML.")
            return
        at = mark.index
        line, column = document.line_column(at)
        before = document.line(line)[: column - 1]
        if text[at : at + 1] == "\t" or "\t" in before[: len(before) - len(before.lstrip())]:
            document.tell("WF003", (at, 1), "A tab stands where YAML wants spaces.", "Indent with spaces.")
        elif (found := text.rfind("${", 0, at + 2)) >= 0 and document.line_column(found)[0] == line:
            width = len(document.line(line)) - document.line_column(found)[1] + 1
            close = text.find("}", found, found + width)
            width = close - found + 1 if close >= 0 else width
            whole = text[found : found + width]
            document.tell("WF009", (found, width), "Here an expression needs quotes.", f'Write "{whole}".')
        elif "{{" in document.line(line):
            begun = document.line(line).index("{{") - column + 1 + at
            document.tell("WF010", (begun, 2), "{{ is no expression.", 'Expressions are written "${…}", in quotes.')
        else:
            hint = _hint(document.line(line), text[at : at + 1], problem)
            document.tell("WF002", (at, 1), f"This is no YAML: {problem}.", hint)


def _hint(line: str, char: str, problem: str) -> str:
    if char in {"@", "`", "%"}:
        return f"A text that begins with {char} needs quotes."
    if "mapping values" in problem:
        return "A text that holds ': ' needs quotes; or a key is indented wrongly."
    if line.count("'") % 2 or line.count('"') % 2:
        return "A quote is not closed, or stands inside of quotes."
    return "Keys of one mapping stand in one column."
