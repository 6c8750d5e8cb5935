"""How values reach the cell: what it has shown already is not repeated, picture_bundles are real picture_bundles."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from nbtools.contract.result import Artifact, ToolResult
from nbtools.jupyter.display.blocks import duration
from nbtools.jupyter.display.streaming import Live
from nbtools.texts import html_parts
from nbtools.texts.visible import harmless

_LARGEST = 8 * 2**20
_SVG = "image/svg+xml"
_KINDS = ("image/png", "image/jpeg", _SVG)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ShownResult(ToolResult):
    """A result of whose output the cell has shown the picture_bundles, and maybe the text.

    Attributes
    ----------
    repeats
        Whether its own forms have the text; the footer they have always.
    """

    repeats: bool = True

    @property
    def footer(self) -> str:
        """Tool, duration, and the files that the text has not named, on one line."""
        named = self.shown_text() if self.repeats else ""
        others = (a for a in self.artifacts if Path(a.path).name not in named)
        files = ", ".join(f"{Path(a.path).name} ({a.size:,} B)" for a in others)
        return " · ".join(part for part in (self.tool, duration(self.duration_s), files, loss_note(self)) if part)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the plain form at an IPython prompt."""
        printer.text(harmless(self.shown_text() if self.repeats and self.text else self.footer))

    def _repr_html_(self) -> str:
        """Render the text, if it is to be repeated, and the footer."""
        text = html_parts.preformatted(self.shown_text()) if self.repeats else ""
        return f"<div>{text}{html_parts.footer(self.footer)}</div>"


def loss_note(value: Any) -> str:
    """Return what a line says of a result that lost output; empty when it has all of it."""
    is_cut = isinstance(value, ToolResult) and isinstance(value.data, dict) and value.data.get("truncated")
    return "output cut at its cap: the rest was not kept" if is_cut else ""


def display_form(value: Any, *, live: Live | None = None) -> Any:
    """Return what the cell displays for a value.

    Parameters
    ----------
    value
        What the magic answered.
    live
        What has shown its output; a text that says the same is not repeated.
    """
    if not isinstance(value, ToolResult) or not value.ok:
        return value
    repeats = live is None or not live.has_told(value.text)
    if repeats and value.text and not any(artifact.mime.startswith("image/") for artifact in value.artifacts):
        return value
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(ToolResult)}
    return ShownResult(**fields, repeats=repeats)


def picture_bundles(artifacts: Collection[Artifact]) -> list[Mapping[str, Any]]:
    """Return the MIME bundles of the picture_bundles among the files, those that a notebook can hold."""
    bundles: list[Mapping[str, Any]] = []
    for artifact in artifacts:
        if artifact.mime in _KINDS and artifact.size <= _LARGEST:
            data, name = artifact.as_base64(), Path(artifact.path).name
            if data is None:
                continue  # the footer still names it
            # A front end may run what stands in an SVG, or fetch what it names; a picture of a page does neither.
            image = f'<img alt="{html.escape(name)}" src="data:{_SVG};base64,{data}">'
            bundle = {"text/html": image} if artifact.mime == _SVG else {artifact.mime: data}
            bundles.append({**bundle, "text/plain": f"<picture {name}>"})
    return bundles
