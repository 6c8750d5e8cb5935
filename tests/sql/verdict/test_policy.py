"""The verdict for DuckDB: what may run, what may not, and what a refusal says."""

import os
import pickle
import subprocess
import sys

import duckdb
import pytest

from nbtools.errors import InvalidArguments, SqlInvalid, SqlNotAllowed
from nbtools.sql import Policy
from nbtools.sql.verdict.duckdb import functions
from nbtools.sql.verdict.duckdb.files import Files
from nbtools.sql.verdict.duckdb.macros import Definitions, read_definitions
from nbtools.sql.verdict.verdict import Finding, refuse

QUERIES = [
    "from t",
    "table t",
    "values (1, 'a')",
    "select * from t limit 3;",
    "(select 1) union all by name (select 2)",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) from r",
    "select list_transform([1], lambda x: x + 1)",
    "select [x for x in [1, 2] if x > 1]",
    "select * exclude (a) replace (b + 1 as b) from t qualify row_number() over (order by b) = 1",
    "from t asof join u using (k)",
    "select * from t, lateral (select t.a)",
    "from t at (version => 3)",
    "pivot t on a in (1, 2) using sum(b)",
    "pivot t on a using sum(b)",
    "pivot t on a || b, c using sum(d) group by e order by e limit 3",
    "pivot t on a in (select x from u) using sum(b)",
    "from (pivot t on a using sum(b)) join (pivot t on c using max(d)) using (k)",
    "with p as (pivot t on a using sum(b)) from p",
    "unpivot t on a, b into name n value v",
    "describe t",
    "describe select 1",
    "summarize t",
    "show tables",
    "show all tables",
    "show databases",
    "from (describe t)",
    "explain select 1",
    "explain analyze from t",
    "explain (analyze, format json) with a as (select 1) from a",
    "explain pivot t on a using sum(b)",
    "-- a comment\nexplain /* another */ select 1",
    "select current_setting('threads'), version(), current_user",
    "from duckdb_tables()",
    "select * from information_schema.tables",
    "from histogram(t, a)",
    "select my_macro(1)",
    "select $name, $other",
    "select * from t limit $1",
]


@pytest.mark.parametrize("sql", QUERIES)
def test_every_kind_of_query_is_allowed(sql):
    verdict = Policy().check(sql)
    assert (verdict.allowed, verdict.reasons, verdict.code) == (True, (), None)


