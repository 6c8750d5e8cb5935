"""Runs of workflows: what happens in one, what state that leaves, what comes next, and where it is kept."""
