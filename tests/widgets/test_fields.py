from __future__ import annotations

from typing import Annotated, Literal

import pytest
from annotated_types import Ge

from nbtools.contract.tool import tool, tool_of
from nbtools.errors import InvalidArguments
from nbtools.widgets.forms.fields import fields_of, problems_of, values_of


@tool
def draw(
    path: str,
    code: str,
    width: Annotated[int, Ge(1)] = 3,
    kind: Literal["bar", "line"] = "bar",
    is_big: bool = False,
    limit: float | None = None,
    tags: tuple[str, ...] = (),
) -> str:
    """Draw a chart.

    Parameters
    ----------
    path
        Where to.
    """
    return f"{path}{code}{width}{kind}{is_big}{limit}{tags}"


TOOL = tool_of(draw)


def test_each_argument_becomes_a_field_of_its_kind() -> None:
    fields = {field["name"]: field for field in fields_of(TOOL.schema, {"path": "a", "tags": ["x"]})}
    assert {name: field["kind"] for name, field in fields.items()} == {
        "path": "text",
        "code": "lines",
        "width": "number",
        "kind": "choice",
        "is_big": "flag",
        "limit": "number",
        "tags": "json",
    }
    assert fields["path"]["required"]
    assert fields["path"]["help"] == "Where to."
    assert fields["path"]["value"] == "a"
    assert fields["width"]["value"] == fields["width"]["default"] == "3"
    assert fields["kind"]["choices"] == ['"bar"', '"line"']
    assert fields["is_big"]["value"] is False
    assert fields["tags"]["value"] == '["x"]'


def test_what_was_typed_becomes_values_and_empty_fields_none() -> None:
    typed = {"path": "", "width": " 7 ", "kind": '"line"', "is_big": True, "limit": "", "tags": '["a"]'}
    assert values_of(TOOL.schema, typed) == {"path": "", "width": 7, "kind": "line", "is_big": True, "tags": ["a"]}


def test_every_mistake_stands_at_its_field() -> None:
    with pytest.raises(InvalidArguments) as caught:
        values_of(TOOL.schema, {"width": "many", "tags": "a, b"})
    assert set(problems_of(caught.value, TOOL.schema["properties"])) == {"width", "tags"}
    with pytest.raises(InvalidArguments) as caught:
        TOOL.parameters.validate({"path": "a", "width": 0, "tags": [1]}, None)
    told = problems_of(caught.value, TOOL.schema["properties"])
    assert told["code"] == "required, but not given"
    assert "greater than or equal to 1" in told["width"]
    assert "valid string" in told["tags"]
    assert problems_of(InvalidArguments("no.", hint="Do this."), ()) == {"": "no. Do this."}
