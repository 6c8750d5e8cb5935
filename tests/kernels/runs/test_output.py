"""What a collector keeps, cuts and hands on."""

from __future__ import annotations

from nbtools.kernels.interface import ErrorDetail, OutputLimits, OutputPiece
from nbtools.kernels.runs.output import Collector


def test_text_is_kept_by_stream_and_handed_on_as_it_comes() -> None:
    seen: list[OutputPiece] = []
    collector = Collector(seen.append)
    collector.stream("stdout", "a")
    collector.stream("stderr", "b")
    collector.stream("stdout", "c")
    done = collector.execution("ok")
    assert (done.stdout, done.stderr, done.truncated) == ("ac", "b", False)
    assert [(output.kind, output.text) for output in seen] == [("stdout", "a"), ("stderr", "b"), ("stdout", "c")]


def test_the_cap_counts_bytes_of_both_streams_together() -> None:
    collector = Collector(limits=OutputLimits(text_bytes=5))
    collector.stream("stdout", "äß")
    collector.stream("stderr", "üx")
    done = collector.execution("ok")
    assert (done.stdout, done.stderr, done.truncated) == ("äß", "", True)


def test_a_character_split_over_two_reads_arrives_whole() -> None:
    collector = Collector()
    data = "世".encode()
    collector.raw("stdout", data[:1])
    collector.raw("stdout", data[1:])
    collector.raw("stdout", b"\xff!", final=True)
    assert collector.execution("ok").stdout == "世�!"


def test_output_far_beyond_the_cap_is_called_runaway() -> None:
    collector = Collector(limits=OutputLimits(text_bytes=10))
    collector.stream("stdout", "x" * 30)
    assert not collector.is_runaway
    collector.stream("stdout", "x" * 30)
    assert collector.is_runaway


def test_an_overflow_in_the_kernel_keeps_room_for_text_on_its_way() -> None:
    collector = Collector(limits=OutputLimits(text_bytes=10))
    collector.overflow()
    collector.stream("stdout", "late")
    assert collector.is_runaway
    assert collector.execution("output_limit").stdout == "late"


def test_an_updated_display_replaces_the_one_it_updates() -> None:
    collector = Collector()
    collector.display({"text/plain": "one"}, display_id="d")
    collector.display({"text/plain": "other"})
    collector.display({"text/plain": "two"}, display_id="d", update=True)
    assert collector.execution("ok").displays == ({"text/plain": "two"}, {"text/plain": "other"})


def test_displays_beyond_their_cap_are_dropped() -> None:
    collector = Collector(limits=OutputLimits(display_bytes=25))
    collector.display({"text/plain": "12345"})
    collector.display({"text/plain": "1234567"})
    done = collector.execution("ok")
    assert (len(done.displays), done.truncated) == (1, True)
    whole = Collector(limits=OutputLimits(display_bytes=15))
    whole.display({"text/plain": "12345"})
    assert not whole.execution("ok").truncated


def test_an_updated_display_counts_as_it_is_now() -> None:
    collector = Collector(limits=OutputLimits(display_bytes=40))
    collector.display({"a": "é" * 8}, display_id="d")
    for size in range(1, 18):
        collector.display({"a": "é" * size}, display_id="d", update=True)
    assert collector.execution("ok").displays == ({"a": "é" * 17},)
    assert not collector.truncated
    # One that does not fit leaves what was shown; the rest of the room is that of the last state.
    collector.display({"a": "é" * 20}, display_id="d", update=True)
    collector.display({"a": ["é"]})
    assert collector.execution("ok").displays == ({"a": "é" * 17},)
    assert (collector.truncated, collector.is_runaway) == (True, False)
    for _ in range(40):
        collector.display({"a": "é" * 17}, display_id="d", update=True)
    assert collector.is_runaway


def test_displays_without_end_are_a_runaway_wherever_they_are_dropped() -> None:
    here, there = Collector(limits=OutputLimits(display_bytes=10)), Collector(limits=OutputLimits(display_bytes=10))
    for size in (9, 9, 9, 9):
        assert not here.is_runaway
        here.display({"a": "x" * size})
        there.drop(size)
    here.display({"a": "x" * 9})
    assert (here.is_runaway, there.is_runaway, there.truncated) == (True, True, True)


def test_clearing_forgets_what_was_shown() -> None:
    collector = Collector()
    collector.stream("stdout", "gone")
    collector.display({"text/plain": "gone"})
    collector.clear()
    collector.stream("stdout", "stays")
    done = collector.execution("ok")
    assert (done.stdout, done.displays) == ("stays", ())


def test_clearing_is_told_when_it_happens() -> None:
    seen: list[OutputPiece] = []
    collector = Collector(seen.append)
    collector.stream("stdout", "gone")
    collector.clear(wait=True)
    assert [piece.kind for piece in seen] == ["stdout"]
    collector.stream("stdout", "stays")
    assert [piece.kind for piece in seen] == ["stdout", "clear", "stdout"]
    collector.clear()
    assert [piece.kind for piece in seen] == ["stdout", "clear", "stdout", "clear"]


def test_a_display_that_is_broken_is_called_once_and_the_output_is_kept() -> None:
    calls: list[str] = []

    def show(piece: OutputPiece) -> None:
        calls.append(piece.text)
        raise RuntimeError("the page is gone")

    collector = Collector(show)
    for text in "abc":
        collector.stream("stdout", text)
    assert (calls, collector.execution("ok").stdout) == (["a"], "abc")


def test_an_error_is_kept_without_colours_and_told_in_the_end() -> None:
    seen: list[OutputPiece] = []
    collector = Collector(seen.append)
    collector.add_error("ValueError", "no", "\x1b[31mtrace\x1b[0m", line=3)
    done = collector.execution("error")
    assert done.error == ErrorDetail(name="ValueError", value="no", traceback="trace", line=3)
    assert [output.text for output in seen] == ["line 3: ValueError: no"]


def test_the_echo_of_an_interrupt_is_no_error() -> None:
    collector = Collector()
    collector.add_error("KeyboardInterrupt", "")
    assert collector.execution("timeout").error is None


def test_errors_beside_the_one_that_ended_the_code_are_text() -> None:
    collector = Collector()
    collector.stream("stderr", "so far")
    for value in ("shown", "guilty", "cleaning up"):
        collector.add_error("ValueError", value)
    collector.set_error("ValueError", "guilty")
    done = collector.execution("error")
    assert done.error == ErrorDetail(name="ValueError", value="guilty")
    assert done.stderr == "so far\nValueError: shown\nValueError: cleaning up\n"


def test_errors_of_code_that_went_on_are_text() -> None:
    seen: list[OutputPiece] = []
    collector = Collector(seen.append)
    collector.add_error("ValueError", "no", "trace\nValueError: no")
    collector.clear_error()
    done = collector.execution("ok")
    assert (done.error, done.stderr) == (None, "trace\nValueError: no\n")
    assert [output.kind for output in seen] == ["stderr"]


def test_an_error_before_the_end_from_outside_is_text() -> None:
    collector = Collector()
    collector.add_error("ValueError", "no")
    assert collector.execution("died").stderr == "ValueError: no\n"
