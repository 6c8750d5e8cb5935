"""The one door: every call of every face goes through `Door.admit`.

In this order: prepare the call (validate, fill in, follow paths) → gate (policy, approval) → limits (timeout, output
size) → written down as started, where it may change something and its caller keeps a journal → run → span → record →
written down as ended → result. Whether the tool is enabled for the caller is the executor's question, asked
before. An expected failure is a result, never an exception, unless the tool's ``on_error`` is ``"fail"``.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import dataclasses
import functools
import inspect
import itertools
import json
import math
import operator
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

from nbtools.contract.approval.approval_request import ApprovalRequest
from nbtools.contract.approval.gate import ACTIONS, Approver, Grants, Nobody, Reply, Rule, decide, is_yes
from nbtools.contract.approval.label_rules import Marks, of_call
from nbtools.contract.failures import error_of, failure, fault_of, refusal
from nbtools.contract.label import LABEL_NOW, SEEN_NOW, UNLABELLED, WORDLESS, Label, join
from nbtools.contract.prepared import PreparedCall, prepare
from nbtools.contract.record import CallRecord, CallRecorder
from nbtools.contract.result import Output, ToolResult
from nbtools.contract.tool import READ_BY_MODELS, Context, Services, Tool, ToolCall
from nbtools.contract.wire.json_values import JsonValues, too_large
from nbtools.contract.wire.plain_returns import ArtifactFolder, output_of
from nbtools.errors import (
    ApprovalDenied,
    ApprovalPending,
    CallTimeout,
    Cancelled,
    InvalidArguments,
    NbtoolsError,
    PermissionDenied,
)
from nbtools.ground.aio import in_thread, watched
from nbtools.ground.telemetry import fresh_id, span
from nbtools.texts.redaction import RedactedOutput, redact

_DATA = frozenset({str, int, float, bool, type(None), dict, list})
_MAX_TIMEOUT = 7 * 86_400.0
_CHANGED = "The approver of this call changed its arguments. It ran with "
# The call whose tool runs, who is asked for it, and the labels of what it has read: what it calls in turn, by whatever
# way, is called for the same caller.
_RUNNING: contextvars.ContextVar[tuple[ToolCall, Approver, list[Label]] | None] = contextvars.ContextVar(
    "nbtools_call", default=None
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallLimits:
    """What every call is held to.

    Attributes
    ----------
    timeout
        Seconds a call may take when neither the tool nor the call says otherwise. It is counted from the start of the
        tool: while someone is asked for approval, no time runs out, no matter who set it.
    grace
        Seconds on top of a tool's own ``timeout`` argument before the door cancels it. A tool counts its time from when
        its work begins, and the first kernel of a loaded machine takes long to start; and it is given the chance to
        end its work in order and to keep what it has.
    output_bytes
        Size of the data, and of the text, which may repeat what is in the data: characters, escapes not counted.
    approval
        Seconds for which a yes holds that is to hold for more than one call, or that is given to a call which waits.
    """

    timeout: float = 600.0
    grace: float = 60.0
    output_bytes: int = 8 * 2**20
    approval: float = 86_400.0


def _with(*layers: Services | None) -> collections.ChainMap[type, Callable[[], Any]]:
    """Return a mapping that can be added to, and finds what is given, the first ones first."""
    chains = (services for services in layers if services is not None)
    maps = (chain.maps if isinstance(chain, collections.ChainMap) else [chain] for chain in chains)
    return collections.ChainMap({}, *cast("Any", itertools.chain.from_iterable(maps)))


class Door:
    """Validates, asks, limits, runs, times and records calls.

    Parameters
    ----------
    services
        Type to the function that returns the instance a tool gets from ``ctx.use(type)``.
    model_services
        The same, in place of those above where a model calls.
    rules
        Policy of the gate, before the defaults.
    approver
        Who answers when the gate asks; `None` means nobody, and then such calls are denied.
    recorder
        Keeps the records; `None` makes one that keeps them in memory.
    limits
        See `CallLimits`.
    """

    def __init__(
        self,
        *,
        services: Services | None = None,
        model_services: Services | None = None,
        rules: Iterable[Rule] = (),
        approver: Approver | None = None,
        recorder: CallRecorder | None = None,
        limits: CallLimits | None = None,
    ) -> None:
        # Kept as they are given, and not copied: naming all classes would import all that a call may use.
        self.services = _with(services)
        self.model_services = _with(model_services)
        self.for_models = _with(self.model_services, self.services)
        self.rules = tuple(rules)
        self.approver: Approver = approver or Nobody()
        self.recorder = recorder or CallRecorder()
        self.limits = limits or CallLimits()
        self.grants = Grants(self.limits.approval)
        self.run_id = fresh_id()

    def but(
        self, *, services: Services | None = None, approver: Approver | None = None, rules: Iterable[Rule] = ()
    ) -> Door:
        """Return a door with the same record, with more services, another approver, or rules behind those it has."""
        return Door(
            services=_with(services, self.services),
            model_services=self.model_services,
            rules=(*self.rules, *rules),
            approver=approver or self.approver,
            recorder=self.recorder,
            limits=self.limits,
        )

    async def admit(self, tool: Tool, call: ToolCall, perform: Callable[[ToolCall], Any] | None = None) -> ToolResult:
        """Perform a call of a tool; an expected failure is in the result.

        Parameters
        ----------
        tool
            What is called.
        call
            The call, arguments not validated yet.
        perform
            How the tool may call other tools: an executor's ``acall``.
        """
        started_at, begun = time.time(), time.perf_counter()
        context: Context | None = None
        call = own if (own := self._begun(call)).parent_id is None else await self._within(own)
        facts = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool.name, "caller": call.caller}
        with span(f"execute_tool {tool.name}", **facts, **{"gen_ai.tool.call.id": call.call_id}) as timed:
            try:
                services = self.for_models if call.by_model else self.services
                call = call if call.own_sessions is None else await call.own_sessions(tool, call)
                prepared = await prepare(tool, call, services, reads=any(rule.arguments for rule in self.rules))
                call = prepared.call
                prepared = await self._gate(prepared, services)
                call = prepared.call
                context = Context(
                    call=call,
                    services=services,
                    timeout=self._timeout(prepared),
                    perform=perform,
                    judge=functools.partial(self._judge_other, prepared),
                    effects=prepared.effects,
                )
                # Before the eyes of the call's witnesses, where it may change something.
                run: Callable[[Context], Awaitable[ToolResult]] = functools.partial(self._run, prepared)
                for witness in () if prepared.effects.read_only else call.witnesses:
                    run = functools.partial(witness, tool, prepared.values, run)
                result = await run(context)
            except ApprovalPending as exc:
                self.recorder.running.discard(call.call_id)  # it is recorded when it has run, or was refused
                return failure(call, exc)
            except NbtoolsError as exc:
                result = refusal(call, exc) if context is None else failure(call, exc)
            except BaseException as exc:
                if _is_cancelled(exc):
                    self._keep(call, failure(call, Cancelled("the call was cancelled.")), started_at, begun)
                    raise
                # Whatever else goes wrong, such as an approver's own fault, ends one call and no conversation.
                result = failure(call, fault_of(tool, exc))
            timed.facts["ok"] = result.ok
            timed.outcome = result.error.code if result.error else timed.outcome
        if context is not None and not result.ok:
            result = await self._labelled(prepared, context, result)
        if call.approval is not None:
            result = _with_changes_told(result, call.approval)
        if context is not None and context.recorded:
            call = call.but(arguments={**call.arguments, **context.recorded})
        result = self._keep(call, result, started_at, begun)
        if call.journal is not None:
            await call.journal.ended(call.call_id, result)
        return result if tool.on_error == "continue" else result.raise_for_error()

    def refuse(self, call: ToolCall, error: NbtoolsError) -> ToolResult:
        """Return, and record, the result of a call that names no tool it may use."""
        call = self._begun(call)
        return self._keep(call, refusal(call, error), time.time(), time.perf_counter())

    async def _labelled(self, prepared: PreparedCall, context: Context, result: ToolResult) -> ToolResult:
        """Return the result of a call that failed with its label."""
        label = join((of_call(prepared), *context.seen))
        if (marks := self._marks(context)) is not None:
            label = await in_thread(marks.after, result, label, context.call.label)
        return result.but(label=label)

    def _marks(self, context: Context) -> Marks | None:
        """Return what knows strangers' files and notes, where a model may read what a call gives or wrote the call."""
        call, effects = context.call, context.effects
        is_read = call.caller in READ_BY_MODELS or call.label.strangers or call.label.private
        is_public = effects is not None and effects.public
        return None if is_public or not is_read or Marks not in context.services else context.use(Marks)

    def _keep(self, call: ToolCall, result: ToolResult, started_at: float, begun: float) -> ToolResult:
        finished = result.but(duration_s=time.perf_counter() - begun)
        self.recorder.append(CallRecord.from_result(call, finished, started_at))
        self.recorder.running.discard(call.call_id)
        if finished.label.strangers:
            self.recorder.values |= Label(strangers=True)  # whose source is not that of every later value
        if (outer := _RUNNING.get()) is not None:
            outer[2].append(finished.label)  # the call around it has read it too
        return finished

    def _begun(self, call: ToolCall) -> ToolCall:
        """Return a call with its run; one that a tool makes belongs to the tool's own call and to its caller."""
        self.recorder.running.add(call.call_id)
        if call.approval is not None:
            call = call.but(approval=None)  # the door alone says how a call was approved
        running = _RUNNING.get()
        if running is None:
            return call if call.run_id is not None else call.but(run_id=self.run_id)
        outer = running[0]
        whose: dict[str, Any] = {"label": join((call.label, outer.label, *running[2])), "hosts": outer.hosts}
        if outer.by_model:
            whose |= {"caller": outer.caller, "session": outer.session}
        if outer.witnesses:
            whose["witnesses"] = tuple(dict.fromkeys((*outer.witnesses, *call.witnesses)))
        if outer.own_sessions is not None:
            whose["own_sessions"] = outer.own_sessions
        return call.but(parent_id=call.parent_id or outer.call_id, run_id=call.run_id or outer.run_id, **whose)

    async def _within(self, call: ToolCall) -> ToolCall:
        """Return a call with the label of what the code that makes it has read, by whatever way."""
        if call.caller not in READ_BY_MODELS or Marks not in self.for_models:
            return call
        marks = self.for_models[Marks]()
        return call.but(label=call.label | await in_thread(marks.so_far, call.parent_id or ""))

    async def _gate(self, prepared: PreparedCall, services: Services) -> PreparedCall:
        """Return the call that may run: as it was asked, or with the changes of who approved it.

        Raises
        ------
        PermissionDenied
            The policy says no.
        ApprovalDenied
            It was asked for, and the answer was anything but a yes.
        ApprovalPending
            The answer was "later".
        InvalidArguments
            The changes do not fit.
        """
        decision = decide(self.rules, prepared)
        if decision.action == "allow" or (
            decision.action == "ask" and self.grants.covers(prepared, by_label=decision.by_label)
        ):
            return prepared
        name = prepared.tool.name
        if decision.action == "deny":
            raise PermissionDenied(
                f"{name} may not run: {decision.reason}.", hint="Change the policy in nbtools.toml to allow it."
            )
        outer, approver = _RUNNING.get(), self.approver
        if outer is not None and outer[0].by_model:
            if decision.by_label and outer[0].approval is not None and outer[0].label == prepared.call.label:
                return prepared  # a part of what was said yes to, and nothing was seen since
            # Who was asked for the call that makes this one.
            approver = outer[1] if isinstance(approver, Nobody) else approver
        request = await self.request(prepared, services, decision.reason)
        reply = Reply.of(await approver.approve(request))
        if reply.answer == "later":
            waits = {"digest": request.seal, "asked": request.text()}
            raise ApprovalPending(f"{name} waits for approval; it has not run.", data=waits)
        if not is_yes(reply.answer):
            nobody = isinstance(approver, Nobody)
            why = (
                approver.why
                if isinstance(approver, Nobody)
                else f"the answer was no{reply.reason and f': {reply.reason}'}"
            )
            raise ApprovalDenied(
                f"{name} needs approval, and {why}{'' if why.endswith('.') else '.'}",
                hint="Run it where someone can be asked, or allow it in the policy." if nobody else None,
            )
        if (
            reply.arguments is None
            and (await ApprovalRequest.of(prepared, services, decision.reason)).seal != request.seal
        ):
            # With changes of the person the seal is another one anyway, and these were looked up a moment ago.
            why = f"{name} has not run: what it names or would change has changed while it was asked for."
            raise ApprovalDenied(why, hint="Propose it again.")
        return await self._approved(request, reply, services, by_label=decision.by_label)

    async def request(self, prepared: PreparedCall, services: Services, reason: str) -> ApprovalRequest:
        """Return what is asked for a call: what it would change is looked up once, for anyone who is asked."""

        async def changed(arguments: Mapping[str, Any]) -> ApprovalRequest:
            edited = await self._with_changes(prepared, services, arguments)
            return await ApprovalRequest.of(edited, services, reason, changed=changed)

        return await ApprovalRequest.of(prepared, services, reason, changed=changed)

    async def _approved(
        self, request: ApprovalRequest, reply: Reply, services: Services, *, by_label: bool
    ) -> PreparedCall:
        """Return the call of a yes, which tells how it was approved; changes are validated like any arguments."""
        prepared, parts = request.prepared, [part["title"] for part in request.shown_parts()]
        approval = {
            "answer": reply.answer,
            "by": reply.by,
            "at": time.time(),
            "proposed": dict(prepared.call.arguments),
        }
        approval["parts"] = parts
        edited = prepared if reply.arguments is None else await self._with_changes(prepared, services, reply.arguments)
        if edited.digest != prepared.digest:
            approval["changed"] = dict(edited.call.arguments)
        self.grants.remember(edited, reply.answer, by_label=by_label)
        return dataclasses.replace(edited, call=edited.call.but(approval=approval))

    async def _with_changes(
        self, prepared: PreparedCall, services: Services, arguments: Mapping[str, Any]
    ) -> PreparedCall:
        """Return a call as it would run with other arguments, if the rules do not deny that."""
        edited = await prepare(prepared.tool, prepared.call.but(arguments=dict(arguments)), services)
        if edited.digest != prepared.digest and (decision := decide(self.rules, edited)).action == "deny":
            raise PermissionDenied(f"{prepared.tool.name} may not run with these changes: {decision.reason}.")
        return edited

    def _judge_other(self, prepared: PreparedCall, arguments: Mapping[str, Any]) -> None:
        """Return when no rule is stricter with other arguments of a call that may run."""
        before, after = decide(self.rules, prepared), decide(self.rules, prepared.with_arguments(arguments))
        if ACTIONS.index(after.action) > ACTIONS.index(before.action):
            changed = ", ".join(f"{name}={value}" for name, value in arguments.items())
            raise PermissionDenied(f"{prepared.tool.name} may not continue with {changed}: {after.reason}.")

    def _timeout(self, prepared: PreparedCall) -> float:
        """Return the seconds after which the door cancels the call."""
        call = prepared.call
        if call.timeout is not None:
            if not 0 < call.timeout <= _MAX_TIMEOUT:
                raise InvalidArguments(
                    f"timeout: {call.timeout!r} is not a time above 0 and up to {_MAX_TIMEOUT:g} seconds."
                )
            return float(call.timeout)
        own = prepared.values.get("timeout")
        if isinstance(own, int | float) and math.isfinite(own):
            # The tool ends its work by itself at that time, and says more about it than a cancellation could.
            return own + self.limits.grace
        return prepared.tool.timeout or self.limits.timeout

    async def _run(self, prepared: PreparedCall, context: Context) -> ToolResult:
        """Run the tool within its time; what it shows meanwhile is without secrets."""
        call, timeout = context.call, context.timeout
        if call.journal is not None and not prepared.effects.read_only:
            await call.journal.started(call.call_id)
        output = None if call.on_output is None else RedactedOutput(call.on_output)
        if output is not None:
            call = call.but(on_output=output)
            context = dataclasses.replace(context, call=call)

        marks = self._marks(context)

        def label_now() -> Label:
            files = UNLABELLED if marks is None else marks.so_far(call.call_id)
            return join((call.label, *context.seen, files))

        running = _RUNNING.set((call, self.approver, context.seen))
        self.recorder.begin(call)
        label, seen = LABEL_NOW.set(label_now), SEEN_NOW.set(None if marks is None else context.seen)
        try:
            async with asyncio.timeout(timeout) as clock:
                return await self._perform(prepared, context, marks)
        except Cancelled as exc:
            if clock.expired():
                raise _too_long(timeout, exc.data) from None
            raise
        except TimeoutError as exc:
            if clock.expired() and not isinstance(exc, NbtoolsError):
                raise _too_long(timeout) from None
            raise
        finally:
            self.recorder.begun.pop(call.call_id, None)
            _RUNNING.reset(running)
            LABEL_NOW.reset(label)
            SEEN_NOW.reset(seen)
            if output is not None:
                output.end()

    async def _perform(self, prepared: PreparedCall, context: Context, marks: Marks | None) -> ToolResult:
        """Let the tool work, in a thread unless it is made for the loop.

        What it is about to write of strangers' texts is known as that before it is there.
        """
        tool = prepared.tool

        def perform() -> ToolResult | Awaitable[Any]:
            if marks is not None and (named := marks.before(prepared)):
                context.seen.append(named)
            returned = tool.invoke(prepared.values, context)
            # A large result is made plain where it was made, so that it holds up nobody.
            return returned if inspect.isawaitable(returned) else self._result(prepared, context, marks, returned)

        is_quick = tool.is_async and marks is None
        try:
            output = perform() if is_quick else await in_thread(perform)
            if isinstance(output, ToolResult):
                return output
            with watched(tool.name):
                returned = await output
            work = functools.partial(self._result, prepared, context, marks, returned)
            return work() if is_quick else await in_thread(work)
        except BaseException:
            if marks is not None:
                await in_thread(_mark_written, marks, prepared, context)
            raise

    def _result(self, prepared: PreparedCall, context: Context, marks: Marks | None, returned: Any) -> ToolResult:
        """Make the result of what a tool returned, within the size limit and without secrets; see what it shows."""
        call = context.call
        error = error_of(returned) if isinstance(returned, ToolResult) else None
        output: Output[Any] | ToolResult = returned
        if type(returned) in _DATA:
            output = Output(data=returned)
        elif not isinstance(returned, Output | ToolResult):
            folder = context.use(ArtifactFolder) if ArtifactFolder in context.services else ArtifactFolder()
            output = output_of(returned, f"{prepared.tool.name}-{call.call_id[:8]}", folder)
        data, text = output.data, output.text
        for content in (data, text):
            if isinstance(content, str) and len(content) > self.limits.output_bytes:
                raise too_large(f"{len(content):,}", self.limits.output_bytes, content)
        conversion = JsonValues(self.limits.output_bytes)
        data = redact(conversion.of(data))
        value = output.data if conversion.note and output.value is None else output.value
        # A tool's own words and tables say such numbers themselves.
        note = conversion.note if text is None else ""
        is_bare = text is None and output.value is None and not output.artifacts
        has_words = error is not None or not (is_bare and isinstance(data, WORDLESS))
        if text is None:
            # What is read is the data itself where the tool has no words itself: JSON, but a text as it is.
            as_text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, allow_nan=False)
            text = f"{as_text}\n({note})" if note else "done" if data is None else as_text
        result = ToolResult(
            ok=error is None,
            tool=call.tool,
            call_id=call.call_id,
            data=data,
            text=redact(text),
            error=error,
            artifacts=output.artifacts,
            said_by_door=note,
            value=value,
            label=functools.reduce(operator.or_, context.seen, of_call(prepared, has_words=has_words)),
        )
        if marks is None:
            return result
        label = marks.after(result, result.label, call.label)
        if label != result.label:
            context.seen.append(label)
            result = result.but(label=label)
        # In the thread where it is already: each way to another one costs the loop a turn.
        _mark_written(marks, prepared, context)
        return result


