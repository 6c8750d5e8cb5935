"""The source of a package as data, and the rules of the house as pure functions over it.

Each rule returns what breaks it, one line for each problem, so that a test can show on a small tree that it fails.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import gc
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """One module: its dotted name, its file below the root, its text and its tree."""

    name: str
    place: str
    text: str
    tree: ast.Module

    @property
    def part(self) -> str:
        """The part directly below the package that it belongs to, "" for the package itself."""
        return self.name.split(".")[1] if "." in self.name else ""

    @property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree."""
        return nodes_of(self.text)

    @property
    def is_package(self) -> bool:
        return Path(self.place).name == "__init__.py"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Import:
    """One imported thing: by whom, what (a module where it is one), and where that stands."""

    source: Source
    target: str
    line: int

    def __str__(self) -> str:
        return f"{self.source.place}:{self.line} imports {self.target}"


@functools.cache
def files(*folders: Path) -> tuple[Path, ...]:
    """Return the Python files below some folders."""
    found = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return tuple(path for path in found if "__pycache__" not in path.parts)


@contextlib.contextmanager
def _objects_that_stay() -> Iterator[None]:
    """Let nobody look for garbage among what is made here, neither now nor while other tests run.

    A million nodes that stay cost each search a second, which is more than all that is read here.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@functools.cache
def tree_of(text: str) -> ast.Module:
    """Return the tree of a text; the whole package takes seconds, so that each text is parsed once."""
    with _objects_that_stay():
        return ast.parse(text)


@functools.cache
def nodes_of(text: str) -> list[ast.AST]:
    """Return all nodes of the tree of a text: many rules look at them."""
    with _objects_that_stay():
        return list(ast.walk(tree_of(text)))


def parsed(path: Path) -> ast.Module:
    """Return the tree of a file."""
    return tree_of(path.read_text(encoding="utf-8"))


@functools.cache
def read(package: Path) -> dict[str, Source]:
    """Read a package; return its modules by their dotted names."""
    found = {}
    for path in files(package):
        relative = path.relative_to(package.parent)
        dotted = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        found[dotted] = Source(name=dotted, place=str(relative), text=text, tree=tree_of(text))
    return found


def start_of(source: Source, node: ast.ImportFrom) -> str:
    """Return the dotted name of the module that `from … import` names."""
    if node.level == 0:
        return node.module or ""
    parts = source.name.split(".")
    above = parts[: len(parts) - node.level + (1 if source.is_package else 0)]
    return ".".join([*above, node.module] if node.module else above)


def imports(sources: Mapping[str, Source]) -> list[Import]:
    """Return every import of every module, those inside functions and under TYPE_CHECKING included."""
    found = []
    for source in sources.values():
        for node in source.nodes:
            if isinstance(node, ast.Import):
                found += [Import(source=source, target=alias.name, line=node.lineno) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                start = start_of(source, node)
                names = [f"{start}.{alias.name}" for alias in node.names]
                targets = {name if name in sources else start for name in names}
                found += [Import(source=source, target=target, line=node.lineno) for target in sorted(targets)]
    return found


def listed_names(source: Source) -> list[str] | None:
    """Return what ``__all__`` of a module lists, `None` where it has none."""
    for node in source.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign)
            return list(ast.literal_eval(node.value))
    return None


def _is_type_variable(value: ast.expr | None) -> bool:
    called = value.func if isinstance(value, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in {"TypeVar", "ParamSpec", "TypeVarTuple"}


def public_names(source: Source) -> set[str]:
    """Return the public names that a module defines; a package also offers what it imports."""
    names: set[str] = set()
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign) and not _is_type_variable(node.value):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif source.is_package and isinstance(node, ast.ImportFrom) and node.module != "__future__":
            inner = start_of(source, node).startswith(f"{source.name}.")
            names |= {alias.asname or alias.name for alias in node.names} if inner else set()
        elif source.is_package and isinstance(node, ast.If):
            # What stands below `if TYPE_CHECKING:` is imported when it is asked for, see `nbtools.ground.lazy.facade`.
            names |= {a.asname or a.name for n in node.body if isinstance(n, ast.ImportFrom) for a in n.names}
    return {name for name in names if isinstance(name, str) and not name.startswith("_")}


def words_of(name: str) -> set[str]:
    """Return the words of an identifier in lower case, each in the singular too."""
    found = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    return found | {word.removesuffix("s") for word in found}


def circles(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the circles of a graph, each as a line."""
    done: set[str] = set()
    found: list[str] = []

    def walk(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            found.append(" → ".join((*trail[trail.index(name) :], name)))
        elif name not in done:
            for target in sorted(graph.get(name, ())):
                walk(target, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        walk(name, ())
    return found


def _unit(package: str, module: str) -> str | None:
    """Return the room or module directly in a package that a module belongs to, "" for the package's own file."""
    if module == package:
        return ""
    return module[len(package) + 1 :].split(".", maxsplit=1)[0] if module.startswith(f"{package}.") else None


def _rooms(sources: Mapping[str, Source], package: str) -> set[str]:
    return {unit for name, source in sources.items() if (unit := _unit(package, name)) and source.is_package}


def wrong_room_imports(
    found: Iterable[Import], sources: Mapping[str, Source], package: str, levels: Iterable[str]
) -> list[str]:
    """Return the imports between rooms of a package that lead up or sideways, and rooms that have no level.

    Parameters
    ----------
    found
        The imports of all modules.
    sources
        The modules by their dotted names.
    package
        The dotted name of the package.
    levels
        From bottom to top, the names of the rooms (sub-packages) and modules of each level, with spaces between.
        A module without a level may stand anywhere, as long as it and the rooms import each other in no circle.
    """
    level_of = {name: level for level, names in enumerate(levels) for name in names.split()}
    units = {unit for name in sources if (unit := _unit(package, name))}
    problems = [f"{package}.{name} has no level in ROOMS" for name in _rooms(sources, package) - level_of.keys()]
    problems += [f"{package}.{name} exists no more: take it out of ROOMS" for name in level_of.keys() - units]
    graph: dict[str, set[str]] = defaultdict(set)
    for item in found:
        mine, theirs = _unit(package, item.source.name), _unit(package, item.target)
        if mine is None or theirs is None or mine == theirs:
            continue
        graph[mine].add(theirs)
        if mine in level_of and theirs in level_of and level_of[theirs] >= level_of[mine]:
            way = "sideways" if level_of[theirs] == level_of[mine] else "up"
            problems.append(f"{item}: that leads {way} from {mine}; imports between rooms lead down")
    return problems + [f"{package}: {circle}" for circle in circles(graph)]


def crowded_packages(sources: Mapping[str, Source], packages: Iterable[str], most: int) -> list[str]:
    """Return the packages with more modules directly in them than `most`."""
    problems = []
    for package in packages:
        rooms = _rooms(sources, package)
        modules = {unit for name in sources if (unit := _unit(package, name)) and unit not in rooms}
        if len(modules) > most:
            problems.append(f"{package} has {len(modules)} modules directly in it, {most} at the most: make a room")
    return problems


def _classes(sources: Mapping[str, Source]) -> list[tuple[str, Source, int]]:
    return [
        (node.name, source, node.lineno)
        for source in sources.values()
        for node in source.nodes
        if isinstance(node, ast.ClassDef)
    ]


def repeated_classes(sources: Mapping[str, Source]) -> dict[str, list[str]]:
    """Return the class names that occur twice, leading underscores ignored, with their places."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, source, line in _classes(sources):
        places[name.lstrip("_")].append(f"{source.place}:{line}")
    return {name: where for name, where in places.items() if len(where) > 1}


def returned_names(sources: Mapping[str, Source], retired: Mapping[str, str]) -> list[str]:
    """Return the modules and classes that have a name of before.

    Parameters
    ----------
    sources
        The modules.
    retired
        ``part.name`` of before to the name of now.
    """
    names = [(f"{source.part}.{source.name.split('.')[-1]}", source.place) for source in sources.values()]
    names += [(f"{source.part}.{name}", f"{source.place}:{line}") for name, source, line in _classes(sources)]
    return [f"{place}: {name} is called {retired[name]} now" for name, place in names if name in retired]


def replaced_private_names(tree: ast.Module) -> list[int]:
    """Return the lines in which a test replaces something private, by ``setattr`` of a name that begins with ``_``."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            names = [arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            found += [node.lineno for name in names[:1] if name.rpartition(".")[2].startswith("_")]
    return found


def meaningless_names(paths: Iterable[Path], forbidden: set[str]) -> list[str]:
    """Return the files and folders whose names say nothing."""
    return [
        f"{path}: {name!r} says nothing; name it for its noun"
        for path in paths
        for name in path.with_suffix("").parts
        if forbidden & set(name.lower().split("_"))
    ]


def _bound_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name, node.lineno


def unnamed_things(sources: Mapping[str, Source], fillers: set[str]) -> list[str]:
    """Return the functions, parameters, variables and attributes whose whole name is a filler, and such classes.

    Parameters
    ----------
    sources
        The modules.
    fillers
        Words that say nothing as a whole name, such as ``found``; leading underscores are ignored.
    """
    bound = [
        (source.place, line, name)
        for source in sources.values()
        for name, line in _bound_names(source.nodes)
        if name.strip("_") in fillers
    ]
    # What an error is called by may be what happened, such as `Cancelled`.
    bound += [
        (source.place, node.lineno, node.name)
        for source in sources.values()
        for node in source.nodes
        if isinstance(node, ast.ClassDef) and source.place != "nbtools/errors.py"
        if node.name.lower() in fillers - {"place", "plain"} or re.fullmatch("_?[A-Z][a-z]+ed", node.name)
    ]
    return [f"{place}:{line}: {name!r} says nothing; name what it is" for place, line, name in bound]


# A text, which may hold a sign of comments, or a comment; the tokenizer of Python takes 20 times as long.
_TEXT_OR_COMMENT = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(\#)[^\n]*""", re.DOTALL
)


def comments_in(text: str) -> int:
    """Return how many lines of Python text have a comment; one that excepts a line from a check gives its reason."""
    return sum(1 for found in _TEXT_OR_COMMENT.finditer(text) if found[1])


@functools.cache
def code_lines(text: str) -> int:
    """Return how many lines of Python text hold code: neither docstrings, nor comments alone, nor nothing."""
    lines = {number for number, line in enumerate(text.split("\n"), 1) if line.strip() and line.strip()[0] != "#"}
    documentation: set[int] = set()
    for node in nodes_of(text):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            documentation.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines - documentation)
