"""The arguments of a tool: their JSON Schema, and how given values become the function's own.

Three kinds, one protocol. `FunctionParameters` are read off a signature by pydantic. `SchemaParameters` hold a schema
that came from elsewhere, an outside server or a workflow file. `PartialParameters` hide what a configuration has
fixed, nested values included, so that a caller can neither see nor change it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from nbtools.errors import InvalidArguments, NbtoolsError, nearest
from nbtools.ground.paths import Roots

if typing.TYPE_CHECKING:
    from pydantic import BaseModel

_Schema = dict[str, Any]
KINDS = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
"""The kinds of JSON value, as JSON Schema names them."""
CHOICES = ("anyOf", "oneOf")
"""The words of a schema that offer several."""
_DEPTH = 20
_VALUES = {"default", "const", "enum", "examples"}
# Words that say nothing of a value's type.
_UNTYPED = {"description", "default", "examples"}
# A call with more is told of the first ones: each costs a comparison with all names.
_MOST_PROBLEMS = 50


# Any JSON value. What is inside its arrays is said one level down, because some models want every array explained.
_PLAIN = [{"type": name} for name in ("string", "number", "boolean", "null", "object")]
_ANY: Mapping[str, Any] = {"anyOf": [*_PLAIN, {"type": "array", "items": {"anyOf": _PLAIN}}]}


@dataclasses.dataclass(frozen=True)
class Canonical:
    """Puts an argument that has several spellings into one: ``Annotated[str, Canonical(str.upper)]``.

    Rules, people and the function see only that one.

    Attributes
    ----------
    spell
        Returns the one spelling of a valid value; a `ValueError` says that there is none.
    choices
        The spellings that a schema lists; others may be valid too.
    """

    spell: Callable[[Any], Any]
    choices: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the schema of a value that is spelled again afterwards; pydantic calls this."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.spell, handler(source))

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> _Schema:
        """Return the JSON Schema of a value; pydantic calls this."""
        return {**handler(core), **({"enum": list(self.choices)} if self.choices else {})}


@dataclasses.dataclass(frozen=True)
class AlsoCalled:
    """Another name by which callers may give an argument: ``Annotated[str, AlsoCalled("connection_string")]``.

    The schema shows one name, and rules, people and the function see only that one.
    """

    name: str


class Parameters(Protocol):
    """Schema and validation of a tool's arguments."""

    @property
    def hidden_name(self) -> str | None:
        """Name of the parameter that the door fills in, when there is one."""

    def schema(self) -> _Schema:
        """Return the JSON Schema (2020-12) of the arguments: an object that admits no others."""

    def outline(self) -> dict[str, tuple[Any, ...]]:
        """Return the names of all arguments, fixed ones too, each with the values it may have when these are few."""

    def spelled(self, name: str, text: str) -> str:
        """Return a text as the value of an argument is spelled; what cannot be one stays as it is."""

    def validate(self, arguments: Mapping[str, Any], roots: Roots | None = None) -> dict[str, Any]:
        """Return the values for the function.

        Parameters
        ----------
        arguments
            As given.
        roots
            Where paths start and how far they may lead; `None` leaves paths as they are written.

        Raises
        ------
        InvalidArguments
            All problems at once.
        PathNotAllowed, FileMissing
            A path leads outside the roots, or cannot be followed.
        """


