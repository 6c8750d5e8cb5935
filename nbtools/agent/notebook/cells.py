"""Tools for the cells of a notebook that a page shows: reading them, and proposing one.

The page answers questions: who it shows, what is in the cells, what became of a proposal. A proposal is a card in the
page; nothing is written before a person clicks on it, and nothing is run then. A cell can only be replaced or deleted
as it was read: what changed since is read again first.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from annotated_types import Interval

from nbtools.agent.sharing import Sharing
from nbtools.contract.approval.label_rules import label_of_files
from nbtools.contract.label import Label
from nbtools.contract.result import Output
from nbtools.contract.tool import Context, tool
from nbtools.errors import ConfigMissing, InvalidArguments
from nbtools.ground.aio import in_thread
from nbtools.ground.paths import working_folder
from nbtools.ground.telemetry import fresh_id
from nbtools.texts.redaction import conceal
from nbtools.texts.visible import counted, visible

_MOST = 16_000  # characters of all cells
_MOST_SOURCE = 4_000
_MOST_OUTPUT = 2_000
_SLICE_S = 1.0
_AROUND = 2  # lines of a difference around what changes


Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Puts a question to the page that shows a notebook, or to all pages, and returns the answer; it may block."""


class NotebookCells:
    """The cells of the notebooks of a page, as one client may read them and propose others.

    Parameters
    ----------
    ask
        Asks the page.
    sharing
        What the client may see of them.
    see
        Gets the label of what it has seen; `None` where the result of the call has it.
    """

    def __init__(
        self,
        ask: Ask,
        *,
        sharing: Sharing | None = None,
        see: Callable[[Label], None] | None = None,
    ) -> None:
        self._ask = ask
        self._sharing = sharing or Sharing(level="values")
        self._see = see
        # The cells as each client read them last, by client, notebook and id.
        self._sources: dict[tuple[str | None, str, str], str] = {}

    def name_of(self, notebook: str | None) -> str:
        """Return the whole path of a notebook that is open, given that, an end of it, or nothing where one is open.

        Raises
        ------
        InvalidArguments
            It could be another, or none.
        """
        names: Sequence[str] = self._ask({"ask": "who"})["notebooks"]
        if not names:
            message = "no notebook is open in a page that answers."
            raise ConfigMissing(message, hint="Open it in JupyterLab, and run %load_ext nbtools in it.")
        ends = [name for name in names if notebook is None or f"/{name}".endswith(f"/{notebook}")]
        exact = [notebook] if notebook is not None and names.count(notebook) == 1 else []
        if len(exact or ends) != 1:
            which = "no notebook was named" if notebook is None else f"{notebook!r} is not one notebook"
            hint = "Give the path of one that is open: " + ", ".join(map(repr, sorted(names)))
            raise InvalidArguments(f"{which}.", hint=hint)
        return (exact or ends)[0]

    def read(self, ctx: Context, notebook: str | None, first: int, most: int, *, with_outputs: bool) -> Output[Any]:
        """Return the cells as far as the level of sharing allows, within the budget."""
        name = self.name_of(notebook)
        answer = self._ask({"ask": "read", "notebook": name})
        every: Sequence[Mapping[str, Any]] = answer["cells"]
        # The server's root is not known here: it is the working folder, or one above.
        here = working_folder()
        label = label_of_files(ctx.services, [folder / name for folder in (here, *here.parents)]) | Label(private=True)
        label |= Label(strangers=with_outputs and any(cell["outputs"] for cell in every))
        if self._see is None:
            ctx.seen.append(label)
        else:
            # The level is held here, so the result passes as it is.
            self._see(Label(private=True))
            ctx.seen.append(Label(strangers=label.strangers))
        cells: list[dict[str, Any]] = []
        left = _MOST
        for cell in every[first : first + most]:
            entry = self._entry(cell, first + len(cells), with_outputs=with_outputs)
            left -= len(_text_of(entry))
            if left < 0 and cells:
                break
            cells.append(entry)
            self._sources[ctx.call.run_id, name, cell["id"]] = cell["source"]
        end = first + len(cells)
        cut = "" if end >= len(every) else f"cells from {end} on are not shown: read on with first={end}"
        data = {"notebook": name, "total": len(every), "cells": cells, "cut": cut, "proposals": answer["proposals"]}
        head = f"{visible(name)}: {counted(len(every), 'cell')}"
        tail = [f"[{cut}]"] if cut else []
        tail += [f"proposal {one['proposal']}: {outcome_line(one)}" for one in answer["proposals"]]
        return Output(data=data, text="\n".join([head, *map(_text_of, cells), *tail]))

    def _entry(self, cell: Mapping[str, Any], index: int, *, with_outputs: bool) -> dict[str, Any]:
        """Return a cell as the client may see it."""
        outputs = cell["outputs"] if with_outputs else ()
        return {
            "index": index,
            "id": cell["id"],
            "kind": cell["kind"],
            "ran": cell.get("ran"),
            "source": self._part(cell["source"], _MOST_SOURCE),
            "outputs": [self._part(text, _MOST_OUTPUT) for text in outputs],
        }

    def _part(self, text: str, most: int) -> str:
        text = conceal(text)
        if self._sharing.level != "values":
            text = f"[{self._sharing.level}] {self._sharing.shape(text)}"
        return text if len(text) <= most else f"{text[:most]}\n[cut: {most:,} of {len(text):,} characters]"

    async def propose(self, ctx: Context, request: Mapping[str, Any], wait: float) -> Output[Any]:
        """Show a proposal in its notebook, and return what the person makes of it within some seconds."""
        name = await in_thread(self.name_of, request["notebook"])
        before = self._before(ctx, name, request)
        proposal = {
            **request,
            "ask": "propose",
            "notebook": name,
            "proposal": fresh_id()[-8:],
            "before": before,
            "lines": difference(before or "", request["source"]),
            "reason": visible(request["reason"]),
            "by": "The agent" if ctx.caller == "model" else "A client",
            "call": {"call_id": ctx.call_id, "run_id": ctx.call.run_id},
        }
        state = await in_thread(self._ask, proposal)
        end = time.monotonic() + wait
        question = {"ask": "outcome", "proposal": proposal["proposal"], "notebook": name}
        while state["outcome"] == "waiting" and (left := end - time.monotonic()) > 0:
            # In slices, so that a stop of the call need not wait.
            state = await in_thread(self._ask, {**question, "wait": min(left, _SLICE_S)})
            await asyncio.sleep(0)
        data = {"notebook": name, "proposal": proposal["proposal"], "outcome": state["outcome"], "at": state["at"]}
        return Output(data=data, text=f"Proposal {proposal['proposal']} in {visible(name)}: {outcome_line(state)}")

    def _before(self, ctx: Context, notebook: str, request: Mapping[str, Any]) -> str | None:
        action, cell = request["action"], request["cell"]
        if action == "insert":
            return None
        if cell is None:
            raise InvalidArguments(f"{action} needs the cell.", hint="Give its id, as notebook_read shows it.")
        with contextlib.suppress(KeyError):
            return self._sources[ctx.call.run_id, notebook, cell]
        message = f"the cell {cell!r} was not read before."
        raise InvalidArguments(message, hint="Read it with notebook_read: only what was read is replaced or deleted.")


