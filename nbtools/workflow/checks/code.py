"""Code of nodes: Python that parses, names that are there, no expressions inside; notebooks and their parameters."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.kernels.languages import language_named
from nbtools.texts.python_tree import parse_python
from nbtools.workflow.checks.subject import Subject
from nbtools.workflow.document import SourceText
from nbtools.workflow.expressions import ESCAPE, OURS
from nbtools.workflow.findings import allowed
from nbtools.workflow.notebooks import TAG_IT, read_notebook
from nbtools.workflow.spec import CodeFile, CodeNode, NotebookNode

# Lines of IPython are not Python: ``%magic``, ``!command`` and ``x = !command``.
_IPYTHON = re.compile(r"^([ \t]*)(?:[%!].*|[\w., ]+=\s*[%!]\w.*)$", re.MULTILINE)
# Shells have ${name} and ${name[0]} themselves; a dot in it is what they refuse.
_DOTTED = re.compile(r"(?<![\\$])\$\{\s*(?:inputs|nodes|item|env)\.[^}\n]*\}?")
_KEYS = 'inputs["…"] and nodes["…"]'
_Tell = Callable[..., None]


def check_code(subject: Subject, folder: Path, scripts: list[SourceText]) -> None:
    """Tell what is wrong with the code of the nodes; scripts in their own files are added to `scripts`."""
    for _, node in subject.nodes.values():
        if isinstance(node, NotebookNode):
            _check_notebook(subject, node, folder, scripts)
        if not isinstance(node, CodeNode):
            continue
        if isinstance(node.code, CodeFile):
            script = _script(subject, node, node.code.file, folder)
            if script is not None:
                scripts.append(script)
                _check(subject, node, script.text, script)
        else:
            _check(subject, node, node.code, None)


def _check_notebook(subject: Subject, node: NotebookNode, folder: Path, scripts: list[SourceText]) -> None:
    """Report a notebook that cannot be read, and parameters that it does not have."""
    if "${" in node.notebook:
        return
    path = folder / node.notebook
    try:
        notebook = read_notebook(path)
    except InvalidArguments as exc:
        subject.tell("WF045", subject.loc_of(node, "notebook"), f"{exc.message[0].upper()}{exc.message[1:]}")
        return
    scripts.append(SourceText(notebook.bare_text(), str(path)))
    names = notebook.parameters()
    for name in node.parameters.keys() - names.keys():
        hint = allowed(name, names, "Parameters") if names else TAG_IT
        loc = subject.loc_of(node, "parameters", name)
        subject.tell("WF049", loc, f"The notebook has no parameter {name!r}.", hint, key=True)


def _script(subject: Subject, node: CodeNode, file: str, folder: Path) -> SourceText | None:
    if "${" in file:
        return None
    try:
        return SourceText((folder / file).read_text(encoding="utf-8"), str(folder / file))
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
        subject.tell("WF045", subject.loc_of(node, "code", "file"), f"The script cannot be read: {why}.")
        return None


def _check(subject: Subject, node: CodeNode, code: str, script: SourceText | None) -> None:
    def tell(finding: str, offset: int, width: int, message: str, hint: str = "") -> None:
        if script is not None:
            script.tell(finding, (offset, width), message, hint)
        else:
            subject.tell_within(finding, subject.loc_of(node, "code"), offset, width, message, hint)

    language = language_named(node.language)
    # A script in another file is not a part of this one, where $${ could stand for ${.
    unfilled = "WF034" if script is None else "WF056"
    if language is not None and language.braces == "error":
        for match in _DOTTED.finditer(code):
            _tell_unfilled(tell, match, unfilled, "the variables inputs and nodes")
    if node.language != "python":
        return
    starts = [0, *(match.end() for match in re.finditer(r"\n", code))]
    tree = None if code.lstrip().startswith("%%") else _parsed(code, starts, tell)
    if tree is None:
        return
    for at, match in _literal_braces(tree, code, starts, has_item=node.for_each is not None):
        _tell_unfilled(tell, match, unfilled, _KEYS, at)
    _check_names(subject, node, tree, code, starts, tell)


def _parsed(code: str, starts: list[int], tell: _Tell) -> ast.Module | None:
    """Return the tree of Python code; `None` where there is none, which is told."""
    # As many characters as before, so that places in the tree are places in the code.
    masked = _IPYTHON.sub(lambda line: f"{line[1]}pass".ljust(len(line[0])), code)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in texts: they run
            tree: ast.Module = parse_python(masked, filename="<code>", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            return tree
    except SyntaxError as exc:
        line = min(exc.lineno or 1, len(starts))
        # The usual reason why such a line is not Python: `${…}` was expected to be filled in. That is said instead.
        if match := OURS.search(code.split("\n")[line - 1]):
            _tell_unfilled(tell, match, "WF034", _KEYS, starts[line - 1])
            return None
        offset = starts[line - 1] + max(0, (exc.offset or 1) - 1)
        width = (exc.end_offset or 0) - (exc.offset or 0) if exc.end_lineno == exc.lineno else 1
        tell("WF047", min(offset, max(0, len(code) - 1)), max(1, width), f"This is not Python: {exc.msg}.")
    except (ValueError, RecursionError, MemoryError):
        tell("WF047", 0, 1, "This is not Python: a character or its nesting is not allowed.")
    return None


def _tell_unfilled(tell: _Tell, match: re.Match[str], finding: str, names: str, start: int = 0) -> None:
    escape = f" {ESCAPE}" if finding == "WF034" else ""
    hint = f"Use {names}: code is not filled in.{escape}"
    tell(finding, start + match.start(), len(match[0]), f"{match[0]:.40} in code stays as it is.", hint)


def _literal_braces(
    tree: ast.Module, code: str, starts: list[int], *, has_item: bool
) -> list[tuple[int, re.Match[str]]]:
    """Return what looks like an expression in texts of Python, with where its line of the code starts.

    What stands in an f-string is Python's own, and a docstring is read by people.
    """
    own = {id(part) for one in ast.walk(tree) if isinstance(one, ast.JoinedStr) for part in ast.walk(one)}
    own |= {id(value) for one in ast.walk(tree) if (value := _docstring(one))}
    lines, matches = code.split("\n"), dict[int, re.Match[str]]()
    for one in ast.walk(tree):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and "${" in one.value and id(one) not in own:
            for line in range(one.lineno, (one.end_lineno or one.lineno) + 1):
                for match in OURS.finditer(lines[line - 1]):
                    if match[0] in one.value and (has_item or not match[0].startswith("${item")):
                        matches[starts[line - 1] + match.start()] = match
    return [(at - match.start(), match) for at, match in matches.items()]


def _docstring(tree: Any) -> ast.expr | None:
    body = getattr(tree, "body", None)
    # A text that is all there is of a script is its value.
    is_long = isinstance(body, list) and len(body) > isinstance(tree, ast.Module)
    return body[0].value if is_long and body and isinstance(body[0], ast.Expr) else None


def _check_agent(parts: list[ast.AST], rebound: set[str], starts: list[int], tell: _Tell) -> None:
    """Report ``agent.memory``, which other programs have."""
    for part in parts:
        is_it = isinstance(part, ast.Attribute) and part.attr == "memory" and isinstance(part.value, ast.Name)
        if is_it and isinstance(part, ast.Attribute) and getattr(part.value, "id", "") == "agent":
            if "agent" not in rebound:
                offset = starts[part.lineno - 1] + part.col_offset
                tell("WF060", offset, len("agent.memory"), "There is no agent in code.", "Write memory.")
            return


def _check_names(subject: Subject, node: CodeNode, tree: ast.AST, code: str, starts: list[int], tell: _Tell) -> None:
    needed = {edge.target for edge in subject.edges[node.id]}
    lines = code.split("\n")
    parts = list(ast.walk(tree))
    # Code that sets a name itself means its own, wherever that stands: to follow the flow would find little more.
    rebound = {n.id for n in parts if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    rebound |= {n.arg for n in parts if isinstance(n, ast.arg)}
    imported = {a.asname or a.name for n in parts if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    _check_agent(parts, rebound | imported, starts, tell)
    if node.for_each is None and "item" not in rebound:
        for part in parts:
            if isinstance(part, ast.Name) and part.id == "item":
                before = lines[part.lineno - 1].encode("utf-8")[: part.col_offset].decode("utf-8", "ignore")
                offset = starts[part.lineno - 1] + len(before)
                tell("WF032", offset, 4, "There is no item here.", "The node has no for_each.")
                break
    for name, key, is_get in _keys(parts):
        if name in rebound:
            continue
        # Python counts bytes of UTF-8 in a line, and findings count characters.
        before = lines[key.lineno - 1].encode("utf-8")[: key.col_offset].decode("utf-8", "ignore")
        offset, width = starts[key.lineno - 1] + len(before), len(ast.get_source_segment(code, key) or "x")
        value = str(key.value)
        if name == "inputs" and value not in subject.workflow.inputs:
            hint = allowed(value, subject.workflow.inputs, "Inputs")
            tell("WF049", offset, width, f"There is no input {value!r}.", hint)
        elif name != "inputs" and value not in subject.ids:
            tell("WF026", offset, width, f"There is no node {value!r}.", allowed(value, subject.ids, "Nodes"))
        elif name != "inputs" and value not in needed:
            needs = ", ".join((*node.needs, value))
            hint = f"Write needs: [{needs}]; it may read {', '.join(sorted(needed)) or 'no node so far'}."
            tell("WF048", offset, width, f"{value!r} is not among the needs.", hint)
        elif name != "inputs" and not is_get and subject.may_lack(node, value):
            message = f"{value} may have been skipped, and then it does not exist."
            tell("WF033", offset, width, message, f"Write {name}.get({key.value!r}).")


def _keys(parts: list[ast.AST]) -> Iterator[tuple[str, ast.Constant, bool]]:
    """Yield the literal keys with which ``nodes``, ``files`` and ``inputs`` are asked, and whether by ``get``."""
    for part in parts:
        owner: ast.expr | None = None
        key: ast.expr | None = None
        if isinstance(part, ast.Subscript):
            owner, key = part.value, part.slice
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "get":
            owner, key = part.func.value, part.args[0] if part.args else None
        is_ours = isinstance(owner, ast.Name) and owner.id in {"nodes", "files", "inputs"}
        if is_ours and isinstance(key, ast.Constant) and isinstance(key.value, str):
            assert isinstance(owner, ast.Name)
            yield owner.id, key, isinstance(part, ast.Call)
