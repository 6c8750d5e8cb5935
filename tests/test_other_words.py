"""Words of other tools lead to what is here: in help, imports, attributes, constructors, options and keys of files."""

from __future__ import annotations

import importlib.util
import pickle
import pkgutil
import re
import textwrap
from typing import Any

import pytest

import nbtools
from nbtools import Artifact, Registry, ToolCall, Workbench
from nbtools.cli import _parser
from nbtools.errors import ConfigInvalid, InvalidArguments, NbtoolsError
from nbtools.jupyter.catalogue import CATALOGUE
from nbtools.jupyter.help_pages import help_page
from nbtools.jupyter.line.line_parser import split
from nbtools.memory import AgentMemory, InMemoryRepository
from nbtools.texts.other_words import KnowsOtherWords, explains_arguments, hint_for, other_words
from nbtools.workflow import validate

ENTRIES = list({entry.words: entry for entry in other_words().values()}.values())

FIRST_SENTENCES = {
    "from nbtools import AgentMemory": "open_memory",
    "from nbtools import ToolRegistry": "wb.registry",
    "from nbtools.memory import MemoryStore": "open_memory",
    "from nbtools.memory import AgentMemory; AgentMemory(agent_id='a', scope='agent')": "open_memory",
    "from nbtools.tools import list_tools": "wb.tools",
    "from nbtools.tools.web_tools import web_search": "wb.tools",
    "from nbtools.toolbox import web_search": "wb.tools",
    "import nbtools; nbtools.get_tool_registry()": "wb.registry",
    "from nbtools import Registry; Registry().get_tool('code_execute')": "wb.registry[NAME]",
    "from nbtools import Registry; Registry().register(print)": "with_tool",
    "from nbtools import Workbench; Workbench().registry['code_exec']": "code_execute",
    "from nbtools import Workbench; Workbench().tools.code_exec(code='1')": "code_execute",
    "from nbtools import Workbench; Workbench().run('x.yaml')": "wb.workflows.run",
    "from nbtools import Workbench; Workbench(memory='x.duckdb')": "memory_url",
    "from nbtools import Workbench; Workbench(llm='x')": "provider:model",
    "import nbtools; nbtools.ToolCall('calculator', {})": "nbtools.ToolCall(tool=NAME",
    "import nbtools; nbtools.Artifact(path='a')": "from_path",
    "from nbtools import Tool": "@nbtools.tool",
    "from nbtools import Workbench; Workbench(memory_url=':memory:').memory.search('a', user_id='b')": "prefix=",
    "from nbtools import open_memory; open_memory(':memory:').history(key='a', a=1)": "It takes key, limit",
    "from nbtools import Workbench; Workbench().workflows.run('a.yaml', inputts={})": "Did you mean 'inputs'?",
    "from nbtools import Workbench; Workbench().call('calculator', expression='1')": "Workbench.call() got",
    "from nbtools import AsyncMemory": "open_memory",
    "from nbtools import HuggingFaceModel": "provider:model",
    "from nbtools.output_parsers import StrOutputParser": "output_schema",
    "from nbtools import tool; tool(args_schema=dict)": "@nbtools.tool makes a tool",
    "from nbtools import open_memory; open_memory(':memory:').get(memory_id='a')": "A note has a key",
    "from nbtools.agent.records.run_record import RunOptions; RunOptions(max_steps=3)": "budgets=",
    "from nbtools import Workbench; Workbench(memory_url=':memory:').agent.run('a', max_steps=3)": "budgets=",
    "from nbtools import Workbench; Workbench(memory_url=':memory:').sql('SELECT 1', limt=3)": "Did you mean 'limit'?",
    "from nbtools import Workbench; Workbench(memory_url=':memory:').export('SELECT 1', 'a.csv', limt=3)": "'limit'?",
}


@pytest.mark.parametrize("code", FIRST_SENTENCES)
def test_a_first_sentence_in_the_words_of_others_is_answered_with_ours(code: str) -> None:
    with pytest.raises((ImportError, AttributeError, TypeError, NbtoolsError)) as caught:
        exec(code, {})
    assert FIRST_SENTENCES[code] in str(caught.value)


def test_what_nobody_has_is_told_with_what_there_is() -> None:
    with pytest.raises(AttributeError, match=r"module 'nbtools' has no attribute 'zebra'. dir\(nbtools\) lists"):
        _ = nbtools.zebra
    with pytest.raises(ImportError, match=r"cannot import name 'zebra' from 'nbtools'\. dir"):
        exec("from nbtools import zebra", {})
    with pytest.raises(AttributeError, match=r"no attribute 'zebra'\. It has check, .*with_tool"):
        _ = Registry().zebra  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"has no attribute 'nammes'. Did you mean 'names'"):
        _ = Registry().nammes  # type: ignore[attr-defined]
    assert not hasattr(nbtools, "MemoryStore")
    assert not hasattr(Registry(), "register")
    assert importlib.util.find_spec("nbtools.zebra") is None


