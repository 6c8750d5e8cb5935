"""When a run is over whose kernel says too little: once nothing comes any more, and never while something does."""

from __future__ import annotations

from nbtools.ground import aio
from nbtools.kernels.jupyter.kernel import JupyterRun
from nbtools.kernels.jupyter.messages import Message
from nbtools.kernels.runs.output import Collector

SHOWN = [str(number) for number in range(30)]


def test_a_run_ends_in_silence_and_not_while_its_messages_are_read() -> None:
    async def run_one() -> list[str]:
        pieces, waiting = [], list(SHOWN)

        def look() -> None:
            if waiting:
                run.messages += 1
                content = {"data": {"text/plain": waiting.pop(0)}}
                run.take(Message(type="display_data", parent_id="1", content=content))

        run = JupyterRun("1", Collector(lambda piece: pieces.append(piece.text)), look)
        run.end_in_silence(0, run.finish)
        await run.done
        return pieces

    assert aio.run(run_one(), timeout=10) == SHOWN


def test_a_run_ends_though_a_thread_that_it_left_shows_something_for_ever() -> None:
    async def run_one() -> int:
        def look() -> None:
            run.messages += 1

        run = JupyterRun("1", Collector(), look)
        run.end_in_silence(0.0625, run.finish, left=0.25)
        await run.done
        return run.messages

    assert aio.run(run_one(), timeout=10) == 4
