"""Commands on tools: list them, call one, check their declarations; the doctor; the kernelspec."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from nbtools.assembly.workbench import Workbench
from nbtools.contract.door import failure
from nbtools.contract.tool import ToolCall
from nbtools.errors import InvalidArguments, NbtoolsError
from nbtools.ground.config import Config

_JSON_NAMES: Mapping[type, str] = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}


def add_commands(commands: Any) -> None:
    """Add ``tools``, ``call``, ``check-tools``, ``doctor``, ``trust`` and ``kernelspec`` to the parser's commands."""
    tools = commands.add_parser("tools", help="list the tools, or print their JSON schemas")
    tools.add_argument("--json", action="store_true", help="print JSON")
    tools.add_argument(
        "--format",
        choices=("json-schema", "anthropic", "openai", "gemini", "mcp"),
        help="print the schemas in this provider's form",
    )
    tools.set_defaults(perform=_tools)
    call = commands.add_parser("call", help="call a tool and print its result as JSON")
    call.add_argument("tool", metavar="TOOL", help="name of the tool, see nbtools tools")
    call.add_argument(
        "--json",
        default="{}",
        metavar="ARGUMENTS",
        help="the arguments as a JSON object; - reads them from standard input",
    )
    call.add_argument("--timeout", type=float, metavar="SECONDS", help="cancel the call after that time")
    call.add_argument("--allow-private", action="store_true", help="let web tools reach private addresses")
    call.set_defaults(perform=_call)
    check = commands.add_parser("check-tools", help="check that every tool does what its declaration says")
    check.set_defaults(perform=_check)
    doctor = commands.add_parser("doctor", help="check every part, and say how to repair or install what is missing")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.set_defaults(perform=_doctor)
    trust = commands.add_parser(
        "trust", help="show what the nbtools.toml here would run, open or redirect, and allow it"
    )
    trust.set_defaults(perform=_trust)
    spec = commands.add_parser("kernelspec", help="install a kernel that JupyterLab and other clients can start fast")
    spec.add_argument("action", choices=("install",), help="install it")
    spec.add_argument("--name", default="nbtools-forked", help="name of the kernelspec")
    spec.add_argument("--prefix", help="install below that prefix instead of this environment")
    spec.set_defaults(perform=_kernelspec)


def _tools(arguments: argparse.Namespace) -> int:
    from nbtools.assembly.health import not_offered

    with Workbench() as wb:
        registry = wb.executor.tools()
        idle = [name for name in not_offered(wb.config) if name in registry]
        if arguments.format:
            print(json.dumps(registry.render(arguments.format), indent=2))
        elif arguments.json:
            print(json.dumps(registry.get_tools_config(), indent=2))
        else:
            width = max((len(name) for name in registry), default=0)
            for name, tool in registry.items():
                summary = tool.description.partition("\n")[0]
                effects = ", ".join(tool.effects.names())
                print(f"{name:<{width}}  {summary}" + (f"  [{effects}]" if effects else ""))
            if idle:
                print(f"{', '.join(idle)}: can do nothing here yet; nbtools doctor says why.", file=sys.stderr)
    return 0


def _arguments(text: str) -> dict[str, Any]:
    """Return the object that a text holds.

    Raises
    ------
    InvalidArguments
        It is not JSON, or no object.
    """
    document = sys.stdin.read() if text == "-" else text
    try:
        value = json.loads(document)
    except ValueError as exc:
        raise InvalidArguments(
            f"--json is not JSON: {exc}.", hint='Quote it for the shell: --json \'{"key": "value"}\''
        ) from None
    if not isinstance(value, dict):
        raise InvalidArguments(f"--json is {_JSON_NAMES[type(value)]}, not an object.", hint='Give {"name": value, …}.')
    return value


def _call(arguments: argparse.Namespace) -> int:
    fields = _arguments(arguments.json)
    # One call, and nobody after it for whom a kernel would be kept ready.
    with Workbench(allow_private=arguments.allow_private or None, spares=0) as wb:
        try:
            result = wb.call(arguments.tool, fields, caller="cli", timeout=arguments.timeout)
        except NbtoolsError as exc:  # the tool's on_error is "fail"
            result = failure(ToolCall(tool=arguments.tool), exc)
    print(json.dumps(result.to_dict(), ensure_ascii=False))
    return 0 if result.ok else 1


def _check(arguments: argparse.Namespace) -> int:
    with Workbench() as wb:
        problems = wb.registry.check()
        count = len(wb.registry)
        silent = [name for name, tool in wb.registry.items() if tool.effects.undeclared]
    for problem in problems:
        print(problem)
    for name in silent:
        print(f"warning: {name} declares no effects: models will have to ask")
    print(f"{count} tools, {len(problems)} problems")
    return 1 if problems else 0


def _doctor(arguments: argparse.Namespace) -> int:
    with Workbench() as wb:
        checks = wb.doctor()
    if arguments.json:
        print(json.dumps([check.to_dict() for check in checks], indent=2))
    else:
        marks = {True: "ok ", False: "BAD", None: " - "}
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(
                f"{marks[check.ok]} {check.name:<{width}}  {check.finding}"
                + (f"  → {check.remedy}" if check.remedy else "")
            )
    return 1 if any(check.ok is False for check in checks) else 0


def _trust(arguments: argparse.Namespace) -> int:
    from nbtools.assembly.health import policy_faults

    file = Config.load().file
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if file is None:
        print("there is no nbtools.toml here")
        return 0
    with Workbench() as wb:
        faults = [" ".join(fault) for fault in policy_faults(file, wb.registry)]
    print(file.ask(print, input if is_terminal else _nobody, faults=faults))
    return 0 if (not file.summary or file.is_trusted) and not faults else 1


def _nobody(prompt: str) -> str:
    raise EOFError(prompt)


def _kernelspec(arguments: argparse.Namespace) -> int:
    from nbtools.kernels.forked.provisioner import install_kernelspec

    print(f"installed {install_kernelspec(name=arguments.name, prefix=arguments.prefix)}")
    return 0
