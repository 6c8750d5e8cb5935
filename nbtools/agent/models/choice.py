"""The one table of providers and models, and how a model is made ready.

`PROVIDERS` is the only place that names models. The setting ``models`` adds to it and overrides it: a short name to a
model, or to a mapping with ``model``, ``base_url`` (a local server that speaks a provider's protocol), ``api_key``,
``api_key_variable``, ``stream`` (false for servers that cannot stream calls of tools), or ``retry_wait`` (seconds
before a request that failed is made again, where the server does not say; 0.5).
"""

from __future__ import annotations

import dataclasses
import os
import pkgutil
from collections.abc import Mapping
from typing import Any

from nbtools.errors import ConfigInvalid, ConfigMissing, did_you_mean
from nbtools.ground.lazy import has, need

SCRIPTED = "scripted"
_ENTRY: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("model", "base_url", "api_key", "api_key_variable"), (str,)),
    "stream": (bool,),
    "retry_wait": (int, float),
}
# `RepeatedRequests` asks again, in the same way for every provider.
_ASK_ONCE: Any = {"max_retries": 0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Provider:
    """A provider of models.

    Attributes
    ----------
    extra
        The extra of ``nbtools-kit`` that brings its package.
    module
        What has to be there to be imported.
    variables
        Where its key is looked for, the first that is set.
    family
        What pydantic-ai and the list of prices call the provider.
    kind
        Class of its models in pydantic-ai.
    models
        Short names to models.
    """

    extra: str
    module: str
    variables: tuple[str, ...]
    family: str
    kind: str
    models: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def load(self, name: str) -> None:
        """Import its package, or say which extra brings it, for a provider of this name."""
        need(self.module, extra=self.extra, why=f"Using {name}'s models")

    def check(self, name: str) -> None:
        """Say which extra brings its package where that is missing, without the second that its import takes."""
        if not has(self.module):
            self.load(name)


_OPENAI = Provider(
    extra="openai",
    module="openai",
    variables=("OPENAI_API_KEY",),
    family="openai",
    kind="OpenAIResponsesModel",
    models={"gpt": "gpt-6.1-terra", "gpt-large": "gpt-6.1-sol", "gpt-small": "gpt-6-luna"},
)
PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider(
        extra="anthropic",
        module="anthropic",
        variables=("ANTHROPIC_API_KEY",),
        family="anthropic",
        kind="AnthropicModel",
        models={"claude": "claude-sonnet-5-5", "opus": "claude-opus-5-5", "haiku": "claude-haiku-5-5"},
    ),
    "openai": _OPENAI,
    # The older protocol, which local servers (Ollama, vLLM, llama.cpp) speak.
    "openai-chat": dataclasses.replace(_OPENAI, kind="OpenAIChatModel", models={}),
    "gemini": Provider(
        extra="gemini",
        module="google.genai",
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        family="google",
        kind="GoogleModel",
        models={"gemini": "gemini-4-argon", "gemini-flash": "gemini-3.8-flash"},
    ),
}
_SHORT = {short: f"{provider}:{model}" for provider, p in PROVIDERS.items() for short, model in p.models.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """A model that was chosen, ready to be built.

    Attributes
    ----------
    name
        ``provider:model``, or ``scripted``.
    provider
        The provider, the first part of `name`.
    model
        What the provider calls the model, the second part of `name`.
    base_url
        Where its server is; `None` is the provider's own.
    stream
        Whether answers are asked for piece by piece.
    retry_wait
        Seconds before the second attempt of a request, where the server does not say.
    instance
        The model itself, where it was given made; it repeats its requests as it likes.
    key
        The key; not shown.
    """

    name: str
    provider: str
    model: str
    base_url: str | None = None
    stream: bool = True
    retry_wait: float = 0.5
    instance: Any = dataclasses.field(default=None, repr=False)
    key: str | None = dataclasses.field(default=None, repr=False)

    @property
    def has_price(self) -> bool:
        """Whether a price is known, so that a budget of money can be held."""
        if self.provider not in PROVIDERS or self.base_url is not None:
            return self.provider == SCRIPTED  # which costs nothing
        from genai_prices import Usage, calc_price

        try:
            calc_price(Usage(input_tokens=1), self.model, provider_id=PROVIDERS[self.provider].family)
        except LookupError:
            return False
        return True

    @property
    def label(self) -> str:
        """What every line of its runs says where no model is at work."""
        return "scripted (no LLM)" if self.provider == SCRIPTED else ""

    def check_price(self, usd: float | None) -> None:
        """Refuse a budget of money for a model whose price is not known.

        Raises
        ------
        ConfigInvalid
            There is such a budget.
        """
        if usd is not None and not self.has_price:
            message, hint = (
                f"a budget of US dollars needs a price, and none is known for {self.name}.",
                "Give one of tokens instead.",
            )
            raise ConfigInvalid(message, hint=hint)

    def build(self, script: str | None = None) -> Any:
        """Return the model for pydantic-ai, with its client; a scripted one plays the script."""
        from pydantic_ai.providers import infer_provider_class

        from nbtools.agent.models.requests import RepeatedRequests, WholeAnswers

        if self.provider == SCRIPTED:
            from nbtools.agent.models.scripted import Script, scripted_model

            if script is None:
                message = "the model is scripted, but no script is given."
                raise ConfigMissing(message, hint="Give one: script='turns.yaml'.")
            return scripted_model(Script(script))
        if self.instance is not None:
            return self.instance
        about = PROVIDERS[self.provider]
        about.load(self.provider)
        kind = pkgutil.resolve_name(f"pydantic_ai.models.{about.family}:{about.kind}")
        provider: Any = infer_provider_class(about.family)
        key = None if self.key == "none" else self.key
        client = provider(api_key=self.key, base_url=self.base_url)
        asked_once = kind(self.model, provider=client, settings=_ASK_ONCE)
        model = RepeatedRequests(asked_once, wait=self.retry_wait, name=self.name, key=key)
        return model if self.stream else WholeAnswers(model)


def require_agent() -> None:
    """See to it that the package the loop stands on is there.

    Raises
    ------
    MissingExtra
        It is not installed.
    """
    need("pydantic_ai", extra="agent", why="Running an agent")


def choose_model(name: Any, models: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> ModelChoice:
    """Return the model of a name, checked as far as that goes without a call.

    Parameters
    ----------
    name
        ``provider:model``, a provider, a short name of the table or the setting, or ``scripted``; a model of
        pydantic-ai, which is taken as it is; `None` where none was given.
    models
        The setting ``models``.
    environ
        Variables; `None` takes the process's own.

    Raises
    ------
    ConfigMissing
        No model was named, or its key or package is missing.
    ConfigInvalid
        The name is unknown.
    """
    environ = os.environ if environ is None else environ
    if name is None:
        raise ConfigMissing(
            "no model was named.",
            hint=f"Give a model (provider:model, or {', '.join(_SHORT)}), or set NBTOOLS_MODEL. nbtools help models "
            "says more, also how a script plays one.",
        )
    if not isinstance(name, str):
        return _instance_of(name)
    if name == SCRIPTED:
        return ModelChoice(name=SCRIPTED, provider=SCRIPTED, model=SCRIPTED)
    entry = _entry(name, models[name]) if name in models else {}
    full = entry.get("model", name)
    full = full if {"model", "base_url"} <= entry.keys() else _SHORT.get(full, full)  # a server has its own names
    if full in PROVIDERS:  # a provider alone means the first of its models
        full = next((f"{full}:{model}" for model in PROVIDERS[full].models.values()), full)
    if "base_url" in entry and full.partition(":")[0] not in {*PROVIDERS, "google"}:
        full = f"openai-chat:{full}"  # what servers of one's own speak; Ollama's names have colons too
    provider, _, model = full.partition(":")
    provider = {"google": "gemini"}.get(provider, provider)
    if provider not in PROVIDERS or not model:
        names = [*_SHORT, *models, *(f"{each}:" for each in PROVIDERS if each != provider), SCRIPTED]
        hint = f"Write provider:model; providers are {', '.join(PROVIDERS)}."
        raise ConfigInvalid(
            f"there is no model {full!r}.", hint=hint if provider in PROVIDERS else did_you_mean(full, names, hint)
        )
    about = PROVIDERS[provider]
    about.check(provider)
    key, _ = _key(provider, entry, models, environ)
    base_url = entry.get("base_url")
    if key is None and base_url is None:
        variable = entry.get("api_key_variable", about.variables[0])
        raise ConfigMissing(
            f"{provider} needs a key, and {variable} is not set.",
            hint=f"Set {variable}, or api_key of the model in the setting models; or play a script: model='scripted'.",
            tried=f"starting an agent with {full}",
        )
    # A server of one's own asks for no key, and the clients insist on one.
    how = {name: entry[name] for name in ("stream", "retry_wait") if name in entry}
    return ModelChoice(name=full, provider=provider, model=model, base_url=base_url, key=key or "none", **how)


def _instance_of(model: Any) -> ModelChoice:
    require_agent()
    from pydantic_ai.models import Model

    if not isinstance(model, Model):
        raise ConfigInvalid(f"{model!r} is not a model.", hint="Give a name, or a model of pydantic-ai.")
    return ModelChoice(name=model.model_name, provider="given", model=model.model_name, instance=model)


def _entry(name: str, setting: Any) -> dict[str, Any]:
    if setting is None:
        message = f"models.{name} of nbtools.toml is left out until you trust that file."
        raise ConfigMissing(message, hint="nbtools trust shows what it would do, and asks you.")
    entry = {"model": setting} if isinstance(setting, str) else setting
    if not isinstance(entry, Mapping):
        raise ConfigInvalid(f"models: {name!r} is {setting!r}.", hint="Use a name, or a mapping with model.")
    for key, value in entry.items():
        if key not in _ENTRY:
            hint = did_you_mean(str(key), _ENTRY, f"Use {', '.join(_ENTRY)}.")
            raise ConfigInvalid(f"models: {name!r} has no key {key!r}.", hint=hint)
        if not isinstance(value, _ENTRY[key]):
            raise ConfigInvalid(f"models: {key} of {name!r} is not of the type {_ENTRY[key][-1].__name__}.")
    return dict(entry)


def _key(
    provider: str, own_entry: Mapping[str, Any], models: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[str | None, str]:
    """Return the key of a provider, and where it came from."""
    whole = models.get(provider)
    entries = (own_entry, whole if isinstance(whole, Mapping) else {})
    for entry in entries:
        if entry.get("api_key"):
            return entry["api_key"], "the setting models"
    named = [entry["api_key_variable"] for entry in entries if entry.get("api_key_variable")]
    for variable in (*named, *(PROVIDERS[provider].variables if provider in PROVIDERS else ())):
        if environ.get(variable):
            return environ[variable], variable
    return None, ""


def keys(models: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> list[dict[str, str]]:
    """Return a row for each provider: its key, masked, and where that came from; both empty where there is none."""
    environ = os.environ if environ is None else environ
    rows = []
    for name in PROVIDERS:
        key, source = _key(name, {}, models, environ)
        masked = f"{key[:3]}…{key[-2:]}" if key and len(key) > 12 else "…" if key else ""
        rows.append({"provider": name, "key": masked, "source": source})
    return rows
