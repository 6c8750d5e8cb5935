"""Lists and objects that come as JSON texts."""

from __future__ import annotations

from typing import Any

import pytest

from nbtools.contract.registry import Registry
from nbtools.contract.signature.parameters import resolved
from nbtools.contract.tool import tool_of
from nbtools.mcp_server.arguments import decoded
from nbtools.toolbox import STANDARD

pytestmark = pytest.mark.processes

SHELF = Registry(tool_of(fn) for toolset in STANDARD for fn in toolset)


@pytest.mark.parametrize(
    ("tool", "argument", "text", "value"),
    [
        ("memory_save", "tags", '["a", "b"]', ["a", "b"]),
        ("memory_save", "tags", "null", None),
        ("http_client", "headers", '{"A": "b"}', {"A": "b"}),
        ("dataframe_to_csv", "data", '[{"a": 1}]', [{"a": 1}]),
        ("data_analyze", "inputs", '{"df": "orders"}', {"df": "orders"}),
        # What takes a text too gets the text.
        ("memory_save", "value", '["a"]', '["a"]'),
        ("memory_save", "key", "[1]", "[1]"),
        # What is not JSON, or JSON of another kind, is for the door to refuse.
        ("memory_save", "tags", "a, b", "a, b"),
        ("memory_save", "tags", '{"a": 1}', '{"a": 1}'),
        ("http_client", "headers", '{"A": 1, "A": 2}', '{"A": 1, "A": 2}'),
        ("no_such", "argument", "[]", "[]"),
    ],
)
def test_a_text_is_read_where_a_list_or_an_object_is_wanted(tool: str, argument: str, text: str, value: Any) -> None:
    schema = SHELF[tool].schema if tool in SHELF else {}
    assert decoded({argument: text}, schema) == {argument: value}


def test_every_argument_of_the_shelf_that_takes_lists_or_objects_alone_can_be_sent_as_text() -> None:
    def kinds(node: Any, root: Any) -> list[str]:
        node = resolved(node, root)
        inner = [kind for option in node.get("anyOf", ()) for kind in kinds(option, root)]
        return inner or [str(node.get("type"))]

    seen = 0
    for one in SHELF.values():
        for name, node in one.schema.get("properties", {}).items():
            if set(kinds(node, one.schema)) <= {"array", "object", "null"}:
                sent: Any = {"a": 1} if "object" in kinds(node, one.schema) else [1]
                text = str(sent).replace("'", '"')
                assert decoded({name: text}, one.schema) == {name: sent}, f"{one.name}.{name}"
                seen += 1
    assert seen > 5
