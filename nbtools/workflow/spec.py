"""The models of a workflow file: what each key of the YAML is called, what it takes and what it means.

A file becomes one `Workflow`. A node is of the kind whose key it has, one of `KINDS`. The models are frozen, take no
unknown key and convert nothing: ``"4"`` is not a number, because in a file that people edit a wrong type is a mistake
and no spelling.

What a node leaves behind is read as ``nodes.ID.FIELD`` in expressions; `RESULT_FIELDS` lists the fields. In code,
``nodes["ID"]`` is the node's ``data``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticCustomError

from nbtools.contract.wire.json_values import replace_nested
from nbtools.errors import LanguageUnavailable
from nbtools.kernels.languages import LANGUAGES, language_named, language_of, spellings
from nbtools.workflow.notebooks import read_notebook

KINDS = ("tool", "code", "notebook", "prompt", "ask", "workflow")
"""The keys of a node of which it has exactly one."""

RESULT_FIELDS: Mapping[str, dict[str, Any]] = {
    "ok": {"type": "boolean"},
    "state": {"enum": ["pending", "waiting", "running", "ok", "failed", "skipped", "cancelled", "declined", "unknown"]},
    "text": {"type": "string"},
    "data": {},
    "error": {
        "anyOf": [
            {
                "type": "object",
                "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "hint": {}},
                "required": ["code", "message"],
            },
            {"type": "null"},
        ]
    },
    "artifacts": {"type": "array", "items": {"type": "object", "properties": {"path": {"type": "string"}}}},
    "duration_s": {"type": "number"},
}
"""What can be read of a node's result, with the JSON Schema of each field; ``data`` depends on the node.

