"""The process that starts kernels: one that stays silent, or dies, is replaced once."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from nbtools.errors import KernelDied
from nbtools.ground import aio
from nbtools.processes.client import WardenClient, WatchedProcess, start_with_retry
from nbtools.processes.runtime_dir import RuntimeDir
from tests.conftest import is_running, wait_until, with_enough_time

pytestmark = pytest.mark.races

WARDEN = ("-P", "-m", "nbtools.processes")
SILENT = ("-c", "import sys, time; time.sleep(600)")
DEAD = ("-c", "")


def starter(folder: Path, *commands: tuple[str, ...]) -> Callable[[], WardenClient]:
    left = list(commands)

    def start() -> WardenClient:
        place = folder / str(len(left))
        place.mkdir()
        return WardenClient.spawn(left.pop(0), folder=place, env=dict(os.environ))

    return start


@pytest.mark.parametrize("first", [SILENT, DEAD], ids=["silent", "dead"])
def test_one_that_does_not_answer_is_replaced(tmp_path: Path, first: tuple[str, ...]) -> None:
    async def meet(seconds: int) -> bool:
        folder = tmp_path / str(seconds)
        folder.mkdir()
        try:
            warden = await start_with_retry(starter(folder, first, WARDEN), timeout=seconds, what="starts kernels")
        except KernelDied:
            return False
        try:
            return warden.alive
        finally:
            await warden.close()

    assert with_enough_time(lambda s: aio.run(meet(s)), bool)


def test_a_second_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KernelDied, match="The process that starts kernels did not start"):
        aio.run(start_with_retry(starter(tmp_path, DEAD, DEAD), timeout=20, what="starts kernels"))


@pytest.mark.slow
def test_one_that_was_given_up_leaves_its_folder_to_an_owner_that_lives() -> None:
    owner = RuntimeDir()

    async def give_up() -> int:
        spawn = functools.partial(WardenClient.spawn, WARDEN, env=dict(os.environ))
        warden = await start_with_retry(lambda: spawn(folder=owner.make("w")), timeout=20, what="starts kernels")
        warden._lost()
        return warden.pid

    pid = aio.run(give_up())
    wait_until(lambda: not is_running(pid))
    assert owner.path.exists()
    owner.close()


def test_an_interrupt_has_been_sent_when_it_returns(tmp_path: Path) -> None:
    async def meet() -> tuple[bool, str | None]:
        warden = await start_with_retry(starter(tmp_path, WARDEN), timeout=20, what="starts kernels")
        try:
            code = "import signal; signal.signal(2, signal.SIG_DFL); open('ready', 'w'); signal.pause()"
            argv = [sys.executable, "-c", code]
            child = warden.begin({"do": "spawn", "argv": argv, "env": dict(os.environ), "cwd": str(tmp_path)})
            # An interrupt that comes before it has settled ends it with an exit code.
            await aio.in_thread(wait_until, (tmp_path / "ready").exists)
            os.kill(warden.pid, signal.SIGSTOP)
            sent = asyncio.ensure_future(child.interrupt())
            await asyncio.wait({sent}, timeout=0.05)
            was_early = sent.done()
            os.kill(warden.pid, signal.SIGCONT)
            await asyncio.gather(sent, child.exited)
            return was_early, child.exited.result().signal_name
        finally:
            await warden.close()

    assert aio.run(meet()) == (False, "SIGINT")


def test_the_warden_is_told_of_work_and_rest_that_last() -> None:
    class Warden:
        def __init__(self) -> None:
            self.heard: list[str] = []

        def send(self, message: Mapping[str, Any]) -> None:
            self.heard.append(message["do"])

    async def work() -> list[str]:
        warden: Any = Warden()
        process = WatchedProcess(warden, "k")
        for rests, seconds in ((True, 0.1), (False, 0), (True, 0.1), (False, 0.1), (True, 0)):
            process.watch(rests=rests)
            if seconds:  # a machine that is busy would let the time pass in between
                await asyncio.sleep(seconds)
        process.exited.cancel()
        await asyncio.sleep(0.1)
        return warden.heard

    # Nothing of the run that was over at once, and nothing of a process that has ended.
    assert aio.run(work()) == ["rest", "watch"]
