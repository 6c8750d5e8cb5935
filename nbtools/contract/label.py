"""What a result may hold besides its words: the one label that travels with it.

Whatever is made of labelled things has their labels joined: a call within a call, a node of a workflow and what its
prompt is filled with, a file or a note that is written. Where it comes from and what follows is in `label_rules`.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Iterable

_HOST = re.compile(
    r"(?<![\w@.-])(?:[a-z0-9-]+\.)+[a-z][a-z0-9-]+\b|(?<![\w.])\d+\.\d+\.\d+\.\d+\b|\blocalhost\b", re.IGNORECASE
)

# Endings of files that are also ends of hosts' names, and that Python's table of types does not have.
_ALSO_ENDINGS = frozenset(
    ["bz", "cc", "gd", "in", "md", "mk", "ml", "mm", "pages", "pm", "properties", "pub", "rs", "sas", "tf"]
)


@dataclasses.dataclass(frozen=True, slots=True)
class Label:
    """Two facts of a result, a file or a note.

    Attributes
    ----------
    strangers
        Text in it came from outside: others may have written it.
    private
        Values of the person's data are in it, or exact sizes of such.
    source
        Where strangers' text was met, for people; not all know it, and it is not stored.
    """

    strangers: bool = False
    private: bool = False
    source: str = dataclasses.field(default="", compare=False)

    def __or__(self, other: Label) -> Label:
        """Return both joined."""
        return join((self, other))

    def __bool__(self) -> bool:
        return self.strangers or self.private

    def names(self) -> list[str]:
        """Return the names of the facts that hold, as they are stored."""
        return [name for name in ("strangers", "private") if getattr(self, name)]

    @classmethod
    def of(cls, names: Collection[str]) -> Label:
        """Return the label of stored names."""
        return cls(strangers="strangers" in names, private="private" in names)


UNLABELLED = Label()
WORDLESS = (int, float, type(None))
"""What tells nothing that someone wrote."""


LABEL_NOW: contextvars.ContextVar[Callable[[], Label]] = contextvars.ContextVar(
    "nbtools_label", default=lambda: UNLABELLED
)
"""Returns the label of the call that runs here, with all that it has read so far; it may block."""
SEEN_NOW: contextvars.ContextVar[list[Label] | None] = contextvars.ContextVar("nbtools_seen", default=None)
"""Takes the labels of what the call that runs here reads; `None` where nobody asks for them."""


def join(labels: Iterable[Label]) -> Label:
    """Return all labels joined."""
    labels = tuple(labels)
    source = next((label.source for label in labels if label.source), "")
    return Label(any(label.strangers for label in labels), any(label.private for label in labels), source)


def hosts_in(text: str) -> frozenset[str]:
    """Return the hosts that a text of a person names, by URLs or by mere names that cannot be names of files.

    Examples
    --------
    >>> sorted(hosts_in("compare https://example.org/a?b with data.example.com, by mail to me@evil.example"))
    ['data.example.com', 'example.org']
    >>> sorted(hosts_in("read README.md and main.py, see https://allegro.pl"))
    ['allegro.pl']
    """
    text = re.sub(r"//[^\s/]*@", "//", text)
    return frozenset(
        match[0].lower()
        for match in _HOST.finditer(text)
        if text.endswith("://", 0, match.start()) or match[0].lower().rpartition(".")[2] not in _file_endings()
    )


@functools.cache
def _file_endings() -> frozenset[str]:
    """Return the endings by which a bare name may be one of a file; those that the machine adds are not among them."""
    import mimetypes

    types = mimetypes.MimeTypes(filenames=()).types_map
    return _ALSO_ENDINGS | {ending[1:].lower() for one in types for ending in one}
