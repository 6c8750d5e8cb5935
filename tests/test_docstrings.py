"""The examples in docstrings do what they say, and nothing is said in words that no one uses."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from tests.source_tree import files

_ROOT = Path(__file__).resolve().parent.parent
_MODULES = [
    ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in files(_ROOT / "nbtools")
    if ">>> " in path.read_text(encoding="utf-8")
]

# Words of a translation: say who it is, "again", "in place of".
_STILTED = re.compile(r"\b(?:whoever|somebody|anew)\b|\bin the place of\b|, for one[.,:;)]", re.IGNORECASE)
_TEXTS = [
    path
    for pattern in ("*.md", "nbtools/**/*.*", "notebooks/**/*.md", "notebooks/*.ipynb")
    for path in sorted(_ROOT.glob(pattern))
    if path.suffix in {".py", ".js", ".css", ".md", ".yaml", ".json", ".txt", ".ipynb"}
]


def test_texts_use_no_stilted_words() -> None:
    problems = [
        f"{path.relative_to(_ROOT)}:{number}: {line.strip()[:200]}"
        for path in _TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _STILTED.search(line)
    ]
    assert not problems, "\n".join(problems)


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