def _mark_written(marks: Marks, prepared: PreparedCall, context: Context) -> None:
    """Mark what a call wrote; harmless when repeated."""
    if not prepared.effects.read_only:
        marks.ended(prepared, join((of_call(prepared), context.call.label, *context.seen)))


def running_label() -> Label:
    """Return the label of the call that runs here, with what it has read."""
    running = _RUNNING.get()
    return UNLABELLED if running is None else join((running[0].label, *running[2]))


def _too_long(seconds: float | None, data: Mapping[str, Any] | None = None) -> CallTimeout:
    hint = "Allow more time with timeout, or do less at once."
    # What the tool says of its end, such as that threads were still running.
    notes = "".join(f"; {note}" for note in (data or {}).get("notes", ()))
    return CallTimeout(f"timed out after {seconds:g} s{notes}", hint=hint, data=data)


def _is_cancelled(exc: BaseException) -> bool:
    """Tell whether someone cancels the call; a tool may raise the same error of its own accord."""
    task = asyncio.current_task()
    return isinstance(exc, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _with_changes_told(result: ToolResult, approval: Mapping[str, Any]) -> ToolResult:
    """Return a result that says what the approver of the call changed, if they did."""
    changed = approval.get("changed")
    if not changed:
        return result
    note = f"{_CHANGED}{json.dumps(redact(changed), ensure_ascii=False, default=repr)}"
    # What someone wrote in its place may be a value that not every model may see.
    names = ", ".join(name for name, value in changed.items() if approval["proposed"].get(name) != value)
    by_door = f"The approver of this call changed its arguments: {names or 'some were left out'}."
    return result.but(text=f"{note}\n{result.text}", said_by_door=by_door)
