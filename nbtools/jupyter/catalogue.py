"""The catalogue of magics: what each is called and where its code lies. Loading the extension reads only this.

What is named here is a `nbtools.jupyter.magic.Magic`.
"""

from __future__ import annotations

from typing import NamedTuple


class MagicEntry(NamedTuple):
    """One magic.

    Attributes
    ----------
    name
        The short name, used only if it is free.
    always
        The name that is always there.
    kinds
        ``"line"``, ``"cell"`` or both.
    code
        Where its code lies: a module and, behind the colon, a name in it.
    """

    name: str
    always: str
    kinds: tuple[str, ...]
    code: str

    @property
    def names(self) -> tuple[str, ...]:
        """Both names, or the one when they are the same."""
        return (self.always,) if self.always == self.name else (self.always, self.name)


def _entry(name: str, code: str, *kinds: str, always: str | None = None) -> MagicEntry:
    return MagicEntry(name=name, always=always or f"nb{name}", kinds=kinds, code=f"nbtools.jupyter.magics.{code}")


CATALOGUE: tuple[MagicEntry, ...] = (
    _entry("nbtools", "nbtools:MAGIC", "line", always="nbtools"),
    _entry("memory", "memory:MAGIC", "line", "cell"),
    _entry("data_analyze", "scripts:ANALYZE", "cell"),
    _entry("data_visualize", "scripts:VISUALIZE", "cell"),
    _entry("sql", "sql:MAGIC", "line", "cell"),
    _entry("explore", "explore:MAGIC", "line", "cell"),
    _entry("code", "scripts:CODE", "cell"),
    _entry("kernels", "kernels:MAGIC", "line"),
    # %nbtools is the status card, so the shelf's other name is a separate word.
    _entry("tools", "tools:MAGIC", "line", always="nbshelf"),
    _entry("tool", "tool:MAGIC", "line"),
    _entry("tool_form", "tool:FORM", "line"),
    _entry("workflow", "workflow:MAGIC", "line", "cell"),
    _entry("agent", "agent:MAGIC", "line", "cell"),
)
