"""``%%data_analyze``, ``%%data_visualize`` and ``%%code``: the cell is a script that runs beside the notebook."""

from __future__ import annotations

from typing import Any

from nbtools.errors import ExecutionFailed, InvalidArguments
from nbtools.jupyter.line.arguments import MagicParser, seconds
from nbtools.jupyter.magic import Magic, MagicRequest

__all__ = ["ANALYZE", "CODE", "VISUALIZE", "run_code", "timeout_of"]


def _script_parser(prog: str, about: str, *, has_session: bool = True) -> MagicParser:
    """Return a parser with the options of scripts."""
    parser = MagicParser(prog, description=about)
    if has_session:
        where = "run in this session, which keeps its variables (a clean kernel)"
        parser.take("--session", metavar="NAME", help=where, kind="session")
    longest = "the most time: 30, 90s, 5min (the setting kernel_timeout)"
    parser.take("--timeout", type=seconds, metavar="TIME", help=longest)
    return parser


def timeout_of(request: MagicRequest) -> float | None:
    """Return the seconds the script may take: the option given here, else that of ``%config NBTools``."""
    given: float | None = request.args.timeout or request.session.options.timeout
    return given


def _script_in(request: MagicRequest) -> str:
    """Return the script in the cell."""
    script = request.cell or ""
    if not script.strip():
        raise InvalidArguments("the cell holds no script.", hint="Write the script below the first line.")
    return script


def _file_magic(tool: str, script: str, about: str, *, draws: bool = False) -> Magic:
    """Return the magic of a tool whose argument `script` runs over a file."""

    def usage(prog: str, cell: bool) -> MagicParser:
        parser = _script_parser(prog, about, has_session=not draws)
        parser.take("file", metavar="FILE", help="the data file, below the allowed folders", kind="file")
        if draws:
            parser.take("-i", "--image", metavar="OUT.png", required=True, help="png, svg, pdf or jpg", kind="file")
        return parser

    def run(request: MagicRequest) -> Any:
        given = {"timeout": timeout_of(request)}
        if draws:
            given["output_image_path"] = request.args.image
        else:
            given["session"] = request.args.session
        return request.call(tool, {"input_file_path": request.args.file, script: _script_in(request), **given})

    return Magic(usage=usage, run=run)


def _code_usage(prog: str, cell: bool) -> MagicParser:
    parser = _script_parser(prog, "Run the cell in a clean process of its own, or in a session.")
    parser.take("language", metavar="LANGUAGE", help="python, node, bash, powershell or kernel:NAME", kind="language")
    return parser


def _run_cell(request: MagicRequest) -> Any:
    return run_code(request, _script_in(request), request.args.language, request.args.session, timeout_of(request))


def run_code(request: MagicRequest, code: str, language: str | None, session: str | None, timeout: float | None) -> Any:
    """Run code and return the result.

    Raises
    ------
    ExecutionFailed
        It ran and did not succeed; the result is bound first, when a variable was named.
    """
    arguments = {"code": code, "language": language, "session": session, "timeout": timeout}
    result = request.call("code_execute", arguments)
    told = result.data if isinstance(result.data, dict) else {}
    if told.get("success") is False:
        request.bind(result)
        late, code_of_exit = told.get("timed_out"), told.get("exit_code")
        took = told.get("duration_s") or 0.0
        found = f"it was ended after {took:.3g} s" if late else f"it ended with exit code {code_of_exit}"
        hint = "Allow more with --timeout." if late else "What it said is above."
        if told.get("error"):  # an exception: its traceback was not shown as it ran
            told = {**told, "traceback": told.get("stderr")}
            raise ExecutionFailed(str(told["error"]), tried=f"running {told.get('language')}", data=told)
        tried = f"running {told.get('language') or language or 'code'}"
        raise ExecutionFailed(f"{found}.", hint=hint, tried=tried, data=told)
    return result


ANALYZE = _file_magic(
    "data_analyze", "analysis_script", "Run the cell in a clean kernel; input_file_path is defined in it."
)
VISUALIZE = _file_magic(
    "data_visualize",
    "visualization_script",
    "Run the cell in a clean kernel and show what it draws from input_file_path into output_image_path.",
    draws=True,
)
CODE = Magic(usage=_code_usage, run=_run_cell)
