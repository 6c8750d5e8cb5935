"""What only a server shared by many clients can get wrong; the conformance suite holds the rest."""

from __future__ import annotations

import json
import multiprocessing
import random
import threading
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import psycopg
import pytest

from nbtools.errors import ConfigInvalid, MemoryUnavailable
from nbtools.memory import InMemoryRepository, open_memory
from nbtools.memory.calls import CallLog
from nbtools.memory.postgres.repository import PostgresRepository
from nbtools.memory.records import Scope
from nbtools.memory.repository import CallQuery, Change, Query
from tests.conftest import repeated
from tests.memory.conftest import wait_until

pytestmark = pytest.mark.processes

AGENT = Scope(agent_id="a")


@pytest.fixture
def memory(postgres_database):
    with open_memory(postgres_database, agent_id="a") as opened:
        yield opened


def rows(url, text):
    with psycopg.connect(url) as connection:
        return connection.execute(text).fetchall()


def beside(tasks, rounds):
    """Run each task again and again in a thread of its own, until the first has done its rounds."""
    done, errors, over = Counter(), [], threading.Event()

    def run(place, task):
        while not over.is_set():
            try:
                task(done[place])
            except Exception as exc:
                errors.append(exc)
            done[place] += 1
            if done[0] >= rounds:
                over.set()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done, errors


def test_search_answers_beside_writers(memory):
    def write(name):
        return lambda turn: memory.write(f"{name}{turn}", "alpha beta")

    done, errors = beside([lambda _: memory.search("alpha"), write("x"), write("y")], 100)
    assert errors == []
    assert done[1] + done[2] == len(memory)


def test_search_finds_what_people_mean_as_the_keeper_does(memory):
    data = json.loads((Path(__file__).parents[1] / "notes_and_questions.json").read_text(encoding="utf-8"))
    for note in data["notes"]:
        memory.write(note["key"], note["value"], tags=note["tags"])
    found = {question: [record.key for record in memory.search(question)] for question, _ in data["questions"]}
    assert [question for question, key in data["questions"] if found[question][:1] != [key]] == []


def test_the_ranking_is_that_of_the_reference(memory):
    chosen = random.Random(1)
    words = [f"w{chr(97 + n // 10)}{chr(97 + n % 10)}" for n in range(60)]
    weights = [1 / (n + 1) for n in range(60)]
    texts = {f"k{n}": " ".join(chosen.choices(words, weights, k=chosen.randint(3, 30))) for n in range(300)}
    reference = InMemoryRepository()
    for repository in (memory.repository, reference):
        repository.apply([Change(kind="write", scope=AGENT, key=k, value=f'"{v}"') for k, v in texts.items()])
    for question in (words[2], f"{words[50]} {words[3]}", " ".join(words[40:43]), f"{words[1]} nothing", "wf", "wbx"):
        query = Query(scope=AGENT, text=question, limit=20)
        mine, expected = (
            [(r.key, r.score) for r in some.query(query).records] for some in (memory.repository, reference)
        )
        assert [score for _, score in mine] == pytest.approx([score for _, score in expected], rel=1e-6)
        assert {key for key, score in mine if score > mine[-1][1]} == {
            key for key, score in expected if score > expected[-1][1]
        }


@pytest.mark.parametrize(
    "question", ["it's \\ 'q' & | ! :* <-> ( )", "\x00", "\ud800", "'; drop table x; --", "_ %s %%", "a" * 3_000, "🎂"]
)
def test_no_question_is_too_odd(memory, question):
    memory.write("k", {"text": f"found by {question}".replace("\ud800", "")})
    assert [record.key for record in memory.search(f"{question} found")] == ["k"]


def test_a_word_is_mended_by_those_of_its_scope_and_not_by_what_is_forgotten(postgres_database, memory):
    memory.write("x", "churn")
    other = memory.scoped(agent_id="b")
    other.write("y", "charm")
    assert ([r.key for r in memory.search("churm")], [r.key for r in other.search("churm")]) == (["x"], ["y"])
    memory.delete("x")
    assert memory.search("churm") == []
    other.forget("y")
    assert rows(postgres_database, "SELECT word FROM nbtools_words WHERE word = 'charm'") == []


