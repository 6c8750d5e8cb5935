"""The memory tool's contract, over every store that files can lie in."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import stat
import threading
from pathlib import Path

import pytest
import requests

from nbtools.errors import MemoryUnavailable, NetworkError, VersionConflict
from nbtools.ground import telemetry
from nbtools.memory import MemoryFiles, open_memory
from nbtools.memory.files.objects import ObjectFileStore
from nbtools.memory.files.paths import size_text
from nbtools.memory.files.tool import MAX_FILE

pytestmark = pytest.mark.in_memory

HERE = Path(__file__).parent


def _part(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gcs, lossy = _part("gcs_stand_in"), _part("lossy").lossy


def gcs_store(address, retries=0):
    from obstore.store import GCSStore

    key = {"gcs_base_url": address, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    return GCSStore(
        "bucket",
        service_account_key=json.dumps(key),
        client_options={"allow_http": True},
        retry_config={"max_retries": retries},
    )


@pytest.fixture(scope="session")
def s3_address():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def s3_store(address, bucket, retries=0):
    from obstore.store import S3Store

    return S3Store(
        bucket,
        endpoint=address,
        access_key_id="test",
        secret_access_key="test",
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        retry_config={"max_retries": retries},
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
        address = request.getfixturevalue("s3_address")
        bucket = f"b{abs(hash(tmp_path)) % 10**9}"
        assert requests.put(f"{address}/{bucket}", timeout=10).ok
        yield MemoryFiles(ObjectFileStore(f"s3://{bucket}/x", store=s3_store(address, bucket)))


def do(files, command, **given):
    return files.call({"command": command, **given})


@pytest.mark.processes
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
    assert result.text.startswith("Path ")
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
        ({"command": "update", "path": "/memories/a"}, "Missing required parameter: file_text"),
        (["view"], "expected an object"),
    ],
)
def test_a_call_with_wrong_parameters_says_what_is_wrong(call, said):
    result = MemoryFiles("memory://").call(call)
    assert result.error.code == "INVALID_ARGUMENTS"
    assert said in result.text


@pytest.mark.processes
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


@pytest.mark.processes
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


@pytest.mark.processes
def test_a_file_over_its_limit_is_refused_and_the_old_one_stays(files):
    assert do(files, "create", path="/memories/a", file_text="x" * 1_000_000).ok
    result = do(files, "insert", path="/memories/a", insert_line=0, insert_text="y" * MAX_FILE)
    assert result.error.code == "LIMIT_EXCEEDED"
    assert do(files, "create", path="/memories/b", file_text="é" * (MAX_FILE // 2 + 1)).error.code == "LIMIT_EXCEEDED"
    view = do(files, "view", path="/memories/a").text
    assert len(view) <= 16_000
    assert "cut after 16,000 characters" in view
    assert do(files, "create", path="/memories/c", file_text="\ud800").error.code == "INVALID_ARGUMENTS"


@pytest.mark.processes
def test_hidden_files_can_be_named_but_are_not_listed(files):
    assert do(files, "create", path="/memories/.secret", file_text="s").ok
    assert do(files, "create", path="/memories/node_modules/x", file_text="s").ok
    assert do(files, "create", path="/memories/a/b/c/d.txt", file_text="1234").ok
    listing = do(files, "view", path="/memories").text.split("\n")[1:]
    assert listing == ["4B\t/memories", "4B\t/memories/a/", "4B\t/memories/a/b/"]
    assert "1\ts" in do(files, "view", path="/memories/.secret").text


@pytest.mark.processes
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


@pytest.mark.processes
def test_a_store_that_is_busy_gives_a_retryable_error():
    with gcs.serving() as (address, bucket):
        files = MemoryFiles(ObjectFileStore("gs://bucket/x", store=gcs_store(address)))
        bucket.refusals = 1
        result = do(files, "view", path="/memories/a")
        assert not result.ok
        assert result.error.retryable
        assert do(files, "create", path="/memories/a", file_text="x").ok


@pytest.mark.processes
@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize(
    ("command", "given", "left", "lost"),
    [
        ("insert", {"path": "/memories/a", "insert_line": 0, "insert_text": "new"}, {"a": "new\none\n"}, 1),
        ("str_replace", {"path": "/memories/a", "old_str": "one", "new_str": "one one"}, {"a": "one one\n"}, 1),
        ("create", {"path": "/memories/b", "file_text": "b"}, {"a": "one\n", "b": "b"}, 1),
        ("rename", {"old_path": "/memories/a", "new_path": "/memories/c"}, {"c": "one\n"}, 2),
        ("delete", {"path": "/memories/a"}, {}, 1),
    ],
)
@pytest.mark.parametrize("kind", ["gcs", "s3"])
def test_a_write_whose_answer_is_lost_is_made_once(request, kind, command, given, left, lost, retries):
    """With retries, the client repeats the request itself, and is told that the object changed."""
    with contextlib.ExitStack() as stack:
        if kind == "gcs":
            address, _ = stack.enter_context(gcs.serving())
        else:
            address, bucket = request.getfixturevalue("s3_address"), f"lost{command.replace('_', '')}{retries}"
            assert requests.put(f"{address}/{bucket}", timeout=10).ok
        way = stack.enter_context(lossy(address))

        def files(there, retries):
            made = gcs_store(there, retries) if kind == "gcs" else s3_store(there, bucket, retries)
            return MemoryFiles(ObjectFileStore("gs://bucket/x", store=made))

        good = files(address, 0)
        assert do(good, "create", path="/memories/a", file_text="one\n").ok
        way.lost = lost
        result = do(files(way.address, retries), command, **given)
        assert way.lost == 0
        assert result.ok, result
        listed = do(good, "view", path="/memories").text.split("\n")[2:]
        assert [line.rpartition("/")[2] for line in listed] == list(left)
        for name, text in left.items():
            lines = do(good, "view", path=f"/memories/{name}").text.split("\n")[1:]
            assert "\n".join(line.partition("\t")[2] for line in lines) == text


@pytest.mark.processes
def test_a_write_is_known_again_below_the_writes_of_others():
    """Another writer comes between a write whose answer is lost and its repeat."""
    with gcs.serving() as (address, _):
        store = ObjectFileStore("gs://bucket/x", store=gcs_store(address))
        store.write("/memories/a", "one\n", None)
        text, token = store.read("/memories/a")
        store.write("/memories/a", f"{text}two\n", token)
        first = store.read("/memories/a")[1].split()[-1]
        store.write("/memories/a", "three\n", store.read("/memories/a")[1])
        assert store._was_made("/memories/a", first, NetworkError("lost"))
        assert not store._was_made("/memories/a", "0" * 16, NetworkError("lost"))


class EditedMeanwhile(ObjectFileStore):
    """A store in which someone edits one of two files while both are moved."""

    def write(self, path, text, token):
        super().write(path, text, token)
        if path == "/memories/new/b":
            super().write("/memories/old/a", "edited\n", self.read("/memories/old/a")[1])


def test_an_edit_during_a_move_is_not_lost():
    store = EditedMeanwhile("memory://")
    for name in "ab":
        store.write(f"/memories/old/{name}", f"{name}\n", None)
    with pytest.raises(VersionConflict, match="/memories/old/a was edited while it was moved"):
        store.move([("/memories/old/a", "/memories/new/a"), ("/memories/old/b", "/memories/new/b")])
    assert store.read("/memories/old/a")[0] == "edited\n"
    assert set(store.sizes("/memories")) == {"/memories/old/a", "/memories/old/b"}


@pytest.mark.processes
def test_an_outcome_that_cannot_be_learned_is_not_called_retryable():
    with gcs.serving() as (address, bucket):
        files = MemoryFiles(ObjectFileStore("gs://bucket/x", store=gcs_store(address)))
        bucket.refusals = 3
        result = do(files, "view", path="/memories/a")
        assert result.error.retryable
        store = ObjectFileStore("gs://bucket/x", store=gcs_store(address))
        with pytest.raises(NetworkError, match="Whether it was written is not known") as caught:
            store.write("/memories/a", "x", None)
        assert not caught.value.retryable
        assert "View /memories/a" in caught.value.hint


@pytest.mark.processes
def test_an_object_store_of_aws_keeps_the_ids_of_writes(s3_address):
    assert requests.put(f"{s3_address}/ids", timeout=10).ok
    store = ObjectFileStore("s3://ids/x", store=s3_store(s3_address, "ids"))
    for number in range(40):
        found = store.read("/memories/a")
        store.write("/memories/a", str(number), found[1] if found else None)
    assert len(store.read("/memories/a")[1].split("\n")[2].split()) == 32


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


@pytest.mark.processes
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


@pytest.fixture
def linked(tmp_path):
    """Files in a folder from which links lead to a folder outside, and what lies there."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("TOP SECRET")
    files = MemoryFiles(f"file://{tmp_path}/new/files")
    root = tmp_path / "new" / "files"
    (root / "dir").mkdir()
    (root / "file.txt").symlink_to(outside / "secret.txt")
    (root / "link").symlink_to(outside)
    (root / "dir" / "up").symlink_to(outside)
    (root / "gone").symlink_to(outside / "new.txt")
    (root / "inside").symlink_to(root / "dir")
    os.mkfifo(root / "pipe")
    return files, root, outside