REFUSALS = [
    ("drop table t", "DROP changes the catalog"),
    ("with a as (delete from t returning *) from a", "DELETE writes"),
    ("with a as (copy (select 1) to 'x') select 1", "COPY writes"),
    ("select (with a as (insert into t values (1) returning i) select max(i) from a)", "INSERT writes"),
    ("with a as (update t set i = 1 returning *) pivot a on i using sum(i)", "UPDATE writes"),
    ("explain analyze delete from t", "DELETE writes"),
    ("explain (analyze) with a as (delete from t returning *) from a", "DELETE writes"),
    ("create table x as pivot t on a using sum(b)", "CREATE changes the catalog"),
    ("prepare p as pivot t on a using sum(b)", "PREPARE keeps a statement"),
    ("set threads = 1", "SET changes settings"),
    ("pragma version", "PRAGMA changes or shows"),
    ("install httpfs", "INSTALL loads code"),
    ("load httpfs", "LOAD loads code"),
    ("attach 'x.db'", "ATTACH opens another database"),
    ("call pragma_version()", "CALL runs a procedure"),
    ("execute p", "EXECUTE runs a prepared statement"),
    ("begin transaction read only", "BEGIN steers"),
    ("select 1; drop table t", "a second statement starts here"),
    ("select 1; select 2", "a second statement starts here"),
    ("select nextval('s')", "nextval() advances a sequence"),
    ("from t order by NEXTVAL('s')", "nextval() advances a sequence"),
    ("select main.nextval('s')", "nextval() advances a sequence"),
    ("select sum(nextval('s')) over () from t", "nextval() advances a sequence"),
    ("select 's'.nextval()", "nextval() advances a sequence"),
    ("pivot (select nextval('s') a, 1 b) on a using sum(b)", "nextval() advances a sequence"),
    ("pivot t on a in (select nextval('s')) using sum(b)", "nextval() advances a sequence"),
    ("select * from t limit (select nextval('s'))", "nextval() advances a sequence"),
    ("select columns(c -> nextval('s') > 0) from t", "nextval() advances a sequence"),
    ("from json_execute_serialized_sql(json_serialize_sql('select 1'))", "runs SQL that is hidden in a string"),
    ("from query('select 1')", "runs SQL that is hidden in a string"),
    ("from query_table('t')", "query_table() reads a table that is named in a string"),
    ("from duckdb_secrets()", "lists secrets"),
    ("select current_setting('s3_secret_access_key')", "is a secret"),
    ("select current_setting('sec' || 'ret_directory')", "is a secret"),
    ("select current_setting(x) from t", "takes one name, as a literal string"),
    ("select http_get('http://127.0.0.1')", "http_get() is not on the reviewed list"),
    ("select __internal_decompress_string(1)", "is not on the reviewed list"),
    ("from shellfs('ls |')", "the table function shellfs() is not on the reviewed list"),
    ("from read_csv('https://x.example/y.csv')", "is a URL"),
    ("from 's3://bucket/x.parquet'", "is a URL"),
    ("from 'file:///etc/x.csv'", "is a URL"),
    ("from '/etc/passwd'", "no folder is allowed"),
    ('from "/etc/x".csv', "no folder is allowed"),
    ("describe '/etc/x.csv'", "no folder is allowed"),
    ("summarize '/etc/x.csv'", "no folder is allowed"),
    ("from histogram('/etc/x.csv', a)", "no folder is allowed"),
    ("from read_csv(getvariable('p'))", "must be a constant in the text"),
    ("from read_csv($p)", "must be a constant in the text"),
    ("from read_csv((select '/etc/x.csv'))", "must be a constant in the text"),
    ("from read_csv(cast('[/etc/x.csv]' as varchar[]))", "must be a constant in the text"),
    ("from read_csv(path = '/etc/x.csv')", "no folder is allowed"),
    ("from read_csv(store_rejects = true, 'x.csv')", "store_rejects writes"),
    ("", "there is no statement"),
    (" ;; -- nothing", "there is no statement"),
    ("select 1 fro m", "syntax error"),
    ("1 + 1", "syntax error"),
    ("select 'a\0b'", "NUL"),
    ("select '\ud800'", "half a surrogate pair"),
    ("select " + "(" * 65 + "1" + ")" * 65, "nest deeper than 64"),
    ("select '" + "x" * 100_000 + "'", "at most 100,000 are allowed"),
    ("select " + "array[" * 20 + "1" + "]" * 20, "types with brackets nest deeper"),
    ("select * from duckdb_logs", "shows what others asked"),
    ("from system.main.duckdb_logs", "shows what others asked"),
]


@pytest.mark.parametrize(("sql", "why"), REFUSALS, ids=[sql[:40] for sql, _ in REFUSALS])
def test_everything_else_is_refused_with_its_reason(sql, why):
    verdict = Policy().check(sql)
    assert not verdict.allowed
    assert why in verdict.reasons[0]


def test_brackets_in_quotes_and_comments_do_not_nest():
    deep = "(" * 500
    sql = f"select '{deep}', e'\\'{deep}', $${deep}$$ /* /* {deep} */ {deep} */ as \"{deep}\" -- {deep}"
    assert Policy().check(sql).allowed


def test_allowed_verdict_tells_what_is_read_and_called():
    verdict = Policy(allowed_paths=["/data"]).check(
        "with recent as (from sales where day > $since) select upper(name), b.* from recent join nbtools.memory b"
        " using (id) join '/data/x.csv' using (id)"
    )
    assert verdict.allowed
    assert verdict.kind == "SELECT"
    assert set(verdict.tables) == {"sales", "nbtools.memory"}
    assert verdict.files == ("/data/x.csv",)
    assert verdict.functions == ("upper",)
    assert verdict.parameters == ("since",)


def test_with_hides_a_table_only_where_it_is_in_sight():
    assert Policy().check("with df as (from df) from df").tables == ("df",)
    assert Policy().check("with a as (select 1), b as (from A) from b").tables == ()
    assert Policy().check("with a as (from b), b as (select 1) from a").tables == ("b",)
    assert Policy().check("select (with a as (select 1) from a), (select max(i) from a)").tables == ("a",)
    assert Policy().check("with recursive r as (select 1 union all from r) from r").tables == ()


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("from t", "SELECT"),
        ("describe t", "DESCRIBE"),
        ("summarize t", "SUMMARIZE"),
        ("show tables", "SHOW"),
        ("explain from t", "EXPLAIN"),
        ("pivot t on a using sum(b)", "PIVOT"),
        ("delete from t", "DELETE"),
    ],
)
def test_verdict_names_the_kind_of_statement(sql, kind):
    assert Policy().check(sql).kind == kind


