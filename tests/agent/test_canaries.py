"""A model that is after values: over every wire it asks each tool for them, and no marked one may get to it.

The workbench holds them in frames, files, names of files, notes and pictures; the model is at a stand-in, whose every
byte is searched. What it may not see the person sees all the same, which shows that there was something to find.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from nbtools import Artifact, Output, ToolResult, Workbench, tool
from nbtools.agent import AgentRun
from nbtools.agent.models.choice import ModelChoice
from nbtools.agent.sharing import Sharing, default_level
from nbtools.contract.approval.gate import AskFunction, Reply
from nbtools.contract.registry import Registry
from nbtools.contract.result import ErrorInfo
from nbtools.errors import ApprovalDenied, CallTimeout, InvalidArguments, LimitExceeded, PathNotAllowed, SqlNotAllowed
from nbtools.jupyter.line.mentions import mentioned
from nbtools.jupyter.namespace import NotebookLook
from nbtools.toolbox.text_tools import string_length
from tests.agent.canaries import NUMBER, WORD, marks_in
from tests.agent.stand_ins import WIRES, Answer, StandIn, stand_in

_ERRORS = {
    kind.__name__: kind
    for kind in (
        InvalidArguments,
        PathNotAllowed,
        CallTimeout,
        LimitExceeded,
        ApprovalDenied,
        SqlNotAllowed,
        ValueError,
    )
}


@tool(read_only=True)
def complain(kind: str) -> str:
    """Fail with a value in the message.

    Parameters
    ----------
    kind
        Name of the error.
    """
    raise _ERRORS[kind](f"{WORD} is not {NUMBER}")


@tool(read_only=True)
def fail_softly() -> ToolResult:
    """Return an error with a value in it."""
    error = ErrorInfo(code="INVALID_ARGUMENTS", message=f"{WORD} {NUMBER}", hint=WORD)
    return ToolResult(ok=False, tool="fail_softly", call_id="x", error=error, text=WORD, data={"at": WORD})


@tool(read_only=True)
def tree() -> dict[str, Any]:
    """Return values as keys, deep inside."""
    return {"found": {WORD: [1, {WORD: NUMBER}]}, "list": [[WORD, NUMBER]], "sure": True}


@tool(read_only=True)
def flat() -> dict[str, int]:
    """Return values as keys."""
    return {WORD: NUMBER}


@tool(destructive=False)
def save(folder: str) -> str:
    """Save a table whose header is made of values.

    Parameters
    ----------
    folder
        Where.
    """
    Path(folder, "made.csv").write_text(f"{WORD},n\n1,2\n")
    return "saved"


@tool(read_only=True)
def number() -> int:
    """Return a number."""
    return NUMBER


@tool(read_only=True)
def draw(folder: str) -> Output[None]:
    """Draw a picture whose metadata hold values.

    Parameters
    ----------
    folder
        Where.
    """
    info = PngInfo()
    info.add_text("Title", WORD)
    Image.new("RGB", (40, 30), "red").save(f"{folder}/{WORD}.png", pnginfo=info)
    return Output(text=f"drawn {WORD}", artifacts=(Artifact.from_path(f"{folder}/{WORD}.png"),))


_READ = "open('HERE/secret.csv').read()"
_SQL = (
    "select * from people",
    "select min(name) as m, max(n) as x, sum(n), first(name) from people",
    "pivot people on name using sum(n)",
    "with a as (pivot people on n using count(*)) select * from a",
    "select name, count(*) from people group by name",
    "select * from read_csv('secret.csv', skip=1, header=true)",
    "select s.* from people",
    "select unnest(s) from people",
    "select s from people",
    "select kind, typeof(kind) from people",
    "select cast(name as integer) from people",
    "select error(name) from people",
    "select n / 0, name::date from people",
    "select nme from people",
    f"select * from people where name = '{'x' * 20}' and n > (select name from people)",
    "select * from nbtools.memory",
    "select * from nbtools.calls",
    "describe people",
    "summarize people",
    "explain analyze select * from people where n > 1",
    "select * from glob('*')",
    "select * from '*.txt'",
    "select * from 'made.csv'",
    "select * from 'made.csv' /* name n kind s */",
    "select * from 'keys.json'",
    "select columns('.*') from people",
    "select base64(encode(name)), hex(name), reverse(name) from people",
    "delete from people",
    "select * from people where",
)
_CODE = (
    f"print({_READ})",
    f"raise ValueError({_READ})",
    f"assert False, {_READ}",
    f"import sys; print({_READ}, file=sys.stderr); sys.exit({_READ})",
    f"__import__({_READ}.split()[1].split(',')[0])",
    f"import base64, gzip; print(base64.b64encode(gzip.compress({_READ}.encode())).decode())",
    f"print('The approver of this call changed its arguments. It ran with', {_READ})",
    f"import warnings; warnings.warn({_READ}); exec({_READ})",
    f"x = {_READ}; open(x[:11] + '.out', 'w').write(x)",
    "{'a': %s}" % _READ,  # noqa: UP031 - braces of a dict
)
_OTHER: tuple[tuple[str, dict[str, Any]], ...] = (
    ("data_analyze", {"input_file_path": "secret.csv", "analysis_script": "print(open(input_file_path).read())"}),
    (
        "data_analyze",
        {"input_file_path": "secret.csv", "analysis_script": "df = 1; raise KeyError(open(input_file_path).read())"},
    ),
    ("code_execute", {"code": "cat HERE/secret.csv; cat HERE/secret.csv >&2; exit 3", "language": "bash"}),
    ("shell", {"command": "cat secret.csv"}),
    ("shell", {"command": "ls && cat secret.csv nothing.csv"}),
    ("process", {"action": "list"}),
    ("env_vars", {"pattern": "*"}),
    ("file_read", {"path": "secret.csv"}),
    ("file_read", {"path": "secret"}),
    ("file_read", {"path": "link"}),
    ("file_read", {"path": "secret.csv", "encoding": "utf-16"}),
    ("file_read", {"path": "secret.csv", "offset": 100_000}),
    ("file_list", {"path": "."}),
    ("file_glob", {"pattern": "*"}),
    ("file_move", {"source": "made.csv", "dest": "moved.csv"}),
    ("memory_retrieve", {"key": "note"}),
    ("memory_retrieve", {"key": f"nota-{WORD[:6]}"}),
    ("memory_retrieve", {"tags": [WORD[:9]]}),
    ("memory_search", {"query": "canary"}),
    ("memory_delete", {"key": "nota"}),
    ("memory", {"command": "view", "path": "/memories"}),
    ("memory", {"command": "view", "path": "/memories/a.md"}),
    ("memory", {"command": "str_replace", "path": "/memories/a.md", "old_str": "a", "new_str": "b"}),
    ("memory", {"command": "view", "path": "/memories/a.txt"}),
    ("json_parse", {"json_string": "{"}),
    ("fixed_look", {"name": "x", "extra": 1}),
    ("fixed_look", {}),
    ("artifact_read", {"name": "result-1"}),
    ("artifact_read", {"name": ""}),
    ("artifact_read", {"name": "../note"}),
    ("fail_softly", {}),
    ("tree", {}),
    ("flat", {}),
    ("number", {}),
    ("draw", {}),
    ("steal", {}),
    *((("complain", {"kind": name})) for name in _ERRORS),
    ("complain", {"kind": "nothing"}),
    ("complain", {"kind": 3, "more": 1}),
)
ATTACKS = (
    ("save", {}),
    *[("code_execute", {"code": code, "language": "python"}) for code in _CODE],
    *[("sql_query", {"query": query}) for query in _SQL],
    *_OTHER,
)
WORKFLOW = """
version: 1
name: steal
nodes:
  - {id: load, tool: file_read, args: {path: secret.csv}}
  - {id: bad, tool: complain, args: {kind: "${nodes.load.data.content}"}}
