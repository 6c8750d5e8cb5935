"""``wb.agent``: starts runs, goes on with them, and tells of those that were."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from nbtools import aio
from nbtools.agent.models.choice import SCRIPTED, ModelChoice, choose_model, require_agent
from nbtools.agent.own_tools import OWN_TOOLS, Ask, ask_user
from nbtools.agent.profiles import with_profile
from nbtools.agent.records.budgets import Budgets, Ledger
from nbtools.agent.records.events import TextDelta
from nbtools.agent.records.run_record import RunOptions, RunRecord, is_alive, this_process
from nbtools.agent.run import AgentRun
from nbtools.agent.sharing import Sharing, level_after
from nbtools.errors import ConfigInvalid, ConfigMissing, InvalidArguments
from nbtools.execute import LocalExecutor, perform
from nbtools.gate import Approver, Grants, Reply
from nbtools.memory import AgentMemory
from nbtools.paths import Roots
from nbtools.registry import Registry
from nbtools.telemetry import span
from nbtools.tool import Effects, ToolCall, tool_of

if TYPE_CHECKING:
    from nbtools.agent.records.store import RunStore
    from nbtools.memory.repository import Repository

__all__ = ["AgentHost", "AgentService", "ResumeSettings", "RunSettings"]


class RunSettings(TypedDict, total=False):
    """What `AgentService.run` and its like take besides the prompt; what is not given has its default.

    See `RunOptions` for ``tools``, ``read_only``, ``plan``, ``instructions``, ``output_schema``, ``model_settings``,
    ``on_error``, ``context_tokens``, ``retries``, ``tool_timeout`` and ``end_strategy``.

    - ``model`` is a name, or a model of pydantic-ai. ``script`` is the text or the path of a script that plays the
      model; ``model="scripted:PATH"`` says the same.
    - ``share`` says what the model may see of data: ``schema``, ``sample``, ``sample:N`` or ``values``. Where
      nothing is said a model on this machine sees values, any other the schema.
    - ``context`` returns more for the prompt, given what the model may see.
    - ``budgets`` are `Budgets` or a mapping.
    - ``profile`` is the path of a file, or a mapping, with any of these.
    - ``after`` is a run, or its id, whose conversation goes on.
    - ``approver`` answers when the gate asks, ``ask`` when the model does.
    """

    model: Any
    script: str | Path | None
    tools: str | Sequence[str]
    read_only: bool
    plan: bool
    instructions: str | Sequence[str]
    output_schema: Mapping[str, Any] | None
    model_settings: Mapping[str, Any] | None
    on_error: str
    context_tokens: int
    retries: int
    tool_timeout: float | None
    end_strategy: str
    share: str
    context: Callable[[Sharing], str]
    budgets: Budgets | Mapping[str, Any] | None
    profile: str | Path | Mapping[str, Any] | None
    after: str | AgentRun | None
    approver: Approver | None
    ask: Ask | None


class ResumeSettings(TypedDict, total=False):
    """What `AgentService.resume` takes besides the run and the answers.

    ``budgets`` hold in place of those that the run had; what was used counts on. ``model`` answers in place of the one
    that did; ``share`` is what it may see, which cannot be less than what the conversation holds. ``approver`` and
    ``ask`` are as in `RunSettings`.
    """

    budgets: Mapping[str, Any] | None
    model: Any
    share: str
    approver: Approver | None
    ask: Ask | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentHost:
    """The parts of a workbench that runs use.

    Attributes
    ----------
    executor
        Returns who performs calls and asks for approval; given an approver, one that asks that one.
    repository
        Returns where runs are kept.
    agent_id
        Whose they are.
    model, models
        The settings of these names.
    """

    executor: Callable[[Approver | None], LocalExecutor]
    repository: Callable[[], Repository]
    agent_id: str
    model: str | None
    models: Mapping[str, Any]


class AgentService:
    """Runs models in a loop with tools.

    Parameters
    ----------
    host
        See `AgentHost`.
    check_open
        Raises when the workbench is closed.
    """

    def __init__(self, host: AgentHost, *, check_open: Callable[[], None] = lambda: None) -> None:
        self._host = host
        self._check_open = check_open
        self._grants = Grants()
        self._lock = threading.Lock()
        self._live: weakref.WeakValueDictionary[str, AgentRun] = weakref.WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- starting ------------------------------------------------------------------------------------------------------

    async def astart(self, prompt: str, **settings: Unpack[RunSettings]) -> AgentRun:
        """Start a run, and return it at once; see `RunSettings`.

        Raises
        ------
        ConfigMissing, ConfigInvalid, InvalidArguments
            No model, key or script, or a setting that does not fit.
        """
        return await aio.here(self._start(prompt, dict(settings)))

    start = aio.blocking(astart)

    async def arun(self, prompt: str, **settings: Unpack[RunSettings]) -> AgentRun:
        """Run to the end, or to where approval is waited for, and return the run; see `RunSettings`.

        A run that fails, is stopped or reaches a budget is returned too; `AgentRun.raise_for_error` raises for it.

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

    async def aask(
        self,
        prompt: str,
        executor: LocalExecutor,
        *,
        run_id: str | None = None,
        on_text: Callable[[str], object] | None = None,
        **settings: Unpack[RunSettings],
    ) -> AgentRun:
        """Run with an executor of somebody else, a workflow's for one, and return the run at its end.

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
        **settings
            See `RunSettings`.

        Raises
        ------
        NbtoolsError
            It failed, reached a budget, or waits for approval.
        """
        run = await aio.here(self._start(prompt, dict(settings), executor, run_id))
        try:
            async for event in run:
                if on_text is not None and isinstance(event, TextDelta):
                    on_text(event.text)
        finally:
            run.cancel()  # harmless at the end
        return run.raise_for_error()

    async def aresume(
        self,
        run: str | AgentRun,
        answers: Mapping[str, Reply | str | bool] | Reply | str | bool | None = None,
        **settings: Unpack[ResumeSettings],
    ) -> AgentRun:
        """Go on with a run that waits, was stopped, failed, or whose process has ended, and return it at its end.

        Parameters
        ----------
        run
            The run, its id, or the beginning of it.
        answers
            Answers to the calls that wait, by their ids, or one for all: ``"once"``, ``"tool"``, ``"content"``,
            ``"no"``, a `nbtools.gate.Reply` with changes or a reason; `True` is once. The approver is asked for the
            others.
        **settings
            See `ResumeSettings`.

        Raises
        ------
        InvalidArguments
            It is done or runs, or an answer is to a call that does not wait.
        MemoryNotFound
            There is no such run.
        """
        return await (await self.astart_again(run, answers, **settings)).await_end()

    def resume(
        self,
        run: str | AgentRun,
        answers: Mapping[str, Reply | str | bool] | Reply | str | bool | None = None,
        **settings: Unpack[ResumeSettings],
    ) -> AgentRun:
        """Go on as `aresume` does, and block; Ctrl-C and Stop end the run, which `Interrupted` then carries."""
        return self.start_again(run, answers, **settings).wait()

    async def astart_again(
        self,
        run: str | AgentRun,
        answers: Mapping[str, Reply | str | bool] | Reply | str | bool | None = None,
        **settings: Unpack[ResumeSettings],
    ) -> AgentRun:
        """Go on with a run as `aresume` does, and return it at once."""
        return await aio.here(self._start_again(run, answers, settings))

    start_again = aio.blocking(astart_again)

    # -- what was ------------------------------------------------------------------------------------------------------

    async def aruns(self, limit: int | None = 20) -> list[dict[str, Any]]:
        """Return what is kept of runs, the newest first; ``state`` is `RunRecord.state`."""
        self._check_open()
        found = await aio.here(self._store().runs(limit))
        return [{**record, "state": RunRecord.from_dict(record).state} for record in found]

    runs = aio.blocking(aruns)

    async def aget(self, run_id: str) -> AgentRun:
        """Return a run, by its id or the beginning of it; one of this process with its events.

        Raises
        ------
        MemoryNotFound
            There is none, or several begin so.
        """
        self._check_open()
        record = RunRecord.from_dict(await aio.here(self._store().run(run_id)))
        live = self._live.get(record.run_id)
        if live is not None:
            return live
        found = AgentRun(record)
        found.end()
        return found

    get = aio.blocking(aget)

    async def alog(self, run_id: str) -> list[dict[str, Any]]:
        """Return what happened in a run, event by event, as dicts; also of a run of another process."""
        self._check_open()
        record = await aio.here(self._store().run(run_id))
        return await aio.here(self._store().log(record["run_id"]))

    log = aio.blocking(alog)

    async def amessages(self, run_id: str) -> list[Any]:
        """Return the messages of a run's conversation, as pydantic-ai has them."""
        self._check_open()
        record = await aio.here(self._store().run(run_id))
        return [entry.message for entry in await aio.here(self._store().read_history(record["ended_with"]))]

    messages = aio.blocking(amessages)

    async def aundo(self, run: str | AgentRun) -> list[dict[str, Any]]:
        """Take back what a run did to files and notes, the last first.

        Returns
        -------
        list
            A row for each thing: ``tool``, ``target``, ``undone``, and ``why`` it was not. What somebody has changed
            since is left alone, and of a tool whose arguments name no file and no note it is not known what it did.

        Raises
        ------
        MemoryNotFound
            There is no such run.
        InvalidArguments
            It still runs.
        """
        self._check_open()
        run_id = run.run_id if isinstance(run, AgentRun) else run
        record = RunRecord.from_dict(await aio.here(self._store().run(run_id)))
        if record.state == "running":
            raise InvalidArguments(f"the run {record.run_id} still runs.", hint="Stop it first.", tried="undoing a run")
        executor = await aio.in_thread(self._host.executor, None)
        places = {"roots": executor.door.services[Roots](), "memory": executor.door.services[AgentMemory]()}
        from nbtools.agent.undo import take_back

        call = ToolCall(tool="agent_undo", arguments={"run": record.run_id})
        effects = Effects(destructive=True, idempotent=True)
        work = functools.partial(take_back, self._store(), record.run_id, **places)
        rows, _ = await aio.here(perform(executor.door, call, work, effects=effects))
        return list(rows)

    undo = aio.blocking(aundo)

    async def acancel(self, run: str | AgentRun) -> AgentRun:
        """End a run that goes on in this process, or waits, and return it; one that is over stays as it is.

        Raises
        ------
        InvalidArguments
            It goes on in another process.
        MemoryNotFound
            There is no such run.
        """
        found = await self.aget(run.run_id if isinstance(run, AgentRun) else run)
        record = RunRecord.from_dict(await aio.here(self._store().run(found.run_id)))
        if found.status == "running" and found.run_id in self._live:
            found.cancel()
            return await found.await_end()
        if record.state == "running":
            told = f"it runs in process {record.owner.get('pid')}."
            raise InvalidArguments(told, hint="Stop it there.", tried=f"cancelling the run {record.run_id}")
        if record.state not in {"pending", "interrupted"}:
            return found
        record.status, record.pending = "cancelled", ()
        await aio.here(self._store().put({f"run/{record.run_id}": record.to_dict()}))
        self._live.pop(record.run_id, None)
        return await self.aget(record.run_id)

    cancel = aio.blocking(acancel)

    def close(self) -> None:
        """Stop every run of this process, and wait a moment for each to keep what it has."""
        runs = [run for run in list(self._live.values()) if run.status == "running"]
        for run in runs:
            run.cancel()
        for run in runs:
            run.wait(5.0)

    # -- on nbtools' loop ----------------------------------------------------------------------------------------------

    def _store(self) -> RunStore:
        require_agent()
        from nbtools.agent.records.store import RunStore

        return RunStore(self._host.repository(), self._host.agent_id)

    async def _start(
        self,
        prompt: str,
        settings: dict[str, Any],
        behind: LocalExecutor | None = None,
        recorded_as: str | None = None,
    ) -> AgentRun:
        self._check_open()
        if not prompt.strip():
            raise InvalidArguments("the prompt is empty.", hint="Say what is to be done.", tried="starting an agent")
        given = await aio.in_thread(with_profile, settings)
        after, approver, ask, context = (given.pop(name, None) for name in ("after", "approver", "ask", "context"))
        budgets, model = Budgets.of(given.pop("budgets", None)), given.pop("model", None)
        if isinstance(model, str) and model.startswith(f"{SCRIPTED}:"):
            given["script"], model = model.partition(":")[2], SCRIPTED
        options = _options(given)
        if model is None:
            model = self._host.model if options.script is None else SCRIPTED
        choice = choose_model(model, self._host.models)
        conversation, before = (None, None) if after is None else await self._conversation_after(after)
        share = level_after(given.get("share"), choice, before)
        options = dataclasses.replace(options, recorded_as=recorded_as, share=share)
        if context is not None and (more := await aio.in_thread(context, Sharing.of(share))):
            prompt = f"{prompt}\n\n{more}"
        executor = await aio.in_thread(self._executor, options, behind or approver, ask)
        record = RunRecord(
            asked_as=model if isinstance(model, str) else choice.name,
            prompt=prompt,
            options=options,
            model=choice.name,
            ledger=Ledger(budgets=budgets),
            label=_label(choice),
        )
        _check_price(choice, budgets)
        if conversation is not None:
            record.conversation_id = conversation
        return self._launch(record, choice, executor, ask, prompt)

    async def _conversation_after(self, after: str | AgentRun) -> tuple[str, str]:
        """Return the conversation of a run, or a branch of it where it has gone on since, and what its models saw."""
        store = self._store()
        run_id = after.run_id if isinstance(after, AgentRun) else after
        record = RunRecord.from_dict(await store.run(run_id))
        if record.state in {"running", "pending"}:
            raise InvalidArguments(
                f"the run {record.run_id} is {record.state}.",
                hint="Resume or cancel it first.",
                tried="going on after it",
            )
        known = await store.read_record(record.conversation_id)
        if known is None or record.ended_with in {None, known.head_id}:
            return record.conversation_id, record.options.share
        branch = await store.fork(record.conversation_id, from_entry=record.ended_with)
        return branch.conversation_id, record.options.share

    async def _start_again(
        self,
        run: str | AgentRun,
        answers: Any,
        settings: ResumeSettings,
    ) -> AgentRun:
        self._check_open()
        run_id = run.run_id if isinstance(run, AgentRun) else run
        record = RunRecord.from_dict(await self._store().run(run_id))
        tried = f"resuming the run {record.run_id}"
        live = self._live.get(record.run_id)
        is_running = record.status == "running" and (
            live.status == "running" if live is not None else is_alive(record.owner) and record.owner != this_process()
        )
        if record.status == "done" or is_running:
            told = "it is done" if record.status == "done" else f"it runs in process {record.owner.get('pid')}"
            raise InvalidArguments(f"{told}.", hint="Start another one with after=.", tried=tried)
        replies = _replies(answers, [item["id"] for item in record.pending], tried)
        if (budgets := settings.get("budgets")) is not None:
            given = {k: v for k, v in dataclasses.asdict(record.ledger.budgets).items() if k not in budgets}
            record.ledger.budgets = Budgets.of({**given, **budgets})
        model = settings.get("model") or record.asked_as
        choice = choose_model(model, self._host.models)
        if choice.name != record.model or "share" in settings:
            share = level_after(settings.get("share"), choice, record.options.share)
            record.options = dataclasses.replace(record.options, share=share)
        record.model, record.label = choice.name, _label(choice)
        record.asked_as = model if isinstance(model, str) else choice.name
        _check_price(choice, record.ledger.budgets)
        executor = await aio.in_thread(self._executor, record.options, settings.get("approver"), settings.get("ask"))
        record.status, record.owner, record.error, record.ended_at = "running", this_process(), None, None
        return self._launch(record, choice, executor, settings.get("ask"), None, replies)

    def _executor(self, options: RunOptions, given: LocalExecutor | Approver | None, ask: Ask | None) -> LocalExecutor:
        """Return who performs the calls: with the tools that are offered, and no others."""
        behind = given if isinstance(given, LocalExecutor) else self._host.executor(given)
        chosen = behind.tools().select(*options.tools)
        if options.read_only or options.plan:
            chosen = Registry(tool for tool in chosen.values() if tool.effects.read_only)
        own = [tool_of(function) for function in OWN_TOOLS if ask is not None or function is not ask_user]
        door = behind.door.but()
        door.grants = self._grants
        return LocalExecutor(chosen.without(*(t.name for t in own if t.name in chosen)).with_tool(*own), door=door)

    def _launch(
        self,
        record: RunRecord,
        choice: ModelChoice,
        executor: LocalExecutor,
        ask: Ask | None,
        prompt: str | None,
        answers: Mapping[str, Reply] | None = None,
    ) -> AgentRun:
        from nbtools.agent.loop import RunLoop

        run = AgentRun(record)
        loop = aio.loop()
        model = _build(choice, record.options)
        playing = RunLoop(
            record, store=self._store(), model=model, executor=executor, ask=ask, emit=run.take, answers=answers
        )
        run.follow(cancel=playing.cancel, say=lambda text: loop.call_soon_threadsafe(playing.say, text))
        self._live[record.run_id] = run

        async def play() -> None:
            facts = {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": record.model}
            try:
                with span("invoke_agent nbtools", run=record.run_id, label=record.label, **facts) as timed:
                    await playing.play(prompt)
                    timed.facts |= {"status": record.status, **record.ledger.counts()}
                    timed.outcome = record.error["code"] if record.error else timed.outcome
            finally:
                run.end()

        task = loop.create_task(play())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run


def _build(choice: ModelChoice, options: RunOptions) -> Any:
    if choice.provider != SCRIPTED:
        return choice.build()
    from nbtools.agent.models.scripted import Script, scripted_model

    if options.script is None:
        raise ConfigMissing("the model is scripted, and there is no script.", hint="Give one: script='turns.yaml'.")
    return scripted_model(Script(options.script))


def _label(choice: ModelChoice) -> str:
    return "scripted (no LLM)" if choice.provider == SCRIPTED else ""


def _check_price(choice: ModelChoice, budgets: Budgets) -> None:
    if budgets.usd is not None and choice.provider != SCRIPTED and not choice.has_price:
        raise ConfigInvalid(
            f"a budget of money cannot be held: {choice.name} has no known price.",
            hint="Give a budget of tokens instead.",
            tried="starting an agent",
        )


def _options(given: Mapping[str, Any]) -> RunOptions:
    """Return the options of a run; a script may be a path or the text itself."""
    made = {name: value for name, value in given.items() if value is not None}
    for name in ("tools", "instructions"):
        if name in made:
            made[name] = (made[name],) if isinstance(made[name], str) else tuple(made[name])
    if "script" in made:
        made["script"] = _script_text(made["script"])
    return RunOptions(**made)


def _script_text(given: str | Path) -> str:
    from nbtools.agent.models.scripted import Script, read_script

    is_text = isinstance(given, str) and "\n" in given
    text, name = (str(given), "the script") if is_text else (read_script(given), str(given))
    Script(text, name)  # mistakes are told before anything runs
    return text


def _replies(answers: Any, waiting: Sequence[str], tried: str) -> dict[str, Reply]:
    """Return the replies to calls that wait, by their ids."""
    if answers is None:
        return {}
    if not isinstance(answers, Mapping):
        answers = dict.fromkeys(waiting, answers)
    for name in answers:
        if name not in waiting:
            hint = f"Those that wait are {', '.join(waiting) or 'none'}."
            raise InvalidArguments(f"no call {name!r} waits for an answer.", hint=hint, tried=tried)
    return {name: Reply.of("once" if said is True else said) for name, said in answers.items()}
