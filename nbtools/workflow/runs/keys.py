"""What a step depends on, part by part: whether it can be reused, and if not, why.

Each part has a hash: the tool as it is described, the code, the arguments with their values filled in, the results of
needed nodes that code reads, and each file that an argument, an input or code names, or that code imports. Two steps
with equal parts do the same, where they read nothing else (`RunDefinition.why_again`).
Values of ``${env.NAME}`` are in no part: a key of an account is not a reason to run anything again.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.contract.wire.json_values import find_nested, is_text
from nbtools.workflow.graph import edges, texts
from nbtools.workflow.spec import CodeNode, KernelNode, NodeFields, NotebookNode, PromptNode, ToolNode, WorkflowNode

# Larger files count by size and time: reading them could take longer than the step.
_MOST_HASHED = 64 * 2**20
_ALL_INPUTS = re.compile(r"""\binputs\b(?!\s*(?:\[|\.get\()\s*['"])""")  # and not one by its name
_WORDS = re.compile(r"[\w-]+")
_LONGEST_PATH = 1_000
_QUOTED = re.compile(r"'([^'\n]{1,1000})'|\"([^\"\n]{1,1000})\"")
_PATTERN = re.compile(r"\w[^*?\[]*[*?\[].*\.\w+$|^[^\s*?\[]*/[^\s*?\[]*[*?\[]\S*$")
# Code holds texts in quotes within texts in quotes, and a shell needs none.
_QUOTES = re.compile(r"""\\*['"`]""")
_SHELL = re.compile(r"""[\s'"`;|&<>()=,{}$\\]+""")
_IMPORT = re.compile(r"\bfrom\s+([\w.]+)\s+import\b|\bimport\s+([\w., ]+)")


MOST_FILES = 200
"""Files of a step that are compared."""


class MaskedEnvironment(dict[str, str]):
    """The environment as parts see it: each variable has its own reference as its value."""

    def get(self, name: str, default: Any = None) -> str:
        """Return ``${env.NAME}``."""
        return f"${{env.{name}}}"


def digest(value: Any) -> str:
    """Return the SHA-256, in hexadecimal, of JSON values; what is not JSON counts by its ``repr``."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def key_of(parts: Mapping[str, str]) -> str:
    """Return one hash for all parts."""
    return digest(dict(parts))


# Keys of nodes whose values are separate parts.
_OWN_PARTS = frozenset({"code", "args", "parameters", "prompt", "ask", "for_each"})


def parts_of(
    node: NodeFields,
    values: Mapping[str, Any],
    scope: Mapping[str, Any],
    *,
    described: str = "",
    source: str = "",
    files: Mapping[str, Mapping[str, str]] | None = None,
    folder: Path | None = None,
) -> dict[str, str]:
    """Return the parts that a step depends on, each with its hash.

    Parameters
    ----------
    node
        The node.
    values
        Its texts with expressions filled in, by field.
    scope
        What expressions see: code reads ``inputs`` and the data of the nodes that it needs.
    described
        What says which tool, or which version of a sub-workflow, it is.
    source
        The code.
    files
        The files of needed nodes, by node and name: they count where code names the node behind ``files`` or before a
        slash.
    folder
        Where relative paths of files start; `None` looks at no files.
    """
    parts: dict[str, str] = {}
    if described:
        parts["workflow" if isinstance(node, WorkflowNode) else "tool"] = digest(described)
    # What says when, how often and where a step runs does not change what it gives.
    settings = node.model_dump(
        mode="json", exclude={"id", "description", "needs", "when", "retry", "timeout_s", "resources"}
    )
    for name in {field for (field, *_), _ in texts(node) if isinstance(field, str)} | _OWN_PARTS:
        settings.pop(name, None)
    parts["settings"] = digest(settings)
    if isinstance(node, NotebookNode):
        parts["code"] = digest(source)
    elif isinstance(node, CodeNode):
        parts |= _parts_of_code(node, scope, source, files or {})
    if values:
        parts["prompt" if isinstance(node, PromptNode) else "arguments"] = digest(values)
    if scope.get("item") is not None:
        parts["item"] = digest(scope["item"])
    return parts | file_parts(node, values, scope, source=source, folder=folder)


def texts_of(node: NodeFields, source: str) -> list[str]:
    """Return the texts in which a node's source may name files: in Python that is where quotes are, else each word."""
    is_python = isinstance(node, NotebookNode) or (isinstance(node, CodeNode) and node.language == "python")
    return [source] if is_python else [source, *_SHELL.split(source)]


def file_parts(
    node: NodeFields, values: Mapping[str, Any], scope: Mapping[str, Any], *, source: str, folder: Path | None
) -> dict[str, str]:
    """Return those of the parts that are files, as they are now; see `parts_of`."""
    if folder is None or not isinstance(node, ToolNode | KernelNode | WorkflowNode):
        return {}
    texts_seen = [values, scope.get("item"), *texts_of(node, source)]
    if isinstance(node, CodeNode):
        texts_seen.append(scope["inputs"])
    return {f"file {name}": content for name, content in files_in(texts_seen, folder).items()}


def _parts_of_code(
    node: CodeNode, scope: Mapping[str, Any], source: str, files: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    parts = {"code": digest(source)}
    # An input that the code cannot read, such as one that came later, is nothing that its result depends on.
    words = None if _ALL_INPUTS.search(source) else set(_WORDS.findall(source))
    inputs = {name: value for name, value in scope["inputs"].items() if words is None or name in words}
    parts |= {f"input {name}": digest(value) for name, value in inputs.items()}
    for name in sorted({edge.target for edge in edges(node)}):
        parts[f"result of {name}"] = digest(scope["nodes"].get(name, {}).get("data"))
        entries = sorted(files.get(name, {}).items())
        if entries and ("files" in source or f"{name}/" in source):
            parts[f"files of {name}"] = digest([[one, _content(Path(path))] for one, path in entries])
    return parts


def files_in(values: Iterable[Any], folder: Path) -> Mapping[str, str]:
    """Return the texts among values that name existing files, each with a hash of what the file holds.

    Those that a Python file of these names, or imports, count too.
    """
    contents: dict[str, str] = {}
    queue: list[Any] = [values]
    while queue:
        for name in [name for name in _existing(_named(queue.pop()), folder) if name not in contents]:
            with contextlib.suppress(OSError):  # a file that cannot be read: the step itself will say so
                contents[name] = _content(folder / name)
                if name.endswith(".py"):
                    queue.append((folder / name).read_text(encoding="utf-8", errors="replace"))
    return contents


def file_texts(values: Any, folder: Path) -> Iterator[str]:
    """Yield the texts among values, at any depth, that name existing files: the first 200.

    What stands in quotes inside of a text counts too, such as a file in a query; a pattern names all the files that it
    fits.
    """
    texts = [text for _, text in find_nested(values, is_text)]
    yield from _existing([*texts, *(one or two for text in texts for one, two in _QUOTED.findall(text))], folder)


def _named(values: Any) -> Iterator[str]:
    """Yield what may name a file: texts, what is in quotes in them, words there that look like paths, and modules."""
    for _, text in find_nested(values, is_text):
        yield text
        yield from _QUOTES.split(text)
        for name in _WORDS.findall(" ".join(map(" ".join, _IMPORT.findall(text)))):
            yield from (f"{name}.py", f"{name}/**/*.py")
        for one, two in _QUOTED.findall(text):
            yield one or two
            yield from (word for word in _SHELL.split(one or two) if "/" in word or "." in word)


def place_in(values: Any, folder: Path) -> str:
    """Return the first address or folder that texts among values name, in words: what is there is in no part."""
    names = [name for name in _named(values) if "/" in name]
    if any("://" in name for name in names):
        return "an address"
    # A mere slash, or dots, is as often what joins texts.
    paths = (name for name in names if len(name) < _LONGEST_PATH and "\n" not in name and name.strip("./ "))
    return next((f"the folder {name}" for name in paths if os.path.isdir(folder / name)), "")  # noqa: PTH112 - never raises


def _existing(names: Iterable[str], folder: Path) -> Iterator[str]:
    """Yield the files among names: the first 200."""
    short = (name for name in dict.fromkeys(names) if 0 < len(name) < _LONGEST_PATH and "\n" not in name)
    # A text of a million words must not become a million questions to the file system.
    yield from itertools.islice((file for name in short for file in _files(folder, name)), MOST_FILES)


def _files(folder: Path, name: str) -> Iterator[str]:
    if os.path.isfile(os.path.join(folder, name)):  # noqa: PTH113, PTH118 - each text of each node is looked at
        yield name
    elif _PATTERN.search(name):
        yield from sorted(glob.glob(name, root_dir=folder, recursive=True))[:MOST_FILES]  # noqa: PTH207 - names stay as they are written


def _content(path: Path) -> str:
    with path.open("rb") as handle:
        status = os.fstat(handle.fileno())
        if status.st_size > _MOST_HASHED:
            return f"{status.st_size} bytes of {status.st_mtime_ns}"
        return hashlib.file_digest(handle, "sha256").hexdigest()


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what differs between the parts of two steps, in words; nothing where they are equal.

    Examples
    --------
    >>> changes({"code": "a", "file x.csv": "1"}, {"code": "b", "file x.csv": "1", "item": "2"})
    ['code', 'item']
    """
    return [name for name in {**now, **before} if before.get(name) != now.get(name)]