@pytest.mark.parametrize(
    "path",
    ["file.txt", "link", "link/secret.txt", "link/deep/new.txt", "dir/up/secret.txt", "gone", "inside/x", "pipe"],
)
@pytest.mark.parametrize(
    ("command", "given"),
    [
        ("view", {}),
        ("create", {"file_text": "x"}),
        ("str_replace", {"old_str": "TOP", "new_str": "NO"}),
        ("insert", {"insert_line": 0, "insert_text": "x"}),
        ("update", {"file_text": "x"}),
        ("delete", {}),
        ("rename", {}),
        ("rename to", {}),
    ],
)
def test_no_link_is_followed_by_any_command(linked, command, given, path):
    files, root, outside = linked
    names = sorted(str(place) for place in root.rglob("*"))
    here = f"/memories/{path}"
    if command.startswith("rename"):
        assert do(files, "create", path="/memories/dir/mine", file_text="m").ok
        pair = ("/memories/dir/mine", here) if command == "rename to" else (here, "/memories/dir/z")
        result = do(files, "rename", old_path=pair[0], new_path=pair[1])
        assert do(files, "delete", path="/memories/dir/mine").ok
        (root / "dir").mkdir(exist_ok=True)
    else:
        result = do(files, command, path=here, **given)
    assert result.error.code == "PATH_NOT_ALLOWED"
    assert f"Path {here} would escape /memories directory" in result.text
    assert str(root) not in result.text
    assert [place.name for place in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == "TOP SECRET"
    assert sorted(str(place) for place in root.rglob("*") if place.name != ".nbtools.lock") == names
    assert do(files, "view", path="/memories").text.endswith("\t/memories")


def test_files_in_a_folder_are_the_owners_alone(tmp_path):
    before = os.umask(0)
    try:
        files = MemoryFiles(f"file://{tmp_path}/new/er/files")
        assert do(files, "create", path="/memories/a/b/c.txt", file_text="c\n").ok
        (tmp_path / "new/er/files/a/b/c.txt").chmod(0o644)
        assert do(files, "insert", path="/memories/a/b/c.txt", insert_line=0, insert_text="b").ok
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.rglob("*")}
    assert modes == dict.fromkeys(("new", "er", "files", "a", "b"), 448) | {
        "c.txt": 0o600,
        ".nbtools.lock": 0o600,
    }
    assert do(files, "delete", path="/memories/a").ok
    assert [p.name for p in (tmp_path / "new/er/files").iterdir()] == [".nbtools.lock"], "no empty folders are left"


