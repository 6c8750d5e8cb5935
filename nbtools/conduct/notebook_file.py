"""What a run is written as for people to run again: the JSON of a notebook file, made without any library for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def markdown_cell(source: str) -> dict[str, Any]:
    """Return a cell of Markdown."""
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def code_cell(source: str) -> dict[str, Any]:
    """Return a cell of code that has not run."""
    return {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source}


def notebook_file(cells: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a notebook of Python with these cells, in the form of nbformat 4.5."""
    numbered = [{"id": f"c{number:03d}", **cell} for number, cell in enumerate(cells)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": numbered, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
