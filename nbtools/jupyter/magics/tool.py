"""``%tool NAME --arg v`` and ``%tool_form NAME``: any tool of the shelf, its options made from its schema."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from nbtools.contract.signature.parameters import FunctionParameters, kinds_of, resolved
from nbtools.jupyter.line.arguments import MagicParser, json_value
from nbtools.jupyter.line.line_parser import Word
from nbtools.jupyter.magic import Magic, MagicRequest

_KINDS = {"key": "key", "tags": "tag", "session": "session", "connection": "connection", "language": "language"}


def _usage(prog: str, cell: bool) -> MagicParser:
    parser = MagicParser(prog, description="Call a tool. Its arguments are options; write lists and objects as JSON.")
    parser.take("name", metavar="NAME", help="a tool of %%tools; NAME --help shows its options", kind="tool")
    return parser


def _refine(session: Any, prog: str, words: Sequence[Word], names_only: bool) -> MagicParser:
    """Return the parser with the options of the tool that the line names."""
    if not words or words[0].startswith("-"):
        return _usage(prog, cell=False)
    tool = session.workbench.executor.tools()[words[0]]
    return tool_parser(prog, tool, _names(tool) if names_only else tool.schema)


def _names(tool: Any) -> Mapping[str, Any]:
    """Return the names of a tool's arguments as a bare schema; the whole one is built by a heavy library."""
    if "pydantic" in sys.modules or not isinstance(tool.parameters, FunctionParameters):
        schema: Mapping[str, Any] = tool.schema
        return schema
    outline = tool.parameters.outline()
    return {"properties": {name: {"enum": list(values)} if values else {} for name, values in outline.items()}}


def tool_parser(prog: str, tool: Any, schema: Mapping[str, Any]) -> MagicParser:
    """Return the parser of a tool: an option for each argument, with its type and meaning."""
    parser = MagicParser(
        prog, description=tool.description, usage=f"{prog} {tool.name} [--ARGUMENT VALUE ...]".replace("%", "%%")
    )
    parser.keeps_unknown = True  # the door names every mistake at once, unknown names among them
    parser.take("name", metavar=tool.name, kind="tool")
    required = schema.get("required", ())
    for name, prop in schema["properties"].items():
        # Both spellings, since people copy names out of schemas and out of shells.
        flags = dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}"))
        text = f"{prop.get('description', '')}{' (required)' if name in required else ''}".strip()
        whole = resolved(prop, schema)
        options = _options(whole, schema)
        parser.take(*flags, dest=f"tool {name}", help=text.replace("%", "%%") or None, kind=_kind(name), **options)
        parser.values[f"tool {name}"] = _values(whole)
    return parser


def _options(prop: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return how argparse reads a property; whether the value fits is the door's question."""
    kinds = kinds_of(prop, root)
    if kinds == {"boolean"}:
        return {"nargs": "?", "const": True, "type": json_value, "default": argparse.SUPPRESS, "metavar": "true|false"}
    metavar = "|".join(map(str, prop["enum"])) if "enum" in prop else "JSON" if kinds & {"array", "object"} else "VALUE"
    several = {"nargs": "+", "action": _Items} if kinds - {"null"} == {"array"} else {}
    return {"type": _text if kinds <= {"string", "null"} else json_value, "default": argparse.SUPPRESS} | {
        "metavar": metavar,
        **several,
    }


class _Items(argparse.Action):
    """The list that several words make; a single word that is a list is that list."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        """Keep the list."""
        setattr(namespace, self.dest, values[0] if len(values) == 1 and isinstance(values[0], list) else values)


def _text(word: str) -> Any:
    """Return the text of a word, or the variable's value behind a lone ``{name}``."""
    value = getattr(word, "value", word)
    return str(word) if isinstance(value, str) else value


def _values(prop: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values that a property lists, which completion offers; whether they fit is the door's question."""
    inner = (*prop.get("anyOf", ()), *((prop["items"],) if "items" in prop else ()))
    return (*prop.get("enum", ()), *(value for option in inner for value in _values(option)))


def _kind(name: str) -> str | None:
    """Return what completion offers, told by the usual names of arguments."""
    if name.endswith("path") or name in {"source", "dest", "base_path", "file"}:
        return "file"
    return _KINDS.get(name)


def _run(request: MagicRequest) -> Any:
    values = {
        name.removeprefix("tool "): value for name, value in vars(request.args).items() if name.startswith("tool ")
    }
    # Handed on, so that the door names every mistake of the call at once, and records it.
    values |= _unknown(getattr(request.args, "unknown", ()))
    # A tool's own argument of that name says more than the option of the magics.
    timeout = None if "timeout" in values else request.session.options.timeout
    return request.call(request.args.name, values, timeout=timeout, keep_nulls=True)


def _unknown(words: Sequence[str]) -> dict[str, Any]:
    """Return options that the tool does not know as arguments, for the door to refuse by name."""
    names = [word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--")]
    loose = [word for word in words if not word.startswith("-")] if not names else []
    return dict.fromkeys([*names, *loose], "")


def _form_usage(prog: str, cell: bool) -> MagicParser:
    parser = MagicParser(prog, description="Show a form for a tool: its arguments as fields, the result below.")
    parser.take("name", metavar="NAME", help="a tool of %%tools", kind="tool")
    return parser


MAGIC = Magic(usage=_usage, run=_run, refine=_refine)
FORM = Magic(usage=_form_usage, run=lambda request: request.session.workbench.form(request.args.name))
