"""Tables and moments in memory: files by content, found by their schema, forgotten with the last item."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pandas as pd
import pytest

from nbtools.errors import FileMissing, InvalidArguments, LimitExceeded
from nbtools.memory import AgentMemory, InMemoryRepository
from nbtools.memory.tables import TableFolder

pytest.importorskip("pyarrow")
FRAME = pd.DataFrame(
    {"city": pd.Categorical(["Bern", "Chur"]), "when": pd.date_range("2020", periods=2, tz="UTC"), "n": [1.5, None]},
    index=pd.Index(["a", "b"], name="k"),
)


@pytest.fixture
def memory() -> AgentMemory:
    return AgentMemory(InMemoryRepository(), agent_id="a")


def save(tables: TableFolder, memory: AgentMemory, key: str, value: object) -> None:
    memory.write(key, tables.pack(value, memory.scope.record_id(key)))


def test_a_table_comes_back_and_is_found_by_its_columns(tmp_path: Path, memory: AgentMemory) -> None:
    tables = TableFolder(tmp_path / "t")
    save(tables, memory, "sales", FRAME)
    pd.testing.assert_frame_equal(tables.unpack(memory["sales"]), FRAME)
    assert [record.key for record in memory.search("city")] == ["sales"]
    assert memory["sales"]["rows"] == 2
    pd.testing.assert_series_equal(tables.unpack(tables.pack(FRAME["n"], "x")), FRAME["n"])
    polars = pytest.importorskip("polars")
    other = polars.DataFrame({"a": [1, None]})
    assert tables.unpack(tables.pack(other, "x")).equals(other)
    assert tables.unpack(tables.pack(other.to_arrow(), "x")).equals(other.to_arrow())


def test_moments_come_back_as_what_they_were() -> None:
    tables = TableFolder(Path("nowhere"))
    for moment in (pd.Timestamp("2020-01-01", tz="UTC"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.date(2020, 1, 1)):
        assert tables.takes(moment)
        back = tables.unpack(tables.pack(moment, "x"))
        assert (back, type(back)) == (moment, type(moment))
    assert not tables.takes({"a": 1})


def test_a_file_is_there_once_and_goes_with_the_last_item(tmp_path: Path, memory: AgentMemory) -> None:
    tables = TableFolder(tmp_path)
    for key in ("one", "two"):
        save(tables, memory, key, FRAME)
    save(tables, memory, "two", FRAME.head(1))
    assert len([*tmp_path.glob("*.parquet")]) == 2
    assert tables.forget(memory, "two") == 2
    assert len([*tmp_path.iterdir()]) == 2, "the file and who means it"
    pd.testing.assert_frame_equal(tables.unpack(memory["one"]), FRAME)
    assert tables.forget(memory, "one") == 1
    assert [*tmp_path.iterdir()] == []
    assert tables.forget(memory, "one") == 0


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_tables_go_with_an_export_and_come_back_elsewhere(tmp_path: Path, memory: AgentMemory, ending: str) -> None:
    tables, file = TableFolder(tmp_path / "here"), tmp_path / "out" / f"all.{ending}"
    save(tables, memory, "sales", FRAME)
    save(tables, memory, "gone", FRAME.head(1))
    (tmp_path / "here" / f"{memory['gone']['nbtools_table']}.parquet").unlink()
    memory.write("note", 1)
    assert tables.export_to(memory, file) == 3
    (there,) = file.with_name(f"{file.name}.tables").iterdir()
    (there.parent / f"{'0' * 64}.parquet").write_bytes(there.read_bytes())  # no table of that content
    other, elsewhere = AgentMemory(InMemoryRepository()), TableFolder(tmp_path / "elsewhere")
    assert elsewhere.import_from(other, file) == 3
    pd.testing.assert_frame_equal(elsewhere.unpack(other["sales"]), FRAME)
    with pytest.raises(FileMissing, match="1 rows"):
        elsewhere.unpack(other["gone"])
    assert [path.stem for path in (tmp_path / "elsewhere").glob("*.parquet")] == [there.stem]
    # It is meant here, too: another item that is forgotten takes no file away.
    save(elsewhere, other, "same", FRAME)
    elsewhere.forget(other, "same")
    assert len(elsewhere.unpack(other["sales"])) == 2
    elsewhere.forget(other, "sales")
    assert not [*(tmp_path / "elsewhere").glob("*.parquet")]


def test_an_export_without_room_for_tables_is_told(tmp_path: Path, memory: AgentMemory) -> None:
    tables = TableFolder(tmp_path / "here")
    save(tables, memory, "sales", FRAME)
    (tmp_path / "all.jsonl.tables").write_text("a file is in the way")
    with pytest.raises(LimitExceeded, match="cannot be written to"):
        tables.export_to(memory, tmp_path / "all.jsonl")


def test_what_cannot_be_kept_is_told_and_leaves_nothing(tmp_path: Path, memory: AgentMemory) -> None:
    with pytest.raises(LimitExceeded, match="a remembered one may have 10"):
        TableFolder(tmp_path / "t", limit=10).pack(FRAME, "x")
    for bad in (pd.DataFrame({"a": [1, "x"]}), pd.DataFrame([[1, 2]], columns=["a", "a"])):
        with pytest.raises(InvalidArguments, match="the table cannot be kept"):
            TableFolder(tmp_path / "t").pack(bad, "x")
    with pytest.raises(InvalidArguments, match="has no columns"):
        TableFolder(tmp_path / "t").pack(pd.DataFrame(index=range(3)), "x")
    assert not (tmp_path / "t").exists()
    (tmp_path / "t").write_text("a file is in the way")
    with pytest.raises(LimitExceeded, match=r"the table cannot be written to .*: File exists"):
        TableFolder(tmp_path / "t").pack(FRAME, "x")
    (tmp_path / "t").unlink()
    save(TableFolder(tmp_path), memory, "sales", FRAME)
    with pytest.raises(FileMissing, match=r"2 rows.* is not on this machine"):
        TableFolder(tmp_path / "other").unpack(memory["sales"])
    # A value that somebody wrote by hand names no other file.
    forged = {"nbtools_table": "../../etc/passwd", "rows": 1}
    assert TableFolder(tmp_path).unpack(forged) == forged
