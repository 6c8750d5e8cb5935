"""What the magics that run a cell as a script share: their options, and how they call."""

from __future__ import annotations

from nbtools.errors import InvalidArguments
from nbtools.jupyter.line.arguments import Parser, seconds
from nbtools.jupyter.magic import Request

__all__ = ["checked_script", "script_parser", "time_of"]


def script_parser(prog: str, about: str) -> Parser:
    """Return a parser with the options of every script."""
    parser = Parser(prog, description=about)
    parser.take(
        "--session",
        metavar="NAME",
        help="run in this session, which keeps its variables (a clean kernel)",
        kind="session",
    )
    parser.take(
        "--timeout", type=seconds, metavar="TIME", help="the most time: 30, 90s, 5min (the setting kernel_timeout)"
    )
    return parser


def time_of(request: Request) -> float | None:
    """Return the seconds the script may take: the option given here, else that of ``%config NBTools``."""
    asked: float | None = request.args.timeout or request.session.options.timeout
    return asked


def checked_script(request: Request) -> str:
    """Return the script in the cell."""
    script = request.cell or ""
    if not script.strip():
        raise InvalidArguments("the cell holds no script.", hint="Write the script below the first line.")
    return script
