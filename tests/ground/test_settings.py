"""Every setting acts: given as an argument, as a variable and in nbtools.toml, each changes what a user sees."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from nbtools import NbtoolsError, Workbench
from nbtools.contract.approval.gate import AskFunction, Rule
from nbtools.ground.config import Config
from nbtools.ground.home import default_home
from tests.conftest import trusted_settings, wait_until

pytestmark = pytest.mark.processes

SERVER = """
import json, sys

results = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                   "serverInfo": {"name": "s", "version": "1"}},
    "tools/list": {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    result = results.get(asked["method"])
    known = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
    if asked.get("id") is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **known}), flush=True)
"""
TRACED = """
import json, sys
from nbtools import Workbench

with Workbench(memory_url=":memory:", **json.loads(sys.argv[1])) as bench:
    bench.call("calculator", {"expression": "1"})
"""
SLOW = "select max(a.range * b.range % 7) from range(4000) a, range(4000) b"
HUNGRY = "select length(string_agg(range::text, ',')) from range(3000000)"
ALLOCATED = 500 * 2**20


class World(NamedTuple):
    """What a case has around it: a folder, and a web server that keeps what it was asked."""

    folder: Path
    url: str
    asked: list[str]


class Case(NamedTuple):
    """The value of a setting, what shows that it acts, what is seen then and by default, and what else is set."""

    value: Any
    see: Callable[[Workbench, World], Any]
    seen: Any
    default: Any
    besides: Mapping[str, Any] = {}


def _code_of(ask: Callable[[], Any]) -> str:
    try:
        ask()
    except NbtoolsError as exc:
        return exc.code
    return "ok"


def _ask_agent(bench: Workbench, world: World) -> str:
    return _code_of(lambda: bench.agent("Go!"))


def _printed(bench: Workbench, code: str) -> str:
    ran = bench.call("code_execute", {"code": code}).raise_for_error().data
    return str(ran["stdout"]).strip() if ran["success"] else str(ran["error"]).split(": ")[1].split()[0]


def _home(bench: Workbench, world: World) -> bool:
    bench.memory.write("k", 1)
    return (world.folder / "other" / "memory.duckdb").exists()


def _memory_url(bench: Workbench, world: World) -> bool:
    bench.memory.write("k", 1)
    return (world.folder / "mine.duckdb").exists()


def _memory_files(bench: Workbench, world: World) -> bool:
    bench.call("memory", {"command": "create", "path": "/memories/a.txt", "file_text": "x"}).raise_for_error()
    return (world.folder / "files" / "a.txt").exists()


def _agent(bench: Workbench, world: World) -> str:
    return bench.memory.scope.agent_id


def _far_file(bench: Workbench, world: World) -> str:
    return _code_of(lambda: bench.sql(f"select * from '{world.folder / 'far' / 'a.csv'}'"))


def _is_shell_there(bench: Workbench, world: World) -> bool:
    return "shell" in bench.executor.tools()


def _opened(bench: Workbench, world: World) -> str:
    hint = bench.call("file_read", {"path": str(world.folder / "far" / "a.csv")}).error.hint
    code = _code_of(lambda: bench.allow(world.folder / "far"))
    assert ("ALLOWED_PATHS" in hint) == (code == "ok")
    return code


def _shell(bench: Workbench, world: World) -> bool:
    return bench.call("shell", {"command": "echo hello"}).ok


def _private(bench: Workbench, world: World) -> bool:
    return bench.call("http_client", {"method": "GET", "url": world.url}).ok


def _provider(bench: Workbench, world: World) -> bool:
    return "TAVILY_API_KEY" in str(bench.call("web_search", {"query": "x"}).error)


def _backend(bench: Workbench, world: World) -> str:
    bench.kernels.run("1")
    return str(bench.kernels.describe()["backend"])


def _own_script(bench: Workbench, world: World) -> str:
    return _printed(bench, f"print(open({str(world.folder / 'far' / 'a.csv')!r}).read())")


def _script_of_a_model(bench: Workbench, world: World) -> str:
    given = {"input_file_path": str(world.folder / "near" / "a.csv"), "analysis_script": "print(1)"}
    result = bench.call("data_analyze", given, caller="model")
    return result.error.code if result.error else result.text.strip()


def _network(bench: Workbench, world: World) -> str:
    return _printed(bench, f"import urllib.request as r; print(r.urlopen({world.url!r}).status)")


def _spares(bench: Workbench, world: World) -> int:
    import psutil

    # Other tests of this process may have left children that end later, such as workers of SQL.
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    def forked() -> int:
        return len({child.pid for child in psutil.Process().children(recursive=True)} - before) - 1

    bench.kernels.warm()
    wait_until(lambda: forked() >= bench.config.spares)
    return forked()


def _preloads(bench: Workbench, world: World) -> str:
    return _printed(bench, "import sys; print('wave' in sys.modules)")


def _timeout(bench: Workbench, world: World) -> bool:
    return bool(bench.call("code_execute", {"code": "import time; time.sleep(1)"}).data["timed_out"])


def _memory_cap(bench: Workbench, world: World) -> str:
    return _printed(bench, f"print(len(bytearray({ALLOCATED})))")


def _idle(bench: Workbench, world: World) -> list[Any]:
    bench.kernels.start("s")
    # What ends is waited for, however busy the machine is; what is to stay is given a second in which it could end.
    deadline = time.monotonic() + (60 if bench.config.kernel_idle < 1 else 1)
    while bench.kernels.list() and time.monotonic() < deadline:
        time.sleep(0.05)
    return [session["name"] for session in bench.kernels.list()]


def _warm(bench: Workbench, world: World) -> bool:
    for _ in range(2):  # from the second script on
        bench.kernels.run("1")
    pid = bench.kernels.describe()["warm"]
    if pid is not None:
        os.kill(pid, signal.SIGKILL)  # its home is the test's, and nobody else will use it
    return pid is not None


def _gateway(bench: Workbench, world: World) -> bool:
    _code_of(lambda: bench.kernels.run("1"))
    return any("/api/" in line for line in world.asked)


def _token(bench: Workbench, world: World) -> bool:
    _code_of(lambda: bench.kernels.run("1"))
    return any("t0p5ecret" in line for line in world.asked)


def _slow(bench: Workbench, world: World) -> str:
    return _code_of(lambda: bench.sql(SLOW))


def _hungry(bench: Workbench, world: World) -> str:
    return _code_of(lambda: bench.sql(HUNGRY))


def _url_for_a_model(bench: Workbench, world: World) -> bool:
    bench.call("sql_query", {"query": f"select * from '{world.url}/a.csv'"}, caller="model")
    return any("/a.csv" in line for line in world.asked)


def _rows_for_a_model(bench: Workbench, world: World) -> int:
    result = bench.call("sql_query", {"query": "select * from range(20)"}, caller="model")
    return len(result.raise_for_error().data["rows"])


def _missing_words(bench: Workbench, world: World) -> Any:
    (world.folder / "near" / "words.csv").write_text("year\n1999\nN/A\n")
    return bench.sql("select max(year) from 'words.csv'").iloc[0, 0]


def _large(bench: Workbench, world: World) -> str:
    return _code_of(lambda: bench.sql("select * from range(1000)"))


def _connection(bench: Workbench, world: World) -> bool:
    try:
        return bench.sql("select a from t", connection="shop")["a"].to_list() == [7]
    except NbtoolsError:
        return False


def _tools(bench: Workbench, world: World) -> list[str]:
    return [name for name in ("calculator", "shell", "reckon", "flow") if name in bench.executor.tools()]


def _calculator(bench: Workbench, world: World) -> str:
    return _code_of(lambda: bench.call("calculator", {"expression": "1"}).raise_for_error())


def _outside(bench: Workbench, world: World) -> bool:
    return "s__hello" in bench.executor.tools()


def _granted_for_long(bench: Workbench, world: World) -> int:
    asked: list[str] = []
    bench.door.approver = AskFunction(lambda request: asked.append(request.tool.name) or "tool")
    bench.door.rules = (Rule(action="ask", tool="calculator"),)
    for _ in range(2):
        bench.call("calculator", {"expression": "1"})
        time.sleep(0.002)
    return len(asked)


def _age(folder: Path) -> None:
    for path in (*folder.iterdir(), folder):
        os.utime(path, (time.time() - 7_200,) * 2)


def _runs_left(bench: Workbench, world: World) -> int:
    run = bench.workflows.run('version: 1\nname: w\nnodes: [{id: a, tool: calculator, args: {expression: "1"}}]\n')
    for number in range(21):
        _age(shutil.copytree(run.folder, run.folder.with_name(f"copy{number}")))
    _age(run.folder)
    bench.workflows.prune()
    return sum(1 for _ in run.folder.parent.iterdir())


def _tables_left(bench: Workbench, _world: World) -> int:
    folder = bench.config.home / "memory_tables"
    folder.mkdir(parents=True)
    for number in range(22):
        (folder / f"{number:064x}.parquet").write_bytes(bytes(100))
    _age(folder)
    bench.memory_tables.pack(pd.DataFrame({"n": [1]}), "default:*:*:k")
    return sum(1 for path in folder.glob("*.parquet")) - 1


BARE = {"preloads": []}


def _workflow(folder: Path) -> Path:
    file = folder / "flow.yaml"
    file.write_text('version: 1\nname: flow\nnodes:\n  - {id: a, tool: calculator, args: {expression: "1"}}\n')
    return file


def _cases(w: World) -> dict[str, Case]:
    """Return a case for each setting."""
    return {
        "home": Case(w.folder / "other", _home, True, False),
        "memory_url": Case(str(w.folder / "mine.duckdb"), _memory_url, True, False),
        "memory_files_url": Case((w.folder / "files").as_uri(), _memory_files, True, False),
        "agent_id": Case("ada", _agent, "ada", "default"),
        "allowed_paths": Case([w.folder / "far"], _far_file, "ok", "SQL_NOT_ALLOWED"),
        "classroom": Case(True, _is_shell_there, False, True),
        "allow_more": Case(False, _opened, "PERMISSION_DENIED", "ok"),
        "allowed_commands": Case(["echo"], _shell, True, False),
        "allow_private": Case(True, _private, True, False),
        "web_search_provider": Case("tavily", _provider, True, False),
        "kernels": Case("spawned", _backend, "spawned", "forked", BARE),
        "sandbox": Case("strict", _own_script, "PermissionError", "a\n7", BARE),
        "model_sandbox": Case("limits", _script_of_a_model, "APPROVAL_DENIED", "1", BARE),
        "network": Case(True, _network, "200", "URLError", {"sandbox": "strict", **BARE}),
        "spares": Case(3, _spares, 3, 1, BARE),
        "preloads": Case(["wave"], _preloads, "True", "False"),
        "kernel_timeout": Case("300ms", _timeout, True, False, BARE),
        "kernel_memory": Case("300MiB", _memory_cap, "MemoryError", str(ALLOCATED), BARE),
        "kernel_idle": Case("300ms", _idle, [], ["s"], BARE),
        "kernel_warm": Case("0", _warm, False, True, BARE),
        "gateway_url": Case(w.url, _gateway, True, False, {"kernels": "gateway"}),
        "gateway_token": Case("t0p5ecret", _token, True, False, {"kernels": "gateway", "gateway_url": w.url}),
        "sql_timeout": Case("10ms", _slow, "TIMEOUT", "ok"),
        "sql_memory": Case("20MB", _hungry, "LIMIT_EXCEEDED", "ok"),
        "sql_limit": Case(3, _rows_for_a_model, 3, 20),
        "sql_places": Case([w.url], _url_for_a_model, True, False, {"allow_private": True}),
        "sql_max_bytes": Case("1kB", _large, "LIMIT_EXCEEDED", "ok"),
        "missing_words": Case(False, _missing_words, "N/A", 1999),
        "connections": Case({"shop": f"sqlite:///{w.folder / 'near' / 'shop.db'}"}, _connection, True, False),
        "enabled_tools": Case(["calculator"], _tools, ["calculator"], ["calculator", "shell"]),
        "tools": Case(
            {"reckon": {"tool": "calculator"}}, _tools, ["calculator", "shell", "reckon"], ["calculator", "shell"]
        ),
        "model": Case("nobody:x", _ask_agent, "INVALID_ARGUMENTS", "CONFIG_MISSING"),
        "models": Case({"m": "openai:x"}, _ask_agent, "CONFIG_MISSING", "INVALID_ARGUMENTS", {"model": "m"}),
        "approval_time": Case("1ms", _granted_for_long, 2, 1),
        "runs_age": Case("1h", _runs_left, 20, 22),
        "runs_size": Case("1kB", _runs_left, 20, 22),
        "widgets_read_only": Case(True, lambda bench, _: bench.monitor().read_only, True, False),
        "tables_age": Case("1h", _tables_left, 20, 22),
        "tables_size": Case("1kB", _tables_left, 20, 22),
        "policy": Case({"calculator": "deny"}, _calculator, "PERMISSION_DENIED", "ok"),
        "workflows": Case([_workflow(w.folder)], _tools, ["calculator", "shell", "flow"], ["calculator", "shell"]),
        "mcp_servers": Case({"s": {"command": sys.executable, "args": ["-c", SERVER]}}, _outside, True, False),
    }


class _Keeping(BaseHTTPRequestHandler):
    """Keeps the first line and the token of each request."""

    server: Any

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.requestline} {self.headers.get('Authorization')}")
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    """Yield a web server that answers nothing, for all tests."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Keeping) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Any) -> World:
    for name in list(os.environ):
        others = {"ALLOWED_PATHS", "ALLOWED_COMMANDS", "WEB_SEARCH_PROVIDER", "OPENAI_API_KEY"}
        if name.startswith("NBTOOLS_") or name in others:
            monkeypatch.delenv(name)
    # A process with loaded libraries for each test's home would outlive the test.
    monkeypatch.setenv("NBTOOLS_KERNEL_WARM", "0")
    for place in ("near", "far"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "a.csv").write_text("a\n7\n")
    with sqlite3.connect(tmp_path / "near" / "shop.db") as database:
        database.execute("create table t as select 7 as a")
    database.close()
    monkeypatch.chdir(tmp_path / "near")
    server.asked = []
    return World(tmp_path, f"http://127.0.0.1:{server.server_port}", server.asked)


