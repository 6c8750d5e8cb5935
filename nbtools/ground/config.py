"""Settings: one frozen `Config`, and where each value came from.

An explicit argument beats an ``NBTOOLS_*`` variable (or a name that users of the tools already know, such as
``ALLOWED_PATHS``), which beats ``nbtools.toml``, which beats the default. Everything is read when a workbench opens,
never at import.

What a file says may be someone else's word. So each setting declares beside its meaning, in ``config.toml``, what it
does to those who open a workbench (``does``); one that does nothing, or whose value is not wider than the default
(``narrow``), holds at once, any other when the person trusts the file: `nbtools.ground.settings_file`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypedDict, cast

from nbtools.errors import ConfigInvalid, did_you_mean
from nbtools.ground.home import default_home
from nbtools.ground.paths import BY_SETTINGS, MayGrow, is_too_wide, working_folder
from nbtools.ground.settings_file import SettingsFile, action_of, laid_over
from nbtools.texts.other_words import hint_for
from nbtools.texts.redaction import conceal, is_secret_name
from nbtools.texts.secret_values import MASK
from nbtools.texts.units import parse_bytes, parse_seconds
from nbtools.texts.visible import visible

Source = str


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigInvalid(f"{value!r} is not text.")
    return value


def _count(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or isinstance(value, bool):
        raise ConfigInvalid(f"{value!r} is not a whole number of 0 or more.")
    return number


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if str(value).lower() not in words:
        raise ConfigInvalid(f"{value!r} is neither true nor false.")
    return words[str(value).lower()]


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, list | tuple | set) or not all(isinstance(item, str | Path) for item in value):
        raise ConfigInvalid(f"{value!r} is not a list of names.")
    return tuple(str(item) for item in value if str(item))


def _paths(value: Any) -> tuple[Path, ...]:
    if isinstance(value, str):
        value = [part for chunk in value.split(os.pathsep) for part in chunk.split(",")]
    elif isinstance(value, os.PathLike):
        value = [value]
    # As the working folder is now: what was judged here is what is opened later.
    return tuple(Path(item).expanduser().absolute() for item in _words(value))


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigInvalid(f"{value!r} is not a table.", hint="Write it as a table of nbtools.toml, or give a dict.")
    return dict(value)


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ConfigInvalid(f"{value!r} is none of {', '.join(allowed)}.", hint=did_you_mean(str(value), allowed))
        return cast("str", value)

    return parse


def _positive_seconds(value: Any) -> float:
    seconds = parse_seconds(value)
    if seconds <= 0:
        raise ConfigInvalid(f"{value!r} is not more than 0 seconds.")
    return seconds


_PRELOADS = ("pandas", "numpy", "matplotlib", "duckdb")
_NOTHING = ""
_NOT_IN_CLASS = ("shell", "process", "code_execute")


def _lies_inside(item: Any, folder: Path) -> bool:
    real, inside = Path(os.path.realpath(item)), Path(os.path.realpath(folder))
    return not is_too_wide(inside) and real.is_relative_to(inside)


def _is_file_inside(url: Any, folder: Path) -> bool:
    """Tell whether a connection is a database file below the folder, without anything that could lead elsewhere."""
    kind, _, path = url.partition(":///") if isinstance(url, str) else ("", "", "")
    return kind in {"sqlite", "duckdb"} and not set(path) & set("?#%$~") and _lies_inside(path, folder)


def _only_names_a_model(entry: Any, folder: Path) -> bool:
    return isinstance(entry, str) or (isinstance(entry, Mapping) and entry.keys() <= {"model", "stream", "retry_wait"})


_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "bytes": parse_bytes,
    "count": _count,
    "flag": _flag,
    "path": lambda value: Path(value).expanduser().absolute(),
    "paths": _paths,
    "positive seconds": _positive_seconds,
    "seconds": parse_seconds,
    "table": _table,
    "text": _text,
    "words": _words,
}
_NARROW: Mapping[str, Callable[[Any, Path], bool]] = {
    "file inside": _is_file_inside,
    "lies inside": _lies_inside,
    "never allows": lambda rule, _: action_of(rule) in {"ask", "deny"},
    "only names a model": _only_names_a_model,
    "strict": lambda value, _: value == "strict",
    "true": lambda value, _: value is True,
    "usual package": lambda package, _: package in _PRELOADS,
}


class Settings(TypedDict, total=False):
    """What each setting takes where it is given as an argument; `None` counts as not given.

    Seconds and bytes are numbers, or text with a unit (``"90s"``, ``"64MiB"``).
    """

    home: str | os.PathLike[str] | None
    memory_url: str | None
    memory_files_url: str | None
    agent_id: str | None
    allowed_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    allow_more: bool | None
    allowed_commands: str | Sequence[str] | None
    allow_private: bool | None
    web_search_provider: Literal["serper", "tavily"] | None
    sandbox: Literal["off", "limits", "strict"] | None
    model_sandbox: Literal["off", "limits", "strict"] | None
    network: bool | None
    spares: int | None
    preloads: str | Sequence[str] | None
    kernel_timeout: float | str | None
    kernel_memory: int | str | None
    kernel_idle: float | str | None
    kernel_warm: float | str | None
    gateway_url: str | None
    gateway_token: str | None
    sql_timeout: float | str | None
    sql_memory: int | str | None
    sql_limit: int | None
    sql_max_bytes: int | str | None
    sql_places: str | Sequence[str] | None
    missing_words: bool | None
    connections: Mapping[str, Any] | None
    model: str | None
    models: Mapping[str, Any] | None
    enabled_tools: str | Sequence[str] | None
    approval_time: float | str | None
    policy: Mapping[str, Any] | None
    mcp_servers: Mapping[str, Any] | None
    workflows: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    runs_age: float | str | None
    runs_size: int | str | None
    widgets_read_only: bool | None
    tables_age: float | str | None
    tables_size: int | str | None
    classroom: bool | None
    otel: bool | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a workbench. Make one with `Config.load`; durations are seconds and sizes are bytes.

    `sources` tells for each setting where its value came from: ``"argument"``, the variable's name, the file's path,
    or ``"default"``. `file` is the settings file that was found, with what is left out of it. `start` is the working
    folder as it was then, at which relative paths start.
    """

    home: Path = dataclasses.field(default_factory=default_home)
    memory_url: str | None = None
    memory_files_url: str | None = None
    agent_id: str = "default"
    allowed_paths: tuple[Path, ...] = dataclasses.field(default_factory=lambda: (working_folder(),))
    allow_more: bool = True
    allowed_commands: tuple[str, ...] = ()
    allow_private: bool = False
    web_search_provider: str = "serper"
    kernels: str = "auto"
    sandbox: str = "limits"
    model_sandbox: str = "strict"
    network: bool = False
    spares: int = 1
    preloads: tuple[str, ...] = _PRELOADS
    kernel_timeout: float = 300.0
    kernel_memory: int = 4 * 2**30
    kernel_idle: float = 3600.0
    kernel_warm: float = 600.0
    gateway_url: str | None = None
    gateway_token: str | None = None
    sql_timeout: float = 30.0
    sql_memory: int = 2**30
    sql_limit: int = 10_000
    sql_max_bytes: int = 512 * 2**20
    sql_places: tuple[str, ...] = ()
    missing_words: bool = True
    connections: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    model: str | None = None
    models: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    enabled_tools: tuple[str, ...] = ("*",)
    tools: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    approval_time: float = 86_400.0
    policy: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    mcp_servers: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    workflows: tuple[Path, ...] = ()
    runs_age: float = 90 * 86_400.0
    runs_size: int = 2**30
    widgets_read_only: bool | None = None
    tables_age: float = 90 * 86_400.0
    tables_size: int = 2**32
    classroom: bool = False
    otel: bool = False
    sources: Mapping[str, Source] = dataclasses.field(default_factory=dict)
    file: SettingsFile | None = None
    start: Path = dataclasses.field(default_factory=Path.cwd)

    @classmethod
    def load(cls, *, environ: Mapping[str, str] | None = None, start: Path | None = None, **arguments: Any) -> Config:
        """Read all settings.

        Parameters
        ----------
        environ
            Variables; `None` takes the process's own.
        start
            Folder from which ``nbtools.toml`` is searched upward; `None` takes the working folder.
        **arguments
            Settings given explicitly; one that is `None` counts as not given.

        Raises
        ------
        ConfigInvalid
            A setting is unknown or its value does not fit; the message names the place.
        """
        env = os.environ if environ is None else environ
        settings = cls.settings()
        for name in arguments:
            _check_name(name, settings, "argument")
        loaded: dict[str, tuple[Any, Source]] = {}
        file = SettingsFile.find(start or working_folder(), env, arguments.get("home"))
        if file is not None:
            own = {} if file.below is None else _parted(file.below, settings)[0]
            accepted, rest = _parted(file, settings)
            for name in {**own, **accepted}:
                loaded[name] = laid_over(name, own, accepted, rest, file)
            file = dataclasses.replace(file, left_out=rest)
        if env.get("GCS_MEMORIES_BUCKET"):
            loaded["memory_files_url"] = (f"gs://{env['GCS_MEMORIES_BUCKET']}", "GCS_MEMORIES_BUCKET")
        for name, field in settings.items():
            for variable in (f"NBTOOLS_{name.upper()}", *field.metadata["also"]):
                if env.get(variable):
                    loaded[name] = (env[variable], variable)
                    break
        loaded |= {name: (value, "argument") for name, value in arguments.items() if value is not None}
        values = {name: _parse(name, settings[name], *pair) for name, pair in loaded.items()}
        sources = {name: loaded[name][1] if name in loaded else "default" for name in settings}
        if values.get("classroom"):
            walls = _held_in_class(values, start or working_folder())
            values, sources = (
                {**values, **walls},
                {**sources, **dict.fromkeys(walls, f"class ({sources['classroom']})")},
            )
        return cls(**values, sources=sources, file=file)

    @classmethod
    @functools.cache
    def settings(cls) -> dict[str, dataclasses.Field[Any]]:
        """Return the settings by name, each as it is declared here and, in its metadata, in the file beside this one.

        What it does is nothing (`""`) where it is harmless; where it is not declared it is unknown (`None`).
        """
        fields = {field.name: field for field in dataclasses.fields(cls)}
        table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
        for name, entry in table.items():
            parse = _one_of(*entry["one_of"]) if "one_of" in entry else _PARSERS[entry["parse"]]
            narrow = _NARROW[entry["narrow"]] if "narrow" in entry else None
            how = {"parse": parse, "narrow": narrow, "also": entry.get("also", ())}
            fields[name].metadata = MappingProxyType({"doc": entry["doc"], "does": entry.get("does"), **how})
        return {name: fields[name] for name in table}

    @property
    def model_paths(self) -> tuple[Path, ...]:
        """Folders whose files a model may use: the allowed ones, less a default that is too wide.

        The default is the working folder, and clients start servers in ``/`` or in a home folder: what a model may
        reach there has to be said.
        """
        if self.sources.get("allowed_paths", "argument") != "default":
            return self.allowed_paths
        return tuple(folder for folder in self.allowed_paths if not is_too_wide(folder))

    @property
    def no_model_paths(self) -> str | None:
        """Why no folder is open to a model, as a sentence; `None` when one is."""
        if self.model_paths:
            return None
        folders = ", ".join(str(folder) for folder in self.allowed_paths)
        return f"the working folder, {folders}, is too wide to be open to a model by default."

    def environment(self) -> dict[str, str]:
        """Return variables that give another process these settings: those read from variables, and the folders.

        Secrets are left out; so is what ``nbtools.toml`` says, which the other process reads itself.

        Raises
        ------
        ConfigInvalid
            A folder's name has a separator in it, so that no variable can name it.
        """
        variables = {
            variable: os.environ[variable]
            for name, variable in self.sources.items()
            if variable in os.environ and conceal({name: os.environ[variable]}) == {name: os.environ[variable]}
        }
        folders = [str(folder.resolve()) for folder in self.model_paths]
        if odd := [folder for folder in folders if "," in folder or os.pathsep in folder]:
            raise ConfigInvalid(
                f"{odd[0]!r} cannot be named by ALLOWED_PATHS: ',' and {os.pathsep!r} separate folders there.",
                hint="Rename the folder, or allow it by allowed_paths in nbtools.toml and start the server there.",
                tried="writing the settings as variables",
            )
        return {**variables, "ALLOWED_PATHS": os.pathsep.join(folders)} if folders else variables

    def without_secrets(self) -> dict[str, Any]:
        """Return the settings that were given, as arguments for `load` on another machine.

        What holds a credential is left out, and so are outside servers, which are started with some: the other
        machine has its own.
        """
        values = {name: getattr(self, name) for name in self.settings() if name not in {"mcp_servers", "gateway_token"}}
        own = {name: value for name, value in values.items() if self.sources.get(name, "argument") != "default"}
        own |= {"home": self.home.resolve(), "allowed_paths": tuple(path.resolve() for path in self.allowed_paths)}
        return {name: value for name, value in own.items() if conceal({name: value}) == {name: value}}

    def but(self, **arguments: Any) -> Config:
        """Return these settings with some given explicitly; one that is `None` counts as not given."""
        explicit = {name: value for name, value in arguments.items() if value is not None}
        fresh = Config.load(**explicit) if explicit else self
        changes = {name: getattr(fresh, name) for name in explicit}
        return dataclasses.replace(self, **changes, sources={**self.sources, **dict.fromkeys(explicit, "argument")})

    def rows(self, only: str | None = None) -> list[dict[str, str]]:
        """Return every setting, or one, as a row: setting, value (secrets masked), source and meaning.

        Raises
        ------
        ConfigInvalid
            There is no setting of that name.
        """
        settings = self.settings()
        if only is not None:
            _check_name(only, settings, "config")
            settings = {only: settings[only]}
        return [
            {
                "setting": name,
                "value": _display(name, getattr(self, name)),
                "source": self.sources.get(name, "argument"),
                "meaning": field.metadata["doc"],
            }
            for name, field in settings.items()
        ]

    def waiting(self, setting: str) -> str:
        """Return which entries of a setting the settings file names that do not hold yet, in a sentence, or nothing."""
        return "" if self.file is None else self.file.waiting(setting)

    def may_grow(self, *, by_settings: bool = False) -> MayGrow:
        """Return whether more folders may be allowed, `by_settings` alone as for a model, and how that is said."""
        return self.allow_more and (self.waiting("allowed_paths") or (not by_settings or BY_SETTINGS))

    def told_of_file(self) -> str:
        """Return which settings file there is, what it changes and what of it is left out, as a sentence."""
        if self.file is None:
            return "no nbtools.toml here"
        parts = []
        for file in filter(None, (self.file.below, self.file)):
            changed = ", ".join(name for name, source in self.sources.items() if str(file.path) in source.split(", "))
            parts.append(f"{visible(str(file.path))} changes {changed or 'nothing'}")
        return "; ".join(filter(None, (*parts, self.file.summary)))


