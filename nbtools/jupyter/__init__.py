"""The notebook's face: magics, completion, display.

::

    extension, catalogue, options     what a shell gets when the extension is loaded, and how it is taken back
    words, arguments, rewriting       the line of a magic: its words, its options, ``name << %magic``
    session, magic, live              what a magic runs in: the workbench, the door, output while it runs
    display, shown, completion        what people see
    magics/                           one module a magic: parse, call, display
"""

from __future__ import annotations

from typing import Any

__all__ = ["load", "unload"]


def load(shell: Any) -> None:
    """Put the magics into an IPython shell; harmless when they are there."""
    from nbtools.jupyter.extension import Extension

    if Extension.of(shell) is None:
        Extension(shell).load()


def unload(shell: Any) -> None:
    """Take everything back out of a shell and end what runs; harmless when nothing is there."""
    from nbtools.jupyter.extension import Extension

    found = Extension.of(shell)
    if found is not None:
        found.unload()
