"""Spans over OTLP, sent to a collector on loopback that reads them by OpenTelemetry's own message types."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes

WORK = """
    from nbtools.assembly.workbench import Workbench

    with Workbench(otel=True, memory_url=":memory:") as bench, Workbench(otel=True, memory_url=":memory:"):
        assert bench.call("calculator", {"expression": "6*7"}).ok
        assert not bench.call("calculator", {"expression": "9**9**9"}).ok
        assert bench.call("memory", {"command": "create", "path": "/memories/a", "file_text": "sk-12345678"}).ok
        assert bench.call("sql_query", {"query": "select 1 as a"}).ok
    print("done")
"""


class Collector(ThreadingHTTPServer):
    """Keeps the spans that are sent to it, each with its resource and its scope."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.bodies: list[bytes] = []
        self.paths: list[str] = []

    def spans(self) -> dict[str, list[Any]]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found: dict[str, list[Any]] = {}
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        found.setdefault(span.name, []).append((span, scope.scope.name, resource.resource.attributes))
        return found


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.headers["Content-Type"] == "application/x-protobuf"
        self.server.paths.append(self.path)
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def work(endpoint: str, home: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "NBTOOLS_HOME": str(home), "MY_API_KEY": "sk-12345678"}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WORK)],
        capture_output=True,
        text=True,
        timeout=120,
        env={name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | given | settings,
        cwd=home,
    )


def told(attributes: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in attributes}


def test_a_collector_receives_every_call_once_with_its_story(collector: Collector, tmp_path: Path) -> None:
    done = work(f"http://127.0.0.1:{collector.server_port}", tmp_path)
    assert done.stdout == "done\n", done.stderr
    assert set(collector.paths) == {"/v1/traces"}
    spans = collector.spans()

    right, wrong = (span for span, _, _ in spans["execute_tool calculator"])
    facts = told(right.attributes)
    assert facts["gen_ai.operation.name"] == "execute_tool"
    assert facts["gen_ai.tool.name"] == "calculator"
    assert (facts["caller"], facts["ok"], facts["outcome"]) == ("python", True, "ok")
    assert right.end_time_unix_nano > right.start_time_unix_nano
    assert right.status.code == 0

    assert told(wrong.attributes)["error.type"] == "LIMIT_EXCEEDED"
    assert wrong.status.code == 2, "a failed call is an error in the traces, though it raises nothing"

    ((call, _, _),) = spans["execute_tool memory"]
    ((inside, scope, resource),) = spans["tool.memory.create"]
    assert inside.trace_id == call.trace_id
    assert inside.parent_span_id == call.span_id
    assert told(inside.attributes)["path"] == "/memories/a"
    assert scope == "nbtools"
    assert told(resource)["service.name"] == "nbtools"
    assert spans["sql.query"][0][0].parent_span_id == spans["execute_tool sql_query"][0][0].span_id
    assert not any(b"sk-12345678" in body for body in collector.bodies)


@pytest.mark.slow
def test_the_service_may_be_called_otherwise(collector: Collector, tmp_path: Path) -> None:
    done = work(f"http://127.0.0.1:{collector.server_port}", tmp_path, OTEL_SERVICE_NAME="my notebook")
    assert done.stdout == "done\n", done.stderr
    ((_, _, resource), *_) = collector.spans()["execute_tool calculator"]
    assert told(resource)["service.name"] == "my notebook"


def test_without_a_collector_calls_work_all_the_same(tmp_path: Path) -> None:
    done = work("http://127.0.0.1:9", tmp_path, OTEL_EXPORTER_OTLP_TIMEOUT="1")
    assert done.stdout == "done\n", done.stderr
    assert done.returncode == 0
