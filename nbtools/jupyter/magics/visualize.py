"""``%%data_visualize``: the cell draws a picture of one file, in a clean kernel beside the notebook."""

from __future__ import annotations

from typing import Any

from nbtools.jupyter.line.arguments import Parser
from nbtools.jupyter.magic import Magic, Request
from nbtools.jupyter.magics.scripts import checked_script, script_parser, time_of

__all__ = ["MAGIC"]


def _usage(prog: str, cell: bool) -> Parser:
    about = "Run the cell in a clean kernel and show what it draws from input_file_path into output_image_path."
    parser = script_parser(prog, about)
    parser.take("file", metavar="FILE", help="the data file, below the allowed folders", kind="file")
    parser.take("-i", "--image", metavar="OUT.png", required=True, help="png, svg, pdf or jpg", kind="file")
    return parser


def _run(request: Request) -> Any:
    arguments = {
        "input_file_path": request.args.file,
        "visualization_script": checked_script(request),
        "output_image_path": request.args.image,
        "session": request.args.session,
        "timeout": time_of(request),
    }
    return request.call("data_visualize", arguments)


MAGIC = Magic(usage=_usage, run=_run)
