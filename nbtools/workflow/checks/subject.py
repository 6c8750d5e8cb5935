"""What the checks look at: one file with its model, the tools it may call, and the types of its results."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from nbtools.contract.schema import data_schema
from nbtools.contract.tool import Tool
from nbtools.workflow import spec
from nbtools.workflow.document import Document, Place
from nbtools.workflow.expressions import Expression, parse
from nbtools.workflow.graph import Edge, edges, skippable, texts
from nbtools.workflow.schemas import ANY, SchemaType

_TEXT = SchemaType({"type": "string"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Callee:
    """What a node, or a model, may call: its parameters, what it returns, and what it is known for.

    Attributes
    ----------
    names
        Its name, and those of the tools that it was made of.
    preset
        Parameters that the file has fixed already.
    open_world
        Whether its result may hold text of strangers.
    """

    name: str
    parameters: SchemaType = ANY
    returns: SchemaType = ANY
    names: frozenset[str] = frozenset()
    preset: frozenset[str] = frozenset()
    open_world: bool = False

    @classmethod
    def of_tool(cls, tool: Tool) -> Callee:
        """Return a tool of the registry as something to call; each tool is looked at once."""
        return _callee(tool)


@functools.lru_cache(maxsize=512)
def _callee(tool: Tool) -> Callee:
    return Callee(
        name=tool.name,
        parameters=SchemaType(tool.schema),
        returns=SchemaType(data_schema(tool)),
        names=frozenset({tool.name, *tool.origins}),
        open_world=tool.effects.open_world,
    )


@dataclasses.dataclass(kw_only=True, eq=False)
class Subject:
    """One file under check.

    Attributes
    ----------
    document
        The source, with places; findings are added to it.
    workflow
        The model of everything that could be read.
    nodes
        The nodes that could be read, by id, with their index in the file.
    ids
        The ids of all nodes, those that could not be read too.
    registry
        The tools; `None` where they are not known, and no tool is unknown then.
    open_sub
        Returns the subject of another workflow file, given its path as it is written; `None` where there is none.
    tools
        What the names of tools in this file stand for; filled by the check of the tools.
    tainted
        Nodes whose results hold text of a model or of the web; filled by the check of safety.
    """

    document: Document
    workflow: spec.Workflow
    nodes: Mapping[str, tuple[int, spec.NodeFields]]
    ids: Mapping[str, int]
    registry: Mapping[str, Tool] | None
    open_sub: Callable[[str], Subject | None]
    tools: dict[str, Callee | None] = dataclasses.field(default_factory=dict)
    tainted: set[str] = dataclasses.field(default_factory=set)
    _data: dict[str, SchemaType] = dataclasses.field(default_factory=dict)
    _results: dict[str, SchemaType] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def edges(self) -> Mapping[str, tuple[Edge, ...]]:
        """Whom each node needs, by id."""
        return {name: edges(node) for name, (_, node) in self.nodes.items()}

    @functools.cached_property
    def skippable(self) -> frozenset[str]:
        """The nodes that a run may skip."""
        return skippable(node for _, node in self.nodes.values())

    def may_lack(self, node: spec.NodeFields, target: str) -> bool:
        """Tell whether a node may run although there is no result of another."""
        if not node.always or target not in self.nodes:
            return False
        return target in self.skippable or (node.finally_ and not self.nodes[target][1].finally_)

    @functools.cached_property
    def texts(self) -> Mapping[str, tuple[tuple[Place, str], ...]]:
        """The texts with expressions of each node, by id, with their places in the node."""
        return {name: tuple(texts(node)) for name, (_, node) in self.nodes.items()}

    @functools.cached_property
    def inputs_type(self) -> SchemaType:
        """Type of the inputs: an object that has these and no others."""
        properties = dict(self.workflow.inputs)
        return SchemaType({"type": "object", "properties": properties})

    def raw_inputs(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the declarations of the inputs as they are written, ``$${`` in them too."""
        raw: Any = self.document.data
        return {name: raw["inputs"][name] for name in self.workflow.inputs}

    def loc_of(self, node: spec.NodeFields, *inner: str | int) -> Place:
        """Return the place of a node, or of something in it."""
        return ("nodes", self.nodes[node.id][0], *inner)

    def tell(self, code: str, loc: Place, message: str, hint: str = "", *, key: bool = False) -> None:
        """Add a finding at the value of a place, or at its key."""
        self.document.tell(code, self.document.span(loc, key=key), message, hint)

    def tell_within(self, code: str, loc: Place, offset: int, width: int, message: str, hint: str = "") -> None:
        """Add a finding at a part of the text at a place."""
        self.document.tell(code, self.document.inner(loc, offset, width), message, hint)

    def callee(self, name: str) -> Callee | None:
        """Return what a tool's name stands for; `None` where that is not known."""
        if name in self.tools:
            return self.tools[name]
        if self.registry is not None and name in self.registry:
            return Callee.of_tool(self.registry[name])
        return None

    def data_type(self, node: spec.NodeFields) -> SchemaType:
        """Return the type of a node's data, the list of its items' where it has ``for_each``."""
        if node.id not in self._data:
            self._data[node.id] = ANY  # a node that leads back to itself is a cycle, which is told elsewhere
            kind = self._item_type(node)
            if node.for_each is not None:
                items = {"anyOf": [kind.schema, {"type": "null"}]} if node.on_item_error == "collect" else kind.schema
                kind = SchemaType({"type": "array", "items": items, "$defs": _definitions(kind)})
            self._data[node.id] = kind
        return self._data[node.id]

    def _item_type(self, node: spec.NodeFields) -> SchemaType:
        if isinstance(node, spec.PromptNode):
            return SchemaType(node.answer) if node.answer is not None else _TEXT
        if node.output is not None:
            return SchemaType(node.output)
        if isinstance(node, spec.ToolNode):
            callee = self.callee(node.tool)
            return callee.returns if callee is not None else ANY
        if isinstance(node, spec.CodeNode):
            return ANY if node.language == "python" else _TEXT
        if isinstance(node, spec.AskNode):
            return _answer_type(node)
        sub = self.open_sub(node.workflow) if isinstance(node, spec.WorkflowNode) else None
        return ANY if sub is None else sub.outputs_type()

    def outputs_type(self) -> SchemaType:
        """Return the type of the workflow's outputs: an object that has these and no others."""
        properties = {name: self.value_type(value).schema for name, value in self.workflow.outputs.items()}
        return SchemaType({"type": "object", "properties": properties, "required": [*properties]})

    def value_type(self, value: Any) -> SchemaType:
        """Return the type of a value whose texts may contain expressions."""
        if isinstance(value, str):
            single = parse(value).single if "${" in value else None
            return _TEXT if single is None else self.infer(single) or ANY
        return ANY

    def item_type(self, node: spec.NodeFields) -> SchemaType:
        """Return the type of ``item`` in a node with ``for_each``."""
        if isinstance(node.for_each, list):
            return ANY
        listed = self.value_type(node.for_each)
        return listed.items()

    def infer(self, expression: Expression, node: spec.NodeFields | None = None) -> SchemaType | None:
        """Return the type of an expression in a node; `None` where it is wrong, which is told elsewhere."""
        kind = self.follow(expression, node)
        if isinstance(kind, int):
            return None
        for call in expression.filters:
            if call.name in _FILTER_TYPES:
                kind = _FILTER_TYPES[call.name]
            elif call.name == "default" and call.args:
                kind = _with_default(kind, call.args[0])
        return kind

    def follow(self, expression: Expression, node: spec.NodeFields | None = None) -> SchemaType | int:
        """Return the type that a path leads to, or the number of the step, from 0, that leads nowhere."""
        root, steps = expression.root, expression.steps
        if root == "env":
            return _TEXT
        if root == "item":
            kind, start = (ANY if node is None else self.item_type(node)), 0
        elif root == "inputs":
            kind, start = self.inputs_type, 0
            if not self.workflow.inputs and steps:
                return 0
        elif root == "nodes" and steps and str(steps[0]) in self.nodes:
            kind, start = self.result_type(self.nodes[str(steps[0])][1]), 1
        else:
            return ANY
        for i, step in enumerate(steps[start:], start):
            inner = kind.at(step)
            if inner is None:
                return i
            kind = inner
        return kind

    def result_type(self, node: spec.NodeFields) -> SchemaType:
        """Return the type of what can be read of a node's result."""
        if node.id not in self._results:
            data = self.data_type(node)
            properties = {**spec.RESULT_FIELDS, "data": data.schema}
            self._results[node.id] = SchemaType(
                {"type": "object", "properties": properties, "$defs": _definitions(data)}
            )
        return self._results[node.id]


def _definitions(kind: SchemaType) -> Mapping[str, Any]:
    definitions = (
        (kind.root or kind.schema or {}).get("$defs", {}) if isinstance(kind.root or kind.schema, Mapping) else {}
    )
    return definitions if isinstance(definitions, Mapping) else {}


def _answer_type(node: spec.AskNode) -> SchemaType:
    question = node.ask
    if isinstance(question, spec.Approve):
        return SchemaType({"const": True})
    if isinstance(question, spec.Fill):
        return SchemaType(question.fill)
    assert isinstance(question, spec.Choose)
    return SchemaType({"enum": question.choose}) if isinstance(question.choose, list) else _TEXT


_FILTER_TYPES = {"json": _TEXT, "join": _TEXT, "len": SchemaType({"type": "integer"})}


def _with_default(kind: SchemaType, value: Any) -> SchemaType:
    if kind.is_any():
        return ANY
    fits = [option.schema for option in kind.options() if option.kinds() != {"null"}]
    return SchemaType({"anyOf": [*fits, {"const": value}]}, kind.root or kind.schema)
