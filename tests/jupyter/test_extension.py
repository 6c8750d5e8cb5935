"""Loading, unloading, and living beside other extensions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nbtools.jupyter.catalogue import CATALOGUE
from nbtools.jupyter.extension import import_ahead

ALL_NAMES = {(kind, name) for entry in CATALOGUE for name in entry.names for kind in entry.kinds}


def _state(shell: Any) -> tuple[Any, ...]:
    """Return all that an extension may change in a shell."""
    magics = shell.magics_manager.magics
    return (
        {kind: set(magics[kind]) for kind in magics},
        list(shell.input_transformers_cleanup),
        [thing for thing in shell.configurables if type(thing).__module__.startswith("nbtools")],
        list(shell.Completer.custom_matchers),
        dict(shell.meta),
        {name for name in shell.user_ns if not name.startswith("_")},
    )


def test_loading_is_silent_and_brings_every_magic_under_both_names(bare) -> None:
    cell = bare.run("%load_ext nbtools")
    assert (cell.stdout, cell.stderr, cell.error) == ("", "", None)
    magics = bare.shell.magics_manager.magics
    assert all(name in magics[kind] for kind, name in ALL_NAMES)


@pytest.mark.processes
def test_unloading_takes_everything_back(bare) -> None:
    before = _state(bare.shell)
    bare.run("%load_ext nbtools")
    bare.run("%nbmemory list")
    assert _state(bare.shell) != before
    bare.run("%unload_ext nbtools")
    assert _state(bare.shell) == before


def test_loading_twice_changes_nothing_more(notebook) -> None:
    import nbtools

    before = _state(notebook.shell)
    nbtools.load_ipython_extension(notebook.shell)
    assert _state(notebook.shell) == before


def test_reloading_keeps_the_magics_working(notebook) -> None:
    notebook.run("%memory save a 1")
    assert notebook.run("%reload_ext nbtools").error is None
    assert notebook.run("%nbtools version").error is None
    assert notebook.shell.magics_manager.magics["line"]["memory"]


def test_unloading_closes_the_workbench_and_the_next_use_opens_another(notebook) -> None:
    from nbtools.assembly.shared import shared

    notebook.run("%memory list")
    first = shared()
    notebook.run("%unload_ext nbtools")
    with pytest.raises(RuntimeError):
        _ = first.memory
    notebook.run("%load_ext nbtools")
    assert notebook.run("%memory list").error is None
    assert shared() is not first


@pytest.mark.processes
def test_a_short_name_that_somebody_has_stays_theirs(bare) -> None:
    theirs = bare.shell.magics_manager.magics["line"]
    bare.shell.register_magic_function(lambda _: "theirs", "line", "sql")
    bare.run("%load_ext nbtools")
    assert bare.run("%sql select 1").value == "theirs"
    assert bare.run("%nbsql select 1 as one").value["one"].tolist() == [1]
    assert "%sql is someone else's, use %nbsql" in str(bare.run("%nbtools").value)
    bare.run("%unload_ext nbtools")
    assert "sql" in theirs
    assert "nbsql" not in theirs


def test_a_name_that_somebody_took_afterwards_is_not_taken_from_them(notebook) -> None:
    notebook.shell.register_magic_function(lambda _: "theirs", "line", "memory")
    notebook.run("%unload_ext nbtools")
    assert notebook.run("%memory list").value == "theirs"


def test_help_is_the_same_by_question_mark_and_by_option(notebook) -> None:
    asked = notebook.shell.object_inspect("%memory")["docstring"]
    printed = notebook.run("%memory --help").stdout
    assert asked.split() == printed.split()
    assert "save" in asked
    assert notebook.shell.object_inspect("%%data_analyze")["docstring"].startswith("usage: %%data_analyze")


def test_a_cell_magic_alone_shows_its_usage(notebook) -> None:
    for name in ("data_analyze", "data_visualize", "code", "nbsql", "memory"):
        assert f"usage: %%{name} " in notebook.run(f"%%{name} --help").stdout


def test_every_magic_has_a_usage_under_every_name(notebook) -> None:
    magics = notebook.shell.magics_manager.magics
    for kind, name in ALL_NAMES:
        assert f"usage: {'%%' if kind == 'cell' else '%'}{name}" in magics[kind][name].__doc__


def test_the_options_are_shown_and_changed_by_config(notebook, caplog) -> None:
    assert "NBTools" in notebook.run("%config").stdout
    notebook.run("%config NBTools.limit = 2")
    assert len(notebook.run("%nbsql select unnest(range(10)) as n").value) == 2
    notebook.run("%config NBTools.limit = -1")  # IPython logs the refusal, which names the option
    assert "-1 is not more than 0" in caplog.text
    assert len(notebook.run("%nbsql select unnest(range(10)) as n").value) == 2


@pytest.mark.processes
def test_the_other_package_of_the_same_name_is_told_clearly(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "site" / "nbtools-20.7.1.dist-info"
    other.mkdir(parents=True)
    code = """
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().run_line_magic("load_ext", "nbtools")
"""
    env = os.environ | {"PYTHONPATH": f"{other.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0
    told = done.stderr.splitlines()
    assert len(told) == 3
    assert "20.7.1" in told[0]
    assert "pip uninstall nbtools" in told[2]


@pytest.mark.processes
def test_first_use_of_the_line_costs_no_heavy_import(folder: Path) -> None:
    code = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "nbtools")
def complete(text):
    lines = text.split("\\n")
    shell.Completer._complete(cursor_line=len(lines) - 1, cursor_pos=len(lines[-1]), full_text=text)
for text in ("%memory ", "%memory get ", "%tool calculator --", "%%nbsql\\nselect x from "):
    complete(text)
for text in ("%kernels stop ", "%tools ", "%nbtools config ", "%%data_analyze x"):
    complete(text)
heavy = {"pandas", "duckdb", "sqlglot", "pydantic", "requests", "matplotlib", "numpy", "bs4", "zmq"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("stays", [True, False])
def test_what_scripts_need_is_imported_while_the_loop_is_idle_and_the_extension_stays(
    stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("nbtools_ahead_one", "nbtools_ahead_wrong", "nbtools_ahead_two")
    for name, text in zip(names, ("", "1 / 0", ""), strict=True):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    async def cell() -> list[bool]:
        import_ahead((*names[:2], lambda: sys.modules.setdefault("nbtools_ahead_done", sys), names[2]), lambda: stays)
        seen = [names[0] in sys.modules]
        for _ in range(2_000 if stays else 20):
            await asyncio.sleep(0.01)
            if names[2] in sys.modules:
                break
        return [*seen, *(name in sys.modules for name in (names[0], names[2], "nbtools_ahead_done"))]

    try:
        assert asyncio.run(cell()) == [False, stays, stays, stays]
    finally:
        for name in (*names, "nbtools_ahead_done"):
            sys.modules.pop(name, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "file", "is_ahead"), [("30", "", True), ("0s", "", False), (None, "kernel_warm = 0", False)]
)
def test_the_parts_of_the_first_table_are_imported_while_idle_unless_nothing_is_to_be_kept_warm(
    variable: str | None, file: str, is_ahead: bool, tmp_path: Path
) -> None:
    (tmp_path / "nbtools.toml").write_text(file)
    code = f"""
