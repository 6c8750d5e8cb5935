"""The registry that workflow files are checked against: the shelf of tools, without a workbench."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from nbtools.contract.registry import Registry
from nbtools.toolbox import STANDARD

# An example that takes long is the fault of a busy machine, or of the collection of garbage.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def registry() -> Registry:
    return Registry(function for toolset in STANDARD for function in toolset)
