"""The shape of a file: keys, kinds of values, what is missing; what is wrong is left out, and the rest is checked."""

from __future__ import annotations

import copy
import json
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, Tag, TypeAdapter, ValidationError

from nbtools.errors import nearest
from nbtools.texts.parsing import word_lists
from nbtools.workflow.document import Document, Place
from nbtools.workflow.findings import allowed
from nbtools.workflow.schemas import shown_value
from nbtools.workflow.spec import KINDS, NODE, AnyNode, NodeFields, Workflow

_WORKFLOW: TypeAdapter[Workflow] = TypeAdapter(Workflow)
_WANTED = {kind: what for what, kinds in word_lists(__file__, "wanted.words").items() for kind in kinds}
_WANTED_OF = {
    "when": "an expression, always, true or false",
    "for_each": "a list, or an expression for one",
    "choose": "a list of texts, or an expression for one",
}
_GROUPS = {"ask": ("approve", "choose", "fill"), "tools": ("tool", "workflow", "node"), "nodes": KINDS}
_TRIES = 4
_WRITTEN = {"retry": "Write {{attempts: {}}}.", "limits": "Write {{seconds: {}}}, or another bound."}
# What other programs call the kind of a node, where that is a value.
_TYPES = word_lists(__file__, "kinds.words")
# What other programs call a key.
_ELSEWHERE = word_lists(__file__, "keys.words")


def read_workflow(document: Document) -> tuple[Workflow | None, dict[str, tuple[int, NodeFields]], dict[str, int]]:
    """Return the model of a document, its nodes by id with their index, and the index of every id in the file.

    What is wrong is told and left out. The model is `None` where nothing can be made of the file.
    """
    raw = document.data
    if not isinstance(raw, Mapping):
        content = "empty" if raw is None else "not a mapping"
        document.tell(
            "WF013", document.span(()), f"The file is {content}.", "It begins with version: 1, name: … and nodes: …."
        )
        return None, {}, {}
    entries = raw.get("nodes")
    nodes: dict[str, tuple[int, NodeFields]] = {}
    ids: dict[str, int] = {}
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        node_id = _id_of(document, i, entry, ids)
        model = _salvaged(document, NODE, entry, ("nodes", i), {"id": "_"})
        if isinstance(model, NodeFields):
            # A node without its own id is checked too; no file can refer to the name that it has here.
            name = f"nodes[{i}]" if node_id is None else node_id
            nodes[name] = i, model if model.id == name else model.model_copy(update={"id": name})
    placeholder = {"id": "_", "tool": "_"} if isinstance(entries, list) and entries else None
    # Nodes were read one by one. A valid one replaces them here, so that their mistakes are not reported twice.
    top = {**raw, "nodes": [placeholder]} if placeholder else dict(raw)
    spare = {"version": 1, "name": "_", "nodes": [{"id": "_", "tool": "_"}]}
    workflow = _salvaged(document, _WORKFLOW, top, (), spare)
    if workflow is None:
        return None, nodes, ids
    return workflow.model_copy(update={"nodes": tuple(node for _, node in nodes.values())}), nodes, ids


def _id_of(document: Document, index: int, entry: Any, ids: dict[str, int]) -> str | None:
    """Return the id of a node, and tell when another has it; `None` where it has none."""
    name = entry.get("id") if isinstance(entry, Mapping) else None
    if not isinstance(name, str):
        return None
    if name in ids:
        line = document.line_column(document.span(("nodes", ids[name], "id"))[0])[0]
        span = document.span(("nodes", index, "id"))
        document.tell("WF022", span, f"The id {name!r} is defined twice.", f"Line {line} has it too; rename one.")
        return None
    ids[name] = index
    return name


def _salvaged(document: Document, adapter: TypeAdapter[Any], raw: Any, top: Place, spare: Mapping[str, Any]) -> Any:
    """Return the model of a value without what is wrong in it, which is told; `None` where too little is left.

    `spare` stands in for what is missing or wrong and must be there.
    """
    reported: set[Place] = set()
    # What is taken out can make more of its surroundings invalid, so it is tried a few times; told is the first one
    # only.
    for attempt in range(_TRIES):
        try:
            return adapter.validate_python(raw)
        except ValidationError as exc:
            problems = exc.errors(include_url=False)
        if attempt == 0:
            raw = copy.deepcopy(raw)
        goes_on = True
        for problem in problems:
            inner = _without_tags(problem["loc"], raw, problem["type"])
            if attempt == 0 and (inner or not isinstance(raw, Mapping)) and inner not in reported:
                reported.add(inner)
                _tell(document, problem, (*top, *inner), inner)
            elif attempt == 0 and not inner:
                _tell_kind(document, top, raw)
            goes_on = goes_on and bool(inner)
        # From the end, so that what is taken out moves none of the places that are still to come.
        for problem in reversed(problems):
            _remove(raw, _without_tags(problem["loc"], raw, problem["type"]), spare)
        if not goes_on:
            return None
    return None


