"""Health: what is here, what works, and how to get what is missing."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from nbtools.contract.approval.gate import check_names, rules_from_config
from nbtools.contract.tool import Tool
from nbtools.errors import ConfigInvalid, NbtoolsError, nearest
from nbtools.ground.config import Config
from nbtools.ground.home import make_private
from nbtools.ground.lazy import has
from nbtools.ground.paths import HOW_TO_ALLOW
from nbtools.ground.settings_file import SettingsFile
from nbtools.ground.trimming import size_of
from nbtools.texts.parsing import word_lists
from nbtools.texts.visible import counted

# Extra to the package that shows whether it is installed, and what it is for.
_EXTRAS = {name: (words[0], " ".join(words[1:])) for name, words in word_lists(__file__, "extras.words").items()}
_LARGEST = 5
# Of a notebook, by whether it is in a class: see `class_check`.
_PUPIL_BYTES = {False: 360 << 20, True: 200 << 20}
_LEVELS = {
    "off": "run as you do",
    "limits": "have limits of time, memory and processes",
    "strict": "have limits, see only the allowed folders and no network",
}
# Read by a part on its own, or handed to a child.
_OTHER_VARIABLES = frozenset(
    {"NBTOOLS_CHANNEL", "NBTOOLS_CONFIG", "NBTOOLS_KEEPER_IDLE", "NBTOOLS_KERNEL", "NBTOOLS_MCP_TOKEN"}
)


def not_offered(config: Config) -> dict[str, str]:
    """Return the tools that cannot do anything here, which no model is offered, each with what it needs.

    Parameters
    ----------
    config
        The settings in force.
    """
    from nbtools.toolbox.policies import SEARCH_KEYS

    missing = {}
    key = SEARCH_KEYS[config.web_search_provider]
    # By its key alone: asking the provider would need the network, and cost a search.
    if not os.environ.get(key):
        missing["web_search"] = f"set {key}, the key of {config.web_search_provider}"
    if not config.allowed_commands:
        programs = "name the programs that may run in ALLOWED_COMMANDS, such as git,ls,grep"
        missing |= dict.fromkeys(("shell", "process"), programs)
    return missing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    name
        What.
    ok
        `True` when it works, `False` when it should and does not, `None` when it is optional and absent.
    finding
        What was found.
    remedy
        What to do; empty when there is nothing to do.
    """

    name: str
    ok: bool | None
    finding: str
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the check as JSON values."""
        return dataclasses.asdict(self)


def status(config: Config, kernels: Any = None, memory: Any = None, recorder: Any = None) -> dict[str, Any]:
    """Return what a status card shows, without starting anything.

    Parameters
    ----------
    config
        The settings in force.
    kernels
        The managed kernels; `None` where they have not been started.
    memory
        The agent's memory; `None` where it has not been opened.
    recorder
        The record of calls; `None` where none has been opened.
    """
    rows = {row["setting"]: row["value"] for row in config.rows()}
    running = kernels.list() if kernels is not None else []
    return {
        "version": _version("nbtools-kit"),
        "python": platform.python_version(),
        "settings": config.told_of_file(),
        "home": str(config.home),
        "memory": rows["memory_url"] or f"the file {config.home / 'memory.duckdb'}",
        "memory_state": "open" if memory is not None else "not open yet: its first use opens it",
        "calls": recorder.summary() if recorder is not None else "none yet in this process",
        "kernels": counted(len(running), "session") if kernels is not None else "none yet: a script starts one",
        "sandbox": f"your scripts {_LEVELS[config.sandbox]}; a model's {_LEVELS[config.model_sandbox]}",
        "sql": f"DuckDB {_version('duckdb')}; it reads, and cannot change anything",
        "allowed_paths": f"files below {rows['allowed_paths']} may be used",
        "models": _models(config),
        "tools": "all" if config.enabled_tools == ("*",) else rows["enabled_tools"],
    }


def _models(config: Config) -> str:
    """Return which model agents use, and the keys of providers, masked, with where they came from."""
    from nbtools.agent.models.choice import keys

    lines = [f"{row['provider']} {row['key']} from {row['source']}" for row in keys(config.models) if row["key"]]
    default = f"agents use {config.model}" if config.model else "agents use the model that is named"
    return f"{default}; keys: {', '.join(lines) or 'none is set'}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def doctor(bench: Any) -> list[Check]:
    """Check each part of a workbench for real, starting what has to be started."""
    config: Config = bench.config
    parts: dict[str, Callable[[], Check]] = {
        "Python": lambda: Check(name="Python", ok=sys.version_info >= (3, 11), finding=platform.python_version()),
        "package": _distribution,
        "settings": lambda: _settings(config),
        "home": lambda: _home(config),
        "folders": lambda: _folders(config),
        "memory": lambda: _memory(bench.memory),
        "kernels": lambda: _kernels(bench.kernels),
        "confinement": _host,
        "sql": lambda: _sql(bench.sql_session),
        "tools": lambda: _tools(bench.shelf_and_faults[1]),
        "JupyterLab": _lab,
        "policy": lambda: _policy(config, bench.registry),
    }
    checks = [_try_check(name, part) for name, part in parts.items()]
    return checks + misspelt_variables(os.environ) + _idle_tools(config) + _extras()


def class_check(pupils: int, config: Config) -> Check:
    """Return whether the machine can hold a class, by what a notebook took where it was measured.

    Measured was one that loaded pandas, asked SQL, ran a script, opened an explorer and kept a note, as the memory that
    it does not share (PSS), on Linux.
    """
    import psutil

    each = _PUPIL_BYTES[config.classroom]
    free, total = psutil.virtual_memory().available, pupils * each
    fits = f"about {each >> 20} MiB each, {total / 2**30:.1f} GiB; {free / 2**30:.1f} GiB are free"
    hint = "" if config.classroom else "class = true in nbtools.toml takes less for each; "
    remedy = "" if total <= free else f"{hint}{free // each} fit at once"
    return Check(name=f"class of {pupils}", ok=total <= free, finding=fits, remedy=remedy)


def misspelt_variables(environ: Mapping[str, str]) -> list[Check]:
    """Return a check for each variable that looks like a setting's with a slip in it: it has no effect."""
    settings = list(Config.settings())
    in_use = _OTHER_VARIABLES | {
        variable for field in Config.settings().values() for variable in field.metadata["also"]
    }
    # What a kernel hands to its children is its id, never the name of a backend.
    with contextlib.suppress(ConfigInvalid):
        Config.settings()["kernels"].metadata["parse"](environ.get("NBTOOLS_KERNEL", ""))
        in_use -= {"NBTOOLS_KERNEL"}
    checks = []
    for variable in sorted(environ):
        name = variable.removeprefix("NBTOOLS_").lower()
        # Names that are near none are left: other programs may have variables that begin in the same way.
        if not variable.startswith("NBTOOLS_") or variable in in_use or name in settings:
            continue
        close = nearest(name, settings)
        if close is not None:
            remedy = f"Did you mean NBTOOLS_{close.upper()}?"
            checks.append(Check(name=variable, ok=False, finding="there is no setting of that name", remedy=remedy))
    return checks


