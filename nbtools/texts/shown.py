"""What a run has shown: one list of outputs in the order in which they came, and its text.

Every reader has the same list: the collector of a run, the cell that shows it live, the text that a person or a model
gets. ``clear_output`` and updates of displays change it in place, as they change a cell.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ShownOutput = tuple[str, Any]
"""``("stdout", text)``, ``("stderr", text)`` or ``("display", MIME bundle)``."""

STREAMS = ("stdout", "stderr")
# Escapes of terminals, for colours and for erasing what the next piece writes over.
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What Python writes of an object that has no text itself.
_NO_TEXT = re.compile(r"<[\w.<>]+ object(?: at 0x[0-9a-f]+)?>\Z")
_CHARTS = ("application/vnd.plotly", "application/vnd.vega")


@dataclasses.dataclass(slots=True)
class _Entry:
    kind: str
    what: Any
    name: str | None = None
    size: int = 0
    more: list[str] = dataclasses.field(default_factory=list)


class RunOutputs:
    """The outputs of one run."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._by_id: dict[str, list[_Entry]] = {}
        self._clears_next = False

    @property
    def outputs(self) -> tuple[ShownOutput, ...]:
        """All that is shown now; neighbouring texts of a stream are one."""
        for entry in self._entries:
            if entry.more:
                entry.what, entry.more = "".join([entry.what, *entry.more]), []
        return tuple((entry.kind, entry.what) for entry in self._entries)

    def named(self) -> list[tuple[str, Any, str | None]]:
        """Return all that is shown, displays with their ids."""
        return [(*output, entry.name) for output, entry in zip(self.outputs, self._entries, strict=True)]

    def bundle_of(self, display_id: str) -> dict[str, Any] | None:
        """Return the MIME bundle itself that has an id now; `None` where none has."""
        return next((entry.what for entry in self._by_id.get(display_id, ())), None)

    @property
    def display_size(self) -> int:
        """What the sizes of the displays come to."""
        return sum(entry.size for entry in self._entries)

    def text_of(self, stream: str) -> str:
        """Return the whole text of a stream."""
        return "".join(what for kind, what in self.outputs if kind == stream)

    def clear(self, *, wait: bool = False) -> bool:
        """Take all away, or with `wait` only when something else comes; tell whether it is done."""
        self._clears_next = wait
        if not wait:
            self._entries.clear()
            self._by_id.clear()
        return not wait

    def make_room(self) -> bool:
        """Say that something else comes: take all away if that was put off until now, and tell whether it was."""
        return self._clears_next and self.clear()

    def stream(self, name: str, text: str) -> None:
        """Add text of a stream."""
        if self._entries and self._entries[-1].kind == name:
            self._entries[-1].more.append(text)
        else:
            self._entries.append(_Entry(name, text))

    def display(self, bundle: dict[str, Any], display_id: str | None = None, *, size: int = 0) -> None:
        """Add a MIME bundle, which updates of its id replace."""
        entry = _Entry("display", bundle, display_id, size)
        self._entries.append(entry)
        if display_id is not None:
            self._by_id.setdefault(display_id, []).append(entry)

    def size_of(self, display_id: str) -> int | None:
        """Return the size of what an update would replace; `None` where nothing has this id."""
        entries = self._by_id.get(display_id)
        return None if entries is None else sum(entry.size for entry in entries)

    def update(self, bundle: dict[str, Any], display_id: str, *, size: int = 0) -> None:
        """Put a MIME bundle in place of those that have this id."""
        for entry in self._by_id.get(display_id, ()):
            entry.what, entry.size = bundle, size


def read_text(outputs: Iterable[ShownOutput], streams: Sequence[str] = STREAMS) -> str:
    """Return outputs as the text that a person would read: carriage returns applied, displays in their plain form.

    Parameters
    ----------
    outputs
        In their order.
    streams
        Those whose text is wanted.
    """
    merged = RunOutputs()
    for kind, what in outputs:
        if kind == "display":
            merged.display(what)
        elif kind in streams:
            merged.stream(kind, what)
    text = ""
    for kind, what in merged.outputs:
        part = _as_on_screen(what) if kind != "display" else f"{plain_form(what).rstrip()}\n"
        text += "\n" * (kind == "display" and bool(text) and not text.endswith("\n")) + part
    return text


def _as_on_screen(text: str) -> str:
    """Return what a terminal would show in the end: a line that begins again is written over."""
    if "\r" not in text and "\x1b" not in text:
        return text
    lines = _ANSI.sub("", text).replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines):
        screen = ""
        for piece in line.split("\r"):
            screen = piece + screen[len(piece) :]
        lines[number] = screen
    return "\n".join(lines)


def plain_form(bundle: Mapping[str, Any]) -> str:
    """Return a MIME bundle as text; of a picture, a chart or a script its name alone."""
    text = str(bundle.get("text/plain", ""))
    says_nothing = not text or _NO_TEXT.match(text) is not None
    for kind in bundle:
        if kind.startswith("image/"):
            return f"[picture: {kind if says_nothing else text.strip('<>')}]"
        if kind.startswith(_CHARTS):
            return f"[chart: {kind}]"
    for kind in ("text/markdown", "text/latex"):
        if kind in bundle:
            return str(bundle[kind])
    if not says_nothing:
        return text
    if "text/html" in bundle:
        return _text_of_html(str(bundle["text/html"]))
    if "application/json" in bundle:
        return json.dumps(bundle["application/json"], ensure_ascii=False, default=str)
    others = [kind for kind in bundle if kind != "text/plain"]
    return f"[shown: {', '.join(others)}]" if others else text


def _text_of_html(page: str) -> str:
    """Return the text of HTML: a line for each block, cells apart.

    Beautiful Soup takes five times as long for a table (1.3 s for each MB), and 0.1 s to load.
    """
    import html.parser  # which few outputs need

    class Text(html.parser.HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.parts: list[str] = []
            self._hidden = 0

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self._hidden += tag in {"style", "script"}
            if tag in {"br", "div", "h1", "h2", "h3", "h4", "li", "p", "pre", "table", "tr", "ul"}:
                self.parts.append("\n")
            elif tag in {"td", "th"}:
                self.parts.append("  ")

        def handle_endtag(self, tag: str) -> None:
            self._hidden -= tag in {"style", "script"} and self._hidden > 0

        def handle_data(self, data: str) -> None:
            if not self._hidden:
                self.parts.append(data)

    parser = Text()
    parser.feed(page)
    parser.close()
    lines = (line.strip() for line in "".join(parser.parts).split("\n"))
    return "\n".join(filter(None, lines)) or "[shown: text/html]"
