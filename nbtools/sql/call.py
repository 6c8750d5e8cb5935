"""One query as it was asked for, and what its numbers may be."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.sql.engines.protocol import QueryRequest
from nbtools.sql.frames import Frames


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One query as it was asked for: the request with the text as written, and what decides how it is prepared.

    Attributes
    ----------
    copies
        Tables of other connections by name, which are read by the first preparation; the same for each `asking`.
    growing
        Files that only grow, of which the whole lines are copied first; `None` until a file changed while it was read.
    """

    request: QueryRequest
    params: Mapping[str, Any] | Sequence[Any] | None = None
    connection: str | None = None
    dialect: str | None = None
    isolated: bool = False
    frames: Frames | None = None
    copies: dict[str, Any] = dataclasses.field(default_factory=dict)
    growing: frozenset[Path] | None = None

    def asking(self, **changes: Any) -> Call:
        """Return the call with another request, such as for fewer rows."""
        return dataclasses.replace(self, request=dataclasses.replace(self.request, **changes))


def seconds(value: float) -> float:
    """Return a time that a query may take, or refuse it."""
    if not 0 < value < math.inf:  # neither is NaN
        raise InvalidArguments(
            f"timeout={value!r} is not a valid timeout for a query.",
            hint="Use a number of seconds above 0; leave it out for the session's own.",
        )
    return value


def not_negative(name: str, value: int) -> int:
    """Return a number of rows or bytes, or refuse it."""
    if value < 0:
        raise InvalidArguments(f"{name} is {value!r}; it must be a whole number of 0 or more.")
    return value
