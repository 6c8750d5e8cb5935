"""The settings of a run, besides its prompt, and the run options that follow from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from nbtools.agent.models.choice import require_agent
from nbtools.agent.records.budgets import Budgets
from nbtools.agent.records.run_record import RunOptions
from nbtools.agent.run import AgentRun
from nbtools.agent.sharing import Sharing
from nbtools.agent.tools.own_tools import Ask, Look
from nbtools.contract.approval.gate import Approver
from nbtools.errors import InvalidArguments
from nbtools.texts.other_words import check_names


class RunSettings(TypedDict, total=False):
    """The arguments of `AgentService.run` and similar methods besides the prompt; all have defaults.

    See `RunOptions` for ``tools``, ``read_only``, ``plan``, ``instructions``, ``output_schema``, ``model_settings``,
    ``on_error``, ``context_tokens``, ``retries``, ``tool_timeout`` and ``end_strategy``.

    - ``model`` is a name, or a model of pydantic-ai. ``script`` is the text or the path of a script that plays the
      model; ``model="scripted:PATH"`` says the same.
    - ``share`` says what the model may see of data: ``schema``, ``sample``, ``sample:N`` or ``values``. By default a
      model on this machine sees values, any other the schema.
    - ``words`` are the part of the prompt that a person wrote; by default, what the calling code contains. Hosts named
      in it may be contacted without asking; everything else in the prompt counts as a value.
    - ``context`` returns more for the prompt, given what the model may see.
    - ``budgets`` are `Budgets` or a mapping.
    - ``profile`` is the path of a file, or a mapping, with any of these.
    - ``after`` is a run, or its id, whose conversation goes on.
    - ``approver`` answers when the gate asks, ``ask`` when the model does. ``look`` describes the notebook's variables
      (`nbtools.agent.tools.own_tools.Look`); without it, the model cannot look at them.
    """

    model: Any
    script: str | Path | None
    tools: str | Sequence[str]
    read_only: bool
    plan: bool
    instructions: str | Sequence[str]
    output_schema: Mapping[str, Any] | None
    model_settings: Mapping[str, Any] | None
    on_error: str
    context_tokens: int
    retries: int
    tool_timeout: float | None
    end_strategy: str
    share: str
    words: str
    context: Callable[[Sharing], str]
    budgets: Budgets | Mapping[str, Any] | None
    profile: str | Path | Mapping[str, Any] | None
    after: str | AgentRun | None
    approver: Approver | None
    ask: Ask | None
    look: Look | None


class ResumeSettings(TypedDict, total=False):
    """What `AgentService.resume` takes besides the run and the answers.

    ``budgets`` replace those of the run; what was used still counts. ``model`` replaces the one of the run; ``share``
    is what it may see, which cannot be less than what the conversation holds. ``approver``,
    ``ask`` and ``look`` are as in `RunSettings`.
    """

    budgets: Mapping[str, Any] | None
    model: Any
    share: str
    approver: Approver | None
    ask: Ask | None
    look: Look | None


def options_of(settings: Mapping[str, Any]) -> RunOptions:
    """Return the options of a run; a script may be a path or the text itself.

    Raises
    ------
    InvalidArguments
        One of them is set by the run itself, such as which of several tries it is.
    TypeError
        There is no such setting.
    """
    options = {name: value for name, value in settings.items() if value is not None}
    own = {field.name for field in dataclasses.fields(RunOptions)} - RunSettings.__annotations__.keys()
    if names := sorted(own & options.keys()):
        hint = "wb.agent.tries(PROMPT, 3) tries a prompt several times."
        raise InvalidArguments(f"{names[0]!r} is not a setting of a run.", hint=hint if "tries" in names else None)
    check_names(options, RunSettings.__annotations__, "agent")
    for name in ("tools", "instructions"):
        if name in options:
            options[name] = (options[name],) if isinstance(options[name], str) else tuple(options[name])
    if "script" in options:
        options["script"] = _script_text(options["script"])
    return RunOptions(**options)


def _script_text(script: str | Path) -> str:
    require_agent()
    from nbtools.agent.models.scripted import Script, read_script

    is_text = isinstance(script, str) and "\n" in script
    text, name = (str(script), "the script") if is_text else (read_script(script), str(script))
    Script(text, name)  # mistakes are reported before anything runs
    return text
