"""Expressions: what they may refer to, whether that is there, and whether their filters and types fit."""

from __future__ import annotations

import re

from nbtools.contract.wire.json_values import find_nested, is_text
from nbtools.workflow.checks.prompts import meant_path
from nbtools.workflow.checks.subject import Subject
from nbtools.workflow.document import Place
from nbtools.workflow.expressions import ESCAPE, FILTERS, OURS, Expression, FilterCall, parse, walk
from nbtools.workflow.findings import allowed
from nbtools.workflow.schemas import SchemaType
from nbtools.workflow.spec import RESULT_FIELDS, AskNode, Choose, CodeFile, CodeNode, NodeFields

_ALWAYS_THERE = {"ok", "state", "error", "duration_s"}
_ARGS: dict[str, tuple[int, int, type]] = {
    "json": (0, 1, int),
    "default": (1, 1, object),
    "len": (0, 0, object),
    "join": (0, 1, str),
}
_TAKES = {"len": {"string", "array", "object"}, "join": {"array"}}
_BRACES = re.compile(r"\{\{-?\s*([A-Za-z_][\w-]*)[^{}]*\}\}")
_FILLED = ("args", "parameters", "prompt", "instructions", "when", "for_each")
_LITERAL = ("tool", "workflow", "agent", "model")


def check_values(subject: Subject) -> None:
    """Tell what is wrong with expressions, and where there is one that is not filled in."""
    workflow = subject.workflow
    for _, node in subject.nodes.values():
        for loc, text in subject.texts[node.id]:
            has_item = node.for_each is not None and loc[0] not in {"when", "for_each"}
            roots = ("inputs", "nodes", "item", "env") if has_item else ("inputs", "nodes", "env")
            _check_text(subject, subject.loc_of(node, *loc), text, roots, node)
        _check_literals(subject, node)
        _check_lists(subject, node)
        _check_condition(subject, node)
        _check_braces(subject, node)
    for loc, text in walk(workflow.outputs):
        _check_text(subject, ("outputs", *loc), text, ("inputs", "nodes"), None)
    for name, tool in workflow.tools.items():
        for loc, text in walk(tool.fixed_config):
            _check_text(subject, ("tools", name, "fixed_config", *loc), text, ("inputs", "env"), None)
    for name, schema in subject.raw_inputs().items():
        default = schema.get("default")
        for match in OURS.finditer(default) if isinstance(default, str) else ():
            message, hint = "Here no expression is filled in.", f"Write the value itself; {ESCAPE}"
            subject.tell_within("WF035", ("inputs", name, "default"), match.start(), len(match[0]), message, hint)
    _check_skipped(subject)


def _check_text(subject: Subject, loc: Place, text: str, roots: tuple[str, ...], node: NodeFields | None) -> None:
    template = parse(text)
    for error in template.errors:
        subject.tell_within("WF023", loc, error.start, error.width, error.message, error.hint)
    for expression in template.expressions:
        kind = _check_path(subject, loc, expression, roots, node)
        if kind is None:
            continue
        kind = _check_filters(subject, loc, expression, kind)
        pasted = kind is not None and template.single is None and kind.kinds() - {"null"} <= {"object", "array"}
        if pasted and kind is not None and kind.kinds() - {"null"}:
            message = f"{expression.path} is {kind.words()}, inside a text."
            _tell(subject, "WF031", loc, expression, message, "Add | json, or | join for a list.")


def _tell(subject: Subject, code: str, loc: Place, expression: Expression, message: str, hint: str = "") -> None:
    subject.tell_within(code, loc, expression.start, expression.end - expression.start, message, hint)


def _check_path(
    subject: Subject, loc: Place, expression: Expression, roots: tuple[str, ...], node: NodeFields | None
) -> SchemaType | None:
    """Return the type that a path leads to; `None` when it leads nowhere, which is told."""
    root, steps = expression.root, expression.steps
    if root not in roots:
        start = expression.places[0]
        if root == "item":
            hint = "A node has one for each item of its for_each."
            subject.tell_within("WF032", loc, start, len(root), "There is no item here.", hint)
            return None
        hint = allowed(root, roots, "Paths begin with")
        if root in subject.ids:
            hint = f"Write nodes.{root}."
        elif root in subject.workflow.inputs:
            hint = f"Write inputs.{root}."
        subject.tell_within("WF024", loc, start, len(root), f"No path begins with {root!r} here.", hint)
        return None
    if root in {"nodes", "inputs", "env"} and not steps:
        noun = {"nodes": "the id of a node", "inputs": "the name of an input", "env": "the name of a variable"}[root]
        _tell(subject, "WF024", loc, expression, f"{noun[0].upper()}{noun[1:]} is missing.", f"Write {root}.NAME.")
        return None
    if expression.node is not None and expression.node not in subject.ids:
        _tell_step(
            subject, "WF026", loc, expression, 0, "There is no node", allowed(str(steps[0]), subject.ids, "Nodes")
        )
        return None
    target = subject.follow(expression, node)
    if isinstance(target, SchemaType):
        return target
    if root == "inputs" and target == 0:
        hint = allowed(str(steps[0]), subject.workflow.inputs, "Inputs")
        _tell_step(subject, "WF025", loc, expression, 0, "There is no input", hint)
    else:
        _tell_nowhere(subject, loc, expression, target, node)
    return None


def _tell_step(
    subject: Subject, code: str, loc: Place, expression: Expression, step: int, message: str, hint: str
) -> None:
    start = expression.places[step + 1]
    name = expression.steps[step]
    subject.tell_within(code, loc, start, len(str(name)), f"{message} {name!r}.", hint)