def test_refusal_points_at_the_line_in_three_lines():
    sql = "with a as (select 'é' x),\n  b as (\n    delete from t returning *)\nfrom b"
    verdict = Policy().check(sql)
    assert (verdict.code, verdict.line, verdict.column) == ("SQL_NOT_ALLOWED", 3, 5)
    with pytest.raises(SqlNotAllowed) as caught:
        verdict.raise_if_refused(sql)
    assert str(caught.value).split("\n") == [
        "line 3: DELETE writes; nbtools SQL is read-only",
        "        delete from t returning *)",
        "        ^^^^^^",
    ]
    assert pickle.loads(pickle.dumps(caught.value)).data["line"] == 3


def test_place_counts_characters_where_the_engine_counts_bytes():
    verdict = Policy().check("select 'äöü€', nextval('s')")
    assert verdict.column == 16
    assert verdict.caret().split("\n")[1].strip() == "^" * len("nextval('s')")
    moved = Policy().check("pivot t on \"ä\" in (select 'é'), b using sum(nextval('s'))")
    assert moved.caret().split("\n")[1] == " " * (4 + moved.column - 1) + "^" * len("nextval('s')")
    assert moved.column == len("pivot t on \"ä\" in (select 'é'), b using sum(") + 1


def test_syntax_error_points_at_its_place():
    with pytest.raises(SqlInvalid, match="line 2: syntax error") as caught:
        Policy().check("select 1,\n  from from t").raise_if_refused()
    assert caught.value.data["line"] == 2


def test_caret_of_a_long_line_stays_in_sight():
    verdict = Policy().check("select " + "1, " * 400 + "nextval('s')")
    shown, caret = verdict.caret().split("\n")
    assert len(shown) <= 110
    assert shown[caret.index("^") :].startswith("nextval")


def test_several_reasons_come_in_the_order_of_the_text():
    reasons = Policy().check("select setseed(0.1),\nnextval('s') from '/etc/x.csv'").reasons
    assert [reason[:14] for reason in reasons] == ["line 1: setsee", "line 2: nextva", "line 2: '/etc/"]


def test_files_are_read_below_the_allowed_folders_only(tmp_path):
    allowed = tmp_path / "in"
    (allowed / "sub").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    for name in ("in/a.csv", "in/sub/b.csv", "out/c.csv"):
        (tmp_path / name).write_text("x\n1\n")
    (allowed / "gone.csv").symlink_to(tmp_path / "out" / "c.csv")
    (allowed / "d").symlink_to(tmp_path / "out")
    os.mkfifo(allowed / "pipe.csv")
    policy = Policy(allowed_paths=[allowed])

    def allows(path):
        return policy.check(f"from '{path}'").allowed

    assert allows(f"{allowed}/a.csv")
    assert allows(f"{allowed}/sub/../a.csv")
    assert allows(f"{allowed}/not-there-yet.csv")
    assert allows(f"{allowed}/sub/*.csv")
    assert allows(f"{allowed}/a*.csv")
    for path in (
        "gone.csv",
        "d/c.csv",
        "*.csv",
        "*/c.csv",
        "**/*.csv",
        "../out/c.csv",
        "sub/../../out/c.csv",
        "pipe.csv",
    ):
        assert not allows(f"{allowed}/{path}"), path
    assert not allows(f"{allowed}-evil/a.csv")
    assert not allows(f"{allowed}/x.db")
    assert not allows("~/a.csv")
    assert policy.check(f"from glob('{allowed}/*')").allowed
    assert not policy.check(f"from glob('{allowed}/*/*')").allowed
    assert policy.check(f"from read_csv(['{allowed}/a.csv', '{allowed}/sub/b.csv'], header := true)").allowed
    assert not policy.check(f"from read_csv(['{allowed}/a.csv', '{tmp_path}/out/c.csv'])").allowed


def test_relative_paths_start_at_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x\n1\n")
    policy = Policy(allowed_paths=[tmp_path])
    monkeypatch.chdir(tmp_path)
    assert policy.check("from 'a.csv'").allowed
    assert policy.check("from a.csv").files == ("a.csv",)
    monkeypatch.chdir("/")
    assert not policy.check("from 'a.csv'").allowed


