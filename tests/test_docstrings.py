"""The examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from tests.source_tree import files

_ROOT = Path(__file__).resolve().parent.parent
_MODULES = [
    ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in files(_ROOT / "nbtools")
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", _MODULES)
def test_examples_in_docstrings_give_what_they_show(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NBTOOLS_HOME", str(tmp_path / "home"))
    module = importlib.import_module(name)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(module, optionflags=options, report=False)
    assert not result.failed, capsys.readouterr().out
