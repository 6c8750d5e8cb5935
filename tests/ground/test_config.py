"""Settings: which source wins, units, clear refusals, masked secrets."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import ConfigInvalid, FileMissing
from nbtools.ground.config import Config
from nbtools.ground.home import default_home
from nbtools.texts.units import parse_bytes, parse_seconds


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Load settings as if from a folder of the test, with nothing of the real environment."""

    def loaded(env: dict[str, str] | None = None, **arguments: Any) -> Config:
        return Config.load(environ={"NBTOOLS_HOME": str(tmp_path / "state")} | (env or {}), start=tmp_path, **arguments)

    return loaded


def _file(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nbtools.toml").write_text(text, encoding="utf-8")
    return folder / "nbtools.toml"


def test_argument_beats_variable_beats_file_beats_default(load: Any, tmp_path: Path) -> None:
    assert (load().sql_limit, load().sources["sql_limit"]) == (10_000, "default")
    file = _file(tmp_path, "sql_limit = 2")
    assert (load().sql_limit, load().sources["sql_limit"]) == (2, str(file))
    env = {"NBTOOLS_SQL_LIMIT": "3"}
    assert (load(env).sql_limit, load(env).sources["sql_limit"]) == (3, "NBTOOLS_SQL_LIMIT")
    assert (load(env, sql_limit=4).sql_limit, load(env, sql_limit=4).sources["sql_limit"]) == (4, "argument")


def test_an_argument_of_none_counts_as_not_given(load: Any) -> None:
    assert load({"NBTOOLS_SPARES": "3"}, spares=None).spares == 3


def test_an_empty_variable_counts_as_not_set(load: Any) -> None:
    assert load({"NBTOOLS_SPARES": ""}).sources["spares"] == "default"


def test_the_file_is_found_upward_then_in_the_home(load: Any, tmp_path: Path) -> None:
    _file(tmp_path / "state", "sql_limit = 7")
    assert load().sql_limit == 7
    _file(tmp_path, "sql_limit = 6\nsql_timeout = 6")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    env = {"NBTOOLS_HOME": str(tmp_path / "state")}
    found = Config.load(environ=env, start=below)
    assert (found.sql_timeout, found.sql_limit) == (6, 7)  # the home's own holds until the other is trusted


def test_names_that_users_know_are_honoured(load: Any) -> None:
    config = load(
        {
            "ALLOWED_PATHS": os.pathsep.join(["/data", "/more"]),
            "ALLOWED_COMMANDS": "ls, cat",
            "WEB_SEARCH_PROVIDER": "tavily",
        }
    )
    assert config.allowed_paths == (Path("/data"), Path("/more"))
    assert config.allowed_commands == ("ls", "cat")
    assert config.web_search_provider == "tavily"
    assert config.sources["allowed_paths"] == "ALLOWED_PATHS"


def test_our_own_variable_beats_the_one_that_users_know(load: Any) -> None:
    assert load({"ALLOWED_PATHS": "/a", "NBTOOLS_ALLOWED_PATHS": "/b"}).allowed_paths == (Path("/b"),)


def test_allowed_paths_default_to_the_working_folder(load: Any) -> None:
    assert load().allowed_paths == (Path.cwd(),)


def test_home_is_the_platforms_folder_unless_said(tmp_path: Path) -> None:
    assert Config.load(environ={}, start=tmp_path).home == default_home()
    assert Config.load(environ={"NBTOOLS_HOME": "~/x"}, start=tmp_path).home == Path("~/x").expanduser()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("1.5 min", 90), (".5h", 1800), ("250ms", 0.25), ("7d", 604800), (2, 2), ("2W", 1209600)],
)
def test_durations_are_read_in_seconds(text: str | float, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MiB", 67108864), ("1 GB", 10**9), ("2k", 2048), ("1.5kb", 1500), (100, 100), ("0", 0), ("12B", 12)],
)
def test_sizes_are_read_in_bytes(text: str | float, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("value", ["", "fast", "-3s", "3 fortnights", "1e3", None, True, [], -1, float("nan")])
def test_what_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(ConfigInvalid, match="is not a duration"):
        parse_seconds(value)


@pytest.mark.parametrize("value", ["", "big", "-3kb", "3 lightyears", float("inf"), -1])
def test_what_is_no_size_is_refused(value: Any) -> None:
    with pytest.raises(ConfigInvalid, match="is not a size"):
        parse_bytes(value)


def test_an_unknown_setting_offers_the_nearest_name(load: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="no setting 'sandbx'") as caught:
        load(sandbx="off")
    assert caught.value.hint == "Did you mean 'sandbox'?"
    file = _file(tmp_path, "kernel_timout = 3")
    with pytest.raises(ConfigInvalid) as caught:
        load()
    assert str(file) in caught.value.message
    assert caught.value.hint == "Did you mean 'kernel_timeout'?"


def test_a_setting_like_no_other_lists_them_all(load: Any) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(zzzzzz=1)
    assert caught.value.hint is not None
    assert "sql_limit" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spares", "-1"),
        ("spares", "many"),
        ("spares", True),
        ("network", "perhaps"),
        ("sandbox", "loose"),
        ("kernel_timeout", "0s"),
        ("kernel_memory", "huge"),
        ("connections", "postgresql://x"),
        ("allowed_paths", 3),
        ("home", 3),
        ("agent_id", 3),
    ],
)
def test_a_value_that_does_not_fit_names_the_setting_and_its_source(load: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(**{name: value})
    assert caught.value.message.startswith(f"{name} (argument): ")
    assert caught.value.hint
    assert caught.value.tried == "reading the settings"


def test_a_choice_offers_the_nearest(load: Any) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load({"NBTOOLS_SANDBOX": "stict"})
    assert caught.value.message == "sandbox (NBTOOLS_SANDBOX): 'stict' is none of off, limits, strict."
    assert caught.value.hint == "Did you mean 'strict'?"


@pytest.mark.parametrize("content", [b"spares = ", b"\xff\xfe", b"[spares"])
def test_a_broken_file_is_named(load: Any, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "nbtools.toml").write_bytes(content)
    with pytest.raises(ConfigInvalid, match=r"nbtools\.toml is not valid TOML"):
        load()


def test_tables_of_the_file_are_kept(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _file(tmp_path, '[connections]\nshop = "sqlite:///shop.db"\n[policy]\nshell = "deny"\n')
    assert load().connections == {"shop": f"sqlite:///{tmp_path}/shop.db"}
    assert load().policy == {"shell": "deny"}


def test_rows_tell_value_source_and_meaning_and_mask_secrets(load: Any) -> None:
    config = load(
        {"NBTOOLS_GATEWAY_TOKEN": "abc123"},
        memory_url="postgresql://me:hidden@db/memory",
        connections={"b": "postgresql://u:p@h/d", "a": {}},
    )
    rows = {row["setting"]: row for row in config.rows()}
    assert rows.keys() == Config.settings().keys()
    assert rows["gateway_token"]["value"] == "***"
    assert rows["gateway_token"]["source"] == "NBTOOLS_GATEWAY_TOKEN"
    assert rows["memory_url"]["value"] == "postgresql://me:***@db/memory"
    assert rows["connections"]["value"] == "a, b"
    assert all(row["meaning"] for row in rows.values())


def test_a_config_cannot_be_changed(load: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load().spares = 3


def test_a_table_in_a_variable_is_refused_with_the_way_to_write_it(load: Any) -> None:
    with pytest.raises(ConfigInvalid, match="is not a table") as caught:
        load({"NBTOOLS_CONNECTIONS": "shop=sqlite:///shop.db"})
    assert caught.value.hint == "Write it as a table of nbtools.toml, or give a dict."


def test_settings_for_another_machine_hold_no_secret(tmp_path: Path) -> None:
    given = {
        "home": tmp_path,
        "agent_id": "a",
        "gateway_token": "t0ken-of-a-gateway",
        "memory_url": "postgresql://me:pa55word@db/memory",
        "connections": {"db": "postgresql://me:pa55word@db/x"},
        "mcp_servers": {"one": {"command": "x", "env": {"KEY": "k"}}},
    }
    told = Config.load(environ={}, start=tmp_path, **given).without_secrets()
    assert told.keys() == {"home", "agent_id", "allowed_paths"}
    assert Config.load(environ={}, start=tmp_path, **told).agent_id == "a"


def test_settings_in_a_folder_that_was_removed_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileMissing, match="the folder you are in was removed"):
        Config.load(home=tmp_path)
