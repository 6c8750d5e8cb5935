"""Tools that run scripts in managed kernels: a clean one for every call, or a session that keeps its state."""

from __future__ import annotations

import codecs
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt, Le

from nbtools.contract.consequence import Consequence
from nbtools.contract.result import Artifact, Output
from nbtools.contract.signature.parameters import Canonical
from nbtools.contract.tool import Context, Effects, Reading, tool
from nbtools.errors import Cancelled, ExecutionFailed, InvalidArguments, NbtoolsError
from nbtools.ground.aio import in_thread
from nbtools.ground.paths import ARTIFACTS, FilePath, Place, Roots, open_plain
from nbtools.ground.telemetry import fresh_id
from nbtools.kernels.interface import BEGAN_EMPTY, CHANGED_MEANWHILE, Execution, OutputLimits, running_note
from nbtools.kernels.languages import LANGUAGES, language_of
from nbtools.toolbox.named_files import named_files, words_of
from nbtools.toolbox.result_types import CodeRun, Drawing, ScriptRun
from nbtools.toolbox.scripts.execution import is_confined, is_loose, run, summary
from nbtools.toolbox.scripts.inputs import ScriptInputs
from nbtools.toolbox.unseen import unseen_by

# The tools end their scripts themselves; the door only has to wait as long as any script may take.
_LONGEST_S = 86_400.0
_Seconds = Annotated[float, Gt(0), Le(_LONGEST_S)]
_Language = Annotated[str, Canonical(language_of, choices=tuple(LANGUAGES))]

_PICTURES = (".png", ".svg", ".pdf", ".jpg", ".jpeg")
_PICTURE_BYTES = 64 * 2**20
_HEAD_BYTES = 1 << 16
_MOST_NAMED = 20  # files in a text; all are in the data
_HOW_TO_DRAW = "Save with plt.savefig(output_image_path), or leave a matplotlib figure open."
_BEGINNINGS = {".png": b"\x89PNG\r\n\x1a\n", ".jpg": b"\xff\xd8\xff", ".jpeg": b"\xff\xd8\xff", ".pdf": b"%PDF-"}
# What a run notes of its figure begins so; "saved" or the error follows.
_UNSAVED = "figure "
_NO_EXPORTER = "is not installed"
_REFUSED = (
    "A script reads only below the allowed folders, and writes only in its own folder: write to a plain name such as "
    "'out.csv', and a picture to output_image_path. Other tools read what it writes there as artifacts/NAME."
)
# Exceptions that speak of the file's content rather than of the script.
_READING = frozenset({"UnicodeDecodeError", "EmptyDataError", "ParserError", "JSONDecodeError", "BadZipFile"})


async def _effects(values: Mapping[str, Any], ctx: Context, *, replaces: bool = False) -> Effects:
    """Return what a script may do: where it is not confined it may change anything, and send it anywhere."""
    from nbtools.kernels import Kernels

    is_free = await is_loose(ctx)
    reaches_out = is_free or (ctx.by_model and ctx.use(Kernels).has_network)
    return Effects(destructive=replaces or is_free, open_world=reaches_out)


async def _read_language(values: Mapping[str, Any], ctx: Context) -> dict[str, Reading]:
    from nbtools.kernels import Kernels

    name = values["language"]
    if not name.startswith("kernel:"):
        return {}
    # Which language a gateway's kernel has is only known there.
    is_local = not ctx.use(Kernels).is_elsewhere
    others = (await in_thread(_language_of_kernel, name),) if is_local else ()
    return {"language": Reading(parts=(name,), others=others, complete=is_local)}


def _language_of_kernel(name: str) -> str:
    from nbtools.kernels.jupyter.spawned import installed_spec

    return language_of(installed_spec(name).language)


async def _effects_of_drawing(values: Mapping[str, Any], ctx: Context) -> Effects:
    target = values["output_image_path"]
    replaces = isinstance(target, Place) and target.real.exists()
    return await _effects(values, ctx, replaces=replaces)


def _read_by_script(values: Mapping[str, Any]) -> str:
    if values["session"] is not None:
        return "a session"
    return "tables of the notebook" if values["inputs"] else unseen_by(values["analysis_script"])


