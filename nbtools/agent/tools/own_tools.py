"""Tools that only a run has: asking its person, looking at the notebook, reading on in a result, finding tools."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from annotated_types import Interval

from nbtools.agent.notebook.cells import CELL_TOOLS
from nbtools.agent.notebook.cells import Ask as AskPage
from nbtools.agent.sharing import Sharing
from nbtools.contract.label import Label
from nbtools.contract.result import Output
from nbtools.contract.tool import Context, Tool, tool, tool_of
from nbtools.errors import ApprovalDenied, FileMissing
from nbtools.ground.aio import in_thread
from nbtools.texts.visible import visible, wrapped

# A token is about four characters of English, and fewer of most else.
_CHARACTERS_OF_A_TOKEN = 4
_RESULT_TOKENS = 5_000
_LOOK_TOKENS = 15_000

Ask = Callable[[str, tuple[str, ...]], str | Awaitable[str | None] | None]
"""Puts a question, and choices if there are any, to a person; returns the answer, or `None` where nobody answers."""


def asked_at_line(read: Callable[[str], str]) -> Ask:
    """Return what puts a question to the person at a line, which `read` shows and whose answer it returns."""

    def ask(question: str, choices: tuple[str, ...]) -> str | None:
        prompt = visible(f"{question} ({', '.join(choices)})" if choices else question, lines=True)
        with contextlib.suppress(EOFError):
            return read(wrapped(prompt.replace("\n", "\n  │ ")) + " ")
        return None

    return ask


Look = Callable[[Sharing, Sequence[str] | None], str]
"""Tells the variables of a notebook as far as a level of sharing allows: those of the given names, or what changed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What is around a run in its process.

    Attributes
    ----------
    ask
        Puts a question of the model to a person; `None` without a person.
    look
        Tells the variables of the notebook; `None` where there is none.
    page
        Asks the page that shows the notebook's cells; `None` where no page answers.
    """

    ask: Ask | None = None
    look: Look | None = None
    page: AskPage | None = None

    @classmethod
    def of(cls, settings: dict[str, Any], page: Callable[[], AskPage | None]) -> Surroundings:
        """Take what is around a run out of its settings; it may wait for a page."""
        return cls(ask=settings.pop("ask", None), look=settings.pop("look", None), page=page())

    def tools(self) -> list[Tool]:
        """Return the tools that a run has here besides those of the workbench."""
        absent = {ask_user: self.ask is None, notebook_look: self.look is None}
        absent |= dict.fromkeys(CELL_TOOLS, self.page is None) | {tool_search: True}  # offered where tools are many
        return [tool_of(function) for function in OWN_TOOLS if not absent.get(function)]


async def answer_of(ask: Ask | None, question: str, choices: Sequence[str] = ()) -> str:
    """Return what a person says to a question, which is put sync or async.

    Raises
    ------
    ApprovalDenied
        No person is there, or nothing was answered.
    """
    answer: str | Awaitable[str | None] | None = None
    if ask is not None:
        is_async = inspect.iscoroutinefunction(ask)
        answer = ask(question, tuple(choices)) if is_async else await in_thread(ask, question, tuple(choices))
        if inspect.isawaitable(answer):
            answer = await answer
    if answer is None:
        raise ApprovalDenied(
            "no one is here to answer.", hint="Decide yourself and say what you assumed, or end with the question."
        )
    return str(answer)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunServices:
    """What the tools of a run reach.

    Attributes
    ----------
    ask
        Puts a question and choices to the person, and returns the answer.
    load
        Returns a text that was too long for the model by its name, `None` when there is none.
    look
        Returns a line for each variable of the notebook of the given names, or for those that changed since the last
        look.
    find
        Returns the tools that words name or describe, the best first.
    """

    ask: Callable[[str, Sequence[str]], Awaitable[str]]
    load: Callable[[str], str | None]
    look: Callable[[Sequence[str] | None], str]
    find: Callable[[str], Sequence[Tool]]


@tool(title="Ask the person", read_only=True, public=True)
async def ask_user(question: str, ctx: Context, choices: list[str] | None = None) -> str:
    """Ask the person you work for a question, and wait for the answer.

    Use it where the task is unclear and a wrong guess would cost much.

    Parameters
    ----------
    question
        One question, in one or two sentences.
    choices
        Answers to choose from; another one may be given too.
    """
    return await ctx.use(RunServices).ask(question, choices or ())


@tool(title="Read more of a long result", read_only=True, idempotent=True, public=True)
def artifact_read(
    name: str,
    ctx: Context,
    offset: Annotated[int, Interval(ge=0)] = 0,
    length: Annotated[int, Interval(ge=1, le=20_000)] = 10_000,
) -> Output[dict[str, str | int]]:
    """Read a part of a result that was too long to be shown whole.

    Parameters
    ----------
    name
        The name that the result was given, such as "result-1".
    offset
        Characters to leave out at the start.
    length
        Characters to return.
    """
    text = ctx.use(RunServices).load(name)
    ctx.seen.append(Label(strangers=name.startswith(STRANGERS)))
    if text is None:
        raise FileMissing(f"there is no result called {name!r}.", hint="Names are given where a result was cut.")
    part = text[offset : offset + length]
    span = f"characters {offset:,} to {offset + len(part):,} of {len(text):,}"
    return Output(data={"text": part, "offset": offset, "total": len(text)}, text=f"[{span}]\n{part}")


@tool(title="Look at the notebook", read_only=True, public=True)
def notebook_look(ctx: Context, names: list[str] | None = None) -> str:
    """List the variables of the notebook: type, shape, memory, and the cell that made each.

    The first look lists all of them, later ones only what is new or has changed since.

    Parameters
    ----------
    names
        Variables to report in any case, with all their columns.
    """
    return ctx.use(RunServices).look(names)


@tool(title="Find tools", read_only=True, idempotent=True, public=True)
def tool_search(words: str, ctx: Context) -> Output[dict[str, list[str]]]:
    """Find tools that you were not sent, by name or by what they do.

    You are sent those that it returns from now on. One whose parameters you know can be called at once.

    Parameters
    ----------
    words
        Names of tools, or what is to be done.
    """
    tools = ctx.use(RunServices).find(words)
    lines = [f"{tool.name}: {tool.description.partition(chr(10))[0]}" for tool in tools]
    text = "\n".join(lines) or "No tool fits these words. Use others, or a name of the list."
    return Output(data={"tools": [tool.name for tool in tools]}, text=text)


STRANGERS = "strangers-"
"""How names of kept results begin in which strangers' texts may be."""

OWN_TOOLS = (ask_user, artifact_read, notebook_look, tool_search, *CELL_TOOLS)
OWN_NAMES = frozenset(tool_of(function).name for function in OWN_TOOLS)


def most_characters(tool: Tool) -> int:
    """Return how many characters of a result a model is given at once."""
    tokens = _LOOK_TOKENS if tool.function is tool_of(notebook_look).function else _RESULT_TOKENS
    return _CHARACTERS_OF_A_TOKEN * tokens
