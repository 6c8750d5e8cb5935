"""Texts that crash or hang parsers: ``python _bombs.py DIALECT [all]`` judges each and prints its name.

Run in a process of its own: what a full stack ends is the process.
"""

import sys

LENGTH = 99_000


def _filled(unit, head="select ", tail="1"):
    return head + unit * ((LENGTH - len(head) - len(tail)) // len(unit)) + tail


# Without a bracket: what opens and is never closed, and what sqlglot tries twice or copies at each link.
WORST = {
    "not": _filled("not "),
    "minus": _filled("- "),
    "tilde": _filled("~"),
    "case": _filled("case when 1 then "),
    "from": _filled("from ", "", " a"),
    "lambda": _filled("x -> ", "select f(", "1)"),
    "joins": _filled(" join b", "select * from a", ""),
    "half the joins": _filled(" join b join c on 1=1", "select * from a", ""),
    "indexes": _filled("[1]", "select a", ""),
    "calls": _filled(".f(1)[1]", "select f(1)", ""),
    "pipes": _filled(" |> select 1", "from a", ""),
    "dots of a call": _filled("a.", "select ", "f()"),
    "types": "select cast(a as " + "array<" * 300 + "int",
    "nested joins": "select * from " + "(a join b join b join b join " * 30 + "a" + ")" * 30,
}
MORE = {
    "case with ends": "select " + "case when 1 then " * 4_500 + "1" + " end" * 4_500,
    "case else": _filled("case when 1 then 1 else ", "select ", "1"),
    "intervals": _filled("interval ", "select ", "'1' day"),
    "priors": _filled("prior "),
    "exists": _filled("exists "),
    "with": _filled("with a as select ", "", "1"),
    "explain": _filled("explain ", "", "select 1"),
    "describe": _filled("describe ", "", "select 1"),
    "asof joins": _filled(" asof join a", "from a", ""),
    "selected asof joins": _filled(" asof join a", "select * from a", ""),
    "lateral": _filled("lateral ", "select * from ", "a"),
    "casts": _filled("::int", "select 1", ""),
    "indexed casts": _filled("::int[1]", "select a[1]", ""),
    "straight joins": _filled(" straight_join b", "select * from a", ""),
    "unions": _filled(" union select 1", "select 1", ""),
    "sums": _filled("+1", "select 1", ""),
    "ternary": _filled("a ? ", "select ", "1"),
    "if": _filled("if a then ", "select ", ""),
    "dots": _filled(".a", "select a", ""),
    "next": _filled("next value for "),
    "all": _filled("= all ", "select 1 ", "1"),
    "distinct": _filled("distinct "),
    "tables": _filled("table ", "", "a"),
    "functions in brackets": "select " + "f(" * 60 + "1" + ")" * 60,
    "tuples": "select " + "(a,(" * 30 + "1" + ")" * 60,
    "queries in brackets": "select * from " + "(select * from " * 60 + "a" + ")" * 60,
    "maps in brackets": "select " + "{'a':" * 60 + "1" + "}" * 60,
    "mixed": _filled("not case when - a[1] then x -> ", "select ", "1"),
}


def main(dialect, bombs):
    from nbtools.sql import Policy

    # As a notebook has it, and then some: what recurses in C must not rely on Python's own limit.
    sys.setrecursionlimit(20_000)
    policy = Policy(dialect)
    for name, text in bombs.items():
        # The comment's word makes sqlglot look at DuckDB's texts as well.
        verdict = policy.check(text + (" -- set" if dialect == "duckdb" else ""))
        print(name, "allowed" if verdict.allowed else verdict.reasons[0][:80], sep="\t", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], WORST | MORE if sys.argv[2:] == ["all"] else WORST)