@pytest.mark.parametrize(("version", "whose"), [(2, "an unreleased"), (4, "a newer")])
def test_the_schema_of_another_version_is_refused(postgres_database, memory, version, whose):
    memory.write("k", 1)
    with psycopg.connect(postgres_database) as connection:
        connection.execute("UPDATE nbtools_schema SET version = %s", [version])
    with (
        pytest.raises(MemoryUnavailable, match=f"schema {version} of {whose} nbtools"),
        open_memory(postgres_database, agent_id="a") as other,
    ):
        other.get("k")


def test_a_clear_refuses_no_writer(memory):
    def write(turn):
        memory.write(f"k{turn % 5}", turn)

    nodes = memory.scoped(workflow_id="w", node_id="n")
    tasks = [
        *(lambda _: memory.clear(), write, write, lambda _: memory.incr("k1")),
        *(lambda _: memory.clear_by_workflow("a", "w"), lambda _: nodes.incr("n")),
    ]
    done, errors = beside(tasks, 60)
    assert errors == []
    assert [r.version for r in memory.history("k1")] == sorted({r.version for r in memory.history("k1")})
    assert all(done[place] for place in range(len(tasks)))


@pytest.mark.slow
@pytest.mark.races
def test_a_restart_costs_clients_no_more_than_the_restart(postgres_server):
    with open_memory(postgres_server.url, agent_id="a") as memory:
        counts, returned, late = Counter(), dict[str, float](), []
        up = [0.0]

        def count(name):
            memory.incr(name)
            counts[name] += 1
            if up[0] > returned.get(name, 0.0):
                returned[name] = up[0]
                late.append(time.monotonic() - up[0])

        with repeated(*[partial(count, f"n{n}") for n in range(4)]) as errors:
            for away in (0.0, 3.3):
                seen = sum(counts.values())
                wait_until(lambda seen=seen: errors or sum(counts.values()) > seen + 20)
                postgres_server.stop()
                time.sleep(away)  # Long enough for those who try ever more seldom to miss the server's return.
                postgres_server.start()
                up[0] = time.monotonic()
                wait_until(lambda: errors or len(late) >= 4)
                assert errors == []
                assert max(late) < 1.5
                late.clear()
        # What was under way when the server went down was not applied twice.
        assert {name: memory[name] for name in counts} == counts


@pytest.mark.slow
def test_a_commit_without_an_answer_is_told_as_such(postgres_server):
    url = postgres_server.url
    with open_memory(url, agent_id="a", timeout=3) as memory, ThreadPoolExecutor(1) as pool:
        memory.write("k", 1)
        with psycopg.connect(url) as connection:
            connection.execute("""
                CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN PERFORM pg_sleep(60); RETURN NULL; END';
                CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON nbtools_requests
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait();
            """)
        writing = pool.submit(memory.write, "k", 2)
        wait_until(lambda: rows(url, "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query = 'COMMIT'"))
        postgres_server.stop()
        with pytest.raises(MemoryUnavailable, match="not known whether") as caught:
            writing.result()
        assert not caught.value.retryable
        postgres_server.start()
        assert memory["k"] == 1


def test_what_is_due_is_removed_from_the_database(postgres_database, memory):
    memory.write("short", "a secret of one moment", ttl=0.05)
    memory.write("old", 1)
    memory.delete("old")
    memory.write("stays", 1, ttl=600)
    wait_until(lambda: "short" not in memory)
    with psycopg.connect(postgres_database) as connection:
        connection.execute("UPDATE nbtools_items SET updated = updated - 31 * 86400000000 WHERE key = 'old'")
        connection.execute("UPDATE nbtools_requests SET at = at - 7200000000")
    with open_memory(postgres_database, agent_id="a") as later:
        later.write("k", 1)
        assert [(r.change, r.value) for r in later.history("short")][-1] == ("expire", None)
    assert rows(postgres_database, "SELECT key, value FROM nbtools_items ORDER BY key") == [
        ("k", "1"),
        ("short", None),
        ("stays", "1"),
    ]
    assert rows(postgres_database, "SELECT count(*) FROM nbtools_history WHERE key = 'old'") == [(0,)]
    assert rows(postgres_database, "SELECT count(*) FROM nbtools_requests") == [(1,)]


