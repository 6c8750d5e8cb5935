"""Commands on workflow files: ``validate``, ``explain`` and ``workflow-schema``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from nbtools.assembly.workbench import Workbench
from nbtools.cli.command_parser import add_command
from nbtools.errors import InvalidArguments
from nbtools.texts.visible import counted


def add_commands(commands: Any) -> None:
    """Add ``validate``, ``explain`` and ``workflow-schema`` to the parser's commands."""
    add_command(commands, __file__, "validate").set_defaults(perform=_validate)
    add_command(commands, __file__, "explain").set_defaults(perform=_explain)
    add_command(commands, __file__, "workflow-schema").set_defaults(perform=_schema)


def _validate(arguments: argparse.Namespace) -> int:
    from nbtools.workflow.findings import FORMATS

    with Workbench() as wb:
        reports = [wb.workflows.validate(file) for file in arguments.files]
    # A file that several others run is told once.
    findings = list(dict.fromkeys(finding for report in reports for finding in report.findings))
    if findings or arguments.format in {"json", "sarif"}:
        print(FORMATS[arguments.format](findings))
    elif arguments.format == "text":
        nodes = (f"{report.path}: no mistakes, {counted(len(report.workflow.nodes), 'node')}" for report in reports)
        print("\n".join(nodes), file=sys.stderr)
    return 0 if all(report.ok for report in reports) else 1


def _explain(arguments: argparse.Namespace) -> int:
    from nbtools.errors import CODES
    from nbtools.workflow.findings import explain, rules
    from nbtools.workflow.reference import explain_failure, reference

    if arguments.code is None:
        print("\n".join(f"{code}  {rule.title}" for code, rule in rules().items()))
        print(f"of runs: {', '.join(CODES)}\nworkflow: all keys of a file")
        return 0
    if arguments.code == "workflow" or arguments.code.upper() in CODES:
        print(reference() if arguments.code == "workflow" else explain_failure(arguments.code.upper()))
        return 0
    try:
        print(explain(arguments.code))
    except InvalidArguments as exc:
        print("\n".join(exc.three_lines()), file=sys.stderr)
        return 2
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    from nbtools.workflow.spec import editor_schema

    print(json.dumps(editor_schema(), indent=2))
    return 0
