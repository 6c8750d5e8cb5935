"""Kernels forked from a process that has loaded the libraries."""