def test_records_of_calls_are_kept_up_to_a_number(postgres_database):
    log = CallLog(PostgresRepository(postgres_database))
    log.append(*({"call_id": f"c{n}", "tool": "t"} for n in range(10)))
    log.repository.close()
    log = CallLog(PostgresRepository(postgres_database, calls=3))
    log.append({"call_id": "c5", "tool": "t"})
    assert [call["call_id"] for call in log.list()] == ["c8", "c9", "c5"]
    log.repository.close()


def test_one_request_sent_twice_at_once_is_applied_once(memory):
    batch = [Change(kind="incr", scope=AGENT, key="n"), Change(kind="call", key="c", value="{}")]
    answers = []
    send = lambda turn: answers.append(memory.repository.apply(batch, request_id=f"r{turn}"))  # noqa: E731
    done, errors = beside([send] * 3, 30)
    assert errors == []
    assert memory["n"] == max(done.values())
    assert len({answer[0].record.version for answer in answers}) == memory["n"]


@pytest.mark.slow
def test_a_large_batch_needs_few_locks(postgres_database, memory):
    count = 8_000  # a server of the tests has room for 6,400 of them
    memory.repository.apply([Change(kind="write", scope=AGENT, key=f"k{n}", value="1") for n in range(count)])
    assert len(memory) == count
    assert memory.clear() == count


def test_a_statement_that_takes_too_long_ends_with_the_time_of_the_request(postgres_database, memory):
    memory.write("k", 1)
    with (
        open_memory(postgres_database, agent_id="a", timeout=0.3) as hurried,
        psycopg.connect(postgres_database) as other,
    ):

        def read():
            with suppress(MemoryUnavailable):  # a busy machine takes longer to connect
                return hurried["k"]

        assert wait_until(read) == 1
        other.execute("LOCK TABLE nbtools_items IN ACCESS EXCLUSIVE MODE")
        start = time.monotonic()
        with pytest.raises(MemoryUnavailable) as caught:
            hurried.read("k")
        assert time.monotonic() - start < 5
        assert caught.value.retryable
        other.rollback()
        assert wait_until(read) == 1


def test_a_server_that_is_not_there_is_told_at_once():
    with open_memory("postgresql://u:geheim@localhost:1/d", agent_id="a") as memory:
        start = time.monotonic()
        with pytest.raises(MemoryUnavailable, match="localhost:1/d") as caught:
            memory.write("k", 1)
        assert time.monotonic() - start < 5
        assert "geheim" not in str(caught.value)
    with pytest.raises(ConfigInvalid, match="no_such_option"):
        open_memory("postgresql:///d?no_such_option=1")


def test_a_forked_child_has_connections_of_its_own(memory):
    memory.write("k", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads, of which this process has several
        child = multiprocessing.get_context("fork").Process(target=lambda: memory.incr("k"))
        child.start()
    child.join(30)
    assert child.exitcode == 0
    assert memory.incr("k") == 3


def test_a_batch_reads_what_others_wrote_while_it_waited(postgres_database):
    """Whatever isolation the database has by default."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    with open_memory(postgres_database, agent_id="a") as memory:
        done, errors = beside([lambda _: memory.incr("n")] * 3, 40)
        assert errors == []
        assert memory["n"] == sum(done.values())
        assert memory.repository.query(Query(give="count")).total == 1
        assert memory.repository.calls(CallQuery()) == []
