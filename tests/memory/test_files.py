"""The memory tool's contract, over every store that files can lie in."""

from __future__ import annotations

import importlib.util
import json
import threading
from pathlib import Path

import pytest

from nbtools import telemetry
from nbtools.memory import MemoryFiles, open_memory
from nbtools.memory.objects import ObjectFileStore
from nbtools.memory.paths import size_text

HERE = Path(__file__).parent


def _stand_in():
    spec = importlib.util.spec_from_file_location("gcs_stand_in", HERE / "gcs_stand_in.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gcs = _stand_in()


def gcs_store(address):
    from obstore.store import GCSStore

    key = {"gcs_base_url": address, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    return GCSStore(
        "bucket",
        service_account_key=json.dumps(key),
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


@pytest.fixture(scope="session")
def s3_address():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def s3_store(address, bucket):
    from obstore.store import S3Store

    return S3Store(
        bucket,
        endpoint=address,
        access_key_id="test",
        secret_access_key="test",
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


@pytest.fixture(params=["records", "folder", "objects", "gcs", "s3"])
def files(request, tmp_path):
    if request.param == "records":
        with open_memory(":memory:", agent_id="a") as memory:
            yield MemoryFiles(memory)
    elif request.param == "folder":
        yield MemoryFiles(f"file://{tmp_path}/files")
    elif request.param == "objects":
        yield MemoryFiles("memory://")
    elif request.param == "gcs":
        with gcs.serving() as (address, _):
            yield MemoryFiles(ObjectFileStore("gs://bucket/x", store=gcs_store(address)))
    else:
        import requests

        address = request.getfixturevalue("s3_address")
        bucket = f"b{abs(hash(tmp_path)) % 10**9}"
        assert requests.put(f"{address}/{bucket}", timeout=10).ok
        yield MemoryFiles(ObjectFileStore(f"s3://{bucket}/x", store=s3_store(address, bucket)))


def do(files, command, **given):
    return files.call({"command": command, **given})


def test_every_case_of_the_contract_gives_its_exact_text(files):
    for line in (HERE / "file_cases.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        result = files.call(case["call"])
        assert result.text == case["text"], case
        assert (result.error.code if result.error else None) == case.get("code"), case
        assert result.ok == ("code" not in case)


@pytest.mark.parametrize(
    "path",
    [
        "/memoriesevil",
        "/memories/../etc/passwd",
        "/memories/..\\x",
        "/memories/%2e%2e/x",
        "/memories/a\0b",
        "/memories/a\nb",
        "/etc/passwd",
        "memories/a",
        "",
        "/memories//a",
        "/memories/./a",
        "/memories/" + "x" * 300,
        "/memories/cafe\u0301",
        "/memories/\u202eevil",
        "/memories/ ",
    ],
)
@pytest.mark.parametrize("command", ["view", "create", "delete", "str_replace", "insert", "rename"])
def test_a_path_that_leads_outside_is_refused_by_every_command(command, path):
    files = MemoryFiles("memory://")
    given = {
        "view": {"path": path},
        "create": {"path": path, "file_text": "x"},
        "delete": {"path": path},
        "str_replace": {"path": path, "old_str": "a"},
        "insert": {"path": path, "insert_line": 0, "insert_text": "a"},
        "rename": {"old_path": path, "new_path": "/memories/z"},
    }
    result = do(files, command, **given[command])
    assert not result.ok
    assert result.error.code == "PATH_NOT_ALLOWED"
    assert "does not exist" in result.text
    assert do(files, "view", path="/memories").text.count("\n") == 1, "nothing was stored"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({}, "Unknown command: None"),
        ({"command": "veiw", "path": "/memories"}, "Did you mean view?"),
        ({"command": "view"}, "Missing required parameter: path"),
        ({"command": "view", "path": "/memories", "depth": 2}, "Unknown parameter: depth"),
        ({"command": "insert", "path": "/memories/a", "insert_line": "1", "insert_text": ""}, "must be int"),
        ({"command": "insert", "path": "/memories/a", "insert_line": True, "insert_text": ""}, "must be int"),
        ({"command": "update", "path": "/memories/a"}, "exactly one of"),
        (["view"], "expected an object"),
    ],
)
def test_a_call_with_wrong_parameters_says_what_is_wrong(call, said):
    result = MemoryFiles("memory://").call(call)
    assert result.error.code == "INVALID_ARGUMENTS"
    assert said in result.text


def test_threads_that_edit_one_file_lose_nothing(files):
    assert do(files, "create", path="/memories/list", file_text="").ok
    failed = []

    def add(number):
        result = do(files, "insert", path="/memories/list", insert_line=0, insert_text=f"line {number}")
        if not result.ok:
            failed.append(result.text)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    text = do(files, "view", path="/memories/list").text
    assert all(f"line {number}" in text for number in range(8))


def test_of_many_creators_of_one_file_exactly_one_succeeds(files):
    outcomes = []
    threads = [
        threading.Thread(
            target=lambda n=n: outcomes.append(do(files, "create", path="/memories/one", file_text=str(n)).ok)
        )
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False] * 5 + [True]


def test_a_file_over_its_limit_is_refused_and_the_old_one_stays(files):
    assert do(files, "create", path="/memories/a", file_text="x" * 100_000).ok
    result = do(files, "insert", path="/memories/a", insert_line=0, insert_text="y" * 10_000)
    assert result.error.code == "LIMIT_EXCEEDED"
    assert do(files, "create", path="/memories/b", file_text="é" * 60_000).error.code == "LIMIT_EXCEEDED"
    view = do(files, "view", path="/memories/a").text
    assert len(view) <= 16_000
    assert "cut after 16,000 characters" in view


def test_hidden_files_can_be_named_but_are_not_listed(files):
    assert do(files, "create", path="/memories/.secret", file_text="s").ok
    assert do(files, "create", path="/memories/node_modules/x", file_text="s").ok
    assert do(files, "create", path="/memories/a/b/c/d.txt", file_text="1234").ok
    listing = do(files, "view", path="/memories").text.split("\n")[1:]
    assert listing == ["4B\t/memories", "4B\t/memories/a/", "4B\t/memories/a/b/"]
    assert "1\ts" in do(files, "view", path="/memories/.secret").text


def test_a_folder_moves_with_all_that_is_in_it(files):
    for name in ("a/x", "a/y/z", "ab"):
        assert do(files, "create", path=f"/memories/{name}", file_text=name).ok
    assert do(files, "rename", old_path="/memories/a", new_path="/memories/deep/er").ok
    listing = do(files, "view", path="/memories/deep").text
    assert "/memories/deep/er/x" in listing
    assert do(files, "view", path="/memories/ab").ok
    assert not do(files, "view", path="/memories/a").ok


def test_every_command_makes_a_span_with_its_facts():
    do(MemoryFiles("memory://"), "view", path="/memories/none")
    made = next(span for span in reversed(telemetry.recent()) if span.name == "tool.memory.view")
    assert made.facts["operation"] == "view"
    assert made.facts["path"] == "/memories/none"
    assert made.outcome == "MEMORY_NOT_FOUND"
    assert made.duration_s > 0
    assert len(made.trace_id) == 32


def test_a_store_that_is_busy_gives_a_retryable_error():
    with gcs.serving() as (address, bucket):
        files = MemoryFiles(ObjectFileStore("gs://bucket/x", store=gcs_store(address)))
        bucket.refusals = 1
        result = do(files, "view", path="/memories/a")
        assert not result.ok
        assert result.error.retryable
        assert do(files, "create", path="/memories/a", file_text="x").ok


def test_a_store_out_of_reach_gives_a_retryable_error():
    files = MemoryFiles(ObjectFileStore("gs://bucket/x", store=gcs_store("http://127.0.0.1:9")))
    result = do(files, "view", path="/memories/a")
    assert result.error.code == "NETWORK_ERROR"
    assert result.error.retryable


@pytest.mark.parametrize("url", ["ftp://x/y", "gs://", "no url", "s4://bucket"])
def test_a_url_that_names_no_store_is_refused(url):
    from nbtools.errors import ConfigInvalid

    with pytest.raises(ConfigInvalid):
        MemoryFiles(url)


def test_a_bucket_that_does_not_exist_is_said(s3_address):
    files = MemoryFiles(ObjectFileStore("s3://nowhere/x", store=s3_store(s3_address, "nowhere")))
    for call in (
        {"command": "create", "path": "/memories/a", "file_text": "x"},
        {"command": "view", "path": "/memories"},
    ):
        result = files.call(call)
        assert result.error.code == "MEMORY_WRITE_FAILED"
        assert "s3://nowhere/x: there is no such bucket" in result.text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0B"), (4, "4B"), (1024, "1K"), (1536, "1.5K"), (2 * 2**20, "2M"), (5 * 2**40, "5120G")]
)
def test_sizes_print_as_the_protocol_prints_them(size, text):
    assert size_text(size) == text


def test_the_sdk_tools_speak_through_the_files():
    import asyncio

    from anthropic.lib.tools import ToolError

    from nbtools.memory.anthropic import AsyncMemoryTool, MemoryTool

    files = MemoryFiles("memory://")
    tool = MemoryTool(files)
    assert tool.to_dict() == {"type": "memory_20250818", "name": "memory"}
    said = tool.call({"command": "create", "path": "/memories/a", "file_text": "x"})
    assert said == "File created successfully at: /memories/a"
    seen = asyncio.run(AsyncMemoryTool(files).call({"command": "view", "path": "/memories/a"}))
    assert seen == "Here's the content of /memories/a with line numbers:\n     1\tx"
    with pytest.raises(ToolError, match="does not exist"):
        tool.call({"command": "delete", "path": "/memories/b"})
