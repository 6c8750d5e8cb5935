"""The registry: immutable, told names, partial configuration, entry points, checks."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict, Field

from nbtools.assembly.workbench import Workbench
from nbtools.contract.registry import Registry
from nbtools.contract.schema import output_schema
from nbtools.contract.signature.parameters import PartialParameters
from nbtools.contract.tool import tool, tool_of
from nbtools.errors import InvalidArguments, ToolNotFound


class Server(BaseModel):
    model_config = ConfigDict(extra="forbid")
    host: str
    port: int = 80
    token: str = Field(default="", description="the secret that opens it")


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid")
    server: Server
    retries: int = 0


@tool(read_only=True, examples=({"request": {"server": {"host": "h"}}, "path": "/"},))
def fetch(request: Request, path: str, limit: int = 10) -> dict[str, Any]:
    """Fetch a page.

    Parameters
    ----------
    request
        How it is asked for.
    path
        What is asked for.
    limit
        Bytes at the most.
    """
    return {"request": request, "path": path, "limit": limit}


@tool
def save(key: str) -> str:
    """Save it.

    Parameters
    ----------
    key
        Where.
    """
    return key


@tool
def load(key: str) -> str:
    """Load it.

    Parameters
    ----------
    key
        Where.
    """
    return key


SHELF = Registry([fetch, save, load])


def test_a_registry_is_a_mapping_in_the_order_given() -> None:
    assert list(SHELF) == ["fetch", "save", "load"]
    assert (len(SHELF), "save" in SHELF, "nothing" in SHELF) == (3, True, False)
    assert SHELF["save"] is tool_of(save)
    assert repr(SHELF) == "Registry(fetch, save, load)"


def test_every_change_leaves_the_original_as_it_was() -> None:
    def more() -> None: ...

    assert SHELF.select("load", "fetch").names == ("load", "fetch")
    assert SHELF.select("load", "*").names == ("load", "fetch", "save")
    assert SHELF.select("*a*e", "fetch").names == ("save", "fetch")
    assert SHELF.select().names == ()
    with pytest.raises(ToolNotFound, match="no tool 'nothing_"):
        SHELF.select("nothing_*")
    assert SHELF.without("save").names == ("fetch", "load")
    assert SHELF.prefixed("x_").names == ("x_fetch", "x_save", "x_load")
    assert SHELF.with_tool(more).names == ("fetch", "save", "load", "more")
    assert SHELF.names == ("fetch", "save", "load")
    with pytest.raises(TypeError):
        SHELF["save"] = tool_of(load)  # type: ignore[index]


@pytest.mark.parametrize("ask", [lambda n: SHELF[n], SHELF.select, SHELF.without, SHELF.configured])
def test_an_unknown_name_offers_the_nearest(ask: Any) -> None:
    with pytest.raises(ToolNotFound, match="no tool 'fetsh'") as caught:
        ask("fetsh")
    assert caught.value.hint == "Did you mean 'fetch'?"
    with pytest.raises(ToolNotFound) as caught:
        ask("zzz")
    assert caught.value.hint == "Tools are fetch, save, load."


def test_a_name_offered_twice_is_an_error_at_once() -> None:
    assert SHELF.with_tool(save).names == SHELF.names  # the same one is one
    with pytest.raises(InvalidArguments, match="two tools are called 'save'"):
        SHELF.with_tool(tool(name="save")(lambda: None))


@pytest.mark.parametrize("name", ["", "two words", "ümlaut", "3d", "x" * 65, "a/b"])
def test_a_name_that_providers_refuse_is_refused_here(name: str) -> None:
    with pytest.raises(InvalidArguments, match="not a name for a tool"):
        Registry([tool(name=name)(lambda: None)] if name else [_named("")])


def _named(name: str) -> Any:
    import dataclasses

    return dataclasses.replace(tool_of(save), name=name)


def test_fixed_values_are_neither_seen_nor_changed() -> None:
    made = SHELF.configured("fetch", new_name="home", description="Fetch the home page.", fixed_config={"path": "/"})
    assert (made.name, made.description) == ("home", "Fetch the home page.")
    assert list(made.schema["properties"]) == ["request", "limit"]
    values = made.parameters.validate({"request": {"server": {"host": "h"}}})
    assert values["path"] == "/"
    with pytest.raises(InvalidArguments, match="path: unknown argument"):
        made.parameters.validate({"request": {"server": {"host": "h"}}, "path": "/other"})


def test_only_exposed_inputs_are_left() -> None:
    made = SHELF.configured(
        "fetch", fixed_config={"request": {"server": {"host": "h"}}}, exposed_inputs=(name for name in ["path"])
    )
    assert made.schema == {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "What is asked for."}},
        "required": ["path"],
        "additionalProperties": False,
    }
    with pytest.raises(InvalidArguments, match="limit: unknown argument"):
        made.parameters.validate({"path": "/", "limit": 3})


def test_nested_values_can_be_fixed_alone() -> None:
    made = SHELF.configured(
        "fetch",
        fixed_config={"request": {"server": {"host": "h", "token": "t"}}},
        exposed_inputs=["request", "path"],
    )
    jsonschema.Draft202012Validator.check_schema(made.schema)
    assert "token" not in str(made.schema)
    assert "host" not in str(made.schema)
    values = made.parameters.validate({"request": {"server": {"port": 8080}, "retries": 2}, "path": "/"})
    assert values["request"] == Request(server=Server(host="h", port=8080, token="t"), retries=2)
    assert made.parameters.validate({"request": {}, "path": "/"})["request"].server.token == "t"
    with pytest.raises(InvalidArguments, match=r"request\.server\.token: unknown argument"):
        made.parameters.validate({"request": {"server": {"token": "mine"}}, "path": "/"})
    with pytest.raises(InvalidArguments, match="request: expected an object"):
        made.parameters.validate({"request": "all", "path": "/"})


def test_a_configured_tool_can_be_configured_again() -> None:
    once = SHELF.configured("fetch", new_name="once", fixed_config={"path": "/"})
    twice = Registry([once]).configured("once", new_name="twice", fixed_config={"limit": 3})
    assert list(twice.schema["properties"]) == ["request"]
    values = twice.parameters.validate({"request": {"server": {"host": "h"}}})
    assert (values["path"], values["limit"]) == ("/", 3)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"fixed_config": {"pth": "/"}}, "pth: unknown argument, did you mean 'path'?"),
        ({"exposed_inputs": ["pth"]}, "pth: unknown argument, did you mean 'path'?"),
        ({"exposed_inputs": ["path"]}, "request: required, so fix it or expose it"),
        ({"fixed_config": {"path": "/"}, "exposed_inputs": ["path", "request"]}, "path: cannot be fixed and exposed"),
        ({"fixed_config": {"limit": "many"}}, "limit: Input should be a valid integer"),
        ({"on_error": "panic"}, "on_error is 'panic'"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused_when_it_is_made(how: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        SHELF.configured("fetch", **how)
    assert said in caught.value.message


def test_a_tool_is_made_from_a_plain_name_or_a_mapping() -> None:
    assert SHELF.create_tool_from_config("save") == tool_of(save)
    made = SHELF.create_tool_from_config(
        {"name": "fetch", "on_error": "fail", "config": {"limit": 5}, "fixed_config": {"path": "/"}}
    )
    assert (made.name, made.on_error, list(made.schema["properties"])) == ("fetch", "fail", ["request"])
    renamed = SHELF.create_tool_from_config({"tool": "save", "name": "remember", "description": "Keep it."})
    assert (renamed.name, renamed.description) == ("remember", "Keep it.")
    assert SHELF.create_tool_from_config({"name": "save", "config": None}) == tool_of(save)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"name": "save", "on_eror": "fail"}, "'on_eror' is not a key"),
        ({"on_error": "fail"}, "does not name a tool"),
        ({"name": "save", "config": ["key"]}, "does not fit"),
        ({"name": "save", "exposed_inputs": "key"}, "does not fit"),
        (3, "neither a tool's name nor a mapping"),
    ],
)
def test_a_configuration_in_the_wrong_form_is_refused(config: Any, said: str) -> None:
    with pytest.raises(InvalidArguments, match=said):
        SHELF.create_tool_from_config(config)


def test_the_configuration_of_all_tools_tells_what_is_known() -> None:
    told = {entry["name"]: entry for entry in SHELF.get_tools_config()}
    assert told["fetch"] == {
        "name": "fetch",
        "title": "Fetch",
        "description": "Fetch a page.",
        "effects": ["read_only"],
        "input_schema": tool_of(fetch).schema,
        "output_schema": output_schema(tool_of(fetch)),
        "examples": [{"request": {"server": {"host": "h"}}, "path": "/"}],
        "timeout": None,
        "on_error": "continue",
    }


def test_a_sound_shelf_has_no_problems() -> None:
    assert SHELF.check() == []


def test_check_finds_what_is_wrong_with_a_declaration() -> None:
    @tool(examples=({"x": "three"},))
    def odd(x: int) -> None: ...

    @tool
    def untyped(x):  # type: ignore[no-untyped-def]
        """Do it."""

    outside = dataclasses.replace(tool_of(fetch), returns=lambda: {"type": "object", "required": "x"})
    found = Registry([odd, untyped, outside]).check()
    assert [line.partition(":")[0] for line in found] == ["odd", "odd", "untyped", "fetch"]
    assert "of what it returns: required: required is 'x'" in found[3]
    assert "parameter 'x' has no description" in found[0]
    assert "the example {'x': 'three'} does not validate" in found[1]
    assert "have no schema" in found[2]


def test_an_unknown_form_offers_the_nearest() -> None:
    with pytest.raises(InvalidArguments) as caught:
        SHELF.render("antropic")
    assert caught.value.hint == "Did you mean 'anthropic'?"


def test_a_registry_of_decorated_tools_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(SHELF)).names == SHELF.names


def test_partial_parameters_take_any_iterable_once() -> None:
    made = PartialParameters(tool_of(save).parameters, exposed=iter(["key"]))
    assert list(made.schema()["properties"]) == ["key"]


def _plugin(folder: Path, name: str, source: str, point: str) -> None:
    (folder / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[nbtools.tools]\n{name} = {point}\n", encoding="utf-8")


BROKEN = {
    "raises": "raise RuntimeError('broken')",
    "leaves": "raise SystemExit(3)",
    "interrupts": "raise KeyboardInterrupt",
    "nothing": "",
    "number": "ALL = 7",
    "taken": "def shell(x: int) -> int:\n    return x\nALL = shell",
    "twice": "def another(x: int) -> int:\n    return x\nALL = [another]",
    "badname": """
        from nbtools.contract.tool import tool
        @tool(name='no name')
        def f(x: int) -> int:
            return x
        ALL = f
    """,
    "starred": """
        def starred(*x: int) -> int:
            return 1
        def fine(x: int) -> int:
            'Return it.'
            return x
        ALL = [starred, fine]
    """,
    "stops": "def ALL_():\n    yield from ()\n    raise ValueError('late')\nALL = ALL_()",
}


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with two tools, and packages that are broken in all ways."""
    good = """
        from nbtools.contract.tool import tool
        @tool
        def from_plugin(x: int) -> int:
            '''Return it.'''
            return x
        def another(y: str) -> str:
            '''Return it.'''
            return y
        ALL = (from_plugin, another)
    """
    _plugin(tmp_path, "good_plugin", good, "good_plugin:ALL")
    for name, source in BROKEN.items():
        _plugin(tmp_path, f"plugin_{name}", source, f"plugin_{name}:ALL")
    _plugin(tmp_path, "plugin_malformed", "", "not a place: at all")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in BROKEN:  # as in a new process
        monkeypatch.delitem(sys.modules, f"plugin_{name}", raising=False)


