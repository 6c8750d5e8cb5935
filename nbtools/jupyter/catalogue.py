"""The catalogue of magics: what each is called and where its code lies. Loading the extension reads only this.

Each module named here defines ``MAGIC``, a `nbtools.jupyter.magic.Magic`.
"""

from __future__ import annotations

import dataclasses

__all__ = ["CATALOGUE", "Entry"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One magic.

    Attributes
    ----------
    name
        The short name, taken only when nobody has it.
    always
        The name that is always there.
    kinds
        ``"line"``, ``"cell"`` or both.
    module
        Where its code lies.
    """

    name: str
    always: str
    kinds: tuple[str, ...]
    module: str

    @property
    def names(self) -> tuple[str, ...]:
        """Both names, or the one when they are the same."""
        return (self.always,) if self.always == self.name else (self.always, self.name)


def _entry(name: str, module: str, *kinds: str, always: str | None = None) -> Entry:
    return Entry(name=name, always=always or f"nb{name}", kinds=kinds, module=f"nbtools.jupyter.magics.{module}")


CATALOGUE: tuple[Entry, ...] = (
    _entry("nbtools", "nbtools", "line", always="nbtools"),
    _entry("memory", "memory", "line", "cell"),
    _entry("data_analyze", "analyze", "cell"),
    _entry("data_visualize", "visualize", "cell"),
    _entry("sql", "sql", "line", "cell"),
    _entry("code", "code", "cell"),
    _entry("kernels", "kernels", "line"),
    # %nbtools is the status card, so the shelf's other name is a word of its own.
    _entry("tools", "tools", "line", always="nbshelf"),
    _entry("tool", "tool", "line"),
)
