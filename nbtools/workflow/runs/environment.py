"""The variables of the environment that a workflow reads: their values are in no log, record or report."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from nbtools.secret_values import MASK
from nbtools.workflow.spec import Workflow

_ENVIRONMENT = re.compile(r"\benv(?:\.([A-Za-z_][A-Za-z0-9_-]*)|\[['\"]([^'\"]+)['\"]\])")
_SHORTEST = 6


def variables_of(workflow: Workflow) -> frozenset[str]:
    """Return the names in ``${env.NAME}`` of a workflow."""
    found = _ENVIRONMENT.findall(repr(workflow.model_dump()))
    return frozenset(one or other for one, other in found)


def without_variables(names: frozenset[str], value: Any) -> Any:
    """Return a value in which what variables hold is masked wherever it appears, unless it is very short."""
    values = [found for name in names if len(found := os.environ.get(name, "")) >= _SHORTEST]
    return _masked(value, values) if values else value


def _masked(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, MASK)
        return value
    if isinstance(value, Mapping):
        return {name: _masked(one, secrets) for name, one in value.items()}
    return [_masked(one, secrets) for one in value] if isinstance(value, list) else value
