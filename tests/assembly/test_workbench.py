"""The workbench as people hold it: what it recorded, and what is left of it after its end."""

from __future__ import annotations

import inspect
import os
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

from nbtools import Workbench
from nbtools.contract.tool import ToolCall
from nbtools.errors import PermissionDenied, SqlInvalid, WorkbenchClosed
from nbtools.ground import aio
from nbtools.ground.config import Config


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    with Workbench(home=tmp_path / "home", memory_url=":memory:", allowed_paths=[tmp_path]) as made:
        yield made


def test_a_frame_and_an_export_tell_how_files_were_read(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("year\n2001\nN/A\n", encoding="utf-8")
    query = f"from '{tmp_path / 'g.csv'}'"
    (note,) = bench.sql(query, limit=1).attrs["notes"]
    assert "'N/A'" in note
    assert bench.export(query, str(tmp_path / "g.xlsx")).notes == (note,)
    with pytest.raises(TypeError, match=r"export\(\) got .* 'frm'. Did you mean 'form'"):
        bench.export(query, str(tmp_path / "h.csv"), frm="csv")


def test_calls_are_listed_newest_first_with_the_moment_they_began(bench: Workbench) -> None:
    before = datetime.now(UTC)
    for number in "123":
        bench.call("calculator", {"expression": number})
    told = [{"expression": number} for number in "321"]
    assert [call["arguments"] for call in bench.call_records()] == told
    assert bench.call_records(limit=1)[0]["arguments"] == told[0]
    frame = bench.calls
    assert frame["arguments"].to_list() == told
    assert frame["started_at"].is_monotonic_decreasing
    moments = [moment.to_pydatetime() for moment in frame["started_at"]]
    assert all(before <= moment <= datetime.now(UTC) for moment in moments)
    asked = bench.sql("select started_at, typeof(started_at) as type from nbtools.calls where tool = 'calculator'")
    assert set(asked["type"]) == {"TIMESTAMP WITH TIME ZONE"}
    assert asked["started_at"].max() == frame["started_at"].max()


def test_a_workbench_that_called_nothing_has_an_empty_table_of_calls(bench: Workbench) -> None:
    assert len(bench.calls) == 0
    assert {"tool", "ok", "started_at"} <= set(bench.calls.columns)
    assert bench.sql("select typeof(max(started_at)) as t from nbtools.calls")["t"].to_list() == [
        "TIMESTAMP WITH TIME ZONE"
    ]


@pytest.mark.processes
def test_a_script_may_take_the_time_that_the_setting_says(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    endless = "import time\nprint('so far', flush=True)\ntime.sleep(600)"
    with Workbench(home=tmp_path, memory_url=":memory:", allowed_paths=[tmp_path], kernel_timeout="0.2s") as bench:
        result = bench.call("data_analyze", {"input_file_path": str(tmp_path / "a.csv"), "analysis_script": endless})
        assert (result.error.code, result.error.message) == ("TIMEOUT", "timed out after 0.2 s")
        assert bench.call("code_execute", {"code": endless}).data["timed_out"]
        assert bench.kernels.run(endless).status == "timeout"
        # What a call says beats the setting, in both directions.
        assert bench.call("code_execute", {"code": "import time; time.sleep(0.4)", "timeout": 60}).data["success"]


ANSWERS_STILL = {"close", "config", "is_closed", "opened", "page"}
# What has to be given to each method of a workbench.
GIVEN: dict[str, tuple[object, ...]] = {
    "acall": ("calculator", {"expression": "1"}),
    "aexport": ("select 1", "x.csv"),
    "allow": (".",),
    "aperform": (ToolCall(tool="memory_list"), list),
    "aquery": ("select 1",),
    "call": ("calculator", {"expression": "1"}),
    "executor_with": (None,),
    "check_export": ("x.csv",),
    "explore": ("x.csv",),
    "export": ("select 1", "x.csv"),
    "form": ("calculator",),
    "have_read": (__file__,),
    "pending_card": (None,),
    "perform": (ToolCall(tool="memory_list"), list),
    "query": ("select 1",),
    "asql": ("select 1",),
    "sql": ("select 1",),
    "use_frames": (None,),
}


@pytest.mark.parametrize("was_used", [True, False])
def test_everything_of_a_closed_workbench_raises_one_error(tmp_path: Path, was_used: bool) -> None:
    with Workbench(home=tmp_path, memory_url=":memory:") as bench:
        tools, memory, kernels, sql_session = bench.tools, bench.memory, bench.kernels, bench.sql_session
        if was_used:
            assert bench.call("calculator", {"expression": "1"}).ok
            assert bench.sql("select 1 as x")["x"].to_list() == [1]
            assert bench.registry
            assert bench.roots
    assert bench.is_closed
    assert bench.opened("memory") is None
    bench.close()
    for name in sorted(name for name in dir(bench) if not name.startswith("_") and name not in ANSWERS_STILL):
        with pytest.raises(WorkbenchClosed, match="this workbench is closed") as caught:  # noqa: PT012 - some are properties
            found = getattr(bench, name)(*GIVEN.get(name, ()))
            if inspect.isawaitable(found):
                aio.run(found)
        assert caught.value.code == "CANCELLED", name
    with pytest.raises(WorkbenchClosed):
        tools.calculator(expression="1")
    for use in (
        lambda: kernels.run("1"),
        lambda: kernels.start("a"),
        lambda: sql_session.query("select 1"),
        memory.info,
    ):
        with pytest.raises(WorkbenchClosed):
            use()


def test_the_signature_shows_every_setting_with_type_and_default() -> None:
    shown = inspect.signature(Workbench).parameters
    settings = Config.settings()
    assert settings.keys() <= shown.keys()
    assert shown["sql_timeout"].default == settings["sql_timeout"].default
    assert shown["sql_timeout"].annotation == "float | str | None"
    assert shown["home"].default is ...
    assert all(parameter.annotation is not parameter.empty for parameter in shown.values())


@pytest.mark.parametrize("given", ["mapping", "function"])
def test_frames_are_given_by_name_or_by_a_function(tmp_path: Path, given: str) -> None:
    known, other = {"t": pd.DataFrame({"x": [1, 2]})}, {"u": pd.DataFrame({"x": [4]})}
    with Workbench(home=tmp_path, memory_url=":memory:", frames=known if given == "mapping" else known.get) as bench:
        assert bench.sql("select sum(x) as x from t")["x"].to_list() == [3]
        found = bench.sql("select x from u", frames=other if given == "mapping" else other.get, timeout=20)
        assert found["x"].to_list() == [4]
        bench.use_frames(other if given == "mapping" else other.get)
        assert bench.sql("select x from u")["x"].to_list() == [4]
        with pytest.raises(SqlInvalid):
            bench.sql("select x from t")


def test_every_service_is_found_by_its_class(tmp_path: Path) -> None:
    settings = {"memory_url": ":memory:", "allowed_paths": [tmp_path]}
    with Workbench(home=tmp_path / "home", **settings) as bench:
        for services in (bench.door.services, bench.door.model_services):
            assert all(kind in services for kind in services)


@pytest.mark.processes
def test_a_call_imports_no_part_that_it_does_not_use(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from nbtools import Workbench

        with Workbench(home=sys.argv[1]) as wb:
            assert wb.call("calculator", {"expression": "1+1"}).ok
            parts = ("nbtools.kernels.service", "nbtools.sql.session", "duckdb", "numpy", "IPython", "zmq")
            print([part for part in parts if part in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.processes
def test_a_gateway_that_is_set_runs_code_or_says_why_not(tmp_path: Path) -> None:
    url = "http://user:hidden@127.0.0.1:1"
    with Workbench(memory_url=":memory:", home=tmp_path, gateway_url=url) as bench:
        told = bench.call("code_execute", {"code": "print('here')"})
        (check,) = (check for check in bench.doctor() if check.name == "kernels")
    assert not told.ok
    assert "The gateway http://127.0.0.1:1 cannot be reached" in told.text
    assert (check.ok, "127.0.0.1:1" in check.finding) == (False, True)
    with Workbench(memory_url=":memory:", home=tmp_path, gateway_url=url, kernels="forked", spares=0) as bench:
        (check,) = (check for check in bench.doctor() if check.name == "kernels")
    assert check.ok
    assert "127.0.0.1:1 is set and not used" in check.finding
    assert "hidden" not in check.finding


def test_a_home_is_its_owners_and_one_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    flow = 'version: 1\nname: w\nnodes:\n  - {id: a, tool: calculator, args: {expression: "1+1"}}\n'
    before = os.umask(0)
    try:
        with Workbench(memory_url=":memory:", home=tmp_path / "deep" / "home", spares=0) as bench:
            assert bench.workflows.run(flow).state == "ok"
    finally:
        os.umask(before)
    folders = [tmp_path / "deep", *(path for path in (tmp_path / "deep").rglob("*") if path.is_dir())]
    assert {"home", "runs"} <= {path.name for path in folders}
    assert {path.name for path in folders if stat.S_IMODE(path.stat().st_mode) != 0o700} == set()
    (tmp_path / "file").touch()
    bench = Workbench(memory_url=":memory:", home=tmp_path / "file" / "home", spares=0)
    with bench, pytest.raises(PermissionDenied, match="cannot be used: Not a directory") as told:
        bench.workflows.run(flow)
    assert "NBTOOLS_HOME" in str(told.value)


@pytest.mark.processes
def test_nobody_without_a_home_folder_meets_a_raw_error(tmp_path: Path) -> None:
    code = """
        import pwd
        def none(uid):
            raise KeyError(uid)
        pwd.getpwuid = none
        from nbtools import Workbench
        from nbtools.ground.paths import is_too_wide
        from nbtools.errors import ConfigMissing
        import pathlib
        assert not is_too_wide(pathlib.Path("/usr/lib"))
        try:
            Workbench()
        except ConfigMissing as exc:
            print(exc)
    """
    env = {name: value for name, value in os.environ.items() if name not in {"HOME", "NBTOOLS_HOME"}}
    env = {name: value for name, value in env.items() if not name.startswith("XDG_")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert "Set NBTOOLS_HOME to a folder" in done.stdout, done.stderr


@pytest.mark.processes
def test_old_runs_go_and_the_doctor_says_what_a_home_holds(tmp_path: Path) -> None:
    flow = 'version: 1\nname: w\nnodes:\n  - {id: a, tool: calculator, args: {expression: "1+1"}}\n'
    waits = "version: 1\nname: waits\nnodes:\n  - {id: a, ask: {approve: 'Sure?'}}\n"
    with Workbench(memory_url=":memory:", home=tmp_path, spares=0) as bench:
        waiting = bench.workflows.run(waits)
        for _ in range(21):
            bench.workflows.run(flow)
        old = time.time() - 100 * 86_400
        for path in (tmp_path / "runs").glob("*/*"):
            moment = old - 9 * (path.parent.name == waiting.run_id)
            os.utime(path, (moment, moment))
            os.utime(path.parent, (moment, moment))
        last = bench.workflows.run(flow)
        (home,) = (check for check in bench.doctor() if check.name == "home")
        count, freed = bench.workflows.prune()
        assert (count, freed > 1_000) == (2, True)
        left = [run.run_id for run in bench.workflows.runs()]
    assert {waiting.run_id, last.run_id} <= set(left)
    assert "which holds" in home.finding
    assert "runs " in home.finding
