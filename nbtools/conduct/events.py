"""What happens in a run: one stream of frozen records, for the log, for programs that follow it, and for people.

New kinds may be added: a reader of a stream ignores kinds that it does not know.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any, ClassVar


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened, at a time in seconds since 1970."""

    kind: ClassVar[str] = ""
    at: float = dataclasses.field(default_factory=time.time)

    def __init_subclass__(cls, kind: str = "") -> None:
        """Name the kind of event."""
        super().__init_subclass__()
        cls.kind = kind

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON values, with its kind and time; fields with their default value are left out."""
        fields: dict[str, Any] = {"kind": self.kind, "at": round(self.at, 6)}
        # mypy takes a class for as little hashable as its frozen instances with mappings in them are.
        for name, default in _defaults(type(self)):  # type: ignore[arg-type]  # see above
            value = getattr(self, name)
            if value != default:
                fields[name] = value
        return fields


@functools.cache
def _defaults(kind: type[Event]) -> tuple[tuple[str, Any], ...]:
    """Return the fields of an event but its time, each with its default: a run writes two events a step."""
    fields = [field for field in dataclasses.fields(kind) if field.name != "at"]
    return tuple((f.name, {} if f.default_factory is dict else f.default) for f in fields)
