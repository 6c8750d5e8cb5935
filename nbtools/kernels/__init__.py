"""Managed kernels."""