_OUTCOMES = {
    "waiting": "no one has clicked yet; its card comes back when the page is loaded again",
    "accepted": "accepted; the notebook has it, and it was not run",
    "dismissed": "dismissed; nothing was changed",
    "stale": "the cell had changed, so nothing was done; read it again",
    "gone": "gone with its cell or its notebook; nothing was changed",
}


def outcome_line(state: Mapping[str, Any]) -> str:
    """Return what became of a proposal, as people read it."""
    at = f" ({state['at']})" if state.get("at") else ""
    return f"{_OUTCOMES.get(state['outcome'], 'the outcome is unknown')}{at}"


def difference(before: str, after: str) -> list[list[str]]:
    r"""Return the lines of a difference, each with its sign: ``+``, ``-``, a blank, or ``…`` for lines left out.

    Examples
    --------
    >>> difference("a\nb", "a\nc")
    [[' ', 'a'], ['-', 'b'], ['+', 'c']]
    """
    changes = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=_AROUND))[2:]
    lines = [["…", ""] if line.startswith("@@") else [line[0], visible(line[1:])] for line in changes]
    return lines[1:]


def _text_of(cell: Mapping[str, Any]) -> str:
    ran = f", ran as [{cell['ran']}]" if cell["ran"] else ""
    outputs = [f"--- output\n{text}" for text in cell["outputs"]]
    return "\n".join([f"=== cell {cell['index']} ({cell['kind']}, id {cell['id']}{ran})", cell["source"], *outputs])


@tool(title="Read the notebook", read_only=True, public=True, timeout=60)
def notebook_read(
    ctx: Context,
    notebook: str | None = None,
    first: Annotated[int, Interval(ge=0)] = 0,
    most: Annotated[int, Interval(ge=1, le=500)] = 100,
    outputs: bool = True,
) -> Output[dict[str, Any]]:
    """Read the cells of a notebook that is open in JupyterLab: index, id, kind, source, and outputs as text.

    It also tells what became of proposals.

    Parameters
    ----------
    notebook
        The path of the notebook, or an end of it; it may be left out where one is open.
    first
        The index of the first cell.
    most
        How many cells at the most; a long notebook is cut earlier, and that is said.
    outputs
        Whether outputs are told too.
    """
    return ctx.use(NotebookCells).read(ctx, notebook, first, most, with_outputs=outputs)


@tool(title="Propose a cell", read_only=True, public=True, timeout=360)
async def notebook_propose(
    action: Literal["insert", "replace", "delete"],
    reason: str,
    ctx: Context,
    source: str = "",
    cell: str | None = None,
    kind: Literal["code", "markdown"] = "code",
    notebook: str | None = None,
    wait: Annotated[float, Interval(ge=0, le=300)] = 60,
) -> Output[dict[str, Any]]:
    """Propose to insert, replace or delete one cell of a notebook that is open in JupyterLab.

    A card in the notebook shows it. Only the person's click writes it, and nothing is run.

    Parameters
    ----------
    action
        What is to be done.
    reason
        Why, in one sentence for the person.
    source
        The whole new text of the cell; nothing for delete.
    cell
        The id of the cell that is replaced or deleted, which must have been read before; or below which a new one is
        inserted, at the end of the notebook where none is given.
    kind
        Of a new cell.
    notebook
        The path of the notebook, or an end of it; it may be left out where one is open.
    wait
        Seconds to wait for the person; afterwards the card stays, and notebook_read tells what became of it.
    """
    if (action == "delete") == bool(source.strip()):
        raise InvalidArguments(f"{action} with {'a' if source.strip() else 'no'} source.", hint="Only delete has none.")
    request = {
        "action": action,
        "reason": reason,
        "source": source,
        "cell": cell,
        "kind": kind,
        "notebook": notebook,
    }
    return await ctx.use(NotebookCells).propose(ctx, request, wait)


CELL_TOOLS = (notebook_read, notebook_propose)