@tool(
    title="Analyse data with a script",
    effects_of=_effects,
    reads=_read_by_script,
    timeout=_LONGEST_S,
    examples=(
        {
            "input_file_path": "penguins.csv",
            "analysis_script": "import pandas as pd\nprint(len(pd.read_csv(input_file_path)))",
        },
    ),
)
async def data_analyze(
    analysis_script: str,
    input_file_path: FilePath | None = None,
    timeout: _Seconds | None = None,
    session: str | None = None,
    inputs: dict[str, str] | None = None,
    files: dict[str, FilePath] | None = None,
    variables: dict[str, Any] | None = None,
    returns: str | None = None,
    *,
    ctx: Context,
) -> Output[ScriptRun]:
    """Run a Python script on a data file, or tables of the notebook, in a clean kernel; return what it prints.

    The script finds the file's absolute path in input_file_path, tables under the names given in inputs, and this
    agent's notes in `memory`; pandas, numpy, matplotlib and duckdb load quickly. It gets copies of the tables.
    The text is what it prints and shows, in that order: tables as text, pictures by name. data has stdout, stderr,
    artifacts (files in its working folder that changed during the run, under the names by which other tools read them)
    and duration (seconds). A script that raises gives an error with its line and message; what it printed before that
    is kept.

    Parameters
    ----------
    analysis_script
        Python code that prints its results.
    input_file_path
        File to analyse, below the allowed folders, relative to the working folder or absolute; null for none.
    timeout
        Seconds until the script is stopped, at most 86,400; null uses the setting (300 unless changed).
    session
        Name of a session whose variables persist from call to call; null uses a clean kernel.
    inputs
        Notebook tables for the script: table names by variable, such as {"orders": "orders"}.
    files
        More files for a person's script: paths by variable; the variable holds the absolute path.
    variables
        Plain values for the script: JSON values by variable.
    returns
        Variable of the script whose table, array, figure or JSON becomes the value of the result in Python; "result"
        counts too, and the last expression where neither is assigned. Null returns nothing.

    Raises
    ------
    FileMissing, PathNotAllowed
        The file does not exist or is not allowed.
    ExecutionFailed
        The script raised an exception.
    CallTimeout
        It exceeded its time limit.
    """
    feed = ScriptInputs.gather(ctx, input_file_path, inputs, files, variables, needs_input=session is None)
    how = {"session": session, "wants_value": _value_names(returns)}
    execution, artifacts = await _run_script(ctx, feed, analysis_script, timeout, **how)
    text = _before(execution) + _output_text(execution)
    if len(text) > OutputLimits.text_bytes:
        execution, text = dataclasses.replace(execution, truncated=True), text[: OutputLimits.text_bytes]
    return Output(data=_script_data(execution), text=text, artifacts=artifacts, value=execution.value)


