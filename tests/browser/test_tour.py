"""The tour in JupyterLab, as a newcomer sees it: every cell runs, and what it shows can be seen."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.mark.slow
def test_the_tour_runs_in_jupyterlab_and_shows_its_pictures(
    lab: Any, open_notebook: Any, request: pytest.FixtureRequest
) -> None:
    shutil.copy(FOLDER / "00_tour.ipynb", lab.root)
    shutil.copytree(FOLDER / "data", lab.root / "data")
    notebook = open_notebook("00_tour.ipynb")
    notebook.run_all()
    page = notebook.page
    shots = os.environ.get("NBTOOLS_SHOTS")  # where a person wants to look at it
    if shots:
        for number, cell in enumerate(page.locator(".jp-Notebook .jp-Cell").all()):
            cell.screenshot(path=Path(shots) / f"tour-{request.node.callspec.id}-{number:02d}.png")
    for kind in ("application/vnd.jupyter.stderr", "application/vnd.jupyter.error"):
        found = page.locator(f'.jp-OutputArea-output[data-mime-type="{kind}"]')
        assert found.count() == 0, found.all_inner_texts()
    widths = page.evaluate(
        """() => window.tested.content.widgets
            .filter(cell => cell.model.type === 'code')
            .map(cell => [cell.model.sharedModel.getSource().split(' ')[0],
                          [...cell.node.querySelectorAll('.jp-OutputArea img')].map(image => image.naturalWidth)])
        """
    )
    for magic, found in widths:
        assert bool(found) == (magic == "%%data_visualize"), f"{magic} has pictures of other cells, or lacks its own"
        assert all(width > 100 for width in found)
    outputs = " ".join(page.locator(".jp-OutputArea-output").all_inner_texts())
    for expected in ("344 penguins, 8 columns", "gentoo penguin", "penguins/question", "data_visualize"):
        assert expected in outputs
    assert notebook.abroad == [], "nothing may leave this machine"
