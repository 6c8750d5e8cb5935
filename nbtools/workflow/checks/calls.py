"""Calls: tools that exist, arguments that fit their parameters, and the configurations of tools."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from nbtools.errors import InvalidArguments, NbtoolsError, nearest
from nbtools.registry import Registry
from nbtools.tool import Tool
from nbtools.workflow.checks.safety import leaks
from nbtools.workflow.checks.subject import Callee, Subject
from nbtools.workflow.document import Place
from nbtools.workflow.expressions import Expression
from nbtools.workflow.findings import allowed
from nbtools.workflow.schemas import ANY, Misfit, SchemaType
from nbtools.workflow.spec import (
    ConfiguredNode,
    ConfiguredTool,
    ConfiguredWorkflow,
    NodeFields,
    OfferedTool,
    PromptNode,
    ToolNode,
    WorkflowNode,
    literals,
)
from nbtools.yaml_tree import Branch

_CODES = {"unknown": "WF037", "missing": "WF038", "literal": "WF039", "reference": "WF030"}


def configure(subject: Subject) -> None:
    """Look up what the tools of the file are made of, and tell what is wrong with their configurations."""
    for name, entry in subject.workflow.tools.items():
        place: Place = ("tools", name)
        if isinstance(entry, ConfiguredTool):
            source = _source_tool(subject, entry.tool, (*place, "tool"))
        elif isinstance(entry, ConfiguredWorkflow):
            source = _source_workflow(subject, entry.workflow)
        else:
            source = _source_node(subject, entry, place)
        if source is None:
            subject.tools[name] = None
            continue
        fixed, exposed = entry.fixed_config, entry.exposed_inputs
        _check_fixed(subject, source, fixed, exposed, (*place, "fixed_config"))
        known = source.parameters.names()
        for i, wanted in enumerate(exposed or ()):
            if wanted not in known and not source.parameters.is_any():
                hint = allowed(wanted, known, "Parameters")
                subject.tell(
                    "WF037", (*place, "exposed_inputs", i), f"{source.name} has no parameter {wanted!r}.", hint
                )
        subject.tools[name] = _narrowed(subject, source, name, entry, place)


def _narrowed(subject: Subject, source: Callee, name: str, entry: Any, place: Place) -> Callee:
    """Return what is left of something to call when some of its parameters are fixed or hidden."""
    fixed = {key: value for key, value in entry.fixed_config.items() if key in source.parameters.names()}
    schema = dict(source.parameters.schema)
    exposed = source.parameters.names() if entry.exposed_inputs is None else list(entry.exposed_inputs)
    both = [key for key in exposed if isinstance(fixed.get(key), Mapping) and entry.exposed_inputs is not None]
    left = [key for key in exposed if key not in fixed or key in both]
    for key in schema.get("required", ()):
        if key not in fixed and key not in left:
            message = f"{source.name} needs {key!r}, which is neither fixed nor exposed."
            subject.tell("WF040", place, message, "Add it to fixed_config or exposed_inputs.", key=True)
    for key in exposed if entry.exposed_inputs is not None else ():
        if key in fixed and key not in both:
            where = (*place, "exposed_inputs", exposed.index(key))
            subject.tell("WF040", where, f"{key!r} is fixed and exposed at once.", "Take it out of one of them.")
    properties = {key: value for key, value in schema.get("properties", {}).items() if key in left}
    required = [key for key in schema.get("required", ()) if key in left and key not in fixed]
    schema |= {"properties": properties, "required": required}
    return Callee(
        name=name,
        parameters=SchemaType(schema),
        returns=source.returns,
        names=source.names | {name},
        given=frozenset(fixed),
        open_world=source.open_world,
    )


def _source_tool(subject: Subject, name: str, place: Place) -> Callee | None:
    if subject.registry is not None and name in subject.registry:
        return Callee.of_tool(subject.registry[name])
    _tell_unknown(subject, name, place, subject.registry or ())
    return None


def _tell_unknown(subject: Subject, name: str, place: Place, known: Any) -> None:
    if subject.registry is None or "${" in name:
        return
    hint = allowed(name, known, "Tools")
    subject.tell("WF036", place, f"There is no tool {name!r}.", hint)


def _source_workflow(subject: Subject, path: str) -> Callee | None:
    sub = subject.open_sub(path)
    if sub is None:
        return None
    return Callee(
        name=path,
        parameters=SchemaType(sub.workflow.input_schema),
        returns=sub.outputs_type(),
        open_world=leaks(sub),
    )


def _source_node(subject: Subject, entry: ConfiguredNode, place: Place) -> Callee | None:
    if entry.node not in subject.ids:
        hint = allowed(entry.node, subject.ids, "Nodes")
        subject.tell("WF026", (*place, "node"), f"There is no node {entry.node!r}.", hint)
        return None
    node = subject.nodes[entry.node][1] if entry.node in subject.nodes else None
    if isinstance(node, ToolNode | WorkflowNode):
        found = subject.callee(node.tool) if isinstance(node, ToolNode) else _source_workflow(subject, node.workflow)
        return None if found is None else _without(found, literals(node.args))
    if node is not None:
        message = f"{entry.node} is a {node.kind} node."
        subject.tell("WF040", (*place, "node"), message, "Only tool nodes and workflow nodes become tools.")
    return None


def _without(source: Callee, given: Mapping[str, Any]) -> Callee:
    """Return something to call without the parameters that are given."""
    schema = dict(source.parameters.schema)
    properties = {key: value for key, value in schema.get("properties", {}).items() if key not in given}
    schema |= {"properties": properties, "required": [key for key in schema.get("required", ()) if key not in given]}
    parameters = ANY if source.parameters.is_any() else SchemaType(schema)
    return dataclasses.replace(source, parameters=parameters, given=source.given | frozenset(given))


def _check_fixed(subject: Subject, source: Callee, fixed: Mapping[str, Any], exposed: Any, place: Place) -> None:
    before = len(subject.document.findings)
    _check_args(subject, source, fixed, place, subject.infer, is_whole=False)
    tool = None if subject.registry is None else subject.registry.get(source.name)
    if len(subject.document.findings) > before or not isinstance(tool, Tool):
        return
    plain = {key: value for key, value in fixed.items() if "${" not in repr(value)}
    try:
        # What the schema does not say, the tool's own types do.
        Registry([tool]).configured(tool.name, fixed_config=plain)
    except InvalidArguments as exc:
        for problem in exc.data.get("problems", [exc.message]):
            name, _, why = problem.partition(": ")
            key = name.split(".")[0]
            if key in plain:
                subject.tell("WF040", (*place, key), f"{source.name}: {name}: {why}.")


def check_calls(subject: Subject) -> None:
    """Tell of tools that are not there, and of arguments that do not fit."""
    known = [*subject.tools, *(subject.registry or ())]
    for _, node in subject.nodes.values():
        if isinstance(node, ToolNode):
            callee = _named(subject, node.tool, subject.place(node, "tool"), known)
            if callee is not None:
                _check_args(subject, callee, node.args, subject.place(node, "args"), _infer_in(subject, node))
        elif isinstance(node, WorkflowNode):
            callee = _source_workflow(subject, node.workflow)
            if callee is not None:
                _check_args(subject, callee, node.args, subject.place(node, "args"), _infer_in(subject, node))
        elif isinstance(node, PromptNode):
            for i, offered in enumerate(node.tools or ()):
                _check_offered(subject, offered, subject.place(node, "tools", i), known)
    for i, name in enumerate(subject.workflow.enabled_tools):
        _check_offered(subject, name, ("enabled_tools", i), known)


def _infer_in(subject: Subject, node: NodeFields) -> Callable[[Expression], SchemaType | None]:
    return lambda expression: subject.infer(expression, node)


def _named(subject: Subject, name: str, place: Place, known: list[str]) -> Callee | None:
    if name in subject.tools or (subject.registry is not None and name in subject.registry):
        return subject.callee(name)
    _tell_unknown(subject, name, place, known)
    return None


def _check_offered(subject: Subject, offered: str | OfferedTool, place: Place, known: list[str]) -> None:
    if offered == "*":
        return
    if isinstance(offered, str):
        _named(subject, offered, place, known)
        return
    callee = _named(subject, offered.name, (*place, "name"), known)
    if callee is not None:
        _check_args(subject, callee, offered.config, (*place, "config"), lambda _: ANY, is_whole=False)


def _check_args(
    subject: Subject,
    callee: Callee,
    args: Mapping[str, Any],
    place: Place,
    infer: Callable[[Expression], SchemaType | None],
    *,
    is_whole: bool = True,
) -> None:
    try:
        found = list(callee.parameters.misfits(args, infer))
    except NbtoolsError:
        return
    surplus = [misfit for misfit in found if misfit.what == "unknown"]
    # A slip in a name is one mistake, not a missing argument and an unknown one.
    meant = {(misfit.place[:-1], nearest(misfit.message, misfit.hint.split("\n"))) for misfit in surplus}
    for misfit in found:
        if misfit.what == "missing":
            counts = bool(misfit.place) or (is_whole and _is_readable(subject, place))
            if counts and (misfit.place, misfit.message) not in meant:
                _tell_missing(subject, callee, misfit, place, has_args=bool(args))
        elif misfit.what == "unknown":
            _tell_surplus(subject, callee, misfit, place)
        else:
            where = ".".join(map(str, misfit.place))
            message = f"{where} of {callee.name}: {misfit.message}"
            subject.tell(_CODES[misfit.what], (*place, *misfit.place), message, misfit.hint)


def _is_readable(subject: Subject, place: Place) -> bool:
    """Tell whether arguments are absent or a mapping; what else stands there was told, and left out."""
    key, value = subject.document.at(place)
    return key is None or key.text != place[-1] or (isinstance(value, Branch) and value.keys is not None)


def _tell_missing(subject: Subject, callee: Callee, misfit: Misfit, place: Place, *, has_args: bool) -> None:
    where = (*place, *misfit.place)
    schema = callee.parameters.at(misfit.message) if not misfit.place else None
    said = schema.schema.get("description", "") if schema is not None and isinstance(schema.schema, Mapping) else ""
    message = f"{callee.name} needs {misfit.message!r}, which is not given."
    if not has_args:  # the key that names what is called stands for the args that are not there
        where = (*place[:-1], "tool" if subject.document.at((*place[:-1], "tool"))[0] is not None else "workflow")
        subject.tell("WF038", where, message, said)
    else:
        subject.tell("WF038", where, message, said, key=True)


def _tell_surplus(subject: Subject, callee: Callee, misfit: Misfit, place: Place) -> None:
    names = misfit.hint.split("\n") if misfit.hint else []
    if misfit.message in callee.given:
        hint = "Its value is fixed in tools."
    else:
        hint = allowed(misfit.message, names, "Parameters")
    noun = "parameter" if len(misfit.place) == 1 else "key"
    subject.tell("WF037", (*place, *misfit.place), f"{callee.name} has no {noun} {misfit.message!r}.", hint, key=True)
