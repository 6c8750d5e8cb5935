"""Loading and unloading: what the extension puts into a shell, and how all of it is taken back.

Loading registers small stand-ins by name and imports nothing of what they stand for; the first use of a magic, a
completion inside one, or its help does. What was there before is never replaced: a short name that someone has stays
theirs, matchers and transforms are appended.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbtools.errors import Cancelled, Interrupted
from nbtools.ground.home import default_home
from nbtools.jupyter.catalogue import CATALOGUE, MagicEntry
from nbtools.jupyter.options import NBTools
from nbtools.jupyter.stopping import Stopping

if TYPE_CHECKING:
    from nbtools.jupyter.dispatch import Dispatcher

_MATCHER = "nbtools.magics"
_BOX = "ipywidgets.widgets.widget_box.Box"


class _Stub:
    # Stands in the table of magics. Its help is made when someone reads it, so there is no docstring here.
    _ipython_magic_no_var_expand = True  # {name} is filled by us, and never inside SQL
    needs_local_scope = True

    def __init__(self, extension: Extension, entry: MagicEntry, name: str) -> None:
        self._extension = extension
        self.entry = entry
        self.__name__ = self.__qualname__ = name

    def __call__(self, line: str, cell: str | None = None, *, local_ns: Mapping[str, Any] | None = None) -> Any:
        try:
            dispatcher = self._extension.dispatcher
            with dispatcher.session.within(self._extension.shell.user_ns if local_ns is None else local_ns):
                return dispatcher.run(self.entry, self.__name__, line, cell)
        except (Exception, KeyboardInterrupt) as exc:
            if self._extension.stopping.is_stopped and not isinstance(exc, Cancelled | Interrupted):
                raise Interrupted from None
            raise

    def getdoc(self) -> str:
        """Return the usage; IPython's help asks for it."""
        return self._extension.dispatcher.usage(self.entry, self.__name__)

    def __repr__(self) -> str:
        return f"<magic {self.__name__} of nbtools>"


# A property named __doc__ on the class is what `stub.__doc__` reads.
_Stub.__doc__ = property(_Stub.getdoc)  # type: ignore[assignment]  # text for readers of instances, made late


class Extension:
    """The extension in one shell.

    Parameters
    ----------
    shell
        The IPython shell.
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.options = NBTools(parent=shell)
        self.stubs: dict[tuple[str, str], Any] = {}
        self.stopping = Stopping(shell)
        self._transform = _transform_for(self)
        self._matcher = _matcher_for(self)

    @functools.cached_property
    def dispatcher(self) -> Dispatcher:
        """What answers the magics; made at the first use of one."""
        from nbtools.jupyter.dispatch import Dispatcher
        from nbtools.jupyter.session import NotebookSession

        return Dispatcher(NotebookSession(self.shell, self.options, short_names=self.short_names))

    @classmethod
    def of(cls, shell: Any) -> Extension | None:
        """Return the extension that a shell has, or `None`."""
        extension: Extension | None = shell.meta.get("nbtools")
        return extension

    def load(self) -> None:
        """Put everything into the shell."""
        rival = _rival()
        if rival:
            print(_RIVAL.format(rival=rival), file=sys.stderr)  # noqa: T201 - it must be read, and loading goes on
        for entry in CATALOGUE:
            self._register(entry)
        self.shell.input_transformers_cleanup.append(self._transform)
        self.shell.configurables.append(self.options)
        if getattr(self.shell, "Completer", None) is not None:
            self.shell.Completer.custom_matchers.append(self._matcher)
        self._shows_boxes = _show_boxes(self.shell.display_formatter)
        self.stopping.load()
        self.shell.meta["nbtools"] = self
        # Kept, since a process that is garbage while it runs would be warned of.
        self._helper = _load_libraries_ahead()
        import_ahead((self._begin_ahead,), lambda: Extension.of(self.shell) is self)

    def _register(self, entry: MagicEntry) -> None:
        manager = self.shell.magics_manager
        for name in entry.names:
            in_use = any(name in manager.magics[kind] for kind in entry.kinds) or name in manager.lazy_magics
            if in_use and name != entry.always:
                continue
            stub = _Stub(self, entry, name)
            for kind in entry.kinds:
                manager.magics[kind][name] = self.stubs[kind, name] = stub

    def agent_magic(self) -> str | None:
        """Return the name of the magic that asks the agent, `None` where no model is set up; JupyterLab asks for it."""
        from nbtools.ground.config import Config

        return self.short_names()["agent"] if Config.load().model else None

    def _listen(self) -> None:
        self.dispatcher.session.listen()

    def _begin_ahead(self) -> None:
        from nbtools.texts.parsing import word_lists

        lists = word_lists(__file__, "ahead.words")
        names: tuple[str | Callable[[], object], ...] = (
            *lists["settings"],
            _is_kept_warm,
            *lists["scripts"],
            # pydantic looks for plugins among all installed packages before it makes its first model.
            lambda: importlib.import_module("pydantic").create_model("First"),
            *lists["tables"],
            # The connection that parses what is judged takes 20 ms to open.
            lambda: importlib.import_module("nbtools.sql.verdict.duckdb.parser").parse("SELECT 1"),
            self._listen,
        )
        import_ahead(names, lambda: Extension.of(self.shell) is self)

    def short_names(self) -> dict[str, str]:
        """Return each magic's name that works here: the short one where it was free, else the other."""
        magics = self.shell.magics_manager.magics
        return {
            entry.name: entry.name if isinstance(magics[entry.kinds[0]].get(entry.name), _Stub) else entry.always
            for entry in CATALOGUE
        }

    def unload(self) -> None:
        """Take everything back and end what runs."""
        magics = self.shell.magics_manager.magics
        for (kind, name), stub in self.stubs.items():
            if magics[kind].get(name) is stub:  # someone may have taken the name since
                del magics[kind][name]
        self.stubs.clear()
        completer = getattr(self.shell, "Completer", None)
        _drop(self.shell.input_transformers_cleanup, self._transform)
        _drop(self.shell.configurables, self.options)
        _drop(completer.custom_matchers if completer is not None else [], self._matcher)
        if self._shows_boxes:
            with contextlib.suppress(KeyError):  # someone has taken it since
                self.shell.display_formatter.ipython_display_formatter.pop(_BOX)
        self.stopping.unload()
        self.shell.meta.pop("nbtools", None)
        # Asking for it would open a session, only to close it.
        if "dispatcher" in self.__dict__:
            self.dispatcher.session.close()
        # Where it was never imported there is no workbench to be closed.
        if "nbtools.assembly.workbench" in sys.modules:
            from nbtools.assembly.shared import close_shared

            close_shared()


