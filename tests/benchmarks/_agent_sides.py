"""The loops that the agent benchmark compares: each makes the same calls of a tool that does nothing, and then answers.

No model is at work: on our side and on pydantic-ai's a script plays it, on the others' a class that answers at once.
What a side returns is the time of a whole run in milliseconds, divided by the number of answers; agents are built
before the clock starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

Side = Callable[[], float]
SCRIPT = """
turns:
{turns}
  - say: Done.
"""


def script(turns: int) -> str:
    """Return the script of so many answers, of which all but the last make a call."""
    call = "  - {{say: I look., calls: [{{tool: look, arguments: {{name: n{0}}}}}]}}"
    return SCRIPT.format(turns="\n".join(call.format(number) for number in range(turns - 1)))


def look(name: str) -> str:
    """Look at something.

    Parameters
    ----------
    name
        What.
    """
    return f"saw {name}"


def timed(run: Callable[[], object], turns: int) -> Side:
    """Return a side that measures one run."""

    def measure() -> float:
        begun = time.perf_counter()
        run()
        return 1000 * (time.perf_counter() - begun) / turns

    return measure


@contextlib.contextmanager
def nbtools(turns: int, folder: Path, memory: str, *, effects: bool = False) -> Iterator[Side]:
    """Our loop; with effects each call is written down before and after it runs."""
    from nbtools import Workbench, tool

    offered = tool(look) if effects else tool(read_only=True)(look)
    with Workbench(home=folder, memory_url=memory, tools=[offered]) as wb:
        text = script(turns)
        budgets = {"steps": turns + 1}
        yield timed(lambda: wb.agent("Go!", script=text, tools=["look"], budgets=budgets).raise_for_error(), turns)


@contextlib.contextmanager
def pydantic_ai(turns: int) -> Iterator[Side]:
    """Bare pydantic-ai, as our loop drives it: a stream of events, read to its end."""
    from pydantic_ai import Agent, FunctionToolset

    from nbtools.agent.models.scripted import Script, scripted_model

    agent = Agent(scripted_model(Script(script(turns))), toolsets=[FunctionToolset([look])])

    async def run() -> None:
        async with agent.run_stream_events("Go!") as stream:
            async for _ in stream:
                pass

    with asyncio.Runner() as runner:
        yield timed(lambda: runner.run(run()), turns)


@contextlib.contextmanager
def langgraph(turns: int, folder: Path | None = None) -> Iterator[Side]:
    """LangGraph's agent; with a folder each step is kept in SQLite before the next one starts."""
    import warnings

    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from langgraph.prebuilt import create_react_agent

    class Scripted(BaseChatModel):
        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
            number = sum(isinstance(message, AIMessage) for message in messages)
            call = {"name": "look", "args": {"name": f"n{number}"}, "id": f"c{number}"}
            said = AIMessage("Done.") if number == turns - 1 else AIMessage("I look.", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=said)])

        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

        @property
        def _llm_type(self) -> str:
            return "scripted"

    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keeper = None
        if folder is not None:
            from langgraph.checkpoint.sqlite import SqliteSaver

            keeper = stack.enter_context(SqliteSaver.from_conn_string(str(folder / "langgraph.sqlite")))
        agent = create_react_agent(Scripted(), [look], checkpointer=keeper)
        threads = iter(range(1_000_000))

        def run() -> None:
            config = {"recursion_limit": 3 * turns, "configurable": {"thread_id": str(next(threads))}}
            agent.invoke({"messages": [("user", "Go!")]}, config)

        yield timed(run, turns)


@contextlib.contextmanager
def smolagents(turns: int) -> Iterator[Side]:
    """The ToolCallingAgent of smolagents; what it prints is left out."""
    from smolagents import LogLevel, Model, Tool, ToolCallingAgent
    from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

    class Look(Tool):
        name = "look"
        description = "Look at something."
        inputs: ClassVar = {"name": {"type": "string", "description": "What."}}
        output_type = "string"

        def forward(self, name: str) -> str:
            return look(name)

    class Scripted(Model):
        number = 0

        def generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatMessage:
            self.number += 1
            is_last = self.number == turns
            asked = ("final_answer", {"answer": "Done."}) if is_last else ("look", {"name": f"n{self.number}"})
            function = ChatMessageToolCallFunction(name=asked[0], arguments=asked[1])
            call = ChatMessageToolCall(function=function, id=f"c{self.number}", type="function")
            return ChatMessage(role=MessageRole.ASSISTANT, content="I look.", tool_calls=[call])

    model = Scripted()
    agent = ToolCallingAgent([Look()], model, max_steps=turns + 1, verbosity_level=LogLevel.OFF)

    def run() -> None:
        model.number = 0
        assert agent.run("Go!") == "Done."

    yield timed(run, turns)


PEERS: dict[str, Callable[..., contextlib.AbstractContextManager[Side]]] = {
    "bare pydantic-ai": pydantic_ai,
    "LangGraph's agent": langgraph,
    "smolagents": smolagents,
}
KEEPER = "LangGraph's agent, SqliteSaver"
