"""Which rows a query can need of a table: what the tree says, and that no answer is another for it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pandas as pd
import pytest

from nbtools.memory import AgentMemory
from nbtools.memory.duckdb.repository import DuckDBRepository
from nbtools.memory.records import OWN
from nbtools.sql import SqlSession
from nbtools.sql.frames import RecordSource
from nbtools.sql.verdict.policy import Policy
from nbtools.sql.verdict.rows_needed import RowsNeeded

EVERY = {"keys": None, "prefix": "", "order": (), "limit": None}
MEMORY = "nbtools.memory"


@pytest.mark.parametrize(
    ("sql", "needed"),
    [
        ("select value from nbtools.memory where key = 'a'", {"keys": ("a",)}),
        ("from NBTOOLS.Memory m where 'a' = m.KEY and version > 1", {"keys": ("a",)}),
        ("from nbtools.memory where key in ('a', $k) and key in ('a', 'b')", {"keys": ("a",)}),
        ("from nbtools.memory where key = 'a' or key in ('b', 'c') limit 2", {"keys": ("a", "b", "c"), "limit": 2}),
        ("from nbtools.memory where key like 'p/%' limit 3 offset 2", {"prefix": "p/", "limit": 5}),
        ("from nbtools.memory where key like 'p_/%' limit 3", {"prefix": "p"}),
        ("from nbtools.memory where key ^@ 'p/' or key like 'pq%'", {"prefix": "p"}),
        ("select key, value->>'x' from nbtools.memory order by updated_at desc, key limit 20",
         {"order": (("updated_at", True), ("key", False)), "limit": 20}),
        ("from nbtools.memory a join t on a.key = t.key where a.key = 'a'", {"keys": ("a",)}),
        ("from nbtools.memory where key = 'a' union all from nbtools.memory where key = 'b'", {"keys": ("b", "a")}),
        ("with m as (from nbtools.memory where key = 'a') select count(*) from m", {"keys": ("a",)}),
        ("select (select max(value) from nbtools.memory where key = 'a') from t limit 1", {"keys": ("a",)}),
        # What says nothing, or says it of something else.
        ("from nbtools.memory", {}),
        ("from nbtools.memory where not key = 'a'", {}),
        ("from nbtools.memory where key = 'a' or version = 1 limit 3", {}),
        ("from nbtools.memory where key = 5", {}),
        ("from nbtools.memory where key in ('a', null)", {}),
        ("from nbtools.memory where key in (select 'a')", {}),
        ("from nbtools.memory where key like 'a%' escape 'a'", {}),
        ("from nbtools.memory where key ilike 'a%'", {}),
        ("from nbtools.memory where key = 'a' collate nocase", {}),
        ("from nbtools.memory join t using (key) where key = 'a'", {}),
        ("from nbtools.memory anti join t using (key) where key = 'a'", {}),
        ("from t asof join nbtools.memory m on t.x >= m.version where m.key = 'a'", {}),
        ("from t positional join nbtools.memory m where m.key = 'a'", {}),
        ("from nbtools.memory as m(key, id) where key = 'a'", {}),
        ("from nbtools.memory tablesample 10 rows where key = 'a'", {}),
        ("from nbtools.memory where key = 'a' using sample 10 rows", {}),
        ("from nbtools.memory where key = 'a' union all from nbtools.memory", {}),
        ("select * from (select * from nbtools.memory) where key = 'a' limit 3", {}),
        ("select count(*) from nbtools.memory limit 1", {}),
        ("select unnest(tags) from nbtools.memory limit 1", {}),
        ("select distinct agent_id from nbtools.memory limit 1", {}),
        ("select agent_id from nbtools.memory group by all limit 1", {}),
        ("select key, row_number() over () from nbtools.memory limit 1", {}),
        ("from nbtools.memory where version = 1 limit 1", {}),
        ("from nbtools.memory limit 10%", {}),
        ("from nbtools.memory order by key nulls first limit 1", {}),
        ("select value as key from nbtools.memory order by key limit 1", {}),
        ("select * replace (value as key) from nbtools.memory order by key limit 1", {}),
        ("from nbtools.memory order by lower(key) limit 1", {}),
        ("from nbtools.memory, t limit 1", {}),
        ("summarize nbtools.memory", {}),
        ("from nbtools.memory where key = 'a' union all by name from (describe nbtools.memory)", {}),
        ("from nbtools.memory m where m.key = 'a' and exists (from query_table('nbtools.memory'))", {}),
    ],
)  # fmt: skip
def test_the_tree_says_which_rows_can_be_needed(sql: str, needed: dict[str, Any]) -> None:
    verdict = Policy().check(sql)
    need = dict(verdict.needs).get(MEMORY, RowsNeeded()).bound({"k": "z"})
    assert need.of_column("key") == EVERY | needed, verdict


def test_a_parameter_that_is_not_a_text_says_nothing() -> None:
    ((_, need),) = Policy().check("from nbtools.memory where key = $1 limit 2").needs
    assert need.bound(["a"]).of_column("key") == EVERY | {"keys": ("a",), "limit": 2}
    assert need.bound([5]).of_column("key") == need.bound(None).of_column("key") == EVERY


# -- any query gives the same answer ---------------------------------------------------------------------------------

KEYS = ("p/a", "p/b", "p/é", "q", "Q", "p%", "p_x", "it's", "a", "b", "z/1", "z/10", "z/2")
OTHERS = pd.DataFrame({"key": ["p/a", "q", "nowhere", None], "n": [1, 2, 3, 4]})


@pytest.fixture(scope="module")
def memory() -> Iterator[AgentMemory]:
    repository = DuckDBRepository(None)
    notes = AgentMemory(repository, agent_id="a")
    for number, key in enumerate(KEYS):
        for ids in ({"agent_id": "a"}, {"agent_id": "b"}, {"agent_id": "a", "workflow_id": f"w{number % 3}"})[
            number % 2 :
        ]:
            scoped = AgentMemory(repository, **{"scope": None, **ids})
            scoped.write(key, number % 4, tags=["t"] if number % 2 else [], ttl=1e6 * number if number % 3 else None)
    AgentMemory(repository, agent_id="a", workflow_id=f"{OWN}x", scope=None).write("p/a", "of nbtools")
    yield notes
    repository.close()


@pytest.fixture(scope="module")
def sessions(memory: AgentMemory) -> Iterator[tuple[SqlSession, SqlSession, list[int]]]:
    handed: list[int] = []

    def read(needed: RowsNeeded) -> Any:
        table = memory.table(**needed.of_column("key"))
        handed.append(len(table))
        return table

    whole = memory.table()
    with (
        SqlSession(tables={MEMORY: RecordSource(read)}, frames={"t": OTHERS}) as some,
        SqlSession(tables={MEMORY: lambda: whole}, frames={"t": OTHERS}) as every,
    ):
        yield some, every, handed


def _condition(dice: random.Random, name: str, depth: int = 0) -> str:
    text = "'" + dice.choice([*KEYS, "p/%", "p%", "%a", "z_1%", ""]).replace("'", "''") + "'"
    key, other = f"{name}key", f"{name}version {dice.choice('=<>')} {dice.randint(0, 3)}"
    simple = [
        f"{key} = {text}", f"{text} = {key}", f"{key} in ({text}, 'q')", f"{key} like {text}", f"{key} ^@ {text}",
        f"{key} not in ({text}, 'q')", f"{key} <> {text}", f"{key} is not distinct from {text}", f"{key} > {text}",
        f"{key} ilike {text}", f"{key} = $k", f"starts_with({key}, {text})", f"{name}value = '2'", other,
        f"{key} in (select key from t)", f"exists (from nbtools.memory i where i.key = {text})",
    ]  # fmt: skip
    if depth > 2 or dice.random() < 0.45:
        return dice.choice(simple)
    if dice.random() < 0.15:
        return f"not ({_condition(dice, name, depth + 1)})"
    sides = [_condition(dice, name, depth + 1) for _ in range(2)]
    return "(" + dice.choice([" and ", " and ", " or "]).join(sides) + ")"


def _query(dice: random.Random) -> tuple[str, bool]:
    """Return a query, and whether the order of its rows is sure."""
    where = f"where {_condition(dice, '')}" if dice.random() < 0.7 else ""
    page = f"limit {dice.randint(0, 6)}" + (f" offset {dice.randint(0, 4)}" if dice.random() < 0.4 else "")
    order = "order by " + dice.choice(["id", "key desc, id", "updated_at, id desc", "expires_at desc, id", "value, id"])
    columns = dice.choice(["*", "key, value", "id, version + 1 as key", "key, value as id", "* exclude (tags)"])
    joined = dice.choice(["join", "left join", "right join", "full join", "semi join", "anti join", "cross join"])
    on = "" if joined == "cross join" else f"on m.key = t.{dice.choice(['key', 'key and t.n < 3'])}"
    first = dice.choice(["nbtools.memory m {} t", "t {} nbtools.memory m"])
    is_seen = not joined.startswith(("semi", "anti")) or first.startswith("nbtools")
    other = f"where {_condition(dice, 'm.')}" if is_seen else ""
    shape = dice.random()
    if shape < 0.45:
        return f"select {columns} from nbtools.memory {where} {dice.choice(['', order])} {page}", True
    if shape < 0.6:
        gathered = dice.choice(["count(*)", "max(id)", "distinct agent_id", "agent_id, count(*)"])
        grouped = "group by agent_id" if gathered.startswith("agent") else ""
        return f"select {gathered} from nbtools.memory {where} {grouped}", False
    if shape < 0.85:
        return f"from {first.format(joined)} {on} {other}", False
    inner = f"select id, key, version, value from nbtools.memory {where}"
    return dice.choice([
        f"with m as ({inner} order by id {page}) from m {other}",
        f"{inner} union all {inner} and version < 2" if where else inner,
        f"select t.n, (select count(*) from nbtools.memory m {other or 'where true'} and m.key = t.key) from t",
        f"select id, row_number() over (order by id) from nbtools.memory {where} qualify true",
    ]), False  # fmt: skip


def test_any_query_gives_the_same_answer_from_the_rows_that_it_needs(
    sessions: tuple[SqlSession, SqlSession, list[int]],
) -> None:
    some, every, handed = sessions
    dice, count = random.Random(7), 100
    for _ in range(count):
        sql, is_sorted = _query(dice)
        params = {"k": dice.choice(KEYS)} if "$k" in sql else None
        rows, wanted = (session.query(sql, params=params).to_rows() for session in (some, every))
        if not is_sorted:
            rows, wanted = sorted(rows, key=repr), sorted(wanted, key=repr)
        assert rows == wanted, sql
    whole = len(every.query("from nbtools.memory"))
    assert sum(number < whole for number in handed) > count // 4, "the rows are not chosen"


def test_queries_at_once_have_their_own_rows_each(sessions: tuple[SqlSession, SqlSession, list[int]]) -> None:
    some, every, _ = sessions
    texts = [f"select count(*) from nbtools.memory where key ^@ '{prefix}'" for prefix in ("p", "q", "z", "nowhere")]
    wanted = [every.query(text).to_rows() for text in texts]
    with ThreadPoolExecutor(len(texts)) as pool:
        for _ in range(20):
            assert [rows.to_rows() for rows in pool.map(some.query, texts)] == wanted


@pytest.mark.processes
def test_a_model_s_query_is_handed_the_same_rows(sessions: tuple[SqlSession, SqlSession, list[int]]) -> None:
    some, _, handed = sessions
    rows = some.query(
        "select id from nbtools.memory where key = 'q' and $1 = 'x'", params=["x"], isolated=True
    ).to_rows()
    assert len(rows) == handed[-1] > 0
