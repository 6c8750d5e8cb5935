"""Where labels come from, and the two rules that follow from them, for every caller that is a model.

The door gives a result its label from what the tool declares (`of_call`) and what the call read (`Marks`, inner calls).
After strangers' texts a call with effects asks, after values any call that can reach out; and so does one that reaches
out after strangers' texts, since the address may be theirs (`reason_to_ask`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nbtools.contract.label import UNLABELLED, Label
from nbtools.contract.prepared import PreparedCall
from nbtools.contract.record import CallRecorder
from nbtools.contract.result import ToolResult
from nbtools.contract.tool import Context, Services

_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]*", re.IGNORECASE)
# An address as people write it, without a scheme.
_BARE = re.compile(r"(?:www\.[a-z0-9.-]+|(?:[a-z0-9-]+\.)+[a-z]{2,}(?=[:/]))(?:[:/]\S*)?", re.IGNORECASE)
# The one form whose host all readers of URLs agree on, as a whole.
_ADDRESS = re.compile(
    r"(?:https?://)?([a-z0-9-]+(?:\.[a-z0-9-]+)*)(?::\d+)?(?:[/?#][!-?A-\[\]-~]*)?", re.IGNORECASE | re.ASCII
)
# Readers of URLs do not agree on what these mean.
_ODD = re.compile(r"[\\@\s\0-\x1f]|[^\0-\x7f]")
_ALL = {(a, b): Label(a, b) for a in (False, True) for b in (False, True)}


class Marks:
    """Knows files and notes again that came of strangers' texts, no matter who reads them later; this one knows none.

    What a model reads of a person's is private in any case, so that is not kept. Every method may block.
    """

    def before(self, prepared: PreparedCall) -> Label:
        """Return the label of what a call names; what it is about to write of strangers' texts is marked."""
        return UNLABELLED

    def after(self, result: ToolResult, label: Label, made_of: Label) -> Label:
        """Return the label of a result, joined with what it shows; the files that came of strangers' texts are marked.

        Parameters
        ----------
        result
            What the call gave.
        label
            What is known of it without its words.
        made_of
            The label of the call, which its files have too.
        """
        return label

    def so_far(self, call_id: str) -> Label:
        """Return the label of what a call has read, besides what it was given, since it began."""
        return UNLABELLED

    def ended(self, prepared: PreparedCall, label: Label) -> None:
        """Mark what a call wrote since `before`, however it ended, by the label of all that it read."""

    def mark_file(self, path: Path) -> None:
        """Mark a file that shows what came of strangers' texts, and each copy of it."""

    def follow(self, is_running: Callable[[], bool]) -> None:
        """Mark whatever is written from now on, as long as something runs that a call has left behind."""

    def has_any(self) -> bool:
        """Tell whether anything at all is marked."""
        return False

    def knows_file(self, path: Path) -> bool:
        """Tell whether a file is marked, by where it lies or what it holds."""
        return False

    def knows_value(self, value: Any) -> bool:
        """Tell whether a value is a marked note, or has the text of a marked file."""
        return False

    def lift(self, path: Path | None, key: str = "", value: Any = None) -> int:
        """Take the marks from a file, from all below a folder, or from a note; return how many there were."""
        return 0

    def knows_names(self, paths: Iterable[Path]) -> bool:
        """Tell whether one of these files and folders was named where strangers' texts had been read."""
        return False


def marks_of(services: Services) -> Marks:
    """Return what knows marked files and notes; one that knows none where there is no other."""
    marks: Marks = services[Marks]() if Marks in services else Marks()
    return marks


def see_names(ctx: Context, paths: Iterable[Path]) -> None:
    """Let what a call gives be strangers' where names in it are."""
    if marks_of(ctx.services).knows_names(paths):
        ctx.seen.append(Label(strangers=True))


def label_of_files(services: Services, paths: Iterable[Path]) -> Label:
    """Return the label of files that were handed on; it may block."""
    return Label(strangers=any(map(marks_of(services).knows_file, paths)))


def of_unknown(services: Services) -> Label:
    """Return the label of a value whose source cannot be seen; it may block.

    Once anything is strangers' it may be theirs too: a call has given it, or a marked file or note was read by code.
    """
    recorder: CallRecorder = services[CallRecorder]()
    return recorder.values | Label(strangers=marks_of(services).has_any())


def of_call(prepared: PreparedCall, *, has_words: bool = True) -> Label:
    """Return the label of what a call gives by what its tool declares: what is not declared public is private.

    A result without words, such as that a message was sent, has no author.
    """
    effects = prepared.effects
    is_theirs = has_words and (effects.open_world or effects.undeclared or not prepared.tool.trusted)
    return _ALL[is_theirs, not effects.public]


def reason_to_ask(prepared: PreparedCall) -> str | None:
    """Return why a model's call has to be asked for because of what the model has seen; `None` where it has not."""
    call, effects = prepared.call, prepared.effects
    theirs = f"what strangers may have written{f' ({call.label.source})' if call.label.source else ''}"
    if call.label.strangers and not effects.read_only and not is_contained(prepared):
        return f"the model has read {theirs}, and that may have told it to"
    if not (call.label and effects.may_reach_out) or _is_named(prepared):
        return None
    # In a fixed order, so that the same call asks with the same words.
    to = f" to {', '.join(hosts)}" if (hosts := sorted(hosts_of(call.arguments))) else ""
    if call.label.private:
        could = "seen values, which the request could carry away"
    else:
        could = f"read {theirs}, and that may have sent it"
    return (
        f'the model has {could}{to}, and no one has named this address; policy {prepared.tool.name} = "allow" lets it'
    )


def is_contained(prepared: PreparedCall) -> bool:
    """Tell whether a tool judges each call, and says of this one that it destroys nothing: what it makes is labelled.

    It writes no file that an argument names, but what it leaves.
    """
    return prepared.tool.effects_of is not None and not (prepared.effects.destructive or prepared.effects.may_reach_out)


def _is_named(prepared: PreparedCall) -> bool:
    """Tell whether a call goes only to hosts that the person named, by the arguments that are its addresses.

    They are what the tool reads as such. Of a tool that reads none of its arguments every text has to be one, since any
    other could carry values.
    """
    arguments, readings = prepared.call.arguments, prepared.readings
    # Nobody says which arguments are addresses: one that is not could carry what was seen.
    if prepared.tool.readings_of is None:
        places = list(texts_of(list(arguments.values())))
    else:
        places = [arguments[name] for name, reading in readings.items() if reading.is_address]
    return bool(places) and all(_is_at(address, prepared.call.hosts) for address in places)


def _is_at(address: Any, hosts: frozenset[str]) -> bool:
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    # No other host below it: below some names, such as github.io, everybody has one.
    return match is not None and not hosts.isdisjoint(
        {(host := match[1].lower()), f"www.{host}", host.removeprefix("www.")}
    )


def texts_of(value: Any) -> Iterator[str]:
    """Return the texts in a value, names among them, at whatever depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        items = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
        for item in items:
            yield from texts_of(item)


def hosts_of(value: Any) -> set[str]:
    """Return the hosts of the addresses in a value, at whatever depth."""
    hosts = set()
    texts = [text.strip() for text in texts_of(value)]
    for address in (one for text in texts for one in ([f"//{text}"] if _BARE.fullmatch(text) else _URL.findall(text))):
        try:
            host = urlsplit(address).hostname or ""
        except ValueError:
            host = ""
        hosts.add("an odd address" if _ODD.search(address) or not host else host.lower())
    return hosts