@tool(
    title="Draw data with a script",
    destructive=True,
    effects_of=_effects_of_drawing,
    timeout=_LONGEST_S,
    examples=(
        {
            "input_file_path": "penguins.csv",
            "visualization_script": (
                "import pandas as pd\npd.read_csv(input_file_path).plot.scatter('bill_length_mm', 'body_mass_g')"
            ),
            "output_image_path": "penguins.png",
        },
    ),
)
async def data_visualize(
    visualization_script: str,
    input_file_path: FilePath | None = None,
    output_image_path: FilePath | None = None,
    timeout: _Seconds | None = None,
    inputs: dict[str, str] | None = None,
    files: dict[str, FilePath] | None = None,
    variables: dict[str, Any] | None = None,
    *,
    ctx: Context,
) -> Output[Drawing]:
    """Draw a chart of a data file, or tables of the notebook, with a Python script in a clean kernel; save a picture.

    The script finds input_file_path, the tables under the names given in inputs, and output_image_path. It may save the
    picture there itself, or only draw with matplotlib or seaborn: then the open figure is saved; a plotly or altair
    figure is saved if kaleido or vl-convert-python is installed. It is an error if the script makes no picture.

    Parameters
    ----------
    visualization_script
        Python code that draws.
    input_file_path
        File to draw, below the allowed folders, relative to the working folder or absolute; null for none.
    output_image_path
        Where the picture goes, below the allowed folders; it ends in .png, .svg, .pdf or .jpg. An existing
        picture is replaced. Null keeps it with the files that scripts left, as artifacts/NAME.
    timeout
        Seconds until the script is stopped, at most 86,400; null uses the setting (300 unless changed).
    inputs
        Notebook tables for the script: table names by variable, such as {"orders": "orders"}.
    files
        More files for a person's script: paths by variable; the variable holds the absolute path.
    variables
        Plain values for the script: JSON values by variable.

    Raises
    ------
    FileMissing, PathNotAllowed
        A path does not exist or is not allowed.
    ExecutionFailed
        The script raised an exception, or made no picture.
    CallTimeout
        It exceeded its time limit.
    """
    roots = ctx.use(Roots)
    feed = ScriptInputs.gather(ctx, input_file_path, inputs, files, variables)
    if output_image_path is None:
        return await _draw_and_keep(ctx, feed, visualization_script, timeout)
    target = _picture_path(roots, output_image_path)
    # A confined script draws in its own folder, and the finished picture is put in place afterwards.
    figure = _within_own_folder(output_image_path) if is_confined(ctx) else target
    execution, artifacts = await _run_script(ctx, feed, visualization_script, timeout, figure_path=figure)
    own = execution.artifacts if execution.folder else ()
    drawing = execution.figure or next((path for path in own if path.name == target.name), None)
    if drawing is None:
        raise _nothing_drawn(execution, artifacts, output_image_path)
    # Nobody was asked to replace a file that was not there when the call was judged.
    picture = await in_thread(_deliver, roots, drawing, target, ctx.effects is None or ctx.effects.destructive)
    return _drawing(execution, artifacts, picture, {drawing, target}, output_image_path)


async def _draw_and_keep(ctx: Context, inputs: ScriptInputs, script: str, timeout: float | None) -> Output[Drawing]:
    """Draw a chart that nobody asked a file for: it is kept among what scripts left."""
    from nbtools.kernels import Kernels

    name, folder = f"chart-{fresh_id()[:8]}.png", ctx.use(Kernels).artifacts_folder
    if folder is None and not is_confined(ctx):
        raise InvalidArguments("there is no folder to keep a picture in.", hint="Give output_image_path.")
    figure = Path(name) if folder is None or is_confined(ctx) else folder / name
    execution, artifacts = await _run_script(ctx, inputs, script, timeout, figure_path=figure)
    if execution.figure is not None:
        picture = await in_thread(functools.partial(Artifact.from_path, execution.figure, follow_no_links=True))
        return _drawing(execution, artifacts, picture, {execution.figure}, f"{ARTIFACTS}/{execution.figure.name}")
    unsaved = [note.removeprefix(_UNSAVED) for note in execution.notes if note.startswith(_UNSAVED)]
    if not execution.displays or not unsaved or not unsaved[0].endswith(_NO_EXPORTER):
        raise _nothing_drawn(execution, artifacts, name)
    text = f"The chart was shown, but not saved: {unsaved[0]}."
    return Output(data={**_script_data(execution), "path": ""}, text=text, artifacts=artifacts)


def _drawing(
    execution: Execution, artifacts: tuple[Artifact, ...], picture: Artifact, places: set[Path], saved_to: str
) -> Output[Drawing]:
    # The picture is told once, whether the script or the run has saved it.
    others = dataclasses.replace(execution, artifacts=tuple(p for p in execution.artifacts if p not in places))
    data = {**_script_data(others), "path": picture.path}
    data["artifacts"] = sorted([picture.path, *data["artifacts"]])
    rest = (artifact for artifact in artifacts if Path(artifact.path) not in places)
    return Output(data=data, text=f"Visualization saved to: {saved_to}", artifacts=(picture, *rest))


async def _effects_of_code(values: Mapping[str, Any], ctx: Context) -> Effects:
    """Return what code may do: a model's, in a folder of the kernel's own and without network, reaches no one."""
    is_within = ctx.by_model and values["working_dir"] is None
    return Effects(destructive=True, open_world=not is_within or (await _effects(values, ctx)).open_world)


