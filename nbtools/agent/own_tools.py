"""Tools that only a run has: asking its person something, and reading more of a result that was too long."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from annotated_types import Interval

from nbtools.aio import in_thread
from nbtools.errors import ApprovalDenied, FileMissing
from nbtools.result import Output
from nbtools.tool import Context, tool

__all__ = ["OWN_TOOLS", "Ask", "LongResults", "Person", "artifact_read", "ask_user"]

Ask = Callable[[str, tuple[str, ...]], str | Awaitable[str | None] | None]
"""Puts a question, and choices if there are any, to a person; returns the answer, or `None` where nobody answers."""


class Person:
    """Whoever a run can ask.

    Parameters
    ----------
    ask
        Puts a question, sync or async; `None` where nobody is there.
    """

    def __init__(self, ask: Ask | None = None) -> None:
        self.ask = ask

    async def answer(self, question: str, choices: Sequence[str] = ()) -> str:
        """Return what the person says.

        Raises
        ------
        ApprovalDenied
            Nobody is there, or nothing was said.
        """
        said: str | Awaitable[str | None] | None = None
        if self.ask is not None:
            if inspect.iscoroutinefunction(self.ask):
                said = await self.ask(question, tuple(choices))
            else:
                said = await in_thread(self.ask, question, tuple(choices))
            if inspect.isawaitable(said):
                said = await said
        if said is None:
            raise ApprovalDenied(
                "nobody is here to answer.", hint="Decide yourself and say what you assumed, or end with the question."
            )
        return str(said)


class LongResults:
    """Texts of results that were too long for the model, by name.

    Parameters
    ----------
    load
        Returns a text by its name, `None` when there is none.
    """

    def __init__(self, load: Callable[[str], str | None]) -> None:
        self.load = load


@tool(title="Ask the person", read_only=True)
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
    return await ctx.use(Person).answer(question, choices or ())


@tool(title="Read more of a long result", read_only=True, idempotent=True)
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
    text = ctx.use(LongResults).load(name)
    if text is None:
        raise FileMissing(f"there is no result called {name!r}.", hint="Names are given where a result was cut.")
    part = text[offset : offset + length]
    told = f"characters {offset:,} to {offset + len(part):,} of {len(text):,}"
    return Output(data={"text": part, "offset": offset, "total": len(text)}, text=f"[{told}]\n{part}")


OWN_TOOLS = (ask_user, artifact_read)
