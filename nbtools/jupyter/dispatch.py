"""Dispatch: from the line of a magic to its answer."""

from __future__ import annotations

import functools
import pkgutil
import re
from typing import Any

from nbtools.errors import NbtoolsError, circumstances
from nbtools.jupyter.catalogue import MagicEntry
from nbtools.jupyter.line.arguments import MagicParser
from nbtools.jupyter.line.line_parser import check_name, fill, split, take_target
from nbtools.jupyter.magic import Magic, MagicRequest
from nbtools.jupyter.session import NotebookSession

_SEE_TRACEBACK = "Add --traceback to the first line to see where, in full."
_READ_HERE = {"help", "traceback"}
_SEMICOLON = re.compile(r";\s*\Z")


class Dispatcher:
    """Reads the lines of magics and answers them.

    Parameters
    ----------
    session
        What they run in.
    """

    def __init__(self, session: NotebookSession) -> None:
        self.session = session

    def magic(self, entry: MagicEntry) -> Magic:
        """Return the code of a magic, importing it at first use."""
        code: Magic = pkgutil.resolve_name(entry.code)
        return code

    def parser(self, entry: MagicEntry, name: str, *, cell: bool) -> MagicParser:
        """Return the parser of a magic as it is written here."""
        return self.magic(entry).usage(f"{'%%' if cell else '%'}{name}", cell).finish()

    def usage(self, entry: MagicEntry, name: str) -> str:
        """Return what ``?`` and ``--help`` print: the usage of each form the magic has."""
        return "\n".join(self.parser(entry, name, cell=kind == "cell").format_help() for kind in entry.kinds)

    def run(self, entry: MagicEntry, name: str, line: str, cell: str | None) -> Any:
        """Answer a magic.

        Raises
        ------
        NbtoolsError
            An expected failure; it shows three lines.
        """
        try:
            request = self._read(entry, name, line, cell)
            if request is None:
                return None
            with circumstances():
                value = self.magic(entry).run(request)
                for option, text in request.args.unread.items():
                    if option not in _READ_HERE:
                        request.note(text)
                return self._deliver(request, value)
        except NbtoolsError as exc:
            exc.tried = exc.tried or f"running %{name}"
            exc.hint = exc.hint or (_SEE_TRACEBACK if exc.data.get("traceback") else None)
            if self.session.options.traceback or "--traceback" in line:
                exc._render_traceback_ = functools.partial(self._traceback, exc)  # type: ignore[method-assign]  # IPython's hook, for this error alone
            raise

    def _read(self, entry: MagicEntry, name: str, line: str, cell: str | None) -> MagicRequest | None:
        """Return what is asked, or print the usage when that is what was asked."""
        magic, parser = self.magic(entry), self.parser(entry, name, cell=cell is not None)
        target, rest = take_target(line)
        text = _SEMICOLON.sub("", rest)
        start = magic.free_from(self.session, parser, text) if magic.free_from else len(text)
        # Up to the free part alone: the quotes of SQL and code are not those of a line.
        words = split(text[:start])
        # Only now the parser knows the options: `%tool NAME` has those of the tool that the line names.
        if magic.refine is not None:
            parser = magic.refine(self.session, parser.prog, words, False).finish()
        help_parser = parser.asks_help(words)
        if help_parser is not None:
            whole = help_parser is parser and magic.refine is None
            print(self.usage(entry, name) if whole else help_parser.format_help())  # noqa: T201 - help is for the cell
            return None
        args = parser.read([fill(word, self.session.names) for word in words])
        out = target or args.out
        return MagicRequest(
            session=self.session,
            args=args,
            cell=cell,
            text=text[start:].strip(),
            out=check_name(out) if out else None,
            # People end SQL with a semicolon; elsewhere it mutes, as in Python.
            muted=text != rest and not magic.is_sql,
        )

    @staticmethod
    def _deliver(request: MagicRequest, value: Any) -> Any:
        from nbtools.contract.result import ToolResult
        from nbtools.jupyter.display.results import display_form, loss_note, picture_bundles

        has_object = isinstance(value, ToolResult) and value.value is not None
        # The object itself, before anything is displayed: a front end that fails must not cost the result.
        request.bind(value.value if has_object else value)
        if isinstance(value, ToolResult) and not request.muted and not request.pictured:
            for bundle in picture_bundles(value.artifacts):
                request.session.shell.display_pub.publish(data=dict(bundle), metadata={})
        if request.out is not None and loss_note(value):
            request.note(f"{request.out}: {loss_note(value)}")
        form = value if request.displayed is None else request.displayed
        form = None if request.quiet else display_form(form, live=request.live)
        if request.failure is None:
            return form
        if form is not None:
            data, metadata = request.session.shell.display_formatter.format(form)
            request.session.shell.display_pub.publish(data=data, metadata=metadata)
        raise request.failure

    def _traceback(self, exc: NbtoolsError) -> list[str]:
        """Return the script's own traceback when a script raised, else ours."""
        if exc.data.get("traceback"):
            return [str(exc.data["traceback"]).rstrip(), *exc.three_lines()[:2]]
        shell = self.session.shell
        lines: list[str] = shell.InteractiveTB.structured_traceback(type(exc), exc, exc.__traceback__)
        return lines
