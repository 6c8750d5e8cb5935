"""The command line: ``nbtools VERB …`` for tools, memory, SQL, workflows, agents and MCP.

Every command parses, asks a workbench, and prints. Exit codes: 0 all is well, 1 the tool or query failed, 2 wrong
usage or settings, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import errno
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbtools.errors import FileMissing, InvalidArguments, LimitExceeded, NbtoolsError, PermissionDenied
from nbtools.texts.visible import ShownStream, in_commands

__all__ = ["main"]

_OK, _FAILED, _USAGE, _STOPPED = 0, 1, 2, 130
_ABOUT = "A notebook with a memory, clean kernels, safe SQL and tools."
_CODES = "Exit codes: 0 for success, 1 when a tool or query failed, 2 for wrong usage or settings."
# What each module declares. Only the one that is needed is imported, and all of them to say which commands there are.
_COMMANDS = (
    ("demo", ("demo",)),
    ("tools", ("tools", "call", "config", "check-tools", "doctor", "trust", "kernelspec")),
    ("data", ("memory", "sql")),
    ("serve", ("mcp", "skill")),
    ("workflows", ("validate", "explain", "workflow-schema")),
    ("runs", ("run", "runs")),
    ("agent", ("agent",)),
    ("completion", ("completion",)),
    ("new_tool", ("new-tool",)),
    # Its pages are about magics too, which the notebook's face declares.
    (".jupyter.help_pages", ("help",)),
)


def _parser(*line: str) -> argparse.ArgumentParser:
    """Return the parser for a line of these words."""
    from nbtools.cli.command_parser import CommandParser

    parser = CommandParser(prog="nbtools", description=_ABOUT, epilog=_CODES)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)
    # The script that completes has to know all commands with all their options.
    if line[:1] == ("completion",):
        parser.set_defaults(whole_parser=parser)
    # Importing the modules of all commands takes twice as long as all that was imported before them.
    alone = {*line[:1]} - {"help", "completion"}
    chosen = [name for name, words in _COMMANDS if alone & {*words}]
    for module in chosen or [name for name, _ in _COMMANDS if line != ("--version",)]:
        importlib.import_module(f".{module}", "nbtools.cli").add_commands(commands)
    for choice in commands._choices_actions:  # noqa: SLF001 - see above
        commands.choices[choice.dest].description = choice.help
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; what it prints to a terminal cannot drive it."""
    try:
        _print_anything()
        out, err = (ShownStream.of(stream) for stream in (sys.stdout, sys.stderr))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _main(argv)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return _STOPPED
    finally:
        if argv is None:
            # What Python does at its end shows no traceback; another Ctrl-C ends it at once.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _main(argv: Sequence[str] | None) -> int:
    try:
        Path.cwd()
    except FileNotFoundError:
        print("nbtools: the folder you are in was removed; change to another one and try again.", file=sys.stderr)
        return _USAGE
    words = sys.argv[1:] if argv is None else list(argv)
    if argv is None:
        from nbtools.cli.forwarding import forward

        if (code := forward(words)) is not None:
            return code
    parser = _parser(*words)
    arguments = parser.parse_args(words)
    if arguments.version:
        from importlib.metadata import version

        print(f"nbtools-kit {version('nbtools-kit')}")
        return _OK
    if arguments.command is None:
        parser.print_help()
        return _USAGE
    return _run(arguments)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as a line: where in the source it was given tells the reader of a terminal nothing."""
    print(f"warning: {message}", file=sys.stderr)


def _print_anything() -> None:
    """Let a terminal without Unicode show what it lacks as JSON writes it; what is redirected is UTF-8 everywhere."""
    codecs.register_error("nbtools.escape", _escape)
    for stream in (sys.stdout, sys.stderr):
        # A caller may have put its own stream in place of the standard one.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="nbtools.escape")


def _escape(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    # JSON escapes units of UTF-16, two for what lies beyond them, so that any reader of JSON reads them again.
    units = problem.object[problem.start : problem.end].encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs), problem.end


def _print_error(arguments: argparse.Namespace, error: NbtoolsError) -> None:
    verb = getattr(arguments, "verb", None)
    error.tried = error.tried or " ".join(filter(None, ("nbtools", arguments.command, verb)))
    if isinstance(error, FileMissing):
        error.hint = error.hint or f"Relative paths start at {Path.cwd()}."
    print("\n".join(error.three_lines(in_commands)), file=sys.stderr)


def _run(arguments: argparse.Namespace) -> int:
    try:
        code: Any = arguments.perform(arguments)
        if sys.stdout is not None:  # a caller may close it
            sys.stdout.flush()  # what cannot be written is told here, not by Python on its way out
    except NbtoolsError as exc:
        _print_error(arguments, exc)
        return _USAGE if isinstance(exc, InvalidArguments) else _FAILED
    except BrokenPipeError:
        # The reader left (`nbtools tools | head`): that is not a failure, and Python must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _OK
    except OSError as exc:
        file = f"{exc.filename}: " if exc.filename else ""
        hint = "Check the permissions and free space there, or choose another place."
        kind = LimitExceeded if exc.errno == errno.ENOSPC else PermissionDenied
        _print_error(arguments, kind(f"{file}{exc.strerror or exc}.", hint=hint))
        return _FAILED
    return int(code or _OK)
