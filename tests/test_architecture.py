"""The rules of the house, held by reading the source: floors, cycles, sizes, names, `__all__`, optional packages.

Everything here is plain `ast`, so a rule holds for a file from the moment it exists. Each message says which line
breaks which rule and what to do about it. The tables are the only places that a new part has to be entered in.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_tree import (
    Import,
    Source,
    circles,
    code_lines,
    comments_in,
    crowded_packages,
    files,
    imports,
    listed_names,
    meaningless_names,
    nodes_of,
    parsed,
    public_names,
    read,
    repeated_classes,
    replaced_private_names,
    returned_names,
    start_of,
    unnamed_things,
    words_of,
    wrong_room_imports,
)

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "nbtools"

# Floor of each part directly below the package. The same picture stands in the docstring of `nbtools`.
FLOORS = {
    "errors": 0,
    "texts": 0,
    "ground": 0,
    "confine": 0,
    "processes": 0,
    "contract": 1,
    "mcp_client": 2,
    "memory": 2,
    "kernels": 2,
    "sql": 2,
    "toolbox": 3,
    "conduct": 3,
    "workflow": 4,
    "agent": 4,
    "assembly": 5,
    "widgets": 5,
    "mcp_server": 6,
    "jupyter": 7,
    "cli": 7,
}
# On these floors the parts are strangers to each other; on the others order is enough, and a cycle breaks it.
STRANGERS = {2, 4, 7}
# The doors of the package and of `python -m nbtools` stand outside the floors, and nobody imports them.
DOORS = {"nbtools", "nbtools.__main__"}

# The rooms of each divided package (`memory`, `sql.verdict`): from bottom to top, the sub-packages and modules of each
# level, with spaces between. Imports between them lead down only. Every sub-package has a level; a module without one
# may stand anywhere, as long as it and the rooms import each other in no circle.
ROOMS: dict[str, list[str]] = {
    "texts": [],
    "ground": [],
    "contract": ["signature wire", "tool", "prepared", "approval", "door", "registry", "execute"],
    "assembly": ["parts", "workbench"],
    "agent": ["models notebook records", "tools", "exports undo", "service"],
    "jupyter": ["line display notebook", "completion magics"],
    "memory": [
        "exact records",
        "repository",
        "calls export rules",
        "duckdb in_memory postgres store",
        "files keeper",
        "anthropic langgraph opening",
    ],
    "kernels": [
        "interface languages",
        "inside runs",
        "jupyter",
        "forked gateway programs",
        "backends pool",
        "sessions",
        "service",
    ],
    "sql": ["results verdict", "engines", "files", "worker", "pages", "connections", "session"],
    "sql.engines": [
        "errors protocol temp_dirs urls",
        "fetch",
        "arrow_servers duckdb postgres sqlalchemy sqlite",
        "policies servers",
    ],
    "sql.verdict": [
        "reviewed verdict",
        "guards",
        "complexity",
        "sqlglot_parser",
        "dialects duckdb",
        "policy",
        "transpile",
    ],
    "workflow": [
        "findings spec",
        "document",
        "expressions",
        "graph schemas",
        "checks runs",
        "validation",
        "driver",
        "offered views",
        "workflow_run",
        "service",
    ],
    "widgets": [
        "live",
        "forms grid",
        "approval_card chat explorer kernel_monitor memory_browser sources_at_hand table tool_form workflow_view",
    ],
    "toolbox": ["named_files policies result_types", "memory_tools", "files scripts web", "commands"],
}
ROOM_MODULES = 12

# Class names that may occur more than once (leading underscores ignored), and why. Those without a reason wait for
# another name.
SAME_NAME: dict[str, str] = {}
# Names that were replaced and do not come back in their part: `part.name` of a module or class to its name of now.
RETIRED_NAMES = {
    "mcp_server.session": "tool_server",
    "mcp_server.watch": "subscriptions",
    "kernels.custody": "warden.client",
    "kernels.folder": "runtime_dir",
    "kernels.guest": "hooks",
    "kernels.luggage": "staging",
    "kernels.nursery": "zygote_client",
    "kernels.pipe": "fd_socket",
    "kernels.porter": "file_transfer",
    "kernels.prologue": "bootstrap",
    "kernels.webchannel": "gateway.client",
    "mcp_client.late": "executor",
    "mcp_client.sieve": "tool_filter",
    "memory.KnownIds": "duckdb.cache.BloomFilter",
    "memory.Meanings": "rules.fts5.QueryExpansion",
    "memory.Place": "duckdb.directory.MemoryDirectory",
    "memory.Stage": "rules.transitions.WriteBatch",
    "memory.decide": "rules.transitions",
    "memory.place": "duckdb.directory",
    "memory.reference": "in_memory",
    "memory.salvage": "duckdb.recovery",
    "memory.transfer": "export",
    "memory.wire": "keeper.protocol",
    "sql.duck": "verdict.duckdb.judge",
    "sql.glot": "sqlglot_parser",
    "sql.isolation": "worker.client",
    "sql.shipping": "shared_frames",
    "sql.Sight": "Violation",
}

# Comments for 100 lines of code in each package: reasons that the code does not tell.
COMMENTS = 4.0
# Lines of code of the whole package: docstrings, comments and blank lines are free.
CODE_LINES = 63_020
FILE_LINES = 600
FUNCTION_LINES = 60  # without the docstring
PROTOCOL_METHODS = 6
PRIVATE_REPLACEMENTS = 5
# Words of our own in the docstring of `nbtools`.
WORDS = 25
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "misc", "core"}

# The one exception that is not an error: it must pass every `except Exception`, as Ctrl-C does.
OUTSIDE_THE_TREE = {"nbtools.errors.Interrupted"}

# Bare participles and fillers: as a whole name they say nothing. `left` and `read` may name a side and a verb.
FILLERS = set(
    re.findall(
        r"\w+",
        """
    found told made given known shown said kept place plain held taken meant asked drawn written wanted
