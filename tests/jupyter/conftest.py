"""A real IPython shell for each test, with a home and a working folder of its own."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


@dataclasses.dataclass(kw_only=True)
class Cell:
    """What became of a cell: its value, its error, and what it showed."""

    value: Any = None
    error: BaseException | None = None
    stdout: str = ""
    stderr: str = ""
    displayed: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    forms: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The forms of the value that a front end chooses from, by their types."""

    @property
    def lines(self) -> list[str]:
        """What a notebook shows of the error."""
        assert self.error is not None, f"the cell did not fail; it said {self.stdout!r}"
        return self.error._render_traceback_()


class Notebook:
    """A shell that runs cells and keeps what they show."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.displayed: list[dict[str, Any]] = []
        publish = shell.display_pub.publish

        def keep(data: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            self.displayed.append(data)
            publish(data, *args, **kwargs)

        shell.display_pub.publish = keep
        self.forms: dict[str, Any] = {}
        formats = shell.displayhook.compute_format_data

        def keep_forms(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            self.forms, about = formats(value)
            return self.forms, about

        shell.displayhook.compute_format_data = keep_forms

    def run(self, text: str, *, while_running: Callable[[io.StringIO], None] | None = None) -> Cell:
        """Run a cell; `while_running` gets what is printed, at once."""
        self.displayed.clear()
        self.forms = {}
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            if while_running is not None:
                while_running(out)
            done = self.shell.run_cell(text)
        error = done.error_before_exec or done.error_in_exec
        return Cell(
            value=done.result,
            error=error,
            stdout=out.getvalue(),
            stderr=err.getvalue(),
            displayed=list(self.displayed),
            forms=self.forms,
        )

    def complete(self, text: str) -> list[str]:
        """Return what our matcher offers at the end of a text, or where ``|`` stands in it."""
        before, _, after = text.partition("|")
        lines = before.split("\n")
        found = self.shell.Completer._complete(
            cursor_line=len(lines) - 1, cursor_pos=len(lines[-1]), full_text=before + after
        )
        return [item.text for item in found.get("nbtools.magics", {"completions": []})["completions"]]

    def __getitem__(self, name: str) -> Any:
        return self.shell.user_ns[name]


def _prepare(place: Path, patch: pytest.MonkeyPatch) -> Path:
    """Make a working folder with a small data file, and keep the machine's settings away."""
    work = place / "work"
    work.mkdir()
    patch.chdir(work)
    for name in ("ALLOWED_PATHS", "NBTOOLS_MEMORY_URL", "NBTOOLS_ALLOWED_PATHS"):
        patch.delenv(name, raising=False)
    patch.setenv("NBTOOLS_HOME", str(place / "home"))
    patch.setenv("IPYTHONDIR", str(place / "ipython"))
    (work / "sales.csv").write_text("city,amount\nBern,10\nChur,32\n", encoding="utf-8")
    return work


@contextlib.contextmanager
def open_shell(place: Path, patch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """Open a shell without the extension, in a folder of its own."""
    _prepare(place, patch)
    with _shell() as opened:
        yield opened


@contextlib.contextmanager
def _shell() -> Iterator[Notebook]:
    # A shell that ends collects garbage, and would look at every object of all tests: at 0.6 s each.
    gc.freeze()
    settings = Config()
    settings.HistoryManager.enabled = False
    shell = InteractiveShell(config=settings)
    try:
        yield Notebook(shell)
    finally:
        if "nbtools" in shell.extension_manager.loaded:
            shell.run_line_magic("unload_ext", "nbtools")
        atexit.unregister(shell.atexit_operations)
        shell.atexit_operations()
        shell.restore_sys_module_state()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder of a test."""
    return _prepare(tmp_path, monkeypatch)


@pytest.fixture
def bare(folder: Path) -> Iterator[Notebook]:
    """A shell without the extension."""
    with _shell() as opened:
        yield opened


@pytest.fixture
def notebook(bare: Notebook, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """A shell with the extension, and a memory that lives as long as the test."""
    monkeypatch.setenv("NBTOOLS_MEMORY_URL", ":memory:")
    # A busy machine may be slower than a person's patience; what is offered is the question here.
    bare.run("%load_ext nbtools")
    bare.shell.meta["nbtools"].dispatcher.session.completion_timeout = 20.0
    return bare


@pytest.fixture(scope="module")
def shared_notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """A shell with the extension, and a memory, for all tests of a module."""
    with pytest.MonkeyPatch.context() as patch, open_shell(tmp_path_factory.mktemp("shared"), patch) as opened:
        patch.setenv("NBTOOLS_MEMORY_URL", ":memory:")
        opened.run("%load_ext nbtools")
        opened.shell.meta["nbtools"].dispatcher.session.completion_timeout = 20.0
        opened.run("%sql select 1")  # it may read what lies below the folder that it begins in
        yield opened