def _try_check(name: str, part: Callable[[], Check]) -> Check:
    """Return the check, or the failure of the part as one: a doctor never falls over the patient."""
    try:
        return part()
    except NbtoolsError as exc:
        return Check(name=name, ok=False, finding=exc.message, remedy=exc.hint or "")
    except Exception as exc:
        return Check(name=name, ok=False, finding=f"{type(exc).__name__}: {exc}", remedy="Please report this.")


def _distribution() -> Check:
    """Two projects use the import name; both in one environment overwrite each other's files."""
    # Our distribution is called nbtools-kit, so the plain name is another project's.
    other = _version("nbtools")
    if other == "not installed":
        return Check(name="package", ok=True, finding=f"nbtools-kit {_version('nbtools-kit')}")
    return Check(
        name="package",
        ok=False,
        finding=f"another project's package 'nbtools' {other} is installed beside nbtools-kit",
        remedy="pip uninstall nbtools && pip install --force-reinstall nbtools-kit",
    )


def _settings(config: Config) -> Check:
    is_whole = config.file is None or not config.file.summary
    remedy = "" if is_whole else "nbtools trust shows what is left out, and asks you"
    return Check(name="settings", ok=True if is_whole else None, finding=config.told_of_file(), remedy=remedy)


def policy_faults(file: SettingsFile | None, values: Mapping[str, Tool]) -> Iterator[tuple[str, str]]:
    """Yield each rule of a settings file, and of that of the home, that cannot hold: where and why, and a repair."""
    for one in filter(None, (file and file.below, file)):
        policy = one.settings().get("policy", {})
        for name, rule in policy.items() if isinstance(policy, Mapping) else ():
            try:
                check_names(rules_from_config({name: rule}), values)
            except ConfigInvalid as exc:
                yield f"{one.place_of('policy', name)}: {exc.message}", exc.hint or ""


def _policy(config: Config, values: Mapping[str, Tool]) -> Check:
    faults = [*policy_faults(config.file, values)]
    match = "; ".join(fault for fault, _ in faults) or f"{counted(len(config.policy), 'rule')} beside the defaults"
    return Check(name="policy", ok=not faults, finding=match, remedy=" ".join(hint for _, hint in faults))


