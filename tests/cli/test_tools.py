"""``nbtools tools | call | check-tools | doctor``: one JSON result, and an exit code that can be trusted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbtools import Config, cli
from tests.cli.conftest import ROOT
from tests.conftest import wait_until

COUNT = "import pandas as pd; print(len(pd.read_csv(input_file_path)))"


def _arguments(**arguments: Any) -> str:
    return json.dumps(arguments)


def test_without_a_command_the_usage_is_shown_and_the_code_is_two(nbtools: Callable[..., Any]) -> None:
    done = nbtools()
    assert done.code == 2
    assert "demo" in done.out
    assert nbtools("--version").out.startswith("nbtools-kit ")


def test_each_command_is_declared_by_the_module_that_is_imported_for_it() -> None:
    every = cli._parser("")
    for name, parser in _commands(every).items():
        alone = _commands(cli._parser(name))
        assert alone[name].format_help() == parser.format_help()
    assert list(_commands(every)) == [word for _, words in cli._COMMANDS for word in words]
    assert not _commands(cli._parser("--version"))


def _commands(parser: Any) -> dict[str, Any]:
    found: dict[str, Any] = next(action.choices for action in parser._actions if action.dest == "command")
    return found


@pytest.mark.parametrize(
    ("arguments", "offered"),
    [
        (["tolls"], "tools"),
        (["tools", "--fromat", "mcp"], "--format"),
        (["tools", "--format", "antropic"], "anthropic"),
    ],
)
def test_a_wrong_word_is_wrong_usage_and_offers_the_nearest(
    nbtools: Callable[..., Any], arguments: list[str], offered: str
) -> None:
    done = nbtools(*arguments)
    assert (done.code, done.out) == (2, "")
    assert f"did you mean {offered!r}?" in done.err


def test_the_shelf_is_listed_in_every_form(nbtools: Callable[..., Any]) -> None:
    names = {entry["name"] for entry in nbtools("tools", "--json").json}
    assert {"memory_save", "data_analyze", "data_visualize", "sql_query", "code_execute"} <= names
    for form, key in (
        ("anthropic", "input_schema"),
        ("openai", "function"),
        ("gemini", "name"),
        ("mcp", "inputSchema"),
    ):
        rendered = nbtools("tools", "--format", form).json
        assert len(rendered) == len(names)
        assert all(key in entry for entry in rendered)
    assert "data_analyze" in nbtools("tools").out


def test_every_declaration_agrees_with_its_implementation(nbtools: Callable[..., Any]) -> None:
    done = nbtools("check-tools")
    assert done.code == 0, done.out
    assert "0 problems" in done.out


def test_a_call_prints_one_json_result(nbtools: Callable[..., Any]) -> None:
    done = nbtools("call", "calculator", "--json", _arguments(expression="6 * 7"))
    assert (done.code, done.json["ok"], done.json["tool"]) == (0, True, "calculator")
    assert done.out.count("\n") == 1


def test_arguments_may_come_from_standard_input(nbtools: Callable[..., Any]) -> None:
    assert nbtools("call", "string_length", "--json", "-", stdin=_arguments(text="abc")).json["data"]["characters"] == 3


@pytest.mark.parametrize("given", ["{", "[1]", '"text"'])
def test_arguments_that_are_no_object_are_wrong_usage(nbtools: Callable[..., Any], given: str) -> None:
    done = nbtools("call", "calculator", "--json", given)
    assert (done.code, done.out) == (2, "")
    assert "→" in done.err


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("calculater", {}, "TOOL_NOT_FOUND"),
        ("calculator", {"expr": "1"}, "INVALID_ARGUMENTS"),
        ("memory_retrieve", {"key": "nothing"}, "MEMORY_NOT_FOUND"),
        ("sql_query", {"query": "drop table x"}, "SQL_NOT_ALLOWED"),
        ("file_read", {"path": "/etc/passwd"}, "PATH_NOT_ALLOWED"),
    ],
)
def test_a_tool_that_fails_is_a_result_and_the_code_is_one(
    nbtools: Callable[..., Any], tool: str, arguments: dict[str, Any], code: str
) -> None:
    done = nbtools("call", tool, "--json", json.dumps(arguments))
    assert (done.code, done.json["error"]["code"]) == (1, code)
    assert done.json["error"]["message"]


def test_a_tool_that_is_not_there_is_told_whatever_its_options_are(nbtools: Callable[..., Any]) -> None:
    assert nbtools("call", "calculatr", "--expression", "1").json["error"]["hint"] == "Did you mean 'calculator'?"
    assert nbtools("call", "nope").out.count("string_length") == 1, "all names, but once"
    off = nbtools("call", "shell", "--command", "ls", NBTOOLS_ENABLED_TOOLS="calculator")
    assert (off.code, off.json["error"]["code"]) == (1, "TOOL_NOT_ENABLED")


@pytest.mark.slow
def test_a_script_in_a_clean_kernel_gives_its_output_as_text(
    nbtools_process: Callable[..., Any], penguins: str
) -> None:
    done = nbtools_process(
        "call", "data_analyze", "--json", _arguments(input_file_path=penguins, analysis_script=COUNT)
    )
    assert (done.code, done.json["text"]) == (0, "344\n")


def _below(folder: Path) -> list[str]:
    """Return the command lines of processes whose working folder, or one of whose arguments, lies in a folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(folder) in line and process.pid != os.getpid() and "nbtools.memory.keeper" not in line:
            found.append(line)
    return found


