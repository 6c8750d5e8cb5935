"""The registry that workflow files are checked against: the shelf of tools, without a workbench."""

from __future__ import annotations

import pytest

from nbtools.contract.registry import Registry
from nbtools.toolbox import STANDARD


@pytest.fixture(scope="session")
def registry() -> Registry:
    return Registry(function for toolset in STANDARD for function in toolset)
