"""The outputs of a run as one list, and its text."""

from __future__ import annotations

from typing import Any

import pytest

from nbtools.kernels.interface import DISPLAY_ID, Execution, OutputLimits, OutputPiece
from nbtools.kernels.runs.output import Collector
from nbtools.texts.shown import RunOutputs, plain_form, read_text


def test_the_text_has_streams_and_displays_in_the_order_in_which_they_came() -> None:
    shown = RunOutputs()
    for part in ("read ", "on"):
        shown.stream("stdout", part)
    shown.display({"text/plain": "table"})
    shown.stream("stderr", "warned\n")
    shown.stream("stdout", "done\n")
    assert read_text(shown.outputs) == "read on\ntable\nwarned\ndone\n"
    assert read_text(shown.outputs, ("stdout",)) == "read on\ntable\ndone\n"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("10%\r 50%\r100%\nend", "100%\nend"),
        ("windows\r\nlines\r\n", "windows\nlines\n"),
        ("abcdef\rxy", "xycdef"),
        ("\x1b[31mred\x1b[0m\n", "red\n"),
        ("half\r", "half"),
    ],
)
def test_a_line_that_begins_anew_is_written_over(text: str, read: str) -> None:
    assert read_text([("stdout", text)]) == read


def test_progress_in_pieces_is_one_line() -> None:
    shown = RunOutputs()
    for step in range(5):
        shown.stream("stdout", f"\rstep {step}")
        shown.stream("stderr", ".")
    assert read_text(shown.outputs, ("stdout",)) == "step 4"


@pytest.mark.parametrize(
    ("bundle", "text"),
    [
        ({"text/plain": "a  b", "text/html": "<table>"}, "a  b"),
        ({"text/plain": "<Figure with 1 Axes>", "image/png": "AAAA"}, "[picture: Figure with 1 Axes]"),
        ({"text/plain": "<IPython.core.display.Image object>", "image/jpeg": "AAAA"}, "[picture: image/jpeg]"),
        ({"text/plain": "<IPython.core.display.Markdown object>", "text/markdown": "# Title"}, "# Title"),
        ({"text/plain": "<a.B object>", "text/html": "<style>x</style><p>one</p><p>a &amp; b</p>"}, "one\na & b"),
        ({"text/plain": "<a.B object at 0x7f00>"}, "<a.B object at 0x7f00>"),
        ({"text/html": "<tr><td>1</td><td>2</td></tr>"}, "1  2"),
        ({"text/html": "<canvas></canvas>"}, "[shown: text/html]"),
        ({"application/json": {"a": "é"}}, '{"a": "é"}'),
        ({"application/vnd.plotly.v1+json": {}, "text/plain": "Fig({…})"}, "[chart: application/vnd.plotly.v1+json]"),
        ({"application/javascript": "alert(1)"}, "[shown: application/javascript]"),
    ],
)
def test_a_bundle_is_told_as_a_person_reads_it(bundle: dict[str, Any], text: str) -> None:
    assert plain_form(bundle) == text


def test_clearing_waits_for_what_takes_the_place_and_is_handed_on_with_it() -> None:
    seen: list[OutputPiece] = []
    collector = Collector(seen.append)
    for step in range(3):
        collector.clear(wait=True)
        collector.stream("stdout", f"step {step}\n")
    collector.clear(wait=True)  # nothing follows, so this stays
    assert collector.execution("ok").stdout == "step 2\n"
    kinds = [(piece.kind, piece.text) for piece in seen]
    again = [("clear", "wait"), ("stdout", "step 1\n"), ("clear", "wait"), ("stdout", "step 2\n")]
    assert kinds == [("clear", "wait"), ("stdout", "step 0\n"), *again]


def test_what_is_cleared_gives_its_room_back_and_endless_clearing_ends() -> None:
    collector = Collector(limits=OutputLimits(text_bytes=10))
    for _ in range(30):
        collector.stream("stdout", "123456")
        collector.clear()
    collector.stream("stdout", "end")
    done = collector.execution("ok")
    assert (done.stdout, done.truncated, collector.is_runaway) == ("end", False, False)
    for _ in range(60):
        collector.stream("stdout", "123456")
        collector.clear()
    assert collector.is_runaway


def test_an_update_names_the_display_that_it_replaces() -> None:
    seen: list[OutputPiece] = []
    collector = Collector(seen.append)
    collector.display({"text/plain": "1"}, display_id="d")
    collector.display({"text/plain": "2"}, display_id="d", update=True)
    collector.display({"text/plain": "3"}, display_id="other", update=True)
    told_of = [(piece.kind, (piece.data or {}).get(DISPLAY_ID), piece.text) for piece in seen]
    assert told_of == [("display", "d", "1"), ("update", "d", "2"), ("display", "other", "3")]
    assert collector.execution("ok").outputs == (("display", {"text/plain": "2"}), ("display", {"text/plain": "3"}))


def test_a_widget_of_another_process_is_shown_as_its_text() -> None:
    collector = Collector()
    collector.display({"text/plain": "IntText(7)", "application/vnd.jupyter.widget-view+json": {"model_id": "x"}})
    assert collector.execution("ok").displays == ({"text/plain": "IntText(7)"},)


def test_an_execution_that_is_made_by_hand_has_its_parts_in_one_list() -> None:
    made = Execution(status="ok", stdout="a\n", stderr="b\n", displays=({"text/plain": "c"},))
    assert made.outputs == (("stdout", "a\n"), ("stderr", "b\n"), ("display", {"text/plain": "c"}))
    assert (made.text(), made.text(("stdout",))) == ("a\nb\nc\n", "a\nc\n")
