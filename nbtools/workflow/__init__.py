"""Workflows: YAML files that are checked before they run.

::

    spec          models of the file
"""
