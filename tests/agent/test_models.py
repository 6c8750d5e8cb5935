"""The table of models: names, keys and where they come from, local servers, profiles."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models import KnownModelName

from nbtools import Workbench
from nbtools.agent.models.choice import PROVIDERS, choose_model, keys
from nbtools.errors import ConfigInvalid, ConfigMissing

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef", "OPENAI_API_KEY": "k" * 20, "GEMINI_API_KEY": "g" * 20}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_model_of_the_table_is_known_and_has_a_price(provider: str) -> None:
    known = typing.get_args(KnownModelName.__value__)
    for short, model in PROVIDERS[provider].models.items():
        choice = choose_model(short, {}, KEYS)
        assert choice.name == f"{provider}:{model}"
        assert choice.has_price
        assert f"{provider.replace('gemini', 'google')}:{model}" in known


@pytest.mark.processes  # not for what it starts: the libraries of all providers take seconds to import
def test_every_model_of_the_table_is_built() -> None:
    for provider in PROVIDERS.values():
        for short, model in provider.models.items():
            assert choose_model(short, {}, KEYS).build().model_name == model


def test_a_setting_adds_local_servers_and_overrides_names() -> None:
    models = {"mine": {"model": "openai-chat:qwen", "base_url": "http://127.0.0.1:1/v1"}, "claude": "anthropic:x"}
    mine = choose_model("mine", models, {})
    assert (mine.name, mine.base_url, mine.key, mine.has_price) == (
        *("openai-chat:qwen", "http://127.0.0.1:1/v1", "none"),
        False,
    )
    assert choose_model("claude", models, KEYS).name == "anthropic:x"
    short = {"fast": "haiku", "near": {"model": "gpt", "base_url": "http://127.0.0.1:1/v1"}, "haiku": {}}
    names = [choose_model(name, short, KEYS).name for name in short]
    assert names == ["anthropic:claude-haiku-5-5", "openai-chat:gpt", "anthropic:claude-haiku-5-5"]
    assert choose_model("anthropic", {}, KEYS).name == choose_model("claude", {}, KEYS).name
    assert "sk-ant" not in repr(choose_model("claude", {}, KEYS))


@pytest.mark.parametrize(
    ("name", "models", "error", "told"),
    [
        (None, {}, ConfigMissing, "no model was named"),
        ("claude", {}, ConfigMissing, "anthropic needs a key, and ANTHROPIC_API_KEY is not set"),
        ("m", {"m": {"model": "openai:x", "api_key_variable": "MY_KEY"}}, ConfigMissing, "MY_KEY is not set"),
        ("cluade", {}, ConfigInvalid, "Did you mean 'claude'"),
        ("openai-chat", {}, ConfigInvalid, "there is no model"),
        ("m", {"m": {"modell": "x"}}, ConfigInvalid, "has no key 'modell'"),
        ("m", {"m": 3}, ConfigInvalid, "'m' is 3"),
    ],
)
def test_what_is_missing_or_wrong_is_told_before_any_call(
    name: Any, models: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        choose_model(name, models, {})


def test_keys_are_shown_masked_with_their_source() -> None:
    shown = {row["provider"]: row for row in keys({"openai": {"api_key": "abcdefghijklmnop"}}, KEYS)}
    assert (shown["anthropic"]["key"], shown["anthropic"]["source"]) == ("sk-…ef", "ANTHROPIC_API_KEY")
    assert (shown["openai"]["key"], shown["openai"]["source"]) == ("abc…op", "the setting models")


def test_the_status_shows_the_model_and_masked_keys(open_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert open_bench().status()["models"] == "agents use the model that is named; keys: none is set"
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEYS["ANTHROPIC_API_KEY"])
    told = "agents use claude; keys: anthropic sk-…ef from ANTHROPIC_API_KEY"
    assert open_bench(model="claude").status()["models"] == told


def test_a_profile_says_how_an_agent_works(wb: Workbench, tmp_path: Path) -> None:
    (tmp_path / "turns.yaml").write_text("turns:\n  - {calls: [{tool: look}]}\n  - say: Seen.\n")
    profile = tmp_path / "agent.yaml"
    profile.write_text("name: x\nscript: turns.yaml\ntools: [look]\ninstructions: Be kind.\nbudgets: {steps: 1}\n")
    run = wb.agent("Go!", profile=profile)
    assert run.state == "budget"
    assert run.events[0].tools == ("look", "artifact_read")  # type: ignore[attr-defined]
    assert "Be kind." in str(wb.agent.messages(run.run_id))
    assert wb.agent("Go!", profile=profile, budgets={"steps": 2}).text == "Seen."
    profile.write_text("instrutions: Be kind.\n")
    with pytest.raises(ConfigInvalid, match="Did you mean 'instructions'"):
        wb.agent("Go!", profile=profile)
    with pytest.raises(ConfigInvalid, match="tools is 3"):
        wb.agent("Go!", profile={"tools": 3})


def test_a_profile_finds_its_script_beside_itself(
    wb: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "turns.yaml").write_text("- say: Hello.\n")
    monkeypatch.chdir(tmp_path)
    for text in ("model: scripted:turns.yaml\n", "script: turns.yaml\n"):
        (tmp_path / "sub" / "profile.yaml").write_text(text)
        assert wb.agent("Go!", profile="sub/profile.yaml").text == "Hello."


def test_a_provider_without_a_model_is_not_answered_by_itself() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        choose_model("openai:", {})
    assert "Did you mean" not in (caught.value.hint or "")
    assert "provider:model" in (caught.value.hint or "")


def test_tools_that_can_do_nothing_here_are_offered_by_name_alone(open_bench: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    script = "turns: [{say: Hello.}]\n"
    bench = open_bench()

    def offered(**how: Any) -> set[str]:
        started = next(event for event in bench.agent("Go!", script=script, **how) if event.kind == "run_started")
        return set(started.tools)

    assert not {"shell", "process", "web_search"} & offered()
    assert "calculator" in offered()
    assert "shell" in offered(tools=["shell"])
