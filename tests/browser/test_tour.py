"""The tour in JupyterLab, as a newcomer sees it: every cell runs, and what it shows can be seen."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.browser.bare import comes_true

pytestmark = pytest.mark.races

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"


def _picture(page: Any, path: Path) -> None:
    """Leave the picture of the README: the explorer of the tour with a chart."""
    page.locator(".nbt .sketch .bars").first.wait_for()
    page.locator(".nbt .to-chart").click()
    page.get_by_label("Kind of chart").select_option("scatter")
    page.get_by_label("x", exact=True).select_option("flipper_length_mm")
    page.get_by_label("y", exact=True).select_option("body_mass_g")
    page.locator(".panel figure img").wait_for()
    page.evaluate("document.querySelector('.nbt').closest('.jp-Cell').scrollIntoView({block: 'start'})")
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": 1180, "height": 1000})


@pytest.mark.slow
@pytest.mark.parametrize("lab", ["light"], indirect=True)
def test_the_tour_runs_in_jupyterlab_and_shows_its_pictures(
    lab: Any, open_notebook: Any, request: pytest.FixtureRequest
) -> None:
    book = json.loads((FOLDER / "00_tour.ipynb").read_text(encoding="utf-8"))
    for cell in book["cells"]:
        # What is stored must not be taken for what ran.
        cell.update({"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {})
    (lab.root / "00_tour.ipynb").write_text(json.dumps(book), encoding="utf-8")
    shutil.copytree(FOLDER / "data", lab.root / "data")
    notebook = open_notebook("00_tour.ipynb")
    notebook.run_all()
    page = notebook.page
    shots = os.environ.get("NBTOOLS_SHOTS")  # where a person wants to look at it
    if shots:
        for number, cell in enumerate(page.locator(".jp-Notebook .jp-Cell").all()):
            cell.screenshot(path=Path(shots) / f"tour-{request.node.callspec.id}-{number:02d}.png")
    comes_true(page, lambda: _is_shown(page))
    assert notebook.abroad == [], "nothing may leave this machine"
    if shots:
        _picture(page, Path(shots) / "tour.png")


def _is_shown(page: Any) -> None:
    # JupyterLab shows an error as it shows standard error: two cells are meant to fail, and nothing else speaks there.
    failed = page.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"]').all_inner_texts()
    assert len(failed) == 2, failed
    assert "timed out after 1 s" in failed[0]
    assert "COPY writes files or tables" in failed[1]
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
    for expected in ("344 penguins, 8 columns", "49.7 g per mm", "file_write is approved", "drop table heavy", "mcp"):
        assert expected in outputs