def _tell_nowhere(subject: Subject, loc: Place, expression: Expression, step: int, node: NodeFields | None) -> None:
    before = Expression(root=expression.root, steps=expression.steps[:step])
    kind = subject.follow(before, node)
    name = str(expression.steps[step])
    hint = ""
    if expression.node is not None and step == 1:
        target = subject.nodes[expression.node][1]
        names = subject.data_type(target).names()
        hint = f"Write {before.path}.data.{name}." if name in names else allowed(name, RESULT_FIELDS, "Results have")
    elif isinstance(kind, SchemaType):
        hint = allowed(name, kind.names(), "It has") if kind.names() else f"It is {kind.words()}."
    _tell_step(subject, "WF027", loc, expression, step, f"{before.path} has no", hint)


def _check_filters(subject: Subject, loc: Place, expression: Expression, kind: SchemaType) -> SchemaType | None:
    """Return the type behind the filters; `None` when one is wrong, which is told."""
    for i, call in enumerate(expression.filters):
        if call.name not in FILTERS:
            hint = allowed(call.name, FILTERS, "Filters")
            subject.tell_within("WF028", loc, call.start, len(call.name), f"There is no filter {call.name!r}.", hint)
            return None
        before = Expression(root=expression.root, steps=expression.steps, filters=expression.filters[:i])
        kind_before = kind if i == 0 else subject.infer(before) or kind
        if problem := _filter_problem(call, kind_before):
            subject.tell_within("WF029", loc, call.start, len(call.name), problem)
            return None
    # The path was followed above; only the filters change its type.
    return (subject.infer(expression) or kind) if expression.filters and expression.root != "item" else kind


def _filter_problem(call: FilterCall, before: SchemaType) -> str:
    least, most, kind = _ARGS[call.name]
    if not least <= len(call.args) <= most:
        return f"{call.name} takes {least if least == most else f'{least} to {most}'} arguments, not {len(call.args)}."
    if call.args and not isinstance(call.args[0], kind):
        return f"{call.name} takes {'a whole number' if kind is int else 'a text'}, not {call.args[0]!r}."
    takes = _TAKES.get(call.name)
    if takes and not before.kinds() & takes:
        return f"{call.name} does not fit {before.words()}."
    return ""


def _check_literals(subject: Subject, node: NodeFields) -> None:
    """Report expressions where none is filled in."""
    fields = vars(node)  # asking a model for what it has not is slow
    literals_of: dict[Place, object] = {(name,): fields[name] for name in _LITERAL if name in fields}
    if isinstance(node, CodeNode) and isinstance(node.code, CodeFile):
        literals_of["code", "file"] = node.code.file
    for loc, value in literals_of.items():
        if isinstance(value, str) and "${" in value:
            hint = "The plan of a run is made before there are values."
            subject.tell("WF035", subject.loc_of(node, *loc), "Here no expression is filled in.", hint)


def _check_lists(subject: Subject, node: NodeFields) -> None:
    """Report places that want a list and get none."""
    lists: dict[Place, object] = {("for_each",): node.for_each}
    if isinstance(node, AskNode) and isinstance(node.ask, Choose):
        lists["ask", "choose"] = node.ask.choose
    for loc, value in lists.items():
        if not isinstance(value, str):
            continue
        template = parse(value)
        kind = subject.infer(template.single) if template.single is not None else SchemaType({"type": "string"})
        if not template.errors and kind is not None and "array" not in kind.kinds():
            source = template.single.path if template.single is not None else repr(value)
            hint = "Write one expression for a list, or a list."
            subject.tell("WF044", subject.loc_of(node, *loc), f"{source} is {kind.words()}, not a list.", hint)


def _check_condition(subject: Subject, node: NodeFields) -> None:
    if not isinstance(node.when, str) or node.when == "always":
        return
    template = parse(node.when)
    if template.single is None and not template.errors:
        hint = 'Write "${…}" with one path, always, true or false.'
        if "${" in node.when:
            hint = "A text with more around the expression is always true."
        subject.tell("WF055", subject.loc_of(node, "when"), f"{node.when!r:.60} is not a condition.", hint)


def _check_braces(subject: Subject, node: NodeFields) -> None:
    """Report ``{{ … }}`` around what would be an expression."""
    roots = {"inputs", "nodes", "item", "env"}
    fields = vars(node)
    filled = {name: fields[name] for name in _FILLED if name in fields}
    for loc, text in find_nested(filled, is_text):
        for match in _BRACES.finditer(text) if "{{" in text else ():
            path = match[0].strip("{}- ")
            if match[1] not in roots:
                # Other programs name an input, or what a step gave, by its bare name.
                path = (
                    f"{path_meant}{path.removeprefix(match[1])}"
                    if (path_meant := meant_path(subject, node, match[1]))
                    else ""
                )
            if path:
                width = len(match[0])
                message = "{{ }} is not an expression."
                subject.tell_within(
                    "WF010", subject.loc_of(node, *loc), match.start(), width, message, f"Write ${{{path}}}."
                )


def _check_skipped(subject: Subject) -> None:
    """Report references to what may have been skipped, in what runs nevertheless."""
    for _, node in subject.nodes.values():
        for edge in subject.edges[node.id]:
            if edge.reference is not None and subject.may_lack(node, edge.target):
                _tell_skipped(subject, subject.loc_of(node, *edge.loc), edge.reference)
    for loc, text in walk(subject.workflow.outputs):
        for expression in parse(text).expressions:
            if expression.node in subject.skippable:
                _tell_skipped(subject, ("outputs", *loc), expression)


def _tell_skipped(subject: Subject, loc: Place, expression: Expression) -> None:
    if not expression.has_default and expression.steps[1:2] and expression.steps[1] not in _ALWAYS_THERE:
        message = f"{expression.node} may have been skipped, and then {expression.path} is not there."
        _tell(subject, "WF033", loc, expression, message, "Add | default(…).")
