"""What "Format SQL" of JupyterLab asks a kernel for."""

from __future__ import annotations

from typing import Any

from nbtools.errors import NbtoolsError


def formatted_cell(text: str, shell: Any) -> Any:
    """Return a ``%%sql`` cell with its query formatted, in the dialect of its connection, for the front end to read.

    The answer is JSON: ``text``, or ``problem``, a sentence that says why there is none, and nbtools' ``version``.
    """
    from importlib import metadata

    from IPython.core.display import JSON

    from nbtools.sql.verdict.formatting import formatted

    line, _, query = text.partition("\n")
    try:
        answer = {"text": f"{line}\n{formatted(query, _dialect(line, shell))}"}
    except NbtoolsError as exc:
        answer = {"problem": str(exc)}
    return JSON({"version": metadata.version("nbtools-kit"), **answer})  # type: ignore[no-untyped-call]  # IPython


def _dialect(line: str, shell: Any) -> str:
    """Return the dialect that the line of a magic names, or that of its connection."""
    from nbtools.jupyter.extension import Extension

    words = line.split()[1:]
    if "--dialect" in words[:-1]:
        return words[words.index("--dialect") + 1]
    extension = Extension.of(shell)
    if extension is None:
        return "duckdb"
    session = extension.dispatcher.session
    name = next((word for word in words if word in session.connections.urls), session.connections.current)
    return str(session.workbench.sql_session.dialect(name)) if name else "duckdb"
