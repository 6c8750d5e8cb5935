"""Calls: tools that exist, arguments that fit their parameters, and the configurations of tools."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from nbtools.contract.registry import Registry
from nbtools.contract.tool import Tool
from nbtools.errors import InvalidArguments, NbtoolsError, nearest
from nbtools.texts.yaml_tree import Branch
from nbtools.workflow import spec
from nbtools.workflow.checks.safety import leaks
from nbtools.workflow.checks.subject import Callee, Subject
from nbtools.workflow.document import Place
from nbtools.workflow.expressions import Expression
from nbtools.workflow.findings import allowed
from nbtools.workflow.schemas import ANY, Misfit, SchemaType

_CODES = {"unknown": "WF037", "missing": "WF038", "literal": "WF039", "reference": "WF030"}


def configure(subject: Subject) -> None:
    """Look up what the tools of the file are made of, and tell what is wrong with their configurations."""
    for name, entry in subject.workflow.tools.items():
        loc: Place = ("tools", name)
        if isinstance(entry, spec.ConfiguredTool):
            source = _source_tool(subject, entry.tool, (*loc, "tool"))
        elif isinstance(entry, spec.ConfiguredWorkflow):
            source = _source_workflow(subject, entry.workflow)
        else:
            source = _source_node(subject, entry, loc)
        if source is None:
            subject.tools[name] = None
            continue
        fixed, exposed = entry.fixed_config, entry.exposed_inputs
        _check_fixed(subject, source, fixed, (*loc, "fixed_config"))
        names = source.parameters.names()
        for i, parameter in enumerate(exposed or ()):
            if parameter not in names and not source.parameters.is_any():
                hint = allowed(parameter, names, "Parameters")
                subject.tell(
                    "WF037", (*loc, "exposed_inputs", i), f"{source.name} has no parameter {parameter!r}.", hint
                )
        subject.tools[name] = _narrowed(subject, source, name, entry, loc)


def _narrowed(subject: Subject, source: Callee, name: str, entry: Any, loc: Place) -> Callee:
    """Return what is left of something to call when some of its parameters are fixed or hidden."""
    fixed = {key: value for key, value in entry.fixed_config.items() if key in source.parameters.names()}
    schema = dict(source.parameters.schema)
    exposed = source.parameters.names() if entry.exposed_inputs is None else list(entry.exposed_inputs)
    # A mapping can be fixed in part: the rest of its keys stays open where the file exposes it.
    both = [key for key in exposed if isinstance(fixed.get(key), Mapping) and entry.exposed_inputs is not None]
    rest = [key for key in exposed if key not in fixed or key in both]
    for key in schema.get("required", ()):
        if key not in fixed and key not in rest:
            message = f"{source.name} needs {key!r}, which is neither fixed nor exposed."
            subject.tell("WF040", loc, message, "Add it to fixed_config or exposed_inputs.", key=True)
    for key in exposed if entry.exposed_inputs is not None else ():
        if key in fixed and key not in both:
            where = (*loc, "exposed_inputs", exposed.index(key))
            subject.tell("WF040", where, f"{key!r} is fixed and exposed at once.", "Take it out of one of them.")
    properties = {key: value for key, value in schema.get("properties", {}).items() if key in rest}
    required = [key for key in schema.get("required", ()) if key in rest and key not in fixed]
    schema |= {"properties": properties, "required": required}
    return Callee(
        name=name,
        parameters=SchemaType(schema),
        returns=source.returns,
        names=source.names | {name},
        preset=frozenset(fixed),
        open_world=source.open_world,
    )


def _source_tool(subject: Subject, name: str, loc: Place) -> Callee | None:
    if subject.registry is not None and name in subject.registry:
        return Callee.of_tool(subject.registry[name])
    _tell_unknown(subject, name, loc, subject.registry or ())
    return None


def _tell_unknown(subject: Subject, name: str, loc: Place, names: Any) -> None:
    if subject.registry is None or "${" in name:
        return
    hint = allowed(name, names, "Tools")
    subject.tell("WF036", loc, f"There is no tool {name!r}.", hint)


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


def _source_node(subject: Subject, entry: spec.ConfiguredNode, loc: Place) -> Callee | None:
    if entry.node not in subject.ids:
        hint = allowed(entry.node, subject.ids, "Nodes")
        subject.tell("WF026", (*loc, "node"), f"There is no node {entry.node!r}.", hint)
        return None
    node = subject.nodes[entry.node][1] if entry.node in subject.nodes else None
    if isinstance(node, spec.ToolNode | spec.WorkflowNode):
        callee = (
            subject.callee(node.tool) if isinstance(node, spec.ToolNode) else _source_workflow(subject, node.workflow)
        )
        return None if callee is None else _without(callee, spec.literals(node.args))
    if node is not None:
        message = f"{entry.node} is a {node.kind} node."
        subject.tell("WF040", (*loc, "node"), message, "Only tool nodes and workflow nodes become tools.")
    return None


def _without(source: Callee, fixed: Mapping[str, Any]) -> Callee:
    """Return something to call without the parameters that are given."""
    schema = dict(source.parameters.schema)
    properties = {key: value for key, value in schema.get("properties", {}).items() if key not in fixed}
    schema |= {"properties": properties, "required": [key for key in schema.get("required", ()) if key not in fixed]}
    parameters = ANY if source.parameters.is_any() else SchemaType(schema)
    return dataclasses.replace(source, parameters=parameters, preset=source.preset | frozenset(fixed))


def _check_fixed(subject: Subject, source: Callee, fixed: Mapping[str, Any], loc: Place) -> None:
    before = len(subject.document.findings)
    _check_args(subject, source, fixed, loc, subject.infer, is_whole=False)
    tool = None if subject.registry is None else subject.registry.get(source.name)
    # What the schema has found would be told a second time in the tool's own words.
    if len(subject.document.findings) > before or not isinstance(tool, Tool):
        return
    # What is filled in has no value yet that a type could judge.
    constants = {key: value for key, value in fixed.items() if "${" not in repr(value)}
    try:
        # What the schema does not say, the tool's own types do.
        Registry([tool]).configured(tool.name, fixed_config=constants)
    except InvalidArguments as exc:
        for problem in exc.data.get("problems", [exc.message]):
            name, _, why = problem.partition(": ")
            key = name.split(".")[0]
            if key in constants:
                subject.tell("WF040", (*loc, key), f"{source.name}: {name}: {why}.")


def check_calls(subject: Subject) -> None:
    """Report tools that are not there, and arguments that do not fit."""
    names = [*subject.tools, *(subject.registry or ())]
    for _, node in subject.nodes.values():
        if isinstance(node, spec.ToolNode):
            callee = _named(subject, node.tool, subject.loc_of(node, "tool"), names)
            if callee is not None:
                _check_args(subject, callee, node.args, subject.loc_of(node, "args"), _infer_in(subject, node))
        elif isinstance(node, spec.WorkflowNode):
            callee = _source_workflow(subject, node.workflow)
            if callee is not None:
                _check_args(subject, callee, node.args, subject.loc_of(node, "args"), _infer_in(subject, node))
        elif isinstance(node, spec.PromptNode):
            for i, offered in enumerate(node.tools or ()):
                _check_offered(subject, offered, subject.loc_of(node, "tools", i), names)
    for i, name in enumerate(subject.workflow.enabled_tools):
        _check_offered(subject, name, ("enabled_tools", i), names)


def _infer_in(subject: Subject, node: spec.NodeFields) -> Callable[[Expression], SchemaType | None]:
    return lambda expression: subject.infer(expression, node)


def _named(subject: Subject, name: str, loc: Place, names: list[str]) -> Callee | None:
    if name in subject.tools or (subject.registry is not None and name in subject.registry):
        return subject.callee(name)
    _tell_unknown(subject, name, loc, names)
    return None


def _check_offered(subject: Subject, offered: str | spec.OfferedTool, loc: Place, names: list[str]) -> None:
    if offered == "*":
        return
    if isinstance(offered, str):
        _named(subject, offered, loc, names)
        return
    callee = _named(subject, offered.name, (*loc, "name"), names)
    if callee is not None:
        _check_args(subject, callee, offered.config, (*loc, "config"), lambda _: ANY, is_whole=False)


def _check_args(
    subject: Subject,
    callee: Callee,
    args: Mapping[str, Any],
    loc: Place,
    infer: Callable[[Expression], SchemaType | None],
    *,
    is_whole: bool = True,
) -> None:
    try:
        misfits = list(callee.parameters.misfits(args, infer))
    except NbtoolsError:
        return
    surplus = [misfit for misfit in misfits if misfit.what == "unknown"]
    # A slip in a name is one mistake, not a missing argument and an unknown one.
    near = {(misfit.loc[:-1], nearest(misfit.message, misfit.hint.split("\n"))) for misfit in surplus}
    for misfit in misfits:
        if misfit.what == "missing":
            counts = bool(misfit.loc) or (is_whole and _is_readable(subject, loc))
            if counts and (misfit.loc, misfit.message) not in near:
                _tell_missing(subject, callee, misfit, loc, has_args=bool(args))
        elif misfit.what == "unknown":
            _tell_surplus(subject, callee, misfit, loc)
        else:
            where = ".".join(map(str, misfit.loc))
            message = f"{where} of {callee.name}: {misfit.message}"
            subject.tell(_CODES[misfit.what], (*loc, *misfit.loc), message, misfit.hint)


def _is_readable(subject: Subject, loc: Place) -> bool:
    """Tell whether arguments are absent or a mapping; what else stands there was told, and left out."""
    key, value = subject.document.at(loc)
    return key is None or key.text != loc[-1] or (isinstance(value, Branch) and value.keys is not None)


def _tell_missing(subject: Subject, callee: Callee, misfit: Misfit, loc: Place, *, has_args: bool) -> None:
    where = (*loc, *misfit.loc)
    schema = callee.parameters.at(misfit.message) if not misfit.loc else None
    about = schema.schema.get("description", "") if schema is not None and isinstance(schema.schema, Mapping) else ""
    message = f"{callee.name} needs {misfit.message!r}, which is not given."
    if not has_args:  # the key that names what is called stands for the args that are not there
        where = (*loc[:-1], "tool" if subject.document.at((*loc[:-1], "tool"))[0] is not None else "workflow")
        subject.tell("WF038", where, message, about)
    else:
        subject.tell("WF038", where, message, about, key=True)


def _tell_surplus(subject: Subject, callee: Callee, misfit: Misfit, loc: Place) -> None:
    names = misfit.hint.split("\n") if misfit.hint else []
    if misfit.message in callee.preset:
        hint = "Its value is fixed in tools."
    else:
        hint = allowed(misfit.message, names, "Parameters")
    noun = "parameter" if len(misfit.loc) == 1 else "key"
    subject.tell("WF037", (*loc, *misfit.loc), f"{callee.name} has no {noun} {misfit.message!r}.", hint, key=True)
