"""Any sequence of changes leaves the DuckDB repository as it leaves InMemoryRepository, whenever rows are merged."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nbtools.errors import NbtoolsError
from nbtools.memory import InMemoryRepository
from nbtools.memory.duckdb.repository import DuckDBRepository
from nbtools.memory.records import Scope
from nbtools.memory.repository import Change, Query
from nbtools.memory.rules.rows import Clock

pytestmark = pytest.mark.broad

SCOPES = [Scope(agent_id="a"), Scope(agent_id="a", workflow_id="w"), Scope(agent_id="a", workflow_id="w", node_id="n")]
scopes = st.sampled_from(SCOPES)
keys = st.sampled_from(["a", "b", "a:b", "é", "*"])
versions = st.none() | st.integers(0, 4)
tags = st.none() | st.lists(st.sampled_from(["t", "u", "v"]), unique=True).map(tuple)
values = st.sampled_from(["1", '"word"', '"other word"', "null", "[1]", "2.5"])
changes = st.one_of(
    st.builds(
        Change,
        kind=st.just("write"),
        scope=scopes,
        key=keys,
        value=values,
        tags=tags,
        ttl=st.none() | st.just(30.0),
        if_version=versions,
    ),
    st.builds(Change, kind=st.just("incr"), scope=scopes, key=keys, by=st.sampled_from([1, -2, 0.5])),
    st.builds(Change, kind=st.just("delete"), scope=scopes, key=keys, if_version=versions),
    st.builds(Change, kind=st.just("restore"), scope=scopes, key=keys, version=st.integers(1, 4)),
    st.builds(Change, kind=st.just("clear"), scope=scopes),
    st.builds(Change, kind=st.just("forget"), scope=scopes, key=keys),
    st.builds(Change, kind=st.just("clear"), scope=st.just(SCOPES[1]), nodes=st.just(True)),
)


def outcome(repository, batch, request):
    try:
        return [(a.count, a.record) for a in repository.apply(batch, request_id=request)]
    except NbtoolsError as exc:
        return type(exc), exc.message


class Model(RuleBasedStateMachine):
    """Both repositories live by one clock that the test moves."""

    @initialize()
    def open_both(self):
        self.now = 1_800_000_000.0
        self.requests = self.steps = 0
        self.last = []
        self.plain = InMemoryRepository(history=5, clock=lambda: self.now)
        self.real = DuckDBRepository(None, history=5, clock=Clock(wall=lambda: self.now, steady=lambda: 0.0))

    @rule(batch=st.lists(changes, min_size=1, max_size=4))
    def apply(self, batch):
        self.requests += 1
        self.last = batch
        assert outcome(self.plain, batch, f"r{self.requests}") == outcome(self.real, batch, f"r{self.requests}")

    @rule()
    def repeat(self):
        if self.last:
            assert outcome(self.plain, self.last, f"r{self.requests}") == outcome(
                self.real, self.last, f"r{self.requests}"
            )

    @rule(seconds=st.sampled_from([1, 29, 31, -1000, 100_000, -100_000]))
    def pass_time(self, seconds):
        self.now += seconds

    @rule()
    def merge(self):
        self.real._get_engine().merge()

    @rule(query=st.sampled_from(["t", "u"]), match=st.sampled_from(["all", "any"]), scope=scopes | st.none())
    def find(self, query, match, scope):
        asked = Query(scope=scope, tags=(query, "v"), match=match)
        assert self.plain.query(asked) == self.real.query(asked)

    @rule(text=st.sampled_from(["word", "other word", "b"]), scope=scopes)
    def search(self, text, scope):
        asked = Query(scope=scope, text=text)
        found = [{r.id for r in repository.query(asked).records} for repository in (self.plain, self.real)]
        assert found[0] == found[1]

    @invariant()
    def all_is_alike(self):
        if not hasattr(self, "plain"):
            return
        everything = Query()
        assert self.plain.query(everything) == self.real.query(everything)
        self.steps += 1
        self.scopes_are_alike(SCOPES[self.steps % 3 :][:1])  # what differs stays so until its turn comes

    def scopes_are_alike(self, scopes):
        for scope in scopes:
            for give in ("count", "tags"):
                assert self.plain.query(Query(scope=scope, give=give)) == self.real.query(Query(scope=scope, give=give))
            for key in ("a", "a:b"):
                theirs = [(r.version, r.change, r.value, r.tags) for r in self.plain.history(scope, key)]
                assert [(r.version, r.change, r.value, r.tags) for r in self.real.history(scope, key)] == theirs

    def teardown(self):
        if hasattr(self, "real"):
            self.scopes_are_alike(SCOPES)
            self.real.close()


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
