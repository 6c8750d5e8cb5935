from __future__ import annotations

import errno
import os
import resource
import signal

import pytest

from nbtools.memory.duckdb.journal import Journal, JournalEntry
from nbtools.memory.rules.rows import Clock, Row, row_from_list, row_to_list


def entry(seq, request="r", count=1, value='"v"'):
    rows = [
        (place, Row(seq + place, f"a:*:*:k{seq}", "a", None, None, f"k{seq}", "write", value, ("t",), 1, 2, None, 1))
        for place in range(count)
    ]
    return JournalEntry(request, tuple(rows))


def seqs(journal, after=0):
    return [row.seq for found in journal.replay(after) for _, row in found.rows]


@pytest.fixture
def journal(tmp_path):
    opened = Journal(tmp_path / "log")
    yield opened
    opened.close()


def test_entries_come_back_as_they_went_in(journal, tmp_path):
    entries = [entry(1), entry(2, "s", 3, '{"é":"\\n"}'), entry(5)]
    journal.append(entries[:2])
    journal.append(entries[2:])
    assert list(Journal(tmp_path / "log").replay(0)) == entries
    assert seqs(journal, 1) == [2, 3, 4, 5]
    assert seqs(journal, 3) == [2, 3, 4, 5]  # A request is read whole; who replays takes what it lacks.
    assert seqs(journal, 5) == []


def test_a_row_survives_its_list():
    row = entry(1).rows[0][1]._replace(vector=(1.0, 2.5), workflow="w", tags=())
    row = row._replace(id=row.scope.record_id(row.key))
    assert row_from_list(row_to_list(row)) == row


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_end_is_cut_off_and_writing_goes_on(tmp_path, cut):
    first = Journal(tmp_path / "log")
    first.append([entry(1)])
    first.append([entry(2)])
    first.close()
    (segment,) = first.segments()
    os.truncate(segment, segment.stat().st_size - cut)
    again = Journal(tmp_path / "log")
    assert seqs(again) == [1]
    assert [notice[:36] for notice in again.notices] == ["The journal ended in half a line, wh"]
    again.append([entry(2, "new")])
    assert seqs(again) == [1, 2]
    again.close()


def test_a_segment_in_use_ends_in_zeros_that_tell_nothing(tmp_path):
    """A process that is killed leaves them; one that closes its journal cuts them off."""
    journal = Journal(tmp_path / "log")
    journal.append([entry(1)])
    size = journal.size()
    journal.append([entry(2)])
    (segment,) = journal.segments()
    left = segment.read_bytes()
    assert (len(left), journal.size()) == (1 << 20, 2 * size)
    journal.close()
    assert segment.read_bytes() == left.rstrip(b"\0")
    for torn, told in ((b"", []), (b'0123abcd [3,"r",[[0', ["The journal ended in half a line, wh"])):
        whole = left.rstrip(b"\0") + torn
        segment.write_bytes(whole + bytes(len(left) - len(whole)))
        again = Journal(tmp_path / "log")
        assert seqs(again) == [1, 2]
        assert [notice[:36] for notice in again.notices] == told
    again.append([entry(3)])
    assert seqs(again) == [1, 2, 3]
    again.close()


def test_every_flipped_byte_is_noticed_and_costs_one_line(tmp_path):
    first = Journal(tmp_path / "log")
    for number in (1, 2, 3):
        first.append([entry(number)])
    first.close()
    (segment,) = first.segments()
    whole = segment.read_bytes()
    second = whole.index(b"\n") + 1
    for place in range(second, whole.index(b"\n", second) - 1, 11):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        segment.write_bytes(damaged)
        assert seqs(Journal(tmp_path / "log")) == [1, 3]


def test_broken_lines_at_the_end_are_told_and_set_aside(tmp_path):
    first = Journal(tmp_path / "log")
    for number in (1, 2, 3):
        first.append([entry(number)])
    first.close()
    (segment,) = first.segments()
    whole = segment.read_bytes()
    third = whole.rindex(b"\n", 0, -1) + 1
    for damaged in (
        whole[: third + 20] + b"?" + whole[third + 21 :],
        whole[: third + 20] + bytes(200),
        whole[: third + 20] + b"?" + whole[third + 21 :] + b"torn",
    ):
        segment.write_bytes(damaged)
        again = Journal(tmp_path / "log")
        assert seqs(again) == [1, 2]
        assert len(again.notices) == 1
        aside = segment.with_name(segment.name + ".damaged")
        assert aside.read_bytes() == damaged[third:]
        assert segment.read_bytes() == whole[:third]
        aside.unlink()
    segment.write_bytes(whole[:-1] + b"?")
    for _ in range(2):
        again = Journal(tmp_path / "log")
        assert seqs(again) == [1, 2, 3]
        assert again.notices == []
    segment.write_bytes(b"")
    again = Journal(tmp_path / "log")
    assert seqs(again, 5) == []
    assert again.notices == []
    assert seqs(again) == []
    assert len(again.notices) == 1


