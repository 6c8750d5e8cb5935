"""What JupyterLab is sent of the extension: one version, and no more than it needs."""

from __future__ import annotations

import json
import re
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


def test_the_extension_stays_below_twenty_kilobytes() -> None:
    scripts = joined("plugins.js", _read) + _read("container.js")
    assert "Ask the agent" in scripts
    assert len(scripts.encode()) < 20_000
