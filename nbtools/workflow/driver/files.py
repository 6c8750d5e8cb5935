"""Files that steps leave: kept in the folder of the run, named for later code, and readable for later tools.

Tools read only below the allowed folders, and the folder of a run is not one of them. So a file of a run that a step
names is linked into the folder of what scripts left, which they may read, and named by where it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nbtools.conduct.run_folder import link_file
from nbtools.contract.wire.json_values import replace_nested
from nbtools.ground.paths import ARTIFACTS


def named_files(artifacts: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the path of each file of a node by its name: where it lies in the folder of the step.

    Items have their number before it: ``2/chart.png``.
    """
    files: dict[str, str] = {}
    for artifact in artifacts:
        path = Path(artifact["path"])
        folder = _folder(path)
        item = folder.name.rpartition(".")[2] if folder is not None and "." in folder.name else ""
        name = path.name if folder is None else path.relative_to(folder).as_posix()
        files[f"{item}/{name}" if item else name] = str(path)
    return files


def folders_of(paths: Iterable[str]) -> list[str]:
    """Return what code has to read for these files: the folder of the step, or the file itself where it lies elsewhere.

    A folder and no file: code finds a link to it, and a file of the user must not be written through a link.
    """
    return list(dict.fromkeys(str(_folder(Path(path)) or path) for path in paths))


def _folder(path: Path) -> Path | None:
    """Return the folder of the step that has left a file; `None` for a file that is not kept with a run."""
    folder = next((above for above in path.parents if above.parent.name == ARTIFACTS), None)
    return folder if folder is not None and (folder.parent.parent / "run.json").exists() else None


def readable(value: Any, paths: Iterable[str], loc: Path) -> Any:
    """Return a value in whose texts files of a run have names that tools may read.

    Parameters
    ----------
    value
        Arguments, or a prompt.
    paths
        The files that the step may read.
    loc
        The folder of what scripts left.
    """
    # A path may begin with another one, which would be replaced in its middle.
    longest_first = sorted(paths, key=len, reverse=True)

    def renamed(one: Any) -> Any:
        for path in longest_first if isinstance(one, str) else ():
            if path in one and (folder := _folder(Path(path))) is not None:
                name = Path(folder.parent.parent.name, folder.name, Path(path).relative_to(folder))
                link_file(Path(path), loc / name)
                one = one.replace(path, str(Path(ARTIFACTS, name)))
        return one

    return replace_nested(value, renamed) if longest_first else value


def keep(artifacts: list[dict[str, Any]], source: Path, folder: Path) -> list[dict[str, Any]]:
    """Return the files of a call, those that would go with the workbench kept in the folder of the step."""
    copies = []
    for artifact in artifacts:
        path = Path(artifact["path"])
        if source not in path.parents:
            copies.append(artifact)
            continue
        link_file(path, folder / path.name)
        copies.append({**artifact, "path": str(folder / path.name)})
    return copies