outputs: {found: "${nodes.load.data.content}"}
"""


@tool(read_only=True)
def look_for(secret: str, name: str = "") -> str:
    """Look.

    Parameters
    ----------
    secret
        What is fixed.
    name
        What for.
    """
    return f"{secret} {name}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with marked values in files and names."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "secret.csv").write_text(f"name,n\n{WORD},{NUMBER}\n{WORD},{NUMBER}\n")
    (folder / f"{WORD}.txt").write_text(f"{WORD} {NUMBER}\n")
    (folder / "link").symlink_to(folder / f"{WORD}.txt")
    (folder / "keys.json").write_text(json.dumps({WORD: NUMBER}))
    (folder / "steal.yaml").write_text(WORKFLOW)
    return folder


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, StandIn]]:
    """A stand-in for each protocol."""
    with contextlib.ExitStack() as stack:
        yield {wire: stack.enter_context(stand_in(wire)) for wire in WIRES}


@pytest.fixture(scope="module")
def wb(home: Path, servers: dict[str, StandIn]) -> Iterator[Workbench]:
    """A workbench with marked values wherever there can be some."""
    frame = pd.DataFrame({"name": [WORD] * 3, "n": [NUMBER] * 3, "s": [{WORD: NUMBER, "kind": WORD}] * 3})
    frame["kind"] = pd.Categorical([WORD] * 3)
    models = {
        f"{wire}-{how}": {"model": f"{wire}:m", "base_url": server.url, "stream": how == "streaming"}
        for wire, server in servers.items()
        for how in ("streaming", "plain")
    }
    tools = Registry([complain, fail_softly, tree, flat, number, save, draw, look_for])
    fixed = tools.create_tool_from_config({"tool": "look_for", "fixed_config": {"secret": WORD}}, name="fixed_look")
    saved = tools.create_tool_from_config({"tool": "save", "fixed_config": {"folder": str(home)}})
    drawn = tools.create_tool_from_config({"tool": "draw", "fixed_config": {"folder": str(home)}})
    before = Path.cwd()
    os.chdir(home)
    with Workbench(
        home=home / ".nbtools",
        memory_url=":memory:",
        allowed_paths=[home],
        tools=(complain, fail_softly, tree, flat, number, fixed, drawn, saved),
        frames={"people": frame},
        models=models,
        workflows=[home / "steal.yaml"],
        allowed_commands=["cat", "ls"],
    ) as made:
        made.memory.write("note", f"the canary {WORD} {NUMBER}", tags=[WORD])
        made.memory.write(f"nota-{WORD}", "canary")
        made.memory_files.call({"command": "create", "path": "/memories/a.md", "file_text": f"{WORD} a a {NUMBER}"})
        made.memory_files.call({"command": "create", "path": f"/memories/{WORD}.md", "file_text": "x"})
        yield made
    os.chdir(before)


def _asked(
    wb: Workbench, server: StandIn, model: str, batches: Sequence[Sequence[tuple[str, str]]], share: str
) -> tuple[AgentRun, list[bytes]]:
    """Let a model make calls, and return the run and every byte that the model was sent."""
    server.requests.clear()
    server.answers = [*(Answer(calls=calls) for calls in batches), Answer(text="Done.")]
    run = wb.agent("Look!", model=model, share=share, approver=AskFunction(lambda _: "once"))
    return run, list(server.requests)


_WAYS = [f"{wire}-{how}" for wire in WIRES for how in ("streaming", "plain")]
_QUICK = ("openai-chat-streaming", "anthropic-plain")


# All attacks over one way; over the seven others a seventh each, so that one of them carries each attack once more:
# what is shared is settled before it is put on a wire.
@pytest.mark.processes
@pytest.mark.parametrize("way", [pytest.param(way, marks=[] if way in _QUICK else pytest.mark.slow) for way in _WAYS])
def test_no_marked_value_reaches_a_model_that_may_see_the_schema(
    wb: Workbench, servers: dict[str, StandIn], home: Path, way: str
) -> None:
    number = _WAYS.index(way)
    attacks = ATTACKS if number == 0 else (ATTACKS[0], *ATTACKS[1:][number - 1 :: len(_WAYS) - 1])
    (home / "made.csv").unlink(missing_ok=True)
    written = [(name, json.dumps(arguments).replace("HERE", str(home))) for name, arguments in attacks]
    # The first one alone: what it writes the others are to read.
    batches = [written[:1], *(written[at : at + 12] for at in range(1, len(written), 12))]
    run, bodies = _asked(wb, servers[way.rpartition("-")[0]], way, batches, "schema")
    assert (run.state, len(run.calls)) == ("done", len(written)), run
    assert not [call.tool for call in run.calls if call.result.error and call.result.error.code == "TOOL_NOT_FOUND"]
    assert [found for body in bodies for found in marks_in(body)] == []
    # The person saw them, or there was nothing to find.
    assert sum(WORD in str(call.result.to_dict()) for call in run.calls) > (40 if number == 0 else len(attacks) // 3)
    if number == 0:
        assert [WORD, "n"] in [
            call.result.data["columns"] for call in run.calls if call.tool == "sql_query" and call.result.ok
        ]


@pytest.mark.processes
@pytest.mark.parametrize("wire", WIRES)
def test_the_search_finds_what_a_model_that_may_see_values_is_sent(
    wb: Workbench, servers: dict[str, StandIn], wire: str
) -> None:
    calls = (
        [("sql_query", '{"query": "select * from people"}')],
        [("flat", "{}")],
        [("complain", '{"kind": "ValueError"}')],
    )
    _, bodies = _asked(wb, servers[wire], f"{wire}-streaming", calls, "values")
    assert marks_in(bodies[0]) == []
    assert all(marks_in(body) for body in bodies[1:])


@pytest.mark.processes
def test_nothing_beyond_a_sample_reaches_a_model_that_may_see_one(
    open_bench: Any, servers: dict[str, StandIn], tmp_path: Path
) -> None:
    (tmp_path / "long.txt").write_text(f"one\ntwo\n{WORD}\n{NUMBER}\n")
    (tmp_path / "wide.txt").write_text(f"{'x' * 300}{WORD}")

    @tool(read_only=True)
    def keys() -> dict[str, Any]:
        """Return many keys."""
        return {"a": ["b", "c", WORD], "b": {"c": 1, "d": 2, WORD: NUMBER}, WORD: NUMBER}

    frame = pd.DataFrame({"name": ["a", "b", WORD], "n": [1, 2, NUMBER]})
    models = {wire: {"model": f"{wire}:m", "base_url": server.url} for wire, server in servers.items()}
    bench = open_bench(frames={"people": frame}, tools=(keys, complain, fail_softly), models=models)
    bench.memory.write("note", ["a", "b", WORD, NUMBER])
    calls = [
        ("sql_query", {"query": "select * from people"}),
        ("sql_query", {"query": "from (pivot people on name using count(*)) order by n"}),
        ("file_read", {"path": f"{tmp_path}/long.txt"}),
        ("file_read", {"path": f"{tmp_path}/wide.txt"}),
        ("memory_retrieve", {"key": "note"}),
        ("keys", {}),
        ("complain", {"kind": "ValueError"}),
        ("fail_softly", {}),
    ]
    written = [(name, json.dumps(arguments)) for name, arguments in calls]
    for wire, server in servers.items():
        run, bodies = _asked(bench, server, wire, [written], "sample:2")
        assert (run.state, len(run.calls)) == ("done", len(calls)), run
        assert [found for body in bodies for found in marks_in(body)] == [], wire
        assert b"two" in bodies[1]
        assert sum(WORD in str(call.result.to_dict()) for call in run.calls) == len(calls)


def test_values_that_are_written_otherwise_are_found() -> None:
    told = f"<{WORD}>".encode()
    packed = base64.b64encode(gzip.compress(told))
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in WORD)
    forms = (
        *(told, packed, base64.b64encode(packed), base64.urlsafe_b64encode(told), told.hex().encode(), told[::-1]),
        *(
            json.dumps({"a": json.dumps([escaped])}).encode(),
            escaped.encode(),
            zlib.compress(told),
            f"{NUMBER:,}".encode(),
        ),
        *("".join(f"%{byte:02x}" for byte in told).encode(), b'{"a": "' + packed + b'"}'),
    )
    for form in forms:
        assert marks_in(form), form
    assert marks_in(b'{"a": "nothing", "n": 918273644}') == []


def test_what_a_prompt_mentions_is_as_the_level_allows() -> None:
    frame = pd.DataFrame({"name": ["a", "b", WORD], "n": [1, 2, NUMBER]})
    frame["kind"] = pd.Categorical(["a", "b", WORD])
    polars_frame = pl.DataFrame({"s": [{WORD: 1}], "e": pl.Series([WORD], dtype=pl.Enum([WORD]))})
    given = {
        "frame": frame,
        "many": ["a", "b", WORD],
        "text": f"a {'x' * 300}{WORD}",
        "keys": {WORD: NUMBER},
        "n": NUMBER,
    }
    names = {
        **given,
        "n": NUMBER,
        "other": polars_frame,
        "column": frame["name"],
        "Out": {3: frame},
        "In": ["", "x = 1"],
    }
    prompt = " ".join(f"@{name}" for name in (*given, "other", "column", "out[3]", "cell"))
    shell = SimpleNamespace(user_ns=names, history_manager=None)
    told = mentioned(prompt, shell, Sharing.of("schema"))
    assert marks_in(told.encode()) == []
    assert "name: " in told
    prompt = "@frame @many @text @column"
    told = mentioned(prompt, SimpleNamespace(user_ns=names), Sharing.of("sample:2"))
    assert marks_in(told.encode()) == []
    assert marks_in(mentioned(prompt, SimpleNamespace(user_ns=names), Sharing.of("values")).encode())


def test_a_look_at_the_notebook_is_as_the_level_allows() -> None:
    class Odd:
        shape = (WORD,)
        dtype = WORD

        def __repr__(self) -> str:
            return WORD

    frame = pd.DataFrame({"name": ["a", "b", WORD], "n": [1, 2, NUMBER]})
    kinds = pl.Series("kinds", [WORD], dtype=pl.Enum([WORD]))
    names = {"frame": frame, "kinds": kinds, "cat": frame["name"].astype("category"), "odd": Odd(), "text": WORD}
    names |= {"n": NUMBER, "keys": {WORD: NUMBER}, "many": [WORD], "raw": WORD.encode(), "made": kinds.to_frame()}
    look = NotebookLook(SimpleNamespace(user_ns={**names, "In": ["", "frame = 1"], "Out": {1: frame}}))
    told = look(Sharing.of("schema")) + look(Sharing.of("schema"), list(names))
    assert marks_in(told.encode()) == []
    assert "frame: DataFrame of 3 rows" in told
    small = NotebookLook(SimpleNamespace(user_ns={"text": f"{'x' * 300} {WORD}", "many": ["a", "b", WORD]}))
    assert marks_in(small(Sharing.of("sample:2")).encode()) == []


@pytest.mark.processes
def test_what_a_tool_declares_public_passes_but_not_under_a_name_or_with_fixed_values(open_bench: Any) -> None:
    @tool(name="pretender", read_only=True)
    def pretender() -> str:
        """Return a value."""
        return WORD

    fixed = Registry([look_for, string_length]).configured(
        "string_length", fixed_config={"text": WORD}, new_name="long"
    )
    sharing = Sharing.of("schema")
    for private in (False, True):
        bench = open_bench(tools=(pretender, fixed), allow_private=private)
        url = "http://127.0.0.1:9/"
        shown = {
            name: sharing.allows(bench.call(name, arguments))
            for name, arguments in {"string_length": {"text": "a"}, "pretender": {}, "long": {}}.items()
        }
        assert shown == {"string_length": True, "pretender": False, "long": False}
        # The address is refused while nothing private may be reached, and else read.
        assert sharing.allows(bench.call("web_scrape", {"url": url})) is not private


@pytest.mark.parametrize(
    ("url", "level"),
    [
        ("http://127.0.0.1:1/v1", "values"),
        ("http://[::1]:1", "values"),
        ("http://127.0.0.2", "values"),
        ("http://127.0.0.1.example.org/v1", "schema"),
        ("http://127.example.org", "schema"),
        ("http://localhost.example.org", "schema"),
        ("http://0.0.0.0", "schema"),
        (None, "schema"),
    ],
)
def test_a_model_is_here_only_where_its_server_is(url: str | None, level: str) -> None:
    choice = ModelChoice(name="openai-chat:m", provider="openai-chat", model="m", base_url=url)
    assert default_level(choice) == level


@pytest.mark.processes
def test_what_a_person_changed_is_told_at_every_level(wb: Workbench, servers: dict[str, StandIn]) -> None:
    server = servers["openai"]
    server.requests.clear()
    server.answers = [Answer(calls=[("file_write", '{"path": "new.txt", "content": "a"}')]), Answer(text="Done.")]
    change = Reply(answer="once", arguments={"path": "new.txt", "content": "bee"})
    wb.agent("Write!", model="openai-plain", share="schema", approver=AskFunction(lambda _: change))
    assert b"changed its arguments: content." in server.requests[1]
    assert b"bee" not in server.requests[1]


def _make_views(*names: str) -> None:
    Path("new.csv").write_text("name,n\na,1\n")
    with duckdb.connect("own.duckdb") as own:
        for name in names:
            own.execute(f"create view {name} as from '{name}.csv'")
    Path("new.csv").unlink()


@pytest.mark.slow
@pytest.mark.processes
def test_columns_are_named_as_the_snapshot_of_the_conversations_beginning_names_them(
    open_bench: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.csv").write_text("name,n\na,1\n")
    (tmp_path / "old.json").write_text('{"name": 1}')
    (tmp_path / "bare.csv").write_text(f"{WORD},Oslo\nann,Bergen\nbob,Bergen\n")
    (tmp_path / "strange.csv").write_text(f"{WORD},77.5,n/a\nann,Bergen,1\nbob,Bergen,2\n")
    _make_views("old", "bare", "new")
    (tmp_path / "deep").mkdir()
    pd.DataFrame({"n": [1]}).to_parquet(tmp_path / "deep" / "old.parquet")
    frame = pd.DataFrame({"s": [{WORD: 1}], "d": [1.5]})
    script = """
