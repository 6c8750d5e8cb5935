"""What a run did before it goes on: which of its steps have ended well, and which of these are still the same.

A run that failed, was cancelled or declined goes on in *rounds*: each begins with a `RunStarted` that names the nodes
of its files as they are then, and decides every step again. `RunHistory` is the fold of the rounds before.

A step is found again by the id of its node and, where that has ``for_each``, by the value of its item: the second of
two equal items is the second one still. What differs is told part by part, as `nbtools.workflow.runs.keys` has them. A
file that the run itself has changed since is not a difference, nor is one that was not there when the step ran.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nbtools.workflow.runs.events import (
    CallState,
    Effect,
    ItemsFound,
    NodeEnded,
    NodeStarted,
    QuestionAsked,
    RunEvent,
    RunStarted,
)
from nbtools.workflow.runs.keys import changes, digest, key_of
from nbtools.workflow.runs.state import State, step_label
from nbtools.workflow.runs.tables import result_files

Identity = tuple[str, int]
"""Which step of a node: the hash of its item, and how many equal ones come before; the empty text has no item."""

ALONE: Identity = ("", 0)
"""The identity of the one step of a node without items."""
_FILE = "file "
# A caller that hears one of these does not know what became of the work at the other end.
_UNHEARD = frozenset({"CANCELLED", "TIMEOUT", "NETWORK_ERROR"})


@dataclasses.dataclass(kw_only=True)
class EarlierStep:
    """A step of a round before.

    Attributes
    ----------
    node
        Id of the node.
    item
        Number of the item, from 0; `None` for a node without items.
    identity
        Which step of the node it is, known again from round to round.
    attempt
        Number of its last attempt, from 1; 0 where it never began.
    parts
        What it depended on when it started last, by hash.
    state
        See `State`.
    result
        The fields of its result; empty until it has ended.
    why
        Why it ran, was reused, or was skipped.
    effect
        ``"started"`` from when it might change something, ``"ok"`` or ``"failed"`` once that came back; `None` where it
        never began, or only read.
    inside
        Of a workflow node: the name of the folder of its run.
    question
        What a person was asked by a node that does nothing else.
    """

    node: str
    item: int | None
    identity: Identity
    attempt: int = 0
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    state: State = "running"
    result: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    why: str = ""
    effect: Effect | None = None
    inside: str = ""
    question: Mapping[str, Any] | None = None

    @property
    def label(self) -> str:
        """The node, with the number that the item had."""
        return step_label(self.node, self.item)

    @property
    def is_unknown(self) -> bool:
        """Whether it began what may change something, and it is unknown how that ended."""
        if self.state == "ok" or not self.effect:
            return False
        error = self.result.get("error") or {}
        is_lost = self.effect == "ok" and "tool" in self.parts  # its call went well, and its result was refused
        return is_lost or self.effect == "started" or self.state == "unknown" or error.get("code") in _UNHEARD

    @property
    def is_whole(self) -> bool:
        """Whether it has ended well, and the files of its result are there."""
        return self.state == "ok" and all(map(os.path.isfile, result_files(self.result)))


class RunHistory:
    """The rounds of a run before the one of now.

    Parameters
    ----------
    events
        Of its log, oldest first.
    is_new
        Whether another round is about to begin: then all rounds of the log are before it.
    """

    def __init__(self, events: Iterable[RunEvent], *, is_new: bool) -> None:
        self._steps: dict[str, dict[Identity, list[EarlierStep]]] = {}
        self._same: dict[tuple[str, str], EarlierStep] = {}
        self._rest: dict[str, set[str]] = {}
        rounds: list[list[RunEvent]] = [[]]
        for event in events:
            # A resume within a round has no nodes: its steps are those of the same files, and belong together.
            if isinstance(event, RunStarted) and event.nodes is not None:
                rounds.append([])
            rounds[-1].append(event)
        for one in rounds if is_new else rounds[:-1]:
            self._read(one)

    def __bool__(self) -> bool:
        return bool(self._steps)

    def _read(self, events: Iterable[RunEvent]) -> None:
        which: dict[str, list[Identity]] = {}
        here: dict[tuple[str, int | None], EarlierStep] = {}

        def step(node: str, item: int | None) -> EarlierStep:
            identity = ALONE if item is None else which[node][item]
            step = here[node, item] = EarlierStep(node=node, item=item, identity=identity)
            return step

        for event in events:
            match event:
                case ItemsFound():
                    which[event.node] = identities(event.items)
                case NodeStarted():
                    one = step(event.node, event.item)
                    one.attempt, one.parts, one.inside = event.attempt, event.parts, event.inside
                # Only questions of the file. Those that the run asks about its own steps are decided again in each
                # round.
                case QuestionAsked() if not {"digest", "again", "unknown"} & {*event.question}:
                    step(event.node, event.item).question = event.question
                case CallState() if (begun := here.get((event.node, event.item))) is not None:
                    begun.effect = event.state
                case NodeEnded() if (begun := here.get((event.node, event.item))) is not None:
                    begun.state, begun.result, begun.why = event.state, event.result, event.why
                    for name, content in event.left.items():
                        self._rest.setdefault(name, set()).add(content)
        for one in here.values():
            # The newest first: of several that fit, the last one is what is in the world now.
            self._steps.setdefault(one.node, {}).setdefault(one.identity, []).insert(0, one)
        ended = (one for one in here.values() if one.state == "ok" and one.parts)
        self._same |= {(one.node, key_of(one.parts)): one for one in ended}

    def same(self, node: str, parts: Mapping[str, str]) -> EarlierStep | None:
        """Return the step of a node that has ended well with equal parts, whichever item it had."""
        step = self._same.get((node, key_of(parts)))
        return step if step is not None and step.is_whole else None

    def parts_of(self, node: str) -> list[Mapping[str, str]]:
        """Return what each step of a node depended on, where it was started."""
        return [one.parts for steps in self._steps.get(node, {}).values() for one in steps if one.attempt]

    def find(self, node: str, identity: Identity, parts: Mapping[str, str]) -> EarlierStep | None:
        """Return the step that has ended well with equal parts, or else the last one; `None` for a step that is new."""
        steps = self._steps.get(node, {}).get(identity, [])
        same = (one for one in steps if one.question is None and one.is_whole and not self.changed(one, parts))
        return next(same, steps[0] if steps else None)

    def answered(self, node: str, identity: Identity, question: Mapping[str, Any]) -> EarlierStep | None:
        """Return the step in which a person has answered the same question."""
        steps = self._steps.get(node, {}).get(identity, [])
        return next((one for one in steps if one.state == "ok" and one.question == question), None)

    def changed(self, step: EarlierStep, parts: Mapping[str, str]) -> list[str]:
        """Return what is different of a step now, in words."""
        return [name for name in changes(step.parts, parts) if not self._is_own(name, step.parts, parts)]

    def _is_own(self, name: str, before: Mapping[str, str], now: Mapping[str, str]) -> bool:
        if not name.startswith(_FILE):
            return False
        return name not in before or now.get(name, "") in self._rest.get(name, ())

    def orphans(self, nodes: Mapping[str, Iterable[Identity] | None], parts: Mapping[str, str]) -> list[EarlierStep]:
        """Return steps with effects that no step of now stands for, and that did the same kind of work.

        Parameters
        ----------
        nodes
            The nodes of now, each with its steps; `None` where these are not known yet.
        parts
            What the step of now depends on.
        """
        kind = "tool" if "tool" in parts else "code" if "code" in parts else "prompt"
        return [
            one
            for node, steps in self._steps.items()
            for identity, group in steps.items()
            if (node not in nodes or _lacks(nodes[node], identity))
            for one in group[:1]
            if one.effect and (one.state == "ok" or one.is_unknown) and _is_alike(kind, one.parts, parts)
        ]

    def unknown(self) -> list[EarlierStep]:
        """Return the steps whose outcome is unknown, as they were the last time."""
        newest = (group[0] for steps in self._steps.values() for group in steps.values())
        return [step for step in newest if step.is_unknown]

    def gone(self, nodes: Iterable[str]) -> Iterator[EarlierStep]:
        """Yield what has done its work and is not in the file any more."""
        for node in self._steps.keys() - set(nodes):
            yield from (group[0] for group in self._steps[node].values() if group[0].effect and group[0].state == "ok")


def _lacks(steps: Iterable[Identity] | None, identity: Identity) -> bool:
    return steps is not None and identity not in steps


def _is_alike(kind: str, one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return kind in one and (kind != "tool" or one[kind] == other[kind])


def identities(items: Iterable[Any]) -> list[Identity]:
    """Return the identity of each item of a list."""
    seen: Counter[str] = Counter()
    numbered = []
    for value in items:
        hashed = digest(value)
        numbered.append((hashed, seen[hashed]))
        seen[hashed] += 1
    return numbered
