"""What a magic is made of: a parser, a function, and the request it answers."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nbtools.jupyter.arguments import Parser
from nbtools.jupyter.words import Word
from nbtools.tool import Effects

if TYPE_CHECKING:
    from nbtools.jupyter.session import Session

__all__ = ["READS", "Magic", "Request"]

READS = Effects(read_only=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Magic:
    """One magic.

    Attributes
    ----------
    usage
        Makes the parser, given how the magic is written (``"%memory"``) and whether it stands over a cell.
    run
        Answers a request with the value that the cell shows.
    free_from
        Returns where in the line free text begins, SQL for one, which is neither split nor filled; `None` for magics
        whose line is arguments all along.
    refine
        Returns the parser for the very words of a line; `None` where one parser fits all lines. The flag asks for
        names alone, which completion needs and which cost no import.
    """

    usage: Callable[[str, bool], Parser]
    run: Callable[[Request], Any]
    free_from: Callable[[Session, Parser, str], int] | None = None
    refine: Callable[[Session, str, Sequence[Word], bool], Parser] | None = None


@dataclasses.dataclass(kw_only=True)
class Request:
    """A magic asked for.

    Attributes
    ----------
    session
        The notebook's.
    args
        The parsed arguments.
    cell
        Body of a cell magic; `None` for a line magic.
    text
        Free text of the line, see `Magic.free_from`.
    out
        Variable that the result is bound to.
    muted
        Whether the line ended with ``;``.
    """

    session: Session
    args: argparse.Namespace
    cell: str | None = None
    text: str = ""
    out: str | None = None
    muted: bool = False
    streamed: str = ""

    @property
    def quiet(self) -> bool:
        """Whether the value is not to be shown."""
        return self.muted or self.out is not None

    def note(self, line: str) -> None:
        """Print a line about the result, unless output is muted."""
        if not self.muted:
            print(line)  # noqa: T201 - a magic speaks to the cell

    def bind(self, value: Any) -> None:
        """Put a value into the user's namespace, when the request names a variable."""
        if self.out is not None:
            self.session.bind(self.out, value)
