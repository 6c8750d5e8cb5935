"""The arguments of a magic: argparse that raises instead of leaving, and offers the nearest name.

Every magic has one `MagicParser`, or one with a parser for each subcommand. The same parser gives the usage that ``?``
and ``--help`` print and what completion offers, so none of them is written twice.
"""

from __future__ import annotations

import argparse
import numbers
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from nbtools.errors import InvalidArguments, nearest
from nbtools.ground.option_values import MISSING, dashed_file, declarations, declare, json_or_text, subcommands
from nbtools.jupyter.line.line_parser import Word, iter_words
from nbtools.texts.other_words import hint_for

_LACKS = re.compile(r"argument (?:-\w/)?(--[\w-]+): expected .*argument")
_HELP = ("-h", "--help")
_EVERYWHERE: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("-o", "--out"), {"metavar": "NAME", "help": "bind the result to this variable; so does NAME << in front"}),
    (("--traceback",), {"action": "store_true", "help": "show the whole traceback of an error"}),
    (("-h", "--help"), {"action": "store_true", "help": "show this usage"}),
)


class Arguments(argparse.Namespace):
    """What a line gives.

    Attributes
    ----------
    unread
        The options that were written and that nothing has looked at yet, with what they are for, by the names of their
        values: one that a magic never looks at has no effect.
    """

    __slots__ = ("unread",)
    unread: dict[str, str]

    def __init__(self, values: Mapping[str, Any], phrases: Mapping[str, str]) -> None:
        self.unread = {}
        super().__init__(**values)
        self.unread.update(phrases)

    def __getattribute__(self, name: str) -> Any:
        """Return a value, which was looked at then; who takes all at once has looked at all."""
        unread = super().__getattribute__("unread")
        if name == "__dict__":
            unread.clear()
        unread.pop(name, None)
        return super().__getattribute__(name)

    def take(self, others: Arguments) -> None:
        """Add the options that were written elsewhere."""
        phrases = dict(others.unread)
        for name in phrases:
            setattr(self, name, getattr(others, name))
        self.unread.update(phrases)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Usage as wide as a notebook's cell, subcommands and their meaning on one line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)

    def add_argument(self, action: argparse.Action) -> None:
        """Count the indent of subcommands too, which argparse forgets."""
        super().add_argument(action)
        self._action_max_length = max(self._action_max_length, 14)


