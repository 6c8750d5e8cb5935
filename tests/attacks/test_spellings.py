"""Rules by argument hold for every spelling: a line of the file is a rule, calls it stops, and calls it lets by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nbtools import Config, Workbench
from nbtools.errors import ConfigInvalid

pytestmark = pytest.mark.processes

CASES = [json.loads(line) for line in Path(__file__).with_name("spellings.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "here"
    (here / "out" / "deep").mkdir(parents=True)
    for name in ("secret.env", "a.txt", "b", "out/a.txt"):
        (here / name).write_text(name)
    links = {"link": "secret.env", "out/link.txt": "../a.txt", "out/up": "..", "away": "out"}
    for name, target in links.items():
        (here / name).symlink_to(target)
    monkeypatch.chdir(here)
    return here


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['tool']} {json.dumps(case['rules'])}"[:90])
def test_a_rule_by_argument_holds_for_every_spelling(case: dict[str, Any], folder: Path) -> None:
    given = json.loads(json.dumps(case).replace("{here}", folder.as_posix()))
    policy = {given["tool"]: given["rules"]}
    tools = {"note": {"tool": "file_write", "fixed_config": {"path": "fixed.txt"}}}
    settings = {"home": folder.parent / "home", "memory_url": ":memory:", "spares": 0, "policy": policy, "tools": tools}
    settings["allowed_commands"] = ["*"]
    with Workbench(Config.load(**settings)) as bench:
        for which, codes in (("denied", {"PERMISSION_DENIED"}), ("passed", set())):
            for arguments in given[which]:
                result = bench.call(given["tool"], arguments, caller=given.get("caller", "model"))
                code = result.error.code if result.error else None
                assert (code in codes) if codes else (code not in {"PERMISSION_DENIED", "APPROVAL_DENIED"}), arguments


def test_rules_start_where_the_paths_of_calls_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder is none of the allowed ones, and relative paths start there all the same."""
    monkeypatch.chdir(folder.parent)
    settings = {"home": folder.parent / "home", "memory_url": ":memory:", "allowed_paths": [folder]}
    rules = [{"action": "deny", "arguments": {"path": "here/secret.env"}}]
    with Workbench(policy={"file_read": rules}, **settings) as bench:
        result = bench.call("file_read", {"path": "here/secret.env"}, caller="model")
        assert result.error is not None
        assert result.error.code == "PERMISSION_DENIED"
        monkeypatch.chdir(folder / "out")
        assert bench.call("file_read", {"path": "../link"}, caller="model").error == result.error
        assert bench.call("file_read", {"path": "a.txt"}, caller="model").text == "out/a.txt"


def test_a_rule_for_an_argument_that_no_tool_has_is_refused(folder: Path) -> None:
    policy = {"file_*": {"action": "deny", "arguments": {"pth": "x"}}}
    with (
        Workbench(home=folder / "home", memory_url=":memory:", policy=policy) as bench,
        pytest.raises(ConfigInvalid, match=r"file_\* has no argument 'pth'") as caught,
    ):
        bench.call("file_read", {"path": "a.txt"})
    assert caught.value.hint == "Did you mean 'path'?"
