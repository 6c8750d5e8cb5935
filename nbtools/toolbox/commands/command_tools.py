"""Tools for this computer: allowed commands, background processes, the environment without its secrets."""

from __future__ import annotations

import contextlib
import fnmatch
import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Gt, Le, Len

from nbtools.confine import holds_programs
from nbtools.confine.places import without_secrets
from nbtools.contract.approval.label_rules import marks_of
from nbtools.contract.consequence import Consequence
from nbtools.contract.result import Output
from nbtools.contract.tool import Context, Reading, tool
from nbtools.errors import CallTimeout, Cancelled, InvalidArguments, LimitExceeded
from nbtools.ground import aio
from nbtools.ground.paths import Roots
from nbtools.texts.redaction import scrub_environment
from nbtools.toolbox.commands.allow_list import Programs, names_of, search_path
from nbtools.toolbox.named_files import named_files
from nbtools.toolbox.policies import CommandPolicy
from nbtools.toolbox.result_types import CommandRun, ProcessList, ProcessState, Variables
from nbtools.toolbox.scripts.execution import level_of

if TYPE_CHECKING:
    from nbtools.toolbox.commands.processes import ChildSettings, Processes

_TIMED_OUT = 124


async def _surroundings(ctx: Context) -> ChildSettings:
    """Return what a child finds: no secrets, and only absolute folders to look for programs in."""
    from nbtools.toolbox.commands.processes import ChildSettings

    policy, level = ctx.use(CommandPolicy), await level_of(ctx) or "limits"
    environment = scrub_environment(policy.inherited())
    path = search_path(environment)
    programs = Programs(policy.allowed, path, installed_only=holds_programs(level))
    return ChildSettings(
        cwd=ctx.use(Roots).start(), environment={**environment, "PATH": path}, level=level, programs=programs
    )


async def _read_line(values: Mapping[str, Any], ctx: Context) -> dict[str, Reading]:
    from nbtools.toolbox.commands.command_line import parse
    from nbtools.toolbox.commands.pipelines import read

    pipelines, around = parse(values["command"]), await _surroundings(ctx)
    return {"command": await aio.in_thread(read, pipelines, around.programs)}


async def _read_program(values: Mapping[str, Any], ctx: Context) -> dict[str, Reading]:
    command = values["command"]
    if not command:
        return {}
    words = [command, *values["args"]]
    lines = (" ".join(words), *names_of(words))
    # A rule may name a program alone, or how it is called.
    programs = (line.partition(" ")[0] for line in lines)
    return {"command": Reading(parts=(command,), others=(PurePath(command).name, *programs, *lines))}


def _named(values: Mapping[str, Any], ctx: Context) -> Iterator[Consequence]:
    """Return where a command runs, and the files that its words name."""
    words = [word for word in values.get("args", ()) if "\0" not in word]
    with contextlib.suppress(ValueError):  # a quote that is never closed
        words = [*shlex.split(values["command"] or ""), *words]
    folder = ctx.use(Roots).start()
    if words:
        yield Consequence(f"runs in {folder}")
    yield from named_files(words, folder, "the command")


@tool(
    title="Run a command",
    destructive=True,
    open_world=True,
    readings_of=_read_line,
    consequences_of=_named,
    examples=({"command": "ls -l | head -5"}, {"command": "git log --oneline -3", "timeout": 10}),
)
async def shell(
    command: Annotated[str, Len(1, 10_000)],
    timeout: Annotated[float, Gt(0), Le(3_600)] = 30.0,
    *,
    ctx: Context,
) -> Output[CommandRun]:
    """Run an allowed command line in the working folder; returns stdout, stderr and returncode.

    A line consists of programs and their arguments, quoted as in a shell and joined by | and &&. Each program, and each
    program that it starts, must be in ALLOWED_COMMANDS. Patterns (*.csv), $VARIABLES, redirections, cd, ||, ; and the
    rest of a shell's language are refused: run those with code_execute(language="bash"). The environment has no
    secrets. At most 1,000,000 bytes of each stream are returned; the timeout ends everything that the line started.

    Parameters
    ----------
    command
        The command line, at most 10,000 characters.
    timeout
        Seconds until the line is ended, at most 3,600.

    Raises
    ------
    PermissionDenied
        A command is not allowed, or the line uses what cannot be judged.
    FileMissing
        There is no such program.
    CallTimeout, LimitExceeded
        It took too long or printed too much; the output so far is in data.
    """
    from nbtools.toolbox.commands.command_line import parse

    most = ctx.use(CommandPolicy).output_bytes
    data, ending = await aio.here(_run(ctx, most, parse(command), await _surroundings(ctx), timeout))
    if ending == "timeout":
        raise CallTimeout(f"timed out after {timeout:g} s", hint="Allow more with timeout, or do less.", data=data)
    if ending == "output_limit":
        raise LimitExceeded(
            f"the command printed more than {most:,} bytes and was ended.",
            hint="Print less: | head.",
            data=data,
        )
    if ending == "stopped":
        raise Cancelled("the command was stopped.", data=data)
    return Output(data=data, text=await aio.in_thread(_report, data, ctx))


