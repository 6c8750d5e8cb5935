"""A secret of the server's environment on its ways to a client: none of them shows it."""

from __future__ import annotations

import base64
import json

import pytest
from mcp import types
from mcp.client.client import Client

from nbtools.assembly.workbench import Workbench
from nbtools.ground import aio
from nbtools.mcp_server import make_server

pytestmark = pytest.mark.processes

SECRET = "plainvalue-abcdef"
SCRIPT = """
import base64, sys, time
text = open(input_file_path).read()
sys.stdout.write(text[:9]); sys.stdout.flush()
time.sleep(0.2)
print(text[9:], base64.b64encode(text.encode()).decode(), flush=True)
open("copy.txt", "w").write(text)
"""


def test_a_secret_reaches_no_client(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRET)
    (tmp_path / "env.txt").write_text(f"KEY={SECRET}\n")
    seen: list[str] = []

    async def watch(progress, total, message) -> None:
        seen.append(str(message))

    async def work(bench: Workbench) -> None:
        async with Client(make_server(bench)) as client:

            async def call(name: str, **arguments) -> None:
                result = await client.call_tool(name, arguments, progress_callback=watch)
                seen.append(result.model_dump_json())

            script = {"input_file_path": str(tmp_path / "env.txt"), "analysis_script": SCRIPT}
            await call("data_analyze", **script)
            await call("file_read", path=str(tmp_path / "env.txt"))
            await call("memory_save", key="k", value=f"the key is {SECRET}")
            await call("memory_retrieve", key="k")
            await aio.in_thread(bench.memory.write, f"notes/{SECRET}", 1)
            key = types.ResourceTemplateReference(type="ref/resource", uri="nbtools://memory/{key}")
            seen.append((await client.complete(key, {"name": "key", "value": "no"})).model_dump_json())
            seen.append((await client.list_resources()).model_dump_json())
            await call("string_length", text=SECRET, more=SECRET)
            for resource in (await client.list_resources()).resources:
                read = await client.read_resource(resource.uri)
                seen.append(read.model_dump_json())
                seen.extend(base64.b64decode(c.blob).decode() for c in read.contents if hasattr(c, "blob"))

    with Workbench(home=tmp_path / "home", memory_url=":memory:", allowed_paths=[tmp_path]) as bench:
        aio.run(work(bench), timeout=60)
        seen.append(json.dumps(bench.call_records()))
    assert sum("KEY=***" in text for text in seen) >= 3
    encoded = {base64.b64encode(b"KEY="[:n] + SECRET.encode()).decode()[4:16] for n in range(3)}
    assert not [text for text in seen if SECRET in text or any(form in text for form in encoded)]
