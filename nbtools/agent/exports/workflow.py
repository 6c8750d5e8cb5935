"""A run as a workflow: its calls are the nodes, and no model is needed to run them.

An argument becomes an input where it may be another one next time: it stands in the prompt, the approver of the call
changed it, it differs between calls of the same tool, several calls share it, or it is a file of data, which may also
stand in quotes in a query. A value that a call took from the result of an earlier one becomes an expression. What a
call may have changed others may have seen, so a call needs the last one before it that may change something, and one
that may change something needs all before it since then.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from nbtools.agent.exports.notebook import headline
from nbtools.agent.tools.own_tools import OWN_NAMES
from nbtools.contract.schema import output_schema
from nbtools.contract.tool import Tool
from nbtools.contract.wire.json_values import replace_nested
from nbtools.errors import InvalidArguments
from nbtools.texts.redaction import conceal
from nbtools.texts.secret_values import MASK

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_INPUT = 80
_SHORTEST_SHARED = 3
_DATA_FILE = re.compile(
    r"[^\n'\"*?$]{1,80}\.(csv|tsv|txt|parquet|jsonl?|ndjson|xls[xm]?|db|duckdb|sqlite)(\.gz)?", re.IGNORECASE
)
_QUOTED_FILE = re.compile(f"'({_DATA_FILE.pattern})'", re.IGNORECASE)
_KINDS = {str: "string", int: "integer", float: "number"}


@dataclasses.dataclass(kw_only=True)
class _CalledTool:
    """A call that becomes a node."""

    id: str
    tool: str
    arguments: Mapping[str, Any]
    changed: Mapping[str, Any]
    data: Any
    changes_things: bool


def workflow_of(
    run_id: str, prompt: str, label: str, log: Iterable[Mapping[str, Any]], tools: Mapping[str, Tool]
) -> tuple[str, int]:
    """Return the YAML of a run's workflow, and how many nodes it has.

    Parameters
    ----------
    run_id
        Id of the run.
    prompt
        The prompt of the run.
    label
        Name of the model, or of what played it.
    log
        Its events, as `AgentService.log` has them.
    tools
        The tools that there are.

    Raises
    ------
    InvalidArguments
        No call of the run succeeded.
    """
    steps = list(_steps(log, tools))
    if not steps:
        raise InvalidArguments("no call of the run succeeded, so there is nothing to make a workflow of.")
    inputs = _Inputs(steps, prompt)
    nodes: list[dict[str, Any]] = [
        {"id": step.id, "tool": step.tool, "args": _args(step, steps[:number], inputs, tools)}
        for number, step in enumerate(steps)
    ]
    needs = list(_needs(steps))
    for number, names in enumerate(needs):
        if names:
            nodes[number]["needs"] = names
    needed = {name for names in needs for name in names}
    document = {
        "version": 1,
        "name": f"run_{run_id[:8]}",
        "description": " ".join(prompt.split())[:200],
        "scripts_of": "model",
        "inputs": inputs.schemas,
        "memory": {"default_scope": "agent"} if any(step.tool.startswith("memory") for step in steps) else {},
        "nodes": nodes,
        "outputs": {step.id: f"${{nodes.{step.id}.text}}" for step in steps if step.id not in needed},
    }
    head = f"# {headline(run_id, label)} No model is asked.\n"
    head += "# Scripts in it are a model's and run as confined as they ran; commands of shell are asked for first.\n"
    return head + _to_yaml({name: value for name, value in document.items() if value}), len(steps)


def _steps(log: Iterable[Mapping[str, Any]], tools: Mapping[str, Tool]) -> Iterator[_CalledTool]:
    """Yield the calls that succeeded, in the order in which they were asked for: that in which they end is chance."""
    proposed: dict[str, Mapping[str, Any]] = {}
    requests: dict[str, Mapping[str, Any]] = {}
    changed: dict[str, Mapping[str, Any]] = {}
    ended: dict[str, Mapping[str, Any]] = {}
    for event in log:
        kind, call_id = event["kind"], event.get("call_id", "")
        if kind == "call_proposed":
            proposed[call_id] = event["arguments"]
        elif kind == "approval_asked":
            requests[call_id] = event["arguments"]
        elif kind == "approval_answered" and event.get("arguments") is not None:
            # Not all that was answered: defaults and whole paths are in it, which nobody changed.
            before = requests.get(call_id, {})
            changed[call_id] = {name: value for name, value in event["arguments"].items() if before.get(name) != value}
        elif kind == "call_ended" and event["tool"] not in OWN_NAMES and event["result"].get("ok"):
            ended[call_id] = event
    counts: collections.Counter[str] = collections.Counter()
    for call_id, arguments in proposed.items():
        if call_id not in ended:
            continue
        name = str(ended[call_id]["tool"])
        tool = tools.get(name)
        counts[name] += 1
        yield _CalledTool(
            id=_identifier(name) if counts[name] == 1 else f"{_identifier(name)}_{counts[name]}",
            tool=name,
            arguments=conceal({**arguments, **changed.get(call_id, {})}),
            changed=changed.get(call_id, {}),
            data=ended[call_id]["result"].get("data"),
            changes_things=tool is None or not tool.effects.read_only,
        )


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)[:60] or "call"


class _Inputs:
    """Which values of arguments are inputs, and what these are called."""

    def __init__(self, steps: list[_CalledTool], prompt: str) -> None:
        self.schemas: dict[str, dict[str, Any]] = {}
        self._names: dict[tuple[type, Any], str] = {}
        self._words = set(re.split(r"[\s,;:!?\"'`()]+|\.(?=\s|$)", prompt))
        varying = [(step, name, value) for step in steps for name, value in step.arguments.items() if _may_vary(value)]
        self._used = collections.Counter((type(value), value) for _, _, value in varying)
        values: dict[tuple[str, str], set[Any]] = {}
        for step, name, value in varying:
            values.setdefault((step.tool, name), set()).add(value)
        self._differ = {key for key, distinct in values.items() if len(distinct) > 1}

    def name_of(self, step: _CalledTool, name: str, value: Any) -> str | None:
        """Return the input that stands in place of an argument; `None` where it stays as it is."""
        if value == MASK:
            return self._add(name, {"type": "string", "description": "A secret, which is kept in no record."})
        if not _may_vary(value) or not self._varies(step, name, value):
            return None
        key = (type(value), value)
        if key not in self._names:
            self._names[key] = self._add(name, {"type": _KINDS[type(value)], "default": value})
        return self._names[key]

    def file(self, path: str) -> str:
        """Return the input that stands in place of a file of data."""
        key = (str, path)
        if key not in self._names:
            self._names[key] = self._add("data_file", {"type": "string", "default": path})
        return self._names[key]

    def _varies(self, step: _CalledTool, name: str, value: Any) -> bool:
        is_long = isinstance(value, str) and len(value) >= _SHORTEST_SHARED
        return (
            str(value) in self._words
            or (isinstance(value, str) and _DATA_FILE.fullmatch(value) is not None)
            or name in step.changed
            or (step.tool, name) in self._differ
            or (is_long and self._used[type(value), value] > 1)
        )

    def _add(self, name: str, schema: dict[str, Any]) -> str:
        unique, number = _identifier(name), 1
        while unique in self.schemas:
            number += 1
            unique = f"{_identifier(name)}_{number}"
        self.schemas[unique] = schema
        return unique


def _may_vary(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _LONGEST_INPUT and not any(sign in value for sign in ("\n", "${", MASK))
    return type(value) in _KINDS


def _args(step: _CalledTool, before: list[_CalledTool], inputs: _Inputs, tools: Mapping[str, Tool]) -> dict[str, Any]:
    args: dict[str, Any] = {}
    for name, value in step.arguments.items():
        if (source := _source_of(value, before, tools)) is not None:
            args[name] = f"${{{source}}}"
        elif (input_name := inputs.name_of(step, name, value)) is not None:
            args[name] = f"${{inputs.{input_name}}}"
        else:
            # Nothing in it is taken for an expression.
            args[name] = replace_nested(value, lambda one: one.replace("${", "$${") if isinstance(one, str) else one)
            if step.tool == "sql_query" and isinstance(value, str):
                args[name] = _QUOTED_FILE.sub(lambda match: f"'${{inputs.{inputs.file(match[1])}}}'", args[name])
    return args


def _source_of(value: Any, before: list[_CalledTool], tools: Mapping[str, Tool]) -> str | None:
    """Return the expression of a result of an earlier call that has this value, and made it itself."""
    if not isinstance(value, str) or len(value) < _SHORTEST_SHARED:
        return None
    for step in reversed(before):
        declared = output_schema(tools[step.tool]).get("properties", {}) if step.tool in tools else {}
        if not isinstance(step.data, Mapping) or value in step.arguments.values():
            continue
        for key, item in step.data.items():
            if item == value and key in declared and _NAME.fullmatch(key):
                return f"nodes.{step.id}.data.{key}"
    return None


def _needs(steps: list[_CalledTool]) -> Iterator[list[str]]:
    """Yield what each call needs: the last change before it, and a change all that came since then."""
    last: str | None = None
    since: list[str] = []
    for step in steps:
        after = [last] if last is not None else []
        if step.changes_things:
            yield since or after
            last, since = step.id, []
        else:
            yield after
            since.append(step.id)


class _QuotedYaml(yaml.SafeDumper):  # type: ignore[misc]  # the package has no types
    """Writes YAML that versions 1.1 and 1.2 read alike: what could be anything but a text is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(writer: Any, value: str) -> Any:
    is_plain = re.fullmatch(r"[A-Za-z_][\w./-]*( [\w./-]+)*", value, re.ASCII) and value.lower() not in _WORDS
    style = "|" if "\n" in value else None if is_plain else '"'
    return writer.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_QuotedYaml.add_representer(str, _text)


def _to_yaml(value: Mapping[str, Any]) -> str:
    return str(yaml.dump(dict(value), Dumper=_QuotedYaml, sort_keys=False, allow_unicode=True, width=110))
