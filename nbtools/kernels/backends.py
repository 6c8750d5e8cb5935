"""Which backend runs which language, and which one replaces a backend that does not work on this host."""

from __future__ import annotations

import contextlib
import pkgutil
import socket
from collections.abc import Sequence
from typing import Any, Literal

from nbtools.errors import ConfigMissing, KernelDied, LanguageUnavailable
from nbtools.kernels.forked.backend import ForkedBackend
from nbtools.kernels.forked.warm_client import WarmClient
from nbtools.kernels.forked.zygote_client import DEFAULT_PRELOADS
from nbtools.kernels.interface import Backend, Kernel, KernelOptions
from nbtools.processes import control_group
from nbtools.processes.runtime_dir import RuntimeDir
from nbtools.texts.redaction import conceal

Choice = Literal["auto", "forked", "spawned", "gateway"]
_BY_FOLDER = {
    "spawned": "nbtools.kernels.jupyter.spawned:SpawnedBackend",
    "process": "nbtools.kernels.programs.kernel:ProcessBackend",
}


def settled(choice: Choice | Backend, gateway_url: str | None) -> Choice | Backend:
    """Return where code runs: on the gateway that is set, unless another backend was named."""
    return "gateway" if choice == "auto" and gateway_url else choice


class Backends:
    """The backends of one owner, each made at first use.

    Parameters
    ----------
    choice
        As `settled` returns it: ``"auto"`` takes forked kernels where available, else spawned ones. A `Backend`
        runs every language, and stays its maker's to close.
    folder
        The owner's folder; `None` when nothing is to be opened.
    preloads
        What a zygote loads.
    warm
        The way to a zygote that all of a user's processes share; `None` makes one for this owner.
    gateway_url
        Address of the Jupyter server for ``"gateway"``; `None` where there is none.
    gateway_token
        Its token; `None` where it asks for none.
    """

    def __init__(
        self,
        choice: Choice | Backend,
        *,
        folder: RuntimeDir | None = None,
        preloads: Sequence[str] = DEFAULT_PRELOADS,
        warm: WarmClient | None = None,
        gateway_url: str | None = None,
        gateway_token: str | None = None,
    ) -> None:
        self._choice = choice if isinstance(choice, str) else choice.name
        self._own_backend = None if isinstance(choice, str) else choice
        self._folder = folder
        self._preloads = preloads
        self._warm = warm
        self._gateway = (gateway_url, gateway_token)
        self._backends: dict[str, Backend] = {}
        self.reason: str | None = None
        # What the reader of the next run should know, told once.
        self.news: tuple[str, ...] = ()
        self._is_told = False

    @property
    def python(self) -> str:
        """The name of the backend that runs Python."""
        if self._choice != "auto":
            return self._choice
        if self.reason is not None:
            return "spawned"
        return "forked" if ForkedBackend.is_supported() else "spawned"

    def is_stale(self) -> bool:
        """Whether spares were made before packages changed."""
        backend = self._backends.get("forked")
        return isinstance(backend, ForkedBackend) and backend.zygotes.is_outdated()

    async def open(self, options: KernelOptions) -> Kernel:
        """Open a kernel with these options, whatever backend it takes."""
        if self._own_backend is not None:
            return await self._own_backend.open(options)
        name = self._name(options.language)
        try:
            backend = self._backend(name)
            kernel = await backend.open(options)
            if isinstance(backend, ForkedBackend) and backend.zygotes.left_out and not self._is_told:
                self._is_told = True
                names = ", ".join(backend.zygotes.left_out)
                self.news = (
                    f"not loaded ahead: {names} (the import leaves threads running); scripts import it as usual",
                )
            return kernel
        except KernelDied as exc:
            if self._choice != "auto" or name != "forked":
                raise
            # Without a problem of the host's own one attempt more is worth it; with one, no fork will ever work here.
            if isinstance(backend, ForkedBackend) and backend.zygotes.problem is None:
                # The zygote was killed, or this one fork failed: it is started again.
                return await backend.open(options)
            self.reason = exc.message
        return await self._backend("spawned").open(options)

    def _name(self, language: str) -> str:
        if language == "python":
            return self.python
        if self._choice == "gateway":
            return "gateway"
        return "spawned" if language.startswith("kernel:") else "process"

    def _backend(self, name: str) -> Backend:
        if name not in self._backends:
            self._backends[name] = self._make(name)
        return self._backends[name]

    def _make(self, name: str) -> Backend:
        if name != "gateway" and not hasattr(socket, "AF_UNIX"):
            hint = "On Windows work in WSL, or name a Jupyter server on Linux in NBTOOLS_GATEWAY_URL."
            raise LanguageUnavailable("managed kernels need Unix sockets, which this system lacks.", hint=hint)
        if name == "forked":
            return ForkedBackend(self._preloads, self._folder, self._warm)
        # Loaded by name at first use: most sessions run forked Python alone, and neither a shell nor a gateway.
        backend: Backend
        if name in _BY_FOLDER:
            backend = pkgutil.resolve_name(_BY_FOLDER[name])(self._folder)
            return backend
        url, token = self._gateway
        if not url:
            raise ConfigMissing(
                "Kernels on a gateway were asked for, and no gateway is set.",
                hint="Set NBTOOLS_GATEWAY_URL, or pass gateway_url=….",
            )
        backend = pkgutil.resolve_name("nbtools.kernels.gateway.kernel:GatewayBackend")(url, token=token)
        return backend

    def to_dict(self) -> dict[str, Any]:
        """Return what the doctor shows."""
        forked = self._backends.get("forked")
        zygotes = forked.zygotes if isinstance(forked, ForkedBackend) else None
        left_out = list(zygotes.left_out) if zygotes is not None else []
        return {
            "backend": self.python,
            "gateway": conceal(self._gateway[0]),
            "fallback": self.reason,
            "preloads": [name for name in self._preloads if name not in left_out],
            "left_out": left_out,
            "warm": zygotes.warm_pid if zygotes is not None else None,
            "commands": self._warm.commands_pid if self._warm is not None else None,
            "ends": None if self.python == "gateway" else f"by the tree of processes, {control_group.describe()}",
        }

    async def close(self) -> None:
        """Close all of them."""
        # One that fails to close must not keep the others open.
        for backend in self._backends.values():
            with contextlib.suppress(Exception):
                await backend.close()
        self._backends.clear()
