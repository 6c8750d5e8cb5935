"""The table of ARCHITECTURE.md, *what a run may emit* by *who reads it*: each cell is a test."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from mcp.client.client import Client
from nbclient import NotebookClient

from nbtools import Workbench, cli
from nbtools.ground import aio
from nbtools.mcp_server import make_server

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Emit:
    """A row: code in which M stands for its mark, what tells that it was there, and the content that a cell has."""

    code: str
    name: str = "-"
    content: str = "Mlast"

    def marked(self, number: int) -> Emit:
        mark = f"Row{number:02}"
        return Emit(*(re.sub(r"\bM(?=\b|first|last)", mark, part) for part in dataclasses.astuple(self)))

    @property
    def written_over(self) -> str:
        return self.content.replace("last", "first")


SHOW = "from IPython.display import HTML, SVG, Javascript, Markdown, clear_output, display\n"
C = "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.puts(b'Mlast')\nlibc.fflush(None)"
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><text>Mlast</text></svg>'
EMITS = {
    "text on stdout, of Python": Emit("print('Mlast')"),
    "text on stdout, of C": Emit(C),
    "text on stdout, of a child": Emit("import subprocess\nsubprocess.run(['echo', 'Mlast'])\nNone"),
    "text on stderr": Emit("import sys\nprint('Mlast', file=sys.stderr)"),
    "carriage returns": Emit("print('Mfirst', end='\\r')\nprint('Mlast ')"),
    "`display(x)`": Emit("import pandas as pd\ndisplay(pd.DataFrame({'Mlast': [1]}))"),
    "the last value": Emit("'Mlast'"),
    "a figure": Emit("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()", "picture: Figure", "image/png"),
    "`update_display`": Emit(f"{SHOW}h = display('Mfirst', display_id='d')\nh.update('Mlast')"),
    "`clear_output`": Emit(f"{SHOW}print('Mfirst')\nclear_output(wait=True)\nprint('Mlast')"),
    "HTML": Emit(f"{SHOW}display(HTML('<i>Mlast</i>'))"),
    "Markdown": Emit(f"{SHOW}display(Markdown('*Mlast*'))"),
    "SVG": Emit(f"{SHOW}display(SVG('{SVG}'))", "picture: image/svg+xml"),
    "JavaScript": Emit(f"{SHOW}display(Javascript('/* Mlast */'))", "shown: application/javascript"),
    "a widget": Emit("import ipywidgets\ndisplay(ipywidgets.IntText(7, description='M'))", "IntText", "widget-view"),
    "an error": Emit("raise ValueError('Mlast')"),
    "a warning": Emit("import warnings\nwarnings.warn('Mlast')"),
    "logging": Emit("import logging\nlogging.error('Mlast')"),
    "a file": Emit("from pathlib import Path\nPath('M.txt').write_text('Mlast')\nNone", "M.txt"),
}
ROWS = {row: emit.marked(number) for number, (row, emit) in enumerate(EMITS.items())}


def _table() -> tuple[list[str], dict[str, list[str]]]:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("## What a run may emit")[2]
    lines = [line for line in page.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return cells[0][1:], {row[0]: row[1:] for row in cells[2:]}


READERS, TABLE = _table()


# -- what each reader reads --------------------------------------------------------------------------------------------


def _cells(folder: Path) -> dict[str, list[Any]]:
    """Run each row in a cell of a notebook, and return the outputs of each."""
    cells = [f"%%code python\n{emit.code}" for emit in ROWS.values()]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in ("%load_ext nbtools", *cells)])
    NotebookClient(
        book, timeout=120, iopub_timeout=120, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    ).execute()
    return {row: cell["outputs"] for row, cell in zip(ROWS, book.cells[1:], strict=True)}


def _on_screen(outputs: list[Any], *, saved: bool) -> str:
    """Return what a front end draws of outputs, with the kinds of what it draws by more than text."""
    told = []
    for output in outputs:
        if output["output_type"] == "stream":
            told.append(re.sub(r"[^\n]*\r(?!\n)", "", output["text"]))  # as JupyterLab does
        elif output["output_type"] == "error":
            told.append("\n".join(output["traceback"]))
        else:
            told += [f"{kind}\n{data}" for kind, data in output["data"].items() if not saved or "widget" not in kind]
    return "\n".join(told)


def _asked(bench: Workbench, code: str) -> Any:
    return bench.call("code_execute", {"code": code})


def _sent_to_model(bench: Workbench) -> dict[str, str]:
    calls = [{"tool": "code_execute", "arguments": {"code": emit.code}} for emit in ROWS.values()]
    turns = [*({"calls": [call]} for call in calls), {"say": "Done."}]
    run = bench.agent("Go!", script=yaml.safe_dump(turns), budgets={"steps": 99, "tool_calls": 99})
    assert run.state == "done", run
    return {row: call.sent for row, call in zip(ROWS, run.calls, strict=True)}


def _over_mcp(bench: Workbench) -> dict[str, str]:
    async def ask() -> dict[str, str]:
        async with Client(make_server(bench)) as client:
            said = {row: await client.call_tool("code_execute", {"code": emit.code}) for row, emit in ROWS.items()}
        return {row: "\n".join(str(block) for block in each.content) for row, each in said.items()}

    return aio.run(ask(), timeout=300)


def _on_command_line() -> dict[str, str]:
    """Return what the command line prints, of one call of all rows: what clears comes first, the error last."""
    rows = sorted(ROWS, key=("`clear_output`", "a file", *ROWS).index)
    rows.append(rows.pop(rows.index("an error")))
    code = "\n".join(ROWS[row].code for row in rows).replace("'Row06last'\n", "display('Row06last')\n")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        cli.main(["call", "code_execute", "--json", json.dumps({"code": code})])
    return dict.fromkeys(ROWS, json.loads(out.getvalue())["text"] + str(json.loads(out.getvalue())["artifacts"]))


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """What each reader reads of each row."""
    folder = tmp_path_factory.mktemp("readers")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("NBTOOLS_HOME", str(folder / "home"))
        patch.setenv("NBTOOLS_MEMORY_URL", ":memory:")
        outputs = _cells(folder)
        found = {
            "live cell": {row: _on_screen(each, saved=False) for row, each in outputs.items()},
            "saved cell": {row: _on_screen(each, saved=True) for row, each in outputs.items()},
        }
        with Workbench(policy={"code_execute": "allow"}, sandbox="off") as bench:
            results = {row: _asked(bench, emit.code) for row, emit in ROWS.items()}
            found["text for a person"] = {row: str(each) for row, each in results.items()}
            found["data"] = {row: "\n".join(map(str, each.data.values())) for row, each in results.items()}
            records = {record["call_id"]: record for record in bench.call_records()}
            # The arguments are the code itself.
            told = {row: {**records[each.call_id], "arguments": ""} for row, each in results.items()}
            found["record"] = {row: str(each) for row, each in told.items()}
            found["text for a model"] = _sent_to_model(bench)
            found["MCP content"] = _over_mcp(bench)
        found["command line"] = _on_command_line()
        yield found


WORDS: dict[str, Callable[[str, Emit], bool]] = {
    "whole": lambda text, emit: emit.content in text,
    "last": lambda text, emit: emit.content in text and emit.written_over not in text,
    "both": lambda text, emit: emit.content in text and emit.written_over in text,
    "name": lambda text, emit: emit.name in text and emit.content not in text,
    "no": lambda text, emit: emit.name not in text and emit.content not in text,
}


def test_the_table_has_all_rows_and_its_readers() -> None:
    assert list(TABLE) == list(ROWS)
    assert {len(cells) for cells in TABLE.values()} == {len(READERS)}
    assert {word for cells in TABLE.values() for word in cells} <= WORDS.keys()


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_reads_what_the_table_says(readings: dict[str, dict[str, str]], reader: str) -> None:
    said = dict(zip(ROWS, (cells[READERS.index(reader)] for cells in TABLE.values()), strict=True))
    wrong = [
        f"{row}: {word} was expected of {readings[reader][row]!r}"
        for row, word in said.items()
        if not WORDS[word](readings[reader][row], ROWS[row])
    ]
    assert not wrong, "\n".join(wrong)
