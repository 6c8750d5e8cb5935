"""Which backend runs a language, and what is tried where one fails or cannot be had."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from typing import Any

import pytest

from nbtools.errors import ConfigMissing, KernelDied, LanguageUnavailable
from nbtools.kernels import Kernels
from nbtools.kernels.backends import Backends
from nbtools.kernels.forked.backend import ForkedBackend
from nbtools.kernels.interface import KernelOptions
from nbtools.kernels.jupyter.spawned import SpawnedBackend

_PYTHON = KernelOptions()


def test_kernels_on_a_gateway_need_one() -> None:
    with Kernels("gateway", spares=0) as kernels, pytest.raises(ConfigMissing) as caught:
        kernels.run("1", sandbox="off")
    assert "NBTOOLS_GATEWAY_URL" in str(caught.value.hint)


@pytest.mark.parametrize("language", ["python", "bash", "kernel:ir"])
def test_a_system_without_unix_sockets_says_what_to_do(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        with monkeypatch.context() as patch:
            patch.delattr(socket, "AF_UNIX")  # the loop itself has one by now
            await Backends("spawned").open(dataclasses.replace(_PYTHON, language=language))

    with pytest.raises(LanguageUnavailable, match="need Unix sockets") as caught:
        asyncio.run(work())
    assert "WSL" in str(caught.value.hint)


class _Tried:
    """What stands for forked kernels, and fails so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: int, problem: str | None) -> None:
        self.names: list[str] = []

        async def fork(backend: ForkedBackend, options: KernelOptions) -> Any:
            self.names.append("forked")
            backend.zygotes.problem = problem
            if len(self.names) <= fails:
                raise KernelDied("the fork ended.")
            return "a fork"

        async def spawn(backend: SpawnedBackend, options: KernelOptions) -> Any:
            self.names.append("spawned")
            return "spawned"

        monkeypatch.setattr(ForkedBackend, "is_supported", staticmethod(lambda: True))
        monkeypatch.setattr(ForkedBackend, "open", fork)
        monkeypatch.setattr(SpawnedBackend, "open", spawn)


def test_a_fork_that_failed_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = _Tried(monkeypatch, fails=1, problem=None)
    backends = Backends("auto")
    assert asyncio.run(backends.open(_PYTHON)) == "a fork"  # type: ignore[comparison-overlap]
    assert (tried.names, backends.reason) == (["forked", "forked"], None)


def test_where_the_host_cannot_fork_kernels_are_spawned_from_then_on_and_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = _Tried(monkeypatch, fails=9, problem="no such library")
    backends = Backends("auto")
    for _ in range(2):
        assert asyncio.run(backends.open(_PYTHON)) == "spawned"  # type: ignore[comparison-overlap]
    assert tried.names == ["forked", "spawned", "spawned"]
    assert backends.to_dict()["fallback"] == "the fork ended."
    with pytest.raises(KernelDied):
        asyncio.run(Backends("forked").open(_PYTHON))
