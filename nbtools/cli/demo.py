"""``nbtools demo``: run the tour on real data, and print where its files are."""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from nbtools.assembly.reset import reset
from nbtools.cli.command_parser import add_command
from nbtools.errors import CallTimeout, ExecutionFailed, FileMissing, InvalidArguments, KernelDied
from nbtools.ground.lazy import need

_TOUR = "00_tour.ipynb"
_Texts: TypeAlias = Mapping[str, str] | None
_PICTURES = {"image/png": ".png", "image/svg+xml": ".svg"}


def add_commands(commands: Any) -> None:
    """Add ``demo`` to the parser's commands."""
    add_command(commands, __file__, "demo", Path=Path).set_defaults(perform=_demo)


def _manual() -> Path:
    """Return the folder of the notebooks: beside the package in a checkout, inside it when it was installed."""
    package = Path(__file__).parent.parent
    for folder in (package.parent / "notebooks", package / "notebooks"):
        if (folder / _TOUR).is_file():
            return folder
    raise FileMissing(
        f"the tour {_TOUR} was not found beside {package}.",
        hint="Install nbtools-kit again, or run the demo from a checkout.",
    )


def _demo(arguments: argparse.Namespace) -> int:
    out = arguments.out.resolve()
    manual = _manual()
    if files := [path for path in (out, *out.parents) if path.exists() and not path.is_dir()]:
        raise InvalidArguments(f"{str(files[0])!r} is a file.", hint="--out names a folder, which may be new.")
    out.mkdir(parents=True, exist_ok=True)
    # The tour works on copies and with its own memory: what the user has is not touched.
    shutil.copytree(manual / "data", out / "data", dirs_exist_ok=True)
    begun = time.perf_counter()
    with _home_for_once() as home:
        environment = {"NBTOOLS_HOME": str(home), "ALLOWED_PATHS": str(out), "NBTOOLS_KERNEL_WARM": "0"}
        executed = run_notebook(manual / _TOUR, out / _TOUR, environment=environment)
    pictures = _save_pictures(executed, out)
    page = _save_html(executed, out / "00_tour.html")
    print(f"\nThe tour ran in {time.perf_counter() - begun:.0f} s. It is in {out}:")
    for path in (out / _TOUR, page, *pictures):
        print(f"  {path.relative_to(out)}  ({path.stat().st_size:,} bytes)")
    return 0


@contextlib.contextmanager
def _home_for_once() -> Iterator[Path]:
    """Yield a home of which nothing is left: no file, and no process that keeps its memory."""
    with tempfile.TemporaryDirectory(prefix="nbtools-demo-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            reset(Path(folder))


def run_notebook(
    source: Path,
    target: Path,
    *,
    environment: _Texts = None,
    cell_seconds: int = 300,
) -> Any:
    """Execute a notebook in the folder of `target`, showing progress, and write it there.

    Parameters
    ----------
    source
        The notebook.
    target
        Where the executed notebook goes; written also when a cell fails, up to that cell.
    environment
        Variables for the kernel, beside this process's own.
    cell_seconds
        The most time that a cell may take.

    Returns
    -------
    NotebookNode
        The executed notebook.

    Raises
    ------
    ExecutionFailed
        A cell raised; the message names it.
    CallTimeout
        A cell took too long.
    KernelDied
        The kernel ended in a cell.
    KeyboardInterrupt
        Ctrl-C ended it.
    MissingExtra
        The extra ``lab`` is not installed.
    """
    why = "Running a notebook"
    nbformat = need("nbformat", extra="lab", why=why)
    need("nbclient", extra="lab", why=why)
    book = nbformat.read(source, as_version=4)
    client = _client(book, target.parent, cell_seconds)
    try:
        # The manager is ours, so nbclient would leave the kernel running. What cells say is in the notebook; what the
        # kernel says of itself, of its loopback sockets and of being ended in a cell, is for nobody.
        options = {"env": {**os.environ, **(environment or {})}, "stderr": subprocess.DEVNULL}
        asyncio.run(_execute(client, options))
    except Exception as exc:
        if _is_stopped(client):
            raise KeyboardInterrupt from None
        raise _why(exc, source, target, cell_seconds) from exc
    finally:
        nbformat.write(book, target)
    return book


async def _execute(client: Any, options: Mapping[str, Any]) -> None:
    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not _is_stopped(client):
            loop.default_exception_handler(context)

    asyncio.get_running_loop().set_exception_handler(report)
    await client.async_execute(cleanup_kc=True, **options)


def _is_stopped(client: Any) -> bool:
    """Return whether Ctrl-C came: nbclient ends the kernel below itself then, and what fails in it comes of that."""
    return getattr(client, "_async_cleanup_kernel_future", None) is not None


def _client(book: Any, folder: Path, cell_seconds: int) -> Any:
    """Return what runs a notebook in a folder, and shows on standard error which cell it is at."""
    import nbclient

    cells = [cell for cell in book.cells if cell.cell_type == "code"]

    def progress(cell: Any, cell_index: int) -> None:
        if cell.cell_type == "code":
            title = (cell.source.strip().splitlines() or [""])[0][:70]
            print(f"[{cells.index(cell) + 1:>2}/{len(cells)}] {title}", file=sys.stderr, flush=True)

    return nbclient.NotebookClient(
        book,
        km=_own_kernel(),
        timeout=cell_seconds,
        iopub_timeout=60,  # on a busy machine outputs come long after the reply, and would be lost
        store_widget_state=False,  # pages without a kernel show the plain forms
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=progress,
    )


def _why(problem: Exception, source: Path, target: Path, seconds: int) -> Exception:
    """Return why a notebook did not run to its end, in our words where we have some."""
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    words: dict[str, Any] = {"hint": f"The notebook up to there is in {target}.", "tried": f"running {source.name}"}
    if isinstance(problem, CellExecutionError):
        return ExecutionFailed(f"a cell of {source.name} failed: {problem.ename}: {problem.evalue}", **words)
    if isinstance(problem, CellTimeoutError):
        return CallTimeout(f"a cell of {source.name} took more than its {seconds} s.", **words)
    if isinstance(problem, DeadKernelError):
        return KernelDied(f"the kernel ended in a cell of {source.name}.", **words)
    return problem


def _own_kernel() -> Any:
    """Return a manager of this interpreter's kernel, whatever kernelspecs the machine has."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    specs = KernelSpecManager(kernel_dirs=[], ensure_native_kernel=True)
    return AsyncKernelManager(kernel_name="python3", kernel_spec_manager=specs)


def _save_pictures(book: Any, out: Path) -> list[Path]:
    """Write every picture of the notebook to a file, and return them with those that scripts wrote."""
    folder = out / "pictures"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for cell in book.cells:
        for output in cell.get("outputs", ()):
            for mime, suffix in _PICTURES.items():
                if mime in output.get("data", {}):
                    content = output["data"][mime]
                    path = folder / f"{len(list(folder.iterdir())) + 1:02d}{suffix}"
                    path.write_bytes(content.encode() if mime.endswith("xml") else base64.b64decode(content))
    return sorted({*folder.iterdir(), *out.glob("*.png"), *out.glob("*.svg")})


def _save_html(book: Any, target: Path) -> Path:
    exporters = need("nbconvert.exporters", extra="lab", why="Writing HTML")
    # No formula is in the tour, so the page asks nothing of the network.
    body, _ = exporters.HTMLExporter(mathjax_url="", require_js_url="").from_notebook_node(book)
    target.write_text(body, encoding="utf-8")
    return target
