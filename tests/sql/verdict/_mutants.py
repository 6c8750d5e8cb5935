"""The mutation fuzzer: ``python _mutants.py SEED COUNT`` prints what it found as JSON.

Statements of the corpus and attacks are cut into tokens, crossed, and spiced with what writes, reads or runs things.
Each mutant is judged; each that is accepted is looked at once more by other means than the verdict's: the engine's
whole tree, as text, must hold no node that writes and no call of a function that does, and no file from outside.
"""

import gzip
import json
import random
import re
import sys
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures"
ALLOWED, OUTSIDE = "/allowed", "/outside"
_TOKENS = re.compile(r"\s+|--[^\n]*|'(?:[^']|'')*'|\"[^\"]*\"|\w+|.", re.DOTALL)
# Pieces that writing, reading elsewhere and hiding are made of.
_SPICE = (
    """
with a as (delete from t returning *)|insert into t values (1) returning *|update t set a = 1 returning *
drop table t|copy (select 1) to '/outside/x'|copy t from '/outside/x'|attach '/outside/x' as x
export database '/outside/x'|from a|'/outside/x.csv'|"/outside/x.csv"|read_csv('/outside/x.csv')
read_text('/outside/x')|glob('/outside/*')|read_blob(|nextval('s')|setseed(0.5)|getenv('HOME')
query('select 1')|query_table('t')|json_execute_serialized_sql(|write_log('x')|pragma_user_agent()
duckdb_secrets()|getvariable('x')|set threads = 1|reset threads|pragma version|call pragma_version()
install httpfs|load httpfs|begin|commit|create table x as|create macro m() as
merge into t using u on true when matched then delete|; drop table t|;|explain analyze|explain|describe
summarize|pivot t on a using sum(b)|unpivot|prepare p as|execute p|use x|select|from|where|with|as|(|)|[|]|{|}
,|.|*|'|"|--|/*|*/|$$|$a$|::|->|=>|:=|\\|\0|e'|values (1)|union all|intersect|exists|'/allowed/x.csv'
read_csv('/allowed/x.csv')|into|returning *|for update|on conflict do nothing|lateral|limit 1|qualify 1
checkpoint|vacuum|analyze|truncate t|alter table t add column x int|comment on table t is 'x'|detach t
vacuum analyze
""".strip()
    .replace("\n", "|")
    .split("|")
)
_VALUES = (
    """
nextval('s')|setseed(0.5)|getenv('HOME')|query('select 1')|query_table('t')|read_csv('/outside/x.csv')
read_text('/outside/x')|glob('/outside/*')|'/outside/x.csv'|"/outside/x.csv"|duckdb_secrets()
json_execute_serialized_sql('x')|range(3)|'/allowed/x.csv'|read_csv(['/allowed/x.csv', '/outside/x.csv'])
read_csv('/allowed/../outside/x.csv')|t|s.t|1|'a'|$p|read_csv($p)|getvariable('x')
""".strip()
    .replace("\n", "|")
    .split("|")
)
_WRAPS = (" ({}) ", " with a as ({}) ", " explain {} ", " '{}' ", " /*{}*/ ")
_WRITES = re.compile(r'"type":"(?:COPY|DELETE|INSERT|MERGE|MERGE_INTO|UPDATE)_QUERY_NODE"')
_CALLS = re.compile(
    r'"function_name":"(?:nextval|setseed|getenv|query|query_table|json_execute_serialized_sql|write_log|duckdb_secrets'
    r'|force_checkpoint|checkpoint|load_aws_credentials|sniff_csv_file|import_database)"',
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(r'"(?:table_name|text)":"' + OUTSIDE)
_READERS = re.compile(r"read_|parquet_|glob|sniff_csv", re.IGNORECASE)
_KINDS = {"SELECT", "EXPLAIN", "MULTI", "RELATION"}


def lines(name):
    with gzip.open(FIXTURES / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def seeds():
    """Return selects, other statements and attacks, cut into tokens; short ones, for they are parsed often."""
    corpus = lines("sql_corpus.jsonl.gz")
    selects = [row["sql"] for row in corpus if row["label"] == "select"][::5]
    others = [row["sql"] for row in corpus if row["label"] != "select"][::3]
    attacks = [row["sql"] for row in lines("sql_adversarial.jsonl.gz") if row["dialect"] == "duckdb"]
    for mark, place in (("{ALLOWED}", ALLOWED), ("{SECRET}", OUTSIDE), ("{TMP}", OUTSIDE)):
        attacks = [text.replace(mark, place) for text in attacks]
    cut = [[_TOKENS.findall(text) for text in texts if len(text) < 160] for texts in (selects, others, attacks)]
    # Half of the seeds are selects: more of what becomes of them is SQL.
    return [cut[0], *cut]


def _placed(tokens, random, kinds):
    """Put a query or a piece where one can stand: at a table's, a word's or a number's place."""
    words = [place for place, token in enumerate(tokens) if token[0].isalnum() or token[0] in "'\""]
    tables = [place + 2 for place, token in enumerate(tokens[:-2]) if token.lower() in {"from", "join"}]
    places = tables if tables and random.random() < 0.6 else words
    if not places:
        return
    other = "".join(random.choice(random.choice(kinds))).strip("; \n")
    piece = random.choice((random.choice(_VALUES), f"({other})", random.choice(tokens)))
    tokens[random.choice(places)] = piece


def mutant(random, kinds):
    """Return one mutant: a seed, cut, crossed and spiced a few times."""
    tokens = list(random.choice(random.choice(kinds)))
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        at = random.randrange(len(tokens) + 1)
        end = min(len(tokens), at + random.choice((0, 1, 1, 2, 3, 8)))
        move = random.randrange(12)
        if move <= 1:
            tokens[at:at] = [" ", random.choice(_SPICE), " "]
        elif move == 2:
            tokens[at:end] = [random.choice(_SPICE)]
        elif move == 3:
            del tokens[at:end]
        elif move == 4:
            other = random.choice(random.choice(kinds))
            begin = random.randrange(len(other) + 1)
            tokens[at:end] = other[begin : begin + random.choice((1, 2, 4, 8, 20))]
        elif move == 5:
            tokens[at:at] = tokens[at:end]
        elif move == 6:
            other = "".join(random.choice(random.choice(kinds))).strip("; \n")
            tokens[at:at] = [random.choice(_WRAPS).format(other)]
        else:
            _placed(tokens, random, kinds)
    return "".join(tokens)


class Judge:
    """Looks at what was accepted by other means than the verdict."""

    def __init__(self):
        import duckdb

        self._duckdb = duckdb
        self._connection = duckdb.connect()

    def danger(self, sql):
        """Return why an accepted text is dangerous, or `None`."""
        statements = self._duckdb.extract_statements(sql)
        if len(statements) != 1 or statements[0].type.name not in _KINDS:
            return f"{len(statements)} statements of the kinds {[found.type.name for found in statements]}"
        tree = self._connection.execute("select json_serialize_sql(?::varchar)", [sql]).fetchone()[0]
        for what, pattern in (("writes", _WRITES), ("calls", _CALLS)):
            if found := pattern.search(tree):
                return f"{what}: {found[0]}"
        return self._elsewhere(json.loads(tree))

    def _elsewhere(self, tree):
        """Tell whether a table, or the first arguments of a function that reads files, are outside."""
        todo = [tree]
        while todo:
            node = todo.pop()
            if isinstance(node, list):
                todo += node
            if not isinstance(node, dict):
                continue
            if str(node.get("table_name", "")).startswith(OUTSIDE):
                return "reads a table outside"
            if node.get("type") == "TABLE_FUNCTION" and _READERS.match(node["function"]["function_name"]):
                first = json.dumps(node["function"]["arguments"][:1], separators=(",", ":"))
                if _ELSEWHERE.search(first) and "COMPARE_EQUAL" not in first and not re.search(r'"name":"\w', first):
                    return "reads a file outside"
            todo += node.values()
        return None


def run(seed, count):
    """Judge that many mutants; return the numbers and whatever was dangerous, or raised."""
    from nbtools.sql import Policy

    policy, judge, chance, kinds = Policy(allowed_paths=[ALLOWED]), Judge(), random.Random(seed), seeds()
    accepted, wrong = 0, []
    for _ in range(count):
        sql = mutant(chance, kinds)
        try:
            verdict = policy.check(sql)
            danger = judge.danger(sql) if verdict.allowed else None
        except Exception as exc:
            danger = repr(exc)
        else:
            accepted += verdict.allowed
        if danger is not None:
            wrong.append((danger, sql))
    return {"mutants": count, "accepted": accepted, "wrong": wrong[:20]}


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