def _as_toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_as_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_as_toml, value)) + "]"
    return json.dumps(value if isinstance(value, bool | int) else str(value))


def _as_variable(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _sources() -> Iterator[Any]:
    """Yield every setting with every source; of those that start kernels, two of them are for slow tests."""
    for place, name in enumerate(NAMES):
        sources = ["argument", "file"] if name in TABLES else ["argument", "file", "variable"]
        for number, source in enumerate(sources):
            is_slow = name in STARTS_KERNELS and number != place % len(sources)
            marks = [pytest.mark.slow] if is_slow else []
            yield pytest.param(name, source, marks=[*marks, pytest.mark.own_zygote] if name in OF_ZYGOTES else marks)


NAMES = sorted(Config.settings().keys() - {"otel"})
TABLES = {"connections", "models", "tools", "policy", "mcp_servers"}
STARTS_KERNELS = {
    *("kernels", "sandbox", "model_sandbox", "network", "spares", "preloads", "kernel_timeout", "kernel_memory"),
    *("kernel_idle", "kernel_warm"),
}
OF_ZYGOTES = {"kernels", "spares", "preloads", "kernel_memory", "kernel_warm"}


@pytest.mark.parametrize(("name", "source"), list(_sources()))
def test_a_setting_acts_whatever_its_source(
    name: str, source: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = _cases(world)[name]
    settings = {"home": world.folder / "home", "memory_url": ":memory:", **case.besides}
    # A default is needed where the setting itself, or what would hide its effect, is given in another way.
    settings = {key: value for key, value in settings.items() if key != name}
    if name == "home":
        del settings["memory_url"]
    monkeypatch.delenv(f"NBTOOLS_{name.upper()}", raising=False)
    if source == "variable":
        monkeypatch.setenv(f"NBTOOLS_{name.upper()}", _as_variable(case.value))
    elif source == "file":
        monkeypatch.setenv("XDG_DATA_HOME", str(world.folder / "data"))
        home = default_home() if name == "home" else world.folder / "home"
        trusted_settings(world.folder / "near", f"{name} = {_as_toml(case.value)}\n", home)
    else:
        settings[name] = case.value
    with Workbench(**settings) as bench:
        assert case.see(bench, world) == case.seen


@pytest.mark.own_zygote
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in STARTS_KERNELS else []) for name in NAMES]
)
def test_by_default_something_else_is_seen(name: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    case = _cases(world)[name]
    if name == "kernel_warm":
        monkeypatch.delenv("NBTOOLS_KERNEL_WARM")  # no test has a process that outlives it but this one
    settings = {"home": world.folder / "home", "memory_url": ":memory:", **case.besides}
    with Workbench(**settings) as bench:
        assert case.see(bench, world) == case.default != case.seen


@pytest.mark.slow
@pytest.mark.parametrize("source", ["default", "argument", "file", "variable"])
def test_spans_are_sent_whatever_the_source(source: str, world: World) -> None:
    """In a process of its own: what is connected to OpenTelemetry once stays connected."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": world.url, "NBTOOLS_HOME": str(world.folder / "home")}
    if source == "variable":
        environ["NBTOOLS_OTEL"] = "1"
    elif source == "file":
        trusted_settings(world.folder / "near", "otel = true\n", world.folder / "home")
    given = {"otel": True} if source == "argument" else {}
    subprocess.run([sys.executable, "-c", TRACED, json.dumps(given)], env=environ, check=True, timeout=60)
    assert any("/v1/traces" in line for line in world.asked) == (source != "default")
