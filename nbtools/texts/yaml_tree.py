"""YAML 1.2 core as a tree, with the place of every key and value, and bounds that a hostile text cannot pass.

PyYAML's parser (the C one where it is installed) gives events; a small composer makes a tree of `Leaf` and `Branch`
from them, without recursion, because the C composer crashes on deep nesting. Plain values are read as YAML 1.2 has
them: ``on``, ``no``, ``12:30`` and ``010`` are text. Whatever a reader of the text could misunderstand is told to the
source: a key given twice, an alias that leads back into itself or stands for too much.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from nbtools.errors import LimitExceeded, ParseError

_MAX_DEPTH = 100
_MAX_VALUES = 200_000
_DEEP = f"Values are nested more than {_MAX_DEPTH} levels deep."
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
_TAGGED: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}


class Leaf:
    """A scalar: its text, its value, where it begins and ends in the source, and how it is quoted."""

    __slots__ = ("end", "start", "style", "text", "value")

    def __init__(self, text: str, value: Any, start: int, end: int, style: str) -> None:
        self.text, self.value, self.start, self.end, self.style = text, value, start, end, style


class Branch:
    """A mapping (with `keys`) or a list (without): its items, and where it begins and ends in the source."""

    __slots__ = ("end", "first", "items", "keys", "start")

    def __init__(self, start: int, keys: list[Leaf] | None) -> None:
        self.start = self.end = start
        self.keys = keys
        self.items: list[Leaf | Branch] = []
        self.first: dict[str, Leaf] = {}

    def pairs(self) -> Iterable[tuple[Leaf, Leaf | Branch]]:
        """Return the keys with their items."""
        return zip(self.keys or (), self.items, strict=True)


def _core_value(text: str) -> Any:
    """Return the value of a plain scalar in the core schema."""
    if text[:1] not in _STARTS and text:
        return text
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INT.fullmatch(text):
        return int(text, 0)
    # A number that a float cannot hold stays as it is written.
    return number if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)) else text


class LinedText:
    """A text with its lines; a problem in it is an error.

    Parameters
    ----------
    text
        The source.

    Attributes
    ----------
    merges
        Whether ``<<`` merges mappings, which YAML 1.2 has no more.
    """

    merges = True

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in _BREAK.finditer(text))]

    def tell(self, code: str, span: tuple[int, int], message: str, hint: str = "", *, limit: bool = False) -> None:
        """Raise an error for a problem at a span of the source.

        Parameters
        ----------
        code
            The kind of problem, as the findings of workflows name it.
        span
            Where it begins, and its width.
        message
            What is wrong.
        hint
            What to do instead.
        limit
            Whether it is that there is too much.
        """
        line, column = self.line_column(span[0])
        kind = LimitExceeded if limit else ParseError
        raise kind(f"line {line}, column {column}: {message}", hint=hint or None, data={"line": line, "column": column})

    def line_column(self, at: int) -> tuple[int, int]:
        """Return line and column, from 1, of a place in the source."""
        at = max(0, min(at, len(self.text)))
        line = bisect.bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return a line of the source without its end."""
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end].rstrip("\r\n")


def compose(source: LinedText) -> Leaf | Branch | None:
    """Return the tree of a source; `None` where it has no document, or a problem that ends the reading."""
    return _Composer(source).compose()


def data_of(node: Leaf | Branch, *, finite: bool = False) -> Any:
    """Return dicts, lists, texts, numbers, truth values and nulls.

    Parameters
    ----------
    node
        The tree.
    finite
        Whether infinity and NaN stay the texts that they are written as: JSON has no such numbers.
    """
    if isinstance(node, Leaf):
        odd = finite and isinstance(node.value, float) and not math.isfinite(node.value)
        return node.text if odd else node.value
    if node.keys is None:
        return [data_of(item, finite=finite) for item in node.items]
    return {key.text: data_of(item, finite=finite) for key, item in node.pairs()}