async def _run(
    ctx: Context, most: int, pipelines: Any, around: ChildSettings, timeout: float
) -> tuple[dict[str, Any], str | None]:
    from nbtools.toolbox.commands.pipelines import Line, read
    from nbtools.toolbox.commands.processes import Processes

    await aio.in_thread(read, pipelines, around.programs)
    line = Line(ctx.use(Processes), around, most, ctx.emit)
    ending = await line.run(pipelines, timeout=timeout)
    # As `timeout` of the command line has it, and code_execute: what the signals made of the programs tells less.
    code = _TIMED_OUT if ending == "timeout" else line.returncode
    return {"stdout": line.stdout.text, "stderr": line.stderr.text, "returncode": code}, ending


def _report(data: dict[str, Any], ctx: Context) -> str:
    parts = [str(data["stdout"]), str(data["stderr"])]
    if data["returncode"]:
        parts.append(f"[exit code {data['returncode']}]")
    # What shells and other programs say of one that may not be executed; a file's own mode says it too.
    if data["returncode"] == 126 or "ermission denied" in str(data["stderr"]):
        parts.append("[programs start only programs that are allowed]")
        roots = ctx.use(Roots)
        # Landlock opens a folder with all below it, or what lies in it piece by piece.
        if ctx.by_model and (partly := without_secrets([str(roots.start())], map(str, roots.closed))[1]):
            parts.append(
                f"[{partly[0]} holds the home of nbtools or credentials, which stay closed to a model's commands: they "
                "make no new file directly in it, but in the folders below it; file_write makes one]"
            )
    return "\n".join(part.rstrip("\n") for part in parts if part.strip()) or "[no output, exit code 0]"


@tool(
    title="Background process",
    destructive=True,
    open_world=True,
    readings_of=_read_program,
    consequences_of=_named,
    examples=(
        {"action": "start", "command": "python", "args": ["-m", "http.server", "8000"]},
        {"action": "status", "pid": 4242},
        {"action": "list"},
    ),
)
async def process(
    action: Literal["start", "status", "stop", "list"] = "start",
    command: str | None = None,
    args: tuple[str, ...] = (),
    pid: int | None = None,
    *,
    ctx: Context,
) -> Output[ProcessState | ProcessList]:
    """Start, watch and stop processes in the background; all of them end with the workbench.

    Returns pid, status (running, exited or stopped), returncode, and the last 100,000 bytes of stdout and stderr; list
    gives processes. The command has to be on the list in ALLOWED_COMMANDS, no shell reads it, and its environment has
    no secrets. At most 8 run at once.

    Parameters
    ----------
    action
        "start" (command, args), "status" (pid), "stop" (pid) or "list".
    command
        Program to start.
    args
        Its arguments, one by one.
    pid
        Id of a process that was started here.

    Raises
    ------
    PermissionDenied
        The command is not allowed.
    FileMissing
        There is no such program.
    LimitExceeded
        Too many run already.
    """
    from nbtools.toolbox.commands.processes import Processes

    processes = ctx.use(Processes)
    if action == "start":
        data = await _start(ctx, processes, command, args)
    elif action == "status":
        data = processes.find(pid).to_dict()
    elif action == "stop":
        data = (await aio.here(processes.stop(pid))).to_dict()
    else:
        listed = processes.listed()
        lines = [f"{p['pid']}  {p['status']}  {p['command']}" for p in listed]
        return Output(data={"processes": listed}, text="\n".join(lines) or "Nothing was started.")
    text = f"process {data['pid']}: {data['status']}"
    if data["returncode"] is not None:
        text += f", exit code {data['returncode']}"
    streams = [str(data[name]).rstrip("\n") for name in ("stdout", "stderr") if str(data[name]).strip()]
    return Output(data=data, text="\n".join([text, *streams]))


async def _start(ctx: Context, processes: Processes, command: str | None, args: tuple[str, ...]) -> dict[str, Any]:
    if not command:
        raise InvalidArguments("start needs a command.", hint="process(action='start', command='python', args=[…])")
    if any("\0" in word for word in (command, *args)):
        raise InvalidArguments("the command or an argument has a NUL character.")
    around = await _surroundings(ctx)
    program = around.programs.check([command, *args])
    begun = await aio.here(processes.begin(program, command, args, around))
    if ctx.by_model:
        await aio.in_thread(marks_of(ctx.services).follow, lambda: begun.running)
    return begun.to_dict()


@tool(title="Environment", read_only=True, idempotent=True, examples=({}, {"pattern": "PATH*"}))
def env_vars(pattern: str | None = None, *, ctx: Context) -> Output[Variables]:
    """List environment variables; returns vars, a mapping of name to value.

    Variables whose names look secret (KEY, TOKEN, PASSWORD, …) are left out, and so are values that look like keys or
    hold a password.

    Parameters
    ----------
    pattern
        Which names, * and ? standing for anything (``PATH*``); null lists all.
    """
    variables = scrub_environment(ctx.use(CommandPolicy).inherited())
    matching = {n: v for n, v in sorted(variables.items()) if pattern is None or fnmatch.fnmatchcase(n, pattern)}
    lines = [f"{name}={value}" for name, value in matching.items()]
    return Output(data={"vars": matching}, text="\n".join(lines) or f"No variable matches {pattern}.")


TOOLS = (shell, process, env_vars)
"""The tools of this module."""
