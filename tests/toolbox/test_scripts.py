import asyncio
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from nbtools import confine
from nbtools.assembly.workbench import Workbench
from nbtools.contract.approval.gate import AskFunction
from nbtools.contract.tool import ToolCall, tool_of
from nbtools.ground import aio
from nbtools.ground.paths import Roots
from nbtools.kernels import Kernels
from nbtools.kernels.languages import LANGUAGES
from nbtools.memory import AgentMemory, open_memory
from nbtools.toolbox import SandboxPolicy
from nbtools.toolbox.scripts.script_tools import TOOLS, code_execute
from tests.conftest import with_enough_time

pytestmark = pytest.mark.processes

CSV = "species,mass\nAdelie,3700\nGentoo,5000\nGentoo,5200\n"


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """One service for the module: what it keeps ready is shared, what it runs is clean each time."""
    with Kernels(home=tmp_path_factory.mktemp("home"), spares=1, preloads=("pandas", "numpy", "matplotlib")) as made:
        yield made


@pytest.fixture
def call(shelf, folder, kernels):
    (folder / "data.csv").write_text(CSV)
    made = shelf(*TOOLS, kernels=kernels, confinements=SandboxPolicy())
    memory = open_memory(":memory:")
    made.executor.door.services[AgentMemory] = lambda: memory
    return made


def analyze(call, script, **more):
    return call("data_analyze", input_file_path="data.csv", analysis_script=script, **more)


def draw(call, script, path="chart.png", **more):
    return call(
        "data_visualize",
        input_file_path="data.csv",
        visualization_script=script,
        output_image_path=path,
        **more,
    )


def test_a_script_sees_the_file_and_its_output_is_the_text(call, folder):
    result = analyze(call, "import pandas as pd\nprint(len(pd.read_csv(input_file_path)))\nprint(input_file_path)")
    assert result.ok, result
    assert result.text == f"3\n{folder / 'data.csv'}\n"
    assert result.data["stdout"] == result.text
    assert (result.data["stderr"], result.data["artifacts"]) == ("", [])
    assert result.data["duration"] > 0


def test_every_call_gets_a_clean_kernel_and_a_session_keeps_its_state(call):
    analyze(call, "left = 1").raise_for_error()
    assert analyze(call, "left").error.code == "EXECUTION_FAILED"
    analyze(call, "left = 41", session="s").raise_for_error()
    assert analyze(call, "print(left + 1)", session="s").text == "42\n"


def test_a_last_value_is_shown_as_in_a_cell(call):
    assert analyze(call, "6 * 7").text == "42\n"
    assert analyze(call, "print('said')\n6 * 7").text == "said\n42\n"
    assert analyze(call, "display('a')\nprint('said', end='')\n6 * 7").text == "'a'\nsaid\n42\n"
    noise = "import sys\nprint('noise', file=sys.stderr)\n"
    assert analyze(call, f"{noise}6 * 7").text == "42\n"
    assert analyze(call, noise).text == "noise\n"
    assert analyze(call, "x = 1").text == ""


def test_an_exception_is_told_with_the_scripts_own_line(call):
    result = analyze(call, "print('before')\nimport sys\nprint('err', file=sys.stderr)\n1/0")
    assert result.error.code == "EXECUTION_FAILED"
    assert "line 4" in result.error.message
    assert "ZeroDivisionError: division by zero" in result.error.message
    assert (result.data["stdout"], result.data["stderr"], result.data["line"]) == ("before\n", "err\n", 4)
    assert "ZeroDivisionError" in result.data["traceback"]


def test_a_syntax_error_is_told_with_its_line(call):
    result = analyze(call, "print(1)\ndef f(:\n  pass")
    assert result.error.code == "EXECUTION_FAILED"
    assert "line 2" in result.error.message
    assert "SyntaxError" in result.error.message


def test_a_script_that_outlives_its_time_keeps_what_it_printed(call):
    endless = "import time\nprint('so far', flush=True)\ntime.sleep(600)"
    seconds, result = with_enough_time(lambda s: analyze(call, endless, timeout=s), lambda it: it.data["stdout"])
    assert result.error.code == "TIMEOUT"
    assert result.error.message == f"timed out after {seconds} s"
    assert result.data["stdout"] == "so far\n"


