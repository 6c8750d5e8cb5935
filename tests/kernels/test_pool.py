"""The spares of a pool: those that end beside other work are ended when the pool is closed."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any, cast

from nbtools.ground import aio
from nbtools.kernels.interface import Kernel, KernelOptions
from nbtools.kernels.pool import Pool
from nbtools.processes.runtime_dir import RuntimeDir


class _Kernel:
    """Takes a moment to end, as a process does."""

    alive, is_released = True, False

    async def close(self) -> None:
        await asyncio.sleep(0.05)
        self.is_released = True


def test_a_pool_that_is_closed_has_ended_the_spares_that_it_gave_up_before(tmp_path: Path) -> None:
    kernels: list[_Kernel] = []

    async def open_kernel(_: KernelOptions) -> Kernel:
        kernels.append(_Kernel())
        return cast("Any", kernels[-1])

    async def work() -> None:
        pool = Pool(open_kernel, RuntimeDir(tmp_path), spares=1, is_stale=lambda: False)
        for limit in (10, 20, 30):  # more sets of options than have spares
            await pool.fill(dataclasses.replace(KernelOptions(language="python"), processes=limit))
        await asyncio.sleep(0)
        await pool.close()
        assert [kernel.is_released for kernel in kernels] == [True, True, True]

    aio.run(work())
