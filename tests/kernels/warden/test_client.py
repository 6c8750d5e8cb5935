"""The process that starts kernels: one that stays silent, or dies, is replaced once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nbtools import aio
from nbtools.errors import KernelDied
from nbtools.kernels.warden.client import WardenClient, start_with_retry

WARDEN = ("-P", "-m", "nbtools.kernels.warden")
SILENT = ("-c", "import sys, time; time.sleep(600)")
DEAD = ("-c", "")


def starter(folder: Path, *commands: tuple[str, ...]) -> Callable[[], WardenClient]:
    left = list(commands)

    def start() -> WardenClient:
        place = folder / str(len(left))
        place.mkdir()
        return WardenClient(left.pop(0), folder=place, env=dict(os.environ))

    return start


@pytest.mark.parametrize("first", [SILENT, DEAD], ids=["silent", "dead"])
def test_one_that_does_not_answer_is_replaced(tmp_path: Path, first: tuple[str, ...]) -> None:
    async def meet() -> bool:
        warden = await start_with_retry(starter(tmp_path, first, WARDEN), timeout=4, what="starts kernels")
        try:
            return warden.alive
        finally:
            await warden.close()

    assert aio.run(meet())


def test_a_second_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KernelDied, match="The process that starts kernels did not start"):
        aio.run(start_with_retry(starter(tmp_path, DEAD, DEAD), timeout=20, what="starts kernels"))