@pytest.mark.slow
def test_an_endless_script_ends_in_time_keeps_its_output_and_leaves_nothing(
    nbtools_process: Callable[..., Any], penguins: str, tmp_path: Path
) -> None:
    script = "print('so far', flush=True)\nwhile True:\n    pass"
    begun = time.monotonic()
    done = nbtools_process(
        "call",
        "data_analyze",
        "--json",
        _arguments(input_file_path=penguins, analysis_script=script, timeout=2),
        TMPDIR=str(tmp_path),
    )
    assert time.monotonic() - begun < 30, "the promise is 5 s; a machine that is busy with other tests is given more"
    assert (done.code, done.json["error"]["code"]) == (1, "TIMEOUT")
    assert done.json["data"]["stdout"] == "so far\n"
    wait_until(lambda: _below(tmp_path) == [])


@pytest.mark.slow
def test_the_doctor_looks_at_every_part(nbtools: Callable[..., Any]) -> None:
    done = nbtools("doctor", "--json")
    assert done.code == 0, done.out
    assert {"python", "memory"} <= {check["name"].split()[0].lower() for check in done.json}


@pytest.mark.slow
def test_the_doctor_names_a_variable_with_a_slip_in_it(nbtools: Callable[..., Any]) -> None:
    done = nbtools("doctor", "--json", NBTOOLS_MEMRY_URL="x", NBTOOLS_MCP_TOKEN="t", NBTOOLS_QQQQ="1")
    found = [check for check in done.json if check["name"].startswith("NBTOOLS_")]
    assert [(check["name"], check["remedy"]) for check in found] == [
        ("NBTOOLS_MEMRY_URL", "Did you mean NBTOOLS_MEMORY_URL?")
    ]
    assert done.code == 1


@pytest.mark.parametrize(
    ("given", "what"), [("[1]", "not an object: [1]"), ("null", "not an object: null"), ("{", "not JSON")]
)
def test_arguments_that_are_no_object_are_told_in_three_lines(
    nbtools: Callable[..., Any], given: str, what: str
) -> None:
    done = nbtools("call", "calculator", "--json", given)
    assert (done.code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert (lines[0], len(lines)) == ("InvalidArguments: nbtools call", 3)
    assert what in lines[1]


@pytest.mark.processes
def test_the_package_is_run_as_the_command_line(environment: dict[str, str], tmp_path: Path) -> None:
    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "nbtools", *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment, check=False
        )

    answered, wrong = ran("call", "calculator", "--json", '{"expression": "6 * 7"}'), ran("cal")
    assert (answered.returncode, json.loads(answered.stdout)["text"]) == (0, "42")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "call" in wrong.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_is_told_and_is_a_failure(environment: dict[str, str], tmp_path: Path) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nbtools.cli", "call", "calculator", "--json", '{"expression": "1"}'],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env=environment,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "LimitExceeded: nbtools call"


def test_an_option_of_another_command_is_not_offered_for_itself(nbtools: Callable[..., Any]) -> None:
    done = nbtools("sql", "--approve", "select 1")
    assert done.code == 2
    assert "unrecognized arguments: --approve" in done.err
    assert "did you mean '--approve'" not in done.err
    assert "nbtools agent --model scripted:FILE" in nbtools("agent", "--script", "turns.yaml", "Hello").err


@pytest.mark.processes
def test_the_doctor_says_what_tools_need_that_can_do_nothing_here(nbtools: Callable[..., Any]) -> None:
    def needs(**variables: str) -> dict[str, str]:
        return {check["name"]: check["remedy"] for check in nbtools("doctor", "--json", **variables).json}

    found = needs(SERPER_API_KEY="", ALLOWED_COMMANDS="")
    assert "SERPER_API_KEY" in found["tool web_search"]
    assert "ALLOWED_COMMANDS" in found["tool shell"]
    assert not {"tool shell", "tool web_search"} & needs(SERPER_API_KEY="k", ALLOWED_COMMANDS="git").keys()
    other = needs(SERPER_API_KEY="k", WEB_SEARCH_PROVIDER="tavily", TAVILY_API_KEY="")
    assert "TAVILY_API_KEY" in other["tool web_search"]


