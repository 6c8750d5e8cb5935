"""The variables of the environment that a workflow reads: their values are in no log, record or report."""

from __future__ import annotations

import os
import re
from typing import Any

from nbtools.contract.wire.json_values import replace_nested
from nbtools.texts.secret_values import MASK
from nbtools.workflow.spec import Workflow

_ENVIRONMENT = re.compile(r"\benv(?:\.([A-Za-z_][A-Za-z0-9_-]*)|\[['\"]([^'\"]+)['\"]\])")
_SHORTEST = 6


def variables_of(workflow: Workflow) -> frozenset[str]:
    """Return the names in ``${env.NAME}`` of a workflow."""
    matches = _ENVIRONMENT.findall(repr(workflow.model_dump(exclude_unset=True)))
    return frozenset(one or other for one, other in matches)


def without_variables(names: frozenset[str], value: Any) -> Any:
    """Return a value in which what variables hold is masked wherever it appears, unless it is very short."""
    # A value such as `1` or `on` stands everywhere by chance: to mask it would make a log that no one can read.
    values = [text for name in names if len(text := os.environ.get(name, "")) >= _SHORTEST]

    def masked(one: Any) -> Any:
        for secret in values if isinstance(one, str) else ():
            one = one.replace(secret, MASK)
        return one

    return replace_nested(value, masked) if values else value
