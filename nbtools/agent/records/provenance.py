"""Notes and files of the memory that came of strangers' texts: they keep that mark, whoever reads them later.

A run that has read what strangers may have written may have it in all that it saves. So what it saves is marked before
it is saved, by a tool or by a script: a note by the hash of its value, which its copies and restored versions have too,
a file by its path.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from nbtools.agent.records.store import RunStore
from nbtools.agent.sharing import is_own
from nbtools.result import ToolResult
from nbtools.tool import Tool

__all__ = ["Provenance"]

_ANY = "strangers/any"
_READERS = frozenset({"memory_retrieve", "memory_search", "memory"})


class Provenance:
    """Marks what is saved, and knows it again.

    Parameters
    ----------
    store
        Where the marks lie.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store

    def marks(self, names: Iterable[str], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values to store before something is saved, by their keys.

        Parameters
        ----------
        names
            The tool that saves it, with the names of its originals.
        arguments
            Its arguments.
        """
        keys: set[str] = set()
        names = set(names)
        if "memory_save" in names:
            keys = {_key("note", _text_of(arguments["value"]))} if "value" in arguments else set()
        elif "memory" in names and arguments.get("command") not in {"view", "delete"}:
            keys = {_key("file", _path(arguments[name])) for name in ("path", "new_path") if arguments.get(name)}
        return dict.fromkeys({*keys, _ANY}, True) if keys else {}

    async def is_marked(self, tool: Tool, arguments: Mapping[str, Any], result: ToolResult) -> bool:
        """Tell whether a result shows something that came of strangers' texts."""
        if _READERS.isdisjoint((tool.name, *tool.origins)) or not is_own(tool) or not result.ok:
            return False
        return await self.knows(arguments, result.text if result.data is None else result.data)

    async def knows(self, arguments: Mapping[str, Any], found: Any) -> bool:
        """Tell whether what was found in the memory, asked for with arguments, came of strangers' texts."""
        return bool(await self._store.known(set(_shown(arguments, found))))

    async def has_any(self) -> bool:
        """Tell whether anything in the memory may have come of strangers' texts."""
        return bool(await self._store.known({_ANY}))


def _shown(arguments: Mapping[str, Any], found: Any) -> Iterable[str]:
    for name in ("path", "old_path"):
        if arguments.get(name):
            yield _key("file", _path(arguments[name]))
    yield _key("note", _text_of(found))
    for item in found if isinstance(found, list | tuple) else (found,):
        record = item if isinstance(item, Mapping) else vars(item) if hasattr(item, "__dict__") else {}
        if record.keys() >= {"key", "value"}:
            yield _key("note", _text_of(record["value"]))
            yield _key("file", _path(record["key"]))


def _path(given: Any) -> str:
    return str(given).rstrip("/")


def _text_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def _key(kind: str, text: str) -> str:
    return f"strangers/{kind}/{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
