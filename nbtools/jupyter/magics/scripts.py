"""``%%data_analyze``, ``%%data_visualize`` and ``%%code``: the cell is a script that runs beside the notebook."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nbtools.errors import ExecutionFailed, InvalidArguments, NbtoolsError, did_you_mean
from nbtools.jupyter.display.blocks import Listing, outline
from nbtools.jupyter.display.results import picture_bundles
from nbtools.jupyter.line.arguments import declared_usage
from nbtools.jupyter.magic import Magic, MagicRequest
from nbtools.kernels.inside.values import is_lost
from nbtools.kernels.interface import TOLD_BEFORE, running_note
from nbtools.sql.frames import is_frame

_SAVED = "figure saved"


def timeout_of(request: MagicRequest) -> float | None:
    """Return the seconds the script may take: the option given here, else that of ``%config NBTools``."""
    seconds: float | None = request.args.timeout or request.session.options.timeout
    return seconds


def _script_in(request: MagicRequest) -> str:
    """Return the script in the cell."""
    script = request.cell or ""
    if not script.strip():
        raise InvalidArguments("the cell has no script.", hint="Write the script below the first line.")
    return script


def _data_magic(tool: str, script: str, *, draws: bool = False) -> Magic:
    """Return the magic of a tool whose argument `script` runs over files and tables."""

    def run(request: MagicRequest) -> Any:
        arguments: dict[str, Any] = {script: _script_in(request), "timeout": timeout_of(request), **_sources(request)}
        if draws:
            drawing = _noted(request, request.call(tool, arguments | {"output_image_path": request.args.image}))
            if _SAVED in drawing.data.get("notes", ()) and not request.pictured and request.live is not None:
                # It is the chart that the cell has shown: one output with both, not two.
                request.pictured = any(map(request.live.add_picture, picture_bundles(drawing.artifacts[:1])))
            return drawing
        returns = request.out or ("result" if request.args.out_file else None)
        if request.args.out_file:
            request.session.workbench.check_export(request.args.out_file, overwrite=request.args.overwrite)
        with _session_of(request) as session:
            result = _noted(request, request.call(tool, arguments | {"session": session, "returns": returns}))
        if request.args.out_file:
            message = _write_value(request, result.value)
            if request.out is None:
                return Listing(text=message)
            request.note(message)
        return _bound(request, result)

    return Magic(usage=declared_usage(__file__, tool), run=run)


@contextlib.contextmanager
def _session_of(request: MagicRequest) -> Iterator[str | None]:
    """Yield the session to run in: with ``--try`` a copy of the one that is named, which ends where the run fails."""
    name, kernels = request.args.session, request.session.workbench.kernels
    if not request.args.is_tried:
        yield name
        return
    if name is None:
        raise InvalidArguments("--try runs in a copy of a session.", hint="Name it: --session NAME.")
    names = {kernel["name"] for kernel in kernels.list()}
    copy = next(copy for n in itertools.count(1) if (copy := f"{name}-try{n}") not in names)
    request.call("session_fork", {"session": name, "copy": copy})
    try:
        yield copy
    except NbtoolsError as exc:
        kernels.stop(copy)
        exc.hint = f"{exc.hint or ''} Session {name!r} is as it was before, and its copy has ended.".lstrip()
        raise
    request.note(f"ran in {copy!r}, a copy: %kernels adopt {copy} replaces {name!r} with it, %kernels stop ends it")


def _bound(request: MagicRequest, result: Any) -> Any:
    """Say what the name behind ``-o`` is bound to; it stays as it was where a script has no value."""
    if request.out is not None and result.value is None:
        nothing = f"the script assigned neither {request.out} nor result to a value"
        why = next(filter(is_lost, (result.data or {}).get("notes", ())), nothing)
        stays = ", and stays as it was" if request.out in request.session.shell.user_ns else ""
        request.note(f"{request.out} is not bound{stays}: {why}")
        request.out = None
    elif request.out is not None:
        request.note(f"{request.out}: {outline(result.value)}")
    return result


def _noted(request: MagicRequest, result: Any) -> Any:
    """Say what the run noted, such as a column that the script saw as text.

    The result names its figure itself, and a note before the output stands there.
    """
    for note in (result.data or {}).get("notes", ()):
        is_said = request.out is not None and is_lost(note)  # with the name that is not bound
        if not is_said and not note.startswith(("figure ", *TOLD_BEFORE)):
            request.note(note)
    return result


def _sources(request: MagicRequest) -> dict[str, Any]:
    """Return the arguments of the tool that say what the script is given."""
    names = request.session.shell.user_ns
    file: str | None = None
    inputs: dict[str, str] = {}
    files: dict[str, str] = {}
    values: dict[str, Any] = {}
    for word in request.args.sources:
        if _is_data(getattr(word, "value", None)):
            hint = "Assign it to a variable first, and write that name."
            raise InvalidArguments("the table in braces has no name.", hint=hint)
        name, equals, source = word.partition("=")
        # A file whose name has an equals sign is meant as a whole.
        if not equals or not name.isidentifier() or Path(word).exists():
            name, source = "", str(word)
        if _is_data(names.get(source)):
            inputs[name or source] = source
        elif name:
            files[name] = _as_file(source, names)
            file = file or source
        elif file is None or file in files.values():
            file = _as_file(source, names)
        else:
            hint = f"Write NAME={source}; the variable NAME then contains its path."
            raise InvalidArguments("two files have no name.", hint=hint)
    for name in filter(None, (request.args.more or "").split(",")):
        if name not in names:
            hint_text = did_you_mean(name, (key for key in names if not key.startswith("_")), form="{}")
            raise InvalidArguments(f"there is no variable {name!r}.", hint=hint_text)
        if _is_data(names[name]):
            inputs[name] = name
        else:
            values[name] = _plain_value(name, names[name])
    sources = {"input_file_path": file, "inputs": inputs, "files": files, "variables": values}
    return {name: value for name, value in sources.items() if value}


def _is_data(value: Any) -> bool:
    from nbtools.kernels.inside.stored import is_storable

    return is_storable(value) or is_frame(value)


def _as_file(source: str, names: Mapping[str, Any]) -> str:
    """Return the path that a word is, unless it looks like the name of a variable."""
    if not source.isidentifier() or Path(source).exists():
        return source
    if source in names:
        problem = f"{source} is neither a table nor an array, but of type {type(names[source]).__name__}"
        hint = f"Write {{{source}}} for the file that it names, or --with {source} for its value."
    else:
        tables = [name for name, value in list(names.items()) if _is_data(value)]
        problem = f"there is no variable and no file {source!r}"
        hint = did_you_mean(source, tables, form="{}") or "Name a DataFrame of the notebook, or a file."
    raise InvalidArguments(f"{problem}.", hint=hint)


def _plain_value(name: str, value: Any) -> Any:
    # Numbers of NumPy are numbers to people, and JSON does not know them.
    value = value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
    try:
        json.dumps(value)
    except (TypeError, ValueError) as exc:
        hint = "A script gets tables, arrays, and values that JSON can hold: text, numbers, lists, dicts."
        raise InvalidArguments(f"{name} cannot be given to a script: {exc}.", hint=hint) from exc
    return value


def _write_value(request: MagicRequest, value: Any) -> str:
    """Write the table that a script made to a file, as a result of SQL is written; return what was done."""
    args = request.args
    if not is_frame(value):
        what = "no value" if value is None else f"a value of type {type(value).__name__}"
        hint = "Assign a DataFrame to result, or end the script with one."
        raise InvalidArguments(f"the script produced {what}, not a table to write.", hint=hint)
    request.bind(value)  # it is made; whatever becomes of the file
    rows = request.export("from result", args.out_file, overwrite=args.overwrite, frames={"result": value})
    return rows.text(args.out_file)


def _run_cell(request: MagicRequest) -> Any:
    code = _script_in(request)
    with _session_of(request) as session:
        return run_code(request, code, request.args.language, session, timeout_of(request))


def run_code(request: MagicRequest, code: str, language: str | None, session: str | None, timeout: float | None) -> Any:
    """Run code and return the result.

    Raises
    ------
    ExecutionFailed
        It ran and did not succeed.
    """
    if language is None and session is not None:
        # Code for a session is in its language, whatever the default is; a session that is new takes the default.
        languages = {kernel["name"]: kernel.get("language") for kernel in request.session.workbench.kernels.list()}
        language = languages.get(session)
    arguments = {"code": code, "language": language, "session": session, "timeout": timeout, "returns": request.out}
    result = request.call("code_execute", arguments)
    data = result.data if isinstance(result.data, dict) else {}
    if data.get("success") is False:
        late, code_of_exit = data.get("timed_out"), data.get("exit_code")
        took = data.get("duration_s") or 0.0
        running = running_note(data.get("notes", ()))
        problem = f"it was ended after {took:.3g} s{running}" if late else f"it ended with exit code {code_of_exit}"
        is_heard = data.get("stdout") or data.get("stderr")
        hint = "Allow more with --timeout." if late else "Its output is above." if is_heard else "It printed nothing."
        if data.get("error"):  # an exception: its traceback was not shown as it ran
            data = {**data, "traceback": data.get("stderr")}
            raise ExecutionFailed(str(data["error"]), tried=f"running {data.get('language')}", data=data)
        tried = f"running {data.get('language') or language or 'code'}"
        raise ExecutionFailed(f"{problem}.", hint=hint, tried=tried, data=data)
    # Other languages have no value that Python could hold: a name is bound to the run itself, with its output.
    is_python = data.get("language") == "python"
    return _bound(request, _noted(request, result)) if is_python else _noted(request, result)


ANALYZE = _data_magic("data_analyze", "analysis_script")
VISUALIZE = _data_magic("data_visualize", "visualization_script", draws=True)
CODE = Magic(usage=declared_usage(__file__, "code"), run=_run_cell)
