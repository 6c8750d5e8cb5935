"""Data dictionaries: what columns mean, said in the `datapackage.yaml` beside the data.

The form is Frictionless Data's, which other programs read too: a list of ``resources``, each with the ``path`` of a
file and a ``schema``, whose ``fields`` have a ``name``, a ``type``, a ``title`` or ``description``, and a ``unit``;
the ``primaryKey`` names the columns that tell rows apart.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtools.errors import InvalidArguments
from nbtools.sql.results.texts import kind_of, type_name
from nbtools.texts.visible import brief, harmless

NAME = "datapackage.yaml"
_NAMES = (NAME, "datapackage.yml", "datapackage.json")
_MOST_BYTES = 1_000_000
_LONGEST = 200  # of what a column means
_KEY = re.compile(r"(?:^|_)(?:id|key|nr|no|number)$", re.IGNORECASE)
_EXACT = {"date": "date", "timestamp": "datetime", "time": "time", "boolean": "boolean", "varchar": "string"}


def meanings_of(file: Path) -> dict[str, str]:
    """Return what the columns of a file mean, as far as a dictionary beside it says; nothing without one.

    Raises
    ------
    InvalidArguments
        The dictionary cannot be read.
    """
    path = file_in(file.parent)
    for resource in [] if path is None else _resources(path):
        schema = resource.get("schema")
        fields = schema.get("fields") if isinstance(schema, Mapping) else None
        if os.path.normpath(_text(resource, "path")) == file.name and isinstance(fields, list):
            key = resource["schema"].get("primaryKey")
            keys = key if isinstance(key, list) else [key]
            described = {each["name"]: _meaning(each, keys) for each in fields if _is_field(each)}
            return {name: text for name, text in described.items() if text}
    return {}


def file_in(folder: Path) -> Path | None:
    """Return the dictionary of a folder; `None` where there is none, or the folder is closed to us."""
    names = (os.path.join(folder, name) for name in _NAMES)  # noqa: PTH118 - of pathlib, a closed folder is an error
    return next((Path(name) for name in names if os.path.isfile(name)), None)  # noqa: PTH113 - see above


def _resources(path: Path) -> list[Mapping[str, Any]]:
    import yaml

    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InvalidArguments(f"{path.name} has more than {_MOST_BYTES:,} bytes and is not read.")
        package = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as exc:
        raise InvalidArguments(f"{path.name} cannot be read: {' '.join(str(exc).split())[:200]}.") from exc
    resources = package.get("resources") if isinstance(package, Mapping) else None
    if not isinstance(resources, list):
        raise InvalidArguments(f"{path.name} has no list of resources, as a data package has.")
    return [each for each in resources if isinstance(each, Mapping)]


def _is_field(field: Any) -> bool:
    return isinstance(field, Mapping) and isinstance(field.get("name"), str)


def _text(of: Mapping[str, Any], name: str) -> str:
    """Return a text; nothing for a value of another kind, which aliases of YAML can make endless."""
    return value if isinstance(value := of.get(name), str) else ""


def _meaning(field: Mapping[str, Any], keys: Sequence[Any]) -> str:
    """Return what a field says of a column, in one line."""
    text = _text(field, "description") or _text(field, "title")
    unit = f"in {unit}" if (unit := _text(field, "unit")) else ""
    key = "key" if field["name"] in keys else ""
    return brief(harmless(", ".join(" ".join(part.split()) for part in (text, unit, key) if part)), _LONGEST)


def draft(file: Path, columns: Sequence[str], types: Sequence[str], is_key: Mapping[str, bool]) -> str:
    """Return a dictionary for one file as YAML, whose descriptions and units are to be filled in.

    Parameters
    ----------
    file
        The file.
    columns
        Names of its columns.
    types
        The engine's name of the type of each column, in the same order.
    is_key
        Which columns, of those that were counted, have another value in each row.
    """
    import yaml

    keys = [name for name in columns if is_key.get(name)][:1]
    fields = [
        {"name": name, "type": _type_of(kind), "description": "", **({"unit": ""} if kind_of(kind) == "number" else {})}
        for name, kind in zip(columns, types, strict=True)
    ]
    schema = {**({"primaryKey": keys} if keys else {}), "fields": fields}
    name = re.sub(r"[^a-z0-9._-]+", "-", file.stem.lower()).strip("-") or "data"
    resource = {"name": name, "path": file.name, "schema": schema}
    return str(yaml.safe_dump({"resources": [resource]}, sort_keys=False, allow_unicode=True, width=100))


def key_candidates(columns: Sequence[str]) -> list[str]:
    """Return the columns that are worth counting for a key: the first, and those that are called like one.

    Examples
    --------
    >>> key_candidates(["order", "customer_id", "amount"])
    ['order', 'customer_id']
    """
    return [name for at, name in enumerate(columns) if at == 0 or _KEY.search(name)][:5]


def _type_of(kind: str) -> str:
    name = type_name(kind).partition("(")[0]
    if kind_of(kind) == "number":
        return "integer" if "int" in name else "number"
    if name.endswith("[]"):
        return "array"
    return _EXACT.get(name, "datetime" if name.startswith("timestamp") else "any")