import asyncio, sys
from IPython.core.interactiveshell import InteractiveShell
async def idle():
    InteractiveShell.instance().run_line_magic("load_ext", "nbtools")
    for _ in range({1_000 if is_ahead else 20}):
        await asyncio.sleep(0.05)
        if "nbtools.toolbox.web.downloads" in sys.modules:
            break
    print("nbtools.widgets.explorer" in sys.modules, "nbtools.ground.config" in sys.modules, "pydantic" in sys.modules)
asyncio.run(idle())
"""
    # A profile that it shares has a history that others lock, which IPython tells.
    environment = {**os.environ, "NBTOOLS_HOME": f"{tmp_path}/home", "IPYTHONDIR": f"{tmp_path}/ipython"}
    environment.pop("NBTOOLS_KERNEL_WARM")
    environment |= {} if variable is None else {"NBTOOLS_KERNEL_WARM": variable}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (f"{is_ahead} True {is_ahead}\n", "")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("home", ["~nobody-of-this-name/home", "/dev/null/home", "/" + "x" * 5_000])
def test_a_home_that_cannot_be_is_told_by_what_needs_it_and_not_by_loading(
    bare, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBTOOLS_HOME", home)
    monkeypatch.setenv("NBTOOLS_KERNEL_WARM", "30")
    cell = bare.run("%load_ext nbtools")
    assert (cell.stdout, cell.stderr, cell.error) == ("", "", None)


def test_nothing_is_imported_ahead_where_no_loop_runs() -> None:
    import_ahead(("nbtools_that_is_nowhere",), lambda: True)


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forked kernels need Linux")
def test_who_keeps_libraries(bare, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("KERNEL_WARM", "1"), ("PRELOADS", "numpy"), ("MEMORY_URL", ":memory:")):
        monkeypatch.setenv(f"NBTOOLS_{name}", value)
    bare.run("%load_ext nbtools")
    assert "keeps the libraries" not in bare.run("%kernels").value._repr_html_()
    for _ in range(2):  # from the second script on
        assert bare.run("%%code python\nprint(6 * 7)\n").stdout.startswith("42")
    assert "keeps the libraries" in bare.run("%kernels").value._repr_html_()
