import gzip
import http.server
import json
import os
import sys
import threading
import zlib
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import jsonschema
import pytest

from nbtools.contract.door import Door
from nbtools.contract.execute import LocalExecutor
from nbtools.contract.schema import output_schema
from nbtools.contract.tool import ToolCall
from nbtools.ground.paths import Roots
from nbtools.toolbox import CommandPolicy, Processes, SandboxPolicy, WebPolicy
from nbtools.toolbox.commands import command_tools
from nbtools.toolbox.web.web_tools import TOOLS


class Shelf:
    """Calls tools through the real door, with the services that the test puts in."""

    def __init__(self, tools, services):
        self.services = services
        self.executor = LocalExecutor(tools, door=Door(services=services))

    def provide(self, service):
        self.executor.door.services[type(service)] = lambda: service

    def __call__(self, name, /, _caller="python", _on_output=None, _timeout=None, **arguments):
        call = ToolCall(tool=name, arguments=arguments, caller=_caller, on_output=_on_output, timeout=_timeout)
        result = self.executor.call(call)
        if result.ok:  # then it is what the tool promises, whatever the test is about
            content = result.data if isinstance(result.data, dict) else {"result": result.data}
            jsonschema.Draft202012Validator(output_schema(self.executor.tools()[name])).validate(content)
        return result

    def data(self, name, /, **arguments):
        return self(name, **arguments).raise_for_error().data

    def code(self, name, /, **arguments):
        result = self(name, **arguments)
        return result.error.code if result.error else f"ok: {result.data!r:.200}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder and only allowed root; things outside it lie beside it."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    monkeypatch.chdir(inside)
    return inside.resolve()


@pytest.fixture
def open_files():
    """Check that a test leaves no descriptor open."""
    before = descriptors()
    yield
    assert descriptors() <= before


def descriptors():
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


@pytest.fixture
def shelf(folder):
    """Make a caller of the given tools."""

    def make(*tools, **services):
        roots = Roots([folder])
        made = Shelf(tools, {Roots: lambda: roots})
        for service in services.values():
            made.provide(service)
        return made

    return make


PAGE = """<!doctype html><html><head><title> The
page </title><style>p {}</style></head><body><nav>Menu</nav><h1>Hello</h1>
<p class="a">One <b>two</b> three.</p><p class="b">Zürich</p><script>evil()</script></body></html>"""


