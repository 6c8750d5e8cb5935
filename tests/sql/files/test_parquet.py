"""What a Parquet file says of its columns beyond what the format has types for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nbtools.sql import SqlSession

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SqlSession]:
    with contextlib.chdir(tmp_path), SqlSession(allowed_paths=[tmp_path]) as opened:
        yield opened


def _by_polars(array: Any) -> None:
    pytest.importorskip("polars").from_arrow(pa.table({"d": array, "n": [1]})).write_parquet("x.parquet")


_WRITERS = {
    "pyarrow": lambda array: pq.write_table(pa.table({"d": array, "n": [1]}), "x.parquet"),
    "pandas": lambda array: pd.DataFrame({"d": array.to_pandas(), "n": [1]}).to_parquet("x.parquet"),
    "polars": _by_polars,
}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("writer", _WRITERS)
def test_a_duration_that_is_a_whole_number_is_told_with_the_way(session: SqlSession, writer: str, unit: str) -> None:
    day = pa.array([86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]], pa.duration(unit))
    _WRITERS[writer](day)
    for _ in range(2):
        (note,) = session.query("FROM 'x.parquet'").notes
        name, _, rest = note.text.partition(": whole numbers of ")
        assert (note.file, name) == ("x.parquet", "d")
        way = rest.partition("; ")[2].removesuffix(" makes intervals of them")
        assert session.query(f"SELECT CAST({way} AS VARCHAR) FROM 'x.parquet'").to_rows() == [["24:00:00"]]
    several = [session.query(f"FROM {source}").notes for source in ("'*.parquet'", "read_parquet(['x.parquet'])")]
    assert [[each.text for each in notes] for notes in several] == [[note.text]] * 2
    with session.open_pages("'x.parquet'") as pages:
        assert pages.source.notes == (note,)


@pytest.mark.parametrize(
    "change", [lambda data: data[:-4], lambda data: data[:-8] + b"\xff" * 4 + b"PAR1", lambda _: b""]
)
def test_a_footer_that_is_none_is_no_reason_to_fail(session: SqlSession, change: Any) -> None:
    from nbtools.sql.files.parquet import durations_in

    _WRITERS["pyarrow"](pa.array([1], pa.duration("s")))
    assert len([*durations_in(Path("x.parquet"))]) == 1
    Path("x.parquet").write_bytes(change(Path("x.parquet").read_bytes()))
    assert [*durations_in(Path("x.parquet"))] == []


def test_a_file_without_durations_tells_nothing(session: SqlSession) -> None:
    pd.DataFrame({"d": [1], "t": pd.to_datetime(["2024-01-01"])}).to_parquet("x.parquet")
    assert session.query("FROM 'x.parquet'").notes == ()


def test_a_name_that_leads_to_another_file_is_told_what_that_one_has(session: SqlSession, tmp_path: Path) -> None:
    for folder, data in (("one", pa.array([1], pa.duration("s"))), ("two", [1])):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"d": data}), tmp_path / folder / "x.parquet")
    link = tmp_path / "link.parquet"
    for folder, count in (("one", 1), ("one", 1), ("two", 0), ("one", 1)):
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / folder / "x.parquet")
        with contextlib.chdir(tmp_path / folder):
            notes = [len(session.query(f"FROM '{name}'").notes) for name in ("../link.parquet", "x.parquet")]
        assert notes == [count, count]