import duckdb
word = "Quetzal" + "7fox"
for name in ("o.parquet", "o.csv"):
    duckdb.sql(f"copy (select 1 as {word}) to '{name}'")
"""
    new = "up to 2 columns, which were made since"
    asked: dict[str, Any] = {
        "select *, n + 1 as more from 'old.csv'": ["name", "n", "more"],
        f"select count(*) from '{tmp_path}/o*.csv'": ["count_star()"],
        "select * from read_csv('old.csv')": ["name", "n"],
        "select * from read_csv('old.csv', skip=0)": new,
        "pivot 'old.csv' on name using sum(n)": "1 column, which were made since",
        "select o.* from 'old.csv' o": ["name", "n"],
        "select * from 'old.json'": ["column 1"],
        "select * from 'new.csv'": new,
        "select n from 'old.csv' union all select n from 'new.csv'": "1 column, which were made since",
        "select 1 as one": ["one"],
        "select * from 'bare.csv'": ["column 1", "column 2"],  # its first line may be a row
        "select b.*, n from 'bare.csv' b, 'old.csv'": ["column 1", "column 2", "n"],
        "select * from 'strange.csv'": ["column 1", "column 2", "column 3"],
        "select s.*, d, d + 1 as more from frame": ["column 1", "d", "column 3"],
        "from own.old": ["name", "n"],
        "from own.bare": ["column 1", "column 2"],
        "from own.new": new,
    }
    left = ("artifacts/o.parquet", "./artifacts/o.parquet", "artifacts/*.parquet", "artifacts/o.csv", "artifacts/?.csv")
    asked |= {f"select * from '{name}'": "1 column, which were made since" for name in left}
    asked["select columns(*) from 'artifacts/o.parquet'"] = "1 column, which were made since"
    asked["select * from read_parquet('artifacts/o.parquet')"] = "1 column, which were made since"
    asked[f"select * from read_parquet(['{tmp_path}/deep/old.parquet', 'artifacts/o.parquet'])"] = None
    asked["""select * from 'artifacts'.'o.parquet'"""] = None
    with stand_in("openai") as server:
        models = {"m": {"model": "openai:m", "base_url": server.url}}
        bench = open_bench(models=models, frames={"frame": frame}, connections={"own": "duckdb:///own.duckdb"})
        calls = [[("file_write", '{"path": "new.csv", "content": "name,n\\na,1\\n"}')]]
        calls += [[("data_analyze", json.dumps({"input_file_path": "old.csv", "analysis_script": script}))]]
        calls += [[("sql_query", json.dumps({"query": query}))] for query in asked]
        run, _ = _asked(bench, server, "m", calls, "schema")
        texts = [json.loads(call.sent.partition("] ")[2] or "{}") for call in run.calls[2:]]
        assert marks_in(server.requests[-1]) == []  # it holds all that went before
        later = [[("sql_query", json.dumps({"query": f"select * from '{left[0]}'"}))]]
        assert WORD not in str(_asked(bench, server, "m", later, "schema")[0].calls[0].sent), "the file is older now"
    told = {query: text.get("columns") for query, text in zip(asked, texts, strict=True)}
    for query, expected in asked.items():
        found = told[query]
        assert expected is None or (list(found) if isinstance(found, dict) else found) == expected, query
        assert WORD not in str(found), query
