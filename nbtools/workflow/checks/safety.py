"""Safety: secrets that stand in the file, SQL that writes, and text of strangers where it could do harm.

Text of strangers is what a model wrote or the web sent: results of prompt nodes, of tools that talk to the world, of
tools and workflows that got such text. A number, a truth value or one of a few listed texts can do no harm, and code
nodes are taken as the place where someone looks at such text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nbtools.texts.redaction import conceal, is_secret_name
from nbtools.texts.yaml_tree import Branch, Leaf
from nbtools.workflow.checks.subject import Callee, Subject
from nbtools.workflow.document import Place
from nbtools.workflow.expressions import Expression, parse, walk
from nbtools.workflow.schemas import SchemaType
from nbtools.workflow.spec import AskNode, KernelNode, NodeFields, PromptNode, ToolNode, WorkflowNode

_COMMANDS = {("shell", "command"), ("process", "command"), ("process", "args"), ("code_execute", "code")}
_FIXED_HOST = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]+[/?#]")
_TEXTS = {"string", "array", "object"}
_SHORTEST = 4


def check_safety(subject: Subject) -> None:
    """Report secrets, and text of strangers in commands and addresses."""
    for _, node in subject.nodes.values():
        if isinstance(node, ToolNode) and (callee := subject.callee(node.tool)) is not None:
            _check_commands(subject, node, callee)
            if "sql_query" in callee.names:
                _check_query(subject, node)
    _check_secrets(subject)


# -- text of strangers


def find_tainted(subject: Subject) -> None:
    """Find the nodes whose results hold text of strangers; a workflow is one when its outputs do."""
    grown = True
    while grown:
        grown = False
        for name, (_, node) in subject.nodes.items():
            if name not in subject.tainted and _is_tainted(subject, node):
                subject.tainted.add(name)
                grown = True


def leaks(subject: Subject) -> bool:
    """Tell whether the outputs of a workflow hold text of strangers."""
    texts = (text for _, text in walk(subject.workflow.outputs))
    return any(_carries(subject, expression, None) for text in texts for expression in parse(text).expressions)


def _is_tainted(subject: Subject, node: NodeFields) -> bool:
    if isinstance(node, PromptNode):
        return True
    # Code is where a person has written what becomes of such text, and a question is where one looks at it.
    if isinstance(node, KernelNode | AskNode):
        return False
    if isinstance(node, ToolNode):
        callee = subject.callee(node.tool)
        if callee is not None and callee.open_world:
            return True
    elif isinstance(node, WorkflowNode):
        sub = subject.open_sub(node.workflow)
        if sub is not None and leaks(sub):
            return True
    args = [parse(text) for loc, text in subject.texts[node.id] if loc[0] == "args"]
    return any(_carries(subject, expression, node) for template in args for expression in template.expressions)


def _carries(subject: Subject, expression: Expression, node: NodeFields | None) -> bool:
    """Tell whether the value of an expression is text of strangers, or holds some."""
    if expression.root == "item":
        listed = parse(node.for_each).single if node is not None and isinstance(node.for_each, str) else None
        if listed is None or not _carries(subject, listed, None):
            return False
    # Its state, error code or duration are nbtools' own words, whatever strangers wrote in the result.
    elif expression.node not in subject.tainted or expression.steps[1:2] not in {("text",), ("data",), ()}:
        return False
    kind = subject.infer(expression, node)
    return kind is None or _can_hold_text(kind)


def _can_hold_text(kind: SchemaType) -> bool:
    return any(option.kinds() & _TEXTS and not option.is_listed() for option in kind.options())


def _check_commands(subject: Subject, node: ToolNode, callee: Callee) -> None:
    for loc, text in walk(node.args):
        parameter = str(loc[0])
        is_command = any((name, parameter) in _COMMANDS for name in callee.names)
        is_address = parameter == "url" and callee.open_world
        if not (is_command or is_address):
            continue
        before = ""
        for part in parse(text).parts:
            if isinstance(part, str):
                before += part
            elif not _carries(subject, part, node):
                # Stands for a value that is trusted: at the beginning that may be a whole address, its host included.
                before += "x://x" if not before else "x"
            else:
                where = subject.loc_of(node, "args", *loc)
                width = part.end - part.start
                if is_command:
                    message = f"{part.path} is text of a model or of the web, in a command."
                    hint = "Let a code node choose one of a few values."
                    subject.tell_within("WF051", where, part.start, width, message, hint)
                elif not _FIXED_HOST.match(before):
                    message = f"{part.path} is text of a model or of the web, and decides where the address leads."
                    hint = "Begin the address with a fixed host: https://api.example.com/…."
                    subject.tell_within("WF052", where, part.start, width, message, hint)
                before += "x"


def _check_query(subject: Subject, node: ToolNode) -> None:
    """Report SQL that writes, where it is known and the local engine runs it: the verdict needs the text alone."""
    query = node.args.get("query")
    # A query that is filled in is not known yet, and another database has another dialect.
    if not isinstance(query, str) or "${" in query or {"connection", "connection_string"} & node.args.keys():
        return
    from nbtools.sql.verdict.policy import Policy

    verdict = Policy().check(query)
    if not verdict.allowed and verdict.kind not in {None, "SELECT"}:
        where = subject.loc_of(node, "args", "query")
        reason = verdict.reasons[0].removeprefix("line 1: ")
        subject.tell("WF059", where, f"The query is refused: {reason}.", "Write with code, or with another tool.")


# -- secrets


def _check_secrets(subject: Subject) -> None:
    if subject.document.root is not None:
        for loc, leaf, name in _leaves(subject.document.root):
            _check_secret(subject, loc, leaf, name)


def _leaves(node: Leaf | Branch, loc: Place = (), name: str = "") -> Iterator[tuple[Place, Leaf, str]]:
    """Yield every text with its place and the key that names it, in the order of the file; aliases once each."""
    if isinstance(node, Leaf):
        if isinstance(node.value, str) and len(node.value) >= _SHORTEST:
            yield loc, node, name
        return
    for i, item in enumerate(node.items):
        key = None if node.keys is None else node.keys[i].text
        yield from _leaves(item, (*loc, i if key is None else key), name if key is None else key)


def _check_secret(subject: Subject, loc: Place, leaf: Leaf, name: str) -> None:
    text = leaf.value
    if loc[0] == "inputs" and len(loc) > 1:
        name = str(loc[1])
    if is_secret_name(name) and _is_value(loc, text):
        hint = f"Write ${{env.{re.sub('[^A-Za-z0-9]+', '_', name).upper()}}} and set the variable."
        subject.tell("WF050", loc, f"{name} looks like a secret written in the file.", hint)
        return
    hidden = conceal(text)
    if hidden != text and isinstance(hidden, str):
        at = next((i for i, (a, b) in enumerate(zip(text, hidden, strict=False)) if a != b), 0)
        tail = hidden[at + 3 :]
        width = (
            len(text) - at - len(tail) if tail and text.endswith(tail) else len(text[at:].split("\n")[0].split(" ")[0])
        )
        hint = "Write ${env.NAME} and set the variable."
        if loc[0] == "nodes" and loc[-1:] == ("code",):
            hint = "Read it from the environment."
        subject.tell_within("WF050", loc, at, max(1, width), "This looks like a secret.", hint)


def _is_value(loc: Place, text: str) -> bool:
    """Tell whether a text under a secret name is meant as its value: not in a schema's words, nor an expression."""
    if "${" in text or loc[0] not in {"nodes", "tools", "outputs", "inputs"}:
        return False
    if loc[0] == "inputs":
        return loc[2:] == ("default",)
    return "properties" not in loc and any(part in {"args", "fixed_config", "config"} for part in loc)