def test_a_property_that_fails_is_not_taken_for_a_missing_one() -> None:
    class Owner(KnowsOtherWords):
        @property
        def part(self) -> int:
            raise AttributeError("inside")

    with pytest.raises(AttributeError, match=r"^inside$"):
        _ = Owner().part


def test_an_error_within_a_constructor_is_told_as_it_is() -> None:
    memory = AgentMemory(InMemoryRepository(), agent_id="a")
    assert pickle.loads(pickle.dumps(ToolCall(tool="t"))).tool == "t"
    assert memory.scope.agent_id == "a"
    with pytest.raises(InvalidArguments, match="agent_id"):
        AgentMemory(InMemoryRepository(), agent_id=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="from_path"):
        Artifact(path="a", sise=3)  # type: ignore[call-arg]

    def fails_within() -> None:
        parse()  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=r"argument: 'line'$"):
        explains_arguments(fails_within)()


def test_options_and_keys_of_others_are_answered_with_ours() -> None:
    parser = pkgutil.resolve_name("nbtools.jupyter.magics.sql:MAGIC").usage("%sql", False).finish()
    with pytest.raises(InvalidArguments) as option:
        parser.read(["--persist", "frame"])
    assert "memory save" in str(option.value.hint)
    parser = pkgutil.resolve_name("nbtools.jupyter.magics.memory:MAGIC").usage("%memory", False).finish()
    with pytest.raises(InvalidArguments) as missing:
        parser.read(["find", "plan"])
    assert "%memory search takes words" in str(missing.value.hint)
    report = validate("version: 1\nname: a\nnodes:\n- id: a\n  node_type: tool\n  tool: calculator\n")
    assert any("A node's kind is the key it has" in str(finding.hint) for finding in report.findings)
    with pytest.raises(ConfigInvalid) as setting:
        Workbench(llm="x")  # type: ignore[call-arg]
    assert "provider:model" in str(setting.value.hint)


def test_no_word_stands_twice_and_none_is_a_name_of_ours() -> None:
    words = [word for entry in ENTRIES for word in entry.words]
    assert len(words) == len({word.casefold() for word in words})
    assert not set(words) & set(nbtools.__all__)
    for word in words:
        owner, _, name = word.partition(".")
        known: dict[str, Any] = {"Workbench": Workbench, "Registry": Registry, "AgentMemory": AgentMemory}
        assert not any(name in vars(base) for base in known.get(owner, object).__mro__ if name), word
    assert hint_for("zebra") is None


def test_each_entry_leads_to_a_page_and_each_word_has_one(topics: dict[str, Any]) -> None:
    for entry in ENTRIES:
        assert len(help_page(entry.page, topics["tools"], topics["commands"])) > 100
        for word in entry.words:
            page = help_page(word, topics["tools"], topics["commands"])
            known = word in topics["tools"] or word in topics["commands"] or any(word in e.names for e in CATALOGUE)
            assert known or page == entry.to_text(), word


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.example], ids=lambda entry: str(entry.words[0]))
def test_the_example_runs(entry: Any) -> None:
    lines = entry.example.strip().splitlines()
    said = [line for line in lines if line.startswith(("%", "nbtools "))]
    for line in said:
        parse(line)
    code = "\n".join(line for line in lines if line not in said)
    if code:
        with Workbench(memory_url=":memory:") as wb:
            exec(textwrap.dedent(code), {"wb": wb, "nbtools": nbtools})


def parse(line: str) -> None:
    """Read a line of a notebook or a terminal as it is read there; it is not performed."""
    words = [str(word) for word in split(line)]
    if words[0] == "nbtools":
        if "--help" not in words:
            _parser(words[1]).parse_args([word.strip("\"'") for word in words[1:]])
        return
    name = words[0].lstrip("%")
    (entry,) = [entry for entry in CATALOGUE if name in entry.names]
    is_cell = line.startswith("%%")
    assert ("cell" if is_cell else "line") in entry.kinds, line
    magic = pkgutil.resolve_name(entry.code)
    parser = magic.usage(words[0], is_cell).finish()
    if magic.free_from is None and magic.refine is None:
        parser.read(words[1:])
    else:  # free text, or options of a tool, may follow
        unknown = [word for word in parser.parse_known_args(words[1:])[1] if word.startswith("--")]
        assert not unknown or magic.refine is not None, line


@pytest.fixture(scope="module")
def topics() -> dict[str, Any]:
    commands = next(action for action in _parser("help")._actions if hasattr(action, "_name_parser_map"))
    from nbtools.toolbox import STANDARD

    return {
        "tools": Registry([function for tools in STANDARD for function in tools]),
        "commands": commands.choices,
    }


def test_sentences_name_what_there_is() -> None:
    for entry in ENTRIES:
        for name in re.findall(r"nbtools((?:\.[A-Za-z_]+)+)\(", entry.here):
            assert pkgutil.resolve_name(f"nbtools{name}"), name
