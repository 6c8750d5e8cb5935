"""Writing a run to its file, as a notebook or as a workflow, below the allowed folders and over nothing else."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from nbtools.agent.exports.notebook import RunExport, check_place, made_again, notebook_of
from nbtools.agent.exports.proof import once_only, prove
from nbtools.agent.exports.workflow import workflow_of
from nbtools.contract.execute import LocalExecutor
from nbtools.errors import InvalidArguments
from nbtools.ground.aio import in_thread
from nbtools.ground.paths import Roots
from nbtools.memory import AgentMemory

RunFacts: TypeAlias = tuple[str, str, str, Sequence[Mapping[str, Any]]]
"""The id of a run, what was asked, the model or what stood in its place, and its events."""


async def write_workflow(
    facts: RunFacts, path: str | Path, executor: LocalExecutor, check: Callable[[str], str]
) -> RunExport:
    """Write a run as a workflow; `check` returns what is wrong with the YAML of one."""
    target = await _target_of(path, executor, as_workflow=True)
    text, calls = workflow_of(*facts, executor.tools())
    proof = await in_thread(check, text)
    await _write(target, text, executor)
    return RunExport(path=str(path), calls=calls, proof=proof, is_workflow=True)


async def write_notebook(
    facts: RunFacts, path: str | Path, executor: LocalExecutor, *, prove_it: bool, repeat: Collection[int]
) -> RunExport:
    """Write a run as a notebook, with its outputs where it is proved.

    Calls that destroy or reach out are not made again, but those whose numbers are in `repeat`.

    Raises
    ------
    InvalidArguments
        There is no call of a number.
    """
    target, roots = await _target_of(path, executor, as_workflow=False), executor.door.services[Roots]()
    start = await in_thread(os.path.relpath, roots.start(), target.parent)
    again = list(made_again(facts[3]))
    if unknown := [number for number in repeat if not 1 <= number <= len(again)]:
        raise InvalidArguments(f"there is no call {unknown[0]}.", hint=f"The calls are 1 to {len(again)}.")
    repeated = {call_id for number, (call_id, _, _) in enumerate(again, 1) if number in repeat}
    whys = {key: await once_only(executor, name, arguments) for key, name, arguments in again if key not in repeated}
    left = {call_id: why for call_id, why in whys.items() if why}
    book, calls = notebook_of(*facts, folder=start, left=left)
    memory = executor.door.services[AgentMemory]
    book, proof = await prove(book, facts[3], roots, await in_thread(memory)) if prove_it else (book, "")
    await _write(target, json.dumps(book, ensure_ascii=False, indent=1), executor)
    return RunExport(path=str(path), calls=calls, proof=proof, not_repeated=len(left))


async def _target_of(path: str | Path, executor: LocalExecutor, *, as_workflow: bool) -> Path:
    roots = executor.door.services[Roots]()
    target = Path(await in_thread(roots.resolve, path, must_exist=False, for_writing=True))
    await in_thread(check_place, target, as_workflow=as_workflow)
    return target


async def _write(target: Path, text: str, executor: LocalExecutor) -> None:
    content = io.BytesIO(text.encode("utf-8", "backslashreplace"))
    await in_thread(executor.door.services[Roots]().write_file, target, content)
