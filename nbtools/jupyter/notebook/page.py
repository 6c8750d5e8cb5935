"""The page that shows this kernel's notebook: asked over comms, answered by nbtools' extension of JupyterLab.

Each question is a comm that the kernel opens, with the question as its data; the page answers with a message::

    {"ask": "who"}                               → {"notebooks": [path, …]}
    {"ask": "read", "notebook": path}            → {"cells": [{id, kind, source, outputs, ran}, …]}
    {"ask": "propose", "notebook": path, …}      → {"outcome": "waiting"}, and later what a person made of it

or with ``{"problem": …}``. Each question tells our version, so that a page of another can say so. No comm outlasts its
answer but those of proposals; a page that was loaded again asks for these (`NotebookPage.show_again`). The answers come
while a cell runs where the kernel has subshells and the page uses them.

``{"ask": "outcome"}`` is answered here: what became of a proposal, after a wait if that is asked for.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from nbtools.errors import ConfigMissing, InvalidArguments

_TARGET = "nbtools.notebook"
_FIRST_S = 1.5  # a page that has not answered yet may have no extension
_LATER_S = 0.5  # and was silent before
_ANSWER_S = 10.0
_MOST_PROPOSALS = 1_000

_SILENT = "The notebook cannot be read: JupyterLab's extension of nbtools does not answer."
_SILENT_HINT = "Open the notebook in JupyterLab or Notebook 7 of an environment with nbtools; all else works as before."
_BUSY = "The notebook cannot be read while a cell runs here: its answer comes when the cell has ended."
_BUSY_HINT = "Ask again then; with ipykernel 7.1 and JupyterLab 4.5 or later it can be read at any time."


class _PageQuestion:
    """One question of ours, and the answers to it."""

    def __init__(self, question: Mapping[str, Any], hear: Callable[[Mapping[str, Any]], None]) -> None:
        from importlib import metadata

        from comm import create_comm

        self.is_closed = False
        self.answer: dict[str, Any] | None = None
        self._hear = hear
        self._heard = threading.Event()
        # Opened once it can hear: the answer may be there before the next line is run.
        self._comm = create_comm(target_name=_TARGET, primary=False)
        self._comm.on_msg(self._receive)
        self._comm.on_close(self._end)
        # ipykernel 7 would hand the answer to the thread of the cell; see `nbtools.widgets.live.live_widget`.
        vars(self._comm)["_reply_subshell_for"] = lambda _data, sent_to: sent_to
        self._comm.open(data={**question, "version": metadata.version("nbtools-kit")})

    def wait(self, seconds: float) -> dict[str, Any] | None:
        """Return the first answer; `None` where none comes in time."""
        self._heard.wait(seconds)
        return self.answer

    def close(self) -> None:
        """End it."""
        self._comm.close()

    def _receive(self, message: Mapping[str, Any]) -> None:
        data = message["content"]["data"]
        if self.answer is None:
            self.answer = data
            self._heard.set()
        self._hear(data)

    def _end(self, _message: object) -> None:
        self.is_closed = True
        self._heard.set()
        if self.answer is not None:
            self._hear({"outcome": "gone"})


class _ProposedCell:
    """A cell that was proposed, and what became of it."""

    def __init__(self, question: Mapping[str, Any]) -> None:
        self.question = question
        self.exchange: _PageQuestion | None = None  # None: no page has shown it
        self.decided = threading.Event()
        self.state: dict[str, Any] = {
            "proposal": question["proposal"],
            "action": question["action"],
            "outcome": "waiting",
            "at": None,
        }

    def sent(self) -> dict[str, Any]:
        """Return what the page needs: the call is for the record."""
        return {name: value for name, value in self.question.items() if name != "call"}


class NotebookPage:
    """The page of one kernel.

    Parameters
    ----------
    shell
        The IPython shell.
    record
        Gets what a person made of a proposal, with its question, to be recorded.
    """

    def __init__(self, shell: Any, record: Callable[[Mapping[str, Any], Mapping[str, Any]], None]) -> None:
        self._shell = shell
        self._record = record
        self._lock = threading.Lock()
        self._proposals: dict[str, _ProposedCell] = {}
        self._has_answered: bool | None = None  # None: it was never asked

    def answers(self) -> bool:
        """Tell whether a page answers; where none did so far, that takes a moment to find out."""
        try:
            self.ask({"ask": "who"})
        except (ConfigMissing, InvalidArguments):
            return False
        return True

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to a question.

        Raises
        ------
        ConfigMissing
            No page answers.
        InvalidArguments
            It cannot: it says why.
        """
        kind = question["ask"]
        if kind == "outcome":
            return self._outcome(question)
        if kind == "propose":
            return self._propose(question)
        exchange = self._exchange(question)
        exchange.close()
        answer = self._checked(exchange)
        if kind == "read":
            own = [each for each in self._proposals.values() if each.question["notebook"] == question["notebook"]]
            answer = {**answer, "proposals": [each.state for each in own]}
        return answer

    def _exchange(
        self, question: Mapping[str, Any], hear: Callable[[Mapping[str, Any]], None] = lambda _: None
    ) -> _PageQuestion:
        """Ask the page, and wait for its first answer."""
        from nbtools.widgets.live.live_widget import has_person

        # A runner of notebooks shows nobody a page.
        if getattr(self._shell, "kernel", None) is None or not has_person():
            raise ConfigMissing(_SILENT, hint=_SILENT_HINT)
        exchange = _PageQuestion(question, hear)
        waits = {None: _FIRST_S, False: _LATER_S, True: _ANSWER_S}
        if exchange.wait(waits[self._has_answered]) is not None:
            self._has_answered = True
            return exchange
        self._has_answered = self._has_answered or False
        is_closed = exchange.is_closed
        exchange.close()
        # Without subshells an answer waits for the end of the cell, as the silence of no page does.
        if is_closed or getattr(self._shell.kernel, "_supports_kernel_subshells", False):
            raise ConfigMissing(_SILENT, hint=_SILENT_HINT)
        raise ConfigMissing(_BUSY, hint=f"{_BUSY_HINT} {_SILENT_HINT}")

    def _checked(self, exchange: _PageQuestion) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = exchange.answer or {}
        if "problem" in answer:
            raise InvalidArguments(str(answer["problem"]))
        return answer

    # -- proposals

    def _propose(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        proposal = _ProposedCell(question)
        with self._lock:
            if len(self._proposals) >= _MOST_PROPOSALS:
                self._proposals.pop(next(iter(self._proposals)))
            self._proposals[question["proposal"]] = proposal
        try:
            proposal.exchange = self._exchange(proposal.sent(), functools.partial(self._decide, proposal))
            self._checked(proposal.exchange)
        except BaseException:
            self._proposals.pop(question["proposal"], None)
            if proposal.exchange is not None:
                proposal.exchange.close()
            raise
        return proposal.state

    def show_again(self, notebook: str) -> None:
        """Show what waits for a click in a notebook whose page was loaded again; other pages of it show that too."""
        for proposal in list(self._proposals.values()):
            exchange = proposal.exchange
            if exchange is not None and proposal.question["notebook"] == notebook and not proposal.decided.is_set():
                exchange.close()
                proposal.exchange = _PageQuestion(proposal.sent(), functools.partial(self._decide, proposal))

    def _decide(self, proposal: _ProposedCell, data: Mapping[str, Any]) -> None:
        """Take what a person made of a proposal, once. This may run in the thread of the cells."""
        # A page that was loaded again may not have the cell any more; at first that is an error of who proposed it.
        outcome = str(data.get("outcome", "gone" if proposal.exchange else "waiting"))
        if outcome == "waiting":
            return
        with self._lock:
            if proposal.decided.is_set():
                return
            proposal.state = {**proposal.state, "outcome": outcome, "at": time.strftime("%Y-%m-%d %H:%M:%S%z")}
            proposal.decided.set()
        self._record(proposal.question, proposal.state)
        if proposal.exchange is not None:  # other pages take their cards away
            proposal.exchange.close()

    def _outcome(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        proposal = self._proposals.get(question["proposal"])
        if proposal is None:
            return {"outcome": "unknown", "at": None}
        proposal.decided.wait(question.get("wait", 0))
        return proposal.state
