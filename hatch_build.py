"""What is packed otherwise than it stands in the repository.

JupyterLab's extension is one script without comments; the modules of the widgets are without comments and indents, and
the tour is without its outputs, which `nbtools demo` makes again.
"""

from __future__ import annotations

import json
import runpy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_TARGET = "share/jupyter/labextensions/nbtools"
_TOUR = "notebooks/00_tour.ipynb"


class Packing(BuildHookInterface[Any]):
    """Packs the files of the extension that JupyterLab and Notebook load, the widgets' modules, and the tour."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files to be packed, before a wheel or an editable one is written."""
        if self.target_name != "wheel":
            return
        package = Path(self.root, "nbtools")
        sources = runpy.run_path(str(package / "widgets" / "live" / "sources.py"))
        joined, bare = sources["joined"], sources["without_comments"]
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
        if version == "editable":  # which reads the rest from the repository
            return
        static = shutil.copytree(package / "widgets" / "static", self._folder / "static")
        for file in static.rglob("*.js"):
            file.write_text(bare(file.read_text(encoding="utf-8")), encoding="utf-8")
        tour = json.loads(Path(self.root, _TOUR).read_text(encoding="utf-8"))
        for cell in tour["cells"]:
            cell.update({"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {})
        (self._folder / "tour.ipynb").write_text(json.dumps(tour), encoding="utf-8")
        build_data["force_include"] |= {
            str(static): "nbtools/widgets/static",
            str(self._folder / "tour.ipynb"): f"nbtools/{_TOUR}",
        }

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove them when the wheel has them."""
        del version, build_data, artifact_path
        if self.target_name == "wheel":
            shutil.rmtree(self._folder)
