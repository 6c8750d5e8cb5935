"""Optional packages are named in their home alone, and extras are promised only where something uses them."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from nbtools.assembly.health import _EXTRAS
from tests.source_tree import Import, Source, imports, read

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "nbtools"

# Optional package to the modules that may name it: its home. Everything else asks the home.
HOMES: dict[str, set[str]] = {
    "adbc_driver_flightsql": {"nbtools.sql"},
    "adbc_driver_manager": {"nbtools.sql"},
    "IPython": {"nbtools", "nbtools.jupyter", "nbtools.kernels", "nbtools.cli", "nbtools.assembly.shared"},
    "anthropic": {"nbtools.agent", "nbtools.memory.anthropic"},
    "anyio": {"nbtools.contract.wire.mcp_lines"},
    "openai": {"nbtools.agent"},
    "google": {"nbtools.agent"},
    "genai_prices": {"nbtools.agent"},
    "pydantic_ai": {"nbtools.agent"},
    "httpx2": {"nbtools.mcp_client"},
    "mcp": {"nbtools.mcp_server", "nbtools.mcp_client", "nbtools.contract.wire.mcp_lines", "nbtools.agent"},
    "mcp_types": {"nbtools.mcp_client"},
    "uvicorn": {"nbtools.mcp_server"},
    "langchain_core": {"nbtools.contract.langchain", "nbtools.contract.registry"},
    "langgraph": {"nbtools.memory.langgraph"},
    "psycopg": {"nbtools.memory", "nbtools.sql"},
    "obstore": {"nbtools.memory", "nbtools.toolbox"},
    "cloudpickle": {"nbtools.workflow"},
    "cryptography": {"nbtools.workflow"},
    "distributed": {"nbtools.workflow"},
    "dask": {"nbtools.workflow"},
    "websocket": {"nbtools.kernels"},
    "sqlalchemy": {"nbtools.sql"},
    "pyspark": {"nbtools.sql"},
    "grpc": {"nbtools.sql"},
    "opentelemetry": {"nbtools.ground.telemetry"},
    "jupyterlab": {"nbtools.cli"},
    "keyring": {"nbtools.sql"},
    "nbclient": {"nbtools.cli", "nbtools.workflow", "nbtools.agent"},
    "nbconvert": {"nbtools.cli"},
    "nbformat": {"nbtools.cli", "nbtools.workflow", "nbtools.agent", "nbtools.jupyter"},
    "openpyxl": {"nbtools.sql"},
    "polars": {"nbtools.sql", "nbtools.kernels", "nbtools.memory"},
    "pyarrow": {"nbtools.sql", "nbtools.kernels", "nbtools.memory"},
    "altair": {"nbtools.kernels"},
    "plotly": {"nbtools.kernels"},
}
# Core packages whose import name is not the name of the distribution, and what they bring along for certain.
CORE_IMPORTS = {"beautifulsoup4": "bs4", "pyyaml": "yaml"}
BROUGHT_ALONG = {
    "annotated_types": "pydantic",
    "pydantic_core": "pydantic",
    "jupyter_core": "jupyter-client",
    "traitlets": "ipython",
    "tornado": "jupyter-client",
    "zmq": "jupyter-client",
    "matplotlib_inline": "ipython",
    "PIL": "matplotlib",
    "numpy": "pandas",
    "pygments": "ipython",
    "prompt_toolkit": "ipython",
    "dateutil": "pandas",
    "comm": "ipywidgets",
    "soupsieve": "beautifulsoup4",
    "urllib3": "requests",
}


def _sources() -> dict[str, Source]:
    return read(ROOT / PACKAGE)


@functools.cache
def _imports() -> list[Import]:
    return imports(_sources())


def _project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _core_packages() -> set[str]:
    names = {re.split(r"[\[<>=~! ;]", line)[0] for line in _project()["dependencies"]}  # type: ignore[attr-defined]
    direct = {CORE_IMPORTS.get(name, name.replace("-", "_")) for name in names}
    return direct | {package for package, through in BROUGHT_ALONG.items() if through in names}


def _needed(source: Source) -> Iterator[tuple[str, int]]:
    """Yield what is imported by `need("package.module", …)`."""
    for node in source.nodes:
        called = getattr(node, "func", None)
        name = getattr(called, "id", getattr(called, "attr", ""))
        if name in {"need", "import_module"} and node.args and isinstance(node.args[0], ast.Constant):
            yield str(node.args[0].value), node.lineno


def _is_at_home(module: str, package: str) -> bool:
    return any(module == home or (home != PACKAGE and module.startswith(f"{home}.")) for home in HOMES[package])


def test_optional_packages_are_named_only_in_their_home() -> None:
    outside = [item for item in _imports() if item.target.split(".")[0] != PACKAGE]
    outside += [
        Import(source=source, target=target, line=line)
        for source in _sources().values()
        for target, line in _needed(source)
        if target.split(".")[0] != PACKAGE
    ]
    known = _core_packages()
    problems = []
    for item in outside:
        package = item.target.split(".")[0]
        if package in HOMES:
            if not _is_at_home(item.source.name, package):
                problems.append(f"{item}: the home of {package} is {', '.join(sorted(HOMES[package]))}")
        elif package not in known and package not in sys.stdlib_module_names:
            problems.append(f"{item}: neither a core dependency nor an optional package with a home in HOMES")
    assert not problems, "\n".join(sorted(problems))


def test_extras_are_promised_only_when_a_module_uses_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name not in {"dev", "test"}}
    nodes = [node for source in _sources().values() for node in source.nodes]
    asked = {
        str(node.value.value)
        for node in nodes
        if isinstance(node, ast.keyword) and node.arg == "extra" and isinstance(node.value, ast.Constant)
    }
    imported = {item.target.split(".")[0] for item in _imports()}
    for name, lines in extras.items():
        packages = {re.split(r"[\[<>=~! ;]", line)[0].replace("-", "_") for line in lines}
        assert name in asked or packages & imported, f"nothing uses the extra {name!r}: do not promise it yet"
    assert asked - extras.keys() == {"forbid"}, "an error names an extra that cannot be installed"
    told = (ROOT / "README.md").read_text(encoding="utf-8").partition("The other extras:")[2].partition(".")[0]
    assert set(re.findall(r"`([a-z]+)`", told)) | {"lab"} == extras.keys()
    assert set(_EXTRAS) == extras.keys(), "doctor shows each extra, and no other"
