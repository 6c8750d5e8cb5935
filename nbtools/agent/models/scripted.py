"""``model: scripted``: a list of turns in YAML plays the model, for demos and tests without a key.

All else is real: schemas, validation, tools, approvals, log. A script looks like this::

    turns:
      - say: I look at the file.
        calls:
          - {tool: sql_query, arguments: {query: "select count(*) as n from 'penguins.csv'"}}
      - when: {tool: sql_query, ok: true, contains: "344"}
        say: There are 344 penguins.
      - say: I could not count them.

At each request the next turn is played whose ``when`` holds; those in between are left out. Which turns were played is
read from the messages, so a run that goes on in another process goes on in the script.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from nbtools.errors import ConfigMissing, FileMissing, LimitExceeded, ParseError, did_you_mean
from nbtools.texts.yaml_tree import Branch, Leaf, LinedText, compose, data_of

_TURN = {"say": str, "calls": list, "answer": dict, "when": dict, "repeat": bool, "wait": (int, float)}
_CALL = {"tool": str, "arguments": dict, "id": str, "raw": str}
_WHEN = {"tool": str, "ok": bool, "contains": str, "prompt": str}
_KINDS = {str: "text", list: "a list", dict: "a mapping", bool: "true or false", (int, float): "a number"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """One answer of the model.

    Attributes
    ----------
    say
        Text.
    answer
        The answer by the schema, where the run has one.
    calls
        Calls that it asks for: ``tool``, ``arguments`` and optionally ``id``; ``raw`` in place of ``arguments`` is
        sent as it is, to see what becomes of broken JSON.
    when
        Conditions, all of which must hold: ``tool`` (the last result of that tool, else the last result), ``ok``,
        ``contains`` (text of that result), ``prompt`` (text of the last message of the person).
    repeat
        Whether it is played again for as long as its conditions hold.
    wait
        Seconds before it answers.
    """

    say: str = ""
    answer: Mapping[str, Any] | None = None
    calls: tuple[Mapping[str, Any], ...] = ()
    when: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    repeat: bool = False
    wait: float = 0.0


class Script:
    """The turns of a script, and the place where it came from.

    Parameters
    ----------
    text
        YAML: a mapping with ``turns``, or the list itself.
    name
        What errors call it.

    Raises
    ------
    ParseError
        The text is not such a script; the message tells line and column.
    """

    def __init__(self, text: str, name: str = "the script") -> None:
        self._name = name
        self.digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        try:
            self._source = LinedText(text.removeprefix("\ufeff"))
            top = compose(self._source)
        except (ParseError, LimitExceeded) as exc:
            raise ParseError(f"{name}: {exc.message}", hint=exc.hint) from None
        if isinstance(top, Branch) and top.keys is not None:
            top = self._items(top, {"turns": list}).get("turns")
        if not isinstance(top, Branch) or not top.items:
            raise self._mistake(top, "a script is a list of turns.", "Write turns: [{say: Hello}].")
        self.turns = tuple(map(self._turn, top.items))

    def _mistake(self, node: Leaf | Branch | None, problem: str, hint: str | None = None) -> ParseError:
        line, column = self._source.line_column(node.start) if node is not None else (0, 0)
        position = f":{line}:{column}" if line else ""
        return ParseError(f"{self._name}{position}: {problem}", hint=hint)

    def _items(self, node: Leaf | Branch, kinds: Mapping[str, Any]) -> dict[str, Leaf | Branch]:
        """Return the nodes of a mapping by its keys, which, and whose kinds of values, are known."""
        if isinstance(node, Leaf) or node.keys is None:
            raise self._mistake(node, "this is not a mapping.", f"Its keys may be {', '.join(kinds)}.")
        items: dict[str, Leaf | Branch] = {}
        for key, item in node.pairs():
            if key.text not in kinds:
                hint = did_you_mean(key.text, kinds, f"Use {', '.join(kinds)}.")
                raise self._mistake(key, f"{key.text!r} is not a key here.", hint)
            kind, value = kinds[key.text], data_of(item)
            # True is a number for Python.
            if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
                hint = "Put it in quotes." if kind is str else None  # YAML takes true and 42 for other things
                raise self._mistake(item, f"{key.text!r} is not {_KINDS[kind]}.", hint)
            items[key.text] = item
        return items

    def _turn(self, node: Leaf | Branch) -> Turn:
        items = self._items(node, _TURN)
        calls = items.get("calls")
        for call in calls.items if isinstance(calls, Branch) else ():
            if "tool" not in self._items(call, _CALL):
                raise self._mistake(call, "a call names its tool.", "Add tool: NAME.")
        if "when" in items:
            self._items(items["when"], _WHEN)
        turn = data_of(node, finite=True)
        if not turn.get("calls") and not {"say", "answer"} & items.keys():
            raise self._mistake(node, "a turn says something or calls something.", "Add say:, calls: or answer:.")
        return Turn(**{**turn, "calls": tuple(turn.get("calls", ()))})

    def next_turn(self, messages: Sequence[ModelMessage], model_name: str) -> tuple[int, Turn]:
        """Return the number and the turn that answers these messages.

        Raises
        ------
        ConfigMissing
            No turn is left whose conditions hold.
        """
        at = 0
        for number, message in enumerate(messages):
            # Played again from the conversation alone, so that a run of another process goes on with the right turn.
            if isinstance(message, ModelResponse) and message.model_name == model_name:
                at = self._following(self._chosen(messages[:number], at))
        chosen = self._chosen(messages, at)
        if chosen >= len(self.turns):
            raise ConfigMissing(
                f"{self._name} has no turn for this: it has {len(self.turns)}, and no condition of those left holds.",
                hint="Add a turn to the script, or play it from the start in a new conversation (%%agent --new).",
            )
        return chosen, self.turns[chosen]

    def _following(self, played: int) -> int:
        return played if played < len(self.turns) and self.turns[played].repeat else played + 1

    def _chosen(self, messages: Sequence[ModelMessage], start: int) -> int:
        fits = (n for n in range(start, len(self.turns)) if _holds(self.turns[n].when, messages))
        return next(fits, len(self.turns))


def read_script(path: str | Path) -> str:
    """Return the text of a script.

    Raises
    ------
    FileMissing
        It cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise FileMissing(f"the script {str(path)!r} cannot be read: {exc}.") from None


