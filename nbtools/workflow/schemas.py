"""JSON Schemas as types: what kinds of value one admits, what a path into it leads to, and whether a value fits.

Judged is what is certain: a schema that says nothing admits everything, and two schemas conflict only when no value
could fit both. An object with named properties is taken as complete unless it says ``additionalProperties``, so that a
slip in a name is found.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nbtools.contract.signature.parameters import CHOICES, KINDS, kind_of, kinds_of, resolved
from nbtools.errors import nearest
from nbtools.workflow.document import Place
from nbtools.workflow.expressions import Expression, parse

_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "object": "a mapping",
    "array": "a list",
}
_DEPTH = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Misfit:
    """Where a value does not fit a schema, and why.

    `what` is ``"unknown"`` (a name), ``"missing"`` (a name), ``"literal"`` or ``"reference"`` (a value).
    """

    what: str
    loc: Place
    message: str
    hint: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class SchemaType:
    """A JSON Schema with the root that its references lead into.

    Parameters
    ----------
    schema
        A schema, or part of one.
    root
        The whole schema, whose ``$defs`` are meant; `None` is the schema itself.
    """

    schema: Any
    root: Mapping[str, Any] | None = None

    @property
    def _root(self) -> Mapping[str, Any]:
        return self.root if self.root is not None else (self.schema if isinstance(self.schema, dict) else {})

    @functools.cached_property
    def _resolved(self) -> Mapping[str, Any]:
        """The schema with its own reference followed; one that leads nowhere says nothing."""
        if not isinstance(self.schema, dict):
            return {}
        if "$ref" not in self.schema:
            return self.schema
        try:
            schema = resolved(self.schema, self._root)
        except (KeyError, RecursionError):
            return {}
        return schema if isinstance(schema, dict) else {}

    def _of(self, schema: Any) -> SchemaType:
        return SchemaType(schema, self._root)

    def options(self) -> tuple[SchemaType, ...]:
        """Return the choices that the schema leaves; the schema itself where it has none."""
        return self._options or (self,)

    @functools.cached_property
    def _options(self) -> tuple[SchemaType, ...]:
        return self._choices(0)

    def _choices(self, depth: int) -> tuple[SchemaType, ...]:
        node = self._resolved
        choices = next((node[word] for word in CHOICES if isinstance(node.get(word), list)), None)
        if not choices or depth > _DEPTH:
            return ()
        items: list[SchemaType] = []
        for item in map(self._of, choices):
            items += item._choices(depth + 1) or (item,)  # noqa: SLF001 - of the same class
        return tuple(items)

    def kinds(self) -> frozenset[str]:
        """Return the kinds of JSON value that fit: ``string``, ``integer``, ``number`` and so on."""
        return self._kinds

    @functools.cached_property
    def _kinds(self) -> frozenset[str]:
        return kinds_of(self.schema, self._root)

    def is_any(self) -> bool:
        """Tell whether the schema says nothing of what fits."""
        return self.kinds() == KINDS

    def is_listed(self) -> bool:
        """Tell whether the values that fit are listed one by one."""
        return self._values() is not None

    def words(self) -> str:
        """Return what fits, in words: ``text or null``."""
        if values := self._values():
            return "one of " + ", ".join(map(shown_value, values))
        kinds = self.kinds()
        kinds -= {"integer"} if "number" in kinds else set()
        names = sorted((_WORDS[kind] for kind in kinds), key=list(_WORDS.values()).index)
        return " or ".join(names) if kinds != KINDS else "anything"

    def _values(self) -> list[Any] | None:
        node = self._resolved
        values = [node["const"]] if "const" in node else node.get("enum")
        return values if isinstance(values, list) else None

    def names(self) -> list[str]:
        """Return the names of the properties."""
        names: dict[str, None] = {}
        for option in self.options():
            properties = option._resolved.get("properties")  # noqa: SLF001 - of the same class
            names |= dict.fromkeys(properties) if isinstance(properties, dict) else {}
        return list(names)

    def at(self, step: str | int) -> SchemaType | None:
        """Return the type of a property or an item; `None` where there is none for certain."""
        matches = [inner for option in self.options() if (inner := option._step(step)) is not None]  # noqa: SLF001 - of the same class
        if not matches:
            return None
        if len(matches) == 1:
            return matches[0]
        # A choice that admits everything there makes all others say nothing.
        if any(inner.is_any() for inner in matches):
            return ANY
        return SchemaType({"anyOf": [inner.schema for inner in matches]}, self._root)

    def _step(self, step: str | int) -> SchemaType | None:
        node, kinds = self._resolved, self.kinds()
        if isinstance(step, int):
            return self.items() if "array" in kinds else None
        if "object" not in kinds:
            return None
        properties = node.get("properties")
        if not isinstance(properties, dict):
            properties = {}
        if step in properties:
            return self._of(properties[step])
        more = node.get("additionalProperties")
        if isinstance(more, dict):
            return self._of(more)
        # Many tools describe their results as an object and no more. Then every name may be there.
        return ANY if more is True or not properties or "patternProperties" in node else None

    def items(self) -> SchemaType:
        """Return the type of the items of a list."""
        inner = [o._resolved.get("items", {}) for o in self.options() if "array" in o.kinds()]  # noqa: SLF001 - of the same class
        return self._of(inner[0]) if len(inner) == 1 else self._of({"anyOf": inner}) if inner else ANY

    def conflict(self, target: SchemaType, depth: int = 0) -> str | None:
        """Return why no value of this type fits another, or `None` where one may."""
        kinds, theirs = self.kinds(), target.kinds()
        # Null alone is not a conflict: a value that may be missing is usually there, and a default can be given.
        if (kinds - {"null"} or kinds) and not (kinds - {"null"} or kinds) & theirs:
            return f"is {self.words()}, but {target.words()} is expected"
        mine, values = self._values(), target._values()
        if mine and values and not any(value in values for value in mine):
            return f"is {self.words()}, but {target.words()} is expected"
        # Which choice is meant is not certain, and only what is certain is told.
        if depth > _DEPTH or len(target.options()) > 1 or len(self.options()) > 1:
            return None
        if kinds == {"array"} == theirs and (inner := self.items().conflict(target.items(), depth + 1)):
            return f"has items, each of which {inner}"
        return self._object_conflict(target, depth) if kinds == {"object"} == theirs else None

    def _object_conflict(self, target: SchemaType, depth: int) -> str | None:
        node = target._resolved
        for name in node.get("required", ()):
            if self.at(name) is None:
                return f"has no {name!r}"
        for name in self.names():
            mine, theirs = self.at(name), target.at(name)
            if mine is not None and theirs is not None and (inner := mine.conflict(theirs, depth + 1)):
                return f"has {name!r}, which {inner}"
        return None

    def misfits(
        self, value: Any, infer: Callable[[Expression], SchemaType | None], loc: Place = (), depth: int = 0
    ) -> Iterator[Misfit]:
        """Yield where a value does not fit.

        Parameters
        ----------
        value
            JSON-like, whose texts may contain expressions.
        infer
            Returns the type of an expression; `None` where that cannot be said.
        loc
            Where the value stands: keys and indices from the outermost value.
        depth
            How many schemas were followed to get here.
        """
        # A text with an expression has the type of what is filled in, and is not text to be judged by its letters.
        if isinstance(value, str) and "${" in value:
            yield from self._filled(value, infer, loc)
            return
        if self._options:
            yield from self._choice_misfits(value, infer, loc, depth)
            return
        kinds = self.kinds()
        if kind_of(value) not in kinds:
            yield Misfit(what="literal", loc=loc, **_wrong_kind(value, self))
        elif isinstance(value, dict):
            yield from self._object_misfits(value, infer, loc, depth)
        elif isinstance(value, list) and depth <= _DEPTH:
            for i, item in enumerate(value):
                yield from self.items().misfits(item, infer, (*loc, i), depth + 1)
            yield from self._bounds(value, loc)
        else:
            yield from self._bounds(value, loc)

    def _choice_misfits(
        self, value: Any, infer: Callable[[Expression], SchemaType | None], loc: Place, depth: int
    ) -> Iterator[Misfit]:
        """Yield why a value fits no choice: what the only one of its kind says, if there is such."""
        tried = [list(option.misfits(value, infer, loc, depth + 1)) for option in self._options]
        if not all(tried):
            return
        near = [
            misfits for option, misfits in zip(self._options, tried, strict=True) if kind_of(value) in option.kinds()
        ]
        # One choice of the value's kind is what was meant; why the others do not fit would be noise.
        if len(near) == 1:
            yield from near[0]
        elif near:
            yield Misfit(what="literal", loc=loc, message=f"{shown_value(value)} matches none of the choices.")
        else:
            yield Misfit(what="literal", loc=loc, **_wrong_kind(value, self))

    def _filled(self, text: str, infer: Callable[[Expression], SchemaType | None], loc: Place) -> Iterator[Misfit]:
        template = parse(text)
        kind = SchemaType({"type": "string"}) if template.single is None else infer(template.single)
        if template.errors or kind is None:
            return
        why = kind.conflict(self)
        if why is None:
            return
        hint = ""
        if template.single is not None and "string" in self.kinds():
            hint = "Make it text: | json, or | join for a list."
        source = template.single.path if template.single is not None else "The text"
        yield Misfit(what="reference", loc=loc, message=f"{source} {why}.", hint=hint)

    def _object_misfits(
        self, value: Mapping[str, Any], infer: Callable[[Expression], SchemaType | None], loc: Place, depth: int
    ) -> Iterator[Misfit]:
        node = self._resolved
        declared = node.get("properties")
        properties: Mapping[str, Any] = declared if isinstance(declared, dict) else {}
        for name in node.get("required", ()):
            if name not in value:
                yield Misfit(what="missing", loc=loc, message=str(name))
        for name, item in value.items():
            more = node.get("additionalProperties", True)
            if name in properties:
                yield from self._of(properties[name]).misfits(item, infer, (*loc, name), depth + 1)
            elif more is False:
                yield Misfit(what="unknown", loc=(*loc, name), message=str(name), hint="\n".join(properties))
            elif isinstance(more, dict):
                yield from self._of(more).misfits(item, infer, (*loc, name), depth + 1)

    def _bounds(self, value: Any, loc: Place) -> Iterator[Misfit]:
        node = self._resolved
        values = self._values()
        if values is not None and value not in values:
            close = nearest(value, [v for v in values if isinstance(v, str)]) if isinstance(value, str) else None
            hint = f"Did you mean {close!r}?" if close else ""
            yield Misfit(what="literal", loc=loc, message=f"{shown_value(value)} is not {self.words()}.", hint=hint)
        for word, (fits, relation) in _BOUNDS.items():
            bound = node.get(word)
            if bound is not None and not isinstance(value, bool):
                try:
                    broken = not fits(value, bound)
                # A bound for another kind of value, or a pattern of another dialect, says nothing about this one.
                except (TypeError, re.error):
                    continue
                if broken:
                    message = f"{shown_value(value)} is {relation} {shown_value(bound)}."
                    yield Misfit(what="literal", loc=loc, message=message)


def _sized(value: Any) -> int:
    if isinstance(value, str | list):
        return len(value)
    raise TypeError


_BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, bound: value >= bound, "less than"),
    "maximum": (lambda value, bound: value <= bound, "more than"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "not more than"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "not less than"),
    "minLength": (lambda value, bound: _sized(value) >= bound, "shorter than"),
    "maxLength": (lambda value, bound: _sized(value) <= bound, "longer than"),
    "minItems": (lambda value, bound: _sized(value) >= bound, "shorter than"),
    "maxItems": (lambda value, bound: _sized(value) <= bound, "longer than"),
    "pattern": (lambda value, pattern: re.search(pattern, value) is not None, "not in the form"),
}
ANY = SchemaType({})
"""The type of what nothing is known of."""


def _wrong_kind(value: Any, target: SchemaType) -> dict[str, str]:
    hint = ""
    if isinstance(value, str) and target.kinds() & {"boolean"} and value.lower() in {"yes", "no", "on", "off"}:
        hint = f"YAML 1.2 has true and false; {value} is text."
    elif isinstance(value, str) and target.kinds() & {"integer", "number"} and re.fullmatch(r"[\d.]+", value):
        hint = "Remove the quotes."
    elif not isinstance(value, str | list | dict) and "string" in target.kinds():
        hint = "Put it in quotes."
    subject = "It" if value is None else shown_value(value)
    return {"message": f"{subject} is {kind_words(value)}, but {target.words()} is expected.", "hint": hint}


def kind_words(value: Any) -> str:
    """Return of what kind a JSON value is, in words: ``a list``, ``text``."""
    return _WORDS[kind_of(value)]


def shown_value(value: Any) -> str:
    """Return a value as it stands in YAML: true and null, not Python's names for them; a long one is cut.

    Examples
    --------
    >>> shown_value(None), shown_value([True, "a"]), shown_value("a")
    ('null', '[true, "a"]', "'a'")
    """
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 40 else f"{text[:39]}…"
