"""A way to a server that loses answers: the request gets there, and nobody hears of it."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import threading
import types
from collections.abc import Iterator


@contextlib.contextmanager
def lossy(address: str) -> Iterator[types.SimpleNamespace]:
    """Pass requests on to a server on loopback; yields `address` and `lost`, how many answers to changes to lose."""
    facts = types.SimpleNamespace(lost=0)

    class Way(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else the end of each answer waits 40 ms for a receipt of its head

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            far = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
            far.request(self.command, self.path, body, {**dict(self.headers.items()), "Connection": "close"})
            answer = far.getresponse()
            content = answer.read()
            far.close()
            if self.command in {"PUT", "POST", "DELETE"} and facts.lost:
                facts.lost -= 1
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {"content-length", "connection", "transfer-encoding"}:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815 - the server's names

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Way)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    facts.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield facts
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
