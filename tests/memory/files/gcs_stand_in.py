"""A stand-in for Google Cloud Storage's XML API that honours generation preconditions."""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import http.server
import itertools
import threading
import time
import urllib.parse
from collections.abc import Iterator
from xml.sax.saxutils import escape


class Bucket:
    """Objects by name: content, generation, time, metadata."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int, float, dict[str, str]]] = {}
        self.lock = threading.Lock()
        self.generations = itertools.count(int(time.time() * 1e6))
        self.refusals = 0  # requests to answer with 503 before the next one is served


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers for one bucket."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the end of each answer waits 40 ms for a receipt of its head
    bucket: Bucket

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def answer(self, code: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refused(self) -> bool:
        with self.bucket.lock:
            if self.bucket.refusals <= 0:
                return False
            self.bucket.refusals -= 1
        self.answer(503, b"<Error><Code>SlowDown</Code></Error>")
        return True

    def meta(self, found: tuple[bytes, int, float, dict[str, str]]) -> dict[str, str]:
        digest = hashlib.md5(found[0]).hexdigest()
        stamp = email.utils.formatdate(found[2], usegmt=True)
        return {"ETag": f'"{digest}"', "x-goog-generation": str(found[1]), "Last-Modified": stamp, **found[3]}

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.refused():
            return
        name = urllib.parse.unquote(self.path.partition("?")[0])
        wanted = self.headers.get("x-goog-if-generation-match")
        with self.bucket.lock:
            current = self.bucket.objects.get(name)
            if wanted is not None and int(wanted) != (current[1] if current else 0):
                self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            notes = {key: value for key, value in self.headers.items() if key.lower().startswith("x-goog-meta-")}
            made = self.bucket.objects[name] = (body, next(self.bucket.generations), time.time(), notes)
        self.answer(200, b"", self.meta(made))

    def do_GET(self) -> None:
        if self.refused():
            return
        url = urllib.parse.urlparse(self.path)
        name = urllib.parse.unquote(url.path)
        if "list-type" in url.query:
            self.answer(200, self.listing(name, url.query), {"Content-Type": "application/xml"})
        elif name in self.bucket.objects:
            found = self.bucket.objects[name]
            self.answer(200, found[0], self.meta(found))
        else:
            self.answer(404)

    do_HEAD = do_GET  # noqa: N815 - the server's name for it

    def do_DELETE(self) -> None:
        found = self.bucket.objects.pop(urllib.parse.unquote(self.path), None)
        self.answer(204 if found else 404)

    def listing(self, root: str, query: str) -> bytes:
        prefix = root.rstrip("/") + "/" + urllib.parse.parse_qs(query).get("prefix", [""])[0]
        rows = "".join(
            f"<Contents><Key>{escape(name.split('/', 2)[2])}</Key><LastModified>2026-01-01T00:00:00.000Z"
            f"</LastModified><ETag>{self.meta(found)['ETag']}</ETag><Size>{len(found[0])}</Size></Contents>"
            for name, found in sorted(self.bucket.objects.items())
            if name.startswith(prefix)
        )
        text = f'<?xml version="1.0"?><ListBucketResult>{rows}<IsTruncated>false</IsTruncated></ListBucketResult>'
        return text.encode()


@contextlib.contextmanager
def serving() -> Iterator[tuple[str, Bucket]]:
    """Serve a bucket on loopback; yields its base address and the bucket."""
    bucket = Bucket()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"bucket": bucket}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", bucket
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
