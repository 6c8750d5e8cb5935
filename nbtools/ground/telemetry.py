"""Spans: how long each thing took, with facts, and without secrets.

`span` is the only way to make one. Every finished span goes to a bounded in-memory recorder (`recent`), and, once
`connect_opentelemetry` was called, to a private OpenTelemetry tracer as well. The provider is private because a
process may have a global one already, and then each span would be seen twice. Names follow the semantic conventions
for generative AI where they exist (``execute_tool NAME``), else ``tool.memory.view`` and the like.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import os
import random
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from nbtools.errors import NbtoolsError
from nbtools.ground.lazy import need
from nbtools.texts.redaction import conceal, conceal_start

_KEPT = 2_000
_MAX_SAID = 4_000
# OpenTelemetry's own is 10 s, and a process without a collector would end that much later.
_OTLP_S = 3.0


@dataclasses.dataclass(kw_only=True, slots=True)
class Span:
    """One timed piece of work.

    Attributes
    ----------
    name
        What was done, such as ``"execute_tool data_analyze"``.
    trace_id
        Id that all spans of one call tree share, 32 hexadecimal digits.
    span_id
        Id of this span, 16 hexadecimal digits.
    parent_id
        Id of the span around it; `None` for the outermost.
    started_at
        Seconds since the epoch.
    duration_s
        Seconds; 0 while the span is open.
    facts
        What is worth knowing, values being strings, numbers or booleans; more may be added while the span is open.
    outcome
        ``"ok"``, or the error's code or class name.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    started_at: float
    duration_s: float = 0.0
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    outcome: str = "ok"


class _Recorder:
    """The finished spans of this process, newest last, and the OpenTelemetry tracer when there is one."""

    def __init__(self) -> None:
        self.spans: collections.deque[Span] = collections.deque(maxlen=_KEPT)
        self.tracer: Any = None
        self.sends_otlp = False
        self.trace: ModuleType | None = None


_RECORDER = _Recorder()
# Seeded by the system and apart from the generator that users may seed. Asking the system for each id would let go of
# the interpreter's lock, and getting it back from busy threads takes longer than a whole call.
_IDS = random.Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDS.seed)
_CURRENT: contextvars.ContextVar[Span | None] = contextvars.ContextVar("nbtools_span", default=None)


def fresh_id(digits: int = 16) -> str:
    """Return an id that nothing else has: random hexadecimal digits. It is not a secret."""
    return f"{_IDS.getrandbits(4 * digits):0{digits}x}"


@contextlib.contextmanager
def span(name: str, **facts: Any) -> Iterator[Span]:
    """Time a piece of work; spans opened inside become its children.

    An exception is recorded as the outcome and raised on.

    Examples
    --------
    >>> with span("tool.memory.view", path="/memories/a") as s:
    ...     s.facts["lines"] = 3
    >>> recent(1)[0].facts["lines"]
    3
    """
    parent = _CURRENT.get()
    current = Span(
        name=name,
        trace_id=parent.trace_id if parent else fresh_id(32),
        span_id=fresh_id(),
        parent_id=parent.span_id if parent else None,
        started_at=time.time(),
        facts=facts,
    )
    token = _CURRENT.set(current)
    begun = time.perf_counter()
    try:
        with contextlib.nullcontext() if _RECORDER.tracer is None else _mirror(current):
            try:
                yield current
            except BaseException as exc:
                current.outcome = exc.code if isinstance(exc, NbtoolsError) else type(exc).__name__
                raise
    finally:
        _CURRENT.reset(token)
        current.duration_s = time.perf_counter() - begun
        _RECORDER.spans.append(current)


@contextlib.contextmanager
def _mirror(current: Span) -> Iterator[None]:
    """Repeat a span for OpenTelemetry."""
    trace = _RECORDER.trace
    assert trace is not None, "it is connected together with the tracer"
    # OpenTelemetry would record exceptions with their texts, in which a secret may stand.
    quiet = {"record_exception": False, "set_status_on_exception": False}
    with _RECORDER.tracer.start_as_current_span(current.name, **quiet) as other:
        context = other.get_span_context()
        current.trace_id, current.span_id = f"{context.trace_id:032x}", f"{context.span_id:016x}"
        status_text = None
        try:
            yield
        except BaseException as exc:
            status_text = conceal_start(str(exc), _MAX_SAID)
            raise
        finally:
            for key, value in {**conceal(current.facts), "outcome": current.outcome}.items():
                other.set_attribute(key, value if isinstance(value, str | int | float | bool) else str(value))
            if current.outcome != "ok":
                # An expected failure is a result and no exception, and yet an error to a reader of the traces.
                other.set_attribute("error.type", current.outcome)
                other.set_status(trace.Status(trace.StatusCode.ERROR, status_text))


def recent(n: int | None = None) -> list[Span]:
    """Return the last finished spans of this process, oldest first; `None` returns all that are kept (2,000)."""
    # Few spans are ever read: what they tell loses its secrets then, and not in every call.
    spans = list(_RECORDER.spans)[0 if n is None else -n :]
    return [dataclasses.replace(one, facts=conceal(one.facts)) for one in spans]


def connect_opentelemetry(exporter: Any = None) -> None:
    """Send spans to OpenTelemetry too, through a tracer provider of nbtools' own.

    What has not been sent is sent when the process ends.

    Parameters
    ----------
    exporter
        A span exporter; `None` makes the OTLP exporter over HTTP, which reads ``OTEL_EXPORTER_OTLP_ENDPOINT`` and its
        like; done once, however often it is asked for. The service is called ``nbtools`` unless ``OTEL_SERVICE_NAME``
        says otherwise.

    Raises
    ------
    MissingExtra
        The extra ``otel`` is not installed.
    """
    why = "Sending spans to OpenTelemetry"
    if exporter is None and _RECORDER.sends_otlp:
        return
    sdk = need("opentelemetry.sdk.trace", extra="otel", why=why)
    resources = need("opentelemetry.sdk.resources", extra="otel", why=why)
    export = need("opentelemetry.sdk.trace.export", extra="otel", why=why)
    if exporter is None:
        otlp = need("opentelemetry.exporter.otlp.proto.http.trace_exporter", extra="otel", why=why)
        timeout = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT") or os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT")
        exporter = otlp.OTLPSpanExporter(timeout=None if timeout else _OTLP_S)
        processor = export.BatchSpanProcessor(exporter)
        _RECORDER.sends_otlp = True
    else:
        processor = export.SimpleSpanProcessor(exporter)
    name = os.environ.get("OTEL_SERVICE_NAME") or "nbtools"
    provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": name}))
    provider.add_span_processor(processor)
    _RECORDER.trace = need("opentelemetry.trace", extra="otel", why=why)
    _RECORDER.tracer = provider.get_tracer("nbtools")
