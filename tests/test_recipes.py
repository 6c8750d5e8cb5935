"""What a recipe of CONTRIBUTING.md asks for and a newcomer may forget: each message says what is missing, and where."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

import nbtools.jupyter.magics
import nbtools.memory
import nbtools.sql
import nbtools.toolbox
import nbtools.widgets
from nbtools.contract.registry import Registry
from nbtools.jupyter.catalogue import CATALOGUE
from nbtools.jupyter.magic import Magic
from nbtools.kernels.languages import LANGUAGES, Family
from nbtools.memory.repository import Repository
from nbtools.sql.engines.protocol import SqlEngine
from nbtools.sql.pages.header_profile import ColumnFacts
from nbtools.sql.verdict.policy import DIALECTS
from nbtools.toolbox import STANDARD
from nbtools.widgets.live.live_widget import LiveWidget
from tests.source_tree import parsed, read
from tests.toolbox.test_shelf import SHELF

ROOT = Path(__file__).resolve().parent.parent


@functools.cache
def modules_of(package: ModuleType) -> list[ModuleType]:
    """Import a package with everything below it that no process runs."""
    names = [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


def classes_of(package: ModuleType) -> Iterator[type]:
    """Yield the public classes that a package defines."""
    for module in modules_of(package):
        for name, member in vars(module).items():
            if inspect.isclass(member) and member.__module__ == module.__name__ and not name.startswith("_"):
                yield member


def implementations(package: ModuleType, protocol: type) -> set[str]:
    """Return the names of the classes that have all methods of a protocol."""
    methods = {name for name, member in vars(protocol).items() if inspect.isfunction(member) and name[0] != "_"}
    return {one.__name__ for one in classes_of(package) if one is not protocol and methods <= set(dir(one))}


def texts_of(folder: str, pattern: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).rglob(pattern)))


def test_each_tool_of_a_file_is_in_its_tools() -> None:
    """A tool that is not there is on no shelf, and nothing else says so."""
    missing = []
    for source in read(ROOT / "nbtools").values():
        if source.part != "toolbox":
            continue
        tools = [
            node.name
            for node in source.tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and any(re.match(r"tool\b", ast.unparse(decorator)) for decorator in node.decorator_list)
        ]
        listed = re.search(r"^TOOLS\b.*?= \((.*?)\)", source.text, re.MULTILINE | re.DOTALL)
        words = re.findall(r"\w+", listed[1]) if listed else []
        missing += [f"{source.place}: enter {name} in TOOLS" for name in tools if name not in words]
    assert not missing, missing


def test_each_tool_says_its_effects_and_what_it_destroys_and_has_tests_of_its_own() -> None:
    tests = "\n".join(
        path.read_text("utf-8") for path in (ROOT / "tests/toolbox").glob("*.py") if path.stem != "test_shelf"
    )
    for name, tool in Registry(function for toolset in STANDARD for function in toolset).items():
        effects = tool.effects
        assert not effects.undeclared, f"{name} declares no effects: @tool(read_only=…, destructive=…)"
        # Of a path the door itself says what file would be replaced; what a server does cannot be said.
        parameters = inspect.signature(tool.function).parameters.values()
        is_clear = effects.open_world or any("Path" in str(parameter.annotation) for parameter in parameters)
        assert not effects.destructive or is_clear or tool.consequences_of, (
            f"{name} may destroy: give it consequences_of"
        )
        assert re.search(rf"\b{name}\b", tests), f"no test in tests/toolbox calls {name}"
        assert name in SHELF, f"add a row for {name} to SHELF in tests/toolbox/test_shelf.py"


def test_each_magic_is_in_the_catalogue_is_tested_and_is_in_the_manual() -> None:
    codes = {entry.code for entry in CATALOGUE}
    magics = {
        f"{module.__name__}:{name}"
        for module in modules_of(nbtools.jupyter.magics)
        for name, member in vars(module).items()
        if isinstance(member, Magic)
    }
    assert magics == codes, "CATALOGUE in nbtools/jupyter/catalogue.py has other magics than nbtools/jupyter/magics"
    tests, manual = texts_of("tests/jupyter", "*.py"), texts_of("notebooks", "*.ipynb")
    for entry in CATALOGUE:
        word = re.compile(rf"(?:%|line_magic\(['\"])(?:{'|'.join(entry.names)})\b")
        assert word.search(tests), f"no test in tests/jupyter uses %{entry.name}"
        assert word.search(manual), f"no notebook of the manual shows %{entry.name}"
        examples = (ROOT / "nbtools/jupyter/pages/examples.toml").read_text(encoding="utf-8")
        assert f"\n{entry.name} = " in examples, f"nbtools/jupyter/pages/examples.toml has no example of %{entry.name}"


def test_no_function_of_a_magic_is_long() -> None:
    long = [
        f"{source.place}:{node.lineno}: {node.name}"
        for source in read(ROOT / "nbtools").values()
        if source.place.startswith("nbtools/jupyter/magics/")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 40
    ]
    assert not long, f"move logic below the magics: {long}"


# Engines that no conformance case opens, and the tests that do: their servers take long to start, or are not real ones.
OTHER_ENGINES = {
    "ArrowServerEngine": "tests/sql/engines/test_flight_sql.py",
    "LentDuckDB": "tests/jupyter/test_lent_connections.py",
    "WorkbookReader": "tests/sql/files/test_forms.py",
}


def test_each_engine_passes_the_suite_of_engines() -> None:
    from tests.conformance.test_engines import ENGINES

    engines = implementations(nbtools.sql, SqlEngine)
    assert engines == {*ENGINES.values(), *OTHER_ENGINES}, "enter the engine in tests/conformance/test_engines.py"
    assert all((ROOT / path).is_file() for path in OTHER_ENGINES.values())


def test_each_reviewed_dialect_of_an_engine_can_be_asked() -> None:
    """What was reviewed for a dialect without a name among `DIALECTS` is never read."""
    files = {path.stem for path in (ROOT / "nbtools/sql/verdict/reviewed").glob("*.toml")}
    unread = files - {*DIALECTS, "duckdb_tree", "inquiries", "sqlglot"}
    assert not unread, f"enter {unread} in DIALECTS of nbtools/sql/verdict/policy.py"


@pytest.mark.slow
def test_each_memory_backend_passes_the_suite_of_repositories() -> None:
    from tests.conformance.conftest import OPENERS, REPOSITORIES

    backends = implementations(nbtools.memory, Repository)
    assert backends == set(REPOSITORIES.values()), "enter the backend in tests/conformance/conftest.py"
    assert REPOSITORIES.keys() == {*OPENERS, "postgresql"}, "each backend of REPOSITORIES has an @opener there"
    opening = (ROOT / "nbtools/memory/opening.py").read_text(encoding="utf-8")
    unopened = [name for name in backends - {"InMemoryRepository"} if not re.search(rf"\b{name}\b", opening)]
    assert not unopened, f"open {unopened} by a URL in nbtools/memory/opening.py"


def test_each_language_has_a_script_that_is_run_and_is_told_to_people() -> None:
    tests = (ROOT / "tests/kernels/programs/test_kernel.py").read_text(encoding="utf-8")
    programs = re.findall(r'^    "(\w+)": ', tests.partition("FORTY_TWO = {")[2].partition("}\n")[0], re.MULTILINE)
    assert set(programs) == LANGUAGES.keys() - {"python"}, "add its program to FORTY_TWO in test_kernel.py"
    readme, manual = (ROOT / "README.md").read_text(encoding="utf-8"), texts_of("notebooks", "*.ipynb")
    for language in LANGUAGES.values():
        words = "|".join(map(re.escape, (language.title, language.name, *language.aliases)))
        assert re.search(rf"\b(?:{words})\b", readme + manual), f"neither README nor manual names {language.title}"
        options = (ROOT / "nbtools/jupyter/magics/scripts.options.toml").read_text(encoding="utf-8")
        assert re.search(rf"language = .*\b{language.name}\b", options), f"%%code -h leaves out {language.name}"


def test_each_family_of_languages_is_one_that_an_interpreter_knows() -> None:
    unknown = {language.family for language in LANGUAGES.values()} - {None, *get_args(Family)}
    assert not unknown, (
        f"add a driver for {unknown} to nbtools/kernels/programs/drivers, and it to Family in kernels/languages.py"
    )


def test_what_a_profile_holds_is_what_a_page_reads_and_shows() -> None:
    state = (ROOT / "nbtools/widgets/static/grid/state.js").read_text(encoding="utf-8")
    declared = state.partition("@typedef {object} Facts")[2].partition("*/")[0]
    properties = set(re.findall(r"@property \{.*\} \[?(\w+)", declared)) - {"failed"}
    fields = {field.name for field in dataclasses.fields(ColumnFacts)}
    assert properties == fields, "ColumnFacts and the type Facts of grid/state.js differ"
    pages = texts_of("nbtools/widgets/static", "profiles.js") + texts_of("nbtools/widgets/static", "summary.js")
    # A fact is read by its name, or taken out of all of them, also in a list of parameters.
    reads = r"\bfacts\.{0}\b|\b{0}\b[^=;]*}} = facts|\(\{{[^}}=]*\b{0}\b[^}}=]*\}}\) =>"
    unused = [name for name in sorted(fields) if not re.search(reads.format(name), pages)]
    assert not unused, f"profiles.js and summary.js show nothing of {unused}"
    empty = re.search(r"const NOTHING = \{(.*?)\};", pages, re.DOTALL)
    assert empty is not None
    assert set(re.findall(r"(\w+):", empty[1])) == fields, "give each fact a value in NOTHING of profiles.js"
    tested = (ROOT / "tests/widgets/static/profiles.test.js").read_text(encoding="utf-8")
    assert all(f"  {name}:" in tested for name in fields), "profiles.test.js leaves a fact out"


def widgets() -> list[Any]:
    found = [one for one in classes_of(nbtools.widgets) if issubclass(one, LiveWidget) and not one.__subclasses__()]
    return sorted(found, key=lambda one: one.__name__)


def test_each_widget_has_forms_without_scripts_and_says_what_only_looks() -> None:
    # All are looked at here and not when tests are collected: a widget without its module cannot be imported.
    tests = texts_of("tests/widgets", "*.py") + texts_of("tests/jupyter", "test_widget_magics.py")
    for widget in widgets():
        name = widget.__name__
        assert widget.plain_text is not LiveWidget.plain_text, f"override {name}.plain_text: a terminal shows it"
        assert widget.plain_html is not LiveWidget.plain_html, f"override {name}.plain_html: a saved page shows it"
        answers = {name.removeprefix("answer_") for name in dir(widget) if name.startswith("answer_")}
        assert widget.looks <= answers, f"{widget.looks - answers} are requests that {name} does not answer"
        assert set(widget.lanes) <= answers, f"{set(widget.lanes) - answers} of {name} have lanes, and no answer"
        file = f"test_{widget.__module__.rpartition('.')[2]}.py"
        is_named = re.search(rf"(?<!collections\.)\b{name}\b", tests) is not None
        assert is_named or (ROOT / "tests/widgets" / file).is_file(), (
            f"neither tests/widgets nor test_widget_magics.py names {name}"
        )


def test_this_file_has_a_test_for_each_recipe() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Recipes")[2].partition("\n## ")[0]
    things = [title.split()[-1].removesuffix("s") for title in re.findall(r"^### Add (.*)$", text, re.MULTILINE)]
    tests = [node.name for node in parsed(Path(__file__)).body if isinstance(node, ast.FunctionDef)]
    words = {"script": "language", "SQL": "engine"}
    missing = [thing for thing in things if not any(words.get(thing, thing) in name for name in tests)]
    assert not missing, f"no test here is about {missing}"
