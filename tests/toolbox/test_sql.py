import subprocess
import sys
from pathlib import Path

import pytest

from nbtools.contract.approval.gate import Rule
from nbtools.contract.door import Door
from nbtools.contract.execute import LocalExecutor
from nbtools.contract.tool import ToolCall
from nbtools.sql import SqlSession
from nbtools.toolbox import CommandPolicy
from nbtools.toolbox.sql_tools import TOOLS


@pytest.fixture(scope="module")
def sessions():
    made = []
    yield made.append
    for session in made:
        session.close()


@pytest.fixture
def call(shelf, folder, sessions):
    (folder / "data.csv").write_text("species,mass\nAdelie,3700\nGentoo,5000\nGentoo,5200\n")
    session = SqlSession(allowed_paths=[folder], limit=1_000)
    sessions(session)
    return shelf(*TOOLS, session=session, policy=CommandPolicy())


def ask(call, query, **more):
    return call("sql_query", query=query, **more)


def test_a_question_about_a_file_has_columns_rows_and_a_count(call):
    result = ask(call, "select species, avg(mass) as mass from 'data.csv' group by species order by species")
    facts = {name: result.data[name] for name in ("columns", "rows", "row_count", "truncated")}
    assert facts == {
        "columns": ["species", "mass"],
        "rows": [["Adelie", 3700.0], ["Gentoo", 5100.0]],
        "row_count": 2,
        "truncated": False,
    }
    assert "Gentoo" in result.text


DICTIONARY = """
resources:
  - path: data.csv
    schema:
      fields: [{name: mass, description: Weight, unit: g}, {name: other, description: Not there}]
"""


@pytest.mark.processes
def test_a_model_is_told_what_the_dictionary_says_of_the_columns_it_sees(call, folder):
    (folder / "datapackage.yaml").write_text(DICTIONARY, encoding="utf-8")
    query = "select species, mass from 'data.csv' limit 1"
    asked = ask(call, query, _caller="model")
    assert asked.data["notes"] == ["data.csv: according to datapackage.yaml, mass is 'Weight, in g'"]
    assert asked.text.endswith(asked.data["notes"][0])
    assert "notes" not in ask(call, query).data
    assert "notes" not in ask(call, "select 1 as mass", _caller="model").data
    # Neither from outside of the allowed folders, nor one that cannot be read.
    (folder / "datapackage.yaml").rename(folder.parent / "outside.yaml")
    (folder / "datapackage.yaml").symlink_to(folder.parent / "outside.yaml")
    assert "notes" not in ask(call, query, _caller="model").data
    (folder / "datapackage.yaml").unlink()
    (folder / "datapackage.yaml").write_text("resources: 1", encoding="utf-8")
    assert "notes" not in ask(call, query, _caller="model").data


@pytest.mark.processes
def test_a_limit_cuts_and_says_so(call):
    result = ask(call, "select * from range(100)", limit=5)
    assert (result.data["row_count"], result.data["truncated"]) == (5, True)
    whole = ask(call, "select * from range(5000)")
    assert (whole.data["row_count"], whole.data["truncated"]) == (5_000, False)
    cut = ask(call, "select * from range(5000)", _caller="model")
    assert (cut.data["row_count"], cut.data["truncated"]) == (1_000, True)
    assert ask(call, "select 1", limit=-1).error.code == "INVALID_ARGUMENTS"


@pytest.mark.processes
@pytest.mark.parametrize("caller", ["python", "model"])
def test_values_are_bound_by_name(call, caller):
    query = "select mass from 'data.csv' where species = :species and mass > $least order by mass"
    params = {"species": "Gentoo", "least": 5_100}
    assert ask(call, query, params=params, _caller=caller).data["rows"] == [[5200]]
    hostile = {"species": "x' or 1 = 1 --", "least": 0}
    assert ask(call, query, params=hostile, _caller=caller).data["rows"] == []
    assert "$least" in ask(call, query, params={"species": "x"}, _caller=caller).error.message


