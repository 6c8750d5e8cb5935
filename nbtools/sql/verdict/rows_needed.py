"""Which rows of a table a query can need: what its syntax tree rules out, a store with many rows need not hand over."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
    """What the text in a column must be for a row to count.

    Attributes
    ----------
    column
        The column, in small letters.
    kind
        ``is``: one of the texts or parameters. ``begins``: it begins with the one text.
    texts, parameters
        Texts of the query, and names of parameters that stand for texts.
    """

    column: str
    kind: Literal["is", "begins"]
    texts: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()

    def either(self, other: Condition) -> Condition | None:
        """Return what holds where one of two conditions does; `None` for nothing that could be said."""
        if (self.column, self.kind) != (other.column, other.kind):
            return None
        if self.kind == "is":
            parameters = tuple(dict.fromkeys((*self.parameters, *other.parameters)))
            texts = tuple(dict.fromkeys((*self.texts, *other.texts)))
            return dataclasses.replace(self, texts=texts, parameters=parameters)
        pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(self.texts[0], other.texts[0], strict=False))
        start = "".join(letter for letter, _ in pairs)
        return dataclasses.replace(self, texts=(start,)) if start else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsNeeded:
    """The rows of a table that a query can need: those for which all conditions hold, in an order, so many.

    Attributes
    ----------
    conditions
        Rows for which one of them does not hold may be left out.
    order
        Columns, and whether each descends; rows that are alike in all of them come in the order of the table.
    limit
        As many rows of that order are enough, if all conditions were applied; `None` for all rows.
    """

    conditions: tuple[Condition, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    limit: int | None = None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RowsNeeded:
        """Return what `dataclasses.asdict` made a dict of, which may have passed through JSON."""
        conditions = (
            Condition(**each | {"texts": tuple(each["texts"]), "parameters": tuple(each["parameters"])})
            for each in fields["conditions"]
        )
        order = tuple((column, descends) for column, descends in fields["order"])
        return cls(conditions=tuple(conditions), order=order, limit=fields["limit"])

    def without_limit(self, conditions: Sequence[Condition]) -> RowsNeeded:
        """Return the rows for which some of the conditions hold, all of them."""
        return RowsNeeded(conditions=tuple(conditions))

    def either(self, other: RowsNeeded) -> RowsNeeded:
        """Return the rows that one of two places of a query can need."""
        pairs = (one.either(two) for one in self.conditions for two in other.conditions)
        return RowsNeeded(conditions=tuple(condition for condition in pairs if condition is not None))

    def bound(self, values: Mapping[str, Any] | Sequence[Any] | None) -> RowsNeeded:
        """Return the same with the values of parameters; a value that is not a text says nothing of a text."""
        conditions = []
        for condition in self.conditions:
            texts = [_value_of(name, values) for name in condition.parameters]
            if all(isinstance(text, str) for text in texts):
                conditions.append(dataclasses.replace(condition, texts=(*condition.texts, *texts), parameters=()))
        same = len(conditions) == len(self.conditions)
        return dataclasses.replace(self, conditions=tuple(conditions)) if same else self.without_limit(conditions)

    def of_column(self, column: str) -> dict[str, Any]:
        """Return what a store needs that knows rows by one column alone: `keys`, `prefix`, `order` and `limit`."""
        mine = [condition for condition in self.conditions if condition.column == column]
        listed = [condition.texts for condition in mine if condition.kind == "is"]
        keys = None if not listed else tuple(key for key in listed[0] if all(key in texts for texts in listed))
        prefix = max((condition.texts[0] for condition in mine if condition.kind == "begins"), key=len, default="")
        is_whole = len(mine) == len(self.conditions)
        order, limit = (self.order, self.limit) if is_whole else ((), None)
        return {"keys": keys, "prefix": prefix, "order": order, "limit": limit}


def _value_of(name: str, values: Mapping[str, Any] | Sequence[Any] | None) -> Any:
    if isinstance(values, Mapping):
        return values.get(name)
    return values[int(name) - 1] if values and name.isdigit() and 0 < int(name) <= len(values) else None
