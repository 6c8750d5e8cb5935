"""The corpora of the verdict's tests, and the folders that the adversarial cases speak of."""

import gc
import gzip
import json
from pathlib import Path

import pytest

_FIXTURES = Path(__file__).parent.parent / "fixtures"


def _lines(name):
    with gzip.open(_FIXTURES / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture
def few_objects():
    """Let a search for garbage see the objects of this test alone: among those of a run it takes long."""
    gc.freeze()


@pytest.fixture(scope="session")
def sql_corpus():
    """DuckDB's own test statements (MIT licence): dictionaries of `sql` and `label`."""
    return _lines("sql_corpus.jsonl.gz")


@pytest.fixture(scope="session")
def sql_attacks(tmp_path_factory):
    """Adversarial cases with real folders: one that is allowed, with links out of it, and two that are not."""
    base = tmp_path_factory.mktemp("attacks")
    allowed, secret, temporary = base / "allowed", base / "secret", base / "temporary"
    (allowed / "sub").mkdir(parents=True)
    secret.mkdir()
    temporary.mkdir()
    (allowed / "ok.csv").write_text("a,b\n1,2\n")
    (allowed / "sub" / "z.csv").write_text("a,b\n3,4\n")
    (secret / "s.csv").write_text("k\n1\n")
    (allowed / "inlink.csv").symlink_to(allowed / "ok.csv")
    (allowed / "link.csv").symlink_to(secret / "s.csv")
    (allowed / "linkdir").symlink_to(secret)
    places = {"{ALLOWED}": str(allowed), "{SECRET}": str(secret), "{TMP}": str(temporary)}
    cases = _lines("sql_adversarial.jsonl.gz")
    for case in cases:
        for name, folder in places.items():
            case["sql"] = case["sql"].replace(name, folder)
    return allowed, cases