@pytest.mark.races
def test_endings_of_all_kinds_are_told_apart(call):
    assert analyze(call, "import sys; print('x'); sys.exit()").text == "x\n"
    exited = analyze(call, "import sys; sys.exit('wrong input')")
    assert (exited.error.code, "wrong input" in exited.error.message) == ("EXECUTION_FAILED", True)
    died = analyze(call, "import os; os._exit(7)")
    assert (died.error.code, "7" in died.error.message, died.error.retryable) == ("KERNEL_DIED", True, False)
    killed = analyze(call, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert (killed.error.code, "SIGKILL" in killed.error.message) == ("KERNEL_DIED", True)
    flood = analyze(call, "while True: print('x' * 10000)", timeout=60)
    assert flood.error.code == "LIMIT_EXCEEDED"
    assert flood.data["stdout"].startswith("xxx")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"input_file_path": "gone.csv"}, "FILE_NOT_FOUND"),
        ({"input_file_path": "../outside/secret.txt"}, "PATH_NOT_ALLOWED"),
        ({"input_file_path": "."}, "INVALID_ARGUMENTS"),
        ({"timeout": 0}, "INVALID_ARGUMENTS"),
        ({"timeout": -1}, "INVALID_ARGUMENTS"),
        ({"timeout": 100_000}, "INVALID_ARGUMENTS"),
        ({"timeout": float("nan")}, "INVALID_ARGUMENTS"),
        ({"timeout": float("inf")}, "INVALID_ARGUMENTS"),
        ({"session": "no/name"}, "INVALID_ARGUMENTS"),
        ({"analysis_script": "x\0y"}, "INVALID_ARGUMENTS"),
    ],
)
def test_wrong_calls_are_refused_before_anything_runs(call, arguments, code):
    given = {"input_file_path": "data.csv", "analysis_script": "print('ran')", **arguments}
    assert call.code("data_analyze", **given) == code


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_says_so(call, folder):
    (folder / "data.csv").chmod(0)
    assert analyze(call, "1").error.code == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"name\nZ\xfcrich\n", "not UTF-8"),
        (b"PK\x03\x04\0\0\xff\xfe" * 100, "is binary"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_explained(call, folder, content, said):
    (folder / "data.csv").write_bytes(content)
    result = analyze(call, "import pandas as pd\npd.read_csv(input_file_path)")
    assert result.error.code == "EXECUTION_FAILED", result
    assert said in result.error.hint


def test_a_mistake_of_the_script_is_not_blamed_on_the_file(call):
    assert analyze(call, "1/0").error.hint is None


def test_files_written_in_the_working_folder_stay_there_and_are_reported(call, folder):
    result = analyze(call, "open('out.txt', 'w').write('x')\nimport os\nprint(os.getcwd())")
    assert result.text == f"{folder}\n"
    assert [a.path for a in result.artifacts] == [str(folder / "out.txt")]
    assert result.data["artifacts"] == [str(folder / "out.txt")]


def test_the_working_folder_is_on_the_import_path(call, folder):
    (folder / "mine.py").write_text("value = 42")
    assert analyze(call, "import mine\nprint(mine.value)").text == "42\n"


def test_output_is_shown_as_it_appears(call, folder):
    seen, mark = [], folder / "seen"

    def look(kind, text, data):
        seen.append((kind, text, data))
        mark.touch()

    wait = f"import os, time\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.01)"
    result = analyze(call, f"print('one', flush=True)\n{wait}\nprint('two')\n{{'a': 1}}", _on_output=look, _timeout=30)
    assert result.ok
    assert "".join(text for kind, text, _ in seen if kind == "stdout") == "one\ntwo\n"
    assert any(kind == "display" and data for kind, _, data in seen)


def test_the_memory_is_there_for_the_script_and_opened_late(call):
    opened = []
    memory = open_memory(":memory:")
    call.executor.door.services[AgentMemory] = lambda: opened.append(1) or memory
    analyze(call, "print(1)").raise_for_error()
    assert not opened
    analyze(call, "memory.write('seen', {'rows': 3}, tags=['t'])").raise_for_error()
    assert memory["seen"] == {"rows": 3}
    assert analyze(call, "print(memory['seen']['rows'], 'nothing' in memory)").text == "3 False\n"


def test_a_figure_is_saved_when_the_script_only_draws(call, folder):
    result = draw(call, "import pandas as pd\npd.read_csv(input_file_path).mass.plot()")
    assert result.text == "Visualization saved to: chart.png"
    assert (folder / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert [(a.path, a.mime) for a in result.artifacts] == [(str(folder / "chart.png"), "image/png")]
    assert result.data["path"] == str(folder / "chart.png")


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("jpg", b"\xff\xd8")])
def test_the_format_goes_by_the_suffix(call, folder, suffix, start):
    draw(call, "import matplotlib.pyplot as plt\nplt.plot([1, 2])", path=f"new/chart.{suffix}").raise_for_error()
    assert (folder / "new" / f"chart.{suffix}").read_bytes().startswith(start)