def test_help_lists_every_topic_and_each_has_a_page(nbtools: Callable[..., Any]) -> None:
    from nbtools.jupyter.catalogue import CATALOGUE

    listed = nbtools("help").out
    rows = [line.split()[:2] for line in listed.splitlines() if line.startswith("  ")]
    named = {words[1] if words[0] == "nbtools" else words[0].lstrip("%") for words in rows}
    assert {entry.name for entry in CATALOGUE} <= named
    assert {"data_analyze", "sql_query", "doctor", "help"} <= named
    for topic in ("%nbexplore", "workflow", "doctor", "file_read"):
        assert topic.lstrip("%") in nbtools("help", topic).out


def test_a_page_is_what_the_declarations_say(nbtools: Callable[..., Any]) -> None:
    both = nbtools("help", "memory").out
    assert "usage: %memory" in both
    assert "usage: %%memory" in both
    assert nbtools("memory", "--help").out.strip() in both
    assert "usage: nbtools" not in nbtools("help", "%memory").out
    assert "expression" in nbtools("help", "calculator").out


def test_help_on_nothing_offers_the_nearest_topic(nbtools: Callable[..., Any]) -> None:
    done = nbtools("help", "memry")
    assert done.code == 2
    assert "'memory'" in done.err


@pytest.mark.processes
@pytest.mark.parametrize("module", ["nbtools.cli", "argparse"])
def test_ctrl_c_while_the_command_line_is_loaded_is_one_line(module: str, tmp_path: Path) -> None:
    """Where Python looks for the module, the signal comes: the earliest moment that is the same each time."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Stop())\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "nbtools", "tools"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_arguments_of_a_tool_are_options_and_one_object_alike(nbtools: Callable[..., Any]) -> None:
    done = nbtools("call", "calculator", "--expression", "2*3", "--json", "--timeout", "20")
    assert (done.code, done.json["data"]["value"]) == (0, 6)
    # A text stays one, although it reads as a number.
    assert nbtools("call", "string_length", "--text", "12").json["data"]["characters"] == 2
    assert nbtools("call", "calculator", '{"expression": "4"}').json["data"]["value"] == 4
    assert nbtools("call", "string_length", "-", stdin=_arguments(text="abc")).json["data"]["characters"] == 3
    wrong = nbtools("call", "calculator", "--expresion", "2")
    assert (wrong.code, wrong.out) == (2, "")
    assert "did you mean '--expression'?" in wrong.err


def test_settings_are_shown_with_where_each_comes_from(
    nbtools: Callable[..., Any],
) -> None:
    rows = {row["setting"]: row for row in nbtools("config", "--json", NBTOOLS_SPARES="3").json}
    assert set(rows) == set(Config.settings())
    assert (rows["spares"]["value"], rows["spares"]["source"]) == ("3", "NBTOOLS_SPARES")
    assert nbtools("config", "spares").out.split()[:3] == ["spares", "1", "default"]
    assert "spares" in nbtools("config", "spare").err


@pytest.mark.parametrize(
    ("variable", "value", "close"),
    [
        ("NBTOOLS_KERNEL", "spawned", "KERNELS"),
        ("NBTOOLS_SANDBX", "off", "SANDBOX"),
        ("NBTOOLS_KERNEL", "0a1b", ""),
        ("NBTOOLS_CLASS", "0", ""),
        ("NBTOOLS_SALES_PASSWORD", "x", ""),
    ],
)
def test_a_variable_with_a_slip_in_it_is_told(
    nbtools: Callable[..., Any], variable: str, value: str, close: str
) -> None:
    told = f"{variable}: there is no setting of that name. Did you mean NBTOOLS_{close}?\n" if close else ""
    assert nbtools("config", **{variable: value}).err == told


@pytest.mark.parametrize("arguments", [("tools",), ("config",), ("check-tools",), ("sql", "select 1 as a")])
def test_json_means_that_json_is_printed(nbtools: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    assert nbtools(*arguments, "--json").json


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_options_and_tools(nbtools: Callable[..., Any], shell: str) -> None:
    script = nbtools("completion", shell).out
    for word in ("check-tools", "calculator", "no-token", "--resume" if shell != "fish" else "resume"):
        assert word in script, word


def test_the_name_of_the_package_is_a_command_too() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts["nbtools-kit"] == scripts["nbtools"]
