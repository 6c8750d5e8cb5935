"""What a level leaves of a result, case by case: no workbench and no model."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from typing_extensions import TypedDict

from nbtools.agent.sharing import Sharing, is_own
from nbtools.contract.label import Label
from nbtools.contract.result import Artifact, ErrorInfo, ToolResult
from nbtools.contract.tool import tool, tool_of
from nbtools.errors import ConfigInvalid
from nbtools.toolbox.text_tools import string_length

SCHEMA, SAMPLE, VALUES = Sharing.of("schema"), Sharing.of("sample:2"), Sharing.of("values")


class Table(TypedDict):
    """A table."""

    columns: list[str]
    types: list[str]
    rows: list[list[int]]


@tool(read_only=True)
def look() -> Table:
    """Look at a table."""
    return {"columns": ["m"], "types": ["INTEGER"], "rows": [[7]]}


LOOK = tool_of(look)


def result(data: Any = None, **more: Any) -> ToolResult:
    fields: dict[str, Any] = {"ok": "error" not in more, "label": Label(private=True), **more}
    return ToolResult(tool="look", call_id="c", data=data, **fields)


@pytest.mark.parametrize(
    ("value", "schema", "sample"),
    [
        (None, None, None),
        (True, True, True),
        (7, "a int", 7),
        ("ab", "text of up to 2 characters", "ab"),
        ("", "text of 0 characters", ""),
        ("a\nb\nc", "text of up to 8 characters", "a\nb\n[text of 5 characters]"),
        ("x" * 201, "text of up to 256 characters", "x" * 200 + "\n[text of 201 characters]"),
        ([1, 2, 3], "up to 4 items", [1, 2, "3 items"]),
        ([1], "1 item", [1, "1 item"]),
        ({"a": 1, "b": [1, 2]}, {"a": "a int", "b": "up to 2 items"}, {"a": 1, "b": [1, 2, "2 items"]}),
        ({"a": {"x": 1}}, {"a": "a mapping with 1 key"}, {"a": {"x": 1}}),
        (
            {"a": {"x": 1, "y": 2, "z": 3}},
            {"a": "a mapping with up to 4 keys"},
            {"a": {"x": 1, "y": 2, "…": "a mapping with 3 keys"}},
        ),
        (
            {"columns": ["m", "n"], "rows": [[1, {"k": 1}], [2, 3], [4, 5]]},
            {"columns": "up to 2 items", "rows": "up to 4 items"},
            {"columns": ["m", "n", "2 items"], "rows": [[1, {"k": 1}], [2, 3], "3 items"]},
        ),
        # Of a row that is not as wide as the table, a sample has as many cells as of any list.
        (
            {"columns": ["m"], "rows": [[1, 2, 3]]},
            {"columns": "1 item", "rows": "1 item"},
            {"columns": ["m", "1 item"], "rows": [[1, 2, "3 items"], "1 item"]},
        ),
    ],
)
def test_a_value_has_its_shape_and_a_sample_its_first_items(value: Any, schema: Any, sample: Any) -> None:
    assert (SCHEMA.shape(value), SAMPLE.shape(value)) == (schema, sample)


def shared(told: str) -> Any:
    assert told.startswith("[shared: schema] ")
    return json.loads(told.removeprefix("[shared: schema] "))


def test_a_result_is_told_by_keys_that_its_own_tool_declares() -> None:
    table = result({"columns": ["m"], "types": ["INTEGER"], "rows": [[7]]})
    assert shared(SCHEMA.text_of(LOOK, table)) == {"columns": "1 item", "types": "1 item", "rows": "1 item"}
    assert shared(SCHEMA.text_of(LOOK, table, [("m", "INTEGER")])) == {"columns": {"m": "INTEGER"}, "rows": "1 item"}
    since = shared(SCHEMA.text_of(LOOK, table, []))
    assert since == {"columns": "1 column, which were made since", "rows": "1 item"}
    for other in (result({"more": 1}), result({**table.data, "more": 1})):
        assert "a mapping with" in shared(SCHEMA.text_of(LOOK, other))
    assert "a mapping with" in shared(SCHEMA.text_of(dataclasses.replace(LOOK, trusted=False), table))
    assert shared(SCHEMA.text_of(LOOK, result(text="abc"))) == "text of up to 4 characters"
    file = Artifact(path="made.csv", mime="text/csv", size=3)
    assert shared(SCHEMA.text_of(LOOK, result([1], artifacts=(file,)))) == {"result": "1 item", "files": "1 file"}


def test_what_is_not_private_and_what_may_be_seen_passes_as_it_is() -> None:
    assert SCHEMA.text_of(LOOK, result([7], text="seven", label=Label())) == "seven"
    assert VALUES.text_of(LOOK, result([7], text="seven")) == "seven"
    assert not SAMPLE.allows(result([7]))


def test_a_message_passes_where_values_do_or_the_door_has_said_it() -> None:
    error = ErrorInfo(code="TIMEOUT", message="7 is late")
    failed = result({"stdout": "seen before"}, error=error)
    assert VALUES.text_of(LOOK, failed) == f"{failed}\nPrinted before that:\nseen before"
    assert VALUES.text_of(LOOK, result(error=error)) == str(result(error=error))
    hidden = "TIMEOUT: the call failed; its message may hold values and is not shared."
    assert SCHEMA.text_of(LOOK, failed) == hidden
    door = {"said_by_door": "It was stopped."}
    assert SCHEMA.text_of(LOOK, dataclasses.replace(failed, **door)) == f"It was stopped.\n{hidden}"
    said = dataclasses.replace(failed, said_by_door="The door says: 7 is late")
    assert SCHEMA.text_of(LOOK, said) == "The door says: 7 is late"
    assert SCHEMA.text_of(LOOK, result([1], **door)) == 'It was stopped.\n[shared: schema] "1 item"'


def test_a_level_is_one_of_three_and_says_what_is_seen() -> None:
    assert (Sharing.of("sample").rows, SAMPLE.rows, VALUES.instruction) == (5, 2, "")
    assert "the shape of results" in SCHEMA.instruction
    assert "the first 2 items of results" in SAMPLE.instruction
    for wrong in ("values:3", "sample:0", "sample:x", "sample:", "schema:1", "all", ""):
        with pytest.raises(ConfigInvalid, match="share is"):
            Sharing.of(wrong)


def test_a_tool_is_own_where_its_function_is_of_the_package() -> None:
    assert is_own(tool_of(string_length))
    assert not is_own(LOOK)
