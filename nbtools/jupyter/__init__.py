"""The notebook's face: magics, completion, display.

::

    extension, catalogue, options     what a shell gets when the extension is loaded, and how it is taken back
    stopping                          what Stop and Ctrl-C do while a cell runs
    words, arguments, rewriting       the line of a magic: its words, its options, ``name << %magic``
    dispatch, magic, session, live    from a line to its answer: the workbench, the door, output while it runs
    display, status, tables, shown    what people see
    completion, query, filenames      what they are offered while they write
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

    extension = Extension.of(shell)
    if extension is not None:
        extension.unload()
