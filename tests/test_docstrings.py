"""The examples in docstrings do what they say, and nothing is said in words that no one uses."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_tree import files, nodes_of

_ROOT = Path(__file__).resolve().parent.parent
_MODULES = [
    ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in files(_ROOT / "nbtools")
    if ">>> " in path.read_text(encoding="utf-8")
]

# Words of a translation: say who it is, "again", "in place of".
_STILTED = re.compile(r"\b(?:whoever|somebody|anew)\b|\bin the place of\b|, for one[.,:;)]", re.IGNORECASE)
_TEXTS = [
    path
    for pattern in ("*.md", "nbtools/**/*.*", "notebooks/**/*.md", "notebooks/*.ipynb")
    for path in sorted(_ROOT.glob(pattern))
    if path.suffix in {".py", ".js", ".css", ".md", ".yaml", ".json", ".txt", ".ipynb"}
]


def test_texts_use_no_stilted_words() -> None:
    problems = [
        f"{path.relative_to(_ROOT)}:{number}: {line.strip()[:200]}"
        for path in _TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _STILTED.search(line)
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", _MODULES)
def test_examples_in_docstrings_give_what_they_show(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NBTOOLS_HOME", str(tmp_path / "home"))
    module = importlib.import_module(name)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(module, optionflags=options, report=False)
    assert not result.failed, capsys.readouterr().out


_Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _entries(docstring: str, section: str) -> list[str]:
    """Return the heads of the entries of a section."""
    _, _, rest = f"\n{docstring}\n\n".partition(f"\n{section}\n{'-' * len(section)}\n")
    return re.findall(r"^\S.*$", rest.partition("\n\n")[0], re.MULTILINE)


def _parameters(node: _Documented) -> list[str]:
    """Return what a call names: the parameters of a function or a constructor, or the fields of a dataclass."""
    if isinstance(node, ast.ClassDef):
        makers = (each for each in node.body if getattr(each, "name", "") in {"__init__", "__new__"})
        maker = next(makers, None)
        fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
        return _parameters(maker) if isinstance(maker, _Documented) else [ast.unparse(each) for each in fields]
    args = node.args
    names = [each.arg for each in (*args.posonlyargs, *args.args)]
    names += [f"*{each.arg}" for each in (args.vararg,) if each]
    names += [each.arg for each in args.kwonlyargs]
    names += [f"**{each.arg}" for each in (args.kwarg,) if each]
    return [name for name in names if name not in {"self", "cls"}]


def _problems(source: str) -> Iterator[str]:
    """Yield what is wrong with the entries of parameters and attributes in a source.

    Where a docstring has entries, each parameter has one, except for private ones and for the context of a tool, which
    no caller hands in.
    """
    for node in nodes_of(source):
        docstring = ast.get_docstring(node) if isinstance(node, _Documented) else None
        if docstring is None or not isinstance(node, _Documented):
            continue
        attributes, entries = _entries(docstring, "Attributes"), _entries(docstring, "Parameters")
        for name in attributes:
            if not name.isidentifier():
                yield f"{node.name}, line {node.lineno}: an entry is called {name!r}; each attribute has one"
        silent = {"ctx", *attributes} - {*entries}
        public = [name for name in _parameters(node) if name not in silent and (name in entries or name[0] != "_")]
        if entries and entries != public:
            yield f"{node.name}, line {node.lineno}: the entries are {entries}, the parameters {public}"


def test_each_parameter_has_one_entry_in_the_order_of_the_signature() -> None:
    problems = [
        f"{path.relative_to(_ROOT)}: {problem}"
        for path in files(_ROOT / "nbtools")
        for problem in _problems(path.read_text(encoding="utf-8"))
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "entries", ["a, b\n        Both.", "b\n        It.\n    a\n        It.", "a\n        It.", "c\n        It."]
)
def test_entries_that_do_not_fit_the_signature_are_refused(entries: str) -> None:
    source = f'''
def add(a, b, *, _c=0):
    """Add.

    Parameters
    ----------
    {entries}
    """
'''
    assert list(_problems(source))