class _Composer:
    """Makes the tree of a source from the parser's events."""

    def __init__(self, source: LinedText) -> None:
        self._document = source
        self._anchors: dict[str, Leaf | Branch] = {}
        self._sizes: dict[int, int] = {}
        self._open: list[Branch] = []
        self._key: list[Leaf | None] = []
        self._documents = 0
        self._root: Leaf | Branch | None = None

    def compose(self) -> Leaf | Branch | None:
        """Return the tree; `None` where the source is not YAML, has no document, or has more than one."""
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
        except (yaml.YAMLError, UnicodeEncodeError) as exc:
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
        value = _core_value(text) if not style else text
        if tag and tag != "!":
            value = self._tagged(tag, text, (start, end - start))
        elif tag:
            value = text
        return self._add(Leaf(text, value, start, end, style), event.anchor)

    def _tagged(self, tag: str, text: str, span: tuple[int, int]) -> Any:
        kind = tag.removeprefix(_CORE)
        value = _core_value(text)
        if kind == "str":
            return text
        if not isinstance(value, _TAGGED.get(kind, ())):
            self._unread_tag(tag, span)
        return value

    def _unread_tag(self, tag: str, span: tuple[int, int]) -> None:
        message = f"The tag {tag.replace(_CORE, '!!')!r} means nothing here."
        self._document.tell("WF008", span, message, "Drop the tag: only plain values are read.")

    def _begin(self, event: Any, keys: list[Leaf] | None) -> bool:
        start = event.start_mark.index
        if len(self._open) >= _MAX_DEPTH:
            self._document.tell("WF002", (start, 1), _DEEP, limit=True)
            return False
        if event.tag and event.tag not in {"!", f"{_CORE}{'seq' if keys is None else 'map'}"}:
            self._unread_tag(event.tag, (start, 1))
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
            message = f"With its aliases the file has over {_MAX_VALUES:,} values."
            self._document.tell("WF007", (branch.start, 1), message, limit=True)
            return False
        if self._document.merges and "<<" in branch.first and not branch.first["<<"].style:
            self._merge(branch)
        return True

    def _merge(self, branch: Branch) -> None:
        """Put the pairs of the mappings that ``<<`` names before the branch's own; of equal keys the own one holds."""
        own = {key.text: (key, item) for key, item in branch.pairs()}
        key, merged = own.pop("<<")
        pairs: dict[str, tuple[Leaf, Leaf | Branch]] = {}
        for source in reversed(merged.items if isinstance(merged, Branch) and merged.keys is None else [merged]):
            if isinstance(source, Leaf) or source.keys is None:
                self._document.tell("WF006", (key.start, 2), "<< merges only mappings.", "Name one, or a list of them.")
            else:
                pairs |= {key.text: (key, item) for key, item in source.pairs()}
        pairs |= own
        branch.keys = [key for key, _ in pairs.values()]
        branch.items = [item for _, item in pairs.values()]

    def _alias(self, event: Any) -> bool:
        span = (event.start_mark.index, event.end_mark.index - event.start_mark.index)
        target = self._anchors.get(event.anchor)
        if target is None:
            self._document.tell("WF007", span, f"No value has the anchor &{event.anchor}.")
            return False
        if any(target is branch for branch in self._open):
            self._document.tell("WF007", span, f"The alias *{event.anchor} is inside its own value.")
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
            return self._add_key(parent, node, span)
        else:
            parent.items.append(node)
            self._key[-1] = None
        return True

    def _add_key(self, parent: Branch, node: Leaf | Branch, span: tuple[int, int] | None) -> bool:
        if not isinstance(node, Leaf):
            text = self._document.text
            if text.startswith("{", node.start) and text.startswith("{", node.start - 1):
                hint = 'Put it in quotes; expressions are written "${…}".'
                self._document.tell("WF010", (node.start - 1, 2), "{{ is not an expression.", hint)
            else:
                self._document.tell("WF002", (node.start, 1), "A key is not a text.", "Write KEY: VALUE.")
            return False
        span_of_key = span or (node.start, node.end - node.start)
        if node.text == "<<" and not node.style and not self._document.merges:
            hint = "YAML 1.2 has none: write the keys out."
            self._document.tell("WF006", span_of_key, "The merge key << is not merged.", hint)
        first = parent.first.setdefault(node.text, node)
        if first is not node:
            line = self._document.line_column(first.start)[0]
            hint = f"It is in line {line} too; remove one."
            self._document.tell("WF005", span_of_key, f"The key {node.text!r} is defined twice.", hint)
        assert parent.keys is not None
        parent.keys.append(node)
        self._key[-1] = node
        return True

    def _broken(self, exc: Any) -> None:
        """Tell why the source is not YAML, with a hint for the usual causes."""
        document, text = self._document, self._document.text
        mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
        if "quoted scalar" in str(getattr(exc, "context", "")) and "unexpected" in str(exc.problem):
            span = exc.context_mark.index, 1
            document.tell("WF002", span, "This quote is not closed.", "Close it, or put the other quotes around it.")
            return
        problem = " ".join(str(getattr(exc, "problem", None) or getattr(exc, "reason", None) or exc).split())
        if "nesting depth" in problem:
            # The scanner reads ahead, and gives up before the events of it were seen.
            document.tell("WF002", (mark.index if mark else 0, 1), _DEEP, limit=True)
            return
        if mark is None:
            at = next((i for i, char in enumerate(text) if not (char.isprintable() or char in "\t\n\r\x85")), 0)
            document.tell("WF002", (at, 1), f"The character {text[at : at + 1]!r} is not allowed in YAML.")
            return
        at = mark.index
        line, column = document.line_column(at)
        before = document.line(line)[: column - 1]
        if text[at : at + 1] == "\t" or "\t" in before[: len(before) - len(before.lstrip())]:
            document.tell("WF003", (at, 1), "A tab stands where YAML wants spaces.", "Indent with spaces.")
        elif (start := text.rfind("${", 0, at + 2)) >= 0 and document.line_column(start)[0] == line:
            width = len(document.line(line)) - document.line_column(start)[1] + 1
            close = text.find("}", start, start + width)
            width = close - start + 1 if close >= 0 else width
            whole = text[start : start + width]
            document.tell("WF009", (start, width), "Here a text with ${…} needs quotes.", f'Write "{whole}".')
        elif "{{" in document.line(line):
            begun = document.line(line).index("{{") - column + 1 + at
            document.tell(
                "WF010", (begun, 2), "{{ is not an expression.", 'Put it in quotes; expressions are written "${…}".'
            )
        else:
            hint = _hint(document.line(line), text[at : at + 1], problem)
            document.tell("WF002", (at, 1), f"This is not YAML: {problem}.", hint)


def _hint(line: str, char: str, problem: str) -> str:
    if char in {"@", "`", "%"}:
        return f"A text that begins with {char} needs quotes."
    if "mapping values" in problem:
        return "A text that holds ': ' needs quotes; or a key is indented wrongly."
    if line.count("'") % 2 or line.count('"') % 2:
        return "A quote is not closed, or is inside other quotes."
    return "Keys of one mapping start in the same column."