def _is_kept_warm() -> bool:
    """Tell whether the settings want anything loaded ahead; what is wrong with them is told by the first call."""
    from nbtools.ground.config import Config

    return Config.load().kernel_warm > 0


_PAUSE_S = 0.02


def import_ahead(names: Sequence[str | Callable[[], object]], is_wanted: Callable[[], bool]) -> None:
    """Import modules, or do what else is slow, one at a time while the loop has nothing to do, as long as wanted.

    A function that returns `False` ends it.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return  # a shell without a loop

    def step() -> None:
        name, part = names[0], None
        if is_wanted():
            with contextlib.suppress(Exception):  # the code that needs it meets the reason
                part = importlib.import_module(name) if isinstance(name, str) else name()
            if part is not False:
                import_ahead(names[1:], is_wanted)

    if names:
        loop.call_later(_PAUSE_S, step)


def _load_libraries_ahead() -> subprocess.Popen[bytes] | None:
    """Where scripts were run before, have their libraries loaded while the notebook waits for its first one.

    By a separate process: nothing of it is imported here. It ends at once where the libraries are loaded already.
    """
    if os.environ.get("NBTOOLS_KERNEL_WARM") == "0" or not _has_run_scripts():
        return None
    command = [sys.executable, "-P", "-m", "nbtools.kernels.forked.warm_client"]
    null = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)
    except OSError:
        return None  # the first script starts them itself


def _has_run_scripts() -> bool:
    with contextlib.suppress(OSError, RuntimeError):  # a folder of someone else's, a user who is not there
        return (Path(os.environ.get("NBTOOLS_HOME") or default_home()).expanduser() / "warm").is_dir()
    return False


def _drop(items: list[Any], item: Any) -> None:
    items[:] = [other for other in items if other is not item]


def _show_boxes(formatter: Any) -> bool:
    """Have boxes of ipywidgets save what is in them, unless someone else shows boxes; tell whether we do."""

    def show(box: Any) -> None:
        importlib.import_module("nbtools.widgets.live.boxes").show_box(box)

    formatter = getattr(formatter, "ipython_display_formatter", None)
    if formatter is None or _BOX in formatter:
        return False
    formatter.for_type(_BOX, show)
    return True


def _transform_for(extension: Extension) -> Callable[[list[str]], list[str]]:
    """Return the input transform; it reads the cell only when something in it could concern us."""

    def transform(lines: list[str]) -> list[str]:
        if not any("%" in line and any(mark in line for mark in ("<<", "?", "-h")) for line in lines):
            return lines
        rewriting = importlib.import_module("nbtools.jupyter.line.input_transform")
        rewritten: list[str] = rewriting.rewrite(lines, {name for _, name in extension.stubs})
        return rewritten

    return transform


def _matcher_for(extension: Extension) -> Callable[[Any], Any]:
    """Return the matcher for IPython's completer; inside other people's lines it says nothing, at once."""

    def matcher(context: Any) -> Any:
        first = context.full_text.lstrip().startswith("%%")
        if not first and "%" not in context.text_until_cursor:
            return {"completions": []}
        completion = importlib.import_module("nbtools.jupyter.completion.matcher")
        return completion.complete(extension.dispatcher, extension.stubs, context)

    matcher.matcher_api_version = 2  # type: ignore[attr-defined]  # IPython reads it off the function
    matcher.matcher_identifier = _MATCHER  # type: ignore[attr-defined]  # same
    return matcher


_RIVAL = """\
nbtools: another project's package called 'nbtools' ({rival}) is installed beside nbtools-kit.
Both own the folder 'nbtools', so either may break the other.
→ pip uninstall nbtools && pip install --force-reinstall nbtools-kit"""


def _rival() -> str | None:
    """Return the other project's version when it is installed here; reading metadata would cost more than loading."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - names alone, and three times as fast
        except OSError:
            continue
        for name in names:
            if name.startswith("nbtools-") and name.endswith((".dist-info", ".egg-info")):
                return name.removeprefix("nbtools-").rpartition(".")[0]
    return None
