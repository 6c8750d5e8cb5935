"""What a person is shown of a call cannot be forged: at a terminal, in a notebook, by an MCP client."""

from __future__ import annotations

import io

import pytest
from mcp import types
from mcp.client.client import Client

from nbtools import Workbench, aio
from nbtools.gate import AskTerminal
from nbtools.jupyter.display.blocks import Card, Table
from nbtools.mcp_server import make_server
from nbtools.visible import visible

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


def test_at_a_terminal(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    out = io.StringIO()
    approver = AskTerminal(lambda _: "n", out)
    with Workbench(home=tmp_path, memory_url=":memory:", spares=0, approver=approver) as bench:
        result = bench.call("code_execute", {"code": CODE}, caller="model")
    assert result.error is not None
    assert is_true(out.getvalue())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
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
