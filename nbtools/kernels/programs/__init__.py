"""Kernels that are programs, one for each language of `nbtools.kernels.languages` but Python."""
