"""The code an owner sends to a Python kernel around a script: it loads the hooks and defines what the script finds.

It is sent as silent requests, so it neither counts as a cell nor enters the history, and it leaves no name behind in
the script's globals.
"""

from __future__ import annotations

import functools
import json
from importlib import resources

from nbtools.kernels.interface import OutputLimits, RunContext

_MODULE = "nbtools_hooks"
# In the order in which one needs the other.
_MODULES = ("streams", "program_end", "event_loops", "memory", "stored", "values", "writers", "pictures", "hooks")


@functools.cache
def load_code(*names: str) -> str:
    """Return code that loads modules, the hooks where none is named, into a kernel that may not have nbtools.

    It is harmless when repeated.
    """
    # Two layers of exec, because the text must run in a separate module and leave no name in the script's globals.
    loader = "import sys, types\n"
    for name in names or _MODULES:
        text = resources.files("nbtools.kernels.inside").joinpath(f"{name}.py").read_text("utf-8")
        loader += (
            f"if 'nbtools_{name}' not in sys.modules:\n"
            f"    module = sys.modules['nbtools_{name}'] = types.ModuleType('nbtools_{name}')\n"
            f"    exec(compile({text!r}, '<nbtools/kernels/inside/{name}.py>', 'exec'), module.__dict__)\n"
        )
    return f"exec({loader!r}, {{}})"


def context_as_text(context: RunContext, limits: OutputLimits, **files: str | None) -> str:
    """Return as JSON what `begin` of the hooks takes; `files` are those that the kernel and its owner share."""
    values = {
        **files,
        "text_bytes": limits.text_bytes,
        "display_bytes": limits.display_bytes,
        "cwd": str(context.cwd) if context.cwd else None,
        "variables": dict(context.variables),
        "links": {name: str(path) for name, path in context.links.items()},
        "figure_path": str(context.figure_path) if context.figure_path else None,
        "memory": context.memory is not None,
        "wants_value": context.wants_value,
        "ends": context.ends,
        "watched": list(map(str, context.watched)),
        "value_names": list(context.value_names),
        "value_folder": str(context.value_folder) if context.value_folder else None,
    }
    return json.dumps(values, default=str)


def begin_code(context: RunContext, limits: OutputLimits, **files: str | None) -> str:
    """Return code that makes the context of the next script."""
    # As JSON in a string, not as a literal: values such as NaN and true are read the same way on both sides.
    text = context_as_text(context, limits, **files)
    return f"__import__('sys').modules[{_MODULE!r}].begin(__import__('json').loads({text!r}))"


def rehearse_code() -> str:
    """Return code that makes a forked kernel run the steps of most scripts once."""
    return "__import__('sys').modules['nbtools.kernels.inside.forked_kernel'].rehearse()"


def variables_code() -> str:
    """Return code that makes the kernel report its variables."""
    modules = "__import__('sys').modules"
    return f"({modules}.get({_MODULE!r}) or {modules}['nbtools.kernels.inside.hooks']).variables()"
