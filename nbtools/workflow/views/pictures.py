"""Pictures that steps made, as parts of a page that needs nothing beside itself."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.contract.result import Artifact
from nbtools.workflow.runs.state import RunState

_MOST_EACH = 4 * 2**20
# A picture inside of `img` loads nothing and runs nothing, an SVG neither.
_KINDS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"})


class PictureBudget:
    """Makes `img` elements as long as their bytes fit.

    Parameters
    ----------
    most
        Bytes of all pictures together.
    """

    def __init__(self, most: int) -> None:
        self._budget = most

    def images(self, artifacts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Yield an element for each picture among files; of one that is too large or gone, a line that says so."""
        for artifact in artifacts:
            mime, path = artifact.get("mime", ""), Path(artifact["path"])
            if mime not in _KINDS:
                continue
            size = int(artifact.get("size", 0))
            name = html.escape(path.name, quote=True)
            if size > min(self._budget, _MOST_EACH):
                yield f"<div>{name}: {size:,} bytes, too large to be shown here</div>"
                continue
            content = Artifact(path=str(path), mime=mime, size=size).as_base64()
            if content is None:
                yield f"<div>{name} is gone</div>"
                continue
            self._budget -= size
            source = f"data:{mime};base64,{content}"
            yield f"<img alt='{name}' title='{name}' src='{source}' style='max-width:min(100%,520px);background:#fff'>"


def artifacts_of(state: RunState) -> Iterator[Mapping[str, Any]]:
    """Yield the files of all steps, once each."""
    seen: set[str] = set()
    for node in state.nodes.values():
        for artifact in node.view()["artifacts"]:
            if artifact["path"] not in seen:
                seen.add(artifact["path"])
                yield artifact
