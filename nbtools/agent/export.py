"""A run as a notebook that runs by itself: each call that succeeded is a cell, the last one counts what came again.

What is written are the arguments with which a call ran, after whoever approved it had changed them, and the SHA-256 of
the text of its result. No model is needed to run the notebook, and none is asked.
"""

from __future__ import annotations

import hashlib
import pprint
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from nbtools.agent.own_tools import OWN_TOOLS
from nbtools.agent.records.lines import RunLines
from nbtools.tool import tool_of

__all__ = ["notebook_of"]

_START = """\
import hashlib

from nbtools.shared import shared

wb = shared()
same = []


def reproduce(tool, arguments, sha256):
    result = wb.call(tool, arguments).raise_for_error()
    same.append(hashlib.sha256(result.text.encode("utf-8", "surrogatepass")).hexdigest() == sha256)
    return result"""
_END = 'f"reproduced {sum(same)} of {len(same)}"'


def notebook_of(run_id: str, prompt: str, label: str, log: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the notebook of a run, as the JSON of a notebook file.

    Parameters
    ----------
    run_id, prompt, label
        Which run, what was asked, and the model or what stood in its place.
    log
        Its events, as `AgentService.log` has them.
    """
    cells = [_text(f"# {prompt}\n\nThe calls of run {run_id} ({label}), as they ran."), _code(_START)]
    own = {tool_of(function).name for function in OWN_TOOLS}
    lines = RunLines()
    changed: set[str] = set()
    for event in log:
        line = lines.line(event)
        if event["kind"] == "text" and event["text"].strip():
            cells.append(_text(event["text"].strip()))
        elif event["kind"] == "approval_answered" and event.get("arguments") is not None:
            changed.add(event["call_id"])
            cells.append(_text(line))
        elif event["kind"] == "call_ended" and event["tool"] not in own:
            if event["result"].get("ok"):
                cells.append(_call(event, lines.arguments.get(event["call_id"], {}), event["call_id"] in changed))
            else:
                cells.append(_text(f"Not made again, because it did not succeed: {line}"))
    cells.append(_code(_END))
    numbered = [{"id": f"c{number:03d}", **cell} for number, cell in enumerate(cells)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": numbered, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _call(event: Mapping[str, Any], arguments: Mapping[str, Any], is_changed: bool) -> dict[str, Any]:
    text = str(event["result"].get("text") or "")
    if is_changed:  # the first line tells the model of the change, which the call itself does not say
        text = text.partition("\n")[2]
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    given = pprint.pformat(dict(arguments), width=100, sort_dicts=False)
    inside = textwrap.indent("".join(f"{part},\n" for part in (repr(event["tool"]), given, repr(digest))), "    ")
    return _code(f"reproduce(\n{inside})")


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _code(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
