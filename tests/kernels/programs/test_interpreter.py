"""What a program is told: its command, its variables and its script, by the family that it belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbtools.errors import LanguageUnavailable
from nbtools.kernels import RunContext
from nbtools.kernels.programs import interpreter
from nbtools.kernels.programs.interpreter import Interpreter

_PWSH = Interpreter(family="powershell", program="/opt/microsoft/powershell/7/pwsh")


def test_powershell_is_started_without_a_profile_and_reports_nothing_home() -> None:
    once, session = _PWSH.command(lasting=False), _PWSH.command(lasting=True)
    assert once[:4] == [_PWSH.program, "-NoLogo", "-NoProfile", "-NonInteractive"]
    assert Path(once[-2]).name == "script.ps1"
    assert Path(once[-2]).is_file()
    assert (once[-1], session[-1]) == ("once", "session")
    assert _PWSH.environment()["POWERSHELL_TELEMETRY_OPTOUT"] == "1"
    assert _PWSH.greeting() == b""
    assert _PWSH.requests_on(lasting=True) == interpreter.REQUESTS


def test_a_powershell_script_finds_its_variables_and_folder_whatever_is_in_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    context = RunContext(cwd=folder, variables={"who": "O'Brien; exit", "rows": [1, "a'b"]})
    request = _PWSH.request("Write-Output $who", context, folder, 3, lasting=False)
    assert request == f"{folder}/begin3.ps1\n".encode()
    assert (folder / "script3.ps1").read_text() == "Write-Output $who"
    quoted = str(folder).replace("'", "''")
    assert (folder / "begin3.ps1").read_text().splitlines() == [
        "$who = 'O''Brien; exit'; $env:who = 'O''Brien; exit'",
        """$rows = ConvertFrom-Json '[1, "a''b"]'; $env:rows = '[1, "a''b"]'""",
        f"Set-Location -LiteralPath '{quoted}'",
        f". '{quoted}/script3.ps1'",
    ]


def test_a_program_in_a_home_opens_itself_and_not_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for place, opened in (("bin", "bin/node"), (".local/bin", ".local/bin/node"), (".nvm/v22/bin", ".nvm/v22")):
        program = tmp_path / place / "node"
        program.parent.mkdir(parents=True)
        program.touch()
        assert Interpreter(family="node", program=str(program)).places()[0] == str(tmp_path.resolve() / opened)


def test_what_is_not_a_program_is_refused() -> None:
    for language in ("python", "kernel:ir"):
        with pytest.raises(LanguageUnavailable, match="runs in a Jupyter kernel, not in a program"):
            interpreter.find(language)
