"""Which folders a model may reach when nobody chose them, and what a printed configuration pins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from nbtools.assembly.workbench import Workbench
from nbtools.ground import aio
from nbtools.ground.config import Config
from nbtools.ground.paths import is_too_wide

pytestmark = pytest.mark.processes

SETTINGS = ("ALLOWED_PATHS", "NBTOOLS_")


def printed(folder: Path, *more: str, **variables: str) -> tuple[dict, str]:
    """Return the configuration that is printed in a folder, and what was said beside it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)} | variables
    command = [sys.executable, "-m", "nbtools.cli", "mcp", "--print-config", *more]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["mcpServers"]["nbtools"], done.stderr


def asked(entry: dict, *calls: tuple[str, dict]) -> list:
    """Return the results of calls to the server that a client starts from a configuration, in ``/``."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **entry.get("env", {})}
    parameters = StdioServerParameters(command=entry["command"], args=entry["args"], env=env, cwd="/")

    async def run() -> list:
        async with Client(stdio_client(parameters)) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return aio.run(run(), timeout=90)


@pytest.mark.slow
def test_a_printed_configuration_pins_folder_and_settings(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("mine")
    (tmp_path / "home").mkdir()
    entry, said = printed(
        tmp_path, NBTOOLS_HOME=str(tmp_path / "home"), NBTOOLS_GATEWAY_TOKEN="hidden", NBTOOLS_SQL_LIMIT="7"
    )
    assert said == ""
    assert entry["command"] == sys.executable
    assert entry["env"] == {
        "ALLOWED_PATHS": str(tmp_path),
        "NBTOOLS_HOME": str(tmp_path / "home"),
        "NBTOOLS_SQL_LIMIT": "7",
    }
    found, refused, asked_by_sql = asked(
        entry,
        ("file_read", {"path": "a.txt"}),
        ("file_read", {"path": "/etc/hostname"}),
        ("sql_query", {"query": "select count(*) as n from range(100)"}),
    )
    assert found.structured_content["content"] == "mine"
    assert refused.structured_content["error"]["code"] == "PATH_NOT_ALLOWED"
    assert not asked_by_sql.is_error


@pytest.mark.slow
@pytest.mark.parametrize("place", ["/", "home"])
def test_a_server_that_is_started_in_a_wide_folder_opens_nothing(place: str, tmp_path: Path) -> None:
    home = tmp_path / "me"
    home.mkdir()
    (home / "diary.csv").write_text("secret\n1\n")
    folder = Path("/") if place == "/" else home
    entry, said = printed(folder, HOME=str(home), NBTOOLS_HOME=str(tmp_path / "state"))
    assert len(said.splitlines()) == 1
    assert "ALLOWED_PATHS=FOLDER" in said
    assert "ALLOWED_PATHS" not in entry["env"]
    entry["env"]["HOME"] = str(home)
    name = str(home / "diary.csv")
    results = asked(
        entry,
        ("file_read", {"path": name}),
        ("file_glob", {"pattern": "*"}),
        ("sql_query", {"query": f"select * from '{name}'"}),
        ("data_analyze", {"input_file_path": name, "analysis_script": "print(open(input_file_path).read())"}),
        ("calculator", {"expression": "6 * 7"}),
    )
    assert [result.is_error for result in results] == [True, True, True, True, False]
    assert "no folder is allowed" in results[0].content[0].text
    assert "ALLOWED_PATHS=FOLDER" in results[0].content[0].text
    assert not any("secret" in block.text for result in results[:4] for block in result.content)


@pytest.mark.parametrize("place", ["/", "home"])
def test_a_person_in_a_wide_folder_goes_on_and_a_model_beside_does_not(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("mine")
    if place == "home":
        monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path if place == "home" else "/")
    for name in [name for name in os.environ if name.startswith(SETTINGS)]:
        monkeypatch.delenv(name)
    with Workbench(home=tmp_path / "state", memory_url=":memory:") as bench:
        path = str(file.relative_to(Path.cwd()))
        assert bench.call("file_read", {"path": path}).ok
        assert bench.call("file_read", {"path": path}, caller="model").error.code == "PATH_NOT_ALLOWED"
        assert bench.call("sql_query", {"query": f"from '{path}'"}, caller="mcp").error.code == "SQL_NOT_ALLOWED"
    with Workbench(home=tmp_path / "state", memory_url=":memory:", allowed_paths=[tmp_path]) as bench:
        assert bench.call("file_read", {"path": path}, caller="model").ok


def test_wide_folders_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "users" / "me"))
    (tmp_path / "link").symlink_to(tmp_path / "users" / "me")
    wide = [tmp_path / "users" / "me", tmp_path / "users", tmp_path / "link", Path("/")]
    assert [is_too_wide(folder) for folder in wide] == [True] * 4
    assert not is_too_wide(tmp_path / "users" / "me" / "work")
    assert not is_too_wide(tmp_path / "users" / "other")


def test_a_folder_that_a_variable_cannot_name_is_said(tmp_path: Path) -> None:
    from nbtools.errors import ConfigInvalid

    folder = tmp_path / "a,b"
    folder.mkdir()
    with pytest.raises(ConfigInvalid, match="separate folders"):
        Config.load(environ={}, allowed_paths=[folder]).environment()
