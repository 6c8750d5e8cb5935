"""The verdict against the statements of DuckDB's own test suite and against attacks: cases as data."""

import collections

import pytest

from nbtools.sql import Policy

# A pure-Python machine needs a minute for all of them; each twentieth says the same in a breath.
_EACH = 20


def _judged(rows):
    """Return the refusals of selects and what was accepted of everything else."""
    policy = Policy(allowed_paths=["/"])
    refused, accepted = [], []
    for row in rows:
        verdict = policy.check(row["sql"])
        if row["label"] == "select" and not verdict.allowed:
            refused.append((verdict.code, verdict.reasons, row["sql"]))
        elif row["label"] != "select" and verdict.allowed:
            accepted.append(row["sql"])
    return refused, accepted


def _assert_sound(rows):
    selects = sum(row["label"] == "select" for row in rows)
    refused, accepted = _judged(rows)
    assert not accepted
    assert not [item for item in refused if item[0] != "SQL_NOT_ALLOWED"]
    assert all(reason.partition(": ")[2] for _, reasons, _ in refused for reason in reasons)
    assert not [item for item in refused if "not been reviewed" in item[1][0] or "stumbled" in item[1][0]]
    assert len(refused) <= 0.025 * selects


def test_sample_of_the_corpus_is_judged_as_labelled(sql_corpus):
    rows = sql_corpus[::_EACH]
    assert collections.Counter(row["label"] for row in rows)["not_select"] > 400
    _assert_sound(rows)


@pytest.mark.slow
def test_whole_corpus_is_judged_as_labelled(sql_corpus):
    _assert_sound(sql_corpus)


def test_dynamic_pivots_of_the_corpus_are_accepted(sql_corpus):
    rows = [row for row in sql_corpus if row["label"] == "select" and row["sql"].lower().startswith("pivot")]
    policy = Policy(allowed_paths=["/"])
    assert len(rows) > 30
    assert not [row["sql"] for row in rows if not policy.check(row["sql"]).allowed]


def test_no_attack_passes_and_nothing_legitimate_is_refused(sql_attacks):
    allowed, cases = sql_attacks
    policies = {case["dialect"]: Policy(case["dialect"], allowed_paths=[allowed]) for case in cases}
    wrong = []
    for case in cases:
        verdict = policies[case["dialect"]].check(case["sql"])
        if case["expect"] == "reject" and "validator" in case["layer"] and verdict.allowed:
            wrong.append(("passed", case["id"], case["sql"]))
        if case["expect"] == "accept" and not verdict.allowed:
            wrong.append(("refused", case["id"], case["sql"], verdict.reasons))
    assert not wrong


def test_each_refused_attack_names_its_place_and_reason(sql_attacks):
    allowed, cases = sql_attacks
    for case in cases:
        verdict = Policy(case["dialect"], allowed_paths=[allowed]).check(case["sql"])
        if not verdict.allowed:
            assert verdict.code in {"SQL_INVALID", "SQL_NOT_ALLOWED"}
            assert verdict.reasons[0].startswith("line ")
            assert verdict.line >= 1
            assert verdict.column >= 1
