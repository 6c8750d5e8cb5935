"""What JupyterLab is sent of the extension: one version, and no more than it needs."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

import nbtools
from nbtools.widgets.live.sources import joined

FILES = Path(nbtools.__file__).parent / "jupyter" / "labextension"


def _read(name: str) -> str:
    return (FILES / "static" / name).read_text(encoding="utf-8")


def test_the_extension_has_the_version_of_the_package() -> None:
    versions = [
        json.loads((FILES / "package.json").read_text(encoding="utf-8"))["version"],
        re.findall(r'^const VERSION = "(.+)";$', _read("format.js"), re.MULTILINE)[0],
    ]
    assert versions == [metadata.version("nbtools-kit")] * 2


def test_the_extension_stays_below_twenty_kilobytes_where_it_is_installed() -> None:
    installed = Path(sys.prefix, "share", "jupyter", "labextensions", "nbtools", "static")
    sent = {file.name: file.read_text(encoding="utf-8") for file in installed.iterdir()}
    assert sorted(sent) == ["container.js", "lab.css", "plugins.js"], "install the package again"
    assert "Ask the agent" in sent["plugins.js"]
    assert sum(len(text.encode()) for text in sent.values()) < 20 * 1024


def test_the_joined_extension_has_no_name_twice_and_imports_nothing() -> None:
    names: list[str] = []

    def read(name: str) -> str:
        text = _read(name)
        names.extend(re.findall(r"^(?:export )?(?:const|let|class) (\w+)", text, re.MULTILINE))
        return text

    text = joined("plugins.js", read)
    assert len(names) > 50
    assert sorted(names) == sorted(set(names))
    assert re.findall(r"^(?:import|export) \w+", text, re.MULTILINE) == ["export default"]
