"""Results of calls as views show them."""

from __future__ import annotations

import pprint
from collections.abc import Mapping
from typing import Any

from nbtools.contract.result import Artifact, ToolResult

_LARGEST = 4 * 2**20  # bytes of a picture
_MOST_TEXT = 200_000


def cell_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as the code of a cell."""
    arguments_text = pprint.pformat(dict(arguments), width=100, sort_dicts=False)
    return f"import nbtools\n\nnbtools.workbench().call({tool!r}, {arguments_text})"


def pictures_of(artifacts: tuple[Artifact, ...]) -> list[dict[str, str]]:
    """Return the pictures among files as data URIs with their names."""
    pictures = []
    for artifact in artifacts:
        is_shown = artifact.mime in {"image/png", "image/jpeg"} and artifact.size <= _LARGEST
        if is_shown and (data := artifact.as_base64()) is not None:
            pictures.append({"name": artifact.path.rpartition("/")[2], "uri": f"data:{artifact.mime};base64,{data}"})
    return pictures


def shown_result(result: ToolResult) -> dict[str, Any]:
    """Return a result as a view shows it."""
    error = result.error
    text = f"{error.message}\n→ {error.hint}" if error and error.hint else error.message if error else result.text
    return {
        "ok": result.ok,
        "code": error.code if error else "",
        "text": text[:_MOST_TEXT],
        "seconds": round(result.duration_s or 0.0, 3),
        "pictures": pictures_of(result.artifacts),
    }