def test_a_script_may_save_the_picture_itself(call, folder):
    script = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig(output_image_path)\nplt.close('all')"
    draw(call, script).raise_for_error()
    mine = b"\x89PNG\r\n\x1a\nmine"
    draw(call, f"open(output_image_path, 'wb').write({mine!r})").raise_for_error()
    assert (folder / "chart.png").read_bytes() == mine


@pytest.mark.parametrize("caller", ["python", "model"])
@pytest.mark.parametrize("suffix", ["png", "jpg", "svg", "pdf"])
def test_a_file_that_is_no_picture_is_refused(call, suffix, caller):
    script = "open(output_image_path, 'w').write('hello')"
    result = draw(call, script, path=f"chart.{suffix}", _caller=caller)
    assert result.error.code == "EXECUTION_FAILED"
    assert f"not a {suffix.upper()} picture" in result.error.message


def test_what_a_refused_picture_holds_does_not_replace_the_users(call, folder):
    (folder / "chart.png").write_bytes(b"old")
    assert not draw(call, "open(output_image_path, 'w').write('hello')", _caller="model").ok
    assert (folder / "chart.png").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("path", "trouble", "said"),
    [
        ("chart.png", r"plt.title(r'$\frac{$')", "Expected \\frac{num}{den}"),
        ("chart.jpg", "plt.text(1e9, 1, 'far')", "Error: "),
        ("chart.png", "plt.gcf().set_size_inches(1e5, 1e5)", "Error: "),
    ],
)
def test_a_figure_that_cannot_be_drawn_is_told_with_the_reason(call, folder, trouble, said, path):
    result = draw(call, f"import matplotlib.pyplot as plt\nplt.plot([1])\n{trouble}", path=path)
    assert result.error.code == "EXECUTION_FAILED"
    assert result.error.message.startswith(f"the open figure could not be saved to {path}: ")
    assert said in result.error.message
    assert not (folder / path).exists()


def test_no_picture_is_an_error_that_says_so_and_an_old_one_does_not_count(call, folder):
    (folder / "chart.png").write_bytes(b"old")
    result = draw(call, "print('nothing drawn')")
    assert result.error.code == "EXECUTION_FAILED"
    assert "no picture" in result.error.message
    assert result.data["stdout"] == "nothing drawn\n"
    assert (folder / "chart.png").read_bytes() == b"old"


def test_a_picture_written_elsewhere_is_named(call, folder):
    result = draw(call, "open('other.png', 'wb').write(b'x')")
    assert result.error.code == "EXECUTION_FAILED"
    assert str(folder / "other.png") in result.error.message


def test_a_picture_left_empty_is_told_as_such(call, folder):
    result = draw(call, "open(output_image_path, 'wb').close()")
    assert result.error.message == "the script left chart.png empty."


def test_the_line_that_raised_is_quoted(call):
    result = analyze(call, "def f(d):\n    return d['zz']\nf({})")
    assert result.error.message == "line 2: KeyError: 'zz' (in: return d['zz'])"


def test_a_short_file_in_another_encoding_is_told_as_such(call, folder):
    script = "open(input_file_path, encoding='utf-8').read()"
    (folder / "latin.csv").write_bytes("name,in €\ncafé,1\n".encode("cp1252"))
    result = call("data_analyze", input_file_path="latin.csv", analysis_script=script)
    assert result.error.hint == "latin.csv is not UTF-8 (byte 8): pass its encoding, perhaps 'cp1252'."