def _holds(when: Mapping[str, Any], messages: Sequence[ModelMessage]) -> bool:
    if not when:
        return True
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    if "prompt" in when:
        prompts = [part.content for part in parts if isinstance(part, UserPromptPart)]
        if not prompts or when["prompt"] not in str(prompts[-1]):
            return False
    if not {"tool", "ok", "contains"} & when.keys():
        return True
    tool_name = when.get("tool")
    results = [part for part in parts if isinstance(part, ToolReturnPart) and tool_name in {None, part.tool_name}]
    if not results:
        return False
    ok = results[-1].outcome == "success"
    return when.get("ok", ok) == ok and when.get("contains", "") in results[-1].model_response_str()


def scripted_model(script: Script) -> FunctionModel:
    """Return the model that plays a script."""
    name = f"scripted:{script.digest}"

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        number, turn = script.next_turn(messages, name)
        if turn.wait:
            await asyncio.sleep(turn.wait)
        for word in turn.say.splitlines(keepends=True) or [""]:
            yield word
        turns_before = sum(isinstance(message, ModelResponse) for message in messages)
        calls = list(turn.calls)
        if turn.answer is not None and info.output_tools:
            calls.append({"tool": info.output_tools[0].name, "arguments": turn.answer})
        for index, call in enumerate(calls):
            arguments_text = call.get("raw", json.dumps(call.get("arguments", {}), ensure_ascii=False))
            call_id = call.get("id", f"turn{number + 1}-{turns_before}-{index + 1}")
            yield {index: DeltaToolCall(name=call["tool"], json_args=arguments_text, tool_call_id=call_id)}

    return FunctionModel(stream_function=answer, model_name=name)
