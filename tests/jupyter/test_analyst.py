"""A day's work of an analyst: frames into scripts, tables out, into SQL, into files and into memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from tests.jupyter.conftest import Notebook, open_shell

pytest.importorskip("pyarrow")

SETUP = (
    "import pandas as pd, numpy as np\n"
    "df = pd.DataFrame({'city': ['Bern', 'Chur', 'Bern'], 'amount': [1, 2, 3]})\n"
    "arr, k, odd = np.arange(4), np.int64(3), object()"
)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """One notebook for all tests here, because its first kernel takes its time."""
    with pytest.MonkeyPatch.context() as patch, open_shell(tmp_path_factory.mktemp("analyst"), patch) as opened:
        patch.setenv("NBTOOLS_MEMORY_URL", ":memory:")
        # Loaded once, and not by each script; nbformat is what plotly takes its time for.
        patch.setenv("NBTOOLS_PRELOADS", "pandas,matplotlib,altair,nbformat")
        opened.run("%load_ext nbtools")
        opened.run(SETUP)
        yield opened


@pytest.mark.slow
@pytest.mark.processes
def test_frames_files_arrays_and_values_go_in_and_a_value_comes_out(notebook: Notebook) -> None:
    cell = notebook.run(
        "%%data_analyze orders=df customers=sales.csv --with arr,k -o summary\n"
        "assert input_file_path == customers and arr.sum() == 6 and k == 3\n"
        "summary = orders.groupby('city', as_index=False).amount.sum()\n"
        "orders.loc[0, 'amount'] = 99"
    )
    assert cell.error is None
    assert cell.stdout == "summary: DataFrame, 2 rows x 2 columns\n"
    assert notebook["summary"].to_dict("list") == {"city": ["Bern", "Chur"], "amount": [4, 2]}
    assert notebook["df"].amount.tolist() == [1, 2, 3]
    assert notebook.run("%nbsql select sum(amount) as s from summary").value["s"].tolist() == [6]


@pytest.mark.processes
@pytest.mark.slow
def test_odd_frames_go_in_and_come_out_and_what_changes_is_said(notebook: Notebook) -> None:
    notebook.run(
        "mixed = pd.DataFrame({'a': [1, 'x', None]})\n"
        "twice = pd.DataFrame([[1, 2], [3, 4]], columns=['a', 'a'])\n"
        "bare = pd.DataFrame(index=range(3))"
    )
    cell = notebook.run("%%data_analyze mixed twice bare -o shapes\nshapes = [mixed.shape, twice.shape, bare.shape]")
    assert notebook["shapes"] == [[3, 1], [2, 2], [3, 0]]
    assert "column 'a' of mixed holds values that Arrow has no one type for" in cell.stdout
    back = notebook.run("%%data_analyze twice bare -o back\nback = {'twice': twice, 'bare': bare}")
    assert back.error is None
    assert notebook["back"]["twice"].to_numpy().tolist() == [[1, 2], [3, 4]]
    assert notebook["back"]["bare"].shape == (3, 0)
    assert notebook.run("%nbsql select * from twice").value.columns.tolist() == ["a", "a_1"]
    assert notebook.run("%nbsql --out-file twice.csv from twice").error is None
    assert Path("twice.csv").read_text() == "a,a_1\n1,2\n3,4\n"
    assert notebook.run("%nbsql from bare").lines[1:] == [
        "the frame bare cannot be read: it has no columns.",
        "→ Give it one: bare.reset_index() has its index as a column.",
    ]
    assert "has no columns" in notebook.run("%memory save bare {bare}").lines[1]
    notebook.run("%memory save mixed {mixed}\nback = %memory get mixed")
    assert [*map(repr, notebook["back"]["a"])] == ["1", "'x'", "None"]


@pytest.mark.slow
@pytest.mark.processes
def test_a_variable_stays_what_it_was_where_the_script_has_no_value_for_it(notebook: Notebook) -> None:
    notebook.run("thr = 5")
    cell = notebook.run("%%data_analyze -o thr\nother = 3")
    assert cell.error is None
    assert "thr is not bound" in cell.stdout
    assert notebook["thr"] == 5
    cell = notebook.run("%%data_analyze -o thr\nthr = {1: 'a', '1': 'b', 'at': (1, 2)}")
    assert "two keys of a mapping are the same as text" in cell.stdout
    assert notebook["thr"] == 5


@pytest.mark.processes
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%%data_analyze dff", "there is no variable and no file 'dff'"),
        ("%%data_analyze k", "k is neither a table nor an array"),
        ("%%data_analyze df --with odd", "odd cannot be given to a script"),
        ("%%data_analyze df --with gone", "there is no variable 'gone'"),
        ("%%data_analyze {df.head(1)}", "the table in braces has no name"),
        ("%%data_analyze sales.csv sales.csv", "two files have no name"),
        ("%%data_analyze df --with df,df2=3", "there is no variable 'df2=3'"),
        ("%%data_analyze df --out-file number.csv", "a value of type int, not a table to write"),
        ("%%data_analyze x=df --with x", "there is no variable 'x'"),
    ],
)
def test_what_cannot_be_given_is_said_in_three_lines(notebook: Notebook, line: str, said: str) -> None:
    cell = notebook.run(f"{line}\n1")
    assert said in cell.lines[1]
    assert len(cell.lines) <= 3


@pytest.mark.processes
def test_the_value_goes_to_a_file_as_a_result_of_sql_does(notebook: Notebook) -> None:
    cell = notebook.run("%%data_analyze df --out-file half.parquet -o half\nhalf = df.head(2)")
    assert cell.stdout == "2 rows written to half.parquet\nhalf: DataFrame, 2 rows x 2 columns\n"
    assert len(pd.read_parquet("half.parquet")) == len(notebook["half"]) == 2
    again = "%%data_analyze df --out-file half.parquet\nopen('ran.txt', 'w')\nresult = df"
    assert "exists already" in notebook.run(again).lines[1]
    assert not Path("ran.txt").exists(), "judged before it runs"
    assert notebook.run("%%data_analyze df --out-file half.parquet --overwrite\nresult = df").error is None
    assert len(pd.read_parquet("half.parquet")) == 3


@pytest.mark.processes
def test_a_chart_needs_no_name_and_is_kept(notebook: Notebook) -> None:
    cell = notebook.run("%%data_visualize df\nimport matplotlib.pyplot as plt\nplt.bar(df.city, df.amount);")
    assert sum("image/png" in bundle for bundle in cell.displayed) == 1
    assert cell.value.text.startswith("Visualization saved to: artifacts/chart-")
    assert Path(cell.value.data["path"]).read_bytes().startswith(b"\x89PNG")
    assert not [*Path().glob("chart*")]
    assert "made no picture" in notebook.run("%%data_visualize df\nx = 1").lines[1]


def image_size(path: str) -> tuple[int, int]:
    from PIL import Image

    with Image.open(path) as opened:
        return opened.size


@pytest.mark.processes
@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_a_last_value_that_draws_itself_is_the_picture(notebook: Notebook, suffix: str) -> None:
    code = "from PIL import Image\nImage.new('RGB', (20, 10), 'red')"
    cell = notebook.run(f"%%data_visualize df -i red{suffix}\n{code}")
    assert cell.error is None
    assert sum("image/png" in bundle for bundle in cell.displayed) == 1
    assert image_size(f"red{suffix}") == (20, 10)
    assert "made no picture" in notebook.run(f"%%data_visualize df -i red.svg\n{code}").lines[1]


@pytest.mark.slow
@pytest.mark.processes
def test_a_plot_of_seaborn_is_saved_in_each_form(notebook: Notebook) -> None:
    pytest.importorskip("seaborn")
    code = "import seaborn.objects as so\nso.Plot(df, x='city', y='amount').add(so.Bar())"
    for name, begins in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        cell = notebook.run(f"%%data_visualize df -i {name}\n{code}")
        assert cell.error is None
        assert Path(name).read_bytes().startswith(begins)
        assert sum("image/png" in bundle for bundle in cell.displayed) == 1
    assert notebook.run(f"%%data_visualize df\n{code}").value.text.startswith("Visualization saved to: artifacts/")
    assert notebook.run(f"%%data_analyze df -o plot\n{code.replace('so.Plot', 'plot = so.Plot')}").error is None
    assert notebook["plot"].data.startswith(b"\x89PNG")


@pytest.mark.processes
def test_a_chart_of_altair_is_shown_without_the_network(notebook: Notebook) -> None:
    pytest.importorskip("altair")
    code = "import altair as alt\nalt.Chart(df).mark_bar().encode(x='city', y='amount')"
    (chart,) = notebook.run(f"%%data_visualize df\n{code}").displayed
    drawn = chart["application/vnd.vegalite.v5+json"]
    assert drawn["mark"]["type"] == "bar"
    assert [row["city"] for row in next(iter(drawn["datasets"].values()))] == list(notebook["df"].city)
    assert "text/html" not in chart, "it would load from a CDN"
    own = notebook.run(f"%%data_analyze df\nimport altair as alt\nalt.renderers.enable('mimetype')\n{code}").displayed
    assert "application/vnd.vegalite.v5+json" not in own[-1]


@pytest.mark.processes
def test_a_chart_and_its_picture_are_one_output(notebook: Notebook) -> None:
    # What saves charts of plotly and altair is large; this chart has the form of theirs, and is saved as seaborn's is.
    code = (
        "from IPython.display import display\n"
        "from PIL import Image\n"
        "class Chart:\n    def save(self, path):\n        Image.new('L', (9, 9)).save(path)\n"
        "Chart.__module__ = 'seaborn.chart'\nchart = Chart()\n"
        "display({'application/vnd.plotly.v1+json': {'data': []}, 'text/html': '<script>'}, raw=True)"
    )
    cell = notebook.run(f"%%data_visualize df\n{code}")
    assert cell.error is None
    (chart,) = cell.displayed
    assert chart.keys() == {"application/vnd.plotly.v1+json", "image/png"}
    # What the script saved itself may be another picture.
    other = "import matplotlib.image, numpy\nmatplotlib.image.imsave(output_image_path, numpy.zeros((9, 9)))"
    assert len(notebook.run(f"%%data_visualize df\n{code}\n{other}").displayed) == 2


@pytest.mark.processes
def test_a_figure_of_plotly_is_shown_and_told_what_saves_it(notebook: Notebook) -> None:
    pytest.importorskip("plotly")
    code = "import plotly.graph_objects as go\ngo.Figure(go.Bar(x=df.city, y=df.amount))"
    cell = notebook.run(f"%%data_visualize df\n{code}")
    assert any("application/vnd.plotly.v1+json" in bundle for bundle in cell.displayed)
    if "not saved" in cell.value.text:
        assert "plotly saves pictures by kaleido, which is not installed" in cell.value.text
        assert "kaleido" in notebook.run(f"%%data_visualize df -i a.png\n{code}").lines[-1]
        hidden = notebook.run(f"%%data_visualize df\n{code.replace('go.Figure', 'figure = go.Figure')}")
        assert "make it the last line of the script to show it" in hidden.lines[-1]
        assert not hidden.displayed
    value = notebook.run(f"%%data_analyze df -o figure\n{code}")
    assert value.error is None
    assert type(notebook["figure"]).__module__.startswith("plotly")


@pytest.mark.processes
def test_a_model_names_tables_and_nothing_else(notebook: Notebook) -> None:
    notebook.run("from nbtools.assembly.shared import shared\nwb = shared()")
    ask = "wb.call('data_analyze', {'analysis_script': 'print(len(t))', 'inputs': {'t': %r}}, caller='model')"
    assert notebook.run(ask % "df").value.text == "3\n"
    for name in ("odd", "k", "_", "gone"):
        assert notebook.run(ask % name).value.error.code == "INVALID_ARGUMENTS"
    found = notebook.run(
        "wb.call('data_analyze', {'analysis_script': '1', 'files': {'t': 'sales.csv'}}, caller='model')"
    )
    assert "a model names one file" in found.value.error.message


def test_saved_queries_are_used_by_name(notebook: Notebook) -> None:
    assert (
        "recent is saved; it reads sales.csv"
        in notebook.run("%%nbsql --save recent\nselect * from 'sales.csv'").value.to_text()
    )
    assert notebook.run("%nbsql select sum(amount) as s from recent").value["s"].tolist() == [42]
    assert [row[:2] for row in notebook.run("%nbsql --saved").value.rows] == [("recent", "sales.csv")]
    # Another kernel has it too, where a DataFrame of that name comes first.
    session = notebook.shell.meta["nbtools"].dispatcher.session
    del session.saved_queries
    assert notebook.run("%nbsql select count(*) as n from recent").value["n"].tolist() == [2]
    del session.saved_queries
    notebook.run("recent = df")
    assert notebook.run("%nbsql from recent").value.shape == notebook.shell.user_ns["df"].shape
    notebook.run("del recent")
    assert "would use itself" in notebook.run("%%nbsql --save recent\nfrom recent").lines[1]
    assert "is a DataFrame already" in notebook.run("%%nbsql --save df\nselect 1").lines[1]
    assert "outside the allowed folders" in notebook.run("%%nbsql --save x\nfrom '/etc/passwd'").lines[0]


@pytest.mark.parametrize(
    ("plot", "marks"),
    [
        ("bar c s", 5),
        ("bar c", 5),
        ("bar d s", 4),
        ("hist s", 40),
        ("box c s", 5),
        ("box s", 1),
        ("line n s", 1_001),
        ("line t s", 1_001),
        ("scatter n s", 100),
    ],
)
def test_whole_results_are_drawn_from_few_numbers(notebook: Notebook, plot: str, marks: int) -> None:
    rows = "i as n, 'c' || (i % 5) as c, (i % 100) / 7 as s, timestamp '2020-01-01' + to_seconds(i) as t"
    rows += ", (i // 6000)::INTEGER as d"
    cell = notebook.run(f"%%nbsql --plot {plot}\nselect {rows} from range(20_000) r(i)")
    assert cell.error is None
    assert len(cell.value.data) == marks or (plot.startswith("scatter") and len(cell.value.data) > marks)
    assert cell.forms["image/png"].startswith(b"\x89PNG")
    if plot == "bar c":
        assert set(cell.value.data["height"]) == {4_000}
    if plot == "bar d s":
        assert cell.value.data["x"].tolist() == [0, 1, 2, 3]
        assert cell.value.data["height"].idxmin() == 3


@pytest.mark.parametrize("plot", ["hist n", "bar c n", "scatter n n"])
def test_columns_of_a_chart_stand_on_the_line_too(notebook: Notebook, plot: str) -> None:
    cell = notebook.run(f"%nbsql --plot {plot} select i as n, 'c' || (i % 5) as c from range(200) r(i)")
    assert cell.error is None
    assert cell.forms["image/png"].startswith(b"\x89PNG")


def test_a_chart_says_how_much_of_the_result_it_draws(notebook: Notebook) -> None:
    rows = "select * from (values ('nan', 5), (null, 3), ('b', null)) t(g, v)"
    cell = notebook.run(f"%nbsql --plot bar g v {rows}")
    assert repr(cell.value) == "<bar chart of g, v: 2 marks; 1 bar is not drawn: v is null or out of range>"
    assert repr(notebook.run(f"%nbsql --plot hist v {rows} where v = 5").value) == "<hist chart of v: 1 mark>"


def test_what_cannot_be_drawn_is_said(notebook: Notebook) -> None:
    for plot, said in (
        ("pie city", "is not a kind of chart"),
        ("bar cty", "no column 'cty'"),
        ("line city", "no column"),
        ("hist city", "needs a column of numbers"),
    ):
        lines = notebook.run(f"%%nbsql --plot {plot}\nselect city from df").lines
        assert said in lines[1] or plot == "line city"


CHAIN = [
    "%load_ext nbtools",
    "import pandas as pd\ndf = pd.DataFrame({'city': ['Bern', 'Chur', 'Bern'], 'amount': [1, 2, 4]})",
    "%%data_analyze df -o summary\ndf.groupby('city', as_index=False).amount.sum()",
    "%%nbsql -o top\nselect city, amount from summary order by amount desc limit 1",
    "%%nbsql --out-file top.parquet\nfrom top",
    "%memory save top {top}",
]
AFTER = [
    "%load_ext nbtools",
    "%memory get top -o top",
    "print(top.to_dict('list'))",
    "%nbsql select city from 'top.parquet'",
]


@pytest.mark.slow
@pytest.mark.processes
def test_the_chain_of_a_day_survives_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("NBTOOLS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("NBTOOLS_MEMORY_URL", raising=False)
    told = ""
    for cells in (CHAIN, AFTER):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
        nbclient.NotebookClient(
            notebook, timeout=120, iopub_timeout=120, resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
        told += str([cell.outputs for cell in notebook.cells])
    assert "1 row written to top.parquet" in told
    assert "{'city': ['Bern'], 'amount': [5]}" in told
    assert (tmp_path / "top.parquet").is_file()
