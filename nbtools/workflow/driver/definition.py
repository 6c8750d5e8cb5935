"""What a run runs: the workflow as it was at the start, its scripts, and the tools that its nodes may call."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbtools.contract.registry import Registry
from nbtools.contract.tool import Tool
from nbtools.errors import ConfigInvalid, InvalidArguments, NbtoolsError, did_you_mean
from nbtools.texts.parsing import from_yaml
from nbtools.toolbox.unseen import unseen_by
from nbtools.workflow import spec
from nbtools.workflow.driver.host import WorkflowHost
from nbtools.workflow.expressions import parse, walk
from nbtools.workflow.graph import edges, references
from nbtools.workflow.runs.environment import variables_of, without_variables
from nbtools.workflow.runs.keys import MaskedEnvironment, place_in, texts_of
from nbtools.workflow.runs.log import FrozenRun, RunLog, RunOrder
from nbtools.workflow.schemas import SchemaType
from nbtools.workflow.validation import validate

_FILLED = ("args", "parameters", "prompt", "instructions")
_AGENT_KEYS = ("model", "instructions", "model_settings", "retries", "tool_timeout", "end_strategy", "metadata")


class RunDefinition:
    """The workflow of a run with everything that it names.

    Parameters
    ----------
    path
        The frozen workflow file.
    workflow
        Its model.
    host
        The surroundings.
    folder
        Where relative paths in inputs start.

    Attributes
    ----------
    by_name
        The nodes by their ids.
    """

    def __init__(self, path: Path, workflow: spec.Workflow, host: WorkflowHost, *, folder: Path) -> None:
        self.path = path
        self.workflow = workflow
        self.folder = folder
        self.environment = MaskedEnvironment()
        self._host = host
        self._inner: dict[str, RunDefinition] = {}
        self._sources: dict[str, str] = {}
        self._texts: dict[str, dict[str, Any]] = {}
        self.by_name: Mapping[str, spec.NodeFields] = {node.id: node for node in workflow.nodes}

    @classmethod
    def of_run(cls, run: FrozenRun, host: WorkflowHost) -> RunDefinition:
        """Return what a run was started with.

        Raises
        ------
        ConfigInvalid
            It does not fit the tools of now.
        """
        # The copy of the run's start, but the tools of now: one that is gone must be told before the first step.
        report = validate(run.main, host.tools()).raise_for_errors()
        return cls(run.main, report.workflow, host, folder=Path(run.facts["working_folder"]))

    @functools.cached_property
    def tools(self) -> Registry:
        """The tools that nodes may call: those of the workbench, and those that the file configures."""
        registry = self._host.tools()
        tools: list[Tool] = []
        for name, entry in self.workflow.tools.items():
            if isinstance(entry, spec.ConfiguredTool):
                config = entry.model_dump(exclude_none=True)
                tools.append(registry.create_tool_from_config(config, name=name))
            elif isinstance(entry, spec.ConfiguredNode):
                tools.append(self._node_tool(registry, name, entry))
            else:
                config = {"tool": name, **entry.model_dump(exclude_none=True, exclude={"workflow"})}
                tools.append(self._offered(entry.workflow, name).create_tool_from_config(config, name=name))
        return registry.with_tool(*tools) if tools else registry

    def _node_tool(self, registry: Registry, name: str, entry: spec.ConfiguredNode) -> Tool:
        """Return a node of the file as a tool: what the node sets is fixed."""
        node = self.by_name[entry.node]
        assert isinstance(node, spec.ToolNode | spec.WorkflowNode), "validation lets no other be a tool"
        source = registry if isinstance(node, spec.ToolNode) else self._offered(node.workflow, name)
        config: dict[str, Any] = {"tool": node.tool if isinstance(node, spec.ToolNode) else name}
        config["fixed_config"] = {**spec.literals(node.args), **entry.fixed_config}
        config |= {key: getattr(entry, key) for key in ("description", "exposed_inputs", "on_error")}
        return source.create_tool_from_config({k: v for k, v in config.items() if v is not None}, name=name)

    def _offered(self, path: str, name: str) -> Registry:
        """Return a registry of one workflow file, as a tool of that name."""
        if self._host.workflow_tool is None:
            raise ConfigInvalid(f"tools.{name}: no workflow can be a tool here.")
        return Registry([self._host.workflow_tool(self.path.parent / path, name)])

    def texts(self, node: spec.NodeFields) -> dict[str, Any]:
        """Return the fields of a node in which expressions are filled in when it starts."""
        # Asked for by each item of a node, and always the same.
        if node.id not in self._texts:
            values = {name: getattr(node, name) for name in _FILLED if getattr(node, name, None) is not None}
            if isinstance(node, spec.AskNode):
                question = node.ask.model_dump(include={"approve", "choose", "question"})
                values["ask"] = question
            self._texts[node.id] = values
        return self._texts[node.id]

    def source(self, node: spec.NodeFields) -> str:
        """Return the code of a node, or all that a sub-workflow consists of; the empty text for any other."""
        if node.id not in self._sources:
            texts = [node.source(self.path.parent)] if isinstance(node, spec.KernelNode) else []
            if isinstance(node, spec.WorkflowNode):
                # Its text and not its name: a changed file, or script, inside is a changed step.
                inner = self.inner(node)
                texts = [inner.path.read_text(encoding="utf-8"), *map(inner.source, inner.workflow.nodes)]
            self._sources[node.id] = "\n".join(texts)
        return self._sources[node.id]

    def settings(self, node: spec.NodeFields) -> dict[str, Any]:
        """Return the keys of AgentSpec that hold for a prompt: those of its agent's file, overlaid by its own."""
        if not isinstance(node, spec.PromptNode):
            return {}
        settings: dict[str, Any] = {}
        if node.agent is not None:
            settings = dict(from_yaml((self.path.parent / node.agent).read_text(encoding="utf-8")) or {})
        own = {key: getattr(node, key) for key in _AGENT_KEYS}
        settings |= {key: value for key, value in own.items() if value is not None}
        options = dict(settings.get("model_settings") or {})
        if "script" in options:  # of the model that plays turns
            # AgentSpec has no key for a script, so files of agents carry it among the settings of their model.
            settings |= {"script": options.pop("script"), "model_settings": options}
        return settings

    def offered(self, node: spec.NodeFields) -> tuple[Any, ...]:
        """Return the tools that the model of a node may call, by name or as configurations."""
        if not isinstance(node, spec.PromptNode):
            return ()
        named = node.tools if node.tools is not None else self.workflow.enabled_tools
        return tuple(one if isinstance(one, str) else one.model_dump(exclude_none=True) for one in named)

    def describe(self, node: spec.NodeFields) -> str:
        """Return what says which tool, or which version of a sub-workflow, a node runs."""
        if isinstance(node, spec.ToolNode):
            return self.tools[node.tool].fingerprint if node.tool in self.tools else node.tool
        return self.source(node) if isinstance(node, spec.WorkflowNode) else ""

    def is_repeatable(self, node: spec.NodeFields) -> bool:
        """Tell whether running a node again does no harm: it reads, or its effects are the same a second time."""
        if isinstance(node, spec.ToolNode):
            # What the tool declares, and not what one call of it says: files may have changed since.
            effects = self.tools[node.tool].effects
            return effects.read_only or effects.idempotent
        if isinstance(node, spec.KernelNode):
            return node.idempotent
        if isinstance(node, spec.PromptNode):
            names = [one if isinstance(one, str) else one["name"] for one in self.offered(node)]
            # With a star it is not known what the model will call, so the step counts as one that has effects.
            all_effects = [self.tools[name].effects for name in names if name in self.tools]
            return "*" not in names and all(each.read_only or each.idempotent for each in all_effects)
        return True  # a workflow has its own log, a question does nothing

    def reads_value_of(self, node: spec.NodeFields) -> bool:
        """Tell whether anything needs what a node gave, and not only that it has ended."""
        return node.id in self._values_read

    @functools.cached_property
    def _values_read(self) -> frozenset[str]:
        """The nodes whose values are read: by an expression, by code, or by the schema of their output."""
        used = [one for _, text in walk(self.workflow.outputs) for one in parse(text).expressions]
        read = {node.id for node in self.workflow.nodes if node.output is not None}
        for node in self.workflow.nodes:
            used += [one for _, one in references(node)]
            # Code may reach any node by any way, so its mere mention counts as reading all of them.
            if isinstance(node, spec.CodeNode) and re.search(r"\bnodes\b", self.source(node)):
                read |= {edge.target for edge in edges(node)}
        how = {"ok", "state", "error", "duration_s"}
        return frozenset(read | {one.node for one in used if one.node and one.steps[1:2] and one.steps[1] not in how})

    def why_again(self, node: spec.NodeFields, values: Mapping[str, Any], views: Mapping[str, Any]) -> str:
        """Return why no result of an earlier run can stand for one of now, in words; empty where one can.

        Parameters
        ----------
        node
            The node.
        values
            Its texts with expressions filled in, by field.
        views
            What expressions see: the inputs, and the item.
        """
        if isinstance(node, spec.AskNode):
            return "it asks a person"
        if isinstance(node, spec.ToolNode) and self.tools[node.tool].effects.destructive:
            return "it is destructive"
        if isinstance(node, spec.WorkflowNode):
            inner = self.inner(node)
            views = {"inputs": values["args"], "item": None}
            whys = ((one.id, inner.why_again(one, inner.texts(one), views)) for one in inner.workflow.nodes)
            return next((f"{name} in it: {why}" for name, why in whys if why), "")
        unseen = self._unseen(node, values, views)
        return f"it reads {self.without_secrets(unseen)}, which is not compared" if unseen else ""

    def _unseen(self, node: spec.NodeFields, values: Mapping[str, Any], views: Mapping[str, Any]) -> str:
        """Return what a node reads that is in none of the parts that are compared (`nbtools.workflow.runs.keys`)."""
        if isinstance(node, spec.PromptNode):
            return "what its model asks tools for" if self.offered(node) else ""
        if isinstance(node, spec.ToolNode):
            item = self.tools[node.tool]
            if item.effects.may_reach_out or not item.trusted:
                return "what is beyond this machine"
            # It follows from its arguments alone, also where these hold addresses.
            if item.effects.public:
                return ""
            try:
                reads = item.reads(item.parameters.validate(values["args"])) if callable(item.reads) else item.reads
            except NbtoolsError:
                reads = "what its arguments name"
            return reads or place_in(values, self.folder)
        source = self.source(node)
        inputs = [value for name, value in views["inputs"].items() if name in source]
        return unseen_by(source) or place_in([*texts_of(node, source), views["item"], inputs, values], self.folder)

    # -- secrets

    @property
    def uses_environment(self) -> bool:
        """Whether an expression reads the environment."""
        return bool(self._secret_names)

    @functools.cached_property
    def _secret_names(self) -> frozenset[str]:
        return variables_of(self.workflow)

    def without_secrets(self, value: Any) -> Any:
        """Return a value in which what ``${env.NAME}`` stands for is masked, wherever it appears."""
        return without_variables(self._secret_names, value)

    # -- workflows inside

    def inner(self, node: spec.WorkflowNode) -> RunDefinition:
        """Return the workflow that a node runs."""
        # Each item of a loop asks for it, and to validate a file takes longer than most steps.
        if node.workflow not in self._inner:
            path = self.path.parent / node.workflow
            report = validate(path, self._host.tools()).raise_for_errors()
            self._inner[node.workflow] = RunDefinition(path, report.workflow, self._host, folder=self.folder)
        return self._inner[node.workflow]

    def open_log(self, folder: Path, inputs: Mapping[str, Any]) -> tuple[RunLog, bool]:
        """Return the log of a run of this workflow inside of another, and whether one that was there goes on again."""
        # The files of a run inside lie in the run around it already, and are named from there instead of copied again.
        main, values = os.path.relpath(self.path, folder / "files"), check_inputs(self.workflow, inputs)
        order = RunOrder(workflow=self.workflow.name, source=self.path.name, inputs=values, main=main)
        if not (folder / "run.json").exists():
            FrozenRun.create(folder, order)
            return RunLog(folder), False
        log = RunLog(folder)
        # Other inputs are another run: what was done for the old ones says nothing of these.
        if not log.has_ended and (log.facts["main"], log.facts["inputs"]) == (main, values):
            return log, False
        log.freeze_again(order)
        return log, True