def _named(values: Mapping[str, Any], ctx: Context) -> Iterator[Consequence]:
    """Return where code runs that is not confined, and the files that its text names there."""
    working_dir = values["working_dir"]
    folder = _folder(ctx) if working_dir is None else ctx.use(Roots).resolve(working_dir)
    if folder is not None:
        yield Consequence(f"runs in {folder}")
        yield from named_files(words_of(values["code"]), folder, "the code")


@tool(
    title="Run code",
    effects_of=_effects_of_code,
    timeout=_LONGEST_S,
    readings_of=_read_language,
    consequences_of=_named,
    destructive=True,
    open_world=True,
    examples=({"code": "print(6 * 7)"}, {"code": "echo $((6 * 7))", "language": "bash", "timeout": 10}),
)
async def code_execute(
    code: str,
    language: _Language = "python",
    timeout: _Seconds | None = None,
    working_dir: FilePath | None = None,
    session: str | None = None,
    returns: str | None = None,
    *,
    ctx: Context,
) -> Output[CodeRun]:
    """Run code in a managed kernel or shell, and report how it ended.

    The call succeeds whenever the code was run: success (exit code 0 and not timed out) says how it went. Returns
    exit_code, stdout, stderr, duration_seconds, timed_out, language, success. A Python exception is exit code 1,
    with its line and message in error and its traceback in stderr; code that reached a limit has exit code 128 plus the
    number of the signal that ended it, or 124 for the time limit. A crash is not a success: it raises KernelDied.

    Parameters
    ----------
    code
        The program.
    language
        The language of the code; a person may also give "kernel:NAME" for an installed Jupyter kernel.
    timeout
        Seconds until the code is stopped, at most 86,400; null uses the setting (300 unless changed).
    working_dir
        Folder to run in, below the allowed ones; null uses the working folder, or for a model one of the
        kernel's own folders.
    session
        Name of a session whose state persists from call to call; null uses a clean kernel.
    returns
        Variable of Python code that becomes the value of the result, as in data_analyze. Null returns nothing.

    Raises
    ------
    LanguageUnavailable
        There is no interpreter for the language; the hint says how to get it.
    PathNotAllowed
        working_dir is outside the allowed folders.
    Cancelled
        Someone stopped it; the output so far is in data.
    KernelDied
        It crashed, or was killed: a signal ended its process; the output so far is in data.
    """
    from nbtools.kernels import Kernels

    folder = _folder(ctx) if working_dir is None else ctx.use(Roots).resolve(working_dir)
    if folder is not None and not folder.is_dir():
        raise InvalidArguments(f"{working_dir!r} is not a folder.", hint="Give a folder as working_dir.")
    where: dict[str, Any] = {"language": language, "session": session, "cwd": folder}
    where["wants_value"] = _value_names(returns if language == "python" else None)
    execution, artifacts = await run(ctx, code, timeout=timeout or ctx.use(Kernels).timeout, **where)
    data = _code_data(execution, code)
    # An error and not a result: who pressed Stop does not want the next step to begin.
    if execution.status == "stopped":
        raise Cancelled("the code was stopped.", data=data)
    if execution.status == "died" and execution.signal is not None and (error := execution.to_error(data=data)):
        raise error
    report = _before(execution) + _report(execution, data)
    return Output(data=data, text=report, artifacts=artifacts, value=execution.value)


def _value_names(returns: str | None) -> tuple[str, ...] | bool:
    return False if returns is None else (returns, "result")


async def _run_script(
    ctx: Context, feed: ScriptInputs, script: str, timeout: float | None, **how: Any
) -> tuple[Execution, tuple[Artifact, ...]]:
    """Run a script over its inputs; raise the error of a run that failed."""
    from nbtools.kernels import Kernels

    roots, seconds = ctx.use(Roots), timeout or ctx.use(Kernels).timeout
    execution, artifacts = await run(
        ctx,
        script,
        timeout=seconds,
        variables=feed.variables,
        inputs_paths=feed.paths,
        cwd=_folder(ctx),
        frames=feed.frames,
        **how,
    )
    hint = None
    if execution.status == "error":
        name = execution.error.name if execution.error else ""
        refused = execution.sandbox == "strict" and name == "PermissionError"
        odd = None if feed.file is None else _file_hint(roots, feed.file, name)
        hint = odd or (_REFUSED if refused else None) or _before(execution).strip() or None
    data = {**_script_data(execution), "artifacts": artifacts}
    error = execution.to_error(timeout=seconds, hint=hint, script=script, data=data)
    if error is not None:
        raise error
    return execution, artifacts