def test_a_drawing_script_that_fails_is_told_like_any_other(call):
    result = draw(call, "import matplotlib.pyplot as plt\nplt.plot([1])\nraise ValueError('no')")
    assert result.error.code == "EXECUTION_FAILED"
    assert "line 3" in result.error.message


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("chart.txt", "INVALID_ARGUMENTS"),
        ("chart", "INVALID_ARGUMENTS"),
        ("../outside/chart.png", "PATH_NOT_ALLOWED"),
        ("/etc/chart.png", "PATH_NOT_ALLOWED"),
    ],
)
def test_pictures_go_below_the_roots_and_look_like_pictures(call, path, code):
    assert draw(call, "1", path=path).error.code == code


def test_code_is_run_and_told_how_it_went(call):
    result = call("code_execute", code="print(6 * 7)")
    assert result.ok
    facts = {name: result.data[name] for name in ("exit_code", "stdout", "stderr", "timed_out", "language", "success")}
    assert facts == {
        "exit_code": 0,
        "stdout": "42\n",
        "stderr": "",
        "timed_out": False,
        "language": "python",
        "success": True,
    }
    assert result.data["duration_seconds"] > 0
    assert result.text == "42"


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        ("1/0", 1, "ZeroDivisionError"),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import os; os._exit(9)", 9, ""),
        ("def f(:", 1, "SyntaxError"),
    ],
)
def test_code_that_goes_wrong_was_run_all_the_same(call, code, exit_code, said):
    result = call("code_execute", code=code)
    assert result.ok
    assert (result.data["exit_code"], result.data["success"]) == (exit_code, exit_code == 0)
    assert said in result.data["stderr"]
    assert result.text


@pytest.mark.parametrize(
    ("language", "code", "exit_code", "stderr"),
    [
        ("bash", "exit 4", 4, ""),
        ("bash", "printf warn >&2; exit 4", 4, "warn"),
        ("node", "process.stderr.write('{}'); process.exit(3)", 3, "{}"),
        ("python", "import sys; sys.stderr.write('{}'); sys.exit(3)", 3, "{}"),
        ("python", "raise SystemExit('no more')", 1, "no more\n"),
        ("python", "exit(2)", 2, ""),
    ],
)
def test_stderr_holds_what_the_program_wrote_and_nothing_else(call, language, code, exit_code, stderr):
    if language == "node" and not shutil.which("node"):
        pytest.skip("no node")
    result = call("code_execute", code=code, language=language)
    assert (result.data["exit_code"], result.data["stderr"], "error" in result.data) == (exit_code, stderr, False)


def test_a_script_needs_an_input_of_a_model_alone_and_of_it_not_in_a_session(call):
    alone = {"analysis_script": "x = 1\nprint(x)"}
    assert call("data_analyze", **alone).text == "1\n"
    refused = call("data_analyze", _caller="model", **alone)
    assert (refused.error.code, "code_execute" in refused.error.hint) == ("INVALID_ARGUMENTS", False)
    assert call("data_analyze", _caller="model", **alone, session="m").text == "1\n"
    assert call("data_analyze", _caller="model", analysis_script="print(x + 1)", session="m").text == "2\n"


@pytest.mark.parametrize(
    ("language", "code", "exit_code", "said"),
    [
        ("python", "import os; os.abort()", 134, "the script crashed: SIGABRT ended its process."),
        ("python", "import ctypes; ctypes.string_at(0)", 139, "the script crashed: SIGSEGV ended its process."),
        ("bash", "kill -9 $$", 137, "the kernel died, by SIGKILL."),
    ],
)
def test_code_that_a_signal_ended_is_no_success(call, language, code, exit_code, said):
    result = call("code_execute", code=code, language=language)
    assert (result.ok, result.error.code, result.error.message) == (False, "KERNEL_DIED", said)
    assert (result.data["exit_code"], result.data["success"]) == (exit_code, False)
    assert said in result.text


