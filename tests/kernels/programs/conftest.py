"""What all tests of programs run on: one backend for a module."""

from __future__ import annotations

import pytest

from nbtools.ground import aio
from nbtools.kernels.programs.kernel import ProcessBackend


@pytest.fixture(scope="module")
def backend():
    async def make():
        return ProcessBackend()

    made = aio.run(make())
    yield made
    aio.run(made.close())