def _without_tags(loc: tuple[str | int, ...], raw: Any, kind: str) -> Place:
    """Return the place of a problem without the names that pydantic gives to the members of unions."""
    names: list[str | int] = []
    node = raw
    for i, part in enumerate(loc):
        is_last = i == len(loc) - 1
        if isinstance(node, Mapping) and (part in node or (is_last and kind == "missing")):
            node = node.get(part)
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            continue
        names.append(part)
    return tuple(names)


def _remove(raw: Any, loc: Place, spare: Mapping[str, Any]) -> None:
    """Take what is wrong out of a value; an item of a list takes the list along, so that no index changes."""
    while loc and isinstance(loc[-1], int):
        loc = loc[:-1]
    if not loc:
        return
    node = raw
    for part in loc[:-1]:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(node, dict):
        if loc[-1] not in node and len(loc) > 1:
            _remove(raw, loc[:-1], spare)  # what is missing makes its mapping useless
            return
        node.pop(loc[-1], None)
        if len(loc) == 1 and loc[0] in spare:
            node[loc[0]] = spare[str(loc[0])]


def _tell(document: Document, problem: Mapping[str, Any], loc: Place, inner: Place) -> None:
    kind, value, name = problem["type"], problem.get("input"), inner[-1] if inner else ""
    if kind == "extra_forbidden":
        keys = _keys_at(problem["loc"], top=loc[: len(loc) - len(inner)])
        _tell_unknown(document, loc, str(name), keys, is_node=len(inner) == 1 and loc[:1] == ("nodes",))
    elif kind == "missing":
        span = document.span(loc[:-1], key=bool(loc[:-1]) and not isinstance(loc[-2], int))
        document.tell("WF016", span, f"The key {name!r} is missing.")
    elif loc == ("version",):
        document.tell("WF014", document.span(loc), f"There is no version {value!r}.", "The version is 1.")
    elif kind == "union_tag_not_found":
        _tell_kind(document, loc, value)
    elif kind == "string_pattern_mismatch":
        in_key = "[key]" in problem["loc"]
        hint = "It has letters, digits, _ and -, at most 64, and begins with a letter or _."
        document.tell("WF021", document.span(loc, key=in_key), f"{name if in_key else value!r} is not a name.", hint)
    elif kind in _WANTED:
        _tell_type(document, loc, value, kind)
    else:
        choices = problem["msg"].removeprefix("Input should be ").replace("'", "")
        message = f"{name} is {shown_value(value)}; it should be {choices}."
        close = nearest(value, choices.replace(" or ", ", ").split(", ")) if isinstance(value, str) else None
        document.tell("WF018", document.span(loc), message, f"Did you mean {close!r}?" if close else "")


def _tell_type(document: Document, loc: Place, value: Any, kind: str) -> None:
    name = next((str(part) for part in reversed(loc) if isinstance(part, str)), "value")
    expected = _WANTED_OF.get(name, _WANTED[kind]) if not isinstance(loc[-1], int) else _WANTED[kind]
    actual = "empty" if value is None else shown_value(value)
    hint = _WRITTEN[name].format(shown_value(value)) if name in _WRITTEN and not isinstance(value, list) else ""
    if kind == "bool_type" and isinstance(value, str) and value.lower() in {"yes", "no", "on", "off"}:
        hint = f"YAML 1.2 has true and false; {value} is text."
    elif kind in {"int_type", "float_type"} and isinstance(value, str):
        hint = "Remove the quotes." if value.replace(".", "", 1).isdigit() else "Seconds and numbers have no unit."
    elif kind == "string_type" and isinstance(value, int | float):
        hint = "Put it in quotes."
    elif expected == "a list" and isinstance(value, str):
        hint = f"Write [{value}]."
    document.tell("WF017", document.span(loc), f"{name} is {actual}, but {expected} is expected.", hint)


