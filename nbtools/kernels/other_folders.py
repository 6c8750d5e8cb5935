"""The kernels of one workbench for callers who may use other folders than those for whom they were made."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbtools.ground.paths import MayGrow, Roots
from nbtools.kernels.pool import Pool
from nbtools.kernels.service import Kernels


class KernelsForFolders(Kernels):
    """Kernels whose pool and sessions are those of others: every session is seen, and ended, there and here.

    Parameters
    ----------
    kernels
        Those others.
    allowed_paths
        Folders in which these kernels work, as for `nbtools.kernels.Kernels`.
    may_grow
        See `nbtools.ground.paths.MayGrow`.
    """

    def __init__(self, kernels: Kernels, allowed_paths: Sequence[str | Path], *, may_grow: MayGrow) -> None:
        self._kernels = kernels
        self._roots = Roots(allowed_paths, may_grow=may_grow) if allowed_paths else None
        read_paths = self._roots.roots if self._roots else ()
        self._base = dataclasses.replace(kernels._base, read_paths=read_paths)  # noqa: SLF001 - of its own class

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_kernels"], name)

    def _ready_pool(self) -> Pool:
        return self._kernels._ready_pool()  # noqa: SLF001 - of its own class

    async def _close(self) -> None:
        await self._kernels._close()  # noqa: SLF001 - of its own class
