"""What runs of workflows need of their surroundings, so that this part knows no workbench and no agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.contract.approval.gate import Approver
from nbtools.contract.execute import LocalExecutor
from nbtools.contract.label import UNLABELLED, Label
from nbtools.contract.registry import Registry
from nbtools.contract.tool import Tool
from nbtools.workflow.spec import PromptNode

if TYPE_CHECKING:
    from nbtools.kernels import Kernels
    from nbtools.memory import AgentMemory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompt:
    """What a prompt node asks a model.

    Attributes
    ----------
    node
        The node; `node.answer` is the JSON Schema of a structured answer.
    text
        The prompt, with expressions filled in.
    instructions
        Sentences that the model is told besides, with expressions filled in.
    settings
        Keys of the agent's file, overlaid by those of the node.
    executor
        Offers the tools that the model may call, and performs the calls; memory tools use the node's scope.
    tokens
        Tokens that may be used at the most; `None` sets no limit.
    usd
        US dollars that may be spent at the most; `None` sets no limit.
    run_id
        The run, under which calls are recorded.
    folder
        Where messages may be kept.
    label
        What the text may hold of what other nodes gave.
    show
        Takes ``(stream, text)`` while the model answers.
    """

    node: PromptNode
    text: str
    instructions: tuple[str, ...]
    settings: Mapping[str, Any]
    executor: LocalExecutor
    tokens: int | None
    usd: float | None
    run_id: str
    folder: Path
    label: Label
    show: Callable[[str, str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptAnswer:
    """A model's answer: the text, the structured answer if one was asked for, its label, and what it used."""

    text: str
    data: Any = None
    label: Label = UNLABELLED
    tokens: int = 0
    usd: float = 0.0


Prompter = Callable[[Prompt], Awaitable[PromptAnswer]]
"""Asks a model and returns the answer; an expected failure is an `nbtools.errors.NbtoolsError`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerRecipe:
    """How another machine makes the surroundings that steps have here, without anything secret.

    Attributes
    ----------
    open
        Returns a `WorkflowHost` and what closes it; it can be pickled, and takes what is left of `functions`.
    functions
        The user's own tools, each by its function and its settings. One that cannot be pickled is left out.
    tools
        Returns the tools that are there as well.
    stays
        Tells whether calls of a tool are for this process alone: someone may have to approve them, or they use what
        lives here.
    memory
        Who has the memory: ``"*"`` is everybody, ``"machine"`` is this machine, ``""`` is this process.
    """

    open: Callable[[Iterable[Any]], tuple[WorkflowHost, Callable[[], None]]]
    functions: tuple[Any, ...]
    tools: Callable[[], Registry]
    stays: Callable[[Tool], bool]
    memory: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkflowHost:
    """The parts of a workbench that runs use.

    Attributes
    ----------
    runs
        The folder of all runs.
    runs_age
        Seconds after which a run that has ended is removed.
    runs_size
        Total bytes of all runs; beyond that, the oldest are removed.
    artifacts
        Returns the folder of what scripts left, which tools may read.
    tools
        Returns the tools that may be called.
    executor
        Returns an executor that asks this approver (`None` asks as the workbench does), with more services and these
        tools.
    perform
        Does something that is not a tool through the door, as `nbtools.contract.execute.perform` does.
    kernels
        Returns the managed kernels.
    memory
        Returns the agent's memory.
    prompter
        Asks models; `None` where there is no agent, and then prompt nodes fail.
    find_model
        Finds a model by its name, and raises where there is none; `None` leaves names unchecked.
    workflow_tool
        Returns a workflow file as a tool of that name.
    recipe
        How the workers of a cluster make the same; `None` where they cannot.
    """

    runs: Path
    artifacts: Callable[[], Path]
    tools: Callable[[], Registry]
    executor: Callable[[Approver | None, Mapping[type, Callable[[], Any]], Registry], LocalExecutor]
    perform: Callable[..., Awaitable[Any]]
    kernels: Callable[[], Kernels]
    memory: Callable[[], AgentMemory]
    prompter: Prompter | None = None
    find_model: Callable[[str], object] | None = None
    workflow_tool: Callable[[Path, str], Tool] | None = None
    recipe: Callable[[], WorkerRecipe] | None = None
    runs_age: float = 90 * 86_400.0
    runs_size: int = 2**30