def test_a_failed_append_leaves_nothing_behind(journal, monkeypatch):
    journal.append([entry(1)])
    real = os.write

    def half(fd, data):
        if real(fd, bytes(data)[: len(data) // 2]):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("nbtools.memory.duckdb.journal.os.write", half)
    with pytest.raises(OSError, match="No space"):
        journal.append([entry(2), entry(3)])
    monkeypatch.undo()
    journal.append([entry(2, "after")])
    assert [found.request for found in journal.replay(0)] == ["r", "after"]


def test_a_journal_that_cannot_be_taken_back_is_not_written_again(tmp_path):
    broken = []

    def sync(_):
        if broken:
            raise OSError(errno.EIO, "Input/output error")

    journal = Journal(tmp_path / "log", sync=sync)
    journal.append([entry(1)])
    broken.append(True)
    with pytest.raises(OSError, match="Input/output"):
        journal.append([entry(2)])
    broken.clear()
    with pytest.raises(OSError, match="taken back"):
        journal.append([entry(2)])


def test_segments_are_dropped_when_all_of_them_is_elsewhere(tmp_path):
    journal = Journal(tmp_path / "log", segment_bytes=200)
    for number in range(1, 11):
        journal.append([entry(number)])
    assert len(journal.segments()) > 3
    assert seqs(journal) == list(range(1, 11))
    assert seqs(journal, 8) == [9, 10]
    before = journal.size()
    journal.drop(5)
    assert journal.size() < before
    assert seqs(journal)[-5:] == [6, 7, 8, 9, 10]
    journal.drop(100)
    assert len(journal.segments()) == 1
    journal.close()


def test_a_torn_line_in_a_middle_segment_does_not_hide_the_next_segment(tmp_path):
    journal = Journal(tmp_path / "log", segment_bytes=1)
    for number in (1, 2, 3):
        journal.append([entry(number)])
    journal.close()
    os.truncate(journal.segments()[1], 20)
    assert seqs(Journal(tmp_path / "log")) == [1, 3]


def test_the_clock_waits_out_small_steps_back_and_keeps_the_pace():
    wall, steady = [1000.0], [5.0]
    clock = Clock(wall=lambda: wall[0], steady=lambda: steady[0])
    assert clock.now() == 1_000_000_000
    wall[0], steady[0] = 500.0, 6.0
    assert clock.now() == 1_001_000_000
    wall[0], steady[0] = 501.0, 8.0
    assert clock.now() == 1_003_000_000
    wall[0] = 2000.0
    assert clock.now() == 2_000_000_000


def test_a_clock_that_was_years_ahead_comes_back():
    wall = [1_800_000_000.0]
    clock = Clock(wall=lambda: wall[0], steady=lambda: 0.0)
    wall[0] += 20 * 365 * 86400
    ahead = clock.now()
    assert ahead == int(wall[0] * 1e6)
    wall[0] = 1_800_000_060.0
    assert clock.now() == 1_800_000_060_000_000
    assert Clock(ahead, wall=lambda: wall[0]).now() < ahead


def test_a_clock_that_was_never_set_starts_behind_what_was_given_out():
    steady = [0.0]
    clock = Clock(9_000_000_000, wall=lambda: 1.0, steady=lambda: steady[0])
    assert clock.now() == 9_000_000_000
    steady[0] = 1.5
    assert clock.now() == 9_001_500_000


def test_a_segment_has_its_name_with_its_first_entries_alone(tmp_path):
    folder = tmp_path / "log"
    journal = Journal(folder)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            journal.append([entry(1, "a")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert journal.segments() == []
    again = Journal(folder)
    assert (list(again.replay(0)), again.notices) == ([], []), "what was never stored is not missed"
    journal.append([entry(1, "a")])
    assert [segment.name for segment in journal.segments()] == [f"{1:016d}.log"]
    assert [found.request for found in Journal(folder).replay(0)] == ["a"]