class FunctionParameters:
    """Arguments read off a signature; the pydantic model is built on first use.

    Parameters
    ----------
    function
        The tool's function.
    hints
        Returns the types of its parameters, ``Annotated`` kept.
    hidden
        Type of the parameter that the door fills in.

    Raises
    ------
    TypeError
        A parameter has no name that a caller could use.
    """

    def __init__(
        self, function: Callable[..., Any], hints: Callable[[], dict[str, Any]], hidden: type | None = None
    ) -> None:
        self._function = function
        self._hints = hints
        self._hidden = hidden
        self._signature = inspect.signature(function)
        for parameter in self._signature.parameters.values():
            if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
                raise TypeError(
                    f"{function.__name__}: parameter {parameter.name!r} has no name that a caller could use; "
                    "a tool has plain named parameters only"
                )

    @functools.cached_property
    def hidden_name(self) -> str | None:
        """Name of the parameter that the door fills in, when there is one."""
        if self._hidden is None:
            return None
        return next((name for name in self._signature.parameters if self._hints().get(name) is self._hidden), None)

    def outline(self) -> dict[str, tuple[Any, ...]]:
        """Return the names of the arguments, each with the values it may have when these are few; builds no model."""
        names = [name for name in self._signature.parameters if name != self.hidden_name]
        return {name: _choices(self._hints().get(name)) for name in names}

    def spelled(self, name: str, text: str) -> str:
        """Return a text as the value of an argument is spelled; what cannot be one stays as it is."""
        canonical = _canonical(self._hints().get(name))
        with contextlib.suppress(NbtoolsError):
            return text if canonical is None else str(canonical.spell(text))
        return text

    @functools.cached_property
    def model(self) -> type[BaseModel]:
        """The argument model; its fields carry a prefix, because a model's own methods may not be shadowed."""
        from pydantic import AliasChoices, ConfigDict, Field, create_model

        from nbtools.contract.signature.docstring import parameter_texts

        texts = parameter_texts(self._function)
        fields: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            if name == self.hidden_name:
                continue
            hint = self._hints().get(name)
            if hint is None:
                raise TypeError(f"{self._function.__name__}: parameter {name!r} has no type")
            default: Any = ... if parameter.default is inspect.Parameter.empty else parameter.default
            text = None if _is_described(hint) else texts.get(name)
            described: dict[str, Any] = {"description": text} if text else {}
            others = [extra.name for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, AlsoCalled)]
            named = AliasChoices(name, *others) if others else name
            fields[f"arg_{name}"] = (hint, Field(default, validation_alias=named, **described))
        return create_model(self._function.__name__, __config__=ConfigDict(extra="forbid"), **fields)

    def schema(self) -> _Schema:
        """Return the JSON Schema of the arguments."""
        schema: _Schema = with_any_said(untitled(self.model.model_json_schema(by_alias=True)))
        schema.setdefault("properties", {})
        return schema

    def validate(self, arguments: Mapping[str, Any], roots: Roots | None = None) -> dict[str, Any]:
        """Return the values in the function's own types."""
        from pydantic import ValidationError

        try:
            model = self.model.model_validate(dict(arguments), context=roots)
        except ValidationError as exc:
            if exc.error_count() == 1 and isinstance(error := _own_error(exc.errors()[0]), NbtoolsError):
                raise error from None
            names = [name.removeprefix("arg_") for name in self.model.model_fields]
            errors = exc.errors(include_url=False)
            problems = [_describe(problem, names) for problem in errors[:_MOST_PROBLEMS]]
            raise _invalid([*problems, *_others(len(errors))], names) from None
        return {name.removeprefix("arg_"): getattr(model, name) for name in self.model.model_fields}


class SchemaParameters:
    """Arguments described by a JSON Schema from elsewhere; the owner of the schema judges the values in depth.

    Names are checked here (missing ones, unknown ones), and so are the plain types of values.
    """

    hidden_name: str | None = None

    def __init__(self, schema: Mapping[str, Any], *, hidden_name: str | None = None) -> None:
        self._schema = copy.deepcopy(dict(schema))
        self._schema.setdefault("type", "object")
        self._schema.setdefault("properties", {})
        # A schema may be true, which says nothing, or false.
        properties = self._schema["properties"].items()
        self._properties = {name: prop if isinstance(prop, Mapping) else {} for name, prop in properties}
        self.hidden_name = hidden_name

    def schema(self) -> _Schema:
        """Return the schema as it was given."""
        return copy.deepcopy(self._schema)

    def outline(self) -> dict[str, tuple[Any, ...]]:
        """Return the names of the arguments, each with the values that the schema lists for it."""
        return {name: tuple(prop.get("enum", ())) for name, prop in self._properties.items()}

    def spelled(self, name: str, text: str) -> str:
        """Return the text: who owns the schema knows of other spellings."""
        return text

    def validate(self, arguments: Mapping[str, Any], roots: Roots | None = None) -> dict[str, Any]:
        """Return the arguments unchanged, with top-level defaults of the schema filled in."""
        properties = self._properties
        required = self._schema.get("required", ())
        problems = [f"{name}: required, but not given" for name in required if name not in arguments]
        if self._schema.get("additionalProperties") is False:
            unknown = [name for name in arguments if name not in properties]
            problems += [*(_unknown(name, properties) for name in unknown[:_MOST_PROBLEMS]), *_others(len(unknown))]
        problems += [
            f"{name}: expected {properties[name].get('type')}, found {_quote(value)}"
            for name, value in arguments.items()
            # Choices and references are the business of the schema's owner.
            if name in properties and kind_of(value) not in kinds_of({"type": properties[name].get("type")}, {})
        ]
        if problems:
            raise _invalid(problems, list(properties))
        defaults = {name: copy.deepcopy(prop["default"]) for name, prop in properties.items() if "default" in prop}
        return defaults | dict(arguments)