def with_settings(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature in which each setting stands for itself in place of ``**settings``, with its type and default.

    That is what help shows. A default of ``...`` is taken from the machine when the settings are read.
    """
    fields = {field.name: field for field in dataclasses.fields(Config)}
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=... if fields[name].default is dataclasses.MISSING else fields[name].default,
            annotation=annotation.__forward_arg__,
        )
        for name, annotation in Settings.__annotations__.items()
    ]
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "settings"]
    return signature.replace(parameters=[*own, *parameters])


def _held_in_class(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return what holds in a class, whatever else is said: a pupil's own variables open nothing."""
    opened = values.get("allowed_paths", (folder / "data" if (folder / "data").is_dir() else folder,))
    enabled = (*values.get("enabled_tools", ("*",)), *(f"!{name}" for name in _NOT_IN_CLASS))
    walls = {"sandbox": "strict", "model_sandbox": "strict", "network": False, "allow_more": False}
    # Loaded packages that stay ready take more memory than the time they save is worth twenty times on one machine.
    processes = {"kernels": "spawned", "spares": 0, "kernel_warm": 0.0, "allowed_commands": ()}
    return {**walls, **processes, "allowed_paths": opened, "enabled_tools": enabled}


def _check_name(name: str, settings: Mapping[str, Any], source: str) -> None:
    if name in settings:
        return
    raise ConfigInvalid(
        f"{source}: there is no setting {name!r}.",
        hint=did_you_mean(name, settings, hint_for(name) or f"Settings are {', '.join(sorted(settings))}."),
        tried="reading the settings",
    )


def _parse(name: str, field: dataclasses.Field[Any], value: Any, source: Source) -> Any:
    try:
        return field.metadata["parse"](value)
    except (ConfigInvalid, TypeError, ValueError, OverflowError) as exc:
        text = exc.message if isinstance(exc, ConfigInvalid) else str(exc)
        hint = exc.hint if isinstance(exc, ConfigInvalid) else None
        raise ConfigInvalid(
            f"{name} ({source}): {text}",
            hint=hint or f"{name} means: {field.metadata['doc']}.",
            tried="reading the settings",
        ) from None


def _parted(file: SettingsFile, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what holds of a file, and what is left out of it, by name, each with what it would do."""
    accepted, left = dict[str, Any](), dict[str, str]()
    is_trusted, folder = file.is_trusted, file.path.parent
    for name, raw in file.settings().items():
        _check_name(name, settings, file.place_of(name))
        field, value = settings[name], _parse(name, settings[name], raw, file.place_of(name))
        does, narrow = field.metadata["does"], field.metadata["narrow"] or (lambda *_: False)
        if is_trusted or does == _NOTHING or value == field.default:
            accepted[name] = raw
            continue
        # Each entry of a list or a table is judged by itself.
        many = isinstance(value, tuple | Mapping)
        entries = dict(value) if isinstance(value, Mapping) else dict(enumerate(value if many else [value]))
        narrow_ones = {key: entry for key, entry in entries.items() if narrow(entry, folder)}
        for key in [key for key in entries if key not in narrow_ones]:
            setting = f"{name}.{key}" if isinstance(value, Mapping) else name
            assignment = f"{setting} = {json.dumps(entries[key], ensure_ascii=False, default=str)}"
            line = f"  {does or 'does what is not declared'}: {visible(assignment)}"
            left[setting] = f"{left[setting]}\n{line}" if setting in left else line
        if name == "models":  # nothing else may answer under such a name
            narrow_ones = {key: narrow_ones.get(key) for key in entries}
        if narrow_ones or not entries:
            whole = narrow_ones if isinstance(value, Mapping) else tuple(narrow_ones.values())
            accepted[name] = whole if many else value
    return accepted, left


def _display(name: str, value: Any) -> str:
    if value is not None and is_secret_name(name):
        return MASK
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(sorted(value)) if value else ""
    return "" if value is None else str(conceal(str(value)))
