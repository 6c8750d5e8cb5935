"""One YAML file of a workflow: its data, where everything in it stands, and the findings of reading it.

A place inside a text is found by matching its visible characters with those of the source, so that it is exact in
block texts, folded texts and quotes with escapes too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nbtools.errors import did_you_mean
from nbtools.ground.paths import names_in
from nbtools.texts.yaml_tree import Branch, Leaf, LinedText, compose, data_of
from nbtools.workflow.findings import WorkflowFinding

Place = tuple[str | int, ...]
"""Keys and indices that lead from the top of a file to a value."""

_MAX_BYTES = 1_048_576
_ESCAPES = dict(zip('0abtnvfre"/\\N_LP \t', '\0\a\b\t\n\v\f\r\x1b"/\\\x85\xa0\u2028\u2029 \t', strict=True))
_HEX = {"x": 2, "u": 4, "U": 8}


class SourceText(LinedText):
    """A text whose problems are findings.

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

    merges = False

    def __init__(self, text: str, path: str = "<text>") -> None:
        super().__init__(text)
        self.path = path
        self.findings: list[WorkflowFinding] = []

    def tell(self, code: str, span: tuple[int, int], message: str, hint: str = "", *, limit: bool = False) -> None:
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


class Document(SourceText):
    """One YAML file: its data, the findings of reading it, and the place of everything.

    Attributes
    ----------
    data
        Dicts, lists, texts, numbers, truth values and nulls; `None` too where the source is not YAML.
    root
        The tree with places; `None` where the source is not YAML or is empty.
    """

    def __init__(self, text: str, path: str = "<text>") -> None:
        super().__init__(text.removeprefix("\ufeff"), path)
        if text.startswith("\ufeff"):
            self.tell("WF011", (0, 1), "The file begins with a byte order mark.", "Save it as UTF-8 without BOM.")
        if (at := self.text.find("\r")) >= 0:
            self.tell("WF012", (at, 1), "Lines end with CR.", "Save the file with LF line ends.")
        self.root = compose(self)
        self.data = None if self.root is None else data_of(self.root)

    @classmethod
    def open(cls, file: Path, path: str | None = None) -> Document:
        """Return the document of a file; one that cannot be read has a finding and no data."""
        name = str(file) if path is None else path
        try:
            size = file.stat().st_size
            # Looked at before it is read: a path may name a database as well as a workflow.
            if size > _MAX_BYTES:
                return cls._unread(name, f"The file has {size:,} bytes; a workflow may have at most {_MAX_BYTES:,}.")
            return cls(file.read_bytes().decode("utf-8"), name)
        except UnicodeDecodeError as exc:
            return cls._unread(name, f"The file is not UTF-8: byte {exc.start} is {exc.object[exc.start]:#04x}.")
        except OSError as exc:
            near = did_you_mean(file.name, (one for one in names_in(file.parent) if one.endswith((".yaml", ".yml"))))
            return cls._unread(name, f"The file cannot be read: {exc.strerror or exc}.{f' {near}' if near else ''}")

    @classmethod
    def _unread(cls, name: str, message: str) -> Document:
        document = cls("", name)
        document.tell("WF001", (0, 1), message)
        return document

    def at(self, loc: Place) -> tuple[Leaf | None, Leaf | Branch | None]:
        """Return the key and the value at a place; of a place that is not there, the nearest one above it."""
        key, node = None, self.root
        for part in loc:
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
                # The last of equal keys, because that is the one whose value counts.
                i = len(names) - 1 - names[::-1].index(str(part))
                key, node = node.keys[i], node.items[i]
        return key, node

    def span(self, loc: Place, *, key: bool = False) -> tuple[int, int]:
        """Return where the value at a place stands, or its key: its beginning and its width."""
        name, node = self.at(loc)
        part: Leaf | Branch | None = name if key and name is not None else node
        if part is None:
            return 0, 1
        # An empty value has no width: its key is shown.
        if part.start == part.end and name is not None:
            part = name
        return part.start, (part.end if isinstance(part, Leaf) else part.start + 1) - part.start

    def inner(self, loc: Place, offset: int, width: int = 1) -> tuple[int, int]:
        """Return where a part of the text at a place stands in the source, given its offset in the text."""
        node = self.at(loc)[1]
        if not isinstance(node, Leaf):
            return self.span(loc)
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
        # Back to something visible, since blanks of the text may be other blanks, or none, in the source.
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
        # Behind the line of the sign, which may hold a comment. Without a line end there is nothing, and it stays in
        # bounds.
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