@pytest.mark.usefixtures("plugins")
def test_installed_packages_add_tools_and_a_broken_one_takes_nothing_away(tmp_path: Path) -> None:
    with Workbench(home=tmp_path, memory_url=":memory:") as wb:
        with pytest.warns(UserWarning, match="left out") as told:
            assert wb.call("calculator", {"expression": "1 + 1"}).data == {"value": 2}
        assert {"from_plugin", "another", "fine"} <= set(wb.registry.names)
        assert wb.call("from_plugin", {"x": 3}).data == 3
    said = "\n".join(str(warning.message) for warning in told)
    for name in (*BROKEN, "malformed"):
        assert f"plugin_{name}" in said
    assert "good_plugin" not in said


@pytest.mark.processes
@pytest.mark.usefixtures("plugins")
def test_the_doctor_names_packages_whose_tools_were_left_out(tmp_path: Path) -> None:
    with Workbench(home=tmp_path, memory_url=":memory:") as wb:
        with pytest.warns(UserWarning, match="left out"):
            wb.call("calculator", {"expression": "1 + 1"})
        check = next(check for check in wb.doctor() if check.name == "tools")
    assert not check.ok
    for name in (*BROKEN, "malformed"):
        assert f"plugin_{name}" in check.finding


@pytest.mark.processes
def test_langchain_is_an_extra_that_says_so() -> None:
    code = """
        import sys
        sys.modules["langchain_core"] = None
        from nbtools.contract.registry import Registry
        try:
            Registry().to_langchain()
        except ImportError as exc:
            print(exc.hint)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "pip install 'nbtools-kit[langchain]'", done.stderr
