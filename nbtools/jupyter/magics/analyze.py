"""``%%data_analyze``: the cell is a script that runs beside the notebook, in a clean kernel, on one file."""

from __future__ import annotations

from typing import Any

from nbtools.jupyter.line.arguments import Parser
from nbtools.jupyter.magic import Magic, Request
from nbtools.jupyter.magics.scripts import checked_script, script_parser, time_of

__all__ = ["MAGIC"]


def _usage(prog: str, cell: bool) -> Parser:
    parser = script_parser(prog, "Run the cell in a clean kernel; input_file_path is defined in it.")
    parser.take("file", metavar="FILE", help="the data file, below the allowed folders", kind="file")
    return parser


def _run(request: Request) -> Any:
    arguments = {
        "input_file_path": request.args.file,
        "analysis_script": checked_script(request),
        "session": request.args.session,
        "timeout": time_of(request),
    }
    return request.call("data_analyze", arguments)


MAGIC = Magic(usage=_usage, run=_run)
