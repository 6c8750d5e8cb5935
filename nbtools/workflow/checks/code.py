"""Code of nodes: Python that parses, names that are there, and no expressions inside."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from nbtools.workflow.checks.subject import Subject
from nbtools.workflow.document import SourceText
from nbtools.workflow.findings import allowed
from nbtools.workflow.spec import CodeFile, CodeNode

__all__ = ["check_code"]

# Lines of IPython are no Python: ``%magic``, ``!command`` and ``x = !command``.
_IPYTHON = re.compile(r"^([ \t]*)(?:[%!].*|[\w., ]+=\s*[%!]\w.*)$", re.MULTILINE)
_EXPRESSION = re.compile(r"(?<!\$)\$\{[^}\n]*\}?")
_OURS = re.compile(r"(?<!\$)\$\{\s*(?:inputs|nodes|item|env)\b[^}\n]*\}?")


def check_code(subject: Subject, folder: Path, scripts: list[SourceText]) -> None:
    """Tell what is wrong with the code of the nodes; scripts in files of their own are added to `scripts`."""
    for _, node in subject.nodes.values():
        if not isinstance(node, CodeNode):
            continue
        if isinstance(node.code, CodeFile):
            script = _script(subject, node, node.code.file, folder)
            if script is not None:
                scripts.append(script)
                _check(subject, node, script.text, script)
        else:
            _check(subject, node, node.code, None)


def _script(subject: Subject, node: CodeNode, file: str, folder: Path) -> SourceText | None:
    if "${" in file:
        return None
    try:
        return SourceText((folder / file).read_text(encoding="utf-8"), str(folder / file))
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is no UTF-8 text"
        subject.tell("WF045", subject.place(node, "code", "file"), f"The script cannot be read: {why}.")
        return None


def _check(subject: Subject, node: CodeNode, code: str, script: SourceText | None) -> None:
    def tell(finding: str, offset: int, width: int, message: str, hint: str = "") -> None:
        if script is not None:
            script.tell(finding, (offset, width), message, hint)
        else:
            subject.tell_within(finding, subject.place(node, "code"), offset, width, message, hint)

    is_python = node.language == "python"
    for found in (_EXPRESSION if is_python else _OURS).finditer(code):
        hint = 'Use inputs["…"] and nodes["…"]: code is not filled in.'
        tell("WF034", found.start(), len(found[0]), f"{found[0]:.40} in code stays as it is.", hint)
    if not is_python:
        return
    plain = _IPYTHON.sub(lambda line: f"{line[1]}pass".ljust(len(line[0])), code)
    if code.lstrip().startswith("%%"):
        return
    starts = [0, *(found.end() for found in re.finditer(r"\n", code))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in texts: they run
            flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            tree = compile(plain, "<code>", "exec", flags=flags, dont_inherit=True)
    except SyntaxError as exc:
        line = min(exc.lineno or 1, len(starts))
        offset = starts[line - 1] + max(0, (exc.offset or 1) - 1)
        width = (exc.end_offset or 0) - (exc.offset or 0) if exc.end_lineno == exc.lineno else 1
        tell("WF047", min(offset, max(0, len(code) - 1)), max(1, width), f"This is no Python: {exc.msg}.")
        return
    except (ValueError, RecursionError, MemoryError):
        tell("WF047", 0, 1, "This is no Python: a character or its nesting is not allowed.")
        return
    _check_names(subject, node, tree, code, starts, tell)


def _check_names(subject: Subject, node: CodeNode, tree: ast.AST, code: str, starts: list[int], tell: object) -> None:
    assert callable(tell)
    needed = {edge.target for edge in subject.edges[node.id]}
    lines = code.split("\n")
    parts = list(ast.walk(tree))
    rebound = {n.id for n in parts if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    rebound |= {n.arg for n in parts if isinstance(n, ast.arg)}
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
        before = lines[key.lineno - 1].encode("utf-8")[: key.col_offset].decode("utf-8", "ignore")
        offset, width = starts[key.lineno - 1] + len(before), len(ast.get_source_segment(code, key) or "x")
        value = str(key.value)
        if name == "inputs" and value not in subject.workflow.inputs:
            hint = allowed(value, subject.workflow.inputs, "Inputs")
            tell("WF049", offset, width, f"There is no input {value!r}.", hint)
        elif name != "inputs" and value not in subject.ids:
            tell("WF026", offset, width, f"There is no node {value!r}.", allowed(value, subject.ids, "Nodes"))
        elif name != "inputs" and value not in needed:
            shown = ", ".join((*node.needs, value))
            tell("WF048", offset, width, f"{value!r} is not among the needs.", f"Write needs: [{shown}].")
        elif name != "inputs" and not is_get and subject.may_lack(node, value):
            message = f"{value} may have been skipped, and then it is not there."
            tell("WF033", offset, width, message, f"Write {name}.get({key.value!r}).")


def _keys(parts: list[ast.AST]) -> Iterator[tuple[str, ast.Constant, bool]]:
    """Yield the literal keys with which ``nodes``, ``files`` and ``inputs`` are asked, and whether by ``get``."""
    for found in parts:
        owner: ast.expr | None = None
        key: ast.expr | None = None
        if isinstance(found, ast.Subscript):
            owner, key = found.value, found.slice
        elif isinstance(found, ast.Call) and isinstance(found.func, ast.Attribute) and found.func.attr == "get":
            owner, key = found.func.value, found.args[0] if found.args else None
        is_ours = isinstance(owner, ast.Name) and owner.id in {"nodes", "files", "inputs"}
        if is_ours and isinstance(key, ast.Constant) and isinstance(key.value, str):
            assert isinstance(owner, ast.Name)
            yield owner.id, key, isinstance(found, ast.Call)
