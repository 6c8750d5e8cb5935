"""Seeded mistakes: each file of ``mistakes/`` says in its first lines what is to be found in it, and where.

``# expect WF015 3:1`` is a code with line and column. Nothing else may be found. A new case needs no Python.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nbtools.contract.registry import Registry
from nbtools.errors import ConfigInvalid
from nbtools.workflow.findings import rules
from nbtools.workflow.validation import validate

FOLDER = Path(__file__).with_name("mistakes")
EXAMPLES = Path(__file__).resolve().parents[2] / "notebooks" / "workflows"
_EXPECTED = re.compile(r"^\ufeff?# expect (WF\d{3}) (\d+):(\d+)\r?$", re.MULTILINE)


def _expected(file: Path) -> list[tuple[str, int, int]]:
    found = _EXPECTED.findall(file.read_bytes().decode("utf-8"))
    return sorted((code, int(line), int(column)) for code, line, column in found)


def _find_model(name: str) -> None:
    if name not in {"known", "scripted"}:
        raise ConfigInvalid(f"there is no model {name!r}.", hint="Did you mean 'known'?")


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.glob("*.yaml")))
def test_a_mistake_is_found_at_its_line_and_column_and_nothing_else(name: str, registry: Registry) -> None:
    file = FOLDER / f"{name}.yaml"
    report = validate(file, registry, find_model=_find_model)
    found = sorted((finding.code, finding.line, finding.column) for finding in report.findings)
    assert found == _expected(file), f"\n{report}"
    assert report.workflow is None or report.ok


def test_there_are_mistakes_of_every_code() -> None:
    seeded = {code for file in FOLDER.glob("*.yaml") for code, _, _ in _expected(file)}
    # A file that cannot be read has tests of its own.
    assert seeded == rules().keys() - {"WF001"}


@pytest.mark.parametrize("file", [*EXAMPLES.glob("*.yaml"), *FOLDER.glob("parts/*.yaml")], ids=lambda file: file.name)
def test_what_is_right_has_no_finding(file: Path, registry: Registry) -> None:
    report = validate(file, registry)
    assert not report.findings, f"\n{report}"
    assert report.workflow is not None
    assert report.files[0] == file.resolve()