def input_values(texts: Mapping[str, str], workflow: spec.Workflow) -> dict[str, Any]:
    """Return the inputs that a line gives as texts, each read as its schema says."""
    return {name: _input_value(name, text, workflow.inputs.get(name, {})) for name, text in texts.items()}


def _input_value(name: str, text: str, schema: Mapping[str, Any]) -> Any:
    """Return the value of an input: JSON, or the text itself where a text fits."""
    kinds = schema.get("type", "string")
    if kinds == "string" or ("enum" in schema and all(isinstance(one, str) for one in schema["enum"])):
        return text
    try:
        return json.loads(text)
    except ValueError:
        if isinstance(kinds, list) and "string" in kinds:
            return text
        expected = SchemaType(schema).words()
        hint = 'Write it as JSON, such as ["a", "b"] or {"a": 1}.' if {kinds} & {"array", "object"} else None
        raise InvalidArguments(f"the input {name} is {text!r}, but {expected} is expected.", hint=hint) from None


def check_inputs(workflow: spec.Workflow, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all inputs, defaults filled in.

    Raises
    ------
    InvalidArguments
        One is missing, unknown, or does not fit its schema.
    """
    values = {name: schema["default"] for name, schema in workflow.inputs.items() if "default" in schema}
    values |= inputs
    misfits = SchemaType(workflow.input_schema).misfits(values, infer=lambda _: None)
    for misfit in sorted(misfits, key=lambda one: one.what != "unknown"):  # a slip in a name is why another is missing
        where = ".".join(map(str, misfit.loc))
        if misfit.what == "missing":
            given_as = f"Give it: --{misfit.message} VALUE on a command line, {misfit.message}=VALUE to %workflow."
            raise InvalidArguments(
                f"the input {misfit.message!r} of {workflow.name} is not given.",
                hint=f"{_named(workflow)} {given_as}",
            )
        if misfit.what == "unknown":
            hint = did_you_mean(misfit.message, workflow.inputs, _named(workflow))
            raise InvalidArguments(f"{workflow.name} has no input {misfit.message!r}.", hint=hint)
        raise InvalidArguments(
            f"the input {where} of {workflow.name} does not fit: {misfit.message}", hint=misfit.hint or None
        )
    return values


def _named(workflow: spec.Workflow) -> str:
    names = ", ".join(name if "default" in schema else f"{name} (required)" for name, schema in workflow.inputs.items())
    return f"Inputs are {names}." if names else "It takes no inputs."