""",
    )
)

# Protocol to its shipped reference or fake, and the suite that all implementations pass.
PROTOCOLS: dict[str, tuple[str, str]] = {
    "nbtools.contract.execute.Executor": (
        "nbtools.contract.execute.LocalExecutor",
        "tests/conformance/test_executors.py",
    ),
    "nbtools.contract.approval.gate.Approver": (
        "nbtools.contract.approval.gate.Nobody",
        "tests/conformance/test_approvers.py",
    ),
    "nbtools.kernels.interface.Backend": (
        "nbtools.kernels.jupyter.spawned.SpawnedBackend",
        "tests/conformance/test_backends.py",
    ),
    "nbtools.kernels.interface.Kernel": (
        "nbtools.kernels.jupyter.spawned.SpawnedBackend",
        "tests/conformance/test_backends.py",
    ),
    "nbtools.memory.files.store.FileStore": (
        "nbtools.memory.files.store.MemoryFileStore",
        "tests/memory/files/test_tool.py",
    ),
    "nbtools.memory.repository.Repository": (
        "nbtools.memory.in_memory.InMemoryRepository",
        "tests/conformance/test_repository.py",
    ),
    "nbtools.contract.signature.parameters.Parameters": (
        "nbtools.contract.signature.parameters.SchemaParameters",
        "tests/conformance/test_parameters.py",
    ),
    "nbtools.sql.engines.protocol.SqlEngine": (
        "nbtools.sql.engines.sqlite.SQLiteEngine",
        "tests/conformance/test_engines.py",
    ),
    "nbtools.workflow.driver.steps.Runner": (
        "nbtools.workflow.driver.steps.StepRunner",
        "tests/conformance/test_runners.py",
    ),
    "nbtools.sql.files.remote.Download": (
        "nbtools.toolbox.web.downloads.Downloads",
        "tests/toolbox/test_downloads.py",
    ),
    "nbtools.sql.results.rows.ResultRows": ("nbtools.sql.results.rows.PythonRows", "tests/conformance/test_engines.py"),
}
# What a suite calls the reference, where that is not the name of its class.
SUITE_WORDS = {"MemoryFileStore": '"records"'}


def _files() -> tuple[Path, ...]:
    return files(ROOT / PACKAGE, ROOT / "tests")


def _sources() -> dict[str, Source]:
    return read(ROOT / PACKAGE)


@functools.cache
def _imports() -> list[Import]:
    return imports(_sources())


def _inner_imports() -> Iterator[Import]:
    return (item for item in _imports() if item.target.split(".")[0] == PACKAGE)


def _listing(problems: list[str]) -> str:
    return "\n" + "\n".join(f"  {problem}" for problem in sorted(problems))


def test_every_part_of_the_package_stands_on_a_floor() -> None:
    parts = {source.part for source in _sources().values() if source.name not in DOORS}
    unknown = sorted(parts - FLOORS.keys())
    assert not unknown, f"{unknown} stand on no floor: enter them in FLOORS here and in the docstring of nbtools"


def test_the_docstring_of_the_package_draws_the_same_floors() -> None:
    picture = ast.get_docstring(_sources()[PACKAGE].tree) or ""
    drawn = {}
    for line in picture.splitlines():
        if found := re.match(r"\s*([0-7])\s+\w+\s", line):
            drawn |= {name.strip("/").removesuffix(".py"): int(found[1]) for name in re.findall(r"[\w/.]+", line)}
    parts = {source.part for source in _sources().values() if source.name not in DOORS}
    known = parts & FLOORS.keys()
    wrong = [f"{part} belongs on floor {FLOORS[part]}" for part in known if drawn.get(part) != FLOORS[part]]
    assert not wrong, f"the picture in nbtools/__init__.py differs:{_listing(wrong)}"


def test_the_map_in_the_readme_draws_the_same_floors() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Map of the code")[2].partition("```\n\n")[0]
    drawn: dict[str, int] = {}
    for line in text.splitlines():
        if found := re.match(r" (\d)  ", line):
            for path in re.findall(r"nbtools/[\w/.{},]+", line):
                head, _, names = path.partition("{")
                inner = names.partition("}")[0].split(",") if names else [""]
                drawn |= {Path(f"{head}{name}").stem: int(found[1]) for name in inner}
    wrong = {part: floor for part, floor in drawn.items() if FLOORS.get(part) != floor}
    assert not wrong, f"README.md draws {wrong}, which is not what FLOORS says"
    missing = {source.part for source in _sources().values() if source.place.count("/") > 1} - drawn.keys()
    assert not missing, f"README.md draws no {sorted(missing)}"


def test_architecture_md_tells_what_each_package_is_and_how_large() -> None:
    sizes: dict[str, int] = {}
    for source in _sources().values():
        sizes[source.part] = sizes.get(source.part, 0) + code_lines(source.text)
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| `nbtools/(\w+?)(?:/|\.py)` \| ([\d,]+) \| (.*) \|$", text, re.MULTILINE)
    assert {part for _, part, _, _ in rows} == FLOORS.keys()
    problems = []
    for floor, part, lines, sentence in rows:
        docstring = ast.get_docstring(_sources()[f"{PACKAGE}.{part}"].tree) or ""
        if sentence != (first := docstring.partition("\n")[0]) or int(floor) != FLOORS[part]:
            problems.append(f"{part} is on floor {FLOORS[part]}: {first}")
        if abs(int(lines.replace(",", "")) - sizes[part]) > max(20, sizes[part] * 0.05):
            problems.append(f"{part} has {sizes[part]:,} lines of code, not {lines}")
    assert not problems, _listing(problems)


def test_words_of_our_own_are_few_and_name_something() -> None:
    picture = ast.get_docstring(_sources()[PACKAGE].tree) or ""
    words = re.findall(r"^ {4}(\w+) +(\w+) {2,}\S", picture.partition("Words with a meaning")[2], re.MULTILINE)
    assert 10 < len(words) <= WORDS, f"the glossary has {len(words)} words, {WORDS} at the most: take the field's word"
    names: dict[str, set[str]] = {}
    for source in _sources().values():
        found = {*source.name.split("."), *re.findall(r"\b\w+\b", source.text)}
        names.setdefault(source.part, set()).update(part for name in found for part in words_of(name))
    problems = [f"nothing in {part} is called {word}" for word, part in words if word not in names.get(part, ())]
    assert not problems, _listing(problems)


def test_imports_lead_down_and_never_sideways() -> None:
    problems = []
    for item in _inner_imports():
        part = item.target.split(".")[1] if "." in item.target else ""
        if item.source.name in DOORS or part not in FLOORS or item.source.part not in FLOORS:
            continue
        mine, theirs = FLOORS[item.source.part], FLOORS[part]
        if theirs > mine:
            problems.append(f"{item}: that leads up from floor {mine} to floor {theirs}; hand it down by argument")
        elif theirs == mine and mine in STRANGERS and part != item.source.part:
            problems.append(f"{item}: neighbours on floor {mine} are strangers; let them meet one floor up")
    assert not problems, _listing(problems)


def test_nothing_inside_imports_the_bare_package() -> None:
    problems = [f"{item}: name the module that defines it" for item in _inner_imports() if item.target in DOORS]
    assert not problems, _listing(problems)


def test_modules_import_each_other_in_no_circle() -> None:
    graph: dict[str, set[str]] = {name: set() for name in _sources()}
    for item in _inner_imports():
        if item.target in graph and item.target != item.source.name:
            graph[item.source.name].add(item.target)
    assert not circles(graph), _listing(circles(graph))


def test_imports_between_rooms_lead_down() -> None:
    rooms = {f"{PACKAGE}.{part}": levels for part, levels in ROOMS.items()}
    problems = [
        line
        for package, levels in rooms.items()
        for line in wrong_room_imports(_imports(), _sources(), package, levels)
    ]
    assert not problems, _listing(problems)


def test_a_package_with_rooms_has_few_modules_beside_them() -> None:
    problems = crowded_packages(_sources(), [f"{PACKAGE}.{part}" for part in ROOMS], ROOM_MODULES)
    assert not problems, _listing(problems)


def test_pages_and_scripts_name_paths_that_are_there() -> None:
    root = Path(__file__).parents[1]
    pages = [*root.glob("*.md"), *(path for path in (root / ".ci").iterdir() if path.is_file())]
    path = re.compile(r"\b(?:nbtools|tests)/[\w./*-]+")
    names = {(page.name, name.rstrip("./")) for page in pages for name in path.findall(page.read_text())}
    assert len(names) > 20
    problems = [
        f"{page}: {name}" for page, name in sorted(names) if not any([*root.glob(name), *root.glob(f"{name}.py")])
    ]
    assert not problems, f"nothing stands at these paths:{_listing(problems)}"


def test_the_package_stays_within_its_lines_of_code() -> None:
    total = sum(code_lines(source.text) for source in _sources().values())
    assert total <= CODE_LINES, f"{total} lines of code: join what exists twice, delete what a rule replaces"


def test_each_package_says_why() -> None:
    counts: dict[str, list[int]] = {}
    for source in _sources().values():
        of_part = counts.setdefault(source.part, [0, 0])
        of_part[0] += comments_in(source.text)
        of_part[1] += code_lines(source.text)
    shares = {part: 100 * comments / lines for part, (comments, lines) in counts.items() if part in FLOORS and lines}
    problems = [
        f"{part} has {share:.1f} comments for 100 lines of code: say why, where the code cannot"
        for part, share in shares.items()
        if share < COMMENTS
    ]
    assert not problems, _listing(problems)


def test_no_two_classes_have_the_same_name() -> None:
    twice = {name: where for name, where in repeated_classes(_sources()).items() if name not in SAME_NAME}
    problems = [f"{name} is a class in {', '.join(where)}" for name, where in twice.items()]
    assert not problems, f"name each for what it is:{_listing(problems)}"


def test_names_that_were_replaced_do_not_come_back() -> None:
    problems = returned_names(_sources(), RETIRED_NAMES)
    assert not problems, _listing(problems)


def test_private_names_stay_within_their_part() -> None:
    problems = []
    for source in _sources().values():
        for node in source.nodes:
            if not isinstance(node, ast.ImportFrom):
                continue
            start = start_of(source, node)
            foreign = start.startswith(f"{PACKAGE}.") and start.split(".")[1] != source.part
            private = [alias.name for alias in node.names if alias.name.startswith("_")] if foreign else []
            problems += [f"{source.place}:{node.lineno} takes {name} out of {start}" for name in private]
    assert not problems, _listing(problems)


def test_no_file_is_longer_than_the_wall() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in _files()}
    problems = [
        f"{path.relative_to(ROOT)}: {lines} lines; a second noun has moved in, give it its own file"
        for path, lines in lengths.items()
        if lines > FILE_LINES
    ]
    assert not problems, _listing(problems)


def test_no_function_is_longer_than_a_page() -> None:
    problems = []
    for path in _files():
        for node in nodes_of(path.read_text(encoding="utf-8")):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                docstring = node.body[0] if ast.get_docstring(node) else None
                free = 0 if docstring is None else (docstring.end_lineno or 0) - docstring.lineno + 1
                lines = node.end_lineno - node.lineno + 1 - free
                if lines > FUNCTION_LINES:
                    problems.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines")
    assert not problems, _listing(problems)


def test_no_file_or_folder_has_a_name_that_means_nothing() -> None:
    problems = meaningless_names([path.relative_to(ROOT) for path in _files()], FORBIDDEN_NAMES)
    assert not problems, _listing(problems)


def test_nothing_is_named_by_a_bare_participle() -> None:
    problems = unnamed_things(_sources(), FILLERS)
    assert not problems, _listing(problems)


def _order(name: str) -> tuple[int, str]:
    kind = 0 if name.isupper() else 1 if name[:1].isupper() else 2
    return kind, name


def test_all_is_sorted_and_lists_exactly_what_a_package_offers() -> None:
    """In a module the underscore says what is private: a list beside it would say the same again."""
    problems = []
    for source in _sources().values():
        listed = listed_names(source)
        if listed is None:
            if source.is_package and public_names(source):
                problems.append(f"{source.place}: has public names but no __all__")
            continue
        if not source.is_package:
            problems.append(f"{source.place}: has __all__, which the underscores of its names say already")
        if listed != sorted(listed, key=_order):
            problems.append(f"{source.place}: __all__ is not sorted (constants, classes, functions)")
        defined = public_names(source)
        # A facade may hand a whole sub-module on.
        extra = {n for n in set(listed) - defined if f"{source.name}.{n}" not in _sources() and not n.startswith("__")}
        if missing := sorted(defined - set(listed)):
            problems.append(f"{source.place}: __all__ lacks {missing}; list them or begin them with an underscore")
        if extra:
            problems.append(f"{source.place}: __all__ lists {sorted(extra)}, which it does not define")
    assert not problems, _listing(problems)


def test_exceptions_are_defined_in_the_tree_of_errors_only() -> None:
    tree = {node.name for node in _sources()["nbtools.errors"].tree.body if isinstance(node, ast.ClassDef)}
    problems = []
    for source in _sources().values():
        if source.name == "nbtools.errors":
            continue
        for node in source.nodes:
            bases = [getattr(b, "id", getattr(b, "attr", "")) for b in getattr(node, "bases", ())]
            raised = [b for b in bases if b in tree or b.endswith(("Error", "Exception", "Interrupt"))]
            # A private one is a signal between the modules of one part, which nobody outside can catch or see.
            if raised and not node.name.startswith("_") and f"{source.name}.{node.name}" not in OUTSIDE_THE_TREE:
                problems.append(f"{source.place}:{node.lineno} defines {node.name}; the tree is nbtools/errors.py")
    assert not problems, _listing(problems)


@functools.cache
def _protocols() -> dict[str, ast.ClassDef]:
    found = {}
    for source in _sources().values():
        for node in source.nodes:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            bases = [b.value if isinstance(b, ast.Subscript) else b for b in node.bases]
            if any(getattr(b, "id", getattr(b, "attr", "")) == "Protocol" for b in bases):
                found[f"{source.name}.{node.name}"] = node
    return found


def test_protocols_are_small() -> None:
    problems = []
    for name, node in _protocols().items():
        defined = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        # A property is data, not behaviour.
        methods = [n.name for n in defined if not any(getattr(d, "id", "") == "property" for d in n.decorator_list)]
        if len(methods) > PROTOCOL_METHODS:
            problems.append(f"{name} has {len(methods)} methods ({', '.join(methods)}), {PROTOCOL_METHODS} at the most")
    assert not problems, _listing(problems)


def test_every_protocol_has_a_reference_and_a_conformance_suite() -> None:
    missing = [f"{name}: enter its reference and its suite in PROTOCOLS" for name in _protocols().keys() - PROTOCOLS]
    gone = [f"{name} exists no more: take it out of PROTOCOLS" for name in PROTOCOLS.keys() - _protocols()]
    problems = missing + gone
    for name in _protocols().keys() & PROTOCOLS.keys():
        reference, suite = PROTOCOLS[name]
        module, _, made = reference.rpartition(".")
        source = _sources().get(module)
        if source is None or made not in public_names(source):
            problems.append(f"{name}: its reference {reference} does not exist")
        if not (ROOT / suite).is_file():
            problems.append(f"{name}: its suite {suite} does not exist")
        elif SUITE_WORDS.get(made, made) not in (ROOT / suite).read_text(encoding="utf-8"):
            problems.append(f"{name}: {suite} does not try the reference {made}")
    assert not problems, _listing(problems)


def test_the_product_knows_no_test_runner_and_no_coverage_tool() -> None:
    named = re.compile(r"pytest|coverage|cov_core", re.IGNORECASE)
    problems = [source.place for source in _sources().values() if named.search(source.text)]
    assert not problems, f"whoever measures prepares the environment:{_listing(problems)}"


def test_tests_replace_few_private_names() -> None:
    tests = [path for path in files(ROOT / "tests") if "setattr" in path.read_text(encoding="utf-8")]
    found = [f"{path.relative_to(ROOT)}:{line}" for path in tests for line in replaced_private_names(parsed(path))]
    told = "a test that replaces what is private pins the inside: hand in what it needs to control"
    assert len(found) <= PRIVATE_REPLACEMENTS, f"{told}:{_listing(found)}"


@pytest.mark.parametrize("mark", ["type: ignore", "noqa"])
def test_every_exception_from_a_check_gives_its_code_and_its_reason(mark: str) -> None:
    form = {"type: ignore": r"# type: ignore\[[\w, -]+\]  ?# ?\S", "noqa": r"# noqa: [A-Z0-9, ]+ ?(-|#) ?\S"}[mark]
    problems = [
        f"{source.place}:{number} {line.strip()}"
        for source in _sources().values()
        for number, line in enumerate(source.text.splitlines(), 1)
        if f"# {mark}" in line and not re.search(form, line)
    ]
    assert not problems, f"say the code and, behind it, the reason:{_listing(problems)}"
