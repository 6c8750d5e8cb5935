"""Kernels on another machine, behind a Jupyter server."""
