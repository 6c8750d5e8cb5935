"""Validation: everything that is wrong with a workflow file, found in one pass, without running anything.

The order is: YAML, shape, tools, order of nodes, expressions, calls, code, schemas, safety. Each check takes what the
earlier ones left, so that one mistake hides no other. Workflow files that a file names are validated with it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from nbtools.contract.tool import Tool
from nbtools.ground.paths import working_folder
from nbtools.workflow.checks.calls import check_calls, configure
from nbtools.workflow.checks.code import check_code
from nbtools.workflow.checks.json_schema import check_schemas
from nbtools.workflow.checks.order import check_order
from nbtools.workflow.checks.prompts import FindModel, check_prompts
from nbtools.workflow.checks.safety import check_safety, find_tainted
from nbtools.workflow.checks.shape import read_workflow
from nbtools.workflow.checks.subject import Subject
from nbtools.workflow.checks.values import check_values
from nbtools.workflow.document import Document, Place, SourceText
from nbtools.workflow.findings import Report, WorkflowFinding, allowed
from nbtools.workflow.spec import ConfiguredWorkflow, PromptNode, WorkflowNode

# What pydantic-ai's AgentSpec takes; that package is an extra, and a file is checked without it.
_AGENT_KEYS = (
    *("model", "name", "description", "instructions", "deps_schema", "output_schema", "model_settings", "retries"),
    *("end_strategy", "tool_timeout", "metadata", "capabilities", "$schema"),
)


def validate(
    source: str | os.PathLike[str],
    registry: Mapping[str, Tool] | None = None,
    *,
    find_model: FindModel | None = None,
) -> Report:
    """Return what is wrong with a workflow, and its model when nothing is.

    Parameters
    ----------
    source
        A path, or the YAML itself: a text with a line break is YAML. Files that the YAML names lie beside the file; for
        a text, in the working folder.
    registry
        The tools that nodes may call; `None` leaves names and arguments of tools unchecked.
    find_model
        Finds the models of prompts; `None` leaves their names unchecked.

    Returns
    -------
    Report
        Findings sorted by file and line; ``report.workflow`` is the model when there is no error.
    """
    validation = _Validation(registry, find_model)
    if isinstance(source, str) and "\n" in source:
        subject = validation.read(Document(source), working_folder(), ())
        path = "<text>"
    else:
        path = os.fspath(source)
        subject = validation.read(Document.open(Path(path), path), Path(path).parent, (Path(path).resolve(),))
    return validation.report(path, subject)


@dataclasses.dataclass(eq=False)
class _Validation:
    """One run of the checks over a file and the files that it names."""

    registry: Mapping[str, Tool] | None
    find_model: FindModel | None
    sources: list[SourceText] = dataclasses.field(default_factory=list)
    files: list[Path] = dataclasses.field(default_factory=list)
    subs: dict[Path, Subject | None] = dataclasses.field(default_factory=dict)

    def report(self, path: str, top: Subject | None) -> Report:
        """Return the findings of all files, each once, the first file's first."""
        findings: list[WorkflowFinding] = []
        for source in self.sources:
            findings += sorted(set(source.findings), key=lambda finding: (finding.line, finding.column, finding.code))
        is_ok = not any(finding.level == "error" for finding in findings)
        workflow = top.workflow if is_ok and top is not None else None
        return Report(path=path, findings=tuple(findings), workflow=workflow, files=tuple(self.files))

    def read(self, document: Document, folder: Path, trail: tuple[Path, ...]) -> Subject | None:
        """Check one file, then the files that it names, and return what was made of it."""
        self.sources.append(document)
        self.files += trail[-1:]
        if document.root is None and document.findings:
            return None
        workflow, nodes, ids = read_workflow(document)
        if workflow is None:
            return None
        opened: dict[str, Subject | None] = {}
        subject = Subject(
            document=document, workflow=workflow, nodes=nodes, ids=ids, registry=self.registry, open_sub=opened.get
        )
        for path, loc in _named_files(subject):
            if path not in opened:
                opened[path] = self._open(subject, path, loc, folder, trail)
        # Tools first, because types, taints and arguments of nodes follow from what the tools of the file are.
        configure(subject)
        find_tainted(subject)
        check_order(subject)
        check_values(subject)
        check_calls(subject)
        check_prompts(subject, self.find_model)
        scripts: list[SourceText] = []
        check_code(subject, folder, scripts)
        self.sources += scripts
        # They are frozen with the run, as the workflow is.
        self.files += [Path(script.path).resolve() for script in scripts]
        check_schemas(subject)
        check_safety(subject)
        self._check_agents(subject, folder)
        return subject

    def _open(self, subject: Subject, path: str, loc: Place, folder: Path, trail: tuple[Path, ...]) -> Subject | None:
        """Return the subject of a workflow file that another one names; a file that is not there is told."""
        if "${" in path:
            return None
        file = (folder / path).resolve()
        # Told at the file that closes the circle, whose line is the one to be changed.
        if file in trail:
            names = [*trail[trail.index(file) :], file]
            cycle = " → ".join(name.name for name in names)
            subject.tell("WF046", loc, f"These files run each other: {cycle}.", "One of them must not.")
            return None
        if not file.is_file():
            near = ", ".join(sorted(other.name for other in file.parent.glob("*.y*ml"))[:8])
            subject.tell("WF045", loc, f"There is no file {path!r}.", f"Beside it are: {near}." if near else "")
            return None
        if file not in self.subs:
            self.subs[file] = self.read(Document.open(file, str(folder / path)), file.parent, (*trail, file))
        return self.subs[file]

    def _check_agents(self, subject: Subject, folder: Path) -> None:
        for _, node in subject.nodes.values():
            if isinstance(node, PromptNode) and node.agent is not None and "${" not in node.agent:
                file = (folder / node.agent).resolve()
                if not file.is_file():
                    subject.tell("WF045", subject.loc_of(node, "agent"), f"There is no file {node.agent!r}.")
                elif file not in self.files:
                    self.files.append(file)
                    self._check_agent(Document.open(file, str(folder / node.agent)))

    def _check_agent(self, document: Document) -> None:
        """Report keys that the form of an agent's file does not have."""
        self.sources.append(document)
        if not isinstance(document.data, dict):
            if not document.findings:
                document.tell("WF013", document.span(()), "The file is not a mapping.", "It has keys such as model.")
            return
        for name in document.data:
            if name not in _AGENT_KEYS:
                span = document.span((name,), key=True)
                document.tell("WF015", span, f"{name!r} is not a key of an agent.", allowed(name, _AGENT_KEYS, "Keys"))


def _named_files(subject: Subject) -> list[tuple[str, Place]]:
    """Return the workflow files that a file names, with the places that name them."""
    tools = [
        (tool.workflow, ("tools", name, "workflow"))
        for name, tool in subject.workflow.tools.items()
        if isinstance(tool, ConfiguredWorkflow)
    ]
    nodes = [
        (node.workflow, subject.loc_of(node, "workflow"))
        for _, node in subject.nodes.values()
        if isinstance(node, WorkflowNode)
    ]
    return [*tools, *nodes]
