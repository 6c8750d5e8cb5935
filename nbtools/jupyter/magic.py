"""What a magic is made of: a parser, a function, and the request it answers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from nbtools.contract.tool import Effects
from nbtools.errors import ApprovalDenied, InvalidArguments, NbtoolsError
from nbtools.jupyter.display.streaming import Live
from nbtools.jupyter.line.arguments import Arguments, MagicParser
from nbtools.jupyter.line.line_parser import Word, check_name, fill, split
from nbtools.jupyter.session import NotebookSession

if TYPE_CHECKING:
    from nbtools.contract.result import ToolResult
    from nbtools.sql import QueryResult
    from nbtools.sql.results.export import WrittenRows

T = TypeVar("T")

READS = Effects(read_only=True)
# An option behind free text, which is neither in quotes nor in a comment.
_OPTION = re.compile(r"""'[^']*'|"[^"]*"|--(?![a-z]).*|\s(--?[a-z][\w-]*)""")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Magic:
    """One magic.

    Attributes
    ----------
    usage
        Makes the parser, given how the magic is written (``"%memory"``) and whether it stands over a cell.
    run
        Answers a request with the value that the cell shows.
    free_from
        Returns where in the line free text begins, such as SQL, which is neither split nor filled; `None` for magics
        whose line is arguments all along.
    refine
        Returns the parser for the very words of a line; `None` where one parser fits all lines. The flag asks only for
        names, which completion needs and which cost no import.
    is_sql
        Whether a semicolon ends the text; elsewhere it mutes the magic.
    """

    usage: Callable[[str, bool], MagicParser]
    run: Callable[[MagicRequest], Any]
    free_from: Callable[[NotebookSession, MagicParser, str], int] | None = None
    refine: Callable[[NotebookSession, str, Sequence[Word], bool], MagicParser] | None = None
    is_sql: bool = False


@dataclasses.dataclass(kw_only=True)
class MagicRequest:
    """A magic asked for, and how it is answered: through the workbench's door, with its output in the cell.

    Attributes
    ----------
    session
        The notebook's.
    args
        The parsed arguments.
    cell
        Body of a cell magic; `None` for a line magic.
    text
        Free text of the line, see `Magic.free_from`.
    out
        Variable that the result is bound to.
    muted
        Whether the line ended with ``;``.
    pictured
        Whether pictures were shown while it ran.
    displayed
        What the cell displays in place of the value, where it has shown that already.
    live
        What showed the output of the tool.
    failure
        What the cell raises once it has shown its value, so that "Run all" ends there.
    """

    session: NotebookSession
    args: Arguments
    cell: str | None = None
    text: str = ""
    out: str | None = None
    muted: bool = False
    pictured: bool = False
    displayed: Any = None
    live: Live | None = None
    failure: NbtoolsError | None = None

    @property
    def quiet(self) -> bool:
        """Whether the value is not to be shown."""
        return self.muted or self.out is not None

    def note(self, line: str) -> None:
        """Print a line about the result, unless output is muted."""
        if not self.muted:
            print(line)  # noqa: T201 - a magic speaks to the cell

    def end_with(self, run: Any, way_on: str) -> None:
        """Bind a run, and let the cell fail, once it has shown it, where it has failed or was stopped.

        Parameters
        ----------
        run
            Of an agent or of a workflow; one that waits for a person, or was refused by one, has not failed.
        way_on
            How to continue, added to the hint of its error.
        """
        self.bind(run)
        try:
            run.raise_for_error(way_on)
        except ApprovalDenied:
            return
        except NbtoolsError as exc:
            self.failure = exc

    def without_options(self, parser: MagicParser, *, is_query: bool) -> str:
        """Return the free text without the options behind it, which are taken as if they stood before it.

        Parameters
        ----------
        parser
            Of the magic.
        is_query
            Whether the text is SQL, in which what no option is stays as it is.

        Raises
        ------
        InvalidArguments
            An option is unknown, or a value is missing.
        """
        for option in _OPTION.finditer(self.text):
            word = option[1]
            if word is None:
                continue
            if not parser.knows(word):
                if not is_query:
                    parser.refuse([word])
                if word.startswith("--"):
                    self.note(f"{self.text[option.start(1) :]!r} is a comment in SQL, not an option of {parser.prog}")
                    break
                continue
            try:
                behind = parser.read([fill(each, self.session.names) for each in split(self.text[option.start() :])])
            except InvalidArguments:
                if is_query and not word.startswith("--"):  # it may be SQL: a -o is a difference
                    continue
                raise
            self.args.take(behind)
            if self.out is None and behind.out:
                self.out = check_name(self.args.out)
            return self.text[: option.start()].strip()
        return self.text

    def bind(self, value: Any) -> None:
        """Put a value into the user's namespace, when the request names a variable."""
        if self.out is not None:
            self.session.bind(self.out, value)

    def call(
        self, tool: str, arguments: Mapping[str, Any], *, timeout: float | None = None, keep_nulls: bool = False
    ) -> ToolResult:
        """Call a tool, show its output, and return the result.

        Parameters
        ----------
        tool
            Name of the tool.
        arguments
            Its arguments; one that is `None` counts as not given, unless `keep_nulls`.
        timeout
            Seconds; `None` takes the tool's own.
        keep_nulls
            Whether an argument that is `None` is handed on as `None`.

        Raises
        ------
        NbtoolsError
            It failed, or was stopped: ``data`` has what it gave so far, and the variable keeps what it held.
        """
        passed = {name: value for name, value in arguments.items() if value is not None or keep_nulls}
        workbench = self.session.workbench
        result, live = self.session.drive(
            tool,
            lambda live: workbench.acall(tool, passed, caller="magic", timeout=timeout, on_output=live),
        )
        self.pictured = any(mime.startswith("image/") for mime in live.displayed)
        self.live = live
        return result.raise_for_error()

    def ask(self, query: str, **options: Any) -> QueryResult:
        """Ask by SQL and return what came back.

        Raises
        ------
        NbtoolsError
            The query is refused, wrong, too slow, or was stopped.
        """
        return self._run_query("sql_query", self.session.workbench.aquery, query, **options)

    def export(self, query: str, path: str, **options: Any) -> WrittenRows:
        """Ask by SQL, write the rows to a file and return their number; errors are those of `ask`."""
        return self._run_query("sql_export", self.session.workbench.aexport, query, path, **options)

    def _run_query(self, name: str, ask: Callable[..., Awaitable[T]], *arguments: Any, **options: Any) -> T:
        def work(live: Live) -> Awaitable[T]:
            def report(share: float) -> None:
                live("progress", f"· {share:.0%}")

            return ask(*arguments, caller="magic", on_progress=report, **options)

        return self.session.drive(name, work)[0]

    def perform(
        self,
        name: str,
        work: Callable[[], T],
        *,
        arguments: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> tuple[T, ToolResult]:
        """Do something that is not a tool through the same door, so that it is judged, timed and recorded alike.

        Parameters
        ----------
        name
            Under which it is judged and recorded.
        work
            Does it, in a thread.
        arguments
            What the record tells.
        **how
            What it does to the world, and more; see `nbtools.contract.execute.perform`.
        """
        from nbtools.contract.tool import ToolCall

        fields = {key: value for key, value in (arguments or {}).items() if value is not None}
        call = ToolCall(tool=name, arguments=fields, caller="magic")
        workbench = self.session.workbench
        return self.session.drive(name, lambda _: workbench.aperform(call, work, **how))[0]
