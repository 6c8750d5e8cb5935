"""Commands on tools: list them, call one, check their declarations; the doctor; the kernelspec."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from nbtools.assembly.workbench import Workbench
from nbtools.cli.command_parser import CommandParser, add_command, add_options, read_values
from nbtools.contract.failures import failure
from nbtools.contract.signature.parameters import kinds_of, resolved
from nbtools.contract.tool import ToolCall
from nbtools.errors import InvalidArguments, NbtoolsError
from nbtools.ground.config import Config
from nbtools.ground.option_values import json_or_text
from nbtools.texts.visible import counted


def add_commands(commands: Any) -> None:
    """Add ``tools``, ``call``, ``check-tools``, ``doctor``, ``trust`` and ``kernelspec`` to the parser's commands."""
    for name, perform in _COMMANDS.items():
        add_command(commands, __file__, name).set_defaults(perform=perform)


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
                print(f"{', '.join(idle)}: not set up; nbtools doctor says why.", file=sys.stderr)
    return 0


def _object(document: str) -> dict[str, Any]:
    """Return the object that a text holds.

    Raises
    ------
    InvalidArguments
        It is not JSON, or no object.
    """
    try:
        value = json.loads(sys.stdin.read() if document == "-" else document)
    except ValueError as exc:
        hint = 'Quote them for the shell: \'{"key": "value"}\'. Or write --key value.'
        raise InvalidArguments(f"the arguments are not JSON: {exc}.", hint=hint) from None
    if not isinstance(value, dict):
        raise InvalidArguments(
            f"the arguments are not an object: {document.strip():.60}", hint='Give {"name": value, …}.'
        )
    return value


def _read_call(wb: Workbench, arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options and the tool's arguments, which stand behind its name."""
    parser = CommandParser(prog=f"nbtools call {arguments.tool}")
    add_options(parser, __file__, "call")
    parser.add_argument("object", nargs="?", metavar="JSON", help="all arguments as an object; - reads standard input")
    tool = None
    # Without options of the tool its schema is not needed, and listing tools may connect to outside servers.
    if any(word.startswith("--") and (word == "--help" or not parser.knows(word)) for word in arguments.rest):
        tool = wb.executor.tools().get(arguments.tool)
        if tool is None:
            return {}, {}  # whatever its options mean: the door tells what there is in its place
    schema: Mapping[str, Any] = {"properties": {}} if tool is None else tool.schema
    properties = {name: resolved(prop, schema) for name, prop in schema["properties"].items()}
    about = {name: str(prop.get("description", "")) for name, prop in properties.items()}
    options, texts = read_values(parser, arguments, about)
    values = {
        # `--text 007` is a text where the tool wants one, though JSON would read a number.
        name: text if kinds_of(properties[name], schema) <= {"string", "null"} else json_or_text(text)
        for name, text in texts.items()
    }
    return options, {**_object(options["object"] or "{}"), **values}


def _call(arguments: argparse.Namespace) -> int:
    # One call, and nobody after it for whom a kernel would be kept ready.
    private = getattr(arguments, "allow_private", False) or "--allow-private" in arguments.rest
    with Workbench(allow_private=private or None, spares=0) as wb:
        options, values = _read_call(wb, arguments)
        try:
            result = wb.call(arguments.tool, values, caller="cli", timeout=options.get("timeout"))
        except NbtoolsError as exc:  # the tool's on_error is "fail"
            result = failure(ToolCall(tool=arguments.tool), exc)
    fields = result.to_dict()
    if result.error is not None and result.text == str(result.to_error()):
        fields["text"] = ""  # for readers without fields; here the error has them
    print(json.dumps(fields, ensure_ascii=False))
    return 0 if result.ok else 1


def _config(arguments: argparse.Namespace) -> int:
    from nbtools.assembly.health import misspelt_variables

    rows = Config.load().rows(arguments.setting)
    for check in misspelt_variables(os.environ):
        print(f"{check.name}: {check.finding}. {check.remedy}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return 0
    name, value = (max(len(row[key]) for row in rows) for key in ("setting", "value"))
    for row in rows:
        print(f"{row['setting']:<{name}}  {row['value']:<{min(value, 40)}}  {row['source']}")
    if arguments.setting:
        print(rows[0]["meaning"])
    return 0


def _check(arguments: argparse.Namespace) -> int:
    with Workbench() as wb:
        problems = wb.registry.check()
        number = len(wb.registry)
        # Not a problem of the declaration, but each call by a model needs approval.
        silent = [name for name, tool in wb.registry.items() if tool.effects.undeclared]
    if arguments.json:
        print(json.dumps({"tools": number, "problems": problems, "undeclared": silent}, indent=2))
        return 1 if problems else 0
    for problem in problems:
        print(problem)
    for name in silent:
        print(f"warning: {name} declares no effects: a model's call to it will need approval")
    print(f"{counted(number, 'tool')}, {counted(len(problems), 'problem')}")
    return 1 if problems else 0


def _doctor(arguments: argparse.Namespace) -> int:
    from nbtools.assembly.health import class_check

    with Workbench() as wb:
        checks = wb.doctor() if arguments.pupils is None else [class_check(arguments.pupils, wb.config)]
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
    is_about_settings = arguments.file is None or (file is not None and file.is_at(arguments.file))
    if arguments.note is not None or not is_about_settings:
        with Workbench() as wb:
            print(wb.have_read(arguments.file, note=arguments.note, caller="cli"))
        return 0
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


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "tools": _tools,
    "call": _call,
    "config": _config,
    "check-tools": _check,
    "doctor": _doctor,
    "trust": _trust,
    "kernelspec": _kernelspec,
}