class PartialParameters:
    """Parameters of which some are fixed and only some are exposed.

    Parameters
    ----------
    inner
        The tool's own parameters.
    fixed
        Values the caller can neither see nor change. A mapping given for a parameter that is also exposed fixes just
        those keys of it.
    exposed
        The only parameters left in the schema; `None` leaves all that are not fixed.

    Raises
    ------
    InvalidArguments
        A name is not a parameter, or a required parameter is neither fixed nor exposed.
    """

    def __init__(
        self, inner: Parameters, *, fixed: Mapping[str, Any] | None = None, exposed: typing.Iterable[str] | None = None
    ) -> None:
        self._inner = inner
        self._fixed = copy.deepcopy(dict(fixed or {}))
        exposed = None if exposed is None else tuple(exposed)
        whole = inner.schema()
        names = whole["properties"]
        nested = {name for name in exposed or () if isinstance(self._fixed.get(name), Mapping)}
        visible_names = list(exposed) if exposed is not None else [name for name in names if name not in self._fixed]
        both = sorted(set(visible_names) & set(self._fixed) - nested)
        problems = [_unknown(name, names) for name in (*self._fixed, *visible_names) if name not in names]
        problems += [f"{name}: cannot be fixed and exposed at once" for name in both]
        problems += [
            f"{name}: required, so fix it or expose it"
            for name in whole.get("required", ())
            if name not in self._fixed and name not in visible_names
        ]
        if problems:
            raise _invalid(problems, list(names))
        self._exposed = tuple(visible_names)
        self._check_fixed()
        self._schema = self._reduce(whole)

    @property
    def hidden_name(self) -> str | None:
        """Name of the parameter that the door fills in, when there is one."""
        return self._inner.hidden_name

    def _check_fixed(self) -> None:
        """Find a value that does not fit now: later it would be shown to a caller who must not see it."""
        try:
            self._inner.validate(self._fixed)
        except InvalidArguments as exc:
            whole = self._fixed.keys() - set(self._exposed)
            if wrong := [p for p in exc.data.get("problems", ()) if p.partition(":")[0].partition(".")[0] in whole]:
                raise _invalid(wrong, sorted(self._fixed)) from None

    def _reduce(self, whole: _Schema) -> _Schema:
        reduced = copy.deepcopy(whole)
        reduced["properties"] = {
            name: _without(prop, self._fixed[name], whole) if name in self._fixed else prop
            for name, prop in reduced["properties"].items()
            if name in self._exposed
        }
        required = [name for name in whole.get("required", ()) if name in self._exposed]
        reduced.pop("required", None)
        if required:
            reduced["required"] = required
        return _prune(reduced)

    def schema(self) -> _Schema:
        """Return the schema of what is left to the caller."""
        return copy.deepcopy(self._schema)

    def outline(self) -> dict[str, tuple[Any, ...]]:
        """Return the names of all arguments, fixed ones too, each with the values it may have when these are few."""
        return self._inner.outline()

    def spelled(self, name: str, text: str) -> str:
        """Return a text as the value of an argument is spelled; what cannot be one stays as it is."""
        return self._inner.spelled(name, text)

    def validate(self, arguments: Mapping[str, Any], roots: Roots | None = None) -> dict[str, Any]:
        """Return the caller's values and the fixed ones together."""
        unknown = [name for name in arguments if name not in self._exposed]
        problems = [*(_unknown(name, self._exposed) for name in unknown[:_MOST_PROBLEMS]), *_others(len(unknown))]
        for name in sorted(arguments.keys() & self._fixed.keys() - {*unknown}):
            problems += _find_overridden(arguments[name], self._fixed[name], name)
        if problems:
            raise _invalid(problems, list(self._exposed))
        try:
            return self._inner.validate(_merge(arguments, self._fixed), roots)
        except InvalidArguments as exc:
            # The tool's own hint would name what is hidden.
            raise _invalid(exc.data.get("problems", [exc.message]), list(self._exposed)) from None


