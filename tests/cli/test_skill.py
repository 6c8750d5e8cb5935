"""``nbtools skill install``: what other agents read, and the configuration of the server beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from nbtools.contract.tool import tool_of
from nbtools.toolbox import STANDARD


def test_the_skill_is_written_with_the_configuration_of_the_server(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    done = nbtools("skill", "install", "agents/skills")
    place = tmp_path / "agents" / "skills" / "nbtools"
    assert (done.code, done.out.split()) == (0, ["agents/skills/nbtools/SKILL.md", "agents/skills/nbtools/mcp.json"])
    _, head, body = (place / "SKILL.md").read_text().split("---\n", 2)
    assert yaml.safe_load(head)["name"] == "nbtools"
    assert len(yaml.safe_load(head)["description"]) < 1_024
    server = json.loads((place / "mcp.json").read_text())["mcpServers"]["nbtools"]
    assert server["args"][:3] == ["-m", "nbtools.cli", "mcp"]
    shelf = {tool_of(function).name for toolset in STANDARD for function in toolset}
    named = set(re.findall(r"`([a-z]+_[a-z]+)`", body))
    assert len(named) >= 5
    assert named <= shelf, f"the skill names tools that do not exist: {named - shelf}"


def test_what_is_there_is_kept_unless_told_otherwise(nbtools: Callable[..., Any], tmp_path: Path) -> None:
    place = tmp_path / "skills" / "nbtools"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text("mine")
    done = nbtools("skill", "install")
    assert done.code == 1
    assert "--force" in done.err
    assert (place / "SKILL.md").read_text() == "mine"
    assert nbtools("skill", "install", "--force").code == 0
    assert (place / "SKILL.md").read_text().startswith("---")
