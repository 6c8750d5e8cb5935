"""``%%code``: the cell runs in Python, Node.js, bash or PowerShell, in a managed child."""

from __future__ import annotations

from typing import Any

from nbtools.errors import ExecutionFailed
from nbtools.jupyter.line.arguments import Parser
from nbtools.jupyter.magic import Magic, Request
from nbtools.jupyter.magics.scripts import checked_script, script_parser, time_of

__all__ = ["MAGIC", "run_code"]


def _usage(prog: str, cell: bool) -> Parser:
    parser = script_parser(prog, "Run the cell in a clean process of its own, or in a session.")
    parser.take("language", metavar="LANGUAGE", help="python, node, bash, powershell or kernel:NAME", kind="language")
    return parser


def _run(request: Request) -> Any:
    return run_code(request, checked_script(request), request.args.language, request.args.session, time_of(request))


def run_code(request: Request, code: str, language: str | None, session: str | None, timeout: float | None) -> Any:
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


MAGIC = Magic(usage=_usage, run=_run)