def _find_overridden(value: Any, fixed: Any, path: str) -> list[str]:
    """Return the fixed places that a caller's value tries to set."""
    if not isinstance(fixed, Mapping):
        return [f"{path}: unknown argument"]
    if not isinstance(value, Mapping):
        return [f"{path}: expected an object, found {_quote(value)}"]
    return [p for key in value if key in fixed for p in _find_overridden(value[key], fixed[key], f"{path}.{key}")]


def _merge(arguments: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(arguments)
    for key, value in fixed.items():
        inner = merged.get(key)
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            merged[key] = _merge(inner, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return a schema with a leading ``$ref`` into the root's ``$defs`` followed."""
    while isinstance(schema, Mapping) and str(schema.get("$ref", "")).startswith("#/$defs/"):
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**root["$defs"][schema["$ref"].removeprefix("#/$defs/")], **rest}
    return schema


def kind_of(value: Any) -> str:
    """Return the kind of a JSON value, as JSON Schema names it."""
    if value is None:
        return "null"
    names = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (dict, "object"))
    return next((name for kind, name in names if isinstance(value, kind)), "array")


def kinds_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """Return the kinds of JSON value that a schema admits; all of them where it does not say."""
    try:
        node = resolved(schema, root)
    except (KeyError, RecursionError):  # its reference leads nowhere, which says nothing
        node = None
    if not isinstance(node, Mapping) or depth > _DEPTH:
        return KINDS
    options = next((node[word] for word in CHOICES if isinstance(node.get(word), list)), None)
    if options:
        return frozenset().union(*(kinds_of(option, root, depth + 1) for option in options))
    values = node.get("enum", [node["const"]] if "const" in node else None)
    if isinstance(values, list):
        return frozenset(map(kind_of, values))
    types = node.get("type")
    names = frozenset([types] if isinstance(types, str) else types if isinstance(types, list) else KINDS) & KINDS
    return names | {"integer"} if "number" in names else names or KINDS


def _without(schema_given: Any, fixed: Any, root: Mapping[str, Any]) -> _Schema:
    """Return a nested schema without the keys that are fixed."""
    schema: _Schema = dict(resolved(schema_given, root))
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            options = [resolved(option, root) for option in schema[choice]]
            schema[choice] = [_without(o, fixed, root) if "properties" in o else o for o in options]
    if "properties" in schema:
        properties: _Schema = {}
        for name, prop in schema["properties"].items():
            if name not in fixed:
                properties[name] = prop
            elif isinstance(fixed[name], Mapping) and "properties" in resolved(prop, root):
                properties[name] = _without(prop, fixed[name], root)
        schema["properties"] = properties
        schema["required"] = [name for name in schema.get("required", ()) if name in properties]
    # A default would show the fixed values.
    schema.pop("default", None)
    return schema


def _prune(schema: _Schema) -> _Schema:
    """Drop the definitions that nothing refers to any more: they would show what was fixed."""
    definitions = schema.pop("$defs", {})
    reachable: _Schema = {}

    def visit(node: Any) -> None:
        if isinstance(node, list):
            for item in node:
                visit(item)
        elif isinstance(node, dict):
            name = str(node.get("$ref", "")).removeprefix("#/$defs/")
            if name in definitions and name not in reachable:
                reachable[name] = definitions[name]
                visit(definitions[name])
            for item in node.values():
                visit(item)

    visit(schema)
    return {**schema, "$defs": reachable} if reachable else schema


