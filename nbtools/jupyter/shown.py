"""How values reach the cell: a result whose output was streamed does not repeat it, pictures are real pictures."""

from __future__ import annotations

import base64
import dataclasses
import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbtools.result import Artifact, ToolResult

__all__ = ["StreamedResult", "pictures", "shown"]

_LARGEST = 8 * 2**20
_TEXTUAL = ("image/svg+xml",)
_SHOWN = ("image/png", "image/jpeg", *_TEXTUAL)
_STYLE = "color:var(--jp-ui-font-color2,#777);font-size:85%"


class StreamedResult(ToolResult):
    """A result whose text the cell has shown already: its own forms are the footer alone."""

    @classmethod
    def from_result(cls, result: ToolResult) -> StreamedResult:
        """Copy a result."""
        return cls(**{f.name: getattr(result, f.name) for f in dataclasses.fields(ToolResult)})

    @property
    def footer(self) -> str:
        """Tool, duration and files on one line."""
        files = ", ".join(f"{Path(a.path).name} ({a.size:,} B)" for a in self.artifacts)
        return " · ".join(part for part in (self.tool, f"{self.duration_s * 1000:,.0f} ms", files) if part)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the footer at an IPython prompt."""
        printer.text(self.footer)

    def _repr_html_(self) -> str:
        """Render the footer for a notebook."""
        return f"<div style='{_STYLE}'>{html.escape(self.footer)}</div>"


def shown(value: Any, *, streamed: str = "") -> Any:
    """Return what the cell displays for a value.

    Parameters
    ----------
    value
        What the magic answered.
    streamed
        What was printed while it ran.
    """
    if isinstance(value, ToolResult) and streamed and value.text.strip() == streamed.strip():
        return StreamedResult.from_result(value)
    return value


def pictures(artifacts: tuple[Artifact, ...]) -> list[Mapping[str, Any]]:
    """Return the MIME bundles of the pictures among the files, those that a notebook can hold."""
    bundles: list[Mapping[str, Any]] = []
    for artifact in artifacts:
        if artifact.mime in _SHOWN and artifact.size <= _LARGEST:
            content = Path(artifact.path).read_bytes()
            data = content.decode() if artifact.mime in _TEXTUAL else base64.b64encode(content).decode()
            bundles.append({artifact.mime: data, "text/plain": f"<picture {Path(artifact.path).name}>"})
    return bundles