@pytest.mark.parametrize("command", ["view", "delete"])
def test_the_lock_of_a_folder_is_no_file_of_the_tool(tmp_path, command):
    files = MemoryFiles(f"file://{tmp_path}/files")
    assert do(files, "create", path="/memories/a", file_text="x").ok
    assert do(files, command, path="/memories/.nbtools.lock").error.code == "PATH_NOT_ALLOWED"
    assert (tmp_path / "files" / ".nbtools.lock").exists()


def test_a_folder_that_cannot_be_reached_is_told_without_its_place(tmp_path):
    files = MemoryFiles(f"file://{tmp_path}/files")
    assert do(files, "create", path="/memories/a", file_text="x").ok
    (tmp_path / "files").rename(tmp_path / "other")
    (tmp_path / "files").write_text("a file now")
    result = do(files, "create", path="/memories/b", file_text="x")
    assert not result.ok
    assert str(tmp_path) not in result.text
    with pytest.raises(MemoryUnavailable, match="cannot be created: Not a directory") as caught:
        MemoryFiles(f"file://{tmp_path}/files/below")
    assert str(tmp_path) not in str(caught.value)


def test_texts_are_those_of_the_sdks_own_tool(tmp_path):
    """The same commands, to the tool that comes with Anthropic's SDK and to ours over a folder."""
    from anthropic.lib.tools import ToolError
    from anthropic.tools.memory import BetaLocalFilesystemMemoryTool

    from nbtools.memory.anthropic import MemoryTool

    theirs = BetaLocalFilesystemMemoryTool(base_path=str(tmp_path / "theirs"))
    ours = MemoryTool(MemoryFiles(f"file://{tmp_path}/ours"))

    def said(tool, call):
        try:
            return tool.call(call)
        except ToolError as exc:
            return str(exc).removeprefix("Error: ")

    for line in (HERE / "sdk_calls.jsonl").read_text(encoding="utf-8").splitlines():
        call = json.loads(line)
        mine, expected = said(ours, call), said(theirs, call)
        assert mine == expected, call


def test_content_is_another_name_of_the_text_and_results_have_data():
    files = MemoryFiles(open_memory(":memory:"))
    made = files.call({"command": "create", "path": "/memories/a.txt", "content": "one\ntwo\n"})
    assert (made.ok, made.data) == (True, {"path": "/memories/a.txt"})
    seen = files.call({"command": "view", "path": "/memories/a.txt", "view_range": [2, 2]})
    assert seen.data == {"path": "/memories/a.txt", "content": "two"}
    assert files.call({"command": "view", "path": "/memories"}).data["files"] == {"/memories/a.txt": 8}
    both = files.call({"command": "create", "path": "/memories/b.txt", "content": "1", "file_text": "2"})
    assert "exactly one of `file_text` and `content`" in both.text
    files.call({"command": "update", "path": "/memories/a.txt", "content": "x" * 20_000})
    cut = files.call({"command": "view", "path": "/memories/a.txt"}).data
    assert (len(cut["content"]), cut["truncated"]) == (16_000, True)
    assert files.call({"command": "rename", "old_path": "/memories/a.txt", "new_path": "/memories/c"}).data == {
        "path": "/memories/c"
    }