def test_code_that_outlives_its_time_was_run_too(call):
    endless = "import time\nprint('x', flush=True)\ntime.sleep(600)"
    _, result = with_enough_time(lambda s: call("code_execute", code=endless, timeout=s), lambda it: it.data["stdout"])
    assert (result.ok, result.data["timed_out"], result.data["success"]) == (True, True, False)
    assert result.data["exit_code"] == 124
    assert result.data["stdout"] == "x\n"


def test_shell_code_runs_where_it_is_told_to(call, folder):
    (folder / "sub").mkdir()
    result = call("code_execute", code="pwd; exit 3", language="bash", working_dir="sub", timeout=20)
    assert (result.data["stdout"], result.data["exit_code"]) == (f"{folder / 'sub'}\n", 3)
    assert call.code("code_execute", code="pwd", working_dir="../outside") == "PATH_NOT_ALLOWED"
    assert call.code("code_execute", code="pwd", working_dir="data.csv") == "INVALID_ARGUMENTS"
    assert call.code("code_execute", code="pwd", working_dir="gone") == "FILE_NOT_FOUND"


def test_who_wrote_a_file_is_said_to_be_unknown_where_the_system_does_not_tell(call):
    result = call("code_execute", code="echo 1 > by-shell; echo well", language="bash", timeout=20)
    note = "changed meanwhile, by this script or by another program: by-shell"
    assert [Path(artifact.path).name for artifact in result.artifacts] == ["by-shell"]
    assert (result.text, result.data["notes"]) == (f"[{note}]\nwell", [note])
    assert f"[{note}]" in result._repr_html_()


@pytest.mark.slow
def test_code_that_floods_was_run_too_and_says_why_it_ended(call):
    result = call("code_execute", code="while True: print('x' * 10000)", timeout=60)
    assert (result.ok, result.data["success"], result.data["truncated"]) == (True, False, True)
    assert "output limit" in result.data["error"]
    assert "output limit" in result.text
    assert result.data["stderr"] == ""


def test_a_picture_may_not_take_the_place_of_a_folder(call, folder):
    (folder / "chart.png").mkdir()
    assert draw(call, "1").error.code == "INVALID_ARGUMENTS"


def test_a_json_file_that_is_no_json_is_explained(call, folder):
    (folder / "data.csv").write_text("not json, but text")
    assert "not in the form" in analyze(call, "import json\njson.load(open(input_file_path))").error.hint


def test_an_unknown_language_is_unavailable(call):
    assert call.code("code_execute", code="x", language="klingon") == "LANGUAGE_UNAVAILABLE"


def test_stop_ends_the_script_and_keeps_what_it_printed(call):
    began, results = threading.Event(), []

    def shown(kind, text, data):
        began.set()

    async def stopped():
        asked = ToolCall(
            tool="data_analyze",
            arguments={
                "input_file_path": "data.csv",
                "analysis_script": "import time\nprint('so far', flush=True)\ntime.sleep(600)",
            },
            on_output=shown,
        )
        task = asyncio.ensure_future(call.executor.acall(asked))
        await aio.in_thread(began.wait, 60)
        task.cancel()
        results.append(await task)

    aio.run(stopped(), timeout=60)
    assert results[0].error.code == "CANCELLED"
    assert results[0].data["stdout"] == "so far\n"


def test_the_calls_own_timeout_keeps_the_output_too(call):
    sleeps = "print('so far', flush=True)\nimport time\ntime.sleep(60)"
    _, result = with_enough_time(lambda s: analyze(call, sleeps, _timeout=s), lambda it: it.data["stdout"])
    assert result.error.code == "TIMEOUT"
    assert result.data["stdout"] == "so far\n"


