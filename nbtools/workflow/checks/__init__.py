"""Checks of a workflow file: each takes a `nbtools.workflow.checks.subject.Subject` and adds findings to it."""
