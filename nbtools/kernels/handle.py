"""A handle for one session: what `nbtools.kernels.Kernels` does with a session's name, without the name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from nbtools.ground import aio
from nbtools.ground.lazy import ClosedAtEnd
from nbtools.kernels.interface import Execution

_NOT_STARTED = "not started"


class KernelSession(ClosedAtEnd):
    r"""A session by its name; its kernel starts with the first run.

    Handles are cheap: two of one name are the same session, and making one starts nothing. As a context manager it
    ends the session when the block ends.

    Parameters
    ----------
    kernels
        The service that has the session, a `nbtools.kernels.Kernels`.
    name
        Name of the session.
    language
        What its code is written in.

    Examples
    --------
    >>> with workbench.kernels.session("a") as s:  # doctest: +SKIP
    ...     s.run("x = 1")
    ...     s.run("print(x + 1)").stdout
    '2\n'
    """

    def __init__(self, kernels: Any, name: str, *, language: str = "python") -> None:
        self._kernels = kernels
        self.name = name
        self.language = language

    async def arun(self, code: str, **options: Any) -> Execution:
        """Run code in the session; `nbtools.kernels.Kernels.arun` tells the options and errors."""
        execution: Execution = await self._kernels.arun(
            code, session=self.name, **{"language": self.language, **options}
        )
        return execution

    async def ainterrupt(self) -> None:
        """Interrupt what the session runs, as Ctrl-C does; its state stays. Harmless when it was not started."""
        if self.state != _NOT_STARTED:
            await self._kernels.ainterrupt(self.name)

    async def arestart(self) -> None:
        """End the kernel and start a fresh one under the same name; the variables are gone."""
        if self.state != _NOT_STARTED:
            await self._kernels.arestart(self.name)
        else:
            await self._kernels.astart(self.name, language=self.language)

    async def afork(self, copy: str) -> KernelSession:
        """Copy the session, with all that it has, to one of another name; see `nbtools.kernels.Kernels.afork`."""
        await self._kernels.afork(self.name, copy)
        return KernelSession(self._kernels, copy, language=self.language)

    async def akeep(self, states: int = 5) -> None:
        """Keep the state before each of the last runs from now on, the first among them; see `Kernels.akeep`."""
        if self.state == _NOT_STARTED:
            await self._kernels.astart(self.name, language=self.language)
        await self._kernels.akeep(self.name, states)

    async def aundo(self, runs: int = 1) -> tuple[str, ...]:
        """Take the session back to before its last runs; see `nbtools.kernels.Kernels.aundo`."""
        files: tuple[str, ...] = await self._kernels.aundo(self.name, runs)
        return files

    async def avariables(self) -> Sequence[dict[str, Any]]:
        """Return what the session has defined: name, type, size and the start of its text for each variable."""
        return [] if self.state == _NOT_STARTED else list(await self._kernels.avariables(self.name))

    async def aclose(self) -> None:
        """End the session; a run under way in it ends too. Harmless when repeated; a later run starts it again."""
        if self.state != _NOT_STARTED:
            await self._kernels.astop(self.name)

    run = aio.blocking(arun)
    interrupt = aio.blocking(ainterrupt)
    restart = aio.blocking(arestart)
    fork = aio.blocking(afork)
    keep = aio.blocking(akeep)
    undo = aio.blocking(aundo)
    variables = aio.blocking(avariables)
    close = aio.blocking(aclose)

    @property
    def state(self) -> str:
        """``"busy"``, ``"idle"``, ``"dead"`` when its kernel has ended, or ``"not started"``."""
        return str(self._kernels.state_of(self.name))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<session {self.name!r}: {self.language}, {self.state}>"
