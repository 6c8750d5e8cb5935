import pytest

from nbtools.sql import SqlSession
from nbtools.toolbox import CommandPolicy
from nbtools.toolbox.sql import TOOLS


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


def test_a_limit_cuts_and_says_so(call):
    result = ask(call, "select * from range(100)", limit=5)
    assert (result.data["row_count"], result.data["truncated"]) == (5, True)
    whole = ask(call, "select * from range(5000)")
    assert (whole.data["row_count"], whole.data["truncated"]) == (5_000, False)
    cut = ask(call, "select * from range(5000)", _caller="model")
    assert (cut.data["row_count"], cut.data["truncated"]) == (1_000, True)
    assert ask(call, "select 1", limit=-1).error.code == "INVALID_ARGUMENTS"


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


def test_what_is_too_large_is_cut_for_a_model_and_an_error_for_a_person(call):
    query = "select repeat('x', 100000) as x from range(100)"
    cut = ask(call, query, _caller="model")
    assert 30 < cut.data["row_count"] < 50
    assert cut.data["truncated"]
    assert ask(call, query).error.code == "LIMIT_EXCEEDED"


def test_what_a_model_asks_runs_apart_and_answers_alike(call):
    by_person = ask(call, "select count(*) as n from 'data.csv'")
    by_model = ask(call, "select count(*) as n from 'data.csv'", _caller="model")
    assert by_model.data["rows"] == by_person.data["rows"] == [[3]]


def test_a_question_that_outlives_its_call_ends(call):
    result = ask(call, "select count(*) from range(100000000) a, range(100000000) b", _timeout=1)
    assert result.error.code == "TIMEOUT"