def _script_data(execution: Execution) -> dict[str, Any]:
    data = summary(execution)
    return {**data, "duration": data["duration_s"]}


def _code_data(execution: Execution, script: str) -> dict[str, Any]:
    facts = summary(execution)
    code = _exit_code(execution)
    stderr = execution.stderr
    # What a program prints of an exception stands there; an exit code and a limit are told in words of ours, elsewhere.
    if execution.error is not None and execution.error.traceback:
        stderr += execution.error.traceback
        facts["error"] = execution.error_message(script)
    elif execution.status.endswith("_limit"):
        facts["error"] = f"ended: it reached its {execution.status.removesuffix('_limit')} limit"
    return {
        "exit_code": code,
        "stdout": execution.stdout,
        "stderr": stderr,
        "duration_seconds": facts["duration_s"],
        "timed_out": execution.status == "timeout",
        "language": execution.language,
        "success": code == 0 and execution.status == "ok",
        **{name: value for name, value in facts.items() if name not in {"stdout", "stderr"}},
    }


def _exit_code(execution: Execution) -> int:
    if execution.status == "timeout":
        # As `timeout` of coreutils has it, which models know.
        return 124
    if execution.exit_code is not None:
        return execution.exit_code
    if execution.signal is not None:
        import signal

        return 128 + int(getattr(signal, execution.signal, 0))
    return 0 if execution.status == "ok" else 1


def _report(execution: Execution, data: dict[str, Any]) -> str:
    """Return what was printed and shown, and how it ended when that was not well."""
    parts = [execution.text(), str(data["stderr"]).removeprefix(execution.stderr), _kept_files(execution)]
    if data["timed_out"]:
        parts.append(f"[timed out after {data['duration_seconds']:.3g} s{running_note(execution.notes)}]")
    elif not data["success"]:
        ended = f"; {data['error']}" if str(data.get("error", "")).startswith("ended: ") else ""
        parts.append(f"[exit code {data['exit_code']}{ended}]")
    text = "\n".join(part.rstrip("\n") for part in parts if part.strip())
    return text or "[no output, exit code 0]"


def _folder(ctx: Context) -> Path | None:
    """Return where a script runs: a person's in the working folder, a confined one in its own folder."""
    return None if is_confined(ctx) else ctx.use(Roots).start()


def _file_hint(roots: Roots, file: Path, error: str) -> str | None:
    """Return what is odd about the file that a script was given, where that explains its exception."""
    try:
        with os.fdopen(roots.open_file(file), "rb") as handle:
            head = handle.read(_HEAD_BYTES)
    except (OSError, NbtoolsError):
        return None
    # Whatever the exception says: libraries name an empty file in many ways.
    if not head:
        return f"{file.name} is empty (0 bytes)."
    if error not in _READING:
        return None
    if b"\0" in head:
        return f"{file.name} is binary, not text: read it with a library for its format."
    try:
        # Where the file goes on behind the cut, the cut may fall inside a character.
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < _HEAD_BYTES)
    except UnicodeDecodeError as exc:
        from nbtools.sql.files.encodings import likely_in

        likely = next((name for name in likely_in(head) if name != "utf-8"), None)
        way = "its lines are in several encodings" if likely is None else f"pass its encoding, perhaps {likely!r}"
        return f"{file.name} is not UTF-8 (byte {exc.start:,}): {way}."
    return f"{file.name} is text, but not in the form that the script expects."


def _before(execution: Execution) -> str:
    """Return what is told before the output: that a session began empty, or whose files are not known."""
    return "".join(f"[{note}]\n" for note in execution.notes if note.startswith((BEGAN_EMPTY, CHANGED_MEANWHILE)))


