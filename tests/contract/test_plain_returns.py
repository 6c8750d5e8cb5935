"""Frames and pictures are plain return values of a tool; one tool is one, however often it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from nbtools import ToolCall, Workbench, tool
from nbtools.contract.registry import Registry
from nbtools.errors import InvalidArguments, ToolNotEnabled

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


@tool(read_only=True)
def table() -> pd.DataFrame:
    """Return a table."""
    return pd.DataFrame({"day": pd.to_datetime(["2025-01-02"] * 30), "n": range(30)})


@tool(read_only=True)
def chart() -> Figure:
    """Return a figure."""
    figure = Figure()
    figure.subplots().plot([1, 2])
    return figure


@tool(read_only=True)
def both() -> tuple[pd.DataFrame, Figure]:
    """Return a table and a figure."""
    return table(), chart()


@tool(read_only=True)
def picture() -> Any:
    """Return a picture beside two values."""
    return PNG, {"a": 1}, "seen"


@pytest.fixture
def wb() -> Any:
    with Workbench(memory_url=":memory:", tools=[table, chart, both, picture], enabled_tools=["*"]) as workbench:
        yield workbench


def test_a_frame_is_data_text_and_the_frame_itself(wb: Workbench) -> None:
    result = wb.call("table").raise_for_error()
    assert result.data[1] == {"day": "2025-01-02T00:00:00", "n": 1}
    assert len(result.data) == 30
    assert "30 rows; the first 20 are shown" in result.text
    assert result.value.equals(table())


def test_a_figure_is_a_picture_among_the_files(wb: Workbench) -> None:
    result = wb.call("chart").raise_for_error()
    (artifact,) = result.artifacts
    assert artifact.mime == "image/png"
    assert artifact.read().startswith(PNG[:8])
    assert Path(artifact.path).is_relative_to(wb.artifacts)
    assert result.text == f"[picture: {Path(artifact.path).name}]"


def test_a_frame_and_a_figure_come_together(wb: Workbench) -> None:
    result = wb.call("both").raise_for_error()
    assert (len(result.data), len(result.artifacts), len(result.value)) == (30, 1, 30)


def test_what_stands_beside_a_picture_is_the_data(wb: Workbench) -> None:
    result = wb.call("picture").raise_for_error()
    assert result.data == [{"a": 1}, "seen"]
    assert result.artifacts[0].read() == PNG


def test_a_whole_call_may_be_called(wb: Workbench) -> None:
    call = ToolCall(tool="calculator", arguments={"expression": "2*3"}, caller="mcp")
    result = wb.call(call)
    assert (result.data["value"], result.call_id) == (6, call.call_id)


def test_the_same_tool_twice_is_one_and_another_of_its_name_is_not() -> None:
    def table() -> int:
        """Return a number."""
        return 1

    assert Registry([both, both]).with_tool(both).names == ("both",)
    with pytest.raises(InvalidArguments, match="two tools are called 'table'"):
        Registry([globals()["table"], table])


def test_a_disabled_tool_is_told_in_one_way() -> None:
    with Workbench(memory_url=":memory:", enabled_tools=["calculator"]) as workbench:
        said = {workbench.call("shell", {"command": "ls"}).error.message}  # type: ignore[union-attr]
        offered = workbench.executor.tools()
        for ask in (offered.__getitem__, lambda name: getattr(workbench.tools, name), workbench.form):
            with pytest.raises(ToolNotEnabled) as caught:
                ask("shell")
            said.add(caught.value.message)
    assert said == {"the tool 'shell' is not enabled here."}