class Site(http.server.BaseHTTPRequestHandler):
    """A server with good and bad manners, a path for each; every request is noted."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the end of each answer waits 40 ms for a receipt of its head

    def answer(self):
        parts = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length) if length else b""
        self.server.hits.append((self.command, self.path, dict(self.headers), self.body))
        try:
            getattr(self, f"on_{parts.path.strip('/').partition('.')[0] or 'page'}")()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_HEAD = answer  # noqa: N815 - the library's names

    def log_message(self, *args):
        pass

    def send(self, body=b"", status=200, **headers):
        self.send_response(status)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Type": "text/html", "Content-Length": str(len(body)), **named}.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def forever(self, piece, pause=0.0):
        self.close_connection = True
        while not self.server.over.wait(pause) if pause else not self.server.over.is_set():
            self.wfile.write(piece)
            self.wfile.flush()

    def on_page(self):
        self.send(PAGE.encode(), Content_Type="text/html; charset=utf-8")

    def on_status(self):
        self.send(b"said no", status=int(self.query["code"]), Content_Type="text/plain")

    def on_echo(self):
        told = {"method": self.command, "headers": dict(self.headers), "body": self.body.decode("utf-8", "replace")}
        self.send(json.dumps(told).encode(), Content_Type="application/json")

    def on_redirect(self):
        self.send(b"x" * 100, status=int(self.query.get("code", 302)), Location=self.query["to"])

    def on_unescaped(self):
        self.send(status=302, Location="/page?caf\u00e9".encode().decode("latin-1"))

    def on_code(self):
        self.send('<meta charset="shift_jis"><p>日本</p><pre>if a:\n    b()</pre>'.encode("shift_jis"))

    def on_circle(self):
        self.send(status=302, Location="/circle")

    def on_redirect_endless(self):
        self.send_response(302)
        self.send_header("Location", "/page")
        self.end_headers()
        self.forever(b"x" * 1000)

    def on_busy(self):
        self.server.busy -= 1
        if self.server.busy >= 0:
            self.send(status=int(self.query.get("code", 503)), Retry_After=self.query.get("after", "0"))
        else:
            self.send(b"at last")

    def on_gzip(self):
        self.send(gzip.compress(PAGE.encode()) + b"\0" * 8, Content_Encoding="gzip")

    def on_members(self):
        self.send(gzip.compress(b"<p>one") + gzip.compress(b" two"), Content_Encoding="gzip")

    def on_cut_gzip(self):
        self.send(gzip.compress(PAGE.encode())[:-30], Content_Encoding="gzip")

    def on_cut_members(self):
        self.send(gzip.compress(b"<p>one") + gzip.compress(b" two")[:-4], Content_Encoding="gzip")

    def on_cut_deflate(self):
        self.send(zlib.compress(PAGE.encode())[:-30], Content_Encoding="deflate")

    def on_cut_head(self):
        self.send(gzip.compress(b"")[:5], Content_Encoding="gzip")

    def on_deflate(self):
        made = zlib.compressobj(wbits=-15)
        self.send(made.compress(PAGE.encode()) + made.flush(), Content_Encoding="deflate")

    def on_zdeflate(self):
        self.send(zlib.compress(PAGE.encode()), Content_Encoding="deflate")

    def on_broken_gzip(self):
        self.send(b"this is not a gzip", Content_Encoding="gzip")

    def on_brotli(self):
        self.send(b"xyz", Content_Encoding="br")

    def on_table(self):
        """A table that stays the same as long as the query does not name another version."""
        mark = f'"{self.query.get("v", self.server.version)}"'
        if self.headers.get("If-None-Match") == mark:
            self.send(status=304, ETag=mark, Content_Length=None)
        else:
            body = f"city,n\na,{mark[1:-1]}\nb,2\n".encode()
            self.send(body, Content_Type="text/csv", ETag=mark)

    def on_bomb(self):
        self.send(self.server.bomb, Content_Encoding="gzip")

    def on_nested_bomb(self):
        self.send(gzip.compress(self.server.bomb), Content_Encoding="gzip, gzip")

    def on_endless(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.forever(b"x" * 10_000)

    def on_drip(self):
        self.send_response(200)
        self.end_headers()
        self.forever(b"x", 0.02)

    def on_drip_headers(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        self.forever(b"x", 0.02)

    def on_endless_headers(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        self.forever(b"X-A: b\r\n" * 100)

    def on_silent(self):
        self.server.over.wait(30)
        self.close_connection = True

    def on_cut(self):
        self.send(b"half", Content_Length="1000")
        self.close_connection = True

    def on_garbage(self):
        self.wfile.write(b"\x00\x01\x02 this is not HTTP\r\n\r\n")
        self.close_connection = True

    def on_charset(self):
        charset = self.query["declared"]
        body = self.query.get("text", "<p>Zürich</p>").encode(self.query["real"])
        self.send(body, Content_Type=f"text/html; charset={charset}" if charset else "text/html")

    def on_picture(self):
        self.send(b"\x89PNG\r\n\x1a\n\0\0", Content_Type="image/png")

    def on_set_cookie(self):
        self.send(status=302, Location="/echo", Set_Cookie="a=b")

    def on_search(self):
        item = {"title": "T", "link": "https://t.example/", "url": "https://t.example/", "snippet": "S", "content": "S"}
        kind = self.query.get("kind", "good")
        answers = {
            "good": json.dumps({"organic": [item] * 20, "results": [item] * 20}),
            "empty": "{}",
            "strange": "<html>",
            "list": "[1]",
            "partial": json.dumps({"organic": [{"link": "https://t.example/"}], "results": [1]}),
        }
        if kind in answers:
            self.send(answers[kind].encode(), Content_Type="application/json")
        else:
            self.send(b"{}", status=int(kind))


class Served(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        """Clients that leave in the middle are what many tests are about."""


@pytest.fixture(scope="session")
def served():
    server = Served(("127.0.0.1", 0), Site)
    server.over = threading.Event()
    # Sixty kilobytes that stand for sixty megabytes.
    server.bomb = gzip.compress(b"\0" * (1 << 26), compresslevel=6)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def site(served):
    """The address of the server; its attribute `hits` has the requests of this test."""
    served.hits = []
    served.busy = 0
    served.version = 1

    class Address(str):
        __slots__ = ()

        @property
        def hits(self):
            return served.hits

        @property
        def port(self):
            return served.server_address[1]

        def change(self):
            served.version += 1

        def be_busy(self, times):
            served.busy = times

    return Address(f"http://127.0.0.1:{served.server_address[1]}")


@pytest.fixture
def call(shelf):
    """Tools of the web that may reach loopback, with a short deadline and a small cap."""
    return shelf(*TOOLS, policy=WebPolicy(allow_private=True, timeout=8, body_bytes=500_000, environment={}))


@pytest.fixture
def careful(shelf):
    """Tools of the web as they are by default, only quicker to give up."""
    return shelf(*TOOLS, policy=WebPolicy(timeout=3, environment={}))


def get(call, url, **more):
    return call("http_client", method="GET", url=url, **more)


@pytest.fixture
def count_descriptors():
    return descriptors


ALLOWED = ("ls", "cat", "echo", "env", "xargs", "find", "head", "sort", "wc", "sleep", "timeout", "nice", "yes", "true")
ALLOWED += ("false", "pwd", "printf", "touch", "nohup", "setsid", "seq", "tr", "grep", sys.executable)


@pytest.fixture(scope="module")
def keeping(tmp_path_factory):
    """One service for the module; its folders are those of each test."""
    made = Processes(CommandPolicy(), Roots([tmp_path_factory.getbasetemp()]))
    yield made
    made.close()


@pytest.fixture
def commands(shelf, keeping):
    environment = {**os.environ, "MY_API_KEY": "hidden", "DB": "postgres://me:pw@host/db", "PLAIN": "seen", "EMPTY": ""}
    policy = CommandPolicy(allowed=ALLOWED, environment=environment, output_bytes=100_000)
    return shelf(*command_tools.TOOLS, policy=policy, confinements=SandboxPolicy(), processes=keeping)


@pytest.fixture
def allowed():
    return ALLOWED
