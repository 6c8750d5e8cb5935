"""A memory before the judge of mappings in the standard library, which Debian does not ship with its newer Pythons."""

from __future__ import annotations

import pytest

from nbtools.memory import AgentMemory, InMemoryRepository

mapping_tests = pytest.importorskip("test.mapping_tests")


class TestReadsLikeAMapping(mapping_tests.BasicTestMappingProtocol):
    """The judge of the standard library, for the read side: what it writes goes through `write`."""

    type2test = dict

    def _reference(self):
        return {"1": "2", "key1": "value1", "key2": [1, 2, 3]}

    def _empty_mapping(self):
        return AgentMemory(InMemoryRepository(), agent_id="a")

    def _full_mapping(self, data):
        memory = self._empty_mapping()
        for key, value in data.items():
            memory.write(key, value)
        return memory

    # These ask for writing as a dict does, which a memory refuses on purpose.
    test_write = test_update = test_setdefault = test_pop = test_popitem = None
    test_constructor = None