def _output_text(execution: Execution) -> str:
    """Return what was printed and shown and which files are kept, else what went to standard error."""
    text, files = execution.text(("stdout",)), _kept_files(execution)
    if not files:
        return text or execution.text()
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{files}\n"


def _kept_files(execution: Execution) -> str:
    """Return the names of files that nobody knows who does not see them; empty where they are in the working folder."""
    if execution.folder is None or not execution.artifacts:
        return ""
    names = summary(execution)["artifacts"]
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"wrote {', '.join(names[:_MOST_NAMED])}{more}"


def _picture_path(roots: Roots, path: str) -> Path:
    if Path(path).suffix.lower() not in _PICTURES:
        raise InvalidArguments(
            f"{path!r} does not have a picture file extension.", hint=f"Use one of {', '.join(_PICTURES)}."
        )
    target = roots.resolve(path, must_exist=False, for_writing=True)
    if target.is_dir():
        raise InvalidArguments(f"{str(target)!r} is a folder.", hint="Name a file in it.")
    roots.folder(target.parent, make=True).close()
    return target


def _within_own_folder(path: str) -> Path:
    """Return where a confined script draws: under the name that it was given, as far as that stays in its folder."""
    requested = Path(path)
    # The rest of the path is where the finished picture goes, which the script cannot reach.
    return Path(requested.name) if requested.is_absolute() or {"..", "~"} & {*requested.parts} else requested


def _deliver(roots: Roots, source: Path, target: Path, overwrite: bool) -> Artifact:
    """Put a picture in place that was drawn elsewhere, if it is one."""
    with os.fdopen(open_plain(source), "rb") as picture:
        # Where it lies in its place already, a look at its beginning is enough.
        content = picture.read(_HEAD_BYTES if source == target else _PICTURE_BYTES + 1)
    if not content:
        raise ExecutionFailed(f"the script left {target.name} empty.", hint=_HOW_TO_DRAW)
    if len(content) > _PICTURE_BYTES:
        raise ExecutionFailed(f"the picture is larger than {_PICTURE_BYTES:,} bytes.", hint="Make it smaller.")
    _check_picture(content[:_HEAD_BYTES], target)
    if source != target:
        roots.write_file(target, content, overwrite=overwrite)
    return Artifact.from_path(target, follow_no_links=True)


def _check_picture(head: bytes, target: Path) -> None:
    """Raise when what a script wrote as the picture is something else than its suffix says."""
    suffix = target.suffix.lower()
    # A script may write its error as text under the name of the picture.
    fits = b"<svg" in head if suffix == ".svg" else head.startswith(_BEGINNINGS[suffix])
    if not fits:
        kind = suffix[1:].upper()
        raise ExecutionFailed(
            f"the script wrote {target.name}, but that is not a {kind} picture.",
            hint=f"Save with plt.savefig(output_image_path), or write {kind} data there.",
        )


def _nothing_drawn(execution: Execution, artifacts: tuple[Artifact, ...], path: str) -> ExecutionFailed:
    data = _script_data(execution)
    elsewhere = [name for name in data["artifacts"] if name.lower().endswith(_PICTURES)]
    hint = _HOW_TO_DRAW
    if unsaved := [note for note in execution.notes if note.startswith(_UNSAVED) and note != f"{_UNSAVED}saved"]:
        why = unsaved[0].removeprefix(_UNSAVED).strip()
        message = f"the open figure could not be saved to {path}: {why}"
        hint = "Look for an invalid formula, or a size or position that is far too large."
        if why.endswith(_NO_EXPORTER):
            saver = why.rpartition(" by ")[2].partition(",")[0]
            to_show = "make it the last line of the script to show it"
            advice = "without a path, the figure is only shown" if execution.displays else to_show
            hint = f"pip install {saver} to save the figure; {advice}."
    elif elsewhere:
        message = f"the script wrote {', '.join(elsewhere[:3])}, but nothing to {path}."
    else:
        message = f"the script made no picture: it left no open figure and wrote nothing to {path}."
    return ExecutionFailed(message, hint=hint, data={**data, "artifacts": artifacts})


TOOLS = (data_analyze, data_visualize, code_execute)
"""The tools of this module."""
