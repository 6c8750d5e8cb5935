"""What is forgotten is in no byte of any file any more, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections import Counter
from functools import partial

import pytest

from nbtools.errors import MemoryWriteFailed
from nbtools.memory import CallLog, MemoryFiles, open_memory
from nbtools.memory.duckdb.directory import MemoryDirectory
from nbtools.memory.repository import Change
from nbtools.memory.rules.erasure import FORGOTTEN, Erasure
from tests.conftest import repeated
from tests.memory.conftest import end_keeper, keeper_of

pytestmark = pytest.mark.in_memory

MARK = "hunter2-geheim-9f31"


def traces(path):
    """Return the files beside and below the memory file that have the marked value in them, in any byte."""
    for _ in range(100):
        files = [found for found in path.parent.rglob("*") if found.is_file()]
        assert path in files
        with contextlib.suppress(FileNotFoundError):  # a keeper at work gave one another name: all are read again
            return sorted(found.name for found in files if MARK.encode() in found.read_bytes())
    raise AssertionError("the files never stood still")


def fill(memory, number=100):
    """Save the marked value in every way there is, among other things."""
    memory.write("secret", MARK, tags=["login"])
    memory.write("secret", {"user": "bob", "password": MARK, "note": f"it is {MARK}, do not tell"})
    for n in range(number):
        memory.write(f"k{n}", f"note {n} " + "text " * 20, tags=[f"t{n % 7}"])
    memory.write("secret", [MARK])
    memory.delete("secret")
    memory.restore("secret", 3)
    log = CallLog(memory.repository)
    log.append(
        {"call_id": "1", "tool": "memory_save", "arguments": {"key": "secret", "value": MARK, "tags": ["x"]}},
        {"call_id": "2", "tool": "data_analyze", "arguments": {"script": f"login('bob', '{MARK}')"}, "message": None},
        {"call_id": "3", "tool": "memory_search", "arguments": {"query": MARK}, "ok": False, "message": f"no {MARK}"},
        {"call_id": "4", "tool": "web_fetch", "arguments": {"url": "https://example.org"}},
    )
    assert [record.key for record in memory.search("geheim")] == ["secret"]


def check_forgotten(memory, number=100):
    assert "secret" not in memory
    assert memory.history("secret") == []
    assert memory.search("geheim") == memory.find(["login"]) == []
    assert len(memory) == number
    assert memory["k7"].startswith("note 7")
    assert len(memory.find(["t3"])) == len(range(3, number, 7))
    calls = {call["call_id"]: call for call in CallLog(memory.repository).list(limit=None)}
    assert MARK not in json.dumps(calls)
    assert calls["1"]["arguments"] == {"key": "secret", "value": FORGOTTEN, "tags": FORGOTTEN}
    assert calls["2"]["arguments"] == {"script": f"login('bob', '{FORGOTTEN}')"}
    assert calls["4"]["arguments"] == {"url": "https://example.org"}
    assert memory.write("secret", "new").version == 1


@pytest.mark.processes
@pytest.mark.parametrize("embedded", [False, True])
def test_a_forgotten_value_is_in_no_byte_of_the_folder(path, embedded):
    with open_memory(path, agent_id="a", embedded=embedded, idle_exit=20) as memory:
        fill(memory)
        assert traces(path)
        assert memory.forget("secret") == 5
        assert traces(path) == []
        check_forgotten(memory)
    end_keeper(path)
    assert traces(path) == []
    with open_memory(path, agent_id="a", embedded=embedded, idle_exit=20) as memory:
        assert memory["secret"] == "new"
        assert len(memory) == 101


@pytest.mark.processes
def test_what_lies_in_the_database_for_long_is_forgotten_too(path):
    with open_memory(path, agent_id="a", idle_exit=20) as memory:
        fill(memory)
    end_keeper(path)  # Merged, check-pointed and indexed.
    assert path.name in traces(path)
    with open_memory(path, agent_id="a", idle_exit=20) as memory:
        assert memory.forget("secret") == 5
        assert traces(path) == []
        check_forgotten(memory)


@pytest.mark.processes
def test_no_table_of_a_database_has_what_is_forgotten(postgres_database):
    import psycopg

    def rows():
        with psycopg.connect(postgres_database) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            return [str(row) for (name,) in tables for row in connection.execute(f"SELECT t::text FROM {name} t")]

    with open_memory(postgres_database, agent_id="a") as memory:
        fill(memory, 20)
        assert any(MARK in row for row in rows())
        assert memory.forget("secret") == 5
        assert [row for row in rows() if "geheim" in row] == []
        check_forgotten(memory, 20)


@pytest.mark.processes
def test_files_of_the_memory_tool_are_forgotten_by_their_path(open_shared, path):
    memory = open_shared()
    files = MemoryFiles(memory)
    files.call({"command": "create", "path": "/memories/login.txt", "file_text": f"password: {MARK}\n"})
    files.call({"command": "str_replace", "path": "/memories/login.txt", "old_str": MARK, "new_str": "gone"})
    assert traces(path)
    assert memory.forget("/memories/login.txt") == 2
    assert traces(path) == []
    assert not files.call({"command": "view", "path": "/memories/login.txt"}).ok


@pytest.mark.processes
def test_only_this_key_of_this_scope_is_forgotten(open_shared, path):
    memory = open_shared()
    other = memory.scoped(workflow_id="w")
    for one in (memory, other):
        one.write("secret", MARK)
    assert memory.forget("secret") == 1
    assert (other["secret"], memory.read("secret")) == (MARK, None)
    assert other.forget("secret") == 1
    assert other.forget("nothing") == 0
    assert traces(path) == []


@pytest.mark.processes
def test_a_record_of_a_call_that_comes_late_does_not_bring_it_back(open_shared, path):
    memory = open_shared()
    memory.write("secret", MARK)
    memory.forget("secret")
    late = {"call_id": "1", "tool": "memory_save", "arguments": {"key": "secret", "value": MARK}}
    CallLog(memory.repository).append(late)
    assert CallLog(memory.repository).list()[0]["arguments"] == {"key": "secret", "value": FORGOTTEN}
    assert traces(path) == []


@pytest.mark.processes
def test_a_write_after_it_in_the_same_batch_stays(open_shared, path):
    memory = open_shared()
    memory.write("k", MARK)
    scope = memory.scope
    done = memory.repository.apply(
        [
            Change(kind="write", scope=scope, key="k", value=json.dumps(MARK + "2")),
            Change(kind="forget", scope=scope, key="k"),
            Change(kind="write", scope=scope, key="k", value='"harmless"'),
        ]
    )
    assert [applied.count for applied in done] == [1, 2, 1]
    assert [(r.version, r.value) for r in memory.history("k")] == [(1, "harmless")]
    assert traces(path) == []


@pytest.mark.races
def test_a_forget_is_made_once_over_a_kill(open_shared, path):
    memory = open_shared()
    wish = [Change(kind="forget", scope=memory.scope, key="secret")]
    memory.write("secret", MARK)
    (first,) = memory.repository.apply(wish, request_id="r")
    assert first.count == 1
    memory.write("secret", "another one")
    end_keeper(path, signal.SIGKILL)
    assert memory.repository.apply(wish, request_id="r") == [first]
    assert memory["secret"] == "another one"


@pytest.mark.slow
@pytest.mark.races
def test_whoever_is_killed_while_forgetting_leaves_it_to_the_next(path):
    """Kills fall at any moment of a forget; whatever was begun is finished when the file is opened again."""
    with open_memory(path, agent_id="a", idle_exit=20) as memory:
        fill(memory, 20)
        for number in range(6):
            memory.write("secret", MARK)
            kill = threading.Timer(0.01 * number, os.kill, (keeper_of(path), signal.SIGKILL))
            kill.start()
            memory.forget("secret")
            kill.join()
            assert "secret" not in memory
            assert traces(path) == []


@pytest.mark.processes
def test_readers_and_writers_go_on_while_something_is_forgotten(open_shared, path):
    memory = open_shared()
    fill(memory, 20)
    reads = Counter()

    def use(name, mine):
        n = reads[name]
        mine.write(f"{name}-{n}", n)
        assert mine[f"{name}-{n}"] == n
        assert len(mine.history("k3")) == 1
        assert mine.search("note", limit=3)
        reads[name] += 1

    with repeated(*[partial(use, name, open_shared()) for name in "xyz"]):
        for _ in range(5):
            memory.write("secret", MARK)
            memory.forget("secret")
            assert traces(path) == []
    assert set(reads) == set("xyz")


def test_without_room_for_the_copies_it_is_said_and_done_later(path):
    with open_memory(path, agent_id="a", embedded=True) as memory:
        fill(memory, 20)
        draft = MemoryDirectory(path).folder / "rewritten"
        draft.mkdir()  # Stands in for the disk that has no room: no copy can be made there.
        with pytest.raises(MemoryWriteFailed, match="parts of it remain") as caught:
            memory.forget("secret")
        assert caught.value.retryable
        assert "secret" not in memory
    assert traces(path)
    draft.rmdir()
    with open_memory(path, agent_id="a", embedded=True) as memory:
        check_forgotten(memory, 20)
        assert traces(path) == []


@pytest.mark.processes
def test_damaged_files_that_were_set_aside_are_named(open_shared, path):
    memory = open_shared()
    memory.write("secret", MARK)
    aside = [path.with_name("m.duckdb.damaged-20260101-000000"), MemoryDirectory(path).log / "1.log.damaged"]
    for one in aside:
        one.write_text(MARK)
    with pytest.warns(UserWarning, match="remove them") as told:
        memory.forget("secret")
    assert str(told[0].message).endswith(f"remove them: {aside[0]}")
    assert traces(path) == [aside[0].name]


@pytest.mark.parametrize(
    ("value", "text", "left"),
    [
        ('line one\nline "two"', "print('line one\\nline \"two\"')", f"print('{FORGOTTEN}')"),
        ("schlüssel", json.dumps("der schlüssel"), f'"der {FORGOTTEN}"'),
        ({"pin": 471199}, "pin 471199", f"pin {FORGOTTEN}"),
        ("4711", "4711", FORGOTTEN),
        ("4711", "x47112", "x47112"),
        ("no", "no", "no"),
        ("x" * 5000, "x" * 4000 + "… (5,000 characters)", f"{FORGOTTEN}… (5,000 characters)"),
    ],
)
def test_a_value_is_found_as_it_may_be_written(value, text, left):
    record = json.dumps({"tool": "python", "arguments": {"script": text}})
    cleaned = Erasure("k", [json.dumps(value)]).clean(record)
    assert json.loads(cleaned)["arguments"]["script"] == left


def test_numbers_are_found_as_numbers():
    cleaned = Erasure("k", ["471199"]).clean('{"tool":"t","arguments":{"pin":471199,"n":1,"on":true}}')
    assert json.loads(cleaned)["arguments"] == {"pin": FORGOTTEN, "n": 1, "on": True}


def test_a_note_of_many_texts_is_taken_out_of_files_in_short_time(tmp_path):
    value = [f"text number {number} of many" for number in range(500)]
    (tmp_path / "log.jsonl").write_bytes(
        b'{"kind": "text number 7 of many", "a": 1}\n' * 20_000 + b'"text number 9 of many"'
    )
    (tmp_path / "link").symlink_to(tmp_path / "log.jsonl")
    began = time.thread_time()
    Erasure("k", [json.dumps(value)]).blot_files(tmp_path)
    assert time.thread_time() - began < 10
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert lines[-1] == f'"{"*" * 21}"'
    assert set(lines[:-1]) == {'{"kind": "text number 7 of many", "a": 1}'}, "a word of the record's own"
    (tmp_path / "n.json").write_text('{"card": 4111111111111111, "text": "4111111111111111"}')
    Erasure("k", ["4111111111111111"]).blot_files(tmp_path)
    assert json.loads((tmp_path / "n.json").read_text()) == {"card": 1111111111111111, "text": "1" * 16}


LONG = (
    'The deal with "Müller & Söhne" was closed at 4,711,000 in\nZürich on 3 May; nobody but the board knows of it yet. '
    * 3
)


def escaped(text):
    return json.dumps(text)[1:-1]


def blotted_in(folder, erasure, text):
    (folder / "own").write_text(text, encoding="utf-8")
    erasure.blot_files(folder)
    return (folder / "own").read_text(encoding="utf-8")


def has_excerpt(text):
    return any(text[at : at + 31] in LONG for at in range(len(text) - 30))


@pytest.mark.parametrize(
    "form", [str, lambda text: text.replace("\n", " "), escaped, lambda text: escaped(escaped(text))]
)
def test_an_excerpt_of_a_long_text_is_taken_out_wherever_it_was_cut(tmp_path, form):
    erasure, whole = Erasure("deal", [json.dumps(LONG)]), form(LONG)
    for start in range(0, len(whole) - 60, 7):
        part = whole[start : start + 60]
        text = f'{{"kind": "tool_call", "content": "the note says: … {escaped(part)} … and more"}}'
        blotted = blotted_in(tmp_path, erasure, text)
        assert len(blotted.encode()) == len(text.encode())
        assert not has_excerpt(json.loads(blotted)["content"])
        cleaned = json.loads(erasure.clean(json.dumps({"tool": "file_read", "message": part})))
        assert not has_excerpt(cleaned["message"])


def test_what_only_has_some_words_of_a_long_text_stays(tmp_path):
    erasure = Erasure("deal", [json.dumps(LONG)])
    text = '{"tool": "file_read", "content": "nobody but the board, in Zürich on 3 May, closed the deal with them"}'
    assert blotted_in(tmp_path, erasure, text) == text
    assert erasure.clean(text) == text


@pytest.mark.parametrize("at", [0, (1 << 24) - 9, 1 << 24])
def test_a_value_is_found_in_a_file_that_is_read_in_pieces(tmp_path, at):
    (tmp_path / "own").write_bytes(b"." * at + MARK.encode() + b".")
    assert Erasure("secret", [json.dumps(MARK)]).is_in(tmp_path / "own")
    assert not Erasure("secret", ['"another one"', "7"]).is_in(tmp_path / "own")