``error`` is null unless the node failed; ``duration_s`` is in seconds. A node with ``for_each`` has as ``data`` the
list of its items' data in their order, with null for items that failed.
"""

Scope = Literal["agent", "workflow", "node"]
_JsonSchema = dict[str, Any]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]
# Strict validation would take a tuple alone, and YAML has lists.
_Names = Annotated[tuple[_Name, ...], Field(strict=False)]


def _known_language(word: str) -> str:
    try:
        language_named(word)
    except LanguageUnavailable:
        message = f"{', '.join(LANGUAGES)} or kernel:NAME"
        raise PydanticCustomError("language", "{known}", {"known": message}) from None
    return language_of(word)


_Language = Annotated[
    str,
    AfterValidator(_known_language),
    WithJsonSchema({"anyOf": [{"enum": list(spellings())}, {"type": "string", "pattern": "^kernel:."}]}),
]


def tag_of(raw: Any, keys: tuple[str, ...]) -> str | None:
    """Return the tag ``<KEY>`` of the one key of a mapping, or of a model, that decides what it is.

    `None` says that there is none of the keys, or more than one. The angle brackets keep tags apart from keys in the
    places that pydantic reports.
    """
    tags = [key for key in keys if (key in raw if isinstance(raw, Mapping) else hasattr(raw, key))]
    return f"<{tags[0]}>" if len(tags) == 1 else None


class Model(BaseModel):
    """A part of a workflow file: frozen, strict, and without keys that it does not know."""

    # Strict, since YAML has told numbers and texts apart already: a quoted number is a mistake that people want to see.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class MemorySettings(Model):
    """What the nodes remember from run to run.

    ``agent`` is shared by all workflows of the agent, ``workflow`` by the nodes of one workflow, ``node`` by nothing
    else.
    """

    enabled: bool = Field(default=True, description="Whether nodes have a memory.")
    default_scope: Scope = Field(
        default="workflow", description="The agent whose memory is used, unless a node names another."
    )


class RunLimits(Model):
    """Bounds of one run, also over its resumes; `None` is not a bound."""

    max_parallel: _Count = Field(default=4, description="Nodes that run at the same time.")
    seconds: _Seconds | None = Field(default=None, description="Time of the whole run.")
    tokens: _Count | None = Field(default=None, description="Tokens of all models together.")
    usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Cost of all models together, in US dollars."
    )
    parallel: dict[str, _Count] = Field(
        default={}, description="Nodes of one tool or one model that run at the same time, by its name."
    )


class Retry(Model):
    """How often a node that failed is tried; the wait in between doubles each time."""

    attempts: Annotated[int, Field(ge=1, le=100)] = Field(default=3, description="Attempts in all.")
    backoff_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=1.0, description="Seconds before the second attempt."
    )


class _ToolSettings(Model):
    """What may be said of a tool that is offered under a name of the file."""

    description: str | None = Field(default=None, description="What the model reads, instead of the tool's own text.")
    fixed_config: dict[str, Any] = Field(default={}, description="Values that a caller can neither see nor change.")
    exposed_inputs: _Names | None = Field(default=None, description="The only parameters that are left to a caller.")
    on_error: Literal["fail", "continue"] | None = Field(
        default=None, description="Whether an error ends the caller, or is passed on as a result."
    )


class ConfiguredTool(_ToolSettings):
    """A tool of the registry under another name, with some of its parameters fixed or hidden."""

    tool: str = Field(description="Name of a tool of the registry.")


class ConfiguredWorkflow(_ToolSettings):
    """A workflow file as a tool; its inputs are the parameters."""

    workflow: str = Field(description="Path of the file, relative to this one.")


class ConfiguredNode(_ToolSettings):
    """A node of this file as a tool; the arguments that the node does not set are the parameters."""

    node: str = Field(description="Id of a tool node or a workflow node.")


_CONFIGURED = ("tool", "workflow", "node")
_AnyTool = Annotated[
    Annotated[ConfiguredTool, Tag("<tool>")]
    | Annotated[ConfiguredWorkflow, Tag("<workflow>")]
    | Annotated[ConfiguredNode, Tag("<node>")],
    Discriminator(lambda raw: tag_of(raw, _CONFIGURED)),
]


class OfferedTool(Model):
    """A tool that a model may call, with what holds only for this node."""

    name: str = Field(description="A tool of the registry or of `tools`.")
    on_error: Literal["fail", "continue"] | None = Field(
        default=None, description="Whether an error ends the node, or is reported to the model."
    )
    config: dict[str, Any] = Field(default={}, description="Values that the model can neither see nor change.")


_Offered = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[OfferedTool, Tag("<mapping>")],
    Discriminator(lambda raw: "<mapping>" if isinstance(raw, Mapping | OfferedTool) else "<name>"),
]


class NodeFields(Model):
    """What nodes of every kind may say."""

    kind: ClassVar[str]

    id: _Name = Field(description="Name of the node, unique in the file.")
    description: str = Field(default="", description="What the node is for.")
    needs: _Names = Field(default=(), description="Nodes that must have ended; references in expressions count too.")
    when: str | bool | None = Field(
        default=None,
        description="Expression that decides whether the node runs; `always`: also if a needed one was skipped.",
    )
    finally_: bool = Field(default=False, alias="finally", description="Run last, in any case; again after a resume.")
    for_each: str | list[Any] | None = Field(
        default=None, description="A list, or an expression for one: the node runs once for each `item`."
    )
    max_parallel: _Count | None = Field(default=None, description="Items that run at the same time.")
    on_item_error: Literal["fail", "collect"] = Field(
        default="fail", description="Whether the first item that fails ends the node, or errors are collected."
    )
    retry: Retry | None = Field(default=None, description="How often to try again.")
    timeout_s: _Seconds | None = Field(default=None, description="Seconds that one attempt may take.")
    on_error: Literal["fail", "continue"] = Field(
        default="fail", description="Whether a failure ends the run, or the others go on."
    )
    output: _JsonSchema | None = Field(default=None, description="JSON Schema of the node's `data`.")
    memory: MemorySettings | None = Field(default=None, description="Replaces the workflow's.")
    resources: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default={}, description="What a Dask worker must have free, such as {GPU: 1}; here it has no meaning."
    )

    @property
    def always(self) -> bool:
        """Whether the node runs although a node that it needs was skipped."""
        return self.finally_ or self.when == "always"


class ToolNode(NodeFields):
    """A call of one tool."""

    kind: ClassVar[str] = "tool"

    tool: str = Field(description="A tool of the registry or of `tools`.")
    args: dict[str, Any] = Field(default={}, description="Its arguments; texts may contain expressions.")


class CodeFile(Model):
    """Code in a separate file."""

    file: str = Field(description="Path of the script, relative to the workflow file.")


class CodeNode(NodeFields):
    """Code in a managed kernel, which sees `inputs`, `nodes`, `files`, `item` and `memory`.

    `nodes["ID"]` is the data of a node that it needs, `files["ID"]["NAME"]` the path of a file that this node left.

    Its ``data`` is the value of its last expression, as in a cell of a notebook; its ``text`` is what it printed. Other
    languages than Python have what they printed as ``data``, read as JSON where ``output`` is given.
    """

    kind: ClassVar[str] = "code"

    code: Annotated[
        Annotated[str, Tag("<text>")] | Annotated[CodeFile, Tag("<file>")],
        Discriminator(lambda raw: "<file>" if isinstance(raw, Mapping | CodeFile) else "<text>"),
    ] = Field(description="The code itself, or `{file: PATH}`.")
    language: _Language = Field(default="python", description="What it is written in; kernel:NAME is a Jupyter kernel.")
    idempotent: bool = Field(
        default=False, description="Whether running it again changes nothing more: then a resumed run repeats it."
    )

    def source(self, folder: Path) -> str:
        """Return the code, where its file lies in or below a folder; ``$${`` in the text of a workflow is ``${``."""
        if isinstance(self.code, CodeFile):
            return (folder / self.code.file).read_text(encoding="utf-8")
        # Code is not filled in, but in a workflow file `$${` means `${` everywhere.
        return self.code.replace("$${", "${")


class NotebookNode(NodeFields):
    """The cells of a notebook, run in a separate kernel; the notebook as it ran is an artifact.

    Its ``data`` is the value of its last expression; its ``text`` is what all cells printed. Where a cell fails the
    kernel stays as a session while this process lives, and a resumed run goes on at that cell.
    """

    kind: ClassVar[str] = "notebook"

    notebook: str = Field(description="Path of the notebook, relative to the workflow file.")
    parameters: dict[str, Any] = Field(
        default={}, description="Values for names that its cell with the tag parameters sets; may contain expressions."
    )
    keep_kernel: bool = Field(default=False, description="Whether its kernel stays as a session, to be looked at.")
    idempotent: bool = Field(
        default=False, description="Whether running it again changes nothing more: then a resumed run repeats it."
    )

    def source(self, folder: Path) -> str:
        """Return the notebook without what earlier runs left in it, where its file lies in or below a folder."""
        return read_notebook(folder / self.notebook).bare_text()


KernelNode = CodeNode | NotebookNode
"""Nodes whose work is done in a kernel."""


class PromptNode(NodeFields):
    """An agent's run: a prompt, a model, and the tools that the model may call.

    The names of the keys are those of pydantic-ai's ``AgentSpec``. Its ``text`` is the answer; its ``data`` is the same
    text, or the structured answer where ``output`` or ``output_schema`` is given.
    """

    kind: ClassVar[str] = "prompt"

    prompt: str = Field(description="What the model is asked; may contain expressions.")
    agent: str | None = Field(
        default=None, description="File of an agent in the form of AgentSpec; keys here take precedence."
    )
    model: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="PROVIDER, or PROVIDER:MODEL; `scripted` plays turns without a model."
    )
    instructions: (
        Annotated[
            Annotated[str, Tag("<text>")] | Annotated[list[str], Tag("<list>")],
            Discriminator(lambda raw: "<list>" if isinstance(raw, list) else "<text>"),
        ]
        | None
    ) = Field(default=None, description="Instructions for the whole run; may contain expressions.")
    output_schema: _JsonSchema | None = Field(default=None, description="The same as `output`.")
    model_settings: dict[str, Any] | None = Field(default=None, description="Settings of the model: temperature, …")
    retries: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="How often the model may correct an answer that does not fit."
    )
    tool_timeout: _Seconds | None = Field(default=None, description="Seconds that one call of a tool may take.")
    end_strategy: Literal["early", "graceful", "exhaustive"] | None = Field(
        default=None, description="What happens to other calls once there is an answer."
    )
    accept: Literal["incomplete"] | None = Field(
        default=None, description="`incomplete` takes a text that was cut or broke off; else the node fails."
    )
    metadata: dict[str, Any] | None = Field(default=None, description="Facts that are kept beside the run.")
    tools: Annotated[tuple[_Offered, ...], Field(strict=False)] | None = Field(
        default=None, description="Tools that the model may call; `*` means all. Default: `enabled_tools`."
    )

    @property
    def answer(self) -> _JsonSchema | None:
        """JSON Schema of a structured answer; `None` where the answer is text."""
        return self.output if self.output is not None else self.output_schema


class _Question(Model):
    timeout_s: _Seconds | None = Field(default=None, description="Seconds to wait for an answer.")


class Approve(_Question):
    """A question that is answered by yes or no; a no skips the nodes that need it."""

    approve: str = Field(description="The question; may contain expressions.")


class Choose(_Question):
    """A choice of one text out of several."""

    choose: list[str] | str = Field(description="The texts, or an expression for a list of them.")
    question: str = Field(default="", description="What is asked; may contain expressions.")


class Fill(_Question):
    """A form."""

    fill: _JsonSchema = Field(description="JSON Schema of the answer: an object with properties.")
    question: str = Field(default="", description="What is asked; may contain expressions.")


_QUESTIONS = ("approve", "choose", "fill")


class AskNode(NodeFields):
    """A question to a person.

    Its ``data`` is true for an approval (a no skips the node and those that need it), the text that was chosen, or the
    object that was filled in.
    """

    kind: ClassVar[str] = "ask"

    ask: Annotated[
        Annotated[Approve, Tag("<approve>")] | Annotated[Choose, Tag("<choose>")] | Annotated[Fill, Tag("<fill>")],
        Discriminator(lambda raw: tag_of(raw, _QUESTIONS)),
    ] = Field(description="`{approve: TEXT}`, `{choose: [TEXT, …]}` or `{fill: JSON SCHEMA}`.")


class WorkflowNode(NodeFields):
    """A run of another workflow file; its ``data`` is the object of that file's outputs."""

    kind: ClassVar[str] = "workflow"

    workflow: str = Field(description="Path of the file, relative to this one.")
    args: dict[str, Any] = Field(default={}, description="Values of its inputs; texts may contain expressions.")


AnyNode = Annotated[
    Annotated[ToolNode, Tag("<tool>")]
    | Annotated[CodeNode, Tag("<code>")]
    | Annotated[NotebookNode, Tag("<notebook>")]
    | Annotated[PromptNode, Tag("<prompt>")]
    | Annotated[AskNode, Tag("<ask>")]
    | Annotated[WorkflowNode, Tag("<workflow>")],
    Discriminator(lambda raw: tag_of(raw, KINDS)),
]
NODE: TypeAdapter[Any] = TypeAdapter(AnyNode)
"""Validates one node."""


class Workflow(Model):
    """A workflow file."""

    version: Literal[1] = Field(description="Version of this form of file.")
    name: _Name = Field(description="Name of the workflow.")
    description: str = Field(default="", description="What it is for; a model that may call it reads this.")
    agent_id: _Name | None = Field(default=None, description="Whose memory the agent scope is; default: the name.")
    inputs: dict[_Name, _JsonSchema] = Field(
        default={}, description="JSON Schema of each input; one without `default` must be given."
    )
    memory: MemorySettings = Field(default=MemorySettings(), description="What the nodes remember from run to run.")
    limits: RunLimits = Field(default=RunLimits(), description="Bounds of one run.")
    scripts_of: Literal["person", "model"] = Field(
        default="person",
        description="Who wrote scripts and commands: a model's scripts run as confined as its calls, its commands ask.",
    )
    tools: dict[_Name, _AnyTool] = Field(default={}, description="Tools that are configured here and named by nodes.")
    enabled_tools: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="Tools of prompt nodes that name none; `*` means all."
    )
    nodes: Annotated[tuple[AnyNode, ...], Field(strict=False, min_length=1)] = Field(description="What is to be done.")
    outputs: dict[_Name, Any] = Field(default={}, description="What the run returns; texts may contain expressions.")

    @field_validator("inputs")
    @classmethod
    def _read_defaults(cls, inputs: dict[str, _JsonSchema]) -> dict[str, _JsonSchema]:
        """Read ``$${`` in defaults, which are never filled in, as everywhere else in a file."""
        return {
            name: {**schema, "default": _unescaped(schema["default"])} if "default" in schema else schema
            for name, schema in inputs.items()
        }

    @property
    def agent(self) -> str:
        """Id of the agent whose memory the nodes share."""
        return self.agent_id or self.name

    @property
    def input_schema(self) -> _JsonSchema:
        """JSON Schema of all inputs together: an object that takes no others."""
        required = [name for name, schema in self.inputs.items() if "default" not in schema]
        fields: _JsonSchema = {"type": "object", "properties": dict(self.inputs), "additionalProperties": False}
        return fields | ({"required": required} if required else {})


def literals(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a node that hold no expression: they are fixed where the node is offered as a tool."""
    return {name: value for name, value in args.items() if "${" not in repr(value)}


def _unescaped(value: Any) -> Any:
    return replace_nested(value, lambda one: one.replace("$${", "${") if isinstance(one, str) else one)


def editor_schema() -> _JsonSchema:
    """Return the JSON Schema (2020-12) of workflow files, for editors."""
    schema = Workflow.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "nbtools workflow"}
