"""What is packed otherwise than it stands in the repository: JupyterLab's extension, as one script without comments."""

from __future__ import annotations

import runpy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_TARGET = "share/jupyter/labextensions/nbtools"


class LabExtension(BuildHookInterface[Any]):
    """Packs the files of the extension that JupyterLab and Notebook load."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files to be packed, before a wheel or an editable one is written."""
        del version
        if self.target_name != "wheel":
            return
        package = Path(self.root, "nbtools")
        joined = runpy.run_path(str(package / "widgets" / "live" / "sources.py"))["joined"]
        self._folder = Path(tempfile.mkdtemp())
        extension = self._folder / "labextension"
        source = package / "jupyter" / "labextension"
        shutil.copytree(source, extension, ignore=shutil.ignore_patterns("static"))

        def read(name: str) -> str:
            return (source / "static" / name).read_text(encoding="utf-8")

        (extension / "static").mkdir()
        for name in ("container.js", "lab.css", "plugins.js"):
            (extension / "static" / name).write_text(joined(name, read), encoding="utf-8")
        build_data["shared_data"][str(extension)] = _TARGET

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove them when the wheel has them."""
        del version, build_data, artifact_path
        if self.target_name == "wheel":
            shutil.rmtree(self._folder)
