"""The JavaScript and CSS of the widgets, as text: files of the package joined into one, nothing built, nothing fetched.

The files are ES modules that import each other, so that editors, linters and Node.js read them as they are. A widget is
sent as one text, since a front end gives it no address that `import` could name: the modules stand in it one after the
other, each behind what it imports, without their ``import`` lines. So all names at the top of the joined files share
one scope.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable
from importlib.resources import files

_IMPORT = re.compile(r'^import [^;]*? from "([^"]+)";\n', re.MULTILINE)
_NAMES = re.compile(r"^import \{([^}]*)\} from", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
# Comments, and blanks where none are needed, are for readers of the files. No literal of ours has a line break or a
# comment's beginning in it, which the linter holds.
_LINE_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)
_BLOCK_COMMENT = re.compile(r"/\*\*(?:(?!\*/).)*\*/ ?", re.DOTALL)
_INDENT = re.compile(r"^[ \n]+", re.MULTILINE)
_OPEN_END = re.compile(r"(?<=[{(\[,])\n")
# Prettier writes a blank on each side of a division, so this begins a regular expression.
_PATTERN = re.compile(r"/(?! )")
_TEXT = re.compile(r"""("(?:[^"\\]|\\.)*"|`[^`]*`)""")
# Not around + and -: one after the other they would mean something else.
_BLANKS = re.compile(r" ?([=<>!&|?:;,(){}\[\]*%]+) ?")


@functools.cache
def module_text(name: str) -> str:
    """Return the ES module of a widget.

    Parameters
    ----------
    name
        Of the widget: ``static/NAME.js`` has ``export default { render }``.
    """
    return joined(f"{name}.js", _read)


def joined(file: str, read: Callable[[str], str]) -> str:
    """Return a module and all that it imports as one text, each behind what it imports.

    Parameters
    ----------
    file
        The path of the module.
    read
        Returns the text of a path.

    Raises
    ------
    ImportError
        Modules import each other in a circle.
    """
    modules: dict[str, str] = {}

    def collect(path: str, importers: tuple[str, ...]) -> None:
        if path in importers:
            raise ImportError(f"these modules import each other in a circle: {' → '.join((*importers, path))}")
        text = read(path)
        for target in _IMPORT.findall(text):
            imported = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if imported not in modules:
                collect(imported, (*importers, path))
        modules[path] = _stripped(_EXPORT.sub("", _IMPORT.sub("", text)))

    collect(file, ())
    return "\n".join(modules.values())


def without_comments(text: str) -> str:
    """Return a module without its comments, empty lines and indents, as it is packed."""
    return _INDENT.sub("", _BLOCK_COMMENT.sub("", _LINE_COMMENT.sub("", text)))


def _stripped(text: str) -> str:
    return _OPEN_END.sub("", "".join(map(_squeezed, without_comments(text).splitlines(keepends=True))))


def _squeezed(line: str) -> str:
    """Return a line without the blanks around its signs; texts in it stay, and a line that may be unclear stays too."""
    if line.count("`") > 2 or _PATTERN.search(line):
        return line
    parts = _TEXT.split(line)
    return "".join(part if at % 2 else _BLANKS.sub(r"\1", part) for at, part in enumerate(parts))


@functools.cache
def part_text(name: str) -> str:
    """Return a part of a widget, which is sent when it is first used: a module that is a function of what it imports.

    Parameters
    ----------
    name
        ``static/NAME.js`` imports only what ``part.js`` hands to it.
    """
    text = _read(f"{name}.js")
    imports = ",".join(f"{names}" for names in _NAMES.findall(text))
    exports = ",".join(re.findall(r"^export const (\w+)", text, re.MULTILINE))
    body = _stripped(_EXPORT.sub("", _IMPORT.sub("", text)))
    return f"export default({{{imports}}})=>{{\n{body}return{{{exports}}};\n}};\n"


@functools.cache
def style_text(*names: str) -> str:
    """Return the colours and spaces of all widgets, and the styles of these parts."""
    return "\n".join(_read(f"{name}.css") for name in ("tokens", *names))


def _read(file: str) -> str:
    return files("nbtools.widgets").joinpath("static", file).read_text(encoding="utf-8")
