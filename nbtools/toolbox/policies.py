"""What tools may do: small frozen settings that the workbench hands down and tools get by ``ctx.use``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbtools.confine import Level

# Provider of web_search to the variable that holds its key.
SEARCH_KEYS = {"serper": "SERPER_API_KEY", "tavily": "TAVILY_API_KEY"}


@dataclasses.dataclass(frozen=True)
class Acts:
    """The way through the door for what is not a tool, such as the memory in a script.

    Attributes
    ----------
    perform
        As `nbtools.contract.execute.perform`, the door being known.
    """

    perform: Callable[..., Coroutine[Any, Any, tuple[Any, Any]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfferedFrames:
    """The tables that a notebook offers to tools, which name them.

    Attributes
    ----------
    lookup
        Returns the variable of a name, or `None`.
    names
        Returns the names of the tables, to suggest one.
    """

    lookup: Callable[[str], Any]
    names: Callable[[], list[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SandboxPolicy:
    """How closely scripts are confined.

    Attributes
    ----------
    person
        What a person runs; `None` takes the kernels' own level.
    model
        What a model runs.
    model_required
        Whether a host that cannot enforce the model's level refuses to run; otherwise it enforces what it can, and
        the result says so.
    """

    person: Level | None = None
    model: Level = "strict"
    model_required: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandPolicy:
    """Which commands `shell` and `process` may run.

    Attributes
    ----------
    allowed
        Names found on the search path (``"git"``), or absolute paths of programs, or of folders whose programs may run
        (what the shims of a version manager start); ``"*"`` allows all. Nothing is allowed by default.
    environment
        What children inherit, after secrets are taken out; `None` takes this process's own at the time of the call.
    output_bytes
        Size of each stream at which a command is ended.
    processes
        How many background processes may run at once.
    """

    allowed: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    output_bytes: int = 1_000_000
    processes: int = 8

    def inherited(self) -> Mapping[str, str]:
        """Return the environment before it is scrubbed."""
        return os.environ if self.environment is None else self.environment


@dataclasses.dataclass(frozen=True, kw_only=True)
class WebPolicy:
    """Where the web tools may go, and how long and how much they take.

    Attributes
    ----------
    allow_private
        Whether private, loopback and other non-public addresses may be reached; link-local ones and the metadata
        services of clouds never are.
    provider
        Who searches: ``"serper"`` or ``"tavily"``.
    environment
        Where keys are looked up; `None` takes this process's own at the time of the call.
    endpoints
        Provider to the address of its interface, where it is not the usual one.
    timeout
        Seconds for a request with all its redirects and retries.
    body_bytes
        Size of a decoded answer.
    redirects
        How many redirects are followed.
    retries
        How often a request is sent again after 429 and 503.
    """

    allow_private: bool = False
    provider: str = "serper"
    environment: Mapping[str, str] | None = None
    endpoints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    timeout: float = 30.0
    body_bytes: int = 5_000_000
    redirects: int = 8
    retries: int = 3

    def variable(self, name: str) -> str | None:
        """Return a variable of the environment; an empty one counts as absent."""
        value = (os.environ if self.environment is None else self.environment).get(name)
        return value or None