def _home(config: Config) -> Check:
    home = config.home
    try:
        make_private(home)
        # Tried and not asked: permissions say nothing of a full disk or a read-only mount.
        with tempfile.NamedTemporaryFile(dir=home):
            pass
        sizes = sorted(((size_of(entry), entry.name) for entry in home.iterdir()), reverse=True)
    except OSError as exc:
        return Check(
            name="home",
            ok=False,
            finding=f"{home} cannot be written: {exc.strerror}",
            remedy="Set NBTOOLS_HOME to a folder that you may write.",
        )
    largest = ", ".join(f"{name} {size:,} bytes" for size, name in sizes[:_LARGEST] if size)
    finding = f"{home} (from {config.sources.get('home', 'argument')}), which holds {largest or 'nothing'}"
    return Check(name="home", ok=True, finding=finding)


def _folders(config: Config) -> Check:
    folders = ", ".join(str(folder) for folder in config.allowed_paths)
    if config.no_model_paths is None:
        return Check(name="folders", ok=True, finding=f"files below {folders} may be used")
    finding = f"files below {folders} may be used by a person, none by a model: {config.no_model_paths}"
    return Check(name="folders", ok=None, finding=finding, remedy=HOW_TO_ALLOW)


def _memory(memory: Any) -> Check:
    info = memory.info()
    keeper = f", kept by process {info['pid']} for all your notebooks" if info.get("mode") == "keeper" else ""
    finding = f"{counted(info.get('records', 0), 'item')} in {info.get('place') or info.get('backend')}{keeper}"
    return Check(name="memory", ok=True, finding=finding)


def _kernels(kernels: Any) -> Check:
    # A first start loads all libraries, which takes long on a busy machine.
    execution = kernels.run("1 + 1", timeout=60)
    facts = kernels.describe() if hasattr(kernels, "describe") else {}
    backend = facts.get("backend", "kernels")
    gateway = facts.get("gateway")
    finding = f"a clean kernel answered in {execution.duration_s * 1000:.0f} ms ({backend}"
    finding += f", {gateway})" if gateway and backend == "gateway" else ")"
    if gateway and backend != "gateway":
        finding += f"; the gateway {gateway} is set and not used, because kernels says {backend}"
    if facts.get("warm"):
        finding += f"; process {facts['warm']} keeps the libraries loaded for all your notebooks"
    if facts.get("commands"):
        finding += f"; process {facts['commands']} runs small commands of the command line"
    if facts.get("ends"):
        finding += f"; what a script started is ended {facts['ends']}"
    why = facts.get("fallback")
    return Check(
        name="kernels",
        ok=execution.ok,
        finding=finding + (f"; forked kernels are off: {why}" if why else ""),
        remedy="",
    )


def _host() -> Check:
    from nbtools import confine

    host = confine.capabilities()
    return Check(
        name="confinement",
        # A host that cannot confine is not broken: `None` shows it without making the doctor fail.
        ok=True if not host.missing else None,
        finding=f"scripts can be confined: {host}",
        remedy=" ".join(host.remedies),
    )


def _sql(session: Any) -> Check:
    result = session.query("select version() as version")
    return Check(
        name="sql", ok=True, finding=f"DuckDB {result.to_rows()[0][0]}, answered in {result.duration_s * 1000:.1f} ms"
    )


def _tools(faults: tuple[str, ...]) -> Check:
    if not faults:
        return Check(name="tools", ok=True, finding="all tools are loaded")
    return Check(name="tools", ok=False, finding="; ".join(faults), remedy="Update or remove these packages.")


def _lab() -> Check:
    """Look for the files that JupyterLab and Notebook load; a server of another environment has its own."""
    from jupyter_core.paths import jupyter_path

    places = [Path(folder) / "nbtools" for folder in jupyter_path("labextensions")]
    there = next((folder_there for folder_there in places if (folder_there / "package.json").exists()), None)
    if there is not None:
        return Check(
            name="JupyterLab", ok=True, finding=f"SQL is in colour there, and agents propose cells, by {there}"
        )
    remedy = "pip install nbtools-kit where JupyterLab itself is installed"
    return Check(name="JupyterLab", ok=None, finding="its extension is not in this environment", remedy=remedy)


def _extras() -> list[Check]:
    checks = []
    for extra, (package, what) in _EXTRAS.items():
        try:
            there = has(package)
        except ModuleNotFoundError:
            there = False
        remedy = "" if there else f"pip install 'nbtools-kit[{extra}]'"
        finding = f"{what}: {'installed' if there else 'not installed'}"
        checks.append(Check(name=f"extra {extra}", ok=True if there else None, finding=finding, remedy=remedy))
    return checks


def _idle_tools(config: Config) -> list[Check]:
    return [
        Check(name=f"tool {name}", ok=None, finding="not set up", remedy=remedy)
        for name, remedy in not_offered(config).items()
    ]
