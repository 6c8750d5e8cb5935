"""The status card and the doctor's table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nbtools.jupyter.catalogue import CATALOGUE
from nbtools.jupyter.display.blocks import Block, Card, Table

if TYPE_CHECKING:
    from nbtools.assembly.health import Check

_SIGNS = {True: "✔", False: "✘", None: "○"}


def status_card(facts: Mapping[str, Any], names: Mapping[str, str]) -> Card:
    """Return the status as a card.

    Parameters
    ----------
    facts
        What the workbench says of itself.
    names
        Magic to the name that works here.
    """
    rows = {label.replace("_", " "): value for label, value in facts.items() if label != "version"}
    marks = {entry.name: "%" if "line" in entry.kinds else "%%" for entry in CATALOGUE}
    rows["magics"] = "  ".join(f"{marks[short]}{name}" for short, name in names.items())
    problems = [
        f"{marks[short]}{short} is someone else's, use {marks[short]}{name}"
        for short, name in names.items()
        if short != name
    ]
    if problems:
        rows["names taken"] = "; ".join(problems)
    rows["next"] = "%nbtools help lists all topics, with a page on each; %nbtools doctor checks every part"
    return Card(title=f"nbtools {facts.get('version', '')}", facts=rows)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Findings(Block):
    """What the doctor found.

    Attributes
    ----------
    checks
        One for each part.
    """

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing that should work is broken."""
        return not any(check.ok is False for check in self.checks)

    @property
    def summary(self) -> str:
        """How many work, how many do not, how many are optional and absent."""
        counted = [sum(check.ok is kind for check in self.checks) for kind in (True, False, None)]
        return f"{counted[0]} work, {counted[1]} do not, {counted[2]} are not set up"

    def _table(self) -> Table:
        rows = tuple((f"{_SIGNS[c.ok]} {c.name}", c.finding, c.remedy) for c in self.checks)
        return Table(columns=("part", "found", "remedy"), rows=rows, title="nbtools doctor", footer=self.summary)

    def to_text(self) -> str:
        """Return one part a line, its remedy on the next."""
        lines = []
        for check in self.checks:
            lines.append(f"{_SIGNS[check.ok]} {check.name}: {check.finding}")
            lines += [f"    → {check.remedy}"] if check.remedy else []
        return "\n".join([*lines, self.summary])

    def to_html(self) -> str:
        """Return the checks as a table."""
        return self._table().to_html()