def _tell_kind(document: Document, loc: Place, value: Any) -> None:
    """Tell that a node, a question or a tool has none of the keys that decide its kind, or two of them."""
    group = "ask" if loc and loc[-1] == "ask" else str(loc[0]) if loc else ""
    keys = _GROUPS.get(group, KINDS)
    if not isinstance(value, Mapping):
        is_question = group == "ask" and isinstance(value, str)
        hint = f"Write {{approve: {json.dumps(value, ensure_ascii=False)}}}." if is_question else ""
        message = f"{shown_value(value)} is not a mapping."
        document.tell("WF017", document.span(loc), message, hint or f"It has one of {', '.join(keys)}.")
        return
    present = [key for key in keys if key in value]
    noun = {"ask": "question", "tools": "tool"}.get(group, "node")
    if present:
        hint = f"Keep one of {' and '.join(present)}."
        document.tell("WF020", document.span((*loc, present[1]), key=True), f"The {noun} has two kinds.", hint)
        return
    near = {key: close for key in value if (close := _key_elsewhere(str(key), keys) or nearest(str(key), keys))}
    for key, close in near.items():
        span = document.span((*loc, key), key=True)
        document.tell("WF015", span, f"{key!r} is not a key of a {noun}.", f"Did you mean {close!r}?")
        return
    if kind := _kind_of_type(value):
        hint = f"Write {kind}: … instead of {next(iter(_type_of(value)))}."
        document.tell("WF019", document.span(loc), f"The {noun} has no kind.", hint)
        return
    code, hint = ("WF016", "Add prompt: ….") if "agent" in value and group == "nodes" else ("WF019", "")
    message = "The key 'prompt' is missing." if hint else f"The {noun} has no kind."
    document.tell(code, document.span(loc), message, hint or f"It has one of {', '.join(keys)}.")


def _type_of(value: Mapping[Any, Any]) -> list[str]:
    """Return what says the kind of a node in files of other programs, as it is written."""
    return [f"{key}: {value[key]}" for key in ("type", "kind") if isinstance(value.get(key), str)]


def _kind_of_type(value: Mapping[Any, Any]) -> str:
    words = {text.partition(": ")[2].lower() for text in _type_of(value)}
    return next((kind for kind, others in _TYPES.items() if words & {*others}), "")


def _tell_unknown(document: Document, loc: Place, name: str, keys: list[str], *, is_node: bool) -> None:
    alias_of = _key_elsewhere(name, keys)
    hint = f"Did you mean {alias_of!r}?" if alias_of else allowed(name, keys, "Keys")
    if is_node and name not in keys:
        owners = [model.kind for model in NodeFields.__subclasses__() if name in _keys_of(model)]
        hint = f"Nodes with {' or '.join(owners)} have it." if owners else hint
        hint = f"{hint} Write retry: {{attempts: 3}}." if name == "retries" else hint
        hint = f"Write the key of its kind: {', '.join(KINDS)}." if name in {"type", "kind"} else hint
    document.tell("WF015", document.span(loc, key=True), f"{name!r} is not a key here.", hint)


def _key_elsewhere(name: str, keys: Iterable[str]) -> str | None:
    """Return the key that has another name in files of other programs."""
    return next((key for key, others in _ELSEWHERE.items() if name in others and key in keys), None)


def _keys_of(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _keys_at(loc: tuple[str | int, ...], top: Place) -> list[str]:
    """Return the keys of the model that a problem's place leads into, the last part being the wrong key."""
    hint: Any = AnyNode if top else Workflow
    for part in loc[:-1]:
        models = _models(hint)
        if isinstance(part, str) and (tagged := models.get(part)):
            hint = tagged
        elif isinstance(part, str) and len(models) == 1:
            (model,) = models.values()
            fields = {field.alias or name: field for name, field in model.model_fields.items()}
            if part in fields:
                hint = fields[part].rebuild_annotation()
    models = _models(hint)
    return [] if len(models) != 1 else _keys_of(next(iter(models.values())))


def _models(hint: Any) -> dict[str, type[BaseModel]]:
    """Return the models in a type, by their tags; one without a tag by its own name."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return {hint.__name__: hint}
    models: dict[str, type[BaseModel]] = {}
    tag = next((extra.tag for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Tag)), None)
    for part in typing.get_args(hint):
        for name, model in _models(part).items():
            models[tag or name] = model
    return models