@pytest.mark.processes
@pytest.mark.parametrize("caller", ["python", "model"])
@pytest.mark.parametrize("name", ["connection", "connection_string"])
@pytest.mark.parametrize("url", ["sqlite:///:memory:", "duckdb:///:memory:", "sqlite://"])
def test_an_empty_database_in_memory_is_a_connection_by_either_name(call, caller, name, url):
    assert ask(call, "select 6 * 7 as answer", **{name: url}, _caller=caller).data["rows"] == [[42]]
    refused = ask(call, "create table t (a int)", **{name: url}, _caller=caller)
    assert refused.error.code == "SQL_NOT_ALLOWED"


def test_one_name_of_an_argument_is_shown_and_judged(call):
    assert "connection_string" not in TOOLS[0].__tool__.schema["properties"]
    twice = ask(call, "select 1", connection="duckdb://", connection_string="sqlite://")
    assert twice.error.code == "INVALID_ARGUMENTS"
    denying = [Rule(action="deny", tool="sql_query", arguments={"connection": "sqlite*"})]
    executor = LocalExecutor(TOOLS, door=Door(rules=denying))
    denied = executor.call(ToolCall(tool="sql_query", arguments={"query": "x", "connection_string": "sqlite://"}))
    assert denied.error.code == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("delete from t", "SQL_NOT_ALLOWED"),
        ("create table t as select 1", "SQL_NOT_ALLOWED"),
        ("copy (select 1) to 'x.csv'", "SQL_NOT_ALLOWED"),
        ("with a as (delete from t returning *) from a", "SQL_NOT_ALLOWED"),
        ("select 1; select 2", "SQL_NOT_ALLOWED"),
        ("select * from '/etc/passwd'", "SQL_NOT_ALLOWED"),
        ("select * from read_csv('../outside/secret.txt')", "SQL_NOT_ALLOWED"),
        ("selec 1", "SQL_INVALID"),
        ("select nothing_here", "SQL_INVALID"),
        ("select error('no')", "SQL_FAILED"),
    ],
)
def test_a_refusal_is_an_error_with_its_code(call, folder, query, code):
    result = ask(call, query)
    assert not result.ok
    assert result.error.code in {code, "SQL_INVALID", "SQL_NOT_ALLOWED"}
    assert [p.name for p in folder.iterdir()] == ["data.csv"]


@pytest.mark.processes
def test_what_is_too_large_is_cut_for_a_model_and_an_error_for_a_person(call):
    query = "select repeat('x', 100000) as x from range(100)"
    cut = ask(call, query, _caller="model")
    assert 30 < cut.data["row_count"] < 50
    assert cut.data["truncated"]
    assert ask(call, query).error.code == "LIMIT_EXCEEDED"


@pytest.mark.processes
def test_what_a_model_asks_runs_apart_and_answers_alike(call):
    by_person = ask(call, "select count(*) as n from 'data.csv'")
    by_model = ask(call, "select count(*) as n from 'data.csv'", _caller="model")
    assert by_model.data["rows"] == by_person.data["rows"] == [[3]]


def test_a_question_that_outlives_its_call_ends(call):
    result = ask(call, "select count(*) from range(100000000) a, range(100000000) b", _timeout=0.2)
    assert result.error.code == "TIMEOUT"


@pytest.mark.slow
@pytest.mark.processes
def test_the_first_query_imports_beside_the_loop(tmp_path: Path) -> None:
    code = """
import sys, threading
from nbtools import Workbench
from nbtools.ground import aio
loop = aio.loop()
found = {}
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("nbtools.sql.") and name not in found:
            import asyncio
            found[name] = asyncio._get_running_loop() is loop
sys.meta_path.insert(0, Watch())
with Workbench(memory_url=":memory:", home=sys.argv[1]) as wb:
    done = wb.call("sql_query", {"query": "select 1 as x"})
print(done.ok, found["nbtools.sql.session"], found["nbtools.sql.verdict.policy"])
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True", "False", "False"], done.stderr
