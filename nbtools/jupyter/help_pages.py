"""Pages of help, the same in a notebook and in a terminal: ``%nbtools help TOPIC`` and ``nbtools help TOPIC``.

A page is the usage of each magic, the card of each tool and the usage of each command that has the topic's name. All
of it is derived from where it is declared; nothing is written here a second time.
"""

from __future__ import annotations

import argparse
import pkgutil
from collections.abc import Iterable, Mapping
from typing import Any

from nbtools.contract.tool import Tool
from nbtools.errors import InvalidArguments, did_you_mean
from nbtools.jupyter.catalogue import CATALOGUE, MagicEntry
from nbtools.jupyter.display.tool_card import tool_card
from nbtools.texts.other_words import other_words

_PAGES = {"files": "nbtools.sql.files"}
"""What no magic, tool or command is the name of: where its text stands."""
_NEXT = "nbtools help TOPIC shows a page on one of them, %nbtools help TOPIC does so in a notebook."


def add_commands(commands: Any) -> None:
    """Add ``help`` to the parser's commands."""
    # Words of others may begin with dashes: here they are topics.
    about = "show a page on a magic, a tool or a command, or what a word of another tool is here"
    parser = commands.add_parser("help", help=about, prefix_chars="+", add_help=False)
    parser.add_argument("topic", nargs="*", metavar="TOPIC", help="such as memory, sql_query or %%explore")
    parser.set_defaults(perform=lambda arguments: _show(" ".join(arguments.topic) or None, commands.choices))


def _show(topic: str | None, commands: Mapping[str, argparse.ArgumentParser]) -> int:
    from nbtools.assembly.workbench import Workbench

    topic = "help" if topic in {"-h", "--help"} else topic
    with Workbench() as wb:
        print(help_page(topic, wb.executor.tools(), commands))  # noqa: T201 - what was asked for
    return 0


def help_page(
    topic: str | None, tools: Mapping[str, Tool], commands: Mapping[str, argparse.ArgumentParser] | None = None
) -> str:
    """Return the page on a topic, or the list of all topics.

    Parameters
    ----------
    topic
        Name of a magic, with or without its ``%``, of a tool or of a command; `None` lists them.
    tools
        The tools of the workbench.
    commands
        Parsers of the commands, by name; `None` where there is no command line.

    Raises
    ------
    InvalidArguments
        Nothing has that name, here or in other tools that we know of; the nearest one is offered.
    """
    pages = commands or {}
    if topic is None:
        return _list_of_topics(tools, pages)
    name = topic.strip().lstrip("%")
    forms = [parser.format_help() for entry in CATALOGUE if name in entry.names for parser in _parsers(entry, name)]
    only_magics = topic.strip().startswith("%")
    if name in tools and not only_magics:
        forms.append(tool_card(tools[name]).to_text())
    if name in pages and not only_magics:
        forms.append(pages[name].format_help())
    if name in _PAGES:
        forms.insert(0, pkgutil.resolve_name(_PAGES[name]).__doc__)
    word = None if forms else other_words().get(topic.strip().casefold()) or other_words().get(name.casefold())
    if word is not None:
        return word.to_text()
    if not forms:
        topics = [*_PAGES, *(name for entry in CATALOGUE for name in entry.names), *tools, *pages]
        hint = did_you_mean(name, topics, "Without a topic, help lists what there is.")
        raise InvalidArguments(f"there is no page on {topic!r}.", hint=hint)
    return "\n\n".join(form.strip() for form in forms)


def _parsers(entry: MagicEntry, name: str) -> Iterable[argparse.ArgumentParser]:
    """Return the parser of each form that a magic has, as its ``?`` and ``--help`` do."""
    magic = pkgutil.resolve_name(entry.code)
    for kind in entry.kinds:
        yield magic.usage(f"{'%%' if kind == 'cell' else '%'}{name}", kind == "cell").finish()


def _list_of_topics(tools: Mapping[str, Tool], commands: Mapping[str, argparse.ArgumentParser]) -> str:
    magics = [
        (parser.prog, parser.description) for entry in CATALOGUE for parser in list(_parsers(entry, entry.name))[-1:]
    ]
    parts: dict[str, list[tuple[str, str | None]]] = {
        "magics": magics,
        "tools": [(name, tool.description.partition("\n")[0]) for name, tool in tools.items()],
        "commands": [(f"nbtools {name}", parser.description) for name, parser in commands.items()],
    }
    parts["pages"] = [
        (name, pkgutil.resolve_name(module).__doc__.partition("\n")[0]) for name, module in _PAGES.items()
    ]
    lines = []
    for title, rows in parts.items():
        width = max((len(name) for name, _ in rows), default=0)
        lines += (
            [f"{title}:", *(f"  {name:<{width}}  {about or ''}".rstrip() for name, about in rows), ""] if rows else []
        )
    return "\n".join([*lines, _NEXT])
