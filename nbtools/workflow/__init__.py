"""Workflows: YAML files that are checked before they run, and runs that survive their driver.

The modules build on each other in this order::

    findings      what is wrong, where, how it is shown; codes.yaml says what each code means
    document      YAML with the place of every key and value
    expressions   ${…} in texts: read them, fill them in
    spec          models of the file
    graph         who needs whom, cycles, what may be skipped
    schemas       JSON Schemas as types
    checks/       everything that can be wrong with a file
    runs/         a run: its events, the state that they lead to, what comes next, and where it is kept
    validation    all checks over a file and the files that it names
    driver/       does what the plan of a run says, and looks up what earlier runs have left
    views/        what people see of a run: its graph, a table, a live picture, a report, a notebook
    offered       files as tools
    service       run, resume, preview, show, answer, cancel

`validate` needs the tools and nothing else; it runs nothing. `Workflows` is ``wb.workflows`` of a workbench.
"""

from typing import TYPE_CHECKING

from nbtools.ground.lazy import facade

if TYPE_CHECKING:
    from nbtools.workflow.findings import Report, WorkflowFinding, explain
    from nbtools.workflow.service import WorkflowExecutor, Workflows
    from nbtools.workflow.spec import Workflow, editor_schema
    from nbtools.workflow.validation import validate
    from nbtools.workflow.views.live import LiveView
    from nbtools.workflow.views.repeat import RepeatedSteps
    from nbtools.workflow.workflow_run import OpenQuestion, WorkflowRun

__all__ = [
    "LiveView",
    "OpenQuestion",
    "RepeatedSteps",
    "Report",
    "Workflow",
    "WorkflowExecutor",
    "WorkflowFinding",
    "WorkflowRun",
    "Workflows",
    "editor_schema",
    "explain",
    "validate",
]

__getattr__ = facade(__name__)