def _is_described(hint: Any) -> bool:
    """Tell whether ``Annotated[…, Field(description=…)]`` describes the parameter itself."""
    return any(getattr(extra, "description", None) for extra in getattr(hint, "__metadata__", ()))


def rewritten(node: Any, change: Callable[[_Schema], _Schema], *, names: bool = False) -> Any:
    """Return a schema in which each schema is changed, from the inside out; what stands for values stays."""
    if isinstance(node, list):
        return [rewritten(item, change) for item in node]
    if not isinstance(node, dict):
        return node
    # Below "properties" and "$defs" the keys are names, and a parameter may well be called "title".
    inner = {
        k: v if not names and k in _VALUES else rewritten(v, change, names=not names and k in {"properties", "$defs"})
        for k, v in node.items()
    }
    return inner if names else change(inner)


def untitled(schema: Any) -> Any:
    """Return a schema without the titles that only repeat the names of fields."""
    return rewritten(schema, lambda node: {k: v for k, v in node.items() if k != "title" or not isinstance(v, str)})


def with_any_said(schema: Any, any_value: Mapping[str, Any] = _ANY) -> Any:
    """Return a schema in which a value of any kind is said to be any JSON value, rather than nothing.

    Readers of schemas, models among them, take a place without a type for a mistake.
    """
    return rewritten(schema, lambda node: node if node.keys() - _UNTYPED else {**any_value, **node})


def _unknown(name: str, names: typing.Iterable[str]) -> str:
    close = nearest(str(name), names)
    return f"{name}: unknown argument" + (f", did you mean {close!r}?" if close else "")


def _others(count: int) -> list[str]:
    """Return a sentence about the problems that are not told, if there are any."""
    return [f"{count - _MOST_PROBLEMS:,} more problems"] if count > _MOST_PROBLEMS else []


def _canonical(hint: Any) -> Canonical | None:
    """Return how a type's texts are spelled, wherever in it that is said."""
    here = next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Canonical)), None)
    return here or next(filter(None, map(_canonical, typing.get_args(hint))), None)


def _choices(hint: Any) -> tuple[Any, ...]:
    """Return the values that a type lists, wherever in it they are listed."""
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return tuple(member.value for member in hint)
    return tuple(value for part in typing.get_args(hint) for value in _choices(part))


def _own_error(problem: Mapping[str, Any]) -> Any:
    """Return the error of our own that one of pydantic's problems stands for, if it does."""
    return problem.get("ctx", {}).get("error")


def _describe(problem: Mapping[str, Any], names: list[str]) -> str:
    """Put one of pydantic's problems into words."""
    path = ".".join(str(part) for part in problem["loc"]) or "arguments"
    if problem["type"] == "extra_forbidden":
        return _unknown(path, names if len(problem["loc"]) == 1 else ())
    if problem["type"] == "missing":
        return f"{path}: required, but not given"
    error = _own_error(problem)
    if isinstance(error, NbtoolsError):
        return f"{path}: {error.message}"
    quoted = _quote(problem.get("input"))
    expected = (
        problem["msg"].replace("a valid tuple", "a valid list").replace("a valid set", "a valid list")
    )  # it is JSON
    return f"{path}: {expected}, found {quoted}"


def _quote(value: Any) -> str:
    """Return a value as an error quotes it: short, and whatever it is."""
    try:
        text = repr(value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"
    return text if len(text) <= 60 else text[:57] + "…"


def _invalid(problems: list[str], names: list[str]) -> InvalidArguments:
    """Return the error that says every problem of a call at once."""
    count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
    return InvalidArguments(
        f"{count} with the arguments: " + "; ".join(problems),
        hint=f"The arguments are {', '.join(names)}." if names else "The tool takes no arguments.",
        data={"problems": problems},
    )
