"""What a person is shown of a call cannot be forged: at a terminal, in a notebook, by an MCP client."""

from __future__ import annotations

import io

import pytest
from mcp import types
from mcp.client.client import Client

from nbtools import Workbench
from nbtools.contract.approval.gate import AskTerminal
from nbtools.ground import aio
from nbtools.jupyter.display.blocks import Card, Table
from nbtools.mcp_server import make_server
from nbtools.sql.results.texts import spell
from nbtools.texts.visible import visible

# A cursor that goes up and rewrites the line, text from right to left, a character of no width, one that looks empty.
CODE = (
    "import shutil; shutil.rmtree('/home/me')\n"
    "#\x1b[1A\x1b[2K\r  code: print(6 * 7)\x1b[8m\u202egpj\u200b\u3164\n"
    "  (harmless)"
)
RAW = "\x1b\r\u202e\u200b\u3164"


def is_true(shown: str) -> bool:
    lines = shown.splitlines()
    rows = [line for line in lines if line.startswith("  │ ")]
    hidden = ("<U+001B>", "<U+000D>", "<U+202E>", "<U+200B>", "<U+3164>")
    return (
        not set(RAW) & set(shown)
        and all(name in shown for name in hidden)
        and rows[0] == "  │ import shutil; shutil.rmtree('/home/me')"
        and rows[2] == "  │   (harmless)"
    )


@pytest.mark.processes
def test_at_a_terminal(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    out = io.StringIO()
    approver = AskTerminal(lambda _: "n", out)
    with Workbench(home=tmp_path, memory_url=":memory:", spares=0, approver=approver) as bench:
        result = bench.call("code_execute", {"code": CODE}, caller="model")
    assert result.error is not None
    assert is_true(out.getvalue())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.processes
def test_by_an_mcp_client(tmp_path, mode) -> None:
    asked: list[str] = []

    async def answering(context, params):
        asked.append(params.message)
        return types.ElicitResult(action="decline")

    async def work(bench: Workbench) -> None:
        async with Client(make_server(bench), mode=mode, elicitation_callback=answering) as client:
            await client.call_tool("code_execute", {"code": CODE})

    with Workbench(home=tmp_path, memory_url=":memory:", spares=0) as bench:
        aio.run(work(bench), timeout=60)
    assert len(asked) == 1
    assert is_true(asked[0])


def test_in_a_notebook() -> None:
    hidden = f"a{RAW}b"
    shown = [Table(columns=("arguments",), rows=(({"code": hidden},),)), Card(title="call", facts={"code": hidden})]
    for block in shown:
        for text in (block.to_text(), block.to_html()):
            assert not set(RAW) & set(text)
            assert "U+202E" in text


@pytest.mark.parametrize(
    ("text", "lines", "shown"),
    [
        ("plain", False, "plain"),
        ("Grüße, 世界 🙂", False, "Grüße, 世界 🙂"),
        ("a\nb\tc", True, "a\nb\tc"),
        ("a\nb", False, "a<U+000A>b"),
        ("a\xa0b\u2028c\udc80\U000e0041\ufe0f", True, "a<U+00A0>b<U+2028>c<U+DC80><U+E0041><U+FE0F>"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(text: str, lines: bool, shown: str) -> None:
    assert visible(text, lines=lines) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *((text, text) for text in ("❤\ufe0f", "👨\u200d👩\u200d👧", "❤\ufe0f\u200d🔥", "क्\u200dष", "葛\U000e0100")),
        ("n\ufe0fe\u200d", "n<U+FE0F>e<U+200D>"),
        ("❤\ufe0f\ufe0f\u200d\u200d", "❤\ufe0f<U+FE0F><U+200D><U+200D>"),
        ("\ufe0f \u200d❤\u200b\ufe0f", "<U+FE0F> <U+200D>❤<U+200B><U+FE0F>"),
    ],
)
def test_a_cell_keeps_what_a_sign_is_written_with(text: str, shown: str) -> None:
    assert spell(text) == shown
    assert "<U+" in visible(text)


DRIVING = "\x1b]0.title\x07\x1b[2J\x9b2J\u202e\u2066\u200f"
PATH = '{"path": "odd.csv"}'
DRIVES = {char for char in DRIVING if not char.isprintable()}


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.processes
@pytest.mark.parametrize(
    "words",
    [("sql", "select s from 'odd.csv'"), ("sql", "select z from 'odd.csv'"), ("call", "file_read", "--json", PATH)],
)
def test_data_drive_no_terminal_by_the_command_line(tmp_path, monkeypatch, words) -> None:
    from nbtools.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NBTOOLS_HOME", str(tmp_path / "home"))
    (tmp_path / "odd.csv").write_text(f'"s","{DRIVING}"\n"{DRIVING} ❤\ufe0f",2\n', encoding="utf-8", newline="")
    out, err = _Terminal(), _Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    main(words)
    shown = out.getvalue() + err.getvalue()
    assert not DRIVES & set(shown)
    assert "<U+202E>" in shown
    assert "❤" not in shown or "❤\ufe0f" in shown, "what drives nothing is left as it is"
    # To a file or a pipe goes what there is.
    plain = io.StringIO()
    monkeypatch.setattr("sys.stdout", plain)
    main(["call", "file_read", "--json", PATH])
    assert "\u202e" in plain.getvalue()


def _results(folder):
    from nbtools.contract.result import ErrorInfo, ToolResult
    from nbtools.errors import FileMissing
    from nbtools.jupyter.display.blocks import Listing
    from nbtools.jupyter.display.query_frame import QueryFrame
    from nbtools.workflow.driver.preview import Preview, PreviewedNode
    from nbtools.workflow.findings import Report, WorkflowFinding

    (folder / "odd.csv").write_text(f'"s"\n"{DRIVING}"\n', encoding="utf-8", newline="")
    with Workbench(home=folder / "home", memory_url=":memory:", allowed_paths=[folder], spares=0) as bench:
        found, note = bench.sql_session.query(f"select s from '{folder}/odd.csv'"), bench.memory.write("k", DRIVING)
    error = ErrorInfo(code="INTERNAL", message=DRIVING)
    finding = WorkflowFinding(code="WF001", message=DRIVING, path="w.yaml", line=1, column=1, excerpt=DRIVING)
    return {
        "result": ToolResult(ok=True, tool="x", call_id="1", text=DRIVING),
        "failure": ToolResult(ok=False, tool="x", call_id="1", error=error),
        "query": found,
        "frame": QueryFrame.from_result(found),
        "listing": Listing(text=DRIVING),
        "note": note,
        "preview": Preview(workflow="w", nodes=(PreviewedNode(node="n", item=None, action="run", why=DRIVING),)),
        "findings": Report(path="w.yaml", findings=(finding,)),
        "error": Listing(text="\n".join(FileMissing(DRIVING)._render_traceback_())),
    }


def test_data_drive_no_terminal_by_results_that_are_printed(tmp_path) -> None:
    from IPython.lib.pretty import pretty

    found = _results(tmp_path)
    forms = {f"{name} {form.__name__}": form(one) for name, one in found.items() for form in (str, repr, pretty)}
    assert [name for name, text in forms.items() if DRIVES & set(text)] == []