class MagicParser(argparse.ArgumentParser):
    """A parser of one magic or subcommand.

    Attributes
    ----------
    kinds
        Name of an argument to what completion offers for it: ``"key"``, ``"tag"``, ``"file"``, ``"tool"``, ….
    values
        Name of an argument to the values that completion offers for it.
    leaves
        Parsers of the subcommands by name; empty when there are none.
    default_leaf
        The subcommand that is meant when none is named.
    keeps_unknown
        Whether unknown words are kept, in ``unknown`` of the result, rather than refused.
    """

    def __init__(self, prog: str, **options: Any) -> None:
        # A short form that fits today would mean something else once a tool has another argument.
        super().__init__(prog=prog, allow_abbrev=False, add_help=False, formatter_class=_Formatter, **options)
        self.color = False  # newer argparse colours help, which a notebook would show as escape codes
        self.kinds: dict[str, str] = {}
        self.values: dict[str, tuple[Any, ...]] = {}
        self.leaves: dict[str, MagicParser] = {}
        self.default_leaf: str | None = None
        self.keeps_unknown = False
        self._choice: Any = None

    @classmethod
    def of(
        cls,
        prog: str,
        table: Mapping[str, Any],
        shared: Mapping[str, Any],
        types: Mapping[str, Callable[[str], Any]],
    ) -> MagicParser:
        """Return the parser that a table declares, see `nbtools.ground.option_values`, with its subcommands."""
        usage = f"{prog} {table['usage']}".replace("%", "%%") if "usage" in table else None
        parser = cls(prog, description=table["about"], usage=usage, epilog=table.get("epilog"))
        declare(parser, table, shared, types)
        for name, entry in subcommands(table):
            leaf = parser.leaf(name, entry["about"], default=name == table.get("default"))
            leaf.epilog = entry.get("epilog")
            declare(leaf, entry, shared, types)
        return parser

    def take(self, *names: str, kind: str | None = None, **options: Any) -> None:
        """Add an argument and say what completion offers for it."""
        if options.get("nargs") == "*" and not names[0].startswith("-"):
            options.setdefault("default", [])  # argparse calls it required in its errors where it has none
        action = self.add_argument(*names, **options)
        if kind is not None:
            self.kinds[action.dest] = kind

    def leaf(self, name: str, about: str, *, default: bool = False) -> MagicParser:
        """Add a subcommand and return its parser; the default one is meant when none is named."""
        if self._choice is None:
            self._choice = self.add_subparsers(dest="command", metavar="COMMAND", parser_class=type(self))
        parser: MagicParser = self._choice.add_parser(name, prog=f"{self.prog} {name}", help=about, description=about)
        self.leaves[name] = parser
        if default:
            self.default_leaf = name
        return parser

    def finish(self) -> MagicParser:
        """Add what every magic takes, to each subcommand too, and return the parser."""
        for parser in self.leaves.values() or (self,):
            group = parser.add_argument_group("everywhere")
            for flags, options in _EVERYWHERE:
                # A tool may have an argument of the same name: then the long form is the tool's.
                free = [flag for flag in flags if not parser.knows(flag)]
                if free:
                    group.add_argument(*free, dest=flags[-1].lstrip("-"), **options)
        return self

    def knows(self, word: str) -> bool:
        """Tell whether a word is one of the options, with or without ``=value``."""
        return word.partition("=")[0] in self._option_string_actions

    def values_of(self, word: str) -> int:
        """Return how many words that follow an option belong to it."""
        action = self._option_string_actions.get(word)
        if action is None:
            return 0
        return action.nargs if isinstance(action.nargs, int) else 1

    def free_from(self, line: str, words: int = 0) -> int:
        """Return where the free text of a line begins: behind the options with their values, and so many words."""
        skip = 0
        for word in iter_words(line):
            if skip:
                skip -= 1
            elif word.startswith("-") and not word.quoted:
                skip = self.values_of(word)
            elif words:
                words -= 1
            else:
                return word.start
        return len(line)

    def read(self, words: Sequence[str]) -> Arguments:
        """Return the arguments that the words give.

        Raises
        ------
        InvalidArguments
            A subcommand, option or value is unknown or missing.
        """
        arguments = list(words)
        bare = not arguments or (arguments[0].startswith("-") and arguments[0] not in self.leaves)
        if bare and self.default_leaf is not None:
            arguments.insert(0, self.default_leaf)
        if self.leaves:
            self._known_leaf(arguments)
        target = self.leaves.get(arguments[0], self) if arguments else self
        try:
            # Of -x.csv, which is there, argparse would make the option -x with a value.
            files = filter(os.path.exists, arguments)
            if dashed := [word for word in files if dashed_file([word])]:
                target.refuse(dashed)
            namespace, unknown = self.parse_known_args(arguments)
            if unknown and self.keeps_unknown:
                namespace.unknown = unknown
            elif unknown:
                target.refuse(unknown)
        except InvalidArguments as exc:
            exc.hint = dashed_file(arguments) or exc.hint
            raise
        return Arguments(vars(namespace), target.phrases_for(arguments))

    def phrases_for(self, words: Sequence[str]) -> dict[str, str]:
        """Return what is to be said of the options of a line that have no effect, by the names of their values."""
        names = (word.partition("=")[0] for word in words)
        options = ((name, self._option_string_actions[name]) for name in names if self.knows(name))
        return {option.dest: f"{name} has no effect here ({option.help})." for name, option in options}

    def asks_help(self, words: Sequence[str]) -> MagicParser | None:
        """Return the parser whose usage is asked for by ``-h`` or ``--help``, or `None`."""
        asks = any(word in _HELP for word in words if not getattr(word, "quoted", False))
        return (self.leaves.get(words[0], self) if asks else None) if words else None

    def _known_leaf(self, words: list[str]) -> None:
        if not words or words[0] in self.leaves or words[0] in _HELP:
            return
        close = nearest(words[0], self.leaves)
        raise InvalidArguments(
            f"there is no subcommand {words[0]!r}.",
            hint=f"Did you mean {self.prog} {close}?" if close else f"Subcommands: {', '.join(self.leaves)}.",
            tried=f"reading {self.prog}",
        )

    def option_names(self) -> list[str]:
        """Return the long options."""
        return [name for name in self._option_string_actions if name.startswith("--")]

    def action_after(self, words: Sequence[str]) -> argparse.Action | None:
        """Return the argument that the next word would belong to, `None` when none is left."""
        waiting: argparse.Action | None = None
        positional = 0
        for word in words:
            option = self._option_string_actions.get(word) if word.startswith("-") else None
            if option is not None or word.startswith("--"):
                waiting = option if option is not None and option.nargs != 0 else None
            elif waiting is None:
                positional += 1
            elif waiting.nargs in {None, "?"}:
                waiting = None
        places = self._get_positional_actions()
        if waiting is not None or not places:
            return waiting
        last = places[min(positional, len(places) - 1)]
        return last if positional < len(places) or last.nargs in {"+", "*"} else None

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Raise the error for words that fit nowhere, with the nearest option."""
        first = next((word for word in unknown if word.startswith("-")), unknown[0])
        name = first.partition("=")[0]
        close = nearest(name, self.option_names()) if first.startswith("-") else None
        here = hint_for(name, f"{self.prog.lstrip('%')} ") or hint_for(name)
        what = "option" if first.startswith("-") else "argument"
        quotes = "Put a text with spaces in quotes. " if what == "argument" and self._get_positional_actions() else ""
        raise InvalidArguments(
            f"{what} {first!r} is unknown here.",
            hint=here or (f"Did you mean {close}?" if close else quotes + self.short_usage()),
            tried=f"reading {self.prog}",
        )

    def short_usage(self) -> str:
        """Return the usage on one line."""
        return " ".join(self.format_usage().split())

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found; it would print and leave the interpreter."""
        here = hint_for(message.removeprefix(MISSING), f"{self.prog.lstrip('%')} ")
        if lacks := _LACKS.match(message):
            values = self._option_string_actions[lacks[1]].metavar or "VALUE"
            here = f"Write {lacks[1]} {values if isinstance(values, str) else ' '.join(values)}."
        raise InvalidArguments(f"{message}.", hint=here or self.short_usage(), tried=f"reading {self.prog}")


def declared_usage(module: str, name: str = "", **types: Callable[[str], Any]) -> Callable[[str, bool], MagicParser]:
    """Return what makes the parsers of a magic, of its line and of its cell, as the file beside its module declares.

    Parameters
    ----------
    module
        The file of the module.
    name
        The table that has those of the two, where the module has several magics.
    **types
        Types of the module's own, by their names.
    """

    def usage(prog: str, cell: bool) -> MagicParser:
        tables = declarations(module)
        own = tables[name] if name else tables
        table = own["cell" if cell else "line"]
        # What a cell takes may be what a line takes, but for its texts.
        table = {**own[table["like"]], **table} if "like" in table else table
        return MagicParser.of(prog, table, tables.get("shared", {}), types)

    return usage


def json_value(word: str) -> Any:
    """Return the value that a word stands for: that of its ``{expression}``, JSON when it is JSON, else the text.

    A word in quotes is text.
    """
    if isinstance(word, Word):
        if type(word.value) is not bool and isinstance(word.value, numbers.Integral):
            return int(word.value)  # such as numpy's: a sum of a column
        if not isinstance(word.value, str):
            return word.value
        if word.quoted:
            return str(word)
    return json_or_text(str(word))