def test_a_model_is_confined_and_its_picture_is_put_in_place(call, folder):
    """Its script cannot write among the user's files, so it draws elsewhere and the picture is moved."""
    script = f"""
import matplotlib.pyplot as plt
plt.plot([1, 2])
try:
    open({str(folder / "evil.txt")!r}, "w")
except OSError as exc:
    print("refused")
"""
    result = draw(call, script, _caller="model")
    assert result.ok, result
    assert (folder / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert result.text == "Visualization saved to: chart.png"
    if result.data["sandbox"] == "strict":
        assert result.data["stdout"] == "refused\n"
        assert sorted(p.name for p in folder.iterdir()) == ["chart.png", "data.csv"]
    assert call("code_execute", code="1", _caller="model").error.code == "APPROVAL_DENIED"


def test_a_model_works_in_a_folder_of_its_own(call, folder):
    result = analyze(call, "import os\nopen('made.txt', 'w').write('x')\nprint(os.getcwd())", _caller="model")
    assert result.ok, result
    assert Path(result.text.strip()) != folder
    assert not (folder / "made.txt").exists()


def test_a_required_confinement_that_cannot_be_had_is_refused(call, monkeypatch):
    from nbtools import confine

    if confine.capabilities().can("strict"):
        call.provide(SandboxPolicy(model_required=True))
        assert analyze(call, "print(1)", _caller="model").data["sandbox"] == "strict"
    else:
        call.provide(SandboxPolicy(model_required=True))
        assert analyze(call, "print(1)", _caller="model").error.code == "PERMISSION_DENIED"


def test_many_scripts_at_once_do_not_wait_for_each_other(call):
    async def together():
        script = "import time\ntime.sleep(0.2)\nprint(input_file_path[-8:])"
        arguments = {"input_file_path": "data.csv", "analysis_script": script}
        calls = [ToolCall(tool="data_analyze", arguments=arguments) for _ in range(5)]
        return await asyncio.gather(*(call.executor.acall(asked) for asked in calls))

    results = aio.run(together(), timeout=60)
    assert [result.text for result in results] == ["data.csv\n"] * 5


def test_no_picture_folder_is_left_behind(call, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", None)
    draw(call, "1/0", _caller="model")
    assert not list(tmp_path.glob("nbtools-picture-*"))
    assert Roots([tmp_path]).allows(tmp_path)


MANY = "for i in range(100_000): print(f'{i:60}')"
SHOWN = "'x' * 5_000_000"
COLOURED = "print('\\x1b' * 5_000_000)"
RAISED = "raise ValueError('x' * 9_000_000)"


@pytest.mark.parametrize("script", [MANY, SHOWN, COLOURED])
def test_output_over_its_cap_comes_back_cut_and_says_so(call, script):
    result = analyze(call, script)
    assert result.ok, result
    assert result.data["truncated"] is True
    assert 3_900_000 < len(result.text) <= 4_000_000


@pytest.mark.slow
def test_a_flood_does_not_lose_the_picture_or_how_the_code_went(call):
    drawn = draw(call, f"{MANY}\nimport matplotlib.pyplot as plt\nplt.plot([1])")
    assert (drawn.ok, drawn.data["truncated"], len(drawn.data["stdout"])) == (True, True, 4_000_000)
    ran = call("code_execute", code=MANY)
    assert (ran.ok, ran.data["success"], ran.data["truncated"]) == (True, True, True)
    assert len(ran.data["stdout"]) == 4_000_000


def test_an_exception_that_quotes_a_frame_is_told_in_short(call):
    failed = analyze(call, RAISED)
    assert failed.error.code == "EXECUTION_FAILED"
    assert "line 1: ValueError: xxx" in failed.error.message
    assert len(failed.error.message) < 11_000
    assert len(str(failed.to_dict())) < 300_000
    assert call("code_execute", code=RAISED).data["success"] is False


def test_the_languages_of_code_are_listed_in_its_schema():
    language = tool_of(code_execute).schema["properties"]["language"]
    assert language["enum"] == list(LANGUAGES)
    assert language["default"] in language["enum"]


def test_what_a_models_code_is_said_to_reach_is_what_its_sandbox_lets_it(tmp_path: Path) -> None:
    asked: list[str] = []

    def refuse(request: Any) -> bool:
        asked.append(request.consequence)
        return False

    how: dict[str, Any] = {"memory_url": ":memory:", "approver": AskFunction(refuse), "allowed_paths": [tmp_path]}
    with Workbench(home=tmp_path / "home", **how) as bench:
        for more in ({}, {"working_dir": str(tmp_path)}):
            bench.call("code_execute", {"code": "1", **more}, caller="model")
    reaches = [consequence.endswith("reaches beyond this machine") for consequence in asked]
    assert reaches == [confine.capabilities().settle("strict", explicit=False) != "strict", True]
