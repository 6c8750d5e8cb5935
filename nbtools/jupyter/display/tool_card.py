"""What a tool is, on a card: its effects, how it is called, and each argument."""

from __future__ import annotations

from typing import Any

from nbtools.contract.tool import Tool
from nbtools.jupyter.display.blocks import Card, Table
from nbtools.texts.visible import brief

# That a call may be repeated tells a program something, and a person nothing.
_EFFECTS = {
    "read_only": "only reads",
    "destructive": "may replace or delete",
    "open_world": "reaches beyond this machine",
}


def effects_in_words(tool: Tool) -> str:
    """Return what a call may change; of an outside server's tool, what that server claims."""
    if tool.effects.undeclared:
        return "declares no effects"
    text = ", ".join(words for name, words in _EFFECTS.items() if getattr(tool.effects, name))
    text = text or "adds or changes something"
    return text if tool.trusted else f"its server claims: {text}"


def tool_card(tool: Tool) -> Card:
    """Return the card of a tool."""
    required = tool.schema.get("required", ())
    rows = tuple(
        (name, _type(prop), "required" if name in required else brief(prop.get("default")), prop.get("description", ""))
        for name, prop in tool.schema["properties"].items()
    )
    facts: dict[str, Any] = {"effects": effects_in_words(tool), "call": tool.signature_line}
    if tool.examples:
        facts["example"] = brief(dict(tool.examples[0]), 200)
    arguments = Table(columns=("argument", "type", "default", "meaning"), rows=rows, empty="it takes no arguments")
    return Card(title=tool.name, about=tool.description, facts=facts, parts=(arguments,))


def _type(prop: Any) -> str:
    """Return a property's type in a word or a few."""
    if "enum" in prop:
        return " | ".join(map(str, prop["enum"]))
    if "anyOf" in prop:
        return " | ".join(_type(option) for option in prop["anyOf"])
    if "$ref" in prop:
        return str(prop["$ref"]).rpartition("/")[2]
    type_name = prop.get("type", "any")
    if type_name == "array":
        return f"list of {_type(prop.get('items', {}))}"
    return " | ".join(type_name) if isinstance(type_name, list) else str(type_name)