def test_link_that_moves_is_judged_anew(tmp_path):
    allowed = tmp_path / "in"
    allowed.mkdir()
    (allowed / "a.csv").write_text("x\n1\n")
    link = allowed / "link.csv"
    link.symlink_to(allowed / "a.csv")
    policy = Policy(allowed_paths=[allowed])
    assert policy.check(f"from '{link}'").allowed
    link.unlink()
    link.symlink_to("/etc/hostname")
    assert not policy.check(f"from '{link}'").allowed


@pytest.mark.processes
def test_links_that_change_all_the_time_are_refused_and_no_fault(tmp_path):
    (tmp_path / "in" / "real").mkdir(parents=True)
    (tmp_path / "in" / "real" / "a.csv").write_text("x\n1\n")
    folder = tmp_path / "in" / "d"
    files = Files([tmp_path / "in"])
    # Another process: threads of one change hands too seldom.
    flip = "import os, sys\nwhile True: os.symlink('..', sys.argv[1]); os.unlink(sys.argv[1])"
    with subprocess.Popen([sys.executable, "-c", flip, str(folder)]) as flipping:
        try:
            while not folder.is_symlink():
                assert flipping.poll() is None
            said = {files.refusal(f"{folder}/{name}") for _ in range(8_000) for name in ("a.csv", "*.csv")}
        finally:
            flipping.kill()
    assert all(reason is None or "allowed folders" in reason or "changes" in reason for reason in said)


