"""Profiles: files that say how an agent works, with the key names of pydantic-ai's ``AgentSpec`` and some of our own.

A profile looks like this::

    model: claude
    description: Analyses CSV files.
    instructions: Show every number with its unit.
    tools: [sql_query, data_analyze]
    budgets: {steps: 20, usd: 0.5}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbtools.agent.models.choice import SCRIPTED
from nbtools.errors import ConfigInvalid, FileMissing, did_you_mean
from nbtools.texts.parsing import from_yaml

# What a run takes from a profile, with the type of each; the rest of it tells people, and what pydantic-ai's own keys
# would do besides is refused rather than left out.
_KEYS: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "script": (str,),
    "tools": (str, list),
    "read_only": (bool,),
    "plan": (bool,),
    "instructions": (str, list),
    "output_schema": (dict,),
    "model_settings": (dict,),
    "on_error": (str,),
    "context_tokens": (int,),
    "retries": (int,),
    "tool_timeout": (int, float),
    "end_strategy": (str,),
    "share": (str,),
    "budgets": (dict,),
}
_TOLD = ("$schema", "name", "description", "metadata")


def with_profile(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, those of its profile where none was given; instructions of both hold.

    Raises
    ------
    FileMissing, ParseError, ConfigInvalid
        The file cannot be read, or a key or value of it does not fit.
    """
    own = dict(settings)
    source = own.pop("profile", None)
    if source is None:
        return own
    name = "the profile" if isinstance(source, Mapping) else str(source)
    profile = {key: value for key, value in _read(source, name).items() if value is not None}
    for key, value in profile.items():
        if key not in _KEYS and key not in _TOLD:
            hint = did_you_mean(str(key), _KEYS, f"Use {', '.join((*_KEYS, *_TOLD))}.")
            raise ConfigInvalid(f"{name} has the key {key!r}, which is unknown.", hint=hint)
        if key in _KEYS and (not isinstance(value, _KEYS[key]) or (isinstance(value, bool) and bool not in _KEYS[key])):
            kinds = " or ".join(kind.__name__ for kind in _KEYS[key])
            raise ConfigInvalid(f"{name}: {key} is {value!r}.", hint=f"Give a value of the type {kinds}.")
    settings_read = {key: value for key, value in profile.items() if key in _KEYS}
    if not isinstance(source, Mapping):
        settings_read |= beside(settings_read, Path(source).parent)
    instructions = [*_texts(settings_read.get("instructions")), *_texts(own.pop("instructions", None))]
    settings_read |= {key: value for key, value in own.items() if value is not None}
    return {**settings_read, "instructions": instructions} if instructions else settings_read


def beside(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return what of settings names a script, as a path that starts at the folder of the file with the settings."""
    resolved: dict[str, Any] = {}
    if isinstance(script := settings.get("script"), str) and "\n" not in script:
        resolved["script"] = str(folder / script)
    model = settings.get("model")
    if isinstance(model, str) and model.startswith(f"{SCRIPTED}:"):
        resolved["model"] = f"{SCRIPTED}:{folder / model.partition(':')[2]}"
    return resolved


def _read(source: str | Path | Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise FileMissing(f"the profile {name!r} cannot be read: {exc}.") from None
    content = from_yaml(text)
    if not isinstance(content, Mapping):
        raise ConfigInvalid(f"{name} is not a mapping.", hint=f"Use keys such as {', '.join(list(_KEYS)[:4])}.")
    return content


def _texts(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)
