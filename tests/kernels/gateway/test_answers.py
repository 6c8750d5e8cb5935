"""What a gateway is told to be when what answers there is something else: a real server, with the wrong answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from nbtools.errors import HttpError, LanguageUnavailable, NbtoolsError, NetworkError
from nbtools.ground import aio
from nbtools.kernels import KernelOptions
from nbtools.kernels.gateway.kernel import GatewayBackend

pytest.importorskip("websocket")
pytestmark = pytest.mark.processes
_SPECS = {"default": "python3", "kernelspecs": {"python3": {"spec": {"language": "python"}}}}
Serve = Callable[[dict[str, tuple[int, Any]]], GatewayBackend]


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def serve(asked: list[str]) -> Iterator[Serve]:
    """Return a function that makes a server with these answers, and a backend for it."""
    running: list[tuple[ThreadingHTTPServer, GatewayBackend]] = []

    def start(answers: dict[str, tuple[int, Any]]) -> GatewayBackend:
        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                request = f"{self.command} {self.path.partition('?')[0]}"
                asked.append(request)
                status, body = answers.get(request, (404, {"message": "nothing here"}))
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - named by the base class

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()

        async def connect() -> GatewayBackend:
            return GatewayBackend(f"http://127.0.0.1:{server.server_port}")

        running.append((server, aio.run(connect())))
        return running[-1][1]

    yield start
    for server, backend in running:
        aio.run(backend.close())
        server.shutdown()
        server.server_close()


def _refusal(backend: GatewayBackend, language: str = "python") -> NbtoolsError:
    with pytest.raises(NbtoolsError) as caught:
        aio.run(backend.open(KernelOptions(language=language, sandbox="off")), timeout=60)
    return caught.value


@pytest.mark.parametrize("body", ["<html>A page</html>", ["a list"], {"kernelspecs": {"python3": {}}}, {}])
def test_what_is_not_a_jupyter_server_is_called_that(serve: Serve, body: Any) -> None:
    error = _refusal(serve({"GET /api/kernelspecs": (200, body)}))
    assert isinstance(error, NetworkError)
    assert error.message.endswith("is not a Jupyter server.")
    assert not error.retryable


def test_a_failure_of_the_server_is_told_with_its_reason(serve: Serve) -> None:
    error = _refusal(serve({"GET /api/kernelspecs": (500, {"message": "the disk is full"})}))
    assert isinstance(error, HttpError)
    assert "500 Internal Server Error: the disk is full" in error.message
    assert error.retryable


def test_a_server_without_a_kernel_for_the_language_says_what_it_has(serve: Serve) -> None:
    backend = serve({"GET /api/kernelspecs": (200, _SPECS)})
    for language in ("kernel:ir", "bash"):
        error = _refusal(backend, language)
        assert isinstance(error, LanguageUnavailable)
        assert "It has: python3." in str(error.hint)


def test_a_kernel_whose_channel_does_not_open_is_ended_again(serve: Serve, asked: list[str]) -> None:
    answers = {"GET /api/kernelspecs": (200, _SPECS), "POST /api/kernels": (201, {"id": "k"})}
    error = _refusal(serve(answers))
    assert isinstance(error, NetworkError)
    assert "does not open a channel to the kernel" in error.message
    assert error.hint == "A proxy in between must let websockets through."
    assert "DELETE /api/kernels/k" in asked
