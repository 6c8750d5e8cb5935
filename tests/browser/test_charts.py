"""Charts of other packages in JupyterLab, which reaches no network here."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest

pytestmark = [pytest.mark.races, pytest.mark.slow]

CELLS = (
    "%load_ext nbtools\nimport pandas as pd\ndf = pd.DataFrame({'city': ['Bern', 'Chur'], 'amount': [1, 2]})",
    "%%data_visualize df\nimport altair as alt\nalt.Chart(df).mark_bar().encode(x='city', y='amount')",
    "%%data_visualize df\nimport plotly.graph_objects as go\ngo.Figure(go.Bar(x=df.city, y=df.amount))",
)


@pytest.mark.parametrize("lab", ["light"], indirect=True)
def test_charts_are_drawn_without_the_network(lab: Any, open_notebook: Any) -> None:
    for package in ("altair", "plotly"):
        pytest.importorskip(package)
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(book, lab.root / "charts.ipynb")
    notebook = open_notebook("charts.ipynb")
    notebook.run_all()
    notebook.page.locator(".vega-embed :is(svg, canvas)").first.wait_for()
    notebook.page.locator(".js-plotly-plot svg.main-svg").first.wait_for()
    assert notebook.abroad == [], "nothing may leave this machine"