@pytest.mark.parametrize("path", ["ls |", "cat x.csv |", "x*.csv|"])
def test_a_command_is_no_file_whatever_folder_it_would_run_in(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    assert "is a command, not a file" in Files([tmp_path]).refusal(path)


def test_macros_of_the_catalog_are_judged_by_their_definitions():
    definitions = Definitions(
        {
            "good": ["a + 1"],
            "outer": ["good(a) * 2"],
            "evil": ["nextval('s') + a"],
            "sly": ["outer(evil(a))"],
            "rows": ["select * from range(n)"],
            "loot": ["select * from read_csv(p)"],
            "plunder": ["select * from histogram(p, a)"],
            "again": ["again(a) + 1"],
        },
        {},
    )
    policy = Policy(definitions=definitions)
    assert policy.check("select good(1), outer(2), again(3) from rows(3)").allowed
    assert "advances a sequence" in policy.check("select evil(1)").reasons[0]
    assert "the macro sly() is refused" in policy.check("select sly(1)").reasons[0]
    hiding = Policy(definitions=Definitions({"upper": ["nextval('s')"], "lower": ["a || 'x'"]}, {}))
    assert "a macro upper() instead of the engine's own" in hiding.check("select 1").reasons[0]
    assert "must be a constant" in policy.check("from loot('/etc/passwd')").reasons[0]
    assert "must be named in the text" in policy.check("from plunder('/etc/passwd')").reasons[0]
    assert not Policy().check("from rows(3)").allowed


def test_views_of_the_catalog_are_judged_by_their_definitions():
    definitions = Definitions(
        {},
        {
            "good": ["CREATE VIEW good AS SELECT * FROM t;"],
            "evil": ["CREATE VIEW evil (a) AS SELECT * FROM '/etc/passwd.csv';"],
            "sly": ["CREATE VIEW sly AS SELECT * FROM main.evil;"],
            "a.csv": ['CREATE VIEW "a.csv" AS SELECT * FROM duckdb_secrets();'],
            "b.evil": ['CREATE VIEW "b.evil" AS SELECT * FROM duckdb_secrets();'],
            "dotted": ['CREATE VIEW dotted AS SELECT * FROM "b.evil";'],
        },
    )
    policy = Policy(definitions=definitions)
    assert policy.check("from good").allowed
    assert "the view evil is refused" in policy.check("from evil").reasons[0]
    assert not policy.check("from db.main.sly").allowed
    assert "the view a.csv is refused" in policy.check('from "a.csv"').reasons[0]
    assert "its view b.evil is refused" in policy.check("from dotted").reasons[0]
    assert policy.check("with evil as (select 1) from evil").allowed


def test_files_behind_views_and_macros_are_among_those_that_a_query_reads(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n")
    path = f"'{tmp_path}/a.csv'"
    views = {"v": [f"CREATE VIEW v AS SELECT * FROM {path};"], "w": ["CREATE VIEW w AS SELECT rows.* FROM rows();"]}
    policy = Policy("duckdb", [tmp_path], definitions=Definitions({"rows": ["select * from main.v"]}, views))
    for query in ("from v", "from w", "describe w", "explain from rows()", "pivot w on a using count(*)"):
        verdict = policy.check(query)
        assert (verdict.files, verdict.readers) == ((f"{tmp_path}/a.csv",), ()), query
    assert policy.check("select 1, 'from v'").files == ()
    (tmp_path / "a.csv").unlink()
    (tmp_path / "a.csv").symlink_to("/etc/hostname")  # links move
    assert "outside the allowed folders" in policy.check("from w").reasons[0]
    hiding = Policy("duckdb", [tmp_path], definitions=Definitions({"lower": [f"(select a from {path})"]}, {}))
    assert "outside the allowed folders" in hiding.check("select 1").reasons[0]
    (tmp_path / "a.csv").unlink()
    assert hiding.check("summarize select 1").files == (f"{tmp_path}/a.csv",)


def test_definitions_are_read_from_an_open_connection():
    connection = duckdb.connect()
    connection.execute("create sequence s")
    connection.execute("create macro f(a) as a + 1, (a, b) as nextval('s') + b")
    connection.execute("create macro rows(n) as table select * from range(n)")
    connection.execute("create view v as select * from range(3)")
    connection.execute("create view w as select * from v, rows(f(2))")
    policy = Policy(definitions=Definitions(*read_definitions(lambda sql: connection.execute(sql).fetchall())))
    connection.close()
    assert policy.check("from v, rows(2)").allowed
    assert "the macro f() is refused" in policy.check("select f(1)").reasons[0]
    assert "its macro f is refused" in policy.check("from w").reasons[0]


def test_definitions_upon_definitions_cost_no_more_than_their_number():
    names = [f"f{i}" for i in range(60)]
    bodies = {name: [f"f{i - 1}() + f{i - 2}()" if i > 1 else "1"] for i, name in enumerate(names)}
    assert Policy(definitions=Definitions(bodies, {})).check("select f59()").allowed
    bodies["f0"] = ["nextval('s')"]
    assert not Policy(definitions=Definitions(bodies, {})).check("select f59()").allowed


def test_further_functions_can_be_allowed_by_name():
    assert not Policy().check("select http_get('x')").allowed
    assert Policy(functions=["HTTP_GET"]).check("select http_get('x')").allowed


def test_unknown_dialects_and_texts_are_wrong_calls():
    with pytest.raises(InvalidArguments, match="not a dialect") as caught:
        Policy("postgress")
    assert "postgres" in str(caught.value)
    with pytest.raises(InvalidArguments, match="not text"):
        Policy().check(b"select 1")
    assert Policy("postgresql").dialect == "postgres"


def test_repeated_text_gives_the_same_verdict_object():
    policy = Policy()
    assert policy.check("select 1") is policy.check("select 1")


@pytest.mark.processes
def test_parsers_are_imported_at_the_first_check_only():
    code = (
        "import sys; from nbtools.sql import Policy; p = Policy();"
        "assert not {'duckdb', 'sqlglot', 'pandas'} & set(sys.modules), 'early';"
        "assert p.check('select 1').allowed; assert 'pandas' not in sys.modules, 'pandas'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.processes
def test_verdict_of_a_forked_child_needs_no_parent():
    policy = Policy()
    assert policy.check("select 1").allowed
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"1" if policy.check("select 2").allowed else b"0")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1) == b"1"
    os.close(reader)
    os.close(writer)


def test_every_function_of_the_installed_engine_was_reviewed():
    """A newer engine brings new functions; each has to be looked at and entered in reviewed/duckdb.toml.

    Names that begin with two underscores are internal, and refused for that; names with blanks are operators; pragmas
    are statements of their own.
    """
    with duckdb.connect() as connection:
        rows = connection.execute("select distinct lower(function_name), function_type from duckdb_functions()")
        engine = [(name, kind) for name, kind in rows.fetchall() if kind != "pragma" and name[:2] != "__"]
    tables = functions.ROW_SOURCES | functions.TABLE_NAMING | functions.FILE_READERS | {"sql_auto_complete"}
    known = {name for name, kind in engine if kind not in {"table", "table_macro"} and functions.is_scalar(name)}
    known |= {name for name, kind in engine if kind in {"table", "table_macro"} and name in tables}
    assert len(known) > 1_000
    assert {name for name, _ in engine if " " not in name} - known <= functions.REFUSED.keys()
    assert not functions.SCALARS & functions.REFUSED.keys()


def test_reasons_at_one_place_have_a_fixed_order():
    found = [Finding(f"reason {number}", 7) for number in (3, 1, 4, 1, 5, 9, 2, 6)]
    assert [reason[-1] for reason in refuse("select 1", found).reasons] == [*"3145926"]
