"""``wb.agent``: starts runs, goes on with them, and lists earlier ones."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Unpack

from nbtools.agent.approvals import Answers, check_changes, replies_of
from nbtools.agent.models.choice import SCRIPTED, choose_model, require_agent
from nbtools.agent.notebook.cells import Ask
from nbtools.agent.past_runs import AgentHost, PastRuns
from nbtools.agent.profiles import with_profile
from nbtools.agent.records.budgets import Budgets, Ledger
from nbtools.agent.records.events import TextDelta
from nbtools.agent.records.run_log import AgentRunFolder, AgentRunLog
from nbtools.agent.records.run_record import RunOptions, RunRecord
from nbtools.agent.run import AgentRun
from nbtools.agent.settings import ResumeSettings, RunSettings, options_of
from nbtools.agent.sharing import Sharing, level_after
from nbtools.agent.tools.by_need import offered_by_need
from nbtools.agent.tools.own_tools import Surroundings
from nbtools.agent.tries import OneAtATime, Tries
from nbtools.contract.approval.gate import Approver, Grants, Nobody, Reply
from nbtools.contract.approval.label_rules import of_unknown
from nbtools.contract.approval.own_words import typed_in
from nbtools.contract.execute import LocalExecutor
from nbtools.contract.label import SEEN_NOW, UNLABELLED, Label, hosts_in, join
from nbtools.contract.registry import Registry
from nbtools.errors import InvalidArguments
from nbtools.ground import aio
from nbtools.ground.home import not_written
from nbtools.ground.telemetry import span


class AgentService(PastRuns):
    """Runs models in a loop with tools.

    Parameters
    ----------
    host
        See `AgentHost`.
    check_open
        Raises when the workbench is closed.
    page
        Returns what asks the page of this process's notebook; `None` where none answers.
    """

    def __init__(
        self,
        host: AgentHost,
        *,
        check_open: Callable[[], None] = lambda: None,
        page: Callable[[], Ask | None] = lambda: None,
    ) -> None:
        super().__init__(host, check_open=check_open)
        self._page = page
        self._grants: Grants | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- starting ------------------------------------------------------------------------------------------------------

    def astart(self, prompt: str, **settings: Unpack[RunSettings]) -> Coroutine[Any, Any, AgentRun]:
        """Start a run, and return it at once; see `RunSettings`.

        Raises
        ------
        ConfigMissing, ConfigInvalid, InvalidArguments
            No model, key or script, or a setting that does not fit.
        """
        own_settings: dict[str, Any] = dict(settings)
        # Now, while the code that asks can be seen.
        words, label = typed_in(prompt, own_settings.pop("words", None))
        return aio.here(self._start(prompt, own_settings, None, None, label, words))

    start = aio.blocking(astart)

    async def arun(self, prompt: str, **settings: Unpack[RunSettings]) -> AgentRun:
        """Run to the end, or to where approval is waited for, and return the run; see `RunSettings`.

        A run that fails, is stopped, reaches a budget, or whose model gave no whole answer is returned too;
        `AgentRun.raise_for_error` raises for it.

        Raises
        ------
        ConfigMissing, ConfigInvalid, InvalidArguments
            No model, key or script, or a setting that does not fit.
        """
        return await (await self.astart(prompt, **settings)).await_end()

    def run(self, prompt: str, **settings: Unpack[RunSettings]) -> AgentRun:
        """Run as `arun` does, and block; Ctrl-C and Stop end the run, which `Interrupted` then carries."""
        return self.start(prompt, **settings).wait()

    __call__ = run

    def astart_tries(
        self, prompt: str, tries: int | Sequence[Any] = 3, *, at_once: bool = True, **settings: Unpack[RunSettings]
    ) -> Coroutine[Any, Any, list[AgentRun]]:
        """Start several tries of a prompt, and return them at once; `keep` keeps one of them.

        Each works in copies of the sessions that it names, from their state of now. The budgets are those of all of
        them together. Only tries that run one after the other can ask their person other than for approval.

        Parameters
        ----------
        prompt
            What is asked.
        tries
            How many, or a model for each.
        at_once
            Whether they run side by side, rather than one after the other.
        **settings
            See `RunSettings`.

        Raises
        ------
        ConfigMissing, ConfigInvalid, InvalidArguments
            No model, key or script, a setting that does not fit, fewer than two tries, or a budget that is too small.
        """
        own_settings: dict[str, Any] = dict(settings)
        words, label = typed_in(prompt, own_settings.pop("words", None))
        return aio.here(self._start_tries(prompt, Tries.of(tries, at_once=at_once), own_settings, label, words))

    start_tries = aio.blocking(astart_tries)

    def atries(
        self, prompt: str, tries: int | Sequence[Any] = 3, *, at_once: bool = True, **settings: Unpack[RunSettings]
    ) -> Coroutine[Any, Any, list[AgentRun]]:
        """Start tries as `astart_tries` does, and return them when each is over or waits."""
        starting = self.astart_tries(prompt, tries, at_once=at_once, **settings)  # now, as `astart` does

        async def end() -> list[AgentRun]:
            return list(await asyncio.gather(*(run.await_end() for run in await starting)))

        return end()

    tries = aio.blocking(atries)

    async def aask(
        self,
        prompt: str,
        executor: LocalExecutor,
        *,
        run_id: str | None = None,
        on_text: Callable[[str], object] | None = None,
        label: Label = UNLABELLED,
        **settings: Unpack[RunSettings],
    ) -> AgentRun:
        """Run with an executor of someone else, such as a workflow's, and return the run at its end.

        Parameters
        ----------
        prompt
            What is asked.
        executor
            Performs the calls, and asks for approval; its tools are all that the model is offered.
        run_id
            The run under which calls are recorded; `None` records them under the agent's own.
        on_text
            Takes what the model writes.
        label
            What the prompt may hold besides the words of a person; ``words`` in the settings are these, and where they
            are not given, the prompt.
        **settings
            See `RunSettings`.

        Raises
        ------
        ConfigMissing, ConfigInvalid, InvalidArguments
            No model, key or script, or a setting that does not fit.
        """
        own_settings: dict[str, Any] = dict(settings)
        words = own_settings.pop("words", None)
        run = await aio.here(self._start(prompt, own_settings, executor, run_id, label, words))
        try:
            async for event in run:
                if on_text is not None and isinstance(event, TextDelta):
                    on_text(event.text)
        finally:
            run.cancel()  # harmless at the end
        return run

    async def aresume(self, run: str | AgentRun, answers: Answers = None, **how: Unpack[ResumeSettings]) -> AgentRun:
        """Go on with a run that waits, is not done, or whose process has ended, and return it at its end.

        Parameters
        ----------
        run
            The run, its id, or the beginning of it.
        answers
            Answers to the calls that wait, by their ids, or one for all: ``"once"``, ``"tool"``, ``"content"``,
            ``"no"``, a `nbtools.contract.approval.gate.Reply` with changes or a reason; `True` is once. The approver is
            asked for the others.
        **how
            See `ResumeSettings`.

        Raises
        ------
        InvalidArguments
            It is done, or an answer is to a call that does not wait.
        PermissionDenied
            It still runs.
        FileMissing
            There is no such run.
        """
        return await (await self.astart_again(run, answers, **how)).await_end()

    def resume(self, run: str | AgentRun, answers: Answers = None, **how: Unpack[ResumeSettings]) -> AgentRun:
        """Go on as `aresume` does, and block; Ctrl-C and Stop end the run, which `Interrupted` then carries."""
        return self.start_again(run, answers, **how).wait()

    async def astart_again(
        self, run: str | AgentRun, answers: Answers = None, **how: Unpack[ResumeSettings]
    ) -> AgentRun:
        """Go on with a run as `aresume` does, and return it at once."""
        return await aio.here(self._start_again(run, answers, how))

    start_again = aio.blocking(astart_again)

    def close(self) -> None:
        """Stop every run of this process, and wait a moment for each to keep what it has."""
        runs = [run for run in list(self._live.values()) if run.state == "running"]
        for run in runs:
            run.cancel()
        for run in runs:
            run.wait(5.0)

    # -- on nbtools' loop ----------------------------------------------------------------------------------------------

    async def _start_tries(
        self, prompt: str, tries: Tries, settings: dict[str, Any], label: Label, words: str | None
    ) -> list[AgentRun]:
        runs: list[AgentRun] = []
        try:
            for number, model in enumerate(tries.models, 1):
                own = settings if model is None else {**settings, "model": model}
                of_try = {"tries": tries.id, "sessions_end": tries.sessions_end(number)}
                one = dataclasses.replace(tries, number=number)
                runs.append(await self._start(prompt, own, None, None, label, words, tries=one, of_try=of_try))
        except BaseException:
            for run in runs:
                run.cancel()
            raise
        return runs

    async def _start(
        self,
        prompt: str,
        settings: dict[str, Any],
        behind: LocalExecutor | None = None,
        recorded_as: str | None = None,
        label: Label = UNLABELLED,
        words: str | None = None,
        tries: Tries | None = None,
        of_try: Mapping[str, Any] | None = None,
    ) -> AgentRun:
        self._check_open()
        words = prompt if words is None else words
        if not prompt.strip():
            raise InvalidArguments("the prompt is empty.", hint="Say what is to be done.")
        profiled = await aio.in_thread(with_profile, settings)
        after, approver, context = (profiled.pop(name, None) for name in ("after", "approver", "context"))
        around = await aio.in_thread(Surroundings.of, profiled, self._page)
        budgets, model = Budgets.of(profiled.pop("budgets", None)), profiled.pop("model", None)
        if tries is not None:
            budgets = budgets.part(len(tries.models), at_once=tries.at_once)
            around = dataclasses.replace(around, ask=None) if tries.at_once else around
        if isinstance(model, str) and model.startswith(f"{SCRIPTED}:"):
            profiled["script"], model = model.partition(":")[2], SCRIPTED
        options = options_of(profiled)
        if model is None:
            model = self._host.model if options.script is None else SCRIPTED
        choice = choose_model(model, self._host.models)
        earlier, before = (None, None) if after is None else await self._run_before(after)
        share = level_after(profiled.get("share"), choice, None if before is None else before.options.share)
        if label:  # not all of it was typed
            label |= await aio.in_thread(of_unknown, self._host.executor(None).door.services)
        more, more_label = await aio.in_thread(_more_of, context, Sharing.of(share))
        if more:
            prompt = f"{prompt}\n\n{more}"
            label |= more_label
        label |= Label.of(before.options.seen if before else ())
        hosts = tuple(sorted(hosts_in(words).union(before.options.hosts if before else ())))
        options = dataclasses.replace(
            options, recorded_as=recorded_as, share=share, seen=tuple(label.names()), hosts=hosts, **(of_try or {})
        )
        executor = await aio.in_thread(self._executor, options, behind or approver, around)
        if tries is not None and not isinstance(executor.door.approver, Nobody):
            executor.door.approver = OneAtATime(executor.door.approver, tries)
        record = RunRecord(
            asked_as=model if isinstance(model, str) else choice.name,
            prompt=prompt,
            options=options,
            model=choice.name,
            ledger=Ledger(budgets=budgets),
            label=choice.label,
        )
        choice.check_price(budgets.usd)
        player = choice.build(options.script)  # it may find a mistake, and then there is no run
        # What waits is left as it is: the conversation goes on beside it, as if that call had not been made.
        if earlier is not None and before is not None and before.state != "pending" and earlier.claim():
            record.conversation_id = before.conversation_id
        log = await aio.in_thread(self._lay_down, record, earlier)
        return self._launch(log, player, executor, around, prompt, tries=tries)

    def _lay_down(self, record: RunRecord, earlier: AgentRunFolder | None) -> AgentRunLog:
        require_agent()
        folder = self._host.runs / record.run_id
        try:
            AgentRunFolder.create(folder, record, earlier)
            return AgentRunLog(folder, record)
        except OSError as exc:
            raise not_written(exc) from exc

    async def _run_before(self, after: str | AgentRun) -> tuple[AgentRunFolder, RunRecord]:
        """Return the run whose conversation goes on, which has ended or waits."""
        record = await self._record(after)
        if record.state == "running":
            hint = "Wait for its end or cancel it, or start afresh (%%agent --new)."
            raise InvalidArguments(f"the run {record.run_id} is running.", hint=hint)
        return await self._find(record.run_id), record

    async def _start_again(self, run: str | AgentRun, answers: Answers, settings: ResumeSettings) -> AgentRun:
        self._check_open()
        run_id = (await self._find(run)).folder.name
        tried = f"resuming the run {run_id}"
        log = await aio.in_thread(AgentRunLog, self._host.runs / run_id)
        try:
            # Asked behind the lease: until then someone else may have brought it to its end.
            if log.record.state == "done":
                raise InvalidArguments("it is done.", hint="Start another one with after=.", tried=tried)
            return await self._go_on(log, answers, settings, tried)
        except BaseException:
            log.close()
            raise

    async def _go_on(self, log: AgentRunLog, answers: Answers, settings: ResumeSettings, tried: str) -> AgentRun:
        record = log.record
        replies = replies_of(answers, [item["id"] for item in record.pending], tried)
        if (budgets := settings.get("budgets")) is not None:
            kept_budgets = {k: v for k, v in dataclasses.asdict(record.ledger.budgets).items() if k not in budgets}
            record.ledger.budgets = Budgets.of({**kept_budgets, **budgets})
        model = settings.get("model") or record.asked_as
        choice = choose_model(model, self._host.models)
        if choice.name != record.model or "share" in settings:
            share = level_after(settings.get("share"), choice, record.options.share)
            record.options = dataclasses.replace(record.options, share=share)
        record.model, record.label = choice.name, choice.label
        record.asked_as = model if isinstance(model, str) else choice.name
        choice.check_price(record.ledger.budgets.usd)
        around = await aio.in_thread(Surroundings.of, dict(settings), self._page)
        executor = await aio.in_thread(self._executor, record.options, settings.get("approver"), around)
        await aio.in_thread(check_changes, record.pending, replies, executor, tried)
        player = choice.build(record.options.script)
        record.state, record.error = "running", None
        await aio.in_thread(log.save_record)
        return self._launch(log, player, executor, around, None, replies)

    def _executor(
        self, options: RunOptions, lent: LocalExecutor | Approver | None, around: Surroundings
    ) -> LocalExecutor:
        """Return who performs the calls: with the tools that are offered, and no others."""
        behind = lent if isinstance(lent, LocalExecutor) else self._host.executor(lent)
        chosen = behind.tools().select(*options.tools)
        idle = {name for name in self._host.idle() if name not in options.tools}
        is_safe = options.read_only or options.plan
        chosen = Registry(t for t in chosen.values() if t.name not in idle and (t.effects.read_only or not is_safe))
        own = around.tools()
        door = behind.door.but()
        self._grants = self._grants or Grants(door.limits.approval)
        door.grants = self._grants
        tools = chosen.without(*(t.name for t in own if t.name in chosen)).with_tool(*own)
        return LocalExecutor(offered_by_need(tools, options.tools), door=door)

    def _launch(
        self,
        log: AgentRunLog,
        model: Any,
        executor: LocalExecutor,
        around: Surroundings,
        prompt: str | None,
        answers: Mapping[str, Reply] | None = None,
        tries: Tries | None = None,
    ) -> AgentRun:
        from nbtools.agent.bridge import DoorToolset
        from nbtools.agent.loop import RunLoop

        record = log.record
        run = AgentRun(record)
        loop = aio.loop()
        log.watch = run.take
        playing = RunLoop(log, DoorToolset(log, executor, around=around, answers=answers), model)
        run.follow(
            cancel=playing.cancel,
            interrupt=lambda: loop.call_soon_threadsafe(playing.interrupt),
            say=lambda text: loop.call_soon_threadsafe(playing.say, text),
        )
        self._live[record.run_id] = run

        async def play() -> None:
            facts = {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": record.model}
            try:
                with span("invoke_agent nbtools", run=record.run_id, label=record.label, **facts) as timed:
                    async with contextlib.nullcontext() if tries is None else tries.has_turn():
                        await playing.play(prompt)
                    timed.facts |= {"state": record.state, **record.ledger.counts()}
                    timed.outcome = record.error["code"] if record.error else timed.outcome
            finally:
                try:
                    # The lease goes before anyone hears of the end, who may go on with the run at once.
                    await asyncio.shield(aio.in_thread(log.close))
                finally:
                    run.end()
            await aio.in_thread(self._folders.prune_once)

        aio.spawn(play(), self._tasks)
        return run


def _more_of(context: Callable[[Sharing], str] | None, sharing: Sharing) -> tuple[str, Label]:
    """Return what a prompt is filled with, and its label; in a thread, whose context is its own."""
    seen = [Label(private=True)]
    SEEN_NOW.set(seen)
    return "" if context is None else context(sharing), join(seen)
