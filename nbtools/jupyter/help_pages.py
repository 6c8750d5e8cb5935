"""Pages of help, the same in a notebook and in a terminal: ``%nbtools help TOPIC`` and ``nbtools help TOPIC``.

A page is the usage of each magic, the card of each tool and the usage of each command that has the topic's name, with
examples of ``pages/examples.toml``; or a setting, as it is declared, with its line of ``pages/settings.toml``; or a
text of ``pages``. Nothing that is declared elsewhere is written a second time, and no page says anything twice.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.resources
import pkgutil
import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from nbtools.contract.tool import Tool
from nbtools.errors import InvalidArguments, did_you_mean
from nbtools.ground.config import Config
from nbtools.jupyter.catalogue import CATALOGUE, MagicEntry
from nbtools.jupyter.display.tool_card import tool_card
from nbtools.texts.other_words import other_words

_TEXTS = ("class", "extending", "ideas", "models", "python", "workflow")
_FOLDER = importlib.resources.files("nbtools.jupyter").joinpath("pages")
_HOW_TO_SET = """\
An argument of Workbench beats a variable, which beats nbtools.toml (in the working folder or above it), which beats
the default. `nbtools config` shows each value and its source; `nbtools help NAME` explains one. What a file would run
or open takes effect once you approve it: `nbtools trust`. Durations and sizes have units: "90s", "64MiB"."""
_NEXT = "nbtools help TOPIC shows a page on one of them, %nbtools help TOPIC does so in a notebook."


def add_commands(commands: Any) -> None:
    """Add ``help`` to the parser's commands."""
    # Words of others may begin with dashes: here they are topics.
    about = "show a page on a magic, a tool or a command, or on what replaces a word of another tool"
    parser = commands.add_parser("help", help=about, prefix_chars="+", add_help=False)
    parser.add_argument("topic", nargs="*", metavar="TOPIC", help="such as memory, sql_query or %%explore")
    parser.set_defaults(perform=lambda arguments: _show(" ".join(arguments.topic) or None, commands.choices))


def _show(topic: str | None, commands: Mapping[str, argparse.ArgumentParser]) -> int:
    from nbtools.assembly.workbench import Workbench

    # The parser leaves words with dashes alone, those that ask for its own help among them.
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
    settings = {variable: name for name in Config.settings() for variable in (name, *variables_of(name))}
    forms = [parser.format_help() for entry in CATALOGUE if name in entry.names for parser in _parsers(entry, name)]
    only_magics = topic.strip().startswith("%")
    if name in tools and not only_magics:
        forms.append(tool_card(tools[name]).to_text())
    if name in pages and not only_magics:
        forms.append(pages[name].format_help())
    # A magic has two names, and one page.
    short = next((entry.name for entry in CATALOGUE if name in entry.names), name)
    if forms and short in _examples():
        forms.append("\n".join(["examples:", *(f"  {line}" for line in _examples()[short])]))
    if short == "explore":
        forms.append("\n".join(["keys in the table:", *(f"  {key}" for key in grid_keys())]))
    if name in settings and not only_magics:
        forms.append(_setting_page(settings[name]))
    if short in _texts():
        forms.insert(0, _texts()[short])
    word = None if forms else other_words().get(topic.strip().casefold()) or other_words().get(name.casefold())
    if word is not None:
        return word.to_text()
    if not forms:
        topics = [*_texts(), *settings, *(name for entry in CATALOGUE for name in entry.names), *tools, *pages]
        hint = did_you_mean(name, topics, "Without a topic, help lists what there is.")
        raise InvalidArguments(f"there is no page on {topic!r}.", hint=hint)
    # A magic of a line and of a cell say much in the same words.
    paragraphs = [part.strip("\n") for form in forms for part in form.strip().split("\n\n")]
    return "\n\n".join(dict.fromkeys(paragraphs))


def variables_of(setting: str) -> tuple[str, ...]:
    """Return the variables that set a setting, its own first."""
    return (f"NBTOOLS_{setting.upper()}", *Config.settings()[setting].metadata["also"])


def grid_keys() -> list[str]:
    """Return what each key does in a table, as the widget itself says it."""
    source = importlib.resources.files("nbtools.widgets").joinpath("static/grid/keys.js").read_text(encoding="utf-8")
    return re.findall(r'^ *"(.+)",$', source.partition("GRID_KEYS = [")[2].partition("]")[0], re.MULTILINE)


@functools.cache
def _texts() -> Mapping[str, str]:
    """Return the pages that are texts, by topic; each begins with what it is about."""
    texts = {name: _FOLDER.joinpath(f"{name}.txt").read_text(encoding="utf-8") for name in _TEXTS}
    lines = [f"{name}: {field.metadata['doc']}" for name, field in Config.settings().items()]
    about = "Settings: how they are given, and what each means."
    return {**texts, "files": str(pkgutil.resolve_name("nbtools.sql.files").__doc__)} | {
        "settings": "\n\n".join([about, _HOW_TO_SET, "\n".join(lines)])
    }


@functools.cache
def _examples() -> Mapping[str, list[str]]:
    return tomllib.loads(_FOLDER.joinpath("examples.toml").read_text(encoding="utf-8"))


def _setting_page(name: str) -> str:
    """Return the page on a setting: meaning, default, variables, and a line of nbtools.toml."""
    field: Any = Config.settings()[name]
    text = _FOLDER.joinpath("settings.toml").read_text(encoding="utf-8")
    key = "class" if name == "classroom" else name
    parts = re.findall(rf"^(?:{key} = .*|\[{key}[.\]].*(?:\n.+)*)$", text, re.MULTILINE)
    default = field.default_factory() if field.default is dataclasses.MISSING else field.default
    default = ", ".join(map(str, default)) if isinstance(default, tuple | dict) else default
    trust = f"what a file says counts once you trust it: it {does}" if (does := field.metadata["does"]) else ""
    rows = {"default": "nothing" if default in (None, "") else default, "variable": " or ".join(variables_of(name))}
    lines = [f"  {key:<8}  {value}" for key, value in {**rows, "trust": trust}.items() if value != ""]
    example = textwrap.indent("\n".join(parts), "  ")
    return f"{name}: {field.metadata['doc']}.\n\n" + "\n".join([*lines, "", "in nbtools.toml:", example])


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
    parts["pages"] = [(name, text.partition("\n")[0]) for name, text in sorted(_texts().items())]
    lines = []
    for title, rows in parts.items():
        width = max((len(name) for name, _ in rows), default=0)
        lines += (
            [f"{title}:", *(f"  {name:<{width}}  {about or ''}".rstrip() for name, about in rows), ""] if rows else []
        )
    return "\n".join([*lines, _NEXT])
